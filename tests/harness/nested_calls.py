"""Calls of one thread that share a commit: each makes the next one while it waits, so the innermost commits for all."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from netplug_core.locks import Turn, TurnPlace

__all__ = ["NestedTurn"]


@define(eq=False)
class NestedTurn(Turn):
    """The turn of a queue in which each call makes the next of ``calls`` while it waits."""

    calls: list[Callable[[], object]] = field(factory=list)

    def join(self) -> TurnPlace:
        """A place where the wait is the next call."""
        return TurnPlace(_NextCall(self.calls))


@define
class _NextCall:
    calls: list[Callable[[], object]]

    def set(self) -> None:
        """Do nothing: there is one thread."""

    def wait(self, timeout: float | None = None) -> bool:
        """Make the next call, if there is one."""
        del timeout
        if self.calls:
            self.calls.pop(0)()
        return True
