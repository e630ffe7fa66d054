"""Each message for tunnels and routes is decoded with pyroute2, and what pyroute2 encoded is decoded here."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from attrs import evolve
from pyroute2.netlink import nlmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg_base

from netplug_backends.linux import routing_messages as messages
from netplug_backends.linux.netlink import NetlinkMessage
from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.dataplane.routing import Route, RouteKind, Tunnel, TunnelKind
from netplug_core.testing.routing_checks import ipip_tunnel, sample

HEADER = struct.Struct("=IHHII")
REQUEST, REPLACE, EXCL, CREATE, DUMP = 0x1, 0x100, 0x200, 0x400, 0x300
AF = {Family.IPV4: 2, Family.IPV6: 10}
NAMES = {3: "parent0", 7: "vxlan.netplug", 9: "netp0123456789a"}


class nhmsg(nlmsg):  # type: ignore[misc]  # noqa: N801  as pyroute2 names such classes; it has none for nexthops
    """A message about a nexthop, of ``linux/nexthop.h``."""

    prefix = "NHA_"
    fields = (("family", "B"), ("nh_scope", "B"), ("nh_protocol", "B"), ("resvd", "B"), ("nh_flags", "I"))
    nla_map = (
        ("NHA_UNSPEC", "none"),
        ("NHA_ID", "uint32"),
        ("NHA_GROUP", "hex"),
        ("NHA_GROUP_TYPE", "uint16"),
        ("NHA_BLACKHOLE", "flag"),
        ("NHA_OIF", "uint32"),
        ("NHA_GATEWAY", "target"),
    )


class route_message(rtmsg_base, nlmsg):  # type: ignore[misc]  # noqa: N801  pyroute2 does not know the nexthop of a route
    """A message about a route, with all attributes of ``linux/rtnetlink.h`` up to the nexthop."""

    nla_map = (
        *rtmsg_base.nla_map[:24],
        ("RTA_PAD", "hex"),
        ("RTA_UID", "uint32"),
        ("RTA_TTL_PROPAGATE", "uint8"),
        ("RTA_IP_PROTO", "uint8"),
        ("RTA_SPORT", "be16"),
        ("RTA_DPORT", "be16"),
        ("RTA_NH_ID", "uint32"),
    )


def decoded(data: bytes, kind: Callable[..., Any], number: int = 5) -> Any:  # noqa: ANN401  pyroute2 has no types
    """A whole message, decoded completely by pyroute2."""
    found = kind(data)
    found.decode()
    assert (found["header"]["length"], found["header"]["sequence_number"]) == (len(data), number)
    return found


def of(found: Any) -> tuple[int, int, dict[str, Any]]:  # noqa: ANN401  pyroute2 has no types
    """Type, flags and attributes."""
    return found["header"]["type"], found["header"]["flags"], attributes(found)


def attributes(found: Any) -> dict[str, Any]:  # noqa: ANN401  pyroute2 has no types
    return {attribute[0]: attribute[1] for attribute in found["attrs"]}


def encoded(message: Any, found: Mapping[str, object], **header: int) -> bytes:  # noqa: ANN401  pyroute2 has no types
    """The body of a message as pyroute2 encodes it."""
    for name, number in header.items():
        message[name] = number
    message["attrs"] = list(found.items())
    message.encode()
    return bytes(message.data[HEADER.size :])


# --- entries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", Family)
def test_an_fdb_entry_is_of_the_device_itself(family: Family) -> None:
    entry = sample(family).fdb
    found = decoded(messages.put_fdb(entry, 7, 5), ndmsg)
    where = {"NDA_LLADDR": entry.mac, "NDA_DST": str(entry.node_address)}
    assert of(found) == (28, REQUEST | CREATE | REPLACE, where)
    assert (found["family"], found["ifindex"], found["state"], found["flags"]) == (7, 7, 0xC0, 0x02)
    gone = decoded(messages.remove_entry(entry, 7, 5), ndmsg)
    assert of(gone) == (29, REQUEST, {"NDA_LLADDR": entry.mac})
    assert (gone["family"], gone["ifindex"], gone["flags"]) == (7, 7, 0x02)


@pytest.mark.parametrize("family", Family)
def test_a_neighbour_is_permanent(family: Family) -> None:
    entry = sample(family).neighbour
    found = decoded(messages.put_neighbour(entry, 7, 5), ndmsg)
    where = {"NDA_DST": str(entry.address), "NDA_LLADDR": entry.mac}
    assert of(found) == (28, REQUEST | CREATE | REPLACE, where)
    assert (found["family"], found["ifindex"], found["state"], found["flags"]) == (AF[family], 7, 0x80, 0)
    gone = decoded(messages.remove_entry(entry, 7, 5), ndmsg)
    assert of(gone) == (29, REQUEST, {"NDA_DST": str(entry.address)})
    assert (gone["family"], gone["ifindex"]) == (AF[family], 7)


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("is_onlink", [True, False])
def test_a_nexthop_has_netplugs_protocol(family: Family, *, is_onlink: bool) -> None:
    entry = evolve(sample(family).nexthop, is_onlink=is_onlink)
    found = decoded(messages.put_nexthop(entry, 7, 5), nhmsg)
    where = {"NHA_ID": entry.id, "NHA_OIF": 7, "NHA_GATEWAY": str(entry.gateway)}
    assert of(found) == (104, REQUEST | CREATE | REPLACE, where)
    assert (found["family"], found["nh_scope"], found["nh_protocol"]) == (AF[family], 0, 78)
    assert found["nh_flags"] == (4 if is_onlink else 0)
    assert of(decoded(messages.remove_entry(entry, 0, 5), nhmsg)) == (105, REQUEST, {"NHA_ID": entry.id})


def forms_of_routes() -> list[tuple[Route, dict[str, object], dict[str, int]]]:
    """Routes, their attributes without destination and metric, and what their headers have beside the usual."""
    found: list[tuple[Route, dict[str, object], dict[str, int]]] = []
    for family in Family:
        made = sample(family)
        gateway, source = str(made.direct.gateway), str(made.direct.source)
        mtu = {"RTA_METRICS": {"attrs": [("RTAX_MTU", made.tunnel.mtu)]}}
        link = {"scope": 253 if family is Family.IPV4 else 0}
        tunnel_address = made.tunnel.address
        found += [
            (made.route, {"RTA_NH_ID": made.nexthop.id, **mtu}, {}),
            (evolve(made.route, mtu=0), {"RTA_NH_ID": made.nexthop.id}, {}),
            (
                evolve(made.route, source=tunnel_address),
                {"RTA_NH_ID": made.nexthop.id, "RTA_PREFSRC": str(tunnel_address), **mtu},
                {},
            ),
            (
                evolve(made.route, destination=Prefix(family, 0, 0)),
                {"RTA_NH_ID": made.nexthop.id, **mtu},
                {},
            ),
            (
                evolve(made.route, table=7801, mtu=0),
                {"RTA_NH_ID": made.nexthop.id, "RTA_TABLE": 7801},
                {"table": 0},
            ),
            (made.direct, {"RTA_OIF": 7, "RTA_GATEWAY": gateway, "RTA_PREFSRC": source}, {}),
            (
                evolve(made.direct, is_onlink=True, source=None, mtu=made.tunnel.mtu),
                {"RTA_OIF": 7, "RTA_GATEWAY": gateway, **mtu},
                {"flags": 4},
            ),
            (evolve(made.direct, gateway=None, source=None), {"RTA_OIF": 7}, link),
            (made.blackhole, {}, {"type": 6}),
            (made.advertised, {"RTA_TABLE": 7801}, {"type": 6, "table": 0}),
        ]
    return found


@pytest.mark.parametrize("route,where,other", forms_of_routes(), ids=lambda value: str(value)[:40])
def test_every_form_of_a_route(route: Route, where: dict[str, object], other: dict[str, int]) -> None:
    found = decoded(messages.put_route(route, 7, 5), route_message)
    destination = route.destination
    key = {"RTA_PRIORITY": route.metric} | ({"RTA_DST": str(destination.first)} if destination.length else {})
    kind, flags, have = of(found)
    if "RTA_METRICS" in have:
        have["RTA_METRICS"] = {"attrs": [tuple(each) for each in have["RTA_METRICS"]["attrs"]]}
    assert (kind, flags, have) == (24, REQUEST | CREATE | REPLACE, {**key, **where})
    header = {"family": AF[destination.family], "dst_len": destination.length, "table": 254, "proto": 78}
    wanted = {**header, "scope": 0, "type": 1, "flags": 0, "src_len": 0, "tos": 0, **other}
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize("route", [form[0] for form in forms_of_routes()], ids=lambda value: str(value)[:40])
def test_a_route_is_removed_by_its_key_and_protocol(route: Route) -> None:
    found = decoded(messages.remove_entry(route, 0, 5), route_message)
    destination = route.destination
    key: dict[str, object] = {"RTA_PRIORITY": route.metric}
    key |= {"RTA_DST": str(destination.first)} if destination.length else {}
    key |= {"RTA_TABLE": 7801} if route.table == 7801 else {}
    assert of(found) == (25, REQUEST, key)
    assert (found["proto"], found["type"], found["scope"], found["dst_len"]) == (78, 0, 255, destination.length)


# --- devices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", Family)
def test_a_vxlan_device_is_created_with_its_mark(family: Family) -> None:
    tunnel = sample(family).tunnel
    create, mark = messages.create_tunnel(tunnel, 1 << 20, 3, 5)
    found = decoded(create, ifinfmsg)
    kind, flags, have = of(found)
    assert (kind, flags, found["index"], found["flags"]) == (16, REQUEST | CREATE | EXCL, 1 << 20, 0)
    info = attributes(have.pop("IFLA_LINKINFO"))
    assert have == {"IFLA_IFNAME": tunnel.name, "IFLA_ADDRESS": tunnel.mac}
    assert info["IFLA_INFO_KIND"] == "vxlan"
    local = "IFLA_VXLAN_LOCAL" if family is Family.IPV4 else "IFLA_VXLAN_LOCAL6"
    assert attributes(info["IFLA_INFO_DATA"]) == {
        "IFLA_VXLAN_ID": 4096,
        "IFLA_VXLAN_LINK": 3,
        local: str(tunnel.local),
        "IFLA_VXLAN_LEARNING": 0,
        "IFLA_VXLAN_PORT": 4789,
    }
    alias = decoded(mark, ifinfmsg, number=6)
    assert (of(alias), alias["index"]) == ((16, REQUEST, {"IFLA_IFALIAS": "netplug"}), 1 << 20)


def test_an_ipip_device_is_created_with_its_mark() -> None:
    """This is all that can be tested where the kernel has none."""
    tunnel = ipip_tunnel()
    create, _mark = messages.create_tunnel(tunnel, 1 << 20, 0, 5)
    found = decoded(create, ifinfmsg)
    kind, flags, have = of(found)
    assert (kind, flags, found["index"]) == (16, REQUEST | CREATE | EXCL, 1 << 20)
    info = attributes(have.pop("IFLA_LINKINFO"))
    assert have == {"IFLA_IFNAME": "ipip.netplug"}
    assert info["IFLA_INFO_KIND"] == "ipip"
    assert attributes(info["IFLA_INFO_DATA"]) == {
        "IFLA_IPIP_LOCAL": str(tunnel.local),
        "IFLA_IPIP_REMOTE": "0.0.0.0",
        "IFLA_IPIP_PROTO": 4,
        "IFLA_IPIP_PMTUDISC": 1,
    }


def test_devices_are_changed_by_their_index() -> None:
    for data, expected in (
        (messages.change_mtu(7, 1450, 5), (16, REQUEST, {"IFLA_MTU": 1450})),
        (messages.set_up(7, 5), (16, REQUEST, {})),
        (messages.delete_device(7, 5), (17, REQUEST, {})),
    ):
        found = decoded(data, ifinfmsg)
        assert (of(found), found["index"]) == (expected, 7)
    up = decoded(messages.set_up(7, 5), ifinfmsg)
    assert (up["flags"], up["change"]) == (1, 1)


@pytest.mark.parametrize("text", ["10.65.1.0/32", "fd65::1:0/128"])
def test_addresses_of_devices_are_put_and_removed(text: str) -> None:
    held = InterfaceAddress.parse(text)
    where = {"IFA_LOCAL": str(held.address), "IFA_ADDRESS": str(held.address)}
    put, gone = messages.put_address(7, held, 5), messages.remove_address(7, held, 5)
    assert of(decoded(put, ifaddrmsg)) == (20, REQUEST | CREATE | REPLACE, where)
    assert of(decoded(gone, ifaddrmsg)) == (21, REQUEST, where)
    found = decoded(put, ifaddrmsg)
    assert (found["prefixlen"], found["index"], found["flags"]) == (held.length, 7, 0x02)


# --- listings ---------------------------------------------------------------------------------------------------------


def listed(message: NetlinkMessage, kind: Callable[..., Any]) -> Any:  # noqa: ANN401  pyroute2 has no types
    data = HEADER.pack(HEADER.size + len(message.body), message.type, message.flags, 5, 0) + message.body
    return decoded(data, kind)


def test_listings_are_filtered_by_the_kernel() -> None:
    main = listed(messages.list_routes(Family.IPV4, 254), route_message)
    assert of(main) == (26, REQUEST | DUMP, {"RTA_TABLE": 254})
    assert (main["family"], main["table"], main["proto"]) == (2, 254, 78)
    advertised = listed(messages.list_routes(Family.IPV6, 7801), route_message)
    assert of(advertised) == (26, REQUEST | DUMP, {"RTA_TABLE": 7801})
    assert (advertised["family"], advertised["table"], advertised["proto"]) == (10, 0, 78)
    entries = listed(messages.list_entries(messages.BRIDGE, 7), ndmsg)
    assert (of(entries), entries["family"]) == ((30, REQUEST | DUMP, {"NDA_IFINDEX": 7}), 7)
    addresses = listed(messages.list_addresses(7), ifaddrmsg)
    assert (of(addresses), addresses["index"]) == ((22, REQUEST | DUMP, {}), 7)
    assert of(listed(messages.list_nexthops(), nhmsg)) == (106, REQUEST | DUMP, {})
    assert messages.list_routes(Family.IPV6, 7801).describe() == "listing the IPv6 routes of table 7801"


# --- replies ----------------------------------------------------------------------------------------------------------


def device(kind: str, data: Mapping[str, object], alias: str = "netplug") -> bytes:
    about = [("IFLA_INFO_KIND", kind), ("IFLA_INFO_DATA", {"attrs": list(data.items())})]
    info = {"attrs": about if data else about[:1]}
    found: dict[str, object] = {"IFLA_IFNAME": "vxlan.netplug", "IFLA_MTU": 1450, "IFLA_ADDRESS": "66:01:02:03:04:05"}
    return encoded(ifinfmsg(), found | {"IFLA_IFALIAS": alias, "IFLA_LINKINFO": info}, index=7, flags=1)


VXLAN_DATA: dict[str, object] = {
    "IFLA_VXLAN_ID": 4096,
    "IFLA_VXLAN_LINK": 3,
    "IFLA_VXLAN_LOCAL": "10.240.0.11",
    "IFLA_VXLAN_LEARNING": 0,
    "IFLA_VXLAN_PORT": 4789,
}
TUNNEL = sample(Family.IPV4).tunnel


def test_a_vxlan_device_is_compared_with_a_tunnel() -> None:
    found = messages.decode_device(device("vxlan", VXLAN_DATA))
    assert (found.index, found.name, found.is_up, found.mtu, found.is_ours) == (7, TUNNEL.name, True, 1450, True)
    assert found.may_become(evolve(TUNNEL, mtu=1300, address=None), 3)
    for other, parent in ((TUNNEL, 4), (evolve(TUNNEL, mac="66:00:00:00:00:00"), 3), (evolve(TUNNEL, vni=1), 3)):
        assert not found.may_become(other, parent)
    learning = messages.decode_device(device("vxlan", {**VXLAN_DATA, "IFLA_VXLAN_LEARNING": 1}))
    assert not learning.may_become(TUNNEL, 3)


@pytest.mark.parametrize("alias", ["", "netplug2", "netplug:1:2"])
def test_a_device_without_the_mark_is_of_others(alias: str) -> None:
    assert not messages.decode_device(device("vxlan", VXLAN_DATA, alias)).is_ours


def test_an_ipip_device_has_a_local_address() -> None:
    found = messages.decode_device(device("ipip", {"IFLA_IPIP_LOCAL": "10.240.0.11", "IFLA_IPIP_REMOTE": "0.0.0.0"}))
    assert (found.kind, found.local, found.parent) == (TunnelKind.IPIP, Address.parse("10.240.0.11"), 0)
    tunnel = Tunnel(name="x", kind=TunnelKind.IPIP, address=None, local=Address.parse("10.240.0.11"), mtu=1480)
    assert found.may_become(tunnel, 0)


def test_another_kind_of_device_is_no_tunnel() -> None:
    found = messages.decode_device(device("dummy", {}))
    assert (found.kind, found.local) == (None, None)
    assert not found.may_become(TUNNEL, 0)


@pytest.mark.parametrize("family", Family)
def test_entries_of_the_kernel_are_read_as_they_were_put(family: Family) -> None:
    made = sample(family)
    fdb = encoded(ndmsg(), {"NDA_LLADDR": made.fdb.mac, "NDA_DST": str(made.fdb.node_address)}, family=7, state=0xC0)
    assert messages.decode_fdb(fdb, made.tunnel.name) == made.fdb
    where = {"NDA_DST": str(made.neighbour.address), "NDA_LLADDR": made.neighbour.mac}
    neighbour = encoded(ndmsg(), where, family=AF[family], state=0x80)
    assert messages.decode_neighbour(neighbour, made.tunnel.name) == made.neighbour
    way = {"NHA_ID": made.nexthop.id, "NHA_OIF": 7, "NHA_GATEWAY": str(made.nexthop.gateway)}
    flags = 4 if made.nexthop.is_onlink else 0
    nexthop = encoded(nhmsg(), way, family=AF[family], nh_protocol=78, nh_flags=flags)
    assert messages.decode_nexthop(nexthop, {7: made.tunnel.name}) == made.nexthop


@pytest.mark.parametrize(
    "state,where",
    [
        (0x02, {"NDA_DST": "10.240.0.12", "NDA_LLADDR": "66:11:12:13:14:15"}),
        (0x80, {"NDA_DST": "10.240.0.12"}),
        (0x80, {"NDA_LLADDR": "66:11:12:13:14:15"}),
    ],
    ids=["not permanent", "without a MAC", "without an address"],
)
def test_what_nobody_has_put_is_left_out(state: int, where: dict[str, object]) -> None:
    body = encoded(ndmsg(), where, family=2, state=state)
    assert messages.decode_fdb(body, "x") is None
    assert messages.decode_neighbour(body, "x") is None


@pytest.mark.parametrize(
    "protocol,number,where",
    [
        (11, 0x4E500001, {"NHA_GATEWAY": "10.0.0.1"}),
        (78, 0x4E4FFFFF, {"NHA_GATEWAY": "10.0.0.1"}),
        (78, 0x4E600000, {"NHA_GATEWAY": "10.0.0.1"}),
        (78, 0x4E500001, {}),
    ],
    ids=["of another protocol", "below our numbers", "above our numbers", "without a gateway"],
)
def test_a_nexthop_of_others_is_left_out(protocol: int, number: int, where: dict[str, object]) -> None:
    body = encoded(nhmsg(), {"NHA_ID": number, "NHA_OIF": 7, **where}, family=2, nh_protocol=protocol)
    assert messages.decode_nexthop(body, NAMES) is None


def listed_route(found: dict[str, object], **header: int) -> bytes:
    usual = {"family": 2, "dst_len": 26, "table": 254, "proto": 78, "type": 1}
    return encoded(route_message(), {"RTA_DST": "10.65.2.0", "RTA_PRIORITY": 20, **found}, **(usual | header))


def test_what_the_kernel_adds_to_a_route_by_nexthop_is_left_out() -> None:
    found = {"RTA_NH_ID": 0x4E500004, "RTA_GATEWAY": "10.65.2.0", "RTA_OIF": 7}
    mtu = {"RTA_METRICS": {"attrs": [("RTAX_MTU", 1450)]}}
    assert messages.decode_route(listed_route({**found, **mtu}, flags=4), NAMES) == sample(Family.IPV4).route


def test_flags_that_the_kernel_sets_on_its_own_are_left_out() -> None:
    """A carrier that is lost marks routes as dead."""
    found: dict[str, object] = {"RTA_GATEWAY": "10.240.0.13", "RTA_OIF": 3}
    route = messages.decode_route(listed_route(found, flags=0x11), NAMES)
    assert route == Route(
        destination=Prefix.parse("10.65.2.0/26"), device="parent0", gateway=Address.parse("10.240.0.13")
    )


def test_the_loopback_of_an_ipv6_blackhole_is_left_out() -> None:
    found = {"RTA_DST": "fd65::1:0", "RTA_PRIORITY": 4096, "RTA_OIF": 1, "RTA_TABLE": 7801}
    body = listed_route(found, family=10, dst_len=122, table=252, type=6)
    destination = Prefix.parse("fd65::1:0/122")
    kind = RouteKind.BLACKHOLE
    assert messages.decode_route(body, NAMES) == Route(destination=destination, table=7801, metric=4096, kind=kind)


def test_a_default_route_has_no_destination() -> None:
    body = encoded(route_message(), {"RTA_OIF": 3}, family=2, dst_len=0, table=254, proto=78, type=1)
    assert messages.decode_route(body, NAMES) == Route(
        destination=Prefix.parse("0.0.0.0/0"), device="parent0", metric=0
    )


@pytest.mark.parametrize(
    "found,header",
    [
        ({"RTA_OIF": 3}, {"proto": 4}),
        ({"RTA_OIF": 3}, {"family": 28}),
        ({"RTA_OIF": 3}, {"type": 7}),
    ],
    ids=["of another protocol", "of another family", "unreachable"],
)
def test_a_route_of_others_is_left_out(found: dict[str, object], header: dict[str, int]) -> None:
    header = {"family": 2, **header}
    destination = {} if header["family"] == 28 else {"RTA_DST": "10.65.2.0"}
    usual = {"dst_len": 26, "table": 254, "proto": 78, "type": 1}
    assert messages.decode_route(encoded(route_message(), {**destination, **found}, **(usual | header)), NAMES) is None


def test_a_route_of_several_gateways_is_no_route_that_was_put() -> None:
    """It has no gateway and no device of its own."""
    found = messages.decode_route(listed_route({}), NAMES)
    assert found is not None
    assert (found.device, found.gateway, found.nexthop) == ("", None, None)
