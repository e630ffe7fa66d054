"""The interface to the orchestrator: one lookup for each kind of object. Read only.

``registry`` opens an orchestrator by name (``netplug_core.hookspecs``, ``netplug_open_orchestrator``). Its backend
returns the values of ``model``. An ADD looks up its pod and namespace, for their annotations.
"""

from __future__ import annotations

from typing import Protocol

from netplug_core.clock import Deadline
from netplug_core.orchestrator.model import NamespaceFacts, NodeFacts, PodFacts

__all__ = ["Orchestrator"]


class Orchestrator(Protocol):
    """Looks up pods, namespaces and nodes. Every call ends by its deadline.

    Raises:
        Unauthorized: the credentials are not accepted, or a right is missing; the error names it.
        Unavailable: it does not answer.
        Malformed: the object that it returned cannot be decoded.
    """

    def find_pod(self, namespace: str, name: str, *, deadline: Deadline) -> PodFacts | None:
        """The pod of that name; None when there is none."""
        ...

    def find_namespace(self, name: str, *, deadline: Deadline) -> NamespaceFacts | None:
        """The namespace of that name; None when there is none."""
        ...

    def find_node(self, name: str, *, deadline: Deadline) -> NodeFacts | None:
        """The node of that name; None when there is none."""
        ...
