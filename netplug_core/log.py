"""The log of the core: a flow writes one line for each phase. Rules never log.

``netplug_cli.logs`` writes the lines; the levels are those of the network configuration (spec 2.1, ``log_level``).
"""

from __future__ import annotations

import enum
from typing import Protocol

__all__ = ["Level", "Log"]


class Level(enum.Enum):
    """The importance of a line, the lowest first."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class Log(Protocol):
    """Takes lines; it never fails, and no line contains configuration or tokens."""

    def __call__(self, level: Level, message: str, /, **fields: object) -> None:
        """Write one line."""
        ...
