"""The metadata that resources of every kind have.

A resource is a :class:`Metadata` and a spec. ``unknown_json`` holds, as canonical JSON text, the stored members that
this release does not know. A newer release may have put them there, so they are written back unchanged.
"""

from __future__ import annotations

from attrs import field, frozen

from netplug_core.decoding.codecs import NONEMPTY_TEXT, TEXT, TEXT_MAP, TIME
from netplug_core.decoding.tables import Keeps, ListOf, json_object, member

__all__ = ["ENVELOPE", "Labels", "Metadata", "OwnerReference"]

ENVELOPE = ("kind", "apiVersion")
"""The members of every resource that say what it is."""

Labels = tuple[tuple[str, str], ...]
"""Key and value pairs, sorted by key; each key once."""


@json_object(keeps=Keeps.UNKNOWN)
@frozen(kw_only=True)
class OwnerReference:
    """Whose deletion removes the resource too (Kubernetes' ``ownerReferences``)."""

    api_version: str = field(metadata=member("apiVersion", TEXT, "the group and version of the owner"))
    kind: str = field(metadata=member("kind", TEXT, "the kind of the owner"))
    name: str = field(metadata=member("name", TEXT, "the name of the owner"))
    uid: str = field(metadata=member("uid", TEXT, "the uid of the owner"))
    unknown_json: str = ""


@json_object(ignored=("resourceVersion", "selfLink", "generation", "managedFields", "deletionGracePeriodSeconds"))
@frozen(kw_only=True)
class Metadata:
    """The identity and bookkeeping of one resource. Times are nanoseconds since the epoch; None means not set.

    ``attempt`` is the random number of the call that created the resource. A store that chooses the uid itself keeps
    it, so that a call whose reply was lost recognises its own resource. It is no field of a document.
    """

    name: str = field(
        metadata=member(
            "name", NONEMPTY_TEXT, "the name, unique among those of its kind, in its namespace if the kind has some"
        )
    )
    namespace: str = field(default="", metadata=member("namespace", TEXT, "the namespace, of a kind that has some"))
    generate_name: str = field(default="", metadata=member("generateName", TEXT, "what a generated name begins with"))
    uid: str = field(default="", metadata=member("uid", TEXT, "the identity that the datastore gives it"))
    creation_time_ns: int | None = field(
        default=None, metadata=member("creationTimestamp", TIME, "when it was created")
    )
    deletion_time_ns: int | None = field(
        default=None, metadata=member("deletionTimestamp", TIME, "when its deletion was asked for")
    )
    labels: Labels = field(
        default=(), metadata=member("labels", TEXT_MAP, "names and texts by which selectors find it")
    )
    annotations: Labels = field(
        default=(), metadata=member("annotations", TEXT_MAP, "names and texts for people and programs")
    )
    finalizers: tuple[str, ...] = field(
        default=(), metadata=member("finalizers", ListOf(TEXT), "what has to be done before it is deleted")
    )
    owner_references: tuple[OwnerReference, ...] = field(
        default=(), metadata=member("ownerReferences", ListOf(OwnerReference), "whose deletion deletes it too")
    )
    unknown_json: str = ""
    attempt: str = field(default="", eq=False)
