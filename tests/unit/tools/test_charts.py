"""The charts without helm: what they are made of, and what helm once made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from netplug_backends.kubernetes.installing.manifests import definitions, operator_definitions
from netplug_backends.kubernetes.names import CrdMode
from netplug_core import __version__
from netplug_core.installation.components import field_schemas
from tests.harness.charts import (
    CHARTS,
    COMPONENTS,
    DEFAULT_OUTPUT,
    OPERATOR,
    by_name,
    operator_objects,
    read_objects,
)
from tools.charts.files import DEFINITION_CHARTS
from tools.charts.templates import Template


def objects_of(schema: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """Each schema of an object with members of its own, and those below it."""
    if "properties" in schema:
        yield schema
        for member in schema["properties"].values():  # type: ignore[attr-defined]
            yield from objects_of(member)
    if isinstance(schema.get("items"), Mapping):
        yield from objects_of(schema["items"])  # type: ignore[arg-type]


def test_check_80_helm_makes_the_objects_of_the_manifest_and_four_resources() -> None:
    """Recorded; by night, helm makes it again (``tests/integration/test_charts.py``)."""
    found = [one for one in read_objects(DEFAULT_OUTPUT.read_text()) if "helm.sh/hook" not in annotations_of(one)]
    assert by_name(found) == operator_objects() | COMPONENTS


def annotations_of(found: Mapping[str, object]) -> Mapping[str, object]:
    metadata = found["metadata"]
    assert isinstance(metadata, Mapping)
    return metadata.get("annotations", {})  # type: ignore[no-any-return]


@pytest.mark.parametrize("mode", list(CrdMode))
def test_a_chart_of_definitions_has_those_of_its_group_and_of_the_operator(mode: CrdMode) -> None:
    folder = CHARTS / DEFINITION_CHARTS[mode] / "templates"
    wanted = dict((*definitions(mode), *operator_definitions()))
    assert {path.stem for path in folder.iterdir()} - {"admission", "deletion-policy"} == set(wanted)
    for plural, definition in wanted.items():
        _comment, _, text = (folder / f"{plural}.yaml").read_text().partition("\n")
        assert "{{" not in text
        assert yaml.safe_load(text) == definition


@pytest.mark.parametrize("chart", sorted(CHARTS.iterdir()), ids=lambda chart: chart.name)
def test_a_chart_says_what_it_is(chart: object) -> None:
    about = yaml.safe_load((chart / "Chart.yaml").read_text())  # type: ignore[operator]
    assert (about["name"], about["version"], about["appVersion"]) == (
        chart.name,  # type: ignore[attr-defined]
        __version__,
        f"v{__version__}",
    )


def test_check_77_the_chart_of_the_operator_has_no_definitions_and_they_are_managed() -> None:
    assert "CustomResourceDefinition" not in DEFAULT_OUTPUT.read_text()
    values = yaml.safe_load((OPERATOR / "values.yaml").read_text())
    assert values["manageCRDs"] is True
    assert "- --manage-crds=true\n" in DEFAULT_OUTPUT.read_text()


def test_the_schema_has_every_value_and_accepts_no_other() -> None:
    schema = json.loads((OPERATOR / "values.schema.json").read_text())
    values = yaml.safe_load((OPERATOR / "values.yaml").read_text())
    assert set(schema["properties"]) == {*values, "global"}
    assert "x-kubernetes" not in json.dumps(schema)
    assert all(one["additionalProperties"] is False for one in objects_of(schema))
    own = {path.partition(".")[0].partition("[")[0] for path in field_schemas()}
    assert set(schema["properties"]["installation"]["properties"]) == {*own, "enabled"}
    update = schema["properties"]["installation"]["properties"]["nodeUpdateStrategy"]["properties"]["rollingUpdate"]
    assert update["properties"]["maxSurge"]["type"] == ["integer", "string"]


def test_marks_become_expressions() -> None:
    template = Template()
    found = {
        "a": f"x={template.scalar('.Values.a')}",
        "b": {"c": template.block(".Values.c")},
        "d": {"e": "f", **template.members(".Values.g")},
    }
    assert template.render(found) == (
        "---\n"
        "a: x={{ .Values.a }}\n"
        "b:\n"
        "  {{- with .Values.c }}\n"
        "  c:\n"
        "    {{- toYaml . | nindent 4 }}\n"
        "  {{- end }}\n"
        "d:\n"
        "  e: f\n"
        "  {{- with .Values.g }}\n"
        "  {{- toYaml . | nindent 2 }}\n"
        "  {{- end }}\n"
    )


def test_braces_of_an_object_are_refused() -> None:
    with pytest.raises(ValueError, match="has braces"):
        Template().render({"a": "{{ x }}"})


def test_the_page_has_every_value() -> None:
    page = (Path(__file__).parents[3] / "docs" / "install-helm.md").read_text()
    table = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {word for cell in table for word in re.findall(r"`([^`]+)`", cell)}
    assert set(yaml.safe_load((OPERATOR / "values.yaml").read_text())) <= named
