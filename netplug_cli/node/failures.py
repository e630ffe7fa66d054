"""A failure that may come again at each attempt, and shall be one line of the log."""

from __future__ import annotations

from attrs import define, field

from netplug_core.log import Level, Log

__all__ = ["RepeatedFailure"]


@define
class RepeatedFailure:
    """Logs what could not be done when it fails for the first time, and when the cause is another one."""

    message: str
    log: Log
    _cause: str = field(default="", init=False)

    def report(self, error: Exception) -> None:
        """It could not be done."""
        if str(error) != self._cause:
            self._cause = str(error)
            self.log(Level.WARNING, self.message, cause=self._cause)

    def clear(self) -> None:
        """It has been done."""
        self._cause = ""
