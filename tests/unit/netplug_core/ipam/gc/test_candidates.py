"""Whether an allocation looks leaked: every case of the collector's rule."""

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
from netplug_core.ipam.model import Attribute, Block
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
    "found,verdict",
    [
        (None, LeakReason.POD_MISSING),
        (pod(ONE), None),
        (pod(TWO, ONE), None),
        (pod(TWO), LeakReason.POD_DIFFERS),
        (pod(), None),  # it is starting
        (pod(node=""), None),  # it is not scheduled yet
        (pod(ONE, node="node-b"), None),  # the pod's own report counts more than the node's name, which may change
        (pod(TWO, node="node-b"), LeakReason.POD_ELSEWHERE),
        (pod(node="node-b"), LeakReason.POD_ELSEWHERE),
        (pod(ONE, is_terminated=True), LeakReason.POD_FINISHED),
        (pod(is_terminated=True), LeakReason.POD_FINISHED),  # evicted before it had an address
    ],
)
def test_an_address_of_a_pod_is_compared_with_the_pod(found: PodFacts | None, verdict: Verdict) -> None:
    assert judge(HELD, {} if found is None else {WEB: found}, gone=()) is verdict
    assert judge(HELD, {WEB: found}, gone={"node-a"}) is verdict


def test_trap_20_an_evicted_pod_uses_no_address() -> None:
    assert judge(HELD, {WEB: pod(ONE, is_terminated=True)}, gone=()) is LeakReason.POD_FINISHED


def test_a_pod_reports_the_addresses_of_its_first_interface_only() -> None:
    """An address of another interface is kept while the pod runs."""
    assert judge(evolve(HELD, interface="net1"), {WEB: pod(TWO)}, gone=()) is None
    assert judge(evolve(HELD, interface="net1"), {}, gone=()) is LeakReason.POD_MISSING
    assert judge(evolve(HELD, interface=""), {WEB: pod(TWO)}, gone=()) is LeakReason.POD_DIFFERS


def test_without_an_owner_node_the_node_of_the_pod_does_not_matter() -> None:
    assert judge(evolve(HELD, node=""), {WEB: pod(ONE, node="node-b")}, gone=()) is None


@pytest.mark.parametrize(
    "owner,reason",
    [
        (evolve(HELD, handle=None), UndeterminedReason.NO_HANDLE),
        (evolve(TUNNEL, handle=None), UndeterminedReason.NO_HANDLE),
        (evolve(HELD, pod="", namespace=""), UndeterminedReason.NO_OWNER),
        (evolve(HELD, pod=""), UndeterminedReason.HALF_A_POD),
        (evolve(HELD, namespace=""), UndeterminedReason.HALF_A_POD),
        (evolve(TUNNEL, type="loadBalancer"), UndeterminedReason.NO_OWNER),
    ],
)
def test_an_undetermined_allocation_is_no_leak(owner: AllocationOwner, reason: UndeterminedReason) -> None:
    assert judge(owner, {}, gone={"node-a"}) is reason


@pytest.mark.parametrize("kind", ["ipip", "vxlan", "vxlanV6", "wireguard", "wireguardV6"])
def test_a_tunnel_address_is_leaked_when_its_node_is_gone(kind: str) -> None:
    """Trap 35: all five types of tunnel are known."""
    tunnel = evolve(TUNNEL, type=f"{kind}TunnelAddress")
    assert judge(tunnel, {}, gone=()) is None
    assert judge(tunnel, {}, gone={"node-a"}) is LeakReason.NODE_GONE
    assert judge(evolve(tunnel, node=""), {}, gone={"node-a"}) is None


def test_owners_are_those_of_assigned_addresses() -> None:
    """Host-reserved addresses and those that are cooling down are not assigned."""
    stored = (("container", "c"), ("interface", "eth0"), ("namespace", "default"), ("node", "node-b"), ("pod", "web"))
    block = Block.new(Prefix.parse("10.0.0.0/29"), owner="host:node-a", now_ns=7, host_reserved=(1, 1))
    block = block.assign((Ordinal(1),), Attribute(handle="h", owner=stored))
    block = block.assign((Ordinal(2),), Attribute(handle="t", owner=(("type", "ipipTunnelAddress"),)))
    block = block.assign((Ordinal(3),), Attribute(handle=None))
    block = block.assign((Ordinal(4),), Attribute(handle="gone")).release(frozenset({Ordinal(4)}), cooling_from_ns=9)
    pods, tunnel, bare = allocation_owners(block)
    assert pods == evolve(HELD, block=block.prefix, node="node-b")
    assert (pods.pod_name, pods.is_tunnel) == (WEB, False)
    assert (tunnel.handle, tunnel.node, tunnel.sequence, tunnel.is_tunnel) == ("t", "node-a", 8, True)
    assert (bare.handle, bare.pod_name) == (None, None)


def test_a_block_without_a_node_as_owner_gives_no_node() -> None:
    block = Block.new(Prefix.parse("10.0.0.0/30"), owner="", now_ns=7).assign((Ordinal(0),), Attribute(handle="h"))
    assert [owner.node for owner in allocation_owners(block)] == [""]
    assert [owner.node for owner in allocation_owners(evolve(block, owner="virtual:lb"))] == [""]
