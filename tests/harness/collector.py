"""A store and an orchestrator for tests of the collector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import Factory, define, evolve, field

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import Unavailable
from netplug_core.flows.ipam.collect import Collector, read_view, tick
from netplug_core.ipam.gc.candidates import CollectionReport, CollectorSettings, ScanHistory, StoreView
from netplug_core.ipam.model import (
    AFFINITY,
    BLOCK,
    HANDLE,
    Affinity,
    AffinityState,
    Attribute,
    Block,
    Handle,
    affinity_key,
    block_key,
    handle_key,
    host_owner,
)
from netplug_core.orchestrator.model import ClusterView, PodFacts, PodName, PodPhase
from netplug_core.records import Create, Delete, Get, Key, Kind, List, Malformed, Query, Record, Snapshot, Update, Write
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION_KEY,
    IPAMConfiguration,
    IPAMConfigurationSpec,
    IPPool,
    IPPoolSpec,
    ippool_key,
)
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import Fault, FaultyDatastore
from tests.harness.cni_node import RecordingLog

GRACE_S = 900.0
HALF_GRACE_S = GRACE_S / 2
BLOCK_LENGTHS = {4: 30, 6: 126}

V = TypeVar("V")


@define
class FakePodLookup:
    """Pods and nodes, and live lookups of them, which may be slow or fail. ``lookups`` are those made, in order."""

    pods: dict[PodName, PodFacts] = field(factory=dict)
    nodes: set[str] = field(factory=lambda: {"node-a", "node-b"})
    is_unavailable: bool = False
    delay: Callable[[], object] = lambda: None
    lookups: list[str] = field(factory=list)

    def run_pod(self, name: str, node: str, *addresses: str, is_terminated: bool = False) -> None:
        """Create or replace a pod of the namespace ``default``."""
        pod = PodFacts(
            namespace="default",
            name=name,
            node=node,
            addresses=tuple(Address.parse(text) for text in addresses),
            uid="",
            phase=PodPhase.SUCCEEDED if is_terminated else PodPhase.RUNNING,
        )
        self.pods[pod.pod_name] = pod

    def remove_pod(self, name: str) -> None:
        del self.pods[PodName("default", name)]

    @property
    def cluster(self) -> ClusterView:
        return ClusterView(pods=tuple(self.pods.values()), nodes=frozenset(self.nodes))

    def find_pod(self, namespace: str, name: str, *, deadline: Deadline) -> PodFacts | None:
        pod = PodName(namespace, name)
        self._record_lookup(f"pod {pod}", deadline)
        return self.pods.get(pod)

    def has_node(self, name: str, *, deadline: Deadline) -> bool:
        self._record_lookup(f"node {name}", deadline)
        return name in self.nodes

    def _record_lookup(self, subject: str, deadline: Deadline) -> None:
        assert not deadline.has_passed
        self.lookups.append(subject)
        self.delay()
        if self.is_unavailable:
            raise Unavailable("the orchestrator", "connection refused")


def _make_memory_store(harness: CollectorHarness) -> MemoryDatastore:
    return MemoryDatastore(clock=harness.clock)


def _same_store(harness: CollectorHarness) -> Datastore:
    return harness.inner


@define
class CollectorHarness:
    """A store, an orchestrator and a collector. The collector uses ``store``, which may wrap ``inner``."""

    clock: ManualClock = field(factory=ManualClock)
    inner: MemoryDatastore = Factory(_make_memory_store, takes_self=True)
    store: Datastore = Factory(_same_store, takes_self=True)
    orchestrator: FakePodLookup = field(factory=FakePodLookup)
    is_orchestrated: bool = True
    log: RecordingLog = field(factory=RecordingLog)
    settings: CollectorSettings = field(factory=lambda: CollectorSettings(grace_s=GRACE_S))
    history: ScanHistory = field(factory=ScanHistory)

    @classmethod
    def with_pools(cls) -> CollectorHarness:
        """A harness with one pool of each family."""
        harness = cls()
        harness.add_pool("four", "10.0.0.0/24")
        harness.add_pool("six", "fd00::/120")
        return harness

    # --- the collector ---------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 60)

    @property
    def collector(self) -> Collector:
        return Collector(
            store=self.store,
            live_lookup=self.orchestrator,
            clock=self.clock,
            chance=lambda: 0.5,
            log=self.log,
            settings=self.settings,
        )

    def view(self) -> StoreView:
        """The current state of the store and the cluster."""
        cluster = self.orchestrator.cluster if self.is_orchestrated else None
        return read_view(self.inner, cluster, now_ns=self.clock.now_ns(), deadline=self.deadline)

    def tick(self, view: StoreView | None = None) -> CollectionReport:
        """One tick over a view, by default the current one."""
        self.history, report = tick(self.collector, view or self.view(), self.history)
        return report

    def tick_twice(self, *, over_s: float = GRACE_S) -> CollectionReport:
        """A tick, and one more after that time."""
        self.tick()
        self.clock.sleep(over_s)
        return self.tick()

    def change_settings(self, **changes: float) -> None:
        """Change the settings."""
        self.settings = evolve(self.settings, **changes)  # type: ignore[arg-type]

    # --- what is stored --------------------------------------------------------------------------------------------

    def commit(self, *writes: Write) -> None:
        self.inner.commit(writes, deadline=self.deadline)

    def find_record(self, key: Key[V]) -> Record[V] | None:
        return self.inner.read((Get(key),), deadline=self.deadline).find(key)

    def find(self, key: Key[V]) -> V | None:
        record = self.find_record(key)
        return record.value if record else None

    def get(self, key: Key[V]) -> V:
        value = self.find(key)
        assert value is not None, f"{key} is not there"
        return value

    def put(self, key: Key[V], value: V) -> None:
        found = self.find_record(key)
        self.commit(Update(key, value, found.revision) if found else Create(key, value))

    def remove(self, key: Key[object]) -> None:
        found = self.find_record(key)
        assert found is not None
        self.commit(Delete(key, found.revision))

    def stored_handles(self) -> tuple[Record[Handle], ...]:
        """All handles; a view may lack those that are right."""
        return self.inner.read((List(HANDLE),), deadline=self.deadline).list(List(HANDLE))

    def names(self, kind: Kind[V]) -> list[str]:
        """The last segments of the keys of a kind."""
        return [record.key.name for record in self.inner.read((List(kind),), deadline=self.deadline).list(List(kind))]

    def add_pool(self, name: str, cidr: str, *, is_disabled: bool = False) -> None:
        prefix = Prefix.parse(cidr)
        spec = IPPoolSpec(prefix=prefix, block_length=BLOCK_LENGTHS[prefix.family.value], is_disabled=is_disabled)
        self.put(ippool_key(name), IPPool(metadata=Metadata(name=name), spec=spec))

    def set_cooldown(self, seconds: int) -> None:
        spec = IPAMConfigurationSpec(cooldown_s=seconds)
        self.put(IPAM_CONFIGURATION_KEY, IPAMConfiguration(metadata=Metadata(name="default"), spec=spec))

    def set_ready(self, *, is_ready: bool = False) -> None:
        spec = ClusterInformationSpec(is_datastore_ready=is_ready)
        self.put(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"), spec=spec))

    # --- blocks and addresses -------------------------------------------------------------------------------------

    def put_affinity(
        self, cidr: str, owner: str = "host:node-a", state: AffinityState = AffinityState.CONFIRMED
    ) -> None:
        """An affinity without a block."""
        self.put(affinity_key(owner, Prefix.parse(cidr)), Affinity(state=state))

    def add_block(self, cidr: str, node: str = "node-a") -> None:
        """An empty block, with its affinity if a node owns it."""
        owner = host_owner(node) if node else ""
        prefix = Prefix.parse(cidr)
        self.put(block_key(prefix), Block.new(prefix, owner=owner, now_ns=self.clock.now_ns()))
        if node:
            self.put_affinity(cidr, owner)

    def assign_to(self, text: str, handle: str | None, *, block_of: str = "", **owner: str) -> None:
        """Assign an address. Its block is created if needed, with the owner's node (or ``block_of``) as its owner."""
        address = Address.parse(text)
        prefix = Prefix.at(address, BLOCK_LENGTHS[address.family.value])
        if self.find(block_key(prefix)) is None:
            self.add_block(str(prefix), block_of or owner.get("node", ""))
        block = self.get(block_key(prefix))
        attribute = Attribute(handle=handle, owner=tuple(sorted(owner.items())))
        ordinal = next(n for n in block.free if prefix.nth(n) == address)
        self.put(block_key(prefix), block.assign((ordinal,), attribute))
        if handle is not None:
            stored = self.find(handle_key(handle)) or Handle()
            self.put(handle_key(handle), stored.with_count(prefix, stored.count(prefix) + 1))

    def assign_to_pod(
        self, text: str, pod: str = "web", *, node: str = "node-a", handle: str = "", **more: str
    ) -> None:
        """Assign an address to a pod of the namespace ``default``; its handle is ``h-<pod>``."""
        self.assign_to(text, handle or f"h-{pod}", node=node, pod=pod, namespace="default", **more)

    def release(self, text: str, *, cooling: bool = False) -> None:
        """Release an address; its handle is not changed."""
        key = self.key_of(text)
        block = self.get(key)
        ordinal = next(held.ordinal for held in block.held() if str(held.address) == text)
        since = self.clock.now_ns() if cooling else None
        self.put(key, block.release(frozenset({ordinal}), cooling_from_ns=since))

    def key_of(self, text: str) -> Key[Block]:
        address = Address.parse(text)
        return block_key(Prefix.at(address, BLOCK_LENGTHS[address.family.value]))

    # --- what remains ----------------------------------------------------------------------------------------------

    def held(self) -> dict[str, str | None]:
        """The assigned addresses and their handles."""
        blocks = (self.get(block_key(Prefix.parse(name))) for name in self.names(BLOCK))
        return {
            str(held.address): held.attribute.handle for block in blocks for held in block.held() if not held.is_cooling
        }

    def blocks(self) -> list[str]:
        return self.names(BLOCK)

    def handles(self) -> list[str]:
        return self.names(HANDLE)

    def affinities(self) -> list[str]:
        """All affinities: node and block."""
        listed = self.inner.read((List(AFFINITY),), deadline=self.deadline).list(List(AFFINITY))
        return [f"{record.key.path[1]} {record.key.name}" for record in listed]


# --- what tests leave, and what they read ----------------------------------------------------------------------------


def action_texts(report: CollectionReport) -> list[str]:
    """The texts of what a tick did."""
    return [str(action) for action in report.done]


def leak_address(harness: CollectorHarness) -> None:
    """An address whose pod does not exist."""
    harness.assign_to_pod("10.0.0.1")


def leave_handle(harness: CollectorHarness) -> None:
    """A handle that names a block and holds nothing."""
    harness.put(handle_key("h-left"), Handle(blocks=((Prefix.parse("10.0.0.0/30"), 1),)))


def leave_affinity(harness: CollectorHarness) -> None:
    """An affinity without a block."""
    harness.put_affinity("10.0.0.12/30", state=AffinityState.PENDING)


def leave_block(harness: CollectorHarness) -> None:
    """An empty block without an owner."""
    harness.add_block("10.0.0.16/30", "")


def inject_faults(harness: CollectorHarness, *faults: Fault) -> None:
    """One fault for each of the next commits of the collector."""
    harness.store = FaultyDatastore(harness.inner, dict(enumerate(faults, 1)))


class MalformedBlockDatastore(FaultyDatastore):
    """A store in which one block cannot be decoded."""

    def __init__(self, inner: Datastore, name: str) -> None:
        super().__init__(inner, {})
        self.key = block_key(Prefix.parse(name))

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        if Get(self.key) in queries:
            raise Malformed(str(self.key), "attributes: 7 is not an object")
        return super().read(queries, deadline=deadline)
