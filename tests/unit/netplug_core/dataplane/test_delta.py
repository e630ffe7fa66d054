"""What counts as a difference, in which words, and what does not count."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address, InterfaceAddress, Prefix
from netplug_core.dataplane.plan import AttachmentState, InterfaceState, ObservedRoute, compare_with_plan, plan
from netplug_core.dataplane.protocol import AttachmentPlan, InterfacePlan, Neighbour, RouteTable
from netplug_core.testing.dataplane_checks import endpoint, link_to

LINK = link_to("/run/netns/one", host_name="netp1")
PLAN = plan(endpoint("10.65.0.5", "fd65::5"), LINK)
INSIDE = "interface 'eth0' in /run/netns/one"
OUTSIDE = "interface 'netp1' on the host"


def end_as_planned(end: InterfacePlan, mtu: int = 1450) -> InterfaceState:
    return InterfaceState(
        alias=str(LINK.alias),
        mac=end.mac,
        mtu=mtu,
        is_up=True,
        addresses=frozenset(end.addresses),
        neighbours=frozenset(end.neighbours),
        routes=frozenset(
            ObservedRoute(
                destination=r.destination, gateway=str(r.gateway or ""), protocol=r.protocol.value, table=r.table
            )
            for r in end.routes
        ),
        source_rules=frozenset(end.source_rules),
        sysctls={setting.path: setting.value for setting in end.sysctls},
        conflicting_routes={},
    )


CONTAINER = end_as_planned(PLAN.container)
HOST = end_as_planned(PLAN.host)


def texts(
    container: InterfaceState | None = CONTAINER, host: InterfaceState | None = HOST, of: AttachmentPlan = PLAN
) -> list[str]:
    return [
        str(found) for found in compare_with_plan(of, AttachmentState(container=container, host=host, is_pair=True))
    ]


def test_what_is_as_planned_has_no_difference() -> None:
    assert texts() == []


def test_what_others_added_is_no_difference() -> None:
    extra = InterfaceState(
        alias="named by the workload",
        mac=CONTAINER.mac,
        mtu=CONTAINER.mtu,
        is_up=True,
        addresses=CONTAINER.addresses | {InterfaceAddress(Address.parse("fe80::1"), 64)},
        neighbours=CONTAINER.neighbours | {Neighbour(Address.parse("10.0.0.1"), "02:00:00:00:00:09")},
        routes=CONTAINER.routes | {ObservedRoute(destination=Prefix.parse("10.9.0.0/16"), protocol=4)},
        source_rules=frozenset({Address.parse("10.0.0.1")}),
        sysctls={"net/ipv4/ip_forward": "1"},
        conflicting_routes={},
    )
    assert texts(extra) == []


@pytest.mark.parametrize(
    "container,host,expected",
    [
        (None, HOST, [f"{INSIDE}: expected an interface, found none"]),
        (CONTAINER, None, [f"{OUTSIDE}: expected an interface, found none"]),
        (CONTAINER, evolve(HOST, alias=""), [f"{OUTSIDE}: alias: expected {LINK.alias}, found none"]),
        (CONTAINER, evolve(HOST, alias="mine"), [f"{OUTSIDE}: alias: expected {LINK.alias}, found mine"]),
        (CONTAINER, evolve(HOST, alias=str(evolve(LINK.alias, text="other words"))), []),
        (evolve(CONTAINER, is_up=False), HOST, [f"{INSIDE}: state: expected up, found down"]),
        (
            CONTAINER,
            evolve(HOST, mac="02:00:00:00:00:09"),
            [f"{OUTSIDE}: MAC: expected ee:ee:ee:ee:ee:ee, found 02:00:00:00:00:09"],
        ),
        (evolve(CONTAINER, mtu=1500), HOST, [f"{INSIDE}: MTU: expected 1450, found 1500"]),
        (
            evolve(CONTAINER, addresses=frozenset({InterfaceAddress(Address.parse("fd65::5"), 128)})),
            HOST,
            [f"{INSIDE}: address: expected 10.65.0.5/32, found fd65::5/128"],
        ),
        (
            evolve(CONTAINER, neighbours=frozenset()),
            HOST,
            [f"{INSIDE}: neighbour: expected 169.254.1.1 at ee:ee:ee:ee:ee:ee, found none"],
        ),
        (
            CONTAINER,
            evolve(HOST, sysctls={**HOST.sysctls, "net/ipv4/conf/netp1/proxy_arp": "0"}),
            ["setting net/ipv4/conf/netp1/proxy_arp on the host: expected 1, found 0"],
        ),
        (
            CONTAINER,
            evolve(HOST, conflicting_routes={Prefix.parse("10.65.0.5/32"): "eth7"}),
            [f"{OUTSIDE}: route: expected 10.65.0.5/32 (protocol 78), found one over the interface 'eth7' that wins"],
        ),
    ],
)
def test_a_difference_names_thing_expected_and_found(
    container: InterfaceState | None, host: InterfaceState | None, expected: list[str]
) -> None:
    assert texts(container, host) == expected


def test_a_setting_that_may_fail_is_not_compared_and_one_that_is_missing_is() -> None:
    kept = {path: value for path, value in HOST.sysctls.items() if not path.endswith(("accept_ra", "proxy_ndp"))}
    assert texts(host=evolve(HOST, sysctls=kept)) == [
        "setting net/ipv6/conf/netp1/proxy_ndp on the host: expected 1, found no such setting"
    ]


def test_a_host_route_of_another_protocol_is_not_ours() -> None:
    foreign = frozenset(evolve(route, protocol=3) for route in HOST.routes if route.destination.base >> 32 == 0)
    assert texts(host=evolve(HOST, routes=foreign)) == [
        f"{OUTSIDE}: route: expected 10.65.0.5/32 (protocol 78), found 10.65.0.5/32 (protocol 3)",
        f"{OUTSIDE}: route: expected fd65::5/128 (protocol 78), found none",
    ]


def test_a_container_route_is_compared_with_its_gateway() -> None:
    default = Prefix.parse("0.0.0.0/0")
    moved = frozenset(
        evolve(route, gateway="10.0.0.1") if route.destination == default else route for route in CONTAINER.routes
    )
    assert texts(evolve(CONTAINER, routes=moved)) == [
        f"{INSIDE}: route: expected 0.0.0.0/0 via 169.254.1.1 (protocol 3), found 0.0.0.0/0 via 10.0.0.1 (protocol 3)"
    ]


def test_routes_of_the_configuration_may_be_changed_by_others_but_the_next_hop_must_be_reachable() -> None:
    custom = plan(endpoint("10.65.0.5"), evolve(LINK, routes=(Prefix.parse("10.96.0.0/12"),)))
    without = evolve(end_as_planned(custom.container), routes=frozenset())
    assert texts(without, end_as_planned(custom.host), custom) == [
        f"{INSIDE}: route: expected 169.254.1.1/32 (protocol 3), found none"
    ]


def test_rules_and_routes_of_the_interfaces_own_table_are_compared() -> None:
    """Also if the configuration has routes of its own: those are in the main table."""
    link = evolve(LINK, name="net1", routes=(Prefix.parse("10.96.0.0/12"),))
    second = plan(endpoint("10.65.0.5", "fd65::5"), link)
    container, host = end_as_planned(second.container), end_as_planned(second.host)
    assert texts(container, host, second) == []
    inside = "interface 'net1' in /run/netns/one"
    without = evolve(container, source_rules=frozenset({Address.parse("fd65::5")}))
    assert texts(without, host, second) == [
        f"{inside}: rule: expected from 10.65.0.5 lookup the table of the interface, found none"
    ]
    main = frozenset(route for route in container.routes if route.table is RouteTable.MAIN)
    assert texts(evolve(container, routes=main), host, second) == [
        f"{inside}: route: expected {route} (protocol 3, table of the interface), found none"
        for route in ("169.254.1.1/32", "0.0.0.0/0 via 169.254.1.1", "::/0 via fe80::ecee:eeff:feee:eeee")
    ]


def test_an_mtu_that_was_left_to_the_kernel_is_not_compared() -> None:
    unset = plan(endpoint("10.65.0.5", "fd65::5"), evolve(LINK, mtu=0))
    assert texts(evolve(CONTAINER, mtu=9000), evolve(HOST, mtu=9000), unset) == []


@pytest.mark.parametrize("container,host", [(CONTAINER, HOST), (None, HOST), (CONTAINER, None)])
def test_two_ends_that_are_no_pair_are_reported_only_if_both_exist(
    container: InterfaceState | None, host: InterfaceState | None
) -> None:
    found = [str(d) for d in compare_with_plan(PLAN, AttachmentState(container=container, host=host, is_pair=False))]
    complaint = f"{OUTSIDE}: expected the peer of 'eth0', found an interface with another peer"
    assert (complaint in found) == (container is not None and host is not None)
