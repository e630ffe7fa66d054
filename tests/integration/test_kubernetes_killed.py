"""Writers killed for real on a real API server, which is killed too: nothing is given twice, nothing is lost."""

from __future__ import annotations

import random
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Prefix
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.ipam.model import BLOCK, HANDLE, Block
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Create, List
from netplug_core.resources.ippool import IPPool
from tests.harness.local_stores import IS_DEEP
from tests.harness.processes.allocating_worker import open_kubernetes_store
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    install_definitions,
    make_node,
    open_store,
)
from tests.harness.tool_stores import CRD_MODES
from tests.harness.waiting import deadline_in
from tests.harness.worker_processes import WorkerProcesses

pytestmark = pytest.mark.apiserver

_WORKERS = 8
_KILLS = 11 if IS_DEEP else 5
_HANDLES_BETWEEN = 6


@pytest.mark.parametrize("mode", CRD_MODES)
def test_writers_that_are_killed_leave_nothing_that_a_release_does_not_free(
    api_server: ApiServer, tmp_path: Path, mode: CrdMode
) -> None:
    install_definitions(api_server, mode)
    delete_custom_objects(api_server, mode)
    pool = IPPool.for_prefix(Prefix.parse("10.67.0.0/24"), name="main")
    with open_store(api_server, mode) as store:
        store.commit([Create(pool.key, pool)], deadline=deadline_in())
    for node in ("node-0", "node-1"):
        make_node(api_server, node)
    workers = WorkerProcesses((mode.name, api_server.write_kubeconfig(name="workers")), tmp_path)

    def restart_server() -> None:
        api_server.kill()
        api_server.start()

    with ExitStack() as stack:
        stack.callback(workers.kill_all)
        workers.start(_WORKERS)
        workers.kill_one_after_another(_KILLS, handles_between=_HANDLES_BETWEEN, after_half=restart_server)

    assert workers.held_twice() == []
    with closing(open_kubernetes_store(api_server.write_kubeconfig(name="workers"), mode)) as store:
        stored = {str(held.address): held.attribute.handle for block in blocks(store) for held in block.held()}
        held = workers.held()
        assert held == {address: stored.get(address) for address in held}
        ipam = BlockIPAM(datastore=store, clock=SystemClock(), chance=random.random)
        for handle in workers.handles():
            ipam.release(ReleaseRequest(handle=handle), NO_ENDPOINT, deadline=deadline_in())
        assert [block.held() for block in blocks(store) if block.held()] == []
        assert store.read([List(HANDLE)], deadline=deadline_in()).list(List(HANDLE)) == ()


def blocks(store: KubernetesDatastore) -> list[Block]:
    """Every block as it is now."""
    return [record.value for record in store.read([List(BLOCK)], deadline=deadline_in()).list(List(BLOCK))]
