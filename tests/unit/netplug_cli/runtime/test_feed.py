"""A datastore is opened once for all controllers of a process, and followed from one watch to the next."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Barrier, Lock, Thread

import pytest
from attrs import define, field

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.runtime.feed import OpenedOnce, StoreFeed
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.view import View
from netplug_core.errors import Unavailable
from netplug_core.ipam.model import BLOCK
from netplug_core.reconcile.controller import Backoff
from netplug_core.records import Kind, NotSupported, Query, Revision, Snapshot, WatchEvent, WatchExpired
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.node_server import Lines

ETCD, SQLITE = DatastoreSettings(type="etcdv3"), DatastoreSettings(type="sqlite")


@define
class Openings:
    """Counts what is opened and closed; ``problems`` are raised in that order in place of the next openings."""

    problems: list[Exception] = field(factory=list)
    opened: list[str] = field(factory=list)
    closed: list[str] = field(factory=list)

    @contextmanager
    def open(self, settings: DatastoreSettings) -> Iterator[Datastore]:
        if self.problems:
            raise self.problems.pop(0)
        self.opened.append(settings.type)
        yield MemoryDatastore(clock=ManualClock())
        self.closed.append(settings.type)


def test_who_opens_a_datastore_that_is_open_uses_that_one() -> None:
    openings = Openings()
    once = OpenedOnce(openings.open)
    with once.open(ETCD) as first:
        with once.open(ETCD) as second, once.open(SQLITE) as other:
            assert (second, openings.opened) == (first, ["etcdv3", "sqlite"])
            assert other is not first
        assert openings.closed == ["sqlite"], "it is closed by its last user"
    assert openings.closed == ["sqlite", "etcdv3"]
    with once.open(ETCD) as third:
        assert third is not first


def test_the_last_user_closes_it_and_not_the_one_that_opened_it() -> None:
    openings = Openings()
    once = OpenedOnce(openings.open)
    first, second = once.open(ETCD), once.open(ETCD)
    store = first.__enter__()
    assert second.__enter__() is store
    first.__exit__(None, None, None)
    assert openings.closed == []
    second.__exit__(None, None, None)
    assert openings.closed == ["etcdv3"]


def test_an_error_is_that_of_who_opens_and_the_next_one_tries_again() -> None:
    openings = Openings(problems=[Unavailable("etcd", "away")])
    once = OpenedOnce(openings.open)
    with pytest.raises(Unavailable), once.open(ETCD):
        pass
    with once.open(ETCD):
        assert openings.opened == ["etcdv3"]


def test_threads_that_open_it_at_once_share_it() -> None:
    openings, found = Openings(), list[Datastore]()
    once, barrier = OpenedOnce(openings.open), Barrier(4)

    def use() -> None:
        barrier.wait()
        with once.open(ETCD) as store:
            found.append(store)
            barrier.wait()

    threads = [Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1
    assert (openings.opened, openings.closed) == (["etcdv3"], ["etcdv3"])


# --- following --------------------------------------------------------------------------------------------------------

FRUIT: Kind[object] = Kind("Fruit", ("name",))


class Forgetful(MemoryDatastore):
    """A store that has forgotten the changes of so many watches."""

    expiries: int = 0

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        if self.expiries:
            self.expiries -= 1
            raise WatchExpired(start[FRUIT])
        return super().watch(start, deadline=deadline)


@pytest.mark.parametrize("expiries, failures", [(0, 0), (1, 0), (2, 1)])
def test_an_expired_watch_is_begun_again_at_once_and_a_second_one_in_a_row_is_a_failure(
    expiries: int, failures: int
) -> None:
    clock, log = ManualClock(), Lines()
    store = Forgetful(clock=clock)
    store.expiries = expiries
    feed = StoreFeed(
        name="feed",
        what="fruit",
        kinds=(FRUIT,),
        view=View(clock=clock, uncached_kinds=frozenset(), guard=Lock()),
        read_datastore=lambda: ETCD,
        open_datastore=lambda _settings: nullcontext(store),
        clock=clock,
    )
    DrivenControllers((feed.controller(),), clock=clock, log=log).pass_time(100.0)
    assert sum(text.startswith("WARNING fruit cannot be followed") for text in log.texts) == failures
    assert sum(text.startswith("INFO fruit are followed again") for text in log.texts) == failures
    assert feed.view.has_listed((FRUIT,))


@pytest.mark.parametrize("backoff, is_soon", [(Backoff(longest_s=10.0), True), (Backoff(), False)])
def test_after_an_outage_the_store_is_followed_as_soon_as_its_processes_allow(
    backoff: Backoff, *, is_soon: bool
) -> None:
    clock, away = ManualClock(), ["away"]

    def open_datastore(_settings: DatastoreSettings) -> AbstractContextManager[Datastore]:
        if away:
            raise Unavailable("fruit", "it does not answer")
        return nullcontext(MemoryDatastore(clock=clock))

    feed = StoreFeed(
        name="feed",
        what="fruit",
        kinds=(FRUIT,),
        view=View(clock=clock, uncached_kinds=frozenset(), guard=Lock()),
        read_datastore=lambda: ETCD,
        open_datastore=open_datastore,
        clock=clock,
        backoff=backoff,
    )
    driven = DrivenControllers((feed.controller(),), clock=clock, log=Lines())
    driven.pass_time(580.0)
    away.clear()
    driven.pass_time(10.0)
    assert feed.view.has_listed((FRUIT,)) is is_soon
    driven.pass_time(60.0)
    assert feed.view.has_listed((FRUIT,))


class WithoutBlocks(MemoryDatastore):
    """A store of a cluster that assigns no addresses: the kinds of the allocator are refused."""

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        for query in queries:
            if query.kind == BLOCK:
                raise NotSupported("storing", query.kind, "addresses come from pod CIDRs")
        return super().read(queries, deadline=deadline)


@pytest.mark.parametrize("uses_pod_cidr", [True, False])
def test_records_of_the_allocator_are_not_followed_where_pod_cidrs_take_their_place(*, uses_pod_cidr: bool) -> None:
    clock, log = ManualClock(), Lines()
    store = WithoutBlocks(clock=clock) if uses_pod_cidr else MemoryDatastore(clock=clock)
    access = KubernetesAccess(uses_pod_cidr=uses_pod_cidr)
    feed = StoreFeed(
        name="feed",
        what="fruit and blocks",
        kinds=(FRUIT, BLOCK),
        view=View(clock=clock, uncached_kinds=frozenset(), guard=Lock()),
        read_datastore=lambda: DatastoreSettings(type="kubernetes", kubernetes=access),
        open_datastore=lambda _settings: nullcontext(store),
        clock=clock,
    )
    assert not feed.has_listed()
    DrivenControllers((feed.controller(),), clock=clock, log=log).pass_time(100.0)
    assert feed.uses_pod_cidrs is uses_pod_cidr
    assert feed.has_listed()
    assert feed.view.has_listed((BLOCK,)) is not uses_pod_cidr
    assert log.texts == []
