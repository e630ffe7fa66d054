"""Writes log lines to standard error, and to a file if one is configured.

A line has the form ``2026-01-02 03:04:05.678 [INFO][4711] cni-plugin: message key="value"``, with sorted fields. Each
line is one write. Characters that could end a value or a line are escaped. The log never makes a call fail: a file that
cannot be written is reported once on standard error.
"""

from __future__ import annotations

import os
import sys
import time

from netplug_backends.files import OPEN_FILE_MODE, make_folder, open_file
from netplug_core.log import Level

__all__ = ["Logger"]

_ESCAPES = {number: f"\\x{number:02x}" for number in (*range(32), 127)} | {
    ord("\n"): "\\n",
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}
_ORDER = (Level.DEBUG, Level.INFO, Level.WARNING, Level.ERROR)


class Logger:
    """Writes log lines of one process; a :class:`netplug_core.log.Log`.

    It writes to standard error at INFO until ``configure`` sets level and file.
    """

    def __init__(self, component: str) -> None:
        self._component = component
        self._level = Level.INFO
        self._file = -1

    def configure(self, level: Level, path: str) -> None:
        """Write lines of that level or worse, also into a file if a path is given; its folder is made."""
        self._level = level
        if not path:
            return
        try:
            make_folder(os.path.dirname(path))
            self._file = open_file(path, os.O_WRONLY | os.O_APPEND, OPEN_FILE_MODE)
        except OSError as error:
            self(Level.WARNING, "the log file cannot be opened", path=path, cause=str(error))

    def __call__(self, level: Level, message: str, /, **fields: object) -> None:
        """Write one line, if the level is wanted."""
        if _ORDER.index(level) < _ORDER.index(self._level):
            return
        line = self._format_line(level, message, fields).encode("utf-8", "backslashreplace")
        # If it was closed before this process started, its number may belong to another file.
        if sys.stderr is not None:
            self._write(sys.stderr.fileno(), line)
        if self._file >= 0:
            self._write(self._file, line)

    def _format_line(self, level: Level, message: str, fields: dict[str, object]) -> str:
        now = time.time()
        stamp = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))}.{int(now * 1000) % 1000:03d}"
        shown = "".join(f' {key}="{str(value).translate(_ESCAPES)}"' for key, value in sorted(fields.items()))
        flat = message.replace("\n", "\n    ")
        return f"{stamp} [{level.value}][{os.getpid()}] {self._component}: {flat}{shown}\n"

    def _write(self, descriptor: int, line: bytes) -> None:
        try:
            os.write(descriptor, line)
        except OSError:
            # A full disk or a closed standard error: the error cannot be reported.
            self._file = -1 if descriptor == self._file else self._file
