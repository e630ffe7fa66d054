"""Enters a network namespace and returns from it; the rule for "is this our own namespace". ``dataplane`` calls it.

After entering, the thread's new sockets are in the namespace, and ``/proc/sys/net`` has its settings; an open socket
stays in its namespace. If a thread cannot return, the process is aborted: it would otherwise program the container's
namespace as if it were the node's.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from attrs import frozen

from netplug_core.dataplane.protocol import NO_NAMESPACES, OWN_NAMESPACE

__all__ = ["NamespaceDescriptors", "NamespaceGone", "entered_namespace", "in_new_namespace", "is_own_namespace"]

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
# O_NONBLOCK: the runtime names the path; opening a pipe would block.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ENXIO}

# ctypes is loaded by need: before Python 3.12 every ADD enters a namespace, but VERSION and STATUS do not.
if sys.version_info >= (3, 12):

    def _setns(descriptor: int) -> None:
        os.setns(descriptor, _CLONE_NEWNET)

    def _unshare() -> None:
        os.unshare(_CLONE_NEWNET)

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

    def _unshare() -> None:
        from ctypes import get_errno

        if _libc().unshare(_CLONE_NEWNET) != 0:
            raise OSError(get_errno(), os.strerror(get_errno()))


def in_new_namespace(work: Callable[[], T]) -> T:
    """What some work returns in a network namespace of its own, which goes with the thread that does it.

    Raises:
        OSError: no namespace can be made, or the work raised it.
    """
    from concurrent.futures import ThreadPoolExecutor  # only STATUS looks into a new namespace, and seldom

    def run() -> T:
        _unshare()
        return work()

    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(run).result()


@frozen
class NamespaceGone(Exception):
    """The path is not a network namespace: it does not exist, or is something else, such as a plain file."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path!r} is not a network namespace: {self.reason}"


@frozen
class NamespaceDescriptors:
    """Descriptors of the namespace that was entered and of the one to return to."""

    entered: int
    original: int


@contextmanager
def entered_namespace(path: str, opened: Mapping[str, int] = NO_NAMESPACES) -> Iterator[NamespaceDescriptors]:
    """Move the calling thread into the namespace at a path until the block ends.

    ``opened`` are descriptors by path: they are used in place of the path.

    Raises:
        NamespaceGone: there is no such namespace; the block does not run.
        OSError: it cannot be entered.
    """
    original = os.open(OWN_NAMESPACE, _OPEN_FLAGS)
    try:
        entered = _open(path, opened)
        try:
            try:
                _enter(entered, path)
                yield NamespaceDescriptors(entered, original)
            finally:
                _return(original)
        finally:
            os.close(entered)
    finally:
        os.close(original)


def is_own_namespace(path: str, opened: Mapping[str, int] = NO_NAMESPACES) -> bool:
    """Whether the path is the calling thread's network namespace; false if the path cannot be opened.

    ``opened`` are descriptors by path: they are used in place of the path.
    """
    try:
        found = os.stat(opened.get(path, path))
    except (OSError, ValueError):
        return False
    return _same(found, os.stat(OWN_NAMESPACE))


def _open(path: str, opened: Mapping[str, int]) -> int:
    if path in opened:
        return os.dup(opened[path])
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
        # The descriptor is not a namespace, or one of another type.
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
        # A thread without the right to enter never left, and may not return either.
        if not isinstance(error, OSError):
            raise


def _is_current(namespace: int) -> bool:
    try:
        return _same(os.fstat(namespace), os.stat(OWN_NAMESPACE))
    except OSError:
        return False


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
