"""What every packet filter must do with its tables, as checks that run against any implementation.

Each check takes a fresh :class:`RulesetHarness`. A test module needs three lines::

    @pytest.mark.parametrize("check", RULESET_CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check: RulesetCheck, harness: RulesetHarness) -> None:
        check(harness)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol, TypeAlias

from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.packetfilter import ForeignChange, RulesetDataplane, RulesetEvents
from netplug_core.dataplane.phases import TableTracker, find_phases
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.ruleset import (
    BaseChain,
    Chain,
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
    Fib,
    FibKey,
    Goto,
    Hook,
    Jump,
    JumpByMap,
    Limit,
    LogPacket,
    MapLookup,
    Masquerade,
    Match,
    Meta,
    MetaKey,
    NamedSet,
    PacketTable,
    Payload,
    Phase,
    Reject,
    ReplaceTable,
    Rule,
    SetReference,
    SourceNAT,
    TableChange,
    TrackingState,
    Verdict,
    destination_of,
    find_change,
    source_of,
)
from netplug_core.resources.fields import PortRange
from netplug_core.testing.assertions import expect, expect_refused, expect_same

__all__ = ["RULESET_CHECKS", "TABLE", "RulesetCheck", "RulesetHarness", "policy_table", "sample_table"]

TABLE = "netplug_check"
_LONG_S = 60.0  # for what comes at once


class RulesetHarness(Protocol):
    """A packet filter under test, which has no tables, and what other programs do to it: all of it is done by nft."""

    @property
    def ruleset(self) -> RulesetDataplane:
        """The packet filter under test."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock by which events are waited for."""
        ...

    def open_events(self) -> AbstractContextManager[RulesetEvents]:
        """Notifications of what other programs do from now on."""
        ...

    def flush(self) -> None:
        """Delete all tables."""
        ...

    def add_rule(self, name: str, chain: str, *, is_first: bool = False) -> None:
        """Add a rule without a comment, which accepts all packets, at the end or at the beginning of a chain."""
        ...

    def clear_chain(self, name: str, chain: str) -> None:
        """Delete the rules of a chain."""
        ...

    def add_unreadable(self, name: str, what: str) -> None:
        """Add a counter of that name to a table."""
        ...


RulesetCheck: TypeAlias = Callable[[RulesetHarness], None]
"""One rule for packet filters; raises AssertionError if one breaks it."""


# --- what the checks make ---------------------------------------------------------------------------------------------


def _prefix_set(name: str, *texts: str) -> NamedSet:
    prefixes = tuple(Prefix.parse(text) for text in texts)
    family = prefixes[0].family if prefixes else Family.IPV4
    elements = frozenset(Element((prefix,)) for prefix in prefixes)
    return NamedSet(name=name, types=(ElementType.address_of(family),), is_interval=True, elements=elements)


def _map(name: str, *pairs: tuple[str, str]) -> NamedSet:
    elements = frozenset(Element((Address.parse(key),), Address.parse(value)) for key, value in pairs)
    kind = ElementType.IPV4_ADDRESS
    return NamedSet(name=name, types=(kind,), value_type=kind, elements=elements)


def _sets() -> tuple[NamedSet, ...]:
    v6, hairpin = ElementType.IPV6_ADDRESS, (Address.parse("fd00::5"), Address.parse("fd00::5"))
    return (
        _prefix_set("pools4", "10.0.0.0/24", "10.0.1.0/24", "10.2.0.7/32"),
        _prefix_set("pools6", "fd00::/64", "fd01::9/128"),
        NamedSet(
            name="nodes4",
            types=(ElementType.IPV4_ADDRESS,),
            elements=frozenset({Element((Address.parse("192.0.2.1"),))}),
        ),
        NamedSet(
            name="tunnels", types=(ElementType.INTERFACE_NAME,), elements=frozenset({Element(("vxlan.netplug",))})
        ),
        _map("floating4", ("203.0.113.1", "10.0.0.5"), ("203.0.113.2", "10.0.0.6")),
        NamedSet(
            name="hairpin6",
            types=(v6, v6),
            value_type=v6,
            elements=frozenset({Element(hairpin, Address.parse("2001:db8::7"))}),
        ),
    )


def _nat_rules() -> tuple[Rule, ...]:
    from_pools = Match(source_of(Family.IPV4), SetReference("pools4"))
    to_others = Match(destination_of(Family.IPV4), SetReference("pools4"), is_negated=True)
    out = Meta(MetaKey.OUTPUT_INTERFACE)
    transports = Match(Meta(MetaKey.TRANSPORT), ("tcp", "udp"))
    not_there = Match(Fib((FibKey.SOURCE, FibKey.OUTPUT_INTERFACE)), "local", is_negated=True)
    pair = Concatenation((source_of(Family.IPV6), destination_of(Family.IPV6)))
    address = SourceNAT(Family.IPV4, Address.parse("192.0.2.1"), PortRange(4790, 65_535))
    return (
        Rule((SourceNAT(Family.IPV6, MapLookup(pair, "hairpin6")),), "to itself"),
        Rule((from_pools, to_others, transports, address), "out"),
        Rule((from_pools, to_others, Match(out, "eth*"), transports, Masquerade(PortRange(1024, 2048))), "out"),
        Rule((Match(out, SetReference("tunnels")), not_there, Match(Fib((FibKey.SOURCE,)), "local"), Masquerade()), ""),
    )


def sample_table(name: str = TABLE) -> PacketTable:
    """A table with a set of each sort and a statement of each sort."""
    port = Match(Payload("udp", "dport"), 4789)
    loopback = Match(destination_of(Family.IPV4), Prefix.parse("127.0.0.0/8"))
    is_host_end = Match(Meta(MetaKey.INPUT_INTERFACE), "netp*")
    floating = MapLookup(destination_of(Family.IPV4), "floating4")
    return PacketTable(
        name=name,
        sets=_sets(),
        chains=(
            Chain(name="guard", rules=(Rule((Verdict.DROP,), "others"),)),
            Chain(
                name="prerouting",
                base=BaseChain(ChainType.FILTER, Hook.PREROUTING, -300),
                rules=(
                    Rule((is_host_end, loopback, Verdict.DROP), "loopback"),
                    Rule((port, Match(source_of(Family.IPV4), SetReference("nodes4")), Verdict.NOTRACK), "outer"),
                    Rule((port, Goto("guard")), "not a node"),
                ),
            ),
            Chain(
                name="floating",
                base=BaseChain(ChainType.NAT, Hook.PREROUTING, -105),
                rules=(Rule((DestinationNAT(Family.IPV4, floating),), "floating addresses"),),
            ),
            Chain(
                name="outgoing", base=BaseChain(ChainType.NAT, Hook.POSTROUTING, 95), rules=_nat_rules()
            ),
        ),
    )  # fmt: skip


def policy_table(*names: str, suffix: str = "") -> PacketTable:
    """A table as policy has it: chains by interface, a set of each sort that it has, and every statement.

    ``names`` are interfaces. ``suffix`` is a port that changes the rules of what all interfaces share.
    """
    v4, ifname = ElementType.IPV4_ADDRESS, ElementType.INTERFACE_NAME
    port = PortRange(80, int(suffix or 80))
    inside, outside = Meta(MetaKey.INPUT_INTERFACE), Meta(MetaKey.OUTPUT_INTERFACE)
    transport, to_port = Meta(MetaKey.TRANSPORT), Payload("th", "dport")
    of_interface = Concatenation((inside, source_of(Family.IPV4)))
    named_port = Concatenation((destination_of(Family.IPV4), transport, to_port))
    addresses = {name: Address(Family.IPV4, 0x0A000000 + number) for number, name in enumerate(names)}
    jumps = frozenset(Element((name,), Jump(f"fw-{name}")) for name in names)
    own = frozenset(Element((name, address)) for name, address in addresses.items())
    nets = frozenset(Element((name, Prefix.at(Address.parse("10.7.0.0"), 24))) for name in names)
    ports = frozenset(Element((address, 6, 8080)) for address in addresses.values())
    forward = (
        Rule((Match(TrackingState(), ("established", "related")), Verdict.ACCEPT), ""),
        Rule((Match(of_interface, SetReference("own")), JumpByMap(inside, "from")), ""),
        Rule((Match(of_interface, SetReference("nets")), Match(Meta(MetaKey.OUTPUT_INDEX), 0, is_negated=True)), ""),
        Rule((Match(inside, "netp*"), Counter(), Verdict.DROP), "unknown"),
        Rule((Match(Meta(MetaKey.FAMILY), "ipv6"), Match(outside, "lo"), Goto("deny")), ""),
    )
    policy = (
        Rule((Match(transport, 6), Match(to_port, port), Limit(5, "minute", 7), LogPacket("a policy: ")), ""),
        Rule(
            (Match(transport, 6), Match(to_port, SetReference("ports"), is_negated=True), Counter(), Goto("deny")), ""
        ),
        Rule((Match(named_port, SetReference("named")), Verdict.ACCEPT), ""),
        Rule((Match(Payload("icmpv6", "type"), (133, 135)), Verdict.ACCEPT), ""),
        Rule((Match(Payload("icmp", "type"), 8), Match(Payload("icmp", "code"), 0), Verdict.ACCEPT), ""),
    )
    return PacketTable(
        name=TABLE,
        sets=(
            NamedSet(name="from", types=(ifname,), value_type=ElementType.VERDICT, elements=jumps),
            NamedSet(name="own", types=(ifname, v4), elements=own),
            NamedSet(name="nets", types=(ifname, v4), is_interval=True, elements=nets),
            NamedSet(name="named", types=(v4, ElementType.PROTOCOL, ElementType.PORT), elements=ports),
            NamedSet(
                name="ports",
                types=(ElementType.PORT,),
                is_interval=True,
                elements=frozenset({Element((PortRange(80, 90),)), Element((PortRange(443, 443),))}),
            ),
        ),
        chains=(
            Chain(
                name="deny", rules=(Rule((Match(transport, 6), Reject.TCP_RESET), ""), Rule((Reject.PROHIBITED,), ""))
            ),
            Chain(name="policy", rules=policy),
            Chain(name="forward", base=BaseChain(ChainType.FILTER, Hook.FORWARD, 10), rules=forward),
            *(
                Chain(name=f"fw-{name}", rules=(Rule((Jump("policy"),), name), Rule((Verdict.DROP,), "")))
                for name in names
            ),
        ),
    )


def _with_set(table: PacketTable, changed: NamedSet) -> PacketTable:
    return evolve(table, sets=tuple(changed if each.name == changed.name else each for each in table.sets))


def _bring(harness: RulesetHarness, wanted: PacketTable) -> object:
    """Make a table as it is wanted; return the class of the change."""
    change = find_change(wanted, harness.ruleset.read(wanted.name))
    if change is not None:
        harness.ruleset.apply(change)
    expect_same(find_change(wanted, harness.ruleset.read(wanted.name)), None, "what is still to be changed")
    return type(change)


# --- checks -----------------------------------------------------------------------------------------------------------


def a_missing_table_is_none(harness: RulesetHarness) -> None:
    """No table of the name, while there is another one."""
    expect_same(harness.ruleset.read(TABLE), None, "a table without any other")
    harness.ruleset.apply(ReplaceTable(sample_table("netplug_other")))
    expect_same(harness.ruleset.read(TABLE), None, "a table beside another one")


def a_table_is_read_as_it_was_made(harness: RulesetHarness) -> None:
    """Sets of every sort with their elements, chains, and the marks of rules in their order."""
    wanted = sample_table()
    harness.ruleset.apply(ReplaceTable(wanted))
    observed = harness.ruleset.read(TABLE)
    expect(observed is not None, "there is no table")
    if observed is not None:
        expect_same(frozenset(observed.sets), frozenset(wanted.sets), "the sets")
        outlines = frozenset(chain.outline for chain in wanted.chains)
        expect_same(frozenset(observed.chains), outlines, "the chains")
        expect_same(observed.unreadable, (), "what cannot be read")


def packets_are_counted_by_chain(harness: RulesetHarness) -> None:
    """None of a table or a chain that does not exist, and none before a packet came."""
    expect_same(harness.ruleset.count_packets(TABLE, "forward"), 0, "the packets of a missing table")
    for change in find_phases(policy_table("netp1"), None):
        harness.ruleset.apply(change)
    for chain in ("forward", "missing"):
        expect_same(harness.ruleset.count_packets(TABLE, chain), 0, f"the packets of the chain {chain}")


def a_table_is_created_once(harness: RulesetHarness) -> None:
    """One that exists stays as it is."""
    first = sample_table()
    harness.ruleset.apply(CreateTable(first))
    expect_same(find_change(first, harness.ruleset.read(TABLE)), None, "what the first one lacks")
    expect_refused(KernelError, partial(harness.ruleset.apply, CreateTable(evolve(first, chains=()))), what="a second")
    expect_same(find_change(first, harness.ruleset.read(TABLE)), None, "what the second has changed")


def a_table_is_replaced_as_a_whole(harness: RulesetHarness) -> None:
    """By one with other rules, with fewer chains, and with another declaration of a set."""
    first = sample_table()
    expect_same(_bring(harness, first), ReplaceTable, "the first change")
    last = first.chains[-1]
    fewer_rules = evolve(first, chains=(*first.chains[:-1], evolve(last, rules=last.rules[1:])))
    reordered = evolve(first, chains=(*first.chains[:-1], evolve(last, rules=last.rules[::-1])))
    other_priority = evolve(last, base=BaseChain(ChainType.NAT, Hook.POSTROUTING, 90))
    for wanted in (
        fewer_rules,
        reordered,
        evolve(first, chains=(*first.chains[:-1], other_priority)),
        evolve(first, chains=first.chains[:1]),
        PacketTable(name=TABLE),
        PacketTable(name=TABLE, sets=(_prefix_set("pools4", "10.0.0.0/24"),)),
        PacketTable(name=TABLE, sets=(_map("pools4", ("192.0.2.1", "192.0.2.2")),)),
    ):
        expect_same(_bring(harness, wanted), ReplaceTable, "the change")
        expect_same(_bring(harness, wanted), type(None), "a second change")


def elements_are_changed_in_place(harness: RulesetHarness) -> None:
    """Prefixes that become longer, shorter, two or one, and values of a map, each in one change."""
    wanted = sample_table()
    _bring(harness, wanted)
    for texts in (
        ("10.0.0.0/25", "10.0.1.0/24"),
        ("10.0.0.0/24", "10.0.1.0/24"),
        ("10.0.0.0/23",),
        ("10.0.0.0/24", "10.0.1.7/32"),
        ("10.0.0.0/8", "11.0.0.0/8", "255.255.255.255/32"),
        ("0.0.0.0/0",),
        ("0.0.0.0/32",),
        (),
        ("10.0.0.0/24",),
    ):
        wanted = _with_set(wanted, _prefix_set("pools4", *texts))
        expect_same(_bring(harness, wanted), ChangeElements, f"the change to {texts}")
    for pairs in (
        (("203.0.113.1", "10.0.0.6"), ("203.0.113.2", "10.0.0.5")),
        (("203.0.113.2", "10.0.0.5"),),
        (("203.0.113.2", "10.0.0.7"), ("203.0.113.3", "10.0.0.7")),
        (),
    ):
        wanted = _with_set(wanted, _map("floating4", *pairs))
        expect_same(_bring(harness, wanted), ChangeElements, f"the change to {pairs}")


def what_others_do_to_a_table_is_found(harness: RulesetHarness) -> None:
    """Rules that were added or removed, elements, and the table itself."""
    wanted = sample_table()
    deeds: Iterable[Callable[[], None]] = (
        lambda: harness.add_rule(TABLE, "prerouting"),
        lambda: harness.add_rule(TABLE, "guard", is_first=True),
        lambda: harness.clear_chain(TABLE, "outgoing"),
        lambda: harness.add_unreadable(TABLE, "seen"),
        harness.flush,
    )
    for deed in deeds:
        _bring(harness, wanted)
        deed()
        expect_same(_bring(harness, wanted), ReplaceTable, "the change")
    part = _prefix_set("pools4", "10.0.1.0/24")
    for change in (
        ChangeElements(wanted, (part,), ()),
        ChangeElements(wanted, (), (_prefix_set("pools4", "198.51.100.0/24"),)),
        ChangeElements(wanted, (part,), (_prefix_set("pools4", "10.0.1.0/28"),)),
    ):
        harness.ruleset.apply(change)
        expect_same(_bring(harness, wanted), ChangeElements, "the change")


def a_refused_change_changes_nothing(harness: RulesetHarness) -> None:
    """Elements that overlap, or are not there; rules that name what does not exist, or that their chain cannot have."""
    wanted = sample_table()
    _bring(harness, wanted)
    other_family = frozenset({Element((Address.parse("fd00::1"),))})
    bad_key = NamedSet(name="nodes4", types=(ElementType.IPV4_ADDRESS,), elements=other_family)
    nat, with_ports = Rule((Masquerade(),), ""), Rule((Masquerade(PortRange(1, 9)),), "")
    chains = (
        Chain(name="x", rules=(Rule((Goto("missing"),), ""),)),
        Chain(name="x", rules=(Rule((Match(source_of(Family.IPV4), SetReference("missing")),), ""),)),
        Chain(name="x", base=BaseChain(ChainType.FILTER, Hook.POSTROUTING, 0), rules=(nat,)),
        Chain(name="x", base=BaseChain(ChainType.NAT, Hook.PREROUTING, 0), rules=(nat,)),
        Chain(name="x", base=BaseChain(ChainType.NAT, Hook.POSTROUTING, 0), rules=(with_ports,)),
    )
    missing = NamedSet(
        name="missing", types=(ElementType.IPV4_ADDRESS,), elements=_prefix_set("", "10.9.0.0/24").elements
    )
    refused: tuple[TableChange, ...] = (
        ChangeElements(wanted, (), (_prefix_set("pools4", "10.0.0.128/25"),)),
        ChangeElements(
            wanted, (), (_prefix_set("pools4", "10.9.0.0/24"), _map("floating4", ("203.0.113.1", "10.0.0.9")))
        ),
        ChangeElements(wanted, (_prefix_set("pools4", "10.9.0.0/24"),), ()),
        ChangeElements(wanted, (), (missing,)),
        ChangeElements(wanted, (), (bad_key,)),
        ChangeElements(sample_table("netplug_other"), (), (_prefix_set("pools4", "10.9.0.0/24"),)),
        *(ReplaceTable(PacketTable(name=TABLE, chains=(chain,))) for chain in chains),
        DeleteTable("netplug_other"),
    )
    for change in refused:
        expect_refused(KernelError, partial(harness.ruleset.apply, change), what=f"{change}")
        expect_same(find_change(wanted, harness.ruleset.read(TABLE)), None, f"what {change} has changed")


def other_tables_stay_as_they_are(harness: RulesetHarness) -> None:
    """A change of one table, its replacement and its deletion."""
    other, wanted = sample_table("netplug_other"), sample_table()
    _bring(harness, other)
    for table in (wanted, _with_set(wanted, _prefix_set("pools4", "10.9.0.0/24")), PacketTable(name=TABLE)):
        _bring(harness, table)
    harness.ruleset.apply(DeleteTable(TABLE))
    expect_same(harness.ruleset.read(TABLE), None, "the deleted table")
    expect_same(find_change(other, harness.ruleset.read("netplug_other")), None, "what has changed of the other table")


def _change(harness: RulesetHarness, wanted: PacketTable, tracker: TableTracker | None = None) -> list[Phase | None]:
    """Make a table as it is wanted, in place; return the phases."""
    observer = tracker or TableTracker(TABLE)
    observer.observe(harness.ruleset.read(TABLE))
    phases: list[Phase | None] = []
    for change in observer.plan(wanted):
        harness.ruleset.apply(change)
        observer.note(change)
        phases.append(change.phase if isinstance(change, ChangeTable) else None)
    expect_same(find_phases(wanted, harness.ruleset.read(TABLE)), (), "what is still to be changed")
    return phases


def a_table_changes_in_place(harness: RulesetHarness) -> None:
    """Interfaces come and go, and what they share changes: in the phases that it needs, and none again."""
    tracker, create, switch, delete = TableTracker(TABLE), Phase.CREATE, Phase.SWITCH, Phase.DELETE
    for wanted, phases in (
        (policy_table(), [create, switch]),
        (policy_table("netp1", "netp2"), [create, switch]),
        (policy_table("netp1", "netp2"), []),
        (policy_table("netp1", "netp2", "netp3"), [create, switch]),
        (policy_table("netp1", "netp3", suffix="90"), [switch, switch, switch, delete]),
        (policy_table("netp1", "netp3", suffix="80"), [switch]),
        (policy_table(), [switch, delete]),
    ):
        expect_same(_change(harness, wanted, tracker), phases, "the phases")


def what_others_do_is_repaired_in_place(harness: RulesetHarness) -> None:
    """A rule added or removed, a counter, an element; and all of it."""
    wanted = policy_table("netp1")
    deeds: Iterable[tuple[Callable[[], None], list[Phase | None]]] = (
        (lambda: harness.add_rule(TABLE, "forward", is_first=True), [Phase.SWITCH]),
        (lambda: harness.clear_chain(TABLE, "fw-netp1"), [Phase.SWITCH]),
        (lambda: harness.add_unreadable(TABLE, "seen"), [Phase.DELETE]),
        (harness.flush, [Phase.CREATE, Phase.SWITCH]),
    )
    for deed, phases in deeds:
        _change(harness, wanted)
        deed()
        expect_same(_change(harness, wanted), phases, "the phases")


def a_set_that_is_declared_otherwise_is_made_anew(harness: RulesetHarness) -> None:
    """The table is replaced, since a set cannot change what it is."""
    _change(harness, policy_table("netp1"))
    others = [evolve(each, is_interval=False, elements=frozenset()) for each in policy_table().sets]
    changed = evolve(policy_table(), sets=tuple(others))
    expect_same(_change(harness, changed), [None], "the phases")


def a_base_chain_moves_to_another_hook(harness: RulesetHarness) -> None:
    """It is deleted and made again, in one transaction."""
    before = policy_table("netp1")
    _change(harness, before)
    moved = [
        evolve(each, base=BaseChain(ChainType.FILTER, Hook.INPUT, 5)) if each.base is not None else each
        for each in before.chains
    ]
    expect_same(_change(harness, evolve(before, chains=tuple(moved))), [Phase.SWITCH], "the phases")


def a_refused_change_in_place_changes_nothing(harness: RulesetHarness) -> None:
    """What is used and deleted, what exists or not, what overlaps, and an answer to a packet that leaves."""
    wanted = policy_table("netp1")
    _change(harness, wanted)
    sets = {each.name: each for each in wanted.sets}
    other_jump = evolve(sets["from"], elements=frozenset({Element(("netp1",), Jump("policy"))}))
    overlapping = evolve(sets["ports"], elements=frozenset({Element((PortRange(85, 86),))}))
    inside = frozenset({Element(("netp1", Prefix.at(Address.parse("10.7.0.8"), 29)))})
    leaving = BaseChain(ChainType.FILTER, Hook.POSTROUTING, 0)
    rejecting = Chain(name="out", base=leaving, rules=(Rule((JumpByMap(Meta(MetaKey.OUTPUT_INTERFACE), "from"),), ""),))
    missing = Chain(name="x", rules=(Rule((Jump("nowhere"),), ""),))
    unknown_set = Chain(name="x", rules=(Rule((Match(source_of(Family.IPV4), SetReference("none")),), ""),))
    change = partial(ChangeTable, phase=Phase.SWITCH, table=TABLE)
    for refused in (
        change(deleted_chains=("policy",)),
        change(deleted_chains=("fw-netp1",)),
        change(deleted_chains=("nowhere",)),
        change(deleted_sets=("own",)),
        change(deleted_sets=("nowhere",)),
        change(added=(other_jump,)),
        change(added=(overlapping,)),
        change(added=(evolve(sets["nets"], elements=inside),)),
        change(deleted=(other_jump,), deleted_chains=("nowhere",)),
        change(new_sets=(evolve(sets["own"], types=(ElementType.INTERFACE_NAME,), elements=frozenset()),)),
        change(filled_chains=(evolve(missing, name="nowhere", rules=()),)),
        change(new_chains=(missing,)),
        change(new_chains=(unknown_set,)),
        change(new_chains=(rejecting,)),
        change(new_chains=(evolve(rejecting, rules=(Rule((Goto("deny"),), ""),)),)),
    ):
        expect_refused(KernelError, partial(harness.ruleset.apply, refused), what=f"{refused}")
        expect_same(find_phases(wanted, harness.ruleset.read(TABLE)), (), f"what {refused} has changed")


def what_others_do_is_notified(harness: RulesetHarness) -> None:
    """Each transaction, with the program and the tables that it has changed; and what comes at once, at once."""
    _bring(harness, sample_table("netplug_other"))
    wanted = policy_table("netp1")
    _change(harness, wanted)
    with harness.open_events() as events:
        harness.add_rule(TABLE, "forward")
        _expect_notified(harness, events, (TABLE,))
        harness.clear_chain(TABLE, "fw-netp1")
        harness.add_unreadable("netplug_other", "seen")
        harness.flush()
        _expect_notified(harness, events, (TABLE,), ("netplug_other",), (TABLE, "netplug_other"))


def own_changes_are_not_notified(harness: RulesetHarness) -> None:
    """Neither those of phases nor a replacement nor a deletion nor one that is refused; what comes after them is."""
    with harness.open_events() as events:
        for names in (("netp1",), ("netp1", "netp2"), ("netp2",)):
            _change(harness, policy_table(*names))
        _bring(harness, sample_table())
        expect_refused(KernelError, lambda: harness.ruleset.apply(DeleteTable("netplug_other")), what="a missing table")
        harness.ruleset.apply(DeleteTable(TABLE))
        expect_same(events.wait(deadline=Deadline.after(harness.clock, 0)), None, "what is notified of own changes")
        _bring(harness, sample_table())
        harness.add_rule(TABLE, "guard")
        _expect_notified(harness, events, (TABLE,))


def closed_events_are_waited_for_no_more(harness: RulesetHarness) -> None:
    """Whatever there is to say."""
    with harness.open_events() as events:
        events.close()
        harness.flush()
        for _ in range(2):
            expect_same(events.wait(deadline=Deadline.after(harness.clock, _LONG_S)), None, "what is notified of")


def _expect_notified(harness: RulesetHarness, events: RulesetEvents, *tables: tuple[str, ...]) -> None:
    """So many transactions of ``nft`` are notified of, each of these tables."""
    noticed: list[ForeignChange] = []
    while len(noticed) < len(tables):
        found = events.wait(deadline=Deadline.after(harness.clock, _LONG_S))
        expect(found is not None, f"after {noticed} nothing is notified of")
        if found is None:
            return
        expect(not found.were_lost, "some were lost")
        noticed += found.changes
    expect_same(noticed, [ForeignChange("nft", frozenset(names)) for names in tables], "what is notified of")


RULESET_CHECKS: tuple[RulesetCheck, ...] = (
    a_missing_table_is_none,
    a_table_is_read_as_it_was_made,
    packets_are_counted_by_chain,
    a_table_is_created_once,
    a_table_is_replaced_as_a_whole,
    elements_are_changed_in_place,
    what_others_do_to_a_table_is_found,
    a_refused_change_changes_nothing,
    other_tables_stay_as_they_are,
    a_table_changes_in_place,
    what_others_do_is_repaired_in_place,
    a_set_that_is_declared_otherwise_is_made_anew,
    a_base_chain_moves_to_another_hook,
    a_refused_change_in_place_changes_nothing,
    what_others_do_is_notified,
    own_changes_are_not_notified,
    closed_events_are_waited_for_no_more,
)
