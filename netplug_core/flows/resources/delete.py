"""Deletes a stored resource after its claims on blocks and what belongs to it alone; and records that are damaged.

Of a damaged pool only the record is deleted. With a node go the objects that belong to it alone: another machine of
the same name would take them for its own.

A damaged record goes where a deletion finds it, a damaged block by ``netplugctl ipam delete-block``. ``write`` puts a
resource in the place of a damaged one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator

from netplug_core.addressing import Prefix
from netplug_core.clock import Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore, RefusesWrites
from netplug_core.datastore.transaction import Transaction, read_pages
from netplug_core.errors import ConfigurationError, excerpt
from netplug_core.flows.ipam.affinities import relinquish_node
from netplug_core.flows.resources import pools
from netplug_core.flows.resources.outcome import Effect, Outcome, ResourceMissing, ResourceOutdated
from netplug_core.flows.resources.read import find
from netplug_core.flows.resources.write import require_interfaces_kept, require_writable
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.model import block_key
from netplug_core.ipam.reporting.check import BLOCK_RISK_QUERIES, POOL_RISK_QUERIES, find_block_risks, find_pool_risks
from netplug_core.records import Decision, Delete, Get, Key, Kind, Malformed, NotSupported, Query, Record, Snapshot
from netplug_core.resources.bgp import BGP_PEER, BGPPeer
from netplug_core.resources.hostendpoint import HOST_ENDPOINT, HostEndpoint
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.resources.kinds import KINDS, OF_NODE, Resource
from netplug_core.resources.node import NODE, Node

__all__ = [
    "AddressesAtRisk", "NotDamaged", "Risk", "delete", "delete_damaged", "delete_damaged_block", "delete_node_objects",
    "find_damage",
]  # fmt: skip


# --- damaged records -------------------------------------------------------------------------------------------------


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


def delete(
    store: Datastore, key: Key[Resource], *, revision: str = "", risk: Risk = Risk.REFUSED, pace: Pace
) -> Outcome:
    """Delete a resource; of a pool and of a node, the claims on blocks are relinquished first.

    Before a node its host endpoints, BGP peers and configurations are deleted, and warnings name them.
    Workloads keep their addresses; a warning says how many they hold of a pool. ``revision`` is the resource version
    that the resource must have; empty for any. Of a damaged resource of any kind the record is deleted, and a warning
    says what was wrong; ``risk`` concerns only those.

    Raises:
        AddressesAtRisk: it is a damaged pool, and addresses in use may be of it.
        DeletionCancelled: it is a pool that was enabled again meanwhile.
        KindNotWritable: people do not write its kind.
        NotSupported: the store does not delete it, as the nodes of a Kubernetes cluster; nothing is done.
        ResourceMissing: nothing is stored under the key.
        ResourceOutdated: it has another resource version.
        ContentionExhausted, Unavailable: not now.
    """
    damage = find_damage(store, key, pace=pace)
    if damage is not None:
        return _delete_damaged(store, Delete(key, damage.revision), risk, revision, pace)
    first = _require_deletable(store, key, revision, pace)
    warnings = _delete_dependents(store, first, revision, pace)
    required = "" if isinstance(first.value, IPPool) else revision  # to disable the pool has changed its revision

    def decide(snapshot: Snapshot) -> Decision[Effect]:
        stored = snapshot.find(key)
        # If it is gone or replaced, it was deleted, perhaps by an earlier attempt whose reply was lost.
        if stored is None or stored.value.metadata.uid != first.value.metadata.uid:
            return Decision((), Effect.DELETED)
        pools.require_disabled(stored)
        if required and required != stored.revision:
            return Decision((), ResourceOutdated(str(key), required, stored.revision))
        return Decision((Delete(key, stored.revision),), Effect.DELETED)

    Transaction(store, pace).run([Get(key)], decide)
    return Outcome(key=key, effect=Effect.DELETED, warnings=warnings)


def _require_deletable(store: Datastore, key: Key[Resource], revision: str, pace: Pace) -> Record[Resource]:
    """The stored resource, if nothing forbids its deletion. It is asked before anything is done."""
    require_writable(key, "Delete")
    (first,) = find(store, [key], deadline=pace.deadline)
    if first is None:
        raise ResourceMissing.of(key)
    if revision and revision != first.revision:
        raise ResourceOutdated(str(key), revision, first.revision)
    require_interfaces_kept(store, key, None, pace)
    _ask_store(store, Delete(key, first.revision))
    return first


def _ask_store(store: Datastore, write: Delete[Resource]) -> None:
    """Raise what the store would answer to a deletion that it never makes."""
    if isinstance(store, RefusesWrites) and (refusal := store.find_refusal(write)):
        raise refusal


def _delete_damaged(store: Datastore, found: Delete[Resource], risk: Risk, revision: str, pace: Pace) -> Outcome:
    key = found.key
    if revision and revision != found.revision:
        raise ResourceOutdated(str(key), revision, str(found.revision))
    _ask_store(store, found)
    dependents = _delete_dependents_of_node(store, key.name, pace) if key.kind == NODE else ()
    warnings = delete_damaged(store, key, risk, revision=revision, pace=pace)
    return Outcome(key=key, effect=Effect.DELETED, warnings=(*dependents, *warnings))


def _delete_dependents(store: Datastore, record: Record[Resource], revision: str, pace: Pace) -> tuple[str, ...]:
    """Relinquish the blocks of a node or a pool, and delete what belongs to a node alone; return warnings."""
    resource = record.value
    if isinstance(resource, Node):
        return _delete_dependents_of_node(store, record.key.name, pace)
    if not isinstance(resource, IPPool):
        return ()
    warnings = pools.held_warnings(store, resource, deadline=pace.deadline)
    pools.prepare_deletion(store, Record(resource.key, resource, record.revision), revision=revision, pace=pace)
    return warnings


def _delete_dependents_of_node(store: Datastore, node: str, pace: Pace) -> tuple[str, ...]:
    relinquish_node(store, node, Emptiness.NOT_REQUIRED, pace=pace)
    return delete_node_objects(store, node, pace=pace)


# --- what belongs to one node -----------------------------------------------------------------------------------------


def delete_node_objects(store: Datastore, node: str, *, pace: Pace) -> tuple[str, ...]:
    """Delete every object of one node; return a warning for each, and for each that cannot be read and so stays.

    Raises:
        ContentionExhausted, Unavailable: not now; some may be deleted already.
    """
    malformed: list[Malformed] = []
    owned = [key for key in _find_owned(store, node, pace, malformed) if _delete_owned(store, key, node, pace)]
    deleted = (f"{key}: it belonged to the node {node} alone, and is deleted too" for key in owned)
    unread = (f"{error.key}: it stays, as it cannot be read: {error.problem}" for error in malformed)
    return (*deleted, *unread)


def _find_owned(store: Datastore, node: str, pace: Pace, malformed: list[Malformed]) -> Iterator[Key[Resource]]:
    """The keys of the objects of one node. What cannot be read is added to ``malformed``."""
    kinds: tuple[Kind[Resource], ...] = (HOST_ENDPOINT, BGP_PEER)
    for kind in kinds:
        for record in read_pages(store, kind, deadline=pace.deadline, malformed=malformed):
            if _is_of(node, record.value):
                yield record.key
    queries = [Get(row.key(f"{OF_NODE}{node}")) for row in KINDS if row.has_node_objects]
    snapshot = store.read(queries, deadline=pace.deadline.capped(CALL_TIMEOUT_S))
    for query in queries:
        malformed.extend(snapshot.malformed(query))
        yield from (record.key for record in snapshot.readable(query))


def _delete_owned(store: Datastore, key: Key[Resource], node: str, pace: Pace) -> bool:
    """Delete an object, unless it belongs to another node by now; whether this call has done so."""

    def decide(snapshot: Snapshot) -> Decision[None]:
        stored = snapshot.find(key)
        if stored is None or not _is_of(node, stored.value):
            return Decision((), None)
        return Decision((Delete(key, stored.revision),), None)

    return bool(Transaction(store, pace).run([Get(key)], decide).writes)


def _is_of(node: str, resource: Resource) -> bool:
    """Whether an object belongs to one node alone. Those called ``node.NAME`` were found by their names."""
    return resource.spec.node == node if isinstance(resource, (HostEndpoint, BGPPeer)) else True
