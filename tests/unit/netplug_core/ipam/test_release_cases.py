"""Given, when, then: releases, sequence numbers, claims and crashes, with the very addresses and texts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address, Prefix
from netplug_core.flows.ipam.addresses import find_holder
from netplug_core.flows.ipam.affinities import claim, relinquish_block, relinquish_node, relinquish_pool
from netplug_core.flows.resources.pools import read_utilization
from netplug_core.ipam.allocation.affinities import ClaimResult, Emptiness, RelinquishResult
from netplug_core.ipam.allocation.request import AddressesReleased, ReleaseRequest
from netplug_core.ipam.model import Attribute, Block, host_owner
from netplug_core.ipam.outcome import AddressCooling, AddressWrongUse, SequenceMismatch
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.resources.ippool import AllowedUse, ippool_key
from netplug_core.testing.faults import FaultyDatastore, ProcessDeath, ProcessDied
from tests.harness.ipam import NODE, IPAMHarness, ipv4, ipv6, make_request, specific
from tests.harness.ipam_release import release_addresses_of, release_item, sequence_of, texts

IF_EMPTY, ANYHOW = Emptiness.REQUIRED, Emptiness.NOT_REQUIRED


def cluster(cidr: str = "10.0.0.0/24", block_length: int = 0, mode: MemoryMode = MemoryMode.ATOMIC) -> IPAMHarness:
    """A cluster with one pool."""
    harness = IPAMHarness.new(mode)
    harness.add_pool("main", cidr, block_length)
    return harness


# --- one address ------------------------------------------------------------------------------------------------


def test_i_49_the_use_of_a_specific_address_is_judged_where_one_is_stated() -> None:
    harness = cluster()
    harness.change_pool("main", allowed_uses=(AllowedUse.TUNNEL,))
    with pytest.raises(AddressWrongUse) as caught:
        harness.assign_or_refuse("h", specific("10.0.0.1"))
    assert str(caught.value) == (
        'IP address 10.0.0.1 is in IP pool "main", which is not allowed for use "Workload" (allowedUses: [Tunnel])'
    )
    assert harness.assign(evolve(make_request("h", specific("10.0.0.1")), use=None)) == ["10.0.0.1"]
    harness.change_pool("main", allowed_uses=(AllowedUse.WORKLOAD, AllowedUse.TUNNEL))
    assert harness.assign(evolve(make_request("t", specific("10.0.0.2")), use=AllowedUse.TUNNEL)) == ["10.0.0.2"]


# --- release and sequence numbers -------------------------------------------------------------------------------


def hand_made() -> IPAMHarness:
    """A block with sequence number 0, in which 192.168.0.1 was assigned."""
    harness = cluster("192.168.0.0/24")
    block = Block.new(Prefix.parse("192.168.0.0/26"), owner=host_owner(NODE), now_ns=0)
    harness.put(block.key, block.assign(block.free[1:2], Attribute(handle="myhandle")))
    return harness


@pytest.mark.parametrize("number, handle", [(0, None), (None, None), (None, "myhandle"), (0, "myhandle")])
def test_i_50_an_address_is_released_by_what_describes_it(number: int | None, handle: str | None) -> None:
    harness = hand_made()
    answer = release_addresses_of(harness, release_item("192.168.0.1", handle, number))
    assert answer == AddressesReleased(released=(Address.parse("192.168.0.1"),))
    assert harness.held() == {}


@pytest.mark.parametrize(
    "number, handle, text",
    [
        (1, None, "192.168.0.1 is not released: bad sequence number 1, expected 0"),
        (None, "fakehandle", "192.168.0.1 is not released: bad handle 'fakehandle', expected 'myhandle'"),
    ],
)
def test_i_50_and_not_by_what_does_not(number: int | None, handle: str | None, text: str) -> None:
    harness = hand_made()
    answer = release_addresses_of(harness, release_item("192.168.0.1", handle, number))
    assert [str(refusal) for refusal in answer.refused] == [text]
    assert harness.held() == {"192.168.0.1": "myhandle"}


def test_i_51_a_number_goes_stale_with_the_release_that_ends_it() -> None:
    harness = cluster("10.0.0.0/24", 30)
    number: int | None = None
    for _round in range(10):
        (address,) = harness.assign_or_refuse("h")
        taken = sequence_of(harness, address, "10.0.0.0/30")
        assert number in (None, taken)  # each round starts four above the one before
        assert harness.release("h") == [address]
        assert harness.assign_or_refuse("h", specific(address)) == [address]
        answer = release_addresses_of(harness, release_item(address, "h", taken))
        assert (answer.released, answer.free_already) == ((), ())
        assert [str(refusal) for refusal in answer.refused] == [
            f"{address} is not released: bad sequence number {taken}, expected {taken + 2}"
        ]
        assert sequence_of(harness, address, "10.0.0.0/30") == taken + 2
        assert texts(release_addresses_of(harness, release_item(address, "h", taken + 2)).released) == [address]
        number = taken + 4
    assert (harness.held(), harness.handles()) == ({}, [])


def test_i_52_a_block_that_was_made_anew_does_not_know_the_old_numbers() -> None:
    harness = cluster("10.0.0.0/24", 30)
    for _round in range(10):
        (address,) = harness.assign_or_refuse("h")
        taken = sequence_of(harness, address, "10.0.0.0/30")
        harness.release("h")
        relinquish_node(harness.store, NODE, IF_EMPTY, pace=harness.pace)
        assert harness.blocks() == {}
        harness.clock.sleep(0.001)
        assert harness.assign_or_refuse("h", specific(address)) == [address]
        (refusal,) = release_addresses_of(harness, release_item(address, "h", taken)).refused
        assert isinstance(refusal, SequenceMismatch)
        assert refusal.expected > taken
        harness.release("h")


def test_i_54_addresses_of_two_blocks_are_released_in_one_call() -> None:
    harness = cluster()
    held = harness.assign_or_refuse("h", ipv4(66))
    answer = release_addresses_of(harness, *map(release_item, held))
    assert (len(answer.released), answer.free_already, answer.refused) == (66, (), ())
    assert (harness.held(), harness.handles()) == ({}, [])


def test_i_55_a_hundred_addresses_of_four_nodes_are_released_though_their_pool_is_disabled() -> None:
    harness = cluster("10.0.0.0/24", 30)
    harness.add_pool("late", "11.0.0.0/24", 30)
    harness.add_pool("six", "fd00::/112", 120)
    for name, zone in (("main", "early"), ("late", "late")):
        harness.change_pool(name, node_selector=f"zone == '{zone}'")
    held: list[str] = []
    for number, zone in enumerate(("early", "early", "late", "late"), start=1):
        node = f"node{number}"
        harness.label_node(node, zone=zone)
        for pod in range(6):
            held.extend(harness.assign_or_refuse(f"{node}-{pod}", ipv4(), ipv6(), node=node))
        for pod in range(6, 19):
            held.extend(harness.assign_or_refuse(f"{node}-{pod}", node=node))
    assert len(set(held)) == 100
    assert sum(address.startswith("11.0.0.") for address in held) == 38
    harness.disable_pool("late")
    assert len(release_addresses_of(harness, *map(release_item, held)).released) == 100
    assert (harness.held(), harness.handles()) == ({}, [])


def test_i_56_an_address_released_twice_in_one_request_is_free_once() -> None:
    harness = cluster("10.0.0.0/26")
    assert len(harness.assign_or_refuse("h", ipv4(64))) == 64
    assert texts(release_addresses_of(harness, release_item("10.0.0.1"), release_item("10.0.0.1")).released) == [
        "10.0.0.1"
    ]
    assert harness.assign_or_refuse(None, specific("10.0.0.1")) == ["10.0.0.1"]
    holder = find_holder(harness.store, Address.parse("10.0.0.1"), pace=harness.pace)
    assert holder.allocation is not None
    assert holder.allocation.attribute.handle is None
    assert harness.assign_up_to("h2") == []


def test_i_57_a_cooling_address_is_not_held_and_not_assigned_until_its_cooldown_is_over() -> None:
    harness = cluster("10.0.0.0/26")
    harness.configure(cooldown_s=60)
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]

    def in_use() -> int:
        (usage,) = read_utilization(harness.store, deadline=harness.deadline)
        return usage.in_use

    before = in_use()
    assert texts(release_addresses_of(harness, release_item("10.0.0.0")).released) == ["10.0.0.0"]
    assert in_use() == before
    assert harness.assign_up_to("full", ipv4(64)) == [f"10.0.0.{number}" for number in range(1, 64)]
    assert texts(release_addresses_of(harness, release_item("10.0.0.0")).free_already) == ["10.0.0.0"]
    assert find_holder(harness.store, Address.parse("10.0.0.0"), pace=harness.pace).is_cooling
    with pytest.raises(AddressCooling, match="it was released less than 60 s ago and cools down"):
        harness.assign_or_refuse("again", specific("10.0.0.0"))
    harness.clock.sleep(61)
    assert harness.assign_or_refuse("again") == ["10.0.0.0"]


# --- affinities -------------------------------------------------------------------------------------------------


def claim_all(harness: IPAMHarness, node: str) -> tuple[int, int]:
    """How many blocks of the pool a node has then, and how many it has not."""
    result: ClaimResult = claim(harness.store, host_owner(node), Prefix.parse("10.0.0.0/24"), pace=harness.pace)
    return len(result.claimed), len(result.failed)


def test_i_59_a_range_is_claimed_but_for_what_others_have() -> None:
    harness = cluster()
    harness.assign_or_refuse("h", specific("10.0.0.1"), node="host-a")
    assert claim_all(harness, "host-b") == (3, 1)
    empty = cluster()
    assert claim_all(empty, "host-a") == (4, 0)
    assert claim_all(empty, "host-b") == (0, 4)


def give_up_by_node(harness: IPAMHarness) -> RelinquishResult:
    return relinquish_node(harness.store, NODE, IF_EMPTY, pace=harness.pace)


def give_up_by_block(harness: IPAMHarness) -> RelinquishResult:
    return relinquish_block(harness.store, Prefix.parse("10.0.0.0/26"), IF_EMPTY, pace=harness.pace)


@pytest.mark.parametrize("give_up", [give_up_by_node, give_up_by_block])
def test_i_60_a_block_that_must_be_empty_goes_when_it_is(give_up: Callable[[IPAMHarness], RelinquishResult]) -> None:
    harness = cluster()
    harness.assign_or_refuse("h")
    assert [str(refusal) for refusal in give_up(harness).refused] == [
        "block 10.0.0.0/26 of host:node-a is not given up: it is not empty (1 addresses held)"
    ]
    assert harness.blocks() == {"10.0.0.0/26": "host:node-a"}
    harness.release("h")
    assert give_up(harness).refused == ()
    assert (harness.blocks(), harness.affinities()) == ({}, {})


def test_i_61_a_node_gives_up_its_empty_blocks_and_keeps_the_one_in_use() -> None:
    harness = cluster("10.0.0.0/24", 30)
    assert len(harness.assign_or_refuse("h", ipv4(12))) == 12
    harness.release("h")
    assert len(harness.blocks()) == 3
    harness.assign_or_refuse("h2")
    assert len(give_up_by_node(harness).refused) == 1
    assert harness.blocks() == {"10.0.0.0/30": host_owner(NODE)}


def test_i_62_blocks_whose_pool_is_gone_are_given_up_and_go_with_their_last_address() -> None:
    harness = cluster("10.0.0.0/24", 30)
    harness.assign_or_refuse("h", ipv4(12))
    harness.remove(ippool_key("main"))
    assert len(relinquish_node(harness.store, NODE, ANYHOW, pace=harness.pace).relinquished) == 3
    assert harness.affinities() == {}
    assert harness.blocks() == {"10.0.0.0/30": "", "10.0.0.4/30": "", "10.0.0.8/30": ""}
    assert len(harness.release("h")) == 12
    assert harness.blocks() == {}


def test_i_64_removing_a_node_that_nobody_knows_is_success() -> None:
    harness = cluster()
    harness.assign_or_refuse("h")
    assert relinquish_node(harness.store, "unknown", ANYHOW, pace=harness.pace) == RelinquishResult()
    assert harness.affinities() == {(NODE, "10.0.0.0/26"): "confirmed"}


# --- crashes ----------------------------------------------------------------------------------------------------


def killed(harness: IPAMHarness, applied: int) -> FaultyDatastore:
    """The store, for a process that dies after so many writes."""
    return FaultyDatastore(harness.store, {1: ProcessDeath(applied)})


@pytest.mark.parametrize("by_pool", ["node", "pool"])
def test_i_84_and_trap_44_a_claim_whose_block_was_deleted_is_deleted_by_the_next_release(by_pool: str) -> None:
    harness = cluster(mode=MemoryMode.ORDERED)
    harness.put_owned_block("10.0.0.0/26")
    with pytest.raises(ProcessDied):
        relinquish_node(killed(harness, 2), NODE, IF_EMPTY, pace=harness.pace)
    assert (harness.blocks(), harness.affinities()) == ({}, {(NODE, "10.0.0.0/26"): "pendingDeletion"})
    if by_pool == "pool":
        relinquish_pool(harness.store, Prefix.parse("10.0.0.0/24"), IF_EMPTY, pace=harness.pace)
    else:
        relinquish_node(harness.store, NODE, IF_EMPTY, pace=harness.pace)
    assert harness.affinities() == {}


def unaffine(mode: MemoryMode = MemoryMode.ORDERED) -> IPAMHarness:
    """A release of a block in use was cut when the block had lost its owner."""
    harness = cluster(mode=mode)
    harness.assign_or_refuse("old")
    with pytest.raises(ProcessDied):
        relinquish_node(killed(harness, 2), NODE, ANYHOW, pace=harness.pace)
    assert harness.blocks() == {"10.0.0.0/26": ""}
    assert harness.affinities() == {(NODE, "10.0.0.0/26"): "pendingDeletion"}
    return harness


def test_i_85_a_node_that_lost_its_block_claims_another_and_leaves_no_stale_claim() -> None:
    harness = unaffine()
    assert harness.assign_or_refuse("new") == ["10.0.0.64"]
    assert harness.blocks() == {"10.0.0.0/26": "", "10.0.0.64/26": host_owner(NODE)}
    assert harness.affinities() == {(NODE, "10.0.0.64/26"): "confirmed"}
    assert harness.held() == {"10.0.0.0": "old", "10.0.0.64": "new"}


def test_i_85_releasing_again_ends_it() -> None:
    harness = unaffine()
    assert len(relinquish_node(harness.store, NODE, ANYHOW, pace=harness.pace).relinquished) == 1
    assert harness.affinities() == {}
    assert harness.held() == {"10.0.0.0": "old"}
    harness.release("old")
    assert harness.blocks() == {}


def test_i_86_a_claim_that_was_cut_behind_its_block_is_confirmed_by_the_next_request() -> None:
    harness = cluster(mode=MemoryMode.ORDERED)
    writes = harness.decision(make_request("h")).writes
    made = next(index for index, write in enumerate(writes) if "IPAMBlock" in str(getattr(write, "key", "")))
    with pytest.raises(ProcessDied):
        harness.assign(make_request("h"), {1: ProcessDeath(made + 1)})
    assert harness.affinities() == {(NODE, "10.0.0.0/26"): "pending"}
    before = harness.block("10.0.0.0/26").sequence
    assert harness.assign_or_refuse("h2") == ["10.0.0.0"]
    assert harness.blocks() == {"10.0.0.0/26": host_owner(NODE)}
    assert harness.affinities() == {(NODE, "10.0.0.0/26"): "confirmed"}
    assert sequence_of(harness, "10.0.0.0", "10.0.0.0/26") == before + 1  # one more for the block being stored again


@pytest.mark.parametrize("number", [None, 7])
def test_i_87_a_handle_that_was_cut_off_from_its_block_goes_and_frees_nothing(number: int | None) -> None:
    harness = cluster(mode=MemoryMode.ORDERED)
    harness.assign_or_refuse("other")
    writes = harness.decision(make_request("h")).writes
    made = next(index for index, write in enumerate(writes) if "IPAMHandle" in str(getattr(write, "key", "")))
    with pytest.raises(ProcessDied):
        harness.assign(make_request("h"), {1: ProcessDeath(made + 1)})
    assert harness.handles() == ["h", "other"]
    gone = harness.ipam().release(ReleaseRequest(handle="h", sequence=number), NO_ENDPOINT, deadline=harness.deadline)
    assert gone.addresses == ()
    assert harness.handles() == ["other"]
    assert harness.held() == {"10.0.0.0": "other"}
