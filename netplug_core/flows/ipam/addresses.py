"""Releases of addresses by hand: those that a person names, and everything that a handle holds.

An address is released exactly as it was found, and never while a workload endpoint still has it: released under its
workload, it would be assigned a second time. So the endpoints are read first.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from netplug_core.addressing import Address
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import Transaction, read_pages
from netplug_core.flows.ipam.check import settle_s
from netplug_core.ipam.allocation.context import ADDRESSES_PER_COMMIT, batches
from netplug_core.ipam.allocation.release import (
    AddressHolder,
    OwnerChange,
    decide_owner,
    decide_release_addresses,
    find_holder_of,
    owner_queries,
    release_addresses_queries,
)
from netplug_core.ipam.allocation.request import AddressesReleased, ReleaseItem
from netplug_core.records import Decision, Key, NeedMore, Snapshot
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = [
    "EndpointCheck", "HeldRelease", "ReleaseResult", "change_owner", "find_holder", "release_addresses",
    "release_held",
]  # fmt: skip


# --- addresses by name ------------------------------------------------------------------------------------------------


def release_addresses(store: Datastore, items: Sequence[ReleaseItem], *, pace: Pace) -> AddressesReleased:
    """Release addresses that are assigned as the items describe. Refused items are listed in the result.

    Raises:
        ContentionExhausted, Unavailable: try again later; some addresses may be released already.
    """
    in_order = sorted(set(items), key=lambda item: (item.address, item.handle or "", item.sequence or 0))
    results: list[AddressesReleased] = []
    for batch in batches(in_order, ADDRESSES_PER_COMMIT):

        def decide(snapshot: Snapshot, batch: Sequence[ReleaseItem] = batch) -> Decision[AddressesReleased] | NeedMore:
            return decide_release_addresses(snapshot, batch, pace.clock.now_ns())

        decision = Transaction(store, pace).run(release_addresses_queries(), decide)
        results.append(decision.get_result())
    return AddressesReleased(
        released=tuple(address for result in results for address in result.released),
        free_already=tuple(address for result in results for address in result.free_already),
        refused=tuple(refusal for result in results for refusal in result.refused),
    )


def find_holder(store: Datastore, address: Address, *, pace: Pace) -> AddressHolder:
    """The holder of an address, in any pool and in blocks outside all pools.

    Raises:
        Unavailable: the store does not answer.
    """

    def decide(snapshot: Snapshot) -> Decision[AddressHolder] | NeedMore:
        found = find_holder_of(snapshot, address)
        return found if isinstance(found, NeedMore) else Decision((), found)

    return Transaction(store, pace).run(owner_queries(), decide).get_result()


def change_owner(store: Datastore, change: OwnerChange, *, pace: Pace) -> AddressHolder:
    """Change the stored owners of an address, and return its new state.

    Raises:
        HandleMismatch: another handle holds the address, or none.
        OwnerMismatch: the stored owners are not the expected ones.
        ConfigurationError: the change names no new owner.
        ContentionExhausted, Unavailable: try again later.
    """
    decision = Transaction(store, pace).run(owner_queries(), lambda snapshot: decide_owner(snapshot, change))
    return decision.get_result()


# --- what a handle holds ----------------------------------------------------------------------------------------------


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
