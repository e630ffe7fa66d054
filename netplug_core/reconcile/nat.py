"""What the table ``inet netplug_net`` of a node has in it: the guard of the node's own loopback addresses.

Pure rules: the controller ``packet filter`` of the node process compares the table with the kernel's.
"""

from __future__ import annotations

from typing import Final

from netplug_core.addressing import Family, Prefix
from netplug_core.dataplane.ruleset import (
    BaseChain,
    Chain,
    ChainType,
    Hook,
    Match,
    Meta,
    MetaKey,
    ObservedTable,
    PacketTable,
    Rule,
    Verdict,
    destination_of,
)
from netplug_core.names import HOST_INTERFACE_PREFIX

__all__ = ["FORMER_TABLE", "NET_TABLE", "NODE_LOOPBACK", "has_former_rule", "plan_table"]

NET_TABLE: Final = "netplug_net"
"""The table of NAT and of guards. That of policy is another one, so that each is replaced alone."""

FORMER_TABLE: Final = "netplug"
"""The table that a former release had its only rule in; now it is policy's."""

NODE_LOOPBACK: Final = Prefix.parse("127.0.0.0/8")
"""Where no packet of a workload may go on the node: programs that listen there trust every sender.

The host end of a workload keeps such packets out by ``route_localnet`` 0, but ``portmap`` sets it to 1 where a port is
mapped. (IPv6 has no such setting: the kernel accepts ``::1`` from no interface.)
"""

_PRIORITY_RAW: Final = -300  # before address translation, which rewrites the packets of mapped ports
_FORMER_BASE: Final = BaseChain(ChainType.FILTER, Hook.PREROUTING, _PRIORITY_RAW)


def plan_table() -> PacketTable:
    """The table."""
    return PacketTable(name=NET_TABLE, chains=(_loopback_chain(),))


def has_former_rule(observed: ObservedTable | None) -> bool:
    """Whether the table of policy's name is the one of a former release: one chain, with one rule, and nothing else."""
    if observed is None or observed.sets or observed.unreadable:
        return False
    return [(each.name, each.base, each.marks) for each in observed.chains] == [("prerouting", _FORMER_BASE, ("",))]


def _loopback_chain() -> Chain:
    """Drops what comes from a host end and is for the node's loopback addresses."""
    from_workload = Match(Meta(MetaKey.INPUT_INTERFACE), f"{HOST_INTERFACE_PREFIX}*")
    to_loopback = Match(destination_of(Family.IPV4), NODE_LOOPBACK)
    rule = Rule((from_workload, to_loopback, Verdict.DROP), "a pod's packets to the node's loopback")
    return Chain(name="loopback", base=BaseChain(ChainType.FILTER, Hook.PREROUTING, _PRIORITY_RAW), rules=(rule,))
