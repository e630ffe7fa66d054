"""Requests that share a commit: what the commit looks like, which requests run alone, and the answer to each."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Event, Lock

import pytest
from attrs import define, field

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.batch import (
    BatchPlan,
    BatchRequest,
    BatchTransactor,
    NextStep,
    RequestQueue,
    plan_batch,
    run_batch,
)
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.datastore.view import View
from netplug_core.errors import ContentionExhausted, Unavailable
from netplug_core.locks import Turn
from netplug_core.records import (
    ABSENT,
    Create,
    Decision,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    NeedMore,
    Query,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    Write,
    WriteGate,
    Written,
)
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.concurrency import run_together
from netplug_core.testing.faults import Fault, FaultyDatastore, LostRace, LostReply, LostRequest, RunBefore
from tests.harness.nested_calls import NestedTurn
from tests.harness.simulated_threads import SimulatedThreads
from tests.harness.stores import HookedStore, StoreWrapper

ITEM: Kind[str] = Kind("Item", ("name",))
A, B, C, D, E = (ITEM.key(name) for name in "abcde")
OLD = Revision("7")

Rule = Callable[[Snapshot], Decision[object] | NeedMore]


@define
class CommitNotes:
    """Notes the ends of a request's commits."""

    reads: int = 0
    commits: list[tuple[int, BaseException | None]] = field(factory=list)

    def note_read(self, snapshot: Snapshot) -> None:
        self.reads += 1

    def note_commit(self, writes: tuple[Write, ...], error: BaseException | None) -> None:
        self.commits.append((len(writes), error))


@define
class BatchHarness:
    """A store with ``a``, ``b`` and ``c``, and requests to it."""

    mode: MemoryMode = MemoryMode.ATOMIC
    script: dict[int, Fault] = field(factory=dict)
    clock: ManualClock = field(factory=ManualClock)
    memory: MemoryDatastore = field(init=False)
    store: Datastore = field(init=False)
    cache: View | None = None

    def __attrs_post_init__(self) -> None:
        self.memory = MemoryDatastore(self.mode, clock=self.clock)
        self.memory.commit([Create(key, "") for key in (A, B, C)], deadline=self.deadline)
        self.store = FaultyDatastore(self.memory, self.script)

    @property
    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 60)

    def transaction(self, seconds: float = 60, **options: object) -> Transaction:
        pace = Pace(clock=self.clock, deadline=Deadline.after(self.clock, seconds), chance=lambda: 0.5)
        return Transaction(self.store, pace, cache=self.cache, **options)  # type: ignore[arg-type] # any field of it

    def request(self, rule: Rule, *queries: Query, seconds: float = 60, **options: object) -> BatchRequest:
        return BatchRequest(self.transaction(seconds, **options), queries or (Get(A), Get(B), Get(C), Get(D)), rule)

    def run(self, *requests: BatchRequest, max_writes: int = 100) -> list[object]:
        """The results, or errors, of requests that all wait for one commit; the last of them makes it."""
        turn = NestedTurn()
        queue = RequestQueue(store=self.store, cache=self.cache, turn=turn, max_writes=max_writes)
        results: dict[int, object] = {}

        def call(number: int) -> None:
            try:
                results[number] = queue.run(requests[number]).result
            except Exception as error:  # noqa: BLE001  it is the result
                results[number] = error

        turn.calls = [partial(call, number) for number in range(len(requests))]
        turn.calls.pop(0)()
        return [results[number] for number in range(len(requests))]

    def values(self) -> dict[str, str]:
        everything = List(ITEM)
        return {
            record.key.name: record.value
            for record in self.memory.read((everything,), deadline=self.deadline).list(everything)
        }

    @property
    def calls(self) -> tuple[int, int]:
        return self.memory.calls.reads, self.memory.calls.commits - 1


def snapshot_of(**values: str) -> Snapshot:
    store = MemoryDatastore(clock=ManualClock())
    deadline = Deadline.after(ManualClock(), 60)
    store.commit([Create(ITEM.key(name), value) for name, value in values.items()], deadline=deadline)
    return store.read((Get(A), Get(B), Get(C), Get(D), Get(E)), deadline=deadline)


def append(letter: str, *keys: Key[str]) -> Rule:
    """Append a letter to some records, in that order; create those that are not there. Idempotent."""

    def rule(snapshot: Snapshot) -> Decision[object]:
        writes: list[Write] = []
        for key in keys:
            found = snapshot.find(key)
            if found is None:
                writes.append(Create(key, letter))
            elif letter not in found.value:
                writes.append(Update(key, found.value + letter, found.revision))
        return Decision(tuple(writes), letter)

    return rule


def remove(key: Key[str]) -> Rule:
    def rule(snapshot: Snapshot) -> Decision[object]:
        found = snapshot.find(key)
        return Decision((Delete(key, found.revision),) if found else (), "removed")

    return rule


def decided(*writes: Write) -> Rule:
    return lambda _snapshot: Decision(writes, "decided")


def plan(snapshot: Snapshot, *rules: Rule, max_writes: int = 100) -> BatchPlan:
    harness = BatchHarness()
    return plan_batch([harness.request(rule) for rule in rules], snapshot, max_writes=max_writes)


def revision(snapshot: Snapshot, key: Key[str]) -> Revision:
    found = snapshot.find(key)
    assert found is not None
    return found.revision


# --- the plan -------------------------------------------------------------------------------------------------------


def test_writes_of_several_requests_to_one_key_are_one_write() -> None:
    snapshot = snapshot_of(a="")
    made = plan(snapshot, append("x", A), append("y", A), append("z", A))
    assert made.writes == (Update(A, "xyz", revision(snapshot, A)),)
    assert made.own_positions == {0: (0,), 1: (0,), 2: (0,)}


def test_a_record_that_one_creates_is_created_as_the_next_one_leaves_it() -> None:
    assert plan(snapshot_of(), append("x", D), append("y", D)).writes == (Create(D, "xy"),)


def test_each_requests_own_order_is_kept_around_a_key_that_all_write() -> None:
    # Handle before block before endpoint when assigning; endpoint before block before handle when releasing.
    snapshot = snapshot_of(a="", b="", c="")
    made = plan(snapshot, append("x", B, A, D), append("y", C, A, E))
    assert [write.key.name for write in made.writes if isinstance(write, Create | Update)] == ["b", "c", "a", "d", "e"]
    assert made.own_positions == {0: (0, 2, 3), 1: (1, 2, 4)}


def test_requests_that_need_opposite_orders_do_not_share_a_commit() -> None:
    made = plan(snapshot_of(a="", b=""), append("x", A, B), append("y", B, A), append("z", A))
    assert made.alone == (1,)
    assert [getattr(write, "value", None) for write in made.writes] == ["xz", "x"]


def test_conditions_come_first_and_each_once() -> None:
    snapshot = snapshot_of(a="", b="")
    same = (Require(D, ABSENT), RequireUnchanged(ITEM, snapshot.revision(ITEM)))
    made = plan(snapshot, decided(*same, Create(C, "c")), decided(*same, Create(E, "e")))
    assert made.writes == (*same, Create(C, "c"), Create(E, "e"))
    assert made.own_positions == {0: (0, 1, 2), 1: (0, 1, 3)}


def test_a_condition_about_what_an_earlier_request_writes_is_implied() -> None:
    def rule(snapshot: Snapshot) -> Decision[object]:
        found = snapshot.find(A)
        assert found is not None
        return Decision((Require(A, found.revision), Create(D, found.value)), "copied")

    snapshot = snapshot_of(a="")
    made = plan(snapshot, append("x", A), rule)
    assert made.writes == (Update(A, "x", revision(snapshot, A)), Create(D, "x"))
    assert made.own_positions[1] == (-1, 1)


@pytest.mark.parametrize("stale", [Require(A, OLD), Require(A, ABSENT), Update(A, "y", OLD), Create(A, "y")])
def test_a_decision_about_an_older_state_runs_alone(stale: Write) -> None:
    assert plan(snapshot_of(a=""), append("x", A), decided(stale, Create(D, "d"))).alone == (1,)


def test_absence_is_implied_where_an_earlier_request_deletes() -> None:
    made = plan(snapshot_of(a=""), remove(A), decided(Require(A, ABSENT), Create(D, "d")))
    assert made.alone == ()
    assert len(made.writes) == 2


def test_an_update_before_a_delete_becomes_the_delete() -> None:
    snapshot = snapshot_of(a="")
    assert plan(snapshot, append("x", A), remove(A)).writes == (Delete(A, revision(snapshot, A)),)


def test_what_is_created_and_deleted_or_deleted_and_created_takes_two_commits() -> None:
    assert plan(snapshot_of(), append("x", D), remove(D)).alone == (1,)
    assert plan(snapshot_of(a=""), remove(A), append("y", A)).alone == (1,)


def test_several_writes_of_one_request_to_a_key_stay_and_the_next_request_joins_the_last() -> None:
    claim = decided(Create(D, "pending"), Create(E, "block"), Update(D, "confirmed", Written(0)))
    made = plan(snapshot_of(a=""), append("x", A), claim, append("y", D))
    assert made.writes[1:] == (Create(D, "pending"), Create(E, "block"), Update(D, "confirmedy", Written(1)))
    joined = plan(snapshot_of(a=""), append("x", A), lambda seen: Decision((
        Update(A, "first", revision(seen, A)), Create(D, "d"), Update(A, "second", Written(0))), "two"))  # fmt: skip
    assert [getattr(write, "value", None) for write in joined.writes] == ["first", "d", "second"]
    assert joined.writes[2] == Update(A, "second", Written(0))


def test_a_full_commit_leaves_requests_for_the_next_one() -> None:
    made = plan(snapshot_of(a=""), append("x", A, D), append("y", A), append("z", E), max_writes=2)
    assert (made.later, set(made.decisions)) == ((2,), {0, 1})
    assert plan(snapshot_of(a=""), append("x", A, B, C, D), max_writes=2).later == ()


def test_what_cannot_be_repeated_or_raises_runs_alone() -> None:
    def fail(_snapshot: Snapshot) -> Decision[object]:
        raise Malformed("the request", "it is wrong")

    once: Rule = lambda _snapshot: Decision((Create(D, "d"),), "once", is_repeatable=False)  # noqa: E731
    assert plan(snapshot_of(), once, fail, append("x", E)).alone == (0, 1)


def test_a_request_whose_time_is_over_is_not_decided_with_the_others() -> None:
    harness = BatchHarness()
    late = harness.request(append("x", A), seconds=0)
    made = plan_batch([late, harness.request(append("y", B))], snapshot_of(a="", b=""))
    assert (made.alone, tuple(made.decisions)) == ((0,), (1,))


def test_a_rule_that_needs_more_is_decided_after_it_was_read() -> None:
    other = Get(ITEM.key("z"))
    more: Rule = lambda _snapshot: NeedMore((other, Get(A)))  # noqa: E731
    made = plan(snapshot_of(a=""), more, append("x", A))
    assert (made.needed, made.undecided, made.alone) == ((other,), (0,), ())
    assert plan(snapshot_of(a=""), lambda _snapshot: NeedMore((Get(A),))).alone == (0,)


# --- the commit -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MemoryMode)
def test_one_read_and_one_commit_serve_all(mode: MemoryMode) -> None:
    harness = BatchHarness(mode)
    results = harness.run(*(harness.request(append(letter, A, B)) for letter in "xyz"))
    assert results == ["x", "y", "z"]
    assert harness.calls == (1, 1)
    assert harness.values() == {"a": "xyz", "b": "xyz", "c": ""}


def test_a_refusal_is_raised_after_the_commit_that_it_depends_on() -> None:
    harness = BatchHarness()

    def refuse(snapshot: Snapshot) -> Decision[object]:
        found = snapshot.find(A)
        assert found is not None
        return Decision((), Malformed("a", f"is {found.value}"))

    outcome = harness.run(harness.request(append("x", A)), harness.request(refuse))
    assert (outcome[0], str(outcome[1])) == ("x", str(Malformed("a", "is x")))


def test_a_gate_is_asked_for_each_request_and_required_once() -> None:
    harness = BatchHarness()
    shut = Unavailable("the gate", "shut")
    gate = WriteGate(Get(D), lambda seen: shut if seen.find(D) else Require(D, ABSENT))
    requests = [harness.request(append(letter, A), Get(A), gate=gate) for letter in "xy"]
    assert harness.run(*requests) == ["x", "y"]
    harness.memory.commit((Create(D, "d"),), deadline=harness.deadline)
    assert [str(error) for error in harness.run(*requests)] == ["the gate: shut"] * 2
    assert harness.values()["a"] == "xy"


@pytest.mark.parametrize("fault", [LostRace(), LostReply(), LostReply(0)], ids=str)
def test_a_commit_that_fails_is_replayed_one_by_one(fault: Fault) -> None:
    harness = BatchHarness(script={1: fault})
    notes = CommitNotes()
    results = harness.run(harness.request(append("x", A, D)), harness.request(append("y", A), observer=notes))
    assert results == ["x", "y"]
    assert sorted(harness.values()["a"]) == ["x", "y"]
    assert notes.commits[0][1] is not None
    assert notes.reads >= 2


def test_each_error_counts_the_applied_writes_of_its_own_request() -> None:
    harness = BatchHarness(MemoryMode.ORDERED, script={1: LostRace(3)})
    first, second = CommitNotes(), CommitNotes()
    harness.run(
        harness.request(append("x", B, A, D), observer=first), harness.request(append("y", C, A), observer=second)
    )
    errors = [notes.commits[0][1] for notes in (first, second)]
    assert [getattr(error, "applied", None) for error in errors] == [2, 2]
    assert harness.values() == {"a": "xy", "b": "x", "c": "y", "d": "x"}  # the commit wrote a for both


def test_a_store_that_is_away_fails_all_at_once() -> None:
    harness = BatchHarness(script={1: LostRequest()})
    results = harness.run(*(harness.request(append(letter, A)) for letter in "xy"))
    assert all(type(result) is Unavailable for result in results)
    assert results[0] is not results[1]
    assert harness.values()["a"] == ""


def test_only_the_request_whose_time_is_over_fails() -> None:
    harness = BatchHarness()
    late = harness.request(append("x", A), seconds=0)
    results = harness.run(late, harness.request(append("y", A)))
    assert isinstance(results[0], Unavailable)
    assert (results[1], harness.values()["a"]) == ("y", "y")


def test_a_full_commit_is_followed_by_another() -> None:
    harness = BatchHarness()
    requests = [harness.request(append("x", key)) for key in (A, B, C, D)]
    outcomes = run_batch(harness.store, requests, max_writes=2)
    assert [isinstance(outcome, Decision) for outcome in outcomes] == [True, True, False, False]
    assert outcomes[2:] == [NextStep.SHARE] * 2
    assert harness.run(*requests, max_writes=2) == ["x"] * 4
    assert harness.values() == dict.fromkeys("abcd", "x")


def test_what_needs_more_is_read_for_all_in_one_more_read() -> None:
    harness = BatchHarness()

    def more(key: Key[str]) -> Rule:
        return lambda seen: append("x", key)(seen) if seen.has(Get(key)) else NeedMore((Get(key),))

    assert harness.run(*(harness.request(more(key), Get(C)) for key in (A, B))) == ["x", "x"]
    assert harness.calls == (2, 1)


def test_a_page_that_others_change_is_not_decided_upon() -> None:
    harness = BatchHarness()
    page = List(ITEM, limit=10)

    def count(snapshot: Snapshot) -> Decision[object] | NeedMore:
        return Decision((), len(snapshot.list(page))) if snapshot.has(page) else NeedMore((page,))

    assert harness.run(harness.request(append("x", D)), harness.request(count)) == ["x", 4]


class UnreadableC(MemoryDatastore):
    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        if Get(C) in queries:
            raise Malformed("c", "cannot be decoded")
        return super().read(queries, deadline=deadline)


def test_a_record_that_cannot_be_decoded_fails_only_who_asks_for_it() -> None:
    harness = BatchHarness()
    harness.store = UnreadableC(clock=harness.clock)
    results = harness.run(harness.request(append("x", D), Get(D)), harness.request(append("x", C), Get(C)))
    assert results[0] == "x"
    assert isinstance(results[1], Malformed)


# --- with a cache ---------------------------------------------------------------------------------------------------


@pytest.fixture
def cached() -> BatchHarness:
    harness = BatchHarness()
    harness.cache = View.for_datastore(harness.store, clock=harness.clock, uncached_kinds=frozenset())
    harness.run(harness.request(append("o", A)))
    return harness


def test_known_records_are_not_read(cached: BatchHarness) -> None:
    before = cached.calls
    assert cached.run(*(cached.request(append(letter, A)) for letter in "xy")) == ["x", "y"]
    assert cached.calls == (before[0], before[1] + 1)
    assert cached.values()["a"] == "oxy"


def test_what_no_commit_confirms_is_decided_again_from_a_read(cached: BatchHarness) -> None:
    found = cached.memory.read((Get(A),), deadline=cached.deadline).find(A)
    assert found is not None
    cached.memory.commit((Update(A, "new", found.revision),), deadline=cached.deadline)
    look: Rule = lambda seen: Decision((), getattr(seen.find(A), "value", None))  # noqa: E731
    assert cached.run(cached.request(append("x", B)), cached.request(look)) == ["x", "new"]


def test_what_no_commit_confirms_is_decided_from_the_cache_once(cached: BatchHarness) -> None:
    seen: list[object] = []

    def look(snapshot: Snapshot) -> Decision[object]:
        seen.append(getattr(snapshot.find(A), "value", None))
        return Decision((), "looked")

    before = cached.calls
    assert cached.run(cached.request(look), cached.request(append("x", A))) == ["looked", "x"]
    assert seen == ["o", "ox"]
    assert cached.calls == (before[0] + 1, before[1] + 1)


@pytest.mark.parametrize("own, shared", [(0, NextStep.SHARE), (1, None)])
def test_what_a_commit_does_not_serve_does_not_wait_for_it(
    cached: BatchHarness, own: int, shared: NextStep | None
) -> None:
    """Nor does the caller that would make it for others, if it has less time than that may take."""
    settled: list[Mapping[int, object]] = []
    look = cached.request(lambda _seen: Decision((), "looked"), Get(A), seconds=1)
    requests = [look, cached.request(append("x", A), Get(A))]
    outcomes = run_batch(cached.store, requests, cache=cached.cache, own=own, settle=settled.append)
    assert settled == [{0: NextStep.ALONE_FROM_READ}]
    assert outcomes[0] is NextStep.ALONE_FROM_READ
    assert (outcomes[1] is NextStep.SHARE) is (shared is NextStep.SHARE)


def test_an_outdated_cache_costs_a_replay(cached: BatchHarness) -> None:
    found = cached.memory.read((Get(A),), deadline=cached.deadline).find(A)
    assert found is not None
    cached.memory.commit((Update(A, "new", found.revision),), deadline=cached.deadline)
    assert cached.run(*(cached.request(append(letter, A)) for letter in "xy")) == ["x", "y"]
    assert sorted(cached.values()["a"].removeprefix("new")) == ["x", "y"]


# --- the queue ------------------------------------------------------------------------------------------------------


def test_callers_that_wait_share_a_commit() -> None:
    harness = BatchHarness()
    assert harness.run(*(harness.request(append(letter, A), Get(A)) for letter in "xyz")) == ["x", "y", "z"]
    assert harness.calls == (1, 1)
    assert harness.values()["a"] == "xyz"


def test_threads_that_come_at_any_time_each_get_their_own_decision() -> None:
    harness, letters = BatchHarness(), "abcdefgh"
    queue = RequestQueue(store=harness.store, turn=Turn(guard=Lock(), make_signal=Event))

    def call(letter: str) -> object:
        return BatchTransactor(queue, harness.transaction()).run((Get(A),), append(letter, A)).result

    outcomes = run_together([partial(call, letter) for letter in letters])
    assert [outcome.get() for outcome in outcomes] == list(letters)
    assert sorted(harness.values()["a"]) == list(letters)


def test_a_refusal_is_raised_to_its_own_caller() -> None:
    harness = BatchHarness()
    queue = RequestQueue(store=harness.store)
    transactor = BatchTransactor(queue, harness.transaction())
    with pytest.raises(Malformed):
        transactor.run((Get(A),), lambda _seen: Decision((), Malformed("a", "is wrong")))


def test_an_interrupt_is_raised_to_one_caller_and_the_others_run_alone() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    harness, turn = BatchHarness(script={1: RunBefore(interrupt)}), NestedTurn()
    queue = RequestQueue(store=harness.store, turn=turn)

    def call(letter: str) -> object:
        return queue.run(harness.request(append(letter, A), Get(A))).result

    def be_interrupted() -> None:
        with pytest.raises(KeyboardInterrupt):
            call("y")

    turn.calls = [be_interrupted]
    assert call("x") == "x"
    assert harness.values()["a"] == "x"


def test_a_caller_that_is_interrupted_while_it_waits_leaves_the_queue() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    harness, turn = BatchHarness(), NestedTurn(calls=[interrupt])
    queue = RequestQueue(store=harness.store, turn=turn)
    with pytest.raises(KeyboardInterrupt):
        queue.run(harness.request(append("x", A), Get(A)))
    assert queue.run(harness.request(append("y", A), Get(A))).result == "y"
    assert harness.values()["a"] == "y"


class RaisingNotes(CommitNotes):
    def note_read(self, snapshot: Snapshot) -> None:
        super().note_read(snapshot)
        raise KeyError("note")

    def note_commit(self, writes: tuple[Write, ...], error: BaseException | None) -> None:
        super().note_commit(writes, error)
        raise KeyError("note")


@pytest.mark.parametrize("is_last", [False, True], ids=["it waits", "it commits for all"])
def test_a_mistake_in_a_rule_is_raised_to_its_own_caller_and_the_others_are_served(*, is_last: bool) -> None:
    def fail(_snapshot: Snapshot) -> Decision[object]:
        raise KeyError("rule")

    harness = BatchHarness()
    rules = [append("x", A), append("y", A), fail] if is_last else [fail, append("x", A), append("y", A)]
    results = harness.run(*(harness.request(rule) for rule in rules))
    failed = results.pop() if is_last else results.pop(0)
    assert isinstance(failed, KeyError)
    assert results == ["x", "y"]
    assert harness.calls[1] == 1
    assert harness.values()["a"] == "xy"


@pytest.mark.parametrize("is_cached", [False, True])
def test_so_is_one_that_comes_to_light_later(*, is_cached: bool) -> None:
    """Writes that mean nothing, a record that cannot be stored, an observer that fails."""
    harness = BatchHarness()
    if is_cached:
        harness.cache = View.for_datastore(harness.store, clock=harness.clock, uncached_kinds=frozenset())
    unstorable = StoreThatRefuses(harness.memory)
    harness.store = unstorable
    requests = [
        harness.request(append("x", A)),
        harness.request(decided(Create(D, "unstorable"))),
        harness.request(append("y", A)),
        harness.request(decided(Update(B, "b", Written(7)))),
    ]
    results = harness.run(*requests)
    assert (results[0], results[2]) == ("x", "y")
    assert isinstance(results[1], TypeError)
    assert isinstance(results[3], Exception)
    assert harness.values()["a"] in ("xy", "yx")
    results = harness.run(harness.request(append("v", C), observer=RaisingNotes()), harness.request(append("w", C)))
    assert isinstance(results[0], KeyError)
    assert results[1] == "w"
    assert sorted(harness.values()["c"]) == ["v", "w"]


@define
class StoreThatRefuses(StoreWrapper):
    """A store whose codec has a mistake: it raises at one value."""

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        if any(isinstance(write, Create) and write.value == "unstorable" for write in writes):
            raise TypeError("unstorable")
        return super().commit(writes, deadline=deadline)


def test_a_caller_whose_turn_does_not_come_waits_for_the_commit_that_another_makes_for_it() -> None:
    """The first holds the turn, the second goes on without it, and the third comes before the second commits."""
    threads = SimulatedThreads()
    harness = BatchHarness()
    latencies = {0: 4.0, 1: 2.0}
    seen: list[int] = []

    def answer_slowly() -> None:
        seen.append(0)
        threads.sleep(latencies.get(len(seen) - 1, 0.01))

    store = HookedStore(harness.memory, before_read=answer_slowly)
    queue = RequestQueue(store=store, turn=Turn(guard=Lock(), make_signal=threads.make_signal))
    served: dict[str, float] = {}

    def call(letter: str, seconds: float) -> None:
        pace = Pace(clock=threads, deadline=Deadline.after(threads, seconds), chance=lambda: 0.5)
        queue.run(BatchRequest(Transaction(store, pace), (Get(A),), append(letter, A)))
        served[letter] = threads.monotonic()

    threads.run([(0, partial(call, "x", 60)), (1, partial(call, "y", 4.5)), (1.5, partial(call, "z", 4.9))])
    assert served["y"] == served["z"] == 5.25
    assert harness.values()["a"] == "xyz"


def test_what_loses_every_race_keeps_nobody_else_from_its_commit() -> None:
    """It runs alone until its time is over; the others are served by the commit before."""
    harness = BatchHarness()

    def lose(_snapshot: Snapshot) -> Decision[object]:
        return Decision((Update(B, "b", OLD),), "won")

    began = harness.clock.monotonic()
    served_at: list[float] = []

    def note(seen: Snapshot) -> Decision[object] | NeedMore:
        served_at.append(harness.clock.monotonic() - began)
        return append("x", A)(seen)

    results = harness.run(harness.request(lose, seconds=30), harness.request(note))
    assert isinstance(results[0], ContentionExhausted)
    assert results[1] == "x"
    assert max(served_at) == 0
    assert 30 <= harness.clock.monotonic() - began <= 30.5


@pytest.mark.parametrize("mode, calls", [(MemoryMode.ORDERED, (3, 2)), (MemoryMode.ATOMIC, (1, 1))])
def test_what_was_read_too_long_ago_on_an_ordered_store_is_read_again(mode: MemoryMode, calls: tuple[int, int]) -> None:
    harness = BatchHarness(mode)
    slow = [True]

    def decide(snapshot: Snapshot) -> Decision[object] | NeedMore:
        if slow:
            slow.clear()
            harness.clock.sleep(CALL_TIMEOUT_S + 0.1)
        return append("x", A)(snapshot)

    assert harness.run(harness.request(decide, Get(A)), harness.request(append("y", A))) == ["x", "y"]
    assert harness.calls == calls
    assert sorted(harness.values()["a"]) == ["x", "y"]
