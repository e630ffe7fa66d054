"""Read, decide, commit, again: how often, how long, and what is raised in the end."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
from attrs import define, field

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_backends.memory.faults import Fault, FaultyDatastore, LostRace, LostReply, LostRequest, Meanwhile
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.interface import DatastoreDescription
from netplug_core.datastore.loop import CALL_S, run
from netplug_core.errors import ContentionExhausted, NetplugError, RequestError, Unavailable
from netplug_core.records import (
    Change,
    Conflict,
    Create,
    Decision,
    Get,
    Key,
    Kind,
    NeedMore,
    OutcomeUnknown,
    Query,
    Revision,
    Snapshot,
    Update,
    Write,
)
from netplug_core.testing.clock import ManualClock

COUNTER: Kind[int] = Kind("Counter", ("name",))
ONE, TWO = COUNTER.key("one"), COUNTER.key("two")
MANY = range(1, 1000)

Rule = Callable[[Snapshot], Decision[int] | NeedMore]


@define
class Bench:
    """A store whose calls are noted with the time they were given."""

    clock: ManualClock
    memory: MemoryDatastore
    given_s: list[float] = field(factory=list)

    @property
    def description(self) -> DatastoreDescription:
        return self.memory.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        self.given_s.append(deadline.remaining_s)
        return self.memory.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        self.given_s.append(deadline.remaining_s)
        return self.memory.commit(writes, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[Change[object]]:
        return self.memory.watch(start, deadline=deadline)

    def run(
        self,
        rule: Rule,
        *asked: Query,
        script: Mapping[int, Fault] | None = None,
        seconds: float = 60.0,
    ) -> Decision[int]:
        pace = Pace(clock=self.clock, deadline=Deadline.after(self.clock, seconds), chance=lambda: 0.5)
        return run(FaultyDatastore(self, script or {}), asked, rule, pace=pace)

    def value(self, key: Key[int]) -> int | None:
        record = self.memory.read((Get(key),), deadline=Deadline.after(self.clock, 5)).find(key)
        return record.value if record else None

    def spent(self) -> tuple[int, int]:
        return self.memory.calls.reads, self.memory.calls.commits


@pytest.fixture
def bench() -> Bench:
    clock = ManualClock()
    return Bench(clock, MemoryDatastore(clock=clock))


def make_one(snapshot: Snapshot) -> Decision[int]:
    """The counter shall be there; idempotent on its own output."""
    found = snapshot.find(ONE)
    return Decision((), found.value) if found else Decision((Create(ONE, 1),), 1)


def count_up(snapshot: Snapshot) -> Decision[int]:
    """One more than there was; deciding again counts again."""
    found = snapshot.find(ONE)
    if found is None:
        return Decision((Create(ONE, 1),), 1, repeatable=False)
    return Decision((Update(ONE, found.value + 1, found.revision),), found.value + 1, repeatable=False)


def test_one_read_and_one_commit_do_it(bench: Bench) -> None:
    assert bench.run(make_one, Get(ONE)).result == 1
    assert bench.spent() == (1, 1)


def test_nothing_to_write_is_nothing_to_commit(bench: Bench) -> None:
    bench.run(make_one, Get(ONE))
    assert bench.run(make_one, Get(ONE)).result == 1
    assert bench.spent() == (2, 1)


def test_a_rule_that_asks_nothing_is_not_read_for(bench: Bench) -> None:
    assert bench.run(lambda _snapshot: Decision((Create(ONE, 1),), 1)).result == 1
    assert bench.spent() == (0, 1)


def test_a_rule_may_ask_for_more(bench: Bench) -> None:
    def rule(snapshot: Snapshot) -> Decision[int] | NeedMore:
        if not snapshot.has(Get(TWO)):
            return NeedMore((Get(TWO),))
        return make_one(snapshot)

    assert bench.run(rule, Get(ONE)).result == 1
    assert bench.spent() == (2, 1)


def test_a_refusal_is_committed_and_then_raised(bench: Bench) -> None:
    refusal = RequestError("no")
    with pytest.raises(RequestError) as caught:
        bench.run(lambda _snapshot: Decision((Create(ONE, 1),), refusal))
    assert caught.value is refusal
    assert bench.value(ONE) == 1


def test_who_loses_a_race_decides_again_on_what_is_there_now(bench: Bench) -> None:
    def other_one() -> None:
        bench.memory.commit((Create(ONE, 41),), deadline=Deadline.after(bench.clock, 5))

    assert bench.run(count_up, Get(ONE), script={1: Meanwhile(other_one)}).result == 42
    assert bench.value(ONE) == 42


def test_each_attempt_waits_longer(bench: Bench) -> None:
    started = bench.clock.monotonic()
    bench.run(make_one, Get(ONE), script=dict.fromkeys((1, 2, 3), LostRace()))
    assert bench.clock.monotonic() - started == pytest.approx(0.004 + 0.008 + 0.016)


def test_a_lost_reply_is_looked_up(bench: Bench) -> None:
    assert bench.run(make_one, Get(ONE), script={1: LostReply()}).result == 1
    assert bench.spent() == (2, 1)


def test_what_cannot_know_its_own_output_is_not_repeated(bench: Bench) -> None:
    with pytest.raises(OutcomeUnknown):
        bench.run(count_up, Get(ONE), script={1: LostReply()})
    assert bench.value(ONE) == 1


def test_a_lost_race_of_such_a_rule_is_no_unknown_outcome(bench: Bench) -> None:
    assert bench.run(count_up, Get(ONE), script={1: LostRace()}).result == 1


def test_a_store_that_does_not_answer_is_not_asked_again(bench: Bench) -> None:
    with pytest.raises(Unavailable, match="the request was lost"):
        bench.run(make_one, Get(ONE), script={1: LostRequest()})
    assert bench.value(ONE) is None


def test_who_loses_every_race_gives_up_at_the_deadline(bench: Bench) -> None:
    with pytest.raises(ContentionExhausted) as caught:
        bench.run(make_one, Get(ONE), script=dict.fromkeys(MANY, LostRace()), seconds=0.1)
    assert bench.clock.monotonic() == pytest.approx(0.1)
    assert caught.value.code == 11
    assert str(caught.value) == (
        "gave up after 5 attempts against concurrent writers; the last one: Counter(one) was changed by another writer"
    )
    assert isinstance(caught.value.__cause__, Conflict)


def test_a_lost_reply_stays_unknown_where_no_time_is_left_to_look(bench: Bench) -> None:
    script: dict[int, Fault] = {**dict.fromkeys(MANY, LostRace()), 5: LostReply()}
    with pytest.raises(OutcomeUnknown, match="the reply was lost") as caught:
        bench.run(make_one, Get(ONE), script=script, seconds=0.1)
    assert caught.value.__cause__ is None
    assert bench.value(ONE) == 1


def test_reading_on_and_on_ends_at_the_deadline(bench: Bench) -> None:
    def never(_snapshot: Snapshot) -> NeedMore:
        bench.clock.sleep(0.5)
        return NeedMore((Get(TWO),))

    with pytest.raises(Unavailable) as caught:
        bench.run(never, Get(ONE), seconds=2.0)
    assert str(caught.value) == "this process: the deadline passed while reading"
    assert bench.spent() == (4, 0)


def test_no_call_gets_more_time_than_one_call_may_take(bench: Bench) -> None:
    bench.run(make_one, Get(ONE), seconds=60.0)
    bench.run(make_one, Get(ONE), seconds=2.0)
    assert bench.given_s == [CALL_S, CALL_S, 2.0]


def test_what_is_raised_is_always_ours(bench: Bench) -> None:
    mishaps: tuple[Fault, ...] = (LostRequest(), LostRace(), LostReply())
    for script in (dict.fromkeys(MANY, mishap) for mishap in mishaps):
        with pytest.raises(NetplugError):
            bench.run(count_up, Get(ONE), script=script, seconds=0.1)
