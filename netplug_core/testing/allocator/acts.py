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
from netplug_core.datastore.interface import Datastore
from netplug_core.datastore.loop import run
from netplug_core.flows import addresses, affinities, cluster, resources
from netplug_core.ipam.affinity import Affinity
from netplug_core.ipam.interface import IPAM, NO_ENDPOINT, EndpointPart
from netplug_core.ipam.owners import OwnerChange
from netplug_core.ipam.relinquish import Emptiness
from netplug_core.ipam.request import Assignment, AssignRequest, ReleaseItem, ReleaseRequest
from netplug_core.ipam.search import hashed_start
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
    "ASSIGN_S",
    "NAMESPACE",
    "RELEASE_S",
    "Act",
    "Apply",
    "Assign",
    "ChangeOwner",
    "Claim",
    "Client",
    "Collect",
    "Configure",
    "Ensure",
    "Forget",
    "Pause",
    "Release",
    "ReleaseAddresses",
    "Relinquish",
    "RelinquishAct",
    "RelinquishBlock",
    "RelinquishNode",
    "RelinquishPool",
    "Remove",
    "SetReady",
    "Sight",
    "StoreAct",
    "endpoint",
]

ASSIGN_S = 60.0
RELEASE_S = 10.0
NAMESPACE = "pods"
"""Where the endpoints of all workloads stand."""


@frozen(kw_only=True)
class Client:
    """A process: its way to the store, and the IPAM that it keeps over it."""

    store: Datastore
    ipam: IPAM
    clock: Clock
    new_uid: Callable[[], str]

    @property
    def pace(self) -> Pace:
        """Time for one operation."""
        return Pace(clock=self.clock, deadline=self.deadline(ASSIGN_S), chance=lambda: 0.5)

    def deadline(self, seconds: float) -> Deadline:
        """So many seconds from now."""
        return Deadline.after(self.clock, seconds)


# --- nodes and whoever has addresses ----------------------------------------------------------------------------------


@frozen(kw_only=True)
class Assign:
    """A node, or somebody through it, wants addresses."""

    request: AssignRequest

    def perform(self, client: Client) -> object:
        """Ask the IPAM, and settle an endpoint with it."""
        part = endpoint(self.request.handle, self.request.node)
        return client.ipam.assign(self.request, part, deadline=client.deadline(ASSIGN_S))


@frozen(kw_only=True)
class Release:
    """A handle gives back what it holds."""

    request: ReleaseRequest

    def perform(self, client: Client) -> object:
        """Ask the IPAM; the endpoint goes too."""
        part = endpoint(self.request.handle, "")
        return client.ipam.release(self.request, part, deadline=client.deadline(RELEASE_S))


@frozen(kw_only=True)
class ReleaseAddresses:
    """Somebody frees addresses one by one."""

    items: tuple[ReleaseItem, ...]

    def perform(self, client: Client) -> object:
        """In bulk."""
        return addresses.release_addresses(client.store, self.items, pace=client.pace)


@frozen(kw_only=True)
class ChangeOwner:
    """Somebody changes what is stored about an address's owner."""

    change: OwnerChange

    def perform(self, client: Client) -> object:
        """If the address is held as the change says."""
        return addresses.change_owner(client.store, self.change, pace=client.pace)


@frozen(kw_only=True)
class Claim:
    """Somebody claims every block of a range."""

    claimant: str
    wanted: Prefix

    def perform(self, client: Client) -> object:
        """Those that are nobody else's."""
        return affinities.claim(client.store, self.claimant, self.wanted, pace=client.pace)


@frozen(kw_only=True)
class Ensure:
    """A node makes sure that it has a block for each family of a request."""

    request: AssignRequest

    def perform(self, client: Client) -> object:
        """The first there is, or a new one."""
        return affinities.ensure_blocks(client.store, self.request, order=hashed_start, pace=client.pace)


# --- people and controllers -------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class RelinquishNode:
    """Every claim of a node is given up."""

    node: str
    emptiness: Emptiness

    def perform(self, client: Client) -> object:
        """In whatever pool."""
        return affinities.relinquish_node(client.store, self.node, self.emptiness, pace=client.pace)


@frozen(kw_only=True)
class RelinquishPool:
    """Every claim in a range is given up."""

    pool: Prefix
    emptiness: Emptiness

    def perform(self, client: Client) -> object:
        """Whoever made it."""
        return affinities.relinquish_pool(client.store, self.pool, self.emptiness, pace=client.pace)


@frozen(kw_only=True)
class RelinquishBlock:
    """One block is given up."""

    block: Prefix
    emptiness: Emptiness

    def perform(self, client: Client) -> object:
        """Whoever owns it."""
        return affinities.relinquish_block(client.store, self.block, self.emptiness, pace=client.pace)


@frozen(kw_only=True)
class Relinquish:
    """Some claims are given up, whether there are such claims or not."""

    claims: tuple[Key[Affinity], ...]
    emptiness: Emptiness

    def perform(self, client: Client) -> object:
        """Each with its block."""
        return affinities.relinquish(client.store, self.claims, self.emptiness, pace=client.pace)


@frozen(kw_only=True)
class Apply:
    """A person stores a resource, or changes it."""

    resource: Resource

    def perform(self, client: Client) -> object:
        """If the rules for its kind allow it."""
        manifest = Manifest(resource=self.resource)
        return resources.apply(client.store, manifest, pace=client.pace, new_uid=client.new_uid)


@frozen(kw_only=True)
class Remove:
    """A person deletes a resource."""

    key: Key[Resource]

    def perform(self, client: Client) -> object:
        """With what belongs to that: the claims in a pool, those of a node."""
        return resources.delete(client.store, self.key, pace=client.pace)


@frozen(kw_only=True)
class Configure:
    """A person changes how addresses are assigned."""

    settings: IPAMConfigurationSpec

    def perform(self, client: Client) -> object:
        """All of it."""
        return cluster.configure_ipam(
            client.store, lambda _before: self.settings, pace=client.pace, new_uid=client.new_uid
        )


@frozen(kw_only=True)
class SetReady:
    """Somebody locks the datastore, or unlocks it."""

    is_ready: bool

    def perform(self, client: Client) -> object:
        """By the one flag that all heed."""
        metadata = Metadata(name=CLUSTER_INFORMATION_KEY.name)
        spec = ClusterInformationSpec(is_datastore_ready=self.is_ready)
        return _put(client, CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=metadata, spec=spec))


@frozen(kw_only=True)
class Forget:
    """A pod is gone, its endpoint with it, and nobody releases what its handle holds."""

    handle: str

    def perform(self, client: Client) -> object:
        """What the orchestrator does."""
        return _put(client, workload_endpoint_key(NAMESPACE, self.handle), None)


@frozen(kw_only=True)
class Sight:
    """How well the collector sees the cluster: everything, or (its watch is broken) neither pods nor nodes."""

    is_blind: bool = False


@frozen(kw_only=True)
class Collect:
    """The collector's next tick; the bench keeps its memory and does it."""

    sight: Sight = Sight()


@frozen(kw_only=True)
class Pause:
    """Time passes."""

    seconds: float


RelinquishAct: TypeAlias = RelinquishNode | RelinquishPool | RelinquishBlock | Relinquish
StoreAct: TypeAlias = (
    Assign | Release | ReleaseAddresses | ChangeOwner | Claim | Ensure | RelinquishAct
    | Apply | Remove | Configure | SetReady | Forget
)  # fmt: skip
"""What one client does to the store."""

Act: TypeAlias = StoreAct | Collect | Pause
"""Everything that can happen."""


# --- what the orchestrator's side of it is ----------------------------------------------------------------------------


def endpoint(handle: str | None, node: str) -> EndpointPart:
    """The endpoint's share of a call: it names the addresses of its handle, and goes with them."""
    if handle is None:
        return NO_ENDPOINT
    key = workload_endpoint_key(NAMESPACE, handle)

    def writes(snapshot: Snapshot, assignment: Assignment | None) -> tuple[Write, ...]:
        if assignment is None:
            return _write(snapshot, key, None)
        return _write(snapshot, key, _endpoint(handle, node, assignment))

    return EndpointPart(queries=(Get(key),), writes=writes)


def _endpoint(handle: str, node: str, assignment: Assignment) -> WorkloadEndpoint:
    held = tuple(assigned.address for assigned in assignment.addresses)
    return WorkloadEndpoint(
        metadata=Metadata(name=handle, namespace=NAMESPACE),
        spec=WorkloadEndpointSpec(orchestrator="k8s", node=node, endpoint="eth0", addresses=held),
    )


def _put(client: Client, key: Key[object], value: object | None) -> object:
    decision = run(
        client.store,
        (Get(key),),
        lambda snapshot: Decision(_write(snapshot, key, value), value),
        pace=client.pace,
    )
    return decision.result


def _write(snapshot: Snapshot, key: Key[object], value: object | None) -> tuple[Write, ...]:
    """What makes a key hold a value, or nothing."""
    found = snapshot.find(key)
    if found is None:
        return () if value is None else (Create(key, value),)
    if value is None:
        return (Delete(key, found.revision),)
    return () if found.value == value else (Update(key, value, found.revision),)
