"""An export as text: what is written is read again, and everything else is refused with its place."""

from __future__ import annotations

import json

import pytest

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import SECOND_NS
from netplug_core.encoding.export import (
    Export,
    ExportedRecord,
    ExportHeader,
    UnusableExport,
    decode_export,
    encode_export,
)
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, Handle, affinity_key, handle_key
from netplug_core.records import Key
from netplug_core.resources.clusterinformation import ClusterInformation, ClusterInformationSpec
from netplug_core.resources.fields import Metadata
from tests.harness.resources import ENDPOINT, make_pool

PREFIX = Prefix.parse("10.0.0.0/26")
BLOCK = Block.new(PREFIX, owner="host:a", now_ns=SECOND_NS * 2**31).assign((Ordinal(3),), Attribute(handle="n.a"))
POOL = make_pool("10.0.0.0/24", "main")
VALUES: tuple[tuple[Key[object], object], ...] = (
    (POOL.key, POOL),
    (affinity_key("host:a", PREFIX), Affinity(state=AffinityState.CONFIRMED)),
    (handle_key("n.a"), Handle(blocks=((PREFIX, 1),))),
    (BLOCK.key, BLOCK),
)
HEADER = ExportHeader(
    id="e-1",
    release="v3.33.0",
    time_ns=1_767_225_600 * SECOND_NS,
    cluster=ClusterInformation(
        metadata=Metadata(name="default"), spec=ClusterInformationSpec(cluster_guid="g", is_datastore_ready=False)
    ),
)
EXPORT = Export(header=HEADER, records=tuple(ExportedRecord(key=key, value=value) for key, value in VALUES))


def lines() -> list[str]:
    return list(encode_export(EXPORT))


def change(number: int, **members: object) -> list[str]:
    """The lines with other members in one of them."""
    changed = lines()
    changed[number] = json.dumps(json.loads(changed[number]) | members)
    return changed


def refusal(of: list[str]) -> str:
    with pytest.raises(ConfigurationError) as refused:
        decode_export(of, "x.json")
    return str(refused.value)


def test_what_is_written_is_read_again() -> None:
    assert decode_export(lines(), "x.json") == EXPORT
    assert decode_export([*lines(), "", " "], "x.json") == EXPORT


def test_records_are_read_into_the_order_in_which_they_are_stored() -> None:
    header, *records, end = lines()
    assert decode_export([header, *reversed(records), end], "x.json") == EXPORT


@pytest.mark.parametrize(
    "of, message",
    [
        ([], "x.json: it is empty, and an export of datastore migrate export is expected; nothing was done"),
        (["{"], "x.json#1: not JSON: "),
        (["7"], "x.json#1: an object is expected, found 7; nothing was done"),
        (['{"kind": "IPPool"}'], "x.json#1: kind is 'IPPool', and DatastoreExport is expected; nothing was done"),
        (change(0, id=""), "@ x.json#1 $.id"),
        (change(0, time="noon"), "@ x.json#1 $.time"),
        (change(0, more=1), "x.json#1"),
        (change(0, clusterInformation={"kind": "IPPool"}), "ClusterInformation(default) is malformed"),
        (lines()[:-1], "x.json#5: it has no end, so it was cut; export again; nothing was done"),
        (change(5, records=9), "x.json#6: 9 records are announced, and there are 4; nothing was done"),
        ([*lines(), lines()[1]], "x.json#6: another line follows the end; nothing was done"),
        (change(1, kind="Felix"), "x.json#2: kind 'Felix' is none of IPPool, "),
        (change(1, path=[]), "x.json#2: a path of name is expected, found ()"),
        (change(1, path=["other"]), "x.json#2: the value is of IPPool(main), and the path of IPPool(other)"),
        (change(1, value={}), "x.json#2: the stored record IPPool(main) is malformed"),
        (change(4, path=["ipv4", "10.0.0.64/26"]), "x.json#5: the stored record IPAMBlock(ipv4/10.0.0.64/26)"),
        (change(2, value={"state": "confirmed", "deleted": True}), "is marked as deleted"),
        ([*lines()[:2], lines()[1]], "x.json#3: IPPool(main) is there twice"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(of: list[str], message: str) -> None:
    assert message in refusal(of)


def test_a_refusal_is_an_error_of_configuration() -> None:
    assert issubclass(UnusableExport, ConfigurationError)
    assert ENDPOINT.metadata.namespace == "default"
