"""The schema of the kind: structural, small, with a description of every field."""

import json
from collections.abc import Iterator
from typing import cast

import pytest

from netplug_core.decoding.tables import Schema, collect_members
from netplug_core.installation.components import field_schemas, installation_schema
from netplug_core.resources.installation import InstallationSpec

MAX_SIZE = 262_144
"""Bytes of an annotation of Kubernetes: with more, `kubectl apply` on the client's side fails."""


def objects_of(schema: Schema) -> Iterator[Schema]:
    yield schema
    for member in cast("dict[str, Schema]", schema.get("properties", {})).values():
        yield from objects_of(member)
    if "items" in schema:
        yield from objects_of(cast("Schema", schema["items"]))


def test_check_81_it_is_small_and_structural() -> None:
    schema = installation_schema()
    assert len(json.dumps(schema, separators=(",", ":"))) < MAX_SIZE // 8
    assert "$ref" not in json.dumps(schema)
    assert all("type" in one or "x-kubernetes-int-or-string" in one for one in objects_of(schema))


@pytest.mark.parametrize("path", [
    "cni.type",
    "cni.ipam.type",
    "netplugNetwork.cni.type",
    "netplugNetwork.cni.ipam.type",
    "cni.ipam.plugin",
])  # fmt: skip
def test_check_81_it_declares_every_spelling(path: str) -> None:
    assert str(field_schemas()[path]["type"]) == "string"


def test_the_texts_are_those_of_the_fields() -> None:
    fields, members = field_schemas(), collect_members(InstallationSpec)
    assert set(members) == set(fields)
    assert {path for path in fields if not fields[path]["description"]} == set()
    assert fields["netplugNetwork.bgp"]["description"] == members["netplugNetwork.bgp"].text
    assert fields["cni"]["description"] == "another spelling of `netplugNetwork.cni`"
    assert fields["cni.ipam.type"]["description"] == "another spelling of `netplugNetwork.cni.ipam.type`"


def test_limits_and_rules() -> None:
    spec = cast("dict[str, Schema]", installation_schema()["properties"])["spec"]
    network = cast("dict[str, Schema]", spec["properties"])["netplugNetwork"]
    pools = cast("dict[str, Schema]", network["properties"])["ipPools"]
    assert pools["maxItems"] == 25  # check 29
    (name,) = cast("list[dict[str, str]]", installation_schema()["x-kubernetes-validations"])
    assert name["rule"] == "self.metadata.name in ['default', 'overlay']"  # check 30
    rules = cast("list[dict[str, str]]", spec["x-kubernetes-validations"])
    assert rules[0]["rule"] == (
        "!(has(self.cni) && has(self.cni.ipam) && has(self.cni.ipam.type) && self.cni.ipam.type != '') || "
        "!(has(self.cni) && has(self.cni.ipam) && has(self.cni.ipam.plugin) && self.cni.ipam.plugin != '') || "
        "self.cni.ipam.type.lowerAscii() == self.cni.ipam.plugin.lowerAscii()"
    )
