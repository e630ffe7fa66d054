"""One address that was asked for by name: what counts for it, what does not, and whose block it may come from."""

import pytest
from attrs import evolve

from netplug_core.datastore.interface import Atomicity
from netplug_core.errors import AllocationError, ConfigurationError
from netplug_core.ipam.affinity import AffinityState
from netplug_core.ipam.refusals import AddressCooling, AddressTaken, PoolUnknown, StrictAffinity
from netplug_core.ipam.request import Reach, Shortfall
from netplug_core.ipam.trace import BlockOutcome, BlockSeen
from netplug_core.resources.ippool import AllowedUse, AssignmentMode
from netplug_core.testing.faults import LostRace, LostReply, Meanwhile
from tests.unit.netplug_core.ipam.bench import NODE, OTHER, Bench, ip, request, v4, v6

BLOCK_0, BLOCK_1 = "10.0.0.0/26", "10.0.0.64/26"


@pytest.fixture
def bench() -> Bench:
    """A cluster with one pool of four blocks."""
    made = Bench.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


# --- whose block --------------------------------------------------------------------------------------------------


def test_its_block_is_claimed_where_there_is_none(bench: Bench) -> None:
    assert bench.take("h", ip("10.0.0.70")) == ["10.0.0.70"]
    assert bench.blocks() == {BLOCK_1: "host:node-a"}
    assert bench.claims() == {(NODE, BLOCK_1): "confirmed"}
    assert bench.counts("h") == {BLOCK_1: 1}
    assert bench.take("h2") == ["10.0.0.64"]  # the next ones come from there


def test_it_is_taken_out_of_the_middle_of_the_queue(bench: Bench) -> None:
    bench.take("h1", ip("10.0.0.1"))
    assert bench.take("h2", v4(2)) == ["10.0.0.0", "10.0.0.2"]


def test_it_comes_from_the_nodes_own_block(bench: Bench) -> None:
    bench.take("h1")
    assert bench.take("h2", ip("10.0.0.9")) == ["10.0.0.9"]
    assert len(bench.decision(request("h3", ip("10.0.0.10"))).writes) == 7  # five conditions, handle and block


@pytest.mark.parametrize("state", [None, AffinityState.PENDING, AffinityState.PENDING_DELETION])
def test_its_own_block_is_confirmed_first_where_the_claim_does_not_say_so(
    bench: Bench, state: AffinityState | None
) -> None:
    bench.leave_block(BLOCK_0)
    if state is not None:
        bench.leave_claim(BLOCK_0, state)
    before = bench.block(BLOCK_0).sequence
    assert bench.take("h", ip("10.0.0.9")) == ["10.0.0.9"]
    assert bench.claims() == {(NODE, BLOCK_0): "confirmed"}
    assert bench.block(BLOCK_0).held()[0].sequence == before + 1


def test_it_is_borrowed_from_anothers_block(bench: Bench) -> None:
    bench.take("h1", node=OTHER)
    assert bench.take("h2", ip("10.0.0.9")) == ["10.0.0.9"]
    assert bench.blocks() == {BLOCK_0: "host:node-b"}
    assert (NODE, BLOCK_0) not in bench.claims()
    remark = bench.decision(request("h3", ip("10.0.0.10"))).trace
    assert [str(seen) for seen in remark] == [f"block {BLOCK_0} belongs to another node and lent addresses"]


def test_strict_affinity_lends_nothing(bench: Bench) -> None:
    bench.configure(is_affinity_strict=True)
    bench.take("h1", node=OTHER)
    with pytest.raises(StrictAffinity) as caught:
        bench.take("h2", ip("10.0.0.9"))
    assert str(caught.value) == (
        "10.0.0.9: block 10.0.0.0/26 belongs to another node (host:node-b); "
        "strict affinity is on: nothing is borrowed from blocks of other nodes"
    )
    assert bench.take("h3", ip("10.0.0.9"), node=OTHER) == ["10.0.0.9"]


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_block_of_nobody_lends_or_where_nothing_is_lent_becomes_the_nodes(bench: Bench, *, is_strict: bool) -> None:
    """Trap 34: under strict affinity its range would be lost."""
    bench.configure(is_affinity_strict=is_strict)
    bench.leave_block(BLOCK_0, node="")
    assert bench.take("h", ip("10.0.0.9")) == ["10.0.0.9"]
    assert bench.blocks() == {BLOCK_0: "host:node-a" if is_strict else ""}
    assert bench.claims() == ({(NODE, BLOCK_0): "confirmed"} if is_strict else {})


def test_a_stale_claim_is_used_where_the_block_becomes_ours(bench: Bench) -> None:
    bench.configure(is_affinity_strict=True)
    bench.leave_block(BLOCK_0, node="")
    bench.leave_claim(BLOCK_0, AffinityState.PENDING_DELETION)
    assert bench.take("h", ip("10.0.0.9")) == ["10.0.0.9"]
    assert bench.claims() == {(NODE, BLOCK_0): "confirmed"}


# --- what counts for it -------------------------------------------------------------------------------------------


def test_selectors_mode_reservations_and_limits_do_not_count(bench: Bench) -> None:
    bench.change_pool(
        "main", node_selector="has(x)", namespace_selector="has(x)", assignment_mode=AssignmentMode.MANUAL
    )
    bench.reserve("r", "10.0.0.0/24")
    bench.configure(is_affinity_strict=True, claims_blocks=True, max_blocks=1)
    bench.give_block("10.0.0.128/26")
    assert bench.assign(evolve(request("h", ip("10.0.0.9")), block_limit=1)) == ["10.0.0.9"]
    assert bench.blocks() == {BLOCK_0: "host:node-a", "10.0.0.128/26": "host:node-a"}


def test_the_use_counts_where_one_is_stated(bench: Bench) -> None:
    """Trap 14, I-49."""
    bench.change_pool("main", allowed_uses=(AllowedUse.TUNNEL,))
    with pytest.raises(AllocationError, match='which is not allowed for use "Workload"'):
        bench.take("h", ip("10.0.0.9"))
    assert bench.assign(evolve(request("h", ip("10.0.0.9")), use=None)) == ["10.0.0.9"]


def test_a_disabled_pool_gives_nothing(bench: Bench) -> None:
    bench.disable_pool("main")
    with pytest.raises(AllocationError, match=r"not in a configured pool: 10\.0\.0\.9; IPPool main .* is disabled"):
        bench.take("h", ip("10.0.0.9"))


def test_named_pools_confine_it(bench: Bench) -> None:
    bench.add_pool("next", "11.0.0.0/24")
    with pytest.raises(AllocationError, match=r"not in a configured pool named \(next\): 10.0.0.9"):
        bench.take("h", ip("10.0.0.9", "next"))
    with pytest.raises(PoolUnknown):
        bench.take("h", ip("10.0.0.9", "main", "nowhere"))
    assert bench.take("h", ip("10.0.0.9", "next", "main")) == ["10.0.0.9"]


@pytest.mark.parametrize("address", ["10.0.0.0", "10.0.0.1", "10.0.0.255"])
def test_the_edges_of_a_link_cannot_be_had(bench: Bench, address: str) -> None:
    wish = request("h", ip(address))
    with pytest.raises(ConfigurationError) as caught:
        bench.assign(evolve(wish, reach=Reach.ON_LINK))
    assert str(caught.value) == (
        f"the requested IP address: '{address}' is not accepted; "
        "on a link the first two addresses of 10.0.0.0/24 and the last one can be nobody's"
    )
    assert bench.assign(wish) == [address]


def test_any_other_address_of_a_link_can_be_had(bench: Bench) -> None:
    assert bench.assign(evolve(request("h", ip("10.0.0.2")), reach=Reach.ON_LINK)) == ["10.0.0.2"]


# --- taken --------------------------------------------------------------------------------------------------------


def test_what_another_holds_is_taken_and_nothing_is_written(bench: Bench) -> None:
    """Trap 37: it is noticed before anything is made of it."""
    bench.take("web", ip("10.0.0.9"))
    before = bench.block(BLOCK_0)
    with pytest.raises(AddressTaken) as caught:
        bench.take("h", ip("10.0.0.9"))
    assert str(caught.value) == "10.0.0.9: Address already assigned in block 10.0.0.0/26 by handle web"
    assert bench.block(BLOCK_0) == before
    assert bench.decision(request("h", ip("10.0.0.9"))).writes == ()
    assert bench.handles() == ["web"]


def test_what_cools_down_is_taken_until_it_has(bench: Bench) -> None:
    bench.configure(cooldown_s=60)
    bench.take("h", ip("10.0.0.9"))
    bench.release("h")
    with pytest.raises(AddressCooling, match="released less than 60 s ago and cools down"):
        bench.take("h", ip("10.0.0.9"))
    bench.clock.sleep(61)
    assert bench.take("h", ip("10.0.0.9")) == ["10.0.0.9"]


def test_who_holds_it_is_given_it_again_and_nothing_is_written(bench: Bench) -> None:
    bench.take("h", ip("10.0.0.9"))
    bench.spent()
    assert bench.take("h", ip("10.0.0.9")) == ["10.0.0.9"]
    assert bench.spent() == (2, 0)


def test_who_holds_another_one_is_given_this_one_too(bench: Bench) -> None:
    bench.take("h", ip("10.0.0.9"))
    assert bench.take("h", ip("10.0.0.8")) == ["10.0.0.8"]
    assert bench.counts("h") == {BLOCK_0: 2}


def test_a_maximum_per_handle_counts_for_it(bench: Bench) -> None:
    wish = evolve(request("h", ip("10.0.0.9")), max_per_handle=1)
    assert bench.assign(wish) == ["10.0.0.9"]
    with pytest.raises(ConfigurationError) as caught:
        bench.assign(evolve(wish, wanted=(ip("10.0.0.8"),)))
    assert str(caught.value) == "the maximum per handle: 1 is not accepted; the handle holds 10.0.0.9 already"
    with pytest.raises(ConfigurationError, match="0 is not accepted; the handle holds none already"):
        bench.assign(evolve(wish, handle="h2", wanted=(ip("10.0.0.8"),), max_per_handle=0))
    assert bench.held() == {"10.0.0.9": "h"}
    bench.take("h", ip("10.0.0.7"))
    with pytest.raises(ConfigurationError, match=r"the handle holds 10\.0\.0\.7, 10\.0\.0\.9 already$"):
        bench.assign(evolve(wish, wanted=(ip("10.0.0.8"),)))


def test_without_a_handle_nobody_holds_it_twice(bench: Bench) -> None:
    assert bench.take(None, ip("10.0.0.9")) == ["10.0.0.9"]
    with pytest.raises(AddressTaken, match=r"in block 10\.0\.0\.0/26$"):
        bench.take(None, ip("10.0.0.9"))


# --- together with others -----------------------------------------------------------------------------------------


def test_one_of_each_family_comes_in_one_commit(bench: Bench) -> None:
    bench.add_pool("six", "fd00::/120")
    bench.spent()
    assert bench.take("h", ip("10.0.0.9"), ip("fd00::9")) == ["10.0.0.9", "fd00::9"]
    assert bench.spent() == (2, 1)


def test_one_family_by_name_and_one_as_it_comes(bench: Bench) -> None:
    bench.add_pool("six", "fd00::/120")
    assert bench.take("h", ip("10.0.0.9"), v6()) == ["10.0.0.9", "fd00::"]


@pytest.mark.parametrize("shortfall", Shortfall)
def test_an_address_that_is_taken_refuses_the_other_family_too(bench: Bench, shortfall: Shortfall) -> None:
    """Trap 32: what somebody else has is no shortfall."""
    bench.add_pool("six", "fd00::/120")
    bench.take("web", ip("fd00::9"))
    with pytest.raises(AddressTaken):
        bench.assign(evolve(request("h", ip("10.0.0.9"), ip("fd00::9")), shortfall=shortfall))
    assert bench.held() == {"fd00::9": "web"}


# --- races --------------------------------------------------------------------------------------------------------


def test_a_lost_race_for_its_block_is_one_more_try() -> None:
    """Trap 28: whoever claims the block first, the address in it is still free."""
    for atomicity in Atomicity:
        bench = Bench.new(atomicity)
        bench.add_pool("main", "10.0.0.0/24")
        rival = Meanwhile(lambda bench=bench: bench.take("h1", node=OTHER))  # type: ignore[misc] # bound in the loop
        assert bench.assign(request("h2", ip("10.0.0.9")), {1: rival}) == ["10.0.0.9"]
        assert bench.blocks() == {BLOCK_0: "host:node-b"}
        assert bench.held() == {"10.0.0.0": "h1", "10.0.0.9": "h2"}
        assert (NODE, BLOCK_0) not in bench.claims() or atomicity is Atomicity.ORDERED


def test_a_lost_race_for_the_address_is_a_refusal(bench: Bench) -> None:
    rival = Meanwhile(lambda: bench.take("h1", ip("10.0.0.9"), node=OTHER))
    with pytest.raises(AddressTaken):
        bench.assign(request("h2", ip("10.0.0.9")), {1: rival})
    assert bench.handles() == ["h1"]


@pytest.mark.parametrize("atomicity", Atomicity)
@pytest.mark.parametrize("fault", [LostRace(), LostRace(6), LostRace(8), LostReply()])
def test_a_conflict_counts_its_address_once(atomicity: Atomicity, fault: LostRace | LostReply) -> None:
    """Trap 27: with one address per handle, the second try does not take the first one's for another."""
    if atomicity is Atomicity.ATOMIC and isinstance(fault, LostRace):
        fault = LostRace()
    bench = Bench.new(atomicity)
    bench.add_pool("main", "10.0.0.0/24")
    wish = evolve(request("h", ip("10.0.0.9")), max_per_handle=1)
    assert bench.assign(wish, {1: fault}) == ["10.0.0.9"]
    assert bench.counts("h") == {BLOCK_0: 1}
    assert bench.held() == {"10.0.0.9": "h"}
    bench.release("h")
    assert bench.handles() == []


def test_the_trace_says_how_the_block_serves(bench: Bench) -> None:
    decision = bench.decision(request("h", ip("10.0.0.9")))
    (remark,) = decision.trace
    assert isinstance(remark, BlockSeen)
    assert remark.outcome is BlockOutcome.CLAIMED
