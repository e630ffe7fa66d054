"""The datastore in a real etcd is the datastore of the interface: the suite that every backend passes.

Once with kinds of the suite's own, once with the keys of netplug's kinds where netplug keeps them.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count

import pytest

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.etcdv3.layout import LAYOUT, Layout
from netplug_backends.etcdv3.operations import KeyRange, RangeRead
from netplug_backends.host.machine import SystemClock
from netplug_core.clock import Clock, Deadline
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, IPPOOL
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.testing.datastore_conformance import datastore_conformance, identities_differ
from netplug_core.testing.datastore_harness import FRUIT_AND_TOOLS, SAMPLE_CODEC, Medium, Samples
from tests.harness.example_counts import ETCD_EXAMPLES
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, make_client, start_etcd
from tests.harness.servers.etcd_admin import compact

pytestmark = pytest.mark.etcd

ROUND = count()

# "node1" begins the name of another node, one of whose claims is on the same block.
OURS = Samples(
    keys=(
        AFFINITY.key("host", "node1", "ipv4", "10.0.0.0/26"),
        AFFINITY.key("host", "node1", "ipv6", "fd00::/122"),
        AFFINITY.key("host", "node10", "ipv4", "10.0.0.0/26"),
        AFFINITY.key("virtual", "node1", "ipv4", "10.0.0.0/26"),
        BLOCK.key("ipv4", "10.0.0.0/26"),
        BLOCK.key("ipv4", "10.0.0.64/26"),
        BLOCK.key("ipv6", "::/122"),
        HANDLE.key("Net.1/eth0"),
        HANDLE.key("net.1"),
        IPAM_CONFIGURATION_KEY,
        IPPOOL.key("a-pool"),
        IPPOOL.key("a.pool"),
        WORKLOAD_ENDPOINT.key("default", "node--1-k8s-web--0-eth0"),
        WORKLOAD_ENDPOINT.key("other", "node--1-k8s-web--0-eth0"),
    ),
    value=FRUIT_AND_TOOLS.value,
)


class SampleKeyLayout:
    """Where the suite's kinds stand: with a separator that sorts below what names are made of, as its pages want it."""

    def __init__(self, root: str) -> None:
        self._root = root

    def key_of(self, path: tuple[str, ...]) -> str:
        return f"{self._root}/" + "\x1f".join(path)

    def bounds(self, within: tuple[str, ...]) -> tuple[str, str]:
        return (
            (f"{self.key_of(within)}\x1f", f"{self.key_of(within)}\x20")
            if within
            else (f"{self._root}/", f"{self._root}0")
        )

    def named_from(self, within: tuple[str, ...], name_prefix: str) -> str:
        return self.key_of((*within, name_prefix))

    def find_path(self, key: str) -> tuple[str, ...]:
        return tuple(key.removeprefix(f"{self._root}/").split("\x1f"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[EtcdCluster]:
    with start_etcd() as etcd:
        yield etcd


class SharedEtcd:
    """The one that the stores are in: a machine is a class and takes no fixture."""

    etcd: EtcdCluster


@pytest.fixture(autouse=True)
def _served(cluster: EtcdCluster) -> None:
    SharedEtcd.etcd = cluster


@contextmanager
def of_samples(clock: Clock) -> Iterator[Medium]:
    """A medium with keys that no other one has."""
    root = f"/netplug/round-{next(ROUND)}"
    layout = Layout({"Fruit": SampleKeyLayout(f"{root}/fruit"), "Tool": SampleKeyLayout(f"{root}/tool")})
    yield medium_of(SharedEtcd.etcd, layout, clock)


@contextmanager
def of_ours(clock: Clock) -> Iterator[Medium]:
    """A medium with netplug's keys, emptied before; the values are the suite's."""
    delete_all_entries(SharedEtcd.etcd)
    yield medium_of(SharedEtcd.etcd, LAYOUT, clock)


def medium_of(etcd: EtcdCluster, layout: Layout, clock: Clock) -> Medium:
    def open_handle() -> closing[EtcdDatastore]:
        return closing(EtcdDatastore(make_client(etcd, clock=clock), layout=layout, codec=SAMPLE_CODEC))

    return Medium(open_handle, hold=partial(paused, etcd), forget=partial(compact_all, etcd))


@contextmanager
def paused(etcd: EtcdCluster) -> Iterator[None]:
    """The server does not answer."""
    for member in etcd.members:
        member.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for member in etcd.members:
            member.signal(signal.SIGCONT)


def compact_all(etcd: EtcdCluster) -> None:
    """Drop the history up to now."""
    with closing(make_client(etcd, clock=SystemClock())) as client:
        reply = client.read([RangeRead(key_range=KeyRange(b"none"))], deadline=Deadline.after(SystemClock(), 10))
    compact(etcd, reply.revision)


TestSamples = datastore_conformance(of_samples, make_clock=SystemClock)
TestOurs = datastore_conformance(of_ours, samples=OURS, make_clock=SystemClock)
TestSamples.settings = TestOurs.settings = ETCD_EXAMPLES


def test_two_clusters_of_the_same_set_up_have_two_identities() -> None:
    """The ids that etcd itself gives them are equal."""
    with start_etcd() as other:

        @contextmanager
        def of_other(clock: Clock) -> Iterator[Medium]:
            yield medium_of(other, LAYOUT, clock)

        identities_differ(of_ours, of_other, make_clock=SystemClock)
