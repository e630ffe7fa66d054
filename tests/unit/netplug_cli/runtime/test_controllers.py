"""Threads of controllers: passes, wake-ups, failures and the end."""

from threading import Event, Semaphore, active_count

import pytest
from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.runtime import controllers
from netplug_cli.runtime.controllers import Runtime
from netplug_core.clock import Deadline
from netplug_core.datastore.feed import follow
from netplug_core.datastore.view import View
from netplug_core.errors import Unavailable
from netplug_core.keys import Kind
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Problem, Source, Timing
from netplug_core.records import Revision, WatchEvent
from netplug_core.testing.clock import ManualClock, RealClock
from tests.harness.node_server import Lines
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until

FRUIT: Kind[object] = Kind("Fruit", ("name",))
KERNEL = Source("kernel")
SOON = Timing(backoff=Backoff(first_s=0.001, longest_s=0.001))


@define
class Scene:
    """A controller that counts its passes; each raises ``error``, if there is one, or waits for ``gate``."""

    name: str = "fruit"
    look_again_s: float | None = None
    error: Exception | None = None
    problems: tuple[Problem, ...] = ()
    actions: tuple[str, ...] = ("a",)
    passes: Semaphore = field(factory=lambda: Semaphore(0))
    done: list[str] = field(factory=list)
    gate: Event = field(factory=Event)

    def __attrs_post_init__(self) -> None:
        self.gate.set()

    def observe(self, _deadline: Deadline) -> Plan[str]:
        return Plan(actions=self.actions, look_again_s=self.look_again_s, problems=self.problems)

    def act(self, action: str, _deadline: Deadline) -> None:
        self.done.append(action)
        self.passes.release()
        assert self.gate.wait(EMERGENCY_STOP_S)
        if self.error is not None:
            raise self.error

    def controller(self) -> Controller[Plan[str], str]:
        return Controller(
            name=self.name, observe=self.observe, plan=lambda plan: plan, act=self.act, failure="no fruit",
            inputs=frozenset({FRUIT, KERNEL}), timing=SOON, recovered="fruit again", fields=(("tree", "apple"),),
        )  # fmt: skip

    def await_passes(self, count: int = 1) -> None:
        assert all(self.passes.acquire(timeout=EMERGENCY_STOP_S) for _ in range(count))


def runtime_of(*scenes: Scene, log: Lines | None = None) -> Runtime:
    return Runtime((scene.controller() for scene in scenes), clock=RealClock(), log=log or Lines())


def test_a_change_of_a_view_wakes_who_has_the_kind_as_an_input() -> None:
    fruit, tool = Scene(), Scene(name="tool")
    idle = evolve(tool.controller(), inputs=frozenset({KERNEL}))
    runtime = Runtime((fruit.controller(), idle), clock=RealClock(), log=Lines())
    clock = ManualClock()
    store = MemoryDatastore(clock=clock)
    view = View.for_datastore(store, clock=clock, uncached_kinds=frozenset())
    runtime.watch(view)
    with runtime.running():
        fruit.await_passes()
        tool.await_passes()
        follow(store, view, (FRUIT,), deadline=Deadline.after(clock, 1))
        fruit.await_passes()
        view.apply_event(WatchEvent(FRUIT.key("apple"), "green", Revision("7")), now_s=0.0)
        fruit.await_passes()
    assert (len(fruit.done), len(tool.done)) == (3, 1)


def test_a_step_that_waits_for_the_world_ends_with_the_process() -> None:
    scene = Scene()
    scene.gate.clear()
    waiting = evolve(scene.controller(), interrupt=scene.gate.set)
    runtime = Runtime((waiting,), clock=RealClock(), log=Lines())
    with runtime.running():
        scene.await_passes()
    wait_until(lambda: not runtime.are_alive, "the thread has ended")
    assert scene.done == ["a"]


def test_a_pass_comes_at_once_and_again_until_it_is_stopped() -> None:
    scene = Scene(look_again_s=0.001)
    runtime = runtime_of(scene)
    runtime.start()
    scene.await_passes(3)
    assert runtime.are_alive, "while it is not stopped"
    runtime.stop()
    before = len(scene.done)
    runtime.wake(FRUIT)
    assert (len(scene.done), runtime.are_alive) == (before, False)


@pytest.mark.parametrize("woken_by", [FRUIT, KERNEL])
def test_a_change_wakes_who_asked_for_it_and_nobody_else(woken_by: Kind[object] | Source) -> None:
    scene = Scene()
    runtime = runtime_of(scene)
    runtime.start()
    scene.await_passes()
    wait_until(lambda: runtime.healths[0].busy_s is None, "the first pass has ended")
    runtime.wake(Source("another"))
    runtime.wake(woken_by)
    scene.await_passes()
    runtime.stop()
    assert len(scene.done) == 2


def test_a_wake_up_during_a_pass_is_one_more_and_never_two_at_a_time() -> None:
    scene = Scene()
    scene.gate.clear()
    runtime = runtime_of(scene)
    runtime.start()
    scene.await_passes()
    for _ in range(500):
        runtime.wake(KERNEL)
    (health,) = runtime.healths
    assert (health.woken, scene.done) == (500, ["a"])
    assert health.busy_s is not None
    scene.gate.set()
    scene.await_passes()
    wait_until(lambda: runtime.healths[0].woken == 0, "all are seen")
    runtime.stop()
    assert scene.done == ["a", "a"]


def test_a_failure_is_said_once_and_so_is_its_end() -> None:
    scene, log = Scene(error=Unavailable("etcd", "away"), look_again_s=0.001), Lines()
    runtime = runtime_of(scene, log=log)
    runtime.start()
    scene.await_passes(4)
    assert runtime.healths[0].failures > 2
    scene.error = None
    wait_until(lambda: len(log.texts) > 1, "it has recovered")
    runtime.stop()
    assert log.texts == ["WARNING no fruit cause=etcd: away tree=apple", "INFO fruit again tree=apple"]


def test_an_unexpected_error_is_said_with_its_trace_and_not_the_end() -> None:
    scene, log = Scene(error=ZeroDivisionError()), Lines()
    runtime = runtime_of(scene, log=log)
    runtime.start()
    scene.await_passes(3)
    runtime.stop()
    (line,) = log.texts
    assert line.startswith("ERROR fruit: an unexpected error\nTraceback ")


def test_a_problem_without_a_cause_is_its_message() -> None:
    scene, log = Scene(problems=(Problem(message="the tree is bare"),)), Lines()
    runtime = runtime_of(scene, log=log)
    runtime.start()
    wait_until(lambda: bool(log.texts), "it is said")
    runtime.stop()
    assert log.texts == ["WARNING the tree is bare"]


def test_one_that_hangs_delays_no_other_one_and_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "STOP_S", 0.01)
    hanging, other = Scene(actions=("a", "b")), Scene(name="other", look_again_s=0.001)
    hanging.gate.clear()
    runtime = runtime_of(hanging, other)
    runtime.start()
    hanging.await_passes()
    other.await_passes(3)
    runtime.stop()
    assert runtime.healths[0].busy_s is not None
    hanging.gate.set()
    wait_until(lambda: runtime.healths[0].busy_s is None, "it ends by itself")
    assert hanging.done == ["a"], "no other action is begun"


def test_as_many_as_hang_delay_no_other_one() -> None:
    hanging = [Scene(name=f"hanging {number}") for number in range(10)]
    for each in hanging:
        each.gate.clear()
    other = Scene(name="other", look_again_s=0.001)
    runtime = runtime_of(*hanging, other)
    with runtime.running(stop_s=EMERGENCY_STOP_S):
        for each in hanging:
            each.await_passes()
        other.await_passes(3)
        for each in hanging:
            each.gate.set()
    assert runtime.has_ended


def test_short_passes_share_few_threads() -> None:
    scenes = [Scene(name=str(number)) for number in range(200)]
    runtime = runtime_of(*scenes)
    before = active_count()
    with runtime.running():
        for each in scenes:
            each.await_passes()
        assert active_count() - before < len(scenes) / 2
        runtime.wake(KERNEL)
        for each in scenes:
            each.await_passes()


def test_a_wake_up_that_is_not_gathered_is_not_kept_waiting_by_a_later_look() -> None:
    late = Scene(name="late", look_again_s=EMERGENCY_STOP_S)
    soon = evolve(late, name="soon", passes=Semaphore(0), gate=late.gate)
    controller = evolve(soon.controller(), timing=evolve(SOON, gather_s=0.0))
    runtime = Runtime((late.controller(), controller), clock=RealClock(), log=Lines())
    with runtime.running():
        for _ in range(3):
            soon.await_passes()
            runtime.wake(FRUIT)
        soon.await_passes()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_by_a_mistake_is_a_fault_and_the_others_go_on() -> None:
    broken, other = Scene(name="broken"), Scene(name="other", look_again_s=0.001)

    def note(name: str, _is_failed: object, _seconds: float) -> None:
        if name == "broken":
            raise ZeroDivisionError(name)

    runtime = Runtime((broken.controller(), other.controller()), clock=RealClock(), log=Lines(), note_pass=note)
    with runtime.running():
        wait_until(lambda: not runtime.are_alive, "the thread has ended")
        other.await_passes(3)


def test_a_runtime_that_was_not_started_can_be_stopped() -> None:
    scene = Scene()
    runtime = runtime_of(scene)
    runtime.stop()
    assert (runtime.names, scene.done, runtime.are_alive) == (("fruit",), [], False)


def test_two_controllers_have_two_names() -> None:
    with pytest.raises(ValueError, match="controllers have the same name: fruit, fruit"):
        runtime_of(Scene(), Scene())
