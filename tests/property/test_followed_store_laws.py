"""A controller that reads a followed store makes what the last records say, whatever happens on the way.

Laws, for any commits of others, watches that end early, are cut, have lost their history or deliver again what they
had delivered, reads that fail, stores that are opened anew, and actions that fail:

- once nothing changes and nothing fails any more, what is there is what the last records say;
- nothing is removed before every input was listed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from threading import Lock

from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.runtime.feed import FOLLOW_S, StoreFeed
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.view import View
from netplug_core.errors import Unavailable
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Timing
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Query,
    Revision,
    Snapshot,
    Update,
    WatchEvent,
    WatchExpired,
)
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.node_server import Lines

FRUIT: Kind[str] = Kind("Fruit", ("name",))
TOOL: Kind[str] = Kind("Tool", ("name",))
KINDS = (FRUIT, TOOL)
KEYS = tuple(kind.key(name) for kind in KINDS for name in "ab")
LOOK_S = 60.0
QUIET_S = 10 * FOLLOW_S  # longer than every pause after failures

Action = tuple[Key[object], str | None]

DISTURBANCES = ("end", "cut", "expire", "repeat", "fail read", "fail act")

steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, len(KEYS) - 1), st.sampled_from("xyz")),
        st.tuples(st.just("delete"), st.integers(0, len(KEYS) - 1), st.just("")),
        st.tuples(st.sampled_from(DISTURBANCES), st.just(0), st.just("")),
        st.tuples(st.just("other settings"), st.just(0), st.just("")),
        st.tuples(st.just("pass time"), st.integers(1, 100), st.just("")),
    ),
    max_size=30,
)


class DisturbedStore(MemoryDatastore):
    """A store that does once what is said of its next watch or read."""

    disturbance: str = ""
    first: Mapping[Kind[object], Revision] | None = None

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        if self.take("fail read"):
            raise Unavailable("the store", "away")
        return super().read(queries, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        if self.take("expire"):
            raise WatchExpired(next(iter(start.values())))
        self.first = start if self.first is None or set(self.first) != set(start) else self.first
        begin = self.first if self.take("repeat") else start
        if self.take("end"):
            yield from islice(super().watch(begin, deadline=deadline), 1)
            return
        yield from super().watch(begin, deadline=deadline)
        if self.take("cut"):
            raise Unavailable("the store", "the watch was cut")

    def take(self, disturbance: str) -> bool:
        is_it = self.disturbance == disturbance
        if is_it:
            self.disturbance = ""
        return is_it


@define
class Scene:
    """A store, what follows it, and a controller that makes a copy of its records."""

    clock: ManualClock = field(factory=ManualClock)
    made: dict[Key[object], str] = field(factory=dict)
    settings: DatastoreSettings = field(factory=DatastoreSettings)
    fails_act: bool = False
    store: DisturbedStore = field(init=False)
    view: View = field(init=False)
    driven: DrivenControllers = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.store = DisturbedStore(clock=self.clock)
        self.made = {KEYS[0]: "left by an earlier process", FRUIT.key("gone"): "too"}
        self.view = View(clock=self.clock, uncached_kinds=frozenset(), guard=Lock())
        feed = StoreFeed(
            name="feed",
            what="records",
            kinds=KINDS,
            view=self.view,
            read_datastore=lambda: self.settings,
            open_datastore=self.open,
            clock=self.clock,
        )
        copy = Controller(
            name="copy",
            observe=lambda _deadline: None,
            plan=self.plan,
            act=self.act,
            failure="not copied",
            inputs=frozenset(KINDS),
            timing=Timing(backoff=Backoff(first_s=1.0, longest_s=8.0)),
        )
        self.driven = DrivenControllers((feed.controller(), copy), clock=self.clock, log=Lines())
        self.view.on_change = lambda _kind: self.driven.loops[1].wake()

    def open(self, _settings: DatastoreSettings) -> AbstractContextManager[Datastore]:
        return nullcontext(self.store)

    def plan(self, _state: None) -> Plan[Action]:
        if not self.view.has_listed(KINDS):
            return Plan(look_again_s=LOOK_S)
        wanted = {record.key: str(record.value) for kind in KINDS for record in self.view.list(kind)}
        removed: list[Action] = [(key, None) for key in self.made if key not in wanted]
        written: list[Action] = [(key, value) for key, value in wanted.items() if self.made.get(key) != value]
        return Plan(actions=(*removed, *written), look_again_s=LOOK_S)

    def act(self, action: Action, _deadline: Deadline) -> None:
        if self.fails_act:
            self.fails_act = False
            raise Unavailable("the kernel", "busy")
        key, value = action
        if value is None:
            assert self.view.has_listed(KINDS), "removed before every input was listed"
            del self.made[key]
        else:
            self.made[key] = value

    def write(self, key: Key[str], value: str) -> None:
        deadline = Deadline.after(self.clock, 1.0)
        found = MemoryDatastore.read(self.store, (Get(key),), deadline=deadline).find(key)
        if value:
            self.store.commit(
                [Create(key, value) if found is None else Update(key, value, found.revision)], deadline=deadline
            )
        elif found is not None:
            self.store.commit([Delete(key, found.revision)], deadline=deadline)

    def do(self, step: str, number: int, value: str) -> None:
        match step:
            case "set" | "delete":
                self.write(KEYS[number], value)
            case "pass time":
                self.driven.pass_time(number)
            case "fail act":
                self.fails_act = True
            case "other settings":
                self.settings = DatastoreSettings(sqlite_path=f"/{self.clock.elapsed_ns}")
            case _:
                self.store.disturbance = step

    def stored(self) -> dict[Key[object], object]:
        read = MemoryDatastore.read(
            self.store, [List(kind) for kind in KINDS], deadline=Deadline.after(self.clock, 1.0)
        )
        return {record.key: record.value for kind in KINDS for record in read.readable(List(kind))}


@given(steps)
def test_what_is_made_is_what_the_last_records_say(script: list[tuple[str, int, str]]) -> None:
    scene = Scene()
    for step in script:
        scene.do(*step)
    scene.driven.pass_time(QUIET_S)
    assert scene.made == scene.stored()


def test_what_an_earlier_process_left_stays_until_everything_is_listed() -> None:
    scene = Scene()
    scene.store.disturbance = "fail read"
    left = dict(scene.made)
    scene.driven.pass_time()
    assert scene.made == left
    scene.driven.pass_time(QUIET_S)
    assert scene.made == {}
