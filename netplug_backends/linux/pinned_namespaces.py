"""Network namespaces that outlive the process that made them: each is pinned by a bind mount over a file of its own.

``netplugctl lab`` makes its node and its pods this way, through ``netplug_cli.wiring.backends``. An ADD never comes
here:
namespaces are the runtime's business.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import ClassVar

from attrs import frozen

from netplug_backends.linux import links, netlink, sysctls
from netplug_backends.linux.netlink_socket import NetlinkSocket
from netplug_backends.linux.netns import OWN_NAMESPACE, NamespaceGone, entered_namespace
from netplug_core.addressing import Address
from netplug_core.dataplane.protocol import InterfaceAddress
from netplug_core.errors import DataplaneError

__all__ = ["NamespaceRefused", "PinnedNamespaces"]

_CLONE_NEWNET = 0x40000000
_MS_BIND = 0x1000
_MNT_DETACH = 0x2
_NOT_MOUNTED = {errno.EINVAL, errno.ENOENT}
_NOT_PERMITTED = {errno.EPERM, errno.EACCES}
_HINT = "root is needed, or a user namespace: unshare --user --map-root-user --net --mount"
_FORWARDING = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")


@frozen
class NamespaceRefused(DataplaneError):
    """The kernel did not let us make, enter, change or remove a network namespace (code 120)."""

    code: ClassVar[int] = 120
    operation: str
    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operation} {self.path}: {self.reason}"


class PinnedNamespaces:
    """The namespaces of this machine that are pinned below some folder."""

    def make(self, path: str) -> None:
        """Pin a new namespace over a new file; its loopback interface is up and it has no other.

        Raises:
            NamespaceRefused: it cannot be made; the file may be there.
        """
        with _translated("making the network namespace", path), entered_namespace(OWN_NAMESPACE):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            # From here to the end of the block the thread is in the new one, and nobody else is.
            _call("unshare", _CLONE_NEWNET)
            with NetlinkSocket.open() as channel:
                _bring_up_loopback(channel)
            _call("mount", os.fsencode(OWN_NAMESPACE), os.fsencode(path), None, _MS_BIND, None)

    def remove(self, path: str) -> None:
        """Unpin a namespace, if one is pinned there, and remove the file; the kernel ends what nobody is in.

        Raises:
            NamespaceRefused: it cannot be removed.
        """
        with _translated("removing the network namespace", path):
            while _try_unmount(path):
                pass  # mounts pile up, and each call takes the topmost
            with suppress(FileNotFoundError):
                os.unlink(path)

    def find_below(self, folder: str) -> tuple[str, ...]:
        """The files below a folder that have a namespace pinned over them, sorted."""
        start = os.path.realpath(folder) + "/"
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            mounts = [_mount_of(line) for line in table]
        return tuple(sorted({point for point, kind in mounts if kind == "nsfs" and point.startswith(start)}))

    def configure_node(self, path: str, addresses: Iterable[Address]) -> None:
        """Make a namespace forward like a node, and give it addresses of its own (on its loopback interface).

        Raises:
            NamespaceRefused, DataplaneError: the kernel did not take it.
        """
        with (
            _translated("setting up the network namespace", path),
            entered_namespace(path),
            NetlinkSocket.open() as channel,
        ):
            for setting in _FORWARDING:
                if sysctls.find_sysctl(setting) is not None:
                    sysctls.write_sysctl(setting, "1")
            index = _bring_up_loopback(channel)
            for address in addresses:
                held = InterfaceAddress(address, address.family.width)
                channel.send_one(netlink.add_address(index, "lo", held)).require_success(errno.EEXIST)

    def interfaces(self, path: str) -> tuple[str, ...]:
        """The names of a namespace's interfaces, the loopback aside.

        Raises:
            NamespaceRefused: it is gone, or cannot be entered.
        """
        with _translated("looking into the network namespace", path), entered_namespace(path):
            return tuple(name for _, name in _socket.if_nameindex() if name != "lo")

    @contextmanager
    def enter(self, path: str) -> Iterator[None]:
        """Put the calling thread into a namespace until the block ends; processes it starts then are in it too.

        Raises:
            NamespaceRefused: it is gone, or cannot be entered.
        """
        with ExitStack() as stack:
            with _translated("entering the network namespace", path):
                stack.enter_context(entered_namespace(path))
            yield


@contextmanager
def _translated(operation: str, path: str) -> Iterator[None]:
    try:
        yield
    except NamespaceGone as error:
        raise NamespaceRefused(operation, path, error.reason) from error
    except OSError as error:
        reason = error.strerror or str(error)
        hint = f"; {_HINT}" if error.errno in _NOT_PERMITTED else ""
        raise NamespaceRefused(operation, path, reason + hint) from error


def _bring_up_loopback(channel: NetlinkSocket) -> int:
    found = links.find_link(channel, "lo")
    if found is None:
        raise OSError(errno.ENODEV, "lo")
    channel.send_one(netlink.set_up(found.index, "lo")).require_success()
    return found.index


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _try_unmount(path: str) -> bool:
    """Take away the topmost mount over a file; false when there is none."""
    try:
        _call("umount2", os.fsencode(path), _MNT_DETACH)
    except OSError as error:
        if error.errno in _NOT_MOUNTED:
            return False
        raise
    return True


def _mount_of(line: str) -> tuple[str, str]:
    """Where a line of mountinfo says that something is mounted, and its file system type (proc(5))."""
    before, _, after = line.partition(" - ")
    # Blanks, tabs, line ends and backslashes are written as octal numbers; only these four are.
    point = before.split(" ")[4]
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point, after.split(" ")[0]
