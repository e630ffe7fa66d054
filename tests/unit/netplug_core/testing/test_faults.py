"""Each fault, in both modes: the error that the caller gets, and what is stored afterwards."""

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline
from netplug_core.errors import InvariantBroken, Unavailable
from netplug_core.records import (
    AlreadyExists,
    Conflict,
    Create,
    List,
    OutcomeUnknown,
    RequireUnchanged,
    Revision,
)
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.datastore_harness import FRUIT
from netplug_core.testing.faults import (
    Fault,
    FaultyDatastore,
    LostRace,
    LostReply,
    LostRequest,
    ProcessDeath,
    ProcessDied,
    RunBefore,
)

KEYS = tuple(FRUIT.key("green", name) for name in ("apple", "pear", "plum"))
WRITES = tuple(Create(key, "x") for key in KEYS)
CLOCK = ManualClock()
DEADLINE = Deadline.after(CLOCK, 60.0)


def opened(fault: Fault, mode: MemoryMode = MemoryMode.ATOMIC) -> FaultyDatastore:
    return FaultyDatastore(MemoryDatastore(mode, clock=CLOCK), {1: fault})


def ordered(fault: Fault) -> FaultyDatastore:
    return opened(fault, MemoryMode.ORDERED)


def stored(store: FaultyDatastore) -> int:
    return len(store.read((List(FRUIT),), deadline=DEADLINE).list(List(FRUIT)))


def commit(store: FaultyDatastore) -> tuple[Revision, ...]:
    return store.commit(WRITES, deadline=DEADLINE)


@pytest.mark.parametrize("fault,count", [(ProcessDeath(0), 0), (ProcessDeath(None), 3)])
@pytest.mark.parametrize("mode", MemoryMode)
def test_a_process_dies_before_or_after_its_commit(fault: Fault, count: int, mode: MemoryMode) -> None:
    store = opened(fault, mode)
    with pytest.raises(ProcessDied):
        commit(store)
    assert stored(store) == count


def test_a_process_death_is_not_an_exception() -> None:
    assert not issubclass(ProcessDied, Exception)


def test_a_process_dies_within_an_ordered_commit() -> None:
    store = ordered(ProcessDeath(2))
    with pytest.raises(ProcessDied):
        commit(store)
    assert stored(store) == 2


@pytest.mark.parametrize("mode,known", [(MemoryMode.ATOMIC, 0), (MemoryMode.ORDERED, 2)])
def test_a_lost_reply_leaves_everything_applied_and_unknown(mode: MemoryMode, known: int) -> None:
    store = opened(LostReply(), mode)
    with pytest.raises(OutcomeUnknown, match="the reply was lost") as caught:
        commit(store)
    assert (stored(store), caught.value.applied) == (3, known)


def test_the_reply_of_one_write_of_an_ordered_commit_is_lost() -> None:
    store = ordered(LostReply(2))
    with pytest.raises(OutcomeUnknown) as caught:
        commit(store)
    assert (stored(store), caught.value.applied) == (2, 1)


@pytest.mark.parametrize("fault,error", [(LostReply(), OutcomeUnknown), (ProcessDeath(None), ProcessDied)])
def test_the_reply_of_a_refused_commit_is_lost_too(fault: Fault, error: type[BaseException]) -> None:
    inner = MemoryDatastore(clock=CLOCK)
    inner.commit(WRITES[:1], deadline=DEADLINE)
    store = FaultyDatastore(inner, {1: fault})
    with pytest.raises(error):
        commit(store)
    assert stored(store) == 1


def test_a_lost_request_changes_nothing_and_says_so() -> None:
    store = opened(LostRequest())
    with pytest.raises(Unavailable, match="the request was lost") as caught:
        commit(store)
    assert type(caught.value) is Unavailable
    assert stored(store) == 0


def test_a_request_is_lost_within_an_ordered_commit() -> None:
    store = ordered(LostRequest(1))
    with pytest.raises(OutcomeUnknown, match="the request of write 1 was lost") as caught:
        commit(store)
    assert (stored(store), caught.value.applied) == (1, 1)


def test_a_lost_race_names_the_write_that_lost() -> None:
    store = ordered(LostRace(1))
    with pytest.raises(Conflict) as caught:
        commit(store)
    assert (caught.value.subject, caught.value.index, caught.value.applied) == (KEYS[1], 1, 1)
    assert stored(store) == 1


def test_a_lost_race_shows_what_is_stored() -> None:
    inner = MemoryDatastore(clock=CLOCK)
    inner.commit(WRITES[:1], deadline=DEADLINE)
    store = FaultyDatastore(inner, {1: LostRace()})
    with pytest.raises(Conflict) as caught:
        commit(store)
    assert caught.value.current is not None
    assert caught.value.current.value == "x"


def test_a_race_is_lost_over_a_kind() -> None:
    store = opened(LostRace())
    with pytest.raises(Conflict) as caught:
        store.commit((RequireUnchanged(FRUIT, Revision("0")), *WRITES), deadline=DEADLINE)
    assert (caught.value.subject, caught.value.current, caught.value.applied) == (FRUIT, None, 0)


def test_another_operation_runs_first() -> None:
    inner = MemoryDatastore(clock=CLOCK)
    store = FaultyDatastore(inner, {1: RunBefore(lambda: inner.commit(WRITES[2:], deadline=DEADLINE))})
    with pytest.raises(AlreadyExists) as caught:
        commit(store)
    assert (caught.value.index, stored(store)) == (2, 1)


def test_a_fault_happens_once_and_only_at_its_commit() -> None:
    store = FaultyDatastore(MemoryDatastore(clock=CLOCK), {2: LostRequest()})
    for number, write in enumerate(WRITES, 1):
        if number == 2:
            with pytest.raises(Unavailable):
                store.commit((write,), deadline=DEADLINE)
        store.commit((write,), deadline=DEADLINE)
    assert (stored(store), store.commits) == (3, 4)
    assert len(list(store.watch({FRUIT: Revision("0")}, deadline=DEADLINE.capped(0)))) == 3


def test_an_atomic_store_is_never_scripted_to_apply_a_part() -> None:
    with pytest.raises(InvariantBroken, match="the script applies 1 of 3 writes, and the store is atomic"):
        commit(opened(ProcessDeath(1)))


@pytest.mark.parametrize("fault", [LostRequest(3), LostRace(3)])
def test_a_write_that_a_commit_does_not_have_is_not_lost(fault: Fault) -> None:
    store = ordered(fault)
    assert commit(store) == ("1", "2", "3")
