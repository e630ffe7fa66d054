"""Who uses an address: endpoints first, then pods and nodes, and what neither knows is undetermined."""

import pytest

from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.ipam.model import Attribute, Block
from netplug_core.ipam.reporting.usage import AddressUsers, UseState, reported_allocations, use_of
from netplug_core.orchestrator.model import ClusterView, PodFacts, PodPhase
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT

ADDRESS = Address.parse("10.0.0.1")
PREFIX = Prefix.parse("10.0.0.0/30")
WEB = {"node": "node-a", "pod": "web", "namespace": "default"}
NO_CLUSTER = AddressUsers(endpoints={})
LEAKED, USED, UNDETERMINED = UseState.LEAKED, UseState.USED, UseState.UNDETERMINED


def use(
    owner: dict[str, str], users: AddressUsers, handle: str | None = "h", block_owner: str = "host:node-a"
) -> tuple[UseState, str]:
    attribute = Attribute(handle=handle, owner=tuple(sorted(owner.items())))
    block = Block.new(PREFIX, owner=block_owner, now_ns=1).assign((Ordinal(1),), attribute)
    found = use_of(block.held()[0], block, users)
    return found.state, found.text


def cluster(*addresses: str, phase: PodPhase = PodPhase.RUNNING, node: str = "node-a") -> AddressUsers:
    pod = PodFacts(
        namespace="default", name="web", uid="", node=node, phase=phase, addresses=tuple(map(Address.parse, addresses))
    )
    return AddressUsers(endpoints={}, cluster=ClusterView(pods=(pod,), nodes=frozenset({"node-a", "node-b"})))


def test_an_endpoint_is_enough() -> None:
    users = AddressUsers(endpoints={ADDRESS: WORKLOAD_ENDPOINT.key("default", "web")}, cluster=ClusterView())
    assert use({}, users, None) == (USED, "WorkloadEndpoint(default/web)")
    assert use(WEB, users) == (USED, "WorkloadEndpoint(default/web)")


@pytest.mark.parametrize(
    "owner, expected",
    [
        ({}, (LEAKED, "no workload endpoint has it")),
        ({"node": "node-a"}, (LEAKED, "no workload endpoint has it")),
        (WEB, (LEAKED, "no workload endpoint has it")),
        ({"container": "c1"}, (UNDETERMINED, "container c1 has no endpoint, as one that another main plugin attached")),
        ({"service": "web"}, (UNDETERMINED, "service web is not looked up")),
        ({"pod": "web"}, (UNDETERMINED, "its attributes have only one of pod and namespace")),
        (
            {"type": "ipipTunnelAddress", "node": "node-a"},
            (UNDETERMINED, "it is not known whether node node-a exists"),
        ),
        ({"type": "vxlanTunnelAddress"}, (UNDETERMINED, "it is not known whether node node-a exists")),
    ],
)
def test_where_no_pods_are_shown(owner: dict[str, str], expected: tuple[UseState, str]) -> None:
    assert use(owner, NO_CLUSTER) == expected
    assert use(owner, NO_CLUSTER, None) == expected


@pytest.mark.parametrize(
    "users, expected",
    [
        (cluster("10.0.0.1"), (USED, "pod default/web")),
        (cluster(), (USED, "pod default/web")),  # it is starting
        (cluster("10.0.0.2"), (LEAKED, "its pod has other addresses")),
        (cluster("10.0.0.2", node="node-b"), (LEAKED, "its pod runs on another node")),
        (cluster("10.0.0.1", phase=PodPhase.FAILED), (LEAKED, "its pod has finished")),
        (AddressUsers(endpoints={}, cluster=ClusterView()), (LEAKED, "its pod does not exist")),
    ],
)
def test_where_pods_are_shown_they_decide_with_and_without_a_container(
    users: AddressUsers, expected: tuple[UseState, str]
) -> None:
    assert use(WEB, users) == expected
    assert use(WEB | {"container": "c1"}, users, None) == expected


def test_a_tunnel_lasts_as_long_as_its_node() -> None:
    users = AddressUsers(endpoints={}, cluster=ClusterView(nodes=frozenset({"node-a"})))
    assert use({"type": "ipipTunnelAddress", "node": "node-a"}, users) == (USED, "node node-a")
    assert use({"type": "ipipTunnelAddress", "node": "node-b"}, users) == (LEAKED, "its node is gone")
    assert use({"container": "c1"}, users)[0] is UNDETERMINED
    assert use({}, users) == (LEAKED, "no workload endpoint has it")


@pytest.mark.parametrize("users", [NO_CLUSTER, cluster("10.0.0.2")])
def test_what_a_program_assigned_without_a_node_is_its_own_business(users: AddressUsers) -> None:
    text = "its block is no node's but virtual:library's, as that of a program or of services"
    assert use({}, users, block_owner="virtual:library") == (UNDETERMINED, text)
    assert use({}, users, block_owner="") == (LEAKED, "no workload endpoint has it")


def test_cooling_and_reserved_addresses_are_no_leaks() -> None:
    block = Block.new(PREFIX, owner="host:node-a", now_ns=1, host_reserved=(1, 0))
    block = block.assign((Ordinal(1), Ordinal(2)), Attribute(handle="h", owner=(("node", "node-b"),)))
    block = block.release(frozenset({Ordinal(1)}), cooling_from_ns=5)
    found = [
        (str(each.allocation.address), each.use.state, each.is_borrowed, each.ref.handle)
        for each in reported_allocations(block, NO_CLUSTER)
    ]
    assert found == [("10.0.0.1", UseState.COOLING, False, ""), ("10.0.0.2", LEAKED, True, "h")]
