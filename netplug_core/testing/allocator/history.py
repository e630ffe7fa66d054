"""The invariants that speak of the past: what a block's number was, and how long an address has been waiting."""

from __future__ import annotations

from attrs import Factory, define, field

from netplug_core.addressing import Address, Prefix
from netplug_core.ipam.block import Block
from netplug_core.ipam.request import Automatic, Reach
from netplug_core.testing.allocator.laws import Step
from netplug_core.testing.bench import expect

__all__ = ["History"]


@define
class History:
    """What has to be remembered from one commit to the next.

    ``highest`` is the highest number that each block ever had. ``ahead`` has, for an address that came free, how many
    others of its block have to be given before it comes back.
    """

    highest: dict[Prefix, int] = field(default=Factory(dict))
    ahead: dict[Address, int] = field(default=Factory(dict))
    reserved: tuple[Prefix, ...] = ()

    def judge(self, step: Step) -> None:
        """Hold a commit against what was before it, and remember it."""
        self.numbers_grow(step)
        self.addresses_wait_their_turn(step)

    def numbers_grow(self, step: Step) -> None:
        """V3: whenever a block is stored, its number is higher than all it ever had, deleted and made anew or not."""
        for prefix, block in step.after.blocks.items():
            if step.before.blocks.get(prefix) != block:
                highest = self.highest.get(prefix, -1)
                expect(block.sequence > highest, f"V3: {prefix} was stored with {block.sequence} after {highest}")
            self.highest[prefix] = block.sequence

    def addresses_wait_their_turn(self, step: Step) -> None:
        """V11: an address that came free among f that may serve comes back after f - 1 others of its block."""
        reserved = step.after.rules.reserved
        if reserved != self.reserved:  # who was passed over, and who was counted on, is not known any more
            self.ahead.clear()
        self.reserved = reserved
        for prefix in step.before.blocks.keys() | step.after.blocks.keys():
            old, new = step.before.blocks.get(prefix), step.after.blocks.get(prefix)
            if old is not None and new is not None:
                self._move_queue(step, old, new)
            else:
                self.ahead = {address: count for address, count in self.ahead.items() if not prefix.contains(address)}

    def _move_queue(self, step: Step, old: Block, new: Block) -> None:
        before, after = set(map(old.prefix.nth, old.free)), set(map(new.prefix.nth, new.free))
        gone = sorted(before - after, key=lambda address: self.ahead.get(address, 0))
        for position, address in enumerate(gone):
            ahead = self.ahead.pop(address, 0)
            expect(
                ahead <= position or not _is_automatic(step, address),
                f"V11: {address} came back before {ahead - position} others of {old.prefix}",
            )
        for address in self.ahead.keys() & after:
            self.ahead[address] -= len(gone)
        waiting = sum(not step.after.rules.is_reserved(address) for address in before & after)
        self.ahead.update(dict.fromkeys(after - before, waiting))


def _is_automatic(step: Step, address: Address) -> bool:
    """Whether an address was chosen by the allocator, and could have been any of its block."""
    request = step.request
    if request is None or request.reach is not Reach.ROUTED or address not in step.after.held:
        return False
    return any(isinstance(wanted, Automatic) and wanted.family is address.family for wanted in request.wanted)
