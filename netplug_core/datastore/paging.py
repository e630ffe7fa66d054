"""Lists that are read page by page, for flows. A decision asks for the pages itself (``NeedMore``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S
from netplug_core.records import PAGE_SIZE, Kind, List, Malformed, Record

__all__ = ["read_pages"]

V = TypeVar("V")

_MAX_PAGE_SIZE = 8 * PAGE_SIZE


def read_pages(
    store: Datastore,
    kind: Kind[V],
    within: tuple[str, ...] = (),
    *,
    deadline: Deadline,
    malformed: list[Malformed] | None = None,
) -> Iterator[Record[V]]:
    """Every record of a kind whose path begins with ``within``. A page is read when its first record is needed.

    The first page is small, so that its records come soon, and each later one twice as large: for every page etcd
    counts all records that are left, which takes longer than to read a thousand of them.

    With ``malformed``, records that cannot be decoded are passed over, and their errors are added to it.

    Raises:
        Malformed: a record cannot be decoded, and ``malformed`` is not given.
        Unavailable: the store does not answer.
    """
    after, limit = "", PAGE_SIZE
    while True:
        page = List(kind, within, limit=limit, after=after)
        snapshot = store.read((page,), deadline=deadline.capped(CALL_TIMEOUT_S))
        if malformed is None:
            yield from snapshot.list(page)
        else:
            malformed.extend(snapshot.malformed(page))
            yield from snapshot.readable(page)
        after = snapshot.after(page)
        if not after:
            return
        if not kind.is_large:
            limit = min(2 * limit, _MAX_PAGE_SIZE)
