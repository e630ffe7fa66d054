"""The transaction loop keeps its guarantees over a store with every kind of fault.

Laws: whatever happens to the commits, a decision that recognises its own output takes effect exactly once for each
caller that is told of success, and at most once for the others; when those try again, as a runtime does, it is once
for all of them. No fault makes the loop run for ever, and none undoes the work of another actor.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.errors import Unavailable
from netplug_core.records import Create, Decision, Get, Key, Kind, Query, Snapshot, Update, Write
from netplug_core.testing.clock import ManualClock
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

LEDGER: Kind[tuple[str, ...]] = Kind("Ledger", ("name",))
RECEIPT: Kind[str] = Kind("Receipt", ("worker",))
BOOK = LEDGER.key("book")
WORKERS = ("ann", "bob", "cyd")

# Of the faults, those that need an ordered store stop after the receipt, before the ledger.
ANYWHERE: tuple[Fault, ...] = (LostRace(), LostRequest(), LostReply(), ProcessDeath(0), ProcessDeath(None))
IN_ORDER: tuple[Fault, ...] = (*ANYWHERE, LostRace(1), LostRequest(1), LostReply(1), ProcessDeath(1))
MEANWHILE = "another actor"


def queries_of(worker: str) -> tuple[Query, ...]:
    return (Get(BOOK), Get(receipt_key(worker)))


def receipt_key(worker: str) -> Key[str]:
    return RECEIPT.key(worker)


def enter(snapshot: Snapshot, worker: str) -> Decision[tuple[str, ...]]:
    """A receipt first, then a line in the ledger; what an earlier try has done is not done again."""
    writes: list[Write] = []
    if snapshot.find(receipt_key(worker)) is None:
        writes.append(Create(receipt_key(worker), "given"))
    book = snapshot.find(BOOK)
    lines = book.value if book else ()
    if worker not in lines:
        lines = (*lines, worker)
        writes.append(Update(BOOK, lines, book.revision) if book else Create(BOOK, lines))
    return Decision(tuple(writes), lines)


def work(store: Datastore, clock: ManualClock, worker: str) -> bool:
    """Whether the worker's call succeeded; otherwise the store was away or the process died."""
    pace = Pace(clock=clock, deadline=Deadline.after(clock, 60.0), chance=lambda: 0.5)
    try:
        Transaction(store, pace).run(queries_of(worker), lambda snapshot: enter(snapshot, worker))
    except (Unavailable, ProcessDied):
        return False
    return True


def lines_of(store: Datastore, clock: ManualClock) -> Counter[str]:
    book = store.read((Get(BOOK),), deadline=Deadline.after(clock, 5.0)).find(BOOK)
    return Counter(book.value if book else ())


@pytest.mark.parametrize("mode,faults", [(MemoryMode.ATOMIC, ANYWHERE), (MemoryMode.ORDERED, IN_ORDER)])
@given(data=st.data())
def test_every_line_is_entered_once(mode: MemoryMode, faults: tuple[Fault, ...], data: st.DataObject) -> None:
    clock = ManualClock()
    inner = MemoryDatastore(mode, clock=clock)
    drawn = data.draw(st.dictionaries(st.integers(1, 8), st.sampled_from((*faults, MEANWHILE)), max_size=6))
    others = {number: f"other-{number}" for number, fault in drawn.items() if fault == MEANWHILE}

    def interrupt(worker: str) -> RunBefore:
        return RunBefore(lambda: work(inner, clock, worker))

    script = {number: fault for number, fault in drawn.items() if not isinstance(fault, str)}
    store = FaultyDatastore(inner, {**script, **{number: interrupt(name) for number, name in others.items()}})

    told = {worker for worker in WORKERS if work(store, clock, worker)}
    came = {name for number, name in others.items() if number <= store.commits}
    lines = lines_of(inner, clock)
    assert told | came <= set(lines)
    assert set(lines.values()) <= {1}

    for worker in WORKERS:
        assert work(inner, clock, worker)
    assert lines_of(inner, clock) == Counter((*WORKERS, *came))
    receipts = inner.read([Get(receipt_key(worker)) for worker in WORKERS], deadline=Deadline.after(clock, 5.0))
    assert all(receipts.find(receipt_key(worker)) for worker in WORKERS)


@pytest.mark.parametrize("fault", [LostRace(), LostReply()])
@pytest.mark.parametrize("mode", MemoryMode)
def test_a_lost_race_or_reply_is_no_error_and_nothing_is_written_twice(mode: MemoryMode, fault: Fault) -> None:
    clock = ManualClock()
    inner = MemoryDatastore(mode, clock=clock)
    assert work(FaultyDatastore(inner, {1: fault}), clock, "ann")
    assert lines_of(inner, clock) == Counter(("ann",))
    assert inner.calls.commits == 1
