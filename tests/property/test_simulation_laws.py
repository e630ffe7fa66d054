"""Laws of the simulation, over small clusters that run full, borrow, churn, rest addresses and select nodes.

1. It is the allocator: the calls that it made, made again of the block IPAM over a fresh store at the same times, have
   the same results and leave the same blocks, affinities and handles, byte for byte.
2. It is a function: the same study has the same findings.
3. No address is held twice, and what the samples say is what the calls say.
4. A pod that waits could not have been served: with nothing to come, every node that has one is refused again.
"""

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.addressing import Address, Family
from netplug_core.clock import Deadline
from netplug_core.errors import AllocationError
from netplug_core.flows.ipam.cache import make_ipam_cache
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Released
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPAMConfiguration, IPAMConfigurationSpec, IPReservation, IPReservationSpec
from netplug_core.resources.node import Node
from netplug_core.simulation.scenario import Placement, PodLoad, ProcessModel, Scenario, SeededRandom
from netplug_core.simulation.simulator import SimulatedCall, SimulatedClock, simulate
from netplug_core.testing.clock import ManualClock
from tests.harness.simulation import make_pool, run_scenario, stored_records

POOLS = (
    make_pool("10.0.0.0/26", 29, "a"),
    make_pool("10.0.1.0/27", 28, "b", node_selector="zone == 'x'"),
    make_pool("10.0.2.0/29", 32, "c"),
    make_pool("fd00::/122", 125, "d"),
)
RULES = (
    None,
    IPAMConfigurationSpec(is_affinity_strict=True),
    IPAMConfigurationSpec(is_affinity_strict=True, max_blocks_per_host=1),
    IPAMConfigurationSpec(cooldown_s=30),
)


@st.composite
def workloads(draw: st.DrawFn, families: tuple[Family, ...]) -> PodLoad:
    pods = draw(st.integers(1, 20))
    return PodLoad(
        pods_per_node=pods,
        max_per_node=draw(st.sampled_from((None, pods + 5))),
        arrivals_per_s=draw(st.sampled_from((None, 0.3))),
        churn=draw(st.sampled_from((0.0, 0.1, 0.5, 1.0))),
        lifetime_s=draw(st.sampled_from((None, 70.0))),
        placement=draw(st.sampled_from(Placement)),
        families=families,
    )


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    pools = draw(st.lists(st.sampled_from(POOLS), min_size=1, unique=True))
    families = tuple(sorted({chosen.spec.prefix.family for chosen in pools}))
    labels = draw(st.lists(st.sampled_from(((), (("zone", "x"),))), min_size=1, max_size=4))
    rules = draw(st.sampled_from(RULES))
    reserved = draw(st.sampled_from(((), ("10.0.0.4/30", "10.0.0.64/28"))))
    prefixes = tuple(make_pool(cidr, 32).spec.prefix for cidr in reserved)
    return Scenario(
        nodes=tuple(Node(metadata=Metadata(name=f"node-{n}", labels=some)) for n, some in enumerate(labels)),
        pools=tuple(pools),
        reservations=(IPReservation(metadata=Metadata(name="r"), spec=IPReservationSpec(reserved=prefixes)),),
        configuration=None if rules is None else IPAMConfiguration(metadata=Metadata(name="default"), spec=rules),
        load=draw(workloads(families)),
        steps=draw(st.integers(1, 4)),
        step_s=draw(st.sampled_from((1, 60))),
        seed=draw(st.integers(0, 99)),
        process_model=draw(st.sampled_from(ProcessModel)),
    )


def comparable(result: Assignment | Released | AllocationError) -> object:
    """A result as it can be compared: an error is what it says."""
    return (type(result), str(result)) if isinstance(result, AllocationError) else result


def made_again(scenario: Scenario, calls: list[SimulatedCall]) -> tuple[list[object], MemoryDatastore]:
    """The results of some calls, made of the block IPAM over a fresh store at the same times, and that store."""
    clock, chance = ManualClock(), SeededRandom(f"{scenario.seed} waits")
    store = MemoryDatastore(clock=clock)
    nobody = PodLoad(pods_per_node=1, arrivals_per_s=1e-9)  # so that the resources are created, and no more
    simulate(evolve(scenario, steps=1, load=nobody), store, SimulatedClock())
    memories = {node.metadata.name: make_ipam_cache(store, clock=clock) for node in scenario.nodes}
    nodes: dict[str | None, str] = {}
    results: list[object] = []
    for call in calls:
        clock.wall_ns = call.at_ns
        request, deadline = call.request, Deadline.after(clock, 60)
        node = request.node if isinstance(request, AssignRequest) else nodes[request.handle]
        nodes[request.handle] = node
        warm = memories[node] if scenario.process_model is ProcessModel.RESIDENT else None
        ipam = BlockIPAM(datastore=store, clock=clock, chance=chance, cache=warm)
        try:
            if isinstance(request, AssignRequest):
                results.append(ipam.assign(request, NO_ENDPOINT, deadline=deadline))
            else:
                results.append(ipam.release(request, NO_ENDPOINT, deadline=deadline))
        except AllocationError as refusal:
            results.append(comparable(refusal))
    return results, store


@given(scenarios())
def test_its_result_is_that_of_the_allocator_over_a_store_in_memory(scenario: Scenario) -> None:
    """Law 1."""
    _, calls, store = run_scenario(scenario)
    results, other = made_again(scenario, calls)
    assert results == [comparable(call.result) for call in calls]
    for kind in (BLOCK, AFFINITY, HANDLE):
        assert stored_records(other, kind) == stored_records(store, kind)


@given(scenarios())
def test_the_same_scenario_has_the_same_result(scenario: Scenario) -> None:
    """Law 2."""
    (found, calls, _), (again, calls_again, _) = run_scenario(scenario), run_scenario(scenario)
    assert found == again
    assert [(call.at_ns, call.request, comparable(call.result)) for call in calls] == [
        (call.at_ns, call.request, comparable(call.result)) for call in calls_again
    ]


@given(scenarios())
def test_no_address_is_held_twice_and_the_samples_count_what_happened(scenario: Scenario) -> None:
    """Law 3."""
    found, calls, _ = run_scenario(scenario)
    held: dict[Address, str] = {}
    for call in calls:
        if isinstance(call.result, Assignment):
            for assigned in call.result.addresses:
                assert assigned.address not in held
                held[assigned.address] = call.request.handle or ""
            assert len(call.result.addresses) == len(scenario.load.families)
        elif isinstance(call.result, Released):
            assert {held.pop(address) for address in call.result.addresses} == {call.request.handle}
    last, samples = found.last, found.samples
    assert last.held == len(held) == last.running * len(scenario.load.families)
    assert last.running == sum(sample.started - sample.ended for sample in samples)
    assert last.running + last.waiting <= scenario.pod_count
    refused = [call.result for call in calls if isinstance(call.result, AllocationError)]
    assert sum(sample.refused for sample in samples) == len(refused)
    assert (found.first_refusal is None) == (not refused)
    if refused:
        assert found.first_refusal is not None
        assert (found.first_refusal.identifier, found.first_refusal.text) == (refused[0].identifier, str(refused[0]))
    for sample in samples:
        assert (sample.borrowed == 0) or found.first_borrowed_s is not None
        for seen in sample.pools:
            assert 0 <= seen.borrowed <= seen.in_use - seen.cooling
            assert 0 <= seen.unaffined_blocks <= seen.blocks <= seen.max_blocks


@given(scenarios())
def test_a_pod_waits_only_where_there_is_nothing_for_it(scenario: Scenario) -> None:
    """Law 4."""
    still = evolve(scenario, load=evolve(scenario.load, churn=0.0, lifetime_s=None))
    found, calls, store = run_scenario(still)
    clock = ManualClock(wall_ns=calls[-1].at_ns) if calls else ManualClock()
    ipam = BlockIPAM(datastore=store, clock=clock, chance=lambda: 0.5)
    waiting = {
        call.request.node: call.request
        for call in calls
        if isinstance(call.request, AssignRequest) and isinstance(call.result, AllocationError)
    }
    assert bool(waiting) == bool(found.last.waiting)
    for request in waiting.values():
        try:
            ipam.assign(request, NO_ENDPOINT, deadline=Deadline.after(clock, 60))
        except AllocationError:
            continue
        raise AssertionError(f"{request.node} was left without although there was an address")
