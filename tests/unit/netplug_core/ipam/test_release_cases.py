"""Given, when, then: releases, sequence numbers, claims and crashes, with the very addresses and texts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address, Prefix
from netplug_core.flows.ipam.addresses import find_holder
from netplug_core.flows.ipam.affinities import claim, relinquish_block, relinquish_node, relinquish_pool
from netplug_core.flows.resources.overview import read_utilization
from netplug_core.ipam.allocation.claim import ClaimResult
from netplug_core.ipam.allocation.relinquish import Emptiness, RelinquishResult
from netplug_core.ipam.allocation.request import AddressesReleased, ReleaseRequest
from netplug_core.ipam.model.affinity import host_owner
from netplug_core.ipam.model.block import Attribute, Block
from netplug_core.ipam.outcome.refusals import AddressCooling, AddressWrongUse, SequenceMismatch
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.resources.ippool import AllowedUse, ippool_key
from netplug_core.testing.faults import FaultyDatastore, ProcessDeath, ProcessDied
from tests.harness.ipam import NODE, IPAMHarness, ipv4, ipv6, make_request, specific
from tests.harness.ipam_release import release_addresses_of, release_item, sequence_of, texts

IF_EMPTY, ANYHOW = Emptiness.REQUIRED, Emptiness.NOT_REQUIRED


def cluster(cidr: str = "10.0.0.0/24", block_length: int = 0, mode: MemoryMode = MemoryMode.ATOMIC) -> IPAMHarness:
    """A cluster with one pool."""
    bench = IPAMHarness.new(mode)
    bench.add_pool("main", cidr, block_length)
    return bench


# --- one address ------------------------------------------------------------------------------------------------


def test_i_49_the_use_of_a_specific_address_is_judged_where_one_is_stated() -> None:
    bench = cluster()
    bench.change_pool("main", allowed_uses=(AllowedUse.TUNNEL,))
    with pytest.raises(AddressWrongUse) as caught:
        bench.assign_or_refuse("h", specific("10.0.0.1"))
    assert str(caught.value) == (
        'IP address 10.0.0.1 is in IP pool "main", which is not allowed for use "Workload" (allowedUses: [Tunnel])'
    )
    assert bench.assign(evolve(make_request("h", specific("10.0.0.1")), use=None)) == ["10.0.0.1"]
    bench.change_pool("main", allowed_uses=(AllowedUse.WORKLOAD, AllowedUse.TUNNEL))
    assert bench.assign(evolve(make_request("t", specific("10.0.0.2")), use=AllowedUse.TUNNEL)) == ["10.0.0.2"]


# --- release and sequence numbers -------------------------------------------------------------------------------


def hand_made() -> IPAMHarness:
    """A block with sequence number 0, in which 192.168.0.1 was assigned."""
    bench = cluster("192.168.0.0/24")
    block = Block.new(Prefix.parse("192.168.0.0/26"), owner=host_owner(NODE), now_ns=0)
    bench.put(block.key, block.assign(block.free[1:2], Attribute(handle="myhandle")))
    return bench


@pytest.mark.parametrize("number, handle", [(0, None), (None, None), (None, "myhandle"), (0, "myhandle")])
def test_i_50_an_address_is_released_by_what_describes_it(number: int | None, handle: str | None) -> None:
    bench = hand_made()
    answer = release_addresses_of(bench, release_item("192.168.0.1", handle, number))
    assert answer == AddressesReleased(released=(Address.parse("192.168.0.1"),))
    assert bench.held() == {}


@pytest.mark.parametrize(
    "number, handle, text",
    [
        (1, None, "192.168.0.1 is not released: bad sequence number 1, expected 0"),
        (None, "fakehandle", "192.168.0.1 is not released: bad handle 'fakehandle', expected 'myhandle'"),
    ],
)
def test_i_50_and_not_by_what_does_not(number: int | None, handle: str | None, text: str) -> None:
    bench = hand_made()
    answer = release_addresses_of(bench, release_item("192.168.0.1", handle, number))
    assert [str(refusal) for refusal in answer.refused] == [text]
    assert bench.held() == {"192.168.0.1": "myhandle"}


def test_i_51_a_number_goes_stale_with_the_release_that_ends_it() -> None:
    bench = cluster("10.0.0.0/24", 30)
    number: int | None = None
    for _round in range(10):
        (address,) = bench.assign_or_refuse("h")
        taken = sequence_of(bench, address, "10.0.0.0/30")
        assert number in (None, taken)  # each round starts four above the one before
        assert bench.release("h") == [address]
        assert bench.assign_or_refuse("h", specific(address)) == [address]
        answer = release_addresses_of(bench, release_item(address, "h", taken))
        assert (answer.released, answer.free_already) == ((), ())
        assert [str(refusal) for refusal in answer.refused] == [
            f"{address} is not released: bad sequence number {taken}, expected {taken + 2}"
        ]
        assert sequence_of(bench, address, "10.0.0.0/30") == taken + 2
        assert texts(release_addresses_of(bench, release_item(address, "h", taken + 2)).released) == [address]
        number = taken + 4
    assert (bench.held(), bench.handles()) == ({}, [])


def test_i_52_a_block_that_was_made_anew_does_not_know_the_old_numbers() -> None:
    bench = cluster("10.0.0.0/24", 30)
    for _round in range(10):
        (address,) = bench.assign_or_refuse("h")
        taken = sequence_of(bench, address, "10.0.0.0/30")
        bench.release("h")
        relinquish_node(bench.store, NODE, IF_EMPTY, pace=bench.pace)
        assert bench.blocks() == {}
        bench.clock.sleep(0.001)
        assert bench.assign_or_refuse("h", specific(address)) == [address]
        (refusal,) = release_addresses_of(bench, release_item(address, "h", taken)).refused
        assert isinstance(refusal, SequenceMismatch)
        assert refusal.expected > taken
        bench.release("h")


def test_i_54_addresses_of_two_blocks_are_released_in_one_call() -> None:
    bench = cluster()
    held = bench.assign_or_refuse("h", ipv4(66))
    answer = release_addresses_of(bench, *map(release_item, held))
    assert (len(answer.released), answer.free_already, answer.refused) == (66, (), ())
    assert (bench.held(), bench.handles()) == ({}, [])


def test_i_55_a_hundred_addresses_of_four_nodes_are_released_though_their_pool_is_disabled() -> None:
    bench = cluster("10.0.0.0/24", 30)
    bench.add_pool("late", "11.0.0.0/24", 30)
    bench.add_pool("six", "fd00::/112", 120)
    for name, zone in (("main", "early"), ("late", "late")):
        bench.change_pool(name, node_selector=f"zone == '{zone}'")
    held: list[str] = []
    for number, zone in enumerate(("early", "early", "late", "late"), start=1):
        node = f"node{number}"
        bench.label_node(node, zone=zone)
        for pod in range(6):
            held.extend(bench.assign_or_refuse(f"{node}-{pod}", ipv4(), ipv6(), node=node))
        for pod in range(6, 19):
            held.extend(bench.assign_or_refuse(f"{node}-{pod}", node=node))
    assert len(set(held)) == 100
    assert sum(address.startswith("11.0.0.") for address in held) == 38
    bench.disable_pool("late")
    assert len(release_addresses_of(bench, *map(release_item, held)).released) == 100
    assert (bench.held(), bench.handles()) == ({}, [])


def test_i_56_an_address_released_twice_in_one_request_is_free_once() -> None:
    bench = cluster("10.0.0.0/26")
    assert len(bench.assign_or_refuse("h", ipv4(64))) == 64
    assert texts(release_addresses_of(bench, release_item("10.0.0.1"), release_item("10.0.0.1")).released) == [
        "10.0.0.1"
    ]
    assert bench.assign_or_refuse(None, specific("10.0.0.1")) == ["10.0.0.1"]
    holder = find_holder(bench.store, Address.parse("10.0.0.1"), pace=bench.pace)
    assert holder.allocation is not None
    assert holder.allocation.attribute.handle is None
    assert bench.assign_up_to("h2") == []


def test_i_57_an_address_that_rests_is_nobodys_and_cannot_be_had_until_it_has_rested() -> None:
    bench = cluster("10.0.0.0/26")
    bench.configure(cooldown_s=60)
    assert bench.assign_or_refuse("h") == ["10.0.0.0"]

    def in_use() -> int:
        (usage,) = read_utilization(bench.store, deadline=bench.deadline)
        return usage.in_use

    before = in_use()
    assert texts(release_addresses_of(bench, release_item("10.0.0.0")).released) == ["10.0.0.0"]
    assert in_use() == before
    assert bench.assign_up_to("full", ipv4(64)) == [f"10.0.0.{number}" for number in range(1, 64)]
    assert texts(release_addresses_of(bench, release_item("10.0.0.0")).free_already) == ["10.0.0.0"]
    assert find_holder(bench.store, Address.parse("10.0.0.0"), pace=bench.pace).is_cooling
    with pytest.raises(AddressCooling, match="it was released less than 60 s ago and cools down"):
        bench.assign_or_refuse("again", specific("10.0.0.0"))
    bench.clock.sleep(61)
    assert bench.assign_or_refuse("again") == ["10.0.0.0"]


# --- affinities -------------------------------------------------------------------------------------------------


def claim_all(harness: IPAMHarness, node: str) -> tuple[int, int]:
    """How many blocks of the pool a node has then, and how many it has not."""
    result: ClaimResult = claim(harness.store, host_owner(node), Prefix.parse("10.0.0.0/24"), pace=harness.pace)
    return len(result.claimed), len(result.failed)


def test_i_59_a_range_is_claimed_but_for_what_others_have() -> None:
    bench = cluster()
    bench.assign_or_refuse("h", specific("10.0.0.1"), node="host-a")
    assert claim_all(bench, "host-b") == (3, 1)
    empty = cluster()
    assert claim_all(empty, "host-a") == (4, 0)
    assert claim_all(empty, "host-b") == (0, 4)


def give_up_by_node(harness: IPAMHarness) -> RelinquishResult:
    return relinquish_node(harness.store, NODE, IF_EMPTY, pace=harness.pace)


def give_up_by_block(harness: IPAMHarness) -> RelinquishResult:
    return relinquish_block(harness.store, Prefix.parse("10.0.0.0/26"), IF_EMPTY, pace=harness.pace)


@pytest.mark.parametrize("give_up", [give_up_by_node, give_up_by_block])
def test_i_60_a_block_that_must_be_empty_goes_when_it_is(give_up: Callable[[IPAMHarness], RelinquishResult]) -> None:
    bench = cluster()
    bench.assign_or_refuse("h")
    assert [str(refusal) for refusal in give_up(bench).refused] == [
        "block 10.0.0.0/26 of host:node-a is not given up: it is not empty (1 addresses held)"
    ]
    assert bench.blocks() == {"10.0.0.0/26": "host:node-a"}
    bench.release("h")
    assert give_up(bench).refused == ()
    assert (bench.blocks(), bench.affinities()) == ({}, {})


def test_i_61_a_node_gives_up_its_empty_blocks_and_keeps_the_one_in_use() -> None:
    bench = cluster("10.0.0.0/24", 30)
    assert len(bench.assign_or_refuse("h", ipv4(12))) == 12
    bench.release("h")
    assert len(bench.blocks()) == 3
    bench.assign_or_refuse("h2")
    assert len(give_up_by_node(bench).refused) == 1
    assert bench.blocks() == {"10.0.0.0/30": host_owner(NODE)}


def test_i_62_blocks_whose_pool_is_gone_are_given_up_and_go_with_their_last_address() -> None:
    bench = cluster("10.0.0.0/24", 30)
    bench.assign_or_refuse("h", ipv4(12))
    bench.remove(ippool_key("main"))
    assert len(relinquish_node(bench.store, NODE, ANYHOW, pace=bench.pace).relinquished) == 3
    assert bench.affinities() == {}
    assert bench.blocks() == {"10.0.0.0/30": "", "10.0.0.4/30": "", "10.0.0.8/30": ""}
    assert len(bench.release("h")) == 12
    assert bench.blocks() == {}


def test_i_64_removing_a_node_that_nobody_knows_is_success() -> None:
    bench = cluster()
    bench.assign_or_refuse("h")
    assert relinquish_node(bench.store, "unknown", ANYHOW, pace=bench.pace) == RelinquishResult()
    assert bench.affinities() == {(NODE, "10.0.0.0/26"): "confirmed"}


# --- crashes ----------------------------------------------------------------------------------------------------


def killed(harness: IPAMHarness, applied: int) -> FaultyDatastore:
    """The store, for a process that dies after so many writes."""
    return FaultyDatastore(harness.store, {1: ProcessDeath(applied)})


@pytest.mark.parametrize("by_pool", ["node", "pool"])
def test_i_84_and_trap_44_a_claim_whose_block_was_deleted_is_deleted_by_the_next_release(by_pool: str) -> None:
    bench = cluster(mode=MemoryMode.ORDERED)
    bench.put_owned_block("10.0.0.0/26")
    with pytest.raises(ProcessDied):
        relinquish_node(killed(bench, 2), NODE, IF_EMPTY, pace=bench.pace)
    assert (bench.blocks(), bench.affinities()) == ({}, {(NODE, "10.0.0.0/26"): "pendingDeletion"})
    if by_pool == "pool":
        relinquish_pool(bench.store, Prefix.parse("10.0.0.0/24"), IF_EMPTY, pace=bench.pace)
    else:
        relinquish_node(bench.store, NODE, IF_EMPTY, pace=bench.pace)
    assert bench.affinities() == {}


def unaffine(mode: MemoryMode = MemoryMode.ORDERED) -> IPAMHarness:
    """A release of a block in use was cut when the block had lost its owner."""
    bench = cluster(mode=mode)
    bench.assign_or_refuse("old")
    with pytest.raises(ProcessDied):
        relinquish_node(killed(bench, 2), NODE, ANYHOW, pace=bench.pace)
    assert bench.blocks() == {"10.0.0.0/26": ""}
    assert bench.affinities() == {(NODE, "10.0.0.0/26"): "pendingDeletion"}
    return bench


def test_i_85_a_node_that_lost_its_block_claims_another_and_leaves_no_stale_claim() -> None:
    bench = unaffine()
    assert bench.assign_or_refuse("new") == ["10.0.0.64"]
    assert bench.blocks() == {"10.0.0.0/26": "", "10.0.0.64/26": host_owner(NODE)}
    assert bench.affinities() == {(NODE, "10.0.0.64/26"): "confirmed"}
    assert bench.held() == {"10.0.0.0": "old", "10.0.0.64": "new"}


def test_i_85_releasing_again_ends_it() -> None:
    bench = unaffine()
    assert len(relinquish_node(bench.store, NODE, ANYHOW, pace=bench.pace).relinquished) == 1
    assert bench.affinities() == {}
    assert bench.held() == {"10.0.0.0": "old"}
    bench.release("old")
    assert bench.blocks() == {}


def test_i_86_a_claim_that_was_cut_behind_its_block_is_confirmed_by_the_next_request() -> None:
    bench = cluster(mode=MemoryMode.ORDERED)
    writes = bench.decision(make_request("h")).writes
    made = next(index for index, write in enumerate(writes) if "IPAMBlock" in str(getattr(write, "key", "")))
    with pytest.raises(ProcessDied):
        bench.assign(make_request("h"), {1: ProcessDeath(made + 1)})
    assert bench.affinities() == {(NODE, "10.0.0.0/26"): "pending"}
    before = bench.block("10.0.0.0/26").sequence
    assert bench.assign_or_refuse("h2") == ["10.0.0.0"]
    assert bench.blocks() == {"10.0.0.0/26": host_owner(NODE)}
    assert bench.affinities() == {(NODE, "10.0.0.0/26"): "confirmed"}
    assert sequence_of(bench, "10.0.0.0", "10.0.0.0/26") == before + 1  # one more for the block being stored again


@pytest.mark.parametrize("number", [None, 7])
def test_i_87_a_handle_that_was_cut_off_from_its_block_goes_and_frees_nothing(number: int | None) -> None:
    bench = cluster(mode=MemoryMode.ORDERED)
    bench.assign_or_refuse("other")
    writes = bench.decision(make_request("h")).writes
    made = next(index for index, write in enumerate(writes) if "IPAMHandle" in str(getattr(write, "key", "")))
    with pytest.raises(ProcessDied):
        bench.assign(make_request("h"), {1: ProcessDeath(made + 1)})
    assert bench.handles() == ["h", "other"]
    gone = bench.ipam().release(ReleaseRequest(handle="h", sequence=number), NO_ENDPOINT, deadline=bench.deadline)
    assert gone.addresses == ()
    assert bench.handles() == ["other"]
    assert bench.held() == {"10.0.0.0": "other"}
