"""Records as objects of both API groups, and decoding of what other programs wrote."""

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.kubernetes.client.apiclient import Json
from netplug_backends.kubernetes.layout import KIND_MAPPINGS, is_deleted, mirrored_uid
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Ordinal, Prefix
from netplug_core.ipam.model import (
    AFFINITY,
    BLOCK,
    HANDLE,
    Affinity,
    AffinityState,
    Attribute,
    Attributes,
    Block,
    Handle,
    affinity_key,
    handle_key,
)
from netplug_core.records import Key, Kind, Malformed
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION,
    IPAM_CONFIGURATION_KEY,
    IPPOOL,
    IPRESERVATION,
    IPPool,
    IPReservation,
    ipreservation_key,
)
from netplug_core.resources.kinds import key_of
from tests.harness.resources import NETWORK_POLICY

PREFIX = Prefix.parse("10.0.0.0/30")
STORED_BLOCK = Block(
    prefix=PREFIX,
    owner="host:node-a",
    claim_time_ns=1_787_220_000_000_000_000,
    allocations=(None, 0, None, None),
    free=(Ordinal(2), Ordinal(3), Ordinal(0)),
    attributes=Attributes.of(
        (Attribute(handle="k8s-pod-network.4f2a", owner=(("namespace", "default"), ("pod", "web-0"))),)
    ),
    sequence=1755684000000000003,
    sequences=(0, 1755684000000000002, 0, 0),
)
BLOCK_SPEC = {
    "cidr": "10.0.0.0/30",
    "affinity": "host:node-a",
    "affinityClaimTime": "2026-08-20T10:00:00Z",
    "allocations": [None, 0, None, None],
    "unallocated": [2, 3, 0],
    "attributes": [{"handle_id": "k8s-pod-network.4f2a", "secondary": {"namespace": "default", "pod": "web-0"}}],
    "sequenceNumber": 1755684000000000003,
    "sequenceNumberForAllocation": {"1": 1755684000000000002},
    "deleted": False,
}
UID = "0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0"


def encoded_spec(mode: CrdMode, key: Key[object], value: object) -> dict[str, object]:
    """The spec after a JSON round trip."""
    spec = json.loads(json.dumps(KIND_MAPPINGS[key.kind.name].encode(mode, key, value)))["spec"]
    assert isinstance(spec, dict)
    return spec


def decoded(mode: CrdMode, kind: Kind[object], spec: object) -> tuple[Key[object], object]:
    return KIND_MAPPINGS[kind.name].decode(mode, kind, {"metadata": {"name": "any"}, "spec": spec})


def test_blocks_have_the_members_that_other_tools_read() -> None:
    assert encoded_spec(CrdMode.V3, STORED_BLOCK.key, STORED_BLOCK) == BLOCK_SPEC
    assert encoded_spec(CrdMode.V1, STORED_BLOCK.key, STORED_BLOCK) == BLOCK_SPEC | {"strictAffinity": False}


@pytest.mark.parametrize("mode", CrdMode)
def test_s12_a_block_keeps_cooling_addresses_and_unknown_members(mode: CrdMode) -> None:
    """Traps 11 and 12: no owner, no handle, releasedAt, and the members of a newer release."""
    cooling = Attribute(handle=None, released_ns=1_787_220_000_000_000_000, unknown_json='{"newer":[1]}')
    block = evolve(
        STORED_BLOCK,
        owner="",
        claim_time_ns=None,
        attributes=Attributes.of((cooling,)),
        unknown_json='{"later":{"a":null}}',
    )
    assert decoded(mode, BLOCK, encoded_spec(mode, block.key, block)) == (block.key, block)
    assert "affinity" not in encoded_spec(mode, block.key, block)


def test_a_block_of_an_old_release_is_decoded() -> None:
    """Trap 11: a null list is an empty list."""
    spec: dict[str, object] = {
        "cidr": "10.0.0.0/30",
        "allocations": [0, 0, 0, 0],
        "unallocated": None,
        "attributes": [{}],
    }
    _, block = decoded(CrdMode.V1, BLOCK, spec)
    assert isinstance(block, Block)
    assert block.free == ()


@pytest.mark.parametrize("mode,deleted", [(CrdMode.V1, "false"), (CrdMode.V3, False)])
def test_the_spec_of_an_affinity_has_its_key(mode: CrdMode, deleted: object) -> None:
    """Trap 4: the deleted flag is a text in v1 and a boolean in v3."""
    key, value = affinity_key("host:node-a", PREFIX), Affinity(state=AffinityState.CONFIRMED)
    spec = encoded_spec(mode, key, value)
    assert spec == {"state": "confirmed", "node": "node-a", "type": "host", "cidr": "10.0.0.0/30", "deleted": deleted}
    assert decoded(mode, AFFINITY, spec) == (key, value)


def test_s11_an_affinity_without_type_is_a_hosts_and_one_without_state_is_confirmed() -> None:
    key, value = decoded(CrdMode.V1, AFFINITY, {"node": "node-a", "cidr": "10.0.0.0/30", "deleted": "false"})
    assert key == affinity_key("host:node-a", PREFIX)
    assert value == Affinity(state=AffinityState.CONFIRMED)


@pytest.mark.parametrize("mode", CrdMode)
def test_the_spec_of_a_handle_has_its_id(mode: CrdMode) -> None:
    key, value = handle_key("Net.A1~0123abcd"), Handle(blocks=((PREFIX, 1),))
    spec = encoded_spec(mode, key, value)
    assert spec == {"handleID": "Net.A1~0123abcd", "block": {"10.0.0.0/30": 1}, "deleted": False}
    assert decoded(mode, HANDLE, spec) == (key, value)


@pytest.mark.parametrize(
    "kind,spec,problem",
    [
        (BLOCK, {"allocations": []}, "'cidr' is missing"),
        (BLOCK, {"cidr": "10.0.0.0/30", "allocations": ["x"], "unallocated": []}, "allocations"),
        (AFFINITY, {"node": "a", "cidr": "here"}, "here"),
        (AFFINITY, {"cidr": "10.0.0.0/30"}, "'node' is missing"),
        (HANDLE, {"block": {}}, "'handleID' is missing"),
        (HANDLE, None, "'handleID' is missing"),
        (IPPOOL, {"cidr": "here"}, "IPPool CIDR must be a valid subnet"),
    ],
)
def test_an_invalid_spec_is_malformed_and_named(kind: Kind[object], spec: object, problem: str) -> None:
    with pytest.raises(Malformed) as refusal:
        decoded(CrdMode.V1, kind, spec)
    assert str(kind) in refusal.value.key
    assert "any" in refusal.value.key
    assert problem in refusal.value.problem


def test_the_cidrs_of_an_invalid_reservation_that_can_be_read_still_count() -> None:
    with pytest.raises(Malformed) as refusal:
        decoded(CrdMode.V1, IPRESERVATION, {"reservedCIDRs": {"first": "10.0.0.0/30", "second": 7}})
    part = refusal.value.counts_as
    assert refusal.value.subject == ipreservation_key("any")
    assert isinstance(part, IPReservation)
    assert part.spec.reserved == (PREFIX,)


@pytest.mark.parametrize(
    "kind,whole",
    [
        (HANDLE, lambda nested: {"spec": {"handleID": "any", "block": {}, "later": nested}}),
        (
            IPPOOL,
            lambda nested: {
                "spec": {"cidr": "10.0.0.0/24"},
                "status": {"conditions": [{"type": "t", "status": "True", "later": nested}]},
            },
        ),
    ],
)
def test_an_object_of_any_depth_is_decoded_or_malformed(kind: Kind[object], whole: Callable[[object], Json]) -> None:
    """Which depth is too deep depends on the version of Python."""
    nested: object = []
    refused = 0
    for depth in range(200_000):
        nested = [nested]
        if 1100 < depth < 199_999:
            continue
        with suppress(Malformed):
            KIND_MAPPINGS[kind.name].decode(CrdMode.V1, kind, {"metadata": {"name": "any"}, **whole(nested)})
            continue
        refused += 1
    assert 0 < refused <= 1100


def test_a_key_without_a_valid_prefix_is_malformed() -> None:
    with pytest.raises(Malformed, match=r"IPAMBlock\(ipv4/here\)"):
        KIND_MAPPINGS["IPAMBlock"].name(("ipv4", "here"))


@pytest.mark.parametrize("deleted", [True, "true"])
def test_d8_both_spellings_of_the_deleted_flag_count(deleted: object) -> None:
    assert is_deleted(KIND_MAPPINGS["IPAMBlock"], {"spec": {"deleted": deleted}})


@pytest.mark.parametrize("found", [{}, {"spec": {}}, {"spec": {"deleted": False}}, {"spec": {"deleted": "false"}}])
def test_other_records_are_not_marked(found: dict[str, object]) -> None:
    assert not is_deleted(KIND_MAPPINGS["IPAMBlock"], found)


@pytest.mark.parametrize("kind", ["IPPool", "IPAMConfiguration"])
def test_a_users_resource_has_no_mark_of_deletion(kind: str) -> None:
    assert not is_deleted(KIND_MAPPINGS[kind], {"spec": {"deleted": True}})


def test_a_record_that_waits_for_finalizers_is_deleted_and_a_users_resource_is_not() -> None:
    found = {"metadata": {"deletionTimestamp": "2026-08-20T10:00:00Z"}}
    assert is_deleted(KIND_MAPPINGS["IPAMHandle"], found)
    assert not is_deleted(KIND_MAPPINGS["IPPool"], found)


def test_resources_are_stored_without_the_servers_metadata() -> None:
    pool = IPPool.for_prefix(Prefix.parse("10.1.0.0/16"), name="main")
    known = evolve(pool.metadata, uid=UID, creation_time_ns=0, labels=(("a", "b"),), finalizers=("x.example/y",))
    body = KIND_MAPPINGS["IPPool"].encode(CrdMode.V1, pool.key, evolve(pool, metadata=known))
    assert body["metadata"] == {"name": "main", "labels": {"a": "b"}, "finalizers": ["x.example/y"]}


@pytest.mark.parametrize("mode,shown", [(CrdMode.V1, mirrored_uid(UID)), (CrdMode.V3, UID)])
def test_a_resource_shows_its_uid_mirrored_in_v1(mode: CrdMode, shown: str) -> None:
    """D7: the rest of the metadata is unchanged in both modes."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": UID}
    metadata = {"name": "main", "uid": UID, "resourceVersion": "7", "ownerReferences": [owner], "labels": {"a": "b"}}
    found = {"metadata": metadata, "spec": {"cidr": "10.1.0.0/16"}, "kind": "IPPool", "apiVersion": mode.value}
    key, pool = KIND_MAPPINGS["IPPool"].decode(mode, IPPOOL, found)
    assert isinstance(pool, IPPool)
    assert key == pool.key
    assert pool.metadata.uid == shown
    assert pool.metadata.owner_references[0].uid == UID
    assert pool.metadata.labels == (("a", "b"),)


def test_the_configuration_has_another_kind_in_v1() -> None:
    sort = KIND_MAPPINGS["IPAMConfiguration"]
    assert dict(sort.plural) == {CrdMode.V1: "ipamconfigs", CrdMode.V3: "ipamconfigurations"}
    found = {"kind": "IPAMConfig", "metadata": {"name": "default"}, "spec": {"strictAffinity": True}}
    key, _ = sort.decode(CrdMode.V1, IPAM_CONFIGURATION, found)
    assert key == IPAM_CONFIGURATION_KEY


@pytest.mark.parametrize(
    "kind,within,selection",
    [
        ("BlockAffinity", (), {}),
        ("BlockAffinity", ("host",), {"labelSelector": "projectnetplug.org/affinity-type=host"}),
        ("IPAMBlock", ("ipv4",), {}),
        ("IPAMBlock", ("ipv4", "10.0.0.0/30"), {"fieldSelector": "metadata.name=10-0-0-0-30"}),
        ("IPAMHandle", ("k8s-pod-network.abc",), {"fieldSelector": "metadata.name=k8s-pod-network.abc"}),
        ("IPPool", (), {}),
        ("IPPool", ("main",), {"fieldSelector": "metadata.name=main"}),
    ],
)
def test_s6_s9_lists_are_narrowed_by_labels_or_name(
    kind: str, within: tuple[str, ...], selection: dict[str, str]
) -> None:
    assert KIND_MAPPINGS[kind].list_parameters(within) == selection


def test_a_mirrored_uid_is_another_uid_of_the_same_version() -> None:
    """D7, trap 14: bytes 6 and 8 have version and variant and are not changed."""
    assert mirrored_uid("01000000-0000-4000-8000-000000000080") == "80000000-0000-4000-8000-000000000001"


@given(st.uuids().map(str))
def test_d7_a_uid_mirrored_twice_is_itself(uid: str) -> None:
    assert mirrored_uid(mirrored_uid(uid)) == uid


@pytest.mark.parametrize("text", ["", "no-uid", "ab"])
def test_a_text_that_is_no_uid_is_not_mirrored(text: str) -> None:
    assert mirrored_uid(text) == text


@pytest.mark.parametrize("mode", CrdMode)
def test_the_attempt_that_created_a_resource_is_kept_in_an_annotation_that_users_do_not_see(mode: CrdMode) -> None:
    pool = IPPool.for_prefix(Prefix.parse("10.1.0.0/16"), name="main")
    made = evolve(pool, metadata=evolve(pool.metadata, annotations=(("a", "b"),), attempt="4f2a"))
    body = KIND_MAPPINGS["IPPool"].encode(mode, pool.key, made)
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["annotations"] == {"a": "b", "projectnetplug.org/attempt": "4f2a"}
    _, value = KIND_MAPPINGS["IPPool"].decode(mode, IPPOOL, {**body, "metadata": {**metadata, "name": "main"}})
    assert isinstance(value, IPPool)
    assert (value.metadata.annotations, value.metadata.attempt) == ((("a", "b"),), "4f2a")


@pytest.mark.parametrize("mode", CrdMode)
def test_a_resource_of_a_namespace_is_in_it_by_its_object(mode: CrdMode) -> None:
    mapping, key = KIND_MAPPINGS["NetworkPolicy"], key_of(NETWORK_POLICY)
    assert (mapping.is_namespaced, mapping.plural[mode]) == (True, "networkpolicies")
    encoded = json.loads(json.dumps(mapping.encode(mode, key, NETWORK_POLICY)))
    assert encoded["metadata"]["namespace"] == "default"
    assert mapping.decode(mode, key.kind, encoded) == (key, NETWORK_POLICY)
    assert mapping.list_parameters(()) == mapping.list_parameters(("default",)) == {}
    assert mapping.list_parameters(key.path) == {"fieldSelector": "metadata.name=web"}
    broken = {**encoded, "metadata": {**encoded["metadata"], "finalizers": 1}}
    with pytest.raises(Malformed, match=r"NetworkPolicy default/web") as caught:
        mapping.decode(mode, key.kind, broken)
    assert caught.value.subject == key
    assert [name for name, one in KIND_MAPPINGS.items() if one.is_namespaced] == ["NetworkPolicy", "NetworkSet"]
