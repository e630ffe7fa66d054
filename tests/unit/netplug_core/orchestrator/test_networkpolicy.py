"""The NetworkPolicy of Kubernetes is read as the API server has it, and what is not understood never allows more."""

from collections.abc import Mapping

import pytest

from netplug_core.addressing import Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.orchestrator.networkpolicy import (
    IPBlock,
    KubernetesNetworkPolicy,
    KubernetesNetworkPolicySpec,
    LabelOperator,
    LabelRequirement,
    LabelSelector,
    PeerEntry,
    PortEntry,
    RuleEntry,
    read_network_policy,
)
from netplug_core.resources.fields import PortRange
from netplug_core.resources.hostendpoint import PortProtocol
from netplug_core.resources.networkpolicy import Direction
from netplug_core.resources.policyrule import PortName

Json = Mapping[str, object]
METADATA = {"namespace": "x", "name": "p", "uid": "u", "managedFields": []}
IN, OUT = Direction.INGRESS, Direction.EGRESS


def policy(spec: object) -> KubernetesNetworkPolicy:
    document = {"kind": "NetworkPolicy", "apiVersion": "networking.k8s.io/v1", "metadata": METADATA, "spec": spec}
    return read_network_policy(document, source="x/p")


def rule(members: Json) -> RuleEntry:
    return policy({"podSelector": {}, "ingress": [members]}).spec.ingress[0]


def test_every_field_is_read() -> None:
    requirement = {"key": "tier", "operator": "NotIn", "values": ["db", "cache"]}
    found = policy(
        {
            "podSelector": {"matchLabels": {"app": "b"}, "matchExpressions": [requirement]},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {
                    "from": [
                        {"podSelector": {"matchLabels": {"app": "a"}}, "namespaceSelector": {}},
                        {"ipBlock": {"cidr": "192.0.2.9/24", "except": ["192.0.2.8/29"]}},
                    ],
                    "ports": [{"protocol": "UDP", "port": 80, "endPort": 90}, {"port": "http"}, {"protocol": "SCTP"}],
                }
            ],
            "egress": [{"to": [{"namespaceSelector": {}}]}, {}],
        }
    )
    assert found == KubernetesNetworkPolicy(
        namespace="x",
        name="p",
        uid="u",
        spec=KubernetesNetworkPolicySpec(
            pods=LabelSelector(
                labels=(("app", "b"),),
                requirements=(LabelRequirement(key="tier", operator=LabelOperator.NOT_IN, values=("db", "cache")),),
            ),
            types=(IN, OUT),
            ingress=(
                RuleEntry(
                    sources=(
                        PeerEntry(
                            pod_selector=LabelSelector(labels=(("app", "a"),)), namespace_selector=LabelSelector()
                        ),
                        PeerEntry(
                            ip_block=IPBlock(
                                prefix=Prefix.parse("192.0.2.0/24"), excepted=(Prefix.parse("192.0.2.8/29"),)
                            )
                        ),
                    ),
                    ports=(
                        PortEntry(protocol=PortProtocol.UDP, port=PortRange(80, 80), end=90),
                        PortEntry(port=PortName("http")),
                        PortEntry(protocol=PortProtocol.SCTP),
                    ),
                ),
            ),
            egress=(RuleEntry(destinations=(PeerEntry(namespace_selector=LabelSelector()),)), RuleEntry()),
        ),
    )
    spec = found.spec
    assert (spec.is_enforced, spec.not_supported) == (True, ())
    assert spec.rules(IN) == spec.ingress
    assert spec.rules(OUT) == spec.egress
    rule = spec.ingress[0]
    assert all(one.is_readable for one in (*spec.ingress, *spec.egress))
    assert all(one.is_readable for one in (*rule.sources, *spec.egress[0].destinations))
    assert all(one.is_readable for one in rule.ports)


@pytest.mark.parametrize(
    "spec, directions",
    [
        ({}, (IN,)),
        ({"ingress": [{}]}, (IN,)),
        ({"egress": [{}]}, (IN, OUT)),
        ({"egress": []}, (IN,)),
        ({"policyTypes": ["Egress"]}, (OUT,)),
        ({"policyTypes": ["Egress", "Ingress"]}, (IN, OUT)),
        ({"policyTypes": ["Forward"]}, (IN, OUT)),
        ({"egress": "?"}, (IN, OUT)),
    ],
)
def test_directions_are_those_that_are_listed(spec: Json, directions: tuple[Direction, ...]) -> None:
    assert policy({"podSelector": {}, **spec}).spec.directions == directions


@pytest.mark.parametrize(
    "peer, path",
    [
        ({"ipBlock": {"cidr": "nonsense"}}, "ipBlock.cidr"),
        ({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "nonsense"]}}, "ipBlock.except"),
        ({"ipBlock": {"cidr": "10.0.0.0/8", "country": "de"}}, "ipBlock.country"),
        ({"podSelector": {"matchFields": []}}, "podSelector.matchFields"),
        ({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}, "podSelector"),
        ({"namespaceSelector": 1}, "namespaceSelector"),
        ({"serviceSelector": {}}, "serviceSelector"),
    ],
)
def test_a_peer_that_is_not_understood_is_left_out_whole(peer: Json, path: str) -> None:
    found = policy({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}, peer]}]})
    assert [one.is_readable for one in found.spec.ingress[0].sources] == [True, False]
    assert found.spec.not_supported == (f"ingress[0].from[1].{path}",)
    assert found.spec.is_enforced


def test_a_peer_names_pods_or_addresses() -> None:
    both = {"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}
    peers = rule({"from": [{}, both, {"ipBlock": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}]}).sources
    assert [one.is_readable for one in peers] == [False, False, False, True]


@pytest.mark.parametrize(
    "port, is_readable",
    [
        ({"port": 80, "endPort": 80}, True),
        ({"port": 80, "endPort": 79}, False),
        ({"port": "http", "endPort": 80}, False),
        ({"endPort": 80}, False),
        ({"protocol": "QUIC"}, False),
        ({"port": 0.5}, False),
        ({"port": 80, "zone": 1}, False),
    ],
)
def test_a_port_that_is_not_understood_is_left_out(port: Json, *, is_readable: bool) -> None:
    assert rule({"ports": [port]}).ports[0].is_readable is is_readable


@pytest.mark.parametrize("members", [{"from": "everyone"}, {"ports": [1]}, {"schedule": "nights"}])
def test_a_rule_that_is_not_understood_allows_nothing(members: Json) -> None:
    assert not rule(members).is_readable


def test_a_policy_whose_pods_are_not_known_does_not_count() -> None:
    assert not policy({"podSelector": {"matchFields": []}}).spec.is_enforced
    assert not policy({"podSelector": 1}).spec.is_enforced


@pytest.mark.parametrize("metadata", [{}, {"name": "p"}, {"namespace": "x"}])
def test_a_policy_has_a_name_and_a_namespace(metadata: Json) -> None:
    with pytest.raises(ConfigurationError, match=r"expected a name @ it \$\.metadata\.name"):
        read_network_policy({"metadata": metadata}, source="it")
