"""Lookups at an orchestrator whose objects the datastore shows: each object is read once for a call, or not at all."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.view import DatastoreCache
from netplug_core.orchestrator.model import NAMESPACE, POD, NamespaceFacts, NodeFacts, PodFacts
from netplug_core.orchestrator.protocol import Orchestrator
from netplug_core.records import Get

__all__ = ["CachedLookups"]


@frozen(kw_only=True)
class CachedLookups:
    """An :class:`~netplug_core.orchestrator.protocol.Orchestrator` on a datastore that shows pods and namespaces.

    A pod is read each time, because other programs change pods until they are attached. The answer has the pod's
    endpoint too, which the cache keeps for the commit. A namespace comes from the cache while what that knows counts.
    One that the cache lacks may have been made a moment ago, and is read.
    ``orchestrator`` looks up nodes, and ``follow_node`` gets the node of each pod.
    """

    orchestrator: Orchestrator
    datastore: Datastore
    cache: DatastoreCache
    follow_node: Callable[[str], None] | None = None

    def find_pod(self, namespace: str, name: str, *, deadline: Deadline) -> PodFacts | None:
        """The pod of that name; None if there is none."""
        wanted = Get(POD.key(namespace, name))
        record = self.cache.read(self.datastore, (wanted,), deadline=deadline).find(wanted)
        if record is None:
            return None
        if self.follow_node is not None:
            self.follow_node(record.value.node)
        return record.value

    def find_namespace(self, name: str, *, deadline: Deadline) -> NamespaceFacts | None:
        """The namespace of that name; None if there is none."""
        wanted = Get(NAMESPACE.key(name))
        known = self.cache.lookup((wanted,))
        record = None if known.missing else known.snapshot.find(wanted)
        if record is None:
            record = self.cache.read(self.datastore, (wanted,), deadline=deadline).find(wanted)
        return None if record is None else record.value

    def find_node(self, name: str, *, deadline: Deadline) -> NodeFacts | None:
        """The node of that name; None if there is none."""
        return self.orchestrator.find_node(name, deadline=deadline)
