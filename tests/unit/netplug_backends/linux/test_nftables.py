"""What libnftables lists is read; what no table of ours has is named. The kernel itself is in the integration tests."""

import json

import pytest

from netplug_backends.linux.nftables import read_listing, read_packets
from netplug_core.addressing import Address, Prefix
from netplug_core.dataplane.ruleset import (
    BaseChain,
    ChainOutline,
    ChainType,
    Element,
    ElementType,
    Hook,
    NamedSet,
    ObservedTable,
    UnreadableObject,
)

IN_TABLE = {"family": "inet", "table": "t"}
IPV4 = ElementType.IPV4_ADDRESS


def listed(*objects: dict[str, dict[str, object]]) -> ObservedTable:
    head = ({"metainfo": {"version": "1.0.6", "json_schema_version": 1}}, {"table": {"family": "inet", "name": "t"}})
    return read_listing("t", json.dumps({"nftables": [*head, *objects]}))


def a_set(kind: str = "set", **members: object) -> dict[str, dict[str, object]]:
    return {kind: {**IN_TABLE, "name": "s", "handle": 1, "type": "ipv4_addr", **members}}


def test_packets_of_all_counters_are_added_up() -> None:
    rules = (
        [{"counter": {"packets": 3, "bytes": 252}}, {"drop": None}],
        [{"accept": None}],
        [{"match": {}}, {"counter": {"packets": 4, "bytes": 300}}],
        [{"counter": None}],
    )
    found = [{"rule": {**IN_TABLE, "chain": "guard", "handle": at, "expr": rule}} for at, rule in enumerate(rules)]
    assert read_packets(json.dumps({"nftables": [{"chain": {**IN_TABLE, "name": "guard"}}, *found]})) == 7
    assert read_packets(json.dumps({"nftables": []})) == 0


def test_an_empty_table_has_nothing() -> None:
    assert listed() == ObservedTable(name="t")


def test_chains_have_the_comments_of_their_rules_in_order() -> None:
    base = {"type": "nat", "hook": "postrouting", "prio": 95, "policy": "accept"}
    found = listed(
        {"chain": {**IN_TABLE, "name": "guard", "handle": 2}},
        {"chain": {**IN_TABLE, "name": "out", "handle": 1, **base}},
        {"rule": {**IN_TABLE, "chain": "out", "handle": 7, "comment": "b", "expr": [{"accept": None}]}},
        {"rule": {**IN_TABLE, "chain": "out", "handle": 3, "expr": [{"drop": None}]}},
        {"rule": {**IN_TABLE, "chain": "out", "handle": 9, "comment": "a", "expr": []}},
    )
    assert found.chains == (
        ChainOutline(name="guard"),
        ChainOutline(name="out", base=BaseChain(ChainType.NAT, Hook.POSTROUTING, 95), marks=("b", "", "a")),
    )


@pytest.mark.parametrize("flags", [["interval"], "interval"])
def test_a_set_of_prefixes_has_prefixes(flags: object) -> None:
    prefix = {"prefix": {"addr": "10.0.0.0", "len": 8}}
    (found,) = listed(a_set(flags=flags, elem=[prefix, "192.0.2.1"])).sets
    texts = ("10.0.0.0/8", "192.0.2.1/32")
    elements = frozenset(Element((Prefix.parse(text),)) for text in texts)
    assert found == NamedSet(name="s", types=(IPV4,), is_interval=True, elements=elements)


def test_maps_have_values_and_perhaps_two_parts_in_a_key() -> None:
    one, other = Address.parse("10.0.0.5"), Address.parse("203.0.113.1")
    (plain,) = listed(a_set("map", map="ipv4_addr", elem=[["203.0.113.1", "10.0.0.5"]])).sets
    assert plain.elements == {Element((other,), one)}
    pair = [[{"concat": ["10.0.0.5", "10.0.0.5"]}, "203.0.113.1"]]
    (pairs,) = listed(a_set("map", type=["ipv4_addr", "ipv4_addr"], map="ipv4_addr", elem=pair)).sets
    assert pairs.elements == {Element((one, one), other)}
    assert (pairs.types, pairs.value_type) == ((IPV4, IPV4), IPV4)


@pytest.mark.parametrize(
    "foreign",
    [
        a_set(type="mark"),
        a_set(map="mark", kind="map"),
        a_set(flags=["interval", "timeout"]),
        a_set(timeout=60),
        a_set(elem=[{"elem": {"val": "10.0.0.1", "timeout": 5}}]),
        a_set(elem=["10.0.0.1", "host.example"]),
        a_set(flags=["interval"], elem=[{"range": ["10.0.0.1", "10.0.0.9"]}]),
        a_set("map", map="ipv4_addr", elem=["10.0.0.1"]),
        a_set(type=["ipv4_addr", "ipv4_addr"], elem=["10.0.0.1"]),
    ],
)
def test_a_set_that_no_table_of_ours_has_is_named(foreign: dict[str, dict[str, object]]) -> None:
    (kind,) = foreign
    assert listed(foreign).unreadable == (UnreadableObject(kind, "s"),)


def test_other_objects_and_other_base_chains_are_named() -> None:
    found = listed(
        {"counter": {**IN_TABLE, "name": "seen", "handle": 4}},
        {"chain": {**IN_TABLE, "name": "c", "type": "route", "hook": "output", "prio": 0, "policy": "accept"}},
        {"chain": {**IN_TABLE, "name": "d", "type": "nat", "hook": "output", "prio": "raw", "policy": "accept"}},
    )
    assert found.unreadable == tuple(
        UnreadableObject(kind, name) for kind, name in (("counter", "seen"), ("chain", "c"), ("chain", "d"))
    )
