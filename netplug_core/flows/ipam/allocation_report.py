"""Reads the report of ``netplugctl ipam check``: who uses each assigned address, and which handles hold nothing."""

from __future__ import annotations

from attrs import evolve

from netplug_core.clock import Deadline
from netplug_core.datastore.paging import read_pages
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S
from netplug_core.flows.ipam.cluster_facts import read_users
from netplug_core.ipam.model.block import BLOCK
from netplug_core.ipam.model.handle import HANDLE
from netplug_core.ipam.reporting.address_use import AddressUse, UseState
from netplug_core.ipam.reporting.allocation_report import (
    AllocationReport,
    ReportedAllocation,
    ReportHeader,
    handles_without_addresses,
    reported_allocations,
)
from netplug_core.records import Get, Malformed
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY

__all__ = ["read_allocation_report", "read_report_header"]

_NEW = AddressUse(state=UseState.UNDETERMINED, text="it was assigned while the report was read")


def read_allocation_report(store: Datastore, *, version: str, deadline: Deadline) -> AllocationReport:
    """The report of everything that is stored; ``version`` is the release that writes it.

    Records are read page by page, so an ADD that is running looks like a leak. So if a first look finds leaks, only
    those count that a second one finds too. Blocks that cannot be read are left out: their addresses are not known.

    Raises:
        Malformed: a handle, an endpoint, a pod or a node cannot be understood, so it is not known what it uses.
        Unavailable: the store does not answer.
    """
    header = read_report_header(store, version=version, deadline=deadline)
    first = _read(store, header, deadline)
    leaked = frozenset(each.ref for each in first.of_state(UseState.LEAKED))
    if not leaked and not first.leaked_handles:
        return first
    second = _read(store, header, deadline)
    handles = frozenset(first.leaked_handles)

    def confirm(found: ReportedAllocation) -> ReportedAllocation:
        is_new = found.use.state is UseState.LEAKED and found.ref not in leaked
        return evolve(found, use=_NEW) if is_new else found

    return evolve(
        second,
        allocations=tuple(map(confirm, second.allocations)),
        leaked_handles=tuple(each for each in second.leaked_handles if each in handles),
    )


def read_report_header(store: Datastore, *, version: str, deadline: Deadline) -> ReportHeader:
    """What a report that is written now would be of.

    Raises:
        Unavailable: the store does not answer.
    """
    snapshot = store.read((Get(CLUSTER_INFORMATION_KEY),), deadline=deadline.capped(CALL_TIMEOUT_S))
    stored = snapshot.find(CLUSTER_INFORMATION_KEY)
    return ReportHeader(
        version=version,
        cluster_guid=stored.value.spec.cluster_guid if stored else "",
        is_locked=stored is not None and stored.value.is_locked,
        revision=stored.revision if stored else "",
        cluster_type=stored.value.spec.cluster_type if stored else "",
    )


def _read(store: Datastore, header: ReportHeader, deadline: Deadline) -> AllocationReport:
    # Handles before blocks before users: an ADD that ends meanwhile is seen whole, or its beginning is not seen.
    damaged: list[Malformed] = []
    handles = tuple(read_pages(store, HANDLE, deadline=deadline))
    blocks = [record.value for record in read_pages(store, BLOCK, deadline=deadline, malformed=damaged)]
    users = read_users(store, deadline=deadline)
    return AllocationReport(
        header=header,
        allocations=tuple(
            each
            for block in sorted(blocks, key=lambda block: block.prefix)
            for each in reported_allocations(block, users)
        ),
        # A handle may hold addresses of a damaged block.
        leaked_handles=() if damaged else handles_without_addresses(handles, blocks),
        handles=len(handles),
        has_unread_blocks=bool(damaged),
    )
