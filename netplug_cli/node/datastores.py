"""The datastores that are open: each call is measured, and the last answer says whether the store can be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TypeAlias

from attrs import define, frozen

from netplug_cli.node.caches import OpenCaches
from netplug_cli.node.credentials import KnownCredentials
from netplug_cli.node.tracked import Tracked
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import CommitCall, Datastore, DatastoreCall, ObservedDatastore
from netplug_core.errors import DatastoreError, Unavailable
from netplug_core.flows.resources.cluster import find_cluster_information

__all__ = ["CHECK_S", "STALE_S", "DatastoreState", "NoteCall", "OpenDatastores"]

STALE_S = 10.0
"""A datastore that answered so long ago is asked once more before it counts as one that answers."""

CHECK_S = 2.0
"""The longest that asking all of them may take."""

NoteCall: TypeAlias = Callable[[tuple[str, str], str, str, float], None]
"""Takes a call of a datastore: the name and the location of the store, ``read`` or ``commit``, the outcome, seconds."""

_OK = "ok"


@frozen(kw_only=True)
class DatastoreState:
    """An open datastore. ``answered_s`` is how many seconds ago it answered; None: it has not.

    ``failure`` is the class of the error with which the last call found that it cannot be reached; empty if it could.
    """

    name: str
    location: str
    answered_s: float | None
    failure: str

    @property
    def does_answer(self) -> bool:
        """Whether it answered when it was last asked, and that is not long ago."""
        return not self.failure and self.answered_s is not None and self.answered_s <= STALE_S


@define(eq=False)
class _MeasuredDatastore(ObservedDatastore):
    """A datastore that notes its calls. Threads may share it."""

    clock: Clock
    note: NoteCall
    answered_at: float | None = None
    failure: str = ""

    @contextmanager
    def observe(self, call: DatastoreCall) -> Iterator[None]:
        operation = "commit" if isinstance(call, CommitCall) else "read"
        began, outcome, failure = self.clock.monotonic(), _OK, ""
        try:
            yield
        except Exception as error:
            outcome = type(error).__name__
            # A conflict, or a record that is not there, is an answer.
            failure = "" if isinstance(error, DatastoreError) and not isinstance(error, Unavailable) else outcome
            raise
        finally:
            ended = self.clock.monotonic()
            self.failure = failure
            if not failure:
                self.answered_at = ended
            self.note((self.description.name, self.description.location), operation, outcome, ended - began)

    @property
    def state(self) -> DatastoreState:
        """Its state now."""
        answered = self.answered_at
        return DatastoreState(
            name=self.description.name,
            location=self.description.location,
            answered_s=None if answered is None else self.clock.monotonic() - answered,
            failure=self.failure,
        )


class OpenDatastores:
    """The datastores that are open now, with their credentials and their caches. Threads may share it."""

    def __init__(self, clock: Clock, note: NoteCall) -> None:
        self.credentials = KnownCredentials(clock)
        self.caches = OpenCaches(clock)
        self._clock = clock
        self._note = note
        self._open: Tracked[_MeasuredDatastore] = Tracked()
        self._checking = Lock()

    @contextmanager
    def measured(self, datastore: Datastore) -> Iterator[Datastore]:
        """The same datastore, whose calls are noted. It counts as open for as long as the context lasts."""
        measured = _MeasuredDatastore(datastore, self._clock, self._note)
        with self._open.including(measured), self.credentials.used_by(datastore):
            yield measured

    def states(self) -> tuple[DatastoreState, ...]:
        """Each of them, in the order in which they were opened. None is asked."""
        return tuple(each.state for each in self._open.all())

    def check(self) -> tuple[DatastoreState, ...]:
        """Each of them; those that do not count as answering are asked first."""
        with self._checking:  # who comes meanwhile finds them asked
            deadline = Deadline.after(self._clock, CHECK_S)
            for each in self._open.all():
                if not each.state.does_answer and not deadline.has_passed:
                    self._ask(each, deadline)
        return self.states()

    def _ask(self, datastore: _MeasuredDatastore, deadline: Deadline) -> None:
        try:
            find_cluster_information(datastore, deadline=deadline)
        except Exception:  # noqa: BLE001  it is noted as the state, which the caller reads
            return
