"""One address that was asked for by name: what counts for it, what does not, and whose block it may come from."""

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.errors import AllocationError, ConfigurationError
from netplug_core.ipam.allocation.request import LinkLayer, Shortfall
from netplug_core.ipam.model import AffinityState
from netplug_core.ipam.outcome import (
    AddressCooling,
    AddressTaken,
    BlockOutcome,
    BlockTrace,
    PoolUnknown,
    StrictAffinity,
)
from netplug_core.resources.ippool import AllowedUse, AssignmentMode
from netplug_core.testing.faults import LostRace, LostReply, RunBefore
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, ipv6, make_request, specific

BLOCK_0, BLOCK_1 = "10.0.0.0/26", "10.0.0.64/26"


@pytest.fixture
def harness() -> IPAMHarness:
    """A cluster with one pool of four blocks."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


# --- whose block --------------------------------------------------------------------------------------------------


def test_its_block_is_claimed_where_there_is_none(harness: IPAMHarness) -> None:
    assert harness.assign_or_refuse("h", specific("10.0.0.70")) == ["10.0.0.70"]
    assert harness.blocks() == {BLOCK_1: "host:node-a"}
    assert harness.affinities() == {(NODE, BLOCK_1): "confirmed"}
    assert harness.handle_counts("h") == {BLOCK_1: 1}
    assert harness.assign_or_refuse("h2") == ["10.0.0.64"]  # the next ones come from there


def test_it_is_taken_out_of_the_middle_of_the_queue(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", specific("10.0.0.1"))
    assert harness.assign_or_refuse("h2", ipv4(2)) == ["10.0.0.0", "10.0.0.2"]


def test_it_comes_from_the_nodes_own_block(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    assert harness.assign_or_refuse("h2", specific("10.0.0.9")) == ["10.0.0.9"]
    assert (
        len(harness.decision(make_request("h3", specific("10.0.0.10"))).writes) == 7
    )  # five conditions, handle and block


@pytest.mark.parametrize("state", [None, AffinityState.PENDING, AffinityState.PENDING_DELETION])
def test_its_own_block_is_confirmed_first_where_the_claim_does_not_say_so(
    harness: IPAMHarness, state: AffinityState | None
) -> None:
    harness.put_block(BLOCK_0)
    if state is not None:
        harness.put_affinity(BLOCK_0, state)
    before = harness.block(BLOCK_0).sequence
    assert harness.assign_or_refuse("h", specific("10.0.0.9")) == ["10.0.0.9"]
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}
    assert harness.block(BLOCK_0).held()[0].sequence == before + 1


def test_it_is_borrowed_from_anothers_block(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", node=OTHER_NODE)
    assert harness.assign_or_refuse("h2", specific("10.0.0.9")) == ["10.0.0.9"]
    assert harness.blocks() == {BLOCK_0: "host:node-b"}
    assert (NODE, BLOCK_0) not in harness.affinities()
    entry = harness.decision(make_request("h3", specific("10.0.0.10"))).trace
    assert [str(seen) for seen in entry] == [f"block {BLOCK_0} belongs to another node and lent addresses"]


def test_strict_affinity_lends_nothing(harness: IPAMHarness) -> None:
    harness.configure(is_affinity_strict=True)
    harness.assign_or_refuse("h1", node=OTHER_NODE)
    with pytest.raises(StrictAffinity) as caught:
        harness.assign_or_refuse("h2", specific("10.0.0.9"))
    assert str(caught.value) == (
        "10.0.0.9: block 10.0.0.0/26 belongs to another node (host:node-b); "
        "strict affinity is on: nothing is borrowed from blocks of other nodes"
    )
    assert harness.assign_or_refuse("h3", specific("10.0.0.9"), node=OTHER_NODE) == ["10.0.0.9"]


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_block_of_nobody_lends_or_where_nothing_is_lent_becomes_the_nodes(
    harness: IPAMHarness, *, is_strict: bool
) -> None:
    """Trap 34: under strict affinity its range would be lost."""
    harness.configure(is_affinity_strict=is_strict)
    harness.put_block(BLOCK_0, node="")
    assert harness.assign_or_refuse("h", specific("10.0.0.9")) == ["10.0.0.9"]
    assert harness.blocks() == {BLOCK_0: "host:node-a" if is_strict else ""}
    assert harness.affinities() == ({(NODE, BLOCK_0): "confirmed"} if is_strict else {})


def test_a_stale_claim_is_used_where_the_block_becomes_ours(harness: IPAMHarness) -> None:
    harness.configure(is_affinity_strict=True)
    harness.put_block(BLOCK_0, node="")
    harness.put_affinity(BLOCK_0, AffinityState.PENDING_DELETION)
    assert harness.assign_or_refuse("h", specific("10.0.0.9")) == ["10.0.0.9"]
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}


# --- what counts for it -------------------------------------------------------------------------------------------


def test_selectors_mode_reservations_and_limits_do_not_count(harness: IPAMHarness) -> None:
    harness.change_pool(
        "main", node_selector="has(x)", namespace_selector="has(x)", assignment_mode=AssignmentMode.MANUAL
    )
    harness.reserve("r", "10.0.0.0/24")
    harness.configure(is_affinity_strict=True, may_auto_allocate_blocks=True, max_blocks_per_host=1)
    harness.put_owned_block("10.0.0.128/26")
    assert harness.assign(evolve(make_request("h", specific("10.0.0.9")), block_limit=1)) == ["10.0.0.9"]
    assert harness.blocks() == {BLOCK_0: "host:node-a", "10.0.0.128/26": "host:node-a"}


def test_the_use_counts_where_one_is_stated(harness: IPAMHarness) -> None:
    """Trap 14, I-49."""
    harness.change_pool("main", allowed_uses=(AllowedUse.TUNNEL,))
    with pytest.raises(AllocationError, match='which is not allowed for use "Workload"'):
        harness.assign_or_refuse("h", specific("10.0.0.9"))
    assert harness.assign(evolve(make_request("h", specific("10.0.0.9")), use=None)) == ["10.0.0.9"]


def test_a_disabled_pool_gives_nothing(harness: IPAMHarness) -> None:
    harness.disable_pool("main")
    with pytest.raises(AllocationError, match=r"not in a configured pool: 10\.0\.0\.9; IPPool main .* is disabled"):
        harness.assign_or_refuse("h", specific("10.0.0.9"))


def test_named_pools_confine_it(harness: IPAMHarness) -> None:
    harness.add_pool("next", "11.0.0.0/24")
    with pytest.raises(AllocationError, match=r"not in a configured pool named \(next\): 10.0.0.9"):
        harness.assign_or_refuse("h", specific("10.0.0.9", "next"))
    with pytest.raises(PoolUnknown):
        harness.assign_or_refuse("h", specific("10.0.0.9", "main", "nowhere"))
    assert harness.assign_or_refuse("h", specific("10.0.0.9", "next", "main")) == ["10.0.0.9"]


@pytest.mark.parametrize("address", ["10.0.0.0", "10.0.0.1", "10.0.0.255"])
def test_the_edges_of_a_link_cannot_be_had(harness: IPAMHarness, address: str) -> None:
    request = make_request("h", specific(address))
    with pytest.raises(ConfigurationError) as caught:
        harness.assign(evolve(request, link_layer=LinkLayer.L2))
    assert str(caught.value) == (
        f"the requested IP address: '{address}' is not accepted; "
        "on a link the first two addresses of 10.0.0.0/24 and the last one can be nobody's"
    )
    assert harness.assign(request) == [address]


def test_any_other_address_of_a_link_can_be_had(harness: IPAMHarness) -> None:
    assert harness.assign(evolve(make_request("h", specific("10.0.0.2")), link_layer=LinkLayer.L2)) == ["10.0.0.2"]


# --- taken --------------------------------------------------------------------------------------------------------


def test_what_another_holds_is_taken_and_nothing_is_written(harness: IPAMHarness) -> None:
    """Trap 37: it is noticed before anything is made of it."""
    harness.assign_or_refuse("web", specific("10.0.0.9"))
    before = harness.block(BLOCK_0)
    with pytest.raises(AddressTaken) as caught:
        harness.assign_or_refuse("h", specific("10.0.0.9"))
    assert str(caught.value) == "10.0.0.9: Address already assigned in block 10.0.0.0/26 by handle web"
    assert harness.block(BLOCK_0) == before
    assert harness.decision(make_request("h", specific("10.0.0.9"))).writes == ()
    assert harness.handles() == ["web"]


def test_what_cools_down_is_taken_until_it_has(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=60)
    harness.assign_or_refuse("h", specific("10.0.0.9"))
    harness.release("h")
    with pytest.raises(AddressCooling, match="released less than 60 s ago and cools down"):
        harness.assign_or_refuse("h", specific("10.0.0.9"))
    harness.clock.sleep(61)
    assert harness.assign_or_refuse("h", specific("10.0.0.9")) == ["10.0.0.9"]


def test_who_holds_it_is_given_it_again_and_nothing_is_written(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h", specific("10.0.0.9"))
    harness.take_call_counts()
    assert harness.assign_or_refuse("h", specific("10.0.0.9")) == ["10.0.0.9"]
    assert harness.take_call_counts() == (2, 0)


def test_who_holds_another_one_is_given_this_one_too(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h", specific("10.0.0.9"))
    assert harness.assign_or_refuse("h", specific("10.0.0.8")) == ["10.0.0.8"]
    assert harness.handle_counts("h") == {BLOCK_0: 2}


def test_a_maximum_per_handle_counts_for_it(harness: IPAMHarness) -> None:
    request = evolve(make_request("h", specific("10.0.0.9")), max_per_handle=1)
    assert harness.assign(request) == ["10.0.0.9"]
    with pytest.raises(ConfigurationError) as caught:
        harness.assign(evolve(request, wanted=(specific("10.0.0.8"),)))
    assert str(caught.value) == "the maximum per handle: 1 is not accepted; the handle holds 10.0.0.9 already"
    with pytest.raises(ConfigurationError, match="0 is not accepted; the handle holds none already"):
        harness.assign(evolve(request, handle="h2", wanted=(specific("10.0.0.8"),), max_per_handle=0))
    assert harness.held() == {"10.0.0.9": "h"}
    harness.assign_or_refuse("h", specific("10.0.0.7"))
    with pytest.raises(ConfigurationError, match=r"the handle holds 10\.0\.0\.7, 10\.0\.0\.9 already$"):
        harness.assign(evolve(request, wanted=(specific("10.0.0.8"),)))


def test_without_a_handle_nobody_holds_it_twice(harness: IPAMHarness) -> None:
    assert harness.assign_or_refuse(None, specific("10.0.0.9")) == ["10.0.0.9"]
    with pytest.raises(AddressTaken, match=r"in block 10\.0\.0\.0/26$"):
        harness.assign_or_refuse(None, specific("10.0.0.9"))


# --- together with others -----------------------------------------------------------------------------------------


def test_one_of_each_family_comes_in_one_commit(harness: IPAMHarness) -> None:
    harness.add_pool("six", "fd00::/120")
    harness.take_call_counts()
    assert harness.assign_or_refuse("h", specific("10.0.0.9"), specific("fd00::9")) == ["10.0.0.9", "fd00::9"]
    assert harness.take_call_counts() == (3, 1)


def test_one_family_by_name_and_one_as_it_comes(harness: IPAMHarness) -> None:
    harness.add_pool("six", "fd00::/120")
    assert harness.assign_or_refuse("h", specific("10.0.0.9"), ipv6()) == ["10.0.0.9", "fd00::"]


@pytest.mark.parametrize("shortfall", Shortfall)
def test_an_address_that_is_taken_refuses_the_other_family_too(harness: IPAMHarness, shortfall: Shortfall) -> None:
    """Trap 32: an address that another handle holds is no shortfall."""
    harness.add_pool("six", "fd00::/120")
    harness.assign_or_refuse("web", specific("fd00::9"))
    with pytest.raises(AddressTaken):
        harness.assign(evolve(make_request("h", specific("10.0.0.9"), specific("fd00::9")), shortfall=shortfall))
    assert harness.held() == {"fd00::9": "web"}


# --- races --------------------------------------------------------------------------------------------------------


def test_a_lost_race_for_its_block_is_one_more_try() -> None:
    """Trap 28: the address is still free after another node claimed the block first."""
    for mode in MemoryMode:
        harness = IPAMHarness.new(mode)
        harness.add_pool("main", "10.0.0.0/24")
        rival = RunBefore(lambda harness=harness: harness.assign_or_refuse("h1", node=OTHER_NODE))  # type: ignore[misc] # bound in the loop
        assert harness.assign(make_request("h2", specific("10.0.0.9")), {1: rival}) == ["10.0.0.9"]
        assert harness.blocks() == {BLOCK_0: "host:node-b"}
        assert harness.held() == {"10.0.0.0": "h1", "10.0.0.9": "h2"}
        assert (NODE, BLOCK_0) not in harness.affinities() or mode is not MemoryMode.ATOMIC


def test_a_lost_race_for_the_address_is_a_refusal(harness: IPAMHarness) -> None:
    rival = RunBefore(lambda: harness.assign_or_refuse("h1", specific("10.0.0.9"), node=OTHER_NODE))
    with pytest.raises(AddressTaken):
        harness.assign(make_request("h2", specific("10.0.0.9")), {1: rival})
    assert harness.handles() == ["h1"]


@pytest.mark.parametrize("mode", MemoryMode)
@pytest.mark.parametrize("fault", [LostRace(), LostRace(6), LostRace(8), LostReply()])
def test_a_conflict_counts_its_address_once(mode: MemoryMode, fault: LostRace | LostReply) -> None:
    """Trap 27: with one address per handle, the second try does not take the first one's for another."""
    if mode is MemoryMode.ATOMIC and isinstance(fault, LostRace):
        fault = LostRace()
    harness = IPAMHarness.new(mode)
    harness.add_pool("main", "10.0.0.0/24")
    request = evolve(make_request("h", specific("10.0.0.9")), max_per_handle=1)
    assert harness.assign(request, {1: fault}) == ["10.0.0.9"]
    assert harness.handle_counts("h") == {BLOCK_0: 1}
    assert harness.held() == {"10.0.0.9": "h"}
    harness.release("h")
    assert harness.handles() == []


def test_the_trace_says_how_the_block_serves(harness: IPAMHarness) -> None:
    decision = harness.decision(make_request("h", specific("10.0.0.9")))
    (entry,) = decision.trace
    assert isinstance(entry, BlockTrace)
    assert entry.outcome is BlockOutcome.CLAIMED


def test_an_address_that_the_host_reserves_in_each_new_block_is_refused(harness: IPAMHarness) -> None:
    for last in ("10.0.0.64", "10.0.0.65", "10.0.0.127"):
        request = evolve(make_request("h", specific(last)), host_reserved=(2, 1))
        with pytest.raises(AddressTaken):
            harness.assign(request)
    assert harness.blocks() == {}
    assert harness.assign(evolve(make_request("h", specific("10.0.0.66")), host_reserved=(2, 1))) == ["10.0.0.66"]
