"""Watches of etcd, and the revisions that they begin at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from threading import Event
from typing import Final

from attrs import define, evolve, field, frozen

from netplug_backends.etcdv3.client import ClientClosed, EtcdClient, FutureRevision, RevisionUnavailable
from netplug_backends.etcdv3.layout import Layout
from netplug_backends.etcdv3.operations import KeyEvent, WatchStart
from netplug_core.clock import Deadline
from netplug_core.encoding.stored_json import ValueCodec
from netplug_core.errors import ConfigurationError
from netplug_core.records import Kind, Revision, WatchEvent, WatchExpired

__all__ = [
    "EtcdRevision", "EtcdWatcher", "find_etcd_revision", "get_etcd_revision",
]  # fmt: skip


# --- revisions -------------------------------------------------------------------------------------------------------


_TEXT: Final = re.compile(r"([1-9][0-9]{0,17})(?:\.([1-9][0-9]{0,3}))?(@?)", re.ASCII)


@frozen(order=True)
class EtcdRevision:
    """A revision of the store; ``delivered`` counts the changes of it that a watch has delivered, 0 for all.

    ``is_legacy`` belongs to the record that has the revision: its key is a legacy key.
    """

    number: int
    delivered: int = 0
    is_legacy: bool = False

    @property
    def delivered_up_to(self) -> int:
        """The newest revision of which all changes were delivered."""
        return self.number - 1 if self.delivered else self.number

    @property
    def revision(self) -> Revision:
        """The revision as a text."""
        text = f"{self.number}.{self.delivered}" if self.delivered else str(self.number)
        return Revision(f"{text}@" if self.is_legacy else text)


def find_etcd_revision(revision: Revision) -> EtcdRevision | None:
    """The revision that a text encodes; None if it is not a revision of etcd's."""
    found = _TEXT.fullmatch(revision)
    return None if found is None else EtcdRevision(int(found[1]), int(found[2] or 0), is_legacy=bool(found[3]))


def get_etcd_revision(revision: Revision, *, where: object) -> EtcdRevision:
    """The revision that a text encodes, which ``where`` has.

    Raises:
        ConfigurationError: the text is not a revision of etcd's.
    """
    position = find_etcd_revision(revision)
    if position is None:
        raise ConfigurationError(f"{where}: resourceVersion", revision, "etcd's revisions are numbers from 1")
    return position


# --- watch -----------------------------------------------------------------------------------------------------------


_RETRY_DELAY_S = 0.1


@define
class _WatchedKind:
    """A kind, and the revision up to which its changes were delivered."""

    kind: Kind[object]
    revision: EtcdRevision

    def undelivered(self, events: Sequence[KeyEvent]) -> Iterator[tuple[KeyEvent, EtcdRevision]]:
        """Those of some changes that were not delivered yet, each with the revision after it."""
        count, number = 0, 0
        delivered = self.revision
        for change, next_change in zip_longest(events, events[1:]):
            count = count + 1 if change.mod_revision == number else 1
            number = change.mod_revision
            if number > delivered.number or count > delivered.delivered:
                is_last = next_change is None or next_change.mod_revision != number
                yield change, EtcdRevision(number, 0 if is_last else count)


@define(eq=False, repr=False)
class EtcdWatcher:
    """Watches one store."""

    _client: EtcdClient
    _layout: Layout = field(kw_only=True, alias="layout")
    _codec: ValueCodec = field(kw_only=True, alias="codec")

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Changes after the revisions given, until the client is closed; see ``Datastore.watch``."""
        closing = self._client.closing
        watched = [_WatchedKind(kind, _start_revision(revision)) for kind, revision in start.items()]
        while watched and not deadline.has_passed:
            try:
                yield from self._changes_from_member(watched, deadline, closing)
            except ClientClosed:
                return
            except FutureRevision as error:
                raise WatchExpired(max(each.revision for each in watched).revision) from error
            except RevisionUnavailable as error:
                raise WatchExpired(min(each.revision for each in watched).revision) from error
            # The connection was lost. Pause: the cause may affect the next member too.
            deadline.clock.sleep(min(_RETRY_DELAY_S, deadline.remaining_s))

    def _changes_from_member(
        self, watched: Sequence[_WatchedKind], deadline: Deadline, closing: Event
    ) -> Iterator[WatchEvent[object]]:
        """The changes from one member, until the connection is lost."""
        starts = [WatchStart(self._layout.list_range(each.kind), each.revision.delivered_up_to + 1) for each in watched]
        for batch in self._client.watch(starts, deadline=deadline, closing=closing):
            each = watched[batch.index]
            for change, position in each.undelivered(batch.events):
                key = self._layout.find_key(each.kind, change.key)
                if key is not None:
                    value = None if change.value is None else self._codec.decode(key, change.value)
                    each.revision = position
                    reached = evolve(position, is_legacy=self._layout.is_legacy(each.kind, change.key))
                    yield WatchEvent(key, value, reached.revision)


def _start_revision(revision: Revision) -> EtcdRevision:
    position = find_etcd_revision(revision)
    if position is None:
        raise WatchExpired(revision)
    return position
