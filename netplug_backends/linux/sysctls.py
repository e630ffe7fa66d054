"""Kernel settings below ``/proc/sys``, as files. ``dataplane`` and ``inspection`` call it.

Settings of the network are those of the namespace that the calling thread is in. Nothing runs the ``sysctl`` program:
a path here has slashes, so that an interface's name may contain dots.
"""

from __future__ import annotations

import errno
import os

__all__ = ["find_sysctl", "has_ipv6", "write_sysctl"]

_ROOT = "/proc/sys/"


def write_sysctl(path: str, value: str) -> None:
    """Set a setting.

    Raises:
        OSError: the kernel has no such setting, or does not take the value.
    """
    # The kernel reads a value from one write: it would take a second one for another value.
    descriptor = os.open(_ROOT + path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        data = value.encode()
        if os.write(descriptor, data) != len(data):
            raise OSError(errno.EIO, "the kernel took only a part of the value")
    finally:
        os.close(descriptor)


def find_sysctl(path: str) -> str | None:
    """The value of a setting; None when the kernel has no such setting.

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
    """Whether this kernel speaks IPv6 at all."""
    return os.access(_ROOT + "net/ipv6", os.F_OK)
