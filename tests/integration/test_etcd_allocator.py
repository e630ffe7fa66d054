"""The allocator keeps its invariants over a real etcd: the machine that it passes over every store of ours.

Time is the machine's own, moved by hand; only the store is real.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from netplug_backends.blocks.ipam import BlockIPAM
from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_core.clock import Clock
from netplug_core.datastore.interface import Datastore
from netplug_core.testing.allocator.machine import allocator_machine
from tests.integration.effort import FEW
from tests.integration.etcd_server import Etcd, client_of, opened_etcd, wipe

pytestmark = pytest.mark.etcd


class Cluster:
    """The one that the stores are in: a machine is a class and takes no fixture."""

    etcd: Etcd


@pytest.fixture(autouse=True, scope="module")
def _served() -> Iterator[None]:
    with opened_etcd() as etcd:
        Cluster.etcd = etcd
        yield


@contextmanager
def emptied(clock: Clock) -> Iterator[Datastore]:
    """A store in which nothing is."""
    wipe(Cluster.etcd)
    with closing(EtcdDatastore(client_of(Cluster.etcd, clock=clock))) as store:
        yield store


def cold(store: Datastore, clock: Clock) -> BlockIPAM:
    return BlockIPAM(datastore=store, clock=clock, chance=lambda: 0.5)


TestOnEtcd = allocator_machine(emptied, cold).TestCase
TestOnEtcd.settings = FEW
