"""The allocator keeps its invariants over a real API server, in both groups: the machine of every store of ours.

Time is the machine's own, moved by hand. Nodes and endpoints are the cluster's, which people do not make and delete as
the machine does: those two kinds are kept beside the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest
from attrs import define, evolve

from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.names import CrdMode
from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.write_set import fold_writes
from netplug_core.records import (
    CommitError,
    Delete,
    Kind,
    Query,
    ReadResult,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    Write,
    Written,
)
from netplug_core.resources.node import NODE
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from tests.harness.allocator.machine import allocator_machine
from tests.harness.example_counts import APISERVER_EXAMPLES
from tests.harness.local_stores import open_standalone_ipam
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import delete_custom_objects, install_definitions, open_client
from tests.harness.stores import StoreWrapper
from tests.harness.tool_stores import CRD_MODES

pytestmark = pytest.mark.apiserver


@define
class SplitStore(StoreWrapper):
    """An ordered store of two: nodes and endpoints in one, everything else on the server."""

    orchestrator_store: MemoryDatastore

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        answers: dict[Query, ReadResult] = {}
        revisions: dict[Kind[object], Revision] = {}
        for store in (self.orchestrator_store, self.inner):
            own = [query for query in queries if self._store(query.kind) is store]
            found = store.read(own, deadline=deadline) if own else Snapshot.empty()
            answers.update(found.results)
            revisions.update(found.revisions)
        return Snapshot(answers, revisions)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        fold_writes(writes)
        made: list[Revision] = []
        for index, write in enumerate(writes):
            kind = write.kind if isinstance(write, RequireUnchanged) else write.key.kind
            try:
                made += self._store(kind).commit([resolve_written(write, made)], deadline=deadline)
            except CommitError as error:
                raise evolve(error, index=index, applied=index) from error
        return tuple(made)

    def _store(self, kind: Kind[object]) -> Datastore:
        return self.orchestrator_store if kind in (NODE, WORKLOAD_ENDPOINT) else self.inner


def resolve_written(write: Write, made: Sequence[Revision]) -> Write:
    """A write on what an earlier one of the same commit wrote, by the revision that this got."""
    if isinstance(write, Update | Delete) and isinstance(write.revision, Written):
        return evolve(write, revision=made[write.revision.index])
    return write


@pytest.mark.parametrize("mode", CRD_MODES, ids=lambda mode: mode.name)
def test_the_allocator_keeps_its_invariants(api_server: ApiServer, mode: CrdMode) -> None:
    install_definitions(api_server, mode)

    @contextmanager
    def open_empty_store(clock: Clock) -> Iterator[Datastore]:
        delete_custom_objects(api_server, mode)
        with closing(KubernetesDatastore(open_client(api_server, clock=clock), mode=mode)) as server:
            yield SplitStore(server, MemoryDatastore(MemoryMode.KUBE_LIKE, clock=clock))

    machine = allocator_machine(open_empty_store, open_standalone_ipam).TestCase
    machine.settings = APISERVER_EXAMPLES
    machine().runTest()
    assert machine.settings is APISERVER_EXAMPLES
