"""Renders what a node enforces on packets as the table ``inet netplug`` of the packet filter.

A packet enters at four hooks. ``raw-prerouting`` holds each workload to its addresses. ``filter-forward`` judges what
passes through the node: the chain of the interface it comes from, then that of the interface it leaves by.
``filter-input`` and ``filter-postrouting`` judge what the node itself receives and sends. Verdict maps lead from an
interface to the chains of its endpoint, so the number of endpoints does not matter. Each lookup that may find nothing
is followed by a drop: what is not known, or not programmed yet, passes nothing.

A chain of an endpoint jumps to the chains of its policies, or of its profiles, which endpoints share. Names of chains
and sets are made of names and contents, so equal states have equal tables. ``phases`` changes the table.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias, assert_never

from attrs import Factory, define, evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane.ruleset import (
    BaseChain,
    Chain,
    ChainType,
    Concatenation,
    Counter,
    Element,
    ElementType,
    Goto,
    Hook,
    Jump,
    JumpByMap,
    Limit,
    LogPacket,
    Match,
    Meta,
    MetaKey,
    NamedSet,
    PacketTable,
    Payload,
    Reject,
    Rule,
    SetReference,
    Statement,
    TrackingState,
    Verdict,
    destination_of,
    source_of,
)
from netplug_core.names import POLICY_TABLE
from netplug_core.policy import model
from netplug_core.policy.model import (
    ALL_INTERFACES,
    Action,
    ActiveHostEndpoint,
    ActivePolicy,
    ActiveProfile,
    DenyAction,
    Direction,
    Failsafe,
    LocalEndpoint,
    MemberSet,
    PeerMatch,
    PolicySettings,
    PolicyState,
    PortMember,
    SetId,
    SetType,
)
from netplug_core.resources.fields import PortRange
from netplug_core.resources.nodeconfiguration import EndpointToHostAction

__all__ = [
    "NO_OVERLAY", "POLICY_TABLE", "SOURCE_GUARD", "FilterRenderer", "Overlay", "closed_endpoint", "closed_policy",
    "find_guarded", "guard_table", "render_state",
]  # fmt: skip

SOURCE_GUARD: Final = "raw-prerouting"
"""The chain whose last rule counts packets that a workload may not send."""

_RAW, _AFTER_HOST_RULES, _BEFORE_SOURCE_NAT = -300, 10, -150
_MAX_NAME_OF_RULE = 119  # a comment has 128 bytes, of which 9 are a digest and a space
_MAX_LOG_PREFIX = 126
_MAX_EXCEPTIONS = 8
_ID_DIGITS = 16
_IPIP_PROTOCOL = 4

_IN, _OUT = Meta(MetaKey.INPUT_INTERFACE), Meta(MetaKey.OUTPUT_INTERFACE)
_TRANSPORT, _FAMILY = Meta(MetaKey.TRANSPORT), Meta(MetaKey.FAMILY)
_SOURCE_PORT, _DESTINATION_PORT = Payload("th", "sport"), Payload("th", "dport")
_DIGITS = {Family.IPV4: "4", Family.IPV6: "6"}
_FAMILY_NAMES = {Family.IPV4: "ipv4", Family.IPV6: "ipv6"}
_ICMP_HEADERS = {Family.IPV4: "icmp", Family.IPV6: "icmpv6"}
_RATES: Final = re.compile(r"([0-9]+)/(second|minute|hour|day)")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")

# Multicast listeners, and those of neighbour discovery that a workload may send: no router advertisement or redirect.
_WORKLOAD_DISCOVERY = (130, 131, 132, 133, 135, 136, 143)
_DISCOVERY = (130, 131, 132, 133, 134, 135, 136, 137, 143)
_LINK_LOCAL, _UNSPECIFIED = Prefix.parse("fe80::/10"), Prefix.parse("::/128")


@frozen(kw_only=True)
class Overlay:
    """The wrapped packets that a node receives from others, which no host endpoint judges.

    ``vxlan_port`` None: none by VXLAN. Only ``nodes`` and ``external`` may send them.
    """

    vxlan_port: int | None = None
    has_ipip: bool = False
    nodes: frozenset[Address] = frozenset()
    external: tuple[Prefix, ...] = ()


NO_OVERLAY: Final = Overlay()
"""A node that receives no wrapped packets."""

_Statements: TypeAlias = tuple[Statement, ...]


def render_state(state: PolicyState, overlay: Overlay = NO_OVERLAY) -> PacketTable:
    """The table that enforces a state, from scratch."""
    return FilterRenderer().render(state, overlay)


def guard_table() -> PacketTable:
    """The table that lets no packet of any workload pass, and all others."""
    return render_state(PolicyState())


def closed_endpoint(endpoint: LocalEndpoint) -> LocalEndpoint:
    """An endpoint to which, and from which, nothing passes: in place of one that cannot be programmed."""
    return LocalEndpoint(
        id=endpoint.id, container_id=endpoint.container_id, interface=endpoint.interface, mac=endpoint.mac
    )


def closed_policy(policy: ActivePolicy) -> ActivePolicy:
    """A policy that isolates its endpoints and allows nothing: in place of one that cannot be programmed."""
    return ActivePolicy(id=policy.id)


# --- names ------------------------------------------------------------------------------------------------------------


def _digest(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode(errors="surrogatepass")).hexdigest()[:_ID_DIGITS]


def _policy_name(policy: model.PolicyId) -> str:
    return hashlib.sha256(f"{policy.kind.value}/{policy.namespace}/{policy.name}".encode()).hexdigest()[:_ID_DIGITS]


def _profile_name(name: str) -> str:
    return _digest("Profile", name)


def _interface_chain(role: str, interface: str) -> str:
    return f"{role}-{interface if _PLAIN_NAME.fullmatch(interface) else _digest(interface)}"


# --- rules of policies ------------------------------------------------------------------------------------------------


@frozen
class _Rendered:
    """Chains, the sets of literals that their rules use, and the elements of other sets, by their names."""

    chains: tuple[Chain, ...]
    literals: tuple[NamedSet, ...] = ()
    elements: tuple[tuple[str, Element], ...] = ()
    used: frozenset[str] = field(init=False, default=Factory(lambda self: self._find_used(), takes_self=True))

    def _find_used(self) -> frozenset[str]:
        """The names of all sets that the rules look into."""
        statements = (each for chain in self.chains for rule in chain.rules for each in rule.statements)
        matches = (each.right for each in statements if isinstance(each, Match))
        return frozenset(each.name for each in matches if isinstance(each, SetReference))


@define
class _RuleRenderer:
    """Renders the rules of one policy or profile in one direction.

    ``allow`` and ``deny`` are what the rules end in. ``types`` are those of the sets that the rules name. ``literals``
    collects the sets that a rule needs beside them, by name.
    """

    settings: PolicySettings
    types: Callable[[SetId], SetType]
    allow: _Statements
    deny: _Statements
    literals: dict[str, NamedSet] = field(factory=dict)

    def render(self, rules: Iterable[model.Rule]) -> Iterator[Rule]:
        for rule in rules:
            end = self._end(rule)
            for match in rule.matches:
                for family in self._families(match):
                    for statements in self._matches(match, family):
                        yield Rule((*statements, *end), rule.name[:_MAX_NAME_OF_RULE])

    def _end(self, rule: model.Rule) -> _Statements:
        match rule.action:
            case Action.ALLOW:
                return self.allow
            case Action.DENY:
                return self.deny
            case Action.LOG:
                return (*_limit(self.settings), LogPacket(_log_prefix(self.settings, rule.name)))
            case _:
                assert_never(rule.action)

    def _families(self, match: model.Match) -> tuple[Family | None, ...]:
        """One rule for each family if addresses are compared, since they stand in headers of the family."""
        if match.family is not None:
            return (match.family,)
        has_addresses = any(end.set_ids for end in (match.source, match.destination))
        return tuple(Family) if has_addresses else (None,)

    def _matches(self, match: model.Match, family: Family | None) -> Iterator[_Statements]:
        """The statements for the packets of a match: those of several rules if one cannot say it, or of none."""
        if any(not prefix.length for end in (match.source, match.destination) for prefix in end.not_prefixes):
            return
        common: list[Statement] = []
        if match.family is not None:
            common.append(Match(_FAMILY, _FAMILY_NAMES[match.family]))
        if match.protocol is not None:
            common.append(Match(_TRANSPORT, match.protocol))
        if match.not_protocol is not None:
            common.append(Match(_TRANSPORT, match.not_protocol, is_negated=True))
        ends = (*self._end_of(match.source, family, is_source=True), *self._end_of(match.destination, family))
        for icmp in _icmp_statements(match, family):
            yield (*common, *icmp, *ends)

    def _end_of(self, peer: PeerMatch, family: Family | None, *, is_source: bool = False) -> Iterator[Statement]:
        port = _SOURCE_PORT if is_source else _DESTINATION_PORT
        if family is not None:
            address = source_of(family) if is_source else destination_of(family)
            for is_negated, ids in ((False, peer.sets), (True, peer.not_sets)):
                for each in ids:
                    yield Match(address, SetReference(_set_name(each, self.types(each), family)), is_negated)
            yield from self._prefixes(peer, family, address)
            key = Concatenation((address, _TRANSPORT, port))
            for is_negated, ids in ((False, _given(peer.port_set)), (True, peer.not_port_sets)):
                for each in ids:
                    yield Match(key, SetReference(_set_name(each, SetType.PORTS, family)), is_negated)
        if peer.ports:
            yield Match(port, peer.ports[0] if len(peer.ports) == 1 else self._ports(peer.ports))
        if len(peer.not_ports) > _MAX_EXCEPTIONS:
            yield Match(port, self._ports(peer.not_ports), is_negated=True)
        else:
            yield from (Match(port, each, is_negated=True) for each in peer.not_ports)

    def _prefixes(self, peer: PeerMatch, family: Family, address: Payload) -> Iterator[Statement]:
        if len(peer.prefixes) > 1:
            yield Match(address, self._literal_prefixes(peer.prefixes, family))
        else:
            yield from (Match(address, prefix) for prefix in peer.prefixes if prefix.length)  # else all of the family
        if len(peer.not_prefixes) > _MAX_EXCEPTIONS:
            yield Match(address, self._literal_prefixes(peer.not_prefixes, family), is_negated=True)
        else:
            yield from (Match(address, prefix, is_negated=True) for prefix in peer.not_prefixes)

    def _literal_prefixes(self, prefixes: tuple[Prefix, ...], family: Family) -> SetReference:
        name = f"n{_DIGITS[family]}-{_digest(*sorted(map(str, prefixes)))}"
        self.literals[name] = _interval_set(name, ElementType.address_of(family), _disjoint(prefixes))
        return SetReference(name)

    def _ports(self, ports: tuple[PortRange, ...]) -> SetReference:
        name = f"q-{_digest(*sorted(map(str, ports)))}"
        self.literals[name] = _interval_set(name, ElementType.PORT, _merged(ports))
        return SetReference(name)


def _given(port_set: SetId | None) -> tuple[SetId, ...]:
    return () if port_set is None else (port_set,)


def _icmp_statements(match: model.Match, family: Family | None) -> tuple[_Statements, ...]:
    if family is None or (match.icmp is None and match.not_icmp is None):
        return ((),)
    header = _ICMP_HEADERS[family]
    kind, code = Payload(header, "type"), Payload(header, "code")
    found: _Statements = ()
    if match.icmp is not None:
        found = (Match(kind, match.icmp.type),)
        if match.icmp.code is not None:
            found = (*found, Match(code, match.icmp.code))
    if match.not_icmp is None:
        return (found,)
    excluded = match.not_icmp
    others: _Statements = (Match(kind, excluded.type, is_negated=True),)
    if excluded.code is None:
        return ((*found, *others),)
    other_codes: _Statements = (Match(kind, excluded.type), Match(code, excluded.code, is_negated=True))
    return ((*found, *others), (*found, *other_codes))


def _limit(settings: PolicySettings) -> _Statements:
    found = _RATES.fullmatch(settings.log_rate)
    return () if found is None else (Limit(int(found[1]), found[2], settings.log_burst),)


def _log_prefix(settings: PolicySettings, rule: str) -> str:
    """The text of the settings, with what it asks for of the rule; if it asks for nothing, the policy follows."""
    policy = rule.partition(" #")[0]
    kind, _, name = policy.partition(" ")
    values = {"%k": kind, "%n": name.rpartition("/")[2], "%p": name, "%t": "default"}
    text = re.sub(r"%[knpt]", lambda found: values[found[0]], settings.log_prefix)
    if text == settings.log_prefix:
        text = f"{text} {policy}"
    return f"{text[: _MAX_LOG_PREFIX - 2]}: "


# --- sets -------------------------------------------------------------------------------------------------------------


_SET_LETTERS = {SetType.ADDRESSES: "s", SetType.PREFIXES: "n", SetType.PORTS: "p"}


def _set_name(set_id: SetId, kind: SetType, family: Family) -> str:
    return f"{_SET_LETTERS[kind]}{_DIGITS[family]}-{set_id}"


def _member_set(members: MemberSet, family: Family) -> NamedSet:
    name, address = _set_name(members.id, members.type, family), ElementType.address_of(family)
    match members.type:
        case SetType.ADDRESSES:
            addresses = (each for each in members.members if isinstance(each, Address) and each.family is family)
            return NamedSet(name=name, types=(address,), elements=frozenset(Element((each,)) for each in addresses))
        case SetType.PREFIXES:
            prefixes = (each for each in members.members if isinstance(each, Prefix) and each.family is family)
            return _interval_set(name, address, prefixes)
        case SetType.PORTS:
            ports = (each for each in members.members if isinstance(each, PortMember) and each.address.family is family)
            return NamedSet(
                name=name,
                types=(address, ElementType.PROTOCOL, ElementType.PORT),
                elements=frozenset(Element((each.address, each.protocol, each.port)) for each in ports),
            )
        case _:
            assert_never(members.type)


def _interval_set(name: str, kind: ElementType, parts: Iterable[Prefix] | Iterable[PortRange]) -> NamedSet:
    return NamedSet(name=name, types=(kind,), is_interval=True, elements=frozenset(Element((each,)) for each in parts))


def _disjoint(prefixes: Iterable[Prefix]) -> list[Prefix]:
    """Prefixes with the addresses of all, none of which overlaps another."""
    found: list[Prefix] = []
    for prefix in sorted(prefixes, key=lambda each: (each.family, int(each.first), each.length)):
        if not found or not found[-1].covers(prefix):
            found.append(prefix)
    return found


def _merged(ports: Iterable[PortRange]) -> list[PortRange]:
    """Ranges with the ports of all, none of which overlaps another."""
    found: list[PortRange] = []
    for each in sorted(ports, key=lambda one: one.first):
        if found and each.first <= found[-1].last + 1:
            found[-1] = PortRange(found[-1].first, max(found[-1].last, each.last))
        else:
            found.append(each)
    return found


def _interface_map(name: str, chains: Mapping[str, str]) -> NamedSet:
    elements = frozenset(Element((interface,), Jump(chain)) for interface, chain in chains.items())
    return NamedSet(name=name, types=(ElementType.INTERFACE_NAME,), value_type=ElementType.VERDICT, elements=elements)


# The sets that lead from an interface to its chains, and those of what each may send from and is sent to.
_DISPATCH_SETS: Final = (
    *(
        NamedSet(name=name, types=(ElementType.INTERFACE_NAME,), value_type=ElementType.VERDICT)
        for name in ("from-wl", "to-wl")
    ),
    *(
        NamedSet(
            name=f"{name}-v{digit}",
            types=(ElementType.INTERFACE_NAME, ElementType.address_of(family)),
            is_interval=is_interval,
        )
        for family, digit in _DIGITS.items()
        for name, is_interval in (("src", False), ("srcnet", True))
    ),
)


def _dispatch_elements(endpoint: LocalEndpoint) -> Iterator[tuple[str, Element]]:
    """What an endpoint has in each of these sets, by their names."""
    interface = endpoint.interface
    for name, role in (("from-wl", "fw"), ("to-wl", "tw")):
        yield name, Element((interface,), Jump(_interface_chain(role, interface)))
    for address in endpoint.addresses:
        yield f"src-v{_DIGITS[address.family]}", Element((interface, address))
    for prefix in _disjoint(endpoint.source_prefixes):
        yield f"srcnet-v{_DIGITS[prefix.family]}", Element((interface, prefix))


def find_guarded(sets: Iterable[NamedSet]) -> frozenset[tuple[str, Address]]:
    """The interfaces of workloads with the addresses that each may send from, by the sets of a table."""
    names = [f"src-v{digit}" for digit in _DIGITS.values()]
    keys = (each.key for named in sets if named.name in names for each in named.elements)
    return frozenset((key[0], key[1]) for key in keys if isinstance(key[0], str) and isinstance(key[1], Address))


# --- the table --------------------------------------------------------------------------------------------------------


@define(eq=False)
class FilterRenderer:
    """Renders states one after another, and only what has changed since the last one.

    What it keeps are parts of the last table, each with the value that it was rendered from.
    """

    _settings: PolicySettings | None = field(default=None, init=False)
    _overlay: Overlay = field(default=NO_OVERLAY, init=False)
    _static: _Rendered = field(default=_Rendered(()), init=False)
    _kept: dict[tuple[str, object], tuple[object, _Rendered]] = field(factory=dict, init=False)
    _kept_sets: dict[str, tuple[MemberSet, NamedSet]] = field(factory=dict, init=False)
    _dispatch: dict[str, NamedSet] = field(factory=dict, init=False)

    def render(self, state: PolicyState, overlay: Overlay = NO_OVERLAY) -> PacketTable:
        """The table that enforces a state."""
        if state.settings != self._settings or overlay != self._overlay:
            self._settings, self._overlay = state.settings, overlay
            self._kept.clear()
            self._static = _Rendered(tuple(_static_chains(state.settings, overlay)), tuple(_overlay_sets(overlay)))
        parts = [self._static, *self._render_parts(state)]
        chains = tuple(chain for part in parts for chain in part.chains)
        literals = {each.name: each for part in parts for each in part.literals}
        sets = (*self._dispatch_sets(state, parts), *literals.values(), *self._member_sets(state, parts))
        return PacketTable(name=POLICY_TABLE, sets=sets, chains=chains)

    def _render_parts(self, state: PolicyState) -> tuple[_Rendered, ...]:
        settings, types = state.settings, {each.id: each.type for each in state.sets}.__getitem__
        host_policies = frozenset(each for one in state.host_endpoints for each in one.egress)
        host_profiles = frozenset(each for one in state.host_endpoints for each in one.profiles)
        kept: dict[tuple[str, object], tuple[object, _Rendered]] = {}

        def keep(sort: str, identity: object, value: object, render: Callable[[], _Rendered]) -> None:
            known = self._kept.get((sort, identity))
            kept[sort, identity] = known if known is not None and _is_same(known[0], value) else (value, render())

        for policy in state.policies:
            is_for_hosts = _rejects(settings) and policy.id in host_policies
            policy_renderer = partial(_render_policy, policy, settings, types, is_for_hosts=is_for_hosts)
            keep("policy", policy.id, (policy, is_for_hosts), policy_renderer)
        for profile in state.profiles:
            is_for_hosts = _rejects(settings) and profile.name in host_profiles
            profile_renderer = partial(_render_profile, profile, settings, types, is_for_hosts=is_for_hosts)
            keep("profile", profile.name, (profile, is_for_hosts), profile_renderer)
        for endpoint in state.endpoints:
            keep("endpoint", endpoint.interface, endpoint, partial(_render_endpoint, endpoint, settings))
        for host in state.host_endpoints:
            keep("host", host.interface, host, partial(_render_host, host, settings))
        if ("host", ALL_INTERFACES) not in kept:
            keep("host", ALL_INTERFACES, None, _render_unguarded_hosts)
        self._kept = kept
        return tuple(rendered for _, rendered in kept.values())

    def _dispatch_sets(self, state: PolicyState, parts: Iterable[_Rendered]) -> Iterator[NamedSet]:
        found: dict[str, list[Element]] = {}
        for part in parts:
            for name, element in part.elements:
                found.setdefault(name, []).append(element)
        for empty in _DISPATCH_SETS:
            elements, known = frozenset(found.get(empty.name, ())), self._dispatch.get(empty.name, empty)
            if known.elements != elements:
                known = evolve(empty, elements=elements)
            self._dispatch[empty.name] = known
            yield known
        hosts = [each.interface for each in state.host_endpoints if each.interface != ALL_INTERFACES]
        yield _interface_map("from-hep", {each: _interface_chain("fh", each) for each in hosts})
        yield _interface_map("to-hep", {each: _interface_chain("th", each) for each in hosts})

    def _member_sets(self, state: PolicyState, parts: Iterable[_Rendered]) -> tuple[NamedSet, ...]:
        """Those that a rule refers to: a set of one family may be without rules."""
        used = frozenset[str]().union(*(part.used for part in parts))
        kept: dict[str, tuple[MemberSet, NamedSet]] = {}
        for members in state.sets:
            for family in Family:
                name = _set_name(members.id, members.type, family)
                if name in used:
                    known = self._kept_sets.get(name)
                    is_known = known is not None and _is_same(known[0], members)
                    kept[name] = known if known is not None and is_known else (members, _member_set(members, family))
        self._kept_sets = kept
        return tuple(rendered for _, rendered in kept.values())


def _is_same(known: object, value: object) -> bool:
    """Whether two values are equal; most are the same object, which is found out faster."""
    return known is value or known == value


def _rejects(settings: PolicySettings) -> bool:
    return settings.deny_action is DenyAction.REJECT


# --- chains of policies and endpoints ---------------------------------------------------------------------------------


_ACCEPT: _Statements = (Verdict.ACCEPT,)
_DROP: _Statements = (Counter(), Verdict.DROP)
_TO_EGRESS_OK: _Statements = (Goto("egress-ok"),)


def _deny(settings: PolicySettings) -> _Statements:
    return (Counter(), Goto("deny")) if _rejects(settings) else _DROP


def _render_policy(
    policy: ActivePolicy, settings: PolicySettings, types: Callable[[SetId], SetType], *, is_for_hosts: bool
) -> _Rendered:
    """Its chains by direction. ``is_for_hosts``: and one for what a host sends, where the kernel cannot reject."""
    names = (f"{each}-{_policy_name(policy.id)}" for each in ("pi", "po", "ph"))
    return _render_rules(policy.ingress, policy.egress, tuple(names), (settings, types), is_for_hosts=is_for_hosts)


def _render_profile(
    profile: ActiveProfile, settings: PolicySettings, types: Callable[[SetId], SetType], *, is_for_hosts: bool
) -> _Rendered:
    names = (f"{each}-{_profile_name(profile.name)}" for each in ("ri", "ro", "rh"))
    return _render_rules(profile.ingress, profile.egress, tuple(names), (settings, types), is_for_hosts=is_for_hosts)


def _render_rules(
    ingress: Iterable[model.Rule],
    egress: Iterable[model.Rule],
    names: tuple[str, ...],
    context: tuple[PolicySettings, Callable[[SetId], SetType]],
    *,
    is_for_hosts: bool,
) -> _Rendered:
    settings, types = context
    deny = _deny(settings)
    chains: list[Chain] = []
    literals: dict[str, NamedSet] = {}
    sorts = ((ingress, _ACCEPT, deny), (egress, _TO_EGRESS_OK, deny), (egress, _ACCEPT, _DROP))
    for name, (rules, allow, denial) in zip(names, sorts if is_for_hosts else sorts[:2], strict=False):
        renderer = _RuleRenderer(settings, types, allow, denial)
        chains.append(Chain(name=name, rules=tuple(renderer.render(rules))))
        literals |= renderer.literals
    return _Rendered(tuple(chains), tuple(literals.values()))


def _render_endpoint(endpoint: LocalEndpoint, settings: PolicySettings) -> _Rendered:
    """What an interface sends, and what is sent to it. An endpoint always reaches itself."""
    name, interface = str(endpoint.id), endpoint.interface
    wrapped: list[Rule] = []
    if not settings.allows_vxlan:
        is_vxlan = (Match(_TRANSPORT, model.UDP), Match(_DESTINATION_PORT, settings.vxlan_port))
        wrapped.append(_rule((*is_vxlan, *_DROP), "wrapped packets"))
    if not settings.allows_ipip:
        wrapped.append(_rule((Match(_TRANSPORT, _IPIP_PROTOCOL), *_DROP), "wrapped packets"))
    to_itself, from_itself = Match(_OUT, interface), Match(_IN, interface)
    ways = (
        ("fw", (_rule((to_itself, Verdict.ACCEPT), f"{name} to itself"), *wrapped), Direction.EGRESS),
        ("tw", (_rule((from_itself, Verdict.ACCEPT), f"{name} to itself"),), Direction.INGRESS),
    )
    return _Rendered(
        tuple(
            Chain(
                name=_interface_chain(role, interface),
                rules=(*first, *_jumps(endpoint, direction), _rule(_deny(settings), f"{name}: nothing allows it")),
            )
            for role, first, direction in ways
        ),
        elements=tuple(_dispatch_elements(endpoint)),
    )


def _render_host(host: ActiveHostEndpoint, settings: PolicySettings) -> _Rendered:
    """What a host receives and sends by an interface, or by any."""
    is_any, interface = host.interface == ALL_INTERFACES, host.interface
    known = _known_connections(settings)
    ways = (
        ("hep-any-in" if is_any else _interface_chain("fh", interface), "failsafe-in", Direction.INGRESS),
        ("hep-any-out" if is_any else _interface_chain("th", interface), "failsafe-out", Direction.EGRESS),
    )
    return _Rendered(
        tuple(
            Chain(
                name=name,
                rules=(
                    *known,
                    _rule((Jump(failsafe),), "failsafe ports"),
                    *_jumps(host, direction, is_rejecting=_rejects(settings)),
                    _rule(
                        _DROP if direction is Direction.EGRESS else _deny(settings),
                        f"HostEndpoint {host.name}: nothing allows it",
                    ),
                ),
            )
            for name, failsafe, direction in ways
        )
    )


def _render_unguarded_hosts() -> _Rendered:
    return _Rendered(tuple(Chain(name=name, rules=()) for name in ("hep-any-in", "hep-any-out")))


def _jumps(
    endpoint: LocalEndpoint | ActiveHostEndpoint, direction: Direction, *, is_rejecting: bool = False
) -> Iterator[Rule]:
    """To the policies that apply in a direction, or else to the profiles."""
    is_ingress = direction is Direction.INGRESS
    policies = endpoint.ingress if is_ingress else endpoint.egress
    of_policy, of_profile = ("pi", "ri") if is_ingress else ("ph", "rh") if is_rejecting else ("po", "ro")
    for policy in policies:
        yield _rule((Jump(f"{of_policy}-{_policy_name(policy)}"),), str(policy))
    if not policies:
        for profile in endpoint.profiles:
            yield _rule((Jump(f"{of_profile}-{_profile_name(profile)}"),), f"Profile {profile}")


def _rule(statements: _Statements, comment: str) -> Rule:
    return Rule(statements, comment[:_MAX_NAME_OF_RULE])


# --- chains that every table has --------------------------------------------------------------------------------------


def _static_chains(settings: PolicySettings, overlay: Overlay) -> Iterator[Chain]:
    links = _links(settings)
    yield Chain(name="failsafe-in", rules=tuple(_failsafes(settings.inbound_failsafes, source_of)))
    yield Chain(name="failsafe-out", rules=tuple(_failsafes(settings.outbound_failsafes, destination_of)))
    if _rejects(settings):
        is_tcp = Match(_TRANSPORT, model.TCP)
        yield Chain(
            name="deny", rules=(_rule((is_tcp, Reject.TCP_RESET), "tcp"), _rule((Reject.PROHIBITED,), "others"))
        )
    yield Chain(name="to-host", rules=(_rule(_to_host(settings), "workloads to their node"),))
    yield Chain(name="to-pod", rules=tuple(_to_pod()))
    yield Chain(
        name="egress-ok",
        rules=(
            _rule((Match(Meta(MetaKey.OUTPUT_INDEX), 0), Goto("to-host")), "to this node"),
            *(_rule((Match(_OUT, each), Goto("to-pod")), "to a workload") for each in links),
            _rule(_ACCEPT, "to others"),
        ),
    )
    yield Chain(
        name="wl-to-host",
        rules=(
            *_known_connections(settings),
            _rule((_discovery(_WORKLOAD_DISCOVERY), Verdict.ACCEPT), "neighbour discovery"),
            _rule((JumpByMap(_IN, "from-wl"),), "by interface"),
            _rule(_DROP, "unknown interfaces"),
        ),
    )
    yield from _base_chains(settings, overlay)


def _base_chains(settings: PolicySettings, overlay: Overlay) -> Iterator[Chain]:
    links = _links(settings)
    not_from_links = tuple(Match(_IN, each, is_negated=True) for each in links)
    not_to_links = tuple(Match(_OUT, each, is_negated=True) for each in links)
    known, discovery = _known_connections(settings), _discovery(_DISCOVERY)
    yield Chain(
        name=SOURCE_GUARD,
        base=BaseChain(ChainType.FILTER, Hook.PREROUTING, _RAW),
        rules=(_rule((*not_from_links, Verdict.ACCEPT), "not from a workload"), *_source_rules()),
    )
    yield Chain(
        name="filter-forward",
        base=BaseChain(ChainType.FILTER, Hook.FORWARD, _AFTER_HOST_RULES),
        rules=(
            _rule((*not_from_links, *not_to_links, Verdict.ACCEPT), "no workload"),
            *known,
            _rule((JumpByMap(_IN, "from-wl"),), "by interface"),
            *(_rule((Match(_IN, each), *_DROP), "unknown interfaces") for each in links),
            _rule(_TO_EGRESS_OK, "from outside"),
        ),
    )
    yield Chain(
        name="filter-input",
        base=BaseChain(ChainType.FILTER, Hook.INPUT, _AFTER_HOST_RULES),
        rules=(
            *_overlay_rules(overlay),
            *(_rule((Match(_IN, each), Goto("wl-to-host")), "from a workload") for each in links),
            _rule((Match(_IN, "lo"), Verdict.ACCEPT), "of the node itself"),
            _rule((discovery, Verdict.ACCEPT), "neighbour discovery"),
            _rule((JumpByMap(_IN, "from-hep"),), "by interface"),
            _rule((Jump("hep-any-in"),), "other interfaces"),
        ),
    )
    yield Chain(
        name="filter-postrouting",
        base=BaseChain(ChainType.FILTER, Hook.POSTROUTING, _BEFORE_SOURCE_NAT),
        rules=(
            _rule((Match(Meta(MetaKey.INPUT_INDEX), 0, is_negated=True), Verdict.ACCEPT), "forwarded"),
            *(_rule((Match(_OUT, each), Verdict.ACCEPT), "to a workload") for each in links),
            _rule((Match(_OUT, "lo"), Verdict.ACCEPT), "of the node itself"),
            _rule((discovery, Verdict.ACCEPT), "neighbour discovery"),
            _rule((JumpByMap(_OUT, "to-hep"),), "by interface"),
            _rule((Jump("hep-any-out"),), "other interfaces"),
        ),
    )


def _links(settings: PolicySettings) -> tuple[str, ...]:
    """The names of workloads' interfaces, as prefixes."""
    return tuple(f"{prefix}*" for prefix in settings.interface_prefix.split(","))


def _known_connections(settings: PolicySettings) -> tuple[Rule, ...]:
    accepted = _rule((Match(TrackingState(), ("established", "related")), Verdict.ACCEPT), "known connections")
    if settings.is_invalid_evaluated:
        return (accepted,)
    return (accepted, _rule((Match(TrackingState(), ("invalid",)), *_DROP), "invalid"))


def _discovery(types: tuple[int, ...]) -> Match:
    return Match(Payload("icmpv6", "type"), types)


def _source_rules() -> Iterator[Rule]:
    for family, digit in _DIGITS.items():
        key = Concatenation((_IN, source_of(family)))
        for name in (f"src-v{digit}", f"srcnet-v{digit}"):
            yield _rule((Match(key, SetReference(name)), Verdict.ACCEPT), "own addresses")
    for prefix in (_LINK_LOCAL, _UNSPECIFIED):
        is_from = Match(source_of(Family.IPV6), prefix)
        yield _rule((_discovery(_WORKLOAD_DISCOVERY), is_from, Verdict.ACCEPT), "neighbour discovery")
    yield _rule(_DROP, "spoofed or unknown sources")


def _to_pod() -> Iterator[Rule]:
    for family, digit in _DIGITS.items():
        key = Concatenation((_OUT, destination_of(family)))
        for name in (f"src-v{digit}", f"srcnet-v{digit}"):
            yield _rule((Match(key, SetReference(name)), JumpByMap(_OUT, "to-wl")), "own addresses")
    yield _rule(_DROP, "unknown interfaces and addresses")


def _to_host(settings: PolicySettings) -> _Statements:
    return _deny(settings) if settings.endpoint_to_host is EndpointToHostAction.DROP else _ACCEPT


def _failsafes(failsafes: Iterable[Failsafe], address_of: Callable[[Family], Payload]) -> Iterator[Rule]:
    for each in failsafes:
        ports: _Statements = (Match(_TRANSPORT, each.protocol), Match(_DESTINATION_PORT, each.port))
        if each.net is not None and each.net.length:
            ports = (Match(address_of(each.net.family), each.net), *ports)
        elif each.net is not None:
            ports = (Match(_FAMILY, _FAMILY_NAMES[each.net.family]), *ports)
        yield _rule((*ports, Verdict.ACCEPT), "failsafe port")


def _overlay_rules(overlay: Overlay) -> Iterator[Rule]:
    """Wrapped packets come from nodes alone."""
    wrapped: list[_Statements] = []
    if overlay.vxlan_port is not None:
        wrapped.append((Match(_TRANSPORT, model.UDP), Match(_DESTINATION_PORT, overlay.vxlan_port)))
    if overlay.has_ipip:
        wrapped.append((Match(_TRANSPORT, _IPIP_PROTOCOL),))
    for matches in wrapped:
        for family, digit in _DIGITS.items():
            for name in (f"nodes-v{digit}", f"external-v{digit}"):
                is_from = Match(source_of(family), SetReference(name))
                yield _rule((*matches, is_from, Verdict.ACCEPT), "wrapped packets of nodes")
        yield _rule((*matches, *_DROP), "wrapped packets of others")


def _overlay_sets(overlay: Overlay) -> Iterator[NamedSet]:
    if overlay.vxlan_port is None and not overlay.has_ipip:
        return
    for family, digit in _DIGITS.items():
        kind = ElementType.address_of(family)
        nodes = frozenset(Element((each,)) for each in overlay.nodes if each.family is family)
        yield NamedSet(name=f"nodes-v{digit}", types=(kind,), elements=nodes)
        external = _disjoint(each for each in overlay.external if each.family is family)
        yield _interval_set(f"external-v{digit}", kind, external)
