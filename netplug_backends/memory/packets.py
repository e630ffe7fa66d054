"""What the filter chains of a table do to a packet: the kernel's walk, in memory.

``memory.ruleset`` keeps the tables. Only what a table of policy has is understood; chains of NAT are passed over.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping

from attrs import frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane.ruleset import (
    BaseChain,
    ChainType,
    Concatenation,
    Counter,
    Element,
    Expression,
    Fib,
    Goto,
    Hook,
    Jump,
    JumpByMap,
    Match,
    Meta,
    MetaKey,
    NamedSet,
    Operand,
    Payload,
    Reject,
    SetReference,
    Statement,
    TrackingState,
    Verdict,
)
from netplug_core.policy.model import ICMP, ICMP_V6, SCTP, TCP, UDP, Packet
from netplug_core.resources.fields import PortRange

__all__ = ["Fate", "HeldChain", "HeldRule", "HeldTable", "walk"]

_HEADERS = {"ip": Family.IPV4, "ip6": Family.IPV6, "icmp": ICMP, "icmpv6": ICMP_V6, "tcp": TCP, "udp": UDP}
_WITH_PORTS = frozenset((TCP, UDP, SCTP))
_FAMILIES = {Family.IPV4: "ipv4", Family.IPV6: "ipv6"}
_MAX_JUMPS = 16


class Fate(enum.Enum):
    """What becomes of a packet."""

    PASSED = "passed"
    DROPPED = "dropped"
    REJECTED = "rejected"


_FATES: Mapping[Verdict | Reject, Fate] = {
    Verdict.ACCEPT: Fate.PASSED,
    Verdict.DROP: Fate.DROPPED,
    Reject.TCP_RESET: Fate.REJECTED,
    Reject.PROHIBITED: Fate.REJECTED,
}


@frozen
class HeldRule:
    """A rule as the kernel has it; ``mark`` is its comment."""

    mark: str
    statements: tuple[Statement, ...]


@frozen
class HeldChain:
    """A chain as the kernel has it."""

    base: BaseChain | None = None
    rules: tuple[HeldRule, ...] = ()


@frozen(kw_only=True)
class HeldTable:
    """A table as the kernel has it."""

    sets: Mapping[str, NamedSet]
    chains: Mapping[str, HeldChain]


def _count_nothing(_chain: str) -> None:
    """Where no test asks how many packets a chain has counted."""


def walk(table: HeldTable | None, packet: Packet, count: Callable[[str], None] = _count_nothing) -> Fate:
    """What the table does to a packet, at all hooks that it passes.

    ``count`` is called with the name of the chain for each counter that sees it.
    """
    if table is None:
        return Fate.PASSED
    for hook in _hooks(packet):
        chains = (
            (chain.base.priority, name)
            for name, chain in table.chains.items()
            if chain.base is not None and chain.base.hook is hook and chain.base.type is ChainType.FILTER
        )
        for _priority, name in sorted(chains):
            fate = _Walk(table, packet, count).run(name, _MAX_JUMPS)
            if fate not in (None, Fate.PASSED):
                return fate
    return Fate.PASSED


def _hooks(packet: Packet) -> Iterable[Hook]:
    if not packet.input_interface:
        return (Hook.OUTPUT, Hook.POSTROUTING)
    if not packet.output_interface:
        return (Hook.PREROUTING, Hook.INPUT)
    return (Hook.PREROUTING, Hook.FORWARD, Hook.POSTROUTING)


@frozen
class _Walk:
    """The way of one packet through the chains of one hook."""

    table: HeldTable
    packet: Packet
    count: Callable[[str], None]

    def run(self, chain: str, jumps_left: int) -> Fate | None:
        """What becomes of the packet in a chain; None: it comes to its end."""
        if not jumps_left:
            raise ValueError("chains jump too deep")
        for rule in self.table.chains[chain].rules:
            fate, is_done = self._run_rule(chain, rule, jumps_left)
            if is_done:
                return fate
        return None

    def _run_rule(self, chain: str, rule: HeldRule, jumps_left: int) -> tuple[Fate | None, bool]:
        """What becomes of the packet by a rule, and whether the chain ends with it."""
        for statement in rule.statements:
            if isinstance(statement, Match) and not self._holds(statement):
                break
            if isinstance(statement, Counter):
                self.count(chain)
            if isinstance(statement, Verdict | Reject) and statement in _FATES:
                return _FATES[statement], True
            fate = self._follow(statement, jumps_left)
            if fate is not None or isinstance(statement, Goto):
                return fate, True
        return None, False

    def _follow(self, statement: Statement, jumps_left: int) -> Fate | None:
        match statement:
            case Jump(chain=chain) | Goto(chain=chain):
                return self._enter(chain, jumps_left)
            case JumpByMap(key=key, name=name):
                return self._look_up(key, name, jumps_left)
            case _:
                return None

    def _enter(self, chain: str, jumps_left: int) -> Fate | None:
        return self.run(chain, jumps_left - 1)

    def _look_up(self, key: Meta, name: str, jumps_left: int) -> Fate | None:
        wanted = self._value(key)
        for element in self.table.sets[name].elements:
            if element.key == (wanted,) and isinstance(element.value, Jump):
                return self._enter(element.value.chain, jumps_left)
        return None

    def _holds(self, match: Match) -> bool:
        value = self._value(match.left)
        if value is None:
            return False  # the packet has no such header: a negated match does not hold either
        return self._is_in(value, match.right) is not match.is_negated

    def _is_in(self, value: object, operand: Operand) -> bool:
        match operand:
            case SetReference(name=name):
                key = value if isinstance(value, tuple) else (value,)
                return any(_has_key(element, key) for element in self.table.sets[name].elements)
            case tuple():
                return value in operand
            case str() if operand.endswith("*"):
                return isinstance(value, str) and value.startswith(operand[:-1])
            case _:
                return _is_part(operand, value)

    def _value(self, expression: Expression) -> object:
        """The value of an expression; None if the packet has none."""
        match expression:
            case Meta(key=key):
                return self._meta(key)
            case Payload(protocol=protocol, field=name):
                return self._field(protocol, name)
            case Concatenation(parts=parts):
                values = tuple(self._value(part) for part in parts)
                return None if None in values else values
            case TrackingState():
                return self.packet.connection.value
            case Fib():
                raise ValueError("there is no routing table")

    def _meta(self, key: MetaKey) -> object:
        packet = self.packet
        match key:
            case MetaKey.INPUT_INTERFACE:
                return packet.input_interface
            case MetaKey.OUTPUT_INTERFACE:
                return packet.output_interface
            case MetaKey.INPUT_INDEX:
                return int(bool(packet.input_interface))
            case MetaKey.OUTPUT_INDEX:
                return int(bool(packet.output_interface))
            case MetaKey.FAMILY:
                return _FAMILIES[packet.source.family]
            case MetaKey.TRANSPORT:
                return packet.protocol

    def _field(self, header: str, name: str) -> object:
        packet = self.packet
        if header in ("ip", "ip6"):
            address = packet.source if name == "saddr" else packet.destination
            return address if address.family is _HEADERS[header] else None
        if header in ("icmp", "icmpv6"):
            kind = packet.icmp_type if name == "type" else packet.icmp_code
            return kind if packet.protocol == _HEADERS[header] else None
        is_right = packet.protocol in _WITH_PORTS if header == "th" else packet.protocol == _HEADERS[header]
        port = packet.source_port if name == "sport" else packet.destination_port
        return port if is_right else None


def _has_key(element: Element, key: tuple[object, ...]) -> bool:
    return all(_is_part(part, value) for part, value in zip(element.key, key, strict=True))


def _is_part(part: object, value: object) -> bool:
    match part:
        case Prefix():
            return isinstance(value, Address) and value.family is part.family and value in part
        case PortRange(first=first, last=last):
            return isinstance(value, int) and first <= value <= last
        case _:
            return part == value
