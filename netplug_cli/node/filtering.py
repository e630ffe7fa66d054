"""The node's packet filter: programmed at the start, and again if another program has removed it.

A firewall that is loaded again may flush the rules of all programs. At its end the process leaves them, so that a
restart opens nothing.
"""

from __future__ import annotations

from attrs import define, field

from netplug_cli.node.failures import RepeatedFailure
from netplug_cli.node.periodic import PeriodicTask
from netplug_core.dataplane.packet_filter import PacketFilter
from netplug_core.errors import DataplaneError
from netplug_core.log import Level, Log

__all__ = ["CHECK_EVERY_S", "packet_filter_task"]

CHECK_EVERY_S = 10.0
"""The pause between two looks at the packet filter."""


_NOT_PROGRAMMED = "the packet filter is not programmed: pods with a mapped port reach the node's 127.0.0.1"


def packet_filter_task(packet_filter: PacketFilter, *, log: Log, every_s: float = CHECK_EVERY_S) -> PeriodicTask:
    """What keeps the packet filter programmed."""
    upkeep = _Upkeep(packet_filter, log, RepeatedFailure(_NOT_PROGRAMMED, log))
    return PeriodicTask("packet filter", upkeep.check, every_s=every_s, log=log)


@define
class _Upkeep:
    packet_filter: PacketFilter
    log: Log
    failure: RepeatedFailure
    _was_programmed: bool = field(default=False, init=False)

    def check(self) -> None:
        """Program what is missing. A failure is logged once, until it is another one."""
        try:
            was_missing = self.packet_filter.program()
        except DataplaneError as error:
            self.failure.report(error)
            return
        if was_missing and self._was_programmed:
            self.log(Level.WARNING, "the packet filter is programmed again: another program has removed it")
        elif was_missing:
            self.log(Level.INFO, "the packet filter is programmed")
        self._was_programmed = True
        self.failure.clear()
