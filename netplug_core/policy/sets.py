"""Who is a member of the sets that rules use: from all objects at once, and kept up to date while they change.

``resolve`` asks for the members of each set from scratch. ``index`` keeps a :class:`SetIndex`. Members are of the whole
cluster, whichever node their endpoint is on; but only sets that a policy or profile of this node uses are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeAlias, TypeVar

from attrs import define, field, frozen

from netplug_core.addressing import Address, Prefix, disjoint_prefixes
from netplug_core.policy.convert import NAMESPACE_LABEL, NamedPortSet, SelectorSet, SetDefinition
from netplug_core.policy.labelindex import LabelIndex
from netplug_core.policy.model import (
    PORT_PROTOCOLS,
    Member,
    MemberChange,
    MemberSet,
    PolicyProblem,
    PortMember,
    SetId,
    SetType,
)
from netplug_core.resources.fields import Labels
from netplug_core.resources.hostendpoint import HostEndpoint
from netplug_core.resources.networkpolicy import GlobalNetworkSet, NetworkSet, SetOfNetworks
from netplug_core.resources.profile import NAMESPACE_PROFILE_PREFIX
from netplug_core.resources.workloadendpoint import WorkloadEndpoint
from netplug_core.selectors import Selector

__all__ = [
    "Peer", "PeerId", "PeerObject", "PeerPort", "SetChanges", "SetIndex", "members_of", "network_set_problems",
    "peer_id", "peer_of", "shared_address_problems",
]  # fmt: skip

U = TypeVar("U")
"""Who uses a set, such as a policy."""


# --- peers ------------------------------------------------------------------------------------------------------------


PeerId: TypeAlias = tuple[str, ...]
"""The identity of a peer: the name of its kind, then the path of its key."""

PeerPort: TypeAlias = tuple[str, int, int]
"""A port of a peer: its name, its protocol by number, and its number."""

PeerObject: TypeAlias = WorkloadEndpoint | HostEndpoint | NetworkSet | GlobalNetworkSet
"""What selectors of rules select."""

_WORKLOAD: Final = WorkloadEndpoint.__name__


@frozen(kw_only=True)
class Peer:
    """What counts of an endpoint or a network set for the policies of all nodes.

    ``profiles`` are those whose labels it inherits. ``networks`` are the prefixes of a network set, none of which
    overlaps another. ``is_local``: it is an endpoint of this node.
    """

    labels: Labels = ()
    profiles: tuple[str, ...] = ()
    addresses: tuple[Address, ...] = ()
    ports: tuple[PeerPort, ...] = ()
    networks: tuple[Prefix, ...] = ()
    is_local: bool = False

    def port_members(self, definition: NamedPortSet) -> Iterator[PortMember]:
        """Its ports in a set, if it is selected."""
        for name, protocol, port in self.ports:
            if name == definition.name and protocol == definition.protocol:
                yield from (PortMember(address, protocol, port) for address in self.addresses)


def peer_id(value: PeerObject) -> PeerId:
    """The identity of the peer that an object is."""
    metadata = value.metadata
    namespace = (metadata.namespace,) if metadata.namespace else ()
    return (type(value).__name__, *namespace, metadata.name)


def peer_of(value: PeerObject, node: str) -> Peer:
    """The peer that an object is, for the policies of a node."""
    metadata = value.metadata
    match value:
        case WorkloadEndpoint(spec=spec):
            return Peer(
                labels=metadata.labels,
                profiles=spec.profiles,
                addresses=spec.addresses,
                ports=tuple(
                    (port.name, PORT_PROTOCOLS[port.protocol], port.port)
                    for port in spec.ports
                    if port.name and port.protocol in PORT_PROTOCOLS
                ),
                is_local=spec.node == node,
            )
        case HostEndpoint(spec=host):
            return Peer(
                labels=metadata.labels,
                profiles=host.profiles,
                addresses=host.expected_ips,
                ports=tuple((port.name, PORT_PROTOCOLS[port.protocol.value], port.port) for port in host.ports),
                is_local=host.node == node,
            )
        case NetworkSet():
            labels = {**dict(metadata.labels), NAMESPACE_LABEL: metadata.namespace}
            return Peer(
                labels=tuple(sorted(labels.items())),
                profiles=(f"{NAMESPACE_PROFILE_PREFIX}{metadata.namespace}",),
                networks=disjoint_prefixes(value.spec.nets),
            )
        case _:
            return Peer(labels=metadata.labels, networks=disjoint_prefixes(value.spec.nets))


def shared_address_problems(holders: Iterable[tuple[Address, Iterable[PeerId]]]) -> Iterator[PolicyProblem]:
    """A problem for each address that several workload endpoints have: policies cannot distinguish these."""
    for address, identities in holders:
        workloads = sorted("/".join(path) for kind, *path in identities if kind == _WORKLOAD)
        if len(workloads) > 1:
            text = f"is the address of {' and '.join(workloads)}: what a policy allows one of them, all can do"
            yield PolicyProblem(str(address), text)


def network_set_problems(value: SetOfNetworks) -> Iterator[PolicyProblem]:
    """What of a network set has no effect, because it cannot be read."""
    metadata = value.metadata
    name = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    for path in value.spec.not_supported:
        yield PolicyProblem(f"{type(value).__name__} {name}", f"spec.{path} is not supported or cannot be read")


# --- from scratch -----------------------------------------------------------------------------------------------------


def members_of(
    definition: SetDefinition, peers: Iterable[Peer], selects: Callable[[Selector, Peer], bool]
) -> MemberSet:
    """The set that a definition means, of all peers of the cluster."""
    if isinstance(definition, NamedPortSet):
        selector = definition.selector
        chosen = [peer for peer in peers if (peer.is_local if selector is None else selects(selector, peer))]
        ports = frozenset(member for peer in chosen for member in peer.port_members(definition))
        return MemberSet(id=definition.id, type=SetType.PORTS, members=ports)
    chosen = [peer for peer in peers if selects(definition.selector, peer)]
    addresses = frozenset(address for peer in chosen for address in peer.addresses)
    networks = [prefix for peer in chosen for prefix in peer.networks]
    if not networks:
        return MemberSet(id=definition.id, type=SetType.ADDRESSES, members=addresses)
    prefixes = disjoint_prefixes((*networks, *(address.host_prefix for address in addresses)))
    return MemberSet(id=definition.networks_id, type=SetType.PREFIXES, members=frozenset(prefixes))


# --- kept up to date --------------------------------------------------------------------------------------------------


@frozen
class SetChanges:
    """What has changed of the sets that are used, since the last time; each sorted by id."""

    new: tuple[MemberSet, ...]
    members: tuple[MemberChange, ...]
    removed: tuple[SetId, ...]


@define(eq=False)
class _UsedSet(Generic[U]):
    """A set that is used. ``published`` is what was handed out of it last; None: nothing yet.

    ``before``: the members that may have changed since then, and whether they were members then. A set of prefixes
    also keeps them, and those of them that are of network sets.
    """

    definition: SetDefinition
    users: dict[U, None] = field(factory=dict)
    published: SetId | None = None
    before: dict[Address | PortMember, bool] = field(factory=dict)
    prefixes: frozenset[Prefix] = frozenset()
    networks: frozenset[Prefix] = frozenset()
    lengths: tuple[int, ...] = ()
    has_new_networks: bool = False


@define(eq=False)
class SetIndex(Generic[U]):
    """The peers of the cluster, and the sets that are used, with what has changed of their members.

    Before anything changes, each set is asked about the members that the change may concern. ``take`` asks again. So
    no set keeps its members, which together are many times the peers.
    """

    has_shared_changed: bool = field(default=False, init=False)
    """Whether the addresses that several peers have may have changed; who looks at them sets it back."""

    _peers: dict[PeerId, Peer] = field(factory=dict, init=False)
    _incoming: Peer | None = field(default=None, init=False)  # what a peer is about to become
    _holders: dict[Address, list[PeerId]] = field(factory=dict, init=False)
    _networks: dict[PeerId, None] = field(factory=dict, init=False)  # the peers that have some
    _shared: dict[Address, None] = field(factory=dict, init=False)
    _sets: dict[SetId, _UsedSet[U]] = field(factory=dict, init=False)
    _local_sets: dict[SetId, _UsedSet[U]] = field(factory=dict, init=False)
    _changed: dict[SetId, None] = field(factory=dict, init=False)
    _index: LabelIndex[PeerId, SetId] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._index = LabelIndex(self._before)

    # --- peers --------------------------------------------------------------------------------------------------------

    def set_peer(self, identity: PeerId, peer: Peer | None) -> None:
        """Add or replace a peer; None: remove it, if it is there."""
        former = self._peers.get(identity)
        if peer == former:
            return
        self._incoming = peer
        if former is not None and (peer is None or not _has_same_members(former, peer)):
            for selector in self._index.selectors_of(identity):
                self._before(identity, selector)
        for used in self._local_sets.values():
            self._note(used, former, peer)
        if peer is None:
            self._index.remove_item(identity)
            del self._peers[identity]
        else:
            self._index.set_item(identity, peer.labels, peer.profiles)
            self._peers[identity] = peer
        self._incoming = None
        self._update_holders(
            identity, () if former is None else former.addresses, () if peer is None else peer.addresses
        )
        if peer is not None and peer.networks:
            self._networks[identity] = None
        else:
            self._networks.pop(identity, None)

    def set_profile_labels(self, name: str, labels: Labels) -> None:
        """Replace the labels that peers inherit from a profile; none if it does not exist."""
        self._index.set_parent(name, labels)

    def shared_addresses(self) -> Iterator[tuple[Address, Iterable[PeerId]]]:
        """The addresses that several peers have, with these."""
        return ((address, self._holders[address]) for address in self._shared)

    def _update_holders(self, identity: PeerId, former: tuple[Address, ...], addresses: tuple[Address, ...]) -> None:
        if former == addresses:
            return
        for address in dict.fromkeys(former):
            holders = self._holders[address]
            self.has_shared_changed |= len(holders) > 1
            holders.remove(identity)
            if not holders:
                del self._holders[address]
            elif len(holders) == 1:
                del self._shared[address]
        for address in dict.fromkeys(addresses):
            holders = self._holders.setdefault(address, [])
            holders.append(identity)
            if len(holders) > 1:
                self._shared[address] = None
                self.has_shared_changed = True

    # --- which sets there are -----------------------------------------------------------------------------------------

    def require(self, user: U, definitions: Iterable[SetDefinition]) -> None:
        """A policy or a profile uses these sets."""
        for definition in definitions:
            used = self._sets.get(definition.id)
            if used is None:
                used = self._sets[definition.id] = _UsedSet(definition)
                self._changed[definition.id] = None
                if definition.selector is None:
                    self._local_sets[definition.id] = used
                else:
                    self._index.add_selector(definition.id, definition.selector)
            used.users[user] = None

    def release(self, user: U, definitions: Iterable[SetDefinition]) -> None:
        """It does not use these any more. A set that is not used at all is removed by the next ``take``."""
        for definition in definitions:
            del self._sets[definition.id].users[user]
            self._changed[definition.id] = None

    def used_id(self, identity: SetId) -> SetId:
        """The id of a set that is used, as rules name it now: another one while network sets are in it."""
        definition = self._sets[identity].definition
        if isinstance(definition, SelectorSet) and self._networks_in(definition):
            return definition.networks_id
        return identity

    def users_of_replaced(self) -> Iterator[U]:
        """Who uses a set that rules name otherwise than at the last ``take``."""
        for identity in self._changed:
            used = self._sets[identity]
            if used.published is not None and used.has_new_networks and self.used_id(identity) != used.published:
                yield from used.users

    # --- what has changed ---------------------------------------------------------------------------------------------

    def take(self) -> SetChanges:
        """What has changed since the last time; sets that are not used any more are forgotten."""
        new: list[MemberSet] = []
        changes: list[MemberChange] = []
        removed: list[SetId] = []
        for identity in self._changed:
            used = self._sets[identity]
            former, current = used.published, self.used_id(identity) if used.users else None
            if former is not None and former != current:
                removed.append(former)
            if current is None:
                self._forget(identity, used)
            elif former != current:
                used.published = current
                new.append(MemberSet(id=current, type=_type_of(used), members=self._all_members(used)))
            elif change := self._changed_members(used, current):
                changes.append(change)
            used.before.clear()
            used.has_new_networks = False
        self._changed.clear()
        return SetChanges(
            tuple(sorted(new, key=lambda each: each.id)),
            tuple(sorted(changes, key=lambda each: each.id)),
            tuple(sorted(removed)),
        )

    def _forget(self, identity: SetId, used: _UsedSet[U]) -> None:
        used.published = None  # nothing is noted of it any more
        if self._local_sets.pop(identity, None) is None:
            self._index.remove_selector(identity)
        del self._sets[identity]

    def _all_members(self, used: _UsedSet[U]) -> frozenset[Member]:
        definition = used.definition
        if isinstance(definition, NamedPortSet):
            return frozenset(member for peer in self._selected(definition) for member in peer.port_members(definition))
        addresses = (address for peer in self._selected(definition) for address in peer.addresses)
        if used.published == definition.id:
            used.prefixes = used.networks = frozenset()
            return frozenset(addresses)
        used.networks = frozenset(disjoint_prefixes(self._networks_in(definition)))
        used.lengths = tuple(sorted({prefix.length for prefix in used.networks}))
        used.prefixes = frozenset(disjoint_prefixes((*used.networks, *(each.host_prefix for each in addresses))))
        return used.prefixes

    def _selected(self, definition: SetDefinition) -> Iterator[Peer]:
        if definition.selector is None:
            return (peer for peer in self._peers.values() if peer.is_local)
        return (self._peers[identity] for identity in self._index.items_of(definition.id))

    def _networks_in(self, definition: SelectorSet) -> list[Prefix]:
        chosen = [each for each in self._networks if definition.id in self._index.selectors_of(each)]
        return [prefix for identity in chosen for prefix in self._peers[identity].networks]

    def _changed_members(self, used: _UsedSet[U], identity: SetId) -> MemberChange | None:
        """The change of the members of a set; None if there is none."""
        before: frozenset[Member]
        after: frozenset[Member]
        if used.has_new_networks:
            before, after = used.prefixes, self._all_members(used)
        else:
            known = used.before.items()
            before = frozenset(member for member, was in known if was)
            after = frozenset(member for member, _ in known if self._is_member(used.definition, member))
            if identity != used.definition.id:
                before, after = self._in_prefixes(used, before), self._in_prefixes(used, after)
                used.prefixes = (used.prefixes - before) | after
        if before == after:
            return None
        return MemberChange(id=identity, added=after - before, removed=before - after)

    def _in_prefixes(self, used: _UsedSet[U], members: Iterable[Member]) -> frozenset[Prefix]:
        """The prefixes of the addresses that are in no prefix of a network set: those are members by themselves."""
        addresses = (member for member in members if isinstance(member, Address))
        return frozenset(
            address.host_prefix
            for address in addresses
            if not any(
                Prefix.at(address, length) in used.networks for length in used.lengths if length <= address.family.width
            )
        )

    # --- what may change ----------------------------------------------------------------------------------------------

    def _before(self, identity: PeerId, selector: SetId) -> None:
        self._note(self._sets[selector], self._peers.get(identity), self._incoming)

    def _note(self, used: _UsedSet[U], former: Peer | None, peer: Peer | None) -> None:
        """Remember what a set has now of the members that a peer gives to it, or will give."""
        if used.published is None:
            return
        for each in (former, peer):
            if each is not None:
                used.has_new_networks |= bool(each.networks) and isinstance(used.definition, SelectorSet)
                for member in _members_by(used.definition, each):
                    if member not in used.before:
                        used.before[member] = self._is_member(used.definition, member)
                self._changed[used.definition.id] = None

    def _is_member(self, definition: SetDefinition, member: Address | PortMember) -> bool:
        if isinstance(member, Address):
            holders = self._holders.get(member, ())
            return any(definition.id in self._index.selectors_of(each) for each in holders)
        return any(
            member in self._peers[each].port_members(definition)
            for each in self._holders.get(member.address, ())
            if isinstance(definition, NamedPortSet) and self._is_selected(definition, each)
        )

    def _is_selected(self, definition: NamedPortSet, identity: PeerId) -> bool:
        if definition.selector is None:
            return self._peers[identity].is_local
        return definition.id in self._index.selectors_of(identity)


def _has_same_members(one: Peer, other: Peer) -> bool:
    return one.addresses == other.addresses and one.ports == other.ports and one.networks == other.networks


def _type_of(used: _UsedSet[U]) -> SetType:
    if isinstance(used.definition, NamedPortSet):
        return SetType.PORTS
    return SetType.ADDRESSES if used.published == used.definition.id else SetType.PREFIXES


def _members_by(definition: SetDefinition, peer: Peer) -> Iterable[Address | PortMember]:
    """The members that a peer gives to a set that selects it."""
    if not isinstance(definition, NamedPortSet):
        return peer.addresses
    is_possible = definition.selector is not None or peer.is_local
    return tuple(peer.port_members(definition)) if is_possible else ()
