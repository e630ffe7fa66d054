"""Each message about connections is decoded with pyroute2, and what the kernel has listed is read."""

import struct
from typing import Any

import pytest
from pyroute2.netlink.nfnetlink.nfctsocket import nfct_msg

from netplug_backends.linux.conntrack import delete_connection, list_connections, read_destination
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


def decoded(message: NetlinkMessage) -> Any:  # noqa: ANN401  pyroute2 has no types
    """A message, decoded by pyroute2."""
    data = HEADER.pack(HEADER.size + len(message.body), message.type, message.flags, 1, 0) + message.body
    found = nfct_msg(data)
    found.decode()
    return found


def test_a_listed_connection_says_where_it_was_begun_to() -> None:
    assert read_destination(LISTED, Family.IPV6) == FLOATING
    assert read_destination(LISTED, Family.IPV4) is None
    assert read_destination(LISTED[:4], Family.IPV6) is None


@pytest.mark.parametrize("address, family, has_filter", [(OTHER, 2, True), (FLOATING, 10, False)])
def test_the_kernel_filters_for_ipv4_alone(address: Address, family: int, has_filter: bool) -> None:  # noqa: FBT001
    message = list_connections(address)
    assert (message.type, message.flags) == (GET, REQUEST | DUMP)
    found = decoded(message)
    assert found["nfgen_family"] == family
    original = found.get_attr("CTA_TUPLE_ORIG")
    assert (original is not None) is has_filter
    if original is not None:
        assert original.get_attr("CTA_TUPLE_IP").get_attr("CTA_IP_V4_DST") == "203.0.113.1"
        assert message.body.endswith(bytes.fromhex("0c001980 08000100 02000000"))  # CTA_FILTER: the destination alone


def test_a_connection_is_deleted_by_its_ends_and_its_id() -> None:
    message = delete_connection(LISTED, FLOATING)
    assert (message.type, message.flags) == (DELETE, REQUEST)
    found = decoded(message)
    original = found.get_attr("CTA_TUPLE_ORIG")
    assert original.get_attr("CTA_TUPLE_IP").get_attr("CTA_IP_V6_DST") == "2001:db8:5::1"
    assert original.get_attr("CTA_TUPLE_PROTO").get_attr("CTA_PROTO_DST_PORT") == 0x8C7F
    assert found.get_attr("CTA_ID") == 0x090801C5
    assert [name for name, _value in found["attrs"]] == ["CTA_TUPLE_ORIG", "CTA_ID"]
    assert message.describe() == "forgetting a connection to 2001:db8:5::1"
