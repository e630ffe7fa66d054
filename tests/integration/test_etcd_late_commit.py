"""An ADD that is killed while its commit is on the way to etcd, which applies it after the DEL (docs/collector.md)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.host.machine import SystemClock
from netplug_core.addressing import Address
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.collect import Collector, read_view, tick
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.ipam.gc.candidates import CollectorSettings, ScanHistory
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Create
from netplug_core.testing.clock import ManualClock
from tests.harness.cni_node import RecordingLog
from tests.harness.collector import FakePodLookup
from tests.harness.ipam import NODE, make_pool, make_request
from tests.harness.local_stores import open_standalone_ipam
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, make_client
from tests.harness.servers.held_wire import HeldWire, open_held_wire
from tests.harness.waiting import deadline_in, wait_until

pytestmark = pytest.mark.etcd

ROOT = Path(__file__).resolve().parents[2]
CLOCK = SystemClock()
HANDLE = "net1.c1"
GRACE_S = 60.0


@pytest.fixture
def store(etcd: EtcdCluster) -> Iterator[Datastore]:
    """A store with a pool."""
    delete_all_entries(etcd)
    with closing(EtcdDatastore(make_client(etcd, clock=CLOCK))) as store:
        pool = make_pool("main", "10.0.0.0/24")
        store.commit([Create(pool.key, pool)], deadline=deadline_in())
        yield store


@pytest.fixture
def ipam(store: Datastore) -> BlockIPAM:
    return open_standalone_ipam(store, CLOCK)


@contextmanager
def killed_add(etcd: EtcdCluster) -> Iterator[HeldWire]:
    """An ADD whose commit is on the way, and whose process is dead."""
    with open_held_wire(etcd.members[0].port) as wire:
        command = (sys.executable, "-m", "tests.harness.processes.etcd_adder", wire.url)
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as adding:
            assert adding.stdin is not None
            assert adding.stdout is not None
            assert adding.stdout.readline() == "commit\n"
            wire.is_holding = True
            adding.stdin.write("\n")
            adding.stdin.flush()
            wait_until(lambda: wire.has_request, "the commit is on its way")
            adding.kill()
        yield wire


def release(ipam: BlockIPAM) -> tuple[Address, ...]:
    """What a DEL frees."""
    return ipam.release(ReleaseRequest(handle=HANDLE, node=NODE), NO_ENDPOINT, deadline=deadline_in()).addresses


def held(ipam: BlockIPAM) -> tuple[Address, ...]:
    return ipam.held(HANDLE, deadline=deadline_in()).addresses


@pytest.fixture
def late(etcd: EtcdCluster, ipam: BlockIPAM) -> tuple[Address, ...]:
    """The addresses that the ADD of a dead process holds, after a DEL that found none."""
    with killed_add(etcd) as wire:
        assert held(ipam) == ()
        assert release(ipam) == ()
        wire.is_holding = False
        wait_until(lambda: held(ipam) != (), "the commit arrives")
    return held(ipam)


def test_the_collector_frees_what_a_late_commit_holds(
    store: Datastore, ipam: BlockIPAM, late: tuple[Address, ...]
) -> None:
    """The handle leads to the addresses, and the pod does not exist."""
    clock, pods, log = ManualClock(), FakePodLookup(), RecordingLog()
    settings = CollectorSettings(grace_s=GRACE_S)
    collector = Collector(store=store, live_lookup=pods, clock=clock, chance=lambda: 0.5, log=log, settings=settings)
    history, freed = ScanHistory(), []
    for _ in range(2):
        view = read_view(store, pods.cluster, now_ns=clock.now_ns(), deadline=deadline_in())
        history, report = tick(collector, view, history)
        freed.append([each.owner.address for each in report.freed])
        clock.sleep(GRACE_S + 1)
    assert freed == [[], list(late)]
    assert held(ipam) == ()


def test_the_command_gc_sees_what_a_late_commit_holds_and_the_next_del_frees_it(
    ipam: BlockIPAM, late: tuple[Address, ...]
) -> None:
    (attachment,) = ipam.attachments(node=NODE, network="net1", deadline=deadline_in())
    assert (attachment.container_id, attachment.handle) == ("c1", HANDLE)
    assert tuple(each.address for each in attachment.addresses) == late
    assert release(ipam) == late
    assert held(ipam) == ()


def test_a_commit_that_arrives_after_another_assignment_from_its_block_is_refused(
    etcd: EtcdCluster, ipam: BlockIPAM
) -> None:
    """It is conditioned on what it read of the block, so no address is assigned twice."""
    with killed_add(etcd) as wire:
        other = ipam.assign(make_request("net1.c2"), NO_ENDPOINT, deadline=deadline_in())
        wire.is_holding = False
        wait_until(lambda: wire.has_answer, "etcd has answered the late commit")
    assert held(ipam) == ()
    assert len(other.addresses) == 1
