"""What the table of NAT and guards has in it."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.dataplane.filter import NO_OVERLAY, Overlay
from netplug_core.dataplane.ruleset import (
    BaseChain,
    ChainOutline,
    ChainType,
    ChangeElements,
    ElementType,
    Hook,
    NamedSet,
    ObservedTable,
    PacketTable,
    ReplaceTable,
    UnreadableObject,
)
from netplug_core.datastore.view import View
from netplug_core.reconcile.nat import (
    FORMER_TABLE,
    NET_TABLE,
    NatFacts,
    TablePlan,
    find_changed_floating,
    find_floating,
    find_nat_facts,
    find_overlay,
    find_table_change,
    has_former_rule,
    plan_table,
)
from netplug_core.records import List, Query, ReadResult, Record, Revision, Snapshot
from netplug_core.resources.fields import Metadata, PortRange, Switch
from netplug_core.resources.ippool import IPPOOL, AllowedUse, Encapsulation, IPPool, IPPoolSpec
from netplug_core.resources.node import NODE, Node, NodeBGP, NodeSpec
from netplug_core.resources.nodeconfiguration import (
    NODE_CONFIGURATION,
    NodeConfiguration,
    NodeConfigurationSpec,
    OutgoingExclusions,
)
from netplug_core.resources.workloadendpoint import IPNAT, WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.testing.clock import ManualClock
from tests.harness.rulesets import elements, rules

LOOPBACK = "loopback: iifname netp* ip daddr 127.0.0.0/8 drop"
FROM_POOLS = "outgoing: ip saddr @nat_pools4 ip daddr != @pools4"
RAW = BaseChain(ChainType.FILTER, Hook.PREROUTING, -300)


def pool(text: str, *uses: AllowedUse, nat: bool = False, is_disabled: bool = False) -> IPPool:
    allowed = uses or (AllowedUse.WORKLOAD, AllowedUse.TUNNEL)
    spec = IPPoolSpec(
        prefix=Prefix.parse(text), has_outgoing_nat=nat, allowed_uses=allowed, is_disabled=is_disabled, block_length=0
    )
    return IPPool(metadata=Metadata(name="p"), spec=spec)


def address_set(*texts: str) -> frozenset[Address]:
    return frozenset(map(Address.parse, texts))


def wrapped(text: str = "10.9.0.0/16", *, ipip: bool = False) -> IPPool:
    """A pool whose packets are wrapped."""
    made = pool(text, is_disabled=True)
    crossing, never = Encapsulation.CROSS_SUBNET, Encapsulation.NEVER
    vxlan, ip = (never, crossing) if ipip else (crossing, never)
    return evolve(made, spec=evolve(made.spec, vxlan_mode=vxlan, ipip_mode=ip))


def plan(*pools: IPPool, settings: NodeConfigurationSpec | None = None) -> PacketTable:
    """The table of a node without workloads; no problem is found."""
    facts = NatFacts(pools=pools, settings=settings or NodeConfigurationSpec())
    planned = plan_table(facts)
    assert planned.problems == ()
    return planned.table


def test_a_node_without_nat_and_tunnels_has_the_guard_of_its_loopback_alone() -> None:
    table = plan(pool("10.0.0.0/16"))
    assert (table.name, table.sets) == (NET_TABLE, ())
    assert rules(table) == [LOOPBACK]
    assert table.chains[0].base == RAW


# --- outgoing NAT -----------------------------------------------------------------------------------------------------


def test_packets_from_a_pool_with_nat_to_no_pool_are_translated() -> None:
    table = plan(pool("10.0.0.0/16", nat=True), pool("10.1.0.0/16"), pool("fd00::/64"))
    assert rules(table) == [LOOPBACK, f"{FROM_POOLS} masquerade"]
    assert table.chains[1].base == BaseChain(ChainType.NAT, Hook.POSTROUTING, 95)
    assert elements(table, "nat_pools4") == {"10.0.0.0/16"}
    assert elements(table, "pools4") == {"10.0.0.0/16", "10.1.0.0/16"}
    assert {each.name for each in table.sets} == {"pools4", "nat_pools4"}


def test_both_families_are_alike() -> None:
    table = plan(pool("10.0.0.0/16", nat=True), pool("fd00::/64", nat=True), pool("fd01::/64"))
    assert rules(table, "outgoing") == [
        f"{FROM_POOLS} masquerade",
        "outgoing: ip6 saddr @nat_pools6 ip6 daddr != @pools6 masquerade",
    ]
    assert elements(table, "pools6") == {"fd00::/64", "fd01::/64"}
    assert all(each.is_interval for each in table.sets)


def test_a_disabled_pool_exempts_its_range_and_one_for_load_balancers_does_not() -> None:
    disabled = pool("192.0.2.0/24", is_disabled=True)
    load_balancers = pool("198.51.100.0/24", AllowedUse.LOAD_BALANCER, nat=True)
    both = pool("203.0.113.0/24", AllowedUse.LOAD_BALANCER, AllowedUse.WORKLOAD)
    table = plan(pool("10.0.0.0/16", nat=True), disabled, load_balancers, both)
    assert elements(table, "pools4") == {"10.0.0.0/16", "192.0.2.0/24", "203.0.113.0/24"}
    assert elements(table, "nat_pools4") == {"10.0.0.0/16"}


def test_the_prefixes_of_a_set_do_not_overlap() -> None:
    inside = (pool("10.0.7.0/24", nat=True), pool("10.0.0.0/17"), pool("10.0.255.0/24"))
    table = plan(*inside, pool("10.0.0.0/16"), pool("10.1.0.0/16"), pool("10.0.0.0/16", nat=True))
    assert elements(table, "pools4") == {"10.0.0.0/16", "10.1.0.0/16"}
    assert elements(table, "nat_pools4") == {"10.0.0.0/16"}


def test_a_configured_address_takes_the_place_of_that_of_the_interface() -> None:
    settings = NodeConfigurationSpec(nat_outgoing_address=Address.parse("192.0.2.9"))
    table = plan(pool("10.0.0.0/16", nat=True), pool("fd00::/64", nat=True), settings=settings)
    assert rules(table, "outgoing") == [
        f"{FROM_POOLS} snat to 192.0.2.9",
        "outgoing: ip6 saddr @nat_pools6 ip6 daddr != @pools6 masquerade",
    ]


def test_configured_ports_are_those_of_tcp_and_udp() -> None:
    settings = NodeConfigurationSpec(
        nat_outgoing_address=Address.parse("192.0.2.9"), nat_port_range=PortRange(2000, 2999)
    )
    assert rules(plan(pool("10.0.0.0/16", nat=True), settings=settings), "outgoing") == [
        f"{FROM_POOLS} l4proto udp snat to 192.0.2.9:2000-2999",
        f"{FROM_POOLS} l4proto tcp snat to 192.0.2.9:2000-2999",
        f"{FROM_POOLS} snat to 192.0.2.9",
    ]


@pytest.mark.parametrize("text, shown", [("eth0", "eth0"), ("eth+", "eth*"), ("eth*", "eth*")])
def test_only_some_interfaces_may_be_translated(text: str, shown: str) -> None:
    settings = NodeConfigurationSpec(nat_outgoing_interfaces=text)
    table = plan(pool("10.0.0.0/16", nat=True), settings=settings)
    assert rules(table, "outgoing") == [f"{FROM_POOLS} oifname {shown} masquerade"]


def test_nodes_may_be_excluded() -> None:
    settings = NodeConfigurationSpec(nat_outgoing_exclusions=OutgoingExclusions.POOLS_AND_NODES)
    nodes = address_set("192.0.2.1", "192.0.2.2", "2001:db8::1")
    facts = NatFacts(pools=(pool("10.0.0.0/16", nat=True),), settings=settings, node_addresses=nodes)
    table = plan_table(facts).table
    assert rules(table, "outgoing") == [f"{FROM_POOLS} ip daddr != @nodes4 masquerade"]
    assert elements(table, "nodes4") == {"192.0.2.1", "192.0.2.2"}
    assert elements(table, "nodes6") == {"2001:db8::1"}
    default = evolve(facts, settings=NodeConfigurationSpec(nat_outgoing_exclusions=OutgoingExclusions.POOLS))
    assert rules(plan_table(default).table, "outgoing") == [f"{FROM_POOLS} masquerade"]


@pytest.mark.parametrize(
    "families, address, missing",
    [
        ({Family.IPV4, Family.IPV6}, None, []),
        ({Family.IPV4}, None, ["IPv6"]),
        ({Family.IPV6}, None, ["IPv4"]),
        ({Family.IPV6}, "192.0.2.9", []),
        (set(), "192.0.2.9", ["IPv6"]),
    ],
)
def test_a_node_without_an_address_of_a_family_may_not_translate(
    families: set[Family], address: str | None, missing: list[str]
) -> None:
    settings = NodeConfigurationSpec(nat_outgoing_address=None if address is None else Address.parse(address))
    pools = (pool("10.0.0.0/16", nat=True), pool("fd00::/64", nat=True))
    planned = plan_table(NatFacts(pools=pools, settings=settings, own_families=frozenset(families)))
    assert [(each.message, each.cause) for each in planned.problems] == [
        (
            f"packets that leave the pools over {family} may be dropped: the kernel finds no address for them",
            f"this node has no {family} address, and a pool has natOutgoing",
        )
        for family in missing
    ]


# --- tunnels ----------------------------------------------------------------------------------------------------------


def test_only_nodes_send_to_the_port_of_vxlan_and_it_is_not_tracked() -> None:
    settings = NodeConfigurationSpec(external_nodes=(Prefix.parse("198.51.100.0/24"), Prefix.parse("198.51.100.7/32")))
    nodes = address_set("192.0.2.1", "2001:db8::1")
    table = plan_table(NatFacts(pools=(wrapped(),), settings=settings, node_addresses=nodes)).table
    saddr = [f"{protocol} saddr @{name}" for protocol, name in (("ip", "nodes4"), ("ip", "external4"))]
    saddr += [f"{protocol} saddr @{name}" for protocol, name in (("ip6", "nodes6"), ("ip6", "external6"))]
    assert rules(table) == [
        LOOPBACK,
        *(f"untracked-in: udp dport 4789 {each} notrack" for each in saddr),
        *(f"untracked-out: udp dport 4789 {each.replace('saddr', 'daddr')} notrack" for each in saddr),
        *(f"from-nodes: {each} accept" for each in saddr),
        "from-nodes: drop",
        "wrapped: udp dport 4789 goto from-nodes",
        *rules(table, "outgoing"),
    ]
    bases = {chain.name: chain.base for chain in table.chains}
    assert bases["untracked-in"] == RAW
    assert bases["untracked-out"] == BaseChain(ChainType.FILTER, Hook.OUTPUT, -300)
    assert bases["wrapped"] == BaseChain(ChainType.FILTER, Hook.INPUT, -10)
    assert bases["from-nodes"] is None
    assert [elements(table, name) for name in ("nodes4", "nodes6")] == [{"192.0.2.1"}, {"2001:db8::1"}]
    assert [elements(table, name) for name in ("external4", "external6")] == [{"198.51.100.0/24"}, set()]


def test_the_nodes_own_packets_into_a_tunnel_get_its_address() -> None:
    table = plan(wrapped(), wrapped("fd09::/64"))
    into = "outgoing: oifname @tunnels fib saddr . oif type != local fib saddr type local"
    assert rules(table, "outgoing") == [f"{into} l4proto udp masquerade to :4790-65535", f"{into} masquerade"]
    assert elements(table, "tunnels") == {"vxlan.netplug", "vxlan6.netplug"}


def test_ipip_is_guarded_too_and_has_no_port() -> None:
    table = plan(wrapped(ipip=True))
    assert rules(table, "wrapped") == ["wrapped: l4proto 4 goto from-nodes"]
    assert [chain.name for chain in table.chains] == ["loopback", "from-nodes", "wrapped", "outgoing"]
    assert rules(table, "outgoing") == [
        "outgoing: oifname @tunnels fib saddr . oif type != local fib saddr type local masquerade"
    ]
    both = plan(wrapped(), wrapped(ipip=True))
    assert rules(both, "wrapped") == ["wrapped: udp dport 4789 goto from-nodes", "wrapped: l4proto 4 goto from-nodes"]


@pytest.mark.parametrize(
    "port, configured, udp",
    [
        (4789, None, "4790-65535"),
        (60000, None, "1024-59999"),
        (500, None, None),
        (65535, None, "1024-65534"),
        (4789, PortRange(4000, 5000), "4000-4788"),
        (4789, PortRange(4789, 5000), "4790-5000"),
        (4789, PortRange(5000, 6000), "5000-6000"),
        (4789, PortRange(4789, 4789), "4789-4789"),
    ],
)
def test_with_vxlan_udp_leaves_from_other_ports(port: int, configured: PortRange | None, udp: str | None) -> None:
    settings = NodeConfigurationSpec(nat_port_range=configured, vxlan_port=port)
    table = plan(pool("10.0.0.0/16", nat=True), wrapped(), settings=settings)
    found = [rule for rule in rules(table, "outgoing") if "nat_pools4" in rule]
    ports = f" to :{configured.first}-{configured.last}" if configured else ""
    assert found == [
        *([f"{FROM_POOLS} l4proto udp masquerade to :{udp}"] if udp else []),
        *([f"{FROM_POOLS} l4proto tcp masquerade{ports}"] if configured else []),
        f"{FROM_POOLS} masquerade",
    ]


@pytest.mark.parametrize(
    "settings, devices",
    [
        (NodeConfigurationSpec(is_vxlan_enabled=True), {"vxlan.netplug", "vxlan6.netplug", "ipip.netplug"}),
        (NodeConfigurationSpec(is_vxlan_enabled=False), {"ipip.netplug"}),
        (NodeConfigurationSpec(is_ipip_enabled=False), {"vxlan.netplug"}),
        (NodeConfigurationSpec(is_ipip_enabled=True), {"vxlan.netplug", "ipip.netplug"}),
    ],
)
def test_settings_of_tunnels_win_over_pools(settings: NodeConfigurationSpec, devices: set[str]) -> None:
    assert elements(plan(wrapped(), wrapped(ipip=True), settings=settings), "tunnels") == devices


# --- floating addresses -----------------------------------------------------------------------------------------------


def with_nats(name: str, addresses: tuple[str, ...], *nats: tuple[str, str]) -> WorkloadEndpoint:
    spec = WorkloadEndpointSpec(
        orchestrator="k8s",
        node="node-1",
        endpoint="eth0",
        addresses=tuple(map(Address.parse, addresses)),
        ip_nats=tuple(IPNAT(internal=Address.parse(one), external=Address.parse(other)) for one, other in nats),
    )
    return WorkloadEndpoint(metadata=Metadata(name=name, namespace="shop"), spec=spec)


WEB = with_nats("web", ("10.0.0.5", "fd00::5"), ("10.0.0.5", "203.0.113.1"), ("fd00::5", "2001:db8::5"))
ENABLED = NodeConfigurationSpec(floating_ips=Switch.ENABLED)


def floating(*endpoints: WorkloadEndpoint, nodes: frozenset[Address] = frozenset()) -> tuple[set[str], list[str]]:
    """What of IPv4 and IPv6 is translated, and the causes of problems."""
    planned = plan_table(NatFacts(settings=ENABLED, endpoints=endpoints, node_addresses=nodes))
    assert {problem.message for problem in planned.problems} <= {"a floating address is not programmed"}
    found = elements(planned.table, "floating4") | elements(planned.table, "floating6")
    return found, [problem.cause for problem in planned.problems]


def test_packets_to_a_floating_address_go_to_the_workload() -> None:
    table = plan_table(NatFacts(settings=ENABLED, endpoints=(WEB,))).table
    assert rules(table) == [
        LOOPBACK,
        "floating-in: dnat to ip daddr map @floating4",
        "floating-in: dnat to ip6 daddr map @floating6",
        "floating-out: dnat to ip daddr map @floating4",
        "floating-out: dnat to ip6 daddr map @floating6",
        "outgoing: snat to ip saddr . ip daddr map @hairpin4",
        "outgoing: snat to ip6 saddr . ip6 daddr map @hairpin6",
    ]
    assert elements(table, "floating4") == {"203.0.113.1 : 10.0.0.5"}
    assert elements(table, "hairpin4") == {"10.0.0.5 . 10.0.0.5 : 203.0.113.1"}
    assert elements(table, "floating6") == {"2001:db8::5 : fd00::5"}
    assert elements(table, "hairpin6") == {"fd00::5 . fd00::5 : 2001:db8::5"}
    bases = {chain.name: chain.base for chain in table.chains}
    assert bases["floating-in"] == BaseChain(ChainType.NAT, Hook.PREROUTING, -105)
    assert bases["floating-out"] == BaseChain(ChainType.NAT, Hook.OUTPUT, -105)


def test_each_floating_address_leads_to_the_host_end_of_its_workload() -> None:
    ended = evolve(WEB, spec=evolve(WEB.spec, interface_name="netp1"))
    expected = {Address.parse("203.0.113.1"): "netp1", Address.parse("2001:db8::5"): "netp1"}
    assert find_floating(NatFacts(settings=ENABLED, endpoints=(ended,))) == expected
    assert find_floating(NatFacts(settings=ENABLED, endpoints=(WEB,))) == {}, "it has no interface of the host"
    assert find_floating(NatFacts(endpoints=(ended,))) == {}


def test_the_lowest_of_several_is_the_one_that_a_workload_sees_itself_by() -> None:
    web = with_nats("web", ("10.0.0.5",), ("10.0.0.5", "203.0.113.9"), ("10.0.0.5", "203.0.113.1"))
    table = plan_table(NatFacts(settings=ENABLED, endpoints=(web,))).table
    assert elements(table, "floating4") == {"203.0.113.9 : 10.0.0.5", "203.0.113.1 : 10.0.0.5"}
    assert elements(table, "hairpin4") == {"10.0.0.5 . 10.0.0.5 : 203.0.113.1"}


def test_without_the_setting_nothing_is_translated_and_that_is_said() -> None:
    planned = plan_table(NatFacts(endpoints=(WEB,)))
    assert rules(planned.table) == [LOOPBACK]
    assert [problem.cause for problem in planned.problems] == [
        f"{address} of shop/web: floatingIPs of NodeConfiguration is not Enabled"
        for address in ("203.0.113.1", "2001:db8::5")
    ]


def test_of_two_workloads_with_one_floating_address_the_lower_one_has_it() -> None:
    low = with_nats("low", ("10.0.0.9",), ("10.0.0.9", "203.0.113.1"))
    high = with_nats("high", ("10.0.0.10",), ("10.0.0.10", "203.0.113.1"))
    expected = (
        {"203.0.113.1 : 10.0.0.9"},
        ["203.0.113.1 of shop/high: shop/low has it, whose address is lower"],
    )
    assert floating(low, high) == floating(high, low) == expected


def test_a_mapping_that_two_endpoints_name_is_one() -> None:
    twin = with_nats("twin", ("10.0.0.5",), ("10.0.0.5", "203.0.113.1"))
    assert floating(twin, evolve(twin, metadata=Metadata(name="other", namespace="shop"))) == (
        {"203.0.113.1 : 10.0.0.5"},
        [],
    )


@pytest.mark.parametrize(
    "pair, reason",
    [
        (("10.0.0.5", "10.0.0.7"), "10.0.0.7 of shop/web: it is the address of shop/db"),
        (("10.0.0.5", "192.0.2.1"), "192.0.2.1 of shop/web: it is the address of a node"),
        (
            ("10.0.0.9", "203.0.113.1"),
            "203.0.113.1 of shop/web: it stands for 10.0.0.9, which is no address of the workload",
        ),
        (("10.0.0.5", "2001:db8::5"), "2001:db8::5 of shop/web: it stands for 10.0.0.5, which is of another family"),
    ],
)
def test_a_floating_address_that_is_anothers_is_not_programmed(pair: tuple[str, str], reason: str) -> None:
    web, database = with_nats("web", ("10.0.0.5",), pair), with_nats("db", ("10.0.0.7",))
    assert floating(web, database, nodes=address_set("192.0.2.1")) == (set(), [reason])


# --- the facts of a node ----------------------------------------------------------------------------------------------


def node(name: str, ipv4: str | None = None, ipv6: str | None = None) -> Node:
    one, other = (None if text is None else InterfaceAddress.parse(text) for text in (ipv4, ipv6))
    bgp = NodeBGP(ipv4_address=one, ipv6_address=other)
    return Node(metadata=Metadata(name=name), spec=NodeSpec(bgp=None if bgp == NodeBGP() else bgp))


def view_of(*values: Node | IPPool | NodeConfiguration) -> View:
    """A view that has listed nodes, pools and configurations."""
    kinds = {NODE: Node, IPPOOL: IPPool, NODE_CONFIGURATION: NodeConfiguration}
    view = View(clock=ManualClock(), uncached_kinds=frozenset())
    results: dict[Query, ReadResult] = {}
    for kind, cls in kinds.items():
        found = sorted((each for each in values if isinstance(each, cls)), key=lambda each: each.metadata.name)
        records = (Record(kind.key(each.metadata.name), each, Revision("1")) for each in found)
        results[List(kind)] = ReadResult(tuple(records))
    view.follow_lists(Snapshot(results, dict.fromkeys(kinds, Revision("1"))), now_s=0.0)
    return view


def test_the_facts_of_a_node_are_in_the_datastore() -> None:
    one = pool("10.0.0.0/16", nat=True)
    configuration = NodeConfiguration(metadata=Metadata(name="node.n1"), spec=ENABLED)
    nodes = (node("n1", "192.0.2.1/24"), node("n2", "192.0.2.2/24", "2001:db8::2/64"), node("n3"))
    view = view_of(*nodes, one, configuration)
    assert find_nat_facts(view, "n1", [WEB]) == NatFacts(
        pools=(one,),
        settings=ENABLED,
        own_families=frozenset({Family.IPV4}),
        node_addresses=address_set("192.0.2.1", "192.0.2.2", "2001:db8::2"),
        endpoints=(WEB,),
    )
    assert find_nat_facts(view, "n2").own_families == frozenset(Family)
    assert find_nat_facts(view, "n9").own_families == frozenset()


def test_the_wrapped_packets_that_a_node_receives_come_from_nodes_and_external_ones() -> None:
    nodes, external = address_set("192.0.2.1", "2001:db8::1"), (Prefix.parse("198.51.100.0/24"),)
    settings = NodeConfigurationSpec(vxlan_port=4790, external_nodes=external)
    facts = NatFacts(pools=(pool("10.0.0.0/16"),), settings=settings, node_addresses=nodes)
    assert find_overlay(facts) == NO_OVERLAY
    vxlan = evolve(facts, pools=(wrapped(),))
    assert find_overlay(vxlan) == Overlay(vxlan_port=4790, nodes=nodes, external=external)
    ipip = evolve(facts, pools=(wrapped(ipip=True),))
    assert find_overlay(ipip) == Overlay(has_ipip=True, nodes=nodes, external=external)


# --- changes ----------------------------------------------------------------------------------------------------------


def observed(table: PacketTable) -> ObservedTable:
    return ObservedTable(name=table.name, sets=table.sets, chains=tuple(chain.outline for chain in table.chains))


def test_without_facts_the_table_of_an_earlier_process_stays_if_it_has_its_guard() -> None:
    table = plan_table(NatFacts(settings=ENABLED, endpoints=(WEB,))).table
    assert find_table_change(None, observed(table)) is None
    guard = ReplaceTable(plan())
    assert find_table_change(None, None) == guard
    assert find_table_change(None, evolve(observed(table), chains=observed(table).chains[1:])) == guard


def test_another_pool_or_workload_is_a_change_of_elements() -> None:
    one = NatFacts(pools=(pool("10.0.0.0/16", nat=True),), settings=ENABLED)
    both = evolve(one, pools=(*one.pools, pool("10.1.0.0/16", nat=True)), endpoints=(WEB,))
    planned = plan_table(both)
    change = find_table_change(planned, observed(plan_table(one).table))
    assert isinstance(change, ChangeElements)
    added = {each.name: {str(element) for element in each.elements} for each in change.added}
    assert added["pools4"] == added["nat_pools4"] == {"10.1.0.0/16"}
    assert added["floating4"] == {"203.0.113.1 : 10.0.0.5"}
    assert change.deleted == ()
    assert find_table_change(planned, observed(planned.table)) is None


def test_floating_addresses_that_lead_elsewhere_are_named() -> None:
    other = with_nats("other", ("10.0.0.6",), ("10.0.0.6", "203.0.113.1"))
    web, moved = (plan_table(NatFacts(settings=ENABLED, endpoints=(one,))) for one in (WEB, other))
    assert find_changed_floating(web, observed(web.table)) == frozenset()
    assert find_changed_floating(moved, observed(web.table)) == address_set("203.0.113.1", "2001:db8::5")
    assert find_changed_floating(web, None) == address_set("203.0.113.1", "2001:db8::5")
    assert find_changed_floating(TablePlan(plan()), observed(moved.table)) == address_set("203.0.113.1")


# --- the table of a former release ------------------------------------------------------------------------------------

FORMER = ChainOutline(name="prerouting", base=RAW, marks=("",))


def test_the_table_of_a_former_release_is_known_by_its_only_rule() -> None:
    assert has_former_rule(ObservedTable(name=FORMER_TABLE, chains=(FORMER,)))


@pytest.mark.parametrize(
    "found",
    [
        None,
        ObservedTable(name=FORMER_TABLE),
        ObservedTable(name=FORMER_TABLE, chains=(FORMER, ChainOutline(name="to-pod"))),
        ObservedTable(name=FORMER_TABLE, chains=(ChainOutline(name="prerouting", base=RAW, marks=("policy",)),)),
        ObservedTable(name=FORMER_TABLE, chains=(ChainOutline(name="raw-prerouting", base=RAW, marks=("",)),)),
        ObservedTable(
            name=FORMER_TABLE, chains=(FORMER,), sets=(NamedSet(name="s", types=(ElementType.IPV4_ADDRESS,)),)
        ),
        ObservedTable(name=FORMER_TABLE, chains=(FORMER,), unreadable=(UnreadableObject("map", "from-wl"),)),
    ],
)
def test_policys_own_table_is_not_taken_for_it(found: ObservedTable | None) -> None:
    assert not has_former_rule(found)
