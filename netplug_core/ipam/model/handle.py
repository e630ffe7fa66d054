"""Handles and affinities: the records that say which blocks a workload or a node has.

A handle is the key under which a workload's addresses are released together. It counts, for each block, how many
addresses it holds there. It is written before the block and removed after it, so after a crash a count may be too
high, never too low. Every assignment and every release corrects its own handle. An affinity is the claim of a node, or
of another owner, on a block.
"""

from __future__ import annotations

import enum
from functools import lru_cache

from attrs import evolve, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.records import Get, Key, Kind, List, Malformed

__all__ = [
    "AFFINITY", "HANDLE", "Affinity", "AffinityState", "Handle", "affinities_path", "affinities_query",
    "affinity_key", "claimed_block", "claiming_owner", "current_affinities_query", "handle_key", "handle_query",
    "host_owner", "owner_node",
]  # fmt: skip


# --- affinity --------------------------------------------------------------------------------------------------------


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


# --- handle ----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Handle:
    """How many addresses are held in which blocks: pairs sorted by block, each count above 0.

    ``sequence`` grows with a write that changes no count (``touched``).
    """

    blocks: tuple[tuple[Prefix, int], ...] = ()
    sequence: int = 0
    unknown_json: str = ""

    def with_count(self, prefix: Prefix, count: int) -> Handle:
        """This handle with that count for one block; 0 forgets the block."""
        blocks = [pair for pair in self.blocks if pair[0] != prefix]
        if count:
            blocks.append((prefix, count))
        return Handle(blocks=tuple(sorted(blocks)), sequence=self.sequence, unknown_json=self.unknown_json)

    def touched(self) -> Handle:
        """The same handle to be stored again: its new revision makes an unfinished deletion of it fail.

        An API server keeps the revision of a record that does not change.
        """
        return evolve(self, sequence=self.sequence + 1)

    def count(self, prefix: Prefix) -> int:
        """How many addresses it holds in a block; 0 for a block it does not know."""
        return next((count for known, count in self.blocks if known == prefix), 0)


HANDLE: Kind[Handle] = Kind("IPAMHandle", ("id",))


def handle_key(handle_id: str) -> Key[Handle]:
    """The key of the handle with that id."""
    return handle_query(handle_id).key


@lru_cache(maxsize=256)  # equal queries are the same object, so that a lookup need not compare them
def handle_query(handle_id: str) -> Get[Handle]:
    """The query for the handle with that id."""
    return Get(HANDLE.key(handle_id))
