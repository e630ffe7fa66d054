"""Whether an address that is held is used: every line of the collector's table of verdicts."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.ipam.gc.candidates import (
    AllocationOwner,
    LeakReason,
    UndeterminedReason,
    Verdict,
    allocation_owners,
    judge,
)
from netplug_core.ipam.model.block import Attribute, Block
from netplug_core.orchestrator.model import PodFacts, PodName, PodPhase

ONE, TWO = Address.parse("10.0.0.1"), Address.parse("10.0.0.2")
WEB = PodName("default", "web")
HELD = AllocationOwner(
    address=ONE,
    block=Prefix.parse("10.0.0.0/30"),
    handle="h",
    sequence=7,
    node="node-a",
    pod="web",
    namespace="default",
    interface="eth0",
)
TUNNEL = evolve(HELD, pod="", namespace="", interface="", type="wireguardV6TunnelAddress")


def pod(*addresses: Address, node: str = "node-a", is_terminated: bool = False) -> PodFacts:
    phase = PodPhase.SUCCEEDED if is_terminated else PodPhase.RUNNING
    return PodFacts(namespace="default", name="web", uid="", node=node, addresses=addresses, phase=phase)


@pytest.mark.parametrize(
    "facts,verdict",
    [
        (None, LeakReason.POD_MISSING),
        (pod(ONE), None),
        (pod(TWO, ONE), None),
        (pod(TWO), LeakReason.POD_DIFFERS),
        (pod(), None),  # it starts
        (pod(node=""), None),  # it is not scheduled yet
        (pod(ONE, node="node-b"), LeakReason.POD_ELSEWHERE),
        (pod(node="node-b"), LeakReason.POD_ELSEWHERE),
        (pod(ONE, is_terminated=True), LeakReason.POD_FINISHED),
        (pod(is_terminated=True), LeakReason.POD_FINISHED),  # evicted before it had an address
    ],
)
def test_a_pods_address_is_judged_by_the_pod(facts: PodFacts | None, verdict: Verdict) -> None:
    assert judge(HELD, {} if facts is None else {WEB: facts}, gone=()) is verdict
    assert judge(HELD, {WEB: facts}, gone={"node-a"}) is verdict


def test_trap_20_an_evicted_pod_uses_nothing() -> None:
    assert judge(HELD, {WEB: pod(ONE, is_terminated=True)}, gone=()) is LeakReason.POD_FINISHED


def test_a_pod_reports_the_addresses_of_its_first_interface_only() -> None:
    """Of a further one nothing can be said while the pod runs: it is kept."""
    assert judge(evolve(HELD, interface="net1"), {WEB: pod(TWO)}, gone=()) is None
    assert judge(evolve(HELD, interface="net1"), {}, gone=()) is LeakReason.POD_MISSING
    assert judge(evolve(HELD, interface=""), {WEB: pod(TWO)}, gone=()) is LeakReason.POD_DIFFERS


def test_a_holder_without_a_node_is_not_judged_by_the_pods_node() -> None:
    assert judge(evolve(HELD, node=""), {WEB: pod(ONE, node="node-b")}, gone=()) is None


@pytest.mark.parametrize(
    "holding,doubt",
    [
        (evolve(HELD, handle=None), UndeterminedReason.NO_HANDLE),
        (evolve(TUNNEL, handle=None), UndeterminedReason.NO_HANDLE),
        (evolve(HELD, pod="", namespace=""), UndeterminedReason.NO_OWNER),
        (evolve(HELD, pod=""), UndeterminedReason.HALF_A_POD),
        (evolve(HELD, namespace=""), UndeterminedReason.HALF_A_POD),
        (evolve(TUNNEL, type="loadBalancer"), UndeterminedReason.NO_OWNER),
    ],
)
def test_what_cannot_be_judged_is_never_a_leak(holding: AllocationOwner, doubt: UndeterminedReason) -> None:
    assert judge(holding, {}, gone={"node-a"}) is doubt


@pytest.mark.parametrize("sort", ["ipip", "vxlan", "vxlanV6", "wireguard", "wireguardV6"])
def test_a_tunnels_address_goes_with_its_node_in_both_families(sort: str) -> None:
    """Trap 35: all five sorts are known."""
    tunnel = evolve(TUNNEL, type=f"{sort}TunnelAddress")
    assert judge(tunnel, {}, gone=()) is None
    assert judge(tunnel, {}, gone={"node-a"}) is LeakReason.NODE_GONE
    assert judge(evolve(tunnel, node=""), {}, gone={"node-a"}) is None


def test_holdings_are_what_somebody_holds() -> None:
    """Neither what a host keeps back nor what cools down."""
    owner = (("container", "c"), ("interface", "eth0"), ("namespace", "default"), ("node", "node-b"), ("pod", "web"))
    block = Block.new(Prefix.parse("10.0.0.0/29"), owner="host:node-a", now_ns=7, host_reserved=(1, 1))
    block = block.assign((Ordinal(1),), Attribute(handle="h", owner=owner))
    block = block.assign((Ordinal(2),), Attribute(handle="t", owner=(("type", "ipipTunnelAddress"),)))
    block = block.assign((Ordinal(3),), Attribute(handle=None))
    block = block.assign((Ordinal(4),), Attribute(handle="gone")).release(frozenset({Ordinal(4)}), cooling_from_ns=9)
    pods, tunnel, bare = allocation_owners(block)
    assert pods == evolve(HELD, block=block.prefix, node="node-b")
    assert (pods.pod_name, pods.is_tunnel) == (WEB, False)
    assert (tunnel.handle, tunnel.node, tunnel.sequence, tunnel.is_tunnel) == ("t", "node-a", 8, True)
    assert (bare.handle, bare.pod_name) == (None, None)


def test_a_block_of_nobody_lends_no_node() -> None:
    block = Block.new(Prefix.parse("10.0.0.0/30"), owner="", now_ns=7).assign((Ordinal(0),), Attribute(handle="h"))
    assert [holding.node for holding in allocation_owners(block)] == [""]
    assert [holding.node for holding in allocation_owners(evolve(block, owner="virtual:lb"))] == [""]
