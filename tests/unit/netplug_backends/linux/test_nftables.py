"""Each message of the packet filter is decoded with pyroute2. What the kernel makes of them is tested on a real one."""

import struct
from typing import Any

from pyroute2.netlink.nfnetlink.nftsocket import nft_chain_msg, nft_rule_msg, nft_table_msg

from netplug_backends.linux.netlink import NetlinkMessage
from netplug_backends.linux.nftables import list_rules, replace_table

HEADER = struct.Struct("=IHHII")
REQUEST, DUMP, CREATE, APPEND = 0x1, 0x300, 0x400, 0x800
NEWTABLE, DELTABLE, NEWCHAIN, NEWRULE, GETRULE = (10 << 8 | number for number in (0, 2, 3, 6, 7))
INET = 1


def decoded(message: NetlinkMessage, kind: Any) -> dict[str, Any]:  # noqa: ANN401  pyroute2 has no types
    """The attributes of a message, decoded completely by pyroute2."""
    data = HEADER.pack(HEADER.size + len(message.body), message.type, message.flags, 1, 0) + message.body
    found = kind(data)
    found.decode()
    assert (found["header"]["length"], found["nfgen_family"]) == (len(data), INET)
    return attributes(found)


def attributes(found: Any) -> dict[str, Any]:  # noqa: ANN401  pyroute2 has no types
    return {name: attributes(value) if isinstance(value, dict) else value for name, value in found["attrs"]}


def test_the_table_is_replaced_whatever_there_was() -> None:
    made, deleted, made_again, chain, rule = replace_table()
    assert [each.type for each in (made, deleted, made_again, chain, rule)] == [
        NEWTABLE, DELTABLE, NEWTABLE, NEWCHAIN, NEWRULE
    ]  # fmt: skip
    assert [each.flags for each in (made, deleted, made_again, chain, rule)] == [
        REQUEST | CREATE, REQUEST, REQUEST | CREATE, REQUEST | CREATE, REQUEST | CREATE | APPEND
    ]  # fmt: skip
    for table in (made, deleted, made_again):
        assert decoded(table, nft_table_msg) == {"NFTA_TABLE_NAME": "netplug"}
    assert decoded(chain, nft_chain_msg) == {
        "NFTA_CHAIN_TABLE": "netplug",
        "NFTA_CHAIN_NAME": "prerouting",
        "NFTA_CHAIN_TYPE": "filter",
        "NFTA_CHAIN_HOOK": {"NFTA_HOOK_HOOKNUM": 0, "NFTA_HOOK_PRIORITY": -300},
    }


def test_the_rule_drops_what_comes_from_a_host_end_for_the_loopback_addresses() -> None:
    rule = decoded(replace_table()[-1], nft_rule_msg)
    assert (rule["NFTA_RULE_TABLE"], rule["NFTA_RULE_CHAIN"]) == ("netplug", "prerouting")
    found = [attributes(each) for each in rule["NFTA_RULE_EXPRESSIONS"]]
    assert [each["NFTA_EXPR_NAME"] for each in found] == ["meta", "cmp", "meta", "cmp", "payload", "cmp", "immediate"]
    protocol, is_ipv4, interface, is_host_end, destination, is_loopback, drop = (
        each["NFTA_EXPR_DATA"] for each in found
    )
    assert [each["NFTA_META_KEY"] for each in (protocol, interface)] == ["NFT_META_NFPROTO", "NFT_META_IIFNAME"]
    compared = (is_ipv4, is_host_end, is_loopback)
    assert [each["NFTA_CMP_DATA"]["NFTA_DATA_VALUE"] for each in compared] == [b"\x02", b"netp", b"\x7f"]
    assert {each["NFTA_CMP_OP"] for each in compared} == {"NFT_CMP_EQ"}
    assert destination == {
        "NFTA_PAYLOAD_DREG": "NFT_REG_1",
        "NFTA_PAYLOAD_BASE": "NFT_PAYLOAD_NETWORK_HEADER",
        "NFTA_PAYLOAD_OFFSET": 16,
        "NFTA_PAYLOAD_LEN": 1,
    }
    assert drop["NFTA_IMMEDIATE_DREG"] == "NFT_REG_VERDICT"
    assert drop["NFTA_IMMEDIATE_DATA"]["NFTA_DATA_VERDICT"]["NFTA_VERDICT_CODE"] == "NF_DROP"


def test_the_rules_of_its_chain_are_listed() -> None:
    message = list_rules()
    assert (message.type, message.flags) == (GETRULE, REQUEST | DUMP)
    assert decoded(message, nft_rule_msg) == {"NFTA_RULE_TABLE": "netplug", "NFTA_RULE_CHAIN": "prerouting"}
