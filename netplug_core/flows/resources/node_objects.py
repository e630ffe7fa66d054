"""Deletes what belongs to one node alone: host endpoints, BGP peers, and the configurations called ``node.NAME``.

``delete`` calls it for a node that goes. No other node reads these objects, and a new machine of the same name would
take them for its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from netplug_core.clock import Pace
from netplug_core.datastore.paging import read_pages
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S, Transaction
from netplug_core.records import Decision, Delete, Get, Key, Kind, Malformed, Snapshot
from netplug_core.resources.bgppeer import BGP_PEER, BGPPeer
from netplug_core.resources.hostendpoint import HOST_ENDPOINT, HostEndpoint
from netplug_core.resources.kinds import KINDS, OF_NODE, Resource

__all__ = ["delete_node_objects"]


def delete_node_objects(store: Datastore, node: str, *, pace: Pace) -> tuple[str, ...]:
    """Delete every object of one node; return a warning for each, and for each that cannot be read and so stays.

    Raises:
        ContentionExhausted, Unavailable: not now; some may be deleted already.
    """
    malformed: list[Malformed] = []
    owned = [key for key in _find(store, node, pace, malformed) if _delete(store, key, node, pace)]
    deleted = (f"{key}: it belonged to the node {node} alone, and is deleted too" for key in owned)
    unread = (f"{error.key}: it stays, as it cannot be read: {error.problem}" for error in malformed)
    return (*deleted, *unread)


def _find(store: Datastore, node: str, pace: Pace, malformed: list[Malformed]) -> Iterator[Key[Resource]]:
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


def _delete(store: Datastore, key: Key[Resource], node: str, pace: Pace) -> bool:
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
