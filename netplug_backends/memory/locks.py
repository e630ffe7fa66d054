"""Locks of a machine that lives in one process: what ``netplug_backends.host.machine`` is with files.

Tests of flows use them. A path in ``errors`` cannot be locked.
"""

from __future__ import annotations

from threading import Lock

from attrs import define, field

from netplug_core.locks import HeldLock

__all__ = ["MemoryLocks"]


@define
class MemoryLocks:
    """The locks of one machine. ``taken`` lists each lock that was ever taken, in order."""

    errors: dict[str, OSError] = field(factory=dict)
    taken: list[tuple[str, int]] = field(factory=list)
    _held: set[tuple[str, int]] = field(factory=set)
    _guard: Lock = field(factory=Lock)

    def try_lock(self, path: str, offset: int) -> HeldLock | None:
        """Take a lock, as :meth:`netplug_core.locks.LockHost.try_lock` says."""
        if path in self.errors:
            raise self.errors[path]
        with self._guard:
            if (path, offset) in self._held:
                return None
            self._held.add((path, offset))
            self.taken.append((path, offset))
        return _MemoryLock(self._held, (path, offset))

    @property
    def held(self) -> frozenset[tuple[str, int]]:
        """The locks that are held now."""
        return frozenset(self._held)

    def release_all(self) -> None:
        """Release every lock, as the kernel does when the holders die."""
        self._held.clear()


@define(eq=False)
class _MemoryLock:
    _held: set[tuple[str, int]]
    _name: tuple[str, int]
    _is_released: bool = False

    def release(self) -> None:
        """Release it, once."""
        if not self._is_released:
            self._is_released = True
            self._held.discard(self._name)
