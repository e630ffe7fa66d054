"""Policies, endpoints and host endpoints as chains and sets: the rules as nftables writes them."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane.filter import (
    FilterRenderer,
    Overlay,
    closed_endpoint,
    closed_policy,
    guard_table,
    render_state,
)
from netplug_core.dataplane.ruleset import NamedSet, PacketTable
from netplug_core.policy.model import (
    ICMP,
    ICMP_V6,
    TCP,
    UDP,
    Action,
    ActiveHostEndpoint,
    ActivePolicy,
    ActiveProfile,
    DenyAction,
    Failsafe,
    ICMPMatch,
    LocalEndpoint,
    Match,
    MemberSet,
    PeerMatch,
    PolicyId,
    PolicyKind,
    PolicySettings,
    PolicyState,
    PortMember,
    Rule,
    SetType,
    set_id,
)
from netplug_core.resources.fields import PortRange
from netplug_core.resources.nodeconfiguration import EndpointToHostAction
from tests.harness.policy_states import endpoint, policy_id
from tests.harness.rulesets import elements, rules

WEB, DB = policy_id("web"), policy_id("db")
CLIENTS, NETS, NAMED = set_id("app == 'a'"), set_id("nets"), set_id("named")
SETS = (
    MemberSet(
        id=CLIENTS,
        type=SetType.ADDRESSES,
        members=frozenset({Address.parse("10.0.0.1"), Address.parse("fd00::1")}),
    ),
    MemberSet(id=NETS, type=SetType.PREFIXES, members=frozenset({Prefix.parse("10.7.0.0/16")})),
    MemberSet(id=NAMED, type=SetType.PORTS, members=frozenset({PortMember(Address.parse("10.0.0.2"), TCP, 8080)})),
)


def chain_of(table: PacketTable, letters: str) -> str:
    """The only chain of a sort, such as pi."""
    (name,) = (chain.name for chain in table.chains if chain.name.startswith(f"{letters}-"))
    return name


def set_of(table: PacketTable, start: str) -> NamedSet:
    (found,) = (each for each in table.sets if each.name.startswith(start))
    return found


def with_ingress(*matches: Match, action: Action = Action.ALLOW, settings: PolicySettings | None = None) -> PolicyState:
    """An endpoint with a policy that has one rule."""
    rule = Rule(name="NetworkPolicy x/web #0", action=action, matches=matches)
    policy = ActivePolicy(id=WEB, ingress=(rule,))
    used = policy.set_ids
    return PolicyState(
        settings=settings or PolicySettings(),
        policies=(policy,),
        sets=tuple(each for each in SETS if each.id in used),
        endpoints=(endpoint(2, ingress=(WEB,)),),
    )


def ingress_rules(*matches: Match, action: Action = Action.ALLOW, settings: PolicySettings | None = None) -> list[str]:
    """The rules of the policy's chain, without its name."""
    table = render_state(with_ingress(*matches, action=action, settings=settings))
    name = chain_of(table, "pi")
    return [line.removeprefix(f"{name}: ") for line in rules(table, name)]


def test_the_guard_lets_no_packet_of_a_workload_pass() -> None:
    table = guard_table()
    assert rules(table, "raw-prerouting") == [
        "raw-prerouting: iifname != netp* accept",
        "raw-prerouting: iifname . ip saddr @src-v4 accept",
        "raw-prerouting: iifname . ip saddr @srcnet-v4 accept",
        "raw-prerouting: iifname . ip6 saddr @src-v6 accept",
        "raw-prerouting: iifname . ip6 saddr @srcnet-v6 accept",
        "raw-prerouting: icmpv6 type { 130, 131, 132, 133, 135, 136, 143 } ip6 saddr fe80::/10 accept",
        "raw-prerouting: icmpv6 type { 130, 131, 132, 133, 135, 136, 143 } ip6 saddr ::/128 accept",
        "raw-prerouting: counter drop",
    ]
    assert rules(table, "filter-forward") == [
        "filter-forward: iifname != netp* oifname != netp* accept",
        "filter-forward: ct state { established, related } accept",
        "filter-forward: ct state { invalid } counter drop",
        "filter-forward: iifname vmap @from-wl",
        "filter-forward: iifname netp* counter drop",
        "filter-forward: goto egress-ok",
    ]
    assert rules(table, "filter-input") == [
        "filter-input: iifname netp* goto wl-to-host",
        "filter-input: iifname lo accept",
        "filter-input: icmpv6 type { 130, 131, 132, 133, 134, 135, 136, 137, 143 } accept",
        "filter-input: iifname vmap @from-hep",
        "filter-input: jump hep-any-in",
    ]
    assert rules(table, "filter-postrouting")[:1] == ["filter-postrouting: iif != 0 accept"]
    assert rules(table, "to-pod")[-1] == "to-pod: counter drop"
    assert rules(table, "egress-ok") == [
        "egress-ok: oif 0 goto to-host", "egress-ok: oifname netp* goto to-pod", "egress-ok: accept",
    ]  # fmt: skip
    assert rules(table, "hep-any-in") == []
    assert {chain.name: (chain.base.hook.value, chain.base.priority) for chain in table.chains if chain.base} == {
        "raw-prerouting": ("prerouting", -300),
        "filter-forward": ("forward", 10),
        "filter-input": ("input", 10),
        "filter-postrouting": ("postrouting", -150),
    }
    assert all(not each.elements for each in table.sets)


def test_an_endpoint_has_its_addresses_and_two_chains() -> None:
    prefixes = tuple(map(Prefix.parse, ("10.7.0.0/24", "10.7.0.8/29", "fd07::/64")))
    one = endpoint(1, source_prefixes=prefixes, egress=(DB,), profiles=("kns.x",))
    state = PolicyState(policies=(ActivePolicy(id=DB),), profiles=(ActiveProfile(name="kns.x"),), endpoints=(one,))
    table = render_state(state)
    assert elements(table, "src-v4") == {"netp1 . 10.0.0.1"}
    assert elements(table, "src-v6") == {"netp1 . fd00::1"}
    assert elements(table, "srcnet-v4") == {"netp1 . 10.7.0.0/24"}
    assert elements(table, "srcnet-v6") == {"netp1 . fd07::/64"}
    assert elements(table, "from-wl") == {"netp1 : jump fw-netp1"}
    assert elements(table, "to-wl") == {"netp1 : jump tw-netp1"}
    assert rules(table, "fw-netp1") == [
        "fw-netp1: oifname netp1 accept",
        "fw-netp1: l4proto 17 th dport 4789 counter drop",
        "fw-netp1: l4proto 4 counter drop",
        f"fw-netp1: jump {chain_of(table, 'po')}",
        "fw-netp1: counter drop",
    ]
    assert rules(table, "tw-netp1") == [
        "tw-netp1: iifname netp1 accept",
        f"tw-netp1: jump {chain_of(table, 'ri')}",
        "tw-netp1: counter drop",
    ]


def test_a_missing_profile_and_one_without_rules_deny() -> None:
    state = PolicyState(
        profiles=(ActiveProfile(name="kns.x", is_missing=True),), endpoints=(endpoint(1, profiles=("kns.x",)),)
    )
    assert rules(render_state(state), chain_of(render_state(state), "ri")) == []
    assert rules(render_state(state), "tw-netp1")[-1] == "tw-netp1: counter drop"


def test_allow_is_accept_on_the_last_leg_and_goes_on_before_it() -> None:
    rule = Rule(name="r", action=Action.ALLOW, matches=(Match(),))
    state = PolicyState(
        policies=(ActivePolicy(id=WEB, ingress=(rule,), egress=(rule,)),),
        endpoints=(endpoint(1, ingress=(WEB,), egress=(WEB,)),),
    )
    table = render_state(state)
    assert rules(table, chain_of(table, "pi")) == [f"{chain_of(table, 'pi')}: accept"]
    assert rules(table, chain_of(table, "po")) == [f"{chain_of(table, 'po')}: goto egress-ok"]


SET_4, SET_6 = f"s4-{CLIENTS}", f"s6-{CLIENTS}"


@pytest.mark.parametrize(
    "match, expected",
    [
        (Match(), ["accept"]),
        (Match(family=Family.IPV6), ["nfproto ipv6 accept"]),
        (Match(protocol=TCP), ["l4proto 6 accept"]),
        (Match(not_protocol=UDP), ["l4proto != 17 accept"]),
        (
            Match(protocol=TCP, destination=PeerMatch(ports=(PortRange(80, 90),))),
            ["l4proto 6 th dport 80:90 accept"],
        ),
        (
            Match(protocol=TCP, source=PeerMatch(not_ports=(PortRange(80, 80), PortRange(90, 95)))),
            ["l4proto 6 th sport != 80:80 th sport != 90:95 accept"],
        ),
        (
            Match(source=PeerMatch(sets=(CLIENTS,))),
            [f"ip saddr @{SET_4} accept", f"ip6 saddr @{SET_6} accept"],
        ),
        (
            Match(family=Family.IPV4, source=PeerMatch(not_sets=(CLIENTS, NETS))),
            [f"nfproto ipv4 ip saddr != @{SET_4} ip saddr != @n4-{NETS} accept"],
        ),
        (
            Match(family=Family.IPV4, source=PeerMatch(prefixes=(Prefix.parse("192.0.2.0/24"),))),
            ["nfproto ipv4 ip saddr 192.0.2.0/24 accept"],
        ),
        (
            Match(family=Family.IPV4, source=PeerMatch(prefixes=(Prefix.parse("0.0.0.0/0"),))),
            ["nfproto ipv4 accept"],
        ),
        (
            Match(
                family=Family.IPV4,
                source=PeerMatch(
                    prefixes=(Prefix.parse("192.0.2.0/24"),),
                    not_prefixes=(Prefix.parse("192.0.2.8/29"), Prefix.parse("192.0.2.32/32")),
                ),
            ),
            ["nfproto ipv4 ip saddr 192.0.2.0/24 ip saddr != 192.0.2.8/29 ip saddr != 192.0.2.32/32 accept"],
        ),
        (Match(family=Family.IPV6, source=PeerMatch(not_prefixes=(Prefix.parse("::/0"),))), []),
        (
            Match(protocol=TCP, destination=PeerMatch(port_set=NAMED)),
            [
                f"l4proto 6 ip daddr . l4proto . th dport @p4-{NAMED} accept",
                f"l4proto 6 ip6 daddr . l4proto . th dport @p6-{NAMED} accept",
            ],
        ),
        (
            Match(family=Family.IPV4, protocol=TCP, destination=PeerMatch(not_port_sets=(NAMED,))),
            [f"nfproto ipv4 l4proto 6 ip daddr . l4proto . th dport != @p4-{NAMED} accept"],
        ),
        (
            Match(family=Family.IPV4, protocol=ICMP, icmp=ICMPMatch(type=8)),
            ["nfproto ipv4 l4proto 1 icmp type 8 accept"],
        ),
        (
            Match(family=Family.IPV6, protocol=ICMP_V6, icmp=ICMPMatch(type=1, code=4), not_icmp=ICMPMatch(type=2)),
            ["nfproto ipv6 l4proto 58 icmpv6 type 1 icmpv6 code 4 icmpv6 type != 2 accept"],
        ),
        (
            Match(family=Family.IPV4, protocol=ICMP, not_icmp=ICMPMatch(type=3, code=4)),
            [
                "nfproto ipv4 l4proto 1 icmp type != 3 accept",
                "nfproto ipv4 l4proto 1 icmp type 3 icmp code != 4 accept",
            ],
        ),
    ],
)
def test_a_match_is_rules(match: Match, expected: list[str]) -> None:
    assert ingress_rules(match) == expected


def test_several_literals_are_a_set_with_a_name() -> None:
    ports = (PortRange(80, 90), PortRange(85, 95), PortRange(443, 443), PortRange(444, 444))
    prefixes = tuple(map(Prefix.parse, ("10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24")))
    match = Match(
        family=Family.IPV4, protocol=TCP, source=PeerMatch(prefixes=prefixes), destination=PeerMatch(ports=ports)
    )
    table = render_state(with_ingress(match))
    port_set, prefix_set = set_of(table, "q-"), set_of(table, "n4-")
    assert elements(table, port_set.name) == {"80:95", "443:444"}
    assert elements(table, prefix_set.name) == {"10.0.0.0/8", "192.0.2.0/24"}
    assert ingress_rules(match) == [
        f"nfproto ipv4 l4proto 6 ip saddr @{prefix_set.name} th dport @{port_set.name} accept"
    ]


def test_more_than_eight_exceptions_are_a_set_with_a_name() -> None:
    many = tuple(Prefix.parse(f"10.0.{number}.0/24") for number in range(9))
    ports = tuple(PortRange(number, number) for number in range(10, 28, 2))
    match = Match(
        family=Family.IPV4,
        protocol=UDP,
        source=PeerMatch(not_prefixes=many),
        destination=PeerMatch(not_ports=ports),
    )
    table = render_state(with_ingress(match))
    assert ingress_rules(match) == [
        (
            f"nfproto ipv4 l4proto 17 ip saddr != @{set_of(table, 'n4-').name} th dport != @{set_of(table, 'q-').name}"
            " accept"
        )
    ]
    assert len(set_of(table, "q-").elements) == 9


def test_members_are_elements_of_the_set_of_their_family() -> None:
    table = render_state(with_ingress(Match(protocol=TCP, destination=PeerMatch(sets=(CLIENTS, NETS), port_set=NAMED))))
    assert (elements(table, SET_4), elements(table, SET_6)) == ({"10.0.0.1"}, {"fd00::1"})
    assert (elements(table, f"n4-{NETS}"), elements(table, f"n6-{NETS}")) == ({"10.7.0.0/16"}, set())
    assert (elements(table, f"p4-{NAMED}"), elements(table, f"p6-{NAMED}")) == ({"10.0.0.2 . 6 . 8080"}, set())
    only_v4 = render_state(with_ingress(Match(family=Family.IPV4, source=PeerMatch(sets=(CLIENTS,)))))
    assert SET_6 not in {each.name for each in only_v4.sets}


def test_deny_drops_or_rejects() -> None:
    rejecting = PolicySettings(deny_action=DenyAction.REJECT)
    assert ingress_rules(Match(), action=Action.DENY) == ["counter drop"]
    assert ingress_rules(Match(), action=Action.DENY, settings=rejecting) == ["counter goto deny"]
    table = render_state(with_ingress(Match(), settings=rejecting))
    assert rules(table, "deny") == ["deny: l4proto 6 reject with tcp reset", "deny: reject with icmpx"]
    assert rules(table, "to-host") == ["to-host: counter goto deny"]
    assert rules(table, "raw-prerouting")[-1] == "raw-prerouting: counter drop"


@pytest.mark.parametrize(
    "settings, expected",
    [
        (PolicySettings(), 'log prefix "netplug-packet NetworkPolicy x/web: "'),
        (PolicySettings(log_prefix="%t %k %n %p"), 'log prefix "default NetworkPolicy web x/web: "'),
        (
            PolicySettings(log_prefix="%n", log_rate="10/minute", log_burst=7),
            'limit rate 10/minute burst 7 packets log prefix "web: "',
        ),
        (PolicySettings(log_prefix="%n" + "x" * 200), f'log prefix "web{"x" * 121}: "'),
    ],
)
def test_a_log_rule_logs_and_goes_on(settings: PolicySettings, expected: str) -> None:
    assert ingress_rules(Match(), action=Action.LOG, settings=settings) == [expected]


def test_workloads_reach_their_host_as_the_setting_says() -> None:
    table = render_state(PolicyState(settings=PolicySettings(endpoint_to_host=EndpointToHostAction.RETURN)))
    assert rules(table, "to-host") == ["to-host: accept"]
    assert rules(guard_table(), "to-host") == ["to-host: counter drop"]


def test_settings_of_workloads() -> None:
    settings = PolicySettings(allows_vxlan=True, allows_ipip=True, is_invalid_evaluated=True, interface_prefix="wl")
    table = render_state(PolicyState(settings=settings, endpoints=(endpoint(1),)))
    assert rules(table, "fw-netp1") == ["fw-netp1: oifname netp1 accept", "fw-netp1: counter drop"]
    assert rules(table, "filter-forward")[:2] == [
        "filter-forward: iifname != wl* oifname != wl* accept",
        "filter-forward: ct state { established, related } accept",
    ]
    assert not any("invalid" in line for line in rules(table))


def test_interfaces_of_workloads_may_have_several_prefixes() -> None:
    table = render_state(PolicyState(settings=PolicySettings(interface_prefix="netp,wl")))
    assert rules(table, "raw-prerouting")[0] == "raw-prerouting: iifname != netp* iifname != wl* accept"
    assert rules(table, "filter-input")[:2] == [
        "filter-input: iifname netp* goto wl-to-host", "filter-input: iifname wl* goto wl-to-host",
    ]  # fmt: skip
    lines = rules(table, "filter-forward")
    assert lines[0] == ("filter-forward: iifname != netp* iifname != wl* oifname != netp* oifname != wl* accept")
    assert lines[-3:-1] == [
        "filter-forward: iifname netp* counter drop", "filter-forward: iifname wl* counter drop",
    ]  # fmt: skip


def hosts(settings: PolicySettings) -> PolicyState:
    rule = Rule(name="r", action=Action.ALLOW, matches=(Match(),))
    deny = evolve(rule, action=Action.DENY)
    return PolicyState(
        settings=settings,
        policies=(ActivePolicy(id=WEB, ingress=(rule,), egress=(deny, rule)),),
        profiles=(ActiveProfile(name="p", ingress=(rule,), egress=(rule,)),),
        host_endpoints=(
            ActiveHostEndpoint(name="any", interface="*", profiles=("p",)),
            ActiveHostEndpoint(name="uplink", interface="eth0:1", ingress=(WEB,), egress=(WEB,)),
        ),
    )


def test_a_host_endpoint_has_failsafe_ports_before_its_policies() -> None:
    failsafes = (
        Failsafe(protocol=TCP, port=22),
        Failsafe(protocol=TCP, port=23, net=Prefix.parse("192.0.2.0/24")),
        Failsafe(protocol=UDP, port=53, net=Prefix.parse("::/0")),
    )
    table = render_state(hosts(PolicySettings(inbound_failsafes=failsafes, outbound_failsafes=failsafes[1:2])))
    assert rules(table, "failsafe-in") == [
        "failsafe-in: l4proto 6 th dport 22 accept",
        "failsafe-in: ip saddr 192.0.2.0/24 l4proto 6 th dport 23 accept",
        "failsafe-in: nfproto ipv6 l4proto 17 th dport 53 accept",
    ]
    assert rules(table, "failsafe-out") == ["failsafe-out: ip daddr 192.0.2.0/24 l4proto 6 th dport 23 accept"]
    assert rules(table, "hep-any-in") == [
        "hep-any-in: ct state { established, related } accept",
        "hep-any-in: ct state { invalid } counter drop",
        "hep-any-in: jump failsafe-in",
        f"hep-any-in: jump {chain_of(table, 'ri')}",
        "hep-any-in: counter drop",
    ]
    (element,) = elements(table, "to-hep")
    chain = element.removeprefix("eth0:1 : jump ")
    assert chain.startswith("th-")
    assert chain != "th-eth0:1"
    assert rules(table, chain)[2:] == [
        f"{chain}: jump failsafe-out", f"{chain}: jump {chain_of(table, 'po')}", f"{chain}: counter drop",
    ]  # fmt: skip


def test_what_a_host_sends_is_never_rejected() -> None:
    table = render_state(hosts(PolicySettings(deny_action=DenyAction.REJECT)))
    of_policy, of_profile = chain_of(table, "ph"), chain_of(table, "rh")
    assert rules(table, of_policy) == [f"{of_policy}: counter drop", f"{of_policy}: accept"]
    assert rules(table, "hep-any-out")[-2:] == [f"hep-any-out: jump {of_profile}", "hep-any-out: counter drop"]
    assert rules(table, "hep-any-in")[-1] == "hep-any-in: counter goto deny"


def test_wrapped_packets_come_from_nodes_alone() -> None:
    overlay = Overlay(
        vxlan_port=4789,
        has_ipip=True,
        nodes=frozenset({Address.parse("192.0.2.1"), Address.parse("2001:db8::1")}),
        external=(Prefix.parse("198.51.100.0/24"), Prefix.parse("198.51.100.0/28")),
    )
    table = render_state(PolicyState(), overlay)
    assert rules(table, "filter-input")[:5] == [
        "filter-input: l4proto 17 th dport 4789 ip saddr @nodes-v4 accept",
        "filter-input: l4proto 17 th dport 4789 ip saddr @external-v4 accept",
        "filter-input: l4proto 17 th dport 4789 ip6 saddr @nodes-v6 accept",
        "filter-input: l4proto 17 th dport 4789 ip6 saddr @external-v6 accept",
        "filter-input: l4proto 17 th dport 4789 counter drop",
    ]
    assert rules(table, "filter-input")[9] == "filter-input: l4proto 4 counter drop"
    assert (elements(table, "nodes-v4"), elements(table, "nodes-v6")) == ({"192.0.2.1"}, {"2001:db8::1"})
    assert elements(table, "external-v4") == {"198.51.100.0/24"}


def test_a_long_name_is_cut_in_the_comment_of_a_rule() -> None:
    long = PolicyId(PolicyKind.NETWORK_POLICY, "n" * 63, "p" * 253)
    state = PolicyState(policies=(ActivePolicy(id=long),), endpoints=(endpoint(1, ingress=(long,)),))
    marks = {rule.mark for chain in render_state(state).chains for rule in chain.rules}
    assert max(map(len, marks)) == 128


def test_what_cannot_be_programmed_is_closed() -> None:
    one = endpoint(1, ingress=(WEB,), profiles=("p",))
    closed = closed_endpoint(one)
    assert (closed.interface, closed.id, closed.addresses, closed.ingress, closed.profiles) == (
        "netp1", one.id, (), (), (),
    )  # fmt: skip
    rule = Rule(name="r", action=Action.ALLOW, matches=(Match(),))
    assert closed_policy(ActivePolicy(id=WEB, ingress=(rule,))) == ActivePolicy(id=WEB)


def test_a_renderer_keeps_what_has_not_changed() -> None:
    renderer = FilterRenderer()
    state = with_ingress(Match(source=PeerMatch(sets=(CLIENTS,))))
    before = renderer.render(state)
    other: LocalEndpoint = endpoint(3)
    after = renderer.render(evolve(state, endpoints=(*state.endpoints, other)))
    kept = {id(chain) for chain in before.chains}
    assert [chain.name for chain in after.chains if id(chain) not in kept] == ["fw-netp3", "tw-netp3"]
    assert {id(each) for each in before.sets if each.name == SET_4} < {id(each) for each in after.sets}
    assert renderer.render(state) == before
    assert renderer.render(evolve(state, policies=(closed_policy(state.policies[0]),), sets=())) != before
