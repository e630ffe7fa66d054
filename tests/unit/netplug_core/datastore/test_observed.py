"""A store whose calls are observed answers as the one behind it; what observes a call sees its error."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from attrs import define, field

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline
from netplug_core.datastore.dry_run import DryRunDatastore
from netplug_core.datastore.protocol import CommitCall, DatastoreCall, ObservedDatastore, ReadCall, ReadReport
from netplug_core.errors import DatastoreError
from netplug_core.records import AlreadyExists, Create, Get, Kind, NotSupported, Revision, WatchEvent, Write
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import FaultyDatastore
from tests.harness.stores import StoreWrapper

FRUIT: Kind[str] = Kind("Fruit", ("name",))
APPLE = FRUIT.key("apple")


@define
class Noted(ObservedDatastore):
    """Keeps each call and the name of its error, empty if there was none."""

    calls: list[tuple[DatastoreCall, str]] = field(factory=list)

    @contextmanager
    def observe(self, call: DatastoreCall) -> Iterator[None]:
        problem = ""
        try:
            yield
        except Exception as error:
            problem = type(error).__name__
            raise
        finally:
            self.calls.append((call, problem))


def test_every_call_reaches_the_store_behind_and_is_observed_unless_it_is_a_watch() -> None:
    clock = ManualClock()
    inner = MemoryDatastore(clock=clock)
    store, deadline = Noted(inner), Deadline.after(clock, 5)
    assert store.description is inner.description
    create = [Create(APPLE, "red")]
    revisions = store.commit(create, deadline=deadline)
    with pytest.raises(AlreadyExists):
        store.commit(create, deadline=deadline)
    found = store.read([Get(APPLE)], deadline=deadline).find(APPLE)
    assert found is not None
    assert (found.value, found.revision) == ("red", revisions[0])
    assert list(store.watch({FRUIT: Revision("0")}, deadline=deadline)) == [WatchEvent(APPLE, "red", revisions[0])]
    assert store.calls == [
        (CommitCall(create), ""),
        (CommitCall(create), "AlreadyExists"),
        (ReadCall([Get(APPLE)]), ""),
    ]


def test_the_refusals_of_the_store_behind_are_its_own() -> None:
    """A store that refuses nothing by itself has none."""

    @define
    class Refusing(StoreWrapper):
        def find_refusal(self, write: Write) -> DatastoreError | None:
            return NotSupported(type(write).__name__, FRUIT, "fruit grows")

    memory = MemoryDatastore(clock=ManualClock())
    assert Noted(memory).find_refusal(Create(APPLE, "red")) is None
    assert "fruit grows" in str(Noted(Refusing(memory)).find_refusal(Create(APPLE, "red")))


def test_the_identity_of_the_store_behind_is_its_own() -> None:
    soon = Deadline.after(ManualClock(), 1)
    memory = MemoryDatastore(clock=ManualClock())
    assert Noted(memory).find_identity(deadline=soon) == memory.find_identity(deadline=soon)
    assert Noted(FaultyDatastore(memory, {})).find_identity(deadline=soon) is None


def test_the_store_behind_may_say_how_far_a_list_is() -> None:
    @define
    class Reporting(StoreWrapper):
        reports: list[ReadReport | None] = field(factory=list)

        def report_reads(self, report: ReadReport | None) -> None:
            self.reports.append(report)

    def show(_found: int, _left: int) -> None:
        """Nothing."""

    memory = MemoryDatastore(clock=ManualClock())
    reporting = Reporting(memory)
    for store in (Noted(reporting), DryRunDatastore(reporting)):
        store.report_reads(show)
        store.report_reads(None)
    assert reporting.reports == [show, None, show, None]
    for store in (Noted(memory), DryRunDatastore(memory)):
        store.report_reads(show)
        assert store.read([Get(APPLE)], deadline=Deadline.after(ManualClock(), 1)).find(APPLE) is None
