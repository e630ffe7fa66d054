"""The simulation: what it finds in small clusters that can be worked out by hand, and when it asks again."""

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError
from netplug_core.flows.resources.outcome import ResourceExists
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, ReleaseRequest
from netplug_core.ipam.model import HANDLE
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import (
    AllowedUse,
    IPAMConfiguration,
    IPAMConfigurationSpec,
    IPReservation,
    IPReservationSpec,
)
from netplug_core.resources.node import NODE
from netplug_core.resources.validation import InvalidResource
from netplug_core.simulation.scenario import Placement, PodLoad, ProcessModel, Scenario
from netplug_core.simulation.simulator import Distribution, SimulatedCall, SimulatedClock, simulate
from tests.harness.simulation import make_nodes, make_pool, make_scenario, run_scenario, stored_records

FOUR_BLOCKS = make_pool("10.0.0.0/27", 29)  # 8 addresses each


def configuration(**spec: object) -> IPAMConfiguration:
    return IPAMConfiguration(metadata=Metadata(name="default"), spec=IPAMConfigurationSpec(**spec))  # type: ignore[arg-type]


def refused(calls: list[SimulatedCall]) -> list[SimulatedCall]:
    return [call for call in calls if isinstance(call.result, AllocationError)]


# --- time ----------------------------------------------------------------------------------------------------------


def test_a_scenario_has_its_duration_and_its_pods_start_evenly() -> None:
    found, calls, _ = run_scenario(make_scenario(2, (FOUR_BLOCKS,), PodLoad(pods_per_node=3), steps=2, step_s=60))
    assert [sample.at_s for sample in found.samples] == [60, 120]
    assert [(call.at_ns - calls[0].at_ns) / 10**9 for call in calls] == [0, 10, 20, 30, 40, 50]


# --- what fits -----------------------------------------------------------------------------------------------------


def test_a_cluster_that_fits() -> None:
    found, _, _ = run_scenario(make_scenario(2, (FOUR_BLOCKS,), PodLoad(pods_per_node=12)))
    assert (found.first_refusal, found.first_borrowed_s, found.refusals, found.find_exhausted_s("main")) == (
        None,
        None,
        (),
        None,
    )
    assert (found.last.running, found.last.waiting, found.last.held, found.last.started) == (24, 0, 24, 24)
    assert found.last.pools[0].blocks == 4
    assert found.last.blocks_per_node == Distribution(minimum=2, median=2, maximum=2)
    assert found.last.pools[0].utilization == 0.75
    assert [usage.in_use for usage in found.usages] == [24]


def test_calls_to_the_store_are_counted_and_looking_is_not_among_them() -> None:
    found, _, _ = run_scenario(make_scenario(1, (FOUR_BLOCKS,), PodLoad(pods_per_node=2), steps=2))
    assert [(sample.calls.reads, sample.calls.commits) for sample in found.samples] == [(4, 2), (0, 0)]


def test_a_node_without_room_in_its_own_blocks_borrows_when_all_are_claimed() -> None:
    work = PodLoad(pods_per_node=6, max_per_node=20, placement=Placement.PACK)
    found, calls, _ = run_scenario(make_scenario(5, (FOUR_BLOCKS,), work, step_s=60))
    # The first node takes 20 of 24 addresses in three blocks, the second the last block and two loans.
    assert found.first_refusal is None
    assert found.last.borrowed == 2
    assert found.last.borrowed_share == 2 / 30
    assert found.first_borrowed_s == 28 / 30 * 60
    assert len(calls) == 30


def test_an_exhausted_pool_says_when_where_and_why() -> None:
    found, calls, _ = run_scenario(make_scenario(2, (FOUR_BLOCKS,), PodLoad(pods_per_node=20), steps=2, step_s=40))
    assert (found.last.running, found.last.waiting) == (32, 8)
    first = found.first_refusal
    assert first is not None
    assert (first.at_s, first.node, first.identifier) == (32, refused(calls)[0].request.node, "pools-exhausted")
    assert first.text.startswith(
        "Assigned 0 out of 1 requested IPv4 addresses; No IPs available in pools: [10.0.0.0/27]"
    )
    assert found.find_exhausted_s("main") == 40
    assert found.refusals == (("pools-exhausted", len(refused(calls))),)


def test_both_families_or_none() -> None:
    six = make_pool("fd00::/120", 124, "six")
    work = PodLoad(pods_per_node=40, families=(Family.IPV4, Family.IPV6))
    found, _, _ = run_scenario(make_scenario(1, (FOUR_BLOCKS, six), work))
    assert [sample.in_use for sample in found.last.pools] == [32, 32]
    assert (found.last.running, found.last.waiting) == (32, 8)


# --- asking again --------------------------------------------------------------------------------------------------


def test_a_node_that_was_refused_does_not_ask_for_its_next_pod_before_something_is_released() -> None:
    _, calls, _ = run_scenario(make_scenario(2, (FOUR_BLOCKS,), PodLoad(pods_per_node=20)))
    assert len(refused(calls)) == 2
    assert len(calls) == 34


def test_pods_that_wait_ask_again_at_the_next_step_the_oldest_first() -> None:
    _, calls, _ = run_scenario(make_scenario(1, (FOUR_BLOCKS,), PodLoad(pods_per_node=40), steps=3))
    assert [call.request.handle for call in refused(calls)] == ["simulated.pod-33"] * 3


def test_a_step_begins_with_few_refusals_and_the_nodes_take_turns() -> None:
    work = PodLoad(pods_per_node=1)
    tiny = make_pool("10.0.0.0/30", 30)
    found, calls, _ = run_scenario(make_scenario(44, (tiny,), work, steps=4))
    assert [sample.refused for sample in found.samples] == [40, 16, 16, 16]
    again = [call.request.handle for call in refused(calls)[40:]]
    assert len(set(again[:40])) == 40
    assert again[40:] == again[:8]


def test_an_address_that_is_released_goes_to_a_pod_that_waits() -> None:
    work = PodLoad(pods_per_node=10, lifetime_s=60)
    found, _, _ = run_scenario(make_scenario(1, (make_pool("10.0.0.0/29", 29),), work, steps=3))
    # Two wait; eight end in every step, and of their replacements two wait in turn.
    assert [(sample.running, sample.waiting) for sample in found.samples] == [(8, 2)] * 3
    assert [sample.ended for sample in found.samples] == [0, 8, 8]
    assert [sample.started for sample in found.samples] == [8, 8, 8]


def test_pods_that_wait_get_addresses_that_have_cooled_down() -> None:
    """Time alone frees them, and a node takes all that it can have in one turn.

    Eight addresses are released in the second minute, seven and a half seconds apart, and rest for 101 s: three can be
    had at 3m, the others at 4m. The pods that got the three end a minute later.
    """
    eight, work = make_pool("10.0.0.0/29", 29), PodLoad(pods_per_node=8, lifetime_s=61)
    found, _, _ = run_scenario(make_scenario(1, (eight,), work, steps=5, configuration=configuration(cooldown_s=100)))
    assert [(sample.running, sample.waiting) for sample in found.samples] == [(8, 0), (0, 8), (0, 8), (3, 5), (5, 3)]
    assert [sample.pools[0].cooling for sample in found.samples] == [0, 8, 8, 5, 3]
    assert [sample.held for sample in found.samples] == [8, 0, 0, 3, 5]


# --- what is asked ---------------------------------------------------------------------------------------------------


def test_requests_are_those_of_a_pod() -> None:
    work = PodLoad(pods_per_node=1, churn=1, namespace_labels=(("team", "a"),))
    _, calls, store = run_scenario(make_scenario(1, (FOUR_BLOCKS,), work, steps=2))
    first, release, second = calls
    assert isinstance(first.request, AssignRequest)
    assert (first.request.node, first.request.use) == ("node-0", AllowedUse.WORKLOAD)
    assert first.request.namespace_labels == (("team", "a"),)
    assert isinstance(first.result, Assignment)
    assert release.request == ReleaseRequest(handle="simulated.pod-1")
    assert second.request.handle == "simulated.pod-2"
    assert [key.name for key in stored_records(store, HANDLE)] == ["simulated.pod-2"]


def test_pools_that_select_nodes_and_namespaces_are_asked_with_their_labels() -> None:
    zones = (
        make_pool("10.0.0.0/27", 29, "a", node_selector="zone == 'a'"),
        make_pool("10.0.1.0/27", 29, "b", node_selector="zone == 'b'"),
        make_pool("10.0.2.0/27", 29, "c", namespace_selector="team == 'x'", allowed_uses=(AllowedUse.WORKLOAD,)),
    )
    in_a, in_b = (
        make_nodes(1, (("zone", "a"),)),
        evolve(make_nodes(2)[1], metadata=Metadata(name="z", labels=(("zone", "b"),))),
    )
    request = Scenario(nodes=(*in_a, in_b), pools=zones, load=PodLoad(pods_per_node=4), steps=1)
    found, _, store = run_scenario(request)
    assert [sample.in_use for sample in found.last.pools] == [4, 4, 0]
    assert len(stored_records(store, NODE)) == 2


def test_reserved_addresses_are_given_to_nobody() -> None:
    reserved = Prefix.parse("10.0.0.0/28")
    reservation = IPReservation(metadata=Metadata(name="r"), spec=IPReservationSpec(reserved=(reserved,)))
    found, calls, _ = run_scenario(
        make_scenario(1, (FOUR_BLOCKS,), PodLoad(pods_per_node=20), reservations=(reservation,))
    )
    assert (found.last.running, found.last.waiting, found.last.pools[0].reserved) == (16, 4, 16)
    given: list[Address] = [
        assigned.address for call in calls if isinstance(call.result, Assignment) for assigned in call.result.addresses
    ]
    assert not any(reserved.contains(address) for address in given)


def test_the_configuration_counts() -> None:
    strict = configuration(is_affinity_strict=True, max_blocks_per_host=1)
    found, _, _ = run_scenario(make_scenario(2, (FOUR_BLOCKS,), PodLoad(pods_per_node=10), configuration=strict))
    assert found.refusals == (("block-limit-reached", 2),)
    assert (found.last.running, found.last.waiting) == (16, 4)


def test_resident_processes_need_fewer_calls_for_the_same_addresses() -> None:
    cold = make_scenario(3, (make_pool("10.0.0.0/24", 28),), PodLoad(pods_per_node=30, churn=0.3), steps=5)
    found, calls, _ = run_scenario(cold)
    found_warm, calls_warm, _ = run_scenario(evolve(cold, process_model=ProcessModel.RESIDENT))
    assert [call.result for call in calls] == [call.result for call in calls_warm]
    assert found_warm.calls.reads < found.calls.reads / 2


# --- what is refused -------------------------------------------------------------------------------------------------


def test_pools_that_overlap_are_refused_before_anything_begins() -> None:
    clock = SimulatedClock()
    request = make_scenario(
        1, (make_pool("10.0.0.0/24", 26, "a"), make_pool("10.0.0.0/25", 26, "b")), PodLoad(pods_per_node=1)
    )
    with pytest.raises(InvalidResource, match="CIDR overlaps with IPPool"):
        simulate(request, MemoryDatastore(clock=clock), clock)
    assert clock.monotonic() == 0


def test_two_nodes_of_one_name_are_refused() -> None:
    clock = SimulatedClock()
    request = Scenario(nodes=make_nodes(1) * 2, pools=(FOUR_BLOCKS,), load=PodLoad(pods_per_node=1), steps=1)
    with pytest.raises(ResourceExists, match=r"Node\(node-0\)"):
        simulate(request, MemoryDatastore(clock=clock), clock)


def test_nobody_has_to_watch() -> None:
    clock = SimulatedClock()
    request = make_scenario(1, (FOUR_BLOCKS,), PodLoad(pods_per_node=1))
    assert simulate(request, MemoryDatastore(clock=clock), clock).last.running == 1
