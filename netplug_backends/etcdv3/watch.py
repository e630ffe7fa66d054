"""Following kinds as they change: what the members tell, each change once, across the loss of any of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from threading import Event

from attrs import define, evolve

from netplug_backends.etcdv3.client import ClientClosed, EtcdClient, FutureRevision, RevisionUnavailable
from netplug_backends.etcdv3.layout import Layout
from netplug_backends.etcdv3.operations import KeyEvent, WatchStart
from netplug_backends.etcdv3.revisions import EtcdRevision, find_etcd_revision
from netplug_core.clock import Deadline
from netplug_core.encoding.stored_json import ValueCodec
from netplug_core.records import Kind, Revision, WatchEvent, WatchExpired

__all__ = ["EtcdWatcher"]

_RETRY_DELAY_S = 0.1


@define
class _WatchedKind:
    """A kind, and how far it has been told of."""

    kind: Kind[object]
    revision: EtcdRevision

    def undelivered(self, events: Sequence[KeyEvent]) -> Iterator[tuple[KeyEvent, EtcdRevision]]:
        """What of some changes was not told yet; each with the position after it."""
        counted, number = 0, 0
        told = self.revision
        for change, following in zip_longest(events, events[1:]):
            counted = counted + 1 if change.mod_revision == number else 1
            number = change.mod_revision
            if number > told.number or counted > told.delivered:
                is_last = following is None or following.mod_revision != number
                yield change, EtcdRevision(number, 0 if is_last else counted)


class EtcdWatcher:
    """Watches of one store."""

    def __init__(self, client: EtcdClient, *, layout: Layout, codec: ValueCodec) -> None:
        self._client = client
        self._layout = layout
        self._codec = codec

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Changes after the revisions given, until the client is closed; else as ``Datastore`` of the core says."""
        closing = self._client.closing
        followed = [_WatchedKind(kind, _start_revision(revision)) for kind, revision in start.items()]
        while followed and not deadline.has_passed:
            try:
                yield from self._changes_from_member(followed, deadline, closing)
            except ClientClosed:
                return
            except FutureRevision as error:
                raise WatchExpired(max(each.revision for each in followed).revision) from error
            except RevisionUnavailable as error:
                raise WatchExpired(min(each.revision for each in followed).revision) from error
            # The member was lost. Whatever took it away may take the next one too.
            deadline.clock.sleep(min(_RETRY_DELAY_S, deadline.remaining_s))

    def _changes_from_member(
        self, watched: Sequence[_WatchedKind], deadline: Deadline, closing: Event
    ) -> Iterator[WatchEvent[object]]:
        """The changes that one member tells, until it is lost."""
        starts = [WatchStart(self._layout.list_range(each.kind), each.revision.delivered_up_to + 1) for each in watched]
        for news in self._client.watch(starts, deadline=deadline, closing=closing):
            each = watched[news.index]
            for change, position in each.undelivered(news.events):
                key = self._layout.find_key(each.kind, change.key)
                if key is not None:
                    value = None if change.value is None else self._codec.decode(key, change.value)
                    each.revision = position
                    stands = evolve(position, is_legacy=self._layout.is_legacy(each.kind, change.key))
                    yield WatchEvent(key, value, stands.revision)


def _start_revision(revision: Revision) -> EtcdRevision:
    position = find_etcd_revision(revision)
    if position is None:
        raise WatchExpired(revision)
    return position
