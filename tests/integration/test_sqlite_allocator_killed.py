"""Allocating processes on one sqlite file, killed for real: nothing is given twice, and nothing is lost (V1 to V8)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from netplug_backends.host.machine import SystemClock
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.flows.ipam.affinities import relinquish_node
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.relinquish import Emptiness
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.ipam.model.affinity import AFFINITY
from netplug_core.ipam.model.block import BLOCK
from netplug_core.ipam.model.handle import HANDLE
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Create, List
from netplug_core.resources.ippool import IPPool
from netplug_core.testing.allocator.invariants import (
    block_owners_have_affinities,
    blocks_are_consistent,
    handle_counts_are_not_too_low,
)
from netplug_core.testing.allocator.state import read_state

_ROOT = Path(__file__).resolve().parents[2]
_WRITERS = 4
_LIVES = 16


def writer(path: Path, folder: Path, number: int, life: int) -> subprocess.Popen[str]:
    """One process; two of them share a node, and all of them the pools."""
    arguments = (str(path), f"node-{number % 2}", str(folder), f"w{number}x{life}")
    command = (sys.executable, "-m", "tests.harness.processes.sqlite_worker", *arguments)
    return subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.PIPE, text=True)


def kill(process: subprocess.Popen[str]) -> None:
    """End it as a power cut does."""
    process.kill()
    process.communicate()


def test_what_killed_processes_leave_is_sound_and_is_freed_by_their_handles(tmp_path: Path) -> None:
    path, folder, clock = tmp_path / "store.db", tmp_path / "seen", SystemClock()
    folder.mkdir()
    with closing(SqliteDatastore(str(path), clock=clock)) as store:
        for name, cidr in (("four", "10.67.0.0/26"), ("six", "fd67::/122")):
            pool = IPPool.for_prefix(Prefix.parse(cidr), name=name)
            store.commit([Create(pool.key, pool)], deadline=Deadline.after(clock, 5))
    chance = random.Random(7)  # noqa: S311  # which one is killed when
    running = {number: writer(path, folder, number, 0) for number in range(_WRITERS)}
    for life in range(1, _LIVES):
        time.sleep(0.2 + 0.6 * chance.random())
        victim = chance.randrange(_WRITERS)
        kill(running[victim])
        running[victim] = writer(path, folder, victim, life)
    time.sleep(1.0)
    for process in running.values():
        kill(process)

    names = os.listdir(folder)
    assert [name for name in names if name.startswith("twice-")] == []
    used = [name.removeprefix("handle-") for name in names if name.startswith("handle-")]
    assert len(used) > _LIVES
    with closing(SqliteDatastore(str(path), clock=clock)) as store:
        left = read_state(store, deadline=Deadline.after(clock, 5))
        blocks_are_consistent(left)
        handle_counts_are_not_too_low(left)
        block_owners_have_affinities(left)
        ipam = BlockIPAM(datastore=store, clock=clock, chance=random.random)
        for handle in used:
            ipam.release(ReleaseRequest(handle=handle), NO_ENDPOINT, deadline=Deadline.after(clock, 30))
        for node in ("node-0", "node-1"):
            pace = Pace(clock=clock, deadline=Deadline.after(clock, 30), chance=random.random)
            relinquish_node(store, node, Emptiness.REQUIRED, pace=pace)
        snapshot = store.read([List(BLOCK), List(HANDLE), List(AFFINITY)], deadline=Deadline.after(clock, 5))
        assert snapshot.list(List(HANDLE)) == ()
        assert snapshot.list(List(AFFINITY)) == ()
        assert [record.value.held() for record in snapshot.list(List(BLOCK))] == []
