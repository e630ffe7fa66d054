"""An orchestrator in memory, with the pods, namespaces and nodes that a test or a simulation puts there.

It sets uids and times as a real one does, and refuses what a real one refuses: a pod in a missing namespace, and a move
to another node.
"""

from __future__ import annotations

from itertools import count
from threading import Lock
from typing import TypeVar

from attrs import define, evolve, field

from netplug_core.clock import Clock, Deadline
from netplug_core.errors import InvariantBroken, Unavailable
from netplug_core.orchestrator.model import NamespaceFacts, NodeFacts, PodFacts

__all__ = ["MemoryOrchestrator"]

F = TypeVar("F", PodFacts, NamespaceFacts, NodeFacts)

_SECOND_NS = 1_000_000_000


@define(eq=False)
class MemoryOrchestrator:
    """See :class:`~netplug_core.orchestrator.model.Orchestrator`. Threads may share it."""

    _clock: Clock = field(kw_only=True, alias="clock")
    _lock: Lock = field(factory=Lock, init=False)
    _numbers: count[int] = field(factory=lambda: count(1), init=False)
    _pods: dict[tuple[str, str], PodFacts] = field(factory=dict, init=False)
    _namespaces: dict[str, NamespaceFacts] = field(factory=dict, init=False)
    _nodes: dict[str, NodeFacts] = field(factory=dict, init=False)

    def find_pod(self, namespace: str, name: str, *, deadline: Deadline) -> PodFacts | None:
        """The pod of that name; None when there is none."""
        return self._found(self._pods.get((namespace, name)), deadline)

    def find_namespace(self, name: str, *, deadline: Deadline) -> NamespaceFacts | None:
        """The namespace of that name; None when there is none."""
        return self._found(self._namespaces.get(name), deadline)

    def find_node(self, name: str, *, deadline: Deadline) -> NodeFacts | None:
        """The node of that name; None when there is none."""
        return self._found(self._nodes.get(name), deadline)

    # --- what a test puts there ------------------------------------------------------------------------------------

    def put_pod(self, pod: PodFacts) -> PodFacts:
        """Make a pod, or change the pod of that name; returns it with its uid and creation time.

        Raises:
            InvariantBroken: its namespace does not exist, or it would move from one node to another.
        """
        key = (pod.namespace, pod.name)
        with self._lock:
            if pod.namespace not in self._namespaces:
                raise InvariantBroken(f"pod {pod.namespace}/{pod.name}: its namespace is not there")
            before = self._pods.get(key)
            if before is None:
                created_ns = self._clock.now_ns() // _SECOND_NS * _SECOND_NS
                stored = evolve(pod, uid=self._new_uid(), creation_time_ns=created_ns)
            elif before.node not in ("", pod.node):
                raise InvariantBroken(f"pod {pod.namespace}/{pod.name}: it is on node {before.node} and stays there")
            else:
                stored = evolve(pod, uid=before.uid, creation_time_ns=before.creation_time_ns)
            self._pods[key] = stored
        return stored

    def put_namespace(self, namespace: NamespaceFacts) -> NamespaceFacts:
        """Make a namespace, or change the one of that name; returns it with its uid."""
        return self._put(self._namespaces, namespace)

    def put_node(self, node: NodeFacts) -> NodeFacts:
        """Make a node, or change the one of that name; returns it with its uid."""
        return self._put(self._nodes, node)

    def delete_pod(self, namespace: str, name: str) -> None:
        """Remove a pod; a missing pod is no error."""
        with self._lock:
            self._pods.pop((namespace, name), None)

    def delete_namespace(self, name: str) -> None:
        """Remove a namespace with everything in it."""
        with self._lock:
            self._namespaces.pop(name, None)
            for key in [key for key in self._pods if key[0] == name]:
                del self._pods[key]

    def delete_node(self, name: str) -> None:
        """Remove a node; its pods stay."""
        with self._lock:
            self._nodes.pop(name, None)

    def _put(self, kept: dict[str, F], facts: F) -> F:
        with self._lock:
            before = kept.get(facts.name)
            stored = kept[facts.name] = evolve(facts, uid=before.uid if before else self._new_uid())
        return stored

    def _new_uid(self) -> str:
        return f"00000000-0000-4000-8000-{next(self._numbers):012}"

    def _found(self, facts: F | None, deadline: Deadline) -> F | None:
        if deadline.has_passed:
            raise Unavailable("this process", "the deadline had passed before it was asked")
        return facts
