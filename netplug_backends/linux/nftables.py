"""The packet filter, as one table of nftables that is netplug's own. It is replaced as a whole, in one transaction.

``nft list table inet netplug`` shows it::

    table inet netplug {
        chain prerouting {
            type filter hook prerouting priority raw; policy accept;
            iifname "netp*" ip daddr 127.0.0.0/8 drop
        }
    }

The node process imports it by need, as it loads pyroute2. The program ``nft`` is not needed.

Source: nft(8); the numbers are those of the kernel's ``linux/netfilter/nf_tables.h`` and its neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from pyroute2.netlink import NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_NFTABLES, nfgen_msg
from pyroute2.netlink.nfnetlink.nftsocket import (
    NFT_MSG_DELTABLE,
    NFT_MSG_GETRULE,
    NFT_MSG_NEWCHAIN,
    NFT_MSG_NEWRULE,
    NFT_MSG_NEWTABLE,
    NFTSocket,
    nft_chain_msg,
    nft_rule_msg,
    nft_table_msg,
)
from pyroute2.nftables.expressions import genex, verdict

from netplug_core.dataplane.packet_filter import NODE_LOOPBACK
from netplug_core.dataplane.protocol import KernelError
from netplug_core.names import HOST_INTERFACE_PREFIX

__all__ = ["NftablesFilter"]

_TABLE = "netplug"
_CHAIN = "prerouting"
_INET = 1
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_PREROUTING, _PRIORITY_RAW = 0, -300  # before address translation, which rewrites the packets of mapped ports
_REGISTER, _EQUAL = 1, 0
_META_IIFNAME, _META_NFPROTO, _IPV4 = 6, 15, b"\x02"
_NETWORK_HEADER, _IPV4_DESTINATION = 1, 16
_DROP = 0

_TABLE_NAME = ("NFTA_TABLE_NAME", _TABLE)
_OF_CHAIN = (("NFTA_RULE_TABLE", _TABLE), ("NFTA_RULE_CHAIN", _CHAIN))


class NftablesFilter:
    """The :class:`~netplug_core.dataplane.packet_filter.PacketFilter` of the calling thread's network namespace."""

    def program(self) -> bool:
        """Replace the table, unless its chain has the rule and no other one."""
        # This fails where nftables is missing or the right to use it: the kernel's answer to a transaction would be
        # about its first message, for which pyroute2 does not wait.
        if self._is_programmed():
            return False
        with _translated("programming the packet filter"), NFTSocket(nfgen_family=_INET) as kernel:
            tuple(kernel.nlm_request_batch(_transaction()))
        return True

    def _is_programmed(self) -> bool:
        wanted = _message(nft_rule_msg, NFT_MSG_GETRULE, 0, *_OF_CHAIN)
        with _translated("reading the packet filter"), NFTSocket(nfgen_family=_INET) as kernel:
            # The kernel lists the rules of the chain: none where there is no such table.
            rules = tuple(kernel.request_get(wanted, NFT_MSG_GETRULE))
        return [_expressions(rule) for rule in rules] == [_expressions(_decoded(_rule()))]


def _transaction() -> list[nfgen_msg]:
    """Replace the table. The first message makes one, so that the second has one to delete."""
    hook = {"attrs": [("NFTA_HOOK_HOOKNUM", _PREROUTING), ("NFTA_HOOK_PRIORITY", _PRIORITY_RAW)]}
    chain = (("NFTA_CHAIN_TABLE", _TABLE), ("NFTA_CHAIN_NAME", _CHAIN), ("NFTA_CHAIN_TYPE", "filter"))
    return [
        _boundary(_BATCH_BEGIN),
        _message(nft_table_msg, NFT_MSG_NEWTABLE, NLM_F_CREATE, _TABLE_NAME),
        _message(nft_table_msg, NFT_MSG_DELTABLE, 0, _TABLE_NAME),
        _message(nft_table_msg, NFT_MSG_NEWTABLE, NLM_F_CREATE, _TABLE_NAME),
        _message(nft_chain_msg, NFT_MSG_NEWCHAIN, NLM_F_CREATE, *chain, ("NFTA_CHAIN_HOOK", hook)),
        _rule(),
        _boundary(_BATCH_END),
    ]


def _rule() -> nfgen_msg:
    """Drop IPv4 packets that come from a host end and are for the node's loopback addresses."""
    network, length = NODE_LOOPBACK.first.packed, NODE_LOOPBACK.length
    expressions = [
        genex("meta", {"dreg": _REGISTER, "key": _META_NFPROTO}),
        _equals(_IPV4),
        genex("meta", {"dreg": _REGISTER, "key": _META_IIFNAME}),
        _equals(HOST_INTERFACE_PREFIX.encode()),  # a comparison of the first bytes: what nft writes as netp*
        genex(
            "payload",
            {"dreg": _REGISTER, "base": _NETWORK_HEADER, "offset": _IPV4_DESTINATION, "len": length // 8},
        ),
        _equals(network[: length // 8]),
        *verdict(_DROP),
    ]
    attributes = (*_OF_CHAIN, ("NFTA_RULE_EXPRESSIONS", expressions))
    return _message(nft_rule_msg, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, *attributes)


def _equals(value: bytes) -> Mapping[str, object]:
    data = {"attrs": [("NFTA_DATA_VALUE", value)]}
    expression: Mapping[str, object] = genex("cmp", {"sreg": _REGISTER, "op": _EQUAL, "data": data})
    return expression


def _message(kind: type[nfgen_msg], number: int, flags: int, *attributes: tuple[str, object]) -> nfgen_msg:
    message = kind()
    message["nfgen_family"] = _INET
    message["attrs"] = list(attributes)
    _set_header(message, NFNL_SUBSYS_NFTABLES << 8 | number, NLM_F_REQUEST | NLM_F_ACK | flags)
    return message


def _boundary(number: int) -> nfgen_msg:
    """The first or the last message of a transaction; the kernel acknowledges those between them."""
    message = nfgen_msg()
    message["res_id"] = NFNL_SUBSYS_NFTABLES
    _set_header(message, number, NLM_F_REQUEST)
    return message


def _set_header(message: nfgen_msg, number: int, flags: int) -> None:
    header = cast("dict[str, int]", message["header"])
    header["type"] = number
    header["flags"] = flags


def _decoded(message: nfgen_msg) -> nfgen_msg:
    """A message as it comes out of the kernel: with names in place of numbers."""
    message.encode()
    decoded = type(message)(message.data)
    decoded.decode()
    return decoded


def _expressions(rule: nfgen_msg) -> object:
    return _by_name(rule.get_attr("NFTA_RULE_EXPRESSIONS"))


def _by_name(value: object) -> object:
    """Attributes as dictionaries: the kernel lists them in an order of its own."""
    if isinstance(value, list):
        return [_by_name(each) for each in value]
    if isinstance(value, dict):
        return {name: _by_name(content) for name, content in value["attrs"]}
    return value


@contextmanager
def _translated(operation: str) -> Iterator[None]:
    try:
        yield
    except NetlinkError as error:
        raise KernelError(operation, os.strerror(error.code)) from error
    except OSError as error:
        raise KernelError(operation, os.strerror(error.errno or 0)) from error
