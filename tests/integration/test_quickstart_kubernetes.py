"""The quick start of a Kubernetes cluster: its page, followed on two nodes with a containerd and a kubelet each."""

from __future__ import annotations

import json
import os
import re
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
MANY = 40
SHELL = "The administrator"
ON_EACH_NODE = "On each node"
ROUTE = re.compile(r"not on (\S+): (ip route replace \S+ via \S+)")


@frozen
class Followed:
    """A cluster on which the page is followed; the administrator is on the first node."""

    cluster: KubernetesCluster
    path: str

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
        """The page until the nodes have their network."""
        self.follow("Once for the cluster")
        made = self.administrators_node.run("cat", "/root/netplug-kubeconfig")
        for node in self.nodes.values():
            copy = "mkdir -p /etc/cni/net.d; umask 077; cat >/etc/cni/net.d/netplug-kubeconfig"
            node.run("sh", "-ec", copy, stdin=made)
        self.follow_on_each_node([step for step in read_page(PAGE) if step.section == ON_EACH_NODE])

    def follow_on_each_node(self, steps: list[PageStep]) -> None:
        for node in self.nodes.values():
            run_page(node, steps, path=self.path)

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

    def is_clean(self) -> bool:
        """Whether no pod has left an interface, an address or a record."""
        links = {name for node in self.nodes.values() for name in node.links()}
        return links == {"lo", "up0", "lan0"} and not self.store.held() and not self.store.handles()


@pytest.fixture
def cluster(tmp_path: Path, busybox_image: Path, host_environment: Path) -> Iterator[Followed]:
    """Two nodes that wait for a network, with what the page downloads first, and an administrator's kubeconfig."""
    if reason := missing_runtime("containerd", "ctr"):
        pytest.skip(reason)
    (programs := tmp_path / "bin").mkdir()
    (programs / "kubectl").symlink_to(find_kubernetes_program("kubectl"))
    with open_kubernetes_cluster(tmp_path, [busybox_image], "node-1", "node-2") as opened:
        for node in opened.nodes.values():
            mount_environment(node, host_environment)
            node.run("ctr", "-n", "k8s.io", "images", "tag", IMAGE, PULLED)
        found = Followed(opened, f"{programs}:{os.environ['PATH']}")
        text = Path(opened.server.write_kubeconfig()).read_text()
        script = f"mkdir -p {os.path.dirname(KUBECONFIG)}; cat >{KUBECONFIG}"
        found.administrators_node.run("sh", "-ec", script, stdin=text)
        yield found


def test_the_quick_start(cluster: Followed) -> None:
    """Every step but the first, which needs the internet.

    What the page says in words is done here: the kubeconfig is copied, and the routes are added where they belong.
    """
    internet, *steps = read_page(PAGE)
    assert "apt-get install" in internet.script
    cluster.install()
    cluster.follow("Pods")

    pods = cluster.pods("web")
    assert {pod.node for pod in pods} == set(cluster.nodes)
    for pod in pods:
        assert pod.address.startswith("10.65.128."), "of the pool that the annotation names"
        assert f" {pod.address}/32 " in cluster.look_inside(pod)
    assert {endpoint.spec.pod for endpoint in cluster.store.endpoints().values()} == {pod.name for pod in pods}

    routes, client = [step for step in steps if step.section == "Routes between the nodes"]
    for owner, command in ROUTE.findall(cluster.run_script(routes.script)):
        for name, node in cluster.nodes.items():
            if name != owner:
                node.run(*command.split())
    shell = [step for step in steps if step.section == SHELL]
    run_page(cluster.administrators_node, [*shell, routes, client], path=cluster.path)
    cluster.follow("If a pod does not start")
    cluster.follow("Delete")
    wait_until(cluster.is_clean, "nothing is left")

    *on_each_node, in_the_cluster = [step for step in steps if step.section == "Take it away"]
    cluster.follow_on_each_node(on_each_node)
    for node in cluster.nodes.values():
        assert node.run("sh", "-c", "ls /etc/cni/net.d /usr/lib/cni | grep netplug || true") == ""
        assert not [route for route in node.routes() if str(route["dst"]).startswith("10.65.")]
    run_page(cluster.administrators_node, [*shell, in_the_cluster], path=cluster.path)
    assert cluster.run_script("kubectl get crds,clusterroles -o name | grep netplug || true") == ""


def test_every_annotation_of_a_deployment(cluster: Followed) -> None:
    """Each one seen from inside the pod, whose kubelet knows the same address."""
    cluster.install()
    for node in cluster.nodes.values():
        conflist = json.loads(node.run("cat", CONFLIST))
        conflist["plugins"][0]["feature_control"] = {"ip_addrs_no_ipam": True, "floating_ips": True}
        script = f"cat >{CONFLIST}.new; mv {CONFLIST}.new {CONFLIST}"
        node.run("sh", "-ec", script, stdin=json.dumps(conflist))
    cluster.run_script("kubectl wait --for=condition=Ready --timeout=290s node --all; kubectl create namespace shop")

    cluster.deploy("pools", ipv4pools='["shop"]')
    cluster.deploy("address", ipAddrs='["10.65.7.7"]')
    cluster.deploy("unassigned", ipAddrsNoIpam='["10.70.0.9"]')
    cluster.deploy("floating", floatingIPs='["192.0.2.77"]')
    cluster.deploy("mac", hwAddr="02:00:00:00:07:07")
    expected = {
        "pools": "inet 10.65.128.",
        "address": "inet 10.65.7.7/32 ",
        "unassigned": "inet 10.70.0.9/32 ",
        "floating": "inet 10.65.",
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
    wait_until(cluster.is_clean, "nothing is left")


def test_many_pods_up_and_down(cluster: Followed) -> None:
    """Every pod has an address of its own in its node's blocks, and nothing is left of any.

    On a busy machine calls reach their deadline. A DEL that does leaves a release record, and its addresses stay held
    until a later call drains it; so more pods come and go at the end.
    """
    cluster.install()
    cluster.run_script("kubectl wait --for=condition=Ready --timeout=290s node --all; kubectl create namespace shop")
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
    wait_until(cluster.is_clean, "nothing is left")
