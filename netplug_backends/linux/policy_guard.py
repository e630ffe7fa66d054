"""Whether this machine has the table of policy, and the making of the first one, for an ADD.

An ADD looks each time, so the look is one netlink message and loads nothing of the packet filter. What makes a table is
loaded when there is none, which is once a boot.

Everything is said of the network namespace of the calling thread.

Source: the numbers are those of the kernel's ``linux/netfilter/nf_tables.h`` and ``nfnetlink.h``.
"""

from __future__ import annotations

import _socket  # the module socket adds much that no call needs
import errno
import struct
from typing import TYPE_CHECKING, Final

from attrs import frozen

from netplug_backends.linux.netlink import NO_NFTABLES, NetlinkMessage, NetlinkProtocol, NetlinkSocket, encode_text
from netplug_core.dataplane.protocol import KernelError
from netplug_core.names import HOST_INTERFACE_PREFIX, POLICY_TABLE

if TYPE_CHECKING:
    from netplug_core.dataplane.ruleset import PacketTable

__all__ = ["LinuxPolicyGuard"]

_NFGENMSG: Final = struct.Struct("!BBH")  # family, version, resource
_GET_TABLE, _REQUEST, _INET, _TABLE_NAME = 10 << 8 | 1, 0x1, 1, 1
_LOOKING: Final = "looking for the table of policy"


@frozen
class LinuxPolicyGuard:
    """The :class:`~netplug_core.flows.world.PolicyGuard` of this machine. ``prefix`` begins the names of links."""

    prefix: str = HOST_INTERFACE_PREFIX

    def has_table(self) -> bool:
        """Whether the kernel has the table."""
        body = _NFGENMSG.pack(_INET, 0, 0) + encode_text(_TABLE_NAME, POLICY_TABLE)
        with NetlinkSocket.open(NetlinkProtocol.NETFILTER) as kernel:
            outcome = kernel.send_one(NetlinkMessage(_GET_TABLE, _REQUEST, body, lambda: _LOOKING))
        if outcome.error == errno.EINVAL:
            raise KernelError(_LOOKING, NO_NFTABLES)
        return outcome.require_success(errno.ENOENT).error == 0

    def has_workload_links(self) -> bool:
        """Whether an interface has a name such as the ends of workloads' links have."""
        try:
            return any(name.startswith(self.prefix) for _index, name in _socket.if_nameindex())
        except OSError as error:
            raise KernelError("listing the interfaces of the host", str(error)) from error

    def create(self, table: PacketTable) -> None:
        """Make the table, unless there is one by now."""
        from netplug_backends.linux.nftables import NftablesRuleset
        from netplug_core.dataplane.ruleset import CreateTable

        try:
            NftablesRuleset().apply(CreateTable(table))
        except KernelError:
            if not self.has_table():
                raise

    def find_problem(self) -> str:
        """What is missing to make a table, and what installs it."""
        from netplug_backends.linux.nftables import find_problem

        return find_problem()
