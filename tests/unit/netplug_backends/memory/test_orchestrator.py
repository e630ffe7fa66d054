"""The orchestrator in memory: what every orchestrator tells, and what this one refuses."""

from __future__ import annotations

from itertools import count

import pytest
from attrs import define, evolve, field

from netplug_backends.catalog import CATALOG
from netplug_backends.memory.orchestrator import MemoryOrchestrator
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, InvariantBroken
from netplug_core.orchestrator.model import NamespaceFacts, NodeFacts, PodFacts
from netplug_core.registry import Registry
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.orchestrator_checks import ORCHESTRATOR_CHECKS, OrchestratorCheck

POD = PodFacts(namespace="shop", name="web-0", uid="", node="a")


@define
class MemoryOrchestratorHarness:
    """An orchestrator whose world is its own."""

    clock: ManualClock
    orchestrator: MemoryOrchestrator
    numbers: count[int] = field(factory=count)

    def deadline(self, seconds: float = 10.0) -> Deadline:
        return Deadline.after(self.clock, seconds)

    def new_name(self) -> str:
        return f"name-{next(self.numbers)}"

    def put_pod(self, pod: PodFacts) -> None:
        self.orchestrator.put_pod(pod)

    def put_namespace(self, namespace: NamespaceFacts) -> None:
        self.orchestrator.put_namespace(namespace)

    def put_node(self, node: NodeFacts) -> None:
        self.orchestrator.put_node(node)

    def delete_pod(self, namespace: str, name: str) -> None:
        self.orchestrator.delete_pod(namespace, name)


@pytest.fixture
def bench() -> MemoryOrchestratorHarness:
    clock = ManualClock()
    return MemoryOrchestratorHarness(clock, MemoryOrchestrator(clock=clock))


@pytest.mark.parametrize("case", ORCHESTRATOR_CHECKS, ids=lambda case: case.__name__)
def test_it_tells_what_every_orchestrator_tells(case: OrchestratorCheck, bench: MemoryOrchestratorHarness) -> None:
    case(bench)
    assert case.__doc__


def test_a_pod_needs_its_namespace_and_stays_on_its_node(bench: MemoryOrchestratorHarness) -> None:
    with pytest.raises(InvariantBroken, match="shop/web-0: its namespace is not there"):
        bench.put_pod(POD)
    bench.put_namespace(NamespaceFacts(name="shop", uid=""))
    bench.put_pod(evolve(POD, node=""))
    bench.put_pod(POD)
    with pytest.raises(InvariantBroken, match="it is on node a and stays there"):
        bench.put_pod(evolve(POD, node="b"))


def test_what_is_made_has_an_identity_and_a_birth_in_whole_seconds(bench: MemoryOrchestratorHarness) -> None:
    bench.clock.sleep(1.5)
    space = bench.orchestrator.put_namespace(NamespaceFacts(name="shop", uid="mine"))
    pod = bench.orchestrator.put_pod(POD)
    assert space.uid != "mine"
    assert pod.uid != space.uid
    assert pod.creation_time_ns is not None
    assert pod.creation_time_ns % 1_000_000_000 == 0
    bench.clock.sleep(60)
    assert bench.orchestrator.put_pod(POD) == pod


def test_a_namespace_goes_with_its_pods_and_a_node_without(bench: MemoryOrchestratorHarness) -> None:
    for name in ("shop", "other"):
        bench.put_namespace(NamespaceFacts(name=name, uid=""))
        bench.put_pod(evolve(POD, namespace=name))
    bench.put_node(NodeFacts(name="a", uid=""))
    tell = bench.orchestrator
    tell.delete_namespace("shop")
    tell.delete_node("a")
    tell.delete_node("a")
    assert tell.find_namespace("shop", deadline=bench.deadline()) is None
    assert tell.find_pod("shop", "web-0", deadline=bench.deadline()) is None
    assert tell.find_pod("other", "web-0", deadline=bench.deadline()) is not None
    assert tell.find_node("a", deadline=bench.deadline()) is None


def test_it_is_opened_by_its_name() -> None:
    registry, clock = Registry(CATALOG), ManualClock()
    with registry.open_orchestrator("memory", DatastoreSettings(), clock) as opened:
        assert opened.find_node("a", deadline=Deadline.after(clock, 1)) is None
    with pytest.raises(ConfigurationError, match="kubernetes, memory"):
        registry.open_orchestrator("nomad", DatastoreSettings(), clock)
