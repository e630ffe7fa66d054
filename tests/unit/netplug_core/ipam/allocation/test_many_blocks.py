"""Requests over so many blocks that one commit does not take them all: what a request gets then, and what it says."""

from math import ceil

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.datastore.write_set import fold_writes
from netplug_core.errors import Unavailable
from netplug_core.ipam.allocation.context import RECORDS_PER_ASSIGNMENT, RELEASES_PER_DECISION
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Shortfall
from netplug_core.ipam.outcome import BlockLimitReached, CommitFull
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import MAX_COMMIT_WRITES, Decision, Delete, Revision
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, ipv6, make_request
from tests.harness.stores import ScriptedStore, SendWrites

MOST_NEW = (RECORDS_PER_ASSIGNMENT - 1) // 2  # a block and its affinity, and once their pool
MOST_TAKEN_OVER = (RECORDS_PER_ASSIGNMENT - 1) // 3
MOST_OWN = RECORDS_PER_ASSIGNMENT - 1


@pytest.fixture
def harness() -> IPAMHarness:
    """A pool whose blocks have one address each, and a node that may own as many as it wants."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24", 32)
    made.configure(is_affinity_strict=True, max_blocks_per_host=1000)
    return made


def own(harness: IPAMHarness, count: int, pool: str = "10.0.0.0/24", node: str = NODE) -> None:
    for number in range(count):
        harness.put_owned_block(str(Prefix.parse(pool).subprefix(number, 32)), node)


def accepting(request: AssignRequest) -> AssignRequest:
    return evolve(request, shortfall=Shortfall.RETURN)


def commit_size(decision: Decision[Assignment]) -> int:
    """How many conditions or changes it has: what a store counts, which then has the endpoint beside it."""
    folded = fold_writes(decision.writes)
    return max(len(folded.conditions), len(folded.mutations))


@pytest.mark.parametrize("owned,most", [(0, MOST_NEW), (40, MOST_OWN - 30), (120, MOST_OWN)])
def test_a_request_for_more_blocks_than_a_commit_takes_is_refused_and_writes_nothing(
    harness: IPAMHarness, owned: int, most: int
) -> None:
    """Forty own blocks leave room for 29 new ones."""
    own(harness, owned)
    before = harness.blocks()
    with pytest.raises(CommitFull) as caught:
        harness.assign_or_refuse("h", ipv4(120))
    assert (caught.value.found, caught.value.wanted, caught.value.code) == (most, 120, 106)
    assert str(caught.value) == (
        f"Only {most} of the 120 requested IPv4 addresses are available, so nothing new is held; "
        "the others lie in more blocks than one commit changes"
    )
    assert (harness.blocks(), harness.held(), harness.handles()) == (before, {}, [])


def test_a_request_that_accepts_fewer_gets_all_in_several_commits(harness: IPAMHarness) -> None:
    harness.take_call_counts()
    assert len(harness.assign(accepting(make_request("h", ipv4(120))))) == 120
    assert harness.take_call_counts()[1] == ceil(120 / MOST_NEW)
    assert set(harness.held().values()) == {"h"}
    assert sum(harness.handle_counts("h").values()) == len(harness.held()) == 120


def test_if_a_later_commit_fails_the_addresses_of_the_first_are_given_back(harness: IPAMHarness) -> None:
    def away(_send: SendWrites) -> tuple[Revision, ...]:
        raise Unavailable("the store", "away")

    store = ScriptedStore(harness.store, scripts=[lambda send: send(None), away])
    with pytest.raises(Unavailable):
        evolve(harness.ipam(), datastore=store).assign(
            accepting(make_request("h", ipv4(120))), NO_ENDPOINT, deadline=harness.deadline
        )
    assert (harness.held(), harness.handles()) == ({}, [])


def test_without_a_handle_a_request_gets_what_one_commit_takes(harness: IPAMHarness) -> None:
    """Its addresses could not be told from those of another call."""
    assert len(harness.assign(accepting(make_request(None, ipv4(120))))) == MOST_NEW


def test_a_resident_process_gets_all_too(harness: IPAMHarness) -> None:
    harness.enable_cache()
    harness.assign_or_refuse("first")
    assert len(harness.assign(accepting(make_request("h", ipv4(120))))) == 120


@pytest.mark.parametrize("owned", [0, 40, 120])
def test_a_store_takes_the_commit(harness: IPAMHarness, owned: int) -> None:
    own(harness, owned)
    assert commit_size(harness.decision(accepting(make_request("h", ipv4(120))))) < MAX_COMMIT_WRITES - 10


def test_both_families_share_a_commit(harness: IPAMHarness) -> None:
    harness.add_pool("six", "fd00::/120", 128)
    decision = harness.decision(accepting(make_request("h", ipv4(30), ipv6(30))))
    assert isinstance(decision.result, Assignment)
    families = [address.address.family.value for address in decision.result.addresses]
    assert (families.count(4), families.count(6)) == (30, (RECORDS_PER_ASSIGNMENT - 1 - 60 - 1) // 2)
    assert [type(shortfall) for shortfall in decision.result.shortfalls] == [CommitFull]
    assert commit_size(decision) < MAX_COMMIT_WRITES - 10


def test_blocks_that_are_taken_over_change_three_records_each(harness: IPAMHarness) -> None:
    own(harness, 256, node=OTHER_NODE)
    harness.clock.sleep(120)
    decision = harness.decision(accepting(make_request("h", ipv4(60))))
    assert isinstance(decision.result, Assignment)
    assert len(decision.result.addresses) == MOST_TAKEN_OVER
    assert commit_size(decision) < MAX_COMMIT_WRITES - 10


@pytest.mark.parametrize("count,released", [(1, RELEASES_PER_DECISION), (80, 9), (99, 0)])
def test_what_is_given_up_is_what_the_addresses_leave_room_for(harness: IPAMHarness, count: int, released: int) -> None:
    """Empty blocks of a disabled pool; the next requests give up the others."""
    harness.add_pool("old", "10.9.0.0/24", 32)
    own(harness, 120)
    own(harness, 30, "10.9.0.0/24")
    harness.disable_pool("old")
    decision = harness.decision(make_request("h", ipv4(count)))
    assert len([write for write in decision.writes if isinstance(write, Delete)]) == 2 * released
    assert commit_size(decision) < MAX_COMMIT_WRITES - 10


def test_borrowed_blocks_count_too() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24", 31)
    for number in range(128):
        harness.assign_or_refuse(f"h{number}", node=f"node-{number}")
    decision = harness.decision(accepting(make_request("h", ipv4(120))))
    assert isinstance(decision.result, Assignment)
    assert len(decision.result.addresses) == MOST_OWN
    assert commit_size(decision) < MAX_COMMIT_WRITES - 10


# --- blocks that must be given up for others, where a limit is set ----------------------------------------------------


def owned_count(harness: IPAMHarness) -> int:
    return list(harness.blocks().values()).count(f"host:{NODE}")


@pytest.fixture
def outdated(harness: IPAMHarness) -> IPAMHarness:
    """The node may own 32 blocks. It owns two empty ones of four addresses, of the pool before it was made again.

    All others are unused blocks of another node.
    """
    harness.configure(is_affinity_strict=True, max_blocks_per_host=32)
    own(harness, 248, node=OTHER_NODE)
    harness.clock.sleep(120)
    for cidr in ("10.0.0.248/30", "10.0.0.252/30"):
        harness.put_owned_block(cidr)
    return harness


def test_a_block_that_the_commit_has_no_room_to_give_up_counts(outdated: IPAMHarness) -> None:
    """32 blocks taken over are 97 records, so only one of the two could go with them; the node would own 33."""
    with pytest.raises(CommitFull) as caught:
        outdated.assign_or_refuse("h", ipv4(32))
    assert (caught.value.found, outdated.held(), owned_count(outdated)) == (31, {}, 0)
    assert len(outdated.assign_or_refuse("h", ipv4(32))) == owned_count(outdated) == 32


def test_a_request_that_accepts_fewer_has_them_given_up_first(outdated: IPAMHarness) -> None:
    assert len(outdated.assign(accepting(make_request("h", ipv4(32))))) == owned_count(outdated) == 32


def test_as_many_as_the_new_blocks_need_are_given_up_with_them(outdated: IPAMHarness) -> None:
    for number in range(24):
        outdated.put_owned_block(f"10.0.0.{number}/32")
    assert len(outdated.assign_or_refuse("h", ipv4(32))) == 32
    assert owned_count(outdated) == 32


def test_a_node_over_its_limit_gives_up_what_it_can_and_is_served_then(harness: IPAMHarness) -> None:
    harness.add_pool("old", "10.9.0.0/24", 32)
    own(harness, 2 * RELEASES_PER_DECISION + 5, "10.9.0.0/24")
    harness.disable_pool("old")
    harness.configure(is_affinity_strict=True, max_blocks_per_host=5)
    for left in (RELEASES_PER_DECISION + 5, 5):
        with pytest.raises(BlockLimitReached, match="limit of 5 blocks"):
            harness.assign_or_refuse("h")
        assert owned_count(harness) == left
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]
    assert owned_count(harness) == 1
