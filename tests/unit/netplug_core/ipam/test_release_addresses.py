"""Release address by address: which blocks are looked at, what an item must say, what is written."""

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.ipam.block import block_key
from netplug_core.ipam.handle import handle_key
from netplug_core.ipam.listing import PAGE
from netplug_core.ipam.refusals import HandleMismatch, SequenceMismatch
from netplug_core.ipam.release_addresses import decide_release_addresses, release_addresses_queries
from netplug_core.ipam.request import AddressesReleased, ReleaseItem
from netplug_core.records import Decision, Delete, Update
from netplug_core.resources.ippool import ippool_key
from tests.unit.netplug_core.ipam.bench import OTHER, Bench, ip, v4, v6
from tests.unit.netplug_core.ipam.release_bench import decided, give_back, item, sequence, texts

BLOCK_0, BLOCK_1 = "10.0.0.0/26", "10.0.0.64/26"


@pytest.fixture
def bench() -> Bench:
    """A cluster with one pool of four blocks."""
    made = Bench.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


def decision(bench: Bench, *items: ReleaseItem) -> Decision[AddressesReleased]:
    now_ns = bench.clock.now_ns()
    return decided(
        bench, release_addresses_queries(), lambda snapshot: decide_release_addresses(snapshot, items, now_ns)
    )


# --- what is freed ----------------------------------------------------------------------------------------------


def test_held_addresses_are_freed_and_the_others_stay(bench: Bench) -> None:
    bench.take("h1", v4(3))
    answer = give_back(bench, item("10.0.0.2"), item("10.0.0.0"))
    assert texts(answer.released) == ["10.0.0.0", "10.0.0.2"]
    assert (answer.free_already, answer.refused) == ((), ())
    assert bench.held() == {"10.0.0.1": "h1"}
    assert bench.counts("h1") == {BLOCK_0: 1}


@pytest.mark.parametrize("spelling", ["fd00::2", "fd00:0:0:0::2", "FD00::0002"])
def test_trap_1_an_address_named_twice_is_freed_and_counted_once(spelling: str) -> None:
    bench = Bench.new()
    bench.add_pool("six", "fd00::/120")
    bench.take("h1", v6(3))
    answer = give_back(bench, item("fd00::2"), item(spelling, "h1"), item(spelling))
    assert texts(answer.released) == ["fd00::2"]
    assert bench.counts("h1") == {"fd00::/122": 2}
    assert bench.block("fd00::/122").free.count(bench.block("fd00::/122").free[-1]) == 1


def test_trap_2_a_handle_loses_as_many_as_are_freed_and_goes_with_the_last(bench: Bench) -> None:
    bench.take("h1", v4(66))
    give_back(bench, *(item(f"10.0.0.{number}") for number in range(63)))
    assert bench.counts("h1") == {BLOCK_0: 1, BLOCK_1: 2}
    give_back(bench, item("10.0.0.63"), item("10.0.0.64"))
    assert bench.counts("h1") == {BLOCK_1: 1}
    give_back(bench, item("10.0.0.65"))
    assert bench.handles() == []


def test_trap_30_the_handle_is_put_right_in_the_commit_that_frees(bench: Bench) -> None:
    bench.take("h1", v4(2))
    bench.leave_handle("h1", b0=9)
    bench.spent()
    give_back(bench, item("10.0.0.1"))
    assert bench.spent() == (3, 1)
    assert bench.counts("h1") == {BLOCK_0: 1}


def test_addresses_of_many_handles_go_together(bench: Bench) -> None:
    bench.take("h1", v4(2))
    bench.take("h2", v4(2))
    bench.take(None)
    give_back(bench, item("10.0.0.0"), item("10.0.0.1"), item("10.0.0.2"), item("10.0.0.4"))
    assert bench.held() == {"10.0.0.3": "h2"}
    assert bench.handles() == ["h2"]


def test_handles_of_several_blocks_are_counted_anew_in_all_that_change(bench: Bench) -> None:
    bench.take("h1", v4(63))
    bench.take("h2", v4(3))
    bench.leave_handle("h1", b0=63, b1=5, b3=1)
    give_back(bench, item("10.0.0.0"), item("10.0.0.64"))
    assert bench.counts("h1") == {BLOCK_0: 62, "10.0.0.192/26": 1}  # the last block was not looked at
    assert bench.counts("h2") == {BLOCK_0: 1, BLOCK_1: 1}


def test_the_handle_of_an_address_may_be_missing(bench: Bench) -> None:
    bench.take("h1")
    bench.remove(handle_key("h1"))
    assert texts(give_back(bench, item("10.0.0.0")).released) == ["10.0.0.0"]
    assert (bench.held(), bench.handles()) == ({}, [])


def test_a_handle_that_is_missing_does_not_keep_another_from_being_put_right(bench: Bench) -> None:
    bench.take("h1")
    bench.take("h2")
    bench.remove(handle_key("h1"))
    give_back(bench, item("10.0.0.0"), item("10.0.0.1"))
    assert bench.handles() == []


def test_a_block_of_nobody_goes_with_its_last_address(bench: Bench) -> None:
    bench.take("h1", v4(2))
    block = bench.block(BLOCK_0)
    bench.put(block.key, block.relinquished())
    give_back(bench, item("10.0.0.0"))
    assert bench.blocks() == {BLOCK_0: ""}
    give_back(bench, item("10.0.0.1"))
    assert bench.blocks() == {}


def test_with_a_cooldown_addresses_rest_and_their_handle_goes(bench: Bench) -> None:
    bench.configure(cooldown_s=60)
    bench.take("h1")
    assert texts(give_back(bench, item("10.0.0.0")).released) == ["10.0.0.0"]
    assert bench.block(BLOCK_0).cooling_count == 1
    assert bench.handles() == []


def test_trap_46_freed_addresses_queue_in_their_own_order_whatever_the_order_of_the_request(bench: Bench) -> None:
    bench.take("h1", v4(4))
    give_back(bench, item("10.0.0.3"), item("10.0.0.0"), item("10.0.0.2"))
    assert bench.block(BLOCK_0).free[-3:] == (0, 2, 3)


# --- what is free already ---------------------------------------------------------------------------------------


def test_a_free_address_is_no_error_and_nothing_is_written(bench: Bench) -> None:
    bench.take("h1")
    bench.spent()
    answer = give_back(bench, item("10.0.0.1"), item("10.0.0.200"), item("11.0.0.1"), item("fd00::1"))
    assert texts(answer.free_already) == ["10.0.0.1", "10.0.0.200", "11.0.0.1", "fd00::1"]
    assert (answer.released, answer.refused) == ((), ())
    assert bench.spent()[1] == 0


def test_an_address_that_is_in_no_block_does_not_keep_others_from_being_freed(bench: Bench) -> None:
    bench.take("h1")
    answer = give_back(bench, item("9.0.0.1"), item("10.0.0.0"))
    assert (texts(answer.free_already), texts(answer.released)) == (["9.0.0.1"], ["10.0.0.0"])


@pytest.mark.parametrize("cooldown_s", [0, 60])
def test_trap_40_an_address_that_is_free_by_now_is_done_whatever_the_item_says(bench: Bench, cooldown_s: int) -> None:
    bench.configure(cooldown_s=cooldown_s)
    bench.take("h1", v4(2))
    taken = item("10.0.0.0", "h1", sequence(bench, "10.0.0.0", BLOCK_0))
    give_back(bench, taken)
    bench.spent()
    answer = give_back(bench, taken, taken, item("10.0.0.0", "other", 7))
    assert texts(answer.free_already) == ["10.0.0.0"]
    assert answer.refused == ()
    assert bench.spent()[1] == 0
    # A batch that is tried again after a lost reply frees what the first try had not come to.
    answer = give_back(bench, taken, item("10.0.0.1", "h1", sequence(bench, "10.0.0.1", BLOCK_0)))
    assert (texts(answer.released), texts(answer.free_already)) == (["10.0.0.1"], ["10.0.0.0"])


def test_nothing_asked_is_nothing_done(bench: Bench) -> None:
    assert give_back(bench) == AddressesReleased()
    assert decision(bench).writes == ()


# --- what an item must say --------------------------------------------------------------------------------------


def test_an_item_that_describes_its_address_frees_it(bench: Bench) -> None:
    bench.take("h1")
    answer = give_back(bench, item("10.0.0.0", "h1", sequence(bench, "10.0.0.0", BLOCK_0)))
    assert texts(answer.released) == ["10.0.0.0"]


def test_a_stale_number_is_refused_and_says_both(bench: Bench) -> None:
    bench.take("h1")
    number = sequence(bench, "10.0.0.0", BLOCK_0)
    before = bench.block(BLOCK_0)
    (refusal,) = give_back(bench, item("10.0.0.0", "h1", number - 1)).refused
    assert isinstance(refusal, SequenceMismatch)
    assert (refusal.requested, refusal.expected) == (number - 1, number)
    assert (refusal.code, refusal.identifier) == (117, "sequence-mismatch")
    assert str(refusal) == f"10.0.0.0 is not released: bad sequence number {number - 1}, expected {number}"
    assert bench.block(BLOCK_0) == before


@pytest.mark.parametrize("holder", ["h1", None])
def test_another_handle_is_refused_and_says_both(bench: Bench, holder: str | None) -> None:
    bench.take(holder)
    (refusal,) = give_back(bench, item("10.0.0.0", "fake")).refused
    assert isinstance(refusal, HandleMismatch)
    assert (refusal.requested, refusal.expected) == ("fake", holder)
    assert (refusal.code, refusal.identifier) == (118, "handle-mismatch")
    assert str(refusal) == f"10.0.0.0 is not released: bad handle 'fake', expected {holder!r}"
    assert bench.held() == {"10.0.0.0": holder}


def test_the_number_is_judged_before_the_handle(bench: Bench) -> None:
    bench.take("h1")
    (refusal,) = give_back(bench, item("10.0.0.0", "fake", 1)).refused
    assert isinstance(refusal, SequenceMismatch)


def test_refusals_of_one_address_are_in_the_order_of_what_its_items_say(bench: Bench) -> None:
    bench.take("h1")
    described = (item("10.0.0.0", "B"), item("10.0.0.0", sequence=2), item("10.0.0.0"), item("10.0.0.0", sequence=1))
    said = [str(refusal) for refusal in give_back(bench, *described).refused]
    assert [text.split(",")[0].partition("bad ")[2] for text in said] == [
        "sequence number 1", "sequence number 2", "handle 'B'",
    ]  # fmt: skip


def test_one_item_that_does_not_fit_keeps_its_whole_block_and_no_other(bench: Bench) -> None:
    bench.take("h1", v4(65))
    answer = give_back(
        bench, item("10.0.0.0"), item("10.0.0.1", "fake"), item("10.0.0.2", sequence=1), item("10.0.0.64")
    )
    assert texts(answer.released) == ["10.0.0.64"]
    assert [str(refusal) for refusal in answer.refused] == [
        "10.0.0.1 is not released: bad handle 'fake', expected 'h1'",
        f"10.0.0.2 is not released: bad sequence number 1, expected {sequence(bench, '10.0.0.2', BLOCK_0)}",
    ]
    assert bench.counts("h1") == {BLOCK_0: 64}


# --- where a block is found -------------------------------------------------------------------------------------


def test_trap_17_a_disabled_pool_leads_to_its_blocks(bench: Bench) -> None:
    bench.take("h1")
    bench.disable_pool("main")
    bench.spent()
    assert texts(give_back(bench, item("10.0.0.0")).released) == ["10.0.0.0"]
    assert bench.spent() == (3, 1)  # pools, block, handle


def test_trap_17_without_a_pool_all_blocks_are_searched(bench: Bench) -> None:
    bench.take("h1", v4(65))
    bench.remove(ippool_key("main"))
    answer = give_back(bench, item("10.0.0.64"), item("10.0.0.0"), item("10.0.0.200"))
    assert texts(answer.released) == ["10.0.0.0", "10.0.0.64"]
    assert texts(answer.free_already) == ["10.0.0.200"]


def test_the_search_goes_on_to_the_last_page(bench: Bench) -> None:
    bench.add_pool("narrow", "11.0.0.0/20", 32)
    bench.take("h1", ip("11.0.15.255"))
    for number in range(PAGE):
        bench.leave_block(f"11.0.{number // 256}.{number % 256}/32", node=OTHER)
    bench.remove(ippool_key("narrow"))
    bench.spent()
    assert texts(give_back(bench, item("11.0.15.255")).released) == ["11.0.15.255"]
    assert bench.spent() == (4, 1)  # pools, two pages, handle


def test_only_the_family_of_a_lost_address_is_searched(bench: Bench) -> None:
    bench.add_pool("six", "fd00::/120")
    bench.take("h1", v4(), v6())
    bench.remove(ippool_key("six"))
    bench.spent()
    assert texts(give_back(bench, item("10.0.0.0"), item("fd00::")).released) == ["10.0.0.0", "fd00::"]
    assert bench.spent() == (4, 1)  # pools, the block of the pool, the other family's blocks, handle


def test_of_two_pools_over_an_address_the_one_that_has_the_block_counts(bench: Bench) -> None:
    bench.add_pool("early", "10.0.0.0/25", 28)
    bench.take("h1", v4(1, "main"))
    assert texts(give_back(bench, item("10.0.0.0")).released) == ["10.0.0.0"]


# --- the commit -------------------------------------------------------------------------------------------------


def test_the_commit_frees_addresses_before_it_changes_handles(bench: Bench) -> None:
    bench.take("h1", v4(2))
    bench.take("h2")
    blocks, changed, gone = decision(bench, item("10.0.0.0"), item("10.0.0.2")).writes
    assert isinstance(blocks, Update)
    assert isinstance(changed, Update)
    assert isinstance(gone, Delete)
    assert [write.key for write in (blocks, changed, gone)] == [
        block_key(Prefix.parse(BLOCK_0)), handle_key("h1"), handle_key("h2"),
    ]  # fmt: skip


def test_what_a_newer_release_stored_beside_them_stays(bench: Bench) -> None:
    bench.take("h1", v4(2))
    block, handle = bench.block(BLOCK_0), bench.get(handle_key("h1"))
    bench.put(block.key, evolve(block, carried='{"x":1}'))
    bench.put(handle_key("h1"), evolve(handle, carried='{"y":2}'))
    give_back(bench, item("10.0.0.0"))
    assert (bench.block(BLOCK_0).carried, bench.get(handle_key("h1")).carried) == ('{"x":1}', '{"y":2}')
