"""What a node process does for its own node: its Node in the datastore, its files, the addresses of its tunnels.

The node process does it when it starts, and again every now and then. Where the datastore is the orchestrator's own, so
is the Node, and nothing is created. The Node also says which release the node process is of.
``netplug_core.reconcile.registration`` decides which addresses a node has.

Addresses of tunnels are looked after when pools or its own Node have changed. An address is assigned before the Node
names it, and released after it no longer does: a process that is killed in between leaves an address under a handle of
the node's own, which the next call finds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family
from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.routing import HostInterface
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.flows.cni.call import machine_file, machine_identity, node_of
from netplug_core.flows.world import Host
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest, Shortfall
from netplug_core.ipam.protocol import IPAM, NO_ENDPOINT
from netplug_core.log import Log
from netplug_core.netconf.model import NetConf
from netplug_core.orchestrator.model import Orchestrator
from netplug_core.reconcile.controller import Problem
from netplug_core.reconcile.kubecontrollers import LabelCopier, find_label_copier
from netplug_core.reconcile.nodes import follow_cluster_node, name_cluster_node, orchestrator_name
from netplug_core.reconcile.registration import (
    AddressConflict,
    CanReach,
    FamilyAddress,
    FamilySettings,
    FoundOnHost,
    InternalAddress,
    RegistrationSettings,
    find_conflicts,
    find_lack,
    find_new_addresses,
    find_node_interfaces,
    register_addresses,
    settle_address,
    without_conflicts,
)
from netplug_core.reconcile.tunnels import (
    MTUInputs,
    TunnelAddress,
    plan_tunnel_address,
    settle_pod_mtu,
    with_tunnel_address,
)
from netplug_core.records import Create, Decision, Get, Key, List, NeedMore, Snapshot, Update
from netplug_core.resources.clusterinformation import READINESS_GATE
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPOOL, AllowedUse
from netplug_core.resources.kubecontrollersconfiguration import KUBE_CONTROLLERS_CONFIGURATION_KEY
from netplug_core.resources.node import NODE, Node, node_key
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION
from netplug_core.resources.validation import validate_resource

__all__ = [
    "HostNetwork", "NodeHost", "NodeUnknown", "NodeWorld", "SettledAddresses", "copy_cluster_labels", "find_on_host",
    "publish_node_name", "publish_pod_mtu", "register_node", "settle_addresses", "settle_tunnel_address",
]  # fmt: skip


_REGISTER_S = 20.0
_CONTROLLERS = Get(KUBE_CONTROLLERS_CONFIGURATION_KEY)


class NodeHost(Host, Protocol):
    """The machine that the node process runs on."""

    def publish(self, path: str, text: str) -> None:
        """Write a small file that everybody may read, whole or not at all. The folder is made.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def make_public_folder(self, path: str) -> None:
        """Make a folder that only its owner may write to and everybody may look into, if it does not exist.

        Raises:
            OSError: it cannot be made.
        """
        ...


class HostNetwork(Protocol):
    """The network of the machine that the node process runs on."""

    def find_interfaces(self) -> tuple[HostInterface, ...]:
        """All interfaces, by their index.

        Raises:
            KernelError: the kernel would not say.
        """
        ...

    def find_source_address(self, target: str, family: Family, *, deadline: Deadline) -> Address:
        """The local address that packets to an address or a name would have.

        Raises:
            KernelError: there is none, or the name is not known.
        """
        ...


@frozen(kw_only=True)
class NodeWorld:
    """The interfaces that the node process acts through for its node; ``open_orchestrator`` as for a ``CNIWorld``.

    ``release`` is that of the node process; empty: it is not recorded.
    """

    datastore: Datastore
    host: NodeHost
    clock: Clock
    chance: Callable[[], float]
    log: Log
    open_orchestrator: Callable[[], AbstractContextManager[Orchestrator]] | None = None
    release: str = ""

    def pace(self) -> Pace:
        """How long one change may take, from now."""
        return Pace(clock=self.clock, deadline=Deadline.after(self.clock, _REGISTER_S), chance=self.chance)


class NodeUnknown(ConfigurationError):
    """The orchestrator has no node of the name; ``value`` is the name."""

    @classmethod
    def of(cls, name: str) -> NodeUnknown:
        """The error about a name."""
        return cls("nodename", name, "the cluster has no node of that name; set nodename to the name of one")


def register_node(world: NodeWorld, netconf: NetConf) -> str:
    """Register this node if it is not; return the name, which is that of CNI calls.

    Raises:
        ConfigurationError: the machine has no name of its own, or one that no node may have.
        NodeUnknown: the datastore is the orchestrator's, and has no such node.
        Unavailable, ContentionExhausted: not now; the datastore is away or locked.
    """
    name, pace = _own_node(world, netconf), world.pace()
    if netconf.datastore.is_kubernetes:
        snapshot = world.datastore.read([Get(node_key(name))], deadline=pace.deadline.capped(CALL_TIMEOUT_S))
        if snapshot.find(node_key(name)) is None:
            raise NodeUnknown.of(name)
        return name
    node = Node(metadata=Metadata(name=name, uid=world.host.new_uid(), creation_time_ns=world.clock.now_ns()))
    validate_resource(node)

    def decide(snapshot: Snapshot) -> Decision[None]:
        is_registered = snapshot.find(node_key(name)) is not None
        return Decision(() if is_registered else (Create(node_key(name), node),), None)

    Transaction(world.datastore, pace, READINESS_GATE).run((Get(node_key(name)),), decide)
    return name


def publish_node_name(world: NodeWorld, netconf: NetConf, name: str) -> None:
    """Write the name to the node-name file, which ADD may wait for, and beside it which machine has written it.

    Raises:
        OSError: a file cannot be read or written.
    """
    if (world.host.find_text(netconf.nodename_file) or "").strip() != name:
        world.host.publish(netconf.nodename_file, name)
    # Last: a process that is killed before leaves a name that does not count, and none of another machine that does.
    identity = machine_identity(world.host)
    if world.host.find_text(machine_file(netconf)) != identity:
        world.host.publish(machine_file(netconf), identity)


def _own_node(world: NodeWorld, netconf: NetConf) -> str:
    """The name of this node; a file that another machine has written does not count."""
    try:
        return node_of(world, netconf)
    except Unavailable:
        return node_of(world, evolve(netconf, nodename_file=""))


def copy_cluster_labels(world: NodeWorld, netconf: NetConf, name: str) -> bool:
    """Give a registered node the labels of the orchestrator's node; return whether anything changed.

    Nothing is copied where no orchestrator is configured, or where its nodes are the registered ones. Where controllers
    copy, only the first labels of a new Node are: calls come at once, and need to know which pools select the node.

    Raises:
        NodeUnknown: the orchestrator has no node of that name.
        Malformed: the Node's record of what was copied cannot be read.
        Unauthorized: the orchestrator or the datastore refuses.
        Unavailable, ContentionExhausted: not now.
    """
    if world.open_orchestrator is None or netconf.datastore.is_kubernetes:
        return False
    pace = world.pace()
    with world.open_orchestrator() as orchestrator:
        facts = orchestrator.find_node(name, deadline=pace.deadline)
    if facts is None:
        raise NodeUnknown.of(name)

    def decide(snapshot: Snapshot) -> Decision[bool]:
        stored = snapshot.find(node_key(name))
        if stored is None:  # deleted meanwhile; it is registered again
            return Decision((), result=False)
        copier = find_label_copier(next((each.value for each in snapshot.readable(_CONTROLLERS)), None))
        is_known = orchestrator_name(stored.value) == name
        is_left = copier is LabelCopier.NONE or (copier is LabelCopier.CONTROLLERS and is_known)
        wanted = name_cluster_node(stored.value, name) if is_left else follow_cluster_node(stored.value, facts)
        if wanted == stored.value:
            return Decision((), result=False)
        return Decision((Update(stored.key, wanted, stored.revision),), result=True)

    queries = (Get(node_key(name)), _CONTROLLERS)
    return Transaction(world.datastore, pace, READINESS_GATE).run(queries, decide).result is True


# --- addresses --------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class SettledAddresses:
    """What a node has registered: its addresses, and the MTU of its pods.

    ``conflicts`` kept addresses from being registered. ``problems`` did not, and last until something is changed.
    ``has_new``: other nodes may have registered the same address in the same instant.
    """

    node: str
    addresses: tuple[FamilyAddress, ...]
    conflicts: tuple[AddressConflict, ...]
    pod_mtu: int
    problems: tuple[Problem, ...]
    has_new: bool = False


def find_on_host(
    world: NodeWorld, network: HostNetwork, settings: RegistrationSettings, name: str
) -> tuple[RegistrationSettings, FoundOnHost]:
    """What the methods of detection need: the interfaces, internal addresses, and in the settings sources of packets.

    Raises:
        KernelError: the kernel would not say.
        Unauthorized, Unavailable: the orchestrator was to be asked.
    """
    interfaces = network.find_interfaces()
    if not settings.has_addresses:
        return settings, FoundOnHost(interfaces=interfaces)
    deadline = world.pace().deadline
    families = {family: _with_source(each, family, network, deadline) for family, each in settings.families.items()}
    asks = any(isinstance(each.method, InternalAddress) and each.may_detect(one) for one, each in families.items())
    internal = _find_internal(world, name, deadline) if asks else ()
    return evolve(settings, families=families), FoundOnHost(interfaces=interfaces, internal=internal)


def _with_source(settings: FamilySettings, family: Family, network: HostNetwork, deadline: Deadline) -> FamilySettings:
    method = settings.method
    if not isinstance(method, CanReach) or not settings.may_detect(family):
        return settings
    try:
        source = network.find_source_address(method.target, family, deadline=deadline)
    except KernelError as error:
        return evolve(settings, method=evolve(method, failure=error.reason))
    return evolve(settings, method=evolve(method, source=source))


def _find_internal(world: NodeWorld, name: str, deadline: Deadline) -> tuple[Address, ...]:
    if world.open_orchestrator is None:
        return ()
    with world.open_orchestrator() as orchestrator:
        facts = orchestrator.find_node(name, deadline=deadline)
    return () if facts is None else facts.internal_addresses


_EVERY_NODE = List(NODE)


def settle_addresses(
    world: NodeWorld,
    name: str,
    settings: RegistrationSettings,
    found: FoundOnHost,
    *,
    known: MTUInputs | None = None,
    is_contested: bool = False,
) -> SettledAddresses:
    """Store addresses, interfaces and release of a registered node, in one commit, and find the MTU of its pods.

    Other nodes are read only if an address would be new, and once more when it is stored: another one may have
    registered it in the same instant. ``is_contested``: one may have it now, so they are read too. What another node
    has is not registered, or given back. ``known`` has the pools and NodeConfigurations, if the caller follows them;
    otherwise they are read.

    Raises:
        Unauthorized: the datastore refuses.
        Unavailable, ContentionExhausted: not now; the datastore is away or locked, or the Node was deleted meanwhile.
    """
    settling = _Settling(world, node_key(name), settings, found)
    result = settling.run(looks_at_others=is_contested)
    has_new = result.has_new
    if has_new:
        again = settling.run(looks_at_others=True)
        result = again if again.conflicts else result
    pod_mtu = settle_pod_mtu(name, found.interfaces, known or _read_mtu_inputs(world), settings.mtu)
    lack = find_lack(result.addresses) if settings.has_addresses and not result.conflicts else None
    return SettledAddresses(
        node=name,
        addresses=result.addresses,
        conflicts=result.conflicts,
        pod_mtu=pod_mtu.mtu,
        problems=(
            *(problem for each in result.addresses for problem in each.problems),
            *(() if lack is None else (lack,)),
            *pod_mtu.problems,
        ),
        has_new=has_new,
    )


@frozen
class _Settled:
    addresses: tuple[FamilyAddress, ...]
    conflicts: tuple[AddressConflict, ...]
    has_new: bool


@frozen
class _Settling:
    """The commits by which a node gets its addresses."""

    world: NodeWorld
    key: Key[Node]
    settings: RegistrationSettings
    found: FoundOnHost

    def run(self, *, looks_at_others: bool) -> _Settled:
        """Store what is settled now, unless it is stored already."""
        transaction = Transaction(self.world.datastore, self.world.pace(), READINESS_GATE)
        decide = partial(self._decide, looks_at_others=looks_at_others)
        return transaction.run((Get(self.key),), decide).get_result()

    def _decide(self, snapshot: Snapshot, *, looks_at_others: bool) -> Decision[_Settled] | NeedMore:
        stored, settings = snapshot.find(self.key), self.settings
        if stored is None:
            return Decision((), Unavailable(str(self.key), "it was deleted meanwhile, and is registered again"))
        node, conflicts = stored.value, tuple[AddressConflict, ...]()
        wanted = tuple(
            settle_address(each, family, self.found, node.find_address(family))
            for family, each in settings.families.items()
            if settings.has_addresses
        )
        new = find_new_addresses(node, wanted)
        if settings.checks_conflicts and (new or looks_at_others):
            if not snapshot.has(_EVERY_NODE):
                return NeedMore((_EVERY_NODE,))
            others = (record.value for record in snapshot.readable(_EVERY_NODE))
            conflicts = find_conflicts(node, wanted, others)
        settled = without_conflicts(node, wanted, conflicts)
        interfaces = find_node_interfaces(self.found.interfaces)
        after = register_addresses(node, settled, interfaces, settings.as_number)
        if release := self.world.release:
            after = evolve(after, status=evolve(after.status, release=release))
        writes = () if after == node else (Update(self.key, after, stored.revision),)
        has_new = settings.checks_conflicts and bool(find_new_addresses(node, settled))
        return Decision(writes, _Settled(settled, conflicts, has_new))


def _read_mtu_inputs(world: NodeWorld) -> MTUInputs:
    """The pools and NodeConfigurations that can be read."""
    pools, configurations = List(IPPOOL), List(NODE_CONFIGURATION)
    deadline = world.pace().deadline.capped(CALL_TIMEOUT_S)
    snapshot = world.datastore.read([pools, configurations], deadline=deadline)
    return MTUInputs(
        pools=tuple(record.value for record in snapshot.readable(pools)),
        configurations=tuple(record.value for record in snapshot.readable(configurations)),
    )


def publish_pod_mtu(world: NodeWorld, netconf: NetConf, mtu: int) -> bool:
    """Write the MTU of pods to the file that an ADD reads; return whether it was another one before.

    Raises:
        OSError: the file cannot be read or written.
    """
    text = str(mtu)
    if (world.host.find_text(netconf.mtu_file) or "").strip() == text:
        return False
    world.host.publish(netconf.mtu_file, text)
    return True


# --- the addresses of its tunnels ------------------------------------------------------------------------------------


def settle_tunnel_address(datastore: Datastore, ipam: IPAM, name: str, sort: TunnelAddress, *, pace: Pace) -> bool:
    """Do what is to be done about one tunnel address of a node; return whether anything was.

    Nothing is done if the Node does not exist.

    Raises:
        AllocationError: no pool has an address left; the Node names none.
        Unauthorized: the datastore refuses.
        Unavailable, ContentionExhausted: not now.
    """
    queries = (Get(node_key(name)), List(IPPOOL))
    snapshot = datastore.read(queries, deadline=pace.deadline.capped(CALL_TIMEOUT_S))
    record, handle = snapshot.find(node_key(name)), sort.handle(name)
    if record is None:
        return False
    pools = [each.value for each in snapshot.readable(List(IPPOOL))]
    found = ipam.held(handle, deadline=pace.deadline)
    change = plan_tunnel_address(sort, record.value, pools, () if found is None else found.addresses)
    if change is None:
        return False
    wanted = change.stored
    if change.is_released:
        _release(ipam, handle, pace.deadline)
    if change.pools:
        wanted = _assign(ipam, name, sort, tuple(map(str, change.pools)), pace.deadline)
    _write(datastore, name, sort, wanted, pace)
    if change.is_given_up:
        _release(ipam, handle, pace.deadline)
    return True


def _assign(ipam: IPAM, name: str, sort: TunnelAddress, pools: tuple[str, ...], deadline: Deadline) -> Address:
    request = AssignRequest(
        handle=sort.handle(name),
        node=name,
        wanted=(Automatic(family=sort.family, pools=pools),),
        owner=sort.owner(name),
        use=AllowedUse.TUNNEL,
        shortfall=Shortfall.REFUSE,
    )
    return ipam.assign(request, NO_ENDPOINT, deadline=deadline).addresses[0].address


def _release(ipam: IPAM, handle: str, deadline: Deadline) -> None:
    ipam.release(ReleaseRequest(handle=handle), NO_ENDPOINT, deadline=deadline)


def _write(datastore: Datastore, name: str, sort: TunnelAddress, address: Address | None, pace: Pace) -> None:
    def decide(snapshot: Snapshot) -> Decision[None]:
        stored = snapshot.find(node_key(name))
        if stored is None or sort.find(stored.value) == address:
            return Decision((), None)
        node = with_tunnel_address(stored.value, sort, address)
        return Decision((Update(stored.key, node, stored.revision),), None)

    Transaction(datastore, pace, READINESS_GATE).run((Get(node_key(name)),), decide)
