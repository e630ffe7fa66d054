"""What an orchestrator says of its pods and nodes: the facts by which the collector judges who still uses an address.

The facts reach the collector twice: as a view that was put together from watches, cheap and perhaps behind, and as
the direct answers of a :class:`Witness`, which ``flows.collect`` asks before anything is freed. Nothing here fetches
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from attrs import frozen

from netplug_core.addressing import Address
from netplug_core.clock import Deadline

__all__ = ["ClusterView", "KnownPod", "LiveLookup", "LookupResult", "PodName"]


@frozen(order=True)
class PodName:
    """A pod by its names."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@frozen(kw_only=True)
class KnownPod:
    """A pod as its orchestrator describes it.

    ``node`` is empty until it is scheduled. ``addresses`` are those that it reports or that its annotations name; none
    yet while it starts. A pod ``is_finished`` when its containers have ended and will not start again: completed,
    failed, evicted.
    """

    namespace: str
    name: str
    node: str = ""
    addresses: tuple[Address, ...] = ()
    is_finished: bool = False

    @property
    def pod(self) -> PodName:
        """Which pod it is."""
        return PodName(self.namespace, self.name)


@frozen(kw_only=True)
class ClusterView:
    """Every pod there is, and the name of every node that the orchestrator knows or that was registered."""

    pods: tuple[KnownPod, ...] = ()
    nodes: frozenset[str] = frozenset()


class LiveLookup(Protocol):
    """Who can say, now and at first hand, whether a pod or a node exists."""

    def find_pod(self, pod: PodName, *, deadline: Deadline) -> KnownPod | None:
        """The pod as it is now; None when it certainly does not exist.

        Raises:
            Unavailable, Unauthorized: no answer; nothing may be concluded from that.
        """
        ...

    def has_node(self, name: str, *, deadline: Deadline) -> bool:
        """Whether a node of that name exists now, or is registered.

        Raises:
            Unavailable, Unauthorized: no answer.
        """
        ...


@frozen(kw_only=True)
class LookupResult:
    """What a witness said to the collector's questions.

    ``pods`` has the answers about pods, None for one that does not exist; ``gone`` the nodes that do not exist any
    more; ``unanswered`` each pod and node of which nothing could be learned, and why.
    """

    pods: Mapping[PodName, KnownPod | None]
    gone: frozenset[str]
    unanswered: Mapping[PodName | str, str]

    def unanswered_text(self, questions: Iterable[PodName | str]) -> str:
        """Which of some pods and nodes could not be spoken about, and why; empty when all could."""
        silent = [asked for asked in questions if asked in self.unanswered]
        return "; ".join(f"{_kind(asked)} {asked} could not be looked up: {self.unanswered[asked]}" for asked in silent)


def _kind(asked: PodName | str) -> str:
    return "pod" if isinstance(asked, PodName) else "node"
