"""Endpoint and link in, plan out: every part of it, in both families and in one."""

from collections.abc import Mapping

import pytest
from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.dataplane.plan import (
    find_mtu_problem,
    find_node_problems,
    find_obstacles,
    next_hop,
    plan,
    refused_setting,
    require_families,
)
from netplug_core.dataplane.protocol import (
    AttachmentPlan,
    FamilyNotSupported,
    Forwarding,
    Neighbour,
    PlannedRoute,
    RouteProtocol,
    RouteScope,
    RouteTable,
    SysctlRequirement,
)
from netplug_core.names import HOST_MAC
from netplug_core.testing.dataplane_checks import endpoint, link_to

LINK = evolve(link_to("/run/netns/one"), mtu=0)
LINK_LOCAL = Address.parse("fe80::ecee:eeff:feee:eeee")


def planned(*addresses: str) -> AttachmentPlan:
    return plan(endpoint(*addresses), LINK)


def settings(of: AttachmentPlan, side: str) -> list[tuple[str, str]]:
    return [(setting.path, setting.value) for setting in getattr(of, side).sysctls]


IPV4_HOST = [
    ("net/ipv4/neigh/netp0123456789a/proxy_delay", "0"),
    ("net/ipv4/conf/netp0123456789a/proxy_arp", "1"),
    ("net/ipv4/conf/netp0123456789a/forwarding", "1"),
]
IPV6_HOST = [
    ("net/ipv6/conf/netp0123456789a/accept_dad", "0"),
    ("net/ipv6/conf/netp0123456789a/disable_ipv6", "0"),
    ("net/ipv6/conf/netp0123456789a/proxy_ndp", "1"),
    ("net/ipv6/conf/netp0123456789a/forwarding", "1"),
]
ALWAYS_HOST = [
    ("net/ipv4/conf/netp0123456789a/route_localnet", "0"),
    ("net/ipv4/conf/netp0123456789a/rp_filter", "1"),
    ("net/ipv4/conf/netp0123456789a/accept_redirects", "0"),
    ("net/ipv6/conf/netp0123456789a/accept_redirects", "0"),
    ("net/ipv6/conf/netp0123456789a/accept_ra", "0"),
]
IPV4_CONTAINER = [("net/ipv4/ip_forward", "0")]
IPV6_CONTAINER = [
    ("net/ipv6/conf/eth0/accept_dad", "0"),
    ("net/ipv6/conf/all/disable_ipv6", "0"),
    ("net/ipv6/conf/default/disable_ipv6", "0"),
    ("net/ipv6/conf/lo/disable_ipv6", "0"),
    ("net/ipv6/conf/all/forwarding", "0"),
]


@pytest.mark.parametrize(
    "addresses,host,container",
    [
        (("10.65.0.5",), ALWAYS_HOST + IPV4_HOST, IPV4_CONTAINER),
        (("fd65::5",), ALWAYS_HOST + IPV6_HOST, IPV6_CONTAINER),
        (("fd65::5", "10.65.0.5"), ALWAYS_HOST + IPV4_HOST + IPV6_HOST, IPV4_CONTAINER + IPV6_CONTAINER),
        ((), ALWAYS_HOST, []),
    ],
)
def test_settings_follow_the_families(
    addresses: tuple[str, ...], host: list[tuple[str, str]], container: list[tuple[str, str]]
) -> None:
    assert settings(planned(*addresses), "host") == host
    assert settings(planned(*addresses), "container") == container


def test_only_three_settings_may_fail_and_one_may_be_changed() -> None:
    found = planned("10.65.0.5", "fd65::5").host.sysctls
    assert [s.path.partition("/netp0123456789a/")[2] for s in found if s.requirement is SysctlRequirement.OPTIONAL] == [
        "accept_redirects",
        "accept_ra",
        "proxy_delay",
    ]
    (initial,) = [s for s in found if s.requirement is SysctlRequirement.INITIAL]
    assert initial.path == "net/ipv4/conf/netp0123456789a/route_localnet"


def test_loose_reverse_path_filtering_is_accepted_too() -> None:
    (found,) = [s for s in planned("fd65::5").host.sysctls if s.path.endswith("rp_filter")]
    assert (found.value, found.also_accepted, found.requirement) == ("1", ("2",), SysctlRequirement.REQUIRED)


def test_forwarding_is_said_either_way() -> None:
    forwarding = plan(endpoint("10.65.0.5", "fd65::5"), evolve(LINK, forwarding=Forwarding.ENABLED))
    assert ("net/ipv4/ip_forward", "1") in settings(forwarding, "container")
    assert ("net/ipv6/conf/all/forwarding", "1") in settings(forwarding, "container")


def test_each_end_has_its_name_and_its_mac() -> None:
    found = planned("10.65.0.5")
    assert (found.container.name, found.container.mac) == ("eth0", "02:65:00:00:00:05")
    assert (found.host.name, found.host.mac) == ("netp0123456789a", "ee:ee:ee:ee:ee:ee")
    assert found.mtu == 0
    assert plan(endpoint("10.65.0.5"), evolve(LINK, mtu=1450)).mtu == 1450


def test_next_hops_are_the_same_for_every_workload() -> None:
    assert str(next_hop(Family.IPV4)) == "169.254.1.1"
    assert next_hop(Family.IPV6) == LINK_LOCAL


def test_ipv4_reaches_everything_through_a_neighbour_that_needs_no_answer() -> None:
    found = planned("10.65.0.5")
    gateway = Address.parse("169.254.1.1")
    assert found.container.neighbours == (Neighbour(gateway, HOST_MAC),)
    assert found.container.routes == (
        PlannedRoute(destination=Prefix.parse("169.254.1.1"), scope=RouteScope.LINK, protocol=RouteProtocol.BOOT),
        PlannedRoute(
            destination=Prefix.parse("0.0.0.0/0"), gateway=gateway, scope=RouteScope.GLOBAL, protocol=RouteProtocol.BOOT
        ),
    )
    assert found.host.addresses == ()


@pytest.mark.parametrize("routes", [None, (), ("10.96.0.0/12",)])
def test_an_interface_other_than_the_first_has_a_table_of_its_own(routes: tuple[str, ...] | None) -> None:
    """With next hop and default route, whatever routes the configuration has for the main table."""
    given = None if routes is None else tuple(map(Prefix.parse, routes))
    second = plan(endpoint("10.65.0.5", "fd65::5"), evolve(LINK, name="eth0.1", routes=given))
    assert second.container.source_rules == (Address.parse("10.65.0.5"), Address.parse("fd65::5"))
    own = [route for route in second.container.routes if route.table is RouteTable.INTERFACE]
    assert [(str(route.destination), str(route.gateway or ""), route.scope) for route in own] == [
        ("169.254.1.1/32", "", RouteScope.LINK),
        ("0.0.0.0/0", "169.254.1.1", RouteScope.GLOBAL),
        ("::/0", str(LINK_LOCAL), RouteScope.GLOBAL),
    ]
    first = plan(endpoint("10.65.0.5", "fd65::5"), evolve(LINK, routes=given))
    assert first.container.source_rules == ()
    assert first.container_routes == tuple(evolve(route, metric=0) for route in second.container_routes)
    main = [route for route in second.container.routes if route not in own]
    assert {route.metric for route in main} == {2048}
    assert [evolve(route, metric=0) for route in main] == list(first.container.routes)
    assert first.host.source_rules == second.host.source_rules == ()


def test_ipv6_reaches_everything_through_the_host_ends_own_address() -> None:
    found = planned("fd65::5")
    assert found.container.neighbours == ()
    assert found.container.routes == (
        PlannedRoute(
            destination=Prefix.parse("::/0"), gateway=LINK_LOCAL, scope=RouteScope.GLOBAL, protocol=RouteProtocol.BOOT
        ),
    )
    assert found.host.addresses == (InterfaceAddress(LINK_LOCAL, 64),)


def test_every_address_is_one_of_its_own_and_has_a_host_route() -> None:
    found = planned("10.65.0.5", "fd65::5", "10.65.0.5", "10.65.0.6")
    assert [str(held) for held in found.container.addresses] == ["10.65.0.5/32", "fd65::5/128", "10.65.0.6/32"]
    assert [(str(r.destination), r.scope, r.protocol, r.metric) for r in found.host.routes] == [
        ("10.65.0.5/32", RouteScope.LINK, 78, 10),
        ("fd65::5/128", RouteScope.GLOBAL, 78, 10),
        ("10.65.0.6/32", RouteScope.LINK, 78, 10),
    ]
    assert found.families == (Family.IPV4, Family.IPV6)


def test_a_result_reports_the_routes_that_have_a_gateway() -> None:
    found = [(str(route.destination), str(route.gateway)) for route in planned("10.65.0.5", "fd65::5").container_routes]
    assert found == [("0.0.0.0/0", "169.254.1.1"), ("::/0", "fe80::ecee:eeff:feee:eeee")]


@pytest.mark.parametrize(
    "routes,expected",
    [
        ((), []),
        (("10.96.0.0/12", "10.96.0.0/12"), ["10.96.0.0/12"]),
        (("fd96::/64",), []),
        (("169.254.1.1/32", "10.0.0.0/8"), ["10.0.0.0/8"]),
    ],
)
def test_routes_of_the_configuration_replace_the_default_route(routes: tuple[str, ...], expected: list[str]) -> None:
    link = evolve(LINK, routes=tuple(map(Prefix.parse, routes)))
    found = plan(endpoint("10.65.0.5"), link)
    assert [str(route.destination) for route in found.container_routes] == expected
    assert str(found.container.routes[0].destination) == "169.254.1.1/32"


def test_planning_twice_gives_one_plan() -> None:
    assert planned("10.65.0.5", "fd65::5") == planned("10.65.0.5", "fd65::5")
    assert hash(planned("10.65.0.5")) == hash(planned("10.65.0.5"))


def test_a_node_that_does_not_forward_limits_workloads() -> None:
    off = {"net/ipv4/ip_forward": "0", "net/ipv6/conf/all/forwarding": "0"}
    ipv4, ipv6 = find_node_problems(tuple(Family), off.get)
    assert str(ipv4) == (
        "net.ipv4.ip_forward is 0 on this node: over IPv4, pods reach this node and its other pods, and nothing else; "
        "run: sysctl -w net.ipv4.ip_forward=1"
    )
    assert ipv6.command == "sysctl -w net.ipv6.conf.all.forwarding=1"
    assert ipv4.limits_workloads
    assert ipv6.limits_workloads
    assert find_node_problems((Family.IPV4,), off.get) == (ipv4,)
    forwarding = {"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}
    assert find_node_problems(tuple(Family), forwarding.get) == ()
    assert find_node_problems(tuple(Family), lambda _path: None) == (), "a kernel without these settings"


@pytest.mark.parametrize(
    "mtu,families,problem",
    [
        (0, tuple(Family), ""),
        (1280, tuple(Family), ""),
        (1279, (Family.IPV4,), ""),
        (68, (Family.IPV4,), ""),
        (1279, (Family.IPV6,), "the MTU 1279 is too small for IPv6, which needs 1280"),
        (1200, tuple(Family), "the MTU 1200 is too small for IPv6, which needs 1280"),
        (67, (Family.IPV4,), "the MTU 67 is too small: a link needs 68"),
        (67, (), "the MTU 67 is too small: a link needs 68"),
    ],
)
def test_an_mtu_has_to_carry_the_families(mtu: int, families: tuple[Family, ...], problem: str) -> None:
    assert find_mtu_problem(mtu, families) == problem


@frozen
class GivenSettings:
    """Settings as texts; those in ``changeable`` can be changed."""

    host: Mapping[str, str]
    new: Mapping[str, str]
    changeable: tuple[str, ...] = ()

    def find(self, path: str) -> str | None:
        return self.host.get(path)

    def find_in_new_namespace(self, path: str) -> str | None:
        return self.new.get(path)

    def is_changeable(self, path: str) -> bool:
        return path.startswith(self.changeable)


def test_what_cannot_be_changed_and_is_right_already_is_no_obstacle() -> None:
    ready = {"net/ipv4/ip_forward": "0"}
    protection = {f"net/ipv4/conf/default/{name}": value for name, value in RIGHT_ON_HOST.items()}
    settings = GivenSettings(protection, ready)
    assert find_obstacles((Family.IPV4,), Forwarding.DISABLED, settings) == ()
    (obstacle,) = find_obstacles((Family.IPV4,), Forwarding.ENABLED, settings)
    assert obstacle == (
        "setting net/ipv4/ip_forward = 1 in a new network namespace: Read-only file system"
        " (it is 0; /proc/sys has to be writable)"
    )
    assert find_obstacles((Family.IPV4,), Forwarding.ENABLED, evolve(settings, changeable=("net/ipv4/ip_",))) == ()
    wrong = evolve(settings, host={**protection, "net/ipv4/conf/default/proxy_arp": "0"})
    (obstacle,) = find_obstacles((Family.IPV4,), Forwarding.DISABLED, wrong)
    assert obstacle.startswith(
        "setting net/ipv4/conf/default/proxy_arp = 1 on the host: Read-only file system (it is 0;"
    )
    loose = evolve(settings, host={**protection, "net/ipv4/conf/default/rp_filter": "2"})
    assert find_obstacles((Family.IPV4,), Forwarding.DISABLED, loose) == ()


def test_a_kernel_without_ipv6() -> None:
    settings = GivenSettings({}, {}, ("net/",))
    assert find_obstacles((Family.IPV4,), Forwarding.DISABLED, settings) == ()
    (obstacle,) = find_obstacles(tuple(Family), Forwarding.DISABLED, settings)
    assert obstacle.startswith("IPv6 is asked for, and the kernel of this node has no IPv6: it was started without")
    with pytest.raises(FamilyNotSupported) as error:
        require_families((Family.IPV6,), settings.find)
    assert (error.value.code, str(error.value)) == (123, obstacle)
    require_families((Family.IPV4,), settings.find)
    require_families((Family.IPV6,), {"net/ipv6/conf/all/forwarding": "0"}.get)


def test_a_setting_that_is_missing_has_no_value() -> None:
    assert str(refused_setting("a = 1", "on the host", None, "No such file or directory")) == (
        "setting a = 1 on the host: No such file or directory"
    )


RIGHT_ON_HOST = {"route_localnet": "0", "rp_filter": "1", "accept_redirects": "0", "proxy_arp": "1", "forwarding": "1"}


def test_an_open_loopback_of_the_node_does_not_limit_workloads() -> None:
    (problem,) = find_node_problems((), {"net/ipv4/conf/all/route_localnet": "1"}.get)
    assert not problem.limits_workloads
    assert "every pod reaches what listens on the node's 127.0.0.1" in str(problem)
