"""The OpenAPI schema of the kind Installation, made from its members.

The definition of the kind, the schema of the chart's values and ``docs/installation.md`` are made of it. Rules in the
API's expression language (CEL) have what an API server can check of one object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from netplug_core.decoding.tables import Schema, collect_fields, inner_schema, object_schema
from netplug_core.installation.document import CNIType, IPAMType
from netplug_core.resources.installation import (
    INSTALLATION_NAME,
    OVERLAY_NAME,
    InstallationSpec,
)

__all__ = ["custom_resource", "field_schemas", "installation_schema", "spec_schema"]


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
