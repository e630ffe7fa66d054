"""Holds the Lease of the operators of a cluster, in a thread. ``netplug_core.operator.lease`` has the rules."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from attrs import define, field

from netplug_cli.operator.world import Cluster
from netplug_core.clock import Clock, Deadline, format_time
from netplug_core.errors import NetplugError
from netplug_core.log import Level, Log
from netplug_core.operator.lease import (
    LEASE,
    RENEW_EVERY_S,
    TRUSTED_S,
    LeaseRecord,
    LeaseStep,
    SeenLease,
    decide_lease,
    next_record,
    read_lease,
    released_record,
    see,
)
from netplug_core.operator.state import Json, find_text

__all__ = ["Election"]

_REQUEST_S: Final = 5.0
_MICROSECONDS: Final = 1_000_000


@define(kw_only=True)
class Election:
    """Whether this process acts. ``identity`` is its name in the Lease; ``on_change`` is called when that changes.

    ``on_crash`` is called if the thread ends by an error: without it the process would wait for the Lease for ever.
    """

    cluster: Cluster
    identity: str
    clock: Clock
    log: Log
    on_change: Callable[[], None]
    on_crash: Callable[[], None]
    _seen: SeenLease | None = field(default=None, init=False)
    _trusted_until: float = field(default=0.0, init=False)
    _was_leading: bool = field(default=False, init=False)
    _problem: str = field(default="", init=False)
    _stopping: Event = field(factory=Event, init=False)
    _thread: Thread | None = field(default=None, init=False)

    @property
    def is_leading(self) -> bool:
        """Whether this process may write."""
        return self.clock.monotonic() < self._trusted_until

    @property
    def problem(self) -> str:
        """Why the Lease could not be looked at the last time, or that it was not yet; empty if it could."""
        return self._problem if self._seen is not None or self._problem else "the Lease has not been read yet"

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin to ask for the Lease."""
        self._thread = Thread(target=self._run, name="election", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give the Lease up, so that the next operator does not wait for its end."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(2 * _REQUEST_S)
        if self.is_leading and self._seen is not None:
            self._trusted_until = 0.0
            try:
                self._give_up()
            except NetplugError as error:
                self.log(Level.WARNING, "the Lease is not given up; it ends by itself", cause=error)

    def look(self) -> None:
        """Take or renew the Lease if that is due. A failure is a line of the log."""
        try:
            self._look()
        except NetplugError as error:
            if str(error) != self._problem:
                self.log(Level.ERROR, "the Lease cannot be renewed", cause=error)
            self._problem = str(error)
        else:
            self._problem = ""
        if self.is_leading is not self._was_leading:
            self._was_leading = self.is_leading
            text = "this operator acts from now on" if self._was_leading else "this operator acts no more"
            self.log(Level.INFO, text, identity=self.identity)
            self.on_change()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.look()
                self._stopping.wait(RENEW_EVERY_S)
        except Exception:  # noqa: BLE001  # the process ends, and is started again
            self.log(Level.ERROR, f"the election has ended\n{traceback.format_exc()}")
            self.on_crash()

    def _look(self) -> None:
        began_s = self.clock.monotonic()
        found = self.cluster.find(LEASE, deadline=self._deadline())
        seen = self._seen = see(self._seen, read_lease(found), began_s)
        if decide_lease(seen, self.identity, began_s) is LeaseStep.WAIT:
            self._trusted_until = 0.0
            return
        record = next_record(seen.record, self.identity, self._now())
        if self._write(record, found):
            self._seen = see(None, record, began_s)
            self._trusted_until = began_s + TRUSTED_S

    def _give_up(self) -> None:
        found = self.cluster.find(LEASE, deadline=self._deadline())
        record = read_lease(found)
        if record.holder == self.identity:
            self._write(released_record(record), found)

    def _write(self, record: LeaseRecord, found: Json | None) -> bool:
        """Whether it is stored: another process may have been faster."""
        metadata = {"name": LEASE.name, "namespace": LEASE.namespace}
        version = find_text(found, "metadata", "resourceVersion")
        if version:
            metadata["resourceVersion"] = version
        wanted = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": record.spec()}
        return self.cluster.replace(wanted, deadline=self._deadline()) is not None

    def _deadline(self) -> Deadline:
        return Deadline.after(self.clock, _REQUEST_S)

    def _now(self) -> str:
        """The time as the API writes it in a Lease, in microseconds."""
        now_ns = self.clock.now_ns()
        return f"{format_time(now_ns)[:19]}.{now_ns // 1000 % _MICROSECONDS:06d}Z"
