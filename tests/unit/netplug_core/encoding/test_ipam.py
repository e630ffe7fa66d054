"""Blocks, claims and handles as JSON: what survives, what is tolerated, what is refused by which field."""

import json
from collections.abc import Mapping
from typing import cast

import pytest
from hypothesis import given

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import parse_time
from netplug_core.encoding.ipam import from_mapping, holds, holds_stored, is_marked_deleted, to_mapping
from netplug_core.ipam.model import (
    AFFINITY,
    BLOCK,
    FULL,
    HANDLE,
    RESERVED_HANDLE,
    Affinity,
    AffinityState,
    Attribute,
    Block,
    Handle,
)
from netplug_core.records import Kind, ValueCondition
from netplug_core.testing.strategies import blocks

Json = dict[str, object]

POD = {
    "handle_id": "k8s-pod-network.4f2a",
    "secondary": {
        "namespace": "default", "node": "node-a", "pod": "web-0", "timestamp": "2026-08-20 10:00:01 +0000 UTC",
    },
}  # fmt: skip
COOLING = {"handle_id": None, "secondary": None, "releasedAt": "2026-08-20T10:05:00Z"}
STORED: Json = {
    "cidr": "10.0.0.0/30",
    "affinity": "host:node-a",
    "affinity_claim_time": "2026-08-20T10:00:00Z",
    "allocations": [None, 0, 1, None],
    "unallocated": [3, 0],
    "attributes": [POD, COOLING],
    "sequenceNumber": 1755684000000000007,
    "sequenceNumberForAllocation": {"1": 1755684000000000002, "2": 1755684000000000006},
}


def through_json(value: object) -> Json:
    return cast("Json", json.loads(json.dumps(to_mapping(value))))


def read(kind: Kind[object], mapping: Mapping[str, object]) -> object:
    return from_mapping(kind, mapping)


def block(**changes: object) -> Block:
    value = read(BLOCK, {**STORED, **changes})
    assert isinstance(value, Block)
    return value


def test_a_block_is_read_and_written_as_it_is() -> None:
    value = block()
    assert value.prefix == Prefix.parse("10.0.0.0/30")
    assert value.owner == "host:node-a"
    assert value.claim_time_ns == parse_time("2026-08-20T10:00:00Z")
    assert value.free == (Ordinal(3), Ordinal(0))
    assert value.sequences == (0, 1755684000000000002, 1755684000000000006, 0)
    pod, cooling = value.attributes
    assert (pod.handle, pod.owner_value("pod")) == ("k8s-pod-network.4f2a", "web-0")
    assert cooling == Attribute(released_ns=parse_time("2026-08-20T10:05:00Z"))
    assert through_json(value) == STORED


def test_numbers_are_exact_beyond_what_a_float_can_hold() -> None:
    number = 2**64 - 1
    assert through_json(block(sequenceNumber=number))["sequenceNumber"] == number


def test_what_a_newer_release_stored_is_carried_through_at_every_level() -> None:
    stored = {**STORED, "shard": {"b": [1, None], "a": 2**60}, "attributes": [{**POD, "zone": "eu"}, COOLING]}
    value = block(**stored)
    assert through_json(value) == stored
    later = value.assign((Ordinal(3),), Attribute(handle="h")).release(frozenset({Ordinal(2)}))
    assert through_json(later)["shard"] == {"a": 2**60, "b": [1, None]}
    assert through_json(later)["attributes"] == [{**POD, "zone": "eu"}, {"handle_id": "h", "secondary": None}]


def test_what_is_carried_is_equal_in_any_order() -> None:
    assert block(zone="eu", shard=1) == block(shard=1, zone="eu") != block(shard=2, zone="eu")


def test_a_second_owner_is_kept() -> None:
    attributes = [{**POD, "alternateOwnerAttrs": {"pod": "web-1"}}, COOLING]
    assert block(attributes=attributes).attributes[0].alternate == (("pod", "web-1"),)
    assert through_json(block(attributes=attributes))["attributes"] == attributes


def test_different_owners_differ_in_any_order_of_members() -> None:
    tunnel = {"handle_id": "vxlan-tunnel-addr-node-a", "secondary": {"type": "vxlanTunnelAddress", "node": "node-a"}}
    value = block(allocations=[3, 0, 1, 2], unallocated=[], attributes=[POD, tunnel, COOLING, tunnel | {"zone": 1}])
    node, kind = ("node", "node-a"), ("type", "vxlanTunnelAddress")
    assert [entry.owner for entry in value.attributes][1:] == [(node, kind), (), (node, kind)]
    assert (value.attributes[3].unknown_json, value.attributes[0].owner_value("pod")) == ('{"zone":1}', "web-0")
    assert value.attributes.find(Attribute(handle="vxlan-tunnel-addr-node-a", owner=(node, kind))) == 1
    written = through_json(value)["attributes"]
    assert written == [POD, tunnel, COOLING, tunnel | {"zone": 1}]


def test_an_owner_without_names_is_none() -> None:
    attributes = [{"handle_id": "h", "secondary": {}}, {"handle_id": "i"}]
    assert through_json(block(attributes=attributes))["attributes"] == [
        {"handle_id": "h", "secondary": None}, {"handle_id": "i", "secondary": None},
    ]  # fmt: skip


def test_numbers_of_ordinals_that_nobody_holds_mean_nothing() -> None:
    value = block(sequenceNumberForAllocation={"0": 5, "2": 6, "4": 7, "4095": 8})
    assert value.sequences == (0, 0, 6, 0)
    assert through_json(value)["sequenceNumberForAllocation"] == {"2": 6}


def test_what_a_client_derives_from_texts_and_numbers_is_as_good() -> None:
    class Text(str):
        __slots__ = ()

    class Number(int):
        __slots__ = ()

    attributes = [{"handle_id": Text("h"), "secondary": {"pod": Text("web-0")}}, COOLING]
    assert block(attributes=attributes).attributes[0] == Attribute(handle="h", owner=(("pod", "web-0"),))
    assert block(unallocated=[Number(3), 0]).free == (3, 0)


def test_a_block_keeps_nothing_of_the_mapping_it_was_read_from() -> None:
    stored = cast("Json", json.loads(json.dumps(STORED)))
    value = read(BLOCK, stored)
    for mapping in (stored, to_mapping(value)):
        for attribute in cast("list[dict[str, dict[str, str] | None]]", mapping["attributes"]):
            (attribute["secondary"] or {}).clear()
    assert through_json(value) == STORED


def test_old_and_foreign_spellings_are_understood() -> None:
    value = block(
        affinity=None,
        affinity_claim_time=None,
        deleted=False,
        sequenceNumberForAllocation=None,
        attributes=[{"handle_id": "id\r\neth0", "secondary": {"pod": "web-0"}}, {"handle_id": None, "secondary": {}}],
    )
    assert (value.owner, value.claim_time_ns, value.unknown_json) == ("", None, "")
    assert [held.sequence for held in value.held()] == [0, 0]
    assert [attribute.handle for attribute in value.attributes] == ["id", None]
    assert through_json(value)["affinity"] is None
    assert "affinity_claim_time" not in through_json(value)


def test_a_block_without_numbers_begins_at_zero() -> None:
    stored = {key: value for key, value in STORED.items() if key != "sequenceNumber"}
    value = read(BLOCK, stored)
    assert isinstance(value, Block)
    assert value.sequence == 0


def test_an_empty_block_may_leave_its_lists_out() -> None:
    value = read(BLOCK, {"cidr": "10.0.0.7/32", "allocations": [None], "unallocated": [0], "attributes": None})
    assert isinstance(value, Block)
    assert value.is_empty


@pytest.mark.parametrize("changes, problem", [
    ({"cidr": None}, "cidr: '' is not an IP address"),
    ({"cidr": 7}, "cidr: 7 is not a string"),
    ({"cidr": "10.0.0.1/30"}, "cidr: '10.0.0.1/30' has host bits set; 10.0.0.0/30 is the prefix that holds it"),
    ({"affinity": ["host:a"]}, "affinity: ['host:a'] is not a string"),
    ({"affinity_claim_time": "today"}, "affinity_claim_time: 'today' is not an RFC 3339 time"),
    ({"affinity_claim_time": 1755684000}, "affinity_claim_time: 1755684000 is not a string"),
    ({"allocations": {}}, "allocations: {} is not a list"),
    ({"allocations": [None, 0, -1, None]}, "allocations: -1 is not a number of at least 0"),
    ({"allocations": [None, False, 1, None]}, "allocations: False is not a number of at least 0"),
    ({"allocations": [None, {}, 1, None]}, "allocations: {} is not a number of at least 0"),
    ({"allocations": [None, 0, 1]}, "allocations: 3 entries for 4 addresses"),
    ({"allocations": [None, 0, 2, None]}, "allocations[2]: 2 is none of the 2 attributes"),
    ({"unallocated": [3, 0.0]}, "unallocated: 0.0 is not a number of at least 0"),
    ({"unallocated": [3, -1]}, "unallocated: -1 is not a number of at least 0"),
    ({"unallocated": [3, True]}, "unallocated: True is not a number of at least 0"),
    ({"unallocated": [3, [0]]}, "unallocated: [0] is not a number of at least 0"),
    ({"unallocated": [3]}, "unallocated: 0 is free and is not listed"),
    ({"attributes": "x"}, "attributes: 'x' is not a list"),
    ({"attributes": [POD, "x"]}, "attributes: 'x' is not an object"),
    ({"attributes": [POD, {"handle_id": 7}]}, "handle_id: 7 is not a string"),
    ({"attributes": [POD, {"secondary": []}]}, "secondary: [] is not an object"),
    ({"attributes": [POD, {"secondary": {"pod": 7}}]}, "secondary.pod: 7 is not a string"),
    (
        {"attributes": [POD, {"handle_id": "h", "secondary": {"node": "n", "pod": None}}]},
        "secondary.pod: None is not a string",
    ),
    ({"attributes": [POD, {"secondary": ""}]}, "secondary: '' is not an object"),
    ({"attributes": [POD, {"handle_id": ["h"]}]}, "handle_id: ['h'] is not a string"),
    ({"attributes": [POD, {"alternateOwnerAttrs": 7}]}, "alternateOwnerAttrs: 7 is not an object"),
    ({"attributes": [POD, {"releasedAt": "now"}]}, "releasedAt: 'now' is not an RFC 3339 time"),
    ({"attributes": [POD, {"releasedAt": ""}]}, "releasedAt: '' is not an RFC 3339 time"),
    ({"sequenceNumber": True}, "sequenceNumber: True is not a number of at least 0"),
    ({"sequenceNumber": None}, "sequenceNumber: None is not a number of at least 0"),
    ({"sequenceNumber": 1.5}, "sequenceNumber: 1.5 is not a number of at least 0"),
    ({"sequenceNumberForAllocation": [1]}, "sequenceNumberForAllocation: [1] is not an object"),
    ({"sequenceNumberForAllocation": {"x": 1}}, "sequenceNumberForAllocation: 'x' is not an ordinal"),
    ({"sequenceNumberForAllocation": {"": 1}}, "sequenceNumberForAllocation: '' is not an ordinal"),
    ({"sequenceNumberForAllocation": {"1_0": 1}}, "sequenceNumberForAllocation: '1_0' is not an ordinal"),
    ({"sequenceNumberForAllocation": {"12345": 1}}, "sequenceNumberForAllocation: '12345' is not an ordinal"),
    ({"sequenceNumberForAllocation": {"1": "2"}}, "sequenceNumberForAllocation: '2' is not a number of at least 0"),
])  # fmt: skip
def test_a_malformed_block_is_refused_by_its_field(changes: Json, problem: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # compared whole below
        block(**changes)
    assert str(caught.value) == problem


def test_an_attribute_that_no_ordinal_uses_is_dropped_by_the_next_write() -> None:
    unused = {"handle_id": "nobody", "secondary": {"node": "node-a"}}
    damaged = block(attributes=[unused, POD, unused, COOLING], allocations=[None, 1, 3, None])
    assert damaged == block()
    assert through_json(damaged)["attributes"] == [POD, COOLING]


def test_an_unused_attribute_hides_no_other_damage() -> None:
    with pytest.raises(ValueError, match="unallocated: 0 is free and is not listed"):
        block(attributes=[POD, COOLING, POD], unallocated=[3])


@pytest.mark.parametrize("state", AffinityState)
def test_a_claim_is_read_and_written_as_it_is(state: AffinityState) -> None:
    stored = {"state": state.value}
    assert read(AFFINITY, stored) == Affinity(state=state)
    assert through_json(Affinity(state=state)) == stored


def test_a_claim_without_a_state_is_as_old_as_it_is_good() -> None:
    for stored in ({}, {"state": None}, {"state": ""}, {"deleted": False}):
        assert read(AFFINITY, stored) == Affinity(state=AffinityState.CONFIRMED)


def test_a_claim_carries_what_it_does_not_know() -> None:
    stored = {"state": "pending", "since": "2026-08-20T10:00:00Z"}
    assert through_json(read(AFFINITY, stored)) == stored


@pytest.mark.parametrize("stored, problem", [
    ({"state": "claimed"}, "state: 'claimed' is not a valid AffinityState"),
    ({"state": 1}, "state: 1 is not a string"),
])  # fmt: skip
def test_a_malformed_claim_is_refused_by_its_field(stored: Json, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read(AFFINITY, stored)


def test_a_handle_is_read_and_written_as_it_is() -> None:
    stored = {"block": {"10.0.0.0/30": 2, "fd00::/122": 1}, "origin": [None]}
    value = read(HANDLE, stored)
    assert isinstance(value, Handle)
    assert value.blocks == ((Prefix.parse("10.0.0.0/30"), 2), (Prefix.parse("fd00::/122"), 1))
    assert through_json(value) == stored


def test_a_handle_keeps_its_sequence_number_where_it_has_one() -> None:
    value = read(HANDLE, {"block": {"10.0.0.0/30": 2}})
    assert isinstance(value, Handle)
    assert through_json(value.touched()) == {"block": {"10.0.0.0/30": 2}, "sequenceNumber": 1}
    assert read(HANDLE, through_json(value.touched())) == value.touched() != value


def test_a_handle_forgets_blocks_that_it_holds_nothing_in() -> None:
    assert read(HANDLE, {"block": {"10.0.0.0/30": 0}, "deleted": False}) == Handle()
    assert read(HANDLE, {"block": None}) == Handle()


@pytest.mark.parametrize("stored, problem", [
    ({"block": ["10.0.0.0/30"]}, r"block: \['10\.0\.0\.0/30'\] is not an object"),
    ({"block": {"x": 1}}, "block: 'x' is not an IP address"),
    ({"block": {"10.0.0.0/30": "1"}}, "block: '1' is not a number of at least 0"),
    ({"block": {"10.0.0.0/30": -1}}, "block: -1 is not a number of at least 0"),
    ({"block": {}, "sequenceNumber": "1"}, "sequenceNumber: '1' is not a number of at least 0"),
])  # fmt: skip
def test_a_malformed_handle_is_refused_by_its_field(stored: Json, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read(HANDLE, stored)


@pytest.mark.parametrize(
    "mapping,is_marked",
    [({"deleted": True}, True), ({"deleted": "true"}, True), ({"deleted": False}, False), ({"deleted": "false"}, False),
     ({}, False), ({"deleted": None}, False)],
)  # fmt: skip
def test_both_spellings_of_the_deleted_mark_count(mapping: Json, *, is_marked: bool) -> None:
    assert is_marked_deleted(mapping) is is_marked


# --- which blocks are full, without decoding them -----------------------------------------------------------------

FULL_STORED: Json = {**STORED, "allocations": [0, 0, 0, 0], "unallocated": [], "attributes": [POD]}


def stored(mapping: Json) -> bytes:
    return json.dumps(mapping, separators=(",", ":")).encode()


@pytest.mark.parametrize("changes, is_full", [
    ({}, True),
    ({"affinity": None}, True),
    ({"attributes": [POD, {**POD, "handle_id": '"unallocated":[]'}], "allocations": [0, 1, 0, 1]}, True),
    ({"unallocated": [2], "allocations": [0, 0, None, 0]}, False),
    ({"attributes": [POD, COOLING], "allocations": [0, 0, 1, 0]}, False),
    ({"attributes": [POD, {"handle_id": RESERVED_HANDLE, "secondary": None}], "allocations": [1, 0, 0, 0]}, False),
    ({"unallocated": None}, False),
    ({"attributes": None}, False),
    ({"attributes": []}, False),
    ({"attributes": ["damaged"]}, False),
])  # fmt: skip
def test_a_block_is_known_to_be_full_before_it_is_decoded(changes: Json, *, is_full: bool) -> None:
    mapping = FULL_STORED | changes
    assert holds(FULL, mapping) is is_full
    assert holds_stored(FULL, stored(mapping)) is is_full
    if is_full:
        assert FULL.holds(from_mapping(BLOCK, mapping))


@pytest.mark.parametrize("data", [
    stored(FULL_STORED | {"deleted": True}),
    stored({"unallocated": [], **FULL_STORED, "x": 1}),
    json.dumps(FULL_STORED).encode(),  # another program's spaces: it is decoded
    stored({**STORED, "x": {"unallocated": []}}),
    stored({**STORED, "attributes": [{**POD, "handle_id": '],"unallocated":[],"attributes":[{'}]}),
    b"",
])  # fmt: skip
def test_what_is_not_certainly_full_is_decoded(data: bytes) -> None:
    assert not holds_stored(FULL, data)


def test_no_other_condition_is_known() -> None:
    other = ValueCondition("other", lambda _value: True)
    assert not holds(other, FULL_STORED)
    assert not holds_stored(other, stored(FULL_STORED))


@given(block=blocks())
def test_full_blocks_are_recognized_in_every_form(block: Block) -> None:
    is_full = FULL.holds(block)
    mapping = through_json(block)
    assert (holds(FULL, mapping), holds_stored(FULL, stored(mapping))) == (is_full, is_full)
