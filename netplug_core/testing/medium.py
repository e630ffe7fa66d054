"""How a suite opens the stores that it tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from attrs import frozen

from netplug_core.clock import Clock
from netplug_core.datastore.protocol import Datastore

__all__ = ["Medium", "OpenMedium", "OpenStore"]

OpenStore: TypeAlias = Callable[[Clock], AbstractContextManager[Datastore]]
"""Opens an empty store that waits on the clock it is given, and closes it."""


@frozen
class Medium:
    """An empty place where a backend keeps records: a file, a database, a server.

    ``open_handle`` opens a store on it. The suite opens two, as two processes would, and calls each from several
    threads. A store that lives in one process returns the same object twice.

    ``hold`` returns a context manager. While its block runs, another holder has locked the medium, so that no commit
    can be made. None if nothing can lock it. ``forget`` drops the history of all changes made so far, as a compaction
    does. None if the store keeps its history for ever.
    """

    open_handle: Callable[[], AbstractContextManager[Datastore]]
    hold: Callable[[], AbstractContextManager[object]] | None = None
    forget: Callable[[], object] | None = None


OpenMedium: TypeAlias = Callable[[Clock], AbstractContextManager[Medium]]
"""Makes an empty medium, whose stores wait on the clock, and removes it."""
