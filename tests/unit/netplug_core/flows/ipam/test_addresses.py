"""Single addresses over a store: releases in batches, races, lost replies, owners."""

from collections.abc import Mapping

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address
from netplug_core.errors import Unavailable
from netplug_core.flows.ipam.addresses import change_owner, find_holder, release_addresses
from netplug_core.ipam.allocation.context import ADDRESSES_PER_COMMIT
from netplug_core.ipam.allocation.release import OwnerChange, OwnerMismatch
from netplug_core.ipam.allocation.request import AddressesReleased, ReleaseItem
from netplug_core.ipam.model import Pairs
from netplug_core.ipam.outcome import HandleMismatch
from netplug_core.records import OutcomeUnknown
from netplug_core.testing.faults import Fault, FaultyDatastore, LostRace, LostReply, LostRequest, RunBefore
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, make_request
from tests.harness.ipam_release import release_item, sequence_of, texts

BLOCK_0 = "10.0.0.0/26"
FIRST = Address.parse("10.0.0.0")
NEW: Pairs = (("node", "node-b"),)


@pytest.fixture(params=MemoryMode)
def harness(request: pytest.FixtureRequest) -> IPAMHarness:
    """A cluster with one pool of sixteen blocks over a store of each mode."""
    harness = IPAMHarness.new(request.param)
    harness.add_pool("main", "10.0.0.0/22")
    return harness


def release(harness: IPAMHarness, *items: ReleaseItem, script: Mapping[int, Fault] | None = None) -> AddressesReleased:
    store = FaultyDatastore(harness.store, script or {})
    return release_addresses(store, items, pace=harness.pace)


# --- releasing in bulk ------------------------------------------------------------------------------------------


def test_many_addresses_are_released_in_batches_and_reported_in_order(harness: IPAMHarness) -> None:
    held = harness.assign_or_refuse("h1", ipv4(2 * ADDRESSES_PER_COMMIT + 1))
    harness.take_call_counts()
    answer = release(harness, *(release_item(address) for address in reversed(held)))
    assert texts(answer.released) == sorted(held, key=Address.parse)
    assert harness.take_call_counts()[1] == 3
    assert (harness.held(), harness.handles()) == ({}, [])


def test_a_batch_may_have_released_free_and_refused_addresses(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(2))
    harness.assign_or_refuse("h2", ipv4(), node=OTHER_NODE)
    answer = release(harness, release_item("10.0.0.0"), release_item("10.0.0.64", "wrong"), release_item("10.0.0.200"))
    assert texts(answer.released) == ["10.0.0.0"]
    assert texts(answer.free_already) == ["10.0.0.200"]
    assert [type(refusal) for refusal in answer.refused] == [HandleMismatch]


def test_trap_21_a_refused_block_does_not_affect_other_blocks(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(64))
    harness.assign_or_refuse("h2", ipv4(10), node=OTHER_NODE)
    items = [release_item(f"10.0.0.{number}", "wrong" if number == 0 else None) for number in range(74)]
    answer = release(harness, *items)
    assert len(answer.refused) == 1
    assert texts(answer.released) == [f"10.0.0.{number}" for number in range(ADDRESSES_PER_COMMIT, 74)]
    assert harness.handles() == ["h1"]


def test_a_repeated_item_counts_once(harness: IPAMHarness) -> None:
    held = harness.assign_or_refuse("h1", ipv4(ADDRESSES_PER_COMMIT))
    harness.take_call_counts()
    assert len(release(harness, *(release_item(address) for address in held * 2)).released) == ADDRESSES_PER_COMMIT
    assert harness.take_call_counts()[1] == 1


def test_after_a_lost_race_the_release_is_decided_again(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(2))
    faults = {1: RunBefore(lambda: harness.release("h1"))}
    answer = release(harness, release_item("10.0.0.0"), release_item("10.0.0.1"), script=faults)
    assert texts(answer.free_already) == ["10.0.0.0", "10.0.0.1"]
    assert (harness.held(), harness.handles()) == ({}, [])


def test_an_address_that_was_assigned_again_in_the_meantime_is_not_released(harness: IPAMHarness) -> None:
    """Both assignments have the same handle; their sequence numbers differ."""
    harness.assign_or_refuse("h1")
    number = sequence_of(harness, "10.0.0.0", BLOCK_0)

    def reassign() -> None:
        harness.release("h1")
        block = harness.block(BLOCK_0)
        harness.put(block.key, evolve(block, free=(block.free[-1], *block.free[:-1])))
        harness.assign_or_refuse("h1")

    (refusal,) = release(harness, release_item("10.0.0.0", "h1", number), script={1: RunBefore(reassign)}).refused
    assert str(refusal).startswith("10.0.0.0 is not released: bad sequence number")
    assert harness.held() == {"10.0.0.0": "h1"}


@pytest.mark.parametrize("fault", [LostReply(), LostRace()])
def test_after_a_fault_nothing_is_freed_twice(harness: IPAMHarness, fault: Fault) -> None:
    harness.assign_or_refuse("h1", ipv4(2))
    harness.assign_or_refuse("h2")
    answer = release(
        harness, release_item("10.0.0.0", "h1", sequence_of(harness, "10.0.0.0", BLOCK_0)), script={1: fault}
    )
    assert texts((*answer.released, *answer.free_already)) == ["10.0.0.0"]
    assert harness.held() == {"10.0.0.1": "h1", "10.0.0.2": "h2"}
    assert harness.block(BLOCK_0).free.count(harness.block(BLOCK_0).free[-1]) == 1


def test_when_the_store_fails_earlier_batches_stay_released(harness: IPAMHarness) -> None:
    held = harness.assign_or_refuse("h1", ipv4(ADDRESSES_PER_COMMIT + 1))
    with pytest.raises(Unavailable):
        release(harness, *map(release_item, held), script={2: LostRequest()})
    assert list(harness.held()) == held[-1:]
    assert harness.handle_counts("h1") == {BLOCK_0: 1}


# --- who holds an address ---------------------------------------------------------------------------------------


def test_the_holder_is_found_in_a_disabled_pool_and_a_locked_cluster(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.set_ready(is_ready=False)
    harness.disable_pool("main")
    holder = find_holder(harness.store, FIRST, pace=harness.pace)
    assert holder.allocation is not None
    assert holder.allocation.attribute.owner_value("node") == NODE


def test_finding_a_holder_writes_nothing(harness: IPAMHarness) -> None:
    harness.take_call_counts()
    assert find_holder(harness.store, FIRST, pace=harness.pace).allocation is None
    assert harness.take_call_counts()[1] == 0


# --- owners -----------------------------------------------------------------------------------------------------


def test_a_changed_owner_is_stored_and_returned(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    change = OwnerChange(address=FIRST, handle="h1", owner=NEW)
    holder = change_owner(harness.store, change, pace=harness.pace)
    assert holder.allocation is not None
    assert holder.allocation.attribute.owner == NEW
    assert find_holder(harness.store, FIRST, pace=harness.pace).allocation == holder.allocation


def test_a_change_of_another_handle_or_owner_is_refused(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    for change, error in (
        (OwnerChange(address=FIRST, handle="other", owner=NEW), HandleMismatch),
        (OwnerChange(address=FIRST, handle="h1", owner=NEW, expected=NEW), OwnerMismatch),
    ):
        with pytest.raises(error):
            change_owner(harness.store, change, pace=harness.pace)
    assert find_holder(harness.store, FIRST, pace=harness.pace).allocation == harness.block(BLOCK_0).find(FIRST)


def test_of_two_changes_with_one_expectation_only_one_is_made(harness: IPAMHarness) -> None:
    harness.assign(evolve(make_request("h1"), owner=(("pod", "p"),)))
    stored = harness.block(BLOCK_0).held_by("h1")[0].attribute.owner
    change = OwnerChange(address=FIRST, handle="h1", owner=NEW, expected=stored)
    other = evolve(change, owner=(("node", "node-c"),))
    faults = {1: RunBefore(lambda: change_owner(harness.store, other, pace=harness.pace))}
    with pytest.raises(OwnerMismatch):
        change_owner(FaultyDatastore(harness.store, faults), change, pace=harness.pace)
    assert harness.block(BLOCK_0).held_by("h1")[0].attribute.owner == (("node", "node-c"),)


def test_a_lost_reply_of_a_change_with_expectations_is_an_unknown_outcome(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    lost = FaultyDatastore(harness.store, {1: LostReply()})
    with pytest.raises(OutcomeUnknown):
        change_owner(
            lost, OwnerChange(address=FIRST, handle="h1", alternate=NEW, expected_alternate=()), pace=harness.pace
        )
    reassign = FaultyDatastore(harness.store, {1: LostReply()})
    holder = change_owner(reassign, OwnerChange(address=FIRST, handle="h1", alternate=()), pace=harness.pace)
    assert holder.allocation is not None
    assert holder.allocation.attribute.alternate == ()
