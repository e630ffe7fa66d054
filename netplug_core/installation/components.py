"""What an API server reads of the installed kinds: the schemas of Installation and of the components beside it.

The definitions of the kinds and the schemas of the chart's values are made from the members. They are no kinds of the
datastore, so they are not in ``kinds``.

The definition of the kind, the schema of the chart's values and ``docs/installation.md`` are made of it. Rules in the
API's expression language (CEL) have what an API server can check of one object.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from functools import cache
from typing import Final, TypeAlias

from attrs import field, frozen

from netplug_core.decoding.codecs import INTEGER, TEXT, TEXT_MAP, Codec, Refused
from netplug_core.decoding.tables import (
    Decoder,
    DocumentOrigin,
    ListOf,
    Schema,
    collect_fields,
    find_member,
    inner_schema,
    items_of,
    json_object,
    member,
    object_schema,
)
from netplug_core.installation.document import CNIType, InvalidInstallation, IPAMType, ProblemClass, document_problem
from netplug_core.resources.fields import MAX_PORT, PORT, Metadata, find_label_problems
from netplug_core.resources.installation import (
    INSTALLATION_API_VERSION,
    INSTALLATION_NAME,
    OVERLAY_NAME,
    InstallationSpec,
    Switch,
)

__all__ = [
    "COMPONENT_NAME", "MAX_TOLERATIONS", "APIServerSpec", "Component", "ComponentDeployment", "ComponentKind",
    "ComponentSpec", "FlowLogAPISpec", "FlowLogViewerSpec", "TaintEffect", "Toleration", "TolerationOperator",
    "component_schema", "component_spec_schema", "custom_resource", "field_schemas", "find_component_kind",
    "installation_schema", "read_component", "spec_schema", "unserved_text",
]  # fmt: skip


# --- the schema -------------------------------------------------------------------------------------------------------


_METHODS: Final = ("kubernetes", "interface", "skipInterface", "canReach")
_MAX_LENGTH: Final = 1024
_SPELLED: Final = {"type": CNIType, "ipam.type": IPAMType, "ipam.plugin": IPAMType}


def installation_schema() -> Schema:
    """The schema of the whole object."""
    spec = spec_schema()
    name = f"self.metadata.name in ['{INSTALLATION_NAME}', '{OVERLAY_NAME}']"
    return custom_resource(
        "How netplug is installed in this cluster.",
        spec,
        rule=name,
        message=f"the name is {INSTALLATION_NAME}, or {OVERLAY_NAME}",
    )


def custom_resource(description: str, spec: Schema, *, rule: str, message: str) -> Schema:
    """The schema of a whole object with a status, whose server keeps one rule about it."""
    return {
        "type": "object",
        "description": description,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
        "x-kubernetes-validations": [{"rule": rule, "message": message}],
    }


def field_schemas() -> Mapping[str, Schema]:
    """The schema of each field, by its path below ``spec``; ``[]`` stands behind a list."""
    return collect_fields(spec_schema())


def spec_schema() -> Schema:
    """The schema of ``spec``."""
    spec = object_schema(InstallationSpec)
    _limit(spec)
    return spec


# --- what the tables do not say --------------------------------------------------------------------------------------


def _limit(spec: Schema) -> None:
    """Add limits, so that a server can estimate the cost of the rules, and the rules."""
    fields = collect_fields(spec)
    inner_schema(fields["netplugNetwork.ipPools"], "items")["required"] = ["cidr"]
    for path in fields:
        if path.startswith("cni."):
            fields[path]["description"] = f"another spelling of `netplugNetwork.{path}`"
    for place in ("cni", "netplugNetwork.cni"):
        for name, choices in _SPELLED.items():
            words = "|".join(str(choice.value) for choice in choices)
            fields[f"{place}.{name}"] |= {"pattern": f"^(?i:{words})?$", "maxLength": _MAX_LENGTH}
    for version in (4, 6):
        detection = fields[f"netplugNetwork.nodeAddressAutodetectionV{version}"]
        detection["x-kubernetes-validations"] = [_one_method()]
    spec["x-kubernetes-validations"] = _spelling_rules()


def _one_method() -> Schema:
    counted = [
        "(has(self.firstFound) && self.firstFound ? 1 : 0)",
        *(f"(has(self.{name}) && self.{name} != '' ? 1 : 0)" for name in _METHODS),
        "(has(self.cidrs) && self.cidrs.size() > 0 ? 1 : 0)",
    ]
    return {"rule": f"{' + '.join(counted)} <= 1", "message": "one method is expected"}


def _spelling_rules() -> list[Schema]:
    """Each pair of spellings of one setting is equal, or one of the two is not set."""
    ipams = [f"{place}.ipam.{name}" for place in ("cni", "netplugNetwork.cni") for name in ("type", "plugin")]
    pairs = [(one, other) for index, one in enumerate(ipams) for other in ipams[index + 1 :]]
    names = ("type", "specVersion", "binDir", "confDir", "installMode")
    pairs += [(f"cni.{name}", f"netplugNetwork.cni.{name}") for name in names]
    return [
        {
            "rule": f"!({_is_set(one)}) || !({_is_set(other)}) || {_compared(one)} == {_compared(other)}",
            "message": f"spec.{one} and spec.{other} are spellings of one setting; they have to be equal",
        }
        for one, other in pairs
    ]


def _is_set(path: str) -> str:
    names = path.split(".")
    steps = [f"has(self.{'.'.join(names[: depth + 1])})" for depth in range(len(names))]
    return " && ".join([*steps, f"self.{path} != ''"])


def _compared(path: str) -> str:
    return f"self.{path}.lowerAscii()" if path.endswith((".type", ".plugin")) else f"self.{path}"


# --- the kinds --------------------------------------------------------------------------------------------------------


COMPONENT_NAME: Final = "default"
MAX_TOLERATIONS: Final = 32


_SECONDS: Final = Codec(INTEGER.decode, schema={**INTEGER.schema, "format": "int64"})


def _read_port(value: object) -> object:
    """A number, or the text of one, as many charts write it."""
    return PORT.decode(int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,5}", value, re.ASCII) else value)


_COMPONENT_PORT: Final = Codec(
    _read_port,
    schema={"x-kubernetes-int-or-string": True, "minimum": 1, "maximum": MAX_PORT, "pattern": "^[0-9]{1,5}$"},
)


def _check_deployment(values: dict[str, object], _: object) -> dict[str, object]:
    labels = items_of(values, "node_selector", tuple)
    for problem in find_label_problems(".nodeSelector", labels):
        raise Refused(f"labels that nodes can have: {problem.reason}", value=problem.value, path=problem.field)
    count = len(items_of(values, "tolerations", Toleration))
    if count > MAX_TOLERATIONS:
        raise Refused(f"at most {MAX_TOLERATIONS} tolerations", value=f"{count} of them", path=".tolerations")
    return values


class ComponentKind(enum.Enum):
    """A kind, by its name in documents."""

    API_SERVER = "APIServer"
    FLOW_LOG_API = "FlowLogAPI"
    FLOW_LOG_VIEWER = "FlowLogViewer"


class TolerationOperator(enum.Enum):
    """How a toleration compares its key."""

    EQUAL = "Equal"
    EXISTS = "Exists"


class TaintEffect(enum.Enum):
    """What a taint of a node does to pods."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@frozen(kw_only=True)
class Toleration:
    """Taints of nodes that a pod may run in spite of, as Kubernetes has them. Without an effect: every effect."""

    # fmt: off
    key: str = field(default="", metadata=member("key", TEXT, "the key of the taint; without it, every taint"))
    operator: TolerationOperator | None = field(default=None, metadata=member("operator", TolerationOperator,
        "how the key is compared; Equal unless given"))
    value: str = field(default="", metadata=member("value", TEXT, "the value of the taint, with Equal"))
    effect: TaintEffect | None = field(default=None, metadata=member("effect", TaintEffect,
        "the effect of the taint; without it, every effect"))
    toleration_s: int | None = field(default=None, metadata=member("tolerationSeconds", _SECONDS,
        "how long a taint with NoExecute is tolerated; without it, for ever"))
    # fmt: on


@json_object(finish=_check_deployment)
@frozen(kw_only=True)
class ComponentDeployment:
    """On which nodes the pods of a component may run."""

    # fmt: off
    node_selector: tuple[tuple[str, str], ...] = field(default=(), metadata=member("nodeSelector", TEXT_MAP,
        "labels that a node must have"))
    tolerations: tuple[Toleration, ...] = field(default=(), metadata=member("tolerations", ListOf(Toleration),
        "taints of nodes that the pods may run in spite of", limits={"maxItems": MAX_TOLERATIONS}))
    # fmt: on


@frozen(kw_only=True)
class APIServerSpec:
    """``spec`` of the server that offers ``projectnetplug.org/v3`` in front of the v1 definitions."""

    # fmt: off
    deployment: ComponentDeployment = field(default=ComponentDeployment(), metadata=member("deployment",
        ComponentDeployment, "where the pods of the component run"))
    # fmt: on


@frozen(kw_only=True)
class FlowLogAPISpec:
    """``spec`` of the server that collects flow logs from the nodes."""

    # fmt: off
    deployment: ComponentDeployment = field(default=ComponentDeployment(), metadata=member("deployment",
        ComponentDeployment, "where the pods of the component run"))
    metrics_port: int | None = field(default=None, metadata=member("metricsPort", _COMPONENT_PORT,
        "the port at which the server offers metrics; without it, none"))
    # fmt: on


@frozen(kw_only=True)
class FlowLogViewerSpec:
    """``spec`` of the viewer of flow logs. With ``notifications`` it asks a server of the project for news."""

    # fmt: off
    deployment: ComponentDeployment = field(default=ComponentDeployment(), metadata=member("deployment",
        ComponentDeployment, "where the pods of the component run"))
    notifications: Switch | None = field(default=None, metadata=member("notifications", Switch,
        "whether the viewer asks a server of the project for news; Disabled unless given"))
    # fmt: on


ComponentSpec: TypeAlias = APIServerSpec | FlowLogAPISpec | FlowLogViewerSpec


@frozen(kw_only=True)
class Component:
    """A component as it was written."""

    kind: ComponentKind
    metadata: Metadata
    spec: ComponentSpec


# --- reading ----------------------------------------------------------------------------------------------------------


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
    return object_schema(_SPECS[kind])


# --- documents --------------------------------------------------------------------------------------------------------


@json_object(is_partial=True)
@frozen(kw_only=True)
class _Header:
    api_version: str = field(default="", metadata=member("apiVersion", TEXT))
    name: str = field(default="", metadata=member(("metadata", "name"), TEXT))


@json_object(ignored=("kind", "apiVersion"), ignored_from_users=("status",))
@frozen(kw_only=True)
class _APIServer:
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: APIServerSpec = field(factory=APIServerSpec, metadata=member("spec", APIServerSpec))


@json_object(ignored=("kind", "apiVersion"), ignored_from_users=("status",))
@frozen(kw_only=True)
class _FlowLogAPI:
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: FlowLogAPISpec = field(factory=FlowLogAPISpec, metadata=member("spec", FlowLogAPISpec))


@json_object(ignored=("kind", "apiVersion"), ignored_from_users=("status",))
@frozen(kw_only=True)
class _FlowLogViewer:
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: FlowLogViewerSpec = field(factory=FlowLogViewerSpec, metadata=member("spec", FlowLogViewerSpec))


_Document = _APIServer | _FlowLogAPI | _FlowLogViewer
_DOCUMENTS: Final[Mapping[ComponentKind, type[_Document]]] = {
    ComponentKind.API_SERVER: _APIServer,
    ComponentKind.FLOW_LOG_API: _FlowLogAPI,
    ComponentKind.FLOW_LOG_VIEWER: _FlowLogViewer,
}


@cache
def _decoder() -> Decoder:
    return Decoder(document_problem, DocumentOrigin.USER)
