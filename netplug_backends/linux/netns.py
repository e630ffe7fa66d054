"""Entering a network namespace, and the way back. ``dataplane`` and ``inspection`` call it.

A thread that has entered sees the namespace's interfaces in new sockets and its settings in ``/proc/sys/net``; a
socket stays where it was opened. There is no half-way state to go on from: a thread that cannot return would program
the workload's namespace in the node's name, so the process is aborted instead.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import frozen

__all__ = ["OWN_NAMESPACE", "NamespaceDescriptors", "NamespaceGone", "entered_namespace", "is_own_namespace"]

OWN_NAMESPACE = "/proc/thread-self/ns/net"
"""The network namespace of the calling thread."""

_CLONE_NEWNET = 0x40000000
# O_NONBLOCK: the path is the runtime's, and opening a pipe would wait for its other end.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ENXIO}

if sys.version_info >= (3, 12):

    def _setns(descriptor: int) -> None:
        os.setns(descriptor, _CLONE_NEWNET)

else:
    from functools import cache

    if TYPE_CHECKING:
        from ctypes import CDLL

    @cache
    def _libc() -> CDLL:
        from ctypes import CDLL

        return CDLL(None, use_errno=True)

    def _setns(descriptor: int) -> None:
        from ctypes import get_errno

        if _libc().setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(get_errno(), os.strerror(get_errno()))


@frozen
class NamespaceGone(Exception):
    """The path leads to no network namespace: nothing is there, or something else (a plain file, say)."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path!r} is not a network namespace: {self.reason}"


@frozen
class NamespaceDescriptors:
    """Descriptors of the namespace that was entered (``there``) and of the one to return to (``home``)."""

    entered: int
    original: int


@contextmanager
def entered_namespace(path: str) -> Iterator[NamespaceDescriptors]:
    """Put the calling thread into the namespace at a path until the block ends.

    Raises:
        NamespaceGone: there is no such namespace; the block is not run.
        OSError: it cannot be entered.
    """
    home = os.open(OWN_NAMESPACE, _OPEN_FLAGS)
    try:
        there = _open(path)
        try:
            try:
                _enter(there, path)
                yield NamespaceDescriptors(there, home)
            finally:
                _return(home)
        finally:
            os.close(there)
    finally:
        os.close(home)


def is_own_namespace(path: str) -> bool:
    """Whether the path is the calling thread's network namespace; false for what cannot be opened."""
    try:
        named = os.stat(path)
    except (OSError, ValueError):
        return False
    return _same(named, os.stat(OWN_NAMESPACE))


def _open(path: str) -> int:
    try:
        return os.open(path, _OPEN_FLAGS)
    except OSError as error:
        if error.errno in _GONE:
            raise NamespaceGone(path, os.strerror(error.errno)) from None
        raise


def _enter(descriptor: int, path: str) -> None:
    try:
        _setns(descriptor)
    except OSError as error:
        # What the kernel answers when the descriptor is not of a namespace, or of one of another sort.
        if error.errno == errno.EINVAL:
            raise NamespaceGone(path, "it is something else") from None
        raise


def _return(original: int) -> None:
    try:
        _setns(original)
    except BaseException as error:
        if not _is_current(original):
            os.write(2, f"netplug: cannot return to the node's network namespace: {error}\n".encode())
            os.abort()
        # Whoever may not enter a namespace may not return either, and has never left.
        if not isinstance(error, OSError):
            raise


def _is_current(namespace: int) -> bool:
    try:
        return _same(os.fstat(namespace), os.stat(OWN_NAMESPACE))
    except OSError:
        return False


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
