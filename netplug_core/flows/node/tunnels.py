"""Gives a node the addresses of its tunnel devices, and takes them back when no pool needs them any more.

The node process calls it when pools or its own Node have changed. An address is assigned before the Node names it, and
released after it no longer does: a process that is killed in between leaves an address under a handle of the node's
own, which the next call finds.
"""

from __future__ import annotations

from netplug_core.addressing import Address
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest, Shortfall
from netplug_core.ipam.protocol import IPAM, NO_ENDPOINT
from netplug_core.reconcile.tunnels import TunnelAddress, plan_tunnel_address, with_tunnel_address
from netplug_core.records import Decision, Get, List, Snapshot, Update
from netplug_core.resources.clusterinformation import READINESS_GATE
from netplug_core.resources.ippool import IPPOOL, AllowedUse
from netplug_core.resources.node import node_key

__all__ = ["settle_tunnel_address"]


def settle_tunnel_address(datastore: Datastore, ipam: IPAM, name: str, sort: TunnelAddress, *, pace: Pace) -> bool:
    """Do what is to be done about one tunnel address of a node; return whether anything was.

    Nothing is done if the Node does not exist.

    Raises:
        AllocationError: no pool has an address left; the Node names none.
        Unauthorized: the datastore refuses.
        Unavailable, ContentionExhausted: not now.
    """
    queries = (Get(node_key(name)), List(IPPOOL))
    snapshot = datastore.read(queries, deadline=pace.deadline.capped(CALL_TIMEOUT_S))
    record, handle = snapshot.find(node_key(name)), sort.handle(name)
    if record is None:
        return False
    pools = [each.value for each in snapshot.readable(List(IPPOOL))]
    found = ipam.held(handle, deadline=pace.deadline)
    change = plan_tunnel_address(sort, record.value, pools, () if found is None else found.addresses)
    if change is None:
        return False
    wanted = change.stored
    if change.is_released:
        _release(ipam, handle, pace.deadline)
    if change.pools:
        wanted = _assign(ipam, name, sort, tuple(map(str, change.pools)), pace.deadline)
    _write(datastore, name, sort, wanted, pace)
    if change.is_given_up:
        _release(ipam, handle, pace.deadline)
    return True


def _assign(ipam: IPAM, name: str, sort: TunnelAddress, pools: tuple[str, ...], deadline: Deadline) -> Address:
    request = AssignRequest(
        handle=sort.handle(name),
        node=name,
        wanted=(Automatic(family=sort.family, pools=pools),),
        owner=sort.owner(name),
        use=AllowedUse.TUNNEL,
        shortfall=Shortfall.REFUSE,
    )
    return ipam.assign(request, NO_ENDPOINT, deadline=deadline).addresses[0].address


def _release(ipam: IPAM, handle: str, deadline: Deadline) -> None:
    ipam.release(ReleaseRequest(handle=handle), NO_ENDPOINT, deadline=deadline)


def _write(datastore: Datastore, name: str, sort: TunnelAddress, address: Address | None, pace: Pace) -> None:
    def decide(snapshot: Snapshot) -> Decision[None]:
        stored = snapshot.find(node_key(name))
        if stored is None or sort.find(stored.value) == address:
            return Decision((), None)
        node = with_tunnel_address(stored.value, sort, address)
        return Decision((Update(stored.key, node, stored.revision),), None)

    Transaction(datastore, pace, READINESS_GATE).run((Get(node_key(name)),), decide)
