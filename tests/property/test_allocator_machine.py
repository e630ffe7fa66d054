"""The allocator keeps its invariants (V1 to V18, V20) over every store of ours, whatever happens on the way.

In processes that serve one call each, and in resident ones that remember what they read.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from tempfile import TemporaryDirectory

from hypothesis import settings

from netplug_backends.blocks.ipam import BlockIPAM
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_core.clock import Clock
from netplug_core.datastore.interface import Atomicity, Datastore
from netplug_core.datastore.warm import Warm
from netplug_core.ipam.handle import HANDLE
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.testing.allocator.machine import allocator_machine

PASSING = frozenset((HANDLE, WORKLOAD_ENDPOINT))


def memory(clock: Clock, *, atomicity: Atomicity) -> AbstractContextManager[Datastore]:
    return nullcontext(MemoryDatastore(atomicity, clock=clock))


@contextmanager
def sqlite(clock: Clock) -> Iterator[Datastore]:
    with TemporaryDirectory() as folder, closing(SqliteDatastore(f"{folder}/store.db", clock=clock)) as store:
        yield store


def cold(store: Datastore, clock: Clock) -> BlockIPAM:
    return BlockIPAM(datastore=store, clock=clock, chance=lambda: 0.5)


def warm(store: Datastore, clock: Clock) -> BlockIPAM:
    return BlockIPAM(
        datastore=store, clock=clock, chance=lambda: 0.5, warm=Warm.over(store, clock=clock, passing=PASSING)
    )


atomic = partial(memory, atomicity=Atomicity.ATOMIC)
ordered = partial(memory, atomicity=Atomicity.ORDERED)

TestOnAnAtomicStore = allocator_machine(atomic, cold).TestCase
TestOnAnOrderedStore = allocator_machine(ordered, cold).TestCase
TestResidentOnAnAtomicStore = allocator_machine(atomic, warm).TestCase
TestResidentOnAnOrderedStore = allocator_machine(ordered, warm).TestCase
TestOnSqlite = allocator_machine(sqlite, cold).TestCase

# A step is many calls, each of them judged: fewer examples than for other laws keep a run short; `nightly` has plenty.
FEW = settings(max_examples=max(20, settings().max_examples // 2))
TestOnAnAtomicStore.settings = TestOnAnOrderedStore.settings = FEW
TestResidentOnAnAtomicStore.settings = TestResidentOnAnOrderedStore.settings = FEW
TestOnSqlite.settings = settings(FEW, max_examples=FEW.max_examples // 4)
