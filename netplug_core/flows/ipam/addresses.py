"""Single addresses: releasing them in bulk, and reading or changing the owner of one.

The block IPAM and ``netplugctl`` call it. A bulk release takes several commits. An address that cannot be released
does not affect the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from netplug_core.addressing import Address
from netplug_core.clock import Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.ipam.allocation.context import ADDRESSES_PER_COMMIT, batches
from netplug_core.ipam.allocation.owners import AddressHolder, OwnerChange, decide_owner, find_holder_of, owner_queries
from netplug_core.ipam.allocation.release_addresses import decide_release_addresses, release_addresses_queries
from netplug_core.ipam.allocation.request import AddressesReleased, ReleaseItem
from netplug_core.records import Decision, NeedMore, Snapshot

__all__ = ["change_owner", "find_holder", "release_addresses"]


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
        results.append(cast("AddressesReleased", decision.result))
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

    return cast("AddressHolder", Transaction(store, pace).run(owner_queries(), decide).result)


def change_owner(store: Datastore, change: OwnerChange, *, pace: Pace) -> AddressHolder:
    """Change the stored owners of an address, and return its new state.

    Raises:
        HandleMismatch: another handle holds the address, or none.
        OwnerMismatch: the stored owners are not the expected ones.
        ConfigurationError: the change names no new owner.
        ContentionExhausted, Unavailable: try again later.
    """
    decision = Transaction(store, pace).run(owner_queries(), lambda snapshot: decide_owner(snapshot, change))
    return cast("AddressHolder", decision.result)
