"""The rules of policies: what a document may say, what is refused in which words, and what counts of a stored one."""

from collections.abc import Mapping

import pytest

from netplug_core.addressing import Family, Prefix
from netplug_core.decoding.tables import Decoder, DocumentOrigin, MalformedField, UnknownField, document_error
from netplug_core.resources.fields import PortRange
from netplug_core.resources.policyrule import (
    DENY_EVERYTHING,
    EntityRule,
    ICMPMatch,
    PolicyRule,
    PortName,
    Protocol,
    RuleAction,
    RuleMetadata,
    ServiceAccountMatch,
    enforced_rules,
    validate_rules,
)

Json = Mapping[str, object]
OF_USER = Decoder(document_error, DocumentOrigin.USER)
STORED = Decoder(document_error, DocumentOrigin.DATASTORE)
WHOLE: Json = {
    "action": "Allow",
    "ipVersion": 4,
    "protocol": "TCP",
    "notProtocol": 17,
    "source": {
        "nets": ["10.0.0.0/8"],
        "notNets": ["10.1.0.0/16"],
        "selector": "app == 'a'",
        "notSelector": "has(b)",
        "namespaceSelector": "team == 'red'",
        "serviceAccounts": {"names": ["web"], "selector": "has(role)"},
        "ports": [80, "8080:8090", "http"],
    },
    "destination": {"notPorts": [1]},
    "metadata": {"annotations": {"why": "because"}},
}


def rule(members: Json) -> PolicyRule:
    return OF_USER.decode(members, PolicyRule, "f")


def stored(members: Json) -> PolicyRule:
    return STORED.decode(members, PolicyRule, "f")


def problems(*rules: Json) -> list[str]:
    return [str(one) for one in validate_rules("spec.ingress", tuple(map(rule, rules)))]


def test_a_rule_with_everything_is_read_and_written() -> None:
    found = rule(WHOLE)
    assert found == stored(WHOLE)
    assert found == PolicyRule(
        action=RuleAction.ALLOW,
        family=Family.IPV4,
        protocol=Protocol(6),
        not_protocol=Protocol(17),
        source=EntityRule(
            nets=(Prefix.parse("10.0.0.0/8"),),
            not_nets=(Prefix.parse("10.1.0.0/16"),),
            selector="app == 'a'",
            not_selector="has(b)",
            namespace_selector="team == 'red'",
            service_accounts=ServiceAccountMatch(names=("web",), selector="has(role)"),
            ports=(PortRange(80, 80), PortRange(8080, 8090), PortName("http")),
        ),
        destination=EntityRule(not_ports=(PortRange(1, 1),)),
        metadata=RuleMetadata(annotations=(("why", "because"),)),
    )
    assert STORED.encode(found) == {**WHOLE, "notProtocol": "UDP"}
    assert problems(WHOLE) == []
    assert not found.not_supported


@pytest.mark.parametrize(
    "text, number, written",
    [
        ("TCP", 6, "TCP"),
        (6, 6, "TCP"),
        ("ICMPv6", 58, "ICMPv6"),
        ("UDPLite", 136, "UDPLite"),
        (255, 255, 255),
        (1, 1, "ICMP"),
    ],
)
def test_protocols_have_names_or_numbers(text: object, number: int, written: object) -> None:
    found = rule({"action": "Deny", "protocol": text})
    assert found.protocol == Protocol(number)
    assert str(found.protocol) == str(written)
    assert STORED.encode(found)["protocol"] == written


@pytest.mark.parametrize(
    "value, expected, written",
    [
        (0, PortRange(0, 0), 0),
        (65535, PortRange(65535, 65535), 65535),
        ("80", PortRange(80, 80), 80),
        ("80:80", PortRange(80, 80), 80),
        ("1:65535", PortRange(1, 65535), "1:65535"),
        ("http", PortName("http"), "http"),
        ("123456", PortName("123456"), "123456"),
    ],
)
def test_ports_are_numbers_ranges_or_names(value: object, expected: object, written: object) -> None:
    found = rule({"action": "Deny", "protocol": "UDP", "destination": {"ports": [value]}})
    assert found.destination.ports == (expected,)
    assert STORED.encode(found)["destination"] == {"ports": [written]}


PROTOCOLS = "one of ICMP, TCP, UDP, ICMPv6, SCTP, UDPLite, or a number from 1 to 255"
SERVICES = "rules that name Services are not supported yet: name the pods behind them, by a selector"
HTTP = "rules about HTTP are not supported: packets are judged by addresses, protocols and ports"
TIER = "there is one tier, so there is nothing to pass to"
PORTS = "a port up to 65535, two with ':' between, such as 8080:8090, or the name of a port"


@pytest.mark.parametrize(
    "members, sentence",
    [
        ({}, "expected one of Allow, Deny, Log @ f $.action, found nothing"),
        (
            {"action": "Pass"},
            f"expected one of Allow, Deny, Log @ f $.action, found 'Pass': {TIER}",
        ),
        ({"action": "deny"}, "expected one of Allow, Deny, Log @ f $.action, found 'deny': did you mean Deny?"),
        ({"action": 1}, "expected one of Allow, Deny, Log @ f $.action, found 1"),
        ({"action": "Deny", "protocol": "tcp"}, f"expected {PROTOCOLS} @ f $.protocol, found 'tcp': did you mean TCP?"),
        ({"action": "Deny", "protocol": 0}, f"expected {PROTOCOLS} @ f $.protocol, found 0"),
        ({"action": "Deny", "protocol": 256}, f"expected {PROTOCOLS} @ f $.protocol, found 256"),
        ({"action": "Deny", "protocol": True}, f"expected {PROTOCOLS} @ f $.protocol, found True"),
        ({"action": "Deny", "ipVersion": 5}, "expected 4 or 6 @ f $.ipVersion, found 5"),
        ({"action": "Deny", "ipVersion": "4"}, "expected 4 or 6 @ f $.ipVersion, found '4'"),
        ({"action": "Deny", "ipVersion": 4.0}, "expected 4 or 6 @ f $.ipVersion, found 4.0"),
        ({"action": "Deny", "source": {"ports": [65536]}}, f"expected {PORTS} @ f $.source.ports[0], found 65536"),
        ({"action": "Deny", "source": {"ports": ["9:8"]}}, f"expected {PORTS} @ f $.source.ports[0], found '9:8'"),
        ({"action": "Deny", "source": {"ports": [1, "a b"]}}, f"expected {PORTS} @ f $.source.ports[1], found 'a b'"),
        ({"action": "Deny", "source": {"ports": [-1]}}, f"expected {PORTS} @ f $.source.ports[0], found -1"),
        ({"action": "Deny", "source": {"ports": [True]}}, f"expected {PORTS} @ f $.source.ports[0], found True"),
        ({"action": "Deny", "icmp": {"type": 256}}, "expected a whole number from 0 to 255 @ f $.icmp.type, found 256"),
        (
            {"action": "Deny", "source": {"services": {"name": "web"}}},
            f"expected nothing @ f $.source.services, found {{'name': 'web'}}: {SERVICES}",
        ),
        (
            {"action": "Deny", "http": {"methods": ["GET"]}},
            f"expected nothing @ f $.http, found {{'methods': ['GET']}}: {HTTP}",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place_and_value(members: Json, sentence: str) -> None:
    with pytest.raises(MalformedField) as caught:
        rule(members)
    assert str(caught.value) == sentence


def test_an_unknown_member_is_refused_in_what_a_user_writes() -> None:
    with pytest.raises(UnknownField, match=r"wrong location: nett @ f \$\.source; did you mean nets\?"):
        rule({"action": "Deny", "source": {"nett": []}})


BOTH = "like the rest of the rule; write a rule for each IP version"
COMPARISON = "expected '==', '!=', 'contains', 'starts with', 'ends with', 'in' or 'not in'"
GLOBAL = "global() can only be used in the namespaceSelector of a rule"
TERM = "a label, 'has(', 'all()', '!' or '('"
ALONE = "global() cannot be combined with anything else"
NEEDS = "needs protocol TCP, UDP or SCTP"


@pytest.mark.parametrize(
    "members, expected",
    [
        ({"protocol": "ICMP", "icmp": {"type": 8, "code": 0}}, []),
        ({"protocol": "ICMPv6", "notICMP": {"type": 128}, "ipVersion": 6}, []),
        ({"protocol": "SCTP", "source": {"ports": ["a"]}}, []),
        ({"source": {"namespaceSelector": "global()"}}, []),
        ({"source": {"nets": ["10.0.0.0/8"]}, "destination": {"notNets": ["10.1.0.0/16"]}}, []),
        ({"icmp": {"type": 8}}, ["spec.ingress[0].icmp = '' (needs protocol ICMP or ICMPv6)"]),
        (
            {"protocol": "TCP", "notICMP": {"code": 8}},
            [
                "spec.ingress[0].notICMP = 'TCP' (needs protocol ICMP or ICMPv6)",
                "spec.ingress[0].notICMP.code = '8' (needs type)",
            ],
        ),
        ({"protocol": "ICMP", "ipVersion": 6}, ["spec.ingress[0].ipVersion = 'IPv6' (protocol ICMP is of IPv4)"]),
        (
            {"protocol": "ICMPv6", "source": {"nets": ["fd00::/8", "10.0.0.0/8"]}},
            [f"spec.ingress[0].source.nets[1] = '10.0.0.0/8' (must be a prefix of IPv6, {BOTH})"],
        ),
        (
            {"source": {"nets": ["10.0.0.0/8"]}, "destination": {"notNets": ["fd00::/8"]}},
            [f"spec.ingress[0].destination.notNets[0] = 'fd00::/8' (must be a prefix of IPv4, {BOTH})"],
        ),
        ({"source": {"ports": [1, "b"]}}, [f"spec.ingress[0].source.ports = '1, b' ({NEEDS})"]),
        ({"protocol": 132, "source": {"notPorts": [1]}}, []),
        ({"protocol": "UDPLite", "source": {"notPorts": ["b"]}}, [f"spec.ingress[0].source.notPorts = 'b' ({NEEDS})"]),
        (
            {"source": {"selector": "a =", "notSelector": "global()", "namespaceSelector": "global() || has(a)"}},
            [
                f"spec.ingress[0].source.selector = 'a =' (position 3: found '=', {COMPARISON})",
                f"spec.ingress[0].source.notSelector = 'global()' ({GLOBAL})",
                f"spec.ingress[0].source.namespaceSelector = 'global() || has(a)' ({ALONE})",
            ],
        ),
        (
            {"source": {"serviceAccounts": {"names": ["a", "B"], "selector": "!"}}},
            [
                f"spec.ingress[0].source.serviceAccounts.selector = '!' (position 2: found the end, expected {TERM})",
                "spec.ingress[0].source.serviceAccounts.names[1] = 'B' (must be the name of a service account)",
            ],
        ),
    ],
)
def test_what_can_be_read_has_to_keep_the_rules(members: Json, expected: list[str]) -> None:
    found = [one.removeprefix("error with field ") for one in problems({"action": "Deny", **members})]
    assert found == expected


def test_lists_have_bounds() -> None:
    assert problems(*[{"action": "Deny"}] * 1024) == []
    assert problems(*[{"action": "Deny"}] * 1025) == [
        "error with field spec.ingress = '1025' (must be at most 1024 rules)"
    ]
    nets = [f"10.{n}.0.0/16" for n in range(256)]
    ports = list(range(50))
    assert problems({"action": "Deny", "protocol": "TCP", "source": {"nets": nets, "ports": ports}}) == []
    many = {"nets": [*nets, "11.0.0.0/8"], "notPorts": [*ports, 50]}
    assert problems({"action": "Deny", "protocol": "TCP", "source": many}) == [
        "error with field spec.ingress[0].source.nets = '257' (must be at most 256 prefixes)",
        "error with field spec.ingress[0].source.notPorts = '51' (must be at most 50 ports)",
    ]


@pytest.mark.parametrize(
    "members, path",
    [
        ({"source": {"services": {"name": "web"}}}, "source.services"),
        ({"http": {}}, "http"),
        ({"colour": "red"}, "colour"),
        ({"destination": {"nets": ["10.0.0.0/8", "nonsense"]}}, "destination.nets"),
        ({"destination": {"selector": "a ="}}, "destination.selector"),
        ({"protocol": "QUIC"}, "protocol"),
        ({"icmp": {"type": "echo"}}, "icmp.type"),
        ({"source": {"serviceAccounts": {"uid": "1"}}}, "source.serviceAccounts.uid"),
        ({"source": 1}, "source"),
    ],
)
def test_a_stored_rule_with_something_unknown_never_allows_more(members: Json, path: str) -> None:
    for action in ("Allow", "Log", "Pass"):
        found = stored({"action": action, **members})
        assert path in found.not_supported
        assert found.as_enforced() is None
    denies = stored({"action": "Deny", "destination": {"notPorts": [1]}, **members})
    assert denies.not_supported == (path,)
    assert denies.as_enforced() == denies
    assert STORED.encode(denies) == {"action": "Deny", "destination": {"notPorts": [1]}, **members}


def test_a_rule_that_passes_matches_nothing_and_one_of_an_unknown_action_denies() -> None:
    passes = stored({"action": "Pass"})
    assert (passes.action, passes.not_supported, passes.as_enforced()) == (RuleAction.PASS, ("action",), None)
    unknown = stored({"action": "Mirror", "protocol": "TCP"})
    assert (unknown.action, unknown.not_supported) == (None, ("action",))
    enforced = unknown.as_enforced()
    assert enforced is not None
    assert (enforced.action, enforced.protocol) == (RuleAction.DENY, Protocol(6))
    assert STORED.encode(unknown) == {"action": "Mirror", "protocol": "TCP"}
    assert stored({}).action is None


def test_notes_about_a_rule_are_no_criterion() -> None:
    found = stored({"action": "Allow", "metadata": {"annotations": {"a": "b"}, "colour": "red"}})
    assert (found.not_supported, found.as_enforced()) == ((), found)


def test_the_rules_that_count_keep_their_positions() -> None:
    rules = (
        stored({"action": "Pass"}),
        stored({"action": "Allow"}),
        stored({"action": "Log", "http": {}}),
        DENY_EVERYTHING,
    )
    assert enforced_rules(rules) == ((1, PolicyRule(action=RuleAction.ALLOW)), (3, DENY_EVERYTHING))
    assert enforced_rules(rules, is_readable=False) == ((0, DENY_EVERYTHING),)


def test_icmp_without_members_matches_every_type() -> None:
    assert rule({"action": "Deny", "protocol": "ICMP", "icmp": {}}).icmp == ICMPMatch()
