"""What is known of open datastores: how their calls ended, and when they answered."""

import pytest
from attrs import define, field

from netplug_cli.node.stores import CHECK_S, STALE_S, DatastoreState, OpenDatastores
from netplug_core.clock import Deadline
from netplug_core.errors import Unauthorized, Unavailable, UnusableFile
from netplug_core.records import AlreadyExists, Create, Get, Kind
from netplug_core.testing.clock import ManualClock
from tests.harness.observed_stores import SlowDatastore

FRUIT: Kind[str] = Kind("Fruit", ("name",))
APPLE = FRUIT.key("apple")


@define
class Scene:
    """Open datastores, and the calls that were noted."""

    clock: ManualClock = field(factory=ManualClock)
    noted: list[tuple[tuple[str, str], str, str, float]] = field(factory=list)
    datastores: OpenDatastores = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.datastores = OpenDatastores(self.clock, lambda *call: self.noted.append(call))

    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 60)


def state(answered_s: float | None, failure: str = "") -> DatastoreState:
    return DatastoreState(name="memory", location="this process", answered_s=answered_s, failure=failure)


def test_each_call_is_noted_with_its_outcome_and_its_time() -> None:
    scene = Scene()
    inner = SlowDatastore.make(scene.clock, takes_s=0.5)
    with scene.datastores.measured(inner) as store:
        store.commit([Create(APPLE, "red")], deadline=scene.deadline())
        with pytest.raises(AlreadyExists):
            store.commit([Create(APPLE, "red")], deadline=scene.deadline())
        store.read([Get(APPLE)], deadline=scene.deadline())
    name = ("memory", "this process")
    assert scene.noted == [
        (name, "commit", "ok", 0.5),
        (name, "commit", "AlreadyExists", 0.5),
        (name, "read", "ok", 0.5),
    ]


def test_a_datastore_is_known_while_it_is_open() -> None:
    scene = Scene()
    with scene.datastores.measured(SlowDatastore.make(scene.clock)) as first:
        with scene.datastores.measured(SlowDatastore.make(scene.clock)):
            first.read([], deadline=scene.deadline())
            scene.clock.sleep(3)
            assert scene.datastores.states() == (state(3), state(None))
        assert scene.datastores.states() == (state(3),)
    assert scene.datastores.states() == ()


@pytest.mark.parametrize(
    "error,failure",
    [
        (Unavailable("etcd", "no answer"), "Unavailable"),
        (Unauthorized("etcd", "no"), "Unauthorized"),
        (UnusableFile("sqlite_path", "/a.db", "a file is expected"), "UnusableFile"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (AlreadyExists(APPLE), ""),
    ],
)
def test_an_error_that_is_no_answer_is_a_failure_until_the_next_answer(error: Exception, failure: str) -> None:
    scene = Scene()
    inner = SlowDatastore.make(scene.clock)
    with scene.datastores.measured(inner) as store:
        store.read([], deadline=scene.deadline())
        scene.clock.sleep(1)
        inner.failure = error
        with pytest.raises(type(error)):
            store.read([], deadline=scene.deadline())
        (found,) = scene.datastores.states()
        assert (found.failure, found.answered_s) == (failure, 1 if failure else 0)
        assert found.does_answer == (not failure)
        inner.failure = None
        store.read([], deadline=scene.deadline())
        assert scene.datastores.states() == (state(0),)


def test_a_check_asks_those_that_have_not_answered_lately() -> None:
    scene = Scene()
    old, new = SlowDatastore.make(scene.clock), SlowDatastore.make(scene.clock)
    with scene.datastores.measured(old), scene.datastores.measured(new) as used:
        assert scene.datastores.check() == (state(0), state(0))
        scene.clock.sleep(STALE_S + 1)
        used.read([], deadline=scene.deadline())
        asked = (old.asked, new.asked)
        assert scene.datastores.check() == (state(0), state(0))
        assert (old.asked, new.asked) == (asked[0] + 1, asked[1])


def test_a_check_finds_one_that_fails_and_one_that_answers_again() -> None:
    scene = Scene()
    inner = SlowDatastore.make(scene.clock)
    with scene.datastores.measured(inner):
        inner.failure = Unavailable("etcd", "no answer")
        assert scene.datastores.check() == (state(None, "Unavailable"),)
        inner.failure = None
        assert scene.datastores.check() == (state(0),)


def test_a_check_takes_no_longer_than_it_may() -> None:
    scene = Scene()
    slow, behind = SlowDatastore.make(scene.clock, takes_s=CHECK_S + 1), SlowDatastore.make(scene.clock)
    with scene.datastores.measured(slow), scene.datastores.measured(behind):
        _first, second = scene.datastores.check()
        assert behind.asked == 0
        assert not second.does_answer
