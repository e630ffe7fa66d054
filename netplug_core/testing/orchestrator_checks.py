"""What every orchestrator must answer, as checks that run against any implementation.

Each check takes an :class:`OrchestratorHarness`. A test module needs three lines::

    @pytest.mark.parametrize("check", ORCHESTRATOR_CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check: OrchestratorCheck, harness: OrchestratorHarness) -> None:
        check(harness)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from attrs import evolve

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.orchestrator.model import (
    ContainerPort,
    NamespaceFacts,
    NodeFacts,
    Orchestrator,
    PodFacts,
    PodNetwork,
    PodPhase,
)
from netplug_core.testing.assertions import expect, expect_refused, expect_same

__all__ = ["ORCHESTRATOR_CHECKS", "OrchestratorCheck", "OrchestratorHarness"]


class OrchestratorHarness(Protocol):
    """An orchestrator under test, and the pods, namespaces and nodes that it knows."""

    @property
    def orchestrator(self) -> Orchestrator:
        """The orchestrator under test."""
        ...

    def deadline(self, seconds: float = 10.0) -> Deadline:
        """The deadline that many seconds from now."""
        ...

    def new_name(self) -> str:
        """A name that no namespace and no node has."""
        ...

    def put_pod(self, pod: PodFacts) -> None:
        """Make a pod, or set labels, annotations, phase and addresses of the pod with that name.

        The orchestrator sets uid and times.
        """
        ...

    def put_namespace(self, namespace: NamespaceFacts) -> None:
        """Make a namespace, or set labels and annotations of the one with that name."""
        ...

    def put_node(self, node: NodeFacts) -> None:
        """Make a node, or set labels and annotations of the one with that name."""
        ...

    def delete_pod(self, namespace: str, name: str) -> None:
        """Remove a pod at once."""
        ...


OrchestratorCheck: TypeAlias = Callable[[OrchestratorHarness], None]
"""One rule for orchestrators; raises AssertionError if the orchestrator breaks it."""


def a_missing_object_is_none(harness: OrchestratorHarness) -> None:
    """A missing object, and one of another namespace."""
    here, there = _make_namespace(harness), _make_namespace(harness)
    _put_and_find_pod(harness, PodFacts(namespace=here, name="web-0", uid=""))
    orchestrator = harness.orchestrator
    expect_same(orchestrator.find_pod(there, "web-0", deadline=harness.deadline()), None, "a pod of another namespace")
    expect_same(orchestrator.find_pod(here, "web-1", deadline=harness.deadline()), None, "a pod that is not there")
    missing = harness.new_name()
    expect_same(
        orchestrator.find_pod(missing, "web-0", deadline=harness.deadline()), None, "a pod of a missing namespace"
    )
    expect_same(
        orchestrator.find_namespace(missing, deadline=harness.deadline()), None, "a namespace that is not there"
    )
    expect_same(orchestrator.find_node(missing, deadline=harness.deadline()), None, "a node that is not there")


def a_pod_has_all_its_fields(harness: OrchestratorHarness) -> None:
    """Labels, annotations, account, ports of every protocol, addresses of both families, creation time."""
    wanted = PodFacts(
        namespace=_make_namespace(harness),
        name="web-0.a",
        uid="",
        node="machine-1",
        labels=(("app", "web"), ("example.org/tier", "")),
        annotations=(("example.org/note", '["a b"]'),),
        service_account="front",
        phase=PodPhase.RUNNING,
        ports=(
            ContainerPort(name="http", port=80),
            ContainerPort(name="dns", protocol="UDP", port=53, host_port=5353, host_ip="192.0.2.1"),
            ContainerPort(protocol="SCTP", port=9),
        ),
        addresses=(Address.parse("10.65.0.7"), Address.parse("fd65::7")),
    )
    found = _put_and_find_pod(harness, wanted)
    expect(bool(found.uid), "the pod has no identity")
    expect(found.creation_time_ns is not None, "the pod has no creation time")
    expect_same(found.deletion_time_ns, None, "the deletion time of the pod")
    expect_same(evolve(found, uid="", creation_time_ns=None), wanted, "the pod")
    expect_same(found.find_annotation("example.org/note"), '["a b"]', "its annotation")
    expect_same(found.find_annotation("note"), None, "an annotation that the pod does not have")


def a_pending_pod_has_no_node(harness: OrchestratorHarness) -> None:
    """It is not scheduled yet, and has no addresses."""
    found = _put_and_find_pod(harness, PodFacts(namespace=_make_namespace(harness), name="later", uid=""))
    expect_same(
        (found.node, found.phase, found.addresses), ("", PodPhase.PENDING, ()), "node, phase and addresses of the pod"
    )
    expect(found.network is PodNetwork.OWN, "a pod without hostNetwork is not in the host's network")


def a_pod_may_use_the_host_network(harness: OrchestratorHarness) -> None:
    """Such a pod cannot be attached."""
    wanted = PodFacts(
        namespace=_make_namespace(harness), name="agent", uid="", node="machine-1", network=PodNetwork.HOST
    )
    expect(_put_and_find_pod(harness, wanted).network is PodNetwork.HOST, "the pod has a network of its own")


def a_pod_is_finished_in_its_last_phases(harness: OrchestratorHarness) -> None:
    """Whether it succeeded or failed."""
    namespace = _make_namespace(harness)
    for phase in PodPhase:
        wanted = PodFacts(namespace=namespace, name=f"job-{phase.value.lower()}", uid="", node="m", phase=phase)
        found = _put_and_find_pod(harness, wanted)
        expect_same(found.phase, phase, "the pod's phase")
        expect_same(
            found.is_terminated,
            phase in (PodPhase.SUCCEEDED, PodPhase.FAILED),
            f"is_terminated in {phase}",
        )


def a_change_is_seen_and_the_uid_stays(harness: OrchestratorHarness) -> None:
    """Every lookup of a pod, a namespace or a node shows its present state."""
    namespace, node = _make_namespace(harness), harness.new_name()
    pod = PodFacts(namespace=namespace, name="web-0", uid="", node=node, labels=(("app", "web"),))
    before = _put_and_find_pod(harness, pod)
    after = _put_and_find_pod(harness, evolve(pod, labels=(("app", "other"),), annotations=(("a", "b"),)))
    expect_same((after.labels, after.annotations), ((("app", "other"),), (("a", "b"),)), "what was changed")
    expect_same(after.uid, before.uid, "the pod's identity")
    space = NamespaceFacts(name=namespace, uid="", labels=(("team", "a"),), annotations=(("n", "v"),))
    uids = {
        _put_and_find_namespace(harness, space).uid,
        _put_and_find_namespace(harness, evolve(space, labels=(("team", "b"),))).uid,
    }
    machine = NodeFacts(name=node, uid="", labels=(("zone", "a"),))
    uids |= {
        _put_and_find_node(harness, machine).uid,
        _put_and_find_node(harness, evolve(machine, labels=(("zone", "b"),))).uid,
    }
    expect_same(len(uids), 2, "the number of identities that a namespace and a node have")


def a_recreated_pod_has_a_new_uid(harness: OrchestratorHarness) -> None:
    """Pods of the same name in other namespaces are not touched."""
    here, there = _make_namespace(harness), _make_namespace(harness)
    first, other = (
        _put_and_find_pod(harness, PodFacts(namespace=name, name="web-0", uid="")) for name in (here, there)
    )
    harness.delete_pod(here, "web-0")
    gone = harness.orchestrator.find_pod(here, "web-0", deadline=harness.deadline())
    expect_same(gone, None, "a pod that was removed")
    second = _put_and_find_pod(harness, PodFacts(namespace=here, name="web-0", uid=""))
    expect_same(len({first.uid, second.uid, other.uid}), 3, "the number of identities of three pods")


def a_namespace_and_a_node_have_all_their_fields(harness: OrchestratorHarness) -> None:
    """A node with its own addresses and the ranges for its pods, in both families."""
    space = NamespaceFacts(name=harness.new_name(), uid="", labels=(("team", "a"),), annotations=(("n", "v"),))
    found = _put_and_find_namespace(harness, space)
    expect(bool(found.uid), "the namespace has no identity")
    expect(set(space.labels) <= set(found.labels), f"labels of the namespace: {found.labels}")
    expect(set(space.annotations) <= set(found.annotations), f"annotations of the namespace: {found.annotations}")
    ranges = (Prefix.parse("10.66.1.0/24"), Prefix.parse("fd66:0:0:1::/64"))
    internal = (Address.parse("192.0.2.7"), Address.parse("2001:db8::7"))
    node = NodeFacts(
        name=harness.new_name(), uid="", labels=(("zone", "a"),), pod_cidrs=ranges, internal_addresses=internal
    )
    machine = _put_and_find_node(harness, node)
    expect(bool(machine.uid), "the node has no identity")
    expect(set(node.labels) <= set(machine.labels), f"labels of the node: {machine.labels}")
    expect_same(machine.pod_cidrs, ranges, "the ranges of the node")
    expect_same(machine.internal_addresses, internal, "the internal addresses of the node")


def every_lookup_ends_by_its_deadline(harness: OrchestratorHarness) -> None:
    """A lookup after its deadline is Unavailable."""
    namespace = _make_namespace(harness)
    passed = harness.deadline(0.0)
    orchestrator = harness.orchestrator
    for find in (
        lambda: orchestrator.find_pod(namespace, "web-0", deadline=passed),
        lambda: orchestrator.find_namespace(namespace, deadline=passed),
        lambda: orchestrator.find_node("machine-1", deadline=passed),
    ):
        expect_refused(Unavailable, find, what="a lookup after its deadline")


ORCHESTRATOR_CHECKS: tuple[OrchestratorCheck, ...] = (
    a_missing_object_is_none,
    a_pod_has_all_its_fields,
    a_pending_pod_has_no_node,
    a_pod_may_use_the_host_network,
    a_pod_is_finished_in_its_last_phases,
    a_change_is_seen_and_the_uid_stays,
    a_recreated_pod_has_a_new_uid,
    a_namespace_and_a_node_have_all_their_fields,
    every_lookup_ends_by_its_deadline,
)
"""Every check."""


def _make_namespace(harness: OrchestratorHarness) -> str:
    """A fresh namespace."""
    name = harness.new_name()
    harness.put_namespace(NamespaceFacts(name=name, uid=""))
    return name


def _put_and_find_pod(harness: OrchestratorHarness, pod: PodFacts) -> PodFacts:
    """Put a pod, and the pod as the orchestrator then shows it."""
    harness.put_pod(pod)
    found = harness.orchestrator.find_pod(pod.namespace, pod.name, deadline=harness.deadline())
    if found is None:
        raise AssertionError(f"pod {pod.namespace}/{pod.name} was made and is not found")
    return found


def _put_and_find_namespace(harness: OrchestratorHarness, namespace: NamespaceFacts) -> NamespaceFacts:
    harness.put_namespace(namespace)
    found = harness.orchestrator.find_namespace(namespace.name, deadline=harness.deadline())
    if found is None:
        raise AssertionError(f"namespace {namespace.name} was made and is not found")
    return found


def _put_and_find_node(harness: OrchestratorHarness, node: NodeFacts) -> NodeFacts:
    harness.put_node(node)
    found = harness.orchestrator.find_node(node.name, deadline=harness.deadline())
    if found is None:
        raise AssertionError(f"node {node.name} was made and is not found")
    return found
