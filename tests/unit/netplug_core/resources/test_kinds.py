"""The kind table: words, names, keys."""

import pytest

from netplug_core.errors import ConfigurationError, InvariantBroken
from netplug_core.resources.fields import Metadata
from netplug_core.resources.kinds import (
    KINDS,
    ResourceScope,
    UnknownKind,
    find_kind,
    get_kind,
    key_of,
    kind_of,
    resource_of,
)
from netplug_core.resources.node import Node
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec


@pytest.mark.parametrize(
    "word, name",
    [
        ("ippool", "IPPool"),
        ("POOLS", "IPPool"),
        ("IPPool", "IPPool"),
        ("nos", "Node"),
        ("wep", "WorkloadEndpoint"),
        ("pro", "Profile"),
        ("Profiles", "Profile"),
        ("reservations", "IPReservation"),
        ("IPAMConfig", "IPAMConfiguration"),
        ("ipamconfigs", "IPAMConfiguration"),
        ("kcconfig", "KubeControllersConfiguration"),
        ("kubecontrollersconfigs", "KubeControllersConfiguration"),
        ("HEP", "HostEndpoint"),
        ("hostendpoints", "HostEndpoint"),
        ("bgpconfig", "BGPConfiguration"),
        ("BGPConfigs", "BGPConfiguration"),
        ("bgppeers", "BGPPeer"),
        ("bp", "BGPPeer"),
        ("bgpf", "BGPFilter"),
        ("BGPFilters", "BGPFilter"),
        ("networkpolicies", "NetworkPolicy"),
        ("policy", "NetworkPolicy"),
        ("np", "NetworkPolicy"),
        ("globalnetworkpolicies", "GlobalNetworkPolicy"),
        ("gnp", "GlobalNetworkPolicy"),
        ("NetworkSets", "NetworkSet"),
        ("netset", "NetworkSet"),
        ("globalnetworkset", "GlobalNetworkSet"),
        ("nodeconfig", "NodeConfiguration"),
        ("NodeConfigurations", "NodeConfiguration"),
    ],
)
def test_people_have_many_words_for_a_kind(word: object, name: str) -> None:
    assert get_kind(word).name == name


def test_no_word_means_two_kinds() -> None:
    words = [word for row in KINDS for word in row.aliases]
    assert len(words) == len(set(words))
    assert all(row.name.lower() in row.aliases and row.plural in row.aliases for row in KINDS)


@pytest.mark.parametrize("word", ["somekind", 5])
def test_a_word_for_nothing_is_refused(word: object) -> None:
    with pytest.raises(UnknownKind) as caught:
        get_kind(word)
    text = str(caught.value)
    assert text.startswith(f"resource type '{word}' is not supported; there are IPPool, IPReservation, ")


def test_nothing_found_is_none() -> None:
    assert find_kind("somekind") is None


def test_a_value_that_is_no_resource_is_our_mistake() -> None:
    node = Node(metadata=Metadata(name="node-1"))
    assert resource_of(node) is node
    with pytest.raises(InvariantBroken, match="a str stands where a resource has to be"):
        resource_of("node-1")


def test_keys_have_a_namespace_only_where_the_kind_has() -> None:
    node = Node(metadata=Metadata(name="a", namespace="ignored"))
    spec = WorkloadEndpointSpec(orchestrator="cni", node="a", endpoint="eth0")
    endpoint = WorkloadEndpoint(metadata=Metadata(name="w", namespace="ns"), spec=spec)
    assert str(key_of(node)) == "Node(a)"
    assert str(key_of(endpoint)) == "WorkloadEndpoint(ns/w)"
    assert kind_of(endpoint).scope is ResourceScope.NAMESPACED


@pytest.mark.parametrize("name,namespace,where", [("\udcff", "", "name"), ("a", "\ud800", "namespace")])
def test_a_name_that_is_not_utf8_is_refused(name: str, namespace: str, where: str) -> None:
    """A byte of the command line that is not UTF-8 becomes a surrogate, which no datastore could look up."""
    with pytest.raises(ConfigurationError, match=rf"^WorkloadEndpoint\.{where}: .* a text in UTF-8 is expected$"):
        get_kind("wep").key(name, namespace)
