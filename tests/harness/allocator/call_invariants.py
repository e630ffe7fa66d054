"""The invariants of one whole call: its answer, compared with what was stored before and after it.

Those of calls without faults are exact. What is certain after a call with faults is checked by ``model``.
"""

from __future__ import annotations

from math import ceil
from typing import TypeVar

from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.ipam.allocation.affinities import ClaimResult, Emptiness, EnsuredBlocks, RelinquishResult
from netplug_core.ipam.allocation.request import (
    AddressesReleased,
    Assignment,
    AssignRequest,
    Automatic,
    Released,
    ReleaseItem,
)
from netplug_core.ipam.model import Allocation, Handle, claimed_block, claiming_owner, host_owner
from netplug_core.records import Malformed
from netplug_core.testing.assertions import expect, expect_same
from tests.harness.allocator.client import PAST_DEADLINE_S
from tests.harness.allocator.observed_call import Answer, ObservedCall
from tests.harness.allocator.operations import (
    ASSIGN_TIMEOUT_S,
    Assign,
    ClaimBlocks,
    EnsureBlocks,
    Release,
    ReleaseAddresses,
    RelinquishNode,
    RunCollector,
)
from tests.harness.allocator.oracle import forecast
from tests.harness.allocator.state import StoredState

__all__ = [
    "CALL_INVARIANTS",
    "DAMAGED_CALL_INVARIANTS",
    "FAULT_FREE_CALL_INVARIANTS",
]

T = TypeVar("T")

COMPENSATION_TIMEOUT_S = 30.0
MAX_PROBES = 8
"""How many blocks an assignment tries one by one."""

RELEASES_PER_COMMIT = 20
"""How many blocks of its handle a release frees in one commit."""

MAX_READS = 10
"""The most reads of an assignment without faults: configuration, own affinities again, own blocks, blocks nearby, all
affinities, unclaimed blocks, a sample, a page of all blocks, and twice the affinities of blocks to take over."""


# --- every call -------------------------------------------------------------------------------------------------------


def call_ends_in_time(call: ObservedCall) -> None:
    """V16: every call ends by its deadline; compensation has a timeout of its own."""
    taken_s = (call.ended_ns - call.started_ns) / 1e9
    expect(
        taken_s <= ASSIGN_TIMEOUT_S + COMPENSATION_TIMEOUT_S + PAST_DEADLINE_S,
        f"V16: {call.operation} took {taken_s} s",
    )


def refused_request_holds_nothing_more(call: ObservedCall) -> None:
    """V1: after an assignment that fails, unless its process died, the handle holds no more than before."""
    if isinstance(call.operation, Assign) and call.is_certainly_refused:
        handle = call.operation.request.handle
        more = call.after.held_by(handle) - call.before.held_by(handle)
        expect_same(more, frozenset[Address](), f"V1: what {call.answer!r} left held")


CALL_INVARIANTS = (call_ends_in_time, refused_request_holds_nothing_more)


# --- a call without faults --------------------------------------------------------------------------------------------


def locked_datastore_is_not_written(call: ObservedCall) -> None:
    """D12: while the datastore is locked, workloads and the collector change nothing."""
    if call.configurations.is_certainly_locked and isinstance(
        call.operation, Assign | Release | EnsureBlocks | RunCollector
    ):
        expect(call.has_no_effect, f"D12: {call.operation} changed something while the store was locked")
        if not isinstance(call.operation, RunCollector):
            # What a process remembers may show it the damaged record before it reads the flag again.
            is_damage = call.needs_damaged and isinstance(call.answer, Malformed)
            expect(
                is_damage or isinstance(call.answer, Unavailable),
                f"D12: {call.operation} answered {call.answer!r} to a locked store",
            )


def round_trips_are_bounded(call: ObservedCall) -> None:
    """V16: a call without faults takes a few reads and one commit; twice as many if its cache was out of date.

    A release takes so many for each 20 blocks of its handle.
    """
    if not isinstance(call.operation, Assign | EnsureBlocks | Release):
        return
    parts = _count_parts(call)
    # Without a handle a request of a batch runs alone, on what the batch has read; a shortfall is then read again. An
    # ordered store may have assigned addresses in an attempt on outdated records: they are released at the end.
    is_without_handle = isinstance(call.operation, Assign) and call.operation.request.handle is None
    attempts = (1 + (call.may_use_cache or parts > 1)) * parts  # the second part may use what the first has read
    attempts += call.may_use_cache and is_without_handle
    # A handle that the process remembers may name blocks that are gone; see ``_most_reads``.
    of_gone_blocks = 2 * (call.may_use_cache and isinstance(call.operation, Release))
    # What a batch decided on the cache is decided alone on it, before it is read: lists that must be current twice.
    of_current_lists = call.may_use_cache and isinstance(call.operation, Assign)
    most_reads = _most_reads(call) * max(attempts, 1 + is_without_handle) + of_gone_blocks + of_current_lists
    is_bounded = call.reads <= most_reads and call.commits <= attempts
    expect(is_bounded, f"V16: {call.operation} took {call.reads} reads and {call.commits} commits")


def _most_reads(call: ObservedCall) -> int:
    """The most reads of one attempt.

    Blocks of another size than their pool's cost an assignment one read for each of the first blocks that it cannot
    create because of them. A release reads a handle and its blocks; if one of these is not stored, also the affinity to
    it, and where that is pending the blocks around it. Of a handle over many blocks each part is decided in a batch and
    then alone.
    """
    if not isinstance(call.operation, Release):
        return MAX_READS + MAX_PROBES * call.before.has_leftovers
    handle = call.before.handles.get(call.operation.request.handle, Handle())
    is_missing = any(prefix not in call.before.blocks for prefix, _count in handle.blocks)
    return 2 + max(2 * is_missing, _count_parts(call) > 1)


def _count_parts(call: ObservedCall) -> int:
    """How many commits a call needs: a release one for so many blocks of its handle as a commit takes."""
    handle = call.before.handles.get(call.operation.request.handle) if isinstance(call.operation, Release) else None
    return 1 if handle is None else max(1, ceil(len(handle.blocks) / RELEASES_PER_COMMIT))


def request_gets_what_is_available(call: ObservedCall) -> None:
    """V13: a request gets fewer addresses than it asks for only if no more can be assigned, and never more."""
    if not isinstance(call.operation, Assign) or call.configurations.is_certainly_locked or call.needs_damaged:
        return
    if call.configurations.may_be_locked and isinstance(call.answer, Unavailable):
        return
    failures = []
    for configuration in call.configurations.unlocked():
        try:
            _require_available(call.operation.request, call, evolve(call.before, configuration=configuration))
        except AssertionError as failure:
            failures.append(failure)
        else:
            return
    raise failures[0]


def _require_available(request: AssignRequest, call: ObservedCall, state: StoredState) -> None:
    """Require the answer that is correct in this state."""
    answer, expected = call.answer, forecast(state, request, call.started_ns, call.ended_ns)
    if isinstance(answer, NetplugError):
        expect(expected.may_be_refused, f"V13: {request} was refused ({answer}); expected: {expected}")
        return
    assignment = _require_type(answer, Assignment)
    expect(expected.may_be_served, f"V13: {request} was served; expected: {expected}")
    for wanted, share in zip(request.wanted, expected.families, strict=True):
        got = sum(assigned.address.family is wanted.family for assigned in assignment.addresses)
        expect(share.allows(got), f"V13: {request} got {got} {wanted.family} addresses; expected: {share}")
        is_short = got < share.total
        is_reported = any(
            getattr(refusal, "family", wanted.family) is wanted.family for refusal in assignment.shortfalls
        )
        message = f"V13: {request} got {got} {wanted.family} addresses, and no shortfall was reported"
        expect(is_reported or not is_short, message)


def request_states_the_total(call: ObservedCall) -> None:
    """V15: a request states the total of its handle, so that a repeated one adds nothing, and its maximum is kept."""
    if not isinstance(call.operation, Assign) or not isinstance(call.answer, Assignment):
        return
    request = call.operation.request
    given = [assigned.address for assigned in call.answer.addresses]
    expect_same(len(set(given)), len(given), f"V15: the addresses of {request}, each once")
    for wanted in request.wanted:
        if isinstance(wanted, Automatic) and request.handle is not None:
            had = len(_held(call.before, request.handle, wanted.family))
            total = wanted.count if request.max_per_handle is None else min(wanted.count, request.max_per_handle)
            holds = len(_held(call.after, request.handle, wanted.family))
            expect(holds <= max(had, total), f"V15: {request} holds {holds} {wanted.family} addresses, and held {had}")


def _held(state: StoredState, handle: str, family: Family) -> frozenset[Address]:
    return frozenset(address for address in state.held_by(handle) if address.family is family)


def release_frees_what_the_handle_held(call: ObservedCall) -> None:
    """V12: a release frees the addresses of its handle, those of one sequence number if it names one, and no others."""
    if not isinstance(call.operation, Release) or not isinstance(call.answer, Released):
        return
    handle, sequence = call.operation.request.handle, call.operation.request.sequence
    held = call.before.held_by(handle)
    expected = {address for address in held if sequence in (None, call.before.held[address].sequence)}
    expect_same(set(call.answer.addresses), expected, f"V12: what {call.operation} freed")
    expect_same(
        set(call.before.held) - set(call.after.held), expected, f"V12: what is not held any more after {call.operation}"
    )
    if sequence is None:
        expect(handle not in call.after.handles, f"V5: the handle {handle} is still there")
        expect(handle not in call.after.endpoints, f"the endpoint of {handle} is still there")


def release_items_free_what_they_describe(call: ObservedCall) -> None:
    """V12: a block with an item that does not match its address is unchanged; the items of other blocks are freed."""
    if not isinstance(call.operation, ReleaseAddresses) or not isinstance(call.answer, AddressesReleased):
        return
    by_block: dict[Prefix | None, list[ReleaseItem]] = {}
    for item in call.operation.items:
        block = call.before.find_block(item.address)
        by_block.setdefault(block.prefix if block else None, []).append(item)
    released: set[Address] = set()
    free: set[Address] = set()
    for prefix, items in by_block.items():
        if all(_matches(item, call.before) for item in items):
            released.update(item.address for item in items if _find_allocation(call.before, item.address))
            free.update(item.address for item in items if not _find_allocation(call.before, item.address))
        elif prefix is not None:
            expect_same(
                call.after.blocks.get(prefix),
                call.before.blocks[prefix],
                f"V12: {prefix}, an item of which was refused",
            )
    expect_same(set(call.answer.released), released, f"V12: what {call.operation} freed")
    expect_same(set(call.answer.free_already), free, f"V12: what {call.operation} found free")
    refused = any(not _matches(item, call.before) for item in call.operation.items)
    expect_same(bool(call.answer.refused), refused, f"V12: whether an item of {call.operation} was refused")


def _matches(item: ReleaseItem, state: StoredState) -> bool:
    held = _find_allocation(state, item.address)
    if held is None:
        return True
    return item.handle in (None, held.attribute.handle) and item.sequence in (None, held.sequence)


def _find_allocation(state: StoredState, address: Address) -> Allocation | None:
    """The allocation of an address, host-reserved ones included; None if it is free or cools down."""
    block = state.find_block(address)
    held = block.find(address) if block else None
    return None if held is None or held.is_cooling else held


def affinities_match_the_answer(call: ObservedCall) -> None:
    """V7: a block that was reported as claimed is the claimant's; an affinity reported as relinquished is gone."""
    operation, answer = call.operation, call.answer
    if isinstance(operation, ClaimBlocks) and isinstance(answer, ClaimResult):
        for prefix in answer.claimed:
            expect_same(call.after.blocks[prefix].owner, operation.claimant, f"V7: the owner of {prefix}")
        for prefix in answer.failed:
            expect(not _may_claim(call.after, prefix, operation.claimant), f"V7: {prefix} could be claimed")
    if isinstance(operation, EnsureBlocks) and isinstance(answer, EnsuredBlocks):
        for prefix in answer.blocks:
            expect_same(call.after.blocks[prefix].owner, operation.request.claimant, f"V7: the owner of {prefix}")
    if isinstance(answer, RelinquishResult):
        expect(
            not set(answer.relinquished) & call.after.affinities.keys(),
            f"V7: {operation} left affinities that it reports as relinquished",
        )
        kept = {(refusal.owner, refusal.block) for refusal in answer.refused}
        left = {(claiming_owner(key), claimed_block(key)) for key in call.after.affinities}
        expect(kept <= left, f"V7: {operation} reports affinities as kept that do not exist")
    if isinstance(operation, RelinquishNode) and operation.emptiness is Emptiness.NOT_REQUIRED:
        expect_same(
            call.after.claimed_blocks(host_owner(operation.node)),
            frozenset[Prefix](),
            f"V7: the blocks that {operation.node} still has affinities to",
        )


def _may_claim(state: StoredState, prefix: Prefix, claimant: str) -> bool:
    """Whether nothing keeps a claimant from a block: neither its owner nor a block of another size."""
    block = state.blocks.get(prefix)
    if block is None:
        return not any(other.overlaps(prefix) for other in state.blocks)
    return block.owner in ("", claimant)


def damage_stops_only_those_who_need_it(call: ObservedCall) -> None:
    """V21: an assignment or a release fails because of a damaged record only if it needs that record."""
    if isinstance(call.operation, Assign | EnsureBlocks | Release) and isinstance(call.answer, Malformed):
        expect(call.needs_damaged, f"V21: {call.operation} failed because of {call.answer}, which it does not need")


def _require_type(answer: Answer, expected: type[T]) -> T:
    if not isinstance(answer, expected):
        raise AssertionError(f"the answer is {answer!r}, not {expected.__name__}")
    return answer


FAULT_FREE_CALL_INVARIANTS = (
    locked_datastore_is_not_written,
    round_trips_are_bounded,
    request_gets_what_is_available,
    request_states_the_total,
    release_frees_what_the_handle_held,
    release_items_free_what_they_describe,
    affinities_match_the_answer,
    damage_stops_only_those_who_need_it,
)

DAMAGED_CALL_INVARIANTS = (
    locked_datastore_is_not_written,
    request_gets_what_is_available,
    request_states_the_total,
    release_frees_what_the_handle_held,
    damage_stops_only_those_who_need_it,
)
"""The invariants of such a call while a record is damaged. The addresses of that record are promised to no request."""
