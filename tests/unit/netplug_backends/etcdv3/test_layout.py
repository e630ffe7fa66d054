"""The etcd keys of records, unique and reversible, and the stored form of the configuration."""

import json

import pytest

from netplug_backends.etcdv3.layout import ETCD_JSON, LAYOUT
from netplug_core.encoding.stored_json import STORED_JSON
from netplug_core.errors import InvariantBroken
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE, Affinity, AffinityState
from netplug_core.names import InvalidName
from netplug_core.records import Key, Kind, Malformed, NotSupported
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION,
    IPAM_CONFIGURATION_KEY,
    IPPOOL,
    IPAMConfiguration,
    IPAMConfigurationSpec,
)
from netplug_core.resources.kinds import KINDS, ResourceKind
from netplug_core.resources.node import NODE
from netplug_core.resources.profile import PROFILE
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT

RESOURCES = "/netplug/resources/v3/projectnetplug.org"

PLACES: list[tuple[Key[object], str]] = [
    (BLOCK.key("ipv4", "10.0.0.0/26"), "/netplug/ipam/v2/assignment/ipv4/block/10.0.0.0-26"),
    (BLOCK.key("ipv6", "fd80:24e2::/122"), "/netplug/ipam/v2/assignment/ipv6/block/fd80:24e2::-122"),
    (BLOCK.key("ipv6", "::/122"), "/netplug/ipam/v2/assignment/ipv6/block/::-122"),
    (AFFINITY.key("host", "node-a", "ipv4", "10.0.0.0/26"), "/netplug/ipam/v2/host/node-a/ipv4/block/10.0.0.0-26"),
    (AFFINITY.key("virtual", "lb", "ipv6", "fd00::/122"), "/netplug/ipam/v2/virtual/lb/ipv6/block/fd00::-122"),
    (HANDLE.key("Net.4F2a"), "/netplug/ipam/v2/handle/Net.4F2a"),
    (HANDLE.key("a/b"), "/netplug/ipam/v2/handle/a/b"),
    (IPAM_CONFIGURATION_KEY, "/netplug/ipam/v2/config"),
    (IPPOOL.key("pool-1"), f"{RESOURCES}/ippools/pool-1"),
    (PROFILE.key("kns.default"), f"{RESOURCES}/profiles/kns.default"),
    (WORKLOAD_ENDPOINT.key("ns", "node--a-k8s-web-eth0"), f"{RESOURCES}/workloadendpoints/ns/node--a-k8s-web-eth0"),
]


@pytest.mark.parametrize("key,place", PLACES, ids=[place for _, place in PLACES])
def test_a_record_has_the_key_of_the_storage_model(key: Key[object], place: str) -> None:
    assert LAYOUT.key(key) == place.encode()
    assert LAYOUT.find_key(key.kind, place.encode()) == key


@pytest.mark.parametrize("row", KINDS, ids=lambda row: row.name)
def test_a_resource_key_has_its_plural(row: ResourceKind) -> None:
    path = tuple("x" for _ in row.kind.segments)
    assert LAYOUT.key(row.kind.key(*path)) == f"{RESOURCES}/{row.plural}/{'/'.join(path)}".encode()


def test_every_kind_that_is_stored_as_bytes_has_keys() -> None:
    assert set(LAYOUT.kinds) == set(STORED_JSON.kinds) == set(ETCD_JSON.kinds)


@pytest.mark.parametrize(
    "kind,within,start,end",
    [
        (BLOCK, (), "/netplug/ipam/v2/assignment/", "/netplug/ipam/v2/assignment0"),
        (BLOCK, ("ipv4",), "/netplug/ipam/v2/assignment/ipv4/block/", "/netplug/ipam/v2/assignment/ipv4/block0"),
        (BLOCK, ("ipv4", "10.0.0.0/26"), "/netplug/ipam/v2/assignment/ipv4/block/10.0.0.0-26", ""),
        (AFFINITY, (), "/netplug/ipam/v2/host/", "/netplug/ipam/v2/virtual0"),
        (AFFINITY, ("host",), "/netplug/ipam/v2/host/", "/netplug/ipam/v2/host0"),
        (AFFINITY, ("host", "node1"), "/netplug/ipam/v2/host/node1/", "/netplug/ipam/v2/host/node10"),
        (
            AFFINITY,
            ("host", "node1", "ipv4"),
            "/netplug/ipam/v2/host/node1/ipv4/block/",
            "/netplug/ipam/v2/host/node1/ipv4/block0",
        ),
        (HANDLE, (), "/netplug/ipam/v2/handle/", "/netplug/ipam/v2/handle0"),
        (IPAM_CONFIGURATION, (), "/netplug/ipam/v2/config", "/netplug/ipam/v2/config\0"),
        (WORKLOAD_ENDPOINT, ("ns",), f"{RESOURCES}/workloadendpoints/ns/", f"{RESOURCES}/workloadendpoints/ns0"),
    ],
)
def test_a_list_is_one_range(kind: Kind[object], within: tuple[str, ...], start: str, end: str) -> None:
    span = LAYOUT.list_range(kind, within)
    assert (span.start.decode(), span.end.decode()) == (start, end)


@pytest.mark.parametrize(
    "kind,within,name_prefix,start",
    [
        (BLOCK, ("ipv4",), "10.0.1.", "/netplug/ipam/v2/assignment/ipv4/block/10.0.1."),
        (BLOCK, ("ipv6",), "fd00::12", "/netplug/ipam/v2/assignment/ipv6/block/fd00::12"),
        (BLOCK, ("ipv4",), "10.0.0.0/2", "/netplug/ipam/v2/assignment/ipv4/block/10.0.0.0-2"),
        (AFFINITY, ("host", "a", "ipv4"), "10.", "/netplug/ipam/v2/host/a/ipv4/block/10."),
        (HANDLE, (), "a/b", "/netplug/ipam/v2/handle/a/b"),
        (IPPOOL, (), "ma", "/netplug/resources/v3/projectnetplug.org/ippools/ma"),
        (IPAM_CONFIGURATION, (), "def", "/netplug/ipam/v2/config"),
    ],
)
def test_a_list_by_the_beginning_of_a_name_is_one_range(
    kind: Kind[object], within: tuple[str, ...], name_prefix: str, start: str
) -> None:
    span = LAYOUT.list_range(kind, within, name_prefix)
    assert (span.start, span.end) == (start.encode(), start.encode() + b"\xff")


def test_d4_the_range_of_a_host_has_its_affinities_and_no_other_hosts() -> None:
    """Trap 9: ``node1`` begins the name ``node10``."""
    span = LAYOUT.list_range(AFFINITY, ("host", "node1"))
    assert span.start <= LAYOUT.key(AFFINITY.key("host", "node1", "ipv6", "fd00::/122")) < span.end
    for node in ("node10", "node1-a", "node1.a", "node"):
        other = LAYOUT.key(AFFINITY.key("host", node, "ipv4", "10.0.0.0/26"))
        assert not span.start <= other < span.end, node


@pytest.mark.parametrize(
    "key", [BLOCK.key("ipv4", "10.0.0.0/26"), AFFINITY.key("host", "node-a", "ipv6", "fd00::/122")]
)
def test_a_legacy_block_or_affinity_has_a_key_with_a_suffix(key: Key[object]) -> None:
    place, old = LAYOUT.key(key), LAYOUT.legacy_key(key)
    assert old == place + b"@"
    assert LAYOUT.find_key(key.kind, old) == key
    assert (LAYOUT.is_legacy(key.kind, place), LAYOUT.is_legacy(key.kind, old)) == (False, True)
    places = LAYOUT.read_range(key)
    assert places.start == place < old < places.end
    with pytest.raises(Malformed):
        LAYOUT.find_key(key.kind, old + b"@")


def test_other_kinds_have_no_legacy_suffix() -> None:
    handle = HANDLE.key("a@")
    assert LAYOUT.find_key(HANDLE, LAYOUT.key(handle)) == handle
    assert LAYOUT.read_range(handle) == LAYOUT.list_range(HANDLE, ("a@",))
    assert not LAYOUT.is_legacy(HANDLE, LAYOUT.key(handle))


def test_the_key_of_an_owner_alone_is_no_affinity() -> None:
    assert LAYOUT.find_key(AFFINITY, b"/netplug/ipam/v2/host/node1") is None


@pytest.mark.parametrize(
    "kind,raw",
    [
        (BLOCK, b"/netplug/ipam/v2/assignment/ipv4/block/10.0.0.0"),
        (BLOCK, b"/netplug/ipam/v2/assignment/ipv4/10.0.0.0-26"),
        (BLOCK, b"/netplug/ipam/v2/assignment/ipv4/chunk/10.0.0.0-26"),
        (BLOCK, b"/netplug/ipam/v2/assignment/ipv4/block/\xff-26"),
        (AFFINITY, b"/netplug/ipam/v2/host/node1/ipv4/block/x/10.0.0.0-26"),
        (IPPOOL, f"{RESOURCES}/ippools/a/b".encode()),
        (WORKLOAD_ENDPOINT, f"{RESOURCES}/workloadendpoints/a".encode()),
        (WORKLOAD_ENDPOINT, f"{RESOURCES}/workloadendpoints/a/".encode()),
    ],
)
def test_a_foreign_key_is_malformed(kind: Kind[object], raw: bytes) -> None:
    with pytest.raises(Malformed, match=f"it is no key of a {kind}"):
        LAYOUT.find_key(kind, raw)


@pytest.mark.parametrize(
    "key",
    [
        NODE.key("a/b"),
        NODE.key(""),
        NODE.key("\ud800"),
        HANDLE.key("h\ud800"),
        AFFINITY.key("host", "a/b", "ipv4", "10.0.0.0/26"),
        AFFINITY.key("weird", "a", "ipv4", "10.0.0.0/26"),
        AFFINITY.key("host", "a", "ipv4", "10.0.0.0"),
        BLOCK.key("ipv4", "10.0.0.0/26/1"),
    ],
)
def test_d4_an_ambiguous_path_is_refused(key: Key[object]) -> None:
    with pytest.raises((InvalidName, InvariantBroken)):
        LAYOUT.key(key)


def test_a_kind_that_is_not_stored_is_not_supported() -> None:
    with pytest.raises(NotSupported, match=r"storing of Fruit is not supported: etcd keeps .*BlockAffinity, "):
        LAYOUT.key(Kind("Fruit", ("name",)).key("x"))


CONFIGURATION = IPAMConfiguration(
    metadata=Metadata(name="default", uid="6f1c"),
    spec=IPAMConfigurationSpec(is_affinity_strict=True, max_blocks_per_host=7, cooldown_s=30, unknown_json='{"x":1}'),
)


def test_the_configuration_is_stored_flat() -> None:
    stored = json.loads(ETCD_JSON.encode(IPAM_CONFIGURATION_KEY, CONFIGURATION))
    assert stored == {
        "strict_affinity": True,
        "auto_allocate_blocks": True,
        "maxBlocksPerHost": 7,
        "ipCooldownSeconds": 30,
        "x": 1,
        "object": {"metadata": {"name": "default", "uid": "6f1c"}},
    }


def test_d3_the_configuration_round_trips() -> None:
    """D6 too: its metadata is preserved."""
    data = ETCD_JSON.encode(IPAM_CONFIGURATION_KEY, CONFIGURATION)
    assert ETCD_JSON.decode(IPAM_CONFIGURATION_KEY, data) == CONFIGURATION


def test_a_missing_flag_is_false() -> None:
    """Writers omit a false flag. If the whole object is missing, the default is true."""
    found = ETCD_JSON.decode(
        IPAM_CONFIGURATION_KEY, b'{"strict_affinity":true,"kubeVirtVMAddressPersistence":"Enabled"}'
    )
    assert found == IPAMConfiguration(
        metadata=Metadata(name="default"),
        spec=IPAMConfigurationSpec(
            is_affinity_strict=True, may_auto_allocate_blocks=False, vm_address_persistence="Enabled"
        ),
    )


def test_an_affinity_without_a_value_is_confirmed() -> None:
    assert ETCD_JSON.decode(AFFINITY.key("host", "a", "ipv4", "10.0.0.0/26"), b"") == Affinity(
        state=AffinityState.CONFIRMED
    )
    with pytest.raises(Malformed):
        ETCD_JSON.decode(BLOCK.key("ipv4", "10.0.0.0/26"), b"")


def test_an_invalid_configuration_is_malformed() -> None:
    with pytest.raises(Malformed, match="object is not an object"):
        ETCD_JSON.decode(IPAM_CONFIGURATION_KEY, b'{"object":1}')
