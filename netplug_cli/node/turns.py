"""Calls of this process that assign from a store which takes their writes one by one: one after another.

Such a store cannot commit the writes of several calls together. Calls at the same time would lose commits to each
other, each would read everything again, and on a busy server that takes longer than the host's lock is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock

from attrs import define, field

from netplug_core.locks import HeldLock

__all__ = ["TURN_S", "in_turn"]

TURN_S = 10.0
"""The longest that a call waits for its turn. After that it goes on: the datastore keeps every call correct."""


@contextmanager
def in_turn(turn: Lock, lock: Callable[[], AbstractContextManager[HeldLock]]) -> Iterator[HeldLock]:
    """Hold the host's lock in a call's turn; both may be released before the block ends."""
    held = _Turn(turn, is_held=turn.acquire(timeout=TURN_S))
    try:
        with lock() as held.host:
            yield held
    finally:
        held.release()


@define
class _Turn:
    """A turn, and the host's lock if it is taken by now."""

    turn: Lock
    is_held: bool
    host: HeldLock | None = field(default=None, init=False)

    def release(self) -> None:
        """Let the next call begin."""
        if self.host is not None:
            self.host.release()
        if self.is_held:
            self.is_held = False
            self.turn.release()
