"""Writes the log lines of a call to standard error, and to a file if one is configured.

A line has the form ``2026-01-02 03:04:05.678 [INFO][4711] cni-plugin: message key="value"``, with sorted fields. Each
line is one write. Characters that could end a value or a line are escaped. The log never makes a call fail: what is
wrong with the file is reported on standard error, once. ``wiring`` passes what opens the file. The node process, which
serves many calls, takes the lines that are for standard error to send them with the reply.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

from netplug_core.errors import excerpt, shorten
from netplug_core.log import Level, LogSettings

__all__ = ["LineFile", "Logger", "OpenLogFile", "Report", "WriteLine"]

_ESCAPES = {number: f"\\x{number:02x}" for number in (*range(32), 127)} | {
    ord("\n"): "\\n",
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}
_CAUSE = "cause"
_ORDER = (Level.DEBUG, Level.INFO, Level.WARNING, Level.ERROR)

WriteLine: TypeAlias = Callable[[bytes], None]
"""Takes one line, whose end is in it; raises nothing."""

Report: TypeAlias = Callable[[str, Exception], None]
"""Takes what could not be done with a log file, and why."""


class LineFile(Protocol):
    """A log file. It reports what goes wrong, and raises nothing."""

    def append(self, line: bytes, /) -> None:
        """Write one line, whose end is in it."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


OpenLogFile: TypeAlias = Callable[[LogSettings, Report], LineFile]
"""Opens the log file that settings name."""


class Logger:
    """Writes log lines of one call; a :class:`netplug_core.log.Log`.

    It writes at INFO, and to no file, until ``configure`` sets both. Without ``write_line`` lines go to standard error.
    """

    def __init__(self, component: str, open_file: OpenLogFile, write_line: WriteLine | None = None) -> None:
        self._component = component
        self._open_file = open_file
        self._write_line = write_line or _write_to_stderr
        self._level = Level.INFO
        self._file: LineFile | None = None
        self._path = ""
        self._has_reported = False

    def configure(self, settings: LogSettings) -> None:
        """Write lines of that level or worse, also into a file if a path is given."""
        self._level, self._path = settings.level, settings.file_path
        if self._path:
            self._file = self._open_file(settings, self._report)

    def __call__(self, level: Level, message: str, /, **fields: object) -> None:
        """Write one line, if the level is wanted."""
        if _ORDER.index(level) < _ORDER.index(self._level):
            return
        line = self._format_line(level, message, fields).encode("utf-8", "backslashreplace")
        self._write_line(line)
        if self._file is not None:
            self._file.append(line)

    def close(self) -> None:
        """Close the file, if one is open. No line is written any more."""
        if self._file is not None:
            self._file.close()

    def _report(self, problem: str, cause: Exception) -> None:
        """Write one warning, not to the file."""
        if self._has_reported or self._level is Level.ERROR:
            return
        self._has_reported = True
        fields = {"path": self._path, "cause": cause}
        self._write_line(self._format_line(Level.WARNING, problem, fields).encode("utf-8", "backslashreplace"))

    def _format_line(self, level: Level, message: str, fields: dict[str, object]) -> str:
        now = time.time()
        stamp = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))}.{int(now * 1000) % 1000:03d}"
        shown = "".join(f' {key}="{_shown(key, value).translate(_ESCAPES)}"' for key, value in sorted(fields.items()))
        flat = shorten(message).replace("\n", "\n    ")
        return f"{stamp} [{level.value}][{os.getpid()}] {self._component}: {flat}{shown}\n"


def _shown(key: str, value: object) -> str:
    """A value as a line shows it: cut, as it may come from outside. A cause is a sentence of ours around such texts."""
    return shorten(str(value)) if key == _CAUSE else excerpt(value)


def _write_to_stderr(line: bytes) -> None:
    # If it was closed before this process started, its number may belong to another file.
    if sys.stderr is None:
        return
    try:
        os.write(sys.stderr.fileno(), line)
    except OSError:
        return  # closed or full: the error cannot be reported
