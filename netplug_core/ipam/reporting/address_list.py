"""Every address that is assigned or used, by whom, and what is wrong with it, for ``netplugctl ipam check``.

``flows.ipam.address_list`` reads what these rules judge. Whether an assigned address is in use says the report.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from attrs import frozen

from netplug_core.addressing import Address
from netplug_core.ipam.allocation.pools import Reserved
from netplug_core.ipam.reporting.address_use import AddressUse, AddressUsers, UseState
from netplug_core.ipam.reporting.allocation_report import AllocationReport, ReportedAllocation
from netplug_core.orchestrator.model import PodNetwork
from netplug_core.resources.ippool import IPPool

__all__ = ["ListedAddress", "list_addresses", "used_addresses"]

_NO_HANDLE = "its handle is missing or damaged"
_NO_POOL = "no IPPool contains it"
_NOT_RESERVED = Reserved()


@frozen(kw_only=True)
class ListedAddress:
    """An address, its handle (empty for none), whether it is used, and its problems, each as a text.

    ``is_allocated`` is False for one that a workload has and no block holds.
    """

    address: Address
    handle: str
    use: AddressUse
    problems: tuple[str, ...]
    is_allocated: bool = True


def used_addresses(users: AddressUsers) -> dict[Address, str]:
    """Who has which address, by pods where the datastore shows them, otherwise by endpoints.

    A pod that ends may have lost its address already, and one of the host's network has its node's.
    """
    if users.cluster is None:
        return {address: str(endpoint) for address, endpoint in users.endpoints.items()}
    return {
        address: f"pod {pod.pod_name}"
        for pod in users.cluster.pods
        if pod.network is PodNetwork.OWN and not pod.is_terminated and pod.deletion_time_ns is None
        for address in pod.addresses
    }


def list_addresses(
    report: AllocationReport,
    used: Mapping[Address, str],
    pools: Collection[IPPool],
    lost_handles: Collection[str],
    *,
    reserved: Reserved = _NOT_RESERVED,
    has_unread_pools: bool = False,
) -> tuple[ListedAddress, ...]:
    """All addresses of a report, and those that are ``used`` though no block holds them, in their order.

    Addresses that are used and in no pool are not netplug's, unless a block holds them; nor are those that
    reservations keep from being assigned (``reserved``). ``lost_handles`` hold addresses and cannot be found. With
    ``has_unread_pools`` there are more pools, and each may contain any address.
    """
    listed = [
        *(_listed(each, None if has_unread_pools else pools, lost_handles) for each in report.allocations),
        *_unallocated(report, used, pools, reserved),
    ]
    return tuple(sorted(listed, key=lambda each: each.address))


def _listed(
    reported: ReportedAllocation, pools: Collection[IPPool] | None, lost_handles: Collection[str]
) -> ListedAddress:
    """An allocated address; ``pools`` is None if it is not known whether one contains it."""
    allocation, use = reported.allocation, reported.use
    handle, problems = allocation.attribute.handle or "", list[str]()
    if use.state is UseState.LEAKED:
        problems.append(use.text)
    if handle in lost_handles:
        problems.append(_NO_HANDLE)
    if pools is not None and not any(pool.spec.prefix.contains(allocation.address) for pool in pools):
        problems.append(_NO_POOL)
    if use.state is UseState.COOLING:  # no workload has it, and its cooldown ends by itself
        problems.clear()
    return ListedAddress(address=allocation.address, handle=handle, use=use, problems=tuple(problems))


def _unallocated(
    report: AllocationReport, used: Mapping[Address, str], pools: Collection[IPPool], reserved: Reserved
) -> Iterator[ListedAddress]:
    """The used addresses of pools that no block holds; none if a block cannot be read, which may hold them."""
    if report.has_unread_blocks:
        return
    held = {each.allocation.address for each in report.allocations}
    for address, user in used.items():
        pool = next((pool for pool in pools if pool.spec.prefix.contains(address)), None)
        if pool is None or address in held or reserved.contains(address):
            continue
        yield ListedAddress(
            address=address,
            handle="",
            use=AddressUse(state=UseState.USED, text=user),
            problems=(f"it is not allocated, so another workload may get it from {pool.key}",),
            is_allocated=False,
        )
