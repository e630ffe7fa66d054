"""Reads stored resources, by key or all of a kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from netplug_core.clock import Deadline
from netplug_core.datastore.paging import read_pages
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S
from netplug_core.records import Get, Key, List, Record
from netplug_core.resources.kinds import Resource, ResourceKind
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE, PROFILE
from netplug_core.selectors.evaluation import matches
from netplug_core.selectors.grammar import Everything, Selector

__all__ = ["find", "is_selected", "list_all", "list_in_pages", "with_defaults"]


def find(store: Datastore, keys: Sequence[Key[Resource]], *, deadline: Deadline) -> tuple[Record[Resource] | None, ...]:
    """The resources under some keys, in the order of the keys; None where nothing is stored.

    Raises:
        Unavailable: the store does not answer.
    """
    snapshot = store.read([Get(key) for key in keys], deadline=deadline.capped(CALL_TIMEOUT_S))
    return tuple(DEFAULT_ALLOW_PROFILE if key == DEFAULT_ALLOW_PROFILE.key else snapshot.find(key) for key in keys)


def list_all(
    store: Datastore,
    kind: ResourceKind,
    *,
    namespace: str = "",
    selector: Selector = Everything.ALL,
    deadline: Deadline,
) -> tuple[Record[Resource], ...]:
    """All resources of a kind, sorted by name; with ``namespace``, only those of that namespace.

    ``selector``: only those that it selects by the labels in their metadata.

    Raises:
        Unavailable: the store does not answer.
    """
    query = List(kind.kind, (namespace,) if namespace else ())
    found = with_defaults(kind, store.read([query], deadline=deadline.capped(CALL_TIMEOUT_S)).list(query))
    return tuple(record for record in found if is_selected(record.value, selector))


def list_in_pages(
    store: Datastore,
    kind: ResourceKind,
    *,
    namespace: str = "",
    selector: Selector = Everything.ALL,
    deadline: Deadline,
) -> Iterator[Record[Resource]]:
    """The same resources as of :func:`list_all`, for a reader who needs a part at a time.

    A page is read when its first resource is needed, so of a quarter of a million few are in memory at once.

    Raises:
        Unavailable: the store does not answer.
    """
    stored: Iterable[Record[Resource]]
    stored = read_pages(store, kind.kind, (namespace,) if namespace else (), deadline=deadline)
    if kind.kind == PROFILE:
        stored = with_defaults(kind, stored)
    return (record for record in stored if is_selected(record.value, selector))


def is_selected(resource: Resource, selector: Selector) -> bool:
    """Whether a selector selects a resource, by the labels in its metadata."""
    return matches(selector, dict(resource.metadata.labels))


def with_defaults(kind: ResourceKind, stored: Iterable[Record[Resource]]) -> tuple[Record[Resource], ...]:
    """The stored resources of a kind, in path order, with those that are there in every store."""
    if kind.kind != PROFILE:
        return tuple(stored)
    others = (record for record in stored if record.key != DEFAULT_ALLOW_PROFILE.key)
    return tuple(sorted((DEFAULT_ALLOW_PROFILE, *others), key=lambda record: record.key.path))
