"""The operations of a test on an allocator, as values, and how a client performs each of them.

The operations of nodes go through the IPAM under test. The others go through ``netplug_core.flows``, as those of
``netplugctl`` and of the controllers do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.flows.ipam import addresses, affinities
from netplug_core.flows.resources import write
from netplug_core.flows.resources.delete import delete
from netplug_core.flows.resources.write import apply
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.pools import hashed_start
from netplug_core.ipam.allocation.release import OwnerChange
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, ReleaseItem, ReleaseRequest
from netplug_core.ipam.model import Affinity
from netplug_core.ipam.protocol import IPAM, NO_ENDPOINT, EndpointWrites
from netplug_core.records import Create, Decision, Delete, Get, Key, Snapshot, Update, Write
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.codec import Manifest
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPAMConfigurationSpec, IPPool
from netplug_core.resources.kinds import Resource
from netplug_core.resources.workloadendpoint import (
    WORKLOAD_ENDPOINT,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)

__all__ = [
    "ASSIGN_TIMEOUT_S", "NAMESPACE", "RELEASE_TIMEOUT_S", "AdvanceClock", "ApplyResource", "Assign", "ChangeOwner",
    "ClaimBlocks", "CollectorView", "ConfigureIPAM", "DeletePod", "DeleteResource", "EnsureBlocks", "Operation",
    "OperationContext", "Release", "ReleaseAddresses", "RelinquishAffinities", "RelinquishBlock", "RelinquishNode",
    "RelinquishOperation", "RelinquishPool", "RunCollector", "SetReady", "StoreOperation", "StorePool", "endpoint_part",
]  # fmt: skip

ASSIGN_TIMEOUT_S = 60.0
RELEASE_TIMEOUT_S = 10.0
NAMESPACE = "pods"
"""The namespace of the endpoints of all workloads."""


@frozen(kw_only=True)
class OperationContext:
    """What an operation is performed with: the store of one process, its IPAM, a clock, and identifiers."""

    store: Datastore
    ipam: IPAM
    clock: Clock
    new_uid: Callable[[], str]

    @property
    def pace(self) -> Pace:
        """The clock, deadline and back-off of one operation."""
        return Pace(clock=self.clock, deadline=self.deadline(ASSIGN_TIMEOUT_S), chance=lambda: 0.5)

    def deadline(self, seconds: float) -> Deadline:
        """The deadline that many seconds from now."""
        return Deadline.after(self.clock, seconds)


# --- nodes and workloads ----------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Assign:
    """A node requests addresses for a handle."""

    request: AssignRequest

    def perform(self, context: OperationContext) -> object:
        """Assign by the IPAM, which also stores the endpoint."""
        part = endpoint_part(self.request.handle, self.request.node)
        return context.ipam.assign(self.request, part, deadline=context.deadline(ASSIGN_TIMEOUT_S))


@frozen(kw_only=True)
class Release:
    """A handle's addresses are released."""

    request: ReleaseRequest

    def perform(self, context: OperationContext) -> object:
        """Release by the IPAM, which also deletes the endpoint."""
        part = endpoint_part(self.request.handle, "")
        return context.ipam.release(self.request, part, deadline=context.deadline(RELEASE_TIMEOUT_S))


@frozen(kw_only=True)
class ReleaseAddresses:
    """Addresses are released one by one."""

    items: tuple[ReleaseItem, ...]

    def perform(self, context: OperationContext) -> object:
        """Release them in one call of the flow."""
        return addresses.release_addresses(context.store, self.items, pace=context.pace)


@frozen(kw_only=True)
class ChangeOwner:
    """The stored owner of an address is changed."""

    change: OwnerChange

    def perform(self, context: OperationContext) -> object:
        """Change it, if the address is held as the change says."""
        return addresses.change_owner(context.store, self.change, pace=context.pace)


@frozen(kw_only=True)
class ClaimBlocks:
    """A claimant claims every block of a prefix."""

    claimant: str
    prefix: Prefix

    def perform(self, context: OperationContext) -> object:
        """Claim those blocks that no other owner has."""
        return affinities.claim(context.store, self.claimant, self.prefix, pace=context.pace)


@frozen(kw_only=True)
class EnsureBlocks:
    """A node claims a block for each family of a request, unless it owns one."""

    request: AssignRequest

    def perform(self, context: OperationContext) -> object:
        """Find the first own block, or claim a new one."""
        return affinities.ensure_blocks(context.store, self.request, order=hashed_start, pace=context.pace)


# --- users and controllers --------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class RelinquishNode:
    """All affinities of a node are relinquished."""

    node: str
    emptiness: Emptiness

    def perform(self, context: OperationContext) -> object:
        """Relinquish them in all pools."""
        return affinities.relinquish_node(context.store, self.node, self.emptiness, pace=context.pace)


@frozen(kw_only=True)
class RelinquishPool:
    """All affinities in a prefix are relinquished."""

    pool: Prefix
    emptiness: Emptiness

    def perform(self, context: OperationContext) -> object:
        """Relinquish those of all owners."""
        return affinities.relinquish_pool(context.store, self.pool, self.emptiness, pace=context.pace)


@frozen(kw_only=True)
class RelinquishBlock:
    """The affinity of one block is relinquished."""

    block: Prefix
    emptiness: Emptiness

    def perform(self, context: OperationContext) -> object:
        """Relinquish it for any owner."""
        return affinities.relinquish_block(context.store, self.block, self.emptiness, pace=context.pace)


@frozen(kw_only=True)
class RelinquishAffinities:
    """Affinities are relinquished by key. Some of them may not exist."""

    affinities: tuple[Key[Affinity], ...]
    emptiness: Emptiness

    def perform(self, context: OperationContext) -> object:
        """Relinquish each with its block."""
        return affinities.relinquish(context.store, self.affinities, self.emptiness, pace=context.pace)


@frozen(kw_only=True)
class ApplyResource:
    """A user creates or changes a resource."""

    resource: Resource

    def perform(self, context: OperationContext) -> object:
        """Apply it; the rules of its kind may refuse it."""
        manifest = Manifest(resource=self.resource)
        return apply(context.store, manifest, pace=context.pace, new_uid=context.new_uid)


@frozen(kw_only=True)
class DeleteResource:
    """A user deletes a resource."""

    key: Key[Resource]

    def perform(self, context: OperationContext) -> object:
        """Delete it, and relinquish the affinities of that pool or node first."""
        return delete(context.store, self.key, pace=context.pace)


@frozen(kw_only=True)
class StorePool:
    """A pool is stored, in place of one of its name, by a program that compares it with nothing, as kubectl does."""

    pool: IPPool

    def perform(self, context: OperationContext) -> object:
        """Delete the pool of that name as it is, with blocks and claims left over, and create the new one."""
        _store_value(context, self.pool.key, None)
        metadata = evolve(self.pool.metadata, uid=context.new_uid(), creation_time_ns=context.clock.now_ns())
        return _store_value(context, self.pool.key, evolve(self.pool, metadata=metadata))


@frozen(kw_only=True)
class ConfigureIPAM:
    """A user changes the IPAMConfiguration."""

    settings: IPAMConfigurationSpec

    def perform(self, context: OperationContext) -> object:
        """Replace all settings."""
        return write.configure_ipam(
            context.store, lambda _before: self.settings, pace=context.pace, new_uid=context.new_uid
        )


@frozen(kw_only=True)
class SetReady:
    """A user locks or unlocks the datastore."""

    is_ready: bool

    def perform(self, context: OperationContext) -> object:
        """Set the flag of ClusterInformation."""
        metadata = Metadata(name=CLUSTER_INFORMATION_KEY.name)
        spec = ClusterInformationSpec(is_datastore_ready=self.is_ready)
        return _store_value(context, CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=metadata, spec=spec))


@frozen(kw_only=True)
class DeletePod:
    """A pod and its endpoint are deleted. The addresses of its handle are not released."""

    handle: str

    def perform(self, context: OperationContext) -> object:
        """Delete the endpoint, as the orchestrator does."""
        return _store_value(context, WORKLOAD_ENDPOINT.key(NAMESPACE, self.handle), None)


@frozen(kw_only=True)
class CollectorView:
    """What the collector knows of the cluster: everything or, where its watch is broken, neither pods nor nodes."""

    is_empty: bool = False


@frozen(kw_only=True)
class RunCollector:
    """The next tick of the collector. The harness runs it and keeps the collector's scan history."""

    view: CollectorView = CollectorView()


@frozen(kw_only=True)
class AdvanceClock:
    """Time passes."""

    seconds: float


RelinquishOperation: TypeAlias = RelinquishNode | RelinquishPool | RelinquishBlock | RelinquishAffinities
StoreOperation: TypeAlias = (
    Assign | Release | ReleaseAddresses | ChangeOwner | ClaimBlocks | EnsureBlocks | RelinquishOperation
    | ApplyResource | DeleteResource | StorePool | ConfigureIPAM | SetReady | DeletePod
)  # fmt: skip
"""The operations that one client performs on the store."""

Operation: TypeAlias = StoreOperation | RunCollector | AdvanceClock
"""All operations."""


# --- endpoints --------------------------------------------------------------------------------------------------------


def endpoint_part(handle: str | None, node: str) -> EndpointWrites:
    """The endpoint writes of a call: the endpoint lists the addresses of its handle, and is deleted on release."""
    if handle is None:
        return NO_ENDPOINT
    key = WORKLOAD_ENDPOINT.key(NAMESPACE, handle)

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
    """The writes after which a key has a value; after which it does not exist, for None."""
    found = snapshot.find(key)
    if found is None:
        return () if value is None else (Create(key, value),)
    if value is None:
        return (Delete(key, found.revision),)
    return () if found.value == value else (Update(key, value, found.revision),)
