"""The quick start of a Kubernetes cluster: its page, followed on two nodes with a containerd and a kubelet each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen

from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Address
from tests.harness.annotations import prefixed
from tests.harness.node import NetnsNode, StoreInspector
from tests.harness.runtimes.environment import mount_environment
from tests.harness.runtimes.image import IMAGE
from tests.harness.runtimes.kubernetes import ClusterPod, KubernetesCluster, open_kubernetes_cluster
from tests.harness.runtimes.nodes import missing_runtime
from tests.harness.runtimes.pages import PageStep, read_page, run_page
from tests.harness.servers.binaries import find_kubernetes_program
from tests.harness.servers.kube_objects import open_store
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.runtimes, pytest.mark.cluster]

PAGE = "docs/quickstart-kubernetes.md"
PULLED = "docker.io/library/busybox:1"
KUBECONFIG = "/etc/kubernetes/admin.conf"
CONFLIST = "/etc/cni/net.d/10-netplug.conflist"
NODES = ("node-1", "node-2")
ARCHIVE = "netplug-node-v3.33.0-amd64.oci.tar"
OWN_LINKS = {"lo", "up0", "lan0"}
TUNNELS = "vxlan-"
MANY = 40
SHELL = "The administrator"
ON_EACH_NODE = "On each node"
SHOP_POOL = """netplugctl apply -f - <<'YAML'
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: shop}
spec: {cidr: 10.65.128.0/24, assignmentMode: Manual}
YAML
"""


@frozen
class Followed:
    """A cluster on which the page is followed; the administrator is on the first node."""

    cluster: KubernetesCluster
    path: str
    folder: str

    @property
    def nodes(self) -> dict[str, NetnsNode]:
        return self.cluster.nodes

    @property
    def administrators_node(self) -> NetnsNode:
        return self.nodes["node-1"]

    @property
    def store(self) -> StoreInspector:
        return StoreInspector(lambda: open_store(self.cluster.server, CrdMode.V1))

    def follow(self, *sections: str) -> None:
        """The administrator's part of the page, in the shell that the page begins with."""
        steps = [step for step in read_page(PAGE) if step.section in (SHELL, *sections)]
        run_page(self.administrators_node, steps, path=self.path)

    def install(self) -> None:
        """The page until the nodes have their network; the image is where the page has copied it."""
        shell = PageStep("", f"cd {self.folder}\n", None)
        steps = [step for step in read_page(PAGE) if step.section == ON_EACH_NODE]
        for node in self.nodes.values():
            run_page(node, [shell, *steps], path=self.path)
        self.follow("Install")

    def run_script(self, script: str) -> str:
        """What an administrator's script prints."""
        (shell,) = [step.script for step in read_page(PAGE) if step.section == SHELL]
        return self.administrators_node.run("bash", "-ec", shell + script, env={"PATH": self.path})

    def deploy(self, name: str, replicas: int = 1, **annotations: str) -> None:
        """A deployment whose pods have these annotations (short names), all of them ready."""
        self.cluster.deploy("shop", name, PULLED, replicas=replicas, annotations=prefixed(annotations))

    def look_inside(self, pod: ClusterPod) -> str:
        """What a program in the pod says about its interface."""
        return self.cluster.run_inside(pod, "ip", "addr", "show", "eth0")

    def pods(self, app: str) -> list[ClusterPod]:
        """Every pod of a deployment."""
        return self.cluster.pods("shop", f"app={app}")

    def has_no_pod(self) -> bool:
        """Whether no pod has left an interface, an address or a record; those of nodes stay."""
        links = {name for node in self.nodes.values() for name in node.links() if not name.endswith(".netplug")}
        handles = {*self.store.handles(), *self.store.held()}
        return links == OWN_LINKS and all(handle.startswith(TUNNELS) for handle in handles)


@pytest.fixture
def cluster(tmp_path: Path, node_image: Path, busybox_image: Path, host_environment: Path) -> Iterator[Followed]:
    """Two nodes that wait for a network, with what the page downloads first, and an administrator's kubeconfig."""
    if reason := missing_runtime("containerd", "ctr", "nft"):
        pytest.skip(reason)
    (programs := tmp_path / "bin").mkdir()
    (programs / "kubectl").symlink_to(find_kubernetes_program("kubectl"))
    (copied := tmp_path / "copied").mkdir()
    (copied / ARCHIVE).symlink_to(node_image)
    with open_kubernetes_cluster(tmp_path, [busybox_image], *NODES, plugin_folder="/opt/cni/bin") as opened:
        for node in opened.nodes.values():
            mount_environment(node, host_environment)
            node.run("ctr", "-n", "k8s.io", "images", "tag", IMAGE, PULLED)
        found = Followed(opened, f"{programs}:{os.environ['PATH']}", str(copied))
        text = Path(opened.server.write_kubeconfig()).read_text()
        script = f"mkdir -p {os.path.dirname(KUBECONFIG)}; cat >{KUBECONFIG}"
        found.administrators_node.run("sh", "-ec", script, stdin=text)
        yield found


def test_the_quick_start(cluster: Followed) -> None:
    """Every step but the first, which needs the internet. The archive is in the folder of each shell."""
    internet, *_ = read_page(PAGE)
    assert "make images" in internet.script
    cluster.install()
    cluster.follow("Pods")

    pods = cluster.pods("web")
    assert {pod.node for pod in pods} == set(cluster.nodes)
    for pod in pods:
        assert pod.address.startswith("192.168."), "of the pool of a new cluster"
        assert f" {pod.address}/32 " in cluster.look_inside(pod)
    assert {endpoint.spec.pod for endpoint in cluster.store.endpoints().values()} >= {pod.name for pod in pods}
    for node in cluster.nodes.values():
        assert node.run("ip", "route", "show", "proto", "78"), "netplug has made the routes, and nobody else"

    cluster.follow("A network policy")
    cluster.follow("If a pod does not start")
    cluster.follow("Delete")
    wait_until(cluster.has_no_pod, "nothing of pods is left")
    cluster.follow("Take it away")
    left = cluster.run_script("kubectl get namespaces,clusterroles,daemonsets -A -o name | grep netplug || true")
    assert left == ""


def test_every_annotation_of_a_deployment(cluster: Followed) -> None:
    """Each one seen from inside the pod, whose kubelet knows the same address."""
    cluster.install()
    for node in cluster.nodes.values():
        conflist = json.loads(node.run("cat", CONFLIST))
        conflist["plugins"][0]["feature_control"] = {"ip_addrs_no_ipam": True, "floating_ips": True}
        script = f"cat >{CONFLIST}.new; mv {CONFLIST}.new {CONFLIST}"
        node.run("sh", "-ec", script, stdin=json.dumps(conflist))
    cluster.run_script(f"{SHOP_POOL}kubectl create namespace shop")

    cluster.deploy("pools", ipv4pools='["shop"]')
    cluster.deploy("address", ipAddrs='["192.168.7.7"]')
    cluster.deploy("unassigned", ipAddrsNoIpam='["10.70.0.9"]')
    cluster.deploy("floating", floatingIPs='["192.0.2.77"]')
    cluster.deploy("mac", hwAddr="02:00:00:00:07:07")
    expected = {
        "pools": "inet 10.65.128.",
        "address": "inet 192.168.7.7/32 ",
        "unassigned": "inet 10.70.0.9/32 ",
        "floating": "inet 192.168.",
        "mac": "link/ether 02:00:00:00:07:07 ",
    }
    for app, text in expected.items():
        (pod,) = cluster.pods(app)
        shown = cluster.look_inside(pod)
        assert text in shown
        assert f"inet {pod.address}/32 " in shown
    assert "10.70.0.9" not in str(cluster.store.held())
    external = [str(nat.external) for one in cluster.store.endpoints().values() for nat in one.spec.ip_nats]
    assert external == ["192.0.2.77"]
    cluster.run_script("kubectl delete namespace shop")
    wait_until(cluster.has_no_pod, "nothing of pods is left")


def test_many_pods_up_and_down(cluster: Followed) -> None:
    """Every pod has an address of its own in its node's blocks, and nothing is left of any.

    On a busy machine calls reach their deadline. A DEL that does leaves a release record, and its addresses stay held
    until a later call drains it; so more pods come and go at the end.
    """
    cluster.install()
    cluster.run_script("kubectl create namespace shop")
    cluster.deploy("many", replicas=MANY)
    pods = cluster.pods("many")
    assert len({pod.address for pod in pods}) == MANY
    assert {address for held in cluster.store.held().values() for address in held} >= {pod.address for pod in pods}
    owners = {block.prefix: block.owner for block in cluster.store.blocks()}
    for pod in pods:
        (owner,) = [owner for prefix, owner in owners.items() if Address.parse(pod.address) in prefix]
        assert owner == f"host:{pod.node}"
    cluster.run_script(
        "kubectl -n shop delete deployment many; kubectl -n shop wait --for=delete pod --timeout=290s -l app=many"
    )
    cluster.deploy("last", replicas=len(cluster.nodes))
    cluster.run_script("kubectl delete namespace shop")
    wait_until(cluster.has_no_pod, "nothing of pods is left")
