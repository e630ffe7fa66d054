"""The packet filter, as one table of nftables that is netplug's own. It is replaced as a whole, in one transaction.

``nft list table inet netplug`` shows it::

    table inet netplug {
        chain prerouting {
            type filter hook prerouting priority raw; policy accept;
            iifname "netp*" ip daddr 127.0.0.0/8 drop
        }
    }

The program ``nft`` is not needed, and pyroute2 is not used: it would be a seventh of the node process's memory, for one
rule. Tests decode each message with pyroute2 and compare.

Source: nft(8); the numbers are those of the kernel's ``linux/netfilter/nf_tables.h`` and its neighbours.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from netplug_backends.linux.netlink import (
    NetlinkMessage,
    NetlinkProtocol,
    NetlinkSocket,
    decode_attributes,
    encode_attribute,
    encode_nested,
    encode_text,
    iterate_attributes,
)
from netplug_core.dataplane.protocol import NODE_LOOPBACK
from netplug_core.names import HOST_INTERFACE_PREFIX

__all__ = ["NftablesFilter", "list_rules", "replace_table"]

_TABLE = "netplug"
_CHAIN = "prerouting"

_SUBSYSTEM = 10
_NEWTABLE, _DELTABLE, _NEWCHAIN, _NEWRULE, _GETRULE = 0, 2, 3, 6, 7
_REQUEST, _CREATE, _APPEND, _DUMP = 0x1, 0x400, 0x800, 0x300
_NFGENMSG = struct.Struct("!BBH")
_BE32 = struct.Struct("!I")
_INET = 1

_TABLE_NAME = 1
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_TYPE = 1, 3, 4, 7
_HOOK_NUMBER, _HOOK_PRIORITY = 1, 2
_RULE_TABLE, _RULE_CHAIN, _RULE_EXPRESSIONS = 1, 2, 4
_LIST_ELEMENT, _EXPRESSION_NAME, _EXPRESSION_DATA = 1, 1, 2
_META_REGISTER, _META_KEY = 1, 2
_CMP_REGISTER, _CMP_OPERATOR, _CMP_DATA = 1, 2, 3
_PAYLOAD_REGISTER, _PAYLOAD_BASE, _PAYLOAD_OFFSET, _PAYLOAD_LENGTH = 1, 2, 3, 4
_IMMEDIATE_REGISTER, _IMMEDIATE_DATA = 1, 2
_DATA_VALUE, _DATA_VERDICT, _VERDICT_CODE = 1, 2, 1

_PREROUTING, _PRIORITY_RAW = 0, -300  # before address translation, which rewrites the packets of mapped ports
_REGISTER, _VERDICT_REGISTER, _EQUAL, _DROP = 1, 0, 0, 0
_META_IIFNAME, _META_NFPROTO, _IPV4 = 6, 15, b"\x02"
_NETWORK_HEADER, _IPV4_DESTINATION = 1, 16

_OF_CHAIN = encode_text(_RULE_TABLE, _TABLE) + encode_text(_RULE_CHAIN, _CHAIN)
# Which attributes of an expression hold others, by its name and, below that, by their types.
_NESTING: Mapping[str, Mapping[int, object]] = {
    "cmp": {_CMP_DATA: {}},
    "immediate": {_IMMEDIATE_DATA: {_DATA_VERDICT: {}}},
}


class NftablesFilter:
    """The :class:`~netplug_core.dataplane.protocol.PacketFilter` of the calling thread's network namespace."""

    def program(self) -> bool:
        """Replace the table, unless its chain has the rule and no other one."""
        with NetlinkSocket.open(NetlinkProtocol.NETFILTER) as kernel:
            # The kernel lists the rules of the chain: none where there is no such table.
            listed = kernel.send_one(list_rules()).require_success().replies
            if [_decode_rule(body) for body in listed] == [_decode_rule(_rule().body)]:
                return False
            for outcome in kernel.send(replace_table(), subsystem=_SUBSYSTEM):
                outcome.require_success()
        return True


def list_rules() -> NetlinkMessage:
    """List the rules of the chain."""
    return _message(_GETRULE, _DUMP, _OF_CHAIN, "reading the packet filter")


def replace_table() -> tuple[NetlinkMessage, ...]:
    """Replace the table. The first message makes one, so that the second has one to delete."""
    table = encode_text(_TABLE_NAME, _TABLE)
    hook = _be32(_HOOK_NUMBER, _PREROUTING) + _be32(_HOOK_PRIORITY, _PRIORITY_RAW & 0xFFFFFFFF)
    chain = encode_text(_CHAIN_TABLE, _TABLE) + encode_text(_CHAIN_NAME, _CHAIN) + encode_text(_CHAIN_TYPE, "filter")
    return (
        _change(_NEWTABLE, _CREATE, table),
        _change(_DELTABLE, 0, table),
        _change(_NEWTABLE, _CREATE, table),
        _change(_NEWCHAIN, _CREATE, chain + encode_nested(_CHAIN_HOOK, hook)),
        _rule(),
    )


def _rule() -> NetlinkMessage:
    """Drop IPv4 packets that come from a host end and are for the node's loopback addresses."""
    length = NODE_LOOPBACK.length // 8
    expressions = (
        _meta(_META_NFPROTO),
        _equals(_IPV4),
        _meta(_META_IIFNAME),
        _equals(HOST_INTERFACE_PREFIX.encode()),  # a comparison of the first bytes: what nft writes as netp*
        _destination(length),
        _equals(NODE_LOOPBACK.first.packed[:length]),
        _drop(),
    )
    return _change(_NEWRULE, _CREATE | _APPEND, _OF_CHAIN + encode_nested(_RULE_EXPRESSIONS, b"".join(expressions)))


def _meta(key: int) -> bytes:
    return _expression("meta", _be32(_META_REGISTER, _REGISTER) + _be32(_META_KEY, key))


def _equals(value: bytes) -> bytes:
    compared = encode_nested(_CMP_DATA, encode_attribute(_DATA_VALUE, value))
    return _expression("cmp", _be32(_CMP_REGISTER, _REGISTER) + _be32(_CMP_OPERATOR, _EQUAL) + compared)


def _destination(length: int) -> bytes:
    """The first bytes of the destination address."""
    where = _be32(_PAYLOAD_BASE, _NETWORK_HEADER) + _be32(_PAYLOAD_OFFSET, _IPV4_DESTINATION)
    return _expression("payload", _be32(_PAYLOAD_REGISTER, _REGISTER) + where + _be32(_PAYLOAD_LENGTH, length))


def _drop() -> bytes:
    verdict = encode_nested(_DATA_VERDICT, _be32(_VERDICT_CODE, _DROP))
    return _expression(
        "immediate", _be32(_IMMEDIATE_REGISTER, _VERDICT_REGISTER) + encode_nested(_IMMEDIATE_DATA, verdict)
    )


def _expression(name: str, attributes: bytes) -> bytes:
    return encode_nested(
        _LIST_ELEMENT, encode_text(_EXPRESSION_NAME, name) + encode_nested(_EXPRESSION_DATA, attributes)
    )


def _change(number: int, flags: int, attributes: bytes) -> NetlinkMessage:
    return _message(number, flags, attributes, "programming the packet filter")


def _message(number: int, flags: int, attributes: bytes, operation: str) -> NetlinkMessage:
    body = _NFGENMSG.pack(_INET, 0, 0) + attributes
    return NetlinkMessage(_SUBSYSTEM << 8 | number, _REQUEST | flags, body, lambda: operation)


def _be32(kind: int, number: int) -> bytes:
    return encode_attribute(kind, _BE32.pack(number))


# --- what the kernel lists -----------------------------------------------------------------------------------------


def _decode_rule(body: bytes) -> list[tuple[str, object]]:
    """The expressions of a rule; the kernel lists the attributes of each in an order of its own."""
    attributes = decode_attributes(body, _NFGENMSG.size)
    elements = (decode_attributes(each) for _, each in iterate_attributes(attributes.get(_RULE_EXPRESSIONS, b"")))
    return [_decode_expression(element) for element in elements]


def _decode_expression(element: Mapping[int, bytes]) -> tuple[str, object]:
    name = element[_EXPRESSION_NAME].rstrip(b"\0").decode(errors="replace")
    return name, _decode(element.get(_EXPRESSION_DATA, b""), _NESTING.get(name, {}))


def _decode(data: bytes, nesting: object) -> dict[int, object]:
    nested = nesting if isinstance(nesting, Mapping) else {}
    return {
        kind: _decode(payload, nested[kind]) if kind in nested else payload
        for kind, payload in decode_attributes(data).items()
    }
