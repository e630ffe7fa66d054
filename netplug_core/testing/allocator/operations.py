"""What can be done to an allocator, as values, and how a client does it: through the core's own operations.

Acts of nodes go through the IPAM under test; the others through ``netplug_core.flows``, as ``netplugctl`` and the
controllers do them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen

from netplug_core.addressing import Prefix
from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.flows.ipam import addresses, affinities
from netplug_core.flows.resources import cluster
from netplug_core.flows.resources.apply import apply
from netplug_core.flows.resources.delete import delete
from netplug_core.ipam.allocation.block_order import hashed_start
from netplug_core.ipam.allocation.owners import OwnerChange
from netplug_core.ipam.allocation.relinquish import Emptiness
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, ReleaseItem, ReleaseRequest
from netplug_core.ipam.model.affinity import Affinity
from netplug_core.ipam.protocol import IPAM, NO_ENDPOINT, EndpointWrites
from netplug_core.records import Create, Decision, Delete, Get, Key, Snapshot, Update, Write
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.ipamconfiguration import IPAMConfigurationSpec
from netplug_core.resources.kinds import Resource
from netplug_core.resources.manifest import Manifest
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.workloadendpoint import (
    WorkloadEndpoint,
    WorkloadEndpointSpec,
    workload_endpoint_key,
)

__all__ = [
    "ASSIGN_TIMEOUT_S", "NAMESPACE", "RELEASE_TIMEOUT_S", "AdvanceClock", "ApplyResource", "Assign", "ChangeOwner",
    "ClaimBlocks", "CollectorView", "ConfigureIPAM", "DeletePod", "DeleteResource", "EnsureBlocks", "Operation",
    "OperationContext", "Release", "ReleaseAddresses", "RelinquishAffinities", "RelinquishBlock", "RelinquishNode",
    "RelinquishOperation", "RelinquishPool", "RunCollector", "SetReady", "StoreOperation", "endpoint_part",
]  # fmt: skip

ASSIGN_TIMEOUT_S = 60.0
RELEASE_TIMEOUT_S = 10.0
NAMESPACE = "pods"
"""Where the endpoints of all workloads stand."""


@frozen(kw_only=True)
class OperationContext:
    """A process: its way to the store, and the IPAM that it keeps over it."""

    store: Datastore
    ipam: IPAM
    clock: Clock
    new_uid: Callable[[], str]

    @property
    def pace(self) -> Pace:
        """Time for one operation."""
        return Pace(clock=self.clock, deadline=self.deadline(ASSIGN_TIMEOUT_S), chance=lambda: 0.5)

    def deadline(self, seconds: float) -> Deadline:
        """So many seconds from now."""
        return Deadline.after(self.clock, seconds)


# --- nodes and whoever has addresses ----------------------------------------------------------------------------------


@frozen(kw_only=True)
class Assign:
    """A node, or somebody through it, wants addresses."""

    request: AssignRequest

    def perform(self, context: OperationContext) -> object:
        """Ask the IPAM, and settle an endpoint with it."""
        part = endpoint_part(self.request.handle, self.request.node)
        return context.ipam.assign(self.request, part, deadline=context.deadline(ASSIGN_TIMEOUT_S))


@frozen(kw_only=True)
class Release:
    """A handle gives back what it holds."""

    request: ReleaseRequest

    def perform(self, context: OperationContext) -> object:
        """Ask the IPAM; the endpoint goes too."""
        part = endpoint_part(self.request.handle, "")
        return context.ipam.release(self.request, part, deadline=context.deadline(RELEASE_TIMEOUT_S))


@frozen(kw_only=True)
class ReleaseAddresses:
    """Somebody frees addresses one by one."""

    items: tuple[ReleaseItem, ...]

    def perform(self, context: OperationContext) -> object:
        """In bulk."""
        return addresses.release_addresses(context.store, self.items, pace=context.pace)


@frozen(kw_only=True)
class ChangeOwner:
    """Somebody changes what is stored about an address's owner."""

    change: OwnerChange

    def perform(self, context: OperationContext) -> object:
        """If the address is held as the change says."""
        return addresses.change_owner(context.store, self.change, pace=context.pace)


@frozen(kw_only=True)
class ClaimBlocks:
    """Somebody claims every block of a range."""

    claimant: str
    prefix: Prefix

    def perform(self, context: OperationContext) -> object:
        """Those that are nobody else's."""
        return affinities.claim(context.store, self.claimant, self.prefix, pace=context.pace)


@frozen(kw_only=True)
class EnsureBlocks:
    """A node makes sure that it has a block for each family of a request."""

    request: AssignRequest

    def perform(self, context: OperationContext) -> object:
        """The first there is, or a new one."""
        return affinities.ensure_blocks(context.store, self.request, order=hashed_start, pace=context.pace)


# --- people and controllers -------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class RelinquishNode:
    """Every claim of a node is given up."""

    node: str
    emptiness: Emptiness

    def perform(self, context: OperationContext) -> object:
        """In whatever pool."""
        return affinities.relinquish_node(context.store, self.node, self.emptiness, pace=context.pace)


@frozen(kw_only=True)
class RelinquishPool:
    """Every claim in a range is given up."""

    pool: Prefix
    emptiness: Emptiness

    def perform(self, context: OperationContext) -> object:
        """Whoever made it."""
        return affinities.relinquish_pool(context.store, self.pool, self.emptiness, pace=context.pace)


@frozen(kw_only=True)
class RelinquishBlock:
    """One block is given up."""

    block: Prefix
    emptiness: Emptiness

    def perform(self, context: OperationContext) -> object:
        """Whoever owns it."""
        return affinities.relinquish_block(context.store, self.block, self.emptiness, pace=context.pace)


@frozen(kw_only=True)
class RelinquishAffinities:
    """Some claims are given up, whether there are such claims or not."""

    affinities: tuple[Key[Affinity], ...]
    emptiness: Emptiness

    def perform(self, context: OperationContext) -> object:
        """Each with its block."""
        return affinities.relinquish(context.store, self.affinities, self.emptiness, pace=context.pace)


@frozen(kw_only=True)
class ApplyResource:
    """A person stores a resource, or changes it."""

    resource: Resource

    def perform(self, context: OperationContext) -> object:
        """If the rules for its kind allow it."""
        manifest = Manifest(resource=self.resource)
        return apply(context.store, manifest, pace=context.pace, new_uid=context.new_uid)


@frozen(kw_only=True)
class DeleteResource:
    """A person deletes a resource."""

    key: Key[Resource]

    def perform(self, context: OperationContext) -> object:
        """With what belongs to that: the claims in a pool, those of a node."""
        return delete(context.store, self.key, pace=context.pace)


@frozen(kw_only=True)
class ConfigureIPAM:
    """A person changes how addresses are assigned."""

    settings: IPAMConfigurationSpec

    def perform(self, context: OperationContext) -> object:
        """All of it."""
        return cluster.configure_ipam(
            context.store, lambda _before: self.settings, pace=context.pace, new_uid=context.new_uid
        )


@frozen(kw_only=True)
class SetReady:
    """Somebody locks the datastore, or unlocks it."""

    is_ready: bool

    def perform(self, context: OperationContext) -> object:
        """By the one flag that all heed."""
        metadata = Metadata(name=CLUSTER_INFORMATION_KEY.name)
        spec = ClusterInformationSpec(is_datastore_ready=self.is_ready)
        return _store_value(context, CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=metadata, spec=spec))


@frozen(kw_only=True)
class DeletePod:
    """A pod is gone, its endpoint with it, and nobody releases what its handle holds."""

    handle: str

    def perform(self, context: OperationContext) -> object:
        """What the orchestrator does."""
        return _store_value(context, workload_endpoint_key(NAMESPACE, self.handle), None)


@frozen(kw_only=True)
class CollectorView:
    """How well the collector sees the cluster: everything, or (its watch is broken) neither pods nor nodes."""

    is_empty: bool = False


@frozen(kw_only=True)
class RunCollector:
    """The collector's next tick; the bench keeps its memory and does it."""

    view: CollectorView = CollectorView()


@frozen(kw_only=True)
class AdvanceClock:
    """Time passes."""

    seconds: float


RelinquishOperation: TypeAlias = RelinquishNode | RelinquishPool | RelinquishBlock | RelinquishAffinities
StoreOperation: TypeAlias = (
    Assign | Release | ReleaseAddresses | ChangeOwner | ClaimBlocks | EnsureBlocks | RelinquishOperation
    | ApplyResource | DeleteResource | ConfigureIPAM | SetReady | DeletePod
)  # fmt: skip
"""What one client does to the store."""

Operation: TypeAlias = StoreOperation | RunCollector | AdvanceClock
"""Everything that can happen."""


# --- what the orchestrator's side of it is ----------------------------------------------------------------------------


def endpoint_part(handle: str | None, node: str) -> EndpointWrites:
    """The endpoint's share of a call: it names the addresses of its handle, and goes with them."""
    if handle is None:
        return NO_ENDPOINT
    key = workload_endpoint_key(NAMESPACE, handle)

    def writes(snapshot: Snapshot, assignment: Assignment | None) -> tuple[Write, ...]:
        if assignment is None:
            return _writes_to_set(snapshot, key, None)
        return _writes_to_set(snapshot, key, _endpoint(handle, node, assignment))

    return EndpointWrites(queries=(Get(key),), writes=writes)


def _endpoint(handle: str, node: str, assignment: Assignment) -> WorkloadEndpoint:
    held = tuple(assigned.address for assigned in assignment.addresses)
    return WorkloadEndpoint(
        metadata=Metadata(name=handle, namespace=NAMESPACE),
        spec=WorkloadEndpointSpec(orchestrator="k8s", node=node, endpoint="eth0", addresses=held),
    )


def _store_value(context: OperationContext, key: Key[object], value: object | None) -> object:
    decision = Transaction(context.store, context.pace).run(
        (Get(key),), lambda snapshot: Decision(_writes_to_set(snapshot, key, value), value)
    )
    return decision.result


def _writes_to_set(snapshot: Snapshot, key: Key[object], value: object | None) -> tuple[Write, ...]:
    """What makes a key hold a value, or nothing."""
    found = snapshot.find(key)
    if found is None:
        return () if value is None else (Create(key, value),)
    if value is None:
        return (Delete(key, found.revision),)
    return () if found.value == value else (Update(key, value, found.revision),)
