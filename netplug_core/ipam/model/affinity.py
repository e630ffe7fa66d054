"""An affinity: a node's claim on a block, written before the block and removed after it.

The block itself says who owns it. The affinity is the node's index of its blocks, and makes a crash between two writes
recoverable. ``allocation.ownership`` writes the transitions between the states below. A repair stores a lost affinity
as pending (``reporting.restore``), and one that owns no block is deleted in any state.
"""

from __future__ import annotations

import enum
from functools import lru_cache

from attrs import frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.records import Key, Kind, List, Malformed

__all__ = [
    "AFFINITY", "Affinity", "AffinityState", "affinities_path", "affinities_query", "affinity_key", "claimed_block",
    "claiming_owner", "current_affinities_query", "host_owner", "owner_node",
]  # fmt: skip


class AffinityState(enum.Enum):
    """How far claiming or relinquishing a block has come."""

    PENDING = "pending"
    CONFIRMED = "confirmed"
    PENDING_DELETION = "pendingDeletion"


@frozen(kw_only=True)
class Affinity:
    """One node's claim on one block; node and block are in its key."""

    state: AffinityState
    unknown_json: str = ""


AFFINITY: Kind[Affinity] = Kind("BlockAffinity", ("type", "name", "family", "cidr"))


def host_owner(node: str) -> str:
    """How a block names the node that owns it."""
    return f"host:{node}"


def owner_node(owner: str) -> str:
    """The name of the node that is an owner; empty without an owner, or if the owner is not a node."""
    kind, _, name = owner.partition(":")
    return name if kind == "host" else ""


def affinities_path(owner: str, family: Family) -> tuple[str, ...]:
    """The first segments of the keys of an owner's affinities of a family."""
    kind, _, name = owner.partition(":")
    return (kind, name, f"ipv{family.value}")


@lru_cache(maxsize=16_384)  # equal queries are the same object, so that a lookup need not compare them
def affinities_query(owner: str, family: Family) -> List[Affinity]:
    """The query for all affinities of an owner to blocks of a family; a cache of the store may answer it."""
    return List(AFFINITY, affinities_path(owner, family), may_be_cached=True)


@lru_cache(maxsize=1024)
def current_affinities_query(owner: str, family: Family) -> List[Affinity]:
    """The same query, answered without a cache."""
    return List(AFFINITY, affinities_path(owner, family))


def affinity_key(owner: str, prefix: Prefix) -> Key[Affinity]:
    """The key of an owner's affinity to the block with that prefix."""
    return AFFINITY.key(*affinities_path(owner, prefix.family), str(prefix))


def claiming_owner(key: Key[Affinity]) -> str:
    """The owner of an affinity, as blocks name it."""
    kind, name, *_rest = key.path
    return f"{kind}:{name}"


def claimed_block(key: Key[Affinity]) -> Prefix:
    """The prefix of the block that an affinity names.

    Raises:
        Malformed: the key names no prefix.
    """
    try:
        return _parsed(key.name)
    except ValueError as error:
        raise Malformed(str(key), str(error)) from None


@lru_cache(maxsize=16_384)  # a node parses its few keys for every address; a simulation has thousands of nodes
def _parsed(text: str) -> Prefix:
    return Prefix.parse(text)
