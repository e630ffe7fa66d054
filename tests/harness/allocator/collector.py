"""The garbage collector of the harness, and its live lookup, which answers from the model."""

from __future__ import annotations

from attrs import frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam import collect
from netplug_core.ipam.gc.candidates import CollectorSettings
from netplug_core.log import Level
from netplug_core.orchestrator.model import ClusterView, PodFacts
from tests.harness.allocator.model import AllocationModel
from tests.harness.allocator.operations import NAMESPACE

__all__ = ["GRACE_PERIOD_S", "ModelLookup", "make_collector"]

GRACE_PERIOD_S = 60.0
"""The collector's grace period in these tests."""


@frozen
class ModelLookup:
    """The live lookup of the collector: it answers from the model."""

    model: AllocationModel

    @property
    def cluster(self) -> ClusterView:
        """All pods and nodes of the model."""
        return ClusterView(pods=tuple(map(self._pod_facts, self.model.pods)), nodes=frozenset(self.model.nodes))

    def find_pod(self, namespace: str, name: str, *, deadline: Deadline) -> PodFacts | None:
        """The facts of a pod; None if the model has no such pod."""
        del namespace, deadline
        return self._pod_facts(name) if name in self.model.pods else None

    def has_node(self, name: str, *, deadline: Deadline) -> bool:
        """Whether the model has the node."""
        del deadline
        return name in self.model.nodes

    def _pod_facts(self, handle: str) -> PodFacts:
        held = tuple(sorted(self.model.held_by(handle)))
        return PodFacts(namespace=NAMESPACE, name=handle, uid="", node=self.model.pods[handle], addresses=held)


def make_collector(store: Datastore, live_lookup: ModelLookup, clock: Clock) -> collect.Collector:
    """A collector over a store client, with the grace period of these tests."""
    return collect.Collector(
        store=store,
        live_lookup=live_lookup,
        clock=clock,
        chance=lambda: 0.5,
        log=_discard_log,
        settings=CollectorSettings(grace_s=GRACE_PERIOD_S),
    )


def _discard_log(_level: Level, _message: str, /, **_fields: object) -> None:
    """Discard what the collector logs."""
