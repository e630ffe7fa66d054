"""What the node process does besides serving calls: its periodic tasks on this machine.

``netplug_cli.wiring.node`` imports it once the process listens.
"""

from __future__ import annotations

from netplug_cli.node.filtering import packet_filter_task
from netplug_cli.node.periodic import PeriodicTask
from netplug_core.dataplane.packet_filter import PacketFilter
from netplug_core.log import Log

__all__ = ["node_tasks"]


def node_tasks(log: Log) -> tuple[PeriodicTask, ...]:
    """The tasks that need no call."""
    return (packet_filter_task(_open_packet_filter, log=log),)


def _open_packet_filter() -> PacketFilter:
    from netplug_backends.linux.nftables import NftablesFilter  # loads pyroute2, for which no call shall wait

    return NftablesFilter()
