"""Who has to reach whom, and what was found: values of ``lab status`` and ``connectivity test``.

Others send the packets: the lab inside its namespaces, and pods of a cluster.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Sequence

from attrs import frozen

from netplug_core.addressing import Address, Family

__all__ = ["Path", "PathResult", "Peer", "PeerKind", "Relation", "find_gaps", "list_paths", "reached_families"]


class PeerKind(enum.Enum):
    """What is at an end of a path."""

    POD = "pod"
    NODE = "node"
    SERVICE = "service"
    OUTSIDE = "outside"


class Relation(enum.Enum):
    """What the end of a path is, seen from its start."""

    SAME_NODE = "pod of the same node"
    OTHER_NODE = "pod of another node"
    OWN_NODE = "its own node"
    FOREIGN_NODE = "another node"
    SERVICE = "service"
    OUTSIDE = "outside"


@frozen(kw_only=True)
class Peer:
    """Something that can be reached. ``node`` is the node of a pod, and of a node itself; others have none."""

    name: str
    kind: PeerKind
    node: str = ""
    addresses: tuple[Address, ...] = ()


@frozen(kw_only=True)
class Path:
    """A way that packets take there and back: from a peer to one address of another one."""

    source: str
    target: str
    relation: Relation
    address: Address

    @property
    def family(self) -> Family:
        """The family of the packets."""
        return self.address.family

    def __str__(self) -> str:
        return f"{self.source} to {self.target} over {self.family} ({self.address})"


@frozen(kw_only=True)
class PathResult:
    """What was found of a path: why it does not work, or, where ``failure`` is empty, how long an answer took."""

    path: Path
    failure: str = ""
    time_ms: float | None = None


def list_paths(peers: Sequence[Peer], sources: Collection[PeerKind] = frozenset(PeerKind)) -> tuple[Path, ...]:
    """Every path from each peer of those kinds to each address of every other peer.

    Two peers that share no family have no path.
    """
    return tuple(
        Path(source=source.name, target=target.name, relation=_relation(source, target), address=address)
        for source in peers
        if source.kind in sources
        for target in peers
        if target is not source
        for address in _reachable(source, target)
    )


def reached_families(results: Iterable[PathResult]) -> dict[tuple[str, str], tuple[Family, ...]]:
    """For each source and target, the families over which answers came; no entry where none did."""
    found: dict[tuple[str, str], tuple[Family, ...]] = {}
    for result in results:
        if not result.failure:
            pair = result.path.source, result.path.target
            found[pair] = (*found.get(pair, ()), result.path.family)
    return found


def find_gaps(results: Sequence[PathResult]) -> tuple[str, ...]:
    """Which relations work over a family on no path at all, a sentence each: that has one cause, not many."""
    return tuple(_gaps(results))


def _gaps(results: Sequence[PathResult]) -> Iterator[str]:
    for relation in Relation:
        for family in Family:
            among = [one for one in results if one.path.relation is relation and one.path.family is family]
            if len(among) > 1 and all(one.failure for one in among):
                yield f"{relation.value}: nothing answers over {family}, on {len(among)} paths"


def _reachable(source: Peer, target: Peer) -> Iterator[Address]:
    own = {address.family for address in source.addresses}
    return (address for address in target.addresses if address.family in own)


def _relation(source: Peer, target: Peer) -> Relation:
    is_same_node = source.node == target.node
    match target.kind:
        case PeerKind.POD:
            return Relation.SAME_NODE if is_same_node else Relation.OTHER_NODE
        case PeerKind.NODE:
            return Relation.OWN_NODE if is_same_node else Relation.FOREIGN_NODE
        case PeerKind.SERVICE:
            return Relation.SERVICE
        case _:
            return Relation.OUTSIDE
