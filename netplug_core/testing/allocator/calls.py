"""What holds of one whole call: what it answered against what was stored before and after it.

Laws of calls that nothing disturbed are exact; of the others the ledger says what is certain.
"""

from __future__ import annotations

from typing import TypeVar

from attrs import frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError, NetplugError, Unavailable
from netplug_core.ipam.affinity import claimed_block, claiming_owner, host_owner
from netplug_core.ipam.block import Allocation
from netplug_core.ipam.claiming import Claimed
from netplug_core.ipam.ensure import EnsuredBlocks
from netplug_core.ipam.relinquish import Emptiness, Relinquished
from netplug_core.ipam.request import AddressesReleased, Assignment, Automatic, Released, ReleaseItem
from netplug_core.testing.allocator.acts import (
    ASSIGN_S,
    Assign,
    Claim,
    Collect,
    Ensure,
    Release,
    ReleaseAddresses,
    RelinquishNode,
    StoreAct,
)
from netplug_core.testing.allocator.line import LATE_S
from netplug_core.testing.allocator.oracle import forecast
from netplug_core.testing.allocator.stored import Stored
from netplug_core.testing.bench import expect, expect_same

__all__ = ["CALL_LAWS", "UNDISTURBED_LAWS", "Answer", "Call", "Died"]

T = TypeVar("T")

TAKE_BACK_S = 30.0
READS = 6
"""Reads of one undisturbed assignment: rules, own blocks, probes, a page of all blocks, rivals' claims, one block."""


@frozen
class Died:
    """The process did not live to see the end."""


Answer = object
"""What a call returned, the error that it raised, or ``Died``."""


@frozen(kw_only=True, eq=False)
class Call:
    """An act from beginning to end.

    ``writes`` has the number of writes of each call to the store, 0 for a read. ``may_remember`` is whether the process
    has done something before.
    """

    act: StoreAct | Collect
    before: Stored
    after: Stored
    answer: Answer
    writes: tuple[int, ...]
    since_ns: int
    until_ns: int
    may_remember: bool = False

    @property
    def commits(self) -> int:
        """How many commits were sent."""
        return sum(count > 0 for count in self.writes)

    @property
    def is_certainly_refused(self) -> bool:
        """Whether it is an assignment that ended with an error and holds, for certain, nothing more than before.

        It is not certain where what it wrote could not be taken back, or may not be: who held addresses keeps them.
        """
        if not isinstance(self.act, Assign) or not isinstance(self.answer, NetplugError):
            return False
        handle = self.act.request.handle
        is_new = handle is not None and not self.before.held_by(handle)
        return isinstance(self.answer, AllocationError) or (is_new and not hasattr(self.answer, "__notes__"))

    @property
    def is_without_effect(self) -> bool:
        """Whether the same is stored before and after it."""
        old, new = self.before, self.after
        return (old.blocks, old.claims, old.handles, old.endpoints) == (
            new.blocks,
            new.claims,
            new.handles,
            new.endpoints,
        )


# --- every call -------------------------------------------------------------------------------------------------------


def it_ends_in_time(call: Call) -> None:
    """V16: whatever happens, a call ends by its deadline; taking back what it wrote has time of its own."""
    taken_s = (call.until_ns - call.since_ns) / 1e9
    expect(taken_s <= ASSIGN_S + TAKE_BACK_S + LATE_S, f"V16: {call.act} took {taken_s} s")


def what_is_refused_is_not_held(call: Call) -> None:
    """V1: an assignment that ends with an error, other than by dying, holds nothing more than before."""
    if isinstance(call.act, Assign) and call.is_certainly_refused:
        handle = call.act.request.handle
        more = call.after.held_by(handle) - call.before.held_by(handle)
        expect_same(more, frozenset[Address](), f"V1: what {call.answer!r} left held")


CALL_LAWS = (it_ends_in_time, what_is_refused_is_not_held)


# --- a call that nothing disturbed ------------------------------------------------------------------------------------


def nobody_writes_while_it_is_locked(call: Call) -> None:
    """D12: while the datastore is locked, workloads and the collector change nothing."""
    if call.before.rules.is_locked and isinstance(call.act, Assign | Release | Ensure | Collect):
        expect(call.is_without_effect, f"D12: {call.act} changed something while the store was locked")
        if not isinstance(call.act, Collect):
            expect(isinstance(call.answer, Unavailable), f"D12: {call.act} answered {call.answer!r} to a locked store")


def effort_is_bounded(call: Call) -> None:
    """V16: an undisturbed call takes a few reads and one commit; who remembers things past may have to begin again."""
    most_reads = {Assign: READS, Ensure: READS, Release: 2}.get(type(call.act))
    if most_reads is not None:
        attempts = 1 + call.may_remember
        reads = len(call.writes) - call.commits
        is_bounded = reads <= most_reads * attempts and call.commits <= attempts
        expect(is_bounded, f"V16: {call.act} took {reads} reads and {call.commits} commits")


def requests_get_what_there_is(call: Call) -> None:
    """V13: less than was asked is given only where there is no more to be had, and more never."""
    if not isinstance(call.act, Assign) or call.before.rules.is_locked:
        return
    request, answer = call.act.request, call.answer
    expected = forecast(call.before, request, call.since_ns, call.until_ns)
    if isinstance(answer, NetplugError):
        expect(expected.may_be_refused, f"V13: {request} was refused ({answer}); expected: {expected}")
        return
    assignment = _as(answer, Assignment)
    expect(expected.may_be_served, f"V13: {request} was served; expected: {expected}")
    for wanted, share in zip(request.wanted, expected.yields, strict=True):
        got = sum(assigned.address.family is wanted.family for assigned in assignment.addresses)
        expect(share.allows(got), f"V13: {request} got {got} {wanted.family} addresses; expected: {share}")
        is_short = got < share.total
        told = any(getattr(refusal, "family", wanted.family) is wanted.family for refusal in assignment.shortfalls)
        expect(told or not is_short, f"V13: {request} got {got} {wanted.family} addresses and was told of no shortfall")


def totals_are_totals(call: Call) -> None:
    """V15: a request states what its handle shall hold in all, so asking again adds nothing; its maximum is kept."""
    if not isinstance(call.act, Assign) or not isinstance(call.answer, Assignment):
        return
    request = call.act.request
    given = [assigned.address for assigned in call.answer.addresses]
    expect_same(len(set(given)), len(given), f"V15: the addresses of {request}, each once")
    for wanted in request.wanted:
        if isinstance(wanted, Automatic) and request.handle is not None:
            had = len(_held(call.before, request.handle, wanted.family))
            total = wanted.count if request.max_per_handle is None else min(wanted.count, request.max_per_handle)
            holds = len(_held(call.after, request.handle, wanted.family))
            expect(holds <= max(had, total), f"V15: {request} holds {holds} {wanted.family} addresses, and held {had}")


def _held(stored: Stored, handle: str, family: Family) -> frozenset[Address]:
    return frozenset(address for address in stored.held_by(handle) if address.family is family)


def a_release_frees_what_was_held(call: Call) -> None:
    """V12: a release frees what the handle holds under the number that it names, and nothing else."""
    if not isinstance(call.act, Release) or not isinstance(call.answer, Released):
        return
    handle, sequence = call.act.request.handle, call.act.request.sequence
    held = call.before.held_by(handle)
    going = {address for address in held if sequence in (None, call.before.held[address].sequence)}
    expect_same(set(call.answer.addresses), going, f"V12: what {call.act} freed")
    expect_same(set(call.before.held) - set(call.after.held), going, f"V12: what is not held any more after {call.act}")
    if sequence is None:
        expect(handle not in call.after.handles, f"V5: the handle {handle} is still there")
        expect(handle not in call.after.endpoints, f"the endpoint of {handle} is still there")


def items_free_what_they_describe(call: Call) -> None:
    """V12: one item that does not describe its address keeps its whole block as it is; the rest is freed."""
    if not isinstance(call.act, ReleaseAddresses) or not isinstance(call.answer, AddressesReleased):
        return
    by_block: dict[Prefix | None, list[ReleaseItem]] = {}
    for item in call.act.items:
        block = call.before.block_of(item.address)
        by_block.setdefault(block.prefix if block else None, []).append(item)
    released: set[Address] = set()
    free: set[Address] = set()
    for prefix, items in by_block.items():
        if all(_describes(item, call.before) for item in items):
            released.update(item.address for item in items if _find(call.before, item.address))
            free.update(item.address for item in items if not _find(call.before, item.address))
        elif prefix is not None:
            expect_same(
                call.after.blocks.get(prefix), call.before.blocks[prefix], f"V12: {prefix}, of which was refused"
            )
    expect_same(set(call.answer.released), released, f"V12: what {call.act} freed")
    expect_same(set(call.answer.free_already), free, f"V12: what {call.act} found free")
    refused = any(not _describes(item, call.before) for item in call.act.items)
    expect_same(bool(call.answer.refused), refused, f"V12: whether {call.act} was refused something")


def _describes(item: ReleaseItem, stored: Stored) -> bool:
    held = _find(stored, item.address)
    if held is None:
        return True
    return item.handle in (None, held.attribute.handle) and item.sequence in (None, held.sequence)


def _find(stored: Stored, address: Address) -> Allocation | None:
    """Who has an address, be it only the host that keeps it back."""
    block = stored.block_of(address)
    held = block.find(address) if block else None
    return None if held is None or held.is_cooling else held


def claims_are_as_told(call: Call) -> None:
    """V7: who is told that a block is theirs owns it; who gave one up has no claim on it."""
    act, answer = call.act, call.answer
    if isinstance(act, Claim) and isinstance(answer, Claimed):
        for prefix in answer.claimed:
            expect_same(call.after.blocks[prefix].owner, act.claimant, f"V7: the owner of {prefix}")
        for prefix in answer.failed:
            expect(call.after.blocks[prefix].owner not in ("", act.claimant), f"V7: {prefix} could be claimed")
    if isinstance(act, Ensure) and isinstance(answer, EnsuredBlocks):
        for prefix in answer.blocks:
            expect_same(call.after.blocks[prefix].owner, act.request.claimant, f"V7: the owner of {prefix}")
    if isinstance(answer, Relinquished):
        expect(not set(answer.gone) & call.after.claims.keys(), f"V7: {act} left claims that it says are gone")
        kept = {(refusal.owner, refusal.block) for refusal in answer.refused}
        left = {(claiming_owner(key), claimed_block(key)) for key in call.after.claims}
        expect(kept <= left, f"V7: {act} says that claims are kept which are gone")
    if isinstance(act, RelinquishNode) and act.emptiness is Emptiness.NOT_REQUIRED:
        expect_same(call.after.claimed(host_owner(act.node)), frozenset[Prefix](), f"V7: what {act.node} still claims")


def _as(answer: Answer, expected: type[T]) -> T:
    if not isinstance(answer, expected):
        raise AssertionError(f"the answer is {answer!r}, not {expected.__name__}")
    return answer


UNDISTURBED_LAWS = (
    nobody_writes_while_it_is_locked,
    effort_is_bounded,
    requests_get_what_there_is,
    totals_are_totals,
    a_release_frees_what_was_held,
    items_free_what_they_describe,
    claims_are_as_told,
)
