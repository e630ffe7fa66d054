"""Keeps some kinds of a cache true by a watch. A process that stays calls it in a loop of its own.

A kind is watched from the revision of the list that was read of it, so no change is missed in between. If the watch
ends for any other reason than its deadline, the cache forgets its kinds until they are listed again: it is never
outdated without a sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from netplug_core.clock import Deadline
from netplug_core.datastore.cache import DatastoreCache
from netplug_core.datastore.cached_state import CachedState
from netplug_core.datastore.protocol import Datastore, LiveWatch, ShowsNodeEndpoints
from netplug_core.datastore.transaction import CALL_TIMEOUT_S
from netplug_core.records import Kind, List, Revision

__all__ = ["follow", "follow_endpoints"]


def follow(store: Datastore, cache: DatastoreCache, kinds: Sequence[Kind[object]], *, deadline: Deadline) -> None:
    """List the kinds that are not watched yet, then apply each change until the deadline.

    Call it again after it returned or raised. The return of a watch that is no
    :class:`~netplug_core.datastore.protocol.LiveWatch` confirms that the kinds are up to date.

    Raises:
        WatchExpired: changes were forgotten before they were delivered; the next call lists the kinds again.
        Malformed, NotSupported: a record cannot be decoded, or the store does not keep or watch a kind.
        Unavailable: the store does not answer.
    """
    clock = cache.clock
    try:
        unknown = [List(kind) for kind in kinds if kind not in cache.state.watched]
        if unknown:
            listed_s = clock.monotonic()
            listed = store.read(unknown, deadline=deadline.capped(CALL_TIMEOUT_S))
            for query in unknown:
                listed.list(query)  # refuses a malformed record: a watch would not say when it is repaired
            cache.change(lambda state: state.with_lists(listed, now_s=listed_s))
        events = store.watch(_positions(cache, kinds), deadline=deadline)
        live = cache.watch = events if isinstance(events, LiveWatch) else None
        for event in events:
            # After an interruption, older changes may follow: a live watch says how far it has come.
            now_s = clock.monotonic() if live is None else 0.0
            cache.change(partial(CachedState.with_event, event=event, now_s=now_s))
    except BaseException:
        cache.watch = None
        cache.change(lambda state: state.without(frozenset(kinds)))
        raise
    cache.note_progress()
    cache.watch = None
    if live is None:
        now_s = clock.monotonic()
        cache.change(lambda state: state.confirmed(dict.fromkeys(kinds, now_s)))


def follow_endpoints(store: ShowsNodeEndpoints, cache: DatastoreCache, node: str, *, deadline: Deadline) -> None:
    """Keep the endpoints of a node, which are views of its pods, in the cache until the deadline. Then it forgets them.

    Errors are those of ``follow``.
    """
    events = store.watch_endpoints(node, deadline=deadline)
    cache.endpoint_watch = events if isinstance(events, LiveWatch) else None
    try:
        for event in events:
            cache.change(partial(CachedState.with_record_event, event=event))
    finally:
        cache.endpoint_watch = None
        cache.change(lambda state: state.without(cache.lasting.views))


def _positions(cache: DatastoreCache, kinds: Sequence[Kind[object]]) -> dict[Kind[object], Revision]:
    revisions = cache.state.snapshot.revisions
    return {kind: revisions[kind] for kind in kinds}
