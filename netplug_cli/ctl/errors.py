"""The error of a command that cannot use what a person handed in."""

from __future__ import annotations

from netplug_core.errors import ConfigurationError, excerpt

__all__ = ["InputError"]


class InputError(ConfigurationError):
    """Input that cannot be used; ``where`` names it or the command, if the reason ``accepted`` does not."""

    def __str__(self) -> str:
        return f"{excerpt(self.where)}: {self.accepted}" if self.where else self.accepted
