"""What reads one part of a bundle, and what becomes of it if it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from netplug_core.clock import Deadline
from netplug_core.errors import NetplugError
from netplug_core.support.bundle import MissingPart, Part, PartState

__all__ = ["ReadParts", "absent", "failed", "read_guarded"]

ReadParts = Callable[[], Iterable[Part]]
"""Reads the parts of one sort; it may raise, and then what it has given before is kept."""


def read_guarded(
    path: str, read: ReadParts, deadline: Deadline, *, passed_on: tuple[type[NetplugError], ...] = ()
) -> Iterator[Part]:
    """The parts that a function reads. If it fails, or no time is left, a missing part is called like the path.

    Errors of the types in ``passed_on`` are raised.
    """
    if deadline.has_passed:
        yield failed(path, "not read: the time is over")
        return
    try:
        yield from read()
    except passed_on:
        raise
    except NetplugError as error:
        yield failed(path, str(error))
    except OSError as error:
        yield failed(path, f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "))
    except Exception as error:  # noqa: BLE001 - the person needs the other parts, of this mistake of ours too
        yield failed(path, f"internal error: {type(error).__name__}: {error}")


def absent(path: str, reason: str) -> MissingPart:
    """A part that this machine does not have."""
    return MissingPart(path=path, state=PartState.ABSENT, reason=reason)


def failed(path: str, reason: str) -> MissingPart:
    """A part that could not be read."""
    return MissingPart(path=path, state=PartState.FAILED, reason=reason)
