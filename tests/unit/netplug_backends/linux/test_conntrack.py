"""Each message about connections is decoded with pyroute2, and what the kernel has listed is read."""

import struct
from typing import Any

import pytest
from pyroute2.netlink.nfnetlink.nfctsocket import nfct_msg

from netplug_backends.linux.conntrack import End, delete_connection, list_connections, read_end
from netplug_backends.linux.netlink import NetlinkMessage
from netplug_core.addressing import Address, Family

HEADER = struct.Struct("=IHHII")
REQUEST, DUMP = 0x1, 0x300
GET, DELETE = 1 << 8 | 1, 1 << 8 | 2

# A connection of UDP over IPv6 to a floating address, as a kernel has listed it.
LISTED = bytes.fromhex(
    "0a0000004c0001802c0001801400030020010db80000000000000000000000031400040020010db80005000000000000000000011c0002"
    "80050001001100000006000200d7910000060003008c7f00004c0002802c00018014000300fd6500000000000000000000000000051400"
    "040020010db80000000000000000000000031c0002800500010011000000060002008c7f000006000300d791000008000300000001aa08"
    "0008000000000008000c00090801c508000b0000000001080007000000001d"
)
FLOATING, OTHER = Address.parse("2001:db8:5::1"), Address.parse("203.0.113.1")
CLIENT, WORKLOAD = Address.parse("2001:db8::3"), Address.parse("fd65::5")


def decoded(message: NetlinkMessage) -> Any:  # noqa: ANN401  pyroute2 has no types
    """A message, decoded by pyroute2."""
    data = HEADER.pack(HEADER.size + len(message.body), message.type, message.flags, 1, 0) + message.body
    found = nfct_msg(data)
    found.decode()
    return found


def test_a_listed_connection_has_its_ends() -> None:
    assert read_end(LISTED, Family.IPV6, End.SOURCE) == CLIENT
    assert read_end(LISTED, Family.IPV6, End.DESTINATION) == FLOATING
    assert read_end(LISTED, Family.IPV6, End.REPLY_SOURCE) == WORKLOAD
    for end in End:
        assert read_end(LISTED, Family.IPV4, end) is None
        assert read_end(LISTED[:4], Family.IPV6, end) is None


@pytest.mark.parametrize("family, number", [(Family.IPV4, 2), (Family.IPV6, 10)])
def test_all_connections_of_a_family_are_listed(family: Family, number: int) -> None:
    message = list_connections(family)
    assert (message.type, message.flags) == (GET, REQUEST | DUMP)
    found = decoded(message)
    assert (found["nfgen_family"], found["attrs"]) == (number, [])


@pytest.mark.parametrize(
    "end, name, field, flags",
    [
        (End.SOURCE, "CTA_TUPLE_ORIG", "CTA_IP_V4_SRC", "08000100 01000000"),
        (End.DESTINATION, "CTA_TUPLE_ORIG", "CTA_IP_V4_DST", "08000100 02000000"),
        (End.REPLY_SOURCE, "CTA_TUPLE_REPLY", "CTA_IP_V4_SRC", "08000200 01000000"),
    ],
)
def test_the_kernel_filters_by_one_end(end: End, name: str, field: str, flags: str) -> None:
    message = list_connections(Family.IPV4, OTHER, end)
    ends = decoded(message).get_attr(name)
    assert ends.get_attr("CTA_TUPLE_IP").get_attr(field) == "203.0.113.1"
    assert message.body.endswith(bytes.fromhex("0c001980" + flags))  # CTA_FILTER: that end alone
    assert message.describe() == f"listing the IPv4 connections {end.value} 203.0.113.1"


def test_a_connection_is_deleted_by_its_ends_and_its_id() -> None:
    message = delete_connection(LISTED, Family.IPV6)
    assert (message.type, message.flags) == (DELETE, REQUEST)
    found = decoded(message)
    original = found.get_attr("CTA_TUPLE_ORIG")
    assert original.get_attr("CTA_TUPLE_IP").get_attr("CTA_IP_V6_DST") == "2001:db8:5::1"
    assert original.get_attr("CTA_TUPLE_PROTO").get_attr("CTA_PROTO_DST_PORT") == 0x8C7F
    assert found.get_attr("CTA_ID") == 0x090801C5
    assert [name for name, _value in found["attrs"]] == ["CTA_TUPLE_ORIG", "CTA_ID"]
    assert message.describe() == "forgetting a connection from 2001:db8::3 to 2001:db8:5::1"
