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
from netplug_core.records import Kind, List, Malformed, Revision, Snapshot

__all__ = ["follow", "follow_endpoints"]


def follow(
    store: Datastore, cache: DatastoreCache, kinds: Sequence[Kind[object]], *, deadline: Deadline
) -> Malformed | None:
    """List the kinds that are not watched yet, then apply each change until the deadline.

    A kind of which a record cannot be decoded is left out, since a watch would not say when that is repaired: calls
    read it, and the next call of this function lists it again. The first such error is returned.

    Call it again after it returned or raised. The return of a watch that is no
    :class:`~netplug_core.datastore.protocol.LiveWatch` confirms that the kinds are up to date.

    Raises:
        WatchExpired: changes were forgotten before they were delivered; the next call lists the kinds again.
        Malformed: of each kind a record cannot be decoded, or one was changed to such a record.
        NotSupported: the store does not keep or watch a kind.
        Unavailable: the store does not answer.
    """
    clock = cache.clock
    try:
        damaged = _list_unknown(store, cache, kinds, deadline)
        kinds = [kind for kind in kinds if kind in cache.state.watched]
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
    return damaged


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


def _list_unknown(
    store: Datastore, cache: DatastoreCache, kinds: Sequence[Kind[object]], deadline: Deadline
) -> Malformed | None:
    """List the kinds that are not watched, and let those of which each record can be decoded count as watched.

    The first error of another one is returned; it is raised if there is nothing to watch.
    """
    unknown = [List(kind) for kind in kinds if kind not in cache.state.watched]
    if not unknown:
        return None
    listed_s = cache.clock.monotonic()
    listed = store.read(unknown, deadline=deadline.capped(CALL_TIMEOUT_S))
    results = {query: result for query, result in listed.results.items() if not result.malformed}
    sound = Snapshot(results, {query.kind: listed.revision(query.kind) for query in results})
    cache.change(lambda state: state.with_lists(sound, now_s=listed_s))
    errors = [error for query in unknown for error in listed.malformed(query)]
    if errors and not any(kind in cache.state.watched for kind in kinds):
        raise errors[0]
    return errors[0] if errors else None


def _positions(cache: DatastoreCache, kinds: Sequence[Kind[object]]) -> dict[Kind[object], Revision]:
    revisions = cache.state.snapshot.revisions
    return {kind: revisions[kind] for kind in kinds}
