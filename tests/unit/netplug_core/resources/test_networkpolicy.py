"""NetworkPolicy and GlobalNetworkPolicy: what a document may say, and what counts of a stored one."""

from collections.abc import Mapping

import pytest

from netplug_core.decoding.tables import Decoder, DocumentOrigin, MalformedField, document_error
from netplug_core.resources.networkpolicy import (
    Direction,
    GlobalNetworkPolicy,
    GlobalNetworkPolicySpec,
    NetworkPolicy,
    NetworkPolicySpec,
    Policy,
    validate_policy,
)
from netplug_core.resources.policyrule import DENY_EVERYTHING, PolicyRule, RuleAction
from netplug_core.resources.profile import ProfileSpec

Json = Mapping[str, object]
OF_USER = Decoder(document_error, DocumentOrigin.USER)
STORED = Decoder(document_error, DocumentOrigin.DATASTORE)
ALLOW: Json = {"action": "Allow"}
IN, OUT = Direction.INGRESS, Direction.EGRESS
UNTRACKED = "policies that count before connections are tracked are not supported"
DNAT = "policies that count before destinations are translated are not supported"
FORWARD = "policies for packets that hosts forward are not supported"
ALLOW_ALL = PolicyRule(action=RuleAction.ALLOW)


def policy(spec: Json) -> NetworkPolicy:
    return OF_USER.decode({"metadata": {"name": "p", "namespace": "x"}, "spec": spec}, NetworkPolicy, "f")


def global_policy(spec: Json) -> GlobalNetworkPolicy:
    return OF_USER.decode({"metadata": {"name": "p"}, "spec": spec}, GlobalNetworkPolicy, "f")


def stored(spec: Json) -> GlobalNetworkPolicySpec:
    return STORED.decode(spec, GlobalNetworkPolicySpec, "f")


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"order": 10, "selector": "app == 'a'", "types": ["Ingress"]},
        {
            "order": -0.5,
            "serviceAccountSelector": "has(role)",
            "ingress": [ALLOW],
            "egress": [{"action": "Log"}, ALLOW],
        },
        {"types": ["Egress", "Ingress"]},
    ],
)
def test_what_may_be_wanted(spec: Json) -> None:
    for found in (policy(spec), global_policy(spec)):
        assert list(validate_policy(found)) == []
        assert OF_USER.encode(found)["spec"] == spec
        assert found.spec.is_enforced
        assert found.spec.not_supported == ()


def test_what_does_nothing_may_be_given() -> None:
    found = global_policy(
        {
            "tier": "default",
            "preDNAT": False,
            "doNotTrack": False,
            "applyOnForward": False,
            "namespaceSelector": "all()",
        }
    )
    assert found.spec == GlobalNetworkPolicySpec(namespace_selector="all()")
    assert policy({"tier": "default"}).spec == NetworkPolicySpec()


@pytest.mark.parametrize(
    "spec, sentence",
    [
        ({"tier": "security"}, "expected default @ f $.spec.tier, found 'security': there is one tier"),
        ({"order": "10"}, "expected a number @ f $.spec.order, found '10'"),
        ({"order": True}, "expected a number @ f $.spec.order, found True"),
        ({"order": float("inf")}, "expected a number @ f $.spec.order, found inf"),
        (
            {"types": ["ingress"]},
            "expected one of Ingress, Egress @ f $.spec.types[0], found 'ingress': did you mean Ingress?",
        ),
        (
            {"doNotTrack": True},
            f"expected false @ f $.spec.doNotTrack, found True: {UNTRACKED}",
        ),
        (
            {"preDNAT": True},
            f"expected false @ f $.spec.preDNAT, found True: {DNAT}",
        ),
        (
            {"applyOnForward": True},
            f"expected false @ f $.spec.applyOnForward, found True: {FORWARD}",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name_and_value(spec: Json, sentence: str) -> None:
    with pytest.raises(MalformedField) as caught:
        global_policy(spec)
    assert str(caught.value) == sentence


GLOBAL = "global() can only be used in the namespaceSelector of a rule"


@pytest.mark.parametrize(
    "found, problems",
    [
        (policy({"types": ["Egress", "Egress"]}), ["spec.types[1] = 'Egress' (is given twice)"]),
        (policy({"selector": "global()"}), [f"spec.selector = 'global()' ({GLOBAL})"]),
        (policy({"serviceAccountSelector": "global()"}), [f"spec.serviceAccountSelector = 'global()' ({GLOBAL})"]),
        (global_policy({"namespaceSelector": "global()"}), [f"spec.namespaceSelector = 'global()' ({GLOBAL})"]),
        (
            policy({"ingress": [ALLOW, {**ALLOW, "icmp": {}}], "egress": [{**ALLOW, "source": {"ports": [1]}}]}),
            [
                "spec.ingress[1].icmp = '' (needs protocol ICMP or ICMPv6)",
                "spec.egress[0].source.ports = '1' (needs protocol TCP, UDP or SCTP)",
            ],
        ),
    ],
)
def test_what_can_be_read_has_to_keep_the_rules(found: Policy, problems: list[str]) -> None:
    assert [str(one).removeprefix("error with field ") for one in validate_policy(found)] == problems


@pytest.mark.parametrize(
    "spec, directions",
    [
        ({}, (IN,)),
        ({"ingress": [ALLOW]}, (IN,)),
        ({"egress": [ALLOW]}, (OUT,)),
        ({"ingress": [ALLOW], "egress": [ALLOW]}, (IN, OUT)),
        ({"types": ["Egress", "Ingress"]}, (IN, OUT)),
        ({"types": ["Egress"], "ingress": [ALLOW]}, (OUT,)),
        ({"types": ["Sideways"]}, (IN, OUT)),
        ({"egress": 1}, (OUT,)),
        ({"ingress": 1}, (IN,)),
        ({"ingress": 1, "egress": [ALLOW]}, (IN, OUT)),
    ],
)
def test_directions_are_those_that_are_given_or_have_rules(spec: Json, directions: tuple[Direction, ...]) -> None:
    assert stored(spec).directions == directions


def test_a_list_of_rules_that_cannot_be_read_denies_everything() -> None:
    spec = stored({"ingress": [ALLOW, 1], "egress": [{"action": "Pass"}, ALLOW]})
    assert spec.rules(IN) == ((0, DENY_EVERYTHING),)
    assert spec.rules(OUT) == ((1, ALLOW_ALL),)
    assert spec.not_supported == ("ingress", "egress[0].action")
    profile = STORED.decode({"ingress": 1, "egress": [ALLOW]}, ProfileSpec, "f")
    assert profile.rules(IN) == ((0, DENY_EVERYTHING),)
    assert profile.rules(OUT) == ((0, ALLOW_ALL),)


@pytest.mark.parametrize(
    "members, is_enforced, path",
    [
        ({"tier": "security"}, True, "tier"),
        ({"applyOnForward": True}, True, "applyOnForward"),
        ({"colour": "red"}, True, "colour"),
        ({"order": "first"}, True, "order"),
        ({"preDNAT": True}, False, "preDNAT"),
        ({"doNotTrack": True}, False, "doNotTrack"),
        ({"doNotTrack": "yes"}, False, "doNotTrack"),
        ({"namespaceSelector": "a ="}, True, "namespaceSelector"),
        ({"selector": 1}, True, "selector"),
    ],
)
def test_a_stored_policy_of_a_newer_release_is_kept_as_it_is(members: Json, path: str, *, is_enforced: bool) -> None:
    written = {"ingress": [ALLOW], **members}
    spec = stored(written)
    assert (spec.is_enforced, spec.not_supported) == (is_enforced, (path,))
    assert spec.is_undecided is (path in {"selector", "namespaceSelector", "order"})
    assert OF_USER.encode(spec) == written
    namespaced = STORED.decode({"selector": "a ="}, NetworkPolicySpec, "f")
    assert (namespaced.is_enforced, namespaced.is_undecided) == (True, True)
    assert namespaced.not_supported == ("selector",)
    for_no_hook = STORED.decode({"preDNAT": True}, NetworkPolicySpec, "f")
    assert (for_no_hook.is_enforced, for_no_hook.is_undecided) == (True, False), "only global ones have hooks"
