"""The packet filter of a node in memory, and what its chains do to a packet. It refuses what the kernel refuses.

A table that changes in place changes as in the kernel: chains one by one, and elements after them. What the filter
chains do to a packet can be asked at each step. A test changes tables by hand, as other programs would.
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Condition, Lock

from attrs import define, evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.packetfilter import ForeignChange, ForeignChanges
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.ruleset import (
    BaseChain,
    Chain,
    ChainOutline,
    ChainType,
    ChangeElements,
    ChangeTable,
    Concatenation,
    Counter,
    CreateTable,
    DeleteTable,
    DestinationNAT,
    Element,
    ElementType,
    Expression,
    Fib,
    Goto,
    Hook,
    Jump,
    JumpByMap,
    MapLookup,
    Masquerade,
    Match,
    Meta,
    MetaKey,
    NamedSet,
    ObservedTable,
    Operand,
    PacketTable,
    Part,
    Payload,
    Reject,
    ReplaceTable,
    SetReference,
    SourceNAT,
    Statement,
    TableChange,
    TrackingState,
    UnreadableObject,
    Verdict,
    without_elements,
)
from netplug_core.policy.model import ICMP, ICMP_V6, SCTP, TCP, UDP, Packet
from netplug_core.resources.fields import PortRange

__all__ = [
    "Fate", "HeldChain", "HeldRule", "HeldTable", "MemoryConnections", "MemoryRuleset", "MemoryRulesetEvents",
    "TrackedConnection", "walk",
]  # fmt: skip


# --- what a chain does to a packet -----------------------------------------------------------------------------------

_HEADERS = {"ip": Family.IPV4, "ip6": Family.IPV6, "icmp": ICMP, "icmpv6": ICMP_V6, "tcp": TCP, "udp": UDP}
_WITH_PORTS = frozenset((TCP, UDP, SCTP))
_META_FAMILIES = {Family.IPV4: "ipv4", Family.IPV6: "ipv6"}
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
                return _META_FAMILIES[packet.source.family]
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


_MISSING, _EXISTS, _BUSY = "No such file or directory", "File exists", "Device or resource busy"
_NOT_SUPPORTED, _WRONG_TYPE, _OVERLAP = "Operation not supported", "datatype mismatch", "conflicting intervals"
_SOURCE_HOOKS, _DESTINATION_HOOKS = {Hook.POSTROUTING, Hook.INPUT}, {Hook.PREROUTING, Hook.OUTPUT}
_BY_HAND = "nft"
_TRANSPORT = Meta(MetaKey.TRANSPORT)
_FAMILIES = {ElementType.IPV4_ADDRESS: Family.IPV4, ElementType.IPV6_ADDRESS: Family.IPV6}


def _do_nothing() -> None:
    """No test looks at the steps."""


@define(eq=False)
class MemoryRulesetEvents:
    """See :class:`~netplug_core.dataplane.packetfilter.RulesetEvents`. What is done by hand notifies it."""

    _condition: Condition = field(factory=Condition, init=False)
    _found: list[ForeignChange] = field(factory=list, init=False)
    _were_lost: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)

    def wait(self, *, deadline: Deadline) -> ForeignChanges | None:
        """Wait for a change, the deadline or ``close``."""
        with self._condition:
            self._condition.wait_for(self._is_decided, timeout=deadline.remaining_s)
            if self._is_closed or not self._is_decided():
                return None
            found = ForeignChanges(changes=tuple(self._found), were_lost=self._were_lost)
            self._found.clear()
            self._were_lost = False
            return found

    def notify(self, program: str, *tables: str) -> None:
        """A program has changed tables."""
        with self._condition:
            self._found.append(ForeignChange(program, frozenset(tables)))
            self._condition.notify_all()

    def lose(self) -> None:
        """Some notifications are lost."""
        with self._condition:
            self._found.clear()
            self._were_lost = True
            self._condition.notify_all()

    def close(self) -> None:
        """End the wait."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def _is_decided(self) -> bool:
        return self._is_closed or self._were_lost or bool(self._found)


@define(eq=False)
class MemoryRuleset:
    """See :class:`~netplug_core.dataplane.packetfilter.RulesetDataplane`. ``changes`` are those that were made.

    ``events`` are notified of what is done by hand, which is what ``nft`` does. ``on_step`` is called whenever packets
    may see a table, also in the middle of a :class:`ChangeTable`: chains change one by one, and elements after them.
    """

    changes: list[TableChange] = field(factory=list, init=False)
    on_step: Callable[[], None] = field(default=_do_nothing)
    events: MemoryRulesetEvents = field(factory=MemoryRulesetEvents, init=False)
    _tables: dict[str, HeldTable] = field(factory=dict, init=False)
    _unreadable: dict[str, tuple[UnreadableObject, ...]] = field(factory=dict, init=False)
    _packets: collections.Counter[tuple[str, str]] = field(factory=collections.Counter, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def read(self, name: str) -> ObservedTable | None:
        """The table as it is."""
        table = self._tables.get(name)
        if table is None:
            return None
        outlines = (
            ChainOutline(name=chain, base=held.base, marks=tuple(rule.mark for rule in held.rules))
            for chain, held in table.chains.items()
        )
        return ObservedTable(
            name=name,
            sets=tuple(table.sets.values()),
            chains=tuple(outlines),
            unreadable=self._unreadable.get(name, ()),
        )

    def apply(self, change: TableChange) -> None:
        """Make a change, or refuse it as a whole."""
        with self._lock:
            match change:
                case CreateTable(table=table):
                    if table.name in self._tables:
                        raise _refusal(_EXISTS)
                    self._tables[table.name] = _make_table(table)
                case ReplaceTable(table=table):
                    self._tables[table.name] = _make_table(table)
                    self._unreadable.pop(table.name, None)
                    self._forget_packets(table.name)
                case ChangeElements(table=table):
                    held = self._find(table.name)
                    sets = _change_elements(held.sets, change.deleted, change.added)
                    self._tables[table.name] = evolve(held, sets=sets)
                case ChangeTable():
                    self._change_in_place(change)
                case DeleteTable(name=name):
                    self._find(name)
                    del self._tables[name]
                    self._forget_packets(name)
            self.changes.append(change)
        self.on_step()

    def pass_packet(self, name: str, packet: Packet) -> Fate:
        """What becomes of a packet by a table, as it is now."""
        return walk(self._tables.get(name), packet, lambda chain: self._packets.update(((name, chain),)))

    def count_packets(self, table: str, chain: str) -> int:
        """What has been counted since the rules of the chain were made."""
        return self._packets[table, chain]

    def _change_in_place(self, change: ChangeTable) -> None:
        unreadable = self._unreadable.get(change.table, ())
        if frozenset(change.deleted_objects) - frozenset(unreadable):
            raise _refusal(_MISSING)
        before = self._tables.get(change.table, HeldTable(sets={}, chains={}))
        after = _changed(before, change)
        held = evolve(before, sets={**{each.name: without_elements(each) for each in change.new_sets}, **before.sets})
        for chain in (*change.new_chains, *change.filled_chains):
            held = evolve(held, chains={**held.chains, chain.name: after.chains[chain.name]})
            self._tables[change.table] = held
            self._packets.pop((change.table, chain.name), None)
            self.on_step()
        self._tables[change.table] = after
        left = tuple(each for each in unreadable if each not in change.deleted_objects)
        self._unreadable[change.table] = left

    def _forget_packets(self, name: str) -> None:
        for table, chain in tuple(self._packets):
            if table == name:
                del self._packets[table, chain]

    def _find(self, name: str) -> HeldTable:
        if name not in self._tables:
            raise _refusal(_MISSING)
        return self._tables[name]

    # --- what others do --------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Delete all tables."""
        names = tuple(self._tables)
        self._tables.clear()
        self._unreadable.clear()
        self._packets.clear()
        self.events.notify(_BY_HAND, *names)

    def add_rule(self, name: str, chain: str, *, is_first: bool = False) -> None:
        """Add a rule without a comment to a chain, which accepts all, at its end or at its beginning."""
        rules, added = self._find(name).chains[chain].rules, HeldRule("", (Verdict.ACCEPT,))
        self._set_rules(name, chain, (added, *rules) if is_first else (*rules, added))

    def clear_chain(self, name: str, chain: str) -> None:
        """Delete the rules of a chain."""
        self._set_rules(name, chain, ())

    def add_unreadable(self, name: str, what: str) -> None:
        """Add a counter, which no table of ours has."""
        self._unreadable[name] = (UnreadableObject("counter", what),)
        self.events.notify(_BY_HAND, name)

    def _set_rules(self, name: str, chain: str, rules: tuple[HeldRule, ...]) -> None:
        table = self._find(name)
        changed = evolve(table.chains[chain], rules=rules)
        self._tables[name] = evolve(table, chains={**table.chains, chain: changed})
        self.events.notify(_BY_HAND, name)


@frozen(kw_only=True)
class TrackedConnection:
    """A connection. ``answers`` is who answers, if a translation has led it elsewhere than where it was begun to."""

    source: Address
    destination: Address
    answers: Address | None = None

    @property
    def ends(self) -> frozenset[Address]:
        """All addresses that it belongs to."""
        return frozenset(each for each in (self.source, self.destination, self.answers) if each is not None)


@define(eq=False)
class MemoryConnections:
    """See :class:`~netplug_core.dataplane.packetfilter.Connections`."""

    tracked: list[TrackedConnection] = field(factory=list)

    def forget(self, destinations: Iterable[Address]) -> int:
        """Forget those that were begun to the addresses."""
        forgotten = frozenset(destinations)
        return self._keep(lambda each: each.destination not in forgotten)

    def forget_workloads(self, addresses: Iterable[Address]) -> int:
        """Forget those that have one of the addresses at any end."""
        forgotten = frozenset(addresses)
        return self._keep(lambda each: not each.ends & forgotten)

    def _keep(self, is_kept: Callable[[TrackedConnection], bool]) -> int:
        before = len(self.tracked)
        self.tracked[:] = filter(is_kept, self.tracked)
        return before - len(self.tracked)


def _make_table(table: PacketTable) -> HeldTable:
    for names in ([each.name for each in table.sets], [each.name for each in table.chains]):
        if len(names) != len(set(names)):
            raise _refusal(_EXISTS)
    held = HeldTable(
        sets={each.name: each for each in table.sets}, chains={each.name: _held(each) for each in table.chains}
    )
    _check_table(held)
    return held


def _held(chain: Chain) -> HeldChain:
    return HeldChain(chain.base, tuple(HeldRule(rule.mark, rule.statements) for rule in chain.rules))


def _changed(before: HeldTable, change: ChangeTable) -> HeldTable:
    """The table after a change, in the order of its members."""
    chains = _without_chains(before, change.dropped_chains).chains
    sets = dict(before.sets)
    for each in change.new_sets:
        if each.name in sets and without_elements(sets[each.name]) != without_elements(each):
            raise _refusal(_EXISTS)
        sets[each.name] = each
    for chain in change.new_chains:
        if chain.name in chains and chains[chain.name].base != chain.base:
            raise _refusal(_EXISTS)
        rules = chains[chain.name].rules if chain.name in chains else ()
        chains = {**chains, chain.name: evolve(_held(chain), rules=(*rules, *_held(chain).rules))}
    for chain in change.filled_chains:
        if chain.name not in chains:
            raise _refusal(_MISSING)
        chains = {**chains, chain.name: evolve(chains[chain.name], rules=_held(chain).rules)}
    held = HeldTable(sets=_change_elements(sets, change.deleted, change.added), chains=chains)
    held = _without_chains(held, change.deleted_chains)
    left = {name: each for name, each in held.sets.items() if name not in change.deleted_sets}
    if frozenset(change.deleted_sets) - held.sets.keys():
        raise _refusal(_MISSING)
    if _used_sets(held) & frozenset(change.deleted_sets):
        raise _refusal(_BUSY)
    held = evolve(held, sets=left)
    _check_table(held)
    return held


def _without_chains(held: HeldTable, names: Iterable[str]) -> HeldTable:
    gone = frozenset(names)
    if gone - held.chains.keys():
        raise _refusal(_MISSING)
    left = evolve(held, chains={name: each for name, each in held.chains.items() if name not in gone})
    if _used_chains(left) & gone:
        raise _refusal(_BUSY)
    return left


def _change_elements(
    before: Mapping[str, NamedSet], deleted: Iterable[NamedSet], added: Iterable[NamedSet]
) -> dict[str, NamedSet]:
    sets = dict(before)
    for part in (*deleted, *added):
        if part.name not in sets:
            raise _refusal(_MISSING)
    for part in deleted:
        held = sets[part.name]
        if part.elements - held.elements:
            raise _refusal(_MISSING)
        sets[part.name] = evolve(held, elements=held.elements - part.elements)
    for part in added:
        held = sets[part.name]
        sets[part.name] = evolve(held, elements=held.elements | part.elements)
        _check_elements(sets[part.name])
    return sets


def _targets(statements: Iterable[Statement]) -> Iterator[str]:
    return (each.chain for each in statements if isinstance(each, Jump | Goto))


def _used_chains(held: HeldTable) -> frozenset[str]:
    of_rules = (name for chain in held.chains.values() for rule in chain.rules for name in _targets(rule.statements))
    of_maps = (
        each.value.chain for named in held.sets.values() for each in named.elements if isinstance(each.value, Jump)
    )
    return frozenset((*of_rules, *of_maps))


def _used_sets(held: HeldTable) -> frozenset[str]:
    statements = (each for chain in held.chains.values() for rule in chain.rules for each in rule.statements)
    return frozenset(name for each in statements for name, _ in _sets_of(each))


def _sets_of(statement: Statement) -> Iterator[tuple[str, bool]]:
    """The sets that a statement names, and whether each has to be a map."""
    match statement:
        case Match(right=SetReference(name=name)):
            yield name, False
        case JumpByMap(name=name):
            yield name, True
        case SourceNAT(to=MapLookup(name=name)) | DestinationNAT(to=MapLookup(name=name)):
            yield name, True
        case _:
            pass


# --- what is refused --------------------------------------------------------------------------------------------------


def _check_table(held: HeldTable) -> None:
    for each in held.sets.values():
        _check_elements(each)
    if _used_chains(held) - {name for name, chain in held.chains.items() if chain.base is None}:
        raise _refusal(_MISSING)
    for chain in held.chains.values():
        for rule in chain.rules:
            for position, statement in enumerate(rule.statements):
                _check_statement(held, chain, statement)
                _check_ports(statement, rule.statements[:position])
    for chain in held.chains.values():
        if chain.base is not None and chain.base.hook is Hook.POSTROUTING:
            _refuse_rejections(held, chain, set())


def _refuse_rejections(held: HeldTable, chain: HeldChain, seen: set[str]) -> None:
    """The kernel cannot answer a packet that leaves; so no chain may, that one of its chains leads to."""
    for rule in chain.rules:
        following = set(_targets(rule.statements))
        for statement in rule.statements:
            if isinstance(statement, Reject):
                raise _refusal(_NOT_SUPPORTED)
            if isinstance(statement, JumpByMap):
                values = (each.value for each in held.sets[statement.name].elements)
                following |= {value.chain for value in values if isinstance(value, Jump)}
        for name in following - seen:
            seen.add(name)
            _refuse_rejections(held, held.chains[name], seen)


def _check_elements(named: NamedSet) -> None:
    for each in named.elements:
        _check_key(named, each)
        if (each.value is None) != (named.value_type is None):
            raise _refusal(_WRONG_TYPE)
        if not _is_value(each.value, named.value_type):
            raise _refusal(_WRONG_TYPE)
    if len({each.key for each in named.elements}) != len(named.elements):
        raise _refusal(_EXISTS)
    if named.is_interval and any(map(_overlap, *_neighbours(named.elements))):
        raise _refusal(_OVERLAP)


def _neighbours(elements: Iterable[Element]) -> tuple[list[Element], list[Element]]:
    """The elements in the order of where they begin, and those that follow them."""
    found = sorted(elements, key=lambda each: [_bounds(part) for part in each.key])
    return found[:-1], found[1:]


def _overlap(one: Element, other: Element) -> bool:
    bounds = ((_bounds(part), _bounds(following)) for part, following in zip(one.key, other.key, strict=True))
    return all(first[0] <= second[1] and second[0] <= first[1] for first, second in bounds)


def _bounds(part: Part) -> tuple[tuple[str, int], tuple[str, int]]:
    match part:
        case Prefix():
            return ("", int(part.first)), ("", int(part.last))
        case PortRange(first=first, last=last):
            return ("", first), ("", last)
        case str():
            return (part, 0), (part, 0)
        case _:
            return ("", int(part)), ("", int(part))


def _is_value(value: Address | Jump | None, kind: ElementType | None) -> bool:
    match value:
        case Jump():
            return kind is ElementType.VERDICT
        case Address():
            return kind is not None and _FAMILIES.get(kind) is value.family
        case None:
            return kind is None


def _check_key(named: NamedSet, element: Element) -> None:
    if len(element.key) != len(named.types):
        raise _refusal(_WRONG_TYPE)
    for part, kind in zip(element.key, named.types, strict=True):
        is_right = False
        match part:
            case str():
                is_right = kind is ElementType.INTERFACE_NAME
            case int():
                is_right = kind in (ElementType.PORT, ElementType.PROTOCOL) and not named.is_interval
            case PortRange():
                is_right = kind is ElementType.PORT and named.is_interval
            case Address():
                is_right = part.family is _FAMILIES.get(kind) and not named.is_interval
            case Prefix():
                is_right = part.family is _FAMILIES.get(kind) and named.is_interval
        if not is_right:
            raise _refusal(_WRONG_TYPE)


def _check_statement(held: HeldTable, chain: HeldChain, statement: Statement) -> None:
    for name, is_map in _sets_of(statement):
        if name not in held.sets or (held.sets[name].value_type is not None) != is_map:
            raise _refusal(_MISSING)
    match statement:
        case Masquerade():
            _require_nat(chain, {Hook.POSTROUTING})
        case SourceNAT():
            _require_nat(chain, _SOURCE_HOOKS)
        case DestinationNAT():
            _require_nat(chain, _DESTINATION_HOOKS)
        case _:
            pass


def _check_ports(statement: Statement, before: tuple[Statement, ...]) -> None:
    has_ports = isinstance(statement, Masquerade | SourceNAT) and statement.ports is not None
    if has_ports and all(not isinstance(each, Match) or each.left != _TRANSPORT for each in before):
        raise _refusal("transport protocol mapping is only valid after transport protocol match")


def _require_nat(chain: HeldChain, hooks: set[Hook]) -> None:
    if chain.base is None or chain.base.type is not ChainType.NAT or chain.base.hook not in hooks:
        raise _refusal(_NOT_SUPPORTED)


def _refusal(reason: str) -> KernelError:
    return KernelError("programming the packet filter", reason)
