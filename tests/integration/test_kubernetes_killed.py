"""Writers killed for real on a real API server, which is killed too: nothing is given twice, nothing is lost."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Prefix
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.ipam.model.block import BLOCK, Block
from netplug_core.ipam.model.handle import HANDLE
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Create, List
from netplug_core.resources.ippool import IPPool
from tests.harness.processes.kube_worker import open_ipam
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    deadline_in,
    delete_custom_objects,
    install_definitions,
    make_node,
    open_store,
)

pytestmark = pytest.mark.apiserver

_ROOT = Path(__file__).resolve().parents[2]
_WRITERS = 8
_ROUNDS = 12


def writer(server: ApiServer, mode: CrdMode, folder: Path, name: tuple[int, int]) -> subprocess.Popen[str]:
    """One process, named by its number and its life; four of them share a node, and all of them the pool."""
    number, life = name
    arguments = (
        server.write_kubeconfig(name="writers"),
        mode.name,
        f"node-{number % 2}",
        str(folder),
        f"w{number}x{life}",
    )
    command = (sys.executable, "-m", "tests.harness.processes.kube_worker", *arguments)
    return subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("mode", CrdMode)
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
    chance = random.Random(7)  # noqa: S311  # which one is killed when
    running = {number: writer(api_server, mode, tmp_path, (number, 0)) for number in range(_WRITERS)}
    for life in range(1, _ROUNDS):
        time.sleep(0.3 + chance.random())
        victim = chance.randrange(_WRITERS)
        kill(running[victim])
        if life == _ROUNDS // 2:
            api_server.kill()
            api_server.start()
        running[victim] = writer(api_server, mode, tmp_path, (victim, life))
    time.sleep(1.0)
    for process in running.values():
        kill(process)

    ipam, store = open_ipam(api_server.write_kubeconfig(name="writers"), mode)
    booked = {str(held.address): held.attribute.handle for block in blocks(store) for held in block.held()}
    said = {path.name.removeprefix("held-"): path.read_text() for path in tmp_path.glob("held-*")}
    assert {address: handle for address, handle in said.items() if handle and booked.get(address) != handle} == {}
    names = os.listdir(tmp_path)
    assert [name for name in names if name.startswith("twice-")] == []
    used = [name.removeprefix("handle-") for name in names if name.startswith("handle-")]
    assert len(used) > 5 * _ROUNDS
    for handle in used:
        ipam.release(ReleaseRequest(handle=handle), NO_ENDPOINT, deadline=deadline_in())
    handles = store.read([List(HANDLE)], deadline=deadline_in()).list(List(HANDLE))
    assert [block.held() for block in blocks(store) if block.held()] == []
    assert handles == ()
    store.close()


def blocks(store: KubernetesDatastore) -> list[Block]:
    """Every block as it is now."""
    return [record.value for record in store.read([List(BLOCK)], deadline=deadline_in()).list(List(BLOCK))]


def kill(process: subprocess.Popen[str]) -> None:
    """End it as a power cut does."""
    process.kill()
    process.communicate()
