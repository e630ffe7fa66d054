"""Lookups through a cache: a pod is read each time, a namespace only if the cache does not know it for certain."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_backends.memory.orchestrator import MemoryOrchestrator
from netplug_cli.node.calls import CachedLookups
from netplug_core.clock import Deadline
from netplug_core.datastore.feed import follow
from netplug_core.datastore.protocol import FRESH_S, EndpointStorage
from netplug_core.datastore.view import View
from netplug_core.errors import Unavailable
from netplug_core.flows.ipam.cache import followed_kinds, make_node_cache
from netplug_core.orchestrator.model import NAMESPACE, POD, NamespaceFacts, NodeFacts, PodFacts
from netplug_core.records import Create, Get, Update
from netplug_core.testing.clock import ManualClock
from tests.harness.observed_stores import SlowDatastore

SPACE = NamespaceFacts(name="shop", uid="s", annotations=(("a", "1"),))
WEB = PodFacts(namespace="shop", name="web", uid="w", annotations=(("a", "1"),))


@define
class LookupHarness:
    """A store in memory that shows a pod and its namespace, and lookups in it."""

    clock: ManualClock = field(factory=ManualClock)
    store: SlowDatastore = field(init=False)
    cache: View = field(init=False)
    lookups: CachedLookups = field(init=False)

    def __attrs_post_init__(self) -> None:
        memory = MemoryDatastore(MemoryMode.ORDERED, clock=self.clock)
        memory.description = evolve(memory.description, endpoints=EndpointStorage.PODS)
        self.store = SlowDatastore(memory, self.clock)
        self.cache = make_node_cache(self.store, clock=self.clock, guard=nullcontext())
        orchestrator = MemoryOrchestrator(clock=self.clock)
        orchestrator.put_node(NodeFacts(name="worker-1", uid=""))
        self.lookups = CachedLookups(orchestrator=orchestrator, datastore=self.store, cache=self.cache)
        self.put(SPACE)
        self.put(WEB)

    @property
    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 5)

    def put(self, facts: NamespaceFacts | PodFacts) -> None:
        """Store a pod or a namespace, as somebody else."""
        key = POD.key(facts.namespace, facts.name) if isinstance(facts, PodFacts) else NAMESPACE.key(facts.name)
        found = self.store.datastore.read((Get(key),), deadline=self.deadline).find(key)
        write = Create(key, facts) if found is None else Update(key, facts, found.revision)
        self.store.datastore.commit((write,), deadline=self.deadline)

    def follow(self) -> None:
        """Let the changes so far arrive."""
        follow(self.store, self.cache, followed_kinds(self.store), deadline=Deadline.after(self.clock, 0.1))
        self.store.asked = 0

    def find_namespace(self, name: str = SPACE.name) -> NamespaceFacts | None:
        return self.lookups.find_namespace(name, deadline=self.deadline)


@pytest.fixture
def harness() -> LookupHarness:
    return LookupHarness()


def test_a_pod_is_read_each_time(harness: LookupHarness) -> None:
    harness.follow()
    for number in range(1, 4):
        wanted = evolve(WEB, annotations=(("a", str(number)),))
        harness.put(wanted)
        assert harness.lookups.find_pod("shop", "web", deadline=harness.deadline) == wanted
        assert harness.store.asked == number
    assert harness.lookups.find_pod("shop", "gone", deadline=harness.deadline) is None


def test_a_namespace_that_is_followed_is_not_read(harness: LookupHarness) -> None:
    harness.follow()
    assert (harness.find_namespace(), harness.store.asked) == (SPACE, 0)
    changed = evolve(SPACE, annotations=(("a", "2"),))
    harness.put(changed)
    harness.follow()
    assert (harness.find_namespace(), harness.store.asked) == (changed, 0)


def test_after_its_deadline_a_namespace_that_is_followed_is_not_answered(harness: LookupHarness) -> None:
    harness.follow()
    passed = Deadline.after(harness.clock, 0)
    with pytest.raises(Unavailable):
        harness.lookups.find_namespace(SPACE.name, deadline=passed)


def test_a_namespace_that_is_followed_and_was_not_confirmed_is_read(harness: LookupHarness) -> None:
    harness.follow()
    changed = evolve(SPACE, annotations=(("a", "2"),))
    harness.put(changed)
    harness.clock.sleep(FRESH_S + 0.1)
    assert (harness.find_namespace(), harness.store.asked) == (changed, 1)


def test_a_namespace_that_was_made_a_moment_ago_is_read(harness: LookupHarness) -> None:
    harness.follow()
    assert harness.find_namespace("late") is None
    made = evolve(SPACE, name="late")
    harness.put(made)
    assert (harness.find_namespace("late"), harness.store.asked) == (made, 2)


def test_without_a_watch_a_namespace_counts_for_a_limited_time(harness: LookupHarness) -> None:
    assert (harness.find_namespace(), harness.find_namespace(), harness.store.asked) == (SPACE, SPACE, 1)
    changed = evolve(SPACE, annotations=(("a", "2"),))
    harness.put(changed)
    harness.clock.sleep(FRESH_S + 0.1)
    assert (harness.find_namespace(), harness.store.asked) == (changed, 2)


def test_the_node_of_a_pod_that_is_found_is_followed(harness: LookupHarness) -> None:
    nodes: list[str] = []
    lookups = evolve(harness.lookups, follow_node=nodes.append)
    harness.put(evolve(WEB, node="worker-1"))
    for name in ("web", "gone"):
        lookups.find_pod("shop", name, deadline=harness.deadline)
    assert nodes == ["worker-1"]


def test_nodes_are_looked_up_at_the_orchestrator(harness: LookupHarness) -> None:
    found = harness.lookups.find_node("worker-1", deadline=harness.deadline)
    assert found is not None
    assert found.name == "worker-1"
    assert harness.store.asked == 0
