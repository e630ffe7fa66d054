"""Leader election: which of several processes acts. A controller holds a Lease for this one.

It is an object of the API server, or without an orchestrator a text in the datastore. ``netplug_core.reconcile.lease``
has the rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, Protocol

from attrs import define, field, frozen

from netplug_core.clock import Clock, Deadline, format_time
from netplug_core.datastore.protocol import Datastore, HoldsLeases
from netplug_core.decoding.tables import find_object, find_text
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.log import Level, Log
from netplug_core.operator.state import Json, ObjectRef
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Timing
from netplug_core.reconcile.lease import (
    RENEW_EVERY_S,
    TRUSTED_S,
    LeaseRecord,
    LeaseStep,
    SeenLease,
    decide_lease,
    next_record,
    read_lease,
    read_lease_text,
    released_record,
    see,
)
from netplug_core.records import Revision

__all__ = ["DatastoreLeases", "LeaderElection", "LeaseStore"]

_REQUEST_S: Final = 5.0
_MICROSECONDS: Final = 1_000_000


class LeaseStore(Protocol):
    """Where the Lease is. Both methods raise NetplugError if the server does not answer, or refuses."""

    def find(self, ref: ObjectRef, *, deadline: Deadline) -> Json | None:
        """An object; None if it does not exist."""
        ...

    def replace(self, wanted: Json, *, deadline: Deadline) -> Json | None:
        """Store an object whole: a new one, or the one with that ``resourceVersion``; None if it has another."""
        ...


@frozen
class DatastoreLeases:
    """Leases in a datastore that holds some; None while it is not open."""

    _find_datastore: Callable[[], Datastore | None]

    def find(self, ref: ObjectRef, *, deadline: Deadline) -> Json | None:
        """The lease as an object; its ``resourceVersion`` is its revision. What is no JSON object is free."""
        found = self._open().read_lease(ref.name, deadline=deadline)
        if found is None:
            return None
        text, revision = found
        return {"metadata": {"resourceVersion": revision}, "spec": read_lease_text(text)}

    def replace(self, wanted: Json, *, deadline: Deadline) -> Json | None:
        """Store it if no other process has since it was read."""
        revision = find_text(wanted, "metadata", "resourceVersion")
        text = json.dumps(find_object(wanted, "spec"), sort_keys=True)
        name = find_text(wanted, "metadata", "name")
        known = Revision(revision) if revision else None
        return wanted if self._open().write_lease(name, text, known, deadline=deadline) else None

    def _open(self) -> HoldsLeases:
        found = self._find_datastore()
        if found is None or not isinstance(found, HoldsLeases):
            raise Unavailable("the datastore", "it is not open")
        return found


@define(kw_only=True)
class LeaderElection:
    """Whether this process acts. ``identity`` is its name in the ``lease``; a change calls ``on_change``.

    ``role`` is what it is in log lines, such as "operator".
    """

    role: str
    store: LeaseStore
    lease: ObjectRef
    identity: str
    clock: Clock
    log: Log
    on_change: Callable[[], None]
    _seen: SeenLease | None = field(default=None, init=False)
    _trusted_until: float = field(default=0.0, init=False)
    _was_leading: bool = field(default=False, init=False)
    _problem: str = field(default="the Lease has not been read yet", init=False)

    @property
    def is_leading(self) -> bool:
        """Whether this process may write."""
        return self.clock.monotonic() < self._trusted_until

    @property
    def problem(self) -> str:
        """Why the Lease could not be looked at the last time, or that it was not yet; empty if it could."""
        return self._problem

    def controller(self) -> Controller[None, None]:
        """What takes and renews the Lease."""
        return Controller(
            name="lease",
            observe=lambda _deadline: None,
            plan=lambda _state: Plan(actions=(None,), look_again_s=RENEW_EVERY_S),
            act=lambda _action, _deadline: self._renew(),
            failure="the Lease cannot be renewed",
            timing=Timing(backoff=Backoff(first_s=RENEW_EVERY_S, longest_s=RENEW_EVERY_S)),
        )

    def give_up(self) -> None:
        """Give the Lease up, so that the next process does not wait for its end. The controller has to have ended."""
        if not self.is_leading or self._seen is None:
            return
        self._trusted_until = 0.0
        try:
            found = self.store.find(self.lease, deadline=self._deadline())
            record = read_lease(found)
            if record.holder == self.identity:
                self._write(released_record(record), found)
        except NetplugError as error:
            self.log(Level.WARNING, "the Lease is not given up; it ends by itself", cause=error)

    def _renew(self) -> None:
        """Take or renew the Lease if that is due."""
        try:
            self._look()
        except NetplugError as error:
            self._problem = str(error)
            raise
        else:
            self._problem = ""
        finally:
            self._note_change()

    def _note_change(self) -> None:
        if self.is_leading is not self._was_leading:
            self._was_leading = self.is_leading
            text = "acts from now on" if self._was_leading else "acts no more"
            self.log(Level.INFO, f"this {self.role} {text}", identity=self.identity)
            self.on_change()

    def _look(self) -> None:
        began_s = self.clock.monotonic()
        found = self.store.find(self.lease, deadline=self._deadline())
        seen = self._seen = see(self._seen, read_lease(found), began_s)
        if decide_lease(seen, self.identity, began_s) is LeaseStep.WAIT:
            self._trusted_until = 0.0
            return
        record = next_record(seen.record, self.identity, self._now())
        if self._write(record, found):
            self._seen = see(None, record, began_s)
            self._trusted_until = began_s + TRUSTED_S

    def _write(self, record: LeaseRecord, found: Json | None) -> bool:
        """Whether it is stored: another process may have been faster."""
        metadata = {"name": self.lease.name, "namespace": self.lease.namespace}
        version = find_text(found, "metadata", "resourceVersion")
        if version:
            metadata["resourceVersion"] = version
        head = {"apiVersion": self.lease.api_version, "kind": self.lease.kind, "metadata": metadata}
        return self.store.replace({**head, "spec": record.spec()}, deadline=self._deadline()) is not None

    def _deadline(self) -> Deadline:
        return Deadline.after(self.clock, _REQUEST_S)

    def _now(self) -> str:
        """The time as the API writes it in a Lease, in microseconds."""
        now_ns = self.clock.now_ns()
        return f"{format_time(now_ns)[:19]}.{now_ns // 1000 % _MICROSECONDS:06d}Z"
