"""Each encoded message is decoded with pyroute2, and replies that pyroute2 encoded are decoded here."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.nsidmsg import nsidmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from netplug_backends.linux import netlink
from netplug_backends.linux.netlink import NetlinkMessage, RouteInsertion
from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.dataplane.protocol import (
    InterfacePlan,
    Neighbour,
    PlannedRoute,
    RouteProtocol,
    RouteScope,
    RouteTable,
)
from netplug_core.testing.dataplane_checks import link_to

LINK = evolve(link_to("/run/netns/one", "eth0", "netp1"), mtu=1450, queues=4)
CONTAINER = InterfacePlan(name="eth0", mac="02:65:00:00:00:05")
HOST = InterfacePlan(name="netp1", mac="ee:ee:ee:ee:ee:ee")
HEADER = struct.Struct("=IHHII")

REQUEST, ACK, DUMP, REPLACE, EXCL, CREATE, APPEND = 0x1, 0x4, 0x300, 0x100, 0x200, 0x400, 0x800
FAMILIES = {Family.IPV4: 2, Family.IPV6: 10}


def decoded(message: NetlinkMessage, kind: Callable[..., Any]) -> Any:  # noqa: ANN401  pyroute2 has no types
    """The message, decoded completely by pyroute2."""
    data = HEADER.pack(HEADER.size + len(message.body), message.type, message.flags, 1, 0) + message.body
    found = kind(data)
    found.decode()
    assert found["header"]["length"] == len(data)
    return found


def attributes(found: Any) -> dict[str, Any]:  # noqa: ANN401  pyroute2 has no types
    return {attribute[0]: attribute[1] for attribute in found["attrs"]}


def test_the_pair_is_created_in_one_message() -> None:
    message = netlink.create_veth_pair(LINK, CONTAINER, HOST, index=1 << 20, container_namespace=7)
    found = decoded(message, ifinfmsg)
    assert (message.type, message.flags) == (16, REQUEST | CREATE | EXCL)
    assert (found["family"], found["index"], found["flags"], found["change"]) == (0, 1 << 20, 0, 0)
    own = attributes(found)
    info = attributes(own.pop("IFLA_LINKINFO"))
    assert own == {
        "IFLA_IFNAME": "netp1",
        "IFLA_ADDRESS": "ee:ee:ee:ee:ee:ee",
        "IFLA_MTU": 1450,
        "IFLA_NUM_TX_QUEUES": 4,
        "IFLA_NUM_RX_QUEUES": 4,
    }
    assert info["IFLA_INFO_KIND"] == "veth"
    peer = attributes(info["IFLA_INFO_DATA"])["VETH_INFO_PEER"]
    assert (peer["index"], peer["flags"], peer["change"]) == (0, 0, 0)
    assert attributes(peer) == {
        "IFLA_IFNAME": "eth0",
        "IFLA_ADDRESS": "02:65:00:00:00:05",
        "IFLA_MTU": 1450,
        "IFLA_NUM_TX_QUEUES": 4,
        "IFLA_NUM_RX_QUEUES": 4,
        "IFLA_NET_NS_FD": 7,
    }
    assert "'eth0' (in /run/netns/one) and 'netp1' (on the host)" in message.describe()


def test_without_an_mtu_the_kernel_decides() -> None:
    link = evolve(LINK, mtu=0, queues=1)
    message = netlink.create_veth_pair(link, CONTAINER, HOST, index=1 << 20, container_namespace=7)
    own = attributes(decoded(message, ifinfmsg))
    assert "IFLA_MTU" not in own
    assert own["IFLA_NUM_TX_QUEUES"] == 1


@pytest.mark.parametrize(
    "message,type,index,attributes_",
    [
        (netlink.query_link("eth0"), 18, 0, {"IFLA_IFNAME": "eth0"}),
        (netlink.query_link_by_index(12), 18, 12, {}),
        (netlink.delete_link(12, "eth0"), 17, 12, {}),
        (netlink.set_alias(12, "eth0", "whose ß"), 16, 12, {"IFLA_IFALIAS": "whose ß"}),
    ],
)
def test_links_are_named_or_numbered(
    message: NetlinkMessage,
    type: int,  # noqa: A002  it is the field's name
    index: int,
    attributes_: dict[str, object],
) -> None:
    """What changes one takes the index: a name may be another interface's by then."""
    found = decoded(message, ifinfmsg)
    assert (message.type, message.flags) == (type, REQUEST)
    assert (found["index"], attributes(found)) == (index, attributes_)


def test_setting_up_changes_only_that_flag() -> None:
    message = netlink.set_up(12, "eth0")
    found = decoded(message, ifinfmsg)
    assert (message.type, message.flags) == (16, REQUEST)
    assert (found["index"], found["flags"], found["change"], found["attrs"]) == (12, 1, 1, [])


@pytest.mark.parametrize("text,length", [("10.65.0.5", 32), ("fd65::5", 128), ("fe80::1", 64)])
def test_addresses_are_added_without_duplicate_detection(text: str, length: int) -> None:
    address = Address.parse(text)
    message = netlink.add_address(12, "eth0", InterfaceAddress(address, length))
    found = decoded(message, ifaddrmsg)
    assert (message.type, message.flags) == (20, REQUEST | CREATE | EXCL)
    assert (found["family"], found["prefixlen"], found["index"]) == (FAMILIES[address.family], length, 12)
    assert (found["flags"], found["scope"]) == (0x02, 0)
    assert attributes(found) == {"IFA_LOCAL": text, "IFA_ADDRESS": text}


@pytest.mark.parametrize("text", ["169.254.1.1", "fe80::1"])
def test_neighbours_are_permanent(text: str) -> None:
    address = Address.parse(text)
    message = netlink.add_neighbour(12, "eth0", Neighbour(address, "ee:ee:ee:ee:ee:ee"))
    found = decoded(message, ndmsg)
    assert (message.type, message.flags) == (28, REQUEST | CREATE | REPLACE)
    assert (found["family"], found["ifindex"], found["state"]) == (FAMILIES[address.family], 12, 0x80)
    assert attributes(found) == {"NDA_DST": text, "NDA_LLADDR": "ee:ee:ee:ee:ee:ee"}


@pytest.mark.parametrize(
    "route,scope,expected",
    [
        (
            PlannedRoute(
                destination=Prefix.parse("10.65.0.5/32"),
                scope=RouteScope.LINK,
                protocol=RouteProtocol.NETPLUG,
                metric=10,
            ),
            253,
            {"RTA_DST": "10.65.0.5", "RTA_OIF": 12, "RTA_PRIORITY": 10},
        ),
        (
            PlannedRoute(
                destination=Prefix.parse("0.0.0.0/0"),
                gateway=Address.parse("169.254.1.1"),
                scope=RouteScope.GLOBAL,
                protocol=RouteProtocol.BOOT,
            ),
            0,
            {"RTA_OIF": 12, "RTA_GATEWAY": "169.254.1.1"},
        ),
        (
            PlannedRoute(
                destination=Prefix.parse("fd96::/64"),
                gateway=Address.parse("fe80::1"),
                scope=RouteScope.GLOBAL,
                protocol=RouteProtocol.BOOT,
            ),
            0,
            {"RTA_DST": "fd96::", "RTA_OIF": 12, "RTA_GATEWAY": "fe80::1"},
        ),
    ],
)
@pytest.mark.parametrize("insertion,flag", [(RouteInsertion.APPEND, APPEND), (RouteInsertion.EXCLUSIVE, EXCL)])
def test_routes(
    route: PlannedRoute, scope: int, expected: dict[str, object], insertion: RouteInsertion, flag: int
) -> None:
    message = netlink.add_route(12, "eth0", route, insertion)
    found = decoded(message, rtmsg)
    assert (message.type, message.flags) == (24, REQUEST | CREATE | flag)
    assert (found["family"], found["dst_len"]) == (FAMILIES[route.destination.family], route.destination.length)
    assert (found["src_len"], found["tos"], found["flags"]) == (0, 0, 0)
    assert (found["table"], found["proto"], found["scope"], found["type"]) == (254, route.protocol, scope, 1)
    assert attributes(found) == expected


@pytest.mark.parametrize("index", [2, 155, 156, 1 << 20])
def test_a_route_of_the_interfaces_own_table_names_it(index: int) -> None:
    """As an attribute: the header has one byte for the number."""
    everything = Prefix.parse("0.0.0.0/0")
    route = PlannedRoute(
        destination=everything, scope=RouteScope.LINK, protocol=RouteProtocol.BOOT, table=RouteTable.INTERFACE
    )
    found = decoded(netlink.add_route(index, "net1", route, RouteInsertion.APPEND), rtmsg)
    assert (found["table"], attributes(found)) == (0, {"RTA_OIF": index, "RTA_TABLE": 100 + index})


@pytest.mark.parametrize("text,width", [("10.65.0.5", 32), ("fd65::5", 128)])
def test_rules_are_from_one_address_to_the_interfaces_table(text: str, width: int) -> None:
    address = Address.parse(text)
    message = netlink.add_source_rule(12, "net1", address)
    found = decoded(message, fibmsg)
    assert (message.type, message.flags) == (32, REQUEST | CREATE | EXCL)
    assert (found["family"], found["src_len"], found["dst_len"]) == (FAMILIES[address.family], width, 0)
    assert (found["table"], found["action"], found["flags"]) == (0, 1, 0)
    assert attributes(found) == {"FRA_SRC": text, "FRA_TABLE": 112, "FRA_PRIORITY": 32765, "FRA_PROTOCOL": 3}

    message = netlink.delete_rule_to_table(address.family, 112)
    found = decoded(message, fibmsg)
    assert (message.type, message.flags) == (33, REQUEST)
    assert (found["family"], found["src_len"], attributes(found)) == (FAMILIES[address.family], 0, {"FRA_TABLE": 112})


@pytest.mark.parametrize("text,width", [("10.65.0.5", 32), ("fd65::5", 128)])
def test_a_route_query_asks_for_the_route_in_its_table(text: str, width: int) -> None:
    message = netlink.query_route(Address.parse(text))
    found = decoded(message, rtmsg)
    assert (message.type, message.flags) == (26, REQUEST)
    assert (found["dst_len"], found["flags"], attributes(found)) == (width, 0x2000, {"RTA_DST": text})


@pytest.mark.parametrize("family", Family)
def test_routes_are_listed_by_family(family: Family) -> None:
    message = netlink.query_routes(family)
    found = decoded(message, rtmsg)
    assert (message.type, message.flags) == (26, REQUEST | DUMP)
    assert (found["family"], found["attrs"]) == (FAMILIES[family], [])


def test_a_namespace_id_is_queried_by_descriptor() -> None:
    message = netlink.query_namespace_id(9)
    found = decoded(message, nsidmsg)
    assert (message.type, message.flags, attributes(found)) == (90, REQUEST, {"NETNSA_FD": 9})


def encoded(kind: Callable[..., Any], fields: dict[str, object]) -> bytes:
    """A reply of the kernel, encoded by pyroute2, without the netlink header."""
    message = kind()
    for name, value in fields.items():
        message[name] = value
    message.encode()
    return bytes(message.data[HEADER.size :])


def link_reply(*more: tuple[str, object]) -> bytes:
    always = [
        ("IFLA_IFNAME", "netp1"),
        ("IFLA_ADDRESS", "ee:ee:ee:ee:ee:ee"),
        ("IFLA_MTU", 1450),
        ("IFLA_NUM_TX_QUEUES", 4),
        ("IFLA_NUM_RX_QUEUES", 2),
    ]
    return encoded(ifinfmsg, {"index": 7, "flags": 1, "attrs": [*always, *more]})


def test_an_interface_is_decoded() -> None:
    found = netlink.decode_link(link_reply(("IFLA_LINK", 3), ("IFLA_LINK_NETNSID", 5)))
    assert (found.index, found.name, found.mac, found.mtu) == (7, "netp1", "ee:ee:ee:ee:ee:ee", 1450)
    assert (found.tx_queues, found.rx_queues, found.is_up) == (4, 2, True)
    assert (found.peer, found.peer_namespace, found.alias) == (3, 5, "")


def test_the_mac_of_an_interface_is_compared() -> None:
    reply = link_reply(("IFLA_BROADCAST", "ff:ff:ff:ff:ff:ff"))
    macs = ("ee:ee:ee:ee:ee:ee", "ff:ff:ff:ff:ff:ff", "ee:ee:ee:ee:ee:ef")
    assert [netlink.has_mac(reply, mac) for mac in macs] == [True, False, False]


def test_an_alias_is_decoded_whatever_its_bytes() -> None:
    assert netlink.decode_link(link_reply(("IFLA_IFALIAS", "uplink ß"))).alias == "uplink ß"
    raw = link_reply() + struct.pack("=HH", 7, 20) + b"a\xff\0\0"
    assert netlink.decode_link(raw).alias == "a\ufffd"


def test_an_interface_without_a_peer_is_decoded() -> None:
    found = netlink.decode_link(link_reply())
    assert (found.peer, found.peer_namespace) == (None, None)


@pytest.mark.parametrize("number", [4, -1])
def test_the_id_of_a_namespace_is_decoded(number: int) -> None:
    body = struct.pack("=B3x", 0) + struct.pack("=HHi", 8, 1, number)
    assert netlink.decode_namespace_id(body) == number


@pytest.mark.parametrize(
    "family,length,attrs,destination,interface",
    [
        (2, 32, [("RTA_DST", "10.65.0.5"), ("RTA_OIF", 7)], "10.65.0.5/32", 7),
        (10, 128, [("RTA_DST", "fd65::5"), ("RTA_OIF", 7)], "fd65::5/128", 7),
        (2, 0, [("RTA_OIF", 7)], "0.0.0.0/0", 7),
        (10, 64, [("RTA_DST", "fd65::")], "fd65::/64", 0),
    ],
)
def test_a_route_is_decoded(family: int, length: int, attrs: list[object], destination: str, interface: int) -> None:
    found = netlink.decode_route(encoded(rtmsg, {"family": family, "dst_len": length, "table": 254, "attrs": attrs}))
    assert (str(found.destination), found.interface, found.table) == (destination, interface, 254)


def test_the_table_of_a_route_is_decoded_from_its_attribute_if_it_has_one() -> None:
    fields = {"family": 2, "dst_len": 0, "table": 252, "attrs": [("RTA_OIF", 7), ("RTA_TABLE", 1000)]}
    assert netlink.decode_route(encoded(rtmsg, fields)).table == 1000


def test_attributes_end_with_the_data() -> None:
    padded = struct.pack("=HH", 5, 1) + b"a\0\0\0" + struct.pack("=HH", 0x8000 | 4, 2)[:0]
    assert netlink.decode_attributes(padded + struct.pack("=HH", 4, 0x8002) + b"\0\0") == {1: b"a", 2: b""}


def test_an_attribute_of_length_zero_does_not_block_the_decoder() -> None:
    assert netlink.decode_attributes(bytes(4) + struct.pack("=HH", 5, 3) + b"a") == {0: b"", 3: b"a"}
