"""Kernel settings, read and written as files below ``/proc/sys``. ``dataplane`` and ``inspection`` call it.

Network settings are those of the calling thread's namespace. A path has slashes, because the name of an interface may
contain dots; so the ``sysctl`` program is not used.
"""

from __future__ import annotations

import errno
import os

__all__ = ["find_sysctl", "has_ipv6", "write_sysctl"]

_ROOT = "/proc/sys/"


def write_sysctl(path: str, value: str) -> None:
    """Write a setting.

    Raises:
        OSError: the kernel has no such setting, or does not take the value.
    """
    # The kernel takes each write for a whole value, so the value must go in one write.
    descriptor = os.open(_ROOT + path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        data = value.encode()
        if os.write(descriptor, data) != len(data):
            raise OSError(errno.EIO, "the kernel took only a part of the value")
    finally:
        os.close(descriptor)


def find_sysctl(path: str) -> str | None:
    """The value of a setting; None if the kernel has no such setting.

    Raises:
        OSError: it cannot be read.
    """
    try:
        descriptor = os.open(_ROOT + path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, 4096).decode().strip()
    finally:
        os.close(descriptor)


def has_ipv6() -> bool:
    """Whether this kernel supports IPv6."""
    return os.access(_ROOT + "net/ipv6", os.F_OK)
