"""A Kubernetes cluster on this machine: an API server outside, and nodes with a containerd and a kubelet on a switch.

Nothing of netplug is on it: no definitions, no configuration for pods. The API server, the controllers and the
scheduler run on the machine's loopback, and each node reaches the server at the same address, and at that of its
Service. So the server reaches no kubelet: `kubectl exec` and `kubectl logs` do not work.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

from attrs import frozen

from tests.harness.node import NetnsNode
from tests.harness.runtimes.nodes import open_runtime_node, run_containerd
from tests.harness.servers.binaries import find_kubernetes_program
from tests.harness.servers.kube_apiserver import SERVICE_ADDRESS, ApiServer, start_api_server
from tests.harness.servers.port_forward import forward_port
from tests.harness.servers.ports import reserve_port
from tests.harness.switch import NodePort, open_switch, plug_in
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until

__all__ = ["POD_CIDR", "ClusterPod", "KubernetesCluster", "open_kubernetes_cluster"]

POD_CIDR = "10.66.0.0/16"
"""What the nodes have their pod CIDRs from."""

_PATIENCE = "--timeout=290s"
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

# What kube-proxy does for the Service of the API server. The rule is as far from netplug's as a kube-proxy's would be.
_TO_THE_SERVICE = ("-t", "nat", "-A", "OUTPUT", "-d", SERVICE_ADDRESS, "-p", "tcp", "--dport", "443", "-j", "DNAT")


@frozen
class ClusterPod:
    """A pod, and how the runtime of its node calls its container."""

    name: str
    node: str
    address: str
    container: str


@frozen
class KubernetesCluster:
    """The API server, and the nodes by their names in the cluster."""

    server: ApiServer
    nodes: dict[str, NetnsNode]

    def run_kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What kubectl prints to an administrator; it succeeds."""
        command = (find_kubernetes_program("kubectl"), f"--kubeconfig={self.server.write_kubeconfig()}", *arguments)
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=EMERGENCY_STOP_S, check=False
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def deploy(
        self, namespace: str, name: str, image: str, *, replicas: int = 1, annotations: Mapping[str, str] | None = None
    ) -> None:
        """A deployment whose pods have these annotations, as many on each node; all of them are ready at the end."""
        labels = {"app": name}
        container = {"name": "main", "image": image, "command": ["/bin/pause"]}
        spread = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
        pod = {
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
            "topologySpreadConstraints": [spread],
        }
        template = {"metadata": {"labels": labels, "annotations": dict(annotations or {})}, "spec": pod}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        collection = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        self.server.create(collection, {"metadata": {"name": name}, "spec": spec})
        self.run_kubectl("-n", namespace, "rollout", "status", "deployment", name, _PATIENCE)

    def pods(self, namespace: str, label: str) -> list[ClusterPod]:
        """The pods with a label; each has a container that runs."""
        listed = json.loads(self.run_kubectl("-n", namespace, "get", "pods", "-l", label, "-o", "json"))["items"]
        return [
            ClusterPod(
                pod["metadata"]["name"],
                pod["spec"]["nodeName"],
                pod["status"]["podIP"],
                pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://"),
            )
            for pod in listed
        ]

    def run_inside(self, pod: ClusterPod, *command: str) -> str:
        """What a program prints in the pod; it succeeds."""
        return self.nodes[pod.node].run(*self.entering(pod, command))

    @staticmethod
    def entering(pod: ClusterPod, command: Sequence[str]) -> tuple[str, ...]:
        """The command line, on the pod's node, of a program that runs in the pod."""
        return ("ctr", "-n", "k8s.io", "task", "exec", "--exec-id", uuid4().hex, pod.container, *command)


@contextmanager
def open_kubernetes_cluster(
    folder: Path, images: Sequence[Path], *names: str, plugin_folder: str = ""
) -> Iterator[KubernetesCluster]:
    """A cluster of nodes of these names, which have the images; none of them is ready, for want of a network.

    Their containerd looks for plugins in ``plugin_folder``, without one where Debian's does.
    """
    with ExitStack() as stack:
        (server_folder := folder / "server").mkdir()
        server = stack.enter_context(start_api_server(server_folder, disabled_admission=""))
        _run_control_plane(stack, server)
        switch = stack.enter_context(open_switch())
        nodes: dict[str, NetnsNode] = {}
        for number, name in enumerate(names, 1):
            (node_folder := folder / name).mkdir()
            node = nodes[name] = stack.enter_context(open_runtime_node(node_folder))
            node.run("sh", "-ec", f"echo {name} >/proc/sys/kernel/hostname\n{_TUNABLES}")
            stack.enter_context(forward_port(node, server.port))
            node.run("iptables", *_TO_THE_SERVICE, "--to-destination", f"127.0.0.1:{server.port}")
            port = plug_in(node, switch, number)
            stack.enter_context(run_containerd(node, *images, plugin_folder=plugin_folder))
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
                "--allocate-node-cidrs=true",
                f"--cluster-cidr={POD_CIDR}",
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
