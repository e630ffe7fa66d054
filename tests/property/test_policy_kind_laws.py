"""Laws of the kinds of policy: what is written is read again, every stored spec can be read, and none allows more."""

from __future__ import annotations

import json
from collections.abc import Mapping

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from netplug_cli.ctl.outputs import column_names, table_row
from netplug_core.addressing import Family
from netplug_core.decoding.tables import Decoder, DocumentOrigin, document_error
from netplug_core.orchestrator.networkpolicy import read_network_policy
from netplug_core.resources.codec import from_mapping, to_mapping
from netplug_core.resources.fields import Metadata, PortRange
from netplug_core.resources.kinds import Resource, kind_of
from netplug_core.resources.networkpolicy import (
    Direction,
    GlobalNetworkPolicy,
    GlobalNetworkPolicySpec,
    GlobalNetworkSet,
    NetworkPolicy,
    NetworkPolicySpec,
    NetworkSet,
    NetworkSetSpec,
)
from netplug_core.resources.policyrule import (
    EntityRule,
    ICMPMatch,
    PolicyRule,
    PortMatch,
    PortName,
    Protocol,
    RuleAction,
    RuleMetadata,
    ServiceAccountMatch,
)
from netplug_core.testing.strategies import labels, names, prefixes

STORED = Decoder(document_error, DocumentOrigin.DATASTORE)
SELECTORS = st.sampled_from(["", "all()", "app == 'a'", "!has(b) && c in {'d'}"])
BYTES = st.integers(0, 255)
MAYBE_ICMP = st.none() | st.builds(ICMPMatch, type=BYTES, code=st.none() | BYTES)
MAYBE_PROTOCOL = st.none() | st.builds(Protocol, st.integers(1, 255))


@st.composite
def port_matches(draw: st.DrawFn) -> PortMatch:
    if draw(st.booleans()):
        return PortName(draw(st.sampled_from(["http", "a.b_c-d", "123456"])))
    first = draw(st.integers(0, 65535))
    return PortRange(first, draw(st.integers(first, 65535)))


def several(of: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(of, max_size=3).map(tuple)


ENTITIES = st.builds(
    EntityRule,
    nets=several(prefixes()),
    not_nets=several(prefixes()),
    selector=SELECTORS,
    not_selector=SELECTORS,
    namespace_selector=SELECTORS,
    service_accounts=st.none() | st.builds(ServiceAccountMatch, names=several(names()), selector=SELECTORS),
    ports=several(port_matches()),
    not_ports=several(port_matches()),
)
RULES = st.builds(
    PolicyRule,
    action=st.sampled_from([RuleAction.ALLOW, RuleAction.DENY, RuleAction.LOG]),
    family=st.none() | st.sampled_from(Family),
    protocol=MAYBE_PROTOCOL,
    not_protocol=MAYBE_PROTOCOL,
    icmp=MAYBE_ICMP,
    not_icmp=MAYBE_ICMP,
    source=ENTITIES,
    destination=ENTITIES,
    metadata=st.none() | st.builds(RuleMetadata, annotations=labels()),
)
SPEC = {
    "order": st.none() | st.floats(-1e6, 1e6),
    "selector": SELECTORS,
    "service_account_selector": SELECTORS,
    "types": st.sampled_from([(), (Direction.INGRESS,), (Direction.EGRESS, Direction.INGRESS)]),
    "ingress": several(RULES),
    "egress": several(RULES),
}
IN_NAMESPACE = st.builds(Metadata, name=names(), namespace=names(), labels=labels())
IN_CLUSTER = st.builds(Metadata, name=names(), labels=labels())
SETS = st.builds(NetworkSetSpec, nets=several(prefixes()))
RESOURCES: st.SearchStrategy[Resource] = st.one_of(
    st.builds(NetworkPolicy, metadata=IN_NAMESPACE, spec=st.builds(NetworkPolicySpec, **SPEC)),
    st.builds(
        GlobalNetworkPolicy,
        metadata=IN_CLUSTER,
        spec=st.builds(GlobalNetworkPolicySpec, namespace_selector=SELECTORS, **SPEC),
    ),
    st.builds(NetworkSet, metadata=IN_NAMESPACE, spec=SETS),
    st.builds(GlobalNetworkSet, metadata=IN_CLUSTER, spec=SETS),
)

JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 300)
    | st.sampled_from(["", "Allow", "TCP", "10.0.0.0/8", "a =", "all()"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "names", "x"]), inner, max_size=2)
    ),
    max_leaves=6,
)
ENTITY_JUNK = st.dictionaries(
    st.sampled_from(["nets", "notNets", "selector", "serviceAccounts", "ports", "services", "x"]), JUNK, max_size=3
)
RULE_JUNK = st.dictionaries(
    st.sampled_from(["action", "protocol", "icmp", "ipVersion", "source", "http", "metadata", "x"]),
    JUNK | ENTITY_JUNK,
    max_size=4,
)
SPEC_JUNK = st.dictionaries(
    st.sampled_from(["tier", "order", "selector", "types", "ingress", "egress", "preDNAT", "namespaceSelector", "x"]),
    JUNK | st.lists(RULE_JUNK, max_size=2),
    max_size=4,
)


@given(RESOURCES)
def test_what_is_written_is_read_again(resource: Resource) -> None:
    written = json.loads(json.dumps(to_mapping(resource)))
    for origin in DocumentOrigin:
        assert from_mapping(written, origin=origin) == resource


@given(RESOURCES)
def test_every_value_has_a_row_of_its_table(resource: Resource) -> None:
    kind = kind_of(resource)
    assert len(table_row(resource, column_names(kind))) == len(column_names(kind))


@given(SPEC_JUNK)
def test_every_stored_spec_can_be_read_and_is_written_as_it_was_understood(members: Mapping[str, object]) -> None:
    spec = STORED.decode(members, GlobalNetworkPolicySpec, "s")
    assert STORED.decode(json.loads(json.dumps(STORED.encode(spec))), GlobalNetworkPolicySpec, "s") == spec
    assert spec.directions
    for direction in Direction:
        for _position, rule in spec.rules(direction):
            assert rule.action is RuleAction.DENY or not rule.not_supported


@given(RULES, st.sampled_from(["x", "http"]))
def test_what_is_unknown_of_a_rule_never_allows_more(rule: PolicyRule, name: str) -> None:
    unknown = evolve(rule, unknown_json=json.dumps({name: 1}))
    enforced = unknown.as_enforced()
    assert rule.as_enforced() == rule
    assert (enforced is None) is (rule.action is not RuleAction.DENY)
    assert unknown.not_supported == (name,)


@given(st.dictionaries(st.sampled_from(["podSelector", "policyTypes", "ingress", "egress", "x"]), JUNK, max_size=4))
def test_every_policy_of_kubernetes_can_be_read(members: Mapping[str, object]) -> None:
    found = read_network_policy({"metadata": {"name": "p", "namespace": "x"}, "spec": members}, source="x/p")
    assert found.spec.directions
    is_known = all(name in ("podSelector", "policyTypes", "ingress", "egress") for name in members)
    assert found.spec.not_supported or is_known
