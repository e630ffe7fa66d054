"""The packet filter of a node in memory. It refuses what the kernel refuses, and then changes nothing.

Nothing is filtered: what the rules do to packets is tested on a real kernel. A test changes tables by hand, as other
programs would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from threading import Lock

from attrs import define, evolve, field

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.ruleset import (
    Chain,
    ChainType,
    ChangeElements,
    DeleteTable,
    DestinationNAT,
    Element,
    ElementType,
    Goto,
    Hook,
    MapLookup,
    Masquerade,
    Match,
    Meta,
    MetaKey,
    NamedSet,
    ObservedTable,
    PacketTable,
    ReplaceTable,
    SetReference,
    SourceNAT,
    Statement,
    TableChange,
)

__all__ = ["MemoryConnections", "MemoryRuleset"]

_MISSING, _EXISTS = "No such file or directory", "File exists"
_NOT_SUPPORTED, _WRONG_TYPE, _OVERLAP = "Operation not supported", "datatype mismatch", "conflicting intervals"
_SOURCE_HOOKS, _DESTINATION_HOOKS = {Hook.POSTROUTING, Hook.INPUT}, {Hook.PREROUTING, Hook.OUTPUT}
_TRANSPORT = Meta(MetaKey.TRANSPORT)
_FAMILIES = {ElementType.IPV4_ADDRESS: Family.IPV4, ElementType.IPV6_ADDRESS: Family.IPV6}


@define(eq=False)
class MemoryRuleset:
    """See :class:`~netplug_core.dataplane.ruleset.RulesetDataplane`. ``changes`` are those that were made."""

    changes: list[TableChange] = field(factory=list, init=False)
    _tables: dict[str, ObservedTable] = field(factory=dict, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def read(self, name: str) -> ObservedTable | None:
        """The table as it is."""
        return self._tables.get(name)

    def apply(self, change: TableChange) -> None:
        """Make a change, or refuse it as a whole."""
        with self._lock:
            match change:
                case ReplaceTable(table=table):
                    _check_table(table)
                    outlines = tuple(chain.outline for chain in table.chains)
                    self._tables[table.name] = ObservedTable(name=table.name, sets=table.sets, chains=outlines)
                case ChangeElements():
                    observed = self._find(change.table.name)
                    self._tables[observed.name] = _change_elements(observed, change)
                case DeleteTable(name=name):
                    del self._tables[self._find(name).name]
            self.changes.append(change)

    def _find(self, name: str) -> ObservedTable:
        if name not in self._tables:
            raise _refusal(_MISSING)
        return self._tables[name]

    # --- what others do --------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Delete all tables."""
        self._tables.clear()

    def add_rule(self, name: str, chain: str, *, is_first: bool = False) -> None:
        """Add a rule without a comment to a chain, at its end or at its beginning."""
        marks = self._marks(name, chain)
        self._set_marks(name, chain, ("", *marks) if is_first else (*marks, ""))

    def clear_chain(self, name: str, chain: str) -> None:
        """Delete the rules of a chain."""
        self._set_marks(name, chain, ())

    def add_unreadable(self, name: str, what: str) -> None:
        """Add something that no table of ours has."""
        self._tables[name] = evolve(self._find(name), unreadable=(what,))

    def _marks(self, name: str, chain: str) -> tuple[str, ...]:
        return next(each.marks for each in self._find(name).chains if each.name == chain)

    def _set_marks(self, name: str, chain: str, marks: tuple[str, ...]) -> None:
        table = self._find(name)
        chains = (evolve(each, marks=marks) if each.name == chain else each for each in table.chains)
        self._tables[name] = evolve(table, chains=tuple(chains))


@define(eq=False)
class MemoryConnections:
    """See :class:`~netplug_core.dataplane.ruleset.Connections`. ``begun`` are the addresses they were begun to."""

    begun: list[Address] = field(factory=list)

    def forget(self, destinations: Iterable[Address]) -> int:
        """Forget those to the addresses."""
        forgotten = frozenset(destinations)
        before = len(self.begun)
        self.begun[:] = [each for each in self.begun if each not in forgotten]
        return before - len(self.begun)


def _change_elements(observed: ObservedTable, change: ChangeElements) -> ObservedTable:
    sets = {each.name: each for each in observed.sets}
    for part in (*change.deleted, *change.added):
        if part.name not in sets:
            raise _refusal(_MISSING)
    for deleted in change.deleted:
        held = sets[deleted.name]
        if deleted.elements - held.elements:
            raise _refusal(_MISSING)
        sets[deleted.name] = evolve(held, elements=held.elements - deleted.elements)
    for added in change.added:
        held = sets[added.name]
        sets[added.name] = evolve(held, elements=held.elements | added.elements)
        _check_elements(sets[added.name])
    return evolve(observed, sets=tuple(sets.values()))


# --- what is refused --------------------------------------------------------------------------------------------------


def _check_table(table: PacketTable) -> None:
    for names in ([each.name for each in table.sets], [each.name for each in table.chains]):
        if len(names) != len(set(names)):
            raise _refusal(_EXISTS)
    for each in table.sets:
        _check_elements(each)
    for chain in table.chains:
        for rule in chain.rules:
            for position, statement in enumerate(rule.statements):
                _check_statement(table, chain, statement)
                _check_ports(statement, rule.statements[:position])


def _check_elements(named: NamedSet) -> None:
    for each in named.elements:
        _check_key(named, each)
        if (each.value is None) != (named.value_type is None):
            raise _refusal(_WRONG_TYPE)
        if each.value is not None and _FAMILIES.get(named.value_type or named.types[0]) is not each.value.family:
            raise _refusal(_WRONG_TYPE)
    if len({each.key for each in named.elements}) != len(named.elements):
        raise _refusal(_EXISTS)
    if named.is_interval:
        prefixes = sorted(_first_prefixes(named.elements), key=lambda prefix: (int(prefix.first), prefix.length))
        if any(one.overlaps(following) for one, following in pairwise(prefixes)):
            raise _refusal(_OVERLAP)


def _first_prefixes(elements: Iterable[Element]) -> Iterator[Prefix]:
    return (part for each in elements for part in each.key if isinstance(part, Prefix))


def _check_key(named: NamedSet, element: Element) -> None:
    if len(element.key) != len(named.types):
        raise _refusal(_WRONG_TYPE)
    for part, kind in zip(element.key, named.types, strict=True):
        if isinstance(part, str):
            is_right = kind is ElementType.INTERFACE_NAME
        else:
            is_right = part.family is _FAMILIES.get(kind) and isinstance(part, Prefix) is named.is_interval
        if not is_right:
            raise _refusal(_WRONG_TYPE)


def _check_statement(table: PacketTable, chain: Chain, statement: Statement) -> None:
    match statement:
        case Match(right=SetReference(name=name)):
            _require_set(table, name, is_map=False)
        case Goto(chain=target):
            if all(each.name != target or each.base is not None for each in table.chains):
                raise _refusal(_MISSING)
        case Masquerade():
            _require_nat(chain, {Hook.POSTROUTING})
        case SourceNAT(to=to):
            _require_nat(chain, _SOURCE_HOOKS)
            if isinstance(to, MapLookup):
                _require_set(table, to.name, is_map=True)
        case DestinationNAT(to=to):
            _require_nat(chain, _DESTINATION_HOOKS)
            _require_set(table, to.name, is_map=True)
        case _:
            pass


def _check_ports(statement: Statement, before: tuple[Statement, ...]) -> None:
    has_ports = isinstance(statement, Masquerade | SourceNAT) and statement.ports is not None
    if has_ports and all(not isinstance(each, Match) or each.left != _TRANSPORT for each in before):
        raise _refusal("transport protocol mapping is only valid after transport protocol match")


def _require_set(table: PacketTable, name: str, *, is_map: bool) -> None:
    if all(each.name != name or (each.value_type is not None) != is_map for each in table.sets):
        raise _refusal(_MISSING)


def _require_nat(chain: Chain, hooks: set[Hook]) -> None:
    if chain.base is None or chain.base.type is not ChainType.NAT or chain.base.hook not in hooks:
        raise _refusal(_NOT_SUPPORTED)


def _refusal(reason: str) -> KernelError:
    return KernelError("programming the packet filter", reason)
