"""Stored policies as rules: what each field means, and what is left out."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_core.addressing import Family, Prefix
from netplug_core.orchestrator.networkpolicy import (
    IPBlock,
    KubernetesNetworkPolicy,
    KubernetesNetworkPolicySpec,
    LabelOperator,
    LabelRequirement,
    LabelSelector,
    PeerEntry,
    PortEntry,
    RuleEntry,
)
from netplug_core.policy.convert import (
    NamedPortSet,
    PolicyDefinition,
    Rank,
    SelectorSet,
    copied_spec,
    define_missing_profile,
    define_policy,
    define_profile,
)
from netplug_core.policy.model import (
    ICMP,
    ICMP_V6,
    SCTP,
    TCP,
    UDP,
    Action,
    Direction,
    Match,
    PeerMatch,
    PolicyProblem,
)
from netplug_core.policy.model import ICMPMatch as Type
from netplug_core.resources.fields import Metadata, PortRange
from netplug_core.resources.hostendpoint import PortProtocol
from netplug_core.resources.networkpolicy import (
    GlobalNetworkPolicy,
    GlobalNetworkPolicySpec,
    NetworkPolicy,
    NetworkPolicySpec,
)
from netplug_core.resources.policyrule import (
    EntityRule,
    ICMPMatch,
    PolicyRule,
    PortName,
    Protocol,
    RuleAction,
    ServiceAccountMatch,
)
from netplug_core.resources.profile import Profile, ProfileSpec
from netplug_core.selectors import canonical_text
from tests.harness.policies import allow, make_policy

NET, OTHER_NET, NET_V6 = map(Prefix.parse, ("10.0.0.0/24", "10.1.0.0/16", "fd00::/64"))
PODS = 'projectnetplug.org/orchestrator == "k8s"'
IN_X = 'projectnetplug.org/namespace == "x"'


def define(
    *ingress: RuleEntry, egress: tuple[RuleEntry, ...] = (), types: tuple[Direction, ...] = tuple(Direction)
) -> PolicyDefinition:
    spec = KubernetesNetworkPolicySpec(ingress=ingress, egress=egress, types=types)
    return define_policy(KubernetesNetworkPolicy(namespace="x", name="web", spec=spec))


def define_rule(rule: PolicyRule, *, is_global: bool = False) -> PolicyDefinition:
    """A policy with one rule for ingress."""
    if is_global:
        spec = GlobalNetworkPolicySpec(ingress=(rule,))
        return define_policy(GlobalNetworkPolicy(metadata=Metadata(name="a"), spec=spec))
    return define_policy(
        NetworkPolicy(metadata=Metadata(name="a", namespace="x"), spec=NetworkPolicySpec(ingress=(rule,)))
    )


def matches_of(definition: PolicyDefinition) -> tuple[Match, ...]:
    (rule,) = definition.policy.ingress
    return rule.matches


def texts_of(definition: PolicyDefinition) -> set[str]:
    """The selectors of the sets, and the named ports with theirs."""
    found: set[str] = set()
    for each in definition.sets:
        whose = "local" if each.selector is None else canonical_text(each.selector)
        found.add(f"{whose} {each.protocol} {each.name}" if isinstance(each, NamedPortSet) else whose)
    return found


def problems_of(definition: PolicyDefinition) -> list[str]:
    return [problem.text for problem in definition.problems]


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def test_a_policy_of_kubernetes_is_for_the_pods_of_its_namespace() -> None:
    selector = LabelSelector(
        labels=(("app", "a"),),
        requirements=(
            LabelRequirement(key="t", operator=LabelOperator.IN, values=("b", "a")),
            LabelRequirement(key="u", operator=LabelOperator.NOT_IN, values=("c",)),
            LabelRequirement(key="v", operator=LabelOperator.EXISTS),
            LabelRequirement(key="w", operator=LabelOperator.DOES_NOT_EXIST),
        ),
    )
    spec = KubernetesNetworkPolicySpec(pods=selector)
    found = define_policy(KubernetesNetworkPolicy(namespace="x", name="web", spec=spec))
    assert canonical_text(found.selector) == (
        f'({PODS} && {IN_X} && app == "a" && t in {{"a", "b"}} && u not in {{"c"}} && has(v) && !has(w))'
    )
    assert found.directions == {Direction.INGRESS}
    assert str(found.policy.id) == "KubernetesNetworkPolicy x/web"
    assert found.rank[1] == 1000


def test_an_empty_selector_is_for_all_pods_of_the_namespace() -> None:
    assert canonical_text(define().selector) == f"({PODS} && {IN_X})"


def test_no_peers_and_no_ports_are_everybody_and_everything() -> None:
    found = define(RuleEntry())
    assert [(rule.name, rule.action) for rule in found.policy.ingress] == [
        ("KubernetesNetworkPolicy x/web #0", Action.ALLOW)
    ]
    assert matches_of(found) == (Match(),)
    assert define().policy.ingress == ()


def test_peers_are_alternatives_and_both_selectors_of_one_hold_together() -> None:
    a, team = LabelSelector(labels=(("app", "a"),)), LabelSelector(labels=(("team", "red"),))
    found = define(
        RuleEntry(
            sources=(
                PeerEntry(pod_selector=a),
                PeerEntry(namespace_selector=LabelSelector()),
                PeerEntry(pod_selector=a, namespace_selector=team),
            )
        )
    )
    assert texts_of(found) == {
        f'({PODS} && {IN_X} && app == "a")',
        f"({PODS} && has(projectnetplug.org/namespace))",
        f'({PODS} && has(projectnetplug.org/namespace) && pcns.team == "red" && app == "a")',
    }
    assert [len(match.source.sets) for match in matches_of(found)] == [1, 1, 1]
    assert {match.destination for match in matches_of(found)} == {PeerMatch()}


def test_the_peers_of_egress_are_destinations() -> None:
    found = define(egress=(RuleEntry(destinations=(PeerEntry(pod_selector=LabelSelector()),), ports=(PortEntry(),)),))
    (rule,) = found.policy.egress
    (match,) = rule.matches
    assert match.protocol == TCP
    assert match.source == PeerMatch()
    assert match.destination.sets == (found.sets[0].id,)


def test_a_block_is_of_its_family_and_leaves_its_exceptions_out() -> None:
    first, second, third = map(Prefix.parse, ("10.0.0.8/29", "10.0.0.9/32", "10.0.0.32/32"))
    block = IPBlock(prefix=NET, excepted=(third, second, first, NET_V6))
    (match,) = matches_of(define(RuleEntry(sources=(PeerEntry(ip_block=block),))))
    assert match == Match(family=Family.IPV4, source=PeerMatch(prefixes=(NET,), not_prefixes=(first, third)))


def test_the_block_of_everything_is_only_of_its_family() -> None:
    everything = Prefix.parse("::/0")
    (match,) = matches_of(define(RuleEntry(sources=(PeerEntry(ip_block=IPBlock(prefix=everything)),))))
    assert match == Match(family=Family.IPV6)
    block = IPBlock(prefix=everything, excepted=(everything,))
    assert define(RuleEntry(sources=(PeerEntry(ip_block=block),))).policy.ingress == ()


def test_ports_of_one_protocol_are_merged() -> None:
    ports = (
        PortEntry(port=PortRange(81, 81)),
        PortEntry(port=PortRange(80, 80)),
        PortEntry(port=PortRange(8080, 8080), end=9000),
        PortEntry(port=PortRange(8081, 8081)),
        PortEntry(protocol=PortProtocol.UDP),
        PortEntry(protocol=PortProtocol.UDP, port=PortRange(53, 53)),
        PortEntry(protocol=PortProtocol.SCTP, port=PortName("s")),
    )
    found = define(RuleEntry(ports=ports))
    tcp, udp, sctp = matches_of(found)
    assert tcp == Match(protocol=TCP, destination=PeerMatch(ports=(PortRange(80, 81), PortRange(8080, 9000))))
    assert udp == Match(protocol=UDP)
    assert sctp == Match(protocol=SCTP, destination=PeerMatch(port_set=found.sets[0].id))
    assert texts_of(found) == {f"local {SCTP} s"}


def test_a_named_port_of_egress_is_one_of_the_peer() -> None:
    port = (PortEntry(port=PortName("http")),)
    pods = PeerEntry(pod_selector=LabelSelector())
    block = PeerEntry(ip_block=IPBlock(prefix=NET))
    found = define(egress=(RuleEntry(destinations=(pods, block), ports=port),))
    assert texts_of(found) == {f"({PODS} && {IN_X})", f"({PODS} && {IN_X}) {TCP} http", f"all() {TCP} http"}


@pytest.mark.parametrize(
    "entry, text",
    [
        (RuleEntry(unknown_json='{"newer":1}'), "spec.ingress[0].newer is not supported or cannot be read"),
        (RuleEntry(sources=(PeerEntry(unknown_json='{"newer":1}'),)), "spec.ingress[0].from[0].newer is not supported"),
        (RuleEntry(ports=(PortEntry(unknown_json='{"newer":1}'),)), "spec.ingress[0].ports[0].newer is not supported"),
        (RuleEntry(ports=(PortEntry(port=PortRange(80, 80), end=79),)), "spec.ingress[0].ports[0] has an endPort"),
        (
            RuleEntry(
                sources=(
                    PeerEntry(
                        pod_selector=LabelSelector(requirements=(LabelRequirement(key="a", operator=LabelOperator.IN),))
                    ),
                )
            ),
            "spec.ingress[0].from[0] has a requirement",
        ),
    ],
)
def test_what_cannot_be_read_allows_nobody_and_is_named(entry: RuleEntry, text: str) -> None:
    found = define(entry, RuleEntry())
    assert [rule.name for rule in found.policy.ingress] == ["KubernetesNetworkPolicy x/web #1"]
    assert found.directions == set(Direction)
    (problem,) = found.problems
    assert problem.subject == "KubernetesNetworkPolicy x/web"
    assert problem.text.startswith(text)


def test_a_peer_that_names_nobody_allows_nobody() -> None:
    assert define(RuleEntry(sources=(PeerEntry(),))).policy.ingress == ()


@pytest.mark.parametrize(
    "operator, values",
    [
        (LabelOperator.EXISTS, ("a",)),
        (LabelOperator.DOES_NOT_EXIST, ("a",)),
        (LabelOperator.IN, ()),
        (LabelOperator.NOT_IN, ()),
    ],
)
def test_a_policy_whose_pods_cannot_be_known_is_not_enforced(operator: LabelOperator, values: tuple[str, ...]) -> None:
    requirement = LabelRequirement(key="a", operator=operator, values=values)
    spec = KubernetesNetworkPolicySpec(pods=LabelSelector(requirements=(requirement,)), ingress=(RuleEntry(),))
    found = define_policy(KubernetesNetworkPolicy(namespace="x", name="web", spec=spec))
    assert found.directions == frozenset()
    assert found.policy.ingress == ()
    assert problems_of(found) == ["spec.podSelector has a requirement that no label can meet as it is written"]


def test_rules_of_a_direction_that_the_policy_is_not_for_are_left_out() -> None:
    found = define(RuleEntry(), egress=(RuleEntry(),), types=(Direction.EGRESS,))
    assert found.policy.ingress == ()
    assert len(found.policy.egress) == 1


# --- copies of policies of Kubernetes ---------------------------------------------------------------------------------


BLOCK = IPBlock(prefix=NET, excepted=(Prefix.parse("10.0.0.128/25"), NET_V6))
NO_LABEL = LabelSelector(requirements=(LabelRequirement(key="a", operator=LabelOperator.IN),))
SELECTED = LabelSelector(labels=(("app", "a"),))


def copy_of(
    *entries: RuleEntry, types: tuple[Direction, ...] = (Direction.INGRESS,), pods: LabelSelector = SELECTED
) -> tuple[NetworkPolicySpec | None, list[str]]:
    """The copy of a policy with these rules in both directions, and what was left out."""
    spec = KubernetesNetworkPolicySpec(pods=pods, ingress=entries, egress=entries, types=types)
    found, problems = copied_spec(KubernetesNetworkPolicy(namespace="x", name="web", spec=spec))
    return found, [problem.text for problem in problems]


def test_a_copy_has_a_rule_for_each_peer_and_protocol() -> None:
    peers = (
        PeerEntry(pod_selector=SELECTED),
        PeerEntry(namespace_selector=LabelSelector()),
        PeerEntry(ip_block=BLOCK),
    )
    http = PortEntry(port=PortName("http"))
    dns = PortEntry(protocol=PortProtocol.UDP, port=PortRange(53, 53))
    found, problems = copy_of(RuleEntry(sources=peers, ports=(http, dns)))
    selected = EntityRule(selector=f'({PODS} && app == "a")')
    anywhere = EntityRule(selector=PODS, namespace_selector="all()")
    block = EntityRule(nets=(NET,), not_nets=(Prefix.parse("10.0.0.128/25"),))
    assert problems == []
    assert found == NetworkPolicySpec(
        order=1000.0,
        selector=f'({PODS} && app == "a")',
        types=(Direction.INGRESS,),
        ingress=tuple(
            PolicyRule(action=RuleAction.ALLOW, protocol=protocol, source=end, destination=EntityRule(ports=ports))
            for protocol, ports in ((Protocol(TCP), (PortName("http"),)), (Protocol(UDP), (PortRange(53, 53),)))
            for end in (selected, anywhere, block)
        ),
    )


def test_a_copy_of_egress_has_the_ports_of_the_other_end() -> None:
    port = PortEntry(port=PortRange(80, 80))
    found, _ = copy_of(RuleEntry(destinations=(PeerEntry(ip_block=BLOCK),), ports=(port,)), types=(Direction.EGRESS,))
    assert found is not None
    (rule,) = found.egress
    assert rule.source == EntityRule()
    assert (rule.destination.nets, rule.destination.ports) == ((NET,), (PortRange(80, 80),))
    assert found.ingress == ()


def test_a_copy_of_a_rule_for_everybody_has_no_conditions() -> None:
    found, _ = copy_of(RuleEntry())
    assert found is not None
    assert found.ingress == (PolicyRule(action=RuleAction.ALLOW),)


@pytest.mark.parametrize(
    "entry, problem",
    [
        (RuleEntry(unknown_json='{"newer":1}'), ["spec.ingress[0].newer is not supported or cannot be read"]),
        (RuleEntry(sources=(PeerEntry(),)), []),
        (
            RuleEntry(sources=(PeerEntry(pod_selector=NO_LABEL),)),
            ["spec.ingress[0].from[0] has a requirement that no label can meet as it is written"],
        ),
        (
            RuleEntry(sources=(PeerEntry(pod_selector=SELECTED, namespace_selector=NO_LABEL),)),
            ["spec.ingress[0].from[0] has a requirement that no label can meet as it is written"],
        ),
    ],
)
def test_what_cannot_be_said_is_left_out_of_a_copy(entry: RuleEntry, problem: list[str]) -> None:
    found, problems = copy_of(entry)
    assert found is not None
    assert found.ingress == ()
    assert [text for text in problems if "egress" not in text] == problem


def test_a_policy_whose_pods_cannot_be_known_has_no_copy() -> None:
    assert copy_of(pods=NO_LABEL) == (
        None,
        ["spec.podSelector has a requirement that no label can meet as it is written"],
    )


# --- own policies -----------------------------------------------------------------------------------------------------


def test_a_policy_of_a_namespace_is_for_its_endpoints() -> None:
    spec = NetworkPolicySpec(selector="app == 'a'", service_account_selector="team == 'red'", order=5)
    found = define_policy(NetworkPolicy(metadata=Metadata(name="a", namespace="x"), spec=spec))
    assert canonical_text(found.selector) == (
        f'(app == "a" && {IN_X} && has(projectnetplug.org/namespace) && pcsa.team == "red")'
    )
    assert found.rank == (False, 5, "a", "x", "NetworkPolicy")


def test_a_global_policy_is_for_everything_that_it_selects() -> None:
    spec = GlobalNetworkPolicySpec(namespace_selector="team == 'red' || has(b)", types=(Direction.EGRESS,))
    found = define_policy(GlobalNetworkPolicy(metadata=Metadata(name="a"), spec=spec))
    assert (
        canonical_text(found.selector) == '(has(projectnetplug.org/namespace) && (pcns.team == "red" || has(pcns.b)))'
    )
    assert found.directions == {Direction.EGRESS}
    plain = define_policy(GlobalNetworkPolicy(metadata=Metadata(name="a"), spec=GlobalNetworkPolicySpec()))
    assert canonical_text(plain.selector) == "all()"


def test_a_policy_without_an_order_comes_last_and_one_of_another_tier_after_it() -> None:
    def rank(order: float | None, tier: str = "default") -> Rank:
        spec = NetworkPolicySpec(order=order, tier=tier)
        return define_policy(NetworkPolicy(metadata=Metadata(name="a", namespace="x"), spec=spec)).rank

    assert rank(-1) < rank(0) < rank(1e9) < rank(None) < rank(0, "other")


@pytest.mark.parametrize("unknown, selector", [('{"selector":"app =="}', ""), ('{"order":"first"}', "app == 'a'")])
def test_a_policy_whose_endpoints_or_order_cannot_be_read_closes_all_that_it_may_be_for(
    unknown: str, selector: str
) -> None:
    usual = make_policy("p", allow(), selector=selector)
    found = define_policy(evolve(usual, spec=evolve(usual.spec, unknown_json=unknown)))
    sound = define_policy(make_policy("p", allow(), selector=selector))
    assert (found.selector, found.directions) == (sound.selector, sound.directions)
    assert found.rank < define_policy(make_policy("a", order=-1e300)).rank
    (rule,) = found.policy.ingress
    assert (rule.action, rule.matches) == (Action.DENY, (Match(),))
    assert found.policy.egress == ()
    assert len(found.problems) == 1


def test_a_policy_for_another_hook_is_not_enforced() -> None:
    spec = GlobalNetworkPolicySpec(is_untracked=True, ingress=(PolicyRule(action=RuleAction.ALLOW),))
    found = define_policy(GlobalNetworkPolicy(metadata=Metadata(name="a"), spec=spec))
    assert found.directions == frozenset()
    assert found.policy.ingress == ()
    assert problems_of(found) == ["spec.doNotTrack is not supported or cannot be read"]


@pytest.mark.parametrize(
    "entity, text",
    [
        (EntityRule(selector="app == 'a'"), f'({IN_X} && app == "a")'),
        (EntityRule(selector="all()"), IN_X),
        (EntityRule(namespace_selector="all()"), "has(projectnetplug.org/namespace)"),
        (
            EntityRule(namespace_selector="global()", selector="has(a)"),
            "(!has(projectnetplug.org/namespace) && has(a))",
        ),
        (
            EntityRule(namespace_selector="t == 'r'", selector="has(a)"),
            '(has(projectnetplug.org/namespace) && pcns.t == "r" && has(a))',
        ),
        (EntityRule(selector="global()"), f"({IN_X} && global() && !has(projectnetplug.org/namespace))"),
        (
            EntityRule(service_accounts=ServiceAccountMatch(names=("b", "a"))),
            f'({IN_X} && has(projectnetplug.org/namespace) && projectnetplug.org/serviceaccount in {{"a", "b"}})',
        ),
        (
            EntityRule(service_accounts=ServiceAccountMatch(selector="!has(t)")),
            f"({IN_X} && has(projectnetplug.org/namespace) && !has(pcsa.t))",
        ),
        (EntityRule(selector="has(a)", not_selector="has(b)"), f"({IN_X} && has(a) && !has(b))"),
    ],
)
def test_a_selector_of_a_rule_means_endpoints_of_the_namespace_unless_it_says_otherwise(
    entity: EntityRule, text: str
) -> None:
    found = define_rule(PolicyRule(action=RuleAction.ALLOW, source=entity))
    (match,) = matches_of(found)
    (each,) = found.sets
    assert isinstance(each, SelectorSet)
    assert canonical_text(each.selector) == text
    assert match.source == PeerMatch(sets=(each.id,))


def test_a_not_selector_alone_is_everything_else_in_the_world() -> None:
    found = define_rule(PolicyRule(action=RuleAction.ALLOW, source=EntityRule(not_selector="has(b)")))
    (match,) = matches_of(found)
    assert match.source == PeerMatch(not_sets=(found.sets[0].id,))
    assert texts_of(found) == {"has(b)"}


def test_a_selector_of_a_global_policy_means_all_endpoints() -> None:
    accounts = ServiceAccountMatch(names=("a",))
    rule = PolicyRule(
        action=RuleAction.ALLOW,
        source=EntityRule(selector="has(a)"),
        destination=EntityRule(service_accounts=accounts),
    )
    assert texts_of(define_rule(rule, is_global=True)) == {
        "has(a)",
        '(has(projectnetplug.org/namespace) && projectnetplug.org/serviceaccount in {"a"})',
    }


def test_equal_selectors_share_a_set() -> None:
    entity = EntityRule(selector="app == 'a'")
    found = define_rule(PolicyRule(action=RuleAction.ALLOW, source=entity, destination=entity))
    assert len(found.sets) == 1
    assert found.sets[0].id == define_rule(PolicyRule(action=RuleAction.DENY, source=entity)).sets[0].id


@pytest.mark.parametrize(
    "rule, matches",
    [
        (PolicyRule(action=RuleAction.DENY), (Match(),)),
        (PolicyRule(action=RuleAction.DENY, family=Family.IPV6), (Match(family=Family.IPV6),)),
        (
            PolicyRule(action=RuleAction.DENY, not_protocol=Protocol(TCP), protocol=Protocol(47)),
            (Match(not_protocol=TCP, protocol=47),),
        ),
        (
            PolicyRule(action=RuleAction.ALLOW, protocol=Protocol(ICMP), icmp=ICMPMatch(type=8, code=0)),
            (Match(family=Family.IPV4, protocol=ICMP, icmp=Type(type=8, code=0)),),
        ),
        (
            PolicyRule(action=RuleAction.ALLOW, protocol=Protocol(ICMP_V6), not_icmp=ICMPMatch(type=128)),
            (Match(family=Family.IPV6, protocol=ICMP_V6, not_icmp=Type(type=128)),),
        ),
        (
            PolicyRule(action=RuleAction.ALLOW, protocol=Protocol(ICMP), icmp=ICMPMatch()),
            (Match(family=Family.IPV4, protocol=ICMP),),
        ),
        (
            PolicyRule(action=RuleAction.ALLOW, source=EntityRule(nets=(OTHER_NET, NET, NET_V6))),
            (
                Match(family=Family.IPV4, source=PeerMatch(prefixes=(NET, OTHER_NET))),
                Match(family=Family.IPV6, source=PeerMatch(prefixes=(NET_V6,))),
            ),
        ),
        (
            PolicyRule(action=RuleAction.ALLOW, destination=EntityRule(not_nets=(NET,))),
            (Match(family=Family.IPV4, destination=PeerMatch(not_prefixes=(NET,))),),
        ),
        (
            PolicyRule(
                action=RuleAction.ALLOW,
                protocol=Protocol(TCP),
                destination=EntityRule(ports=(PortRange(1, 2),), not_ports=(PortRange(2, 2),)),
            ),
            (Match(protocol=TCP, destination=PeerMatch(ports=(PortRange(1, 2),), not_ports=(PortRange(2, 2),))),),
        ),
    ],
)
def test_conditions_of_a_rule_all_have_to_hold(rule: PolicyRule, matches: tuple[Match, ...]) -> None:
    assert matches_of(define_rule(rule)) == matches


@pytest.mark.parametrize(
    "rule",
    [
        PolicyRule(action=RuleAction.DENY, source=EntityRule(nets=(NET,)), destination=EntityRule(nets=(NET_V6,))),
        PolicyRule(action=RuleAction.DENY, source=EntityRule(nets=(NET,), not_nets=(NET_V6,))),
        PolicyRule(action=RuleAction.DENY, source=EntityRule(not_nets=(Prefix.parse("0.0.0.0/0"), NET))),
        PolicyRule(action=RuleAction.DENY, family=Family.IPV6, protocol=Protocol(ICMP)),
    ],
)
def test_a_rule_for_no_family_is_left_out(rule: PolicyRule) -> None:
    assert define_rule(rule).policy.ingress == ()


CONTRADICTIONS = [
    (
        PolicyRule(action=RuleAction.ALLOW, destination=EntityRule(ports=(PortRange(80, 80),))),
        "spec.ingress[0] has ports, for which the protocol has to be TCP, UDP or SCTP",
        Match(),
    ),
    (
        PolicyRule(action=RuleAction.ALLOW, protocol=Protocol(TCP), icmp=ICMPMatch(type=8)),
        "spec.ingress[0] has an ICMP type, for which the protocol has to be ICMP or ICMPv6",
        Match(protocol=TCP),
    ),
    (
        PolicyRule(action=RuleAction.ALLOW, not_icmp=ICMPMatch(type=8)),
        "spec.ingress[0] has an ICMP type, for which the protocol has to be ICMP or ICMPv6",
        Match(),
    ),
    (
        PolicyRule(action=RuleAction.ALLOW, protocol=Protocol(ICMP), icmp=ICMPMatch(type=8), not_icmp=ICMPMatch()),
        "spec.ingress[0] has notICMP without a type, which leaves nothing of the protocol",
        Match(family=Family.IPV4, protocol=ICMP, icmp=Type(type=8)),
    ),
]


@pytest.mark.parametrize("rule, text, denied", CONTRADICTIONS)
def test_a_condition_that_no_packet_can_meet_allows_nothing_and_denies_without_it(
    rule: PolicyRule, text: str, denied: Match
) -> None:
    found = define_rule(rule)
    assert found.policy.ingress == ()
    assert found.problems == (PolicyProblem("NetworkPolicy x/a", text),)
    denying = PolicyRule(
        action=RuleAction.DENY,
        protocol=rule.protocol,
        icmp=rule.icmp,
        not_icmp=rule.not_icmp,
        destination=rule.destination,
    )
    assert matches_of(define_rule(denying)) == (denied,)


def test_a_rule_with_an_unknown_member_allows_nothing_and_denies_the_more() -> None:
    found = define_rule(PolicyRule(action=RuleAction.ALLOW, unknown_json='{"newer":1}'))
    assert found.policy.ingress == ()
    assert problems_of(found) == ["spec.ingress[0].newer is not supported or cannot be read"]
    assert matches_of(define_rule(PolicyRule(action=RuleAction.DENY, unknown_json='{"newer":1}'))) == (Match(),)


def test_named_and_numeric_ports_are_alternatives() -> None:
    ports = (PortName("http"), PortRange(80, 80), PortName("dns"))
    rule = PolicyRule(
        action=RuleAction.ALLOW,
        protocol=Protocol(TCP),
        source=EntityRule(selector="has(a)", ports=(PortName("src"),)),
        destination=EntityRule(ports=ports, not_ports=(PortName("no"),)),
    )
    found = define_rule(rule)
    ids = {f"{each.name}": each.id for each in found.sets if isinstance(each, NamedPortSet)}
    assert [(match.destination.ports, match.destination.port_set) for match in matches_of(found)] == [
        ((PortRange(80, 80),), None),
        ((), ids["dns"]),
        ((), ids["http"]),
    ]
    assert {match.destination.not_port_sets for match in matches_of(found)} == {(ids["no"],)}
    assert {match.source.port_set for match in matches_of(found)} == {ids["src"]}
    assert texts_of(found) >= {f"({IN_X} && has(a)) {TCP} src", f"local {TCP} http", f"local {TCP} no"}


def test_the_matches_of_a_log_rule_exclude_each_other() -> None:
    ports = (PortName("http"), PortRange(80, 80), PortName("dns"))
    rule = PolicyRule(
        action=RuleAction.LOG,
        protocol=Protocol(TCP),
        destination=EntityRule(ports=ports, not_ports=(PortRange(90, 90), PortName("no"))),
    )
    found = define_rule(rule)
    ids = {f"{each.name}": each.id for each in found.sets if isinstance(each, NamedPortSet)}
    numbers, dns, http = (match.destination for match in matches_of(found))
    assert numbers == PeerMatch(ports=(PortRange(80, 80),), not_ports=(PortRange(90, 90),), not_port_sets=(ids["no"],))
    assert dns == PeerMatch(
        port_set=ids["dns"], not_ports=(PortRange(80, 80), PortRange(90, 90)), not_port_sets=(ids["no"],)
    )
    assert http == PeerMatch(
        port_set=ids["http"],
        not_ports=(PortRange(80, 80), PortRange(90, 90)),
        not_port_sets=(ids["no"], ids["dns"]),
    )


# --- profiles ---------------------------------------------------------------------------------------------------------


def test_a_profile_has_rules_for_both_directions() -> None:
    rule = PolicyRule(action=RuleAction.ALLOW, source=EntityRule(selector="has(a)"))
    spec = ProfileSpec(ingress=(rule,), egress=(PolicyRule(action=RuleAction.DENY),), unknown_json='{"newer":1}')
    found = define_profile(Profile(metadata=Metadata(name="p"), spec=spec))
    assert [(each.name, each.action) for each in found.profile.ingress] == [("Profile p #0", Action.ALLOW)]
    assert [(each.name, each.action) for each in found.profile.egress] == [("Profile p #0", Action.DENY)]
    assert [canonical_text(each.selector) for each in found.sets if each.selector is not None] == ["has(a)"]
    assert found.problems == (PolicyProblem("Profile p", "spec.newer is not supported or cannot be read"),)


def test_a_profile_that_does_not_exist_denies_everything() -> None:
    found = define_missing_profile("kns.x")
    assert found.profile.is_missing
    for rules in (found.profile.ingress, found.profile.egress):
        assert [(each.action, each.matches) for each in rules] == [(Action.DENY, (Match(),))]
    assert [str(each) for each in found.problems] == [
        "Profile kns.x: does not exist: endpoints that name it are closed"
    ]
