"""Pods, nodes and tunnels come and go, calls die half-way, and a collector ticks over old and new views.

- V18, first half: no tick ever frees an address whose owner lives, or takes its block from its owner, whatever the
  view, the faults and the races.
- V18, second half: once things are quiet every leaked address is free within the grace period and two ticks; after
  another grace period every handle counts what is held, every claim leads to its block, every block has an owner with
  a claim or an address, and gone nodes own nothing that nobody uses.
- The books stay sound after every step: blocks have their shape, no count is too low, owners have claims.
- What nobody can judge stays held.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from contextlib import suppress

from attrs import define, evolve, frozen
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Atomicity
from netplug_core.errors import AllocationError, Unavailable
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest
from netplug_core.ipam.gc.candidates import allocation_owners
from netplug_core.ipam.gc.model import ScanHistory, StoreView
from netplug_core.ipam.model.affinity import AffinityState, affinity_key, owner_node
from netplug_core.ipam.model.block import Pairs
from netplug_core.ipam.model.handle import Handle, handle_key
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.orchestrator.model import PodName, PodPhase
from netplug_core.records import Revision, Write
from netplug_core.resources.ippool import AllowedUse
from netplug_core.testing.faults import (
    Fault,
    FaultyDatastore,
    LostRace,
    LostReply,
    LostRequest,
    ProcessDeath,
    ProcessDied,
)
from tests.harness.collector import GRACE_S, CollectorHarness
from tests.harness.stores import StoreWrapper

NODES = ("node-a", "node-b", "node-c")
PODS = ("p0", "p1", "p2", "p3")

nodes = st.sampled_from(NODES)
pods = st.sampled_from(PODS)
families = st.sampled_from([(Family.IPV4,), (Family.IPV4, Family.IPV6), (Family.IPV6,)])
pauses = st.sampled_from([1.0, 61.0, GRACE_S / 2, GRACE_S])


class CommitFaultKind(enum.Enum):
    """What may happen to a commit."""

    LOST_RACE = enum.auto()
    LOST_REQUEST = enum.auto()
    LOST_REPLY = enum.auto()
    PROCESS_DEATH = enum.auto()


@frozen
class CommitFault:
    """What happens to one commit of a call, after a share of its writes."""

    kind: CommitFaultKind
    at: int
    share: float

    def fault(self, count: int, atomicity: Atomicity) -> Fault:
        """The fault that it is for so many writes; an atomic store has applied none or all of them."""
        is_ordered = atomicity is Atomicity.ORDERED
        applied = round(self.share * count) if is_ordered else round(self.share) * count
        match self.kind:
            case CommitFaultKind.LOST_RACE:
                return LostRace(min(applied, count - 1) if is_ordered else 0)
            case CommitFaultKind.LOST_REQUEST:
                return LostRequest(applied if applied < count else 0)
            case CommitFaultKind.LOST_REPLY:
                return LostReply(applied)
            case CommitFaultKind.PROCESS_DEATH:
                return ProcessDeath(applied)


mishaps = st.none() | st.builds(CommitFault, st.sampled_from(CommitFaultKind), st.integers(1, 4), st.floats(0, 1))


@define
class FaultyCollectorStore(StoreWrapper):
    """A store in which a mishap comes to one commit, and another actor acts just before one."""

    fault: CommitFault | None = None
    operation_at: int = 0
    operation: Callable[[], object] = lambda: None
    commits: int = 0

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        self.commits += 1
        if self.commits == self.operation_at:
            self.operation()
        script: dict[int, Fault] = {}
        if self.fault is not None and self.fault.at == self.commits:
            script[1] = self.fault.fault(len(writes), self.description.atomicity)
        return FaultyDatastore(self.inner, script).commit(writes, deadline=deadline)


class ConcurrentAction(enum.Enum):
    """What another actor may do: a pod starts, stops, is attached once more; a node is there again."""

    START = enum.auto()
    STOP = enum.auto()
    AGAIN = enum.auto()
    RETURN = enum.auto()


@frozen
class ConcurrentActor:
    """Another actor in the middle of a tick, before its n-th commit."""

    at: int
    action: ConcurrentAction
    pod: str
    node: str


rivals = st.none() | st.builds(ConcurrentActor, st.integers(1, 4), st.sampled_from(ConcurrentAction), pods, nodes)


@frozen(kw_only=True)
class LiveOwner:
    """Somebody who uses addresses: a pod, a node as the end of a tunnel, or a plain container."""

    addresses: frozenset[Address] = frozenset()
    owner: Pairs
    wanted: tuple[Family, ...] = (Family.IPV4,)
    use: AllowedUse = AllowedUse.WORKLOAD
    pod: str = ""
    node: str


def owner_of(container: str, pod: str = "") -> Pairs:
    """What an attachment stores with its addresses."""
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
        harness.add_pool("four", "10.0.0.0/28")
        harness.add_pool("six", "fd00::/125")
        self.harness = harness
        self.live_owners: dict[str, LiveOwner] = {}
        self.old_view: StoreView = harness.view()
        self.containers = 0

    # --- who comes ---------------------------------------------------------------------------------------------------

    @rule(pod=pods, node=nodes, wanted=families, mishap=mishaps)
    def start(self, pod: str, node: str, wanted: tuple[Family, ...], mishap: CommitFault | None) -> None:
        self.attach(pod, node, wanted, mishap)

    def attach(self, pod: str, node: str, wanted: tuple[Family, ...], mishap: CommitFault | None = None) -> None:
        """A pod's container is attached, unless one is; the pod reports its addresses from then on."""
        known = self.harness.orchestrator.pods.get(PodName("default", pod))
        node = known.node if known else node
        is_over = self.handles_of(pod) or (known is not None and known.is_terminated)
        if is_over or node not in self.harness.orchestrator.nodes:
            return
        self.harness.orchestrator.run_pod(pod, node)
        self.containers += 1
        handle = f"net.c{self.containers}"
        living = LiveOwner(owner=owner_of(f"c{self.containers}", pod), wanted=wanted, pod=pod, node=node)
        addresses = self.assign(handle, living, mishap)
        if addresses:
            self.live_owners[handle] = evolve(living, addresses=addresses)
            self.harness.orchestrator.run_pod(pod, node, *map(str, addresses))

    @rule(node=nodes, mishap=mishaps)
    def open_tunnel(self, node: str, mishap: CommitFault | None) -> None:
        if node in self.harness.orchestrator.nodes:
            living = LiveOwner(owner=(("type", "vxlanTunnelAddress"),), node=node, use=AllowedUse.TUNNEL)
            self.keep(f"tunnel-{node}", living, mishap)

    @rule(number=st.integers(0, 1), node=nodes, mishap=mishaps)
    def start_without_a_pod(self, number: int, node: str, mishap: CommitFault | None) -> None:
        """A plain container: nobody can ever say whether it still runs."""
        self.keep(f"net.bare{number}", LiveOwner(owner=owner_of(f"bare{number}"), node=node), mishap)

    def keep(self, handle: str, living: LiveOwner, mishap: CommitFault | None) -> None:
        addresses = self.assign(handle, living, mishap)
        if addresses:
            self.live_owners[handle] = evolve(living, addresses=addresses)

    def assign(self, handle: str, living: LiveOwner, mishap: CommitFault | None = None) -> frozenset[Address]:
        """The addresses that a call got; none where it failed or died."""
        request = AssignRequest(
            handle=handle,
            node=living.node,
            wanted=tuple(Automatic(family=family) for family in living.wanted),
            owner=living.owner,
            use=living.use,
        )
        with suppress(AllocationError, ProcessDied, Unavailable):
            got = self.ipam(mishap).assign(request, NO_ENDPOINT, deadline=self.harness.deadline)
            return frozenset(assigned.address for assigned in got.addresses)
        return frozenset()

    # --- who goes ----------------------------------------------------------------------------------------------------

    @rule(pod=pods, mishap=mishaps)
    def stop(self, pod: str, mishap: CommitFault | None) -> None:
        self.detach(pod, mishap)

    def detach(self, pod: str, mishap: CommitFault | None = None) -> None:
        """A pod's container is detached as it should be, and the pod deleted."""
        for handle in self.handles_of(pod):
            del self.live_owners[handle]
            with suppress(ProcessDied, Unavailable):
                self.ipam(mishap).release(ReleaseRequest(handle=handle), NO_ENDPOINT, deadline=self.harness.deadline)
        self.harness.orchestrator.pods.pop(PodName("default", pod), None)

    @rule(pod=pods)
    def vanish(self, pod: str) -> None:
        self.lose(pod)

    def lose(self, pod: str) -> None:
        """A pod is deleted, and nobody detaches its container."""
        for handle in self.handles_of(pod):
            del self.live_owners[handle]
        self.harness.orchestrator.pods.pop(PodName("default", pod), None)

    @rule(pod=pods)
    def finish(self, pod: str) -> None:
        """A pod is evicted; it goes on reporting its addresses."""
        name = PodName("default", pod)
        if name in self.harness.orchestrator.pods:
            for handle in self.handles_of(pod):
                del self.live_owners[handle]
            self.harness.orchestrator.pods[name] = evolve(self.harness.orchestrator.pods[name], phase=PodPhase.FAILED)

    @rule(node=nodes, takes_pods=st.booleans())
    def remove_node(self, node: str, *, takes_pods: bool) -> None:
        """A node is gone, and perhaps its pods; those that stay are there until somebody deletes them."""
        self.harness.orchestrator.nodes.discard(node)
        self.live_owners.pop(f"tunnel-{node}", None)
        if takes_pods:
            for name in [name for name, facts in self.harness.orchestrator.pods.items() if facts.node == node]:
                self.lose(name.name)

    @rule(node=nodes)
    def add_node(self, node: str) -> None:
        self.harness.orchestrator.nodes.add(node)

    def handles_of(self, pod: str) -> list[str]:
        return [handle for handle, living in self.live_owners.items() if living.pod == pod]

    # --- what else happens -------------------------------------------------------------------------------------------

    @rule(seconds=pauses)
    def time_passes(self, seconds: float) -> None:
        self.harness.clock.sleep(seconds)

    @rule(seconds=st.sampled_from([0, 60]))
    def change_cooldown(self, seconds: int) -> None:
        self.harness.set_cooldown(seconds)

    @rule(node=nodes, index=st.integers(0, 3), state=st.sampled_from(AffinityState))
    def leave_a_claim(self, node: str, index: int, state: AffinityState) -> None:
        """A node died between its claim and its block, or after it gave up the block."""
        prefix = Prefix.parse("10.0.0.0/28").subprefix(index, 30)
        if state is AffinityState.CONFIRMED or self.harness.find(affinity_key(f"host:{node}", prefix)) is not None:
            return
        self.harness.put_affinity(str(prefix), f"host:{node}", state)

    @rule(index=st.integers(0, 3), count=st.integers(1, 2))
    def leave_a_handle(self, index: int, count: int) -> None:
        """A call died between the handle and the block."""
        if self.harness.find(handle_key("net.dead")) is None:
            self.harness.put(
                handle_key("net.dead"), Handle(blocks=((Prefix.parse("10.0.0.0/28").subprefix(index, 30), count),))
            )

    @rule()
    def remember_the_view(self) -> None:
        self.old_view = self.harness.view()

    # --- the collector -----------------------------------------------------------------------------------------------

    @rule(is_old=st.booleans(), is_away=st.booleans(), bound=st.integers(1, 4), mishap=mishaps, rival=rivals)
    def tick(
        self, *, is_old: bool, is_away: bool, bound: int, mishap: CommitFault | None, rival: ConcurrentActor | None
    ) -> None:
        act_at = rival.at if rival else 0
        self.harness.store = FaultyCollectorStore(
            self.harness.inner, mishap, act_at, lambda: self.act(rival) if rival else None
        )
        self.harness.settings = evolve(self.harness.settings, max_actions=3 * bound, batch_size=bound)
        self.harness.orchestrator.is_unavailable = is_away
        owners = self.owners_of_what_is_used()
        try:
            self.harness.tick(self.old_view if is_old else None)
        except ProcessDied:
            self.harness.history = ScanHistory()  # the next process remembers nothing
        finally:
            self.harness.store = self.harness.inner
            self.harness.orchestrator.is_unavailable = False
        left = self.owners_of_what_is_used()
        assert all(left[address] == owner for address, owner in owners.items() if address in left)

    def owners_of_what_is_used(self) -> dict[Address, str]:
        """Every address that somebody who lives uses, and the owner of its block."""
        owners = {record.value.prefix: record.value.owner for record in self.harness.view().blocks}
        used = {address for living in self.live_owners.values() for address in living.addresses}
        return {address: owner for prefix, owner in owners.items() for address in used if prefix.contains(address)}

    def act(self, rival: ConcurrentActor) -> None:
        """What a rival does, undisturbed."""
        match rival.action:
            case ConcurrentAction.START:
                self.attach(rival.pod, rival.node, (Family.IPV4,))
            case ConcurrentAction.STOP:
                self.detach(rival.pod)
            case ConcurrentAction.AGAIN:
                for handle in self.handles_of(rival.pod):
                    assert self.assign(handle, self.live_owners[handle]) == self.live_owners[handle].addresses
            case ConcurrentAction.RETURN:
                self.harness.orchestrator.nodes.add(rival.node)

    # --- laws --------------------------------------------------------------------------------------------------------

    @invariant()
    def who_lives_keeps_its_addresses(self) -> None:
        held = self.held()
        for handle, living in self.live_owners.items():
            assert dict.fromkeys(living.addresses, handle).items() <= held.items()

    @invariant()
    def the_books_are_sound(self) -> None:
        view = self.harness.view()
        claims = {record.key for record in view.affinities}
        handles = {record.key.name: record.value for record in view.handles}
        for record in view.blocks:
            block = record.value
            assert block.problem() == ""
            assert not block.owner or affinity_key(block.owner, block.prefix) in claims
            for handle in {attribute.handle for attribute in block.attributes if attribute.handle is not None}:
                assert handles[handle].count(block.prefix) >= len(block.held_by(handle))

    def teardown(self) -> None:
        """When things are quiet, what leaked is free in time, and in time the books are exact."""
        for name, facts in list(self.harness.orchestrator.pods.items()):
            if not facts.addresses and not facts.is_terminated:  # what a starting pod was given may still be its own
                self.lose(name.name)
        self.harness.set_cooldown(0)
        self.harness.settings = evolve(self.harness.settings, max_actions=1000, batch_size=16)
        self.harness.tick()
        self.harness.clock.sleep(GRACE_S)
        self.harness.tick()
        self.harness.tick()
        used = {address: handle for handle, living in self.live_owners.items() for address in living.addresses}
        held = self.held()
        assert used.items() <= held.items()
        assert all(self.may_be_held(handle or "") for address, handle in held.items() if address not in used)
        self.harness.clock.sleep(GRACE_S)
        self.harness.tick()
        self.harness.clock.sleep(GRACE_S)
        report = self.harness.tick()
        assert report.is_settled
        self.judge_what_is_left()

    def may_be_held(self, handle: str) -> bool:
        """What a plain container, or a node that is there, got by a call that died: nobody can judge it."""
        tunnels = {f"tunnel-{node}" for node in self.harness.orchestrator.nodes}
        return handle.startswith("net.bare") or handle in tunnels

    def judge_what_is_left(self) -> None:
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
        assert {record.key.name: record.value.blocks for record in view.handles} == counts
        owned = {affinity_key(block.owner, prefix) for prefix, block in blocks.items() if block.owner}
        assert {record.key for record in view.affinities} == owned
        for block in blocks.values():
            assert block.owner or not block.is_empty
            node = owner_node(block.owner)
            assert node in self.harness.orchestrator.nodes or not block.is_empty or self.is_kept(node)

    def is_kept(self, node: str) -> bool:
        """Whether a gone node holds something that may be used, which keeps all its claims."""
        view = self.harness.view()
        return any(holding.node == node for record in view.blocks for holding in allocation_owners(record.value))

    # --- means -------------------------------------------------------------------------------------------------------

    def ipam(self, mishap: CommitFault | None) -> BlockIPAM:
        store = FaultyCollectorStore(self.harness.inner, mishap)
        return BlockIPAM(datastore=store, clock=self.harness.clock, chance=lambda: 0.5)

    def held(self) -> dict[Address, str | None]:
        """Every address that somebody holds, and the handle."""
        found = (holding for record in self.harness.view().blocks for holding in allocation_owners(record.value))
        return {holding.address: holding.handle for holding in found}


class OnAnAtomicStore(CollectorMachine):
    mode = MemoryMode.ATOMIC


class OnAnOrderedStore(CollectorMachine):
    mode = MemoryMode.ORDERED


class OnAKubeLikeStore(CollectorMachine):
    mode = MemoryMode.KUBE_LIKE


TestOnAnAtomicStore = OnAnAtomicStore.TestCase
TestOnAnOrderedStore = OnAnOrderedStore.TestCase
TestOnAKubeLikeStore = OnAKubeLikeStore.TestCase
