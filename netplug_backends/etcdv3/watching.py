"""Following kinds as they change: what the members tell, each change once, across the loss of any of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from threading import Event

from attrs import define, evolve

from netplug_backends.etcdv3.calls import ValueChange, WatchFrom
from netplug_backends.etcdv3.client import ClientClosed, EtcdClient, RevisionAhead, RevisionGone
from netplug_backends.etcdv3.layout import Layout
from netplug_backends.etcdv3.revisions import Position, find_position
from netplug_core.clock import Deadline
from netplug_core.datastore.encoding import ValueCodec
from netplug_core.records import Change, Kind, Revision, WatchExpired

__all__ = ["Watcher"]

_PAUSE_S = 0.1


@define
class _Followed:
    """A kind, and how far it has been told of."""

    kind: Kind[object]
    position: Position

    def untold(self, changes: Sequence[ValueChange]) -> Iterator[tuple[ValueChange, Position]]:
        """What of some changes was not told yet; each with the position after it."""
        counted, number = 0, 0
        told = self.position
        for change, following in zip_longest(changes, changes[1:]):
            counted = counted + 1 if change.revision == number else 1
            number = change.revision
            if number > told.number or counted > told.told:
                is_last = following is None or following.revision != number
                yield change, Position(number, 0 if is_last else counted)


class Watcher:
    """Watches of one store."""

    def __init__(self, client: EtcdClient, *, layout: Layout, codec: ValueCodec) -> None:
        self._client = client
        self._layout = layout
        self._codec = codec

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[Change[object]]:
        """Changes after the revisions given, until the client is closed; else as ``Datastore`` of the core says."""
        closing = self._client.closing
        followed = [_Followed(kind, _begin(revision)) for kind, revision in start.items()]
        while followed and not deadline.has_passed:
            try:
                yield from self._told(followed, deadline, closing)
            except ClientClosed:
                return
            except RevisionAhead as error:
                raise WatchExpired(max(each.position for each in followed).revision) from error
            except RevisionGone as error:
                raise WatchExpired(min(each.position for each in followed).revision) from error
            # The member was lost. Whatever took it away may take the next one too.
            deadline.clock.sleep(min(_PAUSE_S, deadline.remaining_s))

    def _told(self, followed: Sequence[_Followed], deadline: Deadline, closing: Event) -> Iterator[Change[object]]:
        """The changes that one member tells, until it is lost."""
        starts = [WatchFrom(self._layout.span(each.kind), each.position.whole + 1) for each in followed]
        for news in self._client.watch(starts, deadline=deadline, closing=closing):
            each = followed[news.index]
            for change, position in each.untold(news.changes):
                key = self._layout.find_key(each.kind, change.key)
                if key is not None:
                    value = None if change.value is None else self._codec.decode(key, change.value)
                    each.position = position
                    stands = evolve(position, is_old=self._layout.is_old(each.kind, change.key))
                    yield Change(key, value, stands.revision)


def _begin(revision: Revision) -> Position:
    position = find_position(revision)
    if position is None:
        raise WatchExpired(revision)
    return position
