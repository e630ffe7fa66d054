"""Reads the list of addresses of ``netplugctl ipam check``: the report of allocations, and who uses what besides."""

from __future__ import annotations

from collections.abc import Collection

from netplug_core.clock import Deadline
from netplug_core.datastore.paging import read_pages
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.allocation_report import read_allocation_report
from netplug_core.flows.ipam.cluster_facts import read_users
from netplug_core.ipam.allocation.pools import Reserved
from netplug_core.ipam.reporting.address_list import ListedAddress, list_addresses, used_addresses
from netplug_core.ipam.reporting.allocation_report import AllocationReport
from netplug_core.records import Malformed
from netplug_core.resources.ippool import IPPOOL
from netplug_core.resources.ipreservation import IPRESERVATION

__all__ = ["read_addresses"]


def read_addresses(
    store: Datastore, *, version: str, lost_handles: Collection[str], deadline: Deadline
) -> tuple[AllocationReport, tuple[ListedAddress, ...]]:
    """The report of allocations, and every address of it and of workloads with its problems.

    Users are read before the blocks and again after them. An ADD allocates before its workload is seen with the
    address, and a DEL frees before it is seen without, so what both looks at the users have, and the blocks do not, is
    no call that was running.

    Raises:
        Malformed: a handle, an endpoint, a pod or a node cannot be understood, so it is not known what it uses.
        Unavailable: the store does not answer.
    """
    damaged: list[Malformed] = []
    before = used_addresses(read_users(store, deadline=deadline))
    pools = tuple(record.value for record in read_pages(store, IPPOOL, deadline=deadline, malformed=damaged))
    # One that cannot be read hides nothing: the check names it.
    reservations = read_pages(store, IPRESERVATION, deadline=deadline, malformed=[])
    reserved = Reserved.of(prefix for record in reservations for prefix in record.value.spec.reserved)
    report = read_allocation_report(store, version=version, deadline=deadline)
    after = used_addresses(read_users(store, deadline=deadline))
    used = {address: user for address, user in after.items() if before.get(address) == user}
    addresses = list_addresses(report, used, pools, lost_handles, reserved=reserved, has_unread_pools=bool(damaged))
    return report, addresses
