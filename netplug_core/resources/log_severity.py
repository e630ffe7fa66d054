"""A setting of resources that says which lines a program writes to its log, as their API spells it."""

from __future__ import annotations

import enum

__all__ = ["LogSeverity"]


class LogSeverity(enum.Enum):
    """The level below which a program writes no lines."""

    NONE = "None"
    DEBUG = "Debug"
    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"
    FATAL = "Fatal"
