"""Stored policies and profiles, of netplug and of Kubernetes, as rules that name selectors by their sets.

``resolve`` and ``index`` ask for the definition of each policy. Nothing here looks at endpoints. What cannot be
converted is left out so that less is allowed, never more, and is named as a problem.

Source: Kubernetes, "Network Policies" and the API networking.k8s.io/v1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final, TypeAlias

from attrs import define, evolve, field, frozen

from netplug_core.addressing import Family, Prefix, disjoint_prefixes
from netplug_core.decoding.tables import collect_unknown
from netplug_core.names import KUBERNETES_ORCHESTRATOR, RESOURCE_DOMAIN
from netplug_core.orchestrator.networkpolicy import (
    IPBlock,
    KubernetesNetworkPolicy,
    LabelOperator,
    LabelRequirement,
    LabelSelector,
    PeerEntry,
    PortEntry,
    RuleEntry,
)
from netplug_core.policy.model import (
    ICMP,
    ICMP_V6,
    PORT_PROTOCOLS,
    Action,
    ActivePolicy,
    ActiveProfile,
    ICMPMatch,
    Match,
    PeerMatch,
    PolicyId,
    PolicyKind,
    PolicyProblem,
    Rule,
    SetId,
    set_id,
)
from netplug_core.resources.fields import PortRange
from netplug_core.resources.networkpolicy import (
    DEFAULT_TIER,
    Direction,
    GlobalNetworkPolicy,
    GlobalNetworkPolicySpec,
    NetworkPolicy,
    NetworkPolicySpec,
)
from netplug_core.resources.policyrule import (
    PROTOCOLS_WITH_PORTS,
    EntityRule,
    PolicyRule,
    PortMatch,
    PortName,
    Protocol,
    RuleAction,
)
from netplug_core.resources.policyrule import ICMPMatch as ICMPCondition
from netplug_core.resources.profile import NAMESPACE_LABEL_PREFIX, SERVICE_ACCOUNT_LABEL_PREFIX, Profile
from netplug_core.selectors import (
    And,
    ComparisonOperator,
    Everything,
    HasLabel,
    LabelComparison,
    Not,
    Selector,
    SetMembership,
    SetOperator,
    canonical_text,
    leaf_terms,
    parse,
    prefix_labels,
)

__all__ = [
    "NAMESPACE_LABEL", "NamedPortSet", "PolicyDefinition", "ProfileDefinition", "SelectorSet", "SetDefinition",
    "copied_spec", "define_missing_profile", "define_policy", "define_profile", "define_unreadable_policy",
]  # fmt: skip

NAMESPACE_LABEL: Final = f"{RESOURCE_DOMAIN}/namespace"
"""The label with the namespace of an endpoint; host endpoints and what is global have none."""

_ORCHESTRATOR_LABEL: Final = f"{RESOURCE_DOMAIN}/orchestrator"
_ACCOUNT_LABEL: Final = f"{RESOURCE_DOMAIN}/serviceaccount"
_KUBERNETES_ORDER: Final = 1000.0


# --- definitions ------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class SelectorSet:
    """The addresses of all endpoints and network sets that a selector selects.

    ``id`` is that of the set of addresses. While the selector selects a network set too, the rules use a set of
    prefixes instead, ``networks_id``.
    """

    id: SetId
    networks_id: SetId
    selector: Selector


@frozen(kw_only=True)
class NamedPortSet:
    """The ports with a name and a protocol, at the addresses of the endpoints that have them.

    ``selector`` None: the endpoints of this node. It is for the end of a packet that belongs to the endpoint of which
    the policy is, so it needs no other ones.
    """

    id: SetId
    selector: Selector | None
    protocol: int
    name: str


Rank: TypeAlias = tuple[bool, float, str, str, str]
SetDefinition: TypeAlias = SelectorSet | NamedPortSet


@frozen(kw_only=True)
class PolicyDefinition:
    """A policy: the endpoints that it is for, and its rules. ``sets`` defines every set that the rules name.

    Policies are tried in the order of ``rank``. One that is not enforced, because the endpoints that it is for cannot
    be known or because it is for another hook, has no ``directions``.
    """

    rank: Rank
    selector: Selector
    directions: frozenset[Direction]
    policy: ActivePolicy
    sets: tuple[SetDefinition, ...]
    problems: tuple[PolicyProblem, ...] = ()


@frozen(kw_only=True)
class ProfileDefinition:
    """A profile: its rules, and the definition of every set that they name."""

    profile: ActiveProfile
    sets: tuple[SetDefinition, ...] = ()
    problems: tuple[PolicyProblem, ...] = ()


def define_policy(policy: NetworkPolicy | GlobalNetworkPolicy | KubernetesNetworkPolicy) -> PolicyDefinition:
    """The definition of a policy."""
    return _define_kubernetes(policy) if isinstance(policy, KubernetesNetworkPolicy) else _define_own(policy)


def define_unreadable_policy(identity: PolicyId) -> PolicyDefinition:
    """What stands for a policy that is stored and cannot be read: it closes the endpoints that it may be for.

    What it denies is not known, so it comes before all others and lets nothing pass. Policies of Kubernetes have no
    rules that deny: such a one lets nothing pass by itself, and other policies still do.
    """
    problem = PolicyProblem(str(identity), "cannot be read: the endpoints that it may be for are closed")
    is_kubernetes = identity.kind is PolicyKind.KUBERNETES_NETWORK_POLICY
    rules = () if is_kubernetes else _closing_rules(identity)
    return PolicyDefinition(
        rank=_rank(identity, _KUBERNETES_ORDER if is_kubernetes else -math.inf),
        selector=_equals(NAMESPACE_LABEL, identity.namespace) if identity.namespace else Everything.ALL,
        directions=frozenset(Direction),
        policy=ActivePolicy(id=identity, ingress=rules, egress=rules),
        sets=(),
        problems=(problem,),
    )


def _closing_rules(identity: PolicyId) -> tuple[Rule, ...]:
    return (Rule(name=f"{identity} #0", action=Action.DENY, matches=(Match(),)),)


def define_profile(profile: Profile) -> ProfileDefinition:
    """The definition of a profile that exists."""
    scope = _Scope(f"Profile {profile.metadata.name}")
    ingress, egress = (scope.own_rules(profile.spec.rules(direction), direction) for direction in Direction)
    for path in collect_unknown(profile.spec):
        scope.report(f"spec.{path}", _NOT_SUPPORTED)
    return ProfileDefinition(
        profile=ActiveProfile(name=profile.metadata.name, ingress=ingress, egress=egress),
        sets=scope.sets_of(*ingress, *egress),
        problems=tuple(scope.problems),
    )


def define_missing_profile(name: str) -> ProfileDefinition:
    """What stands for a profile that an endpoint names and that does not exist: it denies everything."""
    subject = f"Profile {name}"
    rules = (Rule(name=f"{subject} #0", action=Action.DENY, matches=(Match(),)),)
    return ProfileDefinition(
        profile=ActiveProfile(name=name, ingress=rules, egress=rules, is_missing=True),
        problems=(PolicyProblem(subject, "does not exist: endpoints that name it are closed"),),
    )


def copied_spec(policy: KubernetesNetworkPolicy) -> tuple[NetworkPolicySpec | None, tuple[PolicyProblem, ...]]:
    """A policy of Kubernetes as one of netplug, for datastores that do not show it; and what was left out of it.

    Both have the same definition, but for names. None: the policy counts for nothing, because its pods cannot be known.
    """
    identity = PolicyId(PolicyKind.KUBERNETES_NETWORK_POLICY, policy.namespace, policy.name)
    scope, spec = _Scope(str(identity), policy.namespace), policy.spec
    for path in spec.not_supported:
        scope.report(f"spec.{path}", _NOT_SUPPORTED)
    pods = _pods_text(spec.pods)
    if pods is None:
        scope.report("spec.podSelector", _NO_LABEL)
    if pods is None or not spec.is_enforced:
        return None, tuple(scope.problems)
    ingress, egress = (
        tuple(
            rule
            for position, entry in enumerate(spec.rules(direction) if direction in spec.directions else ())
            for rule in scope.copied_rules(f"spec.{direction.member}[{position}]", entry, direction)
        )
        for direction in Direction
    )
    copied = NetworkPolicySpec(
        order=_KUBERNETES_ORDER, selector=pods, types=spec.directions, ingress=ingress, egress=egress
    )
    return copied, tuple(scope.problems)


_NO_LABEL: Final = "has a requirement that no label can meet as it is written"
_NOT_SUPPORTED: Final = "is not supported or cannot be read"


def _rank(
    identity: PolicyId, order: float | None, *, is_of_known_tier: bool = True
) -> tuple[bool, float, str, str, str]:
    """Policies of another tier come last; within a tier those without an order, then by their names."""
    number = math.inf if order is None else order
    return not is_of_known_tier, number, identity.name, identity.namespace, identity.kind.value


def _define_own(policy: NetworkPolicy | GlobalNetworkPolicy) -> PolicyDefinition:
    """Its definition. One that is undecided comes before all others, and closes all that it may be for."""
    spec, metadata = policy.spec, policy.metadata
    is_global = isinstance(policy, GlobalNetworkPolicy)
    kind = PolicyKind.GLOBAL_NETWORK_POLICY if is_global else PolicyKind.NETWORK_POLICY
    identity = PolicyId(kind, "" if is_global else metadata.namespace, metadata.name)
    scope = _Scope(str(identity), identity.namespace)
    directions = frozenset(spec.directions if spec.is_enforced else ())
    closing = _closing_rules(identity) if spec.is_undecided else ()
    ingress, egress = (
        closing or scope.own_rules(spec.rules(direction), direction) if direction in directions else ()
        for direction in Direction
    )
    for path in spec.not_supported:
        scope.report(f"spec.{path}", _NOT_SUPPORTED)
    selectors = [
        _endpoint_selector(spec.selector),
        _namespaces(spec.namespace_selector) if isinstance(spec, GlobalNetworkPolicySpec) else None,
        None if is_global else _equals(NAMESPACE_LABEL, identity.namespace),
        _accounts(spec.service_account_selector),
    ]
    return PolicyDefinition(
        rank=_rank(
            identity,
            -math.inf if spec.is_undecided else spec.order,
            is_of_known_tier=spec.is_undecided or spec.tier == DEFAULT_TIER,
        ),
        selector=_all_of(selectors) or Everything.ALL,
        directions=directions,
        policy=ActivePolicy(id=identity, ingress=ingress, egress=egress),
        sets=scope.sets_of(*ingress, *egress),
        problems=tuple(scope.problems),
    )


def _define_kubernetes(policy: KubernetesNetworkPolicy) -> PolicyDefinition:
    identity = PolicyId(PolicyKind.KUBERNETES_NETWORK_POLICY, policy.namespace, policy.name)
    scope, spec = _Scope(str(identity), policy.namespace), policy.spec
    for path in spec.not_supported:
        scope.report(f"spec.{path}", _NOT_SUPPORTED)
    pods = scope.pods(spec.pods)
    if pods is None:
        scope.report("spec.podSelector", _NO_LABEL)
    directions = frozenset(spec.directions if spec.is_enforced and pods is not None else ())
    ingress, egress = (
        tuple(
            Rule(name=scope.rule_name(position), action=Action.ALLOW, matches=matches)
            for position, entry in enumerate(spec.rules(direction) if direction in directions else ())
            if (matches := tuple(scope.kubernetes_matches(f"spec.{direction.member}[{position}]", entry, direction)))
        )
        for direction in Direction
    )
    return PolicyDefinition(
        rank=_rank(identity, _KUBERNETES_ORDER),
        selector=pods or Everything.ALL,
        directions=directions,
        policy=ActivePolicy(id=identity, ingress=ingress, egress=egress),
        sets=scope.sets_of(*ingress, *egress),
        problems=tuple(scope.problems),
    )


# --- selectors --------------------------------------------------------------------------------------------------------


def _equals(label: str, text: str) -> Selector:
    return LabelComparison(label=label, operator=ComparisonOperator.EQUALS, literal=text)


def _all_of(selectors: Iterable[Selector | None]) -> Selector | None:
    """The selector of what all of these select; None if there are none. What selects everything is left out."""
    terms: dict[Selector, None] = {}
    for selector in selectors:
        if selector is not None:
            terms.update(dict.fromkeys(selector.terms if isinstance(selector, And) else (selector,)))
    if len(terms) > 1:
        terms.pop(Everything.ALL, None)
    return And(tuple(terms)) if len(terms) > 1 else next(iter(terms), None)


def _endpoint_selector(text: str) -> Selector | None:
    """The selector of endpoints that a text is; None for none. ``global()`` selects what is in no namespace."""
    if not text.strip():
        return None
    selector = parse(text)
    is_global = Everything.GLOBAL in leaf_terms(selector)
    return And((selector, Not(HasLabel(NAMESPACE_LABEL)))) if is_global else selector


def _namespaces(text: str) -> Selector | None:
    """The selector of what is in namespaces that a selector of namespaces selects; None for none."""
    if not text.strip():
        return None
    selector = parse(text)
    if Everything.GLOBAL in leaf_terms(selector):
        return Not(HasLabel(NAMESPACE_LABEL))
    return _all_of((HasLabel(NAMESPACE_LABEL), prefix_labels(selector, NAMESPACE_LABEL_PREFIX)))


def _accounts(text: str) -> Selector | None:
    """The selector of the pods whose service account a selector selects; None for none."""
    if not text.strip():
        return None
    return _all_of((HasLabel(NAMESPACE_LABEL), prefix_labels(parse(text), SERVICE_ACCOUNT_LABEL_PREFIX)))


def _label_selector(selector: LabelSelector) -> Selector | None:
    """A selector of Kubernetes; None if some of it cannot be said."""
    terms: list[Selector] = [_equals(label, text) for label, text in selector.labels]
    for requirement in selector.requirements:
        term = _requirement(requirement)
        if term is None:
            return None
        terms.append(term)
    return _all_of(terms) or Everything.ALL


def _pods_text(selector: LabelSelector) -> str | None:
    """A selector of Kubernetes as the text of one that selects pods alone; None if some of it cannot be said."""
    pods = _label_selector(selector)
    chosen = None if pods is None else _all_of((_equals(_ORCHESTRATOR_LABEL, KUBERNETES_ORCHESTRATOR), pods))
    return None if chosen is None else canonical_text(chosen)


def _requirement(requirement: LabelRequirement) -> Selector | None:
    label, texts = requirement.key, frozenset(requirement.values)
    match requirement.operator:
        case LabelOperator.EXISTS | LabelOperator.DOES_NOT_EXIST if texts:
            return None
        case LabelOperator.EXISTS:
            return HasLabel(label)
        case LabelOperator.DOES_NOT_EXIST:
            return Not(HasLabel(label))
        case LabelOperator.IN | LabelOperator.NOT_IN if not texts:
            return None
        case LabelOperator.IN:
            return SetMembership(label=label, operator=SetOperator.IN, literals=texts)
        case _:
            return SetMembership(label=label, operator=SetOperator.NOT_IN, literals=texts)


# --- rules ------------------------------------------------------------------------------------------------------------


_ICMP_FAMILIES: Final = {ICMP: Family.IPV4, ICMP_V6: Family.IPV6}


@frozen
class _Ports:
    """What is asked of a port: one of some numbers or names, and none of some others."""

    ranges: tuple[PortRange, ...] = ()
    names: tuple[str, ...] = ()
    not_ranges: tuple[PortRange, ...] = ()
    not_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, ports: Iterable[PortMatch], not_ports: Iterable[PortMatch] = ()) -> _Ports:
        return cls(*_split_ports(ports), *_split_ports(not_ports))


@frozen
class _End:
    """One end of a packet, as a rule has it: what it selects, its prefixes and its ports.

    ``named``: whose named ports count; None: those of this node's endpoints.
    """

    address: PeerMatch
    nets: tuple[Prefix, ...]
    not_nets: tuple[Prefix, ...]
    ports: _Ports
    named: Selector | None


@define
class _Scope:
    """The policy or profile that is converted: the sets that its rules use, and what was left out of it."""

    subject: str
    namespace: str = ""
    sets: dict[SetId, SetDefinition] = field(factory=dict, init=False)
    problems: list[PolicyProblem] = field(factory=list, init=False)

    def report(self, place: str, text: str) -> None:
        self.problems.append(PolicyProblem(self.subject, f"{place} {text}"))

    def sets_of(self, *rules: Rule) -> tuple[SetDefinition, ...]:
        """The definitions of the sets that some of the rules name; those of rules that were left out are not needed."""
        used = {identity for rule in rules for identity in rule.set_ids}
        return tuple(each for each in self.sets.values() if each.id in used)

    def rule_name(self, position: int) -> str:
        return f"{self.subject} #{position}"

    def set_of(self, selector: Selector) -> SetId:
        text = canonical_text(selector)
        found = SelectorSet(id=set_id(text), networks_id=set_id(f"{text}|networks"), selector=selector)
        self.sets[found.id] = found
        return found.id

    def port_set(self, selector: Selector | None, protocol: int, name: str) -> SetId:
        whose = "local" if selector is None else canonical_text(selector)
        found = NamedPortSet(id=set_id(f"{whose}|{protocol}|{name}"), selector=selector, protocol=protocol, name=name)
        self.sets[found.id] = found
        return found.id

    # --- rules of netplug ---------------------------------------------------------------------------------------------

    def own_rules(self, rules: Iterable[tuple[int, PolicyRule]], direction: Direction) -> tuple[Rule, ...]:
        """Rules with their positions; those that hold for no packet are left out."""
        found = ((position, rule, tuple(self._own_matches(position, rule, direction))) for position, rule in rules)
        return tuple(
            Rule(name=self.rule_name(position), action=_ACTIONS[rule.action], matches=matches)
            for position, rule, matches in found
            if matches
        )

    def _own_matches(self, position: int, rule: PolicyRule, direction: Direction) -> Iterator[Match]:
        if contradiction := _find_contradiction(rule):
            self.report(f"spec.{direction.member}[{position}]", contradiction)
            if rule.action is not RuleAction.DENY:
                return
            rule = _without_contradictions(rule)
        protocol = None if rule.protocol is None else rule.protocol.number
        match = Match(
            protocol=protocol,
            not_protocol=None if rule.not_protocol is None else rule.not_protocol.number,
            icmp=_icmp(rule.icmp),
            not_icmp=_icmp(rule.not_icmp),
        )
        source = self._own_end(rule.source, is_own=direction is Direction.EGRESS)
        destination = self._own_end(rule.destination, is_own=direction is Direction.INGRESS)
        for family in _families(rule):
            yield from self._matches(evolve(match, family=family), source, destination, logs=rule.action is _LOG)

    def _own_end(self, entity: EntityRule, *, is_own: bool) -> _End:
        selector = self._selected(entity)
        excepted = _endpoint_selector(entity.not_selector)
        if selector is not None and excepted is not None:
            selector, excepted = _all_of((selector, Not(excepted))), None
        address = PeerMatch(
            sets=() if selector is None else (self.set_of(selector),),
            not_sets=() if excepted is None else (self.set_of(excepted),),
        )
        named = None if is_own else selector or Everything.ALL
        return _End(address, entity.nets, entity.not_nets, _Ports.of(entity.ports, entity.not_ports), named)

    def _selected(self, entity: EntityRule) -> Selector | None:
        """What the selectors of one end select together; None if there are none."""
        accounts = entity.service_accounts
        own: list[Selector | None] = [_endpoint_selector(entity.selector)]
        if accounts is not None:
            own.append(_accounts(accounts.selector or _ALL))
            if accounts.names:
                names = frozenset(accounts.names)
                own.append(SetMembership(label=_ACCOUNT_LABEL, operator=SetOperator.IN, literals=names))
        namespaces = _namespaces(entity.namespace_selector)
        if namespaces is None and self.namespace and any(each is not None for each in own):
            namespaces = _equals(NAMESPACE_LABEL, self.namespace)
        return _all_of((namespaces, *own))

    # --- rules of Kubernetes ------------------------------------------------------------------------------------------

    def pods(self, selector: LabelSelector, namespaces: LabelSelector | None = None) -> Selector | None:
        """The pods of the policy's namespace, or of the selected ones, that a selector selects; None if unreadable."""
        pods = _label_selector(selector)
        chosen = _equals(NAMESPACE_LABEL, self.namespace) if namespaces is None else _label_selector(namespaces)
        if pods is None or chosen is None:
            return None
        if namespaces is not None:
            chosen = _all_of((HasLabel(NAMESPACE_LABEL), prefix_labels(chosen, NAMESPACE_LABEL_PREFIX)))
        return _all_of((_equals(_ORCHESTRATOR_LABEL, KUBERNETES_ORCHESTRATOR), chosen, pods))

    def kubernetes_matches(self, place: str, entry: RuleEntry, direction: Direction) -> Iterator[Match]:
        """The packets that a rule of Kubernetes allows: from or to each peer, by each protocol."""
        if not entry.is_readable:
            return
        is_ingress = direction is Direction.INGRESS
        peers = entry.sources if is_ingress else entry.destinations
        ends = [self._peer_end(f"{place}.{'from' if is_ingress else 'to'}[{n}]", peer) for n, peer in enumerate(peers)]
        anybody = _End(PeerMatch(), (), (), _Ports(), Everything.ALL)
        for protocol, ports in self._ports_by_protocol(place, entry.ports):
            for end in [anybody] if not peers else [end for end in ends if end is not None]:
                own = _End(PeerMatch(), (), (), ports if is_ingress else _Ports(), None)
                peer = end if is_ingress else evolve(end, ports=ports)
                for family in _families_of(tuple(Family), (end.nets,)):
                    match = Match(protocol=protocol, family=family)
                    pair = (peer, own) if is_ingress else (own, peer)
                    yield from self._matches(match, *pair, logs=False)

    def copied_rules(self, place: str, entry: RuleEntry, direction: Direction) -> Iterator[PolicyRule]:
        """A rule of Kubernetes as rules of netplug: one for each peer and protocol."""
        if not entry.is_readable:
            return
        is_ingress = direction is Direction.INGRESS
        peers = entry.sources if is_ingress else entry.destinations
        member = "from" if is_ingress else "to"
        ends = [self._copied_peer(f"{place}.{member}[{n}]", peer) for n, peer in enumerate(peers)]
        for protocol, found in self._ports_by_protocol(place, entry.ports):
            ports: tuple[PortMatch, ...] = (*found.ranges, *map(PortName, found.names))
            for end in [EntityRule()] if not peers else [end for end in ends if end is not None]:
                yield PolicyRule(
                    action=RuleAction.ALLOW,
                    protocol=None if protocol is None else Protocol(protocol),
                    source=end if is_ingress else EntityRule(),
                    destination=EntityRule(ports=ports) if is_ingress else evolve(end, ports=ports),
                )

    def _copied_peer(self, place: str, peer: PeerEntry) -> EntityRule | None:
        """A peer; None if it cannot be read, so that it allows no traffic."""
        if not peer.is_readable:
            return None  # what cannot be read of it is named with the policy
        if peer.ip_block is not None:
            end = _block_end(peer.ip_block)
            return EntityRule(nets=end.nets, not_nets=end.not_nets)
        pods = _pods_text(peer.pod_selector or LabelSelector())
        namespaces = Everything.ALL if peer.namespace_selector is None else _label_selector(peer.namespace_selector)
        if pods is None or namespaces is None:
            self.report(place, _NO_LABEL)
            return None
        chosen = "" if peer.namespace_selector is None else canonical_text(namespaces)
        return EntityRule(selector=pods, namespace_selector=chosen)

    def _peer_end(self, place: str, peer: PeerEntry) -> _End | None:
        """A peer; None if it cannot be read, so that it allows no traffic."""
        if not peer.is_readable:
            return None  # what cannot be read of it is named with the policy
        if peer.ip_block is not None:
            return _block_end(peer.ip_block)
        pods = self.pods(peer.pod_selector or LabelSelector(), peer.namespace_selector)
        if pods is None:
            self.report(place, _NO_LABEL)
            return None
        return _End(PeerMatch(sets=(self.set_of(pods),)), (), (), _Ports(), pods)

    def _ports_by_protocol(self, place: str, entries: Sequence[PortEntry]) -> Iterator[tuple[int | None, _Ports]]:
        """The protocols of some entries with their ports, None for any; entries that cannot be read count for none."""
        if not entries:
            yield None, _Ports()
            return
        found: dict[int, list[PortEntry]] = {}
        for number, entry in enumerate(entries):
            if entry.is_readable:
                found.setdefault(PORT_PROTOCOLS[entry.protocol.value], []).append(entry)
            elif not collect_unknown(entry):
                self.report(f"{place}.ports[{number}]", "has an endPort below its port, or without a number for that")
        for protocol, same in sorted(found.items()):
            ports = [port for entry in same if (port := _entry_port(entry)) is not None]
            yield protocol, _Ports() if len(ports) < len(same) else _Ports.of(ports)

    # --- both ---------------------------------------------------------------------------------------------------------

    def _matches(self, match: Match, source: _End, destination: _End, *, logs: bool) -> Iterator[Match]:
        """One match for each of the ways in which ports can match, by numbers or by a name."""
        ends = [self._end_matches(match, end, is_exclusive=logs) for end in (source, destination)]
        yield from (evolve(match, source=first, destination=second) for first, second in product(*ends))

    def _end_matches(self, match: Match, end: _End, *, is_exclusive: bool) -> list[PeerMatch]:
        address = _with_prefixes(end, match.family)
        if address is None:
            return []
        ports, protocol = end.ports, match.protocol or 0
        sets = [self.port_set(end.named, protocol, name) for name in ports.names]
        not_sets = tuple(self.port_set(end.named, protocol, name) for name in ports.not_names)
        base = evolve(address, not_ports=ports.not_ranges, not_port_sets=not_sets)
        found = [evolve(base, ports=ports.ranges)] if ports.ranges or not sets else []
        for number, each in enumerate(sets):
            others = _merged_ranges((*ports.not_ranges, *ports.ranges)) if is_exclusive else ports.not_ranges
            before = (*not_sets, *sets[:number]) if is_exclusive else not_sets
            found.append(evolve(base, port_set=each, not_ports=others, not_port_sets=before))
        return found


_ALL: Final = Everything.ALL.value
_LOG: Final = RuleAction.LOG
_ACTIONS: Final[Mapping[RuleAction | None, Action]] = {
    RuleAction.ALLOW: Action.ALLOW,
    RuleAction.DENY: Action.DENY,
    RuleAction.LOG: Action.LOG,
}


def _find_contradiction(rule: PolicyRule) -> str:
    """What a rule asks of packets that have no such thing; an empty text if it does not."""
    ends = (rule.source, rule.destination)
    if rule.protocol not in PROTOCOLS_WITH_PORTS and any(end.ports or end.not_ports for end in ends):
        return "has ports, for which the protocol has to be TCP, UDP or SCTP"
    icmp = [each for each in (rule.icmp, rule.not_icmp) if each is not None]
    if icmp and (rule.protocol is None or rule.protocol.number not in _ICMP_FAMILIES):
        return "has an ICMP type, for which the protocol has to be ICMP or ICMPv6"
    if rule.not_icmp is not None and rule.not_icmp.type is None:
        return "has notICMP without a type, which leaves nothing of the protocol"
    return ""


def _without_contradictions(rule: PolicyRule) -> PolicyRule:
    """A rule that denies, without the conditions that no packet can meet, so that it denies more."""
    number = 0 if rule.protocol is None else rule.protocol.number
    has_ports = rule.protocol in PROTOCOLS_WITH_PORTS
    source, destination = (
        end if has_ports else evolve(end, ports=(), not_ports=()) for end in (rule.source, rule.destination)
    )
    icmp = rule.icmp if number in _ICMP_FAMILIES else None
    return evolve(rule, source=source, destination=destination, icmp=icmp, not_icmp=None)


def _icmp(condition: ICMPCondition | None) -> ICMPMatch | None:
    if condition is None or condition.type is None:
        return None
    return ICMPMatch(type=condition.type, code=condition.code)


def _families(rule: PolicyRule) -> tuple[Family | None, ...]:
    """The families of the packets that a rule can hold for; None for both, if nothing in it is of one family."""
    possible = {rule.family} if rule.family is not None else set(Family)
    if rule.protocol is not None and rule.protocol.number in _ICMP_FAMILIES:
        possible &= {_ICMP_FAMILIES[rule.protocol.number]}
    ends = (rule.source, rule.destination)
    return _families_of(possible, [prefixes for end in ends for prefixes in (end.nets, end.not_nets)])


def _families_of(possible: Collection[Family], lists: Iterable[Sequence[Prefix]]) -> tuple[Family | None, ...]:
    """Those of some families that every list of prefixes has some of, unless it is empty."""
    given = [{prefix.family for prefix in prefixes} for prefixes in lists if prefixes]
    if not given and len(possible) == len(Family):
        return (None,)
    return tuple(family for family in Family if family in possible and all(family in each for each in given))


def _block_end(block: IPBlock) -> _End:
    """A prefix without its exceptions; those of another family are none of its addresses."""
    nets = () if block.prefix is None else (block.prefix,)
    excepted = tuple(each for each in block.excepted if block.prefix is not None and each.family is block.prefix.family)
    return _End(PeerMatch(), nets, excepted, _Ports(), Everything.ALL)


def _with_prefixes(end: _End, family: Family | None) -> PeerMatch | None:
    """What an address of a family has to be; None if none can be it. Without a family, there are no prefixes."""
    if family is None:
        return end.address
    prefixes, excepted = (
        disjoint_prefixes(each for each in nets if each.family is family) for nets in (end.nets, end.not_nets)
    )
    everything = Prefix(family, 0, 0)
    if everything in excepted:
        return None
    return evolve(end.address, prefixes=() if prefixes == (everything,) else prefixes, not_prefixes=excepted)


def _entry_port(entry: PortEntry) -> PortMatch | None:
    if entry.end is None or not isinstance(entry.port, PortRange):
        return entry.port
    return PortRange(entry.port.first, entry.end)


def _split_ports(ports: Iterable[PortMatch]) -> tuple[tuple[PortRange, ...], tuple[str, ...]]:
    """The numbers, as ranges without overlap, and the names."""
    given = tuple(ports)
    names = {port.name for port in given if isinstance(port, PortName)}
    return _merged_ranges(port for port in given if isinstance(port, PortRange)), tuple(sorted(names))


def _merged_ranges(ranges: Iterable[PortRange]) -> tuple[PortRange, ...]:
    found: list[PortRange] = []
    for each in sorted(ranges, key=lambda one: (one.first, one.last)):
        if found and each.first <= found[-1].last + 1:
            found[-1] = PortRange(found[-1].first, max(found[-1].last, each.last))
        else:
            found.append(each)
    return tuple(found)
