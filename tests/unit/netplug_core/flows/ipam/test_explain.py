"""Explanations read from a store: of addresses, handles, pods and requests; nothing is written."""

from __future__ import annotations

import pytest

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address, Family, Ordinal, Prefix
from netplug_core.flows.ipam.explain import (
    explain_address,
    explain_request,
    families_of_pools,
    find_addresses_of_handle,
    find_pod,
)
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, Shortfall
from netplug_core.ipam.model import Attribute, Block
from netplug_core.ipam.reporting.explanation import AddressStatus
from netplug_core.orchestrator.model import PodName
from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import AllowedUse
from netplug_core.resources.profile import Profile, ProfileSpec, profile_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.testing.faults import DamagedDatastore
from tests.harness.resources import ResourceHarness, make_pool

POD = PodName("shop", "web-0")
MINE = Attribute(handle="net.a", owner=(("namespace", "shop"), ("pod", "web-0")))
OTHER = Attribute(handle="net.b", owner=(("namespace", "shop"), ("pod", "web-1")))
BLOCK = (
    Block.new(Prefix.parse("10.0.0.0/26"), owner="host:a", now_ns=1)
    .assign((Ordinal(5), Ordinal(3)), MINE)
    .assign((Ordinal(4),), OTHER)
)
HELD = (Address.parse("10.0.0.3"), Address.parse("10.0.0.5"))


@pytest.fixture
def harness() -> ResourceHarness:
    """A pool with a block that holds addresses of two pods."""
    harness = ResourceHarness.with_mode(MemoryMode.ATOMIC)
    harness.create(make_pool("10.0.0.0/24", "four"))
    harness.put(Create(BLOCK.key, BLOCK))
    return harness


def endpoint(pod: str, *addresses: str) -> Create[object]:
    spec = WorkloadEndpointSpec(
        orchestrator="k8s", node="a", pod=pod, endpoint="eth0", addresses=tuple(map(Address.parse, addresses))
    )
    value = WorkloadEndpoint(metadata=Metadata(name=f"a-{pod}", namespace="shop"), spec=spec)
    return Create(WORKLOAD_ENDPOINT.key("shop", f"a-{pod}"), value)


def test_an_address_is_explained_and_nothing_is_written(harness: ResourceHarness) -> None:
    commits = harness.store.calls.commits
    found = explain_address(harness.store, HELD[0], pace=harness.pace)
    assert (found.status, found.block) == (AddressStatus.IN_USE, BLOCK)
    assert harness.store.calls.commits == commits


def test_a_request_is_decided_and_nothing_is_written(harness: ResourceHarness) -> None:
    commits = harness.store.calls.commits
    wanted = (Automatic(family=Family.IPV4),)
    request = AssignRequest(handle=None, node="b", wanted=wanted, use=AllowedUse.WORKLOAD, shortfall=Shortfall.REFUSE)
    found = explain_request(harness.store, request, pace=harness.pace)
    assert len(found.addresses) == 1
    assert not BLOCK.prefix.contains(found.addresses[0])
    assert explain_request(harness.store, request, pace=harness.pace) == found
    assert harness.store.calls.commits == commits


def test_the_addresses_of_a_handle_come_from_the_blocks(harness: ResourceHarness) -> None:
    assert find_addresses_of_handle(harness.store, "net.a", deadline=harness.deadline).addresses == HELD
    assert find_addresses_of_handle(harness.store, "net.z", deadline=harness.deadline).addresses == ()


def test_a_damaged_block_is_named_beside_what_others_hold(harness: ResourceHarness) -> None:
    damaged = Block.new(Prefix.parse("10.0.0.64/26"), owner="host:a", now_ns=1)
    harness.put(Create(damaged.key, damaged))
    store = DamagedDatastore(harness.store, damage={damaged.key: b"{"})
    found = find_addresses_of_handle(store, "net.a", deadline=harness.deadline)
    assert found.addresses == HELD
    assert "10.0.0.64/26" in found.problems[0]


def test_a_pod_has_its_addresses_its_node_and_the_labels_of_its_namespace(harness: ResourceHarness) -> None:
    spec = ProfileSpec(labels_to_apply=(("other", "x"), ("pcns.team", "red")))
    harness.put(Create(profile_key("kns.shop"), Profile(metadata=Metadata(name="kns.shop"), spec=spec)))
    harness.put(endpoint("web-0", *map(str, HELD)), endpoint("web-1"))
    found = find_pod(harness.store, POD, deadline=harness.deadline)
    assert (found.held, found.node, found.namespace_labels) == (HELD, "a", (("team", "red"),))
    assert found.problems == ()


def test_an_unknown_pod_has_nothing(harness: ResourceHarness) -> None:
    found = find_pod(harness.store, PodName("shop", "web-9"), deadline=harness.deadline)
    assert (found.held, found.node, found.namespace_labels, found.problems) == ((), "", (), ())


def test_an_address_that_only_the_endpoint_has_is_a_problem(harness: ResourceHarness) -> None:
    harness.put(endpoint("web-0", str(HELD[0]), "10.0.0.9"))
    assert find_pod(harness.store, POD, deadline=harness.deadline).problems == (
        "WorkloadEndpoint(shop/a-web-0) has 10.0.0.9, and no block that can be read says that the pod has it",
    )


def test_damaged_endpoints_and_profiles_are_named(harness: ResourceHarness) -> None:
    made = endpoint("web-0")
    profile = profile_key("kns.shop")
    harness.put(made, Create(profile, Profile(metadata=Metadata(name="kns.shop"))))
    store = DamagedDatastore(harness.store, damage={made.key: b"{", profile: b"{"})
    found = find_pod(store, POD, deadline=harness.deadline)
    assert (found.held, found.node) == (HELD, "")
    assert len(found.problems) == 2


def test_families_are_those_of_the_pools(harness: ResourceHarness) -> None:
    harness.create(make_pool("fd00::/64", "six"))
    assert families_of_pools(harness.store, (), deadline=harness.deadline) == (Family.IPV4, Family.IPV6)
    assert families_of_pools(harness.store, ("six",), deadline=harness.deadline) == (Family.IPV6,)
    assert families_of_pools(harness.store, ("10.0.0.0/24",), deadline=harness.deadline) == (Family.IPV4,)
    assert families_of_pools(harness.store, ("none",), deadline=harness.deadline) == (Family.IPV4,)
