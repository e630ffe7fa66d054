"""A cluster with nothing of netplug on it, ways to install it there, and what pods show when it works.

The nodes have the image of ``make images`` and nothing else. Where netplug makes no routes between nodes, they are
added here.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from attrs import frozen

from netplug_core.installation.controllers import CONTROLLERS_NAME
from tests.harness.installations import manifest
from tests.harness.node import NetnsNode
from tests.harness.runtimes.image import IMAGE
from tests.harness.runtimes.kubernetes import ClusterPod, KubernetesCluster, open_kubernetes_cluster
from tests.harness.runtimes.nodes import missing_runtime
from tests.harness.tool_user import ToolUser
from tests.harness.waiting import wait_until
from tools.manifests import MANIFESTS

__all__ = ["BIN", "CONF", "NAMESPACE", "EmptyCluster", "open_empty_cluster"]

NAMESPACE = "shop"
BIN, CONF = "/opt/cni/bin", "/etc/cni/net.d"
_APP = "web"
_POLICY = "clients"
_LETS_CLIENTS_IN = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": _POLICY},
    "spec": {
        "podSelector": {"matchLabels": {"app": _APP}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"role": "client"}}}]}],
    },
}
_PAGE = Path(__file__).parents[3] / "docs" / "uninstall.md"
_ADDS = re.compile(r'^netplug_node_calls_total\{code="0",command="ADD",program="netplug"\} (\S+)$', re.MULTILINE)
_PING = re.compile(r"bytes from .* seq=(\d+) ")
_REACHED_S = 60
_UNINSTALLER = re.compile(r"<<'YAML'\n(.*?)YAML\n", re.DOTALL)
_FETCH = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9470/metrics').read().decode())"
_OWN_LINKS = {"lo", "up0", "lan0"}

# Where an installation puts files. What containerd and the kubelet have there is not netplug's.
_FOLDERS = f"{BIN} {CONF} /etc/netplug /var/lib/netplug /var/log/netplug /run/netplug /var/lib/cni"
_LEFT_SCRIPT = f"""
find {_FOLDERS} ! -type d 2>/dev/null
nft list tables | grep netplug
ip -4 route show table all proto 78; ip -6 route show table all proto 78
ip -o link | grep -o '[a-z0-9]*[.]netplug'; ip nexthop show proto 78
true
"""
_FORGET_SCRIPT = f"""
mkdir -p {_FOLDERS}
find {_FOLDERS} ! -type d -delete
nft delete table inet netplug_net 2>/dev/null || true
"""


class Routes(Enum):
    """Who makes routes between the nodes."""

    OF_NETPLUG = "netplug"
    BY_HAND = "by hand"


@frozen
class EmptyCluster:
    """A cluster, on which netplug is installed, used and taken away."""

    cluster: KubernetesCluster

    @property
    def nodes(self) -> dict[str, NetnsNode]:
        """Its nodes by name."""
        return self.cluster.nodes

    def start_pods(self, replicas: int, routes: Routes = Routes.OF_NETPLUG) -> list[ClusterPod]:
        """So many pods, shared among the nodes, all of them ready."""
        self.cluster.run_kubectl("create", "namespace", NAMESPACE)
        self.cluster.deploy(NAMESPACE, _APP, IMAGE, replicas=replicas)
        pods = self.cluster.pods(NAMESPACE, f"app={_APP}")
        assert {pod.node for pod in pods} == set(self.nodes)
        for pod in pods if routes is Routes.BY_HAND else ():
            self.add_routes(pod)
        return pods

    def add_routes(self, pod: ClusterPod) -> None:
        """What another program does where netplug makes no routes: other nodes reach the pod through its node."""
        for name, node in self.nodes.items():
            if name != pod.node:
                node.run("ip", "route", "replace", pod.address, "via", self._address_of(pod.node), "proto", "static")

    def _address_of(self, node: str) -> str:
        (lan,) = json.loads(self.nodes[node].run("ip", "-j", "-4", "addr", "show", "dev", "lan0"))
        return str(lan["addr_info"][0]["local"])

    def check_pings(self, pods: list[ClusterPod]) -> None:
        """Each pod reaches each other one. A node learns a moment after the pod is ready where its block is."""
        for pod in pods:
            others = [other.address for other in pods if other is not pod]
            script = "\n".join(f"until ping -c 1 -W 1 {address}; do sleep 0.1; done" for address in others)
            self.cluster.run_inside(pod, "timeout", str(_REACHED_S), "sh", "-ec", script)

    def check_policy(self, pods: list[ClusterPod]) -> None:
        """A NetworkPolicy that lets one pod in lets in no other, from its own node or another; without it, all come."""
        kubectl = partial(self.cluster.run_kubectl, "-n", NAMESPACE)
        kubectl("label", "pod", pods[0].name, "role=client")
        kubectl("apply", "-f", "-", stdin=json.dumps(_LETS_CLIENTS_IN))
        for pod in pods:
            is_client = pod is pods[0]
            until, is_wrong = ("until", "! ping") if is_client else ("while", "ping")
            others = [other.address for other in pods if other is not pod]
            lines = [f"{until} ping -c 1 -W 1 {address}; do sleep 0.1; done" for address in others]
            lines += [f"if {is_wrong} -c 1 -W 1 {address}; then exit 1; fi" for address in others]
            self.cluster.run_inside(pod, "timeout", str(_REACHED_S), "sh", "-ec", "\n".join(lines))
        kubectl("delete", "networkpolicy", _POLICY)
        self.check_pings(pods)

    @contextmanager
    def pinging(self, pods: Sequence[ClusterPod]) -> Iterator[Callable[[], list[int]]]:
        """The first pod pings the second one all the time. The result says which pings had no answer by then.

        Those before the first answer are not counted: the nodes are learning where the pods are. The last ones may have
        none yet.
        """
        first, second = pods[:2]
        self.cluster.run_inside(first, "touch", "/tmp/pings")
        script = f"exec ping -i 0.2 {second.address} >/tmp/pings"
        process = self.nodes[first.node].start_process(*self.cluster.entering(first, ("sh", "-c", script)))

        def answered() -> list[int]:
            return [int(number) for number in _PING.findall(self.cluster.run_inside(first, "cat", "/tmp/pings"))]

        wait_until(lambda: len(answered()) > 1, "pings are answered")
        yield lambda: sorted({*range(min(found := answered()), max(found))} - {*found})
        assert process.poll() is None, "the pings have gone on until now"

    @contextmanager
    def asking_status(self) -> Iterator[list[set[str]]]:
        """Ask the plugin of each node for its STATUS, round after round: which nodes had none that works, by round.

        They are asked as a runtime does: the executable and the conflist that are on the node at that moment.
        """
        rounds, is_over = list[set[str]](), Event()

        def ask() -> None:
            while not is_over.is_set():
                rounds.append({name for name, node in self.nodes.items() if not _has_working_plugin(node)})

        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask)
            wait_until(lambda: asked.done() or len(rounds) > 0, "the nodes were asked")
            try:
                yield rounds
            finally:
                is_over.set()
            asked.result()

    def stop_pods(self) -> None:
        """Delete the pods; returns when their interfaces are gone from the nodes."""
        self.cluster.run_kubectl("delete", "namespace", NAMESPACE, "--timeout=290s")
        for node in self.nodes.values():
            node.run("ip", "route", "flush", "proto", "static")
            wait_until(partial(_has_no_pod, node), "the interfaces of pods are gone")

    def adds_of_node_processes(self) -> int:
        """How many ADDs the node processes have served with success, by their metrics."""
        found = 0.0
        for node in self.nodes.values():
            page = node.run("python3", "-c", _FETCH)
            found += sum(float(count) for count in _ADDS.findall(page))
        return int(found)

    def make_tool(self, folder: Path, **settings: object) -> ToolUser:
        """An administrator's netplugctl; with settings that are not the cluster's own datastore."""
        kubeconfig = self.cluster.server.write_kubeconfig()
        return ToolUser(folder, {"datastoreType": "kubernetes", "kubeconfig": kubeconfig, **settings})

    def check_works(self, tool: ToolUser) -> None:
        """The tool says that netplug works; the controllers may need longer than the nodes."""
        wait_until(lambda: tool.run_command("install", "status").status == 0, "the tool says that netplug works")

    def create_installation(self, spec: Mapping[str, object] | None = None) -> None:
        """Apply the Installation ``default``, as soon as its definition is served."""
        kubectl = self.cluster.run_kubectl
        crd = "crd/installations.operator.projectnetplug.org"
        kubectl("wait", "--for=create", crd, "--timeout=290s")
        kubectl("wait", "--for=condition=Established", crd, "--timeout=290s")
        kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest(spec)))

    def wait_for_nodes(self) -> None:
        """Return when every node is ready, and the pods of netplug-node and of the controllers are."""
        for namespace in ("kube-system", "netplug-system"):
            for kind, name in (("daemonset", "netplug-node"), ("deployment", CONTROLLERS_NAME)):
                if self._has(kind, name, namespace):
                    rollout = ("-n", namespace, "rollout", "status", f"{kind}/{name}")
                    self.cluster.run_kubectl(*rollout, "--timeout=290s")
        self.cluster.run_kubectl("wait", "--for=condition=Ready", "--timeout=290s", "node", "--all")

    def _has(self, kind: str, name: str, namespace: str) -> bool:
        return bool(self.cluster.run_kubectl("-n", namespace, "get", kind, name, "--ignore-not-found", "-o", "name"))

    @contextmanager
    def showing_time(self, what: str) -> Iterator[None]:
        """Print how long something took; nothing is expected of it."""
        began = time.monotonic()
        yield
        print(f"{what}: {time.monotonic() - began:.0f} s from apply to ready")  # noqa: T201  # for who runs it

    def uninstall_from_nodes(self) -> None:
        """What the page says: pods that take netplug off every node."""
        (manifest,) = _UNINSTALLER.findall(_PAGE.read_text())
        self.cluster.run_kubectl("apply", "-f", "-", stdin=manifest)
        name = ("-n", "kube-system", "daemonset/netplug-uninstall")
        self.cluster.run_kubectl("rollout", "status", *name, "--timeout=290s")
        self.cluster.run_kubectl("delete", *name)

    def delete_definitions(self) -> None:
        """Remove everything that is stored in the cluster, as the page says."""
        file, policy = (str(MANIFESTS / "static" / name) for name in ("crds-v1.yaml", "deletion-policy.yaml"))
        self.cluster.run_kubectl("annotate", "--overwrite", "-f", file, "projectnetplug.org/allow-deletion=true")
        self.cluster.run_kubectl("delete", "--ignore-not-found", "-f", file)
        self.cluster.run_kubectl("delete", "--ignore-not-found", "-f", policy)

    def allow_deletion(self, manifest: str) -> None:
        """Annotate the definitions of a manifest, so that they may be deleted."""
        documents = [each for each in manifest.split("\n---\n") if "\nkind: CustomResourceDefinition\n" in f"\n{each}"]
        annotation = "projectnetplug.org/allow-deletion=true"
        self.cluster.run_kubectl("annotate", "--overwrite", "-f", "-", annotation, stdin="\n---\n".join(documents))

    def left_on_nodes(self) -> dict[str, set[str]]:
        """What of netplug is on each node: files, tables of the packet filter, routes."""
        return {name: {*node.run("sh", "-c", _LEFT_SCRIPT).splitlines()} for name, node in self.nodes.items()}

    def forget_on_nodes(self) -> None:
        """Remove what an uninstallation leaves."""
        for node in self.nodes.values():
            node.run("sh", "-ec", _FORGET_SCRIPT)

    def left_in_cluster(self) -> list[str]:
        """What of netplug is in the cluster."""
        kinds = "namespaces,crds,clusterroles,clusterrolebindings"
        below = "serviceaccounts,roles,rolebindings,configmaps,secrets,leases,daemonsets,deployments,jobs,pods"
        found = self.cluster.run_kubectl("get", kinds, "-o", "name") + self.cluster.run_kubectl(
            "get", below, "-A", "-o", "name"
        )
        return [line for line in found.splitlines() if "netplug" in line]


def _has_working_plugin(node: NetnsNode) -> bool:
    conflist = node.run_unchecked("cat", f"{CONF}/10-netplug.conflist").stdout
    if not conflist:
        return False
    whole = json.loads(conflist)
    netconf = {**whole["plugins"][0], "name": whole["name"], "cniVersion": "1.1.0"}
    call = ("env", "CNI_COMMAND=STATUS", f"CNI_PATH={BIN}", f"{BIN}/netplug")
    return node.run_unchecked(*call, stdin=json.dumps(netconf)).returncode == 0


def _has_no_pod(node: NetnsNode) -> bool:
    return {name for name in node.links() if not name.endswith(".netplug")} == _OWN_LINKS


@contextmanager
def open_empty_cluster(folder: Path, images: Sequence[Path], *names: str) -> Iterator[EmptyCluster]:
    """Nodes of these names, which have the images, on which nothing is installed."""
    if reason := missing_runtime("containerd", "ctr", "nft"):
        pytest.skip(reason)
    with open_kubernetes_cluster(folder, images, *names, plugin_folder=BIN) as cluster:
        yield EmptyCluster(cluster)
