"""The allocator keeps its invariants (V1 to V18, V20) over every store of ours, whatever happens on the way.

In processes that serve one call each, and in resident ones that remember what they read.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from tempfile import TemporaryDirectory

from hypothesis import settings

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_core.clock import Clock
from netplug_core.datastore.cache import DatastoreCache
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.model.handle import HANDLE
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.testing.allocator.machine import allocator_machine

UNCACHED_KINDS = frozenset((HANDLE, WORKLOAD_ENDPOINT))


def open_memory_store(clock: Clock, *, mode: MemoryMode) -> AbstractContextManager[Datastore]:
    return nullcontext(MemoryDatastore(mode, clock=clock))


@contextmanager
def open_sqlite_store(clock: Clock) -> Iterator[Datastore]:
    with TemporaryDirectory() as folder, closing(SqliteDatastore(f"{folder}/store.db", clock=clock)) as store:
        yield store


def open_standalone_ipam(store: Datastore, clock: Clock) -> BlockIPAM:
    return BlockIPAM(datastore=store, clock=clock, chance=lambda: 0.5)


def open_resident_ipam(store: Datastore, clock: Clock) -> BlockIPAM:
    return BlockIPAM(
        datastore=store,
        clock=clock,
        chance=lambda: 0.5,
        cache=DatastoreCache.for_datastore(store, clock=clock, uncached_kinds=UNCACHED_KINDS),
    )


open_atomic_store = partial(open_memory_store, mode=MemoryMode.ATOMIC)
open_ordered_store = partial(open_memory_store, mode=MemoryMode.ORDERED)
open_kube_like_store = partial(open_memory_store, mode=MemoryMode.KUBE_LIKE)

TestOnAnAtomicStore = allocator_machine(open_atomic_store, open_standalone_ipam).TestCase
TestOnAnOrderedStore = allocator_machine(open_ordered_store, open_standalone_ipam).TestCase
TestOnAKubeLikeStore = allocator_machine(open_kube_like_store, open_standalone_ipam).TestCase
TestResidentOnAnAtomicStore = allocator_machine(open_atomic_store, open_resident_ipam).TestCase
TestResidentOnAnOrderedStore = allocator_machine(open_ordered_store, open_resident_ipam).TestCase
TestResidentOnAKubeLikeStore = allocator_machine(open_kube_like_store, open_resident_ipam).TestCase
TestOnSqlite = allocator_machine(open_sqlite_store, open_standalone_ipam).TestCase

# A step is many calls, each of them judged: fewer examples than for other laws keep a run short; `nightly` has plenty.
ALLOCATOR_EXAMPLES = settings(max_examples=max(12, settings().max_examples // 3))
TestOnAnAtomicStore.settings = TestOnAnOrderedStore.settings = TestOnAKubeLikeStore.settings = ALLOCATOR_EXAMPLES
TestResidentOnAnAtomicStore.settings = TestResidentOnAnOrderedStore.settings = ALLOCATOR_EXAMPLES
TestResidentOnAKubeLikeStore.settings = ALLOCATOR_EXAMPLES
TestOnSqlite.settings = settings(ALLOCATOR_EXAMPLES, max_examples=ALLOCATOR_EXAMPLES.max_examples // 4)
