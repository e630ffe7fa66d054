"""The two locks of a call: the host's, and that of its attachment. Both are bytes of one lock file.

The host's lock saves work: without it, calls of one host that assign at the same time lose commits to each other. The
datastore keeps every call correct, so a call that does not get this lock goes on without it.

The attachment's lock keeps ADD and DEL of one attachment apart. A DEL between the commit of an ADD and its dataplane
would leave a working interface with an address that is not held. An ADD that does not get this lock fails, and the
runtime repeats it; a DEL leaves a release record. Where nothing can be locked (no right, a read-only file system) the
call goes on, and looks a second time whether another call came between: see ``flows.cni.add`` and ``flows.cni.delete``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import frozen

from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.errors import ErrorCode, NetplugError, quote
from netplug_core.locks import HeldLock, LockHost, NoLock, wait_for_lock
from netplug_core.log import Level, Log
from netplug_core.names import attachment_lock_offset

__all__ = ["ADD_LOCK_S", "DEL_LOCK_S", "HOST_LOCK_S", "AttachmentBusy", "CallLocks"]

HOST_LOCK_S = 2.0
"""The longest that a call waits for the host's lock."""

ADD_LOCK_S = 10.0
"""The longest that an ADD waits for another call of its attachment."""

DEL_LOCK_S = 2.0
"""The longest that a DEL, or a GC for each attachment, waits for another call."""

_HOST_OFFSET = 0
_LONGEST_PAUSE_S = 0.01


@frozen(kw_only=True)
class AttachmentBusy(NetplugError, error_code=ErrorCode.TRY_AGAIN):
    """Another call is at work on the same attachment and did not end in time (code 11)."""

    network: str
    container_id: str
    interface: str
    waited_s: float

    def __str__(self) -> str:
        return (
            f"another call is at work on the interface {quote(self.interface)} of container {quote(self.container_id)}"
            f" on network {quote(self.network)} and has not ended within {self.waited_s:g} s; repeat this call when it"
            " has"
        )


@frozen(kw_only=True)
class CallLocks:
    """The locks that a call takes on its machine, in the lock file at ``path``."""

    host: LockHost
    clock: Clock
    log: Log
    path: str

    @contextmanager
    def host_lock(self, deadline: Deadline | None = None) -> Iterator[HeldLock]:
        """Hold the host's lock, or go on without it after ``HOST_LOCK_S`` or half of the time until a deadline.

        A call that has no time takes the lock if it is free. The lock may be released before the block ends.
        """
        held: HeldLock | None = None
        wait_s = HOST_LOCK_S if deadline is None else min(HOST_LOCK_S, deadline.remaining_s / 2)
        try:
            held = self._wait(_HOST_OFFSET, wait_s)
        except OSError as error:
            self._note_failure("going on without the host lock", error)
        else:
            if held is None and wait_s:
                cause = f"another call has held it for {wait_s:.3g} s"
                self.log(Level.WARNING, "going on without the host lock", path=self.path, cause=cause)
        held = held or NoLock()
        try:
            yield held
        finally:
            held.release()

    @contextmanager
    def attachment_lock(self, network: str, container_id: str, interface: str, *, wait_s: float) -> Iterator[bool]:
        """Keep other calls from an attachment; false if nothing can be locked on this machine.

        Raises:
            AttachmentBusy: another call has held the lock all the time.
        """
        try:
            held = self._wait(attachment_lock_offset(network, container_id, interface), wait_s)
        except OSError as error:
            self._note_failure("going on without the attachment lock", error)
            yield False
            return
        if held is None:
            raise AttachmentBusy(network=network, container_id=container_id, interface=interface, waited_s=wait_s)
        try:
            yield True
        finally:
            held.release()

    def _wait(self, offset: int, seconds: float) -> HeldLock | None:
        pace = Pace(
            clock=self.clock,
            deadline=Deadline.after(self.clock, seconds),
            chance=lambda: 1.0,  # calls that wait do not collide: one of them gets the lock whenever it is free
            first_s=0.0005,
            longest_s=_LONGEST_PAUSE_S,
        )
        return wait_for_lock(self.host, self.path, offset, pace)

    def _note_failure(self, message: str, error: OSError) -> None:
        self.log(Level.ERROR, message, path=self.path, cause=str(error))
