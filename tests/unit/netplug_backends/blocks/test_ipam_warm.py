"""An allocator that remembers the store: what it saves, and that being out of date never costs an address."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from attrs import evolve

from netplug_core.datastore.interface import Atomicity
from netplug_core.datastore.warm import ORDERED_AGE_S, Warm
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.flows.affinities import relinquish_node
from netplug_core.ipam.handle import HANDLE
from netplug_core.ipam.interface import NO_ENDPOINT
from netplug_core.ipam.refusals import PoolsExhausted
from netplug_core.ipam.relinquish import Emptiness
from netplug_core.ipam.request import ReleaseRequest
from netplug_core.records import Get, OutcomeUnknown, Revision, Write
from netplug_core.testing.faults import LostReply
from tests.unit.netplug_backends.blocks.bench import NOTE, cluster, part
from tests.unit.netplug_backends.blocks.test_ipam_faults import Send, Unlucky, answered_too_late
from tests.unit.netplug_core.ipam.bench import NODE, OTHER, Bench, request, v4, v6

BLOCK_0 = "10.0.0.0/26"


def resident(atomicity: Atomicity = Atomicity.ATOMIC) -> Bench:
    """A cluster with an allocator that has served one pod of each family, and remembers."""
    bench = cluster(atomicity)
    bench.remember(NOTE)
    bench.assign(request("first", v4(), v6()), part=part("first"))
    bench.spent()
    return bench


@pytest.fixture(params=Atomicity)
def bench(request: pytest.FixtureRequest) -> Bench:
    """Such a cluster over a store of either sort."""
    return resident(request.param)


def elsewhere(bench: Bench, act: Callable[[Bench], object]) -> None:
    """Let another process of the node do something; it shares the store and no memory."""
    act(evolve(bench, warm=None))
    bench.spent()


def forgotten(bench: Bench) -> Bench:
    """Let so much time pass that a store that judges no conditions is read again."""
    bench.clock.sleep(2 * ORDERED_AGE_S)
    return bench


# --- what it saves ----------------------------------------------------------------------------------------------


def test_an_assignment_takes_one_commit_and_no_read(bench: Bench) -> None:
    assert bench.assign(request("h", v4(), v6()), part=part()) == ["10.0.0.1", "fd00::1"]
    assert bench.spent() == (0, 1)


def test_a_release_reads_what_is_a_workloads_own_and_commits_once(bench: Bench) -> None:
    bench.assign(request("h", v4(), v6()), part=part())
    bench.spent()
    freed = bench.ipam().release(ReleaseRequest(handle="h"), part(), deadline=bench.deadline)
    assert bench.spent() == (1, 1)
    assert [str(address) for address in freed.addresses] == ["10.0.0.1", "fd00::1"]


def test_however_many_pods_come_and_go_the_memory_does_not_grow(bench: Bench) -> None:
    assert bench.warm is not None
    known = len(bench.warm.recall((), ())[0].answers)
    for number in range(40):
        bench.assign(request(f"h{number}", v4(), v6()), part=part(f"n{number}"))
        bench.ipam().release(ReleaseRequest(handle=f"h{number}"), part(f"n{number}"), deadline=bench.deadline)
    assert len(bench.warm.recall((), ())[0].answers) <= known + 2


def test_many_pods_in_a_row_have_an_address_each_and_the_books_balance(bench: Bench) -> None:
    given = [bench.take(f"h{number}", v4(), v6())[0] for number in range(80)]
    assert len(set(given)) == 80
    for number in range(80):
        assert bench.release(f"h{number}") != []
    assert bench.held() == {"10.0.0.0": "first", "fd00::": "first"}
    assert bench.handles() == ["first"]


# --- being out of date ------------------------------------------------------------------------------------------


def test_who_remembers_a_block_that_another_has_taken_from_loses_a_race_and_reads(bench: Bench) -> None:
    elsewhere(bench, lambda other: other.take("theirs"))
    assert bench.take("h") == ["10.0.0.2"]
    assert bench.spent() == (2, 2)
    assert bench.held().keys() == {"10.0.0.0", "10.0.0.1", "10.0.0.2", "fd00::"}


@pytest.mark.parametrize("atomicity", Atomicity)
def test_an_address_that_another_process_gave_is_released_though_the_memory_knows_nothing_of_it(
    atomicity: Atomicity,
) -> None:
    """The handle is read and the block is not: deleting the one on the word of the other would lose the address."""
    bench = resident(atomicity)
    elsewhere(bench, lambda other: other.take("theirs", v4(2)))
    assert bench.release("theirs") == ["10.0.0.1", "10.0.0.2"]
    assert bench.spent() == (3, 1)
    assert bench.held() == {"10.0.0.0": "first", "fd00::": "first"}
    assert bench.handles() == ["first"]


def test_a_handle_that_is_there_after_all_is_found(bench: Bench) -> None:
    elsewhere(bench, lambda other: other.take("h"))
    assert bench.take("h") == ["10.0.0.1"]
    assert bench.held().keys() == {"10.0.0.0", "10.0.0.1", "fd00::"}


def test_a_pool_that_is_remembered_as_full_is_looked_at_before_anything_is_refused() -> None:
    bench = resident()
    bench.take("rest", v4(255))
    with pytest.raises(PoolsExhausted):
        bench.take("h")
    bench.take("none", v6())  # the memory is warm again
    elsewhere(bench, lambda other: other.release("rest"))
    assert bench.take("h") == ["10.0.0.1"]


Change = Callable[[Bench], object]


def lock(bench: Bench) -> None:
    bench.set_ready(is_ready=False)


def disable(bench: Bench) -> None:
    bench.disable_pool("main")


def deselect(bench: Bench) -> None:
    bench.change_pool("main", node_selector="rack == 'none'")


@pytest.mark.parametrize("change", [lock, disable, deselect])
def test_what_people_change_holds_for_the_next_assignment(bench: Bench, change: Change) -> None:
    elsewhere(bench, change)
    if bench.store.description.atomicity is Atomicity.ORDERED:
        forgotten(bench)
    with pytest.raises(NetplugError):
        bench.take("h")
    assert bench.held().keys() == {"10.0.0.0", "fd00::"}


def test_a_reservation_holds_for_the_next_assignment(bench: Bench) -> None:
    elsewhere(bench, lambda other: other.reserve("some", "10.0.0.0/30"))
    if bench.store.description.atomicity is Atomicity.ORDERED:
        forgotten(bench)
    assert bench.take("h") == ["10.0.0.4"]


def test_a_cooldown_holds_for_the_next_release(bench: Bench) -> None:
    elsewhere(bench, lambda other: other.configure(cooldown_s=60))
    if bench.store.description.atomicity is Atomicity.ORDERED:
        forgotten(bench)
    bench.release("first")
    assert bench.block(BLOCK_0).cooling_count == 1
    assert bench.take("h") == ["10.0.0.1"]


def test_a_relabelled_node_is_not_served_by_what_it_was() -> None:
    bench = cluster()
    bench.label_node(NODE, rack="a")
    bench.change_pool("main", node_selector="rack == 'a'")
    bench.remember()
    bench.take("h1")
    elsewhere(bench, lambda other: other.label_node(NODE, rack="b"))
    with pytest.raises(NetplugError, match="no configured netplug pools"):
        bench.take("h2")
    assert bench.held() == {"10.0.0.0": "h1"}


def test_a_block_that_another_node_has_by_now_is_not_taken_from(bench: Bench) -> None:
    bench.configure(is_affinity_strict=True)
    bench.release("first")

    def hand_over(other: Bench) -> None:
        relinquish_node(other.store, NODE, Emptiness.REQUIRED, pace=other.pace)
        other.take("theirs", node=OTHER)

    elsewhere(bench, hand_over)
    if bench.store.description.atomicity is Atomicity.ORDERED:
        forgotten(bench)
    assert bench.take("h") == ["10.0.0.64"]
    assert bench.claims() == {(OTHER, BLOCK_0): "confirmed", (NODE, "10.0.0.64/26"): "confirmed"}


# --- mishaps ----------------------------------------------------------------------------------------------------


def test_a_lost_reply_gives_the_addresses_once(bench: Bench) -> None:
    assert bench.assign(request("h", v4(2), v6()), {1: LostReply()}) == ["10.0.0.1", "10.0.0.2", "fd00::1"]
    assert len(bench.held()) == 5


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)])
def test_trap_45_who_is_told_to_stop_takes_back_what_the_memory_does_not_know_of(
    bench: Bench, error: BaseException
) -> None:
    def stopped(send: Send) -> tuple[Revision, ...]:
        send(None)
        raise error

    ipam = evolve(bench.ipam(), datastore=Unlucky(bench.store, [stopped]))
    with pytest.raises(type(error)):
        ipam.assign(request("h", v4(), v6()), part(), deadline=bench.deadline)
    assert bench.held().keys() == {"10.0.0.0", "fd00::"}
    assert (bench.handles(), bench.find(NOTE.key("n"))) == (["first"], None)


def test_trap_45_who_is_told_to_stop_right_behind_the_commit_takes_it_back(bench: Bench) -> None:
    signals: list[BaseException] = []

    class Stopped(Warm):
        def applied(self, writes: Sequence[Write], revisions: Sequence[Revision]) -> None:
            if signals:
                raise signals.pop()
            super().applied(writes, revisions)

    bench.warm = Stopped.over(bench.store, clock=bench.clock, passing=frozenset({HANDLE, NOTE}))
    bench.take("second")
    signals.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        bench.assign(request("h"), part=part())
    assert bench.held().keys() == {"10.0.0.0", "10.0.0.1", "fd00::"}
    assert (bench.handles(), bench.find(NOTE.key("n"))) == (["first", "second"], None)


def test_trap_45_a_reply_that_came_too_late_is_taken_back_though_nothing_was_read(bench: Bench) -> None:
    store = Unlucky(bench.store, [answered_too_late(bench)])
    with pytest.raises(OutcomeUnknown):
        evolve(bench.ipam(), datastore=store).assign(request("h"), part(), deadline=bench.deadline)
    assert bench.held().keys() == {"10.0.0.0", "fd00::"}
    assert bench.handles() == ["first"]


def test_a_handle_that_was_presumed_absent_and_held_addresses_keeps_them(bench: Bench) -> None:
    """The first commit meets the handle; the second one, made from a read, is answered too late."""
    elsewhere(bench, lambda other: other.take("h"))
    store = Unlucky(bench.store, [lambda send: send(None), answered_too_late(bench)])
    with pytest.raises(OutcomeUnknown):
        evolve(bench.ipam(), datastore=store).assign(request("h", v4(2)), NO_ENDPOINT, deadline=bench.deadline)
    assert store.commits == 2
    assert bench.held()["10.0.0.1"] == "h"


def test_a_store_that_is_away_is_not_answered_from_memory(bench: Bench) -> None:
    def away(_send: Send) -> tuple[Revision, ...]:
        raise Unavailable("the store", "away")

    ipam = evolve(bench.ipam(), datastore=Unlucky(bench.store, [away]))
    with pytest.raises(Unavailable):
        ipam.assign(request("h"), NO_ENDPOINT, deadline=bench.deadline)
    assert bench.warm is not None
    assert bench.warm.recall((Get(bench.block(BLOCK_0).key),), ())[1] != ()


def test_less_than_was_asked_is_never_answered_from_memory() -> None:
    """What is short may have come free meanwhile, in a block that the commit has nothing to do with."""
    bench = resident()
    bench.add_pool("small", "11.0.0.0/30", 31)
    bench.take("full", v4(2, "small"))
    bench.take("half", v4(1, "small"))
    elsewhere(bench, lambda other: other.release("full"))
    assert len(bench.take_what_there_is("h", v4(2, "small"))) == 2
