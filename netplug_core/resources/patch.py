"""Changes of a stored resource: of labels and annotations, a merge patch (RFC 7396), a copy for another cluster.

``flows`` applies them to what is stored, and after a lost reply to the result again: each leaves its own result
unchanged. Nothing here reads or writes a datastore.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from attrs import evolve

from netplug_core.decoding.tables import DocumentOrigin, UnknownField, unreadable_json
from netplug_core.resources.codec import from_mapping, to_mapping
from netplug_core.resources.kinds import Resource
from netplug_core.resources.metadata import Metadata

__all__ = [
    "Mark", "apply_merge_patch", "marks_of", "strip_cluster_fields", "with_marks", "with_parts", "without_unknown",
]  # fmt: skip

_PATCH = "patch"
_PATCHABLE_FIELDS = ("metadata", "spec")
_PATCHABLE_METADATA = ("annotations", "labels")


class _Change(Protocol):
    def __call__(self, **parts: object) -> Resource: ...


class Mark(enum.Enum):
    """What people put onto a resource by name and text; the value is the member of its metadata."""

    LABEL = "labels"
    ANNOTATION = "annotations"

    @property
    def word(self) -> str:
        """The word for one of them."""
        return self.name.lower()


def marks_of(resource: Resource, mark: Mark) -> dict[str, str]:
    """The labels or the annotations of a resource."""
    metadata = resource.metadata
    return dict(metadata.labels if mark is Mark.LABEL else metadata.annotations)


def with_marks(resource: Resource, mark: Mark, changes: Mapping[str, str | None]) -> Resource:
    """The resource with other labels or annotations: each name gets its text; None removes it, if it is there."""
    texts = {**marks_of(resource, mark), **changes}
    pairs = tuple(sorted((name, text) for name, text in texts.items() if text is not None))
    metadata = resource.metadata
    changed = evolve(metadata, labels=pairs) if mark is Mark.LABEL else evolve(metadata, annotations=pairs)
    return _with_metadata(resource, changed)


def apply_merge_patch(resource: Resource, patch: Mapping[str, object]) -> Resource:
    """The resource with a merge patch applied: members replace members, null removes one, lists are replaced whole.

    A user may change only labels, annotations and the spec.

    Raises:
        ConfigurationError: the patch has other members, or the result is not a valid resource.
    """
    _refuse_unknown_fields(patch, _PATCHABLE_FIELDS, "$")
    metadata = patch.get("metadata")
    if isinstance(metadata, Mapping):
        _refuse_unknown_fields(metadata, _PATCHABLE_METADATA, "$.metadata")
    merged = _merge(to_mapping(without_unknown(resource)), patch)
    return from_mapping(merged, origin=DocumentOrigin.USER, source=_PATCH)


def without_unknown(resource: Resource) -> Resource:
    """The resource without members that only a newer release knows, which are not fields of a user's document.

    The flow that stores a document restores them. A field that could not be read stays, so that it is not lost unseen.
    """
    metadata, spec = evolve(resource.metadata, unknown_json=""), resource.spec
    return with_parts(
        resource, metadata=metadata, spec=evolve(spec, unknown_json=unreadable_json(spec)), unknown_json=""
    )


def with_parts(resource: Resource, **parts: object) -> Resource:
    """The resource with other parts; a spec is that of its own kind, which no type checker sees of a union."""
    change: _Change = partial(evolve, resource)
    return change(**parts)


def strip_cluster_fields(resource: Resource) -> Resource:
    """The resource without what belongs to one cluster: namespace, uid and creation time."""
    metadata = evolve(resource.metadata, namespace="", uid="", creation_time_ns=None)
    return _with_metadata(resource, metadata)


def _with_metadata(resource: Resource, metadata: Metadata) -> Resource:
    return evolve(resource, metadata=metadata)


def _refuse_unknown_fields(members: Mapping[str, object], known: tuple[str, ...], at: str) -> None:
    others = [str(name) for name in members if name not in known]
    if others:
        raise UnknownField(f"{_PATCH} {at}", ", ".join(others), ", ".join(known))


def _merge(target: object, patch: Mapping[str, object]) -> Mapping[str, object]:
    out = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = _merge(out.get(name), value) if isinstance(value, Mapping) else value
    return out
