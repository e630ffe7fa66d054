"""How a table changes in place while packets pass: as transactions that create, switch and delete.

One transaction is not enough. The kernel switches the contents of chains one by one, and after them the elements of
sets, so that a packet may see new rules with old elements, or one chain new and another one old. Therefore everything
new is made first, and nothing refers to it; then what exists changes; then what nothing refers to any more is deleted.

No packet passes in between that neither the table of before nor the one of afterwards lets pass:

- Where chains and the elements of sets change together, what closes comes first and what opens comes last.
- A chain that others jump to gets its new rules under another name, unless it is sure that a mixture of old and new
  chains opens nothing. Each chain that jumps to it changes in one step.

:class:`TableTracker` knows what the kernel has, and finds the transactions. Chains are compared by the digests in their
comments, sets by their elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from attrs import define, evolve, field, frozen

from netplug_core.dataplane.ruleset import (
    Chain,
    ChainOutline,
    ChangeTable,
    Element,
    Goto,
    Jump,
    JumpByMap,
    Match,
    NamedSet,
    ObservedTable,
    PacketTable,
    Phase,
    Reject,
    ReplaceTable,
    Rule,
    SetReference,
    Statement,
    TrackingState,
    UnreadableObject,
    Verdict,
    without_elements,
)

__all__ = ["TableDifference", "TableTracker", "find_differences", "find_phases"]

_NUMBERS = range(1, 10)
_MAX_SHOWN = 5  # elements of a set, in a text
_CLOSED = (
    Rule(
        (Match(TrackingState(), ("invalid", "new", "untracked")), Verdict.DROP),
        "until the elements of sets have changed",
    ),
)


def find_phases(wanted: PacketTable, observed: ObservedTable | None) -> tuple[ChangeTable | ReplaceTable, ...]:
    """The transactions that make a table as it is wanted, in their order; none if it is so."""
    tracker = TableTracker(wanted.name)
    tracker.observe(observed)
    return tracker.plan(wanted)


@frozen(order=True)
class TableDifference:
    """A part of a table, and in what it is not as it is wanted."""

    part: str
    difference: str


def find_differences(wanted: PacketTable, observed: ObservedTable | None) -> tuple[TableDifference, ...]:
    """In what the kernel's table is not as it is wanted, for people; none if it is so.

    Where a chain that others jump to has other rules, these are named too.
    """
    if observed is None:
        return (TableDifference(f"table {wanted.name}", "is missing"),)
    found: dict[TableDifference, None] = {}
    for change in find_phases(wanted, observed):
        if isinstance(change, ReplaceTable):
            return (TableDifference(f"table {wanted.name}", "has parts that cannot be changed in place"),)
        found.update(dict.fromkeys(_differences_of(change, wanted, observed)))
    return tuple(sorted(found))


def _differences_of(change: ChangeTable, wanted: PacketTable, observed: ObservedTable) -> Iterator[TableDifference]:
    known = {each.name for each in observed.chains}
    plain = {variant: each.name for each in wanted.chains for variant in _variants(each.name)}
    for chain in (*change.new_chains, *change.filled_chains):
        name = plain[chain.name]
        if chain.rules != _CLOSED:
            yield TableDifference(
                f"chain {name}", "has other rules" if known.intersection(_variants(name)) else "is missing"
            )
    for each in change.new_sets:
        yield TableDifference(f"set {each.name}", "is missing")
    for parts, text in ((change.added, "lacks elements"), (change.deleted, "has elements too many")):
        for each in parts:
            shown = sorted(map(str, each.elements))[:_MAX_SHOWN]
            yield TableDifference(f"set {each.name}", f"{text}: {', '.join(shown)}")
    for name in change.deleted_chains:
        if name not in plain:
            yield TableDifference(f"chain {name}", "is left over")
    for name in change.deleted_sets:
        yield TableDifference(f"set {name}", "is left over")
    for one in change.deleted_objects:
        yield TableDifference(f"{one.kind} {one.name}", "is left over")


@frozen
class _Known:
    """What the kernel lists of a chain, and the chain itself if this process has made it."""

    outline: ChainOutline
    chain: Chain | None = None

    def is_same(self, wanted: Chain) -> bool:
        return self.chain is wanted or self.outline == wanted.outline


@define(eq=False)
class TableTracker:
    """What the kernel has of a table.

    Who uses it notes each change that the kernel has made, and observes again if another program may have changed the
    table, or if a change has failed.
    ``_former`` are the chains that were wanted last, by the names that they were wanted by; they are known only as long
    as no other program has changed the table. ``_names`` are the names of chains that have another one in the kernel.
    """

    name: str
    _exists: bool = field(default=False, init=False)
    _sets: dict[str, NamedSet] = field(factory=dict, init=False)
    _chains: dict[str, _Known] = field(factory=dict, init=False)
    _unreadable: tuple[UnreadableObject, ...] = field(default=(), init=False)
    _former: dict[str, Chain] | None = field(default=None, init=False)
    _wanted: dict[str, Chain] = field(factory=dict, init=False)
    _names: dict[str, str] = field(factory=dict, init=False)
    _left: list[ChangeTable | ReplaceTable] = field(factory=list, init=False)

    @property
    def exists(self) -> bool:
        """Whether the kernel has the table."""
        return self._exists

    @property
    def sets(self) -> Mapping[str, NamedSet]:
        """The sets that the kernel has, by name."""
        return self._sets

    def observe(self, observed: ObservedTable | None) -> None:
        """Take what was read; whatever was known is forgotten, unless it is the same."""
        chains = {} if observed is None else {each.name: each for each in observed.chains}
        is_same = self._exists is (observed is not None) and chains == {
            name: known.outline for name, known in self._chains.items()
        }
        if not is_same or self._left:
            self._former = None
            self._chains = {name: _Known(outline) for name, outline in chains.items()}
        self._exists, self._left = observed is not None, []
        sets = () if observed is None else observed.sets
        self._sets = {each.name: self._known_set(each) for each in sets}
        self._unreadable = () if observed is None else observed.unreadable

    def _known_set(self, observed: NamedSet) -> NamedSet:
        """The same value as before where it is equal, so that it is compared fast."""
        known = self._sets.get(observed.name)
        return known if known == observed and known is not None else observed

    def plan(self, wanted: PacketTable) -> tuple[ChangeTable | ReplaceTable, ...]:
        """The transactions that lead to a table, in their order; each is noted when it is done."""
        if self._left:
            self._former = None
        chains = {chain.name: chain for chain in wanted.chains}
        names = self._settle_names(chains)
        settled = tuple(_renamed(chain, names) for chain in wanted.chains) if names else wanted.chains
        self._names, self._wanted = names, chains
        changes = self._find_changes(PacketTable(name=wanted.name, sets=wanted.sets, chains=settled))
        self._left = [each for each in changes if isinstance(each, ReplaceTable) or not each.is_empty]
        if not self._left:
            self._former = chains
        return tuple(self._left)

    def note(self, change: ChangeTable | ReplaceTable) -> None:
        """The kernel has made a change; those of a plan are noted in their order."""
        if isinstance(change, ReplaceTable):
            self._sets, self._chains, self._unreadable = {}, {}, ()
            self._note_chains(change.table.chains)
            self._sets = {each.name: each for each in change.table.sets}
        else:
            self._note_change(change)
        self._exists = True
        self._left = self._left[1:] if self._left and self._left[0] is change else self._left
        if not self._left:
            self._former = self._wanted

    def _note_change(self, change: ChangeTable) -> None:
        self._note_chains((*change.new_chains, *change.filled_chains))
        self._sets.update((each.name, each) for each in change.new_sets)
        for part in change.deleted:
            held = self._sets[part.name]
            self._sets[part.name] = evolve(held, elements=held.elements - part.elements)
        for part in change.added:
            held = self._sets[part.name]
            self._sets[part.name] = evolve(held, elements=held.elements | part.elements)
        for name in change.deleted_chains:
            del self._chains[name]
        for name in change.deleted_sets:
            del self._sets[name]
        self._unreadable = tuple(each for each in self._unreadable if each not in change.deleted_objects)

    def _note_chains(self, chains: Iterable[Chain]) -> None:
        self._chains.update((each.name, _Known(each.outline, each)) for each in chains)

    # --- names ------------------------------------------------------------------------------------------------------

    def _settle_names(self, wanted: Mapping[str, Chain]) -> dict[str, str]:
        """The names in the kernel of the chains that others jump to, where they are not those that are wanted."""
        users = _find_users(wanted.values())
        shared = [name for name in users if name in wanted and _is_leaf(wanted[name])]
        names: dict[str, str] = {}
        changed: list[str] = []
        for name in shared:
            found = self._variants_of(name)
            current = self._names.get(name, name)
            if not found:
                continue
            same = [each for each in found if self._has_rules_of(each, wanted[name])]
            if same:
                names[name] = current if current in same else same[0]
            else:
                names[name] = current if current in found else found[0]
                changed.append(name)
        for name in self._find_unsafe(changed, wanted, users):
            names[name] = next(each for each in _variants(name) if each not in self._chains)
        return {name: actual for name, actual in names.items() if name != actual}

    def _variants_of(self, name: str) -> tuple[str, ...]:
        """The chains that the kernel has of those that may be wanted by a name."""
        return tuple(each for each in _variants(name) if each in self._chains)

    def _has_rules_of(self, name: str, wanted: Chain) -> bool:
        known = self._chains[name]
        if known.chain is wanted:
            return True
        return known.outline.base is None and known.outline.marks == tuple(rule.mark for rule in wanted.rules)

    def _find_unsafe(
        self, changed: Iterable[str], wanted: Mapping[str, Chain], users: Mapping[str, frozenset[str]]
    ) -> Iterator[str]:
        """Those of the changed chains that may not change in place."""
        former, names = self._former, frozenset(changed)
        if not names:
            return
        if former is None:
            yield from sorted(names)
            return
        former_users = _find_users(former.values())
        denying = {name for name in names if _may_deny(former, name) or _may_deny(wanted, name)}
        unsafe: set[str] = set()
        for user in {each for name in names for each in users[name] | former_users.get(name, frozenset())}:
            before, after = former.get(user), wanted.get(user)
            if before is None or after is None:
                continue  # a new one is not reached before the switch, and one that goes is no longer reached by then
            used = names & (before.jumps | after.jumps)
            if before != after or (len(used) > 1 and used & denying):
                unsafe |= used
        yield from sorted(unsafe)

    # --- changes ----------------------------------------------------------------------------------------------------

    def _find_changes(self, wanted: PacketTable) -> tuple[ChangeTable | ReplaceTable, ...]:
        unreadable = {each.name for each in self._unreadable}
        sets = {each.name: each for each in wanted.sets}
        chains = {each.name: each for each in wanted.chains}
        if unreadable & (sets.keys() | chains.keys()) or any(map(self._is_other_set, wanted.sets)):
            return (ReplaceTable(wanted),)
        table = wanted.name
        create = ChangeTable(
            phase=Phase.CREATE,
            table=table,
            new_sets=tuple(each for each in wanted.sets if each.name not in self._sets),
            new_chains=tuple(each for each in wanted.chains if each.base is None and each.name not in self._chains),
        )
        delete = ChangeTable(
            phase=Phase.DELETE,
            table=table,
            deleted_chains=tuple(name for name in self._chains if name not in chains),
            deleted_sets=tuple(name for name in self._sets if name not in sets),
            deleted_objects=self._unreadable,
        )
        return (create, *self._switch(wanted), delete)

    def _is_other_set(self, wanted: NamedSet) -> bool:
        known = self._sets.get(wanted.name)
        return known is not None and known is not wanted and without_elements(known) != without_elements(wanted)

    def _switch(self, wanted: PacketTable) -> tuple[ChangeTable, ...]:
        """What changes in place: one transaction, or up to three if chains and elements have to change in an order."""
        base_chains = [chain for chain in wanted.chains if chain.base is not None]
        dropped = [
            each.name
            for each in base_chains
            if each.name in self._chains and self._chains[each.name].outline.base != each.base
        ]
        made = [each for each in base_chains if each.name in dropped or each.name not in self._chains]
        filled = [
            chain
            for chain in wanted.chains
            if chain not in made and chain.name in self._chains and not self._chains[chain.name].is_same(chain)
        ]
        deleted, added = self._find_elements(wanted.sets)
        whole = ChangeTable(
            phase=Phase.SWITCH,
            table=wanted.name,
            dropped_chains=tuple(dropped),
            new_chains=tuple(made),
            filled_chains=tuple(filled),
            deleted=deleted,
            added=added,
        )
        if not filled or (len(filled) == 1 and not deleted and not added):
            return (whole,)
        effects = _find_effects(wanted, self._former)
        return _in_order(whole, effects, self._find_gated(whole, wanted, effects))

    def _find_gated(self, whole: ChangeTable, wanted: PacketTable, effects: _Effects) -> frozenset[str]:
        """The chains that let nothing pass until elements have changed that open for some packets and close for others.

        They are those that a packet may meet which is looked up there. Where the rules of before are not known, they
        are all that change.
        """
        mixed = frozenset(each.name for each in (*whole.deleted, *whole.added) if effects.is_mixed(each.name))
        changing = frozenset(each.name for each in whole.filled_chains if each.base is None)
        if not mixed or self._former is None:
            return changing if mixed else frozenset()
        targets: dict[str, frozenset[str]] = {}
        for named in (*self._sets.values(), *wanted.sets):
            found = (each.value.chain for each in named.elements if isinstance(each.value, Jump))
            targets[named.name] = targets.get(named.name, frozenset()).union(found)
        met: set[str] = set()
        for chains in (self._former, {each.name: each for each in wanted.chains}):
            met |= _Ways(chains, targets).find_met(mixed)
        # The kernel may have a chain under a variant of its name, with a number.
        return frozenset(name for name in changing if name in met or name.rpartition("-")[0] in met)

    def _find_elements(self, wanted: Iterable[NamedSet]) -> tuple[tuple[NamedSet, ...], tuple[NamedSet, ...]]:
        """What sets that exist lose and get; an element of a map with another value is both."""
        deleted: list[NamedSet] = []
        added: list[NamedSet] = []
        for each in wanted:
            known = self._sets.get(each.name)
            if known is None or known is each or known.elements == each.elements:
                continue
            deleted += _with_elements(each, known.elements - each.elements)
            added += _with_elements(each, each.elements - known.elements)
        return tuple(deleted), tuple(added)


def _with_elements(named: NamedSet, elements: frozenset[Element]) -> tuple[NamedSet, ...]:
    return (evolve(named, elements=elements),) if elements else ()


# --- chains that others jump to ---------------------------------------------------------------------------------------


def _find_users(chains: Iterable[Chain]) -> dict[str, frozenset[str]]:
    """The chains that jump to a chain, by its name."""
    found: dict[str, set[str]] = {}
    for chain in chains:
        for target in chain.jumps:
            found.setdefault(target, set()).add(chain.name)
    return {name: frozenset(users) for name, users in found.items()}


def _is_leaf(chain: Chain) -> bool:
    return chain.base is None and not chain.jumps


def _may_deny(chains: Mapping[str, Chain], name: str) -> bool:
    """Whether a rule of a chain denies, by itself or by a chain that it ends in."""
    rules = chains[name].rules if name in chains else ()
    return any(_ends_in_denial(rule, chains) for rule in rules)


def _is_denial(chain: Chain) -> bool:
    """Whether a packet that enters a chain is denied in it, whatever it is."""
    is_for_all = bool(chain.rules) and not any(isinstance(each, Match) for each in chain.rules[-1].statements)
    return is_for_all and all(_denies(rule.statements[-1]) for rule in chain.rules)


def _denies(statement: Statement) -> bool:
    return statement is Verdict.DROP or isinstance(statement, Reject)


def _ends_in_denial(rule: Rule, chains: Mapping[str, Chain]) -> bool:
    last = rule.statements[-1]
    if isinstance(last, Goto):
        target = chains.get(last.chain)
        return target is not None and _is_denial(target)
    return _denies(last)


def _variants(name: str) -> Iterator[str]:
    """The names in the kernel that a chain may have, the plain one first."""
    yield name
    yield from (f"{name}-{number}" for number in _NUMBERS)


def _renamed(chain: Chain, names: Mapping[str, str]) -> Chain:
    """A chain under its name in the kernel, with jumps to the names in the kernel."""
    name = names.get(chain.name, chain.name)
    if name == chain.name and names.keys().isdisjoint(chain.jumps):
        return chain
    return Chain(name=name, base=chain.base, rules=tuple(_renamed_rule(rule, names) for rule in chain.rules))


def _renamed_rule(rule: Rule, names: Mapping[str, str]) -> Rule:
    statements = tuple(
        Jump(names.get(each.chain, each.chain)) if isinstance(each, Jump) else each for each in rule.statements
    )
    return rule if statements == rule.statements else Rule(statements, rule.comment)


# --- the order of a switch --------------------------------------------------------------------------------------------


@frozen
class _Effects:
    """Which sets let packets pass that are in them, and which keep such packets from passing; some do both.

    ``opening`` None: the rules of before are not known, so any set may do both.
    """

    opening: frozenset[str] | None
    closing: frozenset[str]

    def is_mixed(self, name: str) -> bool:
        return not self.is_only_opening(name) and not self.is_only_closing(name)

    def is_only_opening(self, name: str) -> bool:
        return self.opening is not None and name not in self.closing

    def is_only_closing(self, name: str) -> bool:
        return self.opening is not None and name in self.closing and name not in self.opening


def _find_effects(wanted: PacketTable, former: Mapping[str, Chain] | None) -> _Effects:
    if former is None:
        return _Effects(None, frozenset())
    opening: set[str] = set()
    closing: set[str] = set()
    chains = {chain.name: chain for chain in wanted.chains}
    for known in (chains, former):
        for chain in known.values():
            for rule in chain.rules:
                is_denial = _ends_in_denial(rule, known)
                for name, is_negated in _sets_of(rule):
                    (closing if is_denial is not is_negated else opening).add(name)
            opening |= _maps_of(chain)
            closing |= _maps_of(chain) - _guarded_maps_of(chain, known)
    return _Effects(frozenset(opening), frozenset(closing))


def _sets_of(rule: Rule) -> Iterator[tuple[str, bool]]:
    for each in rule.statements:
        if isinstance(each, Match) and isinstance(each.right, SetReference):
            yield each.right.name, each.is_negated


def _maps_of(chain: Chain) -> frozenset[str]:
    return frozenset(name for rule in chain.rules for name in _map_of(rule))


def _map_of(rule: Rule) -> tuple[str, ...]:
    last = rule.statements[-1]
    return (last.name,) if isinstance(last, JumpByMap) else ()


def _guarded_maps_of(chain: Chain, chains: Mapping[str, Chain]) -> frozenset[str]:
    """The maps after whose lookups a packet is denied, if there is no element for it."""
    found: set[str] = set()
    is_denied = False
    for rule in reversed(chain.rules):
        if _map_of(rule):
            found.update(_map_of(rule) if is_denied else ())
        else:
            is_denied = _ends_in_denial(rule, chains)
    return frozenset(found)


@define(eq=False)
class _Ways:
    """Which chains a packet may meet, by the chains of a table and the targets of its maps."""

    chains: Mapping[str, Chain]
    targets: Mapping[str, frozenset[str]]
    _below: dict[str, frozenset[str]] = field(factory=dict, init=False)

    def find_met(self, sets: frozenset[str]) -> frozenset[str]:
        """The chains that a packet may meet which is looked up in one of some sets: before, there, and after it.

        A packet that has gone to another chain does not come back, so it is not looked up in what follows.
        """
        met: set[str] = set()
        waiting = [
            (name, at, True)
            for name, chain in self.chains.items()
            for at, rule in enumerate(chain.rules)
            if not sets.isdisjoint((*_map_of(rule), *(each for each, _ in _sets_of(rule))))
        ]
        seen = set(waiting)
        while waiting:
            name, at, goes_on = waiting.pop()
            met |= self._met_at(name, at, goes_on=goes_on)
            found = [each for each in self._callers(name) if each not in seen]
            seen.update(found)
            waiting += found
        return frozenset(met)

    def _met_at(self, name: str, at: int, *, goes_on: bool) -> set[str]:
        rules = self.chains[name].rules
        met = {name}
        for number, rule in enumerate(rules if goes_on else rules[: at + 1]):
            if number >= at or not isinstance(rule.statements[-1], Goto):
                met.update(*map(self._reach, self._targets_of(rule)))
        return met

    def _callers(self, name: str) -> Iterator[tuple[str, int, bool]]:
        """The rules that lead to a chain, and whether a packet comes back to them."""
        for caller, chain in self.chains.items():
            for at, rule in enumerate(chain.rules):
                if name in self._targets_of(rule):
                    yield caller, at, not isinstance(rule.statements[-1], Goto)

    def _targets_of(self, rule: Rule) -> frozenset[str]:
        last = rule.statements[-1]
        if isinstance(last, Jump | Goto):
            return frozenset((last.chain,))
        return self.targets.get(last.name, frozenset()) if isinstance(last, JumpByMap) else frozenset()

    def _reach(self, name: str) -> frozenset[str]:
        """A chain, and all that can be reached from it."""
        known = self._below.get(name)
        if known is None:
            self._below[name] = frozenset((name,))  # chains lead to no chain that leads to them
            rules = self.chains[name].rules if name in self.chains else ()
            found = (self._reach(each) for rule in rules for each in self._targets_of(rule))
            known = self._below[name] = frozenset((name,)).union(*found)
        return known


def _in_order(whole: ChangeTable, effects: _Effects, gated: frozenset[str]) -> tuple[ChangeTable, ...]:
    """A switch as three transactions: what closes, chains, what opens.

    Where a set opens and closes, the chains of ``gated`` let nothing pass until its elements have changed.
    """
    closers = tuple(each for each in whole.filled_chains if _is_denial(each))
    openers = tuple(
        each for each in whole.filled_chains if all(rule.statements == (Verdict.ACCEPT,) for rule in each.rules)
    )
    others = tuple(each for each in whole.filled_chains if each not in closers and each not in openers)
    gates = (evolve(each, rules=_CLOSED) for each in (*others, *openers) if each.name in gated)
    first = ChangeTable(
        phase=Phase.SWITCH,
        table=whole.table,
        filled_chains=(*closers, *gates),
        deleted=tuple(each for each in whole.deleted if not effects.is_only_closing(each.name)),
        added=tuple(each for each in whole.added if not effects.is_only_opening(each.name)),
    )
    second = evolve(whole, filled_chains=others, deleted=(), added=())
    third = ChangeTable(
        phase=Phase.SWITCH,
        table=whole.table,
        filled_chains=openers,
        deleted=tuple(each for each in whole.deleted if effects.is_only_closing(each.name)),
        added=tuple(each for each in whole.added if effects.is_only_opening(each.name)),
    )
    return (first, second, third)
