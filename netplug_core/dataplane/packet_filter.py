"""What a node's packet filter drops, whatever is attached; and the interface of who programs that.

``netplug_cli.node`` keeps it programmed. Rules for single workloads are not its subject.
"""

from __future__ import annotations

from typing import Protocol

from netplug_core.addressing import Prefix

__all__ = ["NODE_LOOPBACK", "PacketFilter"]

NODE_LOOPBACK = Prefix.parse("127.0.0.0/8")
"""Where no packet of a workload may go on the node: programs that listen there trust every sender.

The host end of a workload keeps such packets out by ``route_localnet`` 0, but ``portmap`` sets it to 1 where a port is
mapped. (IPv6 has no such setting: the kernel accepts ``::1`` from no interface.)
"""


class PacketFilter(Protocol):
    """Drops what comes from a host end and is for ``NODE_LOOPBACK``, before it is routed."""

    def program(self) -> bool:
        """Make it so, in one step; return whether it was not. What other programs have programmed stays.

        It lasts until the machine is started again, or another program removes it.

        Raises:
            KernelError: the kernel refused, or has no packet filter; nothing is changed.
        """
        ...
