"""The cache of a node process follows its datastore, also after a watch was cut."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from threading import Event, Lock
from typing import NoReturn

from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_cli.node.stores import NODE_NAMED, CacheFeed, CacheRefresh, EndpointFeed, SharedDatastore
from netplug_cli.runtime.controllers import Runtime
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import FRESH_S, EndpointStorage
from netplug_core.datastore.view import View
from netplug_core.errors import Unavailable
from netplug_core.flows.ipam.cache import make_node_cache
from netplug_core.records import Create, Get, Kind, NotSupported, Query, Revision, Update, WatchEvent, WatchExpired
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPOOL, IPRESERVATION, IPPool, IPReservation, ipreservation_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.testing.clock import ManualClock, RealClock
from netplug_core.testing.faults import DamagedDatastore
from tests.harness.node_server import Lines
from tests.harness.waiting import wait_until

FRUIT: Kind[str] = Kind("Fruit", ("name",))
TOOL: Kind[str] = Kind("Tool", ("name",))
APPLE = FRUIT.key("apple")
SAW = TOOL.key("saw")


@contextmanager
def running(feed: CacheFeed | CacheRefresh, log: Lines) -> Iterator[Runtime]:
    """The controller runs, and pauses in real time."""
    runtime = Runtime((feed.controller,), clock=RealClock(), log=log)
    if isinstance(feed, EndpointFeed):
        feed.on_node = partial(runtime.wake, NODE_NAMED)
    with runtime.running():
        yield runtime


class CutStore(MemoryDatastore):
    """A store whose watches last until ``cut`` is set, and then fail with ``failure`` if there is one.

    Each delivers the changes that there are when it begins.
    """

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.cut, self.watching = Event(), Event()
        self.failure: Exception | None = None

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        self.watching.set()
        is_over = False
        while not is_over:
            is_over = self.cut.is_set() or deadline.has_passed
            for event in super().watch(start, deadline=Deadline(deadline.clock, 0.0)):
                start = {**start, event.key.kind: event.revision}
                yield event
        if self.failure is not None:
            raise self.failure


class Scene:
    """A store with a fruit and a tool, and a cache of it of which the fruits are followed."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store, self.log = CutStore(self.clock), Lines()
        self.cache = View.for_datastore(self.store, clock=self.clock, uncached_kinds=frozenset())
        self.store.commit((Create(APPLE, "green"), Create(SAW, "sharp")), deadline=self.deadline)

    @contextmanager
    def followed(self) -> Iterator[None]:
        feed = CacheFeed(self.store, self.cache, (FRUIT,), pause_s=0.001)
        with running(feed, self.log):
            yield
            self.store.cut.set()

    @property
    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 5)

    @property
    def cached(self) -> str | None:
        """The value of the fruit that the cache knows."""
        snapshot = self.cache.lookup((Get(APPLE),)).snapshot
        record = snapshot.find(APPLE) if snapshot.has(Get(APPLE)) else None
        return None if record is None else record.value

    def change(self, value: str) -> None:
        found = self.store.read((Get(APPLE),), deadline=self.deadline).find(APPLE)
        assert found is not None
        self.store.commit((Update(APPLE, value, found.revision),), deadline=self.deadline)


def test_a_change_of_another_process_reaches_the_cache() -> None:
    scene = Scene()
    with scene.followed():
        wait_until(lambda: scene.cached == "green", "the list is read")
        scene.change("red")
        wait_until(lambda: scene.cached == "red", "the change is delivered")
    assert scene.log.texts == []


def test_after_a_failure_everything_is_forgotten_and_followed_again() -> None:
    scene = Scene()
    scene.store.failure = Unavailable("the store", "the connection was lost")
    scene.cache.add_snapshot(scene.store.read((Get(SAW),), deadline=scene.deadline))
    with scene.followed():
        wait_until(lambda: scene.cached == "green", "the list is read")
        scene.store.cut.set()
        wait_until(lambda: scene.log.texts != [], "the failure is logged")
        assert scene.cache.lookup((Get(SAW),)).missing == (Get(SAW),)
        scene.change("red")
        scene.store.failure = None
        wait_until(lambda: len(scene.log.texts) > 1, "the watch goes on")
        wait_until(lambda: scene.cached == "red", "the change is read or delivered")
    first, *_, last = scene.log.texts
    assert first.startswith("WARNING the changes of the datastore cannot be followed; calls read what they need")
    assert last.startswith("INFO the changes of the datastore are followed again")


class ForgetfulStore(MemoryDatastore):
    """A store of which each watch ends at once; of ``every`` watches the last one expires."""

    def __init__(self, clock: ManualClock, every: int) -> None:
        super().__init__(clock=clock)
        self.every, self.watches = every, 0

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        self.watches += 1
        if self.watches % self.every == 0:
            raise WatchExpired(next(iter(start.values())))
        return super().watch(start, deadline=Deadline(deadline.clock, 0.0))


def test_changes_that_the_store_forgets_now_and_then_are_listed_again_without_a_word() -> None:
    """A store keeps its last changes only. Those of a kind that seldom changes may all be older when a watch starts."""
    clock, log = ManualClock(), Lines()
    store = ForgetfulStore(clock, every=2)
    cache = View.for_datastore(store, clock=clock, uncached_kinds=frozenset())
    with running(CacheFeed(store, cache, (FRUIT,)), log):
        wait_until(lambda: store.watches > 10, "it is watched again and again")
    assert log.texts == []


def test_a_store_that_forgets_changes_at_once_is_a_failure() -> None:
    clock, log = ManualClock(), Lines()
    store = ForgetfulStore(clock, every=1)
    cache = View.for_datastore(store, clock=clock, uncached_kinds=frozenset())
    with running(CacheFeed(store, cache, (FRUIT,), pause_s=0.001), log):
        wait_until(lambda: log.texts != [], "the failure is logged")
    assert store.watches > 1
    assert log.texts[0].startswith("WARNING the changes of the datastore cannot be followed; calls read what they need")


def test_a_fault_of_the_program_is_logged_and_not_the_end() -> None:
    scene = Scene()
    scene.store.failure = ZeroDivisionError()
    with scene.followed():
        scene.store.cut.set()
        wait_until(lambda: scene.log.texts != [], "the fault is logged")
        scene.store.failure = None
        wait_until(lambda: scene.log.texts[-1].startswith("INFO"), "the watch goes on")
    assert scene.log.texts[0].startswith("ERROR cache feed: an unexpected error\nTraceback ")


def test_a_watch_that_waits_ends_with_the_process() -> None:
    scene = Scene()
    with running(CacheFeed(scene.store, scene.cache, (FRUIT,)), scene.log) as runtime:
        assert scene.store.watching.wait(60)
    wait_until(lambda: not runtime.are_alive, "the thread has ended")


def test_a_store_that_does_not_have_the_kinds_is_not_followed() -> None:
    """Where another IPAM assigns the addresses."""

    class WithoutPools(MemoryDatastore):
        def read(self, queries: Sequence[Query], *, deadline: Deadline) -> NoReturn:
            del deadline
            raise NotSupported("storing", queries[0].kind, "another IPAM assigns the addresses")

    clock, log = ManualClock(), Lines()
    store = WithoutPools(MemoryMode.ORDERED, clock=clock)
    cache = View.for_datastore(store, clock=clock, uncached_kinds=frozenset())
    feed = CacheFeed(store, cache, (FRUIT,))
    with running(feed, log) as runtime:
        wait_until(lambda: runtime.healths[0].succeeded_s is not None, "it was tried once")
        assert runtime.healths[0].busy_s is None
    assert log.texts == []


def test_a_live_watch_is_closed_with_the_process() -> None:
    class Live:
        def __init__(self) -> None:
            self.closed = Event()

        def __iter__(self) -> Iterator[WatchEvent[object]]:
            return self

        def __next__(self) -> WatchEvent[object]:
            self.closed.wait(60)
            raise StopIteration

        def current_until_s(self, kind: Kind[object]) -> float | None:
            raise AssertionError(kind)

        def close(self) -> None:
            self.closed.set()

    class LiveStore(MemoryDatastore):
        def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
            del start, deadline
            return watch

    clock, watch = ManualClock(), Live()
    store = LiveStore(MemoryMode.ORDERED, clock=clock)
    cache = View.for_datastore(store, clock=clock, uncached_kinds=frozenset())
    with running(CacheFeed(store, cache, (FRUIT,)), Lines()) as runtime:
        wait_until(lambda: cache.watch is watch, "the watch is open")
    assert watch.closed.is_set()
    wait_until(lambda: not runtime.are_alive, "the thread has ended")


def test_a_shared_store_is_followed_while_it_is_open() -> None:
    clock = ManualClock()
    store, log = CutStore(clock), Lines()
    shared = SharedDatastore.of(store, clock)
    cache = shared.cache
    with shared.fed(log):
        wait_until(lambda: len(cache.watched) == 4, "pools, reservations, configuration and readiness are known")
        store.cut.set()
    assert log.texts == []


# --- what calls use is read again ----------------------------------------------------------------------------------


class RefreshScene:
    """An ordered store, and a process that reads again what calls use of it."""

    def __init__(self) -> None:
        self.clock, self.log = ManualClock(), Lines()
        self.store = MemoryDatastore(MemoryMode.ORDERED, clock=self.clock)
        self.store.commit((Create(APPLE, "green"),), deadline=self.deadline)
        self.cache = View.for_datastore(self.store, clock=self.clock, uncached_kinds=frozenset())
        self.refresh = CacheRefresh(self.store, self.cache)

    @property
    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 5)

    def read(self) -> None:
        self.cache.read(self.store, (Get(APPLE),), deadline=self.deadline)

    def use(self) -> str | None:
        """What a call decides on: the fruit that it knows; None if it has to read it."""
        known = self.cache.lookup((Get(APPLE),))
        record = None if known.missing else known.snapshot.find(APPLE)
        return None if record is None else record.value


def test_what_a_call_has_used_is_read_again_in_the_background() -> None:
    scene = RefreshScene()
    scene.read()
    reads = scene.store.calls.reads
    assert scene.use() == "green"
    scene.clock.sleep(FRESH_S)
    with running(scene.refresh, scene.log):
        wait_until(lambda: scene.store.calls.reads > reads, "it is read again")
        wait_until(lambda: scene.use() == "green", "the next call knows it")


def test_what_no_call_uses_is_never_read_and_the_process_ends_at_once() -> None:
    scene = RefreshScene()
    scene.read()
    scene.clock.sleep(FRESH_S)
    reads = scene.store.calls.reads
    with running(scene.refresh, scene.log) as runtime:
        wait_until(lambda: runtime.healths[0].succeeded_s is not None, "it waits for calls")
    wait_until(lambda: not runtime.are_alive, "the thread has ended")
    assert scene.store.calls.reads == reads


def test_what_cannot_be_read_again_is_left_to_the_next_call() -> None:
    scene = RefreshScene()

    class Away(MemoryDatastore):
        def read(self, queries: Sequence[Query], *, deadline: Deadline) -> NoReturn:
            del queries, deadline
            raise Unavailable("the store", "away")

    scene.read()
    scene.use()
    scene.clock.sleep(FRESH_S + 1)
    with running(CacheRefresh(Away(clock=scene.clock), scene.cache), scene.log):
        wait_until(lambda: scene.log.texts != [], "it is tried")
    assert scene.log.texts[0].startswith("DEBUG what calls use could not be read again")
    assert scene.use() is None


# --- the endpoints of a node -------------------------------------------------------------------------------------

WEB = WORKLOAD_ENDPOINT.key("shop", "web")


class EndpointWatch:
    """The endpoints of a node as a test delivers them. ``None`` ends it, an error breaks it."""

    def __init__(self) -> None:
        self.events: SimpleQueue[WatchEvent[object] | Exception | None] = SimpleQueue()

    def __iter__(self) -> Iterator[WatchEvent[object]]:
        return self

    def __next__(self) -> WatchEvent[object]:
        event = self.events.get(timeout=60)
        if event is None:
            raise StopIteration
        if isinstance(event, Exception):
            raise event
        return event

    def current_until_s(self, kind: Kind[object]) -> float | None:
        raise AssertionError(kind)

    def close(self) -> None:
        self.events.put(None)


class PodStore(MemoryDatastore):
    """A store whose endpoints are views of pods."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(MemoryMode.ORDERED, clock=clock)
        self.description = evolve(self.description, endpoints=EndpointStorage.PODS)
        self.endpoints = EndpointWatch()
        self.nodes: list[str] = []

    def watch_endpoints(self, node: str, *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        del deadline
        self.nodes.append(node)
        return self.endpoints


class PodScene:
    """Such a store, and a feed of the endpoints of the first node that it is told."""

    def __init__(self) -> None:
        self.clock, self.log = ManualClock(), Lines()
        self.store = PodStore(self.clock)
        self.cache = make_node_cache(self.store, clock=self.clock, guard=Lock())
        self.feed = EndpointFeed(self.store, self.store, self.cache, pause_s=0.001)

    def deliver(self, value: object | None, revision: str) -> None:
        self.store.endpoints.events.put(WatchEvent(WEB, value, Revision(revision)))

    @property
    def known(self) -> tuple[object, Revision] | None:
        """The endpoint that the cache knows, and its revision."""
        snapshot = self.cache.lookup((Get(WEB),)).snapshot
        record = snapshot.find(Get(WEB)) if snapshot.has(Get(WEB)) else None
        return None if record is None else (record.value, record.revision)


def test_the_endpoints_of_the_first_node_are_known_as_they_are() -> None:
    scene = PodScene()
    with running(scene.feed, scene.log):
        assert scene.cache.endpoint_watch is None
        for node in ("", "worker-1", "worker-1", "worker-2"):
            scene.feed.follow_node(node)
        scene.deliver("new", "u/1")
        wait_until(lambda: scene.known == ("new", "u/1"), "the endpoint is known")
        scene.deliver("changed", "u/2")
        wait_until(lambda: scene.known == ("changed", "u/2"), "the change is known")
        scene.deliver(None, "u/3")
        wait_until(lambda: scene.known is None, "the pod is gone")
    assert set(scene.store.nodes) == {"worker-1"}
    assert scene.cache.endpoint_watch is None


def test_endpoints_are_forgotten_when_their_watch_breaks_and_known_again_afterwards() -> None:
    scene = PodScene()
    with running(scene.feed, scene.log):
        scene.feed.follow_node("worker-1")
        scene.deliver("new", "u/1")
        wait_until(lambda: scene.known is not None, "the endpoint is known")
        scene.store.endpoints.events.put(Unavailable("the server", "the connection was lost"))
        wait_until(lambda: scene.known is None, "it is forgotten")
        wait_until(lambda: len(scene.store.nodes) > 1, "they are followed again")
        scene.deliver("new", "u/2")
        wait_until(lambda: scene.known == ("new", "u/2"), "the endpoint is known again")
        scene.store.endpoints.close()
        wait_until(lambda: len(scene.log.texts) > 1, "the watch has ended as it should")
    first, last = scene.log.texts[0], scene.log.texts[-1]
    assert first.startswith("WARNING the pods of the node cannot be followed; calls read what they need")
    assert last.startswith("INFO the pods of the node are followed again")


def test_a_feed_without_a_node_ends_with_the_process() -> None:
    scene = PodScene()
    with running(scene.feed, scene.log):
        pass
    scene.feed.follow_node("worker-1")
    assert scene.store.nodes == []


def test_a_shared_datastore_that_shows_pods_is_fed_with_the_endpoints_of_its_node() -> None:
    clock, log = ManualClock(), Lines()
    store = PodStore(clock)
    with SharedDatastore.of(store, clock, store).fed(log) as shared:
        assert shared.endpoints is not None
        shared.endpoints.follow_node("worker-1")
        wait_until(lambda: shared.cache.endpoint_watch is not None, "the endpoints are followed")
    with SharedDatastore.of(MemoryDatastore(clock=clock), clock).fed(log) as shared:
        assert shared.endpoints is None


def test_a_kind_with_a_damaged_record_is_followed_once_it_is_repaired() -> None:
    clock = ManualClock()
    store, log = CutStore(clock), Lines()
    pool = IPPool.for_prefix(Prefix.parse("10.0.0.0/24"), name="main")
    reservation = IPReservation(metadata=Metadata(name="r"))
    writes = (Create(pool.key, pool), Create(ipreservation_key("r"), reservation))
    store.commit(writes, deadline=Deadline.after(clock, 5))
    damaged = DamagedDatastore(store, damage={pool.key: b"{"})
    cache = View.for_datastore(damaged, clock=clock, uncached_kinds=frozenset())
    with running(CacheFeed(damaged, cache, (IPPOOL, IPRESERVATION), pause_s=0.001), log):
        wait_until(lambda: cache.watched.keys() == {IPRESERVATION}, "the sound kind is followed")
        store.cut.set()
        wait_until(lambda: "IPPool(main) is malformed" in str(log.texts), "the damage is named")
        damaged.damage.clear()
        wait_until(lambda: cache.watched.keys() == {IPPOOL, IPRESERVATION}, "both are followed")
        wait_until(lambda: "are followed again" in str(log.texts), "it is said to be over")
    assert str(log.texts).count("cannot be followed") == 1
