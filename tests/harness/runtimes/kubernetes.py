"""A Kubernetes cluster on this machine: an API server outside, and nodes with a containerd and a kubelet on a switch.

Nothing of netplug is on it: no definitions, no configuration for pods. The API server, the controllers and the
scheduler run on the machine's loopback, and each node reaches the server at the same address. So the server reaches
no kubelet: `kubectl exec` and `kubectl logs` do not work.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import frozen

from tests.harness.node import NetnsNode
from tests.harness.runtimes.nodes import open_runtime_node, run_containerd
from tests.harness.servers.binaries import find_kubernetes_program
from tests.harness.servers.kube_apiserver import ApiServer, start_api_server
from tests.harness.servers.port_forward import forward_port
from tests.harness.servers.ports import reserve_port
from tests.harness.switch import NodePort, open_switch, plug_in
from tests.harness.waiting import wait_until

__all__ = ["KubernetesCluster", "open_kubernetes_cluster"]

_KUBELET_ROOT = "/run/kubelet"

# For a machine whose control groups belong to others, and whose disk may be nearly full.
_KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "cgroupsPerQOS": False,
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "enforceNodeAllocatable": [],
    "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "1Mi"},
    "failCgroupV1": False,
    "failSwapOn": False,
    "localStorageCapacityIsolation": False,
    "resolvConf": "",
    "syncFrequency": "5s",
}

# A kubelet changes these settings of the whole machine unless they are so already: on the node they seem to be.
_TUNABLES = """
mkdir -p /run/tunables
while read -r path value; do
    echo "$value" >"/run/tunables/${path##*/}"
    mount --bind "/run/tunables/${path##*/}" "/proc/sys/$path"
done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END
"""


@frozen
class KubernetesCluster:
    """The API server, and the nodes by their names in the cluster."""

    server: ApiServer
    nodes: dict[str, NetnsNode]


@contextmanager
def open_kubernetes_cluster(folder: Path, image: Path, *names: str) -> Iterator[KubernetesCluster]:
    """A cluster of nodes of these names, which have the image; none of them is ready, for want of a network."""
    with ExitStack() as stack:
        (server_folder := folder / "server").mkdir()
        server = stack.enter_context(start_api_server(server_folder))
        _run_control_plane(stack, server)
        switch = stack.enter_context(open_switch())
        nodes: dict[str, NetnsNode] = {}
        for number, name in enumerate(names, 1):
            (node_folder := folder / name).mkdir()
            node = nodes[name] = stack.enter_context(open_runtime_node(node_folder))
            node.run("sh", "-ec", f"echo {name} >/proc/sys/kernel/hostname\n{_TUNABLES}")
            stack.enter_context(forward_port(node, server.port))
            port = plug_in(node, switch, number)
            stack.enter_context(run_containerd(node, image))
            _run_kubelet(stack, server, node, name, port)
        yield KubernetesCluster(server, nodes)


def _run_control_plane(stack: ExitStack, server: ApiServer) -> None:
    """The controllers, which make pods of deployments, and the scheduler."""
    kubeconfig = f"--kubeconfig={server.write_kubeconfig()}"
    for name, arguments in (
        (
            "kube-controller-manager",
            (
                f"--service-account-private-key-file={server.folder / 'accounts.key'}",
                f"--root-ca-file={server.ca_file}",
            ),
        ),
        ("kube-scheduler", ()),
    ):
        local = ("--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={reserve_port()}")
        command = (find_kubernetes_program(name), kubeconfig, *local, *arguments)
        _run(stack, server.folder / f"{name}.log", *command)


def _run_kubelet(stack: ExitStack, server: ApiServer, node: NetnsNode, name: str, port: NodePort) -> None:
    command = (
        find_kubernetes_program("kubelet"),
        f"--config={node.write_file('kubelet.json', json.dumps(_KUBELET))}",
        f"--kubeconfig={server.write_kubeconfig()}",
        f"--node-ip={port.ipv4}",
        f"--root-dir={_KUBELET_ROOT}",
        f"--cert-dir={_KUBELET_ROOT}/pki",
    )
    log = Path(node.file("kubelet.log"))
    process = _run(stack, log, *node.entering("", command))
    path = f"/api/v1/nodes?fieldSelector=metadata.name%3D{name}"
    wait_until(lambda: process.poll() is not None or bool(server.get(path)["items"]), f"{name} is in the cluster")
    assert process.poll() is None, log.read_text()[-3000:]


def _run(stack: ExitStack, log: Path, *command: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
