"""Addresses one by one: releasing them in bulk, and asking or changing who holds one.

The collector and ``netplugctl`` call it. Bulk work is cut into commits that every store can take; each one stands for
itself, so what cannot be released keeps nothing else from being.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from netplug_core.addressing import Address
from netplug_core.clock import Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.ipam.allocation.owners import AddressHolder, OwnerChange, decide_owner, find_holder_of, owner_queries
from netplug_core.ipam.allocation.release_addresses import decide_release_addresses, release_addresses_queries
from netplug_core.ipam.allocation.request import AddressesReleased, ReleaseItem
from netplug_core.records import Decision, NeedMore, Snapshot

__all__ = ["BATCH", "change_owner", "find_holder", "release_addresses"]

BATCH = 32
"""Addresses released in one commit: with a block and a handle for each it stays below what etcd takes at once."""


def release_addresses(store: Datastore, items: Sequence[ReleaseItem], *, pace: Pace) -> AddressesReleased:
    """Free addresses that are held as described; see :class:`~netplug_core.ipam.allocation.request.AddressesReleased`.

    Raises:
        ContentionExhausted, Unavailable: not now; batches before are released.
    """
    in_order = sorted(set(items), key=lambda item: (item.address, item.handle or "", item.sequence or 0))
    results: list[AddressesReleased] = []
    for first in range(0, len(in_order), BATCH):
        batch = in_order[first : first + BATCH]

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
    """Who holds an address, in whatever pool or leftover block it lies.

    Raises:
        Unavailable: the store does not answer.
    """

    def decide(snapshot: Snapshot) -> Decision[AddressHolder] | NeedMore:
        found = find_holder_of(snapshot, address)
        return found if isinstance(found, NeedMore) else Decision((), found)

    return cast("AddressHolder", Transaction(store, pace).run(owner_queries(), decide).result)


def change_owner(store: Datastore, change: OwnerChange, *, pace: Pace) -> AddressHolder:
    """Change what is stored about an address's owners, and return it as it is then.

    Raises:
        HandleMismatch: another handle holds it, or none.
        OwnerMismatch: its owners are not the expected ones.
        ConfigurationError: the change changes nothing.
        ContentionExhausted, Unavailable: not now.
    """
    decision = Transaction(store, pace).run(owner_queries(), lambda snapshot: decide_owner(snapshot, change))
    return cast("AddressHolder", decision.result)
