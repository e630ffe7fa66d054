"""The walk of a packet in memory, where the laws of tables of policy do not lead."""

import pytest

from netplug_backends.memory.ruleset import Fate, HeldChain, HeldRule, HeldTable, walk
from netplug_core.addressing import Address
from netplug_core.dataplane.ruleset import (
    BaseChain,
    ChainType,
    Fib,
    FibKey,
    Goto,
    Hook,
    Jump,
    Match,
    Payload,
    Statement,
    Verdict,
)
from netplug_core.policy.model import UDP, Packet

PACKET = Packet(
    source=Address.parse("10.0.0.1"),
    destination=Address.parse("10.0.0.2"),
    protocol=UDP,
    destination_port=53,
    input_interface="eth0",
)


def fate(*statements: Statement, kind: ChainType = ChainType.FILTER, **chains: tuple[Statement, ...]) -> Fate:
    """What becomes of the packet by one rule of a base chain, and by chains that it leads to."""
    base = HeldChain(BaseChain(kind, Hook.INPUT, 0), (HeldRule("", statements),))
    others = {name: HeldChain(None, (HeldRule("", each),)) for name, each in chains.items()}
    return walk(HeldTable(sets={}, chains={"input": base, **others}), PACKET)


def test_without_a_table_or_a_verdict_a_packet_passes() -> None:
    assert walk(None, PACKET) is Fate.PASSED
    assert fate() is Fate.PASSED
    assert fate(Verdict.NOTRACK, Verdict.DROP) is Fate.DROPPED
    assert fate(Verdict.DROP, kind=ChainType.NAT) is Fate.PASSED


def test_a_header_that_a_packet_does_not_have_matches_nothing() -> None:
    assert fate(Match(Payload("udp", "dport"), 53), Verdict.DROP) is Fate.DROPPED
    assert fate(Match(Payload("tcp", "dport"), 53), Verdict.DROP) is Fate.PASSED
    assert fate(Match(Payload("tcp", "dport"), 54, is_negated=True), Verdict.DROP) is Fate.PASSED


def test_a_goto_does_not_come_back_and_a_jump_does() -> None:
    assert fate(Goto("a"), a=(Match(Payload("udp", "dport"), 54), Verdict.ACCEPT)) is Fate.PASSED
    assert fate(Jump("a"), Verdict.DROP, a=(Jump("b"),), b=()) is Fate.DROPPED


def test_there_is_no_routing_table_and_no_endless_walk() -> None:
    with pytest.raises(ValueError, match="no routing table"):
        fate(Match(Fib((FibKey.SOURCE,)), "local"))
    with pytest.raises(ValueError, match="too deep"):
        fate(Jump("a"), a=(Jump("a"),))
