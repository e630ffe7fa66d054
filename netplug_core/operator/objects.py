"""Objects of the cluster: how one is named, what marks those of the operator, and when one has to be applied. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, TypeAlias

from attrs import frozen

from netplug_core.decoding.containment import contains
from netplug_core.decoding.tables import find_member, find_object
from netplug_core.names import MANAGED_BY
from netplug_core.resources.installation import OPERATOR_GROUP

__all__ = [
    "APPLIED_HASH", "IGNORE", "Json", "ObjectRef", "find_text", "is_being_deleted", "is_ignored", "is_ours", "marked",
    "may_delete", "needs_apply", "ref_of",
]  # fmt: skip

Json: TypeAlias = Mapping[str, object]
"""A JSON object."""

APPLIED_HASH: Final = f"hash.{OPERATOR_GROUP}/applied"
"""The annotation that changes with what is applied, so that a setting that is left out is removed too."""

IGNORE: Final = f"unsupported.{OPERATOR_GROUP}/ignore"
"""The annotation of an object that the operator neither changes nor deletes as long as its text is ``true``."""


@frozen(order=True)
class ObjectRef:
    """The name of an object; an object of the whole cluster has no namespace."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""

    @property
    def plural(self) -> str:
        """The name under which the API has the objects of the kind."""
        kind = self.kind.lower()
        if kind.endswith("y"):
            return f"{kind[:-1]}ies"
        return f"{kind}{'es' if kind.endswith('s') else 's'}"

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"


def find_text(found: object, *path: str) -> str:
    """The text that some names lead to in an object; empty if there is none."""
    value = find_member(found, *path) if isinstance(found, Mapping) else None
    return value if isinstance(value, str) else ""


def ref_of(found: Json) -> ObjectRef:
    """The name of an object."""
    names = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"))
    return ObjectRef(*(find_text(found, *path) for path in names))


def marked(wanted: Json) -> Json:
    """An object as it is applied: with the operator's label, and with the hash of all that is applied."""
    label, text = MANAGED_BY
    digest = sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]
    metadata = {
        **find_object(wanted, "metadata"),
        "labels": {**find_object(wanted, "metadata", "labels"), label: text},
        "annotations": {**find_object(wanted, "metadata", "annotations"), APPLIED_HASH: digest},
    }
    return {**wanted, "metadata": metadata}


def needs_apply(found: Json | None, wanted: Json) -> bool:
    """Whether an object has to be applied: it is missing, or not as it is wanted, and not to be ignored."""
    if found is None:
        return True
    return not is_ignored(found) and not contains(found, wanted)


def is_ours(found: Json) -> bool:
    """Whether an object has the operator's label."""
    label, text = MANAGED_BY
    return find_text(found, "metadata", "labels", label) == text


def may_delete(found: Json) -> bool:
    """Whether the operator may delete an object: it has the operator's label, and is not to be ignored."""
    return is_ours(found) and not is_ignored(found)


def is_being_deleted(found: Json | None) -> bool:
    """Whether an object is being deleted."""
    return bool(find_text(found, "metadata", "deletionTimestamp"))


def is_ignored(found: Json) -> bool:
    """Whether the operator neither changes nor deletes an object."""
    return find_text(found, "metadata", "annotations", IGNORE) == "true"
