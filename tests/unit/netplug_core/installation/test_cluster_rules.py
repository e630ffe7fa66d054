"""An Installation in a cluster that has something already: what is refused, and what is warned of."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from netplug_core.addressing import Address, Prefix
from netplug_core.installation.cluster import ClusterInventory, ClusterNode
from netplug_core.installation.rules import CheckedInstallation, check, check_in_cluster, facts_of, find_obstacle
from netplug_core.resources.ippool import IPPool
from tests.harness.installations import make_pool, network, read

POOL = "10.244.0.0/16"
POOLS = [{"cidr": POOL, "encapsulation": "VXLAN", "natOutgoing": "Disabled"}]
LISTED = network(bgp="Disabled", ipPools=POOLS)
HOST_LOCAL: dict[str, object] = {
    "cni": {"ipam": {"type": "HostLocal"}},
    **network(ipPools=[{"cidr": POOL, "encapsulation": "None", "natOutgoing": "Disabled"}]),
}


def node(name: str, *addresses: str, pods: tuple[str, ...] = ()) -> ClusterNode:
    return ClusterNode(
        name=name, addresses=tuple(map(Address.parse, addresses)), pod_prefixes=tuple(map(Prefix.parse, pods))
    )


def judge(
    spec: Mapping[str, object], inventory: ClusterInventory, pools: tuple[IPPool, ...] = ()
) -> CheckedInstallation:
    return check_in_cluster(read(spec), facts_of(inventory, pools), inventory)


def problems(spec: Mapping[str, object], inventory: ClusterInventory, pools: tuple[IPPool, ...] = ()) -> list[str]:
    return [str(problem).partition(": ")[2] for problem in judge(spec, inventory, pools).problems]


def test_in_a_cluster_with_room_nothing_is_added() -> None:
    inventory = ClusterInventory(
        service_prefixes=(Prefix.parse("10.96.0.0/12"),), nodes=(node("a", "192.168.0.1", "fd00::1"),)
    )
    found = judge(LISTED, inventory)
    assert (found.problems, found.warnings) == ((), check(read(LISTED)).warnings)


@pytest.mark.parametrize(
    "inventory, pools, value, accepted",
    [
        (
            ClusterInventory(service_prefixes=(Prefix.parse("10.244.128.0/20"),)), (),
            "'10.244.0.0/16 and 10.244.128.0/20'", "the addresses of services",
        ),
        (
            ClusterInventory(nodes=(node("a", "192.168.0.1"), node("b", "10.244.3.4"))), (),
            "'10.244.0.0/16 and 10.244.3.4'", "the addresses of nodes; this one is the node b's",
        ),
        (
            ClusterInventory(), (make_pool("10.244.64.0/18", name="old"),),
            "'10.244.0.0/16 and 10.244.64.0/18'", "the pool old",
        ),
    ],
)  # fmt: skip
def test_addresses_that_are_in_use(
    inventory: ClusterInventory, pools: tuple[IPPool, ...], value: str, accepted: str
) -> None:
    field = "spec.netplugNetwork.ipPools[0].cidr"
    text = f"Conflict: {field}: {value} is not accepted; a CIDR that does not overlap {accepted}"
    assert problems(LISTED, inventory, pools) == [text]


@pytest.mark.parametrize(
    "inventory, reason",
    [
        (ClusterInventory(), ""),
        (ClusterInventory(crd_mode="v1", daemonsets=("netplug-system",)), ""),
        (ClusterInventory(crd_mode="v3"), "the cluster has the CRDs v3, with its data; this would bring v1"),
        (
            ClusterInventory(daemonsets=("netplug-system", "kube-system")),
            (
                "DaemonSet kube-system/netplug-node is in the cluster: netplug is installed another way; "
                "apply that again, or delete what it has installed first"
            ),
        ),
        (
            ClusterInventory(operated_object="Installation default"),
            (
                "Installation default is in the cluster: the operator installs netplug here; "
                "change the Installation in the cluster, or delete it first"
            ),
        ),
    ],
)
def test_what_is_in_the_way_of_an_installation(inventory: ClusterInventory, reason: str) -> None:
    assert find_obstacle(inventory, "netplug-system", "v1") == reason


def test_the_default_pool_is_judged_too() -> None:
    inventory = ClusterInventory(service_prefixes=(Prefix.parse("192.168.0.0/24"),))
    text = (
        "Conflict: spec.netplugNetwork.ipPools: '192.168.0.0/16 and 192.168.0.0/24' is not accepted; "
        "a CIDR that does not overlap the addresses of services"
    )
    assert problems({}, inventory) == [text]


def test_a_pool_of_another_owner_with_other_settings() -> None:
    theirs = make_pool(POOL, name="default-ipv4-ippool")
    text = (
        "Conflict: spec.netplugNetwork.ipPools: 'default-ipv4-ippool' is not accepted; it is not the operator's and "
        "differs; label it app.kubernetes.io/managed-by=netplug-operator to hand it over"
    )
    assert problems(LISTED, ClusterInventory(), (theirs,)) == [text]


def test_a_cluster_in_which_nothing_else_can_be_judged() -> None:
    contradicting = {"cni": {"type": "Netplug", "ipam": {"type": "Netplug", "plugin": "HostLocal"}}}
    found = judge(contradicting, ClusterInventory(service_prefixes=(Prefix.parse("192.168.0.0/24"),)))
    assert found.resolved is None
    assert len(found.problems) == 1


@pytest.mark.parametrize("nodes, services, is_warned", [(120, 5000, True), (99, 5000, False), (120, 3999, False)])
def test_drains_of_a_large_cluster(nodes: int, services: int, is_warned: bool) -> None:  # noqa: FBT001 - a table
    """Check 117."""
    inventory = ClusterInventory(nodes=tuple(node(f"n{number}") for number in range(nodes)), service_count=services)
    text = (
        "Installation(default): spec.netplugNetwork.hostPorts: with 120 nodes and 5000 services a node drains slowly; "
        "Disabled leaves out the plugin portmap"
    )
    assert (text in judge(LISTED, inventory).warnings) == is_warned
    quiet = network(bgp="Disabled", ipPools=POOLS, hostPorts="Disabled")
    assert text not in judge(quiet, inventory).warnings


def test_nodes_without_a_pod_cidr_with_host_local() -> None:
    nodes = [node("a", pods=("10.244.1.0/24",)), *(node(f"n{number}") for number in range(5))]
    path = "Installation(default): spec.cni.ipam"
    (one, *_) = _new_warnings(ClusterInventory(nodes=tuple(nodes)))
    assert one == (
        f"{path}: the nodes n0, n1, n2 and 2 more have no IPv4 pod CIDR; "
        "pods there get no address with the IPAM HostLocal"
    )
    assert _new_warnings(ClusterInventory(nodes=tuple(nodes[:2]))) == [
        f"{path}: the node n0 has no IPv4 pod CIDR; pods there get no address with the IPAM HostLocal"
    ]


def test_nodes_whose_pod_cidr_is_in_no_pool_with_host_local() -> None:
    outside = node("b", pods=("10.9.0.0/24",))
    inside = node("a", pods=("10.244.1.0/24",))
    assert _new_warnings(ClusterInventory(nodes=(inside, outside))) == [
        "Installation(default): spec.cni.ipam: the node b has a pod CIDR outside of every pool"
    ]
    assert _new_warnings(ClusterInventory(nodes=(inside,))) == []


def _new_warnings(inventory: ClusterInventory) -> list[str]:
    """Those that the cluster adds."""
    known = check(read(HOST_LOCAL)).warnings
    return [warning for warning in judge(HOST_LOCAL, inventory).warnings if warning not in known]
