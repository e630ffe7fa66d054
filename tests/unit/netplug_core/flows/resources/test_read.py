"""Reading by key and by kind."""

from netplug_core.flows.resources.read import find, list_all
from netplug_core.records import Create
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.kinds import get_kind
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.node import Node, node_key
from netplug_core.resources.profile import (
    DEFAULT_ALLOW_PROFILE,
    Profile,
    profile_key,
)
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.selectors.grammar import parse
from tests.harness.resources import ResourceHarness, make_pool


def test_lists_are_sorted_by_name_and_kept_to_a_namespace(harness: ResourceHarness) -> None:
    spec = WorkloadEndpointSpec(orchestrator="cni", node="a", endpoint="eth0")
    for namespace, name in (("b", "1"), ("a", "2"), ("a", "1")):
        endpoint = WorkloadEndpoint(metadata=Metadata(name=name, namespace=namespace), spec=spec)
        harness.put(Create(WORKLOAD_ENDPOINT.key(namespace, name), endpoint))
    row = get_kind("wep")
    everywhere = list_all(harness.store, row, deadline=harness.deadline)
    assert [record.key.path for record in everywhere] == [("a", "1"), ("a", "2"), ("b", "1")]
    assert [record.key.name for record in list_all(harness.store, row, namespace="b", deadline=harness.deadline)] == [
        "1"
    ]


def test_the_profile_that_allows_everything_is_there_in_every_store_once(harness: ResourceHarness) -> None:
    for name in ("zebra", "kns.shop"):
        harness.put(Create(profile_key(name), Profile(metadata=Metadata(name=name))))
    listed = list_all(harness.store, get_kind("profile"), deadline=harness.deadline)
    assert [record.key.name for record in listed] == ["kns.shop", "projectnetplug-default-allow", "zebra"]
    assert listed[1] == harness.find(DEFAULT_ALLOW_PROFILE.key) == DEFAULT_ALLOW_PROFILE
    harness.put(Create(DEFAULT_ALLOW_PROFILE.key, Profile(metadata=Metadata(name=DEFAULT_ALLOW_PROFILE.key.name))))
    assert list_all(harness.store, get_kind("profile"), deadline=harness.deadline) == listed


def test_find_answers_in_the_order_asked(harness: ResourceHarness) -> None:
    harness.create(make_pool())
    missing, there = find(harness.store, [ippool_key("nope"), ippool_key("p")], deadline=harness.deadline)
    assert missing is None
    assert there is not None


def test_a_selector_keeps_what_has_its_labels(harness: ResourceHarness) -> None:
    for name, labels in (("a", (("rack", "r1"),)), ("b", (("rack", "r2"),)), ("c", ())):
        harness.put(Create(node_key(name), Node(metadata=Metadata(name=name, labels=labels))))
    selector = parse("rack != 'r1'")
    found = list_all(harness.store, get_kind("node"), selector=selector, deadline=harness.deadline)
    assert [record.key.name for record in found] == ["b", "c"]
