"""Calls of this process that change a store which takes their writes one by one: one after another.

Such a store cannot commit the writes of several calls together. Calls at the same time would lose commits to each
other and each would read everything again, over and over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from attrs import define

from netplug_core.clock import Deadline
from netplug_core.locks import HeldLock

__all__ = ["TURN_S", "in_turn"]

TURN_S = 10.0
"""The longest that a call waits for its turn."""


@contextmanager
def in_turn(turn: Lock, deadline: Deadline) -> Iterator[HeldLock]:
    """Wait for a call's turn, and have it until the block ends; it may be released before.

    A call waits for at most half of the time that it has, and then goes on: the datastore keeps every call correct.
    """
    held = _Turn(turn, is_held=turn.acquire(timeout=min(TURN_S, deadline.remaining_s / 2)))
    try:
        yield held
    finally:
        held.release()


@define
class _Turn:
    """A turn that came, or did not."""

    turn: Lock
    is_held: bool

    def release(self) -> None:
        """Let the next call begin."""
        if self.is_held:
            self.is_held = False
            self.turn.release()
