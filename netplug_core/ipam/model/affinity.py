"""An affinity: a node's claim on a block, written before the block and removed after it.

The block is the authority on who owns it; the affinity is the node's index of its blocks, and what makes a crash
between two writes recoverable. ``claims`` writes the transitions between the states below; nothing else changes one.
"""

from __future__ import annotations

import enum
from functools import lru_cache

from attrs import frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.records import Key, Kind, List, Malformed

__all__ = [
    "AFFINITY",
    "Affinity",
    "AffinityState",
    "affinities_path",
    "affinities_query",
    "affinity_key",
    "claimed_block",
    "claiming_owner",
    "host_owner",
    "owner_node",
]


class AffinityState(enum.Enum):
    """How far a claim, or giving it up, has come."""

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
    """The node that an owner is; empty where nobody owns, or somebody who is no node."""
    kind, _, name = owner.partition(":")
    return name if kind == "host" else ""


def affinities_path(owner: str, family: Family) -> tuple[str, ...]:
    """What the keys of one owner's affinities of a family begin with."""
    kind, _, name = owner.partition(":")
    return (kind, name, f"ipv{family.value}")


@lru_cache(maxsize=16_384)  # the same objects, again and again: what is found by identity is not compared
def affinities_query(owner: str, family: Family) -> List[Affinity]:
    """All claims of one owner on blocks of a family."""
    return List(AFFINITY, affinities_path(owner, family))


def affinity_key(owner: str, prefix: Prefix) -> Key[Affinity]:
    """The key of an owner's claim on the block with that prefix."""
    return AFFINITY.key(*affinities_path(owner, prefix.family), str(prefix))


def claiming_owner(key: Key[Affinity]) -> str:
    """Whose claim it is, as blocks name their owner."""
    kind, name, *_rest = key.path
    return f"{kind}:{name}"


def claimed_block(key: Key[Affinity]) -> Prefix:
    """The block that a claim is about.

    Raises:
        Malformed: the key names none.
    """
    try:
        return _parsed(key.name)
    except ValueError as error:
        raise Malformed(str(key), str(error)) from None


@lru_cache(maxsize=16_384)  # a node reads its few claims for every address; a simulation has thousands of nodes
def _parsed(text: str) -> Prefix:
    return Prefix.parse(text)
