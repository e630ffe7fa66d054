"""The allocator keeps its invariants over a real etcd: the machine that it passes over every store of ours.

Time is the machine's own, moved by hand; only the store is real.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_core.clock import Clock
from netplug_core.datastore.protocol import Datastore
from netplug_core.testing.allocator.machine import allocator_machine
from tests.harness.example_counts import ETCD_EXAMPLES
from tests.harness.local_stores import open_standalone_ipam
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, make_client, start_etcd

pytestmark = pytest.mark.etcd


class SharedEtcd:
    """The one that the stores are in: a machine is a class and takes no fixture."""

    etcd: EtcdCluster


@pytest.fixture(autouse=True, scope="module")
def _served() -> Iterator[None]:
    with start_etcd() as etcd:
        SharedEtcd.etcd = etcd
        yield


@contextmanager
def open_empty_store(clock: Clock) -> Iterator[Datastore]:
    """A store in which nothing is."""
    delete_all_entries(SharedEtcd.etcd)
    with closing(EtcdDatastore(make_client(SharedEtcd.etcd, clock=clock))) as store:
        yield store


TestOnEtcd = allocator_machine(open_empty_store, open_standalone_ipam).TestCase
TestOnEtcd.settings = ETCD_EXAMPLES
