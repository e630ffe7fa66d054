"""That a node has a block at all: the one it has, or a new one, and no address taken."""

import pytest
from attrs import evolve

from netplug_core.errors import NetplugError, Unavailable
from netplug_core.flows.ipam.affinities import ensure_blocks
from netplug_core.ipam.allocation.affinities import EnsuredBlocks, decide_ensure
from netplug_core.ipam.allocation.context import RELEASES_PER_DECISION
from netplug_core.ipam.allocation.decide import queries
from netplug_core.ipam.allocation.request import AssignRequest
from netplug_core.ipam.model import AFFINITY, AffinityState
from netplug_core.ipam.outcome import (
    BlockLimitReached,
    BlockUnavailable,
    NoPoolServes,
    PoolsExhausted,
    PoolUnknown,
    StrictlyExhausted,
)
from netplug_core.records import Decision, RequireUnchanged
from netplug_core.resources.ippool import AllowedUse
from netplug_core.testing.faults import Fault, FaultyDatastore, LostReply, RunBefore
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, first_block_first, ipv4, ipv6, make_request, specific

BLOCK_0, BLOCK_1 = "10.0.0.0/26", "10.0.0.64/26"


@pytest.fixture
def harness() -> IPAMHarness:
    """A cluster with one pool of each family, four blocks each."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24")
    made.add_pool("six", "fd00::/120")
    return made


def ensured(
    harness: IPAMHarness, request: AssignRequest | None = None, script: dict[int, Fault] | None = None
) -> list[str]:
    store = FaultyDatastore(harness.store, script or {})
    return [
        str(block)
        for block in ensure_blocks(store, request or make_request(), order=first_block_first, pace=harness.pace).blocks
    ]


def decided(harness: IPAMHarness, request: AssignRequest) -> Decision[EnsuredBlocks]:
    snapshot = harness.read(*queries(request))
    while True:
        decision = decide_ensure(snapshot, request, harness.clock.now_ns(), first_block_first)
        if isinstance(decision, Decision):
            return decision
        snapshot = snapshot.merged(harness.read(*decision.queries))


def test_a_node_without_a_block_gets_one_and_the_same_ever_after(harness: IPAMHarness) -> None:  # I-65
    assert ensured(harness) == ensured(harness) == [BLOCK_0]
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}
    assert harness.held() == {}
    assert harness.handles() == []
    assert ensured(harness, make_request(node=OTHER_NODE)) == [BLOCK_1]


def test_each_family_gets_one_of_its_own_pools(harness: IPAMHarness) -> None:
    """Trap 12: an IPv6 block comes from an IPv6 pool."""
    assert ensured(harness, make_request("h", ipv6())) == ["fd00::/122"]
    assert ensured(harness, make_request("h", ipv4(), ipv6())) == [BLOCK_0, "fd00::/122"]
    harness.take_call_counts()
    assert ensured(harness, make_request("h", ipv6(), ipv4())) == ["fd00::/122", BLOCK_0]
    assert harness.take_call_counts() == (2, 0)


def test_both_families_of_a_new_node_come_in_one_commit(harness: IPAMHarness) -> None:
    harness.take_call_counts()
    ensured(harness, make_request("h", ipv4(), ipv6()))
    assert harness.take_call_counts() == (2, 1)


def test_a_full_block_is_a_block(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h", ipv4(64))
    assert ensured(harness) == [BLOCK_0]


def test_a_half_made_claim_is_confirmed(harness: IPAMHarness) -> None:
    harness.put_block(BLOCK_1)
    harness.put_affinity(BLOCK_1, AffinityState.PENDING)
    assert ensured(harness) == [BLOCK_1]
    assert harness.affinities() == {(NODE, BLOCK_1): "confirmed"}


def test_the_pools_of_the_request_count(harness: IPAMHarness) -> None:  # I-65
    harness.add_pool("next", "11.0.0.0/24")
    ensured(harness)
    assert ensured(harness, make_request("h", ipv4(1, "next"))) == ["11.0.0.0/26"]
    with pytest.raises(PoolUnknown, match=r"the given pool \(40\.0\.0\.0/24\) does not exist, or is not enabled"):
        ensured(harness, make_request("h", ipv4(1, "40.0.0.0/24")))
    harness.disable_pool("main")
    harness.disable_pool("next")
    with pytest.raises(NoPoolServes):
        ensured(harness, make_request("h", ipv6(), ipv4()))
    assert [block for block in harness.blocks() if block.startswith("fd")] == []


def test_a_block_that_the_host_keeps_all_of_is_none(harness: IPAMHarness) -> None:
    with pytest.raises(NetplugError, match="too small for what the host keeps back"):
        ensured(harness, evolve(make_request(), host_reserved=(32, 32)))
    ensured(harness, evolve(make_request(), host_reserved=(2, 1)))
    assert harness.block(BLOCK_0).used_count == 3


def test_an_address_that_is_wanted_by_name_ensures_nothing(harness: IPAMHarness) -> None:
    harness.configure(is_affinity_strict=True, max_blocks_per_host=1)
    assert ensured(harness, make_request("h", specific("10.0.0.9"))) == []
    assert harness.blocks() == {}
    assert ensured(harness, make_request("h", specific("10.0.0.9"), ipv6())) == ["fd00::/122"]


def test_an_idle_block_of_another_is_taken_over_and_nothing_is_borrowed() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", BLOCK_0)
    harness.put_owned_block(BLOCK_0, node=OTHER_NODE)
    with pytest.raises(PoolsExhausted) as caught:
        ensured(harness)
    assert str(caught.value) == (
        "Assigned 0 out of 1 requested IPv4 addresses; No IPs available in pools: [10.0.0.0/26]; "
        "IPPool main (10.0.0.0/26): 64 addresses, 0 used, 0 reserved, 0 cooling, 64 free in blocks of other nodes"
    )
    harness.clock.sleep(61)
    assert ensured(harness) == [BLOCK_0]
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}


def test_a_block_of_nobody_on_which_a_stale_claim_is_left_is_had() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", BLOCK_0)
    harness.put_block(BLOCK_0, node="")
    harness.put_affinity(BLOCK_0, AffinityState.PENDING_DELETION)
    assert ensured(harness) == [BLOCK_0]
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}


def test_a_node_with_all_the_blocks_it_may_have_gets_none_in_another_pool(harness: IPAMHarness) -> None:
    harness.add_pool("small", "11.0.0.0/24", 30)
    harness.assign_or_refuse("h", ipv4(80, "small"))
    with pytest.raises(PoolsExhausted, match=r"block 10\.0\.0\.0/26 was not claimed: .* \(limit 20\)"):
        ensured(harness, make_request("h", ipv4(1, "main")))
    harness.configure(is_affinity_strict=True, max_blocks_per_host=20)
    with pytest.raises(BlockLimitReached, match="limit of 20 blocks"):
        ensured(harness, make_request("h", ipv4(1, "main")))


def test_settings_that_leave_no_block_say_so(harness: IPAMHarness) -> None:
    harness.configure(is_affinity_strict=True, may_auto_allocate_blocks=False)
    with pytest.raises(BlockUnavailable):
        ensured(harness)
    harness.configure(is_affinity_strict=True)
    for number in range(4):
        harness.assign_or_refuse(f"h{number}", node=f"node-{number}")
    with pytest.raises(StrictlyExhausted):
        ensured(harness)


def test_a_locked_cluster_ensures_nothing(harness: IPAMHarness) -> None:
    harness.set_ready(is_ready=False)
    with pytest.raises(Unavailable, match="locked"):
        ensured(harness)


def test_a_use_other_than_workload_is_a_use(harness: IPAMHarness) -> None:
    harness.change_pool("main", allowed_uses=(AllowedUse.LOAD_BALANCER,))
    request = evolve(make_request(), use=AllowedUse.LOAD_BALANCER, affine_to="virtual:load-balancer")
    assert ensured(harness, request) == [BLOCK_0]
    assert harness.blocks() == {BLOCK_0: "virtual:load-balancer"}


def test_a_commit_under_an_explicit_limit_stands_alone(harness: IPAMHarness) -> None:
    assert not any(isinstance(write, RequireUnchanged) and write.kind == AFFINITY for write in claims_of(harness))
    harness.configure(is_affinity_strict=True, max_blocks_per_host=1)
    assert any(isinstance(write, RequireUnchanged) and write.kind == AFFINITY for write in claims_of(harness))
    harness.add_pool("next", "11.0.0.0/24")
    rival = RunBefore(lambda: ensured(harness, make_request("h", ipv4(1, "next"))))
    with pytest.raises(BlockLimitReached):
        ensured(harness, make_request("h", ipv4(1, "main")), {1: rival})
    assert harness.blocks() == {"11.0.0.0/26": "host:node-a"}


def claims_of(harness: IPAMHarness) -> tuple[object, ...]:
    return decided(harness, make_request()).writes


def test_a_lost_reply_is_no_second_block(harness: IPAMHarness) -> None:
    assert ensured(harness, script={1: LostReply()}) == [BLOCK_0]
    assert harness.blocks() == {BLOCK_0: "host:node-a"}


def test_a_block_of_a_pool_that_is_gone_is_given_up_for_the_new_one(harness: IPAMHarness) -> None:
    harness.add_pool("old", "11.0.0.0/26")
    harness.put_owned_block("11.0.0.0/26")
    harness.disable_pool("old")
    harness.configure(is_affinity_strict=True, max_blocks_per_host=1)
    assert ensured(harness) == [BLOCK_0]
    assert harness.blocks() == {BLOCK_0: "host:node-a"}


def test_a_node_over_its_limit_gives_up_its_blocks_first(harness: IPAMHarness) -> None:
    harness.add_pool("old", "11.0.0.0/24", 31)
    for number in range(RELEASES_PER_DECISION + 1):
        harness.put_owned_block(f"11.0.0.{2 * number}/31")
    harness.disable_pool("old")
    harness.configure(is_affinity_strict=True, max_blocks_per_host=1)
    with pytest.raises(BlockLimitReached):
        ensured(harness)
    assert len(harness.blocks()) == 1
    assert ensured(harness) == [BLOCK_0]
    assert harness.blocks() == {BLOCK_0: "host:node-a"}
