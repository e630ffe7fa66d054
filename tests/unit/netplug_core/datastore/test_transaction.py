"""Read, decide, commit, again: how often, how long, and what is raised in the end."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

import pytest
from attrs import define

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, FRESH_S
from netplug_core.datastore.transaction import Transaction
from netplug_core.datastore.view import View
from netplug_core.errors import ContentionExhausted, NetplugError, RequestError, Unauthorized, Unavailable
from netplug_core.records import (
    ABSENT,
    Conflict,
    Create,
    Decision,
    Delete,
    Get,
    Key,
    Kind,
    Malformed,
    NeedMore,
    OutcomeUnknown,
    Query,
    Require,
    Snapshot,
    Update,
    Write,
    WriteGate,
    Written,
)
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import Fault, FaultyDatastore, LostRace, LostReply, LostRequest, RunBefore
from tests.harness.stores import HookedStore

COUNTER: Kind[int] = Kind("Counter", ("name",))
ONE, TWO, THREE = COUNTER.key("one"), COUNTER.key("two"), COUNTER.key("three")
MANY = range(1, 1000)

Rule = Callable[[Snapshot], Decision[int] | NeedMore]


@define(kw_only=True)
class TransactionHarness(HookedStore):
    """A store with its clock, and the cache of a resident process. ``chance`` is asked before each wait."""

    clock: ManualClock
    memory: MemoryDatastore
    warm: View
    chance: Callable[[], float] = lambda: 0.5
    gate: WriteGate | None = None

    def run(
        self,
        rule: Rule,
        *asked: Query,
        script: Mapping[int, Fault] | None = None,
        seconds: float = 60.0,
    ) -> Decision[int]:
        pace = Pace(clock=self.clock, deadline=Deadline.after(self.clock, seconds), chance=self.chance)
        return Transaction(FaultyDatastore(self, script or {}), pace, self.gate).run(asked, rule)

    def run_warm(
        self, rule: Rule, *asked: Query, presumed: Sequence[Query] = (), script: Mapping[int, Fault] | None = None
    ) -> Decision[int]:
        """The same with the memory of a resident process."""
        pace = Pace(clock=self.clock, deadline=Deadline.after(self.clock, 60), chance=self.chance)
        store = FaultyDatastore(self, script or {})
        return Transaction(store, pace, self.gate, self.warm, tuple(presumed)).run(asked, rule)

    def put(self, key: Key[int], value: int) -> None:
        """Store a value as another process does."""
        deadline = Deadline.after(self.clock, 5)
        found = self.memory.read((Get(key),), deadline=deadline).find(key)
        self.memory.commit((Update(key, value, found.revision) if found else Create(key, value),), deadline=deadline)

    def value(self, key: Key[int]) -> int | None:
        record = self.memory.read((Get(key),), deadline=Deadline.after(self.clock, 5)).find(key)
        return record.value if record else None

    def spent(self) -> tuple[int, int]:
        return self.memory.calls.reads, self.memory.calls.commits

    def spent_since(self, before: tuple[int, int]) -> tuple[int, int]:
        return self.memory.calls.reads - before[0], self.memory.calls.commits - before[1]


@pytest.fixture
def harness() -> TransactionHarness:
    clock = ManualClock()
    memory = MemoryDatastore(clock=clock)
    return TransactionHarness(
        inner=memory,
        clock=clock,
        memory=memory,
        warm=View.for_datastore(memory, clock=clock, uncached_kinds=frozenset()),
    )


def make_one(snapshot: Snapshot) -> Decision[int]:
    """The counter shall be there; idempotent on its own output."""
    found = snapshot.find(ONE)
    return Decision((), found.value) if found else Decision((Create(ONE, 1),), 1)


def make_two(snapshot: Snapshot) -> Decision[int]:
    """The same with the other counter."""
    found = snapshot.find(TWO)
    return Decision((), found.value) if found else Decision((Create(TWO, 2),), 2)


def count_up(snapshot: Snapshot) -> Decision[int]:
    """One more than there was; deciding again counts again."""
    found = snapshot.find(ONE)
    if found is None:
        return Decision((Create(ONE, 1),), 1, is_repeatable=False)
    return Decision((Update(ONE, found.value + 1, found.revision),), found.value + 1, is_repeatable=False)


def test_one_read_and_one_commit_do_it(harness: TransactionHarness) -> None:
    assert harness.run(make_one, Get(ONE)).result == 1
    assert harness.spent() == (1, 1)


def test_nothing_to_write_is_nothing_to_commit(harness: TransactionHarness) -> None:
    harness.run(make_one, Get(ONE))
    assert harness.run(make_one, Get(ONE)).result == 1
    assert harness.spent() == (2, 1)


def test_a_rule_that_asks_nothing_is_not_read_for(harness: TransactionHarness) -> None:
    assert harness.run(lambda _snapshot: Decision((Create(ONE, 1),), 1)).result == 1
    assert harness.spent() == (0, 1)


def test_a_rule_may_ask_for_more(harness: TransactionHarness) -> None:
    def rule(snapshot: Snapshot) -> Decision[int] | NeedMore:
        if not snapshot.has(Get(TWO)):
            return NeedMore((Get(TWO),))
        return make_one(snapshot)

    assert harness.run(rule, Get(ONE)).result == 1
    assert harness.spent() == (2, 1)


def test_a_refusal_is_committed_and_then_raised(harness: TransactionHarness) -> None:
    refusal = RequestError("no")
    with pytest.raises(RequestError) as caught:
        harness.run(lambda _snapshot: Decision((Create(ONE, 1),), refusal))
    assert caught.value is refusal
    assert harness.value(ONE) == 1


def test_who_loses_a_race_decides_again_on_what_is_there_now(harness: TransactionHarness) -> None:
    def other_one() -> None:
        harness.memory.commit((Create(ONE, 41),), deadline=Deadline.after(harness.clock, 5))

    assert harness.run(count_up, Get(ONE), script={1: RunBefore(other_one)}).result == 42
    assert harness.value(ONE) == 42


def test_each_attempt_waits_longer(harness: TransactionHarness) -> None:
    started = harness.clock.monotonic()
    harness.run(make_one, Get(ONE), script=dict.fromkeys((1, 2, 3), LostRace()))
    assert harness.clock.monotonic() - started == pytest.approx(0.004 + 0.008 + 0.016)


def test_a_lost_reply_is_looked_up(harness: TransactionHarness) -> None:
    assert harness.run(make_one, Get(ONE), script={1: LostReply()}).result == 1
    assert harness.spent() == (2, 1)


def test_what_cannot_know_its_own_output_is_not_repeated(harness: TransactionHarness) -> None:
    with pytest.raises(OutcomeUnknown):
        harness.run(count_up, Get(ONE), script={1: LostReply()})
    assert harness.value(ONE) == 1


def test_a_lost_race_of_such_a_rule_is_no_unknown_outcome(harness: TransactionHarness) -> None:
    assert harness.run(count_up, Get(ONE), script={1: LostRace()}).result == 1


def test_a_store_that_does_not_answer_is_not_asked_again(harness: TransactionHarness) -> None:
    with pytest.raises(Unavailable, match="the request was lost"):
        harness.run(make_one, Get(ONE), script={1: LostRequest()})
    assert harness.value(ONE) is None


def test_check_75_who_loses_every_race_gives_up_at_the_deadline(harness: TransactionHarness) -> None:
    with pytest.raises(ContentionExhausted) as caught:
        harness.run(make_one, Get(ONE), script=dict.fromkeys(MANY, LostRace()), seconds=0.1)
    assert harness.clock.monotonic() == pytest.approx(0.1)
    assert caught.value.code == 11
    assert str(caught.value) == (
        "gave up after 5 attempts against concurrent writers; the last one: Counter(one) was changed by another writer"
    )
    assert isinstance(caught.value.__cause__, Conflict)


def test_a_lost_reply_stays_unknown_where_no_time_is_left_to_look(harness: TransactionHarness) -> None:
    script: dict[int, Fault] = {**dict.fromkeys(MANY, LostRace()), 5: LostReply()}
    with pytest.raises(OutcomeUnknown, match="the reply was lost") as caught:
        harness.run(make_one, Get(ONE), script=script, seconds=0.1)
    assert caught.value.__cause__ is None
    assert harness.value(ONE) == 1


def test_reading_on_and_on_ends_at_the_deadline(harness: TransactionHarness) -> None:
    def never(_snapshot: Snapshot) -> NeedMore:
        harness.clock.sleep(0.5)
        return NeedMore((Get(TWO),))

    with pytest.raises(Unavailable) as caught:
        harness.run(never, Get(ONE), seconds=2.0)
    assert str(caught.value) == "this process: the deadline passed while reading"
    assert harness.spent() == (4, 0)


def test_no_call_gets_more_time_than_one_call_may_take(harness: TransactionHarness) -> None:
    harness.run(make_one, Get(ONE), seconds=60.0)
    harness.run(make_one, Get(ONE), seconds=2.0)
    assert harness.deadlines_s == [CALL_TIMEOUT_S, CALL_TIMEOUT_S, 2.0]


def test_what_is_raised_is_always_ours(harness: TransactionHarness) -> None:
    faults: tuple[Fault, ...] = (LostRequest(), LostRace(), LostReply())
    for script in (dict.fromkeys(MANY, fault) for fault in faults):
        with pytest.raises(NetplugError):
            harness.run(count_up, Get(ONE), script=script, seconds=0.1)


def test_trap_31_unauthorized_is_raised_at_once(harness: TransactionHarness) -> None:
    def shut() -> None:
        raise Unauthorized("the store", "the token has expired")

    harness.before_commit = shut
    with pytest.raises(Unauthorized, match="the token has expired"):
        harness.run(make_one, Get(ONE))
    assert harness.clock.monotonic() == 0
    assert len(harness.deadlines_s) == 2  # one read and one commit


# --- with the memory of a resident process ---------------------------------------------------------------------------


def test_the_first_call_reads_and_the_next_ones_need_not(harness: TransactionHarness) -> None:
    assert harness.run_warm(count_up, Get(ONE)).result == 1
    assert harness.spent() == (1, 1)
    assert [harness.run_warm(count_up, Get(ONE)).result for _ in range(3)] == [2, 3, 4]
    assert harness.spent() == (1, 4)


def test_what_is_not_remembered_is_read_and_the_rest_is_not(harness: TransactionHarness) -> None:
    asked: list[tuple[Query, ...]] = []

    def both(snapshot: Snapshot) -> Decision[int] | NeedMore:
        asked.append(tuple(snapshot.results))
        if not snapshot.has(Get(TWO)):
            return NeedMore((Get(TWO),))
        return count_up(snapshot)

    harness.run_warm(count_up, Get(ONE))
    harness.run_warm(both, Get(ONE))
    assert asked == [(Get(ONE),), (Get(ONE), Get(TWO))]
    assert harness.spent() == (2, 2)


def test_a_memory_that_is_out_of_date_costs_a_conflict_and_a_fresh_read(harness: TransactionHarness) -> None:
    harness.run_warm(count_up, Get(ONE))
    harness.put(ONE, 41)
    before = harness.spent()
    assert harness.run_warm(count_up, Get(ONE)).result == 42
    assert harness.value(ONE) == 42
    assert harness.spent_since(before) == (2, 2)  # one of the reads is this test's


def test_a_refusal_from_memory_is_made_again_from_a_read(harness: TransactionHarness) -> None:
    def take_one(snapshot: Snapshot) -> Decision[int]:
        found = snapshot.find(ONE)
        if found is None or not found.value:
            return Decision((Create(TWO, 1),) if found else (), RequestError("none left"))
        return Decision((Update(ONE, found.value - 1, found.revision),), found.value)

    for remembered in (None, 0):  # a refusal without writes, and one that takes something back
        if remembered is not None:
            harness.put(ONE, remembered)
        harness.warm.add_snapshot(harness.memory.read((Get(ONE),), deadline=Deadline.after(harness.clock, 5)))
        harness.put(ONE, 7)
        assert harness.run_warm(take_one, Get(ONE)).result == 7
        harness.warm.invalidate()
    assert harness.value(TWO) is None


def test_a_refusal_that_a_read_confirms_is_raised(harness: TransactionHarness) -> None:
    harness.run_warm(make_one, Get(ONE))
    before = harness.spent()
    with pytest.raises(RequestError):
        harness.run_warm(lambda _snapshot: Decision((), RequestError("no")), Get(ONE))
    assert harness.spent_since(before) == (1, 0)


def test_that_there_is_nothing_to_do_is_made_sure_of_by_a_read(harness: TransactionHarness) -> None:
    harness.run_warm(make_one, Get(ONE))
    record = harness.memory.read((Get(ONE),), deadline=Deadline.after(harness.clock, 5)).find(ONE)
    assert record is not None
    harness.memory.commit((Delete(ONE, record.revision),), deadline=Deadline.after(harness.clock, 5))
    assert harness.run_warm(make_one, Get(ONE)).writes == (Create(ONE, 1),)
    assert harness.value(ONE) == 1


def test_a_damaged_record_that_an_outdated_one_led_to_is_made_sure_of_by_a_read(harness: TransactionHarness) -> None:
    harness.run_warm(make_one, Get(ONE))
    harness.put(ONE, 11)

    def follow_one(snapshot: Snapshot) -> Decision[int]:
        one = snapshot.find(ONE)
        assert one is not None
        if one.value != 11:
            raise Malformed("the record that ONE named", "not JSON")
        return Decision((), one.value)

    assert harness.run_warm(follow_one, Get(ONE)).result == 11
    harness.put(ONE, 12)
    with pytest.raises(Malformed, match="the record that ONE named"):
        harness.run_warm(follow_one, Get(ONE))


def test_what_led_nowhere_is_forgotten_with_the_revisions_of_its_time(harness: TransactionHarness) -> None:
    harness.run_warm(make_one, Get(ONE))
    harness.put(TWO, 22)
    harness.run_warm(make_one, Get(ONE))
    now = harness.memory.read((Get(ONE),), deadline=Deadline.after(harness.clock, 5)).revision(COUNTER)
    assert harness.warm.lookup((Get(ONE),), ()).snapshot.revision(COUNTER) == now


def test_what_is_assumed_absent_is_not_read(harness: TransactionHarness) -> None:
    harness.run_warm(make_one, Get(ONE))
    before = harness.spent()
    harness.run_warm(make_two, Get(ONE), Get(TWO), presumed=(Get(TWO),))
    assert harness.spent_since(before) == (0, 1)
    assert harness.value(TWO) == 2


def test_a_presumption_that_is_wrong_costs_a_fresh_read(harness: TransactionHarness) -> None:
    harness.run_warm(make_one, Get(ONE))
    harness.put(TWO, 22)
    before = harness.spent()
    assert harness.run_warm(make_two, Get(ONE), Get(TWO), presumed=(Get(TWO),)).result == 22
    assert harness.spent_since(before) == (1, 1)
    assert harness.value(TWO) == 22


def test_a_presumption_that_no_create_proves_is_read(harness: TransactionHarness) -> None:
    harness.run_warm(make_one, Get(ONE))
    harness.put(TWO, 22)

    def count_one_and_tell_two(snapshot: Snapshot) -> Decision[int]:
        one, two = snapshot.find(ONE), snapshot.find(TWO)
        assert one is not None
        return Decision((Update(ONE, one.value + 1, one.revision),), two.value if two else 0)

    assert harness.run_warm(count_one_and_tell_two, Get(ONE), Get(TWO), presumed=(Get(TWO),)).result == 22
    assert harness.value(ONE) == 2


def test_who_remembers_nothing_presumes_nothing(harness: TransactionHarness) -> None:
    harness.put(TWO, 22)
    assert harness.run_warm(make_two, Get(TWO), presumed=(Get(TWO),)).result == 22
    assert harness.spent() == (2, 1)  # the other calls are those of the one who put it there


@pytest.mark.parametrize("fault", [LostReply(), LostRequest()])
def test_after_a_fault_nothing_is_cached(harness: TransactionHarness, fault: Fault) -> None:
    harness.run_warm(count_up, Get(ONE))
    with pytest.raises(Unavailable):
        harness.run_warm(count_up, Get(ONE), script={1: fault})
    assert harness.warm.lookup((Get(ONE),), ()).missing == (Get(ONE),)


def test_after_an_interrupt_nothing_is_remembered(harness: TransactionHarness) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    harness.run_warm(count_up, Get(ONE))
    harness.after_commit = interrupt
    with pytest.raises(KeyboardInterrupt):
        harness.run_warm(count_up, Get(ONE))
    assert harness.warm.lookup((Get(ONE),), ()).missing == (Get(ONE),)
    assert harness.value(ONE) == 2


def test_after_a_lost_race_a_transaction_reads_again_though_the_cache_was_updated_meanwhile(
    harness: TransactionHarness,
) -> None:
    stale = harness.memory.read((Get(ONE),), deadline=Deadline.after(harness.clock, 5))

    def learn_late() -> float:
        harness.warm.add_snapshot(stale)
        return 0.5

    harness.run_warm(count_up, Get(ONE))
    harness.put(ONE, 41)
    harness.chance = learn_late
    before = harness.spent()
    assert harness.run_warm(count_up, Get(ONE)).result == 42
    assert harness.spent_since(before) == (1, 2)


# --- a gate -------------------------------------------------------------------------------------------------------

SHUT = Unavailable("the gate", "shut")


def shut_above_one(snapshot: Snapshot) -> NetplugError | Write:
    found = snapshot.find(TWO)
    return SHUT if found and found.value > 1 else Require(TWO, found.revision if found else ABSENT)


GATE = WriteGate(Get(TWO), shut_above_one)


def test_a_gate_is_read_with_the_first_read_and_is_the_first_condition_of_the_commit(
    harness: TransactionHarness,
) -> None:
    harness.gate = GATE
    made = harness.run(make_one, Get(ONE))
    assert made.writes == (Require(TWO, ABSENT), Create(ONE, 1))
    assert harness.spent() == (1, 1)


def test_positions_of_earlier_writes_move_behind_the_condition(harness: TransactionHarness) -> None:
    harness.gate = GATE
    rule = Decision((Create(ONE, 1), Update(ONE, 2, Written(0))), 2)
    assert harness.run(lambda _snapshot: rule).writes[1:] == (Create(ONE, 1), Update(ONE, 2, Written(1)))
    assert harness.value(ONE) == 2


def test_a_shut_gate_refuses_before_the_rule_is_asked(harness: TransactionHarness) -> None:
    harness.put(TWO, 2)
    harness.gate, before = GATE, harness.spent()
    asked: list[Snapshot] = []

    def rule(snapshot: Snapshot) -> Decision[int]:
        asked.append(snapshot)
        return make_one(snapshot)

    with pytest.raises(Unavailable, match="the gate: shut"):
        harness.run(rule, Get(ONE))
    assert asked == []
    assert harness.spent_since(before) == (1, 0)


def test_a_gate_that_shuts_before_the_commit_arrives_is_seen(harness: TransactionHarness) -> None:
    harness.gate = GATE
    harness.before_commit = lambda: harness.put(TWO, 2)
    with pytest.raises(Unavailable, match="the gate: shut"):
        harness.run(make_one, Get(ONE))
    assert harness.value(ONE) is None


def test_a_decision_that_writes_nothing_carries_no_condition(harness: TransactionHarness) -> None:
    harness.gate = GATE
    harness.put(ONE, 7)
    assert harness.run(make_one, Get(ONE)).writes == ()


def test_a_gate_that_is_cached_as_shut_is_read_again(harness: TransactionHarness) -> None:
    harness.gate = GATE
    harness.put(TWO, 2)
    with pytest.raises(Unavailable, match="the gate: shut"):
        harness.run_warm(make_one, Get(ONE))
    harness.put(TWO, 1)
    assert harness.run_warm(make_one, Get(ONE)).result == 1


# --- ordered stores check no requirements ---------------------------------------------------------------------------


def make_ordered() -> TransactionHarness:
    clock = ManualClock()
    memory = MemoryDatastore(MemoryMode.ORDERED, clock=clock)
    warm = View.for_datastore(memory, clock=clock, uncached_kinds=frozenset())
    return TransactionHarness(inner=memory, clock=clock, memory=memory, warm=warm)


def test_on_an_ordered_store_what_was_read_too_long_ago_is_read_again() -> None:
    harness = make_ordered()
    harness.after_read = lambda: harness.clock.sleep(CALL_TIMEOUT_S + 0.1 if harness.spent()[0] == 1 else 0)
    assert harness.run(make_one, Get(ONE)).result == 1
    assert harness.spent() == (2, 1)


def test_on_an_atomic_store_the_conditions_of_the_commit_say_whether_it_still_holds(
    harness: TransactionHarness,
) -> None:
    harness.after_read = lambda: harness.clock.sleep(CALL_TIMEOUT_S + 0.1)
    assert harness.run(make_one, Get(ONE)).result == 1
    assert harness.spent() == (1, 1)


def test_a_store_that_always_answers_too_late_for_a_commit_ends_at_the_deadline() -> None:
    harness = make_ordered()
    harness.after_read = lambda: harness.clock.sleep(CALL_TIMEOUT_S + 0.1)
    with pytest.raises(Unavailable, match="the deadline passed while reading"):
        harness.run(make_one, Get(ONE), seconds=11)
    assert harness.spent()[1] == 0


@pytest.mark.parametrize("thinking_s, is_too_old", [(1.0, False), (1.1, True)])
def test_a_commit_begins_no_later_than_the_oldest_answer_counts(thinking_s: float, is_too_old: bool) -> None:  # noqa: FBT001
    harness = make_ordered()
    harness.run_warm(make_one, Get(ONE))
    harness.clock.sleep(FRESH_S - 1)
    before = harness.spent()

    def decide(snapshot: Snapshot) -> Decision[int] | NeedMore:
        if harness.spent() == before:
            harness.clock.sleep(thinking_s)
        return Decision((Create(TWO, 2),), 2) if snapshot.find(ONE) else Decision((), 0)

    harness.run_warm(decide, Get(ONE))
    assert harness.spent_since(before) == (int(is_too_old), 1)


# --- what a decision that commits nothing rests on -----------------------------------------------------------------


@pytest.fixture
def ordered(harness: TransactionHarness) -> TransactionHarness:
    """A process that has just read its first counter, on a store that does not check requirements."""
    memory = MemoryDatastore(MemoryMode.ORDERED, clock=harness.clock)
    warm = View.for_datastore(memory, clock=harness.clock, uncached_kinds=frozenset())
    made = TransactionHarness(inner=memory, clock=harness.clock, memory=memory, warm=warm)
    made.put(ONE, 1)
    made.run_warm(tell_one, Get(ONE))
    return made


def tell_one(snapshot: Snapshot) -> Decision[int]:
    found = snapshot.find(ONE)
    return Decision((), found.value if found else 0, needs_read=True, depends_on=(Get(ONE),))


def tell_one_for_two(snapshot: Snapshot) -> Decision[int]:
    """The same, and it says that it depends on the other counter only."""
    found = snapshot.find(ONE)
    return Decision((), found.value if found else 0, needs_read=True, depends_on=(Get(TWO),))


def test_what_was_not_read_for_a_decision_that_rests_on_it_is_read(ordered: TransactionHarness) -> None:
    ordered.put(ONE, 2)
    before = ordered.spent()
    assert ordered.run_warm(tell_one, Get(ONE)).result == 2
    assert ordered.spent_since(before) == (1, 0)


def test_what_a_decision_does_not_rest_on_is_not_read_again(ordered: TransactionHarness) -> None:
    ordered.put(ONE, 2)
    before = ordered.spent()
    assert ordered.run_warm(tell_one_for_two, Get(ONE), Get(TWO)).result == 1
    assert ordered.spent_since(before) == (1, 0)


@pytest.mark.parametrize("passed_s, is_shut", [(FRESH_S, False), (FRESH_S + 0.1, True)])
def test_a_gate_counts_as_long_as_everything_that_was_read(
    ordered: TransactionHarness,
    passed_s: float,
    is_shut: bool,  # noqa: FBT001
) -> None:
    ordered.put(TWO, 1)
    ordered.run_warm(tell_one, Get(ONE), Get(TWO))
    ordered.gate = GATE
    ordered.put(TWO, 2)
    ordered.clock.sleep(passed_s)
    with pytest.raises(Unavailable, match="the gate: shut") if is_shut else nullcontext():
        ordered.run_warm(lambda _: Decision((), 0, needs_read=True, depends_on=(Get(THREE),)), Get(THREE))
