"""What a small node enforces, drawn: few endpoints, policies and sets, so that they meet; and packets between them."""

from __future__ import annotations

from hypothesis import strategies as st

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.policy.model import (
    ALL_INTERFACES,
    ICMP,
    ICMP_V6,
    TCP,
    UDP,
    Action,
    ActiveHostEndpoint,
    ActivePolicy,
    ActiveProfile,
    ConnectionState,
    DenyAction,
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
    Rule,
    SetId,
    SetType,
)
from netplug_core.resources.fields import PortRange
from netplug_core.resources.nodeconfiguration import EndpointToHostAction

__all__ = ["PACKETS", "STATES", "endpoint", "histories", "policy_id"]

_NUMBERS = range(1, 4)
_V4 = [Address.parse(f"10.0.0.{number}") for number in (1, 2, 3, 9)]
_V6 = [Address.parse(f"fd00::{number}") for number in (1, 2, 3, 9)]
_PREFIXES = {
    Family.IPV4: [Prefix.parse(text) for text in ("10.0.0.0/31", "10.0.0.2/32", "10.0.0.8/30", "0.0.0.0/0")],
    Family.IPV6: [Prefix.parse(text) for text in ("fd00::/127", "fd00::2/128", "fd00::8/125", "::/0")],
}
_SETS = {
    SetId("a" * 16): SetType.ADDRESSES,
    SetId("b" * 16): SetType.ADDRESSES,
    SetId("c" * 16): SetType.PREFIXES,
    SetId("d" * 16): SetType.PORTS,
}
_ADDRESS_SETS = [each for each, kind in _SETS.items() if kind is not SetType.PORTS]
_PORT_SET = SetId("d" * 16)
_PORTS = [PortRange(80, 80), PortRange(85, 90), PortRange(443, 443)]
_PROFILES = ["kns.x", "kns.y"]


def policy_id(name: str) -> PolicyId:
    """A policy of the namespace x."""
    return PolicyId(PolicyKind.NETWORK_POLICY, "x", name)


_POLICIES = [policy_id(name) for name in "abc"]


def endpoint(number: int, **members: object) -> LocalEndpoint:
    """The workload endpoint of a number, with an address of each family."""
    given = {"addresses": (_V4[number - 1], _V6[number - 1]), **members}
    return LocalEndpoint(id=EndpointId("x", f"pod{number}"), interface=f"netp{number}", **given)  # type: ignore[arg-type]


# --- rules ------------------------------------------------------------------------------------------------------------


@st.composite
def _peers(draw: st.DrawFn, family: Family | None, *, has_ports: bool) -> PeerMatch:
    prefixes = (
        st.just(()) if family is None else st.lists(st.sampled_from(_PREFIXES[family][:3]), unique=True, max_size=2)
    )
    exceptions = (
        st.just(()) if family is None else st.lists(st.sampled_from(_PREFIXES[family]), unique=True, max_size=2)
    )
    ports = st.lists(st.sampled_from(_PORTS), unique=True, max_size=2) if has_ports else st.just(())
    return PeerMatch(
        sets=tuple(draw(st.lists(st.sampled_from(_ADDRESS_SETS), max_size=1))),
        not_sets=tuple(draw(st.lists(st.sampled_from(_ADDRESS_SETS), max_size=1))),
        prefixes=tuple(draw(prefixes)),
        not_prefixes=tuple(draw(exceptions)),
        ports=tuple(draw(ports)),
        not_ports=tuple(draw(st.lists(st.sampled_from(_PORTS), max_size=1) if has_ports else st.just(()))),
        port_set=draw(st.sampled_from([None, None, _PORT_SET])) if has_ports else None,
        not_port_sets=tuple(draw(st.lists(st.just(_PORT_SET), max_size=1) if has_ports else st.just(()))),
    )


@st.composite
def _matches(draw: st.DrawFn) -> Match:
    family = draw(st.sampled_from([None, Family.IPV4, Family.IPV6]))
    if family is not None and draw(st.integers(0, 3)) == 0:
        icmp = ICMPMatch(type=draw(st.sampled_from([8, 128])), code=draw(st.sampled_from([None, 0])))
        is_negated = draw(st.booleans())
        protocol = ICMP if family is Family.IPV4 else ICMP_V6
        return Match(
            family=family, protocol=protocol, icmp=None if is_negated else icmp, not_icmp=icmp if is_negated else None
        )
    protocol_number = draw(st.sampled_from([None, TCP, UDP]))
    has_ports = protocol_number is not None
    return Match(
        family=family,
        protocol=protocol_number,
        not_protocol=None if has_ports else draw(st.sampled_from([None, None, TCP])),
        source=draw(_peers(family, has_ports=has_ports)),
        destination=draw(_peers(family, has_ports=has_ports)),
    )


def _rules(sort: str) -> st.SearchStrategy[tuple[Rule, ...]]:
    rule = st.builds(
        Rule,
        name=st.integers(0, 3).map(lambda number: f"{sort} #{number}"),
        action=st.sampled_from([Action.ALLOW, Action.ALLOW, Action.DENY, Action.LOG]),
        matches=st.lists(_matches(), max_size=2).map(tuple),
    )
    return st.lists(rule, max_size=2).map(tuple)


# --- states -----------------------------------------------------------------------------------------------------------


_APPLYING = st.lists(st.sampled_from(_POLICIES), max_size=2, unique=True).map(tuple)
_NAMED_PROFILES = st.lists(st.sampled_from(_PROFILES), max_size=2, unique=True).map(tuple)


_SETTINGS = st.builds(
    PolicySettings,
    endpoint_to_host=st.sampled_from([EndpointToHostAction.DROP, EndpointToHostAction.ACCEPT]),
    inbound_failsafes=st.sampled_from([(), (Failsafe(protocol=TCP, port=80, net=_PREFIXES[Family.IPV4][0]),)]),
    outbound_failsafes=st.sampled_from([(), (Failsafe(protocol=UDP, port=80),)]),
    deny_action=st.sampled_from(DenyAction),
    is_invalid_evaluated=st.booleans(),
    allows_vxlan=st.booleans(),
    allows_ipip=st.booleans(),
)


@st.composite
def _states(draw: st.DrawFn, settings: PolicySettings) -> PolicyState:
    chosen = draw(st.lists(st.sampled_from(_NUMBERS), unique=True, max_size=3).map(sorted))
    endpoints = tuple(
        endpoint(
            number,
            addresses=draw(st.sampled_from([(_V4[number - 1], _V6[number - 1]), (_V4[3], _V6[3])])),
            source_prefixes=draw(st.sampled_from([(), (_PREFIXES[Family.IPV4][2], _PREFIXES[Family.IPV6][2])])),
            ingress=draw(_APPLYING),
            egress=draw(_APPLYING),
            profiles=draw(_NAMED_PROFILES),
        )
        for number in chosen
    )
    hosts = tuple(
        ActiveHostEndpoint(
            name=name,
            interface=interface,
            ingress=draw(_APPLYING),
            egress=draw(_APPLYING),
            profiles=draw(_NAMED_PROFILES),
        )
        for name, interface in (("any", ALL_INTERFACES), ("uplink", "eth0"))
        if draw(st.booleans())
    )
    judged: tuple[LocalEndpoint | ActiveHostEndpoint, ...] = (*endpoints, *hosts)
    named = {each for one in judged for each in (*one.ingress, *one.egress)}
    policies = tuple(
        ActivePolicy(id=each, ingress=draw(_rules(str(each))), egress=draw(_rules(str(each)))) for each in sorted(named)
    )
    profiles = tuple(
        ActiveProfile(name=each, ingress=draw(_rules(f"Profile {each}")), egress=draw(_rules(f"Profile {each}")))
        for each in sorted({each for one in judged for each in one.profiles})
    )
    ruling: tuple[ActivePolicy | ActiveProfile, ...] = (*policies, *profiles)
    used = frozenset(each for one in ruling for each in one.set_ids)
    sets = tuple(draw(_member_sets(each)) for each in sorted(used))
    return PolicyState(
        settings=settings, policies=policies, profiles=profiles, sets=sets, endpoints=endpoints, host_endpoints=hosts
    )


@st.composite
def _member_sets(draw: st.DrawFn, identity: SetId) -> MemberSet:
    addresses = [*_V4, *_V6]
    members: st.SearchStrategy[object]
    match _SETS[identity]:
        case SetType.ADDRESSES:
            members = st.sampled_from(addresses)
        case SetType.PREFIXES:
            members = st.sampled_from([*_PREFIXES[Family.IPV4][:3], *_PREFIXES[Family.IPV6][:3]])
        case SetType.PORTS:
            members = st.builds(PortMember, st.sampled_from(addresses), st.sampled_from([TCP, UDP]), st.just(80))
    found = draw(st.frozensets(members, max_size=4))
    return MemberSet(id=identity, type=_SETS[identity], members=found)  # type: ignore[arg-type]


STATES = _SETTINGS.flatmap(_states)
"""What a node enforces."""


def histories(size: int) -> st.SearchStrategy[list[PolicyState]]:
    """States one after another, with the same settings."""
    return _SETTINGS.flatmap(lambda settings: st.lists(_states(settings), min_size=size, max_size=size))


# --- packets ----------------------------------------------------------------------------------------------------------

_INTERFACES = ["", "netp1", "netp2", "netp3", "netp4", "eth0", "eth1", "lo"]


@st.composite
def _packets(draw: st.DrawFn) -> Packet:
    family = draw(st.sampled_from(Family))
    addresses = _V4 if family is Family.IPV4 else [*_V6, Address.parse("fe80::1")]
    from_interface = draw(st.sampled_from(_INTERFACES))
    to_interface = draw(st.sampled_from(_INTERFACES if from_interface else _INTERFACES[1:]))
    return Packet(
        source=draw(st.sampled_from(addresses)),
        destination=draw(st.sampled_from(addresses)),
        protocol=draw(st.sampled_from([TCP, TCP, UDP, 4, ICMP if family is Family.IPV4 else ICMP_V6])),
        source_port=draw(st.sampled_from([80, 40_000])),
        destination_port=draw(st.sampled_from([80, 86, 443, 4789])),
        icmp_type=draw(st.sampled_from([8, 128, 134, 135])),
        icmp_code=draw(st.sampled_from([0, 1])),
        input_interface=from_interface,
        output_interface=to_interface,
        connection=draw(st.sampled_from(ConnectionState)),
    )


PACKETS = st.lists(_packets(), min_size=12, max_size=12)
"""Packets, most of which go where there is something."""
