"""Allocating processes on one sqlite file, killed for real: nothing is given twice, and nothing is lost (V1 to V8)."""

from __future__ import annotations

import random
from contextlib import ExitStack, closing
from pathlib import Path

from netplug_backends.host.machine import SystemClock
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_core.addressing import Prefix
from netplug_core.clock import Pace
from netplug_core.flows.ipam.affinities import relinquish_node
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Create, List
from netplug_core.resources.ippool import IPPool
from tests.harness.allocator.invariants import (
    block_owners_have_affinities,
    blocks_are_consistent,
    handle_counts_are_not_too_low,
)
from tests.harness.allocator.state import read_state
from tests.harness.local_stores import IS_DEEP
from tests.harness.waiting import deadline_in
from tests.harness.worker_processes import WorkerProcesses

_WORKERS = 4
_KILLS = 16 if IS_DEEP else 8
_HANDLES_BETWEEN = 8


def test_what_killed_processes_leave_is_sound_and_is_freed_by_their_handles(tmp_path: Path) -> None:
    path, folder, clock = tmp_path / "store.db", tmp_path / "seen", SystemClock()
    folder.mkdir()
    with closing(SqliteDatastore(str(path), clock=clock)) as store:
        for name, cidr in (("four", "10.67.0.0/26"), ("six", "fd67::/122")):
            pool = IPPool.for_prefix(Prefix.parse(cidr), name=name)
            store.commit([Create(pool.key, pool)], deadline=deadline_in())
    workers = WorkerProcesses(("sqlite", str(path)), folder)
    with ExitStack() as stack:
        stack.callback(workers.kill_all)
        workers.start(_WORKERS)
        workers.kill_one_after_another(_KILLS, handles_between=_HANDLES_BETWEEN)

    assert workers.held_twice() == []
    with closing(SqliteDatastore(str(path), clock=clock)) as store:
        state = read_state(store, deadline=deadline_in())
        blocks_are_consistent(state)
        handle_counts_are_not_too_low(state)
        block_owners_have_affinities(state)
        ipam = BlockIPAM(datastore=store, clock=clock, chance=random.random)
        for handle in workers.handles():
            ipam.release(ReleaseRequest(handle=handle), NO_ENDPOINT, deadline=deadline_in())
        for node in ("node-0", "node-1"):
            pace = Pace(clock=clock, deadline=deadline_in(), chance=random.random)
            relinquish_node(store, node, Emptiness.REQUIRED, pace=pace)
        snapshot = store.read([List(BLOCK), List(HANDLE), List(AFFINITY)], deadline=deadline_in())
        assert snapshot.list(List(HANDLE)) == ()
        assert snapshot.list(List(AFFINITY)) == ()
        assert [record.value.held() for record in snapshot.list(List(BLOCK))] == []
