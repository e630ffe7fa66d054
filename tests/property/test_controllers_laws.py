"""The laws of the controllers beside an etcd.

- Whatever happens to a cluster, to its datastore and to the processes, in any order, ends in the same records: those
  that follow from the cluster and from what users have written. Processes are killed, cut off from either store, told
  that they act or that they do not, two at once too. The clock is set by a day.
- What users have written is never touched.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from netplug_core.clock import SECOND_NS
from netplug_core.errors import narrow
from netplug_core.names import endpoint_labels
from netplug_core.orchestrator.model import (
    KUBERNETES_NODE,
    NAMESPACE,
    POD,
    SERVICE_ACCOUNT,
    NamespaceFacts,
    NodeFacts,
    PodFacts,
    PodPhase,
)
from netplug_core.orchestrator.model import ServiceAccountFacts as AccountFacts
from netplug_core.orchestrator.networkpolicy import (
    KUBERNETES_NETWORK_POLICY,
    KubernetesNetworkPolicy,
    KubernetesNetworkPolicySpec,
    LabelSelector,
)
from netplug_core.reconcile.kubecontrollers import CopySource
from netplug_core.records import Key, Kind, List
from netplug_core.resources.fields import Labels, Metadata
from netplug_core.resources.hostendpoint import HOST_ENDPOINT, HostEndpoint, HostEndpointSpec
from netplug_core.resources.networkpolicy import NETWORK_POLICY, NetworkPolicy, NetworkPolicySpec
from netplug_core.resources.node import NODE, Node, node_key
from netplug_core.resources.profile import PROFILE, Profile, ProfileSpec, account_spec, namespace_spec
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.controllers_scene import ControllersScene, machine_node
from tests.harness.local_stores import IS_DEEP

NAMES: Final = ("a", "b")
TEXTS: Final = ("red", "blue")
ENVIRONMENT: Final = {"AUTO_HOST_ENDPOINTS": "enabled", "RECONCILER_PERIOD": "0"}
KINDS: Final[tuple[Kind[object], ...]] = (PROFILE, NETWORK_POLICY, WORKLOAD_ENDPOINT, NODE, HOST_ENDPOINT)
DAY_NS: Final = 86_400 * SECOND_NS
HISTORY: Final = 10_000 if IS_DEEP else 200
HEALED_EVERY: Final = 100
SPEC = WorkloadEndpointSpec(orchestrator="k8s", node="n", endpoint="eth0")


@frozen
class Event:
    """Something that happens; ``what`` is one of ``EVENTS``."""

    what: str
    name: str
    text: str
    process: int


def labels_of(text: str) -> Labels:
    return (("team", text),)


class World:
    """Two processes over a cluster and a datastore."""

    def __init__(self) -> None:
        first = ControllersScene(source=CopySource.KUBERNETES, environ=dict(ENVIRONMENT))
        other = ControllersScene(source=CopySource.KUBERNETES, environ=dict(ENVIRONMENT), other=first)
        self.processes = (first, other)
        self.store, self.cluster = first.store, first.cluster
        self.own_labels: dict[str, dict[str, str]] = {}
        self.own: set[str] = set()
        own = HostEndpointSpec(node="x", interface_name="*")
        first.put(HOST_ENDPOINT.key("own"), HostEndpoint(metadata=Metadata(name="own"), spec=own))
        first.put_node(machine_node("bare"))

    # --- what happens -------------------------------------------------------------------------------------------------

    def put(self, key: Key[object], value: object, *, is_of_cluster: bool) -> None:
        self.processes[0].put(key, value, self.cluster if is_of_cluster else None)

    def delete(self, key: Key[object], *, is_of_cluster: bool) -> None:
        store = self.cluster if is_of_cluster else None
        if self.processes[0].find(key, store) is not None:
            self.processes[0].delete(key, store)

    def happen(self, event: Event) -> None:
        EVENTS[event.what](self, event)

    def heal(self) -> None:
        """Let one process act, and both reach everything. Nothing but what has changed makes it look."""
        for number, process in enumerate(self.processes):
            process.away = set()
            process.lead(is_leading=number == 0)
        for _ in range(4):
            self.processes[0].settle(130.0)

    # --- what is stored -----------------------------------------------------------------------------------------------

    def values(self, kind: Kind[object], *, is_of_cluster: bool = False) -> dict[str, object]:
        store = self.cluster if is_of_cluster else self.store
        found = store.read([List(kind)], deadline=self.processes[0].deadline())
        return {"/".join(record.key.path): record.value for record in found.list(List(kind))}

    def expected_specs(self) -> dict[str, object]:
        """The specs of profiles and policies: copies, and what users have written."""
        wanted: dict[str, object] = {}
        for facts in self.values(NAMESPACE, is_of_cluster=True).values():
            assert isinstance(facts, NamespaceFacts)
            wanted[f"kns.{facts.name}"] = namespace_spec(facts.name, facts.labels)
        for facts in self.values(SERVICE_ACCOUNT, is_of_cluster=True).values():
            assert isinstance(facts, AccountFacts)
            wanted[f"ksa.x.{facts.name}"] = account_spec(facts.name, facts.labels)
        for policy in self.values(KUBERNETES_NETWORK_POLICY, is_of_cluster=True).values():
            assert isinstance(policy, KubernetesNetworkPolicy)
            ((_, text),) = policy.spec.pods.labels
            selector = f'(projectnetplug.org/orchestrator == "k8s" && team == "{text}")'
            wanted[f"x/knp.default.{policy.name}"] = selector
        return wanted


def _namespace(world: World, event: Event) -> None:
    facts = NamespaceFacts(name=event.name, uid="u", labels=labels_of(event.text))
    world.put(NAMESPACE.key(event.name), facts, is_of_cluster=True)


def _account(world: World, event: Event) -> None:
    facts = AccountFacts(namespace="x", name=event.name, uid="u", labels=labels_of(event.text))
    world.put(SERVICE_ACCOUNT.key("x", event.name), facts, is_of_cluster=True)


def _policy(world: World, event: Event) -> None:
    spec = KubernetesNetworkPolicySpec(pods=LabelSelector(labels=labels_of(event.text)))
    value = KubernetesNetworkPolicy(namespace="x", name=event.name, spec=spec)
    world.put(KUBERNETES_NETWORK_POLICY.key("x", event.name), value, is_of_cluster=True)


def _pod(world: World, event: Event, phase: PodPhase = PodPhase.RUNNING) -> None:
    facts = PodFacts(namespace="x", name=event.name, uid="u", node="n", labels=labels_of(event.text), phase=phase)
    world.put(POD.key("x", event.name), facts, is_of_cluster=True)


def _endpoint(world: World, event: Event) -> None:
    value = WorkloadEndpoint(
        metadata=Metadata(name=f"e-{event.name}", namespace="x"), spec=evolve(SPEC, pod=event.name)
    )
    world.put(WORKLOAD_ENDPOINT.key("x", f"e-{event.name}"), value, is_of_cluster=False)


def _edit(world: World, event: Event) -> None:
    """Somebody edits a copy, or writes what looks like one."""
    spec = ProfileSpec(labels_to_apply=labels_of(event.text))
    for name in (f"kns.{event.name}", f"ksa.x.{event.name}"):
        world.put(PROFILE.key(name), Profile(metadata=Metadata(name=name), spec=spec), is_of_cluster=False)
    metadata = Metadata(name=f"knp.default.{event.name}", namespace="x")
    policy = NetworkPolicy(metadata=metadata, spec=NetworkPolicySpec(order=1.0))
    world.put(NETWORK_POLICY.key("x", metadata.name), policy, is_of_cluster=False)


def _own(world: World, event: Event) -> None:
    """A user writes a profile and a policy of their own."""
    spec = ProfileSpec(labels_to_apply=labels_of(event.text))
    world.put(PROFILE.key(event.name), Profile(metadata=Metadata(name=event.name), spec=spec), is_of_cluster=False)
    policy = NetworkPolicy(metadata=Metadata(name=event.name, namespace="x"))
    world.put(NETWORK_POLICY.key("x", event.name), policy, is_of_cluster=False)
    world.own.add(event.name)


def _machine(world: World, event: Event) -> None:
    world.processes[0].put_machine(event.name, zone=event.text)
    world.processes[0].put_node(machine_node(f"node-{event.name}", event.name, team=event.text))
    world.own_labels[f"node-{event.name}"] = {"team": event.text}


def _machine_label(world: World, event: Event) -> None:
    """A label of a machine comes or goes."""
    if world.processes[0].find(KUBERNETES_NODE.key(event.name), world.cluster) is not None:
        world.processes[0].put_machine(event.name, **({"disk": "ssd"} if event.text == "red" else {}))


def _node_label(world: World, event: Event) -> None:
    """Somebody gives a Node a label."""
    found = world.processes[0].find(node_key(f"node-{event.name}"))
    if found is None:
        return
    node = narrow(found.value, Node)
    labels = tuple(sorted({**dict(node.metadata.labels), "rack": event.text}.items()))
    world.processes[0].put_node(evolve(node, metadata=evolve(node.metadata, labels=labels)))
    world.own_labels[node.metadata.name]["rack"] = event.text


def _cut_off(world: World, event: Event) -> None:
    world.processes[event.process].away = {"cluster"} if event.text == "red" else {"records"}


def _reach(world: World, event: Event) -> None:
    world.processes[event.process].away = set()


def _set_clock(world: World, event: Event) -> None:
    world.processes[0].clock.wall_ns += DAY_NS if event.text == "red" else -DAY_NS


EVENTS: Final[dict[str, Callable[[World, Event], None]]] = {
    "namespace": _namespace,
    "account": _account,
    "policy": _policy,
    "pod": _pod,
    "pod ends": lambda world, event: _pod(world, event, PodPhase.SUCCEEDED),
    "endpoint": _endpoint,
    "machine": _machine,
    "edit": _edit,
    "own": _own,
    "namespace goes": lambda world, event: world.delete(NAMESPACE.key(event.name), is_of_cluster=True),
    "account goes": lambda world, event: world.delete(SERVICE_ACCOUNT.key("x", event.name), is_of_cluster=True),
    "policy goes": lambda world, event: world.delete(
        KUBERNETES_NETWORK_POLICY.key("x", event.name), is_of_cluster=True
    ),
    "pod goes": lambda world, event: world.delete(POD.key("x", event.name), is_of_cluster=True),
    "machine label": _machine_label,
    "node label": _node_label,
    "machine goes": lambda world, event: world.processes[0].delete_machine(event.name),
    "copy goes": lambda world, event: world.delete(PROFILE.key(f"kns.{event.name}"), is_of_cluster=False),
    "time passes": lambda world, event: world.processes[event.process].settle(65.0),
    "clock set": _set_clock,
    "killed": lambda world, event: world.processes[event.process].start(),
    "cut off": _cut_off,
    "reached": _reach,
    "acts": lambda world, event: world.processes[event.process].lead(is_leading=True),
    "acts no more": lambda world, event: world.processes[event.process].lead(is_leading=False),
}

events = st.builds(
    Event, st.sampled_from(sorted(EVENTS)), st.sampled_from(NAMES), st.sampled_from(TEXTS), st.sampled_from((0, 1))
)


def check(world: World) -> None:
    """Everything is as the cluster and its users say."""
    found = world.values(PROFILE)
    specs: dict[str, object] = {
        name: value.spec for name, value in found.items() if isinstance(value, Profile) and name not in NAMES
    }
    policies = world.values(NETWORK_POLICY)
    for name, value in policies.items():
        assert isinstance(value, NetworkPolicy)
        if name.startswith("x/knp."):
            specs[name] = value.spec.selector
    assert specs == world.expected_specs()
    assert world.own == {name for name in found if name in NAMES}
    assert world.own == {name.removeprefix("x/") for name in policies if not name.startswith("x/knp.")}
    for value in world.values(WORKLOAD_ENDPOINT).values():
        assert isinstance(value, WorkloadEndpoint)
        facts = world.values(POD, is_of_cluster=True).get(f"x/{value.spec.pod}")
        if isinstance(facts, PodFacts) and not facts.is_terminated:
            labels = endpoint_labels(namespace="x", orchestrator="k8s", workload=facts.labels)
            assert value.metadata.labels == labels
    machines = world.values(KUBERNETES_NODE, is_of_cluster=True)
    nodes = world.values(NODE)
    for name, facts in machines.items():
        expected_labels = {**world.own_labels[f"node-{name}"], **dict(narrow(facts, NodeFacts).labels)}
        assert dict(narrow(nodes[f"node-{name}"], Node).metadata.labels) == expected_labels
    assert set(nodes) == {"bare", *(f"node-{name}" for name in machines)}
    assert set(world.values(HOST_ENDPOINT)) == {"own", *(f"{name}-auto-hep" for name in nodes)}


@settings(max_examples=settings().max_examples * (4 if IS_DEEP else 1))
@given(st.lists(events, min_size=10, max_size=60))
def test_everything_ends_in_what_the_cluster_and_its_users_say(happening: list[Event]) -> None:
    world = World()
    for event in happening:
        world.happen(event)
    world.heal()
    check(world)


@settings(max_examples=3)
@given(st.integers(min_value=0, max_value=2**32))
def test_a_long_history_ends_in_it_too(seed: int) -> None:
    """Whatever is left over of one event may meet any later one."""
    world, chance = World(), Random(seed)  # noqa: S311  # no secret
    for number in range(1, HISTORY + 1):
        what = chance.choice(sorted(EVENTS))
        world.happen(Event(what, chance.choice(NAMES), chance.choice(TEXTS), chance.choice((0, 1))))
        if number % HEALED_EVERY == 0:
            world.heal()
            check(world)
