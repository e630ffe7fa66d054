"""Addresses one by one over a store: batches, what is told of them, races and lost replies, owners."""

from collections.abc import Mapping

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address
from netplug_core.errors import Unavailable
from netplug_core.flows.ipam.addresses import change_owner, find_holder, release_addresses
from netplug_core.ipam.allocation.batches import ADDRESSES_PER_COMMIT
from netplug_core.ipam.allocation.owners import OwnerChange, OwnerMismatch
from netplug_core.ipam.allocation.request import AddressesReleased, ReleaseItem
from netplug_core.ipam.model.block import Pairs
from netplug_core.ipam.outcome.refusals import HandleMismatch
from netplug_core.records import OutcomeUnknown
from netplug_core.testing.faults import Fault, FaultyDatastore, LostRace, LostReply, LostRequest, RunBefore
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, make_request
from tests.harness.ipam_release import release_item, sequence_of, texts

BLOCK_0 = "10.0.0.0/26"
FIRST = Address.parse("10.0.0.0")
NEW: Pairs = (("node", "node-b"),)


@pytest.fixture(params=MemoryMode)
def bench(request: pytest.FixtureRequest) -> IPAMHarness:
    """A cluster with one pool of sixteen blocks over a store of either sort."""
    made = IPAMHarness.new(request.param)
    made.add_pool("main", "10.0.0.0/22")
    return made


def release(harness: IPAMHarness, *items: ReleaseItem, script: Mapping[int, Fault] | None = None) -> AddressesReleased:
    store = FaultyDatastore(harness.store, script or {})
    return release_addresses(store, items, pace=harness.pace)


# --- releasing in bulk ------------------------------------------------------------------------------------------


def test_many_addresses_go_in_batches_and_are_told_in_order(bench: IPAMHarness) -> None:
    held = bench.assign_or_refuse("h1", ipv4(2 * ADDRESSES_PER_COMMIT + 1))
    bench.take_call_counts()
    answer = release(bench, *(release_item(address) for address in reversed(held)))
    assert texts(answer.released) == sorted(held, key=Address.parse)
    assert bench.take_call_counts()[1] == 3
    assert (bench.held(), bench.handles()) == ({}, [])


def test_a_batch_may_hold_what_is_done_and_what_is_refused(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(2))
    bench.assign_or_refuse("h2", ipv4(), node=OTHER_NODE)
    answer = release(bench, release_item("10.0.0.0"), release_item("10.0.0.64", "wrong"), release_item("10.0.0.200"))
    assert texts(answer.released) == ["10.0.0.0"]
    assert texts(answer.free_already) == ["10.0.0.200"]
    assert [type(refusal) for refusal in answer.refused] == [HandleMismatch]


def test_trap_21_a_batch_that_is_refused_keeps_no_other_from_being_released(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(64))
    bench.assign_or_refuse("h2", ipv4(10), node=OTHER_NODE)
    items = [release_item(f"10.0.0.{number}", "wrong" if number == 0 else None) for number in range(74)]
    answer = release(bench, *items)
    assert len(answer.refused) == 1
    assert texts(answer.released) == [f"10.0.0.{number}" for number in range(ADDRESSES_PER_COMMIT, 74)]
    assert bench.handles() == ["h1"]


def test_an_item_named_twice_is_one(bench: IPAMHarness) -> None:
    held = bench.assign_or_refuse("h1", ipv4(ADDRESSES_PER_COMMIT))
    bench.take_call_counts()
    assert len(release(bench, *(release_item(address) for address in held * 2)).released) == ADDRESSES_PER_COMMIT
    assert bench.take_call_counts()[1] == 1


def test_who_loses_a_race_decides_again_on_what_is_there_now(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(2))
    rival = {1: RunBefore(lambda: bench.release("h1"))}
    answer = release(bench, release_item("10.0.0.0"), release_item("10.0.0.1"), script=rival)
    assert texts(answer.free_already) == ["10.0.0.0", "10.0.0.1"]
    assert (bench.held(), bench.handles()) == ({}, [])


def test_an_address_that_another_took_meanwhile_stays_the_others(bench: IPAMHarness) -> None:
    """The number tells the two allocations apart, though both are of one handle."""
    bench.assign_or_refuse("h1")
    number = sequence_of(bench, "10.0.0.0", BLOCK_0)

    def again() -> None:
        bench.release("h1")
        block = bench.block(BLOCK_0)
        bench.put(block.key, evolve(block, free=(block.free[-1], *block.free[:-1])))
        bench.assign_or_refuse("h1")

    (refusal,) = release(bench, release_item("10.0.0.0", "h1", number), script={1: RunBefore(again)}).refused
    assert str(refusal).startswith("10.0.0.0 is not released: bad sequence number")
    assert bench.held() == {"10.0.0.0": "h1"}


@pytest.mark.parametrize("mishap", [LostReply(), LostRace()])
def test_after_a_mishap_nothing_is_freed_twice(bench: IPAMHarness, mishap: Fault) -> None:
    bench.assign_or_refuse("h1", ipv4(2))
    bench.assign_or_refuse("h2")
    answer = release(bench, release_item("10.0.0.0", "h1", sequence_of(bench, "10.0.0.0", BLOCK_0)), script={1: mishap})
    assert texts((*answer.released, *answer.free_already)) == ["10.0.0.0"]
    assert bench.held() == {"10.0.0.1": "h1", "10.0.0.2": "h2"}
    assert bench.block(BLOCK_0).free.count(bench.block(BLOCK_0).free[-1]) == 1


def test_a_store_that_is_away_leaves_earlier_batches_released(bench: IPAMHarness) -> None:
    held = bench.assign_or_refuse("h1", ipv4(ADDRESSES_PER_COMMIT + 1))
    with pytest.raises(Unavailable):
        release(bench, *map(release_item, held), script={2: LostRequest()})
    assert list(bench.held()) == held[-1:]
    assert bench.handle_counts("h1") == {BLOCK_0: 1}


# --- who holds an address ---------------------------------------------------------------------------------------


def test_the_holder_is_found_whatever_has_become_of_pool_and_lock(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.set_ready(is_ready=False)
    bench.disable_pool("main")
    holder = find_holder(bench.store, FIRST, pace=bench.pace)
    assert holder.is_held
    assert holder.allocation is not None
    assert holder.allocation.attribute.owner_value("node") == NODE


def test_a_question_writes_nothing(bench: IPAMHarness) -> None:
    bench.take_call_counts()
    assert not find_holder(bench.store, FIRST, pace=bench.pace).is_held
    assert bench.take_call_counts()[1] == 0


# --- owners -----------------------------------------------------------------------------------------------------


def test_an_owner_is_changed_and_told(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    change = OwnerChange(address=FIRST, handle="h1", owner=NEW)
    holder = change_owner(bench.store, change, pace=bench.pace)
    assert holder.allocation is not None
    assert holder.allocation.attribute.owner == NEW
    assert find_holder(bench.store, FIRST, pace=bench.pace).allocation == holder.allocation


def test_what_a_change_may_not_do_is_raised(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    for change, error in (
        (OwnerChange(address=FIRST, handle="other", owner=NEW), HandleMismatch),
        (OwnerChange(address=FIRST, handle="h1", owner=NEW, expected=NEW), OwnerMismatch),
    ):
        with pytest.raises(error):
            change_owner(bench.store, change, pace=bench.pace)
    assert find_holder(bench.store, FIRST, pace=bench.pace).allocation == bench.block(BLOCK_0).find(FIRST)


def test_two_changes_that_expect_the_same_are_not_both_made(bench: IPAMHarness) -> None:
    bench.assign(evolve(make_request("h1"), owner=(("pod", "p"),)))
    stored = bench.block(BLOCK_0).held_by("h1")[0].attribute.owner
    mine = OwnerChange(address=FIRST, handle="h1", owner=NEW, expected=stored)
    theirs = evolve(mine, owner=(("node", "node-c"),))
    rival = {1: RunBefore(lambda: change_owner(bench.store, theirs, pace=bench.pace))}
    with pytest.raises(OwnerMismatch):
        change_owner(FaultyDatastore(bench.store, rival), mine, pace=bench.pace)
    assert bench.block(BLOCK_0).held_by("h1")[0].attribute.owner == (("node", "node-c"),)


def test_the_lost_reply_of_a_change_that_expects_something_is_told(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    lost = FaultyDatastore(bench.store, {1: LostReply()})
    with pytest.raises(OutcomeUnknown):
        change_owner(
            lost, OwnerChange(address=FIRST, handle="h1", alternate=NEW, expected_alternate=()), pace=bench.pace
        )
    again = FaultyDatastore(bench.store, {1: LostReply()})
    holder = change_owner(again, OwnerChange(address=FIRST, handle="h1", alternate=()), pace=bench.pace)
    assert holder.allocation is not None
    assert holder.allocation.attribute.alternate == ()
