"""Network namespaces that outlive the process that created them: each is pinned by a bind mount over a file.

``netplugctl lab`` creates its node and its pods this way, through ``netplug_cli.wiring.lab``. An ADD does not use
it: there the runtime creates namespaces.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from attrs import frozen

from netplug_backends.host.atomic_files import PRIVATE_FILE_MODE, read_file, write_new_file
from netplug_backends.linux import attachment, netlink
from netplug_backends.linux.netlink import NetlinkSocket
from netplug_backends.linux.netns import NamespaceGone, entered_namespace
from netplug_core.addressing import Address, InterfaceAddress
from netplug_core.dataplane.protocol import OWN_NAMESPACE
from netplug_core.errors import DataplaneError, ErrorCode

if TYPE_CHECKING:
    from pyroute2 import IPRoute

__all__ = ["NamespaceRefused", "PinnedNamespaces"]

_CLONE_NEWNET = 0x40000000
_MAX_TABLE_BYTES = 1 << 26
_MS_BIND = 0x1000
_MNT_DETACH = 0x2
_NOT_MOUNTED = {errno.EINVAL, errno.ENOENT}
_NOT_PERMITTED = {errno.EPERM, errno.EACCES}
_HINT = "root is needed, or a user namespace: unshare --user --map-root-user --net --mount"
_SWITCH = "switch"
_FORWARDING = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")


@frozen
class NamespaceRefused(DataplaneError, error_code=ErrorCode.NAMESPACE_REFUSED):
    """The kernel refused to create, enter, change or remove a network namespace (code 120)."""

    operation: str
    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operation} {self.path}: {self.reason}"


class PinnedNamespaces:
    """The pinned namespaces of this machine."""

    def make(self, path: str) -> None:
        """Pin a new namespace over a new file; its only interface is the loopback, which is up.

        Raises:
            NamespaceRefused: it cannot be created; the file may exist.
        """
        with _translated("making the network namespace", path), entered_namespace(OWN_NAMESPACE):
            write_new_file(path, b"", PRIVATE_FILE_MODE)
            # From here to the end of the block only this thread is in the new namespace.
            _call("unshare", _CLONE_NEWNET)
            with NetlinkSocket.open() as socket:
                _bring_up_loopback(socket)
            _call("mount", os.fsencode(OWN_NAMESPACE), os.fsencode(path), None, _MS_BIND, None)

    def remove(self, path: str) -> None:
        """Unpin a namespace if one is pinned, and remove the file; the kernel deletes a namespace without processes.

        Raises:
            NamespaceRefused: it cannot be removed.
        """
        with _translated("removing the network namespace", path):
            while _try_unmount(path):
                pass  # each call removes the topmost of several mounts
            with suppress(FileNotFoundError):
                os.unlink(path)

    def find_below(self, folder: str) -> tuple[str, ...]:
        """The files below a folder over which a namespace is pinned, sorted."""
        start = os.path.realpath(folder) + "/"
        table = read_file("/proc/self/mountinfo", _MAX_TABLE_BYTES).decode(errors="surrogateescape")
        mounts = [_mount_of(line) for line in table.split("\n") if line]
        return tuple(sorted({point for point, kind in mounts if kind == "nsfs" and point.startswith(start)}))

    def configure_node(self, path: str, addresses: Iterable[Address]) -> None:
        """Enable forwarding in a namespace, as on a node, and add addresses to its loopback interface.

        Raises:
            NamespaceRefused, DataplaneError: the kernel refused.
        """
        with (
            _translated("setting up the network namespace", path),
            entered_namespace(path),
            NetlinkSocket.open() as socket,
        ):
            for setting in _FORWARDING:
                if attachment.find_sysctl(setting) is not None:
                    attachment.write_sysctl(setting, "1")
            index = _bring_up_loopback(socket)
            for address in addresses:
                held = InterfaceAddress(address, address.family.width)
                socket.send_one(netlink.add_address(index, "lo", held)).require_success(errno.EEXIST)

    def make_switch(self, path: str) -> None:
        """Make a bridge in a namespace, which has no addresses and forwards frames at once.

        Raises:
            NamespaceRefused: the kernel refused.
        """
        with _translated("making a switch in", path), entered_namespace(path), _open_routing_socket() as kernel:
            kernel.link("add", ifname=_SWITCH, kind="bridge", br_forward_delay=0)
            kernel.link("set", index=_index(kernel, _SWITCH), state="up")

    def plug_in(self, path: str, interface: str, switch: str, port: str, addresses: Iterable[InterfaceAddress]) -> None:
        """Connect an interface in a namespace with the port of a switch in another one, and add addresses to it.

        An IPv6 address is used at once, without a search for duplicates.

        Raises:
            NamespaceRefused, DataplaneError: the kernel refused.
        """
        with _translated("plugging in", path):
            with entered_namespace(path) as node, entered_namespace(switch), _open_routing_socket() as kernel:
                peer = {"ifname": interface, "net_ns_fd": node.entered}
                kernel.link("add", ifname=port, kind="veth", peer=peer)
                index = _index(kernel, port)
                kernel.link("set", index=index, master=_index(kernel, _SWITCH))
                kernel.link("set", index=index, state="up")
            with entered_namespace(path), NetlinkSocket.open() as socket:
                found = attachment.find_link(socket, interface)
                if found is None:
                    raise OSError(errno.ENODEV, interface)
                socket.send_one(netlink.set_up(found.index, interface)).require_success()
                for held in addresses:
                    socket.send_one(netlink.add_address(found.index, interface, held)).require_success()

    def interfaces(self, path: str) -> tuple[str, ...]:
        """The names of a namespace's interfaces, without the loopback.

        Raises:
            NamespaceRefused: the namespace is gone or cannot be entered.
        """
        with _translated("looking into the network namespace", path), entered_namespace(path):
            return tuple(name for _, name in _socket.if_nameindex() if name != "lo")

    @contextmanager
    def enter(self, path: str) -> Iterator[None]:
        """Move the calling thread into a namespace until the block ends; processes that it starts are in it too.

        Raises:
            NamespaceRefused: the namespace is gone or cannot be entered.
        """
        with ExitStack() as stack:
            with _translated("entering the network namespace", path):
                stack.enter_context(entered_namespace(path))
            yield


@contextmanager
def _open_routing_socket() -> Iterator[IPRoute]:
    """A socket of the namespace that the calling thread is in; what the kernel refuses is an OSError."""
    from pyroute2 import IPRoute, NetlinkError  # heavy, and only several nodes need it

    try:
        with IPRoute() as kernel:
            yield kernel
    except NetlinkError as error:
        raise OSError(error.code, os.strerror(error.code)) from error


def _index(kernel: IPRoute, name: str) -> int:
    for index in kernel.link_lookup(ifname=name):
        return int(index)
    raise OSError(errno.ENODEV, name)


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


def _bring_up_loopback(socket: NetlinkSocket) -> int:
    found = attachment.find_link(socket, "lo")
    if found is None:
        raise OSError(errno.ENODEV, "lo")
    socket.send_one(netlink.set_up(found.index, "lo")).require_success()
    return found.index


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _try_unmount(path: str) -> bool:
    """Unmount the topmost mount over a file; false if there is none."""
    try:
        _call("umount2", os.fsencode(path), _MNT_DETACH)
    except OSError as error:
        if error.errno in _NOT_MOUNTED:
            return False
        raise
    return True


def _mount_of(line: str) -> tuple[str, str]:
    """The mount point and the file system type in a line of mountinfo (proc(5))."""
    before, _, after = line.partition(" - ")
    # The kernel writes these four characters as octal numbers.
    point = before.split(" ")[4]
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point, after.split(" ")[0]
