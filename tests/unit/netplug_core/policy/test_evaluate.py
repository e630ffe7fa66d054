"""What becomes of a packet on every way through a node, and what the trace says of it."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.policy.evaluate import evaluate
from netplug_core.policy.model import (
    ICMP,
    ICMP_V6,
    TCP,
    UDP,
    Action,
    ActiveHostEndpoint,
    ActivePolicy,
    ActiveProfile,
    ConnectionState,
    Decision,
    Direction,
    EndpointId,
    Failsafe,
    ICMPMatch,
    LocalEndpoint,
    Match,
    MemberSet,
    Packet,
    PeerMatch,
    PolicyId,
    PolicyKind,
    PolicySettings,
    PolicyState,
    PortMember,
    Reason,
    Rule,
    SetId,
    SetType,
)
from netplug_core.resources.fields import PortRange
from netplug_core.resources.nodeconfiguration import EndpointToHostAction

A, B, OUTSIDE = map(Address.parse, ("10.0.0.1", "10.0.0.2", "192.0.2.9"))
WEB = PolicyId(PolicyKind.NETWORK_POLICY, "x", "web")
NEXT = PolicyId(PolicyKind.NETWORK_POLICY, "x", "next")
OPEN = ActiveProfile(
    name="open",
    ingress=(Rule(name="Profile open #0", action=Action.ALLOW, matches=(Match(),)),),
    egress=(Rule(name="Profile open #0", action=Action.ALLOW, matches=(Match(),)),),
)
GONE = ActiveProfile(
    name="gone",
    ingress=(Rule(name="Profile gone #0", action=Action.DENY, matches=(Match(),)),),
    egress=(Rule(name="Profile gone #0", action=Action.DENY, matches=(Match(),)),),
    is_missing=True,
)
POD_A = LocalEndpoint(
    id=EndpointId("x", "a"),
    interface="netp1",
    addresses=(A,),
    source_prefixes=(Prefix.parse("10.7.0.0/24"),),
    profiles=("open",),
)
POD_B = LocalEndpoint(id=EndpointId("x", "b"), interface="netp2", addresses=(B,), profiles=("open",))
STATE = PolicyState(profiles=(GONE, OPEN), endpoints=(POD_A, POD_B))
A_TO_B = Packet(
    source=A,
    destination=B,
    protocol=TCP,
    source_port=40000,
    destination_port=80,
    input_interface="netp1",
    output_interface="netp2",
)
A_TO_HOST = evolve(A_TO_B, destination=OUTSIDE, output_interface="")
IN_TO_HOST = evolve(A_TO_B, source=OUTSIDE, input_interface="eth0", output_interface="")
OUT_OF_HOST = evolve(A_TO_B, destination=OUTSIDE, input_interface="", output_interface="eth0")


def rule(action: Action, *matches: Match, index: int = 0, policy: PolicyId = WEB) -> Rule:
    return Rule(name=f"{policy} #{index}", action=action, matches=matches or (Match(),))


def with_ingress(*rules: Rule, sets: tuple[MemberSet, ...] = ()) -> PolicyState:
    """A policy with these rules for packets to the second pod."""
    pod = evolve(POD_B, ingress=(WEB,))
    return evolve(STATE, policies=(ActivePolicy(id=WEB, ingress=rules),), sets=sets, endpoints=(POD_A, pod))


def decide(packet: Packet, state: PolicyState = STATE) -> tuple[Decision, Reason]:
    verdict = evaluate(packet, state)
    return verdict.decision, verdict.trace[-1].reason


def is_allowed(packet: Packet, *matches: Match, sets: tuple[MemberSet, ...] = ()) -> bool:
    """Whether a policy that allows this and nothing else lets a packet to the second pod pass."""
    return evaluate(packet, with_ingress(rule(Action.ALLOW, *matches), sets=sets)).decision is Decision.ALLOW


# --- policies and profiles --------------------------------------------------------------------------------------------


def test_without_a_policy_the_profiles_of_both_ends_decide() -> None:
    verdict = evaluate(A_TO_B, STATE)
    assert verdict.decision is Decision.ALLOW
    assert [(step.direction, step.endpoint, step.rule, step.decision) for step in verdict.trace] == [
        (Direction.EGRESS, "x/a", "Profile open #0", Decision.ALLOW),
        (Direction.INGRESS, "x/b", "Profile open #0", Decision.ALLOW),
    ]


def test_policies_that_apply_deny_what_none_of_them_allows() -> None:
    verdict = evaluate(A_TO_B, with_ingress())
    assert verdict.decision is Decision.DENY
    assert verdict.trace[-1].reason is Reason.NO_RULE
    assert verdict.trace[-1].endpoint == "x/b"


def test_the_first_rule_that_matches_decides_and_a_log_rule_does_not() -> None:
    state = with_ingress(
        rule(Action.DENY, Match(protocol=UDP)),
        rule(Action.LOG, index=1),
        rule(Action.DENY, index=2),
        rule(Action.ALLOW, index=3),
    )
    verdict = evaluate(A_TO_B, state)
    assert [(step.reason, step.rule, step.decision) for step in verdict.trace[1:]] == [
        (Reason.LOG_RULE, f"{WEB} #1", None),
        (Reason.RULE, f"{WEB} #2", Decision.DENY),
    ]


def test_the_next_policy_is_tried_if_the_first_does_not_decide() -> None:
    pod = evolve(POD_B, ingress=(WEB, NEXT))
    policies = (ActivePolicy(id=NEXT, ingress=(rule(Action.ALLOW, policy=NEXT),)), ActivePolicy(id=WEB))
    verdict = evaluate(A_TO_B, evolve(STATE, policies=policies, endpoints=(POD_A, pod)))
    assert verdict.trace[-1].rule == f"{NEXT} #0"


def test_egress_that_is_denied_is_not_asked_for_ingress() -> None:
    pod = evolve(POD_A, egress=(WEB,))
    state = evolve(STATE, policies=(ActivePolicy(id=WEB),), endpoints=(pod, POD_B))
    verdict = evaluate(A_TO_B, state)
    assert [(step.direction, step.decision) for step in verdict.trace] == [(Direction.EGRESS, Decision.DENY)]


def test_a_missing_profile_and_no_profile_close() -> None:
    assert decide(A_TO_B, evolve(STATE, endpoints=(POD_A, evolve(POD_B, profiles=("gone", "open"))))) == (
        Decision.DENY,
        Reason.MISSING_PROFILE,
    )
    assert decide(A_TO_B, evolve(STATE, endpoints=(POD_A, evolve(POD_B, profiles=())))) == (
        Decision.DENY,
        Reason.NO_PROFILE_RULE,
    )


# --- conditions -------------------------------------------------------------------------------------------------------


S = SetId("s")
PORTS = MemberSet(id=S, type=SetType.PORTS, members=frozenset({PortMember(B, TCP, 80)}))
NET = Prefix.parse("10.0.0.0/31")


@pytest.mark.parametrize(
    "match, expected",
    [
        (Match(family=Family.IPV4), True),
        (Match(family=Family.IPV6), False),
        (Match(protocol=TCP), True),
        (Match(protocol=UDP), False),
        (Match(not_protocol=TCP), False),
        (Match(not_protocol=UDP), True),
        (Match(source=PeerMatch(prefixes=(NET,))), True),
        (Match(destination=PeerMatch(prefixes=(NET,))), False),
        (Match(source=PeerMatch(not_prefixes=(NET,))), False),
        (Match(destination=PeerMatch(not_prefixes=(NET,))), True),
        (Match(destination=PeerMatch(ports=(PortRange(1, 2), PortRange(79, 81)))), True),
        (Match(source=PeerMatch(ports=(PortRange(79, 81),))), False),
        (Match(destination=PeerMatch(not_ports=(PortRange(80, 80),))), False),
        (Match(destination=PeerMatch(port_set=S)), True),
        (Match(source=PeerMatch(port_set=S)), False),
        (Match(destination=PeerMatch(not_port_sets=(S,))), False),
        (Match(source=PeerMatch(not_port_sets=(S,))), True),
    ],
)
def test_every_condition_of_a_match_has_to_hold(match: Match, *, expected: bool) -> None:
    assert is_allowed(A_TO_B, match, sets=(PORTS,)) is expected


def test_one_of_several_matches_is_enough_and_none_is_none() -> None:
    assert is_allowed(A_TO_B, Match(protocol=UDP), Match(protocol=TCP))
    assert evaluate(A_TO_B, with_ingress(Rule(name="r", action=Action.ALLOW, matches=()))).decision is Decision.DENY


@pytest.mark.parametrize(
    "found",
    [
        MemberSet(id=S, type=SetType.ADDRESSES, members=frozenset({A})),
        MemberSet(id=S, type=SetType.PREFIXES, members=frozenset({NET})),
    ],
)
def test_a_set_has_addresses_or_prefixes(found: MemberSet) -> None:
    assert is_allowed(A_TO_B, Match(source=PeerMatch(sets=(S,))), sets=(found,))
    assert not is_allowed(A_TO_B, Match(destination=PeerMatch(sets=(S,))), sets=(found,))
    assert not is_allowed(A_TO_B, Match(source=PeerMatch(not_sets=(S,))), sets=(found,))
    assert is_allowed(A_TO_B, Match(destination=PeerMatch(not_sets=(S,))), sets=(found,))


@pytest.mark.parametrize(
    "icmp, expected", [(ICMPMatch(type=8), True), (ICMPMatch(type=8, code=0), True), (ICMPMatch(type=8, code=1), False)]
)
def test_icmp_has_a_type_and_perhaps_a_code(icmp: ICMPMatch, *, expected: bool) -> None:
    ping = evolve(A_TO_B, protocol=ICMP, icmp_type=8)
    assert is_allowed(ping, Match(protocol=ICMP, icmp=icmp)) is expected
    assert is_allowed(ping, Match(protocol=ICMP, not_icmp=icmp)) is not expected
    assert not is_allowed(A_TO_B, Match(icmp=icmp))


# --- the source guard -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("destination", ["netp2", "eth0", ""])
def test_a_pod_sends_from_its_own_addresses_only(destination: str) -> None:
    packet = evolve(A_TO_B, source=B, output_interface=destination, connection=ConnectionState.ESTABLISHED)
    assert decide(packet) == (Decision.DROP, Reason.SPOOFED_SOURCE)
    assert decide(evolve(packet, input_interface="netp9")) == (Decision.DROP, Reason.UNKNOWN_INTERFACE)


def test_a_pod_sends_from_its_source_prefixes_and_is_reached_by_them() -> None:
    address = Address.parse("10.7.0.9")
    assert decide(evolve(A_TO_B, source=address)) == (Decision.ALLOW, Reason.RULE)
    back = evolve(A_TO_B, source=B, destination=address, input_interface="netp2", output_interface="netp1")
    assert decide(back) == (Decision.ALLOW, Reason.RULE)


@pytest.mark.parametrize("source", ["fe80::1", "::"])
def test_neighbour_discovery_reaches_the_host(source: str) -> None:
    packet = Packet(
        source=Address.parse(source),
        destination=Address.parse("ff02::1"),
        protocol=ICMP_V6,
        icmp_type=135,
        input_interface="netp1",
    )
    assert decide(packet) == (Decision.ALLOW, Reason.NEIGHBOUR_DISCOVERY)
    assert decide(evolve(packet, icmp_type=128)) == (Decision.DROP, Reason.SPOOFED_SOURCE)
    forwarded = evolve(packet, input_interface="netp9", output_interface="eth0")
    assert decide(forwarded) == (Decision.DROP, Reason.UNKNOWN_INTERFACE)


def test_neighbour_discovery_may_come_from_an_address_of_the_pod_but_not_as_a_router() -> None:
    own = POD_A.addresses[0]
    packet = evolve(A_TO_B, source=own, protocol=ICMP_V6, icmp_type=135, output_interface="")
    assert decide(packet) == (Decision.ALLOW, Reason.NEIGHBOUR_DISCOVERY)
    advertisement = evolve(packet, icmp_type=134)
    assert decide(advertisement)[1] is not Reason.NEIGHBOUR_DISCOVERY
    from_link = evolve(advertisement, source=Address.parse("fe80::1"))
    assert decide(from_link) == (Decision.DROP, Reason.SPOOFED_SOURCE)


def test_neighbour_discovery_reaches_and_leaves_a_host_whatever_its_endpoint_says() -> None:
    packet = Packet(
        source=Address.parse("2001:db8::1"),
        destination=Address.parse("ff02::1"),
        protocol=ICMP_V6,
        icmp_type=134,
        input_interface="eth0",
    )
    assert decide(packet) == (Decision.ALLOW, Reason.NEIGHBOUR_DISCOVERY)
    assert decide(evolve(packet, input_interface="", output_interface="eth0")) == (
        Decision.ALLOW, Reason.NEIGHBOUR_DISCOVERY,
    )  # fmt: skip


# --- forwarded --------------------------------------------------------------------------------------------------------


def test_a_packet_for_another_endpoint_than_that_of_the_interface_is_dropped() -> None:
    assert decide(evolve(A_TO_B, destination=OUTSIDE)) == (Decision.DROP, Reason.OTHER_DESTINATION)
    assert decide(evolve(A_TO_B, output_interface="netp9")) == (Decision.DROP, Reason.UNKNOWN_INTERFACE)


def test_a_pod_reaches_itself() -> None:
    pod = evolve(POD_A, ingress=(WEB,), egress=(WEB,))
    state = evolve(STATE, policies=(ActivePolicy(id=WEB),), endpoints=(pod, POD_B))
    packet = evolve(A_TO_B, destination=A, output_interface="netp1")
    assert decide(packet, state) == (Decision.ALLOW, Reason.SELF)


def test_a_packet_that_leaves_is_judged_by_egress_alone_and_one_that_comes_by_ingress_alone() -> None:
    leaving = evaluate(evolve(A_TO_B, destination=OUTSIDE, output_interface="eth0"), STATE)
    assert [step.direction for step in leaving.trace] == [Direction.EGRESS]
    coming = evaluate(evolve(A_TO_B, source=OUTSIDE, input_interface="eth0"), STATE)
    assert [step.direction for step in coming.trace] == [Direction.INGRESS]


def test_a_packet_through_the_host_without_a_pod_is_not_judged() -> None:
    packet = evolve(A_TO_B, input_interface="eth0", output_interface="eth1", connection=ConnectionState.INVALID)
    assert decide(packet) == (Decision.ALLOW, Reason.NOT_JUDGED)


@pytest.mark.parametrize(
    "connection, expected",
    [
        (ConnectionState.NEW, (Decision.DENY, Reason.NO_RULE)),
        (ConnectionState.UNTRACKED, (Decision.DENY, Reason.NO_RULE)),
        (ConnectionState.ESTABLISHED, (Decision.ALLOW, Reason.CONNECTION_ALLOWED)),
        (ConnectionState.RELATED, (Decision.ALLOW, Reason.CONNECTION_ALLOWED)),
        (ConnectionState.INVALID, (Decision.DROP, Reason.CONNECTION_INVALID)),
    ],
)
def test_connections_that_were_allowed_stay_so(connection: ConnectionState, expected: tuple[Decision, Reason]) -> None:
    assert decide(evolve(A_TO_B, connection=connection), with_ingress()) == expected


def test_invalid_packets_are_judged_like_new_ones_if_the_settings_say_so() -> None:
    state = evolve(with_ingress(), settings=PolicySettings(is_invalid_evaluated=True))
    assert decide(evolve(A_TO_B, connection=ConnectionState.INVALID), state) == (Decision.DENY, Reason.NO_RULE)
    established = evolve(A_TO_B, connection=ConnectionState.ESTABLISHED)
    assert decide(established, state) == (Decision.ALLOW, Reason.CONNECTION_ALLOWED)


def test_a_pod_sends_no_tunnel_packets_unless_the_settings_allow_it() -> None:
    vxlan, ipip = evolve(A_TO_B, protocol=UDP, destination_port=4789), evolve(A_TO_B, protocol=4)
    for packet in (vxlan, ipip):
        assert decide(packet) == (Decision.DROP, Reason.WRAPPED)
    allowing = evolve(STATE, settings=PolicySettings(allows_vxlan=True, allows_ipip=True))
    for packet in (vxlan, ipip):
        assert decide(packet, allowing) == (Decision.ALLOW, Reason.RULE)


# --- the host ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action, decision",
    [
        (EndpointToHostAction.DROP, Decision.DENY),
        (EndpointToHostAction.ACCEPT, Decision.ALLOW),
        (EndpointToHostAction.RETURN, Decision.ALLOW),
    ],
)
def test_a_setting_decides_what_a_pod_that_may_send_reaches_of_its_host(
    action: EndpointToHostAction, decision: Decision
) -> None:
    state = evolve(STATE, settings=PolicySettings(endpoint_to_host=action))
    assert decide(A_TO_HOST, state) == (decision, Reason.ENDPOINT_TO_HOST)
    isolated = evolve(state, policies=(ActivePolicy(id=WEB),), endpoints=(evolve(POD_A, egress=(WEB,)), POD_B))
    assert decide(A_TO_HOST, isolated) == (Decision.DENY, Reason.NO_RULE)
    established = evolve(A_TO_HOST, connection=ConnectionState.ESTABLISHED)
    assert decide(established, isolated) == (Decision.ALLOW, Reason.CONNECTION_ALLOWED)


def test_the_host_reaches_its_own_pods() -> None:
    packet = evolve(A_TO_B, source=OUTSIDE, input_interface="")
    assert decide(packet, with_ingress()) == (Decision.ALLOW, Reason.FROM_HOST)


@pytest.mark.parametrize("packet", [IN_TO_HOST, OUT_OF_HOST])
def test_without_a_host_endpoint_the_host_is_not_judged(packet: Packet) -> None:
    assert decide(packet) == (Decision.ALLOW, Reason.NOT_JUDGED)


def test_the_loopback_interface_is_never_judged() -> None:
    closed = evolve(STATE, host_endpoints=(ActiveHostEndpoint(name="all", interface="*"),))
    assert decide(evolve(IN_TO_HOST, input_interface="lo"), closed) == (Decision.ALLOW, Reason.LOOPBACK)
    assert decide(evolve(OUT_OF_HOST, output_interface="lo"), closed) == (Decision.ALLOW, Reason.LOOPBACK)
    assert decide(evolve(OUT_OF_HOST, output_interface=""), closed) == (Decision.ALLOW, Reason.LOOPBACK)


def test_an_endpoint_of_an_interface_comes_before_that_of_all() -> None:
    endpoints = (
        ActiveHostEndpoint(name="all", interface="*"),
        ActiveHostEndpoint(name="eth0", interface="eth0", profiles=("open",)),
    )
    state = evolve(STATE, host_endpoints=endpoints)
    assert decide(IN_TO_HOST, state) == (Decision.ALLOW, Reason.RULE)
    other = evaluate(evolve(IN_TO_HOST, input_interface="eth1"), state)
    assert (other.decision, other.trace[-1].endpoint) == (Decision.DENY, "all")
    assert decide(evolve(OUT_OF_HOST, output_interface="eth1"), state) == (Decision.DENY, Reason.NO_PROFILE_RULE)
    assert decide(OUT_OF_HOST, state) == (Decision.ALLOW, Reason.RULE)
    reply = evolve(OUT_OF_HOST, output_interface="eth1", connection=ConnectionState.ESTABLISHED)
    assert decide(reply, state) == (Decision.ALLOW, Reason.CONNECTION_ALLOWED)


def test_failsafe_ports_of_a_closed_host_are_open() -> None:
    closed = evolve(STATE, host_endpoints=(ActiveHostEndpoint(name="all", interface="*"),))
    assert decide(evolve(IN_TO_HOST, destination_port=22), closed) == (Decision.ALLOW, Reason.FAILSAFE)
    assert decide(evolve(IN_TO_HOST, destination_port=22, protocol=UDP), closed) == (
        Decision.DENY,
        Reason.NO_PROFILE_RULE,
    )
    assert decide(evolve(OUT_OF_HOST, destination_port=53, protocol=UDP), closed) == (
        Decision.ALLOW,
        Reason.FAILSAFE,
    )
    near = Failsafe(protocol=TCP, port=80, net=Prefix.parse("192.0.2.0/24"))
    state = evolve(closed, settings=PolicySettings(inbound_failsafes=(near,), outbound_failsafes=()))
    assert decide(IN_TO_HOST, state) == (Decision.ALLOW, Reason.FAILSAFE)
    assert decide(evolve(IN_TO_HOST, source=Address.parse("203.0.113.1")), state) == (
        Decision.DENY,
        Reason.NO_PROFILE_RULE,
    )
    assert decide(OUT_OF_HOST, state) == (Decision.DENY, Reason.NO_PROFILE_RULE)
