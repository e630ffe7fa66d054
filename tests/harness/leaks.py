"""A store with addresses that are not in use, for tests of reports and of releases from them."""

from __future__ import annotations

from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Address
from netplug_core.clock import Pace
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.encoding.export import decode_report, encode_report
from netplug_core.flows.ipam.leaks import read_allocation_report
from netplug_core.ipam.reporting.usage import AllocationReport, LeakList
from netplug_core.orchestrator.model import POD, PodFacts
from netplug_core.records import Create, Key
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.node import Node, node_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.collector import CollectorHarness

VERSION = "v3.33.0"
GUID = "guid-1"


def make_harness(mode: MemoryMode) -> CollectorHarness:
    """A locked cluster with one pool of each family."""
    harness = CollectorHarness()
    harness.inner = harness.store = MemoryDatastore(mode, clock=harness.clock)
    harness.add_pool("four", "10.0.0.0/24")
    harness.add_pool("six", "fd00::/120")
    set_cluster(harness)
    return harness


def set_cluster(harness: CollectorHarness, guid: str = GUID, *, is_locked: bool = True) -> None:
    """The identity of the cluster."""
    spec = ClusterInformationSpec(cluster_guid=guid, cluster_type="k8s", is_datastore_ready=not is_locked)
    harness.put(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"), spec=spec))


def show_pods(harness: CollectorHarness, *nodes: str) -> None:
    """From now on the store shows pods, as Kubernetes does, and has these nodes."""
    assert isinstance(harness.store, MemoryDatastore)
    harness.store.description = evolve(harness.store.description, endpoints=EndpointStorage.PODS)
    for name in nodes:
        harness.put(node_key(name), Node(metadata=Metadata(name=name)))


def put_pod(harness: CollectorHarness, name: str, *addresses: str, node: str = "node-a", **annotations: str) -> None:
    """A pod of the namespace ``default``; its annotations have a prefix."""
    pod = PodFacts(
        namespace="default",
        name=name,
        uid="",
        node=node,
        addresses=tuple(map(Address.parse, addresses)),
        annotations=tuple((f"cni.projectnetplug.org/{key}", text) for key, text in sorted(annotations.items())),
    )
    harness.put(POD.key("default", name), pod)


def put_endpoint(harness: CollectorHarness, name: str, *addresses: str) -> None:
    """A workload endpoint of the namespace ``default``."""
    spec = WorkloadEndpointSpec(
        orchestrator="cni", node="node-a", endpoint="eth0", addresses=tuple(map(Address.parse, addresses))
    )
    endpoint = WorkloadEndpoint(metadata=Metadata(name=name, namespace="default"), spec=spec)
    harness.commit(Create(Key(WORKLOAD_ENDPOINT, ("default", name)), endpoint))


def read_report(harness: CollectorHarness) -> AllocationReport:
    """The report of what is stored now."""
    return read_allocation_report(harness.store, version=VERSION, deadline=harness.deadline)


def read_leaks(harness: CollectorHarness, source: str = "r.json") -> LeakList:
    """The same as a person hands it in: written into a file, and read from it."""
    return decode_report("".join(encode_report(read_report(harness))), source)


def make_pace(harness: CollectorHarness) -> Pace:
    """The time for one commit."""
    return Pace(clock=harness.clock, deadline=harness.deadline, chance=lambda: 0.5)
