"""A table of nftables as values: what it has in it, how libnftables spells it in JSON, and what has to change.

Rules for NAT and filters make a :class:`PacketTable`; ``packetfilter`` has the interface of who reads what the kernel
has of it, and makes changes. A small table that differs in its chains is replaced, and its sets are changed in place
(:func:`find_change`). The table of policy changes in place while packets pass: ``phases`` finds the transactions.
What the kernel lists of a rule is not what was sent, so each rule carries a digest of what was sent, in its comment.

Source: libnftables-json(5), nft(8).
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TypeAlias, assert_never

from attrs import Factory, evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.resources.fields import PortRange

__all__ = [
    "BaseChain",
    "Chain",
    "ChainOutline",
    "ChainType",
    "ChangeElements",
    "ChangeTable",
    "Command",
    "Concatenation",
    "Counter",
    "CreateTable",
    "DeleteTable",
    "DestinationNAT",
    "Element",
    "ElementType",
    "Expression",
    "Fib",
    "FibKey",
    "Goto",
    "Hook",
    "Jump",
    "JumpByMap",
    "Limit",
    "LogPacket",
    "MapLookup",
    "Masquerade",
    "Match",
    "Meta",
    "MetaKey",
    "NamedSet",
    "ObservedTable",
    "Operand",
    "PacketTable",
    "Payload",
    "Phase",
    "Policy",
    "Reject",
    "ReplaceTable",
    "Rule",
    "SetReference",
    "SourceNAT",
    "Statement",
    "TableChange",
    "TrackingState",
    "UnreadableObject",
    "Verdict",
    "destination_of",
    "find_change",
    "render_change",
    "source_of",
    "without_elements",
]  # fmt: skip

Command: TypeAlias = Mapping[str, object]
"""One command, or a part of one, as libnftables takes it."""

_MAX_COMMENT = 128
_DIGEST_DIGITS = 8
_IP = {Family.IPV4: "ip", Family.IPV6: "ip6"}


# --- sets and maps ----------------------------------------------------------------------------------------------------


class ElementType(enum.Enum):
    """What the keys and values of a set are."""

    IPV4_ADDRESS = "ipv4_addr"
    IPV6_ADDRESS = "ipv6_addr"
    INTERFACE_NAME = "ifname"
    PROTOCOL = "inet_proto"
    PORT = "inet_service"
    VERDICT = "verdict"
    """Only the values of a map may be verdicts."""

    @classmethod
    def address_of(cls, family: Family) -> ElementType:
        """The type of the addresses of a family."""
        return cls.IPV4_ADDRESS if family is Family.IPV4 else cls.IPV6_ADDRESS


@frozen
class Jump:
    """The packet goes on in another chain, and comes back from its end."""

    chain: str

    def __str__(self) -> str:
        return f"jump {self.chain}"


Part: TypeAlias = Address | Prefix | str | int | PortRange
"""A part of a key: in a set of intervals a prefix or a range of ports, elsewhere an address, the name of an interface,
or the number of a protocol or a port.
"""


@frozen(cache_hash=True)  # an element goes from set to set
class Element:
    """An element of a set, or with a value of a map."""

    key: tuple[Part, ...]
    value: Address | Jump | None = None

    def __str__(self) -> str:
        key = " . ".join(map(str, self.key))
        return key if self.value is None else f"{key} : {self.value}"


@frozen(kw_only=True)
class NamedSet:
    """A set, or with ``value_type`` a map; a key with several types is their concatenation.

    ``is_interval``: its keys have prefixes or ranges of ports, which do not overlap; names are as in other sets.
    """

    name: str
    types: tuple[ElementType, ...]
    value_type: ElementType | None = None
    is_interval: bool = False
    elements: frozenset[Element] = frozenset()


# --- what a rule looks at ---------------------------------------------------------------------------------------------


class MetaKey(enum.Enum):
    """What is known of a packet beside its content."""

    INPUT_INTERFACE = "iifname"
    OUTPUT_INTERFACE = "oifname"
    INPUT_INDEX = "iif"
    OUTPUT_INDEX = "oif"
    FAMILY = "nfproto"
    TRANSPORT = "l4proto"


class FibKey(enum.Enum):
    """What the routing table is asked about."""

    SOURCE = "saddr"
    OUTPUT_INTERFACE = "oif"


@frozen
class Meta:
    """What is known of a packet beside its content."""

    key: MetaKey


@frozen
class Payload:
    """A field of a header."""

    protocol: str
    field: str


def source_of(family: Family) -> Payload:
    """The source address of a packet."""
    return Payload(_IP[family], "saddr")


def destination_of(family: Family) -> Payload:
    """The destination address of a packet."""
    return Payload(_IP[family], "daddr")


@frozen
class Fib:
    """The type (``local``, ``unicast`` and others) of an address, by the routing table; perhaps on one interface."""

    keys: tuple[FibKey, ...]


@frozen
class Concatenation:
    """Several fields, as one key."""

    parts: tuple[Payload | Meta, ...]


@frozen
class TrackingState:
    """What connection tracking says of a packet; it is compared with a tuple of states."""


Expression: TypeAlias = Meta | Payload | Fib | Concatenation | TrackingState


@frozen
class SetReference:
    """The elements of a set."""

    name: str


Operand: TypeAlias = SetReference | Prefix | PortRange | int | str | tuple[str | int, ...]
"""What an expression is compared with; a tuple is a set without a name. A name that ends in ``*`` is a prefix.

Interfaces by index, families (``ipv4``, ``ipv6``), protocols and the types of ICMP are numbers or texts.
"""


@frozen
class MapLookup:
    """The value of a map for a key; the rule ends where there is none."""

    key: Payload | Concatenation
    name: str


# --- what a rule does -------------------------------------------------------------------------------------------------


class Verdict(enum.Enum):
    """What becomes of a packet: it leaves the table, it is dropped, or connection tracking does not see it."""

    ACCEPT = "accept"
    DROP = "drop"
    NOTRACK = "notrack"


@frozen
class Match:
    """The rule goes on only if an expression is equal to an operand, or in it; or is not."""

    left: Expression
    right: Operand
    is_negated: bool = False


@frozen
class Goto:
    """The packet goes on in another chain, and does not come back."""

    chain: str


@frozen
class Masquerade:
    """The source becomes an address of the output interface, with a random port, perhaps of a range."""

    ports: PortRange | None = None


@frozen
class SourceNAT:
    """The source becomes an address, which a map may have. One that is given has a random port, perhaps of a range."""

    family: Family
    to: Address | MapLookup
    ports: PortRange | None = None


@frozen
class DestinationNAT:
    """The destination becomes the address that a map has."""

    family: Family
    to: MapLookup


@frozen
class JumpByMap:
    """The packet goes on in the chain that a map has for a key, and comes back; without one, the next rule follows."""

    key: Meta
    name: str


@frozen
class Counter:
    """Counts the packets and bytes that have come so far in the rule."""


@frozen
class Limit:
    """The rule goes on only for so many packets in a time (``second``, ``minute`` and others)."""

    rate: int
    per: str
    burst: int


@frozen
class LogPacket:
    """The kernel logs the packet, with a text before it."""

    prefix: str


class Reject(enum.Enum):
    """The packet is dropped, and its sender gets an answer. A reset is for packets of TCP alone."""

    TCP_RESET = "tcp reset"
    PROHIBITED = "icmpx"


Statement: TypeAlias = (
    Match
    | Jump
    | Goto
    | JumpByMap
    | Counter
    | Limit
    | LogPacket
    | Masquerade
    | SourceNAT
    | DestinationNAT
    | Reject
    | Verdict
)


@frozen
class Rule:
    """Statements, which are done in their order, and what a person reads beside them.

    ``mark`` is the comment that the kernel keeps: a digest of the statements, and that text.
    """

    statements: tuple[Statement, ...]
    comment: str
    mark: str = field(init=False, default=Factory(lambda self: self._make_mark(), takes_self=True))

    def _make_mark(self) -> str:
        text = json.dumps([_render_statement(each) for each in self.statements], sort_keys=True)
        mark = f"{hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]} {self.comment}"
        if len(mark) > _MAX_COMMENT:
            raise ValueError(f"the comment of a rule is too long: {self.comment!r}")
        return mark


# --- tables -----------------------------------------------------------------------------------------------------------


class ChainType(enum.Enum):
    """What a base chain may do: of ``nat`` chains only the first packet of a connection is seen."""

    FILTER = "filter"
    NAT = "nat"


class Hook(enum.Enum):
    """Where a base chain stands on a packet's way."""

    PREROUTING = "prerouting"
    INPUT = "input"
    FORWARD = "forward"
    OUTPUT = "output"
    POSTROUTING = "postrouting"


class Policy(enum.Enum):
    """What becomes of a packet at the end of a base chain."""

    ACCEPT = "accept"
    DROP = "drop"


@frozen
class BaseChain:
    """What makes a chain one that packets enter by themselves; of one hook, lower priorities come first."""

    type: ChainType
    hook: Hook
    priority: int
    policy: Policy = Policy.ACCEPT


@frozen(kw_only=True)
class ChainOutline:
    """What the kernel lists of a chain: the comments of its rules in their order, ``""`` for one without a comment."""

    name: str
    base: BaseChain | None = None
    marks: tuple[str, ...] = ()


@frozen(kw_only=True)
class Chain:
    """A chain; without ``base`` it is entered from other chains. ``jumps`` are the chains that its rules jump to."""

    name: str
    base: BaseChain | None = None
    rules: tuple[Rule, ...]
    jumps: frozenset[str] = field(
        init=False, eq=False, repr=False, default=Factory(lambda self: self._find_jumps(), takes_self=True)
    )

    def _find_jumps(self) -> frozenset[str]:
        return frozenset(each.chain for rule in self.rules for each in rule.statements if isinstance(each, Jump))

    @property
    def outline(self) -> ChainOutline:
        """What the kernel lists of it."""
        return ChainOutline(name=self.name, base=self.base, marks=tuple(rule.mark for rule in self.rules))


@frozen(kw_only=True)
class PacketTable:
    """A table of the family ``inet``, which sees packets of IPv4 and of IPv6. Its name says whose it is."""

    name: str
    sets: tuple[NamedSet, ...] = ()
    chains: tuple[Chain, ...] = ()


@frozen
class UnreadableObject:
    """Something that no table of ours has, such as a counter with a name."""

    kind: str
    name: str


@frozen(kw_only=True)
class ObservedTable:
    """What the kernel has of a table. ``unreadable`` is what no table of ours has in it."""

    name: str
    sets: tuple[NamedSet, ...] = ()
    chains: tuple[ChainOutline, ...] = ()
    unreadable: tuple[UnreadableObject, ...] = ()


# --- changes ----------------------------------------------------------------------------------------------------------


@frozen
class CreateTable:
    """Make a table; refused if there is one of its name."""

    table: PacketTable


@frozen
class ReplaceTable:
    """Make a table, in place of the one of its name if there is one."""

    table: PacketTable


@frozen
class ChangeElements:
    """Delete and add elements of sets; each is the set with only these elements. ``table`` is the table afterwards."""

    table: PacketTable
    deleted: tuple[NamedSet, ...]
    added: tuple[NamedSet, ...]


@frozen
class DeleteTable:
    """Delete a table."""

    name: str


class Phase(enum.Enum):
    """What a transaction of several is for: first all is made that is new, then it is used, then the rest goes."""

    CREATE = "create"
    SWITCH = "switch"
    DELETE = "delete"


@frozen(kw_only=True)
class ChangeTable:
    """Change a table in place, which is made if there is none.

    It is done in the order of the members. ``new_sets`` come with their elements. ``new_chains`` do not exist yet;
    those of ``dropped_chains`` are deleted before, so that a base chain may be made with another hook.
    ``filled_chains`` get these rules in place of those that they have. ``deleted`` and ``added`` are sets with only
    these elements. ``deleted_chains``, ``deleted_sets`` (names of maps too) and ``deleted_objects`` are referred to by
    nothing that is left.
    """

    phase: Phase
    table: str
    dropped_chains: tuple[str, ...] = ()
    new_sets: tuple[NamedSet, ...] = ()
    new_chains: tuple[Chain, ...] = ()
    filled_chains: tuple[Chain, ...] = ()
    deleted: tuple[NamedSet, ...] = ()
    added: tuple[NamedSet, ...] = ()
    deleted_chains: tuple[str, ...] = ()
    deleted_sets: tuple[str, ...] = ()
    deleted_objects: tuple[UnreadableObject, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is changed."""
        return self == ChangeTable(phase=self.phase, table=self.table)


TableChange: TypeAlias = CreateTable | ReplaceTable | ChangeElements | ChangeTable | DeleteTable
"""One transaction: packets see the table of before or that of afterwards."""


def find_change(wanted: PacketTable, observed: ObservedTable | None) -> ReplaceTable | ChangeElements | None:
    """What makes a table as it is wanted; None if it is so."""
    if observed is None or not _has_same_rules(wanted, observed):
        return ReplaceTable(wanted)
    before = {each.name: each.elements for each in observed.sets}
    deleted = _with_elements((each, before[each.name] - each.elements) for each in wanted.sets)
    added = _with_elements((each, each.elements - before[each.name]) for each in wanted.sets)
    return ChangeElements(wanted, deleted, added) if deleted or added else None


def _has_same_rules(wanted: PacketTable, observed: ObservedTable) -> bool:
    """Whether chains, rules and the declarations of sets are the same."""
    return (
        not observed.unreadable
        and frozenset(chain.outline for chain in wanted.chains) == frozenset(observed.chains)
        and _declarations(wanted.sets) == _declarations(observed.sets)
    )


def _declarations(sets: Iterable[NamedSet]) -> frozenset[NamedSet]:
    return frozenset(map(without_elements, sets))


def without_elements(named: NamedSet) -> NamedSet:
    """The declaration of a set."""
    return evolve(named, elements=frozenset())


def _with_elements(sets: Iterable[tuple[NamedSet, frozenset[Element]]]) -> tuple[NamedSet, ...]:
    return tuple(evolve(each, elements=elements) for each, elements in sets if elements)


# --- rendering --------------------------------------------------------------------------------------------------------


def render_change(change: TableChange) -> tuple[Command, ...]:
    """The commands of a change, which belong into one transaction."""
    match change:
        case CreateTable(table=table):
            return (_table_command("create", table.name), *_fill(table))
        case ReplaceTable(table=table):
            return (*(_table_command(verb, table.name) for verb in ("add", "delete", "add")), *_fill(table))
        case ChangeElements(table=table, deleted=deleted, added=added):
            deletions = (_command("delete", "element", table.name, _elements(each)) for each in deleted)
            return (*deletions, *(_command("add", "element", table.name, _elements(each)) for each in added))
        case ChangeTable():
            return tuple(_change_in_place(change))
        case DeleteTable(name=name):
            return (_table_command("delete", name),)
        case _:
            assert_never(change)


def _change_in_place(change: ChangeTable) -> Iterable[Command]:
    """Rules and the elements of maps come after all chains that they may lead to."""
    table = change.table
    yield _table_command("add", table)
    yield from _delete_chains(table, change.dropped_chains)
    for each in change.new_sets:
        yield _make_set(table, each if each.value_type is None else without_elements(each))
    for chain in change.new_chains:
        yield _command("add", "chain", table, _chain(chain))
    for chain in change.filled_chains:
        yield _command("flush", "chain", table, {"name": chain.name})
    for chain in (*change.new_chains, *change.filled_chains):
        yield from _rules(table, chain)
    for each in change.deleted:
        yield _command("delete", "element", table, _elements(each))
    new_maps = (each for each in change.new_sets if each.value_type is not None and each.elements)
    for each in (*new_maps, *change.added):
        yield _command("add", "element", table, _elements(each))
    unreadable = tuple(each.name for each in change.deleted_objects if each.kind == "chain")
    yield from _delete_chains(table, (*change.deleted_chains, *unreadable))
    for name in change.deleted_sets:
        yield _command("delete", "set", table, {"name": name})
    for each_object in change.deleted_objects:
        if each_object.kind != "chain":
            yield _command("delete", each_object.kind, table, {"name": each_object.name})


def _delete_chains(table: str, names: Iterable[str]) -> Iterable[Command]:
    """Delete their rules first, as they may lead to each other."""
    chains = [{"name": name} for name in names]
    for verb in ("flush", "delete"):
        for each in chains:
            yield _command(verb, "chain", table, each)


def _make_set(table: str, named: NamedSet) -> Command:
    return _command("add", "set" if named.value_type is None else "map", table, _declaration(named))


def _fill(table: PacketTable) -> Iterable[Command]:
    for each in table.sets:
        yield _make_set(table.name, each)
    for chain in table.chains:
        yield _command("add", "chain", table.name, _chain(chain))
    for chain in table.chains:
        yield from _rules(table.name, chain)


def _rules(table: str, chain: Chain) -> Iterable[Command]:
    for rule in chain.rules:
        expressions = [_render_statement(each) for each in rule.statements]
        members = {"chain": chain.name, "comment": rule.mark, "expr": expressions}
        yield _command("add", "rule", table, members)


def _table_command(verb: str, name: str) -> Command:
    return {verb: {"table": {"family": "inet", "name": name}}}


def _command(verb: str, kind: str, table: str, members: Command) -> Command:
    return {verb: {kind: {"family": "inet", "table": table, **members}}}


def _declaration(named: NamedSet) -> Command:
    types = [each.value for each in named.types]
    return {
        "name": named.name,
        "type": types if len(types) > 1 else types[0],
        **({} if named.value_type is None else {"map": named.value_type.value}),
        **({"flags": ["interval"]} if named.is_interval else {}),
        **({"elem": _elements(named)["elem"]} if named.elements else {}),
    }


def _elements(named: NamedSet) -> Command:
    return {
        "name": named.name,
        "elem": [_element(each) for each in _ordered(named)],
    }


def _ordered(named: NamedSet) -> Iterable[Element]:
    """The elements of a set. libnftables takes sorted ones of an interval set in two thirds of the time."""
    return sorted(named.elements, key=_start) if named.is_interval else named.elements


def _start(element: Element) -> int:
    match element.key[0]:
        case Prefix(base=base):
            return base
        case PortRange(first=first):
            return first
        case _:
            return 0


def _element(element: Element) -> object:
    parts = [_part(each) for each in element.key]
    key = {"concat": parts} if len(parts) > 1 else parts[0]
    match element.value:
        case None:
            return key
        case Jump(chain=chain):
            return [key, {"jump": {"target": chain}}]
        case address:
            return [key, str(address)]


def _part(part: Part) -> object:
    match part:
        case Prefix():
            return str(part.first) if part.length == part.family.width else _prefix(part)
        case PortRange(first=first, last=last):
            return first if first == last else {"range": [first, last]}
        case int():
            return part
        case _:
            return str(part)


def _prefix(prefix: Prefix) -> Command:
    address, _, _length = str(prefix).partition("/")  # makes no Address, of thousands
    return {"prefix": {"addr": address, "len": prefix.length}}


def _chain(chain: Chain) -> Command:
    base = chain.base
    if base is None:
        return {"name": chain.name}
    return {
        "name": chain.name,
        "type": base.type.value,
        "hook": base.hook.value,
        "prio": base.priority,
        "policy": base.policy.value,
    }


def _render_statement(statement: Statement) -> Command:
    match statement:
        case Match(left=left, right=right, is_negated=is_negated):
            is_of_bits = isinstance(left, TrackingState) and isinstance(right, tuple)
            operator = "in" if is_of_bits else "!=" if is_negated else "=="
            operand = list(right) if is_of_bits and isinstance(right, tuple) else _operand(right)
            return {"match": {"op": operator, "left": _expression(left), "right": operand}}
        case Jump(chain=chain) | Goto(chain=chain):
            return {"jump" if isinstance(statement, Jump) else "goto": {"target": chain}}
        case JumpByMap(key=key, name=name):
            return {"vmap": {"key": _expression(key), "data": f"@{name}"}}
        case Verdict():
            return {statement.value: None}
        case Masquerade() | SourceNAT() | DestinationNAT():
            return _render_translation(statement)
        case _:
            return _render_report(statement)


def _render_report(statement: Counter | Limit | LogPacket | Reject) -> Command:
    match statement:
        case Counter():
            return {"counter": None}
        case Limit(rate=rate, per=per, burst=burst):
            return {"limit": {"rate": rate, "per": per, "burst": burst}}
        case LogPacket(prefix=prefix):
            return {"log": {"prefix": prefix}}
        case Reject.TCP_RESET:
            return {"reject": {"type": statement.value}}
        case Reject.PROHIBITED:
            return {"reject": {"type": statement.value, "expr": "admin-prohibited"}}
        case _:
            assert_never(statement)


def _render_translation(statement: Masquerade | SourceNAT | DestinationNAT) -> Command:
    match statement:
        case Masquerade(ports=ports):
            return {"masquerade": {**_ports(ports), "flags": ["fully-random"]}}
        case SourceNAT(family=family, to=to, ports=ports):
            if isinstance(to, MapLookup):
                return {"snat": {"family": _IP[family], "addr": _lookup(to)}}
            addressed = {"family": _IP[family], "addr": str(to)}
            return {"snat": {**addressed, **_ports(ports), "flags": ["fully-random"]}}
        case DestinationNAT(family=family, to=to):
            return {"dnat": {"family": _IP[family], "addr": _lookup(to)}}
        case _:
            assert_never(statement)


def _expression(expression: Expression) -> Command:
    match expression:
        case Meta(key=key):
            return {"meta": {"key": key.value}}
        case Payload(protocol=protocol, field=name):
            return {"payload": {"protocol": protocol, "field": name}}
        case Fib(keys=keys):
            return {"fib": {"result": "type", "flags": [key.value for key in keys]}}
        case Concatenation(parts=parts):
            return {"concat": [_expression(part) for part in parts]}
        case TrackingState():
            return {"ct": {"key": "state"}}
        case _:
            assert_never(expression)


def _operand(operand: Operand) -> object:
    match operand:
        case SetReference(name=name):
            return f"@{name}"
        case Prefix() | PortRange():
            return _part(operand)
        case tuple():
            return {"set": list(operand)}
        case _:
            return operand


def _lookup(lookup: MapLookup) -> Command:
    return {"map": {"key": _expression(lookup.key), "data": f"@{lookup.name}"}}


def _ports(ports: PortRange | None) -> Command:
    return {} if ports is None else {"port": {"range": [ports.first, ports.last]}}
