"""The datastore in a real etcd is the datastore of the interface: the suite that every backend passes.

Once with kinds of the suite's own, once with the keys of netplug's kinds where netplug keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count

import pytest

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.etcdv3.layout import LAYOUT, Layout
from netplug_backends.host.machine import SystemClock
from netplug_core.clock import Clock
from netplug_core.datastore.interface import Datastore
from netplug_core.ipam.affinity import AFFINITY
from netplug_core.ipam.block import BLOCK
from netplug_core.ipam.handle import HANDLE
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY
from netplug_core.resources.ippool import IPPOOL
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.testing.bench import FRUIT_AND_TOOLS, SAMPLE_CODEC, Make, Samples
from netplug_core.testing.datastore import datastore_conformance
from netplug_core.testing.datastore_checks import DATASTORE_CHECKS, DatastoreCheck
from tests.integration.effort import FEW
from tests.integration.etcd_server import Etcd, client_of, opened_etcd, wipe

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


class Shelf:
    """Where the suite's kinds stand: with a separator that sorts below what names are made of, as its pages want it."""

    def __init__(self, root: str) -> None:
        self._root = root

    def place(self, path: tuple[str, ...]) -> str:
        return f"{self._root}/" + "\x1f".join(path)

    def spans(self, within: tuple[str, ...]) -> tuple[str, str]:
        return (
            (f"{self.place(within)}\x1f", f"{self.place(within)}\x20")
            if within
            else (f"{self._root}/", f"{self._root}0")
        )

    def find_path(self, key: str) -> tuple[str, ...]:
        return tuple(key.removeprefix(f"{self._root}/").split("\x1f"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Etcd]:
    with opened_etcd() as etcd:
        yield etcd


class Cluster:
    """The one that the stores are in: a machine is a class and takes no fixture."""

    etcd: Etcd


@pytest.fixture(autouse=True)
def _served(cluster: Etcd) -> None:
    Cluster.etcd = cluster


@contextmanager
def of_samples(clock: Clock) -> Iterator[Datastore]:
    """A store with keys that no other one has."""
    root = f"/netplug/round-{next(ROUND)}"
    layout = Layout({"Fruit": Shelf(f"{root}/fruit"), "Tool": Shelf(f"{root}/tool")})
    client = client_of(Cluster.etcd, clock=clock)
    with closing(EtcdDatastore(client, layout=layout, codec=SAMPLE_CODEC)) as store:
        yield store


@contextmanager
def of_ours(clock: Clock) -> Iterator[Datastore]:
    """A store with netplug's keys, emptied before; the values are the suite's."""
    wipe(Cluster.etcd)
    with closing(EtcdDatastore(client_of(Cluster.etcd, clock=clock), layout=LAYOUT, codec=SAMPLE_CODEC)) as store:
        yield store


TestSamples = datastore_conformance(of_samples, clock=SystemClock).TestCase
TestOurs = datastore_conformance(of_ours, samples=OURS, clock=SystemClock).TestCase
TestSamples.settings = TestOurs.settings = FEW


@pytest.mark.parametrize("check", DATASTORE_CHECKS)
@pytest.mark.parametrize(
    "make,samples", [(of_samples, FRUIT_AND_TOOLS), (of_ours, OURS)], ids=["samples", "netplug's kinds"]
)
def test_d1_every_example_of_the_suite(make: Make, samples: Samples, check: DatastoreCheck) -> None:
    check(make, samples=samples, clock=SystemClock)
