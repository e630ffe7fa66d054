"""Releases by address: which blocks are read, what an item may name, what is written."""

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.ipam.allocation.release import decide_release_addresses, release_addresses_queries
from netplug_core.ipam.allocation.request import AddressesReleased, ReleaseItem
from netplug_core.ipam.model import block_key, handle_key
from netplug_core.ipam.outcome import HandleMismatch, SequenceMismatch
from netplug_core.records import PAGE_SIZE, Decision, Delete, Update
from netplug_core.resources.ippool import ippool_key
from tests.harness.ipam import OTHER_NODE, IPAMHarness, ipv4, ipv6, specific
from tests.harness.ipam_release import decide_without_commit, release_addresses_of, release_item, sequence_of, texts

BLOCK_0, BLOCK_1 = "10.0.0.0/26", "10.0.0.64/26"


@pytest.fixture
def harness() -> IPAMHarness:
    """A cluster with one pool of four blocks."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24")
    return harness


def decision(harness: IPAMHarness, *items: ReleaseItem) -> Decision[AddressesReleased]:
    now_ns = harness.clock.now_ns()
    return decide_without_commit(
        harness, release_addresses_queries(), lambda snapshot: decide_release_addresses(snapshot, items, now_ns)
    )


# --- what is freed ----------------------------------------------------------------------------------------------


def test_only_the_named_addresses_are_released(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(3))
    answer = release_addresses_of(harness, release_item("10.0.0.2"), release_item("10.0.0.0"))
    assert texts(answer.released) == ["10.0.0.0", "10.0.0.2"]
    assert (answer.free_already, answer.refused) == ((), ())
    assert harness.held() == {"10.0.0.1": "h1"}
    assert harness.handle_counts("h1") == {BLOCK_0: 1}


@pytest.mark.parametrize("spelling", ["fd00::2", "fd00:0:0:0::2", "FD00::0002"])
def test_trap_1_a_repeated_address_is_released_and_counted_once(spelling: str) -> None:
    harness = IPAMHarness.new()
    harness.add_pool("six", "fd00::/120")
    harness.assign_or_refuse("h1", ipv6(3))
    answer = release_addresses_of(
        harness, release_item("fd00::2"), release_item(spelling, "h1"), release_item(spelling)
    )
    assert texts(answer.released) == ["fd00::2"]
    assert harness.handle_counts("h1") == {"fd00::/122": 2}
    assert harness.block("fd00::/122").free.count(harness.block("fd00::/122").free[-1]) == 1


def test_trap_2_a_handle_counts_what_remains_and_is_deleted_with_its_last_address(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(66))
    release_addresses_of(harness, *(release_item(f"10.0.0.{number}") for number in range(63)))
    assert harness.handle_counts("h1") == {BLOCK_0: 1, BLOCK_1: 2}
    release_addresses_of(harness, release_item("10.0.0.63"), release_item("10.0.0.64"))
    assert harness.handle_counts("h1") == {BLOCK_1: 1}
    release_addresses_of(harness, release_item("10.0.0.65"))
    assert harness.handles() == []


def test_trap_30_the_handle_is_corrected_in_the_commit_of_the_release(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(2))
    harness.put_handle("h1", b0=9)
    harness.take_call_counts()
    release_addresses_of(harness, release_item("10.0.0.1"))
    assert harness.take_call_counts() == (3, 1)
    assert harness.handle_counts("h1") == {BLOCK_0: 1}


def test_addresses_of_many_handles_are_released_together(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(2))
    harness.assign_or_refuse("h2", ipv4(2))
    harness.assign_or_refuse(None)
    release_addresses_of(
        harness, release_item("10.0.0.0"), release_item("10.0.0.1"), release_item("10.0.0.2"), release_item("10.0.0.4")
    )
    assert harness.held() == {"10.0.0.3": "h2"}
    assert harness.handles() == ["h2"]


def test_the_counts_of_all_changed_blocks_are_corrected(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(63))
    harness.assign_or_refuse("h2", ipv4(3))
    harness.put_handle("h1", b0=63, b1=5, b3=1)
    release_addresses_of(harness, release_item("10.0.0.0"), release_item("10.0.0.64"))
    assert harness.handle_counts("h1") == {BLOCK_0: 62, "10.0.0.192/26": 1}  # the last block was not read
    assert harness.handle_counts("h2") == {BLOCK_0: 1, BLOCK_1: 1}


def test_the_handle_of_an_address_may_be_missing(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.remove(handle_key("h1"))
    assert texts(release_addresses_of(harness, release_item("10.0.0.0")).released) == ["10.0.0.0"]
    assert (harness.held(), harness.handles()) == ({}, [])


def test_a_missing_handle_does_not_affect_other_handles(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.assign_or_refuse("h2")
    harness.remove(handle_key("h1"))
    release_addresses_of(harness, release_item("10.0.0.0"), release_item("10.0.0.1"))
    assert harness.handles() == []


def test_a_block_without_an_owner_is_deleted_with_its_last_address(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(2))
    block = harness.block(BLOCK_0)
    harness.put(block.key, block.relinquished())
    release_addresses_of(harness, release_item("10.0.0.0"))
    assert harness.blocks() == {BLOCK_0: ""}
    release_addresses_of(harness, release_item("10.0.0.1"))
    assert harness.blocks() == {}


def test_with_a_cooldown_addresses_are_cooling_and_their_handle_is_deleted(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=60)
    harness.assign_or_refuse("h1")
    assert texts(release_addresses_of(harness, release_item("10.0.0.0")).released) == ["10.0.0.0"]
    assert harness.block(BLOCK_0).cooling_count == 1
    assert harness.handles() == []


def test_trap_46_released_addresses_are_queued_by_ordinal(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(4))
    release_addresses_of(harness, release_item("10.0.0.3"), release_item("10.0.0.0"), release_item("10.0.0.2"))
    assert harness.block(BLOCK_0).free[-3:] == (0, 2, 3)


# --- what is free already ---------------------------------------------------------------------------------------


def test_for_a_free_address_nothing_is_written(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.take_call_counts()
    answer = release_addresses_of(
        harness, release_item("10.0.0.1"), release_item("10.0.0.200"), release_item("11.0.0.1"), release_item("fd00::1")
    )
    assert texts(answer.free_already) == ["10.0.0.1", "10.0.0.200", "11.0.0.1", "fd00::1"]
    assert (answer.released, answer.refused) == ((), ())
    assert harness.take_call_counts()[1] == 0


def test_an_address_without_a_block_does_not_affect_others(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    answer = release_addresses_of(harness, release_item("9.0.0.1"), release_item("10.0.0.0"))
    assert (texts(answer.free_already), texts(answer.released)) == (["9.0.0.1"], ["10.0.0.0"])


@pytest.mark.parametrize("cooldown_s", [0, 60])
def test_trap_40_a_free_address_counts_as_done_whatever_the_item_names(harness: IPAMHarness, cooldown_s: int) -> None:
    harness.configure(cooldown_s=cooldown_s)
    harness.assign_or_refuse("h1", ipv4(2))
    taken = release_item("10.0.0.0", "h1", sequence_of(harness, "10.0.0.0", BLOCK_0))
    release_addresses_of(harness, taken)
    harness.take_call_counts()
    answer = release_addresses_of(harness, taken, taken, release_item("10.0.0.0", "other", 7))
    assert texts(answer.free_already) == ["10.0.0.0"]
    assert answer.refused == ()
    assert harness.take_call_counts()[1] == 0
    # A batch that is repeated after a lost reply releases the rest.
    answer = release_addresses_of(
        harness, taken, release_item("10.0.0.1", "h1", sequence_of(harness, "10.0.0.1", BLOCK_0))
    )
    assert (texts(answer.released), texts(answer.free_already)) == (["10.0.0.1"], ["10.0.0.0"])


def test_without_items_nothing_is_done(harness: IPAMHarness) -> None:
    assert release_addresses_of(harness) == AddressesReleased()
    assert decision(harness).writes == ()


# --- what an item must say --------------------------------------------------------------------------------------


def test_an_address_whose_item_matches_is_released(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    answer = release_addresses_of(harness, release_item("10.0.0.0", "h1", sequence_of(harness, "10.0.0.0", BLOCK_0)))
    assert texts(answer.released) == ["10.0.0.0"]


def test_a_wrong_sequence_number_is_refused_with_both_numbers(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    number = sequence_of(harness, "10.0.0.0", BLOCK_0)
    before = harness.block(BLOCK_0)
    (refusal,) = release_addresses_of(harness, release_item("10.0.0.0", "h1", number - 1)).refused
    assert isinstance(refusal, SequenceMismatch)
    assert (refusal.requested, refusal.expected) == (number - 1, number)
    assert (refusal.code, refusal.identifier) == (117, "sequence-mismatch")
    assert str(refusal) == f"10.0.0.0 is not released: bad sequence number {number - 1}, expected {number}"
    assert harness.block(BLOCK_0) == before


@pytest.mark.parametrize("holder", ["h1", None])
def test_a_wrong_handle_is_refused_with_both_handles(harness: IPAMHarness, holder: str | None) -> None:
    harness.assign_or_refuse(holder)
    (refusal,) = release_addresses_of(harness, release_item("10.0.0.0", "fake")).refused
    assert isinstance(refusal, HandleMismatch)
    assert (refusal.requested, refusal.expected) == ("fake", holder)
    assert (refusal.code, refusal.identifier) == (118, "handle-mismatch")
    assert str(refusal) == f"10.0.0.0 is not released: bad handle 'fake', expected {holder!r}"
    assert harness.held() == {"10.0.0.0": holder}


def test_the_sequence_number_is_checked_before_the_handle(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    (refusal,) = release_addresses_of(harness, release_item("10.0.0.0", "fake", 1)).refused
    assert isinstance(refusal, SequenceMismatch)


def test_refusals_of_one_address_are_ordered_by_handle_and_number(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    described = (
        release_item("10.0.0.0", "B"),
        release_item("10.0.0.0", sequence=2),
        release_item("10.0.0.0"),
        release_item("10.0.0.0", sequence=1),
    )
    said = [str(refusal) for refusal in release_addresses_of(harness, *described).refused]
    assert [text.split(",")[0].partition("bad ")[2] for text in said] == [
        "sequence number 1", "sequence number 2", "handle 'B'",
    ]  # fmt: skip


def test_an_item_that_does_not_match_keeps_its_block_and_no_other(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(65))
    answer = release_addresses_of(
        harness,
        release_item("10.0.0.0"),
        release_item("10.0.0.1", "fake"),
        release_item("10.0.0.2", sequence=1),
        release_item("10.0.0.64"),
    )
    assert texts(answer.released) == ["10.0.0.64"]
    assert [str(refusal) for refusal in answer.refused] == [
        "10.0.0.1 is not released: bad handle 'fake', expected 'h1'",
        f"10.0.0.2 is not released: bad sequence number 1, expected {sequence_of(harness, '10.0.0.2', BLOCK_0)}",
    ]
    assert harness.handle_counts("h1") == {BLOCK_0: 64}


# --- where a block is found -------------------------------------------------------------------------------------


def test_trap_17_a_disabled_pool_leads_to_its_blocks(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.disable_pool("main")
    harness.take_call_counts()
    assert texts(release_addresses_of(harness, release_item("10.0.0.0")).released) == ["10.0.0.0"]
    assert harness.take_call_counts() == (3, 1)  # pools, block, handle


def test_trap_17_without_a_pool_all_blocks_are_searched(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(65))
    harness.remove(ippool_key("main"))
    answer = release_addresses_of(
        harness, release_item("10.0.0.64"), release_item("10.0.0.0"), release_item("10.0.0.200")
    )
    assert texts(answer.released) == ["10.0.0.0", "10.0.0.64"]
    assert texts(answer.free_already) == ["10.0.0.200"]


def test_the_search_reads_all_pages(harness: IPAMHarness) -> None:
    harness.add_pool("narrow", "11.0.0.0/20", 32)
    harness.assign_or_refuse("h1", specific("11.0.15.255"))
    for number in range(PAGE_SIZE):
        harness.put_block(f"11.0.{number // 256}.{number % 256}/32", node=OTHER_NODE)
    harness.remove(ippool_key("narrow"))
    harness.take_call_counts()
    assert texts(release_addresses_of(harness, release_item("11.0.15.255")).released) == ["11.0.15.255"]
    assert harness.take_call_counts() == (4, 1)  # pools, two pages, handle


def test_only_blocks_of_the_family_of_the_address_are_searched(harness: IPAMHarness) -> None:
    harness.add_pool("six", "fd00::/120")
    harness.assign_or_refuse("h1", ipv4(), ipv6())
    harness.remove(ippool_key("six"))
    harness.take_call_counts()
    assert texts(release_addresses_of(harness, release_item("10.0.0.0"), release_item("fd00::")).released) == [
        "10.0.0.0",
        "fd00::",
    ]
    assert harness.take_call_counts() == (4, 1)  # pools, the block of the pool, the other family's blocks, handle


def test_of_two_pools_over_an_address_the_one_with_the_block_counts(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(1, "main"))
    harness.add_pool("early", "10.0.0.0/25", 28)
    assert texts(release_addresses_of(harness, release_item("10.0.0.0")).released) == ["10.0.0.0"]


@pytest.mark.parametrize("block_length", [24, 25, 28, 32])
def test_an_address_in_a_block_of_another_size_than_its_pool_has_now_is_released(
    harness: IPAMHarness, block_length: int
) -> None:
    harness.assign_or_refuse("h1", ipv4(3))
    harness.remove(ippool_key("main"))
    harness.add_pool("main", "10.0.0.0/24", block_length)
    answer = release_addresses_of(harness, release_item("10.0.0.0"), release_item("10.0.0.2", "h1"))
    assert texts(answer.released) == ["10.0.0.0", "10.0.0.2"]
    assert harness.held() == {"10.0.0.1": "h1"}
    assert harness.handle_counts("h1") == {BLOCK_0: 1}


# --- the commit -------------------------------------------------------------------------------------------------


def test_the_commit_writes_blocks_before_handles(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(2))
    harness.assign_or_refuse("h2")
    blocks, changed, gone = decision(harness, release_item("10.0.0.0"), release_item("10.0.0.2")).writes
    assert isinstance(blocks, Update)
    assert isinstance(changed, Update)
    assert isinstance(gone, Delete)
    assert [write.key for write in (blocks, changed, gone)] == [
        block_key(Prefix.parse(BLOCK_0)), handle_key("h1"), handle_key("h2"),
    ]  # fmt: skip


def test_unknown_members_of_records_are_kept(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(2))
    block, handle = harness.block(BLOCK_0), harness.get(handle_key("h1"))
    harness.put(block.key, evolve(block, unknown_json='{"x":1}'))
    harness.put(handle_key("h1"), evolve(handle, unknown_json='{"y":2}'))
    release_addresses_of(harness, release_item("10.0.0.0"))
    assert (harness.block(BLOCK_0).unknown_json, harness.get(handle_key("h1")).unknown_json) == ('{"x":1}', '{"y":2}')
