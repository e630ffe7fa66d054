"""APIServer, FlowLogAPI and FlowLogViewer as documents, and the schemas of their definitions."""

from __future__ import annotations

from typing import cast

import pytest

from netplug_core.decoding.tables import collect_fields
from netplug_core.installation.components import (
    APIServerSpec,
    ComponentDeployment,
    ComponentKind,
    FlowLogAPISpec,
    FlowLogViewerSpec,
    TaintEffect,
    Toleration,
    TolerationOperator,
    component_schema,
    component_spec_schema,
    find_component_kind,
    read_component,
)
from netplug_core.installation.document import InvalidInstallation
from netplug_core.resources.installation import Switch

API, VIEWER = ComponentKind.FLOW_LOG_API, ComponentKind.FLOW_LOG_VIEWER
GROUP = "operator.projectnetplug.org/v1"


def document(
    kind: ComponentKind, spec: object = None, *, name: str = "default", **members: object
) -> dict[str, object]:
    found = {"apiVersion": GROUP, "kind": kind.value, "metadata": {"name": name}, **members}
    return found if spec is None else {**found, "spec": spec}


def test_what_a_document_says() -> None:
    toleration = {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    deployment = {"nodeSelector": {"role": "edge"}, "tolerations": [toleration]}
    read = read_component(API, document(API, {"deployment": deployment, "metricsPort": 9095}))
    wanted = ComponentDeployment(
        node_selector=(("role", "edge"),),
        tolerations=(
            Toleration(key="a", operator=TolerationOperator.EXISTS, effect=TaintEffect.NO_EXECUTE, toleration_s=5),
        ),
    )
    assert read.spec == FlowLogAPISpec(deployment=wanted, metrics_port=9095)
    as_text = read_component(API, document(API, {"deployment": deployment, "metricsPort": "9095"}))
    assert as_text.spec == read.spec
    assert read.kind is API
    assert read_component(VIEWER, document(VIEWER, {"notifications": "Enabled"})).spec == FlowLogViewerSpec(
        notifications=Switch.ENABLED
    )
    server = ComponentKind.API_SERVER
    assert read_component(server, document(server, status={"conditions": []})).spec == APIServerSpec()


def test_which_documents_are_components() -> None:
    assert [find_component_kind({"kind": kind}) for kind in ("FlowLogAPI", "Installation", None)] == [API, None, None]
    assert find_component_kind({}) is None


@pytest.mark.parametrize(
    "found, problem",
    [
        (document(API, name="other"), "Unsupported: metadata.name: 'other' is not accepted; expected default"),
        (document(API, apiVersion=""), f"Required: apiVersion: nothing is not accepted; expected {GROUP}"),
        (
            document(API, {"metricsPort": 0}),
            "OutOfRange: spec.metricsPort: 0 is not accepted; expected a port from 1 to 65535",
        ),
        (
            document(API, {"metricsPort": "http"}),
            "Format: spec.metricsPort: 'http' is not accepted; expected a whole number",
        ),
        (
            document(API, {"deployment": {"nodeSelector": {"a b": "c"}}}),
            (
                "OutOfRange: spec.deployment.nodeSelector: 'a b' is not accepted; expected labels that nodes can have: "
                "a name is at most 63 letters, digits, '-', '_' and '.', between letters or digits, and may have a DNS "
                "name and '/' before it"
            ),
        ),
        (
            document(API, {"notifications": "Enabled"}),
            (
                "Unsupported: spec.notifications: 'notifications' is not accepted; there is no such field; "
                "spec has deployment, metricsPort"
            ),
        ),
        (
            document(API, {"deployment": {"tolerations": [{}] * 33}}),
            "OutOfRange: spec.deployment.tolerations: '33 of them' is not accepted; expected at most 32 tolerations",
        ),
        (
            document(API, {"deployment": {"tolerations": [{"effect": "Never"}]}}),
            (
                "Unsupported: spec.deployment.tolerations[0].effect: 'Never' is not accepted; "
                "expected one of NoSchedule, PreferNoSchedule, NoExecute"
            ),
        ),
    ],
)
def test_what_is_refused(found: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidInstallation) as caught:
        read_component(API, found, source="a.yaml#1")
    assert str(caught.value) == f"a.yaml#1 FlowLogAPI(default): {problem}"


@pytest.mark.parametrize("kind", list(ComponentKind))
def test_the_definition_has_the_members_of_the_document(kind: ComponentKind) -> None:
    schema = component_schema(kind)
    assert schema["x-kubernetes-validations"] == [
        {"rule": "self.metadata.name == 'default'", "message": "there is one, and its name is default"}
    ]
    members = cast("dict[str, object]", schema["properties"])
    assert members["spec"] == component_spec_schema(kind)
    fields = collect_fields(component_spec_schema(kind))
    assert fields["deployment.tolerations"]["maxItems"] == 32
    assert all(
        ("type" in field or "x-kubernetes-int-or-string" in field) and field["description"] for field in fields.values()
    )
    assert ("metricsPort" in fields, "notifications" in fields) == (kind is API, kind is VIEWER)
