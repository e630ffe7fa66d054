"""Live lookups: what the orchestrator answers when the collector asks about one pod or one node.

The collector sees pods and nodes twice: in a :class:`~netplug_core.orchestrator.model.ClusterView`, which may be out of
date, and by a live lookup, which ``flows.ipam.collect`` makes before an address is freed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from attrs import frozen

from netplug_core.clock import Deadline
from netplug_core.orchestrator.model import PodFacts, PodName

__all__ = ["LiveLookup", "LookupResult"]


class LiveLookup(Protocol):
    """Reads one pod or one node directly, without a cache.

    Raises:
        Unavailable, Unauthorized: no answer. The collector then frees nothing of that pod or node.
    """

    def find_pod(self, namespace: str, name: str, *, deadline: Deadline) -> PodFacts | None:
        """The pod as it is now; None when it does not exist.

        ``addresses`` has those that its node has reported and those that its annotations name.
        """
        ...

    def has_node(self, name: str, *, deadline: Deadline) -> bool:
        """Whether the orchestrator knows a node of that name, or one is registered."""
        ...


@frozen(kw_only=True)
class LookupResult:
    """The answers to some live lookups.

    ``pods`` has each pod that was looked up, None for one that does not exist. ``gone`` has the nodes that do not exist
    any more. ``unanswered`` has each pod and node for which the lookup failed, and the error.
    """

    pods: Mapping[PodName, PodFacts | None]
    gone: frozenset[str]
    unanswered: Mapping[PodName | str, str]

    def unanswered_text(self, subjects: Iterable[PodName | str]) -> str:
        """Which of some pods and nodes (by name) could not be looked up, and why; empty when all could."""
        failed = [subject for subject in subjects if subject in self.unanswered]
        return "; ".join(
            f"{_kind_of(subject)} {subject} could not be looked up: {self.unanswered[subject]}" for subject in failed
        )


def _kind_of(subject: PodName | str) -> str:
    return "pod" if isinstance(subject, PodName) else "node"
