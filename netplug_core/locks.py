"""Locks between the calls of one machine and of one process: what a host offers, how a call waits, and which it takes.

A lock of a machine is one byte of a lock file; :class:`CallLocks` says which byte stands for what. A host in memory and
the machine pass the same suite, ``netplug_core.testing.lock_checks``. A :class:`Turn` is the lock of one process. No
call waits longer than its deadline, whatever the call does that has the lock.

The host's lock saves work: without it, calls of one host that assign at the same time lose commits to each other. The
datastore keeps every call correct, so a call that does not get this lock goes on without it.

The attachment's lock keeps ADD and DEL of one attachment apart. A DEL between the commit of an ADD and its dataplane
would leave a working interface with an address that is not held. An ADD that does not get this lock fails, and the
runtime repeats it; a DEL leaves a release record. Where nothing can be locked (no right, a read-only file system) the
call goes on, and looks a second time whether another call came between: see ``flows.cni.add`` and ``flows.cni.delete``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from attrs import define, field, frozen

from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.errors import ErrorCode, NetplugError, quote
from netplug_core.log import Level, Log
from netplug_core.names import attachment_lock_offset

__all__ = [
    "ADD_LOCK_S", "DEL_LOCK_S", "HOST_LOCK_S", "MAX_LOCK_OFFSET", "TURN_S", "AttachmentBusy", "AttemptLocks",
    "CallLocks", "HeldLock", "LockHost", "NoLock", "Signal", "Turn", "TurnPlace", "no_lock", "wait_for_lock",
]  # fmt: skip


# --- locks -----------------------------------------------------------------------------------------------------------


MAX_LOCK_OFFSET = 2**62
"""The highest byte that can be locked. A lock file stays empty: bytes beyond its end can be locked too."""


class HeldLock(Protocol):
    """A lock that a call holds. It is released with the process at the latest, however that ends."""

    def release(self) -> None:
        """Release the lock; a lock that is released already stays so."""
        ...


class LockHost(Protocol):
    """A machine whose processes exclude each other."""

    def try_lock(self, path: str, offset: int) -> HeldLock | None:
        """Take the exclusive lock on one byte of a lock file; None if it is held, also by the caller itself.

        The file is made if it does not exist.

        Raises:
            OSError: the file cannot be made, opened or locked.
        """
        ...


class NoLock:
    """The lock of a program that goes on without one."""

    def release(self) -> None:
        """Do nothing."""


_NO_LOCK = nullcontext(NoLock())


def no_lock(deadline: Deadline | None = None) -> AbstractContextManager[HeldLock]:
    """A lock that excludes no other call, for programs whose machine has none; it comes at once."""
    del deadline
    return _NO_LOCK


def wait_for_lock(host: LockHost, path: str, offset: int, pace: Pace) -> HeldLock | None:
    """Take a lock, waiting for its holder until the deadline; None if it is held even then.

    Raises:
        OSError: it cannot be locked.
    """
    attempt = 0
    while True:
        held = host.try_lock(path, offset)
        if held is not None or pace.deadline.has_passed:
            return held
        attempt += 1
        pace.wait(attempt)


# --- the calls of one process -----------------------------------------------------------------------------------------

TURN_S = 10.0
"""The longest that a call waits for its turn."""


class Signal(Protocol):
    """What one thread waits for and another one sets, such as ``threading.Event``."""

    def set(self) -> None:
        """Let those who wait go on, and who waits later too."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most that many seconds; whether it is set."""
        ...


class _NoSignal:
    """The signal of a process with one thread: there is no other one to wait for."""

    def set(self) -> None:
        """Do nothing."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for nothing."""
        del timeout
        return True


@define(eq=False)
class Turn:
    """One call after another of those that a process serves at the same time, in the order in which they came.

    A call waits for at most half of the time that it has, and then goes on without: the datastore keeps every call
    correct, the turn only saves conflicts. A process with threads passes ``guard``, a lock that is held for moments,
    and ``make_signal``.
    """

    guard: AbstractContextManager[object] = field(factory=nullcontext)
    make_signal: Callable[[], Signal] = _NoSignal
    _holder: TurnPlace | None = field(default=None, init=False)
    _line: dict[TurnPlace, None] = field(factory=dict, init=False)  # empty while no call has the turn

    @contextmanager
    def taken(self, deadline: Deadline) -> Iterator[object]:
        """Have the turn until the block ends, or go on without it."""
        place = self.join()
        try:
            place.wait(deadline)
            yield place
        finally:
            self.leave(place)

    def join(self) -> TurnPlace:
        """A place in the line: the turn itself if no other call has it."""
        with self.guard:
            if self._holder is None:
                place = self._holder = TurnPlace()
            else:
                place = TurnPlace(self.make_signal())
                self._line[place] = None
        return place

    def leave(self, place: TurnPlace) -> None:
        """Give a place up. If it was the turn, the next in the line has it."""
        with self.guard:
            self._line.pop(place, None)
            if self._holder is not place:
                return
            self._holder = next(iter(self._line), None)
            if self._holder is not None:
                del self._line[self._holder]
                self._holder.wake()


@define(eq=False)
class TurnPlace:
    """A call's place in the line for a :class:`Turn`. Without a signal there was nothing to wait for."""

    signal: Signal | None = None

    def wait(self, deadline: Deadline) -> None:
        """Wait until it is this call's turn, or until half of the time is over."""
        if self.signal is not None:
            self.signal.wait(min(TURN_S, deadline.remaining_s / 2))

    def wake(self) -> None:
        """Let the call go on."""
        if self.signal is not None:
            self.signal.set()


@define(eq=False, kw_only=True)
class AttemptLocks:
    """What each attempt of an assignment holds: a turn of its process, then the host's lock.

    Only the first attempt waits for the host's lock.
    """

    turn: Callable[[Deadline], AbstractContextManager[object]]
    lock: Callable[[Deadline], AbstractContextManager[object]]
    _has_waited: bool = field(default=False, init=False)

    @contextmanager
    def taken(self, deadline: Deadline) -> Iterator[None]:
        """Hold both until the block ends, or go on without."""
        with self.turn(deadline):
            lock_deadline, self._has_waited = deadline.capped(0) if self._has_waited else deadline, True
            with self.lock(lock_deadline):
                yield


# --- locks -----------------------------------------------------------------------------------------------------------


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
