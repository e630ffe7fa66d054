"""A release by hand: exactly what was found, nothing that an endpoint has, on stores of every mode."""

from collections.abc import Mapping

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address
from netplug_core.clock import Deadline
from netplug_core.flows.ipam.addresses import EndpointCheck, HeldRelease, ReleaseResult, release_held
from netplug_core.flows.ipam.check import SETTLE_S
from netplug_core.records import Key
from netplug_core.resources.fields import Metadata
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.testing.faults import Fault, FaultyDatastore, RunBefore
from tests.harness.ipam import IPAMHarness, ipv4


@pytest.fixture(params=MemoryMode)
def harness(request: pytest.FixtureRequest) -> IPAMHarness:
    """A cluster with one pool over a store of each mode; the handle h1 holds two addresses of it."""
    harness = IPAMHarness.new(request.param)
    harness.add_pool("main", "10.0.0.0/22")
    harness.assign_or_refuse("h1", ipv4(2))
    return harness


def release(
    harness: IPAMHarness,
    *addresses: str,
    check: EndpointCheck = EndpointCheck.REFUSED,
    script: Mapping[int, Fault] | None = None,
) -> list[HeldRelease]:
    store = FaultyDatastore(harness.store, script or {})
    pace = evolve(harness.pace, deadline=Deadline.after(harness.clock, 10 * SETTLE_S))
    return list(release_held(store, tuple(map(Address.parse, addresses)), check, pace=pace))


def results(found: list[HeldRelease]) -> list[ReleaseResult]:
    return [one.result for one in found]


def add_endpoint(harness: IPAMHarness, address: str) -> None:
    spec = WorkloadEndpointSpec(orchestrator="k8s", node="node-a", endpoint="eth0", addresses=(Address.parse(address),))
    harness.put(
        Key(WORKLOAD_ENDPOINT, ("shop", "web")),
        WorkloadEndpoint(metadata=Metadata(name="web", namespace="shop"), spec=spec),
    )


def test_what_is_held_is_released_and_its_handle_deleted(harness: IPAMHarness) -> None:
    assert results(release(harness, "10.0.0.1", "10.0.0.9")) == [ReleaseResult.RELEASED, ReleaseResult.NOT_ASSIGNED]
    assert list(harness.held()) == ["10.0.0.0"]
    assert results(release(harness, "10.0.0.0")) == [ReleaseResult.RELEASED]
    assert (harness.held(), harness.handles()) == ({}, [])


def test_what_an_endpoint_has_stays_unless_that_is_not_asked(harness: IPAMHarness) -> None:
    add_endpoint(harness, "10.0.0.1")
    first, second = release(harness, "10.0.0.0", "10.0.0.1")
    assert (first.result, second.result) == (ReleaseResult.RELEASED, ReleaseResult.IN_USE)
    assert str(second.endpoint) == "WorkloadEndpoint(shop/web)"
    assert results(release(harness, "10.0.0.1", check=EndpointCheck.SKIPPED)) == [ReleaseResult.RELEASED]


def test_only_an_ordered_store_has_to_wait_for_the_endpoints_of_running_adds(harness: IPAMHarness) -> None:
    began_s = harness.clock.monotonic()
    release(harness, "10.0.0.0", check=EndpointCheck.SKIPPED)
    release(harness, "10.0.0.0")
    assert harness.clock.monotonic() == began_s
    release(harness, "10.0.0.1")
    waited_s = harness.clock.monotonic() - began_s
    assert waited_s == (0 if harness.store.mode is MemoryMode.ATOMIC else SETTLE_S)


def test_an_address_in_its_cooldown_is_released_already(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=60)
    release(harness, "10.0.0.0", check=EndpointCheck.SKIPPED)
    assert results(release(harness, "10.0.0.0")) == [ReleaseResult.COOLING]


def test_an_address_that_is_anothers_meanwhile_is_not_released(harness: IPAMHarness) -> None:
    """Between the look and the commit, the workload's DEL comes, and another workload gets the address."""

    def take_over() -> None:
        harness.release("h1")
        for number in range(64):
            harness.assign_or_refuse(f"other-{number}", ipv4())

    found = release(harness, "10.0.0.1", script={1: RunBefore(take_over)})
    assert results(found) == [ReleaseResult.CHANGED]
    assert "10.0.0.1" in harness.held()
