"""What a node enforces, from all objects of the cluster at once.

:func:`resolve` is the meaning of the calculation. It is naive: every policy is compared with every endpoint of the
node, and every set with every endpoint of the cluster. ``index`` does the same from changes, with the rules that stand
here; a property test holds that both give the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from attrs import evolve, frozen

from netplug_core.addressing import Address, Prefix, disjoint_prefixes
from netplug_core.keys import Key
from netplug_core.orchestrator.networkpolicy import KUBERNETES_NETWORK_POLICY, KubernetesNetworkPolicy
from netplug_core.policy.convert import (
    PolicyDefinition,
    ProfileDefinition,
    define_missing_profile,
    define_policy,
    define_profile,
    define_unreadable_policy,
)
from netplug_core.policy.labelindex import effective_labels
from netplug_core.policy.model import (
    ALL_INTERFACES,
    PORT_PROTOCOLS,
    ActiveHostEndpoint,
    ActivePolicy,
    ActiveProfile,
    Direction,
    EndpointId,
    Failsafe,
    LocalEndpoint,
    Match,
    PeerMatch,
    PolicyId,
    PolicyKind,
    PolicyProblem,
    PolicySettings,
    PolicyState,
    Rule,
    SetId,
)
from netplug_core.policy.sets import (
    Peer,
    PeerId,
    PeerObject,
    members_of,
    network_set_problems,
    peer_id,
    peer_of,
    shared_address_problems,
)
from netplug_core.resources.fields import Labels
from netplug_core.resources.hostendpoint import HostEndpoint
from netplug_core.resources.networkpolicy import (
    GLOBAL_NETWORK_POLICY,
    NETWORK_POLICY,
    GlobalNetworkPolicy,
    NetworkPolicy,
    SetOfNetworks,
)
from netplug_core.resources.nodeconfiguration import (
    NODE_CONFIGURATION,
    EndpointToHostAction,
    FailsafePort,
    NodeConfiguration,
    SourceSpoofing,
    configuration_names,
    effective_settings,
)
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE, PROFILE, Profile
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint
from netplug_core.selectors import Selector, matches

__all__ = [
    "Interfaces",
    "LocalObject",
    "PolicyObject",
    "PolicySnapshot",
    "StoredPolicy",
    "choose_host_endpoints",
    "choose_workload",
    "host_value",
    "is_interface_name",
    "local_problems",
    "policy_id_of",
    "resolve",
    "settings_of",
    "unreadable_problems",
    "used_policy",
    "used_profile",
    "workload_value",
]  # fmt: skip

StoredPolicy: TypeAlias = NetworkPolicy | GlobalNetworkPolicy | KubernetesNetworkPolicy
"""A policy of any kind."""

LocalObject: TypeAlias = WorkloadEndpoint | HostEndpoint
"""What policies are for."""

PolicyObject: TypeAlias = PeerObject | StoredPolicy | Profile | NodeConfiguration
"""Everything that is stored and that the calculation depends on."""

Interfaces: TypeAlias = tuple[tuple[str, tuple[Address, ...]], ...]
"""Interfaces of the node that are not those of workloads, with their addresses."""


@frozen(kw_only=True)
class PolicySnapshot:
    """All objects, in any order, and what only the node itself knows.

    ``unreadable`` are the keys of objects that are stored and cannot be read. ``attached``: the interfaces of workloads
    with the container that each was attached for last, as far as the process attached it.
    """

    node: str
    objects: tuple[PolicyObject, ...] = ()
    unreadable: tuple[Key[object], ...] = ()
    attached: tuple[tuple[str, str], ...] = ()
    interfaces: Interfaces = ()


def resolve(snapshot: PolicySnapshot) -> PolicyState:
    """What the node enforces."""
    cluster = _Cluster.of(snapshot)
    endpoints = [
        workload_value(endpoint, cluster.applying_to(endpoint), cluster.settings)
        for endpoint in cluster.chosen_workloads(dict(snapshot.attached))
    ]
    hosts = [
        host_value(endpoint, interface, cluster.applying_to(endpoint))
        for interface, endpoint in choose_host_endpoints(cluster.local_hosts, snapshot.interfaces)
    ]
    enforced: tuple[LocalEndpoint | ActiveHostEndpoint, ...] = (*endpoints, *hosts)
    used = {policy for each in enforced for policy in (*each.ingress, *each.egress)}
    policies = [each for each in cluster.policies if each.policy.id in used]
    profiles = [cluster.profile(name) for name in {name for each in enforced for name in each.profiles}]
    users: tuple[PolicyDefinition | ProfileDefinition, ...] = (*policies, *profiles)
    definitions = {each.id: each for user in users for each in user.sets}
    sets = {each.id: members_of(each, cluster.peers.values(), cluster.selects) for each in definitions.values()}
    names = {identity: found.id for identity, found in sets.items()}
    problems = [problem for each in (*users, *cluster.not_enforced) for problem in each.problems]
    networks = (each for each in snapshot.objects if isinstance(each, SetOfNetworks))
    problems += [problem for each in networks for problem in network_set_problems(each)]
    local: tuple[LocalObject, ...] = (*cluster.local_workloads, *cluster.local_hosts)
    problems += [problem for each in local for problem in local_problems(each, cluster.settings)]
    problems += [problem for each in snapshot.unreadable for problem in unreadable_problems(each)]
    return PolicyState(
        settings=cluster.settings,
        policies=tuple(sorted((used_policy(each, names) for each in policies), key=lambda each: each.id)),
        profiles=tuple(sorted((used_profile(each, names) for each in profiles), key=lambda each: each.name)),
        sets=tuple(sorted(sets.values(), key=lambda each: each.id)),
        endpoints=tuple(sorted(endpoints, key=lambda each: each.id)),
        host_endpoints=tuple(sorted(hosts, key=lambda each: each.name)),
        problems=tuple(sorted({*problems, *shared_address_problems(cluster.holders())})),
    )


@frozen(kw_only=True)
class _Cluster:
    """The objects of a snapshot by what they are."""

    settings: PolicySettings
    policies: tuple[PolicyDefinition, ...]  # those that are enforced, in the order in which they are tried
    not_enforced: tuple[PolicyDefinition, ...]
    profiles: Mapping[str, Profile]
    peers: Mapping[PeerId, Peer]
    local_workloads: tuple[WorkloadEndpoint, ...]
    local_hosts: tuple[HostEndpoint, ...]

    @classmethod
    def of(cls, snapshot: PolicySnapshot) -> _Cluster:
        objects = snapshot.objects
        policies = [define_policy(each) for each in objects if isinstance(each, StoredPolicy)]
        policies += [define_unreadable_policy(each) for each in map(policy_id_of, snapshot.unreadable) if each]
        profiles = (*(each for each in objects if isinstance(each, Profile)), DEFAULT_ALLOW_PROFILE.value)
        workloads = (each for each in objects if isinstance(each, WorkloadEndpoint))
        hosts = (each for each in objects if isinstance(each, HostEndpoint))
        return cls(
            settings=settings_of(
                (each for each in objects if isinstance(each, NodeConfiguration)),
                snapshot.node,
                unreadable=[each.name for each in snapshot.unreadable if each.kind == NODE_CONFIGURATION],
            ),
            policies=tuple(sorted((each for each in policies if each.directions), key=lambda each: each.rank)),
            not_enforced=tuple(each for each in policies if not each.directions),
            profiles={each.metadata.name: each for each in profiles},
            peers={peer_id(each): peer_of(each, snapshot.node) for each in objects if isinstance(each, PeerObject)},
            local_workloads=tuple(each for each in workloads if each.spec.node == snapshot.node),
            local_hosts=tuple(each for each in hosts if each.spec.node == snapshot.node),
        )

    def selects(self, selector: Selector, peer: Peer) -> bool:
        return matches(selector, self._labels(peer.labels, peer.profiles))

    def applying_to(self, endpoint: LocalObject) -> list[PolicyDefinition]:
        labels = self._labels(endpoint.metadata.labels, endpoint.spec.profiles)
        return [each for each in self.policies if matches(each.selector, labels)]

    def chosen_workloads(self, attached: Mapping[str, str]) -> Iterator[WorkloadEndpoint]:
        by_interface: dict[str, list[WorkloadEndpoint]] = {}
        for each in self.local_workloads:
            by_interface.setdefault(each.spec.interface_name, []).append(each)
        usable = ((interface, each) for interface, each in by_interface.items() if is_interface_name(interface))
        chosen = (choose_workload(each, attached.get(interface)) for interface, each in usable)
        return (each for each in chosen if each is not None)

    def profile(self, name: str) -> ProfileDefinition:
        return define_profile(self.profiles[name]) if name in self.profiles else define_missing_profile(name)

    def holders(self) -> Iterator[tuple[Address, list[PeerId]]]:
        found: dict[Address, list[PeerId]] = {}
        for identity, peer in self.peers.items():
            for address in set(peer.addresses):
                found.setdefault(address, []).append(identity)
        return iter(found.items())

    def _labels(self, labels: Labels, profiles: Iterable[str]) -> dict[str, str]:
        applied = {name: dict(each.spec.labels_to_apply) for name, each in self.profiles.items()}
        return effective_labels(labels, profiles, applied)


# --- what cannot be read ----------------------------------------------------------------------------------------------

_POLICY_KINDS: Final = {
    NETWORK_POLICY.name: PolicyKind.NETWORK_POLICY,
    GLOBAL_NETWORK_POLICY.name: PolicyKind.GLOBAL_NETWORK_POLICY,
    KUBERNETES_NETWORK_POLICY.name: PolicyKind.KUBERNETES_NETWORK_POLICY,
}
_UNREADABLE_TEXTS: Final = {
    PROFILE.name: "cannot be read: endpoints that name it are closed",
    NODE_CONFIGURATION.name: "cannot be read: what it may close is closed",
    WORKLOAD_ENDPOINT.name: "cannot be read: it is not programmed",
}


def policy_id_of(key: Key[object]) -> PolicyId | None:
    """Which policy is stored under a key; None for an object of another kind."""
    kind = _POLICY_KINDS.get(key.kind.name)
    return None if kind is None else PolicyId(kind, "".join(key.path[:-1]), key.path[-1])


def unreadable_problems(key: Key[object]) -> Iterator[PolicyProblem]:
    """What is said of an object that cannot be read; of policies, their definitions say it."""
    if key.kind.name not in _POLICY_KINDS:
        text = _UNREADABLE_TEXTS.get(key.kind.name, "cannot be read: it does not count")
        yield PolicyProblem(f"{key.kind} {'/'.join(key.path)}", text)


# --- settings ---------------------------------------------------------------------------------------------------------


_DEFAULTS: Final = PolicySettings()


def settings_of(
    configurations: Iterable[NodeConfiguration],
    node: str,
    usual: PolicySettings = _DEFAULTS,
    *,
    unreadable: Collection[str] = (),
) -> PolicySettings:
    """The settings of a node; what no configuration says is as in ``usual``.

    ``unreadable`` are the names of configurations that cannot be read. What they may close is closed, but for the ports
    that let a node be repaired.
    """
    spec = effective_settings(configurations, node)
    own, default = configuration_names(node)
    if own in unreadable:
        spec = evolve(
            spec,
            endpoint_to_host_action=EndpointToHostAction.DROP,
            is_invalid_evaluated=None,
            allows_vxlan=None,
            allows_ipip=None,
            source_spoofing=None,
        )
    elif default in unreadable:
        spec = evolve(spec, endpoint_to_host_action=spec.endpoint_to_host_action or EndpointToHostAction.DROP)
    return PolicySettings(
        interface_prefix=spec.interface_prefix or usual.interface_prefix,
        endpoint_to_host=spec.endpoint_to_host_action or usual.endpoint_to_host,
        inbound_failsafes=_failsafes(spec.failsafe_inbound, usual.inbound_failsafes),
        outbound_failsafes=_failsafes(spec.failsafe_outbound, usual.outbound_failsafes),
        deny_action=spec.deny_action or usual.deny_action,
        is_invalid_evaluated=bool(spec.is_invalid_evaluated),
        vxlan_port=spec.vxlan_port or usual.vxlan_port,
        allows_vxlan=bool(spec.allows_vxlan),
        allows_ipip=bool(spec.allows_ipip),
        allows_source_prefixes=spec.source_spoofing is SourceSpoofing.ANY,
        log_prefix=spec.log_prefix or usual.log_prefix,
        log_rate=spec.log_rate_limit,
        log_burst=spec.log_burst or usual.log_burst,
    )


def _failsafes(ports: tuple[FailsafePort, ...] | None, usual: tuple[Failsafe, ...]) -> tuple[Failsafe, ...]:
    if ports is None:
        return usual
    return tuple(Failsafe(protocol=PORT_PROTOCOLS[each.protocol.value], port=each.port, net=each.net) for each in ports)


# --- endpoints --------------------------------------------------------------------------------------------------------


_INTERFACE_NAME: Final = re.compile(r"[!#-)+-.0-9;-?A-\[\]-~]{1,15}")
"""Source: the kernel's ``dev_valid_name``; and without what the packet filter takes for a pattern, a set or a quote."""

_NO_INTERFACE: Final = "no interface has the name {!r}: it is not programmed"


def is_interface_name(text: str) -> bool:
    """Whether an interface may have this name. The packet filter refuses the whole table for one that is none."""
    return _INTERFACE_NAME.fullmatch(text) is not None


def choose_workload(endpoints: Iterable[WorkloadEndpoint], container_id: str | None) -> WorkloadEndpoint | None:
    """Which of the endpoints with one interface counts: that of the container attached last, else the lowest name.

    One that says another container is that of before: who came after it, under the same name, may have other labels.
    """
    candidates = (each for each in endpoints if container_id is None or each.spec.container_id in ("", container_id))
    return min(
        candidates,
        key=lambda each: (each.spec.container_id != container_id, each.metadata.namespace, each.metadata.name),
        default=None,
    )


def choose_host_endpoints(
    endpoints: Iterable[HostEndpoint], interfaces: Interfaces
) -> Iterator[tuple[str, HostEndpoint]]:
    """Which host endpoint of the node governs each interface, or ``*``: of several, the one with the lowest name."""
    found: dict[str, HostEndpoint] = {}
    for endpoint in sorted(endpoints, key=lambda each: each.metadata.name):
        interface = endpoint.spec.interface_name or _find_interface(endpoint, interfaces)
        if interface == ALL_INTERFACES or is_interface_name(interface):
            found.setdefault(interface, endpoint)
    return iter(found.items())


def _find_interface(endpoint: HostEndpoint, interfaces: Interfaces) -> str:
    """The interface that has one of the expected addresses; an empty text if none has."""
    expected = frozenset(endpoint.spec.expected_ips)
    return min((name for name, addresses in interfaces if not expected.isdisjoint(addresses)), default="")


def workload_value(
    endpoint: WorkloadEndpoint, applying: Sequence[PolicyDefinition], settings: PolicySettings
) -> LocalEndpoint:
    """A workload endpoint of the node; ``applying`` are the policies that select it, in order."""
    metadata, spec = endpoint.metadata, endpoint.spec
    return LocalEndpoint(
        id=EndpointId(metadata.namespace, metadata.name),
        container_id=spec.container_id,
        interface=spec.interface_name,
        mac=spec.mac,
        addresses=spec.addresses,
        source_prefixes=_source_prefixes(endpoint) if settings.allows_source_prefixes else (),
        ingress=_in_direction(applying, Direction.INGRESS),
        egress=_in_direction(applying, Direction.EGRESS),
        profiles=spec.profiles,
    )


def host_value(endpoint: HostEndpoint, interface: str, applying: Sequence[PolicyDefinition]) -> ActiveHostEndpoint:
    """A host endpoint of the node that governs an interface."""
    return ActiveHostEndpoint(
        name=endpoint.metadata.name,
        interface=interface,
        ingress=_in_direction(applying, Direction.INGRESS),
        egress=_in_direction(applying, Direction.EGRESS),
        profiles=endpoint.spec.profiles,
    )


def _in_direction(applying: Iterable[PolicyDefinition], direction: Direction) -> tuple[PolicyId, ...]:
    return tuple(each.policy.id for each in applying if direction in each.directions)


def _source_prefixes(endpoint: WorkloadEndpoint) -> tuple[Prefix, ...]:
    """The prefixes beside its addresses that it may send from; a text that is none is passed over."""
    found: list[Prefix] = []
    for text in endpoint.spec.allowed_source_prefixes:
        with suppress(ValueError):
            found.append(Prefix.enclosing(text))
    return disjoint_prefixes(found)


def local_problems(endpoint: LocalObject, settings: PolicySettings) -> Iterator[PolicyProblem]:
    """What is not done for an endpoint of the node."""
    name = endpoint.spec.interface_name
    if isinstance(endpoint, HostEndpoint):
        if name not in ("", ALL_INTERFACES) and not is_interface_name(name):
            yield PolicyProblem(f"HostEndpoint {endpoint.metadata.name}", _NO_INTERFACE.format(name))
        return
    subject = f"WorkloadEndpoint {endpoint.metadata.namespace}/{endpoint.metadata.name}"
    if not name:
        yield PolicyProblem(subject, "has no interface: it is not programmed")
    elif not is_interface_name(name):
        yield PolicyProblem(subject, _NO_INTERFACE.format(name))
    if endpoint.spec.allowed_source_prefixes and not settings.allows_source_prefixes:
        text = "has allowed source prefixes, which count only if workloadSourceSpoofing is Any"
        yield PolicyProblem(subject, text)


# --- rules ------------------------------------------------------------------------------------------------------------


def used_policy(definition: PolicyDefinition, names: Mapping[SetId, SetId]) -> ActivePolicy:
    """The policy of a definition; ``names`` has the id by which rules name each of its sets now."""
    policy = definition.policy
    ingress, egress = _named_rules(policy.ingress, names), _named_rules(policy.egress, names)
    return evolve(policy, ingress=ingress, egress=egress)


def used_profile(definition: ProfileDefinition, names: Mapping[SetId, SetId]) -> ActiveProfile:
    """The profile of a definition, likewise."""
    profile = definition.profile
    ingress, egress = _named_rules(profile.ingress, names), _named_rules(profile.egress, names)
    return evolve(profile, ingress=ingress, egress=egress)


def _named_rules(rules: tuple[Rule, ...], names: Mapping[SetId, SetId]) -> tuple[Rule, ...]:
    return tuple(evolve(rule, matches=tuple(_named_match(each, names) for each in rule.matches)) for rule in rules)


def _named_match(match: Match, names: Mapping[SetId, SetId]) -> Match:
    return evolve(match, source=_named_peer(match.source, names), destination=_named_peer(match.destination, names))


def _named_peer(peer: PeerMatch, names: Mapping[SetId, SetId]) -> PeerMatch:
    sets, not_sets = tuple(names[each] for each in peer.sets), tuple(names[each] for each in peer.not_sets)
    return evolve(peer, sets=sets, not_sets=not_sets)
