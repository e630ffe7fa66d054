"""The allocator keeps its invariants (V1 to V18, V20, V21) over each of the local stores, whatever fails on the way.

In processes that serve one call each, in resident ones that remember what they read, and in resident ones whose calls
go through ``datastore.batch``.
"""

from hypothesis import settings

from tests.harness.allocator.machine import allocator_machine
from tests.harness.example_counts import ALLOCATOR_EXAMPLES
from tests.harness.local_stores import (
    MEMORY_STORES,
    open_batching_ipam,
    open_resident_ipam,
    open_sqlite_store,
    open_standalone_ipam,
)

ATOMIC, ORDERED, KUBE_LIKE = (MEMORY_STORES[f"memory-{mode}"] for mode in ("atomic", "ordered", "kube-like"))

TestOnAnAtomicStore = allocator_machine(ATOMIC, open_standalone_ipam).TestCase
TestOnAnOrderedStore = allocator_machine(ORDERED, open_standalone_ipam).TestCase
TestOnAKubeLikeStore = allocator_machine(KUBE_LIKE, open_standalone_ipam).TestCase
TestResidentOnAnAtomicStore = allocator_machine(ATOMIC, open_resident_ipam).TestCase
TestResidentOnAnOrderedStore = allocator_machine(ORDERED, open_resident_ipam).TestCase
TestResidentOnAKubeLikeStore = allocator_machine(KUBE_LIKE, open_resident_ipam).TestCase
TestBatchOnAnAtomicStore = allocator_machine(ATOMIC, open_batching_ipam).TestCase
TestBatchOnAnOrderedStore = allocator_machine(ORDERED, open_batching_ipam).TestCase
TestBatchOnAKubeLikeStore = allocator_machine(KUBE_LIKE, open_batching_ipam).TestCase
TestOnSqlite = allocator_machine(open_sqlite_store, open_standalone_ipam).TestCase

TestOnAnAtomicStore.settings = TestOnAnOrderedStore.settings = TestOnAKubeLikeStore.settings = ALLOCATOR_EXAMPLES
TestResidentOnAnAtomicStore.settings = TestResidentOnAnOrderedStore.settings = ALLOCATOR_EXAMPLES
TestResidentOnAKubeLikeStore.settings = TestBatchOnAKubeLikeStore.settings = ALLOCATOR_EXAMPLES
TestBatchOnAnAtomicStore.settings = TestBatchOnAnOrderedStore.settings = ALLOCATOR_EXAMPLES
TestOnSqlite.settings = settings(ALLOCATOR_EXAMPLES, max_examples=ALLOCATOR_EXAMPLES.max_examples // 4)
