"""Calls that one process serves at the same time, in simulated time, on a store that is slow and that others write to.

Laws, whatever the calls do, how long the store takes and how much time each call has:

- every call ends by its deadline, or at most half a second later, however long the calls before it in the queue go on;
- what one call raises reaches its own caller and nobody else;
- a call that has time for it is served, whatever happens to those beside it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock

import pytest
from attrs import define, field, frozen
from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.batch import BatchTransactor, RequestQueue
from netplug_core.datastore.protocol import Atomicity
from netplug_core.datastore.transaction import Transaction, Transactor
from netplug_core.datastore.view import View
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.locks import Turn
from netplug_core.records import (
    Create,
    Decision,
    Get,
    Kind,
    NeedMore,
    OutcomeUnknown,
    Query,
    Revision,
    Snapshot,
    Update,
    Write,
)  # fmt: skip
from netplug_core.testing.clock import ManualClock
from tests.harness.simulated_threads import SimulatedThreads
from tests.harness.stores import StoreWrapper

ITEM: Kind[str] = Kind("Item", ("name",))
SHARED = ITEM.key("shared")
GRACE_S = 0.5
TIME_ENOUGH_S = 40.0
QUICK_S = 0.05

Rule = Callable[[Snapshot], Decision[object] | NeedMore]


class Mistake(Exception):
    """What a rule with a programming error raises."""


@frozen
class SimulatedCall:
    """What a call does, when it begins, and how much time it has."""

    rule: str
    starts_at: float
    seconds: float


@define
class SlowStore(StoreWrapper):
    """A store that takes its time for each call, and keeps deadlines."""

    threads: SimulatedThreads
    latency_s: float

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        if not self._is_answered(deadline):
            raise Unavailable("the store", "no answer")
        return super().read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        if not self._is_answered(deadline):
            raise OutcomeUnknown("the store", "no answer")
        return super().commit(writes, deadline=deadline)

    def _is_answered(self, deadline: Deadline) -> bool:
        is_answered = self.latency_s < deadline.remaining_s
        self.threads.sleep(min(self.latency_s, deadline.remaining_s))
        return is_answered


@define
class CallRun:
    """Calls of one process, and what became of each."""

    threads: SimulatedThreads
    store: SlowStore
    cache: View | None
    turn: Turn
    queue: RequestQueue | None
    outcomes: dict[int, object] = field(factory=dict)
    ended_at: dict[int, float] = field(factory=dict)

    @classmethod
    def new(cls, mode: MemoryMode, latency_s: float, *, is_cached: bool) -> "CallRun":
        threads = SimulatedThreads()
        memory = MemoryDatastore(mode, clock=ManualClock())
        memory.commit([Create(SHARED, "")], deadline=Deadline.after(ManualClock(), 1))
        store = SlowStore(memory, threads, latency_s)
        cache = None
        if is_cached:
            cache = View.for_datastore(store, clock=threads, uncached_kinds=frozenset(), guard=Lock())
        turn = Turn(guard=Lock(), make_signal=threads.make_signal)
        is_atomic = store.description.atomicity is Atomicity.ATOMIC
        queue = RequestQueue(store=store, cache=cache, turn=turn) if is_atomic else None
        return cls(threads, store, cache, turn, queue)

    def run(self, calls: Sequence[SimulatedCall]) -> None:
        self.threads.run([(call.starts_at, partial(self._call, number, call)) for number, call in enumerate(calls)])

    def _call(self, number: int, call: SimulatedCall) -> None:
        deadline = Deadline.after(self.threads, call.seconds)
        pace = Pace(clock=self.threads, deadline=deadline, chance=lambda: 0.5)
        transaction = Transaction(self.store, pace, cache=self.cache, turn=self.turn.taken)
        transactor: Transactor = transaction
        if self.queue is not None:
            transaction.turn = Transaction(self.store, pace).turn
            transactor = BatchTransactor(self.queue, transaction)
        try:
            self.outcomes[number] = transactor.run((Get(SHARED),), RULES[call.rule](number)).result
        except Exception as error:  # noqa: BLE001  the law judges it
            self.outcomes[number] = error
        self.ended_at[number] = self.threads.monotonic()


def append(number: int) -> Callable[[Snapshot], Decision[object]]:
    def rule(snapshot: Snapshot) -> Decision[object]:
        found = snapshot.find(SHARED)
        assert found is not None
        own = f"<{number}>"
        writes = () if own in found.value else (Update(SHARED, found.value + own, found.revision),)
        return Decision(writes, own)

    return rule


def lose_every_race(number: int) -> Rule:
    return lambda _snapshot: Decision((Update(SHARED, "", Revision("old")),), number)


def make_a_mistake(number: int) -> Rule:
    def rule(_snapshot: Snapshot) -> Decision[object]:
        raise Mistake(number)

    return rule


def read_more(number: int) -> Rule:
    other = Get(ITEM.key(f"other-{number}"))
    return lambda snapshot: append(number)(snapshot) if snapshot.has(other) else NeedMore((other,))


def do_it_once(number: int) -> Rule:
    def rule(snapshot: Snapshot) -> Decision[object]:
        decision = append(number)(snapshot)
        return Decision(decision.writes, decision.result, is_repeatable=False)

    return rule


def look(number: int) -> Rule:
    return lambda _snapshot: Decision((), number)


RULES: dict[str, Callable[[int], Rule]] = {
    "append": append, "lose": lose_every_race, "mistake": make_a_mistake, "more": read_more, "once": do_it_once,
    "look": look,
}  # fmt: skip
CALLS = st.lists(
    st.builds(
        SimulatedCall,
        st.sampled_from(sorted(RULES)),
        st.floats(0, 8),
        st.one_of(st.floats(0.1, 2), st.floats(2, 60)),
    ),
    min_size=2,
    max_size=8,
)


@pytest.mark.parametrize("is_cached", [False, True], ids=["uncached", "cached"])
@pytest.mark.parametrize("mode", MemoryMode)
@given(calls=CALLS, latency_s=st.one_of(st.floats(0.001, QUICK_S), st.floats(QUICK_S, 7)))
def test_every_deadline_holds_and_every_error_is_its_own_callers(
    mode: MemoryMode, calls: list[SimulatedCall], latency_s: float, *, is_cached: bool
) -> None:
    run = CallRun.new(mode, latency_s, is_cached=is_cached)
    run.run(calls)
    assert run.outcomes.keys() == set(range(len(calls)))
    for number, call in enumerate(calls):
        outcome = run.outcomes[number]
        assert run.ended_at[number] <= call.starts_at + call.seconds + GRACE_S
        if isinstance(outcome, Mistake):
            assert (call.rule, outcome.args) == ("mistake", (number,))
        else:
            assert isinstance(outcome, (NetplugError, str, int))
        if latency_s <= QUICK_S and call.seconds >= TIME_ENOUGH_S:
            check_served(call, number, outcome)


def check_served(call: SimulatedCall, number: int, outcome: object) -> None:
    """A call with time gets the answer that it would get alone."""
    match call.rule:
        case "append" | "more" | "once":
            assert outcome == f"<{number}>"
        case "look":
            assert outcome == number
        case "mistake":
            assert isinstance(outcome, Mistake)
        case _:
            assert isinstance(outcome, NetplugError)


@pytest.mark.parametrize("mode", MemoryMode)
def test_a_call_with_little_time_does_not_wait_for_one_that_loses_every_race(mode: MemoryMode) -> None:
    """It returned after 5.9 s of the 0.5 s that it had, because the other ran alone inside the turn."""
    run = CallRun.new(mode, 0.01, is_cached=True)
    run.run([SimulatedCall("lose", 0, 6), SimulatedCall("append", 0.001, 0.5), SimulatedCall("append", 2, 0.5)])
    assert (run.outcomes[1], run.outcomes[2]) == ("<1>", "<2>")
    assert isinstance(run.outcomes[0], NetplugError)
    assert run.ended_at[1] < 0.5
    assert run.ended_at[2] < 2.5
    assert 6 <= run.ended_at[0] <= 6.5
