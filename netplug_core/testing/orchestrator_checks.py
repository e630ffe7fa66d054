"""What every orchestrator must tell, as cases that run against any implementation.

Each case takes an :class:`OrchestratorHarness`: the orchestrator under test, and hands to arrange the world that it
tells
of. A test module needs three lines::

    @pytest.mark.parametrize("case", ORCHESTRATOR_CHECKS, ids=lambda case: case.__name__)
    def test_conformance(case: OrchestratorCheck, bench: OrchestratorHarness) -> None:
        case(bench)
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
    PodFacts,
    PodNetwork,
    PodPhase,
)
from netplug_core.orchestrator.protocol import Orchestrator
from netplug_core.testing.assertions import expect, expect_same

__all__ = ["ORCHESTRATOR_CHECKS", "OrchestratorCheck", "OrchestratorHarness"]


class OrchestratorHarness(Protocol):
    """An orchestrator and its world, which holds nothing of the names that it makes up."""

    @property
    def orchestrator(self) -> Orchestrator:
        """The one under test."""
        ...

    def deadline(self, seconds: float = 10.0) -> Deadline:
        """One that passes so many seconds from now."""
        ...

    def new_name(self) -> str:
        """A name that nothing has yet, neither a namespace nor a node."""
        ...

    def put_pod(self, pod: PodFacts) -> None:
        """Make a pod, or bring the one of that name to its labels, annotations, phase and addresses.

        Identity and times are the orchestrator's to give.
        """
        ...

    def put_namespace(self, namespace: NamespaceFacts) -> None:
        """Make a namespace, or bring the one of that name to its labels and annotations."""
        ...

    def put_node(self, node: NodeFacts) -> None:
        """Make a node, or bring the one of that name to its labels and annotations."""
        ...

    def delete_pod(self, namespace: str, name: str) -> None:
        """Remove a pod at once."""
        ...


OrchestratorCheck: TypeAlias = Callable[[OrchestratorHarness], None]
"""One thing that an orchestrator must tell; it raises AssertionError when it does not."""


def a_missing_object_is_none(harness: OrchestratorHarness) -> None:
    """What is not there, and what is in another namespace."""
    here, there = _make_namespace(harness), _make_namespace(harness)
    _put_and_find_pod(harness, PodFacts(namespace=here, name="web-0", uid=""))
    tell = harness.orchestrator
    expect_same(tell.find_pod(there, "web-0", deadline=harness.deadline()), None, "a pod of another namespace")
    expect_same(tell.find_pod(here, "web-1", deadline=harness.deadline()), None, "a pod that is not there")
    nobody = harness.new_name()
    expect_same(tell.find_pod(nobody, "web-0", deadline=harness.deadline()), None, "a pod of no namespace")
    expect_same(tell.find_namespace(nobody, deadline=harness.deadline()), None, "a namespace that is not there")
    expect_same(tell.find_node(nobody, deadline=harness.deadline()), None, "a node that is not there")


def a_pod_has_all_its_fields(harness: OrchestratorHarness) -> None:
    """Labels, annotations, account, ports of every protocol, addresses of both families, its birth."""
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
    expect(found.creation_time_ns is not None, "the pod was never born")
    expect_same(found.deletion_time_ns, None, "when the pod was told to go")
    expect_same(evolve(found, uid="", creation_time_ns=None), wanted, "the pod")
    expect_same(found.find_annotation("example.org/note"), '["a b"]', "its annotation")
    expect_same(found.find_annotation("note"), None, "an annotation that it has not")


def a_pending_pod_has_no_node(harness: OrchestratorHarness) -> None:
    """Nobody has placed it; it waits, without addresses."""
    found = _put_and_find_pod(harness, PodFacts(namespace=_make_namespace(harness), name="later", uid=""))
    expect_same((found.node, found.phase, found.addresses), ("", PodPhase.PENDING, ()), "what the pod has")
    expect(found.network is PodNetwork.OWN, "a pod has a network of its own unless it says otherwise")


def a_pod_may_use_the_host_network(harness: OrchestratorHarness) -> None:
    """Which makes it none that can be attached."""
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
            found.is_terminated, phase in (PodPhase.SUCCEEDED, PodPhase.FAILED), f"whether it is over in {phase}"
        )


def a_change_is_seen_and_the_uid_stays(harness: OrchestratorHarness) -> None:
    """Of a pod, of a namespace and of a node: each question is answered from what is there now."""
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
    """Gone in between; what one namespace's pod does is nothing to another's of the same name."""
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
    """A node with the ranges for its pods, in both families."""
    space = NamespaceFacts(name=harness.new_name(), uid="", labels=(("team", "a"),), annotations=(("n", "v"),))
    found = _put_and_find_namespace(harness, space)
    expect(bool(found.uid), "the namespace has no identity")
    expect(set(space.labels) <= set(found.labels), f"labels of the namespace: {found.labels}")
    expect(set(space.annotations) <= set(found.annotations), f"annotations of the namespace: {found.annotations}")
    ranges = (Prefix.parse("10.66.1.0/24"), Prefix.parse("fd66:0:0:1::/64"))
    node = NodeFacts(name=harness.new_name(), uid="", labels=(("zone", "a"),), annotations=(), pod_cidrs=ranges)
    machine = _put_and_find_node(harness, node)
    expect(bool(machine.uid), "the node has no identity")
    expect(set(node.labels) <= set(machine.labels), f"labels of the node: {machine.labels}")
    expect_same(machine.pod_cidrs, ranges, "the ranges of the node")


def every_lookup_ends_by_its_deadline(harness: OrchestratorHarness) -> None:
    """One that has passed is no time for any."""
    namespace = _make_namespace(harness)
    over = harness.deadline(0.0)
    tell = harness.orchestrator
    for ask in (
        lambda: tell.find_pod(namespace, "web-0", deadline=over),
        lambda: tell.find_namespace(namespace, deadline=over),
        lambda: tell.find_node("machine-1", deadline=over),
    ):
        try:
            ask()
        except Unavailable:
            continue
        raise AssertionError("a question was answered after its deadline")


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
"""Every case, by what it is called."""


def _make_namespace(harness: OrchestratorHarness) -> str:
    """A fresh namespace."""
    name = harness.new_name()
    harness.put_namespace(NamespaceFacts(name=name, uid=""))
    return name


def _put_and_find_pod(harness: OrchestratorHarness, pod: PodFacts) -> PodFacts:
    """The pod as it is told when it has been put there."""
    harness.put_pod(pod)
    found = harness.orchestrator.find_pod(pod.namespace, pod.name, deadline=harness.deadline())
    if found is None:
        raise AssertionError(f"pod {pod.namespace}/{pod.name} is there, and not told of")
    return found


def _put_and_find_namespace(harness: OrchestratorHarness, namespace: NamespaceFacts) -> NamespaceFacts:
    harness.put_namespace(namespace)
    found = harness.orchestrator.find_namespace(namespace.name, deadline=harness.deadline())
    if found is None:
        raise AssertionError(f"namespace {namespace.name} is there, and not told of")
    return found


def _put_and_find_node(harness: OrchestratorHarness, node: NodeFacts) -> NodeFacts:
    harness.put_node(node)
    found = harness.orchestrator.find_node(node.name, deadline=harness.deadline())
    if found is None:
        raise AssertionError(f"node {node.name} is there, and not told of")
    return found
