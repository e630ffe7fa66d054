"""Operations that depend on which addresses are held: drawn as indexes, resolved just before they run.

An index chooses one of the handles or addresses that are held at that time. So a deferred operation is valid in every
state, and Hypothesis draws and shrinks it without the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

from attrs import frozen

from netplug_core.addressing import Address
from netplug_core.ipam.allocation.release import OwnerChange
from netplug_core.ipam.allocation.request import ReleaseItem, ReleaseRequest
from tests.harness.allocator.model import AllocationModel
from tests.harness.allocator.operations import ChangeOwner, Release, ReleaseAddresses

__all__ = [
    "DeferredOperation", "DeferredOwnerChange", "DeferredRelease", "DeferredReleaseAddresses", "DeferredReleaseItem",
]  # fmt: skip

T = TypeVar("T")

_UNUSED_SEQUENCE = 1
"""A sequence number that no block has ever had."""


@frozen(kw_only=True)
class DeferredRelease:
    """A release of a handle that holds addresses, or may hold some; with a sequence number, it may be out of date."""

    index: int
    sequence_index: int = 0

    def resolve(self, model: AllocationModel, fallback: str) -> Release:
        """The release, on the pod's node; of the handle ``fallback`` where no handle holds an address."""
        holders = {*model.held.values(), *model.uncertain}
        handles = sorted({holder.handle for holder in holders if holder.handle is not None})
        handle = _chosen([*handles, fallback], self.index)
        numbers = sorted({model.sequence_numbers[address] for address in model.held_by(handle)})
        sequence = _chosen([None, None, None, _UNUSED_SEQUENCE, *numbers], self.sequence_index)
        return Release(request=ReleaseRequest(handle=handle, sequence=sequence, node=model.pods.get(handle, "")))


@frozen(kw_only=True)
class DeferredReleaseItem:
    """An address, in most cases a held one, with a right, a wrong or no handle and sequence number."""

    index: int
    address: Address
    handle_index: int = 0
    sequence_index: int = 0

    def resolve(self, model: AllocationModel) -> ReleaseItem:
        """The release item."""
        held = sorted(model.held)
        address = _chosen([*held, self.address], self.index)
        holder, number = model.held.get(address), model.sequence_numbers.get(address, _UNUSED_SEQUENCE)
        right = holder.handle if holder else None
        return ReleaseItem(
            address=address,
            handle=_chosen([None, right, right, "other"], self.handle_index),
            sequence=_chosen([None, number, number, number + 1], self.sequence_index),
        )


@frozen(kw_only=True)
class DeferredReleaseAddresses:
    """A release of addresses one by one."""

    items: tuple[DeferredReleaseItem, ...]

    def resolve(self, model: AllocationModel, fallback: str) -> ReleaseAddresses:
        """The release."""
        del fallback
        return ReleaseAddresses(items=tuple(item.resolve(model) for item in self.items))


@frozen(kw_only=True)
class DeferredOwnerChange:
    """A change of an address's owner, with the right handle or a wrong one."""

    index: int
    address: Address
    handle_index: int = 0
    mark: str = ""

    def resolve(self, model: AllocationModel, fallback: str) -> ChangeOwner:
        """The change; the new owner has the old attributes and a mark."""
        address = _chosen([*sorted(model.held), self.address], self.index)
        holder = model.held.get(address)
        right = (holder.handle if holder else None) or fallback
        owner = {**dict(holder.owner if holder else ()), "mark": self.mark}
        handle = _chosen([right, right, "other"], self.handle_index)
        change = OwnerChange(address=address, handle=handle, owner=tuple(sorted(owner.items())))
        return ChangeOwner(change=change)


DeferredOperation: TypeAlias = DeferredRelease | DeferredReleaseAddresses | DeferredOwnerChange
"""An operation that the model resolves."""


def _chosen(options: Sequence[T], index: int) -> T:
    return options[index % len(options)]
