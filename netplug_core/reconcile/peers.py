"""With whom a node speaks BGP, and which routes are exchanged: a :class:`~netplug_core.dataplane.bgp.BgpPlan`.

It follows from nodes, pools, BGPConfigurations, BGPPeers and BGPFilters. A resource that breaks a rule is passed over
and named; it harms no other session. What names something that is not there, a filter or a password, exchanges
nothing: what is not filtered would leak. The node process calls it for its own node; it is pure.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import Final, TypeAlias

from attrs import evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane.bgp import (
    BGP_PORT,
    AddedCommunity,
    BgpPlan,
    BgpSession,
    BgpStatus,
    BgpUse,
    Communities,
    FilterRule,
    NextHop,
    Operation,
    Prepended,
    Priority,
    RouteFilter,
)
from netplug_core.errors import excerpt
from netplug_core.reconcile.controller import Problem
from netplug_core.resources.bgp import (
    BGPConfiguration,
    BGPConfigurationSpec,
    BGPFilter,
    BGPFilterRule,
    BGPPassword,
    BGPPeer,
    BGPPeerSpec,
    BindMode,
    ClusterRoutingMode,
    FilterOperation,
    NextHopMode,
    ReversePeering,
    SourceAddress,
    find_community,
    find_peer_address,
    validate_bgp_configuration,
    validate_bgp_filter,
    validate_bgp_peer,
)
from netplug_core.resources.fields import FieldError, LogSeverity, parse_duration_s
from netplug_core.resources.ippool import AllowedUse, Encapsulation, IPPool
from netplug_core.resources.kinds import OF_NODE
from netplug_core.resources.node import Node
from netplug_core.selectors import matches, parse

__all__ = [
    "DEFAULT_AS_NUMBER", "LARGE_MESH", "PATIENCE_S", "NoBgp", "PeerFacts", "Peering", "SecretName",
    "SessionHistory", "find_hopeless", "find_secrets", "find_use", "plan_peers", "routing_mode",
]  # fmt: skip

DEFAULT_AS_NUMBER: Final = 64512

LARGE_MESH: Final = 100
"""From so many nodes on, each of which has a session with every other one, reflectors are advised."""

SecretName: TypeAlias = tuple[str, str]
"""The name of a Secret, and a member of it."""

_DEFAULT: Final = "default"


# --- facts and outcomes -----------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class PeerFacts:
    """What peers follow from. ``passwords`` are the members of Secrets that could be read.

    ``router_id`` is an IPv4 address in place of the node's own, or ``hash``; a node without an IPv4 address that is
    given none has one that follows from its name.
    """

    node: str
    nodes: tuple[Node, ...] = ()
    pools: tuple[IPPool, ...] = ()
    configurations: tuple[BGPConfiguration, ...] = ()
    peers: tuple[BGPPeer, ...] = ()
    filters: tuple[BGPFilter, ...] = ()
    passwords: Mapping[SecretName, str] = field(factory=dict, repr=False)
    router_id: str = ""

    def find_configuration(self, name: str) -> BGPConfigurationSpec:
        """The settings of a name; without them every one has its default."""
        found = (one.spec for one in self.configurations if one.metadata.name == name)
        return next(found, BGPConfigurationSpec())


@frozen
class NoBgp:
    """No pool and no BGPPeer needs a BGP daemon on this node, or there is no node to speak with."""


@frozen(kw_only=True)
class Peering:
    """What the node does; None: that is not known, as the node is not registered or has no address."""

    outcome: BgpPlan | NoBgp | None
    problems: tuple[Problem, ...] = ()


def find_use(peering: Peering, configurations: Iterable[BGPConfiguration]) -> BgpUse | None:
    """What a plan means for routes; None: that is not known yet."""
    if peering.outcome is None:
        return None
    return BgpUse(is_enabled=isinstance(peering.outcome, BgpPlan), mode=routing_mode(configurations))


# --- what a pool needs ------------------------------------------------------------------------------------------------


def routing_mode(configurations: Iterable[BGPConfiguration]) -> ClusterRoutingMode:
    """Who makes the routes to blocks of pools without encapsulation, in the whole cluster."""
    given = (one.spec.cluster_routing_mode for one in configurations if one.metadata.name == _DEFAULT)
    return next(given, None) or ClusterRoutingMode.BGP


class _PoolKind(enum.Enum):
    PLAIN = "plain"
    IPIP = "IPIP"
    VXLAN = "VXLAN"


def _kind_of(pool: IPPool) -> _PoolKind | None:
    """What the routes of a pool are; None: it is for load balancers alone, and has none."""
    if set(pool.spec.allowed_uses) == {AllowedUse.LOAD_BALANCER}:
        return None
    if pool.spec.vxlan_mode is not Encapsulation.NEVER:
        return _PoolKind.VXLAN
    return _PoolKind.PLAIN if pool.spec.ipip_mode is Encapsulation.NEVER else _PoolKind.IPIP


@frozen(kw_only=True)
class _Pools:
    everything: tuple[Prefix, ...]
    node_written: tuple[Prefix, ...]
    tunnelled: tuple[Prefix, ...]
    unexported: tuple[Prefix, ...]
    needs_bgp: bool

    @classmethod
    def of(cls, pools: Iterable[IPPool], mode: ClusterRoutingMode) -> _Pools:
        kinds = [(pool.spec, kind) for pool in pools if (kind := _kind_of(pool)) is not None]
        by_node = {_PoolKind.VXLAN, _PoolKind.IPIP}
        by_node |= {_PoolKind.PLAIN} if mode is ClusterRoutingMode.NODE else set()
        plain_by_bgp = mode is ClusterRoutingMode.BGP
        return cls(
            everything=_sorted(spec.prefix for spec, _kind in kinds),
            node_written=_sorted(spec.prefix for spec, kind in kinds if kind in by_node),
            tunnelled=_sorted(spec.prefix for spec, kind in kinds if kind is _PoolKind.IPIP),
            unexported=_sorted(spec.prefix for spec, _kind in kinds if spec.is_bgp_export_disabled),
            needs_bgp=any(kind is _PoolKind.IPIP or (kind is _PoolKind.PLAIN and plain_by_bgp) for _, kind in kinds),
        )


def _sorted(prefixes: Iterable[Prefix]) -> tuple[Prefix, ...]:
    return tuple(sorted(set(prefixes)))


# --- the nodes --------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Cluster:
    """The nodes as ends of sessions. ``own`` is the node that this is about."""

    own: Node
    nodes: tuple[Node, ...]
    facts: PeerFacts
    default: BGPConfigurationSpec

    def as_number(self, node: Node) -> int:
        bgp = node.spec.bgp
        own = None if bgp is None else bgp.as_number
        return own or self.default.as_number or DEFAULT_AS_NUMBER

    def port(self, node: Node) -> int:
        own = self.facts.find_configuration(f"{OF_NODE}{node.metadata.name}").listen_port
        return own or self.default.listen_port or BGP_PORT

    def find_node(self, address: Address) -> Node | None:
        return next((one for one in self.nodes if _address_of(one, address.family) == address), None)

    def select(self, selector: str) -> tuple[Node, ...]:
        parsed = parse(selector)
        return tuple(one for one in self.nodes if matches(parsed, dict(one.metadata.labels)))

    def local_nodes(self, spec: BGPPeerSpec) -> tuple[Node, ...]:
        """The nodes that a peer gives a session to."""
        if spec.node:
            return tuple(one for one in self.nodes if one.metadata.name == spec.node)
        return self.select(spec.node_selector) if spec.node_selector else self.nodes


def _address_of(node: Node, family: Family) -> Address | None:
    held = node.find_address(family)
    return None if held is None else held.address


def _cluster_id(node: Node | None) -> Address | None:
    """The cluster id of a route reflector; None: the node is none."""
    bgp = None if node is None else node.spec.bgp
    return None if bgp is None else _find_ipv4(bgp.route_reflector_cluster_id)


def _find_ipv4(text: str) -> Address | None:
    """The four numbers of an identifier; None if a text is none, or they are all 0."""
    try:
        found = Address.parse(text)
    except ValueError:
        return None
    return found if found.family is Family.IPV4 and found.value else None


# --- sessions ---------------------------------------------------------------------------------------------------------


class _Rank(enum.IntEnum):
    """Of two sessions with one address and port, that of the lower rank is made."""

    GLOBAL = 0
    OF_NODES = 1
    REVERSE_GLOBAL = 2
    REVERSE_OF_NODES = 3
    MESH = 4


_WORDS: Final = {
    _Rank.GLOBAL: "Global",
    _Rank.OF_NODES: "Node",
    _Rank.REVERSE_GLOBAL: "Reverse",
    _Rank.REVERSE_OF_NODES: "Reverse",
    _Rank.MESH: "Mesh",
}


@frozen(kw_only=True)
class _Draft:
    """A session without its password."""

    session: BgpSession
    password: BGPPassword | None
    rank: _Rank
    origin: str  # what asks for it, as problems name it


def _mesh_drafts(cluster: _Cluster, problems: list[Problem]) -> Iterator[_Draft]:
    default = cluster.default
    if default.has_node_mesh is False or _cluster_id(cluster.own):
        return
    members = [one for one in cluster.nodes if not _cluster_id(one) and any(map(one.find_address, Family))]
    if len(members) >= LARGE_MESH:
        cause = f"{len(members)} nodes, each of which has a session with every other one; use route reflectors"
        problems.append(Problem(message="the mesh of BGP sessions is large", cause=cause))
    for node in members:
        for family in Family:
            session = _session_with_node(cluster, node, family, BGPPeerSpec(), is_reverse=False)
            if session is not None:
                session = evolve(session, restart_s=_seconds(default.mesh_max_restart_time) or session.restart_s)
                yield _Draft(session=session, password=default.mesh_password, rank=_Rank.MESH, origin="the mesh")


def _peer_drafts(cluster: _Cluster, peer: BGPPeer, problems: list[Problem]) -> Iterator[_Draft]:
    spec, origin = peer.spec, f"BGPPeer({peer.metadata.name})"
    is_global = not spec.node and not spec.node_selector
    local, own = cluster.local_nodes(spec), cluster.own
    explicit = _Rank.GLOBAL if is_global else _Rank.OF_NODES
    implied = _Rank.REVERSE_GLOBAL if is_global else _Rank.REVERSE_OF_NODES
    if own in local and spec.peer_ip:
        session = _session_with_address(cluster, peer)
        if session is None:
            problems.append(Problem(message=f"{origin}: no session", cause=_no_address(cluster, spec)))
        elif session.address != _address_of(own, session.family):
            yield _Draft(session=session, password=spec.password, rank=explicit, origin=origin)
        return
    remote = cluster.select(spec.peer_selector) if spec.peer_selector else ()
    ends = [(node, explicit) for node in (remote if own in local else ())]
    if own in remote and spec.reverse_peering is not ReversePeering.MANUAL:
        ends += [(node, implied) for node in local]
    for node, rank in ends:
        for family in Family:
            session = _session_with_node(cluster, node, family, spec, is_reverse=rank is implied)
            if session is not None:
                yield _Draft(session=session, password=spec.password, rank=rank, origin=origin)


def _no_address(cluster: _Cluster, spec: BGPPeerSpec) -> str:
    return f"{cluster.own.metadata.name} has no address of the family of {excerpt(spec.peer_ip)}"


def _session_with_node(
    cluster: _Cluster, node: Node, family: Family, spec: BGPPeerSpec, *, is_reverse: bool
) -> BgpSession | None:
    """The session with another node; None if one of the two has no address of the family, or there is only one node."""
    own, address = _address_of(cluster.own, family), _address_of(node, family)
    if own is None or address is None or node == cluster.own or address == own:
        return None
    local_as, peer_as = cluster.as_number(cluster.own), cluster.as_number(node)
    if is_reverse:
        peer_as = spec.local_as_number or peer_as
    else:
        local_as = spec.local_as_number or local_as
    session = BgpSession(
        name="",
        peer=node.metadata.name,
        address=address,
        port=cluster.port(node),
        local_as=local_as,
        peer_as=peer_as,
        source=own,
        # One end connects, so that two sessions never come about at once: that with the higher address.
        is_passive=own < address,
    )
    return _with_options(cluster, session, spec, remote=node)


def _session_with_address(cluster: _Cluster, peer: BGPPeer) -> BgpSession | None:
    """The session with an address; None if the node has none of its family."""
    spec = peer.spec
    found = find_peer_address(spec.peer_ip)
    own = None if found is None else _address_of(cluster.own, found[0].family)
    if found is None or own is None:
        return None
    address, port = found
    node = cluster.find_node(address)
    session = BgpSession(
        name="",
        peer=peer.metadata.name,
        address=address,
        port=port or (BGP_PORT if node is None else cluster.port(node)),
        local_as=spec.local_as_number or cluster.as_number(cluster.own),
        peer_as=spec.as_number or DEFAULT_AS_NUMBER,
        source=own,
        gateway=spec.reachable_by,
    )
    return _with_options(cluster, session, spec, remote=node)


def _with_options(cluster: _Cluster, session: BgpSession, spec: BGPPeerSpec, *, remote: Node | None) -> BgpSession:
    own_id = _cluster_id(cluster.own)
    keepalive_s = _seconds(spec.keepalive_time)
    return evolve(
        session,
        source=None if spec.source_address is SourceAddress.ANY else session.source,
        is_reflector_client=bool(session.is_internal and own_id and _cluster_id(remote) != own_id),
        keepalive_s=keepalive_s,
        hold_s=max(session.hold_s, 3 * (keepalive_s or 0)),
        restart_s=_seconds(spec.max_restart_time) or session.restart_s,
        ttl_hops=spec.ttl_security,
        allowed_local_as=spec.allowed_local_as_numbers or 0,
        next_hop=_next_hop(spec, is_internal=session.is_internal),
        filters=tuple(spec.filters),
    )


def _next_hop(spec: BGPPeerSpec, *, is_internal: bool) -> NextHop:
    """Within an AS a reflector that named itself would draw all traffic to itself, so there it does so for no route."""
    mode = spec.next_hop_mode or (NextHopMode.KEEP if spec.keeps_original_next_hop else NextHopMode.AUTO)
    if mode is NextHopMode.SELF:
        return NextHop.SELF_FOR_EXTERNAL if is_internal else NextHop.SELF
    return NextHop.KEEP if mode is NextHopMode.KEEP and not is_internal else NextHop.AUTO


_LONGEST_S: Final = 4095  # in the messages of BGP a restart time has 12 bits (RFC 4724)


def _seconds(text: str) -> int | None:
    """A duration in whole seconds, at least one; None if none is given."""
    if not text.strip("0"):
        return None
    return min(_LONGEST_S, max(1, round(parse_duration_s(text))))


# --- names ------------------------------------------------------------------------------------------------------------


_MAX_SYMBOL: Final = 64
_SUFFIX: Final = 8


def _symbol(*words: str) -> str:
    """A name of letters, digits and ``_`` that no other words have."""
    text = "_".join(words)
    symbol = re.sub(r"[^A-Za-z0-9_]", "_", text)
    if symbol == text and len(symbol) <= _MAX_SYMBOL:
        return symbol
    return f"{symbol[: _MAX_SYMBOL - _SUFFIX - 1]}_{sha256(text.encode()).hexdigest()[:_SUFFIX]}"


def _session_name(draft: _Draft) -> str:
    """Family, address and port; an address has one spelling, so that a hash would tell nothing."""
    session = draft.session
    address = re.sub(r"[.:]", "_", str(session.address))
    port = "" if session.port == BGP_PORT else f"_port_{session.port}"
    return f"{_WORDS[draft.rank]}{session.family.value}_{address}{port}"


# --- filters and communities ------------------------------------------------------------------------------------------


def _filters(facts: PeerFacts, problems: list[Problem]) -> Mapping[str, BGPFilter]:
    """The filters that can be used, by their names."""
    usable = {}
    for one in facts.filters:
        errors = tuple(validate_bgp_filter(one))
        if errors:
            problems.append(_passed_over(f"BGPFilter({one.metadata.name})", errors))
        else:
            usable[one.metadata.name] = one
    return usable


def _passed_over(what: str, errors: Iterable[FieldError]) -> Problem:
    return Problem(message=f"{what} is passed over", cause="; ".join(map(str, errors)))


def _filter_symbol(name: str, family: Family) -> str:
    return _symbol(f"filter{family.value}", name)


def _route_filter(one: BGPFilter, family: Family) -> RouteFilter:
    imported, exported = one.rules_for(family)
    return RouteFilter(
        name=_filter_symbol(one.metadata.name, family),
        family=family,
        imported=tuple(map(_filter_rule, imported)),
        exported=tuple(map(_filter_rule, exported)),
    )


def _filter_rule(rule: BGPFilterRule) -> FilterRule:
    given = FilterRule(
        action=rule.action,
        is_from_peers=rule.source is not None,
        interface=rule.interface,
        peer_type=rule.peer_type,
        community=() if rule.communities is None else find_community(rule.communities.values[0]) or (),
        as_path_prefix=rule.as_path_prefix,
        priority=rule.priority,
        operations=tuple(map(_operation, rule.operations)),
    )
    if rule.prefix is None or rule.match_operator is None:
        return given
    lengths = None
    if rule.prefix_lengths is not None:
        shortest, longest = rule.prefix_lengths.minimum, rule.prefix_lengths.maximum
        lengths = (
            rule.prefix.length if shortest is None else shortest,
            rule.prefix.family.width if longest is None else longest,
        )
    return evolve(given, prefix=rule.prefix, operator=rule.match_operator, lengths=lengths)


def _operation(operation: FilterOperation) -> Operation:
    """Exactly one is given: the rules of the kind have been asked."""
    if operation.add_community is not None:
        return AddedCommunity(find_community(operation.add_community.value) or ())
    if operation.prepend_as_path is not None:
        return Prepended(operation.prepend_as_path.numbers)
    return Priority(1 if operation.set_priority is None else operation.set_priority.value)


def _communities(spec: BGPConfigurationSpec) -> Iterator[tuple[Prefix, Communities]]:
    """Communities by prefix. A text that is neither a name nor a value is passed over; the rules have named it."""
    named = {one.name: one.value for one in spec.communities}
    for advertised in spec.advertised:
        found = (find_community(named.get(text, text)) for text in advertised.communities)
        yield advertised.prefix, tuple(sorted({one for one in found if one is not None}))


# --- passwords --------------------------------------------------------------------------------------------------------


_MAX_PASSWORD: Final = 80  # bytes; TCP_MD5SIG_MAXKEYLEN of the kernel
_NO_PASSWORD: Final = re.compile(r'["\\\x00-\x1f\x7f]')


def find_secrets(facts: PeerFacts) -> frozenset[SecretName]:
    """The members of Secrets that sessions of the node need."""
    peering = _drafts(facts)
    passwords = () if peering is None else (one.password for one in peering.drafts if one.password is not None)
    return frozenset((one.secret.name, one.secret.key) for one in passwords)


def _complete(
    draft: _Draft, facts: PeerFacts, filters: Mapping[str, BGPFilter], problems: list[Problem]
) -> BgpSession | None:
    """The session with its name, password and filters; None, and a problem, if it cannot be."""
    session = evolve(draft.session, name=_session_name(draft))
    what = f"{draft.origin}: no session with {session.address}"
    if draft.password is not None:
        secret = draft.password.secret
        where = f"the member {excerpt(secret.key)} of the Secret {excerpt(secret.name)}"
        password = facts.passwords.get((secret.name, secret.key))
        if password is None:
            problems.append(Problem(message=what, cause=f"{where} cannot be read, and is its password"))
            return None
        if not password or _NO_PASSWORD.search(password) or len(password.encode()) > _MAX_PASSWORD:
            rule = f"a password has 1 to {_MAX_PASSWORD} bytes, no '\"', no '\\' and no line breaks"
            problems.append(Problem(message=what, cause=f"{where} is not accepted: {rule}"))
            return None
        session = evolve(session, password=password)
    missing = [name for name in session.filters if name not in filters]
    if missing:
        cause = f"there is no BGPFilter {', '.join(map(excerpt, missing))} that can be used"
        problems.append(Problem(message=f"{draft.origin}: no routes are exchanged with {session.address}", cause=cause))
    symbols = tuple(_filter_symbol(name, session.family) for name in session.filters if name in filters)
    return evolve(session, filters=symbols, is_closed=bool(missing))


# --- the plan ---------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Drafts:
    cluster: _Cluster
    drafts: tuple[_Draft, ...]
    has_peer: bool  # a BGPPeer gives the node a session
    problems: tuple[Problem, ...]


def _drafts(facts: PeerFacts) -> _Drafts | None:
    """The sessions of the node; None if it is not registered."""
    nodes = tuple(sorted(facts.nodes, key=lambda one: one.metadata.name))
    own = next((one for one in nodes if one.metadata.name == facts.node), None)
    if own is None:
        return None
    cluster = _Cluster(own=own, nodes=nodes, facts=facts, default=facts.find_configuration(_DEFAULT))
    problems: list[Problem] = []
    drafts: list[_Draft] = []
    for peer in sorted(facts.peers, key=lambda one: one.metadata.name):
        errors = tuple(validate_bgp_peer(peer))
        if errors:
            problems.append(_passed_over(f"BGPPeer({peer.metadata.name})", errors))
        elif peer.spec.local_workload_selector:
            what = f"BGPPeer({peer.metadata.name}): no session"
            problems.append(Problem(message=what, cause="localWorkloadSelector is not yet supported"))
        else:
            drafts += _peer_drafts(cluster, peer, problems)
    has_peer = bool(drafts)
    drafts += _mesh_drafts(cluster, problems)
    chosen: dict[tuple[Address, int], _Draft] = {}
    for draft in sorted(drafts, key=lambda one: one.rank):
        chosen.setdefault((draft.session.address, draft.session.port), draft)
    return _Drafts(cluster=cluster, drafts=tuple(chosen.values()), has_peer=has_peer, problems=tuple(problems))


def plan_peers(facts: PeerFacts) -> Peering:
    """What the BGP daemon of the node does. Equal facts, in whatever order, give equal plans."""
    drafted = _drafts(facts)
    own = None if drafted is None else drafted.cluster.own
    if drafted is None or own is None or not any(map(own.find_address, Family)):
        cause = "it is not registered" if own is None else "no address of it is registered"
        return Peering(outcome=None, problems=(Problem(message=f"no BGP on the node {facts.node}", cause=cause),))
    pools = _Pools.of(facts.pools, routing_mode(facts.configurations))
    if not drafted.has_peer and not (pools.needs_bgp and drafted.drafts):
        return Peering(outcome=NoBgp(), problems=drafted.problems)
    problems = [*drafted.problems, *_configuration_problems(facts)]
    filters = _filters(facts, problems)
    completed = (_complete(draft, facts, filters, problems) for draft in drafted.drafts)
    sessions = sorted((one for one in completed if one is not None), key=lambda one: one.name)
    used = {name for session in sessions for name in session.filters}
    candidates = (_route_filter(one, family) for one in filters.values() for family in Family)
    router_id = _router_id(facts, own, problems)
    plan = BgpPlan(
        node=facts.node,
        router_id=router_id,
        addresses=tuple(one for family in Family if (one := _address_of(own, family)) is not None),
        interface_addresses=tuple(sorted({one for each in own.spec.interfaces for one in each.addresses})),
        cluster_id=_cluster_id(own),
        sessions=tuple(sessions),
        filters=tuple(sorted((one for one in candidates if one.name in used), key=lambda one: one.name)),
        pools=pools.everything,
        node_written=pools.node_written,
        tunnelled=pools.tunnelled,
        unexported=pools.unexported,
    )
    return Peering(outcome=_with_settings(plan, drafted.cluster), problems=tuple(sorted(problems, key=str)))


def _with_settings(plan: BgpPlan, cluster: _Cluster) -> BgpPlan:
    """The plan with the node's own settings, or those of the cluster where it has none."""
    default = cluster.default
    own = cluster.facts.find_configuration(f"{OF_NODE}{plan.node}")
    with_communities = own if own.advertised else default
    ignored = own.ignored_interfaces or default.ignored_interfaces
    is_name = re.compile(r"[A-Za-z0-9_.*-]{1,15}").fullmatch
    return evolve(
        plan,
        listen_port=cluster.port(cluster.own),
        bind_mode=own.bind_mode or default.bind_mode or BindMode.ALL,
        log_severity=own.log_severity or default.log_severity or LogSeverity.INFO,
        communities=tuple(sorted(_communities(with_communities))),
        ignored_interfaces=tuple(sorted({one for one in ignored if is_name(one)})),
    )


def _configuration_problems(facts: PeerFacts) -> Iterator[Problem]:
    names = {_DEFAULT, f"{OF_NODE}{facts.node}"}
    for one in facts.configurations:
        errors = tuple(validate_bgp_configuration(one)) if one.metadata.name in names else ()
        if errors:
            message = f"BGPConfiguration({one.metadata.name}): what is not accepted is passed over"
            yield Problem(message=message, cause="; ".join(map(str, errors)))


def _router_id(facts: PeerFacts, own: Node, problems: list[Problem]) -> Address:
    hashed = Address(Family.IPV4, int.from_bytes(sha256(facts.node.encode()).digest()[:4], "big") or 1)
    if facts.router_id == "hash":
        return hashed
    if facts.router_id:
        given = _find_ipv4(facts.router_id)
        if given is not None:
            return given
        cause = f"{excerpt(facts.router_id)} is neither an IPv4 address nor the word hash"
        problems.append(Problem(message="NETPLUG_ROUTER_ID is passed over", cause=cause))
    return _address_of(own, Family.IPV4) or hashed


# --- readiness --------------------------------------------------------------------------------------------------------

PATIENCE_S: Final = 60.0
"""A session that does not come up in this time is a problem, and no reason to wait any longer."""


def find_hopeless(plan: BgpPlan, nodes: Iterable[Node]) -> frozenset[str]:
    """The sessions of the mesh with nodes of which the orchestrator says that they are not ready.

    They are not waited for: a node that is down for good would keep every new one from being ready for a while.
    """
    unready = {one.metadata.name for one in nodes if one.status.is_ready is False}
    mesh = (one for one in plan.sessions if one.name.startswith(_WORDS[_Rank.MESH]))
    return frozenset(one.name for one in mesh if one.peer in unready)


@frozen
class SessionHistory:
    """Since when each session has been tried, and which were established once. Times are monotonic."""

    tried_since: Mapping[str, float] = field(factory=dict)
    were_established: frozenset[str] = frozenset()

    def observe(self, plan: BgpPlan, status: BgpStatus | None, now: float) -> SessionHistory:
        """The history after a look at the daemon. Sessions that are in no plan any more are forgotten."""
        names = {one.name for one in plan.sessions}
        up = set() if status is None else {one.name for one in status.sessions if one.is_established}
        since = {name: self.tried_since.get(name, now) for name in sorted(names)}
        return SessionHistory(since, frozenset((self.were_established | up) & names))

    def pending(self, now: float, hopeless: AbstractSet[str] = frozenset()) -> tuple[str, ...]:
        """The sessions that are waited for: they were never established, not tried for long, and not hopeless."""
        tried = (name for name in self._never_established() if now < self.tried_since[name] + PATIENCE_S)
        return tuple(name for name in tried if name not in hopeless)

    def problems(self, plan: BgpPlan, status: BgpStatus, now: float) -> tuple[Problem, ...]:
        """The sessions that are not established, although they were once, or have been tried for long."""
        pending, found = set(self.pending(now)), {one.name: one for one in status.sessions}
        problems = []
        for session in plan.sessions:
            at = found.get(session.name)
            if session.name in pending or (at is not None and at.is_established):
                continue
            message = f"the BGP session with {session.peer} ({session.address}) is not established"
            if at is not None and at.has_wrong_as:
                cause = f"{at.error}: this node is in AS {session.local_as}, and expects the peer in {session.peer_as}"
                problems.append(Problem(message=message, cause=cause, event="ASConflict"))
                continue
            cause = "the daemon does not know it" if at is None else at.error or "the peer does not answer"
            problems.append(Problem(message=message, cause=cause))
        return tuple(problems)

    def _never_established(self) -> Iterator[str]:
        return (name for name in self.tried_since if name not in self.were_established)
