"""A controller ends at the last state of its inputs, whatever happens on the way.

Laws, for any changes, wake-ups that come in any order, twice or never, and any failing look, plan or action:

- once nothing changes and nothing fails any more, what is there is what the last objects say
- no pass is begun during another one
- a problem is said once for each change
- the pause after failures is within its bounds, and wake-ups make no pass come sooner than the first pause
"""

from itertools import pairwise

from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from netplug_cli.runtime.controllers import ControllerLoop
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.reconcile.controller import (
    MAX_GATHERED,
    Backoff,
    Controller,
    Outcome,
    Plan,
    Schedule,
    Source,
    Timing,
)
from netplug_core.testing.clock import ManualClock
from tests.harness.node_server import Lines

TIMING = Timing(backoff=Backoff(first_s=0.5, longest_s=8.0))
LOOK_S = 60.0

Action = tuple[str, int | None]

changes = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abc"), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("wake"), st.just(""), st.integers(1, 3)),
        st.tuples(st.just("pass time"), st.just(""), st.integers(1, 2000)),
        st.tuples(st.sampled_from(["fail look", "fail plan", "fail a", "break b"]), st.just(""), st.integers(1, 4)),
    ),
    max_size=40,
)


@define
class World:
    """Objects, and what a controller makes of them. ``faults`` is how often each step fails next."""

    objects: dict[str, int] = field(factory=dict)
    made: dict[str, int] = field(factory=dict)
    faults: dict[str, int] = field(factory=dict)
    is_busy: bool = False
    clock: ManualClock = field(factory=ManualClock)
    log: Lines = field(factory=Lines)
    passes: list[tuple[float, bool]] = field(factory=list)
    loop: ControllerLoop = field(init=False)

    def __attrs_post_init__(self) -> None:
        controller = Controller(
            name="fruit", observe=self.observe, plan=self.plan, act=self.act, failure="failed", timing=TIMING,
            inputs=frozenset({Source("fruit")}), recovered="well again",
        )  # fmt: skip
        self.loop = ControllerLoop(controller, self.clock, self.log, self.note_pass, chance=lambda: 0.3)

    def fail_at(self, step: str) -> None:
        if self.faults.get(step, 0):
            self.faults[step] -= 1
            raise Unavailable(step, "away") if step != "break b" else ZeroDivisionError(step)

    def observe(self, _deadline: Deadline) -> tuple[dict[str, int], dict[str, int]]:
        assert not self.is_busy, "two passes at a time"
        self.is_busy = True
        self.loop.run_due()  # as another thread might; a pass that is due during this one would fail the assertion
        self.is_busy = False
        self.fail_at("fail look")
        return dict(self.objects), dict(self.made)

    def plan(self, state: tuple[dict[str, int], dict[str, int]]) -> Plan[Action]:
        self.fail_at("fail plan")
        objects, made = state
        updates = ((name, value) for name, value in objects.items() if made.get(name) != value)
        deletions = ((name, None) for name in made if name not in objects)
        return Plan(actions=(*updates, *deletions), look_again_s=LOOK_S)

    def act(self, action: Action, _deadline: Deadline) -> None:
        name, value = action
        self.fail_at("break b" if name == "b" else "fail a")
        if value is None:
            del self.made[name]
        else:
            self.made[name] = value

    def note_pass(self, _name: str, is_failed: bool, _seconds: float) -> None:  # noqa: FBT001  a ``NotePass``
        self.passes.append((self.clock.monotonic(), is_failed))

    def pass_time(self, seconds: float) -> None:
        """Let the passes come that are due within that time."""
        end = self.clock.monotonic() + seconds
        while (pause_s := self.loop.run_due()) is not None and self.clock.monotonic() + pause_s <= end:
            self.clock.sleep(pause_s)
        self.clock.sleep(end - self.clock.monotonic())

    def change(self, what: str, name: str, number: int) -> None:
        if what == "set":
            self.objects[name] = number
        elif what == "delete":
            self.objects.pop(name, None)
        elif what == "wake":
            for _ in range(number):
                self.loop.wake()
        elif what == "pass time":
            self.pass_time(number / 100)
        else:
            self.faults[what] = number


@given(changes)
def test_the_end_is_that_of_the_last_objects(steps: list[tuple[str, str, int]]) -> None:
    world = World()
    for what, name, number in steps:
        world.change(what, name, number)
    world.pass_time(2 * LOOK_S + 20 * TIMING.backoff.longest_s)
    assert world.made == world.objects
    assert world.loop.health.problems == ()
    assert not any(first == second for first, second in pairwise(world.log.texts)), "something is said twice in a row"
    lines = [text for text in world.log.texts if text == "INFO well again"]
    assert len(lines) <= sum(is_failed for _, is_failed in world.passes)
    for (failed_at, is_failed), (next_at, _) in pairwise(world.passes):
        if is_failed:
            assert TIMING.backoff.first_s / 2 <= next_at - failed_at <= TIMING.backoff.longest_s


@given(st.lists(st.tuples(st.sampled_from("wpf"), st.floats(0, 5), st.floats(0, 0.999)), max_size=60))
def test_no_wake_up_is_lost_and_no_pass_comes_too_soon_or_too_late(steps: list[tuple[str, float, float]]) -> None:
    schedule, now, unseen, held_until, failed_at = Schedule.starting(TIMING, 0.0), 0.0, 0, 0.0, float("-inf")
    for what, seconds, chance in steps:
        now += seconds
        if what == "w":
            schedule, unseen = schedule.waken(now), unseen + 1
            due_at = schedule.due_at
            assert due_at is not None
            assert due_at <= max(now + TIMING.gather_s, failed_at + TIMING.backoff.first_s)
        elif schedule.due_at is not None:
            now = max(now, schedule.due_at)
            assert now >= held_until
            begun = schedule.begin(now)
            assert (begun.due_at, begun.woken, schedule.woken) == (None, 0, unseen)
            unseen = 0
            schedule = begun.end(Outcome(is_failed=what == "f"), now, chance=chance)
            if what == "f":
                held_until, failed_at = now + TIMING.backoff.first_s / 2, now
            assert (schedule.due_at is None) == (what == "p")


@given(st.integers(1, 10**6), st.floats(0, 0.999), st.floats(0.001, 60), st.floats(60, 3600))
def test_a_pause_is_within_its_bounds(failures: int, chance: float, first_s: float, longest_s: float) -> None:
    backoff = Backoff(first_s=first_s, longest_s=longest_s)
    assert first_s / 2 <= backoff.delay_s(failures, chance=chance) <= longest_s
    assert backoff.delay_s(failures, chance=chance) <= backoff.delay_s(failures + 1, chance=chance)


@given(st.integers(1, 3 * MAX_GATHERED))
def test_a_burst_is_one_pass(count: int) -> None:
    world = World()
    world.loop.run_due()
    for _ in range(count):
        world.loop.wake()
    world.pass_time(1.0)
    assert len(world.passes) == 2
