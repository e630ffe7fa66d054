"""The writes by which a block comes into somebody's hands and out of them, in an order of which every prefix heals."""

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.ipam.allocation.ownership import Acquisition, BlockCandidate, claim_block, relinquish_block
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, affinity_key, block_key, host_owner
from netplug_core.records import Create, Delete, Record, Revision, Update, Write, Written
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.faults import ProcessDeath, ProcessDied
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, make_pool, make_request

OURS, THEIRS = host_owner(NODE), host_owner(OTHER_NODE)
PREFIX = Prefix.parse("10.0.0.0/26")
OURS_KEY, THEIRS_KEY = affinity_key(OURS, PREFIX), affinity_key(THEIRS, PREFIX)
PENDING, CONFIRMED, GOING = AffinityState.PENDING, AffinityState.CONFIRMED, AffinityState.PENDING_DELETION
BLOCK = Block.new(PREFIX, owner=OURS, now_ns=1_000_000_000)
POOL = Record(ippool_key("main"), make_pool("main", "10.0.0.0/24"), Revision("p"))
STORED, CLAIM, RIVAL = Revision("b"), Revision("a"), Revision("r")


def claim(state: AffinityState, carried: str = "") -> Record[Affinity]:
    return Record(OURS_KEY, Affinity(state=state, unknown_json=carried), CLAIM)


def rival(state: AffinityState) -> Record[Affinity]:
    return Record(THEIRS_KEY, Affinity(state=state), RIVAL)


def hold(
    means: Acquisition, revision: Revision | None = STORED, affinity: Record[Affinity] | None = None
) -> BlockCandidate:
    return BlockCandidate(pool=POOL, block=BLOCK, revision=revision, acquisition=means, affinity=affinity)


def secured(what: BlockCandidate) -> tuple[list[Write], Revision | Written]:
    writes: list[Write] = [Create(block_key(Prefix.parse("1.0.0.0/26")), BLOCK)]  # they count from what is there
    revision = claim_block(what, OURS, writes)
    return writes[1:], revision


def affinity(state: AffinityState) -> Affinity:
    return Affinity(state=state)


# --- claims -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("means", [Acquisition.OWN, Acquisition.BORROWED])
def test_a_block_that_may_give_already_needs_no_write(means: Acquisition) -> None:
    assert secured(hold(means)) == ([], STORED)


def test_a_new_block_is_claimed_made_and_confirmed() -> None:
    assert secured(hold(Acquisition.NEW, None)) == (
        [
            Create(OURS_KEY, affinity(PENDING)),
            Create(block_key(PREFIX), BLOCK),
            Update(OURS_KEY, affinity(CONFIRMED), Written(1)),
        ],
        Written(2),
    )


def test_a_block_that_is_there_is_changed_by_its_revision() -> None:
    for means in (Acquisition.ADOPTED, Acquisition.UNCONFIRMED):
        writes, revision = secured(hold(means))
        assert writes[1] == Update(block_key(PREFIX), BLOCK, STORED)
        assert revision == Written(2)


def test_a_pending_claim_is_gone_on_with() -> None:
    assert secured(hold(Acquisition.UNCONFIRMED, STORED, claim(PENDING))) == (
        [Update(block_key(PREFIX), BLOCK, STORED), Update(OURS_KEY, affinity(CONFIRMED), CLAIM)],
        Written(1),
    )


@pytest.mark.parametrize("state", [CONFIRMED, GOING])
def test_any_other_claim_is_pending_again_first(state: AffinityState) -> None:
    """So that a concurrent relinquishment loses."""
    writes, _revision = secured(hold(Acquisition.NEW, None, claim(state, carried="{}")))
    assert writes == [
        Update(OURS_KEY, Affinity(state=PENDING, unknown_json="{}"), CLAIM),
        Create(block_key(PREFIX), BLOCK),
        Update(OURS_KEY, Affinity(state=CONFIRMED, unknown_json="{}"), Written(1)),
    ]


@pytest.mark.parametrize("state", [PENDING, CONFIRMED])
def test_a_block_is_taken_over_with_its_owners_claim_marked_first_and_deleted_last(state: AffinityState) -> None:
    assert secured(evolve(hold(Acquisition.TAKEN_OVER), previous_affinity=rival(state))) == (
        [
            Update(THEIRS_KEY, affinity(GOING), RIVAL),
            Create(OURS_KEY, affinity(PENDING)),
            Update(block_key(PREFIX), BLOCK, STORED),
            Update(OURS_KEY, affinity(CONFIRMED), Written(2)),
            Delete(THEIRS_KEY, Written(1)),
        ],
        Written(3),
    )


def test_a_claim_that_was_going_already_is_not_marked_again() -> None:
    writes, _revision = secured(evolve(hold(Acquisition.TAKEN_OVER), previous_affinity=rival(GOING)))
    assert writes[0] == Create(OURS_KEY, affinity(PENDING))
    assert writes[-1] == Delete(THEIRS_KEY, RIVAL)


def test_an_owner_whose_claim_was_lost_has_none_to_mark() -> None:
    writes, _revision = secured(hold(Acquisition.TAKEN_OVER))
    assert [write.key for write in writes if isinstance(write, Create | Update | Delete)] == [
        OURS_KEY, block_key(PREFIX), OURS_KEY,
    ]  # fmt: skip


# --- out of them --------------------------------------------------------------------------------------------------

HELD = BLOCK.assign(BLOCK.free[:1], Attribute(handle="h"))


def given_up(stored: Block, found: Record[Affinity] | None, rested: Block | None = None) -> list[Write]:
    writes: list[Write] = []
    relinquish_block(found, Record(block_key(PREFIX), stored, STORED), rested or stored, writes)
    return writes


def test_an_empty_block_goes_between_the_mark_and_the_end_of_its_claim() -> None:
    assert given_up(BLOCK, claim(CONFIRMED)) == [
        Update(OURS_KEY, affinity(GOING), CLAIM),
        Delete(block_key(PREFIX), STORED),
        Delete(OURS_KEY, Written(0)),
    ]


def test_a_block_in_use_stays_without_an_owner() -> None:
    assert given_up(HELD, claim(GOING)) == [
        Update(block_key(PREFIX), HELD.relinquished(), STORED),
        Delete(OURS_KEY, CLAIM),
    ]


def test_a_block_goes_when_all_it_held_has_cooled_down() -> None:
    assert given_up(HELD, claim(GOING), BLOCK)[0] == Delete(block_key(PREFIX), STORED)


def test_an_owner_without_a_claim_gives_up_the_block_alone() -> None:
    assert given_up(BLOCK, None) == [Delete(block_key(PREFIX), STORED)]


# --- every prefix heals -------------------------------------------------------------------------------------------


def contested(before: str) -> IPAMHarness:
    """A cluster whose one block is new, without an owner, or another node's and empty."""
    harness = IPAMHarness.new(MemoryMode.ORDERED)
    harness.add_pool("main", str(PREFIX))
    if before == "nobody's":
        harness.put_block(str(PREFIX), node="")
    if before == "idle":
        harness.put_owned_block(str(PREFIX), node=OTHER_NODE)
    harness.clock.sleep(61)
    return harness


@pytest.mark.parametrize("before", ["new", "nobody's", "idle"])
def test_whatever_a_crash_leaves_of_a_claim_the_next_request_heals(before: str) -> None:
    count = len(contested(before).decision(make_request("h")).writes)
    for written in range(count + 1):
        harness = contested(before)
        with pytest.raises(ProcessDied):
            harness.assign(make_request("h"), {1: ProcessDeath(written)})
        (given,) = harness.assign_or_refuse("h")
        assert harness.held() == {given: "h"}, written
        assert harness.affinities()[NODE, str(PREFIX)] == "confirmed", written
        assert harness.blocks() == {str(PREFIX): OURS}, written
        harness.release("h")
        assert (harness.held(), harness.handles()) == ({}, []), written
