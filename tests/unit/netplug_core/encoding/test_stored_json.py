"""The bytes that stand for values, and what is said about bytes that stand for none."""

import json

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.encoding.stored_json import STORED_JSON, JsonCodec, KindCodec
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.model import FULL, Affinity, AffinityState, Attribute, Block, affinity_key, block_key, handle_key
from netplug_core.records import Key, Kind, Malformed, NotSupported
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY, ClusterInformation
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION_KEY,
    IPAMConfiguration,
    IPPool,
    IPPoolSpec,
    IPReservation,
    ippool_key,
    ipreservation_key,
)
from netplug_core.resources.node import node_key
from netplug_core.testing.datastore_harness import FRUIT

POOL = IPPool(
    metadata=Metadata(name="main", labels=(("site", "north"),)),
    spec=IPPoolSpec(prefix=Prefix.parse("10.1.0.0/16"), block_length=26),
)
POOL_KEY = ippool_key("main")
AFFINITY_KEY = affinity_key("host:node-1", Prefix.parse("fd00::/122"))
APPLE = FRUIT.key("green", "apple")


def test_resources_and_an_allocation_record_come_back_as_they_were() -> None:
    affinity = Affinity(state=AffinityState.PENDING)
    reservation = IPReservation(metadata=Metadata(name="r"))
    configuration = IPAMConfiguration(metadata=Metadata(name="default"))
    pairs: tuple[tuple[Key[object], object], ...] = (
        (POOL_KEY, POOL),
        (AFFINITY_KEY, affinity),
        (ipreservation_key("r"), reservation),
        (IPAM_CONFIGURATION_KEY, configuration),
    )
    for key, value in pairs:
        assert STORED_JSON.decode(key, STORED_JSON.encode(key, value)) == value


def test_the_bytes_are_a_compact_json_object_in_utf_8() -> None:
    pool = evolve(POOL, metadata=Metadata(name="main", annotations=(("note", "Büro"),)))
    data = STORED_JSON.encode(POOL_KEY, pool)
    assert json.loads(data)["metadata"]["annotations"] == {"note": "Büro"}
    assert "Büro".encode() in data
    assert b": " not in data
    assert b", " not in data


def test_fields_of_a_newer_release_are_written_back() -> None:
    mapping = json.loads(STORED_JSON.encode(POOL_KEY, POOL))
    mapping["spec"]["colour"] = "blue"
    pool = STORED_JSON.decode(POOL_KEY, json.dumps(mapping).encode())
    assert json.loads(STORED_JSON.encode(POOL_KEY, pool)) == mapping


@pytest.mark.parametrize(
    "data, reserved",
    [
        (
            b'{"annotations":{"a":"{\\"b\\":\\"10.9.0.0/16\\"}"},"spec":["10.1.0.7/24","x"]}',
            ["10.1.0.0/24"],
        ),
        (b'["fd00::/64","10.1.0.1", "10.1.0.0/33","12","cafe"', ["fd00::/64", "10.1.0.1/32"]),
        (b'{"spec":{"reservedCIDRs":"10.1.0.0/30"}}\xff', ["10.1.0.0/30"]),
    ],
)
def test_the_cidrs_of_a_damaged_reservation_that_can_be_read_still_count(data: bytes, reserved: list[str]) -> None:
    with pytest.raises(Malformed) as caught:
        STORED_JSON.decode(ipreservation_key("r"), data)
    part = caught.value.counts_as
    assert isinstance(part, IPReservation)
    assert list(map(str, part.spec.reserved)) == reserved


@pytest.mark.parametrize(
    "key, data",
    [
        (ipreservation_key("r"), b'{"spec":{"reservedCIDRs":[7'),
        (CLUSTER_INFORMATION_KEY, b'{"spec":{"datastoreReady":true'),
        (POOL_KEY, b'{"spec":{"cidr":"10.1.0.0/16"'),
    ],
)
def test_nothing_counts_of_other_damaged_records(key: Key[object], data: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        STORED_JSON.decode(key, data)
    assert caught.value.counts_as is None


def test_a_damaged_record_of_a_cluster_still_locks_it() -> None:
    with pytest.raises(Malformed) as caught:
        STORED_JSON.decode(CLUSTER_INFORMATION_KEY, b'{"spec":{"datastoreReady" : false')
    part = caught.value.counts_as
    assert isinstance(part, ClusterInformation)
    assert part.is_locked


@pytest.mark.parametrize(
    "key,data,problem",
    [
        (POOL_KEY, b"{", "Expecting property name"),
        (POOL_KEY, b"\xff", "can't decode byte"),
        (POOL_KEY, b"[1]", "not a JSON object but list"),
        (AFFINITY_KEY, b'{"state": "confirmed"} x', "Extra data"),
        (POOL_KEY, b"[" * 100_000, "maximum recursion depth"),
        (POOL_KEY, b'{"kind": "Node"}', "kind"),
        (AFFINITY_KEY, b'{"state": "sideways"}', "sideways"),
        (block_key(Prefix.parse("10.1.0.0/26")), b'{"cidr": 5}', "cidr: 5 is not a string"),
        (
            block_key(Prefix.parse("10.1.0.0/32")),
            b'{"cidr": "10.1.0.9/32", "allocations": [null], "unallocated": [0]}',
            "cidr: '10.1.0.9/32' is not the prefix that the block is stored under",
        ),
    ],
)
def test_bytes_that_stand_for_no_value_are_malformed_and_named(key: Key[object], data: bytes, problem: str) -> None:
    with pytest.raises(Malformed, match=problem) as caught:
        STORED_JSON.decode(key, data)
    assert str(caught.value).startswith(f"the stored record {key} is malformed: ")


def test_blanks_and_another_encoding_are_read_too() -> None:
    affinity = Affinity(state=AffinityState.CONFIRMED)
    text = '{"state": "confirmed"}'
    for data in (f"{text}\n".encode(), f"\n{text}".encode(), text.encode("utf-16")):
        assert STORED_JSON.decode(AFFINITY_KEY, data) == affinity


def test_records_with_the_same_bytes_have_equal_values_and_damaged_ones_their_own_names() -> None:
    data = b'{"block": {"10.1.0.0/26": 1}}'
    assert STORED_JSON.decode(handle_key("a"), data) == STORED_JSON.decode(handle_key("b"), data)
    for name in ("a", "b"):
        with pytest.raises(Malformed, match=f"IPAMHandle\\({name}\\)"):
            STORED_JSON.decode(handle_key(name), b'{"block": 5}')
    assert STORED_JSON.decode(AFFINITY_KEY, b'{"state": "confirmed", "deleted": true}') is None


def test_a_kind_without_a_codec_is_not_supported_and_the_known_ones_are_listed() -> None:
    problem = r"storing of Fruit is not supported: this release stores .*BlockAffinity, ClusterInformation, "
    with pytest.raises(NotSupported, match=problem):
        STORED_JSON.encode(APPLE, "red")
    with pytest.raises(NotSupported, match=problem):
        STORED_JSON.decode(APPLE, b"{}")


def test_a_table_of_ones_own_is_asked_when_a_value_passes_and_its_refusal_names_the_key() -> None:
    def refuse(kind: Kind[object], mapping: object) -> object:
        raise ConfigurationError(f"{kind}.colour", mapping, "a colour is expected")

    codec = JsonCodec({"Fruit": KindCodec(lambda value: {"colour": value}, refuse)})
    assert codec.encode(APPLE, "red") == b'{"colour":"red"}'
    with pytest.raises(Malformed, match=r"Fruit\(green/apple\) is malformed: Fruit.colour: .* a colour is expected"):
        codec.decode(APPLE, b"{}")


def test_unknown_members_that_are_not_utf8_are_written_back_as_they_were() -> None:
    key, rest = node_key("n"), '"apiVersion":"projectnetplug.org/v3","metadata":{"name":"n"},"x":"\\ud800"'
    stored = f'{{"kind":"Node",{rest}}}'.encode()
    node = STORED_JSON.decode(key, stored)
    assert STORED_JSON.decode(key, STORED_JSON.encode(key, node)) == node


@pytest.mark.parametrize("mark", [True, "true"])
def test_a_record_that_is_marked_as_deleted_is_none(mark: object) -> None:
    for key, stored in (
        (AFFINITY_KEY, {"state": "confirmed"}),
        (handle_key("h"), {"block": {}}),
        (block_key(Prefix.parse("10.1.0.0/26")), {"cidr": 5}),
    ):
        assert STORED_JSON.decode(key, json.dumps({**stored, "deleted": mark}).encode()) is None


def test_a_users_resource_has_no_mark_of_deletion() -> None:
    mapping = json.loads(STORED_JSON.encode(POOL_KEY, POOL))
    for place in (mapping, mapping["spec"]):
        place["deleted"] = True
    pool = STORED_JSON.decode(POOL_KEY, json.dumps(mapping).encode())
    assert isinstance(pool, IPPool)
    assert pool.spec.prefix == POOL.spec.prefix


def test_a_full_block_is_known_without_decoding_it() -> None:
    empty = Block.new(Prefix.parse("10.0.0.0/30"), owner="host:node-1", now_ns=0)
    full = empty.assign(empty.free, Attribute(handle="h"))
    for block, is_full in ((empty, False), (full, True)):
        assert STORED_JSON.holds(FULL, STORED_JSON.encode(block.key, block)) is is_full
