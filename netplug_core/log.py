"""The log of the core: a flow writes one line for each phase. Rules never log.

``netplug_cli.logs`` writes the lines; the levels are those of the network configuration (``log_level``).
"""

from __future__ import annotations

import enum
from typing import Protocol

from attrs import frozen

__all__ = ["CallLog", "Level", "Log", "LogSettings"]


class Level(enum.Enum):
    """The importance of a line, the lowest first."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


@frozen(kw_only=True)
class LogSettings:
    """Which lines are written, and where besides standard error: to no file without a path.

    A file of more than ``max_size_mb`` (2**20 bytes each) is rotated. Of the rotated files at most ``max_count`` are
    kept, and none whose last line is older than ``max_age_days``.
    """

    level: Level = Level.INFO
    file_path: str = ""
    max_size_mb: int = 100
    max_age_days: int = 30
    max_count: int = 10


class Log(Protocol):
    """Takes lines; it never fails, and no line contains configuration or tokens."""

    def __call__(self, level: Level, message: str, /, **fields: object) -> None:
        """Write one line."""
        ...


class CallLog(Log, Protocol):
    """The log of one call of a runtime. Its configuration says which lines are written, and where."""

    def configure(self, settings: LogSettings) -> None:
        """Write the lines that the settings ask for, from now on."""
        ...
