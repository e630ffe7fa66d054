"""Reading by key and by kind."""

from collections.abc import Sequence

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.flows.resources.outcome import ResourceMissing
from netplug_core.flows.resources.read import find, list_all, list_in_pages, with_similar_name
from netplug_core.records import PAGE_SIZE, Create, Query, Snapshot
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.kinds import get_kind
from netplug_core.resources.node import Node, node_key
from netplug_core.resources.profile import (
    DEFAULT_ALLOW_PROFILE,
    Profile,
    profile_key,
)
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.selectors import parse
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


def test_pages_have_what_the_list_has_and_are_read_when_they_are_needed(harness: ResourceHarness) -> None:
    for number in range(PAGE_SIZE + 1):
        labels = (("odd", str(number % 2)),)
        name = f"node-{number:04}"
        harness.put(Create(node_key(name), Node(metadata=Metadata(name=name, labels=labels))))
    harness.put(Create(profile_key("zebra"), Profile(metadata=Metadata(name="zebra"))))
    for row, selector in ((get_kind("node"), parse("odd == '1'")), (get_kind("profile"), parse("all()"))):
        found = list_in_pages(harness.store, row, selector=selector, deadline=harness.deadline)
        assert tuple(found) == list_all(harness.store, row, selector=selector, deadline=harness.deadline)
    reads = harness.store.calls.reads
    pages = list_in_pages(harness.store, get_kind("node"), deadline=harness.deadline)
    assert harness.store.calls.reads == reads
    assert next(pages).key.name == "node-0000"
    assert harness.store.calls.reads == reads + 1
    assert len(list(pages)) == PAGE_SIZE
    assert harness.store.calls.reads == reads + 2


def test_a_page_is_kept_to_a_namespace(harness: ResourceHarness) -> None:
    spec = WorkloadEndpointSpec(orchestrator="cni", node="a", endpoint="eth0")
    for namespace in ("a", "b"):
        endpoint = WorkloadEndpoint(metadata=Metadata(name="1", namespace=namespace), spec=spec)
        harness.put(Create(WORKLOAD_ENDPOINT.key(namespace, "1"), endpoint))
    found = list_in_pages(harness.store, get_kind("wep"), namespace="b", deadline=harness.deadline)
    assert [record.key.path for record in found] == [("b", "1")]


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


class SilentStore(MemoryDatastore):
    """One that answers nothing."""

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        raise Unavailable("the store", "it is silent")


def test_a_similar_name_is_said_where_the_stored_ones_can_be_read(harness: ResourceHarness) -> None:
    harness.put(Create(ippool_key("blue"), make_pool("10.0.0.0/24", "blue")))
    missing = ResourceMissing.of(ippool_key("bleu"))
    assert "blue" in str(with_similar_name(harness.store, missing, deadline=harness.deadline))
    silent = SilentStore(clock=harness.clock)
    assert with_similar_name(silent, missing, deadline=harness.deadline) is missing
