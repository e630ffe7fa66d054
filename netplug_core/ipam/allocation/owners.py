"""The holder of one address: finding it, and changing the owners that are stored with it.

A change is a compare-and-swap: it names the handle that must hold the address and, if wanted, the owners that must be
stored now. Other addresses of the same request are not changed, even if they share one attribute entry.
"""

from __future__ import annotations

from attrs import evolve, frozen

from netplug_core.addressing import Address
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.allocation.release_addresses import blocks_of, release_addresses_queries
from netplug_core.ipam.model.block import Allocation, Block, Pairs
from netplug_core.ipam.outcome.refusals import HandleMismatch
from netplug_core.records import Decision, NeedMore, Query, Revision, Snapshot, Update

__all__ = [
    "NO_REVISION", "AddressHolder", "OwnerChange", "OwnerMismatch", "decide_owner", "find_holder_of", "owner_queries",
]  # fmt: skip

NO_REVISION = Revision("")
"""The revision of a block that does not exist."""


@frozen(kw_only=True)
class AddressHolder:
    """What is stored about an address: its block and its allocation, each None if there is none.

    ``revision`` is that of the block; ``NO_REVISION`` without a block.
    """

    address: Address
    block: Block | None = None
    revision: Revision = NO_REVISION
    allocation: Allocation | None = None

    @property
    def is_cooling(self) -> bool:
        """Whether it was released, and its cooldown has not expired."""
        return self.allocation is not None and self.allocation.is_cooling


@frozen(kw_only=True)
class OwnerChange:
    """The new owner of an address, and its new alternate owner; None leaves one as it is.

    ``handle`` must hold the address. ``expected`` and ``expected_alternate``, if given, must be stored now.
    """

    address: Address
    handle: str
    owner: Pairs | None = None
    alternate: Pairs | None = None
    expected: Pairs | None = None
    expected_alternate: Pairs | None = None


@frozen
class OwnerMismatch(ConfigurationError):
    """The stored owner of an address is not the one that the change expects."""

    def __str__(self) -> str:
        return f"{self.where} is owned by {self.value}, not by {self.accepted}: nothing is changed"


def owner_queries() -> tuple[Query, ...]:
    """What to read before ``find_holder_of`` and ``decide_owner``."""
    return release_addresses_queries()


def find_holder_of(snapshot: Snapshot, address: Address) -> AddressHolder | NeedMore:
    """The holder of an address, in any pool and in blocks outside all pools."""
    blocks = blocks_of(snapshot, (address,))
    if isinstance(blocks, NeedMore):
        return blocks
    record = blocks[address]
    if record is None:
        return AddressHolder(address=address)
    block = record.value
    return AddressHolder(address=address, block=block, revision=record.revision, allocation=block.find(address))


def decide_owner(snapshot: Snapshot, change: OwnerChange) -> Decision[AddressHolder] | NeedMore:
    """Change the stored owners of an address; nothing is written if they do not change."""
    if change.owner is None and change.alternate is None:
        where = f"the owner of {change.address}"
        return Decision((), ConfigurationError(where, None, "name a new owner or a new alternate owner"))
    found = find_holder_of(snapshot, change.address)
    if isinstance(found, NeedMore):
        return found
    held, block = found.allocation, found.block
    if held is None or block is None or held.attribute.handle != change.handle:
        return Decision((), HandleMismatch(change.address, change.handle, held.attribute.handle if held else None))
    attribute = held.attribute
    for expected, stored in ((change.expected, attribute.owner), (change.expected_alternate, attribute.alternate)):
        if expected is not None and expected != stored:
            return Decision((), OwnerMismatch(str(change.address), dict(stored), str(dict(expected))))
    wanted = evolve(
        attribute,
        owner=attribute.owner if change.owner is None else change.owner,
        alternate=attribute.alternate if change.alternate is None else change.alternate,
    )
    if wanted == attribute:
        return Decision((), found)
    changed = block.with_attribute(held.ordinal, wanted)
    result = evolve(found, block=changed, allocation=changed.find(change.address))
    # After a lost reply, a change with expectations would find its own write and refuse it.
    repeatable = change.expected is None and change.expected_alternate is None
    return Decision((Update(block.key, changed, found.revision),), result, is_repeatable=repeatable)
