"""Every file of the three charts: the operator, and the definitions of either API group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from netplug_backends.kubernetes.manifests import definitions, operator_definitions
from netplug_backends.kubernetes.names import CrdMode
from tools.charts.operator import operator_templates, operator_values, values_schema
from tools.charts.templates import Template

__all__ = ["DEFINITION_CHARTS", "OPERATOR_CHART", "chart_files"]

Json = Mapping[str, object]

OPERATOR_CHART: Final = "netplug-operator"
DEFINITION_CHARTS: Final[Mapping[CrdMode, str]] = {
    CrdMode.V1: "crd.projectnetplug.org.v1",
    CrdMode.V3: "projectnetplug.org.v3",
}
"""The chart with the definitions of an API group."""

_NO_VALUES: Final = {"type": "object", "properties": {"global": {"type": "object"}}, "additionalProperties": False}
_DRAFT: Final = "https://json-schema.org/draft-07/schema#"


def chart_files(version: str) -> Iterator[tuple[str, str | Json]]:
    """The path of each file below the folder of charts, and its text, or the object that it has."""
    yield f"{OPERATOR_CHART}/Chart.yaml", _about(OPERATOR_CHART, "The operator, and what it shall install.", version)
    yield f"{OPERATOR_CHART}/values.yaml", operator_values(version)
    yield f"{OPERATOR_CHART}/values.schema.json", {"$schema": _DRAFT, **values_schema(version)}
    for name, text in operator_templates(version):
        yield f"{OPERATOR_CHART}/templates/{name}", text
    for mode, chart in DEFINITION_CHARTS.items():
        yield f"{chart}/Chart.yaml", _about(chart, f"The custom resource definitions of {mode.value}.", version)
        yield f"{chart}/values.yaml", {}
        yield f"{chart}/values.schema.json", {"$schema": _DRAFT, **_NO_VALUES}
        for plural, definition in (*definitions(mode), *operator_definitions()):
            yield f"{chart}/templates/{plural}.yaml", Template().render(definition)


def _about(name: str, text: str, version: str) -> Json:
    return {
        "apiVersion": "v2",
        "name": name,
        "description": text,
        "type": "application",
        "version": version,
        "appVersion": f"v{version}",
    }
