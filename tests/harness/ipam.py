"""A cluster of allocators over one store in memory, for tests of address assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import decide_behind
from netplug_core.datastore.view import View
from netplug_core.flows.ipam.cache import make_ipam_cache
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.context import first_drawn
from netplug_core.ipam.allocation.decide import decide, queries
from netplug_core.ipam.allocation.pools import BlockOrder
from netplug_core.ipam.allocation.request import (
    Assignment,
    AssignRequest,
    Automatic,
    Released,
    ReleaseRequest,
    Shortfall,
    Specific,
    Wanted,
)
from netplug_core.ipam.model import (
    AFFINITY,
    BLOCK,
    HANDLE,
    Affinity,
    AffinityState,
    Block,
    Handle,
    affinity_key,
    block_key,
    handle_key,
    host_owner,
)
from netplug_core.ipam.protocol import NO_ENDPOINT, EndpointWrites
from netplug_core.records import (
    Create,
    Decision,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Query,
    Record,
    Snapshot,
    Update,
    Write,
)
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    READINESS_GATE,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION_KEY,
    AllowedUse,
    IPAMConfiguration,
    IPAMConfigurationSpec,
    IPPool,
    IPPoolSpec,
    IPReservation,
    IPReservationSpec,
    ippool_key,
    ipreservation_key,
)
from netplug_core.resources.node import Node, node_key
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import Fault, FaultyDatastore

NODE = "node-a"
OTHER_NODE = "node-b"

V = TypeVar("V")


def first_block_first(node: str, pool: Prefix, count: int) -> int:
    """Every node starts at a pool's first block, so that a test can say which one comes next."""
    return 0


def ipv4(count: int = 1, *pools: str) -> Automatic:
    return Automatic(family=Family.IPV4, count=count, pools=pools)


def ipv6(count: int = 1, *pools: str) -> Automatic:
    return Automatic(family=Family.IPV6, count=count, pools=pools)


def specific(address: str, *pools: str) -> Specific:
    """A request for exactly that address."""
    return Specific(address=Address.parse(address), pools=pools)


def make_request(handle: str | None = "h", *wanted: Wanted, node: str = NODE) -> AssignRequest:
    """A request for these families (by default one IPv4 address), all or nothing."""
    return AssignRequest(
        handle=handle, node=node, wanted=wanted or (ipv4(),), use=AllowedUse.WORKLOAD, shortfall=Shortfall.REFUSE
    )


@define
class IPAMHarness:
    """A store, a clock, and what people and nodes do to the store."""

    clock: ManualClock
    store: MemoryDatastore
    cache: View | None = field(default=None)

    @classmethod
    def new(cls, mode: MemoryMode = MemoryMode.ATOMIC) -> IPAMHarness:
        """An empty store."""
        clock = ManualClock()
        return cls(clock, MemoryDatastore(mode, clock=clock))

    @property
    def rereads(self) -> int:
        """The reads that a claim takes beside those of other stores: a cache answered the list of affinities."""
        return int(self.store.mode is MemoryMode.KUBE_LIKE)

    def refresh_cache(self) -> None:
        """Let the time pass after which the store's cache shows every change."""
        self.clock.sleep(2)

    # --- nodes -----------------------------------------------------------------------------------------------------

    def ipam(self, script: Mapping[int, Fault] | None = None) -> BlockIPAM:
        """An allocator; ``script`` is what its commits suffer."""
        store: Datastore = FaultyDatastore(self.store, script) if script else self.store
        return BlockIPAM(
            datastore=store, clock=self.clock, chance=lambda: 0.5, order=first_block_first, cache=self.cache
        )

    def enable_cache(self, *uncached: Kind[object]) -> None:
        """From now on allocators remember what they saw, as those of a resident process do."""
        self.cache = make_ipam_cache(self.store, clock=self.clock, further_uncached_kinds=frozenset(uncached))

    @property
    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 60)

    @property
    def pace(self) -> Pace:
        return Pace(clock=self.clock, deadline=self.deadline, chance=lambda: 0.5)

    def assign(
        self, request: AssignRequest, script: Mapping[int, Fault] | None = None, part: EndpointWrites = NO_ENDPOINT
    ) -> list[str]:
        """The addresses that the request gets, as texts."""
        assignment = self.ipam(script).assign(request, part, deadline=self.deadline)
        return [str(assigned.address) for assigned in assignment.addresses]

    def assign_or_refuse(self, handle: str | None, *wanted: Wanted, node: str = NODE) -> list[str]:
        """Assign, all or nothing."""
        return self.assign(make_request(handle, *wanted, node=node))

    def assign_up_to(self, handle: str | None, *wanted: Wanted, node: str = NODE) -> list[str]:
        """Assign, with less than asked as an answer."""
        return self.assign(evolve(make_request(handle, *wanted, node=node), shortfall=Shortfall.RETURN))

    def release(self, handle: str, script: Mapping[int, Fault] | None = None) -> list[str]:
        """The addresses that a release frees, as texts."""
        freed: Released = self.ipam(script).release(ReleaseRequest(handle=handle), NO_ENDPOINT, deadline=self.deadline)
        return [str(address) for address in freed.addresses]

    def decision(self, request: AssignRequest, order: BlockOrder = first_block_first) -> Decision[Assignment]:
        """What the rule makes of the store as it is; nothing is committed."""
        return self.decision_and_reads(request, order)[0]

    def decision_and_reads(
        self, request: AssignRequest, order: BlockOrder = first_block_first, draw: Callable[[], float] = first_drawn
    ) -> tuple[Decision[Assignment], list[tuple[Query, ...]]]:
        """The same, and what was read for it, read by read."""
        reads: list[tuple[Query, ...]] = [(READINESS_GATE.query, *queries(request))]
        snapshot = self.read(*reads[0])
        while True:
            decided = decide_behind(
                READINESS_GATE, snapshot, lambda seen: decide(seen, request, self.clock.now_ns(), order, draw)
            )
            if isinstance(decided, Decision):
                return decided, reads
            reads.append(decided.queries)
            snapshot = snapshot.merged(self.read(*decided.queries))

    # --- people ----------------------------------------------------------------------------------------------------

    def add_pool(self, name: str, cidr: str, block_length: int = 0) -> None:
        """A pool with the defaults."""
        self.put(ippool_key(name), make_pool(name, cidr, block_length))

    def change_pool(self, name: str, **changes: object) -> None:
        """Change fields of a pool's spec."""
        stored = self.get(ippool_key(name))
        spec: IPPoolSpec = evolve(stored.spec, **changes)  # type: ignore[arg-type] # any field of it
        self.put(ippool_key(name), evolve(stored, spec=spec))

    def disable_pool(self, name: str) -> None:
        self.change_pool(name, is_disabled=True)

    def configure(self, **changes: object) -> None:
        """Change how addresses are assigned; what is not named is as by default."""
        spec = IPAMConfigurationSpec(**changes)  # type: ignore[arg-type] # any field of it
        self.put(IPAM_CONFIGURATION_KEY, IPAMConfiguration(metadata=Metadata(name="default"), spec=spec))

    def reserve(self, name: str, *cidrs: str) -> None:
        """A reservation of these prefixes, in place of what it reserved before."""
        spec = IPReservationSpec(reserved=tuple(map(Prefix.parse, cidrs)))
        self.put(ipreservation_key(name), IPReservation(metadata=Metadata(name=name), spec=spec))

    def label_node(self, node: str = NODE, **labels: str) -> None:
        """A node with these labels and no others."""
        self.put(node_key(node), Node(metadata=Metadata(name=node, labels=tuple(sorted(labels.items())))))

    def set_ready(self, *, is_ready: bool) -> None:
        spec = ClusterInformationSpec(is_datastore_ready=is_ready)
        self.put(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"), spec=spec))

    def put(self, key: Key[V], value: V) -> None:
        """Store a value, whatever was there."""
        found = self.find_record(key)
        self.commit(Update(key, value, found.revision) if found else Create(key, value))

    def remove(self, key: Key[object]) -> None:
        found = self.find_record(key)
        assert found is not None
        self.commit(Delete(key, found.revision))

    def commit(self, *writes: Write) -> None:
        self.store.commit(writes, deadline=self.deadline)

    # --- what is stored --------------------------------------------------------------------------------------------

    def read(self, *queries: Query) -> Snapshot:
        return self.store.read(queries, deadline=self.deadline)

    def find_record(self, key: Key[V]) -> Record[V] | None:
        return self.read(Get(key)).find(key)

    def find(self, key: Key[V]) -> V | None:
        record = self.find_record(key)
        return record.value if record else None

    def get(self, key: Key[V]) -> V:
        value = self.find(key)
        assert value is not None, f"{key} is not there"
        return value

    def records(self, kind: Kind[V]) -> tuple[Record[V], ...]:
        asked = List(kind)
        return self.read(asked).list(asked)

    def block(self, cidr: str) -> Block:
        return self.get(block_key(Prefix.parse(cidr)))

    def blocks(self) -> dict[str, str]:
        """Every block, and who owns it."""
        return {str(record.value.prefix): record.value.owner for record in self.records(BLOCK)}

    def affinities(self) -> dict[tuple[str, str], str]:
        """Every claim: node and block, and how far it has come."""
        return {(record.key.path[1], record.key.name): record.value.state.value for record in self.records(AFFINITY)}

    def affinity_records(self, node: str = NODE) -> tuple[Record[Affinity], ...]:
        return tuple(record for record in self.records(AFFINITY) if record.key.path[1] == node)

    def handle_counts(self, handle: str) -> dict[str, int]:
        """What a handle says it holds in which block."""
        found = self.get(handle_key(handle))
        return {str(prefix): count for prefix, count in found.blocks}

    def handles(self) -> list[str]:
        return [record.key.name for record in self.records(HANDLE)]

    def held(self) -> dict[str, str | None]:
        """Every address that is held, and its handle."""
        blocks = (record.value for record in self.records(BLOCK))
        return {str(held.address): held.attribute.handle for block in blocks for held in block.held()}

    # --- what a crash may have left --------------------------------------------------------------------------------

    def put_affinity(self, cidr: str, state: AffinityState, node: str = NODE) -> None:
        self.put(affinity_key(host_owner(node), Prefix.parse(cidr)), Affinity(state=state))

    def put_block(self, cidr: str, node: str = NODE) -> None:
        """An empty block that is affine to a node; to none if the node is empty."""
        owner = host_owner(node) if node else ""
        self.put(block_key(Prefix.parse(cidr)), Block.new(Prefix.parse(cidr), owner=owner, now_ns=self.clock.now_ns()))

    def put_owned_block(self, cidr: str, node: str = NODE) -> None:
        """An empty block of a node, with its claim: what a workload that has gone leaves behind."""
        self.put_block(cidr, node)
        self.put_affinity(cidr, AffinityState.CONFIRMED, node)

    def put_handle(self, handle: str, **counts: int) -> None:
        """A handle that says it holds so many addresses; nothing is held. Blocks are named by keyword: ``b0=3``."""
        blocks = ((Prefix.parse(f"10.0.0.{64 * int(name[1:])}/26"), count) for name, count in counts.items())
        self.put(handle_key(handle), Handle(blocks=tuple(sorted(blocks))))

    def take_call_counts(self) -> tuple[int, int]:
        """Reads and commits since the last question."""
        spent = self.store.calls.reads, self.store.calls.commits
        self.store.calls.reads = self.store.calls.commits = 0
        return spent


def make_pool(name: str, cidr: str, block_length: int = 0) -> IPPool:
    """A pool with the defaults, as it is stored; a pool smaller than a block is one block."""
    prefix = Prefix.parse(cidr)
    length = block_length or max(prefix.length, prefix.family.default_block_length)
    return IPPool(metadata=Metadata(name=name), spec=IPPoolSpec(prefix=prefix, block_length=length))
