"""An affinity: a node's claim on a block, written before the block and removed after it.

The block is the authority on who owns it; the affinity is the node's index of its blocks, and what makes a crash
between two writes recoverable. ``decide`` walks the state table below; nothing else changes an affinity's state.
"""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.records import Key, Kind, Malformed

__all__ = ["AFFINITY", "Affinity", "AffinityState", "affinities_path", "affinity_key", "claimed_block", "host_owner"]


class AffinityState(enum.Enum):
    """How far a claim, or giving it up, has come."""

    PENDING = "pending"
    CONFIRMED = "confirmed"
    PENDING_DELETION = "pendingDeletion"


@frozen(kw_only=True)
class Affinity:
    """One node's claim on one block; node and block are in its key."""

    state: AffinityState
    carried: str = ""


AFFINITY: Kind[Affinity] = Kind("BlockAffinity", ("type", "name", "family", "cidr"))


def host_owner(node: str) -> str:
    """How a block names the node that owns it."""
    return f"host:{node}"


def affinities_path(owner: str, family: Family) -> tuple[str, ...]:
    """What the keys of one owner's affinities of a family begin with."""
    kind, _, name = owner.partition(":")
    return (kind, name, f"ipv{family.value}")


def affinity_key(owner: str, prefix: Prefix) -> Key[Affinity]:
    """The key of an owner's claim on the block with that prefix."""
    return AFFINITY.key(*affinities_path(owner, prefix.family), str(prefix))


def claimed_block(key: Key[Affinity]) -> Prefix:
    """The block that a claim is about.

    Raises:
        Malformed: the key names none.
    """
    try:
        return Prefix.parse(key.name)
    except ValueError as error:
        raise Malformed(str(key), str(error)) from None
