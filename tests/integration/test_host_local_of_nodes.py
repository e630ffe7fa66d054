"""host-local with the pod CIDRs of nodes in a real API server, on a real kernel.

Numbers are those of the black-box checks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import pytest

from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode
from tests.harness.plugin_datastores import PluginDatastore
from tests.harness.pod_cluster import PodCluster, cni_args, open_pod_cluster
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import make_node

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]

NODES: Mapping[str, tuple[str, ...]] = {
    "cidrs-both": ("10.10.0.0/24", "fd10::/64"),
    "cidrs-ipv4": ("10.11.0.0/24",),
    "cidrs-none": (),
}
"""The pod CIDRs of each node."""
BOTH = [[{"subnet": "usePodCidr"}], [{"subnet": "usePodCidrIPv6"}]]


@pytest.fixture
def cluster(
    node: NetnsNode, runtime: CNIRuntime, api_server: ApiServer, plugin_datastore: PluginDatastore
) -> Iterator[PodCluster]:
    for name, cidrs in NODES.items():
        make_node(api_server, name)
        if cidrs:
            spec = {"podCIDR": cidrs[0], "podCIDRs": list(cidrs)}
            path = f"/api/v1/nodes/{name}"
            api_server.request("PATCH", path, {"spec": spec}, content_type="application/merge-patch+json")
    with open_pod_cluster(node, runtime, api_server, plugin_datastore) as opened:
        yield opened


def conf_of(cluster: PodCluster, nodename: str, ipam: Mapping[str, object], **access: str) -> NetConfDict:
    return cluster.conf(
        nodename=nodename,
        ipam={"type": "host-local", "dataDir": cluster.node.file("networks"), **ipam},
        kubernetes={"kubeconfig": cluster.kubeconfig, **access},
    )


def held(cluster: PodCluster) -> set[str]:
    """The addresses that files say are taken."""
    return {name for name in os.listdir(cluster.node.file("networks/net1")) if name.startswith(("10.", "fd"))}


@pytest.mark.parametrize("subnet", ["usePodCidr", "USEPODCIDR"])
def test_check_90_the_pod_cidr_of_the_node_and_an_address_in_it(cluster: PodCluster, subnet: str) -> None:
    pod, conf = cluster.make_pod(), conf_of(cluster, "cidrs-ipv4", {"subnet": subnet})
    for asked, expected in (("", "10.11.0.2"), (";IP=10.11.0.42", "10.11.0.42"), (";IP=10.11.0.42", "10.11.0.42")):
        args = {"CNI_ARGS": cni_args(pod) + asked}
        assert cluster.runtime.add(conf, pod, **args).addresses == (expected,)
        assert held(cluster) == {expected}
        assert cluster.node.can_ping(expected)
        cluster.runtime.delete(conf, pod, **args)
        assert held(cluster) == set()
    cluster.assert_nothing_left()


def test_check_91_both_families(cluster: PodCluster) -> None:
    pod, conf = cluster.make_pod(), conf_of(cluster, "cidrs-both", {"ranges": BOTH})
    added = cluster.runtime.add(conf, pod, CNI_ARGS=cni_args(pod))
    assert added.addresses == ("10.10.0.2", "fd10::2")
    assert "tentative" not in cluster.node.run(
        "ip", "-6", "addr", "show", "dev", "eth0", "scope", "global", inside=pod.name
    )
    assert cluster.node.setting("ipv6/conf/eth0/accept_dad", pod) == "0"
    (default,) = [route for route in cluster.node.routes(pod, family=6) if route["dst"] == "default"]
    assert (default["gateway"], default["metric"]) == ("fe80::ecee:eeff:feee:eeee", 1024)
    assert all(cluster.node.can_ping(address) for address in added.addresses)
    cluster.runtime.delete(conf, pod, CNI_ARGS=cni_args(pod))
    assert held(cluster) == set()
    cluster.assert_nothing_left()


def test_check_92_an_explicit_range_beside_them(cluster: PodCluster) -> None:
    ranges = [BOTH[0], [{"subnet": "10.100.0.0/24"}], BOTH[1]]
    pod, conf = cluster.make_pod(), conf_of(cluster, "cidrs-both", {"ranges": ranges})
    added = cluster.runtime.add(conf, pod, CNI_ARGS=cni_args(pod))
    assert added.addresses == ("10.10.0.2", "10.100.0.2", "fd10::2")
    cluster.runtime.delete(conf, pod, CNI_ARGS=cni_args(pod))
    assert held(cluster) == set()
    cluster.assert_nothing_left()


def test_check_94_nodes_without_a_pod_cidr_and_another_node(cluster: PodCluster) -> None:
    pod, subnet = cluster.make_pod(), {"subnet": "usePodCidr"}
    for conf, text in (
        (conf_of(cluster, "cidrs-ipv4", {"ranges": BOTH}), "usePodCidrIPv6 found but there is no IPv6 CIDR configured"),
        (conf_of(cluster, "cidrs-none", subnet), "no podCidr for node cidrs-none"),
    ):
        reply = cluster.runtime.call("ADD", conf, pod, CNI_ARGS=cni_args(pod))
        assert text in reply.text
        cluster.assert_nothing_left()
    other = conf_of(cluster, "cidrs-none", subnet, node_name="cidrs-ipv4")
    assert cluster.runtime.add(other, pod, CNI_ARGS=cni_args(pod)).addresses == ("10.11.0.2",)
    cluster.runtime.delete(other, pod, CNI_ARGS=cni_args(pod))
    assert held(cluster) == set()
