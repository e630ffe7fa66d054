"""The garbage collector among pods, nodes and tunnels that come and go, with faults, races and outdated views.

- V18, first half: no tick frees an address that is in use, or changes the owner of its block.
- V18, second half: without further faults, every leaked address is free after the grace period and two ticks. After
  another grace period the counts of every handle are right, every affinity has its block, every block has an owner with
  an affinity or an assigned address, and gone nodes own only blocks with addresses that may be in use.
- After every step: blocks are valid, no count is too low, owners have affinities.
- An address stays assigned if it cannot be determined whether it is in use.
"""

from __future__ import annotations

import enum
from contextlib import suppress

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError, Unavailable
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest
from netplug_core.ipam.gc.candidates import ScanHistory, StoreView, allocation_owners
from netplug_core.ipam.model import AffinityState, Handle, Pairs, affinity_key, handle_key, owner_node
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.orchestrator.model import PodName, PodPhase
from netplug_core.resources.ippool import AllowedUse, ippool_key
from netplug_core.testing.faults import ProcessDied
from tests.harness.allocator.client import CallFault, FaultKind, StoreClient
from tests.harness.collector import GRACE_S, CollectorHarness
from tests.harness.example_counts import COLLECTOR_EXAMPLES

NODES = ("node-a", "node-b", "node-c")
PODS = ("p0", "p1", "p2", "p3")
POOL = Prefix.parse("10.0.0.0/28")

nodes = st.sampled_from(NODES)
pods = st.sampled_from(PODS)
families = st.sampled_from([(Family.IPV4,), (Family.IPV4, Family.IPV6), (Family.IPV6,)])
pauses = st.sampled_from([1.0, 61.0, GRACE_S / 2, GRACE_S])
call_numbers = st.integers(1, 8)
faults = st.none() | st.builds(
    CallFault,
    st.sampled_from([kind for kind in FaultKind if kind is not FaultKind.CONCURRENT_OPERATION]),
    call_numbers,
    st.integers(0, 12),
)


class ConcurrentAction(enum.Enum):
    """What another process does: a pod starts or stops, its ADD is repeated, or a node returns."""

    START = enum.auto()
    STOP = enum.auto()
    REPEAT = enum.auto()
    RETURN = enum.auto()


@frozen
class ConcurrentActor:
    """Another process, which acts before one of the calls of a tick."""

    call_number: int
    action: ConcurrentAction
    pod: str
    node: str


actors = st.none() | st.builds(ConcurrentActor, call_numbers, st.sampled_from(ConcurrentAction), pods, nodes)


@frozen(kw_only=True)
class LiveOwner:
    """An owner that uses its addresses: a pod, a node as the end of a tunnel, or a container without a pod."""

    addresses: frozenset[Address] = frozenset()
    attributes: Pairs
    wanted: tuple[Family, ...] = (Family.IPV4,)
    use: AllowedUse = AllowedUse.WORKLOAD
    pod: str = ""
    node: str


class NoObserver:
    """An observer of commits that does nothing."""

    def before_commit(self, client: StoreClient) -> None:
        """A commit is about to arrive."""

    def after_commit(self, client: StoreClient) -> None:
        """A commit has arrived, or has failed."""


def attachment_attributes(container: str, pod: str = "") -> Pairs:
    """The attributes that are stored with the addresses of an attachment."""
    of_pod = (("namespace", "default"), ("pod", pod)) if pod else ()
    return (("container", container), ("interface", "eth0"), *of_pod)


class CollectorMachine(RuleBasedStateMachine):
    mode: MemoryMode

    def __init__(self) -> None:
        super().__init__()
        harness = CollectorHarness()
        harness.inner = MemoryDatastore(self.mode, clock=harness.clock)
        harness.store = harness.inner
        harness.orchestrator.nodes = set(NODES)
        harness.add_pool("four", str(POOL))
        harness.add_pool("six", "fd00::/125")
        self.harness = harness
        self.live_owners: dict[str, LiveOwner] = {}
        self.old_view: StoreView = harness.view()
        self.containers = 0

    # --- workloads start ---------------------------------------------------------------------------------------------

    @rule(pod=pods, node=nodes, wanted=families, fault=faults)
    def start_pod(self, pod: str, node: str, wanted: tuple[Family, ...], fault: CallFault | None) -> None:
        self.attach(pod, node, wanted, fault)

    def attach(self, pod: str, node: str, wanted: tuple[Family, ...], fault: CallFault | None = None) -> None:
        """Attach a container of a pod, unless there is one. Then the pod reports its addresses."""
        known = self.harness.orchestrator.pods.get(PodName("default", pod))
        node = known.node if known else node
        is_attached = self.handles_of(pod) or (known is not None and known.is_terminated)
        if is_attached or node not in self.harness.orchestrator.nodes:
            return
        self.harness.orchestrator.run_pod(pod, node)
        self.containers += 1
        container = f"c{self.containers}"
        owner = LiveOwner(attributes=attachment_attributes(container, pod), wanted=wanted, pod=pod, node=node)
        addresses = self.add_owner(f"net.{container}", owner, fault)
        if addresses:
            self.harness.orchestrator.run_pod(pod, node, *map(str, addresses))

    @rule(node=nodes, fault=faults)
    def open_tunnel(self, node: str, fault: CallFault | None) -> None:
        if node in self.harness.orchestrator.nodes:
            owner = LiveOwner(attributes=(("type", "vxlanTunnelAddress"),), node=node, use=AllowedUse.TUNNEL)
            self.add_owner(f"tunnel-{node}", owner, fault)

    @rule(number=st.integers(0, 1), node=nodes, fault=faults)
    def start_container_without_pod(self, number: int, node: str, fault: CallFault | None) -> None:
        """It cannot be determined whether such a container still runs."""
        owner = LiveOwner(attributes=attachment_attributes(f"bare{number}"), node=node)
        self.add_owner(f"net.bare{number}", owner, fault)

    def add_owner(self, handle: str, owner: LiveOwner, fault: CallFault | None) -> frozenset[Address]:
        addresses = self.assign(handle, owner, fault)
        if addresses:
            self.live_owners[handle] = evolve(owner, addresses=addresses)
        return addresses

    def assign(self, handle: str, owner: LiveOwner, fault: CallFault | None = None) -> frozenset[Address]:
        """The addresses that are assigned; none if the call fails or its process dies."""
        request = AssignRequest(
            handle=handle,
            node=owner.node,
            wanted=tuple(Automatic(family=family) for family in owner.wanted),
            owner=owner.attributes,
            use=owner.use,
        )
        with suppress(AllocationError, ProcessDied, Unavailable):
            assignment = self.ipam(fault).assign(request, NO_ENDPOINT, deadline=self.harness.deadline)
            return frozenset(assigned.address for assigned in assignment.addresses)
        return frozenset()

    # --- workloads end -----------------------------------------------------------------------------------------------

    @rule(pod=pods, fault=faults)
    def stop_pod(self, pod: str, fault: CallFault | None) -> None:
        self.detach(pod, fault)

    def detach(self, pod: str, fault: CallFault | None = None) -> None:
        """Detach the container of a pod, and delete the pod."""
        for handle in self.handles_of(pod):
            del self.live_owners[handle]
            with suppress(ProcessDied, Unavailable):
                self.ipam(fault).release(ReleaseRequest(handle=handle), NO_ENDPOINT, deadline=self.harness.deadline)
        self.harness.orchestrator.pods.pop(PodName("default", pod), None)

    @rule(pod=pods)
    def lose_pod(self, pod: str) -> None:
        self.delete_pod(pod)

    def delete_pod(self, pod: str) -> None:
        """Delete a pod without a DEL for its container."""
        for handle in self.handles_of(pod):
            del self.live_owners[handle]
        self.harness.orchestrator.pods.pop(PodName("default", pod), None)

    @rule(pod=pods)
    def evict_pod(self, pod: str) -> None:
        """An evicted pod still reports its addresses."""
        name = PodName("default", pod)
        if name in self.harness.orchestrator.pods:
            for handle in self.handles_of(pod):
                del self.live_owners[handle]
            self.harness.orchestrator.pods[name] = evolve(self.harness.orchestrator.pods[name], phase=PodPhase.FAILED)

    @rule(node=nodes, deletes_pods=st.booleans())
    def remove_node(self, node: str, *, deletes_pods: bool) -> None:
        self.harness.orchestrator.nodes.discard(node)
        self.live_owners.pop(f"tunnel-{node}", None)
        if deletes_pods:
            for name in [name for name, pod in self.harness.orchestrator.pods.items() if pod.node == node]:
                self.delete_pod(name.name)

    @rule(node=nodes)
    def add_node(self, node: str) -> None:
        self.harness.orchestrator.nodes.add(node)

    @rule(node=nodes)
    def rename_node(self, node: str) -> None:
        """The pods of the node go on under its other name, and report the addresses that they had."""
        orchestrator, name = self.harness.orchestrator, f"{node}-renamed"
        if node in orchestrator.nodes:
            orchestrator.nodes = orchestrator.nodes - {node} | {name}
            self.live_owners.pop(f"tunnel-{node}", None)
            moved = {key: evolve(pod, node=name) for key, pod in orchestrator.pods.items() if pod.node == node}
            orchestrator.pods.update(moved)
            for handle, owner in self.live_owners.items():
                self.live_owners[handle] = evolve(owner, node=name) if owner.node == node else owner

    def handles_of(self, pod: str) -> list[str]:
        return [handle for handle, owner in self.live_owners.items() if owner.pod == pod]

    # --- other changes -----------------------------------------------------------------------------------------------

    @rule(seconds=pauses)
    def wait(self, seconds: float) -> None:
        self.harness.clock.sleep(seconds)

    @rule(block_length=st.integers(29, 32))
    def create_pool_again(self, block_length: int) -> None:
        """Another block size over the blocks that are there."""
        pool = self.harness.get(ippool_key("four"))
        self.harness.put(pool.key, evolve(pool, spec=evolve(pool.spec, block_length=block_length)))

    @rule(seconds=st.sampled_from([0, 60]))
    def change_cooldown(self, seconds: int) -> None:
        self.harness.set_cooldown(seconds)

    @rule(node=nodes, index=st.integers(0, 3), state=st.sampled_from(AffinityState))
    def leave_affinity(self, node: str, index: int, state: AffinityState) -> None:
        """A node died before it created the block of an affinity, or after it deleted the block."""
        prefix = POOL.subprefix(index, 30)
        if state is AffinityState.CONFIRMED or self.harness.find(affinity_key(f"host:{node}", prefix)) is not None:
            return
        self.harness.put_affinity(str(prefix), f"host:{node}", state)

    @rule(index=st.integers(0, 3), count=st.integers(1, 2))
    def leave_handle(self, index: int, count: int) -> None:
        """A call died after it wrote the handle and before it wrote the block."""
        if self.harness.find(handle_key("net.dead")) is None:
            self.harness.put(handle_key("net.dead"), Handle(blocks=((POOL.subprefix(index, 30), count),)))

    @rule()
    def keep_view(self) -> None:
        self.old_view = self.harness.view()

    # --- the collector -----------------------------------------------------------------------------------------------

    @rule(is_old=st.booleans(), is_unavailable=st.booleans(), limit=st.integers(1, 4), fault=faults, actor=actors)
    def tick(
        self, *, is_old: bool, is_unavailable: bool, limit: int, fault: CallFault | None, actor: ConcurrentActor | None
    ) -> None:
        self.harness.store = client = self.client(fault)
        if actor is not None:
            kind = FaultKind.CONCURRENT_OPERATION
            client.faults[actor.call_number] = CallFault(
                kind, actor.call_number, operation=lambda _writes: self.act(actor)
            )
        self.harness.settings = evolve(self.harness.settings, max_actions=3 * limit, batch_size=limit)
        self.harness.orchestrator.is_unavailable = is_unavailable
        before = self.block_owners_in_use()
        try:
            self.harness.tick(self.old_view if is_old else None)
        except ProcessDied:
            self.harness.history = ScanHistory()  # the next process starts without one
        finally:
            self.harness.store = self.harness.inner
            self.harness.orchestrator.is_unavailable = False
        after = self.block_owners_in_use()
        assert all(after[address] == owner for address, owner in before.items() if address in after)

    def block_owners_in_use(self) -> dict[Address, str]:
        """Every address in use, and the owner of its block."""
        owners = {record.value.prefix: record.value.owner for record in self.harness.view().blocks}
        used = {address for owner in self.live_owners.values() for address in owner.addresses}
        return {address: owner for prefix, owner in owners.items() for address in used if prefix.contains(address)}

    def act(self, actor: ConcurrentActor) -> None:
        """What another process does, without a fault."""
        match actor.action:
            case ConcurrentAction.START:
                self.attach(actor.pod, actor.node, (Family.IPV4,))
            case ConcurrentAction.STOP:
                self.detach(actor.pod)
            case ConcurrentAction.REPEAT:
                for handle in self.handles_of(actor.pod):
                    assert self.assign(handle, self.live_owners[handle]) == self.live_owners[handle].addresses
            case ConcurrentAction.RETURN:
                self.harness.orchestrator.nodes.add(actor.node)

    # --- invariants --------------------------------------------------------------------------------------------------

    @invariant()
    def addresses_in_use_stay_assigned(self) -> None:
        held = self.held()
        for handle, owner in self.live_owners.items():
            assert dict.fromkeys(owner.addresses, handle).items() <= held.items()

    @invariant()
    def records_are_consistent(self) -> None:
        view = self.harness.view()
        affinities = {record.key for record in view.affinities}
        handles = {record.key.name: record.value for record in self.harness.stored_handles()}
        for record in view.blocks:
            block = record.value
            assert block.problem() == ""
            assert not block.owner or affinity_key(block.owner, block.prefix) in affinities
            for handle in {attribute.handle for attribute in block.attributes if attribute.handle is not None}:
                assert handles[handle].count(block.prefix) >= len(block.held_by(handle))

    def teardown(self) -> None:
        """Without further faults, leaked addresses are freed in time, and then all records are exact."""
        for name, pod in list(self.harness.orchestrator.pods.items()):
            if not pod.addresses and not pod.is_terminated:  # a starting pod keeps everything that it may own
                self.delete_pod(name.name)
        self.harness.set_cooldown(0)
        self.harness.settings = evolve(self.harness.settings, max_actions=1000, batch_size=16)
        self.harness.tick()
        self.harness.clock.sleep(GRACE_S)
        self.harness.tick()
        self.harness.tick()
        used = {address: handle for handle, owner in self.live_owners.items() for address in owner.addresses}
        held = self.held()
        assert used.items() <= held.items()
        assert all(self.is_undetermined(handle or "") for address, handle in held.items() if address not in used)
        self.harness.clock.sleep(GRACE_S)
        self.harness.tick()
        self.harness.clock.sleep(GRACE_S)
        report = self.harness.tick()
        assert report.is_settled
        self.check_final_records()

    def is_undetermined(self, handle: str) -> bool:
        """Whether an address may stay assigned after a call that died: of a container without a pod, or of a tunnel."""
        tunnels = {f"tunnel-{node}" for node in self.harness.orchestrator.nodes}
        return handle.startswith("net.bare") or handle in tunnels

    def check_final_records(self) -> None:
        view = self.harness.view()
        blocks = {record.value.prefix: record.value for record in view.blocks}
        counts = {
            handle: tuple(
                sorted(
                    (prefix, len(block.held_by(handle))) for prefix, block in blocks.items() if block.held_by(handle)
                )
            )
            for handle in set(self.held().values())
            if handle is not None
        }
        assert {record.key.name: record.value.blocks for record in self.harness.stored_handles()} == counts
        owned = {affinity_key(block.owner, prefix) for prefix, block in blocks.items() if block.owner}
        assert {record.key for record in view.affinities} == owned
        for block in blocks.values():
            assert block.owner or not block.is_empty
            node = owner_node(block.owner)
            assert node in self.harness.orchestrator.nodes or not block.is_empty or self.has_addresses(node)

    def has_addresses(self, node: str) -> bool:
        """Whether addresses are assigned through a node. If it is gone, they keep all its affinities."""
        view = self.harness.view()
        return any(owner.node == node for record in view.blocks for owner in allocation_owners(record.value))

    # --- helpers -----------------------------------------------------------------------------------------------------

    def client(self, fault: CallFault | None) -> StoreClient:
        client = StoreClient(inner=self.harness.inner, clock=self.harness.clock, observer=NoObserver())
        client.reset(*([fault] if fault else []))
        return client

    def ipam(self, fault: CallFault | None) -> BlockIPAM:
        return BlockIPAM(datastore=self.client(fault), clock=self.harness.clock, chance=lambda: 0.5)

    def held(self) -> dict[Address, str | None]:
        """The assigned addresses and their handles."""
        found = (owner for record in self.harness.view().blocks for owner in allocation_owners(record.value))
        return {owner.address: owner.handle for owner in found}


class OnAnAtomicStore(CollectorMachine):
    mode = MemoryMode.ATOMIC


class OnAnOrderedStore(CollectorMachine):
    mode = MemoryMode.ORDERED


class OnAKubeLikeStore(CollectorMachine):
    mode = MemoryMode.KUBE_LIKE


TestOnAnAtomicStore = OnAnAtomicStore.TestCase
TestOnAnOrderedStore = OnAnOrderedStore.TestCase
TestOnAKubeLikeStore = OnAKubeLikeStore.TestCase
TestOnAnAtomicStore.settings = TestOnAnOrderedStore.settings = COLLECTOR_EXAMPLES
TestOnAKubeLikeStore.settings = COLLECTOR_EXAMPLES
