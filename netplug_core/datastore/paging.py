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


def read_pages(
    store: Datastore,
    kind: Kind[V],
    within: tuple[str, ...] = (),
    *,
    deadline: Deadline,
    malformed: list[Malformed] | None = None,
) -> Iterator[Record[V]]:
    """Every record of a kind whose path begins with ``within``. A page is read when its first record is needed.

    With ``malformed``, records that cannot be decoded are passed over, and their errors are added to it.

    Raises:
        Malformed: a record cannot be decoded, and ``malformed`` is not given.
        Unavailable: the store does not answer.
    """
    after = ""
    while True:
        page = List(kind, within, limit=PAGE_SIZE, after=after)
        snapshot = store.read((page,), deadline=deadline.capped(CALL_TIMEOUT_S))
        if malformed is None:
            yield from snapshot.list(page)
        else:
            malformed.extend(snapshot.malformed(page))
            yield from snapshot.readable(page)
        after = snapshot.after(page)
        if not after:
            return
