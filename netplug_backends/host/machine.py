"""The machine a process runs on: its names, files, clock and chance, and the locks between the calls of a host."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import time
from typing import TYPE_CHECKING

from attrs import define

from netplug_backends.host.atomic_files import (
    OPEN_FILE_MODE,
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    find_file,
    make_folder,
    open_file,
    remove_leftovers,
    replace_file,
)
from netplug_core.locks import HeldLock

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from netplug_backends.host.endpoint_status import FolderChanges
    from netplug_core.clock import Deadline
    from netplug_core.workload import ProbeResult

__all__ = [
    "FileLocks", "HostMachine", "SystemClock",
]  # fmt: skip


# --- locks -----------------------------------------------------------------------------------------------------------


_FLOCK = struct.Struct("hhqqi0q")  # struct flock: type, whence, start, length, process (0), padded to whole words


class FileLocks:
    """Lock files of this machine."""

    def try_lock(self, path: str, offset: int) -> HeldLock | None:
        """Take the lock on one byte of a file, as :meth:`netplug_core.locks.LockHost.try_lock` says.

        A folder that is missing is made, for its owner alone.
        """
        lock = _FileLock(_open(path))
        try:
            fcntl.fcntl(lock.descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0))
        except OSError as error:
            lock.release()
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise
        return lock


@define(eq=False, repr=False)
class _FileLock:
    descriptor: int

    def release(self) -> None:
        """Close the file, once."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _open(path: str) -> int:
    """A descriptor of the lock file, which only its owner can open. A symbolic link is not followed."""
    flags = os.O_RDWR | os.O_NOFOLLOW
    try:
        descriptor = open_file(path, flags, PRIVATE_FILE_MODE)
    except FileNotFoundError:
        make_folder(os.path.dirname(path), PRIVATE_FOLDER_MODE)
        descriptor = open_file(path, flags, PRIVATE_FILE_MODE)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != PRIVATE_FILE_MODE:
            os.fchmod(descriptor, PRIVATE_FILE_MODE)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


# --- machine ---------------------------------------------------------------------------------------------------------


class SystemClock:
    """The clocks of this machine: Python's own functions, which are asked dozens of times for each call."""

    now_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        time.sleep(seconds)


class HostMachine(FileLocks):
    """The name, files and locks of this machine, as flows need them."""

    def host_name(self) -> str:
        """The machine's name in the kernel."""
        return os.uname().nodename

    def find_text(self, path: str) -> str | None:
        """The content of a file of at most 1 MiB; None if it does not exist.

        Raises:
            OSError: it exists and cannot be read, is no file, or is larger.
            ValueError: no file can have that path.
        """
        content = find_file(path)
        return None if content is None else content.decode(errors="replace")

    def watch_folder(self, path: str) -> AbstractContextManager[FolderChanges]:
        """The changes of a folder from now on; it may be missing."""
        from netplug_backends.host.endpoint_status import watch_folder  # few configurations wait for a file

        return watch_folder(path)

    def probe(self, url: str, *, deadline: Deadline) -> ProbeResult:
        """What a GET of an HTTP URL answers; no failure is raised."""
        from netplug_backends.host.probes import probe  # few configurations have readiness gates

        return probe(url, deadline=deadline)

    def publish(self, path: str, text: str) -> None:
        """Write a file for everybody to read, whole and on the disk.

        Raises:
            OSError: it cannot be written; it is not there, or may not survive a crash of the machine.
        """
        make_folder(os.path.dirname(path))
        replace_file(path, text, OPEN_FILE_MODE)

    def replace_secret(self, path: str, text: str) -> None:
        """As ``publish``, for the owner alone and in a folder that is there: runtimes read it, and never half a file.

        Raises:
            OSError: as for that.
        """
        remove_leftovers(os.path.dirname(path))  # they hold secrets, too
        replace_file(path, text, PRIVATE_FILE_MODE)

    def make_public_folder(self, path: str) -> None:
        """Make a folder, and those above it, that everybody may look into; one that exists stays as it is.

        Raises:
            OSError: it cannot be made.
        """
        make_folder(path)

    def new_uid(self) -> str:
        """A new random UUID (RFC 9562, version 4)."""
        digits = bytearray(os.urandom(16))
        digits[6] = digits[6] & 0x0F | 0x40
        digits[8] = digits[8] & 0x3F | 0x80
        text = digits.hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
