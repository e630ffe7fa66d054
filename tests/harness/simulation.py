"""Scenarios and their results, for tests of the simulation."""

from __future__ import annotations

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.records import Key, Kind, List
from netplug_core.resources.fields import Labels, Metadata
from netplug_core.resources.ippool import IPPool, IPPoolSpec
from netplug_core.resources.node import Node
from netplug_core.simulation.scenario import PodLoad, Scenario
from netplug_core.simulation.simulator import SimulatedCall, SimulatedClock, SimulationResult, StepSample, simulate


def make_nodes(count: int, labels: Labels = ()) -> tuple[Node, ...]:
    """Nodes called ``node-0`` and so on."""
    return tuple(Node(metadata=Metadata(name=f"node-{number}", labels=labels)) for number in range(count))


def make_pool(cidr: str, block_length: int, name: str = "main", **spec: object) -> IPPool:
    """A pool with blocks of a size, and more of a spec."""
    made = IPPoolSpec(prefix=Prefix.parse(cidr), block_length=block_length, **spec)  # type: ignore[arg-type]
    return IPPool(metadata=Metadata(name=name), spec=made)


def make_scenario(
    node_count: int, pools: tuple[IPPool, ...], load: PodLoad, *, steps: int = 1, **more: object
) -> Scenario:
    """A scenario with so many nodes."""
    return Scenario(nodes=make_nodes(node_count), pools=pools, load=load, steps=steps, **more)  # type: ignore[arg-type]


def run_scenario(scenario: Scenario) -> tuple[SimulationResult, list[SimulatedCall], MemoryDatastore]:
    """The result of a scenario, its calls, and the store at the end."""
    clock = SimulatedClock()
    store = MemoryDatastore(clock=clock)
    calls: list[SimulatedCall] = []
    samples: list[StepSample] = []

    def watch(event: SimulatedCall | StepSample) -> None:
        if isinstance(event, SimulatedCall):
            calls.append(event)
        else:
            samples.append(event)

    result = simulate(scenario, store, clock, observe=watch)
    assert tuple(samples) == result.samples
    return result, calls, store


def stored_records(store: MemoryDatastore, kind: Kind[object]) -> dict[Key[object], object]:
    """Every record of a kind."""
    deadline = Deadline.after(SimulatedClock(), 5)
    return {record.key: record.value for record in store.read([List(kind)], deadline=deadline).list(List(kind))}
