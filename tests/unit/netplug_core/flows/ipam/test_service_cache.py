"""An allocator that remembers the store: what it saves, and that being out of date never costs an address."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address, Prefix
from netplug_core.datastore.protocol import FRESH_S, Atomicity
from netplug_core.datastore.transaction import Transaction
from netplug_core.datastore.view import View
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.flows.ipam.addresses import release_addresses
from netplug_core.flows.ipam.affinities import relinquish_node
from netplug_core.flows.ipam.cache import make_node_cache
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.request import ReleaseItem, ReleaseRequest
from netplug_core.ipam.model import HANDLE, block_key
from netplug_core.ipam.outcome import PoolsExhausted
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Decision, Delete, Get, Kind, OutcomeUnknown, Revision, Snapshot, Write
from netplug_core.testing.faults import LostReply
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, ipv6, make_request
from tests.harness.ipam_service import NOTE_KIND, make_cluster, note_endpoint_part
from tests.harness.stores import ScriptedStore, SendWrites
from tests.unit.netplug_core.flows.ipam.test_service_faults import answered_too_late

BLOCK_0 = "10.0.0.0/26"


def resident(mode: MemoryMode = MemoryMode.ATOMIC) -> IPAMHarness:
    """A cluster with an allocator that has served one pod of each family, and remembers."""
    harness = make_cluster(mode)
    harness.enable_cache(NOTE_KIND)
    harness.assign(make_request("first", ipv4(), ipv6()), part=note_endpoint_part("first"))
    harness.take_call_counts()
    return harness


@pytest.fixture(params=MemoryMode)
def harness(request: pytest.FixtureRequest) -> IPAMHarness:
    """Such a cluster over a store of either sort."""
    return resident(request.param)


def elsewhere(harness: IPAMHarness, act: Callable[[IPAMHarness], object]) -> None:
    """Let another process of the node do something; it shares the store and no memory."""
    act(evolve(harness, cache=None))
    harness.take_call_counts()


def forgotten(harness: IPAMHarness) -> IPAMHarness:
    """Let so much time pass that a store that judges no conditions is read again."""
    harness.clock.sleep(2 * FRESH_S)
    return harness


# --- what it saves ----------------------------------------------------------------------------------------------


def test_an_assignment_takes_one_commit_and_no_read(harness: IPAMHarness) -> None:
    assert harness.assign(make_request("h", ipv4(), ipv6()), part=note_endpoint_part()) == ["10.0.0.1", "fd00::1"]
    assert harness.take_call_counts() == (0, 1)


def test_a_release_reads_what_is_a_workloads_own_and_commits_once(harness: IPAMHarness) -> None:
    harness.assign(make_request("h", ipv4(), ipv6()), part=note_endpoint_part())
    harness.take_call_counts()
    freed = harness.ipam().release(ReleaseRequest(handle="h"), note_endpoint_part(), deadline=harness.deadline)
    assert harness.take_call_counts() == (1, 1)
    assert [str(address) for address in freed.addresses] == ["10.0.0.1", "fd00::1"]


def test_however_many_pods_come_and_go_the_memory_does_not_grow(harness: IPAMHarness) -> None:
    assert harness.cache is not None
    known = len(harness.cache.lookup((), ()).snapshot.results)
    for number in range(40):
        harness.assign(make_request(f"h{number}", ipv4(), ipv6()), part=note_endpoint_part(f"n{number}"))
        harness.ipam().release(
            ReleaseRequest(handle=f"h{number}"), note_endpoint_part(f"n{number}"), deadline=harness.deadline
        )
    assert len(harness.cache.lookup((), ()).snapshot.results) <= known + 2


def test_many_pods_in_a_row_have_an_address_each_and_the_books_balance(harness: IPAMHarness) -> None:
    given = [harness.assign_or_refuse(f"h{number}", ipv4(), ipv6())[0] for number in range(80)]
    assert len(set(given)) == 80
    for number in range(80):
        assert harness.release(f"h{number}") != []
    assert harness.held() == {"10.0.0.0": "first", "fd00::": "first"}
    assert harness.handles() == ["first"]


def test_that_a_block_does_not_exist_is_not_remembered_after_its_deletion(harness: IPAMHarness) -> None:
    """As it is not after a read: who claims a block asks for all those that it would overlap."""
    harness.put_block("10.0.1.0/26")
    block = Get(block_key(Prefix.parse("10.0.1.0/26")))

    def delete(snapshot: Snapshot) -> Decision[None]:
        record = snapshot.find(block)
        return Decision((Delete(block.key, record.revision),) if record else (), None)

    Transaction(harness.store, harness.pace, cache=harness.cache).run((block,), delete)
    assert harness.find(block.key) is None
    assert harness.cache is not None
    assert harness.cache.lookup((block,)).missing == (block,)


# --- being out of date ------------------------------------------------------------------------------------------


def test_who_remembers_a_block_that_another_has_taken_from_loses_a_race_and_reads(harness: IPAMHarness) -> None:
    elsewhere(harness, lambda other: other.assign_or_refuse("theirs"))
    assert harness.assign_or_refuse("h") == ["10.0.0.2"]
    assert harness.take_call_counts() == (2, 2)
    assert harness.held().keys() == {"10.0.0.0", "10.0.0.1", "10.0.0.2", "fd00::"}


@pytest.mark.parametrize("mode", MemoryMode)
def test_an_address_that_another_process_gave_is_released_though_the_memory_knows_nothing_of_it(
    mode: MemoryMode,
) -> None:
    """The handle is read and the block is not: deleting the one on the word of the other would lose the address."""
    harness = resident(mode)
    elsewhere(harness, lambda other: other.assign_or_refuse("theirs", ipv4(2)))
    assert harness.release("theirs") == ["10.0.0.1", "10.0.0.2"]
    assert harness.take_call_counts() == (3, 1)
    assert harness.held() == {"10.0.0.0": "first", "fd00::": "first"}
    assert harness.handles() == ["first"]


def test_a_handle_that_is_there_after_all_is_found(harness: IPAMHarness) -> None:
    elsewhere(harness, lambda other: other.assign_or_refuse("h"))
    assert harness.assign_or_refuse("h") == ["10.0.0.1"]
    assert harness.held().keys() == {"10.0.0.0", "10.0.0.1", "fd00::"}


def test_a_pool_that_is_remembered_as_full_is_looked_at_before_anything_is_refused() -> None:
    harness = resident()
    harness.assign_or_refuse("rest", ipv4(255))
    with pytest.raises(PoolsExhausted):
        harness.assign_or_refuse("h")
    harness.assign_or_refuse("none", ipv6())  # the memory is warm again
    elsewhere(harness, lambda other: other.release("rest"))
    assert harness.assign_or_refuse("h") == ["10.0.0.1"]


Change = Callable[[IPAMHarness], object]


def lock(harness: IPAMHarness) -> None:
    harness.set_ready(is_ready=False)


def disable(harness: IPAMHarness) -> None:
    harness.disable_pool("main")


def deselect(harness: IPAMHarness) -> None:
    harness.change_pool("main", node_selector="rack == 'none'")


@pytest.mark.parametrize("change", [lock, disable, deselect])
def test_what_people_change_holds_for_the_next_assignment(harness: IPAMHarness, change: Change) -> None:
    elsewhere(harness, change)
    if harness.store.description.atomicity is Atomicity.ORDERED:
        forgotten(harness)
    with pytest.raises(NetplugError):
        harness.assign_or_refuse("h")
    assert harness.held().keys() == {"10.0.0.0", "fd00::"}


def test_a_reservation_holds_for_the_next_assignment(harness: IPAMHarness) -> None:
    elsewhere(harness, lambda other: other.reserve("some", "10.0.0.0/30"))
    if harness.store.description.atomicity is Atomicity.ORDERED:
        forgotten(harness)
    assert harness.assign_or_refuse("h") == ["10.0.0.4"]


def test_a_cooldown_holds_for_the_next_release(harness: IPAMHarness) -> None:
    elsewhere(harness, lambda other: other.configure(cooldown_s=60))
    if harness.store.description.atomicity is Atomicity.ORDERED:
        forgotten(harness)
    harness.release("first")
    assert harness.block(BLOCK_0).cooling_count == 1
    assert harness.assign_or_refuse("h") == ["10.0.0.1"]


def test_a_relabelled_node_is_not_served_by_what_it_was() -> None:
    harness = make_cluster()
    harness.label_node(NODE, rack="a")
    harness.change_pool("main", node_selector="rack == 'a'")
    harness.enable_cache()
    harness.assign_or_refuse("h1")
    elsewhere(harness, lambda other: other.label_node(NODE, rack="b"))
    with pytest.raises(NetplugError, match="no configured netplug pools"):
        harness.assign_or_refuse("h2")
    assert harness.held() == {"10.0.0.0": "h1"}


def test_a_block_that_another_node_has_by_now_is_not_taken_from(harness: IPAMHarness) -> None:
    harness.configure(is_affinity_strict=True)
    harness.release("first")

    def hand_over(other: IPAMHarness) -> None:
        relinquish_node(other.store, NODE, Emptiness.REQUIRED, pace=other.pace)
        other.assign_or_refuse("theirs", node=OTHER_NODE)

    elsewhere(harness, hand_over)
    if harness.store.description.atomicity is Atomicity.ORDERED:
        forgotten(harness)
    assert harness.assign_or_refuse("h") == ["10.0.0.64"]
    assert harness.affinities() == {(OTHER_NODE, BLOCK_0): "confirmed", (NODE, "10.0.0.64/26"): "confirmed"}


# --- faults -----------------------------------------------------------------------------------------------------


def test_a_lost_reply_gives_the_addresses_once(harness: IPAMHarness) -> None:
    assert harness.assign(make_request("h", ipv4(2), ipv6()), {1: LostReply()}) == ["10.0.0.1", "10.0.0.2", "fd00::1"]
    assert len(harness.held()) == 5


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)])
def test_trap_45_a_stopped_call_takes_back_what_the_cache_does_not_have(
    harness: IPAMHarness, error: BaseException
) -> None:
    def stopped(send: SendWrites) -> tuple[Revision, ...]:
        send(None)
        raise error

    ipam = evolve(harness.ipam(), datastore=ScriptedStore(harness.store, scripts=[stopped]))
    with pytest.raises(type(error)):
        ipam.assign(make_request("h", ipv4(), ipv6()), note_endpoint_part(), deadline=harness.deadline)
    assert harness.held().keys() == {"10.0.0.0", "fd00::"}
    assert (harness.handles(), harness.find(NOTE_KIND.key("n"))) == (["first"], None)


def test_trap_45_a_stopped_call_keeps_what_its_handle_held_before(harness: IPAMHarness) -> None:
    """The handle was assumed to be absent, and another process has assigned to it meanwhile."""
    other = evolve(harness.ipam(), cache=None)
    other.assign(make_request("h", ipv4(2)), NO_ENDPOINT, deadline=harness.deadline)
    before = harness.held().keys()

    def stopped(_send: SendWrites) -> tuple[Revision, ...]:
        raise KeyboardInterrupt

    ipam = evolve(harness.ipam(), datastore=ScriptedStore(harness.store, scripts=[stopped]))
    with pytest.raises(KeyboardInterrupt):
        ipam.assign(make_request("h", ipv4()), NO_ENDPOINT, deadline=harness.deadline)
    assert harness.held().keys() == before


def test_trap_45_a_call_stopped_right_after_the_commit_takes_it_back(harness: IPAMHarness) -> None:
    signals: list[BaseException] = []

    class Stopped(View):
        def apply_writes(
            self,
            writes: Sequence[Write],
            revisions: Sequence[Revision],
            *,
            began: Mapping[Kind[object], Revision] | None = None,
            at_s: float | None = None,
        ) -> None:
            if signals:
                raise signals.pop()
            super().apply_writes(writes, revisions, began=began, at_s=at_s)

    harness.cache = Stopped.for_datastore(
        harness.store, clock=harness.clock, uncached_kinds=frozenset({HANDLE, NOTE_KIND})
    )
    harness.assign_or_refuse("second")
    signals.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        harness.assign(make_request("h"), part=note_endpoint_part())
    assert harness.held().keys() == {"10.0.0.0", "10.0.0.1", "fd00::"}
    assert (harness.handles(), harness.find(NOTE_KIND.key("n"))) == (["first", "second"], None)


def test_trap_45_a_reply_that_came_too_late_is_taken_back_though_nothing_was_read(harness: IPAMHarness) -> None:
    store = ScriptedStore(harness.store, scripts=[answered_too_late(harness)])
    with pytest.raises(OutcomeUnknown):
        evolve(harness.ipam(), datastore=store).assign(
            make_request("h"), note_endpoint_part(), deadline=harness.deadline
        )
    assert harness.held().keys() == {"10.0.0.0", "fd00::"}
    assert harness.handles() == ["first"]


def test_a_handle_that_was_assumed_absent_and_held_addresses_keeps_them(harness: IPAMHarness) -> None:
    """The first commit meets the handle; the second one, made from a read, is answered too late."""
    elsewhere(harness, lambda other: other.assign_or_refuse("h"))
    store = ScriptedStore(harness.store, scripts=[lambda send: send(None), answered_too_late(harness)])
    with pytest.raises(OutcomeUnknown):
        evolve(harness.ipam(), datastore=store).assign(
            make_request("h", ipv4(2)), NO_ENDPOINT, deadline=harness.deadline
        )
    assert len(store.commits) == 2
    assert harness.held()["10.0.0.1"] == "h"


def test_a_store_that_is_away_is_not_answered_from_memory(harness: IPAMHarness) -> None:
    def away(_send: SendWrites) -> tuple[Revision, ...]:
        raise Unavailable("the store", "away")

    ipam = evolve(harness.ipam(), datastore=ScriptedStore(harness.store, scripts=[away]))
    with pytest.raises(Unavailable):
        ipam.assign(make_request("h"), NO_ENDPOINT, deadline=harness.deadline)
    assert harness.cache is not None
    assert harness.cache.lookup((Get(harness.block(BLOCK_0).key),), ()).missing != ()


def test_less_than_was_asked_is_never_answered_from_memory() -> None:
    """What is short may have come free meanwhile, in a block that the commit has nothing to do with."""
    harness = resident()
    harness.add_pool("small", "11.0.0.0/30", 31)
    harness.assign_or_refuse("full", ipv4(2, "small"))
    harness.assign_or_refuse("half", ipv4(1, "small"))
    elsewhere(harness, lambda other: other.release("full"))
    assert len(harness.assign_up_to("h", ipv4(2, "small"))) == 2


# --- the node process's cache -----------------------------------------------------------------------------------------


def node_process(mode: MemoryMode) -> IPAMHarness:
    """A cluster with the allocator of a node process that has attached a pod with an address of each family."""
    harness = make_cluster(mode)
    harness.cache = make_node_cache(harness.store, clock=harness.clock)
    harness.assign(make_request("first", ipv4(), ipv6()))
    harness.clock.sleep(2 * FRESH_S)
    harness.take_call_counts()
    return harness


@pytest.mark.parametrize("mode", MemoryMode)
def test_an_endpoint_does_not_go_without_the_addresses_that_another_process_gave_its_handle(
    mode: MemoryMode,
) -> None:
    """The handle that is remembered is of an assignment that another process has released since."""
    harness = node_process(mode)
    assert harness.cache is not None
    harness.cache.uncached_kinds = frozenset((NOTE_KIND,))  # as endpoints that are views of pods
    harness.assign(make_request("h", ipv4()), part=note_endpoint_part())
    given: list[str] = []

    def assign_anew(other: IPAMHarness) -> None:
        other.ipam().release(ReleaseRequest(handle="h"), note_endpoint_part(), deadline=other.deadline)
        other.clock.sleep(1)
        given.extend(other.assign(make_request("h", ipv4(2)), part=note_endpoint_part()))

    elsewhere(harness, assign_anew)
    held = harness.block(BLOCK_0).find(Address.parse(given[0]))
    assert held is not None
    again = ReleaseRequest(handle="h", sequence=held.sequence)
    freed = harness.ipam().release(again, note_endpoint_part(), deadline=harness.deadline)
    assert [str(address) for address in freed.addresses] == given


@pytest.mark.parametrize("mode,reads", [(MemoryMode.ATOMIC, 0), (MemoryMode.ORDERED, 1), (MemoryMode.KUBE_LIKE, 1)])
def test_what_is_old_is_read_again_where_no_requirement_protects_it(mode: MemoryMode, reads: int) -> None:
    """One read of pools, reservations, settings and the ready flag; blocks, affinities and handles last."""
    harness = node_process(mode)
    harness.assign(make_request("second", ipv4(), ipv6()))
    assert harness.take_call_counts() == (reads, 1)
    harness.ipam().release(ReleaseRequest(handle="first"), NO_ENDPOINT, deadline=harness.deadline)
    assert harness.take_call_counts() == (0, 1)


def test_a_release_reports_what_it_freed_though_it_remembered_more() -> None:
    """An ordered store has freed the first address when the second turns out to be free already."""
    harness = node_process(MemoryMode.ORDERED)
    six = ReleaseItem(address=Address.parse("fd00::"))
    release_addresses(harness.store, (six,), pace=harness.pace)
    freed = harness.ipam().release(ReleaseRequest(handle="first"), NO_ENDPOINT, deadline=harness.deadline)
    assert [str(address) for address in freed.addresses] == ["10.0.0.0"]


@pytest.mark.parametrize("mode", MemoryMode)
def test_a_remembered_block_makes_no_affinity_stale_that_another_process_has_claimed_since(mode: MemoryMode) -> None:
    """Another process of the node claimed the block after its former owner had given it up."""
    harness = make_cluster(mode)
    harness.put_owned_block(BLOCK_0, node=OTHER_NODE)
    harness.cache = make_node_cache(harness.store, clock=harness.clock)
    harness.cache.read(harness.store, (Get(block_key(Prefix.parse(BLOCK_0))),), deadline=harness.deadline)

    def claim(other: IPAMHarness) -> None:
        relinquish_node(other.store, OTHER_NODE, Emptiness.REQUIRED, pace=other.pace)
        assert other.assign_or_refuse("elsewhere") == ["10.0.0.0"]

    elsewhere(harness, claim)
    harness.assign(make_request("h", ipv4(2)))
    assert harness.affinities()[NODE, BLOCK_0] == "confirmed"


def test_a_limit_of_blocks_is_checked_against_what_is_stored_now() -> None:
    """No requirement of an ordered store protects the list of affinities that the process remembers."""
    harness = node_process(MemoryMode.ORDERED)
    request = evolve(make_request("many", ipv4(70)), block_limit=2)
    assert len(harness.assign(request)) == 70
    assert harness.take_call_counts()[0] > 1
