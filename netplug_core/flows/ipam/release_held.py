"""Releases addresses that a person names: each exactly as it was found, and none that a workload endpoint still has.

A release by hand is for an address whose workload is gone and whose DEL never came. Released while its workload runs,
it would be assigned a second time; so the endpoints are asked first.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from netplug_core.addressing import Address
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.paging import read_pages
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.addresses import find_holder, release_addresses
from netplug_core.flows.ipam.check import settle_s
from netplug_core.ipam.allocation.owners import AddressHolder
from netplug_core.ipam.allocation.request import ReleaseItem
from netplug_core.records import Key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = ["EndpointCheck", "HeldRelease", "ReleaseResult", "release_held"]


class EndpointCheck(enum.Enum):
    """Whether an address that a workload endpoint has is released."""

    REFUSED = "refused"
    SKIPPED = "skipped"


class ReleaseResult(enum.Enum):
    """What became of the release of an address."""

    RELEASED = "released"
    NOT_ASSIGNED = "not assigned"
    COOLING = "released before, and cooling down"
    IN_USE = "in use"
    CHANGED = "held by another workload meanwhile"


@frozen(kw_only=True)
class HeldRelease:
    """An address, and what became of its release; ``endpoint`` is the workload endpoint that has it."""

    address: Address
    result: ReleaseResult
    endpoint: Key[WorkloadEndpoint] | None = None


def release_held(
    store: Datastore,
    addresses: Sequence[Address],
    check: EndpointCheck,
    *,
    pace: Pace,
    before_wait: Callable[[float], None] = lambda _seconds: None,
) -> tuple[HeldRelease, ...]:
    """Release each of some addresses under the handle and the number that it has now.

    Who holds them is read before the endpoints, so an endpoint that comes later belongs to a later assignment, which is
    not released. On an ordered store an ADD stores its endpoint after its addresses; there the endpoints are read when
    every ADD that was running has ended (``settle_s``); ``before_wait`` is called with that time first.

    Raises:
        Malformed: a workload endpoint cannot be read, so it is not known whether it has one of them.
        ContentionExhausted, Unavailable: try again later; some may be released already.
    """
    holders = [find_holder(store, address, pace=pace) for address in addresses]
    endpoints: Mapping[Address, Key[WorkloadEndpoint]] = {}
    if check is EndpointCheck.REFUSED and any(_is_held(holder) for holder in holders):
        if settle_s(store):
            before_wait(settle_s(store))
            pace.clock.sleep(settle_s(store))
        endpoints = _endpoints_of(store, addresses, pace.deadline)
    return tuple(_release(store, holder, endpoints.get(holder.address), pace) for holder in holders)


def _is_held(holder: AddressHolder) -> bool:
    return holder.allocation is not None and not holder.is_cooling


def _release(
    store: Datastore, holder: AddressHolder, endpoint: Key[WorkloadEndpoint] | None, pace: Pace
) -> HeldRelease:
    address, held = holder.address, holder.allocation
    if held is None:
        return HeldRelease(address=address, result=ReleaseResult.NOT_ASSIGNED)
    if held.is_cooling:
        return HeldRelease(address=address, result=ReleaseResult.COOLING)
    if endpoint is not None:
        return HeldRelease(address=address, result=ReleaseResult.IN_USE, endpoint=endpoint)
    item = ReleaseItem(address=address, handle=held.attribute.handle, sequence=held.sequence)
    done = release_addresses(store, (item,), pace=pace)
    return HeldRelease(address=address, result=ReleaseResult.CHANGED if done.refused else ReleaseResult.RELEASED)


def _endpoints_of(
    store: Datastore, addresses: Sequence[Address], deadline: Deadline
) -> Mapping[Address, Key[WorkloadEndpoint]]:
    wanted = frozenset(addresses)
    return {
        address: record.key
        for record in read_pages(store, WORKLOAD_ENDPOINT, deadline=deadline)
        for address in record.value.spec.addresses
        if address in wanted
    }
