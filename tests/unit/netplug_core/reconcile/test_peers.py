"""With whom a node speaks BGP, and which routes are exchanged."""

from collections.abc import Iterable, Mapping
from typing import cast

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.dataplane.bgp import (
    AddedCommunity,
    BgpPlan,
    BgpSession,
    BgpStatus,
    BgpUse,
    FilterRule,
    NextHop,
    Prepended,
    Priority,
    RouteFilter,
    SessionStatus,
)
from netplug_core.reconcile.peers import (
    LARGE_MESH,
    PATIENCE_S,
    NoBgp,
    PeerFacts,
    Peering,
    SessionHistory,
    find_hopeless,
    find_secrets,
    find_use,
    plan_peers,
    routing_mode,
)
from netplug_core.resources.bgp import (
    BGPConfiguration,
    BGPFilter,
    BGPPeer,
    BindMode,
    ClusterRoutingMode,
    FilterAction,
    MatchOperator,
    PeerType,
)
from netplug_core.resources.fields import LogSeverity, Metadata
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.node import Node, NodeBGP, NodeInterface, NodeSpec, NodeStatus
from tests.harness.resources import resource_of

PASSWORD = {"secretKeyRef": {"name": "bgp", "key": "password"}}


def node(number: int, *, six: bool = False, as_number: int | None = None, cluster_id: str = "", **labels: str) -> Node:
    """The node ``nNUMBER``, at 10.240.0.1NUMBER."""
    bgp = NodeBGP(
        ipv4_address=InterfaceAddress.parse(f"10.240.0.1{number}/24"),
        ipv6_address=InterfaceAddress.parse(f"fd10::1{number}/64") if six else None,
        as_number=as_number,
        route_reflector_cluster_id=cluster_id,
    )
    return Node(metadata=Metadata(name=f"n{number}", labels=tuple(sorted(labels.items()))), spec=NodeSpec(bgp=bgp))


def with_labels(known: Node, labels: Mapping[str, str]) -> Node:
    return evolve(known, metadata=evolve(known.metadata, labels=tuple(labels.items())))


def only_six(number: int) -> Node:
    bgp = NodeBGP(ipv6_address=InterfaceAddress.parse(f"fd10::1{number}/64"))
    return Node(metadata=Metadata(name=f"n{number}"), spec=NodeSpec(bgp=bgp))


def pool(cidr: str, /, **spec: object) -> IPPool:
    return cast("IPPool", resource_of("IPPool", "pool", {"cidr": cidr, **spec}))


def peer(name: str = "router", /, **spec: object) -> BGPPeer:
    return cast("BGPPeer", resource_of("BGPPeer", name, spec))


def configuration(name: str = "default", /, **spec: object) -> BGPConfiguration:
    return cast("BGPConfiguration", resource_of("BGPConfiguration", name, spec))


def bgp_filter(name: str, /, **spec: object) -> BGPFilter:
    return cast("BGPFilter", resource_of("BGPFilter", name, spec))


PLAIN = pool("10.91.0.0/16")
VXLAN = pool("10.92.0.0/16", vxlanMode="CrossSubnet")
IPIP = pool("10.93.0.0/16", ipipMode="Always")
ROUTER: Mapping[str, object] = {"peerIP": "192.0.2.1", "asNumber": 65001}
NO_MESH = configuration(nodeToNodeMeshEnabled=False)


def facts(
    *nodes: Node,
    peers: Iterable[BGPPeer] = (),
    configurations: Iterable[BGPConfiguration] = (),
    filters: Iterable[BGPFilter] = (),
    pools: Iterable[IPPool] = (PLAIN,),
    passwords: Mapping[tuple[str, str], str] | None = None,
) -> PeerFacts:
    """What is known on ``n1``."""
    return PeerFacts(
        node="n1",
        nodes=nodes,
        pools=tuple(pools),
        configurations=tuple(configurations),
        peers=tuple(peers),
        filters=tuple(filters),
        passwords=passwords or {},
    )


def plan_of(peering: Peering) -> BgpPlan:
    assert isinstance(peering.outcome, BgpPlan)
    return peering.outcome


def planned(known: PeerFacts) -> BgpPlan:
    """The plan, without a problem."""
    peering = plan_peers(known)
    assert peering.problems == ()
    return plan_of(peering)


def sessions_of(known: PeerFacts) -> dict[str, BgpSession]:
    """The sessions by their names, without a problem."""
    if plan_peers(known).outcome == NoBgp():
        return {}
    return {one.name: one for one in planned(known).sessions}


def said(peering: Peering) -> list[tuple[str, str]]:
    return [(one.message, one.cause) for one in peering.problems]


# --- whether there is BGP ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pools, settings, is_needed",
    [
        ([], {}, False),
        ([VXLAN], {}, False),
        ([PLAIN], {}, True),
        ([IPIP], {}, True),
        ([VXLAN, IPIP], {}, True),
        ([PLAIN], {"clusterRoutingMode": "Node"}, False),
        ([IPIP], {"clusterRoutingMode": "Node"}, True),
        ([pool("10.94.0.0/16", allowedUses=["LoadBalancer"])], {}, False),
        ([pool("10.94.0.0/16", disabled=True)], {}, True),
    ],
)
def test_a_pool_without_vxlan_needs_a_daemon(
    pools: list[IPPool], settings: Mapping[str, object], *, is_needed: bool
) -> None:
    peering = plan_peers(facts(node(1), node(2), pools=pools, configurations=[configuration(**settings)]))
    assert isinstance(peering.outcome, BgpPlan if is_needed else NoBgp)
    assert peering.problems == ()


def test_a_node_that_has_no_other_one_to_speak_with_needs_none() -> None:
    assert plan_peers(facts(node(1), pools=[PLAIN])).outcome == NoBgp()
    assert plan_peers(facts(node(1), node(2), pools=[PLAIN], configurations=[NO_MESH])).outcome == NoBgp()


def test_a_peer_of_the_node_needs_a_daemon() -> None:
    with_peer = facts(node(1), node(2), peers=[peer(**ROUTER, node="n1")], pools=[VXLAN])
    assert set(sessions_of(with_peer)) == {"Node4_192_0_2_1", "Mesh4_10_240_0_12"}
    of_another = facts(node(1), node(2), peers=[peer(**ROUTER, node="n2")], pools=[VXLAN])
    assert plan_peers(of_another).outcome == NoBgp()


def test_a_node_without_an_address_waits() -> None:
    without = Node(metadata=Metadata(name="n1"))
    assert plan_peers(facts(without)).outcome is None
    assert said(plan_peers(facts(without))) == [("no BGP on the node n1", "no address of it is registered")]
    assert said(plan_peers(facts(node(2)))) == [("no BGP on the node n1", "it is not registered")]
    assert find_secrets(facts(node(2))) == frozenset()


def test_the_plan_has_the_addresses_of_the_interfaces_of_its_own_node_in_whatever_order() -> None:
    texts = ("10.240.0.11", "10.9.0.1", "fd10::99")
    found = [NodeInterface(name=f"eth{n}", addresses=(Address.parse(text),)) for n, text in enumerate(texts)]
    plans = []
    for interfaces in (found, found[::-1]):
        own = node(1)
        plans.append(planned(facts(evolve(own, spec=evolve(own.spec, interfaces=tuple(interfaces))), node(2))))
    assert [str(one) for one in plans[0].interface_addresses] == ["10.9.0.1", "10.240.0.11", "fd10::99"]
    assert plans[0] == plans[1]


def test_the_whole_cluster_has_one_routing_mode() -> None:
    own = configuration("node.n1", listenPort=178)
    assert routing_mode([]) is routing_mode([own, configuration()]) is ClusterRoutingMode.BGP
    assert routing_mode([own, configuration(clusterRoutingMode="Node")]) is ClusterRoutingMode.NODE


# --- the mesh ---------------------------------------------------------------------------------------------------------


def test_every_two_nodes_have_a_session_of_each_family_that_both_have() -> None:
    found = sessions_of(facts(node(1, six=True), node(2, six=True), node(3), only_six(4)))
    assert sorted(found) == ["Mesh4_10_240_0_12", "Mesh4_10_240_0_13", "Mesh6_fd10__12", "Mesh6_fd10__14"]
    assert found["Mesh4_10_240_0_12"] == BgpSession(
        name="Mesh4_10_240_0_12",
        peer="n2",
        address=Address.parse("10.240.0.12"),
        port=179,
        local_as=64512,
        peer_as=64512,
        source=Address.parse("10.240.0.11"),
        is_passive=True,
    )
    assert found["Mesh6_fd10__12"].source == Address.parse("fd10::11")


def test_one_end_connects() -> None:
    nodes = [node(1), node(2)]
    ends = [plan_of(plan_peers(evolve(facts(*nodes), node=name))).sessions for name in ("n1", "n2")]
    assert [end[0].is_passive for end in ends] == [True, False]


def test_reflectors_and_nodes_of_a_cluster_without_a_mesh_are_not_in_it() -> None:
    assert sessions_of(facts(node(1), node(2), configurations=[NO_MESH])) == {}
    assert sessions_of(facts(node(1), node(2, cluster_id="224.0.0.1"))) == {}
    assert sessions_of(facts(node(1, cluster_id="224.0.0.1"), node(2))) == {}


def test_what_is_no_cluster_id_makes_no_reflector() -> None:
    assert set(sessions_of(facts(node(1), node(2, cluster_id="one"), node(3, cluster_id="0.0.0.0")))) == {
        "Mesh4_10_240_0_12",
        "Mesh4_10_240_0_13",
    }


def test_two_nodes_with_one_address_have_no_session_with_each_other() -> None:
    twin = evolve(node(1), metadata=Metadata(name="n2"))
    assert sessions_of(facts(node(1), twin)) == {}


def test_the_as_and_the_port_are_those_of_the_node_or_else_of_the_cluster() -> None:
    settings = [
        configuration(asNumber=64600, listenPort=1790),
        configuration("node.n3", listenPort=1791),
        configuration("node.n1", listenPort=1792),
    ]
    known = facts(node(1), node(2), node(3, as_number=65003), configurations=settings)
    found = sessions_of(known)
    assert {name: (one.local_as, one.peer_as, one.port) for name, one in found.items()} == {
        "Mesh4_10_240_0_12_port_1790": (64600, 64600, 1790),
        "Mesh4_10_240_0_13_port_1791": (64600, 65003, 1791),
    }
    assert planned(known).listen_port == 1792


def test_the_mesh_has_a_password_and_a_restart_time() -> None:
    settings = [configuration(nodeMeshPassword=PASSWORD, nodeMeshMaxRestartTime="2m5s")]
    known = facts(node(1), node(2), configurations=settings, passwords={("bgp", "password"): "s3cret"})
    (session,) = sessions_of(known).values()
    assert (session.password, session.restart_s) == ("s3cret", 125)
    assert find_secrets(known) == {("bgp", "password")}


def test_a_large_mesh_is_named() -> None:
    nodes = [
        evolve(node(1), metadata=Metadata(name=f"n{number}"), spec=NodeSpec(bgp=NodeBGP(ipv4_address=held)))
        for number, held in enumerate(
            (InterfaceAddress.parse(f"10.240.0.{number + 1}/24") for number in range(LARGE_MESH)), start=1
        )
    ]
    peering = plan_peers(facts(*nodes))
    assert len(plan_of(peering).sessions) == LARGE_MESH - 1
    cause = "100 nodes, each of which has a session with every other one; use route reflectors"
    assert said(peering) == [("the mesh of BGP sessions is large", cause)]


# --- peers with an address --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scope, labels, has_session",
    [
        ({}, {}, True),
        ({"node": "n1"}, {}, True),
        ({"node": "n2"}, {}, False),
        ({"nodeSelector": "rack == 'r1'"}, {"rack": "r1"}, True),
        ({"nodeSelector": "rack == 'r1'"}, {"rack": "r2"}, False),
    ],
)
def test_a_peer_is_for_some_nodes(scope: Mapping[str, object], labels: Mapping[str, str], *, has_session: bool) -> None:
    found = sessions_of(facts(with_labels(node(1), labels), peers=[peer(**ROUTER, **scope)]))
    assert bool(found) is has_session


def test_a_session_with_an_address() -> None:
    (session,) = sessions_of(facts(node(1), peers=[peer(**ROUTER)])).values()
    assert session == BgpSession(
        name="Global4_192_0_2_1",
        peer="router",
        address=Address.parse("192.0.2.1"),
        port=179,
        local_as=64512,
        peer_as=65001,
        source=Address.parse("10.240.0.11"),
    )


def test_a_peer_may_say_how_the_session_is() -> None:
    asked = peer(
        peerIP="192.0.2.1:1790",
        asNumber=65001,
        localASNumber=64700,
        sourceAddress="None",
        maxRestartTime="5m",
        keepaliveTime="40s",
        ttlSecurity=2,
        reachableBy="10.240.0.1",
        numAllowedLocalASNumbers=3,
        nextHopMode="Self",
        password=PASSWORD,
    )
    known = facts(node(1, as_number=64600), peers=[asked], passwords={("bgp", "password"): "p"})
    (session,) = sessions_of(known).values()
    assert session == BgpSession(
        name="Global4_192_0_2_1_port_1790",
        peer="router",
        address=Address.parse("192.0.2.1"),
        port=1790,
        local_as=64700,
        peer_as=65001,
        source=None,
        password="p",  # noqa: S106  # no password
        hold_s=120,
        keepalive_s=40,
        restart_s=300,
        ttl_hops=2,
        allowed_local_as=3,
        next_hop=NextHop.SELF,
        gateway=Address.parse("10.240.0.1"),
    )


@pytest.mark.parametrize("text, seconds", [("", 120), ("0", 120), ("100ms", 1), ("90.6s", 91), ("2h", 4095)])
def test_durations_are_whole_seconds_of_twelve_bits(text: str, seconds: int) -> None:
    (session,) = sessions_of(facts(node(1), peers=[peer(**ROUTER, maxRestartTime=text)])).values()
    assert session.restart_s == seconds


@pytest.mark.parametrize(
    "spec, as_number, next_hop",
    [
        ({}, 65001, NextHop.AUTO),
        ({"nextHopMode": "Auto", "keepOriginalNextHop": False}, 65001, NextHop.AUTO),
        ({"nextHopMode": "Keep"}, 65001, NextHop.KEEP),
        ({"keepOriginalNextHop": True}, 65001, NextHop.KEEP),
        ({"keepOriginalNextHop": True}, 64512, NextHop.AUTO),
        ({"nextHopMode": "Self"}, 64512, NextHop.SELF_FOR_EXTERNAL),
    ],
)
def test_within_an_as_no_node_is_the_next_hop_of_anothers_routes(
    spec: Mapping[str, object], as_number: int, next_hop: NextHop
) -> None:
    (session,) = sessions_of(facts(node(1), peers=[peer(peerIP="192.0.2.1", asNumber=as_number, **spec)])).values()
    assert session.next_hop is next_hop


def test_a_peer_that_is_a_node_listens_where_that_node_does() -> None:
    known = facts(
        node(1),
        node(2),
        peers=[peer(peerIP="10.240.0.12", asNumber=64512)],
        configurations=[configuration(listenPort=1790)],
    )
    assert set(sessions_of(known)) == {"Global4_10_240_0_12_port_1790"}  # in place of the session of the mesh


def test_a_node_has_no_session_with_itself() -> None:
    assert sessions_of(facts(node(1), peers=[peer(peerIP="10.240.0.11", asNumber=64512)])) == {}


def test_a_node_without_an_address_of_the_family_has_no_session() -> None:
    peering = plan_peers(facts(node(1), peers=[peer(peerIP="[fd00::1]:1790", asNumber=65001)]))
    assert peering.outcome == NoBgp()
    cause = "n1 has no address of the family of [fd00::1]:1790"
    assert said(peering) == [("BGPPeer(router): no session", cause)]


# --- peers that are nodes ---------------------------------------------------------------------------------------------

REFLECTOR = {"peerSelector": "has(reflector)"}


def test_clients_have_a_session_with_reflectors_and_reflectors_with_clients() -> None:
    nodes = [node(1, cluster_id="224.0.0.1", reflector="yes"), node(2), node(3)]
    known = facts(*nodes, peers=[peer(**REFLECTOR)], configurations=[NO_MESH])
    of_reflector = sessions_of(known)
    assert {name: one.is_reflector_client for name, one in of_reflector.items()} == {
        "Reverse4_10_240_0_12": True,
        "Reverse4_10_240_0_13": True,
    }
    assert planned(known).cluster_id == Address.parse("224.0.0.1")
    of_client = sessions_of(evolve(known, node="n2"))
    assert {name: one.is_reflector_client for name, one in of_client.items()} == {"Global4_10_240_0_11": False}


def test_reflectors_of_one_cluster_are_no_clients_of_each_other() -> None:
    nodes = [node(1, cluster_id="224.0.0.1", reflector="yes"), node(2, cluster_id="224.0.0.1", reflector="yes")]
    nodes.append(node(3, cluster_id="224.0.0.2", reflector="yes"))
    found = sessions_of(facts(*nodes, peers=[peer(**REFLECTOR)], configurations=[NO_MESH]))
    assert [one.is_reflector_client for _name, one in sorted(found.items())] == [False, True]


def test_the_other_end_has_no_session_where_peering_is_manual() -> None:
    nodes = [node(1, reflector="yes"), node(2)]
    known = facts(*nodes, peers=[peer(**REFLECTOR, reversePeering="Manual")], configurations=[NO_MESH])
    assert sessions_of(known) == {}
    assert set(sessions_of(evolve(known, node="n2"))) == {"Global4_10_240_0_11"}


def test_the_other_end_expects_the_as_of_the_session() -> None:
    nodes = [node(1, reflector="yes"), node(2)]
    asked = peer(**REFLECTOR, nodeSelector="!has(reflector)", localASNumber=64700)
    known = facts(*nodes, peers=[asked], configurations=[NO_MESH])
    ends = [sessions_of(evolve(known, node=name)) for name in ("n1", "n2")]
    assert [(one.name, one.local_as, one.peer_as) for end in ends for one in end.values()] == [
        ("Reverse4_10_240_0_12", 64512, 64700),
        ("Node4_10_240_0_11", 64700, 64512),
    ]


def test_what_is_asked_for_beats_what_follows_and_all_nodes_beat_some() -> None:
    nodes = [node(1, reflector="yes"), node(2, reflector="yes")]
    asked = [peer("all", **REFLECTOR, ttlSecurity=1), peer("some", **REFLECTOR, node="n1", ttlSecurity=2)]
    (session,) = sessions_of(facts(*nodes, peers=reversed(asked))).values()
    assert (session.name, session.ttl_hops) == ("Global4_10_240_0_12", 1)


# --- passwords --------------------------------------------------------------------------------------------------------


def test_a_session_whose_password_cannot_be_read_is_not_made() -> None:
    known = facts(node(1), peers=[peer(**ROUTER, password=PASSWORD)])
    peering = plan_peers(known)
    assert plan_of(peering).sessions == ()
    cause = "the member password of the Secret bgp cannot be read, and is its password"
    assert said(peering) == [("BGPPeer(router): no session with 192.0.2.1", cause)]


@pytest.mark.parametrize("password", ["", 'a"b', "a\\b", "a\nb", "a\x00b", "é" * 41])
def test_a_password_that_a_daemon_cannot_take_is_refused(password: str) -> None:
    known = facts(node(1), peers=[peer(**ROUTER, password=PASSWORD)], passwords={("bgp", "password"): password})
    peering = plan_peers(known)
    assert plan_of(peering).sessions == ()
    ((message, cause),) = said(peering)
    assert message == "BGPPeer(router): no session with 192.0.2.1"
    rule = "a password has 1 to 80 bytes, no '\"', no '\\' and no line breaks"
    assert cause == f"the member password of the Secret bgp is not accepted: {rule}"


def test_no_password_is_shown() -> None:
    known = facts(node(1), peers=[peer(**ROUTER, password=PASSWORD)], passwords={("bgp", "password"): "s3cret"})
    assert "s3cret" not in repr(known) + repr(plan_peers(known))


# --- filters ----------------------------------------------------------------------------------------------------------


def test_a_peer_names_filters_in_order() -> None:
    filters = [bgp_filter("edge"), bgp_filter("a.b"), bgp_filter("a-b"), bgp_filter("unused"), bgp_filter("n" * 80)]
    names = ["edge", "a-b", "a.b", "n" * 80]
    plan = planned(facts(node(1), peers=[peer(**ROUTER, filters=names)], filters=filters))
    (session,) = plan.sessions
    assert session.filters[0] == "filter4_edge"
    assert len(set(session.filters)) == len(names)
    assert [one.startswith("filter4_a_b_") for one in session.filters] == [False, True, True, False]
    assert max(map(len, session.filters)) == 64
    assert [one.name for one in plan.filters] == sorted(session.filters)


def test_a_filter_that_is_not_there_closes_the_session() -> None:
    peering = plan_peers(facts(node(1), peers=[peer(**ROUTER, filters=["edge"])]))
    (session,) = plan_of(peering).sessions
    assert (session.is_closed, session.filters) == (True, ())
    cause = "there is no BGPFilter edge that can be used"
    assert said(peering) == [("BGPPeer(router): no routes are exchanged with 192.0.2.1", cause)]


def test_a_filter_that_breaks_a_rule_counts_as_missing() -> None:
    damaged = bgp_filter("edge", exportV4=[{"action": "Reject", "interface": "a b"}])
    peering = plan_peers(facts(node(1), peers=[peer(**ROUTER, filters=["edge"])], filters=[damaged]))
    assert [one.is_closed for one in plan_of(peering).sessions] == [True]
    assert [message for message, _cause in said(peering)] == [
        "BGPFilter(edge) is passed over",
        "BGPPeer(router): no routes are exchanged with 192.0.2.1",
    ]


def test_rules_are_values() -> None:
    rule = {
        "action": "Accept",
        "cidr": "10.91.0.0/16",
        "matchOperator": "NotIn",
        "prefixLength": {"max": 24},
        "source": "RemotePeers",
        "interface": "eth*",
        "peerType": "eBGP",
        "communities": {"values": ["65001:100"]},
        "asPathPrefix": [65001],
        "priority": 5,
        "operations": [
            {"addCommunity": {"value": "1:2:3"}},
            {"prependASPath": {"prefix": [64512, 64513]}},
            {"setPriority": {"value": 7}},
        ],
    }
    from_20 = {"action": "Reject", "cidr": "10.91.0.0/16", "matchOperator": "In", "prefixLength": {"min": 20}}
    itself = {"action": "Reject", "cidr": "10.91.0.0/16", "matchOperator": "Equal"}
    edge = bgp_filter(
        "edge", exportV4=[rule, from_20, itself], importV4=[{"action": "Reject"}], importV6=[{"action": "Accept"}]
    )
    plan = planned(facts(node(1), peers=[peer(**ROUTER, filters=["edge"])], filters=[edge]))
    prefix = Prefix.parse("10.91.0.0/16")
    first = FilterRule(
        action=FilterAction.ACCEPT,
        prefix=prefix,
        operator=MatchOperator.NOT_IN,
        lengths=(16, 24),
        is_from_peers=True,
        interface="eth*",
        peer_type=PeerType.EXTERNAL,
        community=(65001, 100),
        as_path_prefix=(65001,),
        priority=5,
        operations=(AddedCommunity((1, 2, 3)), Prepended((64512, 64513)), Priority(7)),
    )
    second = FilterRule(action=FilterAction.REJECT, prefix=prefix, lengths=(20, 32))
    third = FilterRule(action=FilterAction.REJECT, prefix=prefix, operator=MatchOperator.EQUAL)
    assert plan.filters == (
        RouteFilter(
            name="filter4_edge",
            family=Family.IPV4,
            imported=(FilterRule(action=FilterAction.REJECT),),
            exported=(first, second, third),
        ),
    )


# --- pools and settings -----------------------------------------------------------------------------------------------


def test_pools_say_which_routes_the_node_process_writes_and_what_is_announced() -> None:
    silent = pool("10.95.0.0/16", disableBGPExport=True)
    plan = planned(facts(node(1), node(2), pools=[silent, IPIP, VXLAN, PLAIN]))
    assert plan.pools == tuple(one.spec.prefix for one in (PLAIN, VXLAN, IPIP, silent))
    assert plan.node_written == (VXLAN.spec.prefix, IPIP.spec.prefix)
    assert plan.tunnelled == (IPIP.spec.prefix,)
    assert plan.unexported == (silent.spec.prefix,)


def test_the_node_process_may_write_the_routes_of_plain_pools_too() -> None:
    settings = [configuration(clusterRoutingMode="Node")]
    plan = planned(facts(node(1), pools=[PLAIN], peers=[peer(**ROUTER)], configurations=settings))
    assert plan.node_written == (PLAIN.spec.prefix,)


EDGE = [{"name": "edge", "value": "65001:100"}]


def test_the_settings_of_the_node_come_first() -> None:
    settings = [
        configuration(
            bindMode="NodeIP",
            logSeverityScreen="Debug",
            ignoredInterfaces=["docker0", "br-*"],
            communities=EDGE,
            prefixAdvertisements=[{"cidr": "10.91.0.0/16", "communities": ["edge", "1:2:3"]}],
        )
    ]
    plan = planned(facts(node(1), node(2), configurations=settings))
    assert (plan.bind_mode, plan.log_severity) == (BindMode.NODE_IP, LogSeverity.DEBUG)
    assert plan.ignored_interfaces == ("br-*", "docker0")
    assert plan.communities == ((Prefix.parse("10.91.0.0/16"), ((1, 2, 3), (65001, 100))),)
    settings.append(
        configuration(
            "node.n1",
            bindMode="None",
            logSeverityScreen="Error",
            ignoredInterfaces=["tap*"],
            prefixAdvertisements=[{"cidr": "10.91.0.0/16", "communities": ["7:7"]}],
        )
    )
    plan = planned(facts(node(1), node(2), configurations=settings))
    assert (plan.bind_mode, plan.log_severity) == (BindMode.ALL, LogSeverity.ERROR)
    assert plan.ignored_interfaces == ("tap*",)
    assert plan.communities == ((Prefix.parse("10.91.0.0/16"), ((7, 7),)),)


def test_what_of_the_settings_breaks_a_rule_is_passed_over_and_named() -> None:
    settings = [
        configuration(
            ignoredInterfaces=["a b", "docker0"],
            prefixAdvertisements=[{"cidr": "10.91.0.0/16", "communities": ["edge", "7:7"]}],
        ),
        configuration("node.n2", ignoredInterfaces=["c d"]),
    ]
    peering = plan_peers(facts(node(1), node(2), configurations=settings))
    plan = plan_of(peering)
    assert plan.ignored_interfaces == ("docker0",)
    assert plan.communities == ((Prefix.parse("10.91.0.0/16"), ((7, 7),)),)
    ((message, cause),) = said(peering)
    assert message == "BGPConfiguration(default): what is not accepted is passed over"
    assert cause.startswith("error with field spec.prefixAdvertisements[0].communities[0] = 'edge'")


def test_a_damaged_peer_harms_no_other_one() -> None:
    damaged = peer("damaged", peerIP="router.example", asNumber=65001)
    workloads = peer("workloads", localWorkloadSelector="all()", asNumber=65001)
    peering = plan_peers(facts(node(1), peers=[damaged, workloads, peer(**ROUTER)]))
    assert [one.peer for one in plan_of(peering).sessions] == ["router"]
    assert [message for message, _cause in said(peering)] == [
        "BGPPeer(damaged) is passed over",
        "BGPPeer(workloads): no session",
    ]


# --- the router id ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "known, given, expected",
    [
        (node(1), "", "10.240.0.11"),
        (node(1), "192.0.2.9", "192.0.2.9"),
        (node(1), "hash", "103.107.139.184"),
        (only_six(1), "", "103.107.139.184"),
    ],
)
def test_the_router_id(known: Node, given: str, expected: str) -> None:
    plan = planned(evolve(facts(known, node(2, six=True)), router_id=given))
    assert str(plan.router_id) == expected


@pytest.mark.parametrize("text", ["fd10::1", "0.0.0.0", "router"])
def test_what_is_no_router_id_is_passed_over(text: str) -> None:
    peering = plan_peers(evolve(facts(node(1), node(2)), router_id=text))
    assert plan_of(peering).router_id == Address.parse("10.240.0.11")
    cause = f"{text} is neither an IPv4 address nor the word hash"
    assert said(peering) == [("NETPLUG_ROUTER_ID is passed over", cause)]


# --- what routes follow from ------------------------------------------------------------------------------------------


def test_what_bgp_does_for_routes() -> None:
    settings = [configuration(clusterRoutingMode="Node")]
    assert find_use(plan_peers(facts(node(2))), []) is None
    assert find_use(plan_peers(facts(node(1), pools=[VXLAN])), []) == BgpUse()
    use = find_use(plan_peers(facts(node(1), node(2), pools=[PLAIN])), [])
    assert use == BgpUse(is_enabled=True)
    assert use is not None
    assert use.makes_plain_routes
    use = find_use(plan_peers(facts(node(1), node(2), pools=[IPIP], configurations=settings)), settings)
    assert use == BgpUse(is_enabled=True, mode=ClusterRoutingMode.NODE)
    assert use is not None
    assert not use.makes_plain_routes
    assert not BgpUse().makes_plain_routes


# --- readiness --------------------------------------------------------------------------------------------------------

TWO = plan_of(plan_peers(facts(node(1), node(2), node(3))))
OF_2, OF_3 = (one.name for one in TWO.sessions)


def status(*established: str, errors: Mapping[str, str] | None = None) -> BgpStatus:
    sessions = tuple(
        SessionStatus(name=name, is_established=name in established, error=(errors or {}).get(name, ""))
        for name in (OF_2, OF_3)
    )
    return BgpStatus(version="2", configured_at="now", sessions=sessions)


def test_a_session_is_waited_for_until_it_was_established_once_or_tried_for_long() -> None:
    history = SessionHistory().observe(TWO, None, 100.0)
    assert history.pending(100.0) == (OF_2, OF_3)
    history = history.observe(TWO, status(OF_2), 101.0)
    assert history.pending(101.0) == (OF_3,)
    history = history.observe(TWO, status(), 102.0)
    assert history.pending(102.0) == (OF_3,), "a session that was established once is not waited for again"
    assert history.pending(100.0 + PATIENCE_S) == ()


def test_a_session_of_the_mesh_with_a_node_that_is_not_ready_is_hopeless() -> None:
    unready = evolve(node(2), status=NodeStatus(is_ready=False))
    ready = evolve(node(3), status=NodeStatus(is_ready=True))
    assert find_hopeless(TWO, (node(1), unready, ready)) == {OF_2}
    assert find_hopeless(TWO, (node(2), node(3))) == frozenset(), "without a word about them all are waited for"
    named = evolve(TWO, sessions=tuple(evolve(one, name=f"Node{one.name[4:]}") for one in TWO.sessions))
    assert find_hopeless(named, (unready,)) == frozenset(), "what a BGPPeer asks for is waited for"
    assert SessionHistory().observe(TWO, None, 100.0).pending(100.0, frozenset({OF_2})) == (OF_3,)


def test_a_session_that_is_gone_from_the_plan_is_forgotten() -> None:
    history = SessionHistory().observe(TWO, status(OF_2), 100.0)
    history = history.observe(evolve(TWO, sessions=()), status(OF_2), 101.0)
    assert history == SessionHistory()
    assert history.observe(TWO, status(), 200.0).pending(200.0) == (OF_2, OF_3)


def test_sessions_that_broke_or_never_came_up_are_problems() -> None:
    history = SessionHistory().observe(TWO, status(OF_2), 100.0)
    assert history.problems(TWO, status(OF_2), 100.0) == ()
    broken = status(errors={OF_2: "Socket: Connection refused"})
    assert [(one.message, one.cause) for one in history.problems(TWO, broken, 100.0 + PATIENCE_S)] == [
        ("the BGP session with n2 (10.240.0.12) is not established", "Socket: Connection refused"),
        ("the BGP session with n3 (10.240.0.13) is not established", "the peer does not answer"),
    ]
    unknown = evolve(broken, sessions=())
    assert [one.cause for one in history.problems(TWO, unknown, 100.0)] == ["the daemon does not know it"]


def test_a_peer_of_another_as_than_is_expected_is_a_conflict_with_both_numbers() -> None:
    history = SessionHistory().observe(TWO, status(OF_2), 100.0)
    wrong = evolve(
        status(OF_2),
        sessions=(SessionStatus(name=OF_3, is_established=False, error="Received: Bad peer AS", has_wrong_as=True),),
    )
    two, three = history.problems(TWO, wrong, 100.0 + PATIENCE_S)
    assert (two.cause, two.event) == ("the daemon does not know it", "")
    assert (three.cause, three.event) == (
        "Received: Bad peer AS: this node is in AS 64512, and expects the peer in 64512",
        "ASConflict",
    )
