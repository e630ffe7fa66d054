"""Release address by address: which blocks are looked at, what an item must say, what is written."""

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.ipam.allocation.release_addresses import decide_release_addresses, release_addresses_queries
from netplug_core.ipam.allocation.request import AddressesReleased, ReleaseItem
from netplug_core.ipam.model.block import block_key
from netplug_core.ipam.model.handle import handle_key
from netplug_core.ipam.outcome.refusals import HandleMismatch, SequenceMismatch
from netplug_core.records import PAGE_SIZE, Decision, Delete, Update
from netplug_core.resources.ippool import ippool_key
from tests.harness.ipam import OTHER_NODE, IPAMHarness, ipv4, ipv6, specific
from tests.harness.ipam_release import decide_without_commit, release_addresses_of, release_item, sequence_of, texts

BLOCK_0, BLOCK_1 = "10.0.0.0/26", "10.0.0.64/26"


@pytest.fixture
def bench() -> IPAMHarness:
    """A cluster with one pool of four blocks."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


def decision(harness: IPAMHarness, *items: ReleaseItem) -> Decision[AddressesReleased]:
    now_ns = harness.clock.now_ns()
    return decide_without_commit(
        harness, release_addresses_queries(), lambda snapshot: decide_release_addresses(snapshot, items, now_ns)
    )


# --- what is freed ----------------------------------------------------------------------------------------------


def test_held_addresses_are_freed_and_the_others_stay(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(3))
    answer = release_addresses_of(bench, release_item("10.0.0.2"), release_item("10.0.0.0"))
    assert texts(answer.released) == ["10.0.0.0", "10.0.0.2"]
    assert (answer.free_already, answer.refused) == ((), ())
    assert bench.held() == {"10.0.0.1": "h1"}
    assert bench.handle_counts("h1") == {BLOCK_0: 1}


@pytest.mark.parametrize("spelling", ["fd00::2", "fd00:0:0:0::2", "FD00::0002"])
def test_trap_1_an_address_named_twice_is_freed_and_counted_once(spelling: str) -> None:
    bench = IPAMHarness.new()
    bench.add_pool("six", "fd00::/120")
    bench.assign_or_refuse("h1", ipv6(3))
    answer = release_addresses_of(bench, release_item("fd00::2"), release_item(spelling, "h1"), release_item(spelling))
    assert texts(answer.released) == ["fd00::2"]
    assert bench.handle_counts("h1") == {"fd00::/122": 2}
    assert bench.block("fd00::/122").free.count(bench.block("fd00::/122").free[-1]) == 1


def test_trap_2_a_handle_loses_as_many_as_are_freed_and_goes_with_the_last(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(66))
    release_addresses_of(bench, *(release_item(f"10.0.0.{number}") for number in range(63)))
    assert bench.handle_counts("h1") == {BLOCK_0: 1, BLOCK_1: 2}
    release_addresses_of(bench, release_item("10.0.0.63"), release_item("10.0.0.64"))
    assert bench.handle_counts("h1") == {BLOCK_1: 1}
    release_addresses_of(bench, release_item("10.0.0.65"))
    assert bench.handles() == []


def test_trap_30_the_handle_is_put_right_in_the_commit_that_frees(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(2))
    bench.put_handle("h1", b0=9)
    bench.take_call_counts()
    release_addresses_of(bench, release_item("10.0.0.1"))
    assert bench.take_call_counts() == (3, 1)
    assert bench.handle_counts("h1") == {BLOCK_0: 1}


def test_addresses_of_many_handles_go_together(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(2))
    bench.assign_or_refuse("h2", ipv4(2))
    bench.assign_or_refuse(None)
    release_addresses_of(
        bench, release_item("10.0.0.0"), release_item("10.0.0.1"), release_item("10.0.0.2"), release_item("10.0.0.4")
    )
    assert bench.held() == {"10.0.0.3": "h2"}
    assert bench.handles() == ["h2"]


def test_handles_of_several_blocks_are_counted_anew_in_all_that_change(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(63))
    bench.assign_or_refuse("h2", ipv4(3))
    bench.put_handle("h1", b0=63, b1=5, b3=1)
    release_addresses_of(bench, release_item("10.0.0.0"), release_item("10.0.0.64"))
    assert bench.handle_counts("h1") == {BLOCK_0: 62, "10.0.0.192/26": 1}  # the last block was not looked at
    assert bench.handle_counts("h2") == {BLOCK_0: 1, BLOCK_1: 1}


def test_the_handle_of_an_address_may_be_missing(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.remove(handle_key("h1"))
    assert texts(release_addresses_of(bench, release_item("10.0.0.0")).released) == ["10.0.0.0"]
    assert (bench.held(), bench.handles()) == ({}, [])


def test_a_handle_that_is_missing_does_not_keep_another_from_being_put_right(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.assign_or_refuse("h2")
    bench.remove(handle_key("h1"))
    release_addresses_of(bench, release_item("10.0.0.0"), release_item("10.0.0.1"))
    assert bench.handles() == []


def test_a_block_of_nobody_goes_with_its_last_address(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(2))
    block = bench.block(BLOCK_0)
    bench.put(block.key, block.relinquished())
    release_addresses_of(bench, release_item("10.0.0.0"))
    assert bench.blocks() == {BLOCK_0: ""}
    release_addresses_of(bench, release_item("10.0.0.1"))
    assert bench.blocks() == {}


def test_with_a_cooldown_addresses_rest_and_their_handle_goes(bench: IPAMHarness) -> None:
    bench.configure(cooldown_s=60)
    bench.assign_or_refuse("h1")
    assert texts(release_addresses_of(bench, release_item("10.0.0.0")).released) == ["10.0.0.0"]
    assert bench.block(BLOCK_0).cooling_count == 1
    assert bench.handles() == []


def test_trap_46_freed_addresses_queue_in_their_own_order_whatever_the_order_of_the_request(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(4))
    release_addresses_of(bench, release_item("10.0.0.3"), release_item("10.0.0.0"), release_item("10.0.0.2"))
    assert bench.block(BLOCK_0).free[-3:] == (0, 2, 3)


# --- what is free already ---------------------------------------------------------------------------------------


def test_a_free_address_is_no_error_and_nothing_is_written(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.take_call_counts()
    answer = release_addresses_of(
        bench, release_item("10.0.0.1"), release_item("10.0.0.200"), release_item("11.0.0.1"), release_item("fd00::1")
    )
    assert texts(answer.free_already) == ["10.0.0.1", "10.0.0.200", "11.0.0.1", "fd00::1"]
    assert (answer.released, answer.refused) == ((), ())
    assert bench.take_call_counts()[1] == 0


def test_an_address_that_is_in_no_block_does_not_keep_others_from_being_freed(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    answer = release_addresses_of(bench, release_item("9.0.0.1"), release_item("10.0.0.0"))
    assert (texts(answer.free_already), texts(answer.released)) == (["9.0.0.1"], ["10.0.0.0"])


@pytest.mark.parametrize("cooldown_s", [0, 60])
def test_trap_40_an_address_that_is_free_by_now_is_done_whatever_the_item_says(
    bench: IPAMHarness, cooldown_s: int
) -> None:
    bench.configure(cooldown_s=cooldown_s)
    bench.assign_or_refuse("h1", ipv4(2))
    taken = release_item("10.0.0.0", "h1", sequence_of(bench, "10.0.0.0", BLOCK_0))
    release_addresses_of(bench, taken)
    bench.take_call_counts()
    answer = release_addresses_of(bench, taken, taken, release_item("10.0.0.0", "other", 7))
    assert texts(answer.free_already) == ["10.0.0.0"]
    assert answer.refused == ()
    assert bench.take_call_counts()[1] == 0
    # A batch that is tried again after a lost reply frees what the first try had not come to.
    answer = release_addresses_of(bench, taken, release_item("10.0.0.1", "h1", sequence_of(bench, "10.0.0.1", BLOCK_0)))
    assert (texts(answer.released), texts(answer.free_already)) == (["10.0.0.1"], ["10.0.0.0"])


def test_nothing_asked_is_nothing_done(bench: IPAMHarness) -> None:
    assert release_addresses_of(bench) == AddressesReleased()
    assert decision(bench).writes == ()


# --- what an item must say --------------------------------------------------------------------------------------


def test_an_item_that_describes_its_address_frees_it(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    answer = release_addresses_of(bench, release_item("10.0.0.0", "h1", sequence_of(bench, "10.0.0.0", BLOCK_0)))
    assert texts(answer.released) == ["10.0.0.0"]


def test_a_stale_number_is_refused_and_says_both(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    number = sequence_of(bench, "10.0.0.0", BLOCK_0)
    before = bench.block(BLOCK_0)
    (refusal,) = release_addresses_of(bench, release_item("10.0.0.0", "h1", number - 1)).refused
    assert isinstance(refusal, SequenceMismatch)
    assert (refusal.requested, refusal.expected) == (number - 1, number)
    assert (refusal.code, refusal.identifier) == (117, "sequence-mismatch")
    assert str(refusal) == f"10.0.0.0 is not released: bad sequence number {number - 1}, expected {number}"
    assert bench.block(BLOCK_0) == before


@pytest.mark.parametrize("holder", ["h1", None])
def test_another_handle_is_refused_and_says_both(bench: IPAMHarness, holder: str | None) -> None:
    bench.assign_or_refuse(holder)
    (refusal,) = release_addresses_of(bench, release_item("10.0.0.0", "fake")).refused
    assert isinstance(refusal, HandleMismatch)
    assert (refusal.requested, refusal.expected) == ("fake", holder)
    assert (refusal.code, refusal.identifier) == (118, "handle-mismatch")
    assert str(refusal) == f"10.0.0.0 is not released: bad handle 'fake', expected {holder!r}"
    assert bench.held() == {"10.0.0.0": holder}


def test_the_number_is_judged_before_the_handle(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    (refusal,) = release_addresses_of(bench, release_item("10.0.0.0", "fake", 1)).refused
    assert isinstance(refusal, SequenceMismatch)


def test_refusals_of_one_address_are_in_the_order_of_what_its_items_say(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    described = (
        release_item("10.0.0.0", "B"),
        release_item("10.0.0.0", sequence=2),
        release_item("10.0.0.0"),
        release_item("10.0.0.0", sequence=1),
    )
    said = [str(refusal) for refusal in release_addresses_of(bench, *described).refused]
    assert [text.split(",")[0].partition("bad ")[2] for text in said] == [
        "sequence number 1", "sequence number 2", "handle 'B'",
    ]  # fmt: skip


def test_one_item_that_does_not_fit_keeps_its_whole_block_and_no_other(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(65))
    answer = release_addresses_of(
        bench,
        release_item("10.0.0.0"),
        release_item("10.0.0.1", "fake"),
        release_item("10.0.0.2", sequence=1),
        release_item("10.0.0.64"),
    )
    assert texts(answer.released) == ["10.0.0.64"]
    assert [str(refusal) for refusal in answer.refused] == [
        "10.0.0.1 is not released: bad handle 'fake', expected 'h1'",
        f"10.0.0.2 is not released: bad sequence number 1, expected {sequence_of(bench, '10.0.0.2', BLOCK_0)}",
    ]
    assert bench.handle_counts("h1") == {BLOCK_0: 64}


# --- where a block is found -------------------------------------------------------------------------------------


def test_trap_17_a_disabled_pool_leads_to_its_blocks(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.disable_pool("main")
    bench.take_call_counts()
    assert texts(release_addresses_of(bench, release_item("10.0.0.0")).released) == ["10.0.0.0"]
    assert bench.take_call_counts() == (3, 1)  # pools, block, handle


def test_trap_17_without_a_pool_all_blocks_are_searched(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(65))
    bench.remove(ippool_key("main"))
    answer = release_addresses_of(
        bench, release_item("10.0.0.64"), release_item("10.0.0.0"), release_item("10.0.0.200")
    )
    assert texts(answer.released) == ["10.0.0.0", "10.0.0.64"]
    assert texts(answer.free_already) == ["10.0.0.200"]


def test_the_search_goes_on_to_the_last_page(bench: IPAMHarness) -> None:
    bench.add_pool("narrow", "11.0.0.0/20", 32)
    bench.assign_or_refuse("h1", specific("11.0.15.255"))
    for number in range(PAGE_SIZE):
        bench.put_block(f"11.0.{number // 256}.{number % 256}/32", node=OTHER_NODE)
    bench.remove(ippool_key("narrow"))
    bench.take_call_counts()
    assert texts(release_addresses_of(bench, release_item("11.0.15.255")).released) == ["11.0.15.255"]
    assert bench.take_call_counts() == (4, 1)  # pools, two pages, handle


def test_only_the_family_of_a_lost_address_is_searched(bench: IPAMHarness) -> None:
    bench.add_pool("six", "fd00::/120")
    bench.assign_or_refuse("h1", ipv4(), ipv6())
    bench.remove(ippool_key("six"))
    bench.take_call_counts()
    assert texts(release_addresses_of(bench, release_item("10.0.0.0"), release_item("fd00::")).released) == [
        "10.0.0.0",
        "fd00::",
    ]
    assert bench.take_call_counts() == (4, 1)  # pools, the block of the pool, the other family's blocks, handle


def test_of_two_pools_over_an_address_the_one_that_has_the_block_counts(bench: IPAMHarness) -> None:
    bench.add_pool("early", "10.0.0.0/25", 28)
    bench.assign_or_refuse("h1", ipv4(1, "main"))
    assert texts(release_addresses_of(bench, release_item("10.0.0.0")).released) == ["10.0.0.0"]


# --- the commit -------------------------------------------------------------------------------------------------


def test_the_commit_frees_addresses_before_it_changes_handles(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(2))
    bench.assign_or_refuse("h2")
    blocks, changed, gone = decision(bench, release_item("10.0.0.0"), release_item("10.0.0.2")).writes
    assert isinstance(blocks, Update)
    assert isinstance(changed, Update)
    assert isinstance(gone, Delete)
    assert [write.key for write in (blocks, changed, gone)] == [
        block_key(Prefix.parse(BLOCK_0)), handle_key("h1"), handle_key("h2"),
    ]  # fmt: skip


def test_what_a_newer_release_stored_beside_them_stays(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(2))
    block, handle = bench.block(BLOCK_0), bench.get(handle_key("h1"))
    bench.put(block.key, evolve(block, unknown_json='{"x":1}'))
    bench.put(handle_key("h1"), evolve(handle, unknown_json='{"y":2}'))
    release_addresses_of(bench, release_item("10.0.0.0"))
    assert (bench.block(BLOCK_0).unknown_json, bench.get(handle_key("h1")).unknown_json) == ('{"x":1}', '{"y":2}')
