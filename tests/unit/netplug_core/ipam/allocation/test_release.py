"""Release by handle: from what is stored, whatever a crash or a person left of it."""

import pytest

from netplug_core.addressing import Address, Prefix
from netplug_core.datastore.transaction import decide_behind
from netplug_core.errors import Unavailable
from netplug_core.ipam.allocation.context import RELEASES_PER_DECISION
from netplug_core.ipam.allocation.release import PartRelease, decide_release, held, release_queries
from netplug_core.ipam.allocation.request import ReleaseItem, ReleaseRequest
from netplug_core.ipam.model import (
    AffinityState,
    Attribute,
    Block,
    Handle,
    affinity_key,
    block_key,
    handle_key,
    host_owner,
)
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import ABSENT, Decision, Delete, NeedMore, Require, Update
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY, READINESS_GATE
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, ippool_key
from netplug_core.testing.faults import DamagedDatastore, ProcessDeath, ProcessDied
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, ipv6
from tests.harness.ipam_release import decide_without_commit, sequence_of, texts

BLOCK_0, BLOCK_1 = "10.0.0.0/26", "10.0.0.64/26"


@pytest.fixture
def harness() -> IPAMHarness:
    """A cluster with one pool of four blocks."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


def test_everything_a_handle_holds_is_freed_and_nothing_else(harness: IPAMHarness) -> None:
    harness.add_pool("six", "fd00::/120")
    harness.assign_or_refuse("h1", ipv4(70), ipv6(2))
    harness.assign_or_refuse("h2", ipv4(1))
    freed = harness.release("h1")
    assert len(freed) == 72
    assert harness.held() == {"10.0.0.70": "h2"}
    assert harness.handles() == ["h2"]
    assert harness.affinities()[(NODE, BLOCK_0)] == "confirmed"  # an empty block stays its node's


def test_trap_26_a_handle_counts_what_it_took_and_not_what_it_wanted(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("other", ipv4(60))
    harness.assign_or_refuse("h1", ipv4(6))
    assert harness.handle_counts("h1") == {BLOCK_0: 4, BLOCK_1: 2}
    harness.release("h1")
    assert harness.handles() == ["other"]


def test_the_freed_addresses_are_named_by_block_and_number(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(2))
    assert harness.release("h1") == ["10.0.0.0", "10.0.0.1"]


@pytest.mark.parametrize("handle", ["h1", "never-heard-of"])
def test_releasing_twice_is_releasing_once(harness: IPAMHarness, handle: str) -> None:
    harness.assign_or_refuse("h1")
    harness.release("h1")
    harness.take_call_counts()
    assert harness.release(handle) == []
    assert harness.take_call_counts() == (1, 0)


def test_pool_node_and_claim_may_be_gone(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.remove(ippool_key("main"))
    harness.remove(affinity_key(host_owner(NODE), Prefix.parse(BLOCK_0)))
    assert harness.release("h1") == ["10.0.0.0"]


def test_the_last_address_takes_a_block_of_nobody_with_it(harness: IPAMHarness) -> None:
    harness.put_block(BLOCK_0, node="")
    key = block_key(Prefix.parse(BLOCK_0))
    block = harness.get(key)
    harness.put(
        key, block.assign(block.free[:1], Attribute(handle="h1")).assign(block.free[1:2], Attribute(handle="h2"))
    )
    harness.put_handle("h1", b0=1)
    harness.put_handle("h2", b0=1)
    assert harness.release("h1") == ["10.0.0.0"]
    assert harness.blocks() == {BLOCK_0: ""}
    assert harness.release("h2") == ["10.0.0.1"]
    assert harness.blocks() == {}


def test_a_handle_that_holds_nothing_is_removed(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("other")
    harness.put_handle("h1", b0=3)
    assert harness.release("h1") == []
    assert harness.handles() == ["other"]
    assert harness.held() == {"10.0.0.0": "other"}


def test_a_handle_that_names_no_block_is_removed(harness: IPAMHarness) -> None:
    harness.put(handle_key("h1"), Handle())
    assert harness.release("h1") == []
    assert harness.handles() == []


def test_trap_30_a_handle_that_counts_too_much_goes_in_the_same_commit(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.put_handle("h1", b0=9)
    harness.take_call_counts()
    assert harness.release("h1") == ["10.0.0.0"]
    assert harness.take_call_counts() == (2, 1)
    assert harness.handles() == []


def test_trap_47_a_block_that_is_gone_or_holds_nothing_of_it_is_dropped_from_the_handle(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.assign_or_refuse("other", node=OTHER_NODE)
    harness.put_handle("h1", b0=1, b1=1, b3=2)
    assert harness.release("h1") == ["10.0.0.0"]
    assert harness.handles() == ["other"]
    assert harness.held() == {"10.0.0.64": "other"}


def test_a_handle_whose_blocks_are_all_gone_is_removed(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.put_handle("h1", b0=1, b1=1)
    harness.remove(block_key(Prefix.parse(BLOCK_0)))
    assert harness.release("h1") == []
    assert harness.handles() == []


# --- by sequence number -----------------------------------------------------------------------------------------


def release_taken_under(harness: IPAMHarness, handle: str, number: int) -> list[str]:
    wanted = ReleaseRequest(handle=handle, sequence=number)
    return texts(harness.ipam().release(wanted, NO_ENDPOINT, deadline=harness.deadline).addresses)


def test_trap_3_what_was_taken_under_another_number_stays_and_is_counted(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(2))
    first = sequence_of(harness, "10.0.0.0", BLOCK_0)
    harness.assign_or_refuse("h1", ipv4(4))
    harness.put_handle("h1", b0=9)
    assert release_taken_under(harness, "h1", first + 1) == ["10.0.0.2", "10.0.0.3"]
    assert harness.held() == {"10.0.0.0": "h1", "10.0.0.1": "h1"}
    assert harness.handle_counts("h1") == {BLOCK_0: 2}
    assert release_taken_under(harness, "h1", first) == ["10.0.0.0", "10.0.0.1"]
    assert harness.handles() == []


def test_trap_2_a_handle_loses_as_many_as_are_released(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(3))
    harness.assign_or_refuse("h1", ipv4(5))
    number = sequence_of(harness, "10.0.0.0", BLOCK_0)
    assert len(release_taken_under(harness, "h1", number)) == 3
    assert harness.handle_counts("h1") == {BLOCK_0: 2}


def test_a_number_that_nothing_was_taken_under_changes_nothing(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.take_call_counts()
    assert release_taken_under(harness, "h1", 1) == []
    assert harness.take_call_counts() == (2, 0)
    assert harness.handle_counts("h1") == {BLOCK_0: 1}


# --- addresses that have to rest --------------------------------------------------------------------------------


def test_a_handle_goes_at_once_though_its_addresses_rest(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=60)
    harness.assign_or_refuse("h1", ipv4(2))
    assert harness.release("h1") == ["10.0.0.0", "10.0.0.1"]
    assert harness.handles() == []
    assert harness.block(BLOCK_0).cooling_count == 2
    assert harness.assign_or_refuse("h2") == ["10.0.0.2"]


def test_what_rests_is_not_released_again(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=60)
    harness.assign_or_refuse("h1")
    harness.release("h1")
    before = harness.block(BLOCK_0)
    harness.put_handle("h1", b0=1)
    harness.clock.sleep(30)
    assert harness.release("h1") == []
    assert harness.block(BLOCK_0) == before.touched()
    assert harness.handles() == []


def test_a_release_frees_what_others_left_to_rest_long_ago(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=60)
    harness.assign_or_refuse("h1")
    harness.assign_or_refuse("h2")
    harness.release("h1")
    harness.clock.sleep(61)
    harness.release("h2")
    assert texts(held.address for held in harness.block(BLOCK_0).held()) == ["10.0.0.1"]
    assert harness.block(BLOCK_0).free[-1] == 0


# --- what may get in between ------------------------------------------------------------------------------------


def test_a_locked_cluster_frees_nothing(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.set_ready(is_ready=False)
    with pytest.raises(Unavailable, match="datastoreReady is false") as caught:
        harness.release("h1")
    assert caught.value.code == 11
    assert harness.held() == {"10.0.0.0": "h1"}


def test_an_address_returns_only_after_all_others(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.release("h1")
    assert [harness.assign_or_refuse(f"h{number}")[0] for number in range(2, 66)] == [
        *(f"10.0.0.{number}" for number in range(1, 64)), "10.0.0.0",
    ]  # fmt: skip


def decision(harness: IPAMHarness, handle: str) -> Decision[PartRelease]:
    request = ReleaseRequest(handle=handle)
    now_ns = harness.clock.now_ns()
    return decide_without_commit(
        harness,
        (READINESS_GATE.query, *release_queries(request)),
        lambda snapshot: decide_behind(READINESS_GATE, snapshot, lambda seen: decide_release(seen, request, now_ns)),
    )


def test_the_commit_frees_addresses_before_it_forgets_the_handle(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    made = decision(harness, "h1")
    flag, configuration, block, handle = made.writes
    assert flag == Require(CLUSTER_INFORMATION_KEY, ABSENT)
    assert configuration == Require(IPAM_CONFIGURATION_KEY, ABSENT)
    assert isinstance(block, Update)
    assert isinstance(handle, Delete)
    assert made.result == PartRelease(addresses=(Address.parse("10.0.0.0"),))


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_release_of_nothing_writes_nothing(harness: IPAMHarness, *, is_ready: bool) -> None:
    harness.set_ready(is_ready=is_ready)
    assert decision(harness, "h1").writes == ()


def test_the_commit_rests_on_the_configuration_for_it_says_how_long_addresses_rest(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.configure(cooldown_s=60)
    stored = harness.find_record(IPAM_CONFIGURATION_KEY)
    assert stored is not None
    assert decision(harness, "h1").writes[1] == Require(stored.key, stored.revision)


def test_a_count_is_corrected_only_to_the_block_that_is_stored(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(2))
    key = block_key(Prefix.parse(BLOCK_0))
    counted_less = harness.get(handle_key("h1")).with_count(Prefix.parse(BLOCK_0), 1)
    harness.put(handle_key("h1"), counted_less)
    request = ReleaseRequest(handle="h1", sequence=99)
    made = decide_without_commit(
        harness, release_queries(request), lambda snapshot: decide_release(snapshot, request, harness.clock.now_ns())
    )
    assert [write.key for write in made.writes if isinstance(write, Update)] == [handle_key("h1")]
    assert key in [write.key for write in made.writes if isinstance(write, Require)]


def test_a_handle_that_counts_more_than_is_found_is_nothing_to_decide_from_memory(harness: IPAMHarness) -> None:
    """A block that is remembered may be older than the handle: only one that is read shows that nothing is held."""
    harness.assign_or_refuse("h1")
    assert not decision(harness, "h1").needs_read
    harness.put_handle("h2", b0=1, b1=1)
    short = decision(harness, "h2")
    assert short.needs_read
    assert isinstance(short.writes[-1], Delete)


def test_what_a_handle_holds_can_be_asked(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(2), node=OTHER_NODE)
    snapshot = harness.read(*release_queries(ReleaseRequest(handle="h1")))
    more = held(snapshot, "h1")
    assert isinstance(more, NeedMore)
    assert held(snapshot.merged(harness.read(*more.queries)), "h1") == tuple(
        map(Address.parse, ("10.0.0.0", "10.0.0.1"))
    )


# --- what a killed assignment may still write ---------------------------------------------------------------------


def test_a_block_that_holds_less_than_the_handle_counts_is_stored_once_more(harness: IPAMHarness) -> None:
    """A late write of a killed assignment finds another revision. An intact block is not written."""
    number = len(harness.assign_or_refuse("h1", ipv4(64)))
    harness.assign_or_refuse("other")
    harness.put_handle("h1", b0=number, b1=3)
    before = harness.block(BLOCK_1)
    made = decision(harness, "h1")
    _flag, _configuration, freed, overcounted, handle = made.writes
    assert isinstance(freed, Update)
    assert isinstance(handle, Delete)
    assert isinstance(overcounted, Update)
    assert overcounted.value == before.touched()
    assert made.needs_read


def release_on_node(harness: IPAMHarness, handle: str, node: str) -> list[str]:
    request = ReleaseRequest(handle=handle, node=node)
    return texts(harness.ipam().release(request, NO_ENDPOINT, deadline=harness.deadline).addresses)


def test_a_block_that_may_still_be_created_is_created_empty_under_its_pending_affinity(harness: IPAMHarness) -> None:
    harness.put_affinity(BLOCK_0, AffinityState.PENDING)
    harness.put_handle("h1", b0=1)
    assert release_on_node(harness, "h1", NODE) == []
    assert harness.blocks() == {BLOCK_0: f"host:{NODE}"}
    assert harness.held() == {}
    assert harness.handles() == []
    assert harness.assign_or_refuse("h2") == ["10.0.0.0"]
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}


def test_a_block_that_may_still_be_created_is_created_beside_one_that_is_stored(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.put_affinity(BLOCK_1, AffinityState.PENDING)
    harness.put_handle("h1", b0=1, b1=1)
    assert release_on_node(harness, "h1", NODE) == ["10.0.0.0"]
    assert harness.blocks() == {BLOCK_0: f"host:{NODE}", BLOCK_1: f"host:{NODE}"}
    assert harness.held() == {}
    assert harness.handles() == []


@pytest.mark.parametrize("node", ["", OTHER_NODE])
def test_no_block_is_created_for_a_node_that_was_not_about_to_create_it(harness: IPAMHarness, node: str) -> None:
    harness.put_affinity(BLOCK_0, AffinityState.PENDING)
    harness.put_affinity(BLOCK_0, AffinityState.CONFIRMED, OTHER_NODE)
    harness.put_handle("h1", b0=1)
    assert release_on_node(harness, "h1", node) == []
    assert harness.blocks() == {}
    assert harness.handles() == []


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("length", [26, 23])
def test_no_block_is_created_over_one_of_another_size(length: int, *, is_damaged: bool) -> None:
    """The pool was deleted and created again with another block size, and another node was faster."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/22", length)
    block, other = f"10.0.0.0/{length}", "10.0.0.32/30"
    harness.put_affinity(block, AffinityState.PENDING)
    harness.put(handle_key("h1"), Handle(blocks=((Prefix.parse(block), 1),)))
    harness.put_owned_block(other, OTHER_NODE)
    if is_damaged:
        damaged = DamagedDatastore(harness.store, damage={block_key(Prefix.parse(other)): b"{"})
        harness.store = damaged  # type: ignore[assignment]  # same calls
    assert release_on_node(harness, "h1", NODE) == []
    assert harness.find(block_key(Prefix.parse(block))) is None
    assert harness.handles() == []


# --- many blocks --------------------------------------------------------------------------------------------------

MANY = 45


@pytest.fixture
def wide() -> IPAMHarness:
    """A handle that holds one address in each of 45 blocks; another handle holds one in the first."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/20", 30)
    for number in range(MANY):
        made.put_owned_block(f"10.0.0.{4 * number}/30")
    made.assign_or_refuse("other")
    made.assign_or_refuse("h1", ipv4(4 * MANY - 1))
    return made


def test_a_handle_of_many_blocks_is_released_in_several_commits(wide: IPAMHarness) -> None:
    wide.take_call_counts()
    assert len(wide.release("h1")) == 4 * MANY - 1
    assert wide.take_call_counts() == (6, 3)
    assert wide.handles() == ["other"]
    assert wide.held() == {"10.0.0.0": "other"}


def test_one_commit_releases_whole_blocks_and_the_handle_counts_the_others(wide: IPAMHarness) -> None:
    made = decision(wide, "h1")
    changed = [write.value for write in made.writes if isinstance(write, Update)]
    assert [type(value) for value in changed] == [Block] * RELEASES_PER_DECISION + [Handle]
    wide.commit(*made.writes)
    assert len(wide.get(handle_key("h1")).blocks) == MANY - RELEASES_PER_DECISION
    assert made.result == PartRelease(
        addresses=tuple(Address.parse(f"10.0.0.{n}") for n in range(1, 4 * RELEASES_PER_DECISION)),
        last=Prefix.parse("10.0.0.76/30"),
    )


@pytest.mark.parametrize("commit", [1, 2, 3])
def test_a_release_that_is_killed_between_its_commits_is_finished_by_the_next(wide: IPAMHarness, commit: int) -> None:
    with pytest.raises(ProcessDied):
        wide.release("h1", {commit: ProcessDeath(None)})
    wide.release("h1")
    assert wide.handles() == ["other"]
    assert wide.held() == {"10.0.0.0": "other"}


def test_a_release_by_number_goes_on_behind_the_blocks_that_it_leaves(wide: IPAMHarness) -> None:
    """Only the addresses of the second assignment go; those of the first are in the blocks before them."""
    wide.clock.sleep(1)  # the number of a new block is the time
    wide.add_pool("more", "10.1.0.0/24", 30)
    wide.put_owned_block("10.1.0.0/30")
    assert len(wide.assign_or_refuse("h1", ipv4(4 * MANY))) == 4 * MANY
    (last,) = [held for held in wide.block("10.1.0.0/30").held() if held.attribute.handle == "h1"]
    assert release_taken_under(wide, "h1", last.sequence) == [str(last.address)]
    assert sum(wide.handle_counts("h1").values()) == 4 * MANY - 1


# --- addresses that no handle leads to ----------------------------------------------------------------------------


def test_addresses_are_released_by_their_numbers_where_no_handle_leads_to_them(harness: IPAMHarness) -> None:
    """One of them is another's by now; it does not keep the other one held, though both are of one block."""
    harness.assign_or_refuse("h1", ipv4(2))
    number = sequence_of(harness, "10.0.0.0", BLOCK_0)
    harness.remove(handle_key("h1"))
    items = (
        ReleaseItem(address=Address.parse("10.0.0.0"), handle="h1", sequence=number - 1),
        ReleaseItem(address=Address.parse("10.0.0.1"), handle="h1", sequence=number),
    )
    request = ReleaseRequest(handle="h1", addresses=items)
    freed = harness.ipam().release(request, NO_ENDPOINT, deadline=harness.deadline)
    assert texts(freed.addresses) == ["10.0.0.1"]
    assert harness.held() == {"10.0.0.0": "h1"}


def test_addresses_that_the_handle_leads_to_take_no_commit_of_their_own(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    number = sequence_of(harness, "10.0.0.0", BLOCK_0)
    harness.take_call_counts()
    item = ReleaseItem(address=Address.parse("10.0.0.0"), handle="h1", sequence=number)
    harness.ipam().release(ReleaseRequest(handle="h1", addresses=(item,)), NO_ENDPOINT, deadline=harness.deadline)
    assert harness.take_call_counts() == (2, 1)
