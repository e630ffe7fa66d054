"""The log file of this machine: any number of processes append lines to it, and one that finds it full rotates it.

``netplug_cli.logs`` writes through it. A line is one write at the end of the file, so lines of two processes do not mix
and a writer needs no lock. Only a rotation has one, a file beside the log. A writer that finds it held goes on at once:
its line lands in the file that is just being renamed, or in the next one. Before each line, a writer looks whether the
path still leads to the file that it has open.

The rotated files are called ``cni.log.1`` (the youngest), ``cni.log.2``, …, as those of the standard library's
``RotatingFileHandler``, which renames them. If it is killed between two renames a number is missing, and the next
rotation closes the gap.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from netplug_backends.host.atomic_files import OPEN_FILE_MODE, make_folder, open_file
from netplug_backends.host.machine import FileLocks
from netplug_core.log import LogSettings

__all__ = ["LogFile"]

_MB = 1 << 20
_DAY_S = 86_400
_MAX_NUMBER = 9_999  # a longer number behind the name is a date, of another program's rotation
_ATTEMPTS = 3
_FLAGS = os.O_WRONLY | os.O_APPEND


class LogFile:
    """A log file, for one thread. ``report`` gets what cannot be done and why; nothing is raised."""

    def __init__(self, settings: LogSettings, report: Callable[[str, Exception], None]) -> None:
        self._path = settings.file_path
        self._max_bytes = settings.max_size_mb * _MB
        self._max_age_s = settings.max_age_days * _DAY_S
        self._max_count = min(settings.max_count, _MAX_NUMBER)
        self._report = report
        self._descriptor = -1
        self._identity = (0, 0)
        with self._reporting("the log file cannot be written"):
            self._path = os.path.realpath(self._path)  # a link stays one: the file that it leads to is rotated
            self._open()
            self._remove_if_expired()

    def append(self, line: bytes) -> None:
        """Write one line, whose end is in it, and rotate the file before if the line would make it too large."""
        with self._reporting("the log file cannot be written"):
            for _attempt in range(_ATTEMPTS):
                if self._is_full_for(line):
                    with self._reporting("the log file cannot be rotated"):
                        self._rotate(line)
                self._write(line)
                if os.fstat(self._descriptor).st_nlink:
                    return
                # It was renamed and removed between the look at its path and the write: the line is lost with it.

    def close(self) -> None:
        """Close the file; another line opens it again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    @contextmanager
    def _reporting(self, problem: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:  # ValueError: no file can have that path
            self._report(problem, error)

    # --- writing ----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the file that the path leads to; if that fails, the one that is open stays so."""
        make_folder(os.path.dirname(self._path))
        descriptor = open_file(self._path, _FLAGS, OPEN_FILE_MODE)
        status = os.fstat(descriptor)
        self.close()
        self._descriptor, self._identity = descriptor, (status.st_dev, status.st_ino)

    def _is_full_for(self, line: bytes) -> bool:
        """Whether a line would make the file too large. It is opened again if the path leads to another file by now."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            status = None
        if status is None or self._descriptor < 0 or (status.st_dev, status.st_ino) != self._identity:
            self._open()
            status = os.fstat(self._descriptor)
        return status.st_size > 0 and status.st_size + len(line) > self._max_bytes

    def _write(self, line: bytes) -> None:
        written = os.write(self._descriptor, line)
        if written == len(line):
            return
        # The disk is full. The next line would be appended to the beginning of this one, so that is cut off again.
        end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        if os.fstat(self._descriptor).st_size == end:
            os.ftruncate(self._descriptor, end - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # --- rotating ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        """Whether this process alone renames and removes files now; another that does is not waited for."""
        folder, name = os.path.split(self._path)
        held = FileLocks().try_lock(os.path.join(folder, f".{name}.lock"), 0)
        try:
            yield held is not None
        finally:
            if held is not None:
                held.release()

    def _remove_if_expired(self) -> None:
        """Remove rotated files that are too old, also of a log that is rarely rotated."""
        if self._expired():
            with self._lock() as is_alone:
                if is_alone:
                    self._remove_expired()  # looks again: a rotation may have given their names to others

    def _rotate(self, line: bytes) -> None:
        # Loading it takes longer than a call has to spare; the few that find a full file do, and before they lock: the
        # file grows as long as the lock is held.
        from logging.handlers import RotatingFileHandler

        with self._lock() as is_alone:
            if not is_alone or not self._is_full_for(line):  # another process rotates it, or has done so
                return
            self._remove_expired()
            count = min(self._max_count, 1 + max(self._rotated(), default=0))  # the handler tries every number
            handler = RotatingFileHandler(self._path, backupCount=count, delay=True)
            handler.doRollover()
            handler.close()
            self._open()

    def _remove_expired(self) -> None:
        for number in self._expired():
            with suppress(FileNotFoundError):
                os.unlink(f"{self._path}.{number}")

    def _expired(self) -> list[int]:
        """The rotated files that are older or more than are kept."""
        oldest_s = int(time.time()) - self._max_age_s
        return [number for number, end_s in self._rotated().items() if number > self._max_count or end_s < oldest_s]

    def _rotated(self) -> dict[int, float]:
        """The rotated files by number, with the time of the last line."""
        folder, name = os.path.split(self._path)
        found = {}
        with os.scandir(folder) as entries:
            for entry in entries:
                number = _number_of(entry.name, name)
                with suppress(FileNotFoundError):  # renamed meanwhile
                    if number and entry.is_file(follow_symlinks=False):
                        found[number] = entry.stat(follow_symlinks=False).st_mtime
        return found


def _number_of(name: str, log_name: str) -> int:
    """The number of a rotated file of a log; 0 for every other file."""
    digits = name.removeprefix(f"{log_name}.")
    if digits == name or not digits.isascii() or not digits.isdigit() or digits.startswith("0"):
        return 0
    return int(digits) if int(digits) <= _MAX_NUMBER else 0
