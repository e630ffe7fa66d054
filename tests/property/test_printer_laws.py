"""Laws of what ``get`` prints.

1. Every printer is total: whatever a store holds has a row in both tables, and is YAML and JSON (D13 of the catalogue).
2. YAML and JSON say the same, and nothing that was stored is lost in them.
"""

import json

import yaml
from hypothesis import given

from netplug_cli.ctl.documents import render_json, render_yaml
from netplug_cli.ctl.outputs import Width
from netplug_core.decoding.tables import DocumentOrigin
from netplug_core.resources.codec import from_mapping, to_mapping
from netplug_core.resources.kinds import Resource, kind_of
from tests.harness.resources import table_lines
from tests.property.test_resource_codec_laws import RESOURCES


@given(RESOURCES)
def test_d13_every_resource_has_a_row_in_every_table(resource: Resource) -> None:
    """Law 1."""
    for width in Width:
        header, row = table_lines(kind_of(resource), [resource], width)
        assert header.split()[0] in ("NAME", "WORKLOAD")
        assert row
        assert (header, row) == (header.rstrip(), row.rstrip())


@given(RESOURCES)
def test_d13_every_resource_is_yaml_and_json(resource: Resource) -> None:
    """Laws 1 and 2."""
    shown = to_mapping(resource, revision="7")
    said = json.loads(render_json(shown))
    assert yaml.load(render_yaml(shown), Loader=yaml.BaseLoader)["metadata"]["name"] == resource.metadata.name  # noqa: S506 # it guesses nothing
    del said["metadata"]["resourceVersion"]
    assert from_mapping(said, origin=DocumentOrigin.DATASTORE) == resource
