"""A table of nftables as values: what it has in it, how libnftables spells it in JSON, and what has to change.

Rules for NAT and filters make a :class:`PacketTable`; a :class:`RulesetDataplane` reads what the kernel has of it and
makes changes. Chains and rules are static: a table that differs in them is replaced, in one transaction. Sets and maps
are changed in place. What the kernel lists of a rule is not what was sent, so each rule carries a digest of what was
sent, in its comment. ``netplug_core.testing.ruleset_checks`` tests every implementation.

Source: libnftables-json(5), nft(8).
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias, assert_never

from attrs import Factory, evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.resources.fields import PortRange

__all__ = [
    "BaseChain", "Chain", "ChainOutline", "ChainType", "ChangeElements", "Command", "Concatenation", "Connections",
    "DeleteTable", "DestinationNAT", "Element", "ElementType", "Expression", "Fib", "FibKey", "Goto", "Hook",
    "MapLookup", "Masquerade", "Match", "Meta", "MetaKey", "NamedSet", "ObservedTable", "Operand", "PacketTable",
    "Payload", "Policy", "ReplaceTable", "Rule", "RulesetDataplane", "SetReference", "SourceNAT", "Statement",
    "TableChange", "Verdict", "destination_of", "find_change", "render_change", "source_of",
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

    @classmethod
    def address_of(cls, family: Family) -> ElementType:
        """The type of the addresses of a family."""
        return cls.IPV4_ADDRESS if family is Family.IPV4 else cls.IPV6_ADDRESS


Part: TypeAlias = Address | Prefix | str
"""A part of a key: in a set of intervals a prefix, elsewhere an address, or the name of an interface."""


@frozen
class Element:
    """An element of a set, or with a value of a map."""

    key: tuple[Part, ...]
    value: Address | None = None

    def __str__(self) -> str:
        key = " . ".join(map(str, self.key))
        return key if self.value is None else f"{key} : {self.value}"


@frozen(kw_only=True)
class NamedSet:
    """A set, or with ``value_type`` a map; a key with several types is their concatenation.

    ``is_interval``: its keys are prefixes, which do not overlap.
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


Expression: TypeAlias = Meta | Payload | Fib | Concatenation


@frozen
class SetReference:
    """The elements of a set."""

    name: str


Operand: TypeAlias = SetReference | Prefix | int | str | tuple[str, ...]
"""What an expression is compared with; a tuple is a set without a name. A name that ends in ``*`` is a prefix."""


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


Statement: TypeAlias = Match | Goto | Masquerade | SourceNAT | DestinationNAT | Verdict


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
    """A chain; without ``base`` it is entered from other chains."""

    name: str
    base: BaseChain | None = None
    rules: tuple[Rule, ...]

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


@frozen(kw_only=True)
class ObservedTable:
    """What the kernel has of a table. ``unreadable`` names what no table of ours has in it."""

    name: str
    sets: tuple[NamedSet, ...] = ()
    chains: tuple[ChainOutline, ...] = ()
    unreadable: tuple[str, ...] = ()


# --- changes ----------------------------------------------------------------------------------------------------------


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


TableChange: TypeAlias = ReplaceTable | ChangeElements | DeleteTable
"""One transaction: packets see the table of before or that of afterwards."""


class RulesetDataplane(Protocol):
    """Who keeps tables in the packet filter of a node. Any thread may call it."""

    def read(self, name: str) -> ObservedTable | None:
        """What the kernel has of a table; None if it has no such table.

        Raises:
            KernelError: the kernel would not say, or has no packet filter, or no program that reads it is there.
        """
        ...

    def apply(self, change: TableChange) -> None:
        """Make a change, in one transaction. Tables of other names stay as they are.

        Raises:
            KernelError: the kernel refused; nothing is changed.
        """
        ...


class Connections(Protocol):
    """The connections that the kernel of a node tracks. Any thread may call it.

    A connection keeps the translation that its first packet got, whatever the tables say by now.
    """

    def forget(self, destinations: Iterable[Address]) -> int:
        """Forget the connections that were begun to some addresses, before any translation; return how many.

        The next packet of each is translated as the first one of a new connection.

        Raises:
            KernelError: the kernel refused; some may be forgotten.
        """
        ...


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
    return frozenset(evolve(each, elements=frozenset()) for each in sets)


def _with_elements(sets: Iterable[tuple[NamedSet, frozenset[Element]]]) -> tuple[NamedSet, ...]:
    return tuple(evolve(each, elements=elements) for each, elements in sets if elements)


# --- rendering --------------------------------------------------------------------------------------------------------


def render_change(change: TableChange) -> tuple[Command, ...]:
    """The commands of a change, which belong into one transaction."""
    match change:
        case ReplaceTable(table=table):
            return tuple(_replace(table))
        case ChangeElements(table=table, deleted=deleted, added=added):
            deletions = (_command("delete", "element", table.name, _elements(each)) for each in deleted)
            return (*deletions, *(_command("add", "element", table.name, _elements(each)) for each in added))
        case DeleteTable(name=name):
            return (_table_command("delete", name),)
        case _:
            assert_never(change)


def _replace(table: PacketTable) -> Iterable[Command]:
    """Delete the table, which the first command makes if there is none, and make it anew."""
    yield from (_table_command(verb, table.name) for verb in ("add", "delete", "add"))
    for each in table.sets:
        yield _command("add", "set" if each.value_type is None else "map", table.name, _declaration(each))
    for chain in table.chains:
        yield _command("add", "chain", table.name, _chain(chain))
    for chain in table.chains:
        for rule in chain.rules:
            expressions = [_render_statement(each) for each in rule.statements]
            members = {"chain": chain.name, "comment": rule.mark, "expr": expressions}
            yield _command("add", "rule", table.name, members)


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
        "elem": [_element(each) for each in named.elements],
    }  # in any order, as the kernel sorts


def _element(element: Element) -> object:
    parts = [_part(each) for each in element.key]
    key = {"concat": parts} if len(parts) > 1 else parts[0]
    return key if element.value is None else [key, str(element.value)]


def _part(part: Part) -> object:
    if isinstance(part, Prefix):
        return str(part.first) if part.size == 1 else _prefix(part)
    return str(part)


def _prefix(prefix: Prefix) -> Command:
    return {"prefix": {"addr": str(prefix.first), "len": prefix.length}}


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
            operator = "!=" if is_negated else "=="
            return {"match": {"op": operator, "left": _expression(left), "right": _operand(right)}}
        case Goto(chain=chain):
            return {"goto": {"target": chain}}
        case Verdict():
            return {statement.value: None}
        case _:
            return _render_translation(statement)


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
        case _:
            assert_never(expression)


def _operand(operand: Operand) -> object:
    match operand:
        case SetReference(name=name):
            return f"@{name}"
        case Prefix():
            return _part(operand)
        case tuple():
            return {"set": list(operand)}
        case _:
            return operand


def _lookup(lookup: MapLookup) -> Command:
    return {"map": {"key": _expression(lookup.key), "data": f"@{lookup.name}"}}


def _ports(ports: PortRange | None) -> Command:
    return {} if ports is None else {"port": {"range": [ports.first, ports.last]}}
