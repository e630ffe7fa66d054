"""What becomes of a stored resource: a label more or less, a merge patch (RFC 7396), a copy for somewhere else.

``flows`` hands these what is stored at the moment of writing, and again what came of it where a reply was lost: each
changes nothing in its own result. Nothing here reads or writes a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from attrs import evolve

from netplug_core.resources.codec import Origin, UnknownField, from_mapping, to_mapping
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.kinds import Resource
from netplug_core.resources.metadata import Metadata

__all__ = ["exported", "patched", "with_label", "without_label"]

_PATCH = "patch"
_MEMBERS = ("metadata", "spec")
_OF_METADATA = ("annotations", "labels")


def with_label(resource: Resource, label: str, text: str) -> Resource:
    """The resource with a label, whatever text it had before."""
    return _labelled(resource, dict(resource.metadata.labels) | {label: text})


def without_label(resource: Resource, label: str) -> Resource:
    """The resource without a label, which it need not have had."""
    return _labelled(resource, {name: text for name, text in resource.metadata.labels if name != label})


def patched(resource: Resource, patch: Mapping[str, object]) -> Resource:
    """The resource with a merge patch applied: members replace members, null removes one, lists are replaced whole.

    Only labels, annotations and the spec are a person's to change.

    Raises:
        ConfigurationError: the patch has other members, or what comes of it is no such resource.
    """
    _refuse_others(patch, _MEMBERS, "$")
    metadata = patch.get("metadata")
    if isinstance(metadata, Mapping):
        _refuse_others(metadata, _OF_METADATA, "$.metadata")
    # What a newer release put there is no field of a document; whoever stores the result puts it back.
    plain = cast("IPPool", resource)  # every kind has these members; a pool stands for them all
    bare = evolve(plain, metadata=evolve(plain.metadata, carried=""), spec=evolve(plain.spec, carried=""), carried="")
    merged = cast("Mapping[str, object]", _merged(to_mapping(bare), patch))
    return from_mapping(merged, origin=Origin.PERSON, source=_PATCH)


def exported(resource: Resource) -> Resource:
    """The resource without what is only its own where it is stored: namespace, uid, birth."""
    metadata = evolve(resource.metadata, namespace="", uid="", creation_time_ns=None)
    return _with(resource, metadata)


def _labelled(resource: Resource, labels: Mapping[str, str]) -> Resource:
    return _with(resource, evolve(resource.metadata, labels=tuple(sorted(labels.items()))))


def _with(resource: Resource, metadata: Metadata) -> Resource:
    return cast("Resource", evolve(cast("IPPool", resource), metadata=metadata))


def _refuse_others(members: Mapping[str, object], known: tuple[str, ...], at: str) -> None:
    others = [str(name) for name in members if name not in known]
    if others:
        raise UnknownField(f"{_PATCH} {at}", ", ".join(others), ", ".join(known))


def _merged(target: object, patch: object) -> object:
    if not isinstance(patch, Mapping):
        return patch
    out = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = _merged(out.get(name), value)
    return out
