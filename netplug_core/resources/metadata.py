"""The metadata that resources of every kind have.

A resource is a :class:`Metadata` and a spec. ``unknown_json`` holds, as canonical JSON text, the stored members that
this release does not know. A newer release may have put them there, so they are written back unchanged.
"""

from __future__ import annotations

from attrs import field, frozen

__all__ = ["Labels", "Metadata", "OwnerReference"]

Labels = tuple[tuple[str, str], ...]
"""Key and value pairs, sorted by key; each key once."""


@frozen(kw_only=True)
class OwnerReference:
    """Whose deletion removes the resource too (Kubernetes' ``ownerReferences``)."""

    api_version: str
    kind: str
    name: str
    uid: str
    unknown_json: str = ""


@frozen(kw_only=True)
class Metadata:
    """The identity and bookkeeping of one resource. Times are nanoseconds since the epoch; None means not set.

    ``attempt`` is the random number of the call that created the resource. A store that chooses the uid itself keeps
    it, so that a call whose reply was lost recognises its own resource. It is no field of a document.
    """

    name: str
    namespace: str = ""
    generate_name: str = ""
    uid: str = ""
    creation_time_ns: int | None = None
    deletion_time_ns: int | None = None
    labels: Labels = ()
    annotations: Labels = ()
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    unknown_json: str = ""
    attempt: str = field(default="", eq=False)
