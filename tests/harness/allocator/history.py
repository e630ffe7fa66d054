"""The invariants over several commits: sequence numbers of blocks, and the order in which addresses are used again."""

from __future__ import annotations

from attrs import Factory, define, field

from netplug_core.addressing import Address, Prefix
from netplug_core.ipam.allocation.request import Automatic, LinkLayer
from netplug_core.ipam.model import Block
from netplug_core.testing.assertions import expect
from tests.harness.allocator.invariants import ObservedCommit

__all__ = ["History"]


@define
class History:
    """What is kept from one commit to the next.

    ``highest_sequence`` is the highest sequence number that each block has had. ``queue_position`` has, for each
    address that became free, how many other addresses of its block are assigned before it is assigned again.
    """

    highest_sequence: dict[Prefix, int] = field(default=Factory(dict))
    queue_position: dict[Address, int] = field(default=Factory(dict))
    reserved: tuple[Prefix, ...] = ()

    def check_commit(self, commit: ObservedCommit) -> None:
        """Check a commit against the earlier ones, and record it."""
        self.sequence_numbers_grow(commit)
        self.addresses_are_reused_in_order(commit)

    def sequence_numbers_grow(self, commit: ObservedCommit) -> None:
        """V3: a block is stored with a higher sequence number than ever before, also when it is created again."""
        for prefix, block in commit.after.blocks.items():
            if commit.before.blocks.get(prefix) != block:
                highest = self.highest_sequence.get(prefix, -1)
                expect(block.sequence > highest, f"V3: {prefix} was stored with {block.sequence} after {highest}")
            self.highest_sequence[prefix] = block.sequence

    def addresses_are_reused_in_order(self, commit: ObservedCommit) -> None:
        """V11: of f free addresses of a block, the one that became free last is assigned after the f - 1 others."""
        reserved = commit.after.configuration.reserved
        if reserved != self.reserved:  # the positions depend on what is reserved
            self.queue_position.clear()
        self.reserved = reserved
        for prefix in commit.before.blocks.keys() | commit.after.blocks.keys():
            old, new = commit.before.blocks.get(prefix), commit.after.blocks.get(prefix)
            if old is not None and new is not None:
                self._advance_queue(commit, old, new)
            else:
                self.queue_position = {
                    address: count for address, count in self.queue_position.items() if not prefix.contains(address)
                }

    def _advance_queue(self, commit: ObservedCommit, old: Block, new: Block) -> None:
        before, after = set(map(old.prefix.nth, old.free)), set(map(new.prefix.nth, new.free))
        gone = sorted(before - after, key=lambda address: self.queue_position.get(address, 0))
        for position, address in enumerate(gone):
            ahead = self.queue_position.pop(address, 0)
            expect(
                ahead <= position or not _is_automatic(commit, address),
                f"V11: {address} was assigned before {ahead - position} others of {old.prefix}",
            )
        for address in self.queue_position.keys() & after:
            self.queue_position[address] -= len(gone)
        waiting = sum(not commit.after.configuration.is_reserved(address) for address in before & after)
        self.queue_position.update(dict.fromkeys(after - before, waiting))


def _is_automatic(commit: ObservedCommit, address: Address) -> bool:
    """Whether the allocator chose the address, and was free to choose any address of the block."""
    request = commit.request
    if request is None or request.link_layer is not LinkLayer.L3 or address not in commit.after.held:
        return False
    return any(isinstance(wanted, Automatic) and wanted.family is address.family for wanted in request.wanted)
