"""APIServer, FlowLogAPI and FlowLogViewer as JSON objects: the tables of their members, the reader, the schemas.

The definitions of the kinds and the schemas of the chart's values are made from the same tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, cast

from attrs import field, frozen

from netplug_core.decoding.codecs import INTEGER, TEXT, TEXT_MAP, Codec, Refused, enum_codec
from netplug_core.decoding.tables import (
    Decoder,
    DocumentOrigin,
    Field,
    ListOf,
    Schema,
    Table,
    collect_fields,
    find_member,
    table_schema,
)
from netplug_core.installation.document import InvalidInstallation, ProblemClass, document_problem
from netplug_core.installation.schema import custom_resource
from netplug_core.resources.codec import METADATA_TABLES
from netplug_core.resources.fields import MAX_PORT, PORT, find_label_problems
from netplug_core.resources.installation import (
    COMPONENT_NAME,
    INSTALLATION_API_VERSION,
    MAX_TOLERATIONS,
    APIServerSpec,
    Component,
    ComponentDeployment,
    ComponentKind,
    ComponentSpec,
    FlowLogAPISpec,
    FlowLogViewerSpec,
    Switch,
    TaintEffect,
    Toleration,
    TolerationOperator,
)
from netplug_core.resources.metadata import Metadata

__all__ = ["component_schema", "component_spec_schema", "find_component_kind", "read_component", "unserved_text"]

_SPECS: Final[Mapping[ComponentKind, type[ComponentSpec]]] = {
    ComponentKind.API_SERVER: APIServerSpec,
    ComponentKind.FLOW_LOG_API: FlowLogAPISpec,
    ComponentKind.FLOW_LOG_VIEWER: FlowLogViewerSpec,
}
_EFFECTS: Final[Mapping[ComponentKind, str]] = {
    ComponentKind.API_SERVER: "A server that offers projectnetplug.org/v3 in front of the v1 definitions.",
    ComponentKind.FLOW_LOG_API: "A server that collects flow logs from the nodes.",
    ComponentKind.FLOW_LOG_VIEWER: "A viewer of the flow logs that the FlowLogAPI has collected.",
}
_UNSERVED: Final[Mapping[ComponentKind, str]] = {
    ComponentKind.API_SERVER: (
        "nothing in this release serves projectnetplug.org/v3 in front of the v1 definitions; "
        "netplugctl reads and writes those, and validates what it writes"
    ),
    ComponentKind.FLOW_LOG_API: "nothing in this release collects flow logs; this object has no effect",
    ComponentKind.FLOW_LOG_VIEWER: "nothing in this release shows flow logs; this object has no effect",
}
_TEXTS: Final = {
    "deployment": "where the pods of the component run",
    "deployment.nodeSelector": "labels that a node must have",
    "deployment.tolerations": "taints of nodes that the pods may run in spite of",
    "deployment.tolerations[].key": "the key of the taint; without it, every taint",
    "deployment.tolerations[].operator": "how the key is compared; Equal unless given",
    "deployment.tolerations[].value": "the value of the taint, with Equal",
    "deployment.tolerations[].effect": "the effect of the taint; without it, every effect",
    "deployment.tolerations[].tolerationSeconds": "how long a taint with NoExecute is tolerated; without it, for ever",
    "metricsPort": "the port at which the server offers metrics; without it, none",
    "notifications": "whether the viewer asks a server of the project for news; Disabled unless given",
}


def find_component_kind(mapping: Mapping[str, object]) -> ComponentKind | None:
    """The kind of a document; None if it is another kind of object."""
    kind = find_member(mapping, "kind")
    return next((one for one in ComponentKind if one.value == kind), None)


def read_component(kind: ComponentKind, mapping: Mapping[str, object], *, source: str = "") -> Component:
    """The component of a kind that a user wrote as a JSON object; ``source`` names the document in errors.

    Raises:
        InvalidInstallation: it is no such component, or a member is unknown or cannot be read.
    """
    where = f"{source} {kind.value}({COMPONENT_NAME})".strip()
    header = _decoder().decode(mapping, _Header, where)
    for path, found, accepted in (
        ("apiVersion", header.api_version, INSTALLATION_API_VERSION),
        ("metadata.name", header.name, COMPONENT_NAME),
    ):
        if found != accepted:
            problem_class = ProblemClass.UNSUPPORTED if found else ProblemClass.REQUIRED
            raise InvalidInstallation(where, found or None, f"expected {accepted}", problem_class, (path,))
    document = _decoder().decode(mapping, _DOCUMENTS[kind], where)
    return Component(kind=kind, metadata=document.metadata, spec=document.spec)


def unserved_text(kind: ComponentKind) -> str:
    """That this release does not serve a component, and what it does instead."""
    return _UNSERVED[kind]


def component_schema(kind: ComponentKind) -> Schema:
    """The schema of a whole object."""
    return custom_resource(
        f"{_EFFECTS[kind]} Nothing in this release serves it; the status says so.",
        component_spec_schema(kind),
        rule=f"self.metadata.name == '{COMPONENT_NAME}'",
        message=f"there is one, and its name is {COMPONENT_NAME}",
    )


def component_spec_schema(kind: ComponentKind) -> Schema:
    """The schema of ``spec``."""
    spec = table_schema(_SPECS[kind], _SPEC_TABLES, _TEXTS.__getitem__)
    collect_fields(spec)["deployment.tolerations"]["maxItems"] = MAX_TOLERATIONS
    return spec


# --- tables ----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Header:
    api_version: str = ""
    name: str = ""


@frozen(kw_only=True)
class _APIServer:
    metadata: Metadata
    spec: APIServerSpec = field(factory=APIServerSpec)


@frozen(kw_only=True)
class _FlowLogAPI:
    metadata: Metadata
    spec: FlowLogAPISpec = field(factory=FlowLogAPISpec)


@frozen(kw_only=True)
class _FlowLogViewer:
    metadata: Metadata
    spec: FlowLogViewerSpec = field(factory=FlowLogViewerSpec)


_Document = _APIServer | _FlowLogAPI | _FlowLogViewer
_DOCUMENTS: Final[Mapping[ComponentKind, type[_Document]]] = {
    ComponentKind.API_SERVER: _APIServer,
    ComponentKind.FLOW_LOG_API: _FlowLogAPI,
    ComponentKind.FLOW_LOG_VIEWER: _FlowLogViewer,
}

_SECONDS: Final = Codec(INTEGER.decode, schema={**INTEGER.schema, "format": "int64"})


def _read_port(value: object) -> object:
    """A number, or the text of one, as many charts write it."""
    return PORT.decode(int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,5}", value, re.ASCII) else value)


_PORT: Final = Codec(
    _read_port,
    schema={"x-kubernetes-int-or-string": True, "minimum": 1, "maximum": MAX_PORT, "pattern": "^[0-9]{1,5}$"},
)


def _check_deployment(values: dict[str, object], _: object) -> dict[str, object]:
    labels = cast("tuple[tuple[str, str], ...]", values.get("node_selector", ()))
    for problem in find_label_problems(".nodeSelector", labels):
        raise Refused(f"labels that nodes can have: {problem.reason}", value=problem.value, path=problem.field)
    count = len(cast("tuple[Toleration, ...]", values.get("tolerations", ())))
    if count > MAX_TOLERATIONS:
        raise Refused(f"at most {MAX_TOLERATIONS} tolerations", value=f"{count} of them", path=".tolerations")
    return values


_DEPLOYMENT: Final = Field("deployment", ComponentDeployment)
_SPEC_TABLES: Final[tuple[Table[object], ...]] = (
    Table(cls=APIServerSpec, fields={"deployment": _DEPLOYMENT}),
    Table(cls=FlowLogAPISpec, fields={"deployment": _DEPLOYMENT, "metrics_port": Field("metricsPort", _PORT)}),
    Table(
        cls=FlowLogViewerSpec,
        fields={"deployment": _DEPLOYMENT, "notifications": Field("notifications", enum_codec(Switch))},
    ),
    Table(
        cls=ComponentDeployment,
        fields={
            "node_selector": Field("nodeSelector", TEXT_MAP),
            "tolerations": Field("tolerations", ListOf(Toleration)),
        },
        finish=_check_deployment,
    ),
    Table(
        cls=Toleration,
        fields={
            "key": Field("key", TEXT),
            "operator": Field("operator", enum_codec(TolerationOperator)),
            "value": Field("value", TEXT),
            "effect": Field("effect", enum_codec(TaintEffect)),
            "toleration_s": Field("tolerationSeconds", _SECONDS),
        },
    ),
)


@cache
def _decoder() -> Decoder:
    header = Table(
        cls=_Header,
        fields={"api_version": Field("apiVersion", TEXT), "name": Field(("metadata", "name"), TEXT)},
        is_partial=True,
    )
    documents = (
        Table(
            cls=document,
            fields={"metadata": Field("metadata", Metadata), "spec": Field("spec", _SPECS[kind])},
            ignored=("kind", "apiVersion"),
            ignored_from_users=("status",),
        )
        for kind, document in _DOCUMENTS.items()
    )
    return Decoder((*METADATA_TABLES, header, *documents, *_SPEC_TABLES), document_problem, DocumentOrigin.USER)
