"""Deletes a damaged record. Only its key and its revision are known.

``delete`` calls it where it finds damage, ``netplugctl ipam delete-block`` for blocks. ``write`` puts a resource in
the place of a damaged one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from netplug_core.addressing import Prefix
from netplug_core.clock import Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.errors import ConfigurationError, excerpt
from netplug_core.flows.resources.outcome import ResourceMissing, ResourceOutdated
from netplug_core.ipam.model import block_key
from netplug_core.ipam.reporting.check import BLOCK_RISK_QUERIES, POOL_RISK_QUERIES, find_block_risks, find_pool_risks
from netplug_core.records import Decision, Delete, Get, Key, Malformed, NotSupported, Query, Snapshot
from netplug_core.resources.ippool import IPPOOL
from netplug_core.resources.kinds import Resource

__all__ = ["AddressesAtRisk", "NotDamaged", "Risk", "delete_damaged", "delete_damaged_block", "find_damage"]


class Risk(enum.Enum):
    """Whether a damaged record is deleted though addresses that it holds may be in use."""

    REFUSED = "refused"
    ACCEPTED = "accepted"


class AddressesAtRisk(ConfigurationError):
    """A damaged record that is not deleted; ``value`` says why its addresses may be in use, ``accepted`` what to do."""

    def __str__(self) -> str:
        return f"{excerpt(self.where)} cannot be read, and may hold addresses in use: {self.value}; {self.accepted}"


class NotDamaged(ConfigurationError):
    """A record that can be read, where only a damaged one is deleted."""

    def __str__(self) -> str:
        return f"{excerpt(self.where)} is not damaged; nothing is deleted"


def find_damage(store: Datastore, key: Key[object], *, pace: Pace) -> Malformed | None:
    """What is wrong with a stored record; None if it is sound, or nothing is stored.

    Raises:
        Unavailable: the store does not answer.
    """
    query = Get(key)
    found = store.read([query], deadline=pace.deadline.capped(CALL_TIMEOUT_S)).malformed(query)
    return found[0] if found else None


def delete_damaged(
    store: Datastore, key: Key[Resource], risk: Risk, *, revision: str = "", pace: Pace
) -> tuple[str, ...]:
    """Delete a damaged resource; warnings for the person. Nothing is done before its deletion as for a sound one.

    Raises:
        AddressesAtRisk: it is a pool, and addresses in use may be of it.
        NotSupported: the store deletes no record of the kind, or does not know the revision of the damaged one.
        ResourceOutdated: it has another resource version than ``revision`` (empty: any).
        ContentionExhausted, Unavailable: not now.
    """
    if key.kind != IPPOOL:
        return _delete(store, key, (), lambda _snapshot: None, revision=revision, pace=pace)
    advice = "replace it by a pool with the same cidr and blockSize (replace -f FILE), or delete it with --force"

    def refuse(snapshot: Snapshot) -> AddressesAtRisk | None:
        risks = find_pool_risks(snapshot) if risk is Risk.REFUSED else ()
        return AddressesAtRisk(str(key), "; ".join(risks), advice) if risks else None

    return _delete(store, key, POOL_RISK_QUERIES, refuse, revision=revision, pace=pace)


def delete_damaged_block(store: Datastore, block: Prefix, risk: Risk, *, pace: Pace) -> tuple[str, ...]:
    """Delete a damaged block; warnings for the person. Handles and affinities that led to it stay.

    Raises:
        AddressesAtRisk: addresses of it may be in use.
        NotDamaged: it can be read.
        ResourceMissing: there is no such block.
        ContentionExhausted, NotSupported, Unavailable: as for ``delete_damaged``.
    """
    key = block_key(block)
    if find_damage(store, key, pace=pace) is None:
        query = Get(key)
        stored = store.read([query], deadline=pace.deadline.capped(CALL_TIMEOUT_S)).readable(query)
        raise NotDamaged(str(key), key.name, "a damaged block") if stored else ResourceMissing.of(key)
    advice = "stop their workloads first, or delete it with --force and then start them anew"

    def refuse(snapshot: Snapshot) -> AddressesAtRisk | None:
        risks = find_block_risks(snapshot, block) if risk is Risk.REFUSED else ()
        return AddressesAtRisk(str(key), "; ".join(risks), advice) if risks else None

    return _delete(store, key, BLOCK_RISK_QUERIES, refuse, revision="", pace=pace)


def _delete(
    store: Datastore,
    key: Key[object],
    queries: tuple[Query, ...],
    refuse: Callable[[Snapshot], AddressesAtRisk | None],
    *,
    revision: str,
    pace: Pace,
) -> tuple[str, ...]:
    """Delete a damaged record at the revision at which it was judged."""

    def decide(snapshot: Snapshot) -> Decision[tuple[str, ...]]:
        found = snapshot.malformed(Get(key))
        if not found:
            # It was damaged when this call began. It was deleted since, perhaps by an attempt whose reply was lost, or
            # another program has stored a sound one.
            is_sound = bool(snapshot.readable(Get(key)))
            return Decision((), NotDamaged(str(key), key.name, "a damaged record") if is_sound else ())
        damage = found[0]
        if not damage.revision:
            return Decision((), NotSupported("Delete", key.kind, f"{damage}, and its revision is not known"))
        if revision and revision != damage.revision:
            return Decision((), ResourceOutdated(str(key), revision, damage.revision))
        refusal = refuse(snapshot)
        if refusal is not None:
            return Decision((), refusal)
        return Decision((Delete(key, damage.revision),), (f"{key}: it was damaged: {excerpt(damage.problem)}",))

    result = Transaction(store, pace).run([Get(key), *queries], decide).result
    return result if isinstance(result, tuple) else ()
