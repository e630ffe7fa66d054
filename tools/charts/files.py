"""Every file of the three charts: the operator, and the definitions of either API group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from netplug_backends.kubernetes.installing.manifests import (
    ADMISSION_GROUP,
    MUTATING_KIND,
    MUTATING_VERSIONS,
    admission_objects,
    definitions,
    operator_definitions,
    protection_objects,
)
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.decoding.tables import find_object
from tools.charts.operator import operator_templates, operator_values, values_schema
from tools.charts.templates import Template
from tools.monitoring import monitoring_files

__all__ = ["DEFINITION_CHARTS", "OPERATOR_CHART", "chart_files"]

Json = Mapping[str, object]

OPERATOR_CHART: Final = "netplug-operator"
DEFINITION_CHARTS: Final[Mapping[CrdMode, str]] = {
    CrdMode.V1: "crd.projectnetplug.org.v1",
    CrdMode.V3: "projectnetplug.org.v3",
}
"""The chart with the definitions of an API group."""

_MONITORING: Final = {
    "prometheus-rules.yaml": "prometheus-rules.json",
    "grafana-dashboard.json": "grafana-dashboard.json",
}
"""What the templates take whole, as it has braces of its own."""

_NO_VALUES: Final = {"type": "object", "properties": {"global": {"type": "object"}}, "additionalProperties": False}
_MUTATING_VERSION: Final = "netplug.mutatingVersion"
_DRAFT: Final = "https://json-schema.org/draft-07/schema#"


def chart_files(version: str) -> Iterator[tuple[str, str | Json]]:
    """The path of each file below the folder of charts, and its text, or the object that it has."""
    yield f"{OPERATOR_CHART}/Chart.yaml", _about(OPERATOR_CHART, "The operator, and what it shall install.", version)
    yield f"{OPERATOR_CHART}/values.yaml", operator_values(version)
    yield f"{OPERATOR_CHART}/values.schema.json", {"$schema": _DRAFT, **values_schema(version)}
    for name, text in operator_templates(version):
        yield f"{OPERATOR_CHART}/templates/{name}", text
    for path, content in monitoring_files():
        if (name := path.rpartition("/")[2]) in _MONITORING:
            yield f"{OPERATOR_CHART}/files/{_MONITORING[name]}", content
    for mode, chart in DEFINITION_CHARTS.items():
        yield f"{chart}/Chart.yaml", _about(chart, f"The custom resource definitions of {mode.value}.", version)
        yield f"{chart}/values.yaml", {}
        yield f"{chart}/values.schema.json", {"$schema": _DRAFT, **_NO_VALUES}
        for plural, definition in (*definitions(mode), *operator_definitions()):
            yield f"{chart}/templates/{plural}.yaml", Template().render(definition)
        yield f"{chart}/templates/deletion-policy.yaml", Template().render(*map(_kept, protection_objects()))
    yield f"{DEFINITION_CHARTS[CrdMode.V3]}/templates/admission.yaml", _admission()


def _kept(found: Json) -> Json:
    """An object that the end of a release leaves: it would go before what it protects."""
    return {**found, "metadata": {**find_object(found, "metadata"), "annotations": {"helm.sh/resource-policy": "keep"}}}


def _about(name: str, text: str, version: str) -> Json:
    return {
        "apiVersion": "v2",
        "name": name,
        "description": text,
        "type": "application",
        "version": version,
        "appVersion": f"v{version}",
    }


def _admission() -> str:
    """The policies, in the version of the API that the cluster has."""
    template = Template()
    mutating = template.scalar(f'include "{_MUTATING_VERSION}" .')
    return _mutating_version() + template.render(*admission_objects(mutating))


def _mutating_version() -> str:
    """The first version that has the kind; v1beta1 if nothing is known of the cluster, which is older than 1.36."""
    best, *others = MUTATING_VERSIONS
    usual = others[0]
    asked = [f'(.Capabilities.APIVersions.Has "{ADMISSION_GROUP}/{one}/{MUTATING_KIND}")' for one in MUTATING_VERSIONS]
    new = '(semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version)'
    lines = [
        f'define "{_MUTATING_VERSION}"',
        f"if or {asked[0]} {new}",
        *(f"else if {one}" for one in asked[1:]),
        "else",
    ]
    texts = ["", best, *others, usual]
    body = "".join(f"{{{{- {line} -}}}}{text}" for line, text in zip(lines, texts, strict=True))
    return f"{body}{{{{- end -}}}}{{{{- end -}}}}\n"
