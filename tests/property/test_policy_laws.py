"""The laws of network policy.

- After any changes in any order, the deltas together are the state that the last objects have from scratch: repeated,
  reversed, squashed into one, split into many, with empty states between, with objects that refer to none.
- A delta after which nothing changes is empty.
- A state names nothing that it does not have, and has nothing that it does not name.
- Policies of Kubernetes allow together what one of them allows, in whatever order they come.
- A member that this release does not know, in any rules, lets no packet pass that did not pass without it.
- The copy of a policy of Kubernetes says the same as the policy, also after it was stored.
- A policy that cannot be read lets nothing pass that it would not let pass.
- A profile that does not exist lets nothing pass where no policy applies.
"""

from __future__ import annotations

import itertools

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.addressing import Address, Prefix
from netplug_core.decoding.tables import DocumentOrigin
from netplug_core.orchestrator.networkpolicy import (
    KubernetesNetworkPolicy,
    LabelOperator,
    LabelSelector,
    PeerEntry,
    PortEntry,
)
from netplug_core.policy.convert import NamedPortSet, PolicyDefinition, SetDefinition, copied_spec, define_policy
from netplug_core.policy.evaluate import evaluate
from netplug_core.policy.index import PolicyIndex
from netplug_core.policy.model import (
    PORT_PROTOCOLS,
    UDP,
    ActiveHostEndpoint,
    ActivePolicy,
    ActiveProfile,
    ConnectionState,
    Decision,
    LocalEndpoint,
    Packet,
    PeerMatch,
    PolicyState,
)
from netplug_core.policy.resolve import PolicyObject, PolicySnapshot, StoredPolicy, resolve
from netplug_core.records import Unreadable
from netplug_core.resources.codec import from_mapping, to_mapping
from netplug_core.resources.fields import Metadata, PortRange
from netplug_core.resources.networkpolicy import Direction, GlobalNetworkPolicy, NetworkPolicy
from netplug_core.resources.policyrule import PolicyRule, PortName, RuleAction
from netplug_core.resources.profile import Profile, ProfileSpec, pod_profiles
from netplug_core.resources.workloadendpoint import WorkloadEndpoint
from netplug_core.selectors import And, Selector, canonical_text
from netplug_core.testing.strategies import kubernetes_policies, packets, policy_endpoints, policy_objects
from tests.harness.example_counts import POLICY_EXAMPLES
from tests.harness.policies import Change, fold, key_of

_INTERFACES = (("eth0", (Address.parse("192.0.2.9"),)), ("eth1", (Address.parse("10.0.0.1"),)))
_EMPTY: list[Change] = []


@st.composite
def _changes(draw: st.DrawFn) -> list[Change]:
    """Objects that appear, change, cannot be read and go; some go that never were."""
    found = draw(st.lists(st.tuples(policy_objects(), st.integers(0, 5)), max_size=24))
    return [(key_of(value), (None, Unreadable.UNREADABLE)[kept] if kept < 2 else value) for value, kept in found]


def _last(changes: list[Change]) -> PolicySnapshot:
    last = dict(changes)
    values = (value for value in last.values() if value is not None and not isinstance(value, Unreadable))
    unreadable = tuple(key for key, value in last.items() if isinstance(value, Unreadable))
    return evolve(_snapshot(*values), unreadable=unreadable)


def _snapshot(*objects: PolicyObject) -> PolicySnapshot:
    return PolicySnapshot(node="here", objects=objects, attached=(("netp1", "c2"),), interfaces=_INTERFACES)


def _index() -> PolicyIndex:
    index = PolicyIndex("here")
    index.set_interfaces(_INTERFACES)
    index.set_attached("netp1", "c2")
    return index


@given(_changes(), st.lists(st.integers(0, 24), max_size=6))
def test_the_deltas_together_are_the_state_from_scratch(changes: list[Change], cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(changes)]
    steps = [changes[first:last] for first, last in itertools.pairwise(bounds)]
    index = _index()
    state = fold(PolicyState(), index, steps)
    assert state == resolve(_last(changes))
    assert fold(state, index, [changes[::-1]]) == resolve(_last(changes[::-1]))


@POLICY_EXAMPLES
@given(_changes())
def test_every_prefix_of_the_changes_gives_its_own_state(changes: list[Change]) -> None:
    index, state = _index(), PolicyState()
    for number, change in enumerate(changes):
        state = fold(state, index, [[change]])
        assert state == resolve(_last(changes[: number + 1]))


@POLICY_EXAMPLES
@given(_changes(), _changes())
def test_empty_states_between_and_spurious_changes_leave_nothing_behind(one: list[Change], other: list[Change]) -> None:
    index = _index()
    emptied = [(key, None) for key, _ in (*one, *other)]
    state = fold(PolicyState(), index, [one, emptied])
    assert state == resolve(_last([]))
    state = fold(state, index, [other, other, _EMPTY])
    assert state == resolve(_last(other))
    assert index.take_delta().is_empty
    assert fold(state, index, [emptied, one]) == resolve(_last(one))


@given(st.lists(policy_objects(), max_size=24))
def test_a_state_has_exactly_what_it_names(objects: list[PolicyObject]) -> None:
    state = resolve(_last([(key_of(each), each) for each in objects]))
    enforced: tuple[LocalEndpoint | ActiveHostEndpoint, ...] = (*state.endpoints, *state.host_endpoints)
    assert {each.id for each in state.policies} == {name for each in enforced for name in (*each.ingress, *each.egress)}
    assert {each.name for each in state.profiles} == {name for each in enforced for name in each.profiles}
    users: tuple[ActivePolicy | ActiveProfile, ...] = (*state.policies, *state.profiles)
    assert {each.id for each in state.sets} == {identity for each in users for identity in each.set_ids}
    assert len({each.interface for each in enforced}) == len(enforced)


# --- what is allowed --------------------------------------------------------------------------------------------------


def _selects(selector: LabelSelector, labels: dict[str, str]) -> bool:
    """What Kubernetes says of a label selector; one that says nothing that can be met selects nothing."""
    for need in selector.requirements:
        has_value = labels.get(need.key) in need.values
        is_met = {
            LabelOperator.IN: has_value and bool(need.values),
            LabelOperator.NOT_IN: not has_value and bool(need.values),
            LabelOperator.EXISTS: need.key in labels and not need.values,
            LabelOperator.DOES_NOT_EXIST: need.key not in labels and not need.values,
        }[need.operator]
        if not is_met:
            return False
    return all(labels.get(label) == value for label, value in selector.labels)


def _can_be_met(selector: LabelSelector) -> bool:
    by_value = (LabelOperator.IN, LabelOperator.NOT_IN)
    return all(bool(need.values) == (need.operator in by_value) for need in selector.requirements)


def _peer_matches(peer: PeerEntry, namespace: str, pod: WorkloadEndpoint, teams: dict[str, str]) -> bool:
    if not peer.is_readable:
        return False
    if peer.ip_block is not None:
        address = pod.spec.addresses[0]
        prefix = peer.ip_block.prefix
        return prefix is not None and prefix.contains(address) and not _is_excepted(peer.ip_block.excepted, address)
    if peer.namespace_selector is None:
        is_near = pod.metadata.namespace == namespace
    else:
        team = teams[pod.metadata.namespace]
        is_near = _selects(peer.namespace_selector, {"team": team} if team else {})
    return is_near and _selects(peer.pod_selector or LabelSelector(), dict(pod.metadata.labels))


def _is_excepted(prefixes: tuple[Prefix, ...], address: Address) -> bool:
    return any(prefix.contains(address) for prefix in prefixes)


def _port_matches(entry: PortEntry, pod: WorkloadEndpoint, packet: Packet) -> bool:
    if not entry.is_readable or PORT_PROTOCOLS[entry.protocol.value] != packet.protocol:
        return False
    match entry.port:
        case None:
            return True
        case PortRange(first=first, last=last):
            return first <= packet.destination_port <= (entry.end or last)
        case PortName(name=name):
            named = [(port.name, port.protocol, port.port) for port in pod.spec.ports]
            return (name, entry.protocol.value, packet.destination_port) in named


def _kubernetes_allows(
    policies: list[KubernetesNetworkPolicy], direction: Direction, pair: _Pair, packet: Packet, teams: dict[str, str]
) -> bool:
    """The documentation of Kubernetes in code, one direction: isolated by some policy, allowed by any."""
    pod, peer = pair if direction is Direction.EGRESS else pair[::-1]
    isolating = [
        policy
        for policy in policies
        if policy.namespace == pod.metadata.namespace
        and direction in policy.spec.directions
        and _can_be_met(policy.spec.pods)
        and _selects(policy.spec.pods, dict(pod.metadata.labels))
    ]
    allowing = (
        (policy, rule)
        for policy in isolating
        for rule in (policy.spec.ingress if direction is Direction.INGRESS else policy.spec.egress)
        if rule.is_readable
    )
    return not isolating or any(
        (not peers or any(_peer_matches(each, policy.namespace, peer, teams) for each in peers))
        and (not rule.ports or any(_port_matches(each, pair[1], packet) for each in rule.ports))
        for policy, rule in allowing
        for peers in [rule.sources if direction is Direction.INGRESS else rule.destinations]
    )


_Pair = tuple[WorkloadEndpoint, WorkloadEndpoint]
_ONE, _OTHER = Address.parse("10.0.0.1"), Address.parse("10.0.0.2")
_ALLOW_ALL = (PolicyRule(action=RuleAction.ALLOW),)


def _placed(pod: WorkloadEndpoint, name: str, address: Address) -> WorkloadEndpoint:
    """A pod of the node with one address, an interface of its own and the profile of its namespace."""
    profiles = pod_profiles(pod.metadata.namespace, "")
    spec = evolve(pod.spec, node="here", interface_name=f"netp{name}", addresses=(address,), profiles=profiles)
    return evolve(pod, metadata=evolve(pod.metadata, name=name), spec=spec)


def _between(pair: _Pair, packet: Packet) -> Packet:
    source, destination = pair
    return evolve(
        packet,
        source=source.spec.addresses[0],
        destination=destination.spec.addresses[0],
        input_interface=source.spec.interface_name,
        output_interface=destination.spec.interface_name,
        connection=ConnectionState.NEW,
    )


@given(
    st.lists(kubernetes_policies(), max_size=4),
    st.tuples(policy_endpoints(), policy_endpoints()),
    st.tuples(*[st.sampled_from(("", "red", "blue"))] * 2),
    packets(),
)
def test_policies_of_kubernetes_allow_what_one_of_them_allows(
    drawn: list[KubernetesNetworkPolicy], pods: _Pair, teams: tuple[str, str], packet: Packet
) -> None:
    policies = list({(each.namespace, each.name): each for each in drawn}.values())
    pair = _placed(pods[0], "a", _ONE), _placed(pods[1], "b", _OTHER)
    team_of = dict(zip("xy", teams, strict=True))
    namespaces = [
        Profile(
            metadata=Metadata(name=f"kns.{name}"),
            spec=ProfileSpec(
                ingress=_ALLOW_ALL, egress=_ALLOW_ALL, labels_to_apply=(("pcns.team", team),) if team else ()
            ),
        )
        for name, team in team_of.items()
    ]
    if packet.protocol in (UDP, 4):
        packet = evolve(packet, protocol=UDP, destination_port=53)  # tunnel packets are never allowed
    found = evaluate(_between(pair, packet), resolve(_snapshot(*policies, *pair, *namespaces))).decision
    expected = all(_kubernetes_allows(policies, each, pair, packet, team_of) for each in Direction)
    assert (found is Decision.ALLOW) is expected


def _with_unknown(rules: tuple[PolicyRule, ...]) -> tuple[PolicyRule, ...]:
    return tuple(evolve(rule, unknown_json='{"newer":1}') for rule in rules)


def _of_newer_release(value: PolicyObject) -> PolicyObject:
    match value:
        case NetworkPolicy() | GlobalNetworkPolicy() | Profile():
            spec = value.spec
            newer = evolve(spec, ingress=_with_unknown(spec.ingress), egress=_with_unknown(spec.egress))
            return evolve(value, spec=newer)  # type: ignore[arg-type]  # each has its own spec
        case _:
            return value


@given(st.lists(policy_objects(), max_size=24), packets())
def test_what_is_not_known_lets_nothing_pass(objects: list[PolicyObject], packet: Packet) -> None:
    known = _last([(key_of(each), each) for each in objects])
    newer = evolve(known, objects=tuple(map(_of_newer_release, known.objects)))
    if evaluate(packet, resolve(newer)).decision is Decision.ALLOW:
        assert evaluate(packet, resolve(known)).decision is Decision.ALLOW


@given(st.lists(policy_objects(), max_size=24), st.integers(0, 7), packets())
def test_a_policy_that_cannot_be_read_lets_nothing_pass(
    objects: list[PolicyObject], damaged: int, packet: Packet
) -> None:
    known = _last([(key_of(each), each) for each in objects])
    lost = [each for each in known.objects if isinstance(each, StoredPolicy)][: damaged + 1]
    left = tuple(each for each in known.objects if each not in lost)
    found = evolve(known, objects=left, unreadable=tuple(map(key_of, lost)))
    if evaluate(packet, resolve(found)).decision is Decision.ALLOW:
        assert evaluate(packet, resolve(known)).decision is Decision.ALLOW


@given(policy_endpoints(), policy_endpoints(), packets())
def test_a_missing_profile_lets_nothing_pass(one: WorkloadEndpoint, other: WorkloadEndpoint, packet: Packet) -> None:
    pair = _placed(one, "a", _ONE), _placed(other, "b", _OTHER)
    verdict = evaluate(_between(pair, packet), resolve(_snapshot(*pair)))
    assert verdict.decision is not Decision.ALLOW


# --- copies of policies of Kubernetes ---------------------------------------------------------------------------------


def _meaning(found: PolicyDefinition) -> object:
    """A definition without names: sets by what they have, terms of selectors in no order."""
    sets = {each.id: _set_meaning(each) for each in found.sets}

    def end(match: PeerMatch) -> object:
        named = [frozenset(sets[each] for each in group) for group in (match.sets, match.not_sets, match.not_port_sets)]
        port_set = None if match.port_set is None else sets[match.port_set]
        return (named, port_set, match.prefixes, match.not_prefixes, match.ports, match.not_ports)

    policy = found.policy
    rules = [
        [(rule.action, evolve(match, source=PeerMatch(), destination=PeerMatch()), end(match.source),
          end(match.destination)) for rule in side for match in rule.matches]
        for side in (policy.ingress, policy.egress)
    ]  # fmt: skip
    return found.directions, _terms(found.selector), rules


def _set_meaning(found: SetDefinition) -> object:
    selector = None if found.selector is None else _terms(found.selector)
    if isinstance(found, NamedPortSet):
        return selector, found.protocol, found.name
    return selector


def _terms(selector: Selector) -> frozenset[str]:
    terms = selector.terms if isinstance(selector, And) else (selector,)
    return frozenset(map(canonical_text, terms))


@given(kubernetes_policies())
def test_a_copied_policy_says_the_same(policy: KubernetesNetworkPolicy) -> None:
    spec, problems = copied_spec(policy)
    definition = define_policy(policy)
    if spec is None:
        assert not definition.directions
        return
    copy = NetworkPolicy(metadata=Metadata(name="copy", namespace=policy.namespace), spec=spec)
    assert _meaning(define_policy(copy)) == _meaning(definition)
    assert {each.text for each in problems} == {each.text for each in definition.problems}
    assert from_mapping(to_mapping(copy), origin=DocumentOrigin.DATASTORE) == copy
