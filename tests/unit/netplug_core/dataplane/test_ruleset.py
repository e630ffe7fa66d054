"""The values of a packet-filter table: how they are spelled in JSON, and what has to change."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
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
    Expression,
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
    ObservedTable,
    Operand,
    PacketTable,
    Payload,
    Phase,
    Reject,
    ReplaceTable,
    Rule,
    SetReference,
    SourceNAT,
    Statement,
    TrackingState,
    UnreadableObject,
    Verdict,
    destination_of,
    find_change,
    render_change,
    source_of,
)
from netplug_core.resources.fields import PortRange

IPV4 = ElementType.IPV4_ADDRESS
IN_TABLE = {"family": "inet", "table": "t"}
MADE = [{"add": {"table": {"family": "inet", "name": "t"}}}, {"delete": {"table": {"family": "inet", "name": "t"}}}]
SADDR = {"payload": {"protocol": "ip", "field": "saddr"}}
POOLS = {"name": "pools", "type": "ipv4_addr", "flags": ["interval"]}
MAP = {"name": "m", "type": ["ipv4_addr", "ipv4_addr"], "map": "ipv4_addr"}
NAT = {"type": "nat", "hook": "postrouting", "prio": 95, "policy": "accept"}
EIGHT = {"prefix": {"addr": "10.0.0.0", "len": 8}}
DADDR6 = {"payload": {"protocol": "ip6", "field": "daddr"}}


def prefixes(*texts: str, name: str = "pools") -> NamedSet:
    elements = frozenset(Element((Prefix.parse(text),)) for text in texts)
    return NamedSet(name=name, types=(IPV4,), is_interval=True, elements=elements)


def rendered(statement: Statement) -> object:
    """A statement as the only one of a table."""
    chain = Chain(name="c", rules=(Rule((statement,), ""),))
    (rule,) = (each["add"] for each in render_change(ReplaceTable(PacketTable(name="t", chains=(chain,))))[4:])
    assert isinstance(rule, dict)
    return rule["rule"]["expr"][0]


@pytest.mark.parametrize("verdict", Verdict)
def test_verdicts(verdict: Verdict) -> None:
    assert rendered(verdict) == {verdict.value: None}


@pytest.mark.parametrize(
    "left, text",
    [
        (Payload("udp", "dport"), {"payload": {"protocol": "udp", "field": "dport"}}),
        (source_of(Family.IPV4), SADDR),
        (destination_of(Family.IPV6), DADDR6),
        (Meta(MetaKey.TRANSPORT), {"meta": {"key": "l4proto"}}),
        (Fib((FibKey.SOURCE, FibKey.OUTPUT_INTERFACE)), {"fib": {"result": "type", "flags": ["saddr", "oif"]}}),
        (Concatenation((source_of(Family.IPV4), destination_of(Family.IPV6))), {"concat": [SADDR, DADDR6]}),
    ],
)
def test_what_a_rule_looks_at(left: Expression, text: object) -> None:
    assert rendered(Match(left, 7)) == {"match": {"op": "==", "left": text, "right": 7}}


@pytest.mark.parametrize(
    "right, text",
    [
        (4789, 4789),
        ("netp*", "netp*"),
        (("tcp", "udp"), {"set": ["tcp", "udp"]}),
        (SetReference("pools"), "@pools"),
        (Prefix.parse("fd00::/8"), {"prefix": {"addr": "fd00::", "len": 8}}),
        (Prefix.parse("192.0.2.1/32"), "192.0.2.1"),
    ],
)
def test_what_it_is_compared_with(right: Operand, text: object) -> None:
    match = Match(source_of(Family.IPV4), right, is_negated=True)
    assert rendered(match) == {"match": {"op": "!=", "left": SADDR, "right": text}}


def test_where_packets_go_on() -> None:
    assert rendered(Goto("guard")) == {"goto": {"target": "guard"}}


ADDRESS, PORTS = Address.parse("192.0.2.1"), PortRange(1, 9)
RANDOM, RANGE = {"flags": ["fully-random"]}, {"port": {"range": [1, 9]}}
LOOKUP = MapLookup(destination_of(Family.IPV6), "m")


@pytest.mark.parametrize(
    "statement, text",
    [
        (Masquerade(), {"masquerade": RANDOM}),
        (Masquerade(PORTS), {"masquerade": {**RANGE, **RANDOM}}),
        (SourceNAT(Family.IPV4, ADDRESS), {"snat": {"family": "ip", "addr": "192.0.2.1", **RANDOM}}),
        (SourceNAT(Family.IPV4, ADDRESS, PORTS), {"snat": {"family": "ip", "addr": "192.0.2.1", **RANGE, **RANDOM}}),
        (SourceNAT(Family.IPV6, LOOKUP), {"snat": {"family": "ip6", "addr": {"map": {"key": DADDR6, "data": "@m"}}}}),
        (
            DestinationNAT(Family.IPV6, LOOKUP),
            {"dnat": {"family": "ip6", "addr": {"map": {"key": DADDR6, "data": "@m"}}}},
        ),
    ],
)
def test_translations(statement: Statement, text: object) -> None:
    assert rendered(statement) == text


def test_a_table_is_replaced_in_one_transaction_with_its_sets_before_its_rules() -> None:
    named = NamedSet(name="n", types=(ElementType.INTERFACE_NAME,), elements=frozenset({Element(("a",))}))
    pair = (Address.parse("10.0.0.1"), Address.parse("10.0.0.2"))
    mapped = NamedSet(name="m", types=(IPV4, IPV4), value_type=IPV4, elements=frozenset({Element(pair, pair[0])}))
    base = BaseChain(ChainType.NAT, Hook.POSTROUTING, 95)
    rule = Rule((Verdict.ACCEPT,), "all of them")
    table = PacketTable(
        name="t",
        sets=(prefixes("10.0.0.0/8"), prefixes("10.2.0.1/32", name="one"), prefixes(name="none"), named, mapped),
        chains=(Chain(name="out", base=base, rules=(rule,)), Chain(name="plain", rules=())),
    )
    assert list(render_change(ReplaceTable(table))) == [
        *MADE,
        MADE[0],
        {"add": {"set": {**IN_TABLE, **POOLS, "elem": [EIGHT]}}},
        {"add": {"set": {**IN_TABLE, **POOLS, "name": "one", "elem": ["10.2.0.1"]}}},
        {"add": {"set": {**IN_TABLE, **POOLS, "name": "none"}}},
        {"add": {"set": {**IN_TABLE, "name": "n", "type": "ifname", "elem": ["a"]}}},
        {
            "add": {
                "map": {
                    **IN_TABLE,
                    "name": "m",
                    "type": ["ipv4_addr", "ipv4_addr"],
                    "map": "ipv4_addr",
                    "elem": [[{"concat": ["10.0.0.1", "10.0.0.2"]}, "10.0.0.1"]],
                }
            }
        },
        {
            "add": {
                "chain": {
                    **IN_TABLE,
                    "name": "out",
                    "type": "nat",
                    "hook": "postrouting",
                    "prio": 95,
                    "policy": "accept",
                }
            }
        },
        {"add": {"chain": {**IN_TABLE, "name": "plain"}}},
        {"add": {"rule": {**IN_TABLE, "chain": "out", "comment": rule.mark, "expr": [{"accept": None}]}}},
    ]


def test_elements_are_deleted_before_others_are_added() -> None:
    change = ChangeElements(PacketTable(name="t"), (prefixes("10.0.0.0/8"),), (prefixes("10.0.0.0/9"),))
    assert list(render_change(change)) == [
        {"delete": {"element": {**IN_TABLE, "name": "pools", "elem": [{"prefix": {"addr": "10.0.0.0", "len": 8}}]}}},
        {"add": {"element": {**IN_TABLE, "name": "pools", "elem": [{"prefix": {"addr": "10.0.0.0", "len": 9}}]}}},
    ]


def test_intervals_are_in_their_order() -> None:
    numbers = frozenset(Element((part,)) for part in (PortRange(443, 445), PortRange(80, 80), 22))
    prefixes = frozenset(Element((Prefix.parse(text),)) for text in ("10.1.0.0/16", "9.0.0.0/8", "10.0.0.1/32"))
    ports = NamedSet(name="p", types=(ElementType.PORT,), is_interval=True, elements=numbers)
    pools = NamedSet(name="q", types=(IPV4,), is_interval=True, elements=prefixes)
    *_, of_ports, of_pools = render_change(ReplaceTable(PacketTable(name="t", sets=(ports, pools))))
    found = [one["add"]["set"]["elem"] for one in (of_ports, of_pools)]  # type: ignore[index]
    assert found == [
        [22, 80, {"range": [443, 445]}],
        [{"prefix": {"addr": "9.0.0.0", "len": 8}}, "10.0.0.1", {"prefix": {"addr": "10.1.0.0", "len": 16}}],
    ]


def test_a_table_is_created_only_where_there_is_none() -> None:
    assert list(render_change(CreateTable(PacketTable(name="t")))) == [{"create": MADE[0]["add"]}]


def test_a_table_is_deleted() -> None:
    assert list(render_change(DeleteTable("t"))) == [MADE[1]]


def test_the_mark_of_a_rule_changes_with_its_statements_and_its_comment() -> None:
    marks = {
        Rule((Verdict.DROP,), "a").mark,
        Rule((Verdict.ACCEPT,), "a").mark,
        Rule((Verdict.DROP,), "b").mark,
        Rule((Match(Payload("udp", "dport"), 1), Verdict.DROP), "a").mark,
    }
    assert len(marks) == 4
    assert {mark.partition(" ")[2] for mark in marks} == {"a", "b"}


def test_a_comment_that_the_kernel_would_cut_is_refused() -> None:
    assert len(Rule((), "x" * 119).mark) == 128
    with pytest.raises(ValueError, match="too long: 'xxx"):
        Rule((), "x" * 120)


# --- what has to change -----------------------------------------------------------------------------------------------

RULE = Rule((Verdict.DROP,), "a")
WANTED = PacketTable(name="t", sets=(prefixes("10.0.0.0/8"),), chains=(Chain(name="c", rules=(RULE, RULE)),))
OBSERVED = ObservedTable(name="t", sets=WANTED.sets, chains=(WANTED.chains[0].outline,))


def test_a_table_as_it_is_wanted_is_not_changed() -> None:
    assert find_change(WANTED, OBSERVED) is None


@pytest.mark.parametrize(
    "observed",
    [
        None,
        evolve(OBSERVED, unreadable=(UnreadableObject("counter", "seen"),)),
        evolve(OBSERVED, chains=()),
        evolve(OBSERVED, chains=(evolve(OBSERVED.chains[0], marks=(RULE.mark,)),)),
        evolve(OBSERVED, chains=(evolve(OBSERVED.chains[0], base=BaseChain(ChainType.NAT, Hook.INPUT, 0)),)),
        evolve(OBSERVED, sets=()),
        evolve(OBSERVED, sets=(*OBSERVED.sets, prefixes(name="more"))),
        evolve(OBSERVED, sets=(evolve(OBSERVED.sets[0], is_interval=False),)),
    ],
)
def test_a_table_with_other_chains_rules_or_sets_is_replaced(observed: ObservedTable | None) -> None:
    assert find_change(WANTED, observed) == ReplaceTable(WANTED)


def test_elements_that_differ_are_changed_in_place() -> None:
    observed = evolve(OBSERVED, sets=(prefixes("10.0.0.0/9", "11.0.0.0/8"),))
    wanted = evolve(WANTED, sets=(prefixes("10.0.0.0/8", "11.0.0.0/8"),))
    assert find_change(wanted, observed) == ChangeElements(wanted, (prefixes("10.0.0.0/9"),), (prefixes("10.0.0.0/8"),))
    assert find_change(evolve(wanted, sets=(prefixes(),)), observed) == ChangeElements(
        evolve(wanted, sets=(prefixes(),)), observed.sets, ()
    )


def test_texts_and_types_of_elements() -> None:
    key = (Address.parse("10.0.0.1"), Address.parse("10.0.0.2"))
    assert str(Element(key)) == "10.0.0.1 . 10.0.0.2"
    assert str(Element(("eth0",), key[0])) == "eth0 : 10.0.0.1"
    assert [ElementType.address_of(family) for family in Family] == [IPV4, ElementType.IPV6_ADDRESS]


def in_place(**members: object) -> list[object]:
    """The commands of a change in place, after the one that makes the table."""
    change = ChangeTable(phase=Phase.SWITCH, table="t", **members)  # type: ignore[arg-type]
    first, *others = render_change(change)
    assert first == {"add": {"table": {"family": "inet", "name": "t"}}}
    return [*others]


VERDICTS = NamedSet(
    name="m",
    types=(ElementType.INTERFACE_NAME,),
    value_type=ElementType.VERDICT,
    elements=frozenset({Element(("netp1",), Jump("c"))}),
)


def test_chains_are_there_before_what_leads_to_them() -> None:
    rule, drop = Rule((Jump("c"),), "r"), Rule((Counter(), Verdict.DROP), "d")
    jump = {"rule": {**IN_TABLE, "chain": "b", "comment": rule.mark, "expr": [{"jump": {"target": "c"}}]}}
    dropping = [{"counter": None}, {"drop": None}]
    found = in_place(
        dropped_chains=("b",),
        new_sets=(VERDICTS, prefixes("10.0.0.0/8")),
        new_chains=(Chain(name="b", rules=(rule,)),),
        filled_chains=(Chain(name="c", rules=(drop,)),),
        deleted=(prefixes("10.0.0.0/8", name="p"),),
        added=(evolve(VERDICTS, name="n"),),
    )
    element = [["netp1", {"jump": {"target": "c"}}]]
    assert found == [
        {"flush": {"chain": {**IN_TABLE, "name": "b"}}},
        {"delete": {"chain": {**IN_TABLE, "name": "b"}}},
        {"add": {"map": {**IN_TABLE, "name": "m", "type": "ifname", "map": "verdict"}}},
        {"add": {"set": {**IN_TABLE, **POOLS, "elem": [EIGHT]}}},
        {"add": {"chain": {**IN_TABLE, "name": "b"}}},
        {"flush": {"chain": {**IN_TABLE, "name": "c"}}},
        {"add": jump},
        {"add": {"rule": {**IN_TABLE, "chain": "c", "comment": drop.mark, "expr": dropping}}},
        {"delete": {"element": {**IN_TABLE, "name": "p", "elem": [EIGHT]}}},
        {"add": {"element": {**IN_TABLE, "name": "m", "elem": element}}},
        {"add": {"element": {**IN_TABLE, "name": "n", "elem": element}}},
    ]


def test_chains_are_emptied_before_any_is_deleted() -> None:
    objects = (UnreadableObject("chain", "c"), UnreadableObject("counter", "x"))
    assert in_place(deleted_chains=("a", "b"), deleted_sets=("s",), deleted_objects=objects) == [
        *({"flush": {"chain": {**IN_TABLE, "name": name}}} for name in "abc"),
        *({"delete": {"chain": {**IN_TABLE, "name": name}}} for name in "abc"),
        {"delete": {"set": {**IN_TABLE, "name": "s"}}},
        {"delete": {"counter": {**IN_TABLE, "name": "x"}}},
    ]


def test_ports_protocols_and_ranges_are_numbers() -> None:
    ports = frozenset({Element((PortRange(80, 90),))})
    ranges = NamedSet(name="q", types=(ElementType.PORT,), is_interval=True, elements=ports)
    single = evolve(ranges, elements=frozenset({Element((PortRange(443, 443),))}))
    address = Address.parse("10.0.0.1")
    named = NamedSet(
        name="p",
        types=(IPV4, ElementType.PROTOCOL, ElementType.PORT),
        elements=frozenset({Element((address, 6, 80))}),
    )
    assert in_place(added=(ranges, single, named)) == [
        {"add": {"element": {**IN_TABLE, "name": "q", "elem": [{"range": [80, 90]}]}}},
        {"add": {"element": {**IN_TABLE, "name": "q", "elem": [443]}}},
        {"add": {"element": {**IN_TABLE, "name": "p", "elem": [{"concat": ["10.0.0.1", 6, 80]}]}}},
    ]
    assert str(Element(("netp1",), Jump("c"))) == "netp1 : jump c"


DPORT = {"payload": {"protocol": "th", "field": "dport"}}
ICMP_TYPE = {"payload": {"protocol": "icmpv6", "field": "type"}}


@pytest.mark.parametrize(
    "statement, expected",
    [
        (Jump("c"), {"jump": {"target": "c"}}),
        (Goto("c"), {"goto": {"target": "c"}}),
        (
            JumpByMap(Meta(MetaKey.INPUT_INTERFACE), "m"),
            {"vmap": {"key": {"meta": {"key": "iifname"}}, "data": "@m"}},
        ),
        (Counter(), {"counter": None}),
        (Limit(10, "minute", 5), {"limit": {"rate": 10, "per": "minute", "burst": 5}}),
        (LogPacket("x: "), {"log": {"prefix": "x: "}}),
        (Reject.TCP_RESET, {"reject": {"type": "tcp reset"}}),
        (Reject.PROHIBITED, {"reject": {"type": "icmpx", "expr": "admin-prohibited"}}),
        (
            Match(TrackingState(), ("established", "related")),
            {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}},
        ),
        (
            Match(Payload("th", "dport"), PortRange(80, 90), is_negated=True),
            {"match": {"op": "!=", "left": DPORT, "right": {"range": [80, 90]}}},
        ),
        (
            Match(Payload("icmpv6", "type"), (133, 135)),
            {"match": {"op": "==", "left": ICMP_TYPE, "right": {"set": [133, 135]}}},
        ),
    ],
)  # fmt: skip
def test_a_statement_of_a_filter_in_json(statement: Statement, expected: object) -> None:
    (command,) = in_place(filled_chains=(Chain(name="c", rules=(Rule((statement,), ""),)),))[1:]
    assert isinstance(command, dict)
    assert command["add"]["rule"]["expr"] == [expected]


def test_a_change_in_place_may_be_empty() -> None:
    assert ChangeTable(phase=Phase.CREATE, table="t").is_empty
    assert not ChangeTable(phase=Phase.CREATE, table="t", deleted_sets=("s",)).is_empty
