"""Acts that depend on who holds what: drawn as numbers, and made into acts when their time comes.

A number picks one of what there is then, so a recipe means something in every state, and Hypothesis can draw and
shrink it without knowing the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

from attrs import frozen

from netplug_core.addressing import Address
from netplug_core.ipam.owners import OwnerChange
from netplug_core.ipam.request import ReleaseItem, ReleaseRequest
from netplug_core.testing.allocator.acts import ChangeOwner, Release, ReleaseAddresses
from netplug_core.testing.allocator.ledger import Ledger

__all__ = ["ItemRecipe", "OwnerRecipe", "Recipe", "ReleaseItemsRecipe", "ReleaseRecipe"]

T = TypeVar("T")

_STALE = 1
"""A number that no block has ever had."""


@frozen(kw_only=True)
class ReleaseRecipe:
    """Somebody who holds something gives it back, now and then by a number, which may be a stale one."""

    pick: int
    by_number: int = 0

    def act(self, ledger: Ledger, fallback: str) -> Release:
        """The release, of ``fallback`` if nobody holds anything."""
        handles = sorted({holder.handle for holder in ledger.held.values() if holder.handle is not None})
        handle = _picked([*handles, fallback], self.pick)
        numbers = sorted({ledger.numbers[address] for address in ledger.held_by(handle)})
        sequence = _picked([None, None, None, _STALE, *numbers], self.by_number)
        return Release(request=ReleaseRequest(handle=handle, sequence=sequence))


@frozen(kw_only=True)
class ItemRecipe:
    """An address, mostly one that is held, described rightly, wrongly or not at all."""

    pick: int
    address: Address
    handle: int = 0
    number: int = 0

    def item(self, ledger: Ledger) -> ReleaseItem:
        """The item."""
        held = sorted(ledger.held)
        address = _picked([*held, self.address], self.pick)
        holder, number = ledger.held.get(address), ledger.numbers.get(address, _STALE)
        right = holder.handle if holder else None
        return ReleaseItem(
            address=address,
            handle=_picked([None, right, right, "somebody"], self.handle),
            sequence=_picked([None, number, number, number + 1], self.number),
        )


@frozen(kw_only=True)
class ReleaseItemsRecipe:
    """Addresses that are freed one by one."""

    items: tuple[ItemRecipe, ...]

    def act(self, ledger: Ledger, fallback: str) -> ReleaseAddresses:
        """The release."""
        del fallback
        return ReleaseAddresses(items=tuple(item.item(ledger) for item in self.items))


@frozen(kw_only=True)
class OwnerRecipe:
    """A new owner for an address, of the right handle or of a wrong one."""

    pick: int
    address: Address
    handle: int = 0
    mark: str = ""

    def act(self, ledger: Ledger, fallback: str) -> ChangeOwner:
        """The change; the new owner is the old one with a mark."""
        address = _picked([*sorted(ledger.held), self.address], self.pick)
        holder = ledger.held.get(address)
        right = (holder.handle if holder else None) or fallback
        owner = {**dict(holder.owner if holder else ()), "mark": self.mark}
        handle = _picked([right, right, "somebody"], self.handle)
        change = OwnerChange(address=address, handle=handle, owner=tuple(sorted(owner.items())))
        return ChangeOwner(change=change)


Recipe: TypeAlias = ReleaseRecipe | ReleaseItemsRecipe | OwnerRecipe
"""An act once it is known who holds what."""


def _picked(options: Sequence[T], pick: int) -> T:
    return options[pick % len(options)]
