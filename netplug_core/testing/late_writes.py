"""Writes of killed processes that were on their way: the store applies them later, if their conditions hold then.

On an atomic store a whole commit is on its way. On an ordered store it is one write: those before it are applied, and
those after it were never sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from attrs import define, evolve, field, frozen

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Atomicity, Datastore
from netplug_core.datastore.write_set import requirement_revision
from netplug_core.records import (
    CommitError,
    Delete,
    Require,
    RequireUnchanged,
    Revision,
    Update,
    Write,
    Written,
)

__all__ = ["LateWrite", "SentWrites", "send_until"]


@frozen
class LateWrite:
    """What a process that died has sent, and the store has not received yet."""

    writes: tuple[Write, ...]

    def land(self, store: Datastore, *, deadline: Deadline) -> None:
        """Let it arrive: the store applies it, or refuses it because a condition does not hold any more."""
        with suppress(CommitError):  # the process that would get the answer is dead
            store.commit(self.writes, deadline=deadline)


@define(eq=False, repr=False)
class SentWrites:
    """A commit to an ordered store, sent write by write: each is a commit of its own."""

    _store: Datastore
    _deadline: Deadline
    revisions: list[Revision] = field(factory=list, init=False)

    @staticmethod
    def is_change(write: Write) -> bool:
        """Whether a write is sent at all: an ordered store does not evaluate requirements."""
        return not isinstance(write, (Require, RequireUnchanged))

    def prepared(self, write: Write) -> Write:
        """The write as it is sent: with the revision that an earlier write of the commit has made."""
        if isinstance(write, (Update, Delete)) and isinstance(write.revision, Written):
            return evolve(write, revision=self.revisions[write.revision.index])
        return write

    def send(self, write: Write) -> None:
        """Send the next write.

        Raises:
            CommitError: it was refused; ``applied`` counts the writes before it.
        """
        if isinstance(write, (Require, RequireUnchanged)):
            self.revisions.append(requirement_revision(write))
            return
        try:
            self.revisions += self._store.commit((self.prepared(write),), deadline=self._deadline)
        except CommitError as error:
            place = len(self.revisions)
            raise evolve(error, index=place, applied=place) from None


def send_until(store: Datastore, writes: Sequence[Write], position: int, *, deadline: Deadline) -> LateWrite | None:
    """Send a commit up to the change at ``position`` (modulo their number), which is on its way when the process dies.

    None if the store refused a write before it: then no other was sent.
    """
    if store.description.atomicity is Atomicity.ATOMIC:
        return LateWrite(tuple(writes))
    sent = SentWrites(store, deadline)
    places = [place for place, write in enumerate(writes) if sent.is_change(write)]
    last = places[position % len(places)]
    try:
        for write in writes[:last]:
            sent.send(write)
    except CommitError:
        return None
    return LateWrite((sent.prepared(writes[last]),))
