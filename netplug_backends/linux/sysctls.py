"""Kernel settings, read and written as files below ``/proc/sys``. ``dataplane`` and ``inspection`` call it.

Network settings are those of the calling thread's namespace. A path has slashes, because the name of an interface may
contain dots; so the ``sysctl`` program is not used.
"""

from __future__ import annotations

import errno
import os

from netplug_backends.linux.netns import in_new_namespace

__all__ = ["IPV4_OF_INTERFACES", "HostSettings", "change_sysctl", "find_sysctl", "has_ipv6", "write_sysctl"]

_ROOT = "/proc/sys/"

IPV4_OF_INTERFACES = "net/ipv4/conf/"
"""Where the settings are that netlink changes too: those of IPv4, for each interface."""


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


def change_sysctl(path: str, value: str) -> None:
    """Write a setting, unless it has the value already.

    Raises:
        OSError: the kernel has no such setting, or does not take the value.
    """
    if find_sysctl(path) != value:
        write_sysctl(path, value)


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
    return os.access(_ROOT + "net/ipv6/conf/all", os.F_OK)


class HostSettings:
    """The settings of this node; a :class:`netplug_core.dataplane.protocol.NodeSettings`."""

    def find(self, path: str) -> str | None:
        """The value on the host."""
        return find_sysctl(path)

    def find_in_new_namespace(self, path: str) -> str | None:
        """The value in a network namespace that is made for it, and that goes with its thread."""
        return in_new_namespace(lambda: find_sysctl(path))

    def is_changeable(self, path: str) -> bool:
        """Whether it can be written, or belongs to an interface and can be changed by netlink."""
        return path.startswith(IPV4_OF_INTERFACES) or os.access(_ROOT + path, os.W_OK)
