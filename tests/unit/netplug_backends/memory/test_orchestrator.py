"""The orchestrator in memory: what every orchestrator answers, and what this one refuses."""

from __future__ import annotations

from itertools import count

import pytest
from attrs import define, evolve, field

from netplug_backends.memory.orchestrator import MemoryOrchestrator
from netplug_cli.wiring.backends import CATALOG
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
    """An empty orchestrator in memory."""

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
def harness() -> MemoryOrchestratorHarness:
    clock = ManualClock()
    return MemoryOrchestratorHarness(clock, MemoryOrchestrator(clock=clock))


@pytest.mark.parametrize("check", ORCHESTRATOR_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: OrchestratorCheck, harness: MemoryOrchestratorHarness) -> None:
    check(harness)
    assert check.__doc__


def test_a_pod_needs_its_namespace_and_stays_on_its_node(harness: MemoryOrchestratorHarness) -> None:
    with pytest.raises(InvariantBroken, match="shop/web-0: its namespace is not there"):
        harness.put_pod(POD)
    harness.put_namespace(NamespaceFacts(name="shop", uid=""))
    harness.put_pod(evolve(POD, node=""))
    harness.put_pod(POD)
    with pytest.raises(InvariantBroken, match="it is on node a and stays there"):
        harness.put_pod(evolve(POD, node="b"))


def test_objects_get_a_uid_and_a_creation_time_in_whole_seconds(harness: MemoryOrchestratorHarness) -> None:
    harness.clock.sleep(1.5)
    space = harness.orchestrator.put_namespace(NamespaceFacts(name="shop", uid="mine"))
    pod = harness.orchestrator.put_pod(POD)
    assert space.uid != "mine"
    assert pod.uid != space.uid
    assert pod.creation_time_ns is not None
    assert pod.creation_time_ns % 1_000_000_000 == 0
    harness.clock.sleep(60)
    assert harness.orchestrator.put_pod(POD) == pod


def test_a_namespace_goes_with_its_pods_and_a_node_without(harness: MemoryOrchestratorHarness) -> None:
    for name in ("shop", "other"):
        harness.put_namespace(NamespaceFacts(name=name, uid=""))
        harness.put_pod(evolve(POD, namespace=name))
    harness.put_node(NodeFacts(name="a", uid=""))
    orchestrator = harness.orchestrator
    orchestrator.delete_namespace("shop")
    orchestrator.delete_node("a")
    orchestrator.delete_node("a")
    assert orchestrator.find_namespace("shop", deadline=harness.deadline()) is None
    assert orchestrator.find_pod("shop", "web-0", deadline=harness.deadline()) is None
    assert orchestrator.find_pod("other", "web-0", deadline=harness.deadline()) is not None
    assert orchestrator.find_node("a", deadline=harness.deadline()) is None


def test_it_is_opened_by_its_name() -> None:
    registry, clock = Registry(CATALOG), ManualClock()
    with registry.open_orchestrator("memory", DatastoreSettings(), clock) as opened:
        assert opened.find_node("a", deadline=Deadline.after(clock, 1)) is None
    with pytest.raises(ConfigurationError, match="kubernetes, memory"):
        registry.open_orchestrator("nomad", DatastoreSettings(), clock)
