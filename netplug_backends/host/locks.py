"""Locks between the processes of this machine: open-file-description locks on single bytes of a lock file (fcntl(2)).

The kernel releases such a lock with the last descriptor of the open file, so a process that dies leaves none, and two
threads of one process exclude each other as two processes do. Whatever the umask, only root may open the file: a
process that can open it can hold up every call of the machine.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct

from netplug_backends.host.atomic_files import PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE, make_folder, open_file
from netplug_core.locks import HeldLock

__all__ = ["FileLocks"]

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


class _FileLock:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

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
