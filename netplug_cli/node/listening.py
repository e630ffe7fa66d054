"""The socket on which the node process listens: one that systemd passes, or a file of its own.

Nothing of weight is imported here: a process that restarts listens before it loads its libraries. A lock beside the
socket keeps a second process from the path; the kernel releases it with the process, so a socket file without a process
behind it is replaced.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import MutableMapping
from contextlib import ExitStack, suppress

from netplug_backends.host.atomic_files import PRIVATE_FILE_MODE, make_folder, open_file
from netplug_cli.loopback import CannotListen

__all__ = ["Listener", "find_activated", "listen"]

_BACKLOG = 1024  # connections that are not accepted yet; the kernel may have a lower limit
_FIRST_PASSED = 3  # sd_listen_fds(3)
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Listener:
    """A listening socket. ``path`` is the socket file, empty if there is none. With a ``lock`` it is this process's."""

    def __init__(self, listening: socket.socket, path: str, lock: int | None = None) -> None:
        self.socket = listening
        self.path = path
        self._lock = lock
        self._identity = _identity(path) if path and lock is not None else None
        listening.settimeout(0)

    def close(self) -> None:
        """Listen no more, and remove the socket file if it is still this one."""
        if self._identity is not None and _identity(self.path) == self._identity:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
        self.socket.close()
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def listen(path: str) -> Listener:
    """Listen at a path, with a socket file that only this user may open. A folder that is missing is made.

    Raises:
        CannotListen: another process listens there, something else is there, others may write in the folder, or the
            system refuses.
    """
    try:
        return _listen(path)
    except OSError as error:
        raise CannotListen(f"{path}: {error.strerror or error}") from error


def find_activated(environ: MutableMapping[str, str]) -> Listener | None:
    """The socket that systemd has passed to this process; None if it has not. Its variables are removed.

    Source: sd_listen_fds(3).

    Raises:
        CannotListen: it has passed something else.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()):
        return None
    if count != "1":
        raise CannotListen(f"systemd has passed {count or 'no'} sockets, one is expected")
    try:
        passed = socket.socket(fileno=_FIRST_PASSED)
        is_listening = passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
    except OSError as error:
        raise CannotListen(f"what systemd has passed is no socket: {error.strerror or error}") from error
    if not is_listening or passed.family != socket.AF_UNIX or passed.type != socket.SOCK_STREAM:
        raise CannotListen("systemd has passed another socket than a listening Unix socket of type stream")
    passed.set_inheritable(False)
    name = passed.getsockname()
    return Listener(passed, name if isinstance(name, str) else "")  # an abstract one has no file


def _listen(path: str) -> Listener:
    folder = os.path.dirname(path)
    make_folder(folder)
    _require_private(folder)
    with ExitStack() as undo:
        lock = open_file(f"{path}.lock", os.O_RDWR | os.O_NOFOLLOW, PRIVATE_FILE_MODE)
        undo.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotListen(f"{path}: another process listens there") from None
        _remove_leftover(path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        undo.callback(listening.close)
        before = os.umask(0o777 & ~PRIVATE_FILE_MODE)  # no other thread runs yet
        try:
            listening.bind(path)
        finally:
            os.umask(before)
        listening.listen(_BACKLOG)
        undo.pop_all()
    return Listener(listening, path, lock)


def _require_private(folder: str) -> None:
    """Refuse a folder in which others could put a socket of their own in the place of this one."""
    status = os.stat(folder or ".")
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS_MAY_WRITE:
        raise CannotListen(f"others may write in the folder {folder or '.'}; a folder of root alone is expected")


def _remove_leftover(path: str) -> None:
    """Remove the socket of a process that has ended."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise OSError(errno.EEXIST, "something else than a socket is there")
    os.unlink(path)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
