"""Keeps a view true: lists what it does not know of some kinds, then applies the events of a watch.

A resident process calls it again and again, one watch each time; nothing here waits but the watch.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import LIST_TIMEOUT_S, Datastore, InterruptibleWatch, LiveWatch, ShowsNodeEndpoints
from netplug_core.datastore.transaction import read_lists
from netplug_core.datastore.view import View
from netplug_core.records import Kind, List, Malformed, ReadResult, Record, Revision, Snapshot

__all__ = ["Damage", "follow", "follow_endpoints"]


class Damage(enum.Enum):
    """What becomes of a kind of which a record cannot be decoded.

    - ``LEFT_OUT``: the kind is not known: calls read it
    - ``PASSED_OVER``: the other records are known, and what was known of that one before, or that there is one that
      cannot be read; for controllers
    """

    LEFT_OUT = "left out"
    PASSED_OVER = "passed over"


def follow(
    store: Datastore,
    view: View,
    kinds: Sequence[Kind[object]],
    *,
    deadline: Deadline,
    damage: Damage = Damage.LEFT_OUT,
) -> Malformed | None:
    """List the kinds that are not watched yet, then apply each change until the deadline.

    A kind of which a record cannot be decoded is not watched, since a watch would not say when that is repaired: the
    next call of this function lists it again. The first such error is returned.

    Call it again after it returned or raised. The return of a watch that is no
    :class:`~netplug_core.datastore.protocol.LiveWatch` confirms that the kinds are up to date.

    Raises:
        WatchExpired: changes were forgotten before they were delivered; the next call lists the kinds again.
        Malformed: of each kind a record cannot be decoded, or one was changed to such a record.
        NotSupported: the store does not keep or watch a kind.
        Unavailable: the store does not answer.
    """
    clock = view.clock
    try:
        damaged = _list_unknown(store, view, kinds, deadline, damage)
        kinds = [kind for kind in kinds if kind in view.watched]
        events = store.watch(_positions(view, kinds), deadline=deadline)
        live = view.watch = events if isinstance(events, LiveWatch) else None
        view.interruptible_watch = events if isinstance(events, InterruptibleWatch) else None
        for event in events:
            # After an interruption, older changes may follow: a live watch says how far it has come.
            now_s = clock.monotonic() if live is None else 0.0
            view.apply_event(event, now_s=now_s)
    except BaseException:
        view.watch = view.interruptible_watch = None
        view.lose(frozenset(kinds))
        raise
    view.note_progress()
    view.watch = view.interruptible_watch = None
    if live is None:
        now_s = clock.monotonic()
        view.confirm(dict.fromkeys(kinds, now_s))
    return damaged


def follow_endpoints(store: ShowsNodeEndpoints, view: View, node: str, *, deadline: Deadline) -> None:
    """Keep the endpoints of a node, which are views of its pods, in the view until the deadline. Then it forgets them.

    Errors are those of ``follow``.
    """
    events = store.watch_endpoints(node, deadline=deadline)
    view.endpoint_watch = events if isinstance(events, LiveWatch) else None
    try:
        for event in events:
            view.apply_record_event(event)
    finally:
        view.endpoint_watch = None
        view.lose(view.non_expiring.views)


def _list_unknown(
    store: Datastore, view: View, kinds: Sequence[Kind[object]], deadline: Deadline, damage: Damage
) -> Malformed | None:
    """List the kinds that are not watched, and let those of which each record can be decoded count as watched.

    The first error of another one is returned; it is raised if there is nothing to watch.
    """
    unknown = [List(kind) for kind in kinds if kind not in view.watched]
    if not unknown:
        return None
    listed_s = view.clock.monotonic()
    # The deadline is that of the watch, which a long list may outlast; the next call of ``follow`` then begins it.
    reading = Deadline.after(deadline.clock, LIST_TIMEOUT_S)
    listed = read_lists(store, [query.kind for query in unknown], deadline=reading)
    results = {query: result for query, result in listed.results.items() if not result.malformed}
    sound = Snapshot(results, {query.kind: listed.revision(query.kind) for query in results})
    view.follow_lists(sound, now_s=listed_s)
    if damage is Damage.PASSED_OVER:
        _pass_over(view, listed, now_s=listed_s)
    errors = [error for query in unknown for error in listed.malformed(query)]
    if errors and damage is Damage.LEFT_OUT and not any(kind in view.watched for kind in kinds):
        raise errors[0]
    return errors[0] if errors else None


def _pass_over(view: View, listed: Snapshot, *, now_s: float) -> None:
    """Take the records of damaged kinds that can be read; of the others, what was known before. No watch is begun."""
    for query, result in listed.results.items():
        if not result.malformed:
            continue
        has_listed, kept, unreadable = view.has_listed((query.kind,)), dict[tuple[str, ...], Record[object]](), []
        for subject in (error.subject for error in result.malformed if error.subject is not None):
            record = view.find(subject) if has_listed else None
            if record is None:
                unreadable.append(subject)
            else:
                kept[subject.path] = record
        records = {**kept, **{record.key.path: record for record in result.records}}
        whole = ReadResult(tuple(sorted(records.values(), key=lambda record: record.key.path)))
        read = Snapshot({query: whole}, {query.kind: listed.revision(query.kind)})
        view.follow_lists(read, now_s=now_s, unreadable=unreadable)
        view.lose({query.kind})


def _positions(view: View, kinds: Sequence[Kind[object]]) -> dict[Kind[object], Revision]:
    revisions = view.revisions
    return {kind: revisions[kind] for kind in kinds}
