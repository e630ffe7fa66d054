"""Assignment as one decision: what one gets, what is refused and taken back, and the commit it comes in."""

from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError, ConfigurationError, NetplugError, Unavailable
from netplug_core.ipam.allocation.context import RECORDS_PER_ASSIGNMENT, RELEASES_PER_DECISION
from netplug_core.ipam.allocation.decide import decide, queries
from netplug_core.ipam.allocation.request import AssignedAddress, Assignment, AssignRequest, Automatic, Shortfall
from netplug_core.ipam.model import (
    AFFINITY,
    HANDLE,
    AffinityState,
    Block,
    Handle,
    affinity_key,
    block_key,
    handle_key,
    host_owner,
)
from netplug_core.ipam.outcome import (
    AllocationRule,
    BlockOutcome,
    BlockTrace,
    NoPoolServes,
    PoolExhausted,
    PoolOutcome,
    PoolsExhausted,
    PoolTrace,
    RuleTrace,
    StrictlyExhausted,
)
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import ABSENT, Create, Delete, Get, Key, Require, RequireUnchanged, Revision, Update
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, IPPOOL, IPRESERVATION, AllowedUse, ippool_key
from netplug_core.resources.node import node_key
from netplug_core.testing.faults import FaultyDatastore, RunBefore
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, first_block_first, ipv4, ipv6, make_request, specific

FOUR, SIX = "192.168.1.0/24", "fd80:24e2:f998:72d6::/120"
BLOCK_0, BLOCK_1, BLOCK_2 = "10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26"


@pytest.fixture
def harness() -> IPAMHarness:
    """A cluster with one pool of four blocks."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


# --- what one gets -----------------------------------------------------------------------------------------------


def test_a_first_address_comes_with_block_claim_and_handle(harness: IPAMHarness) -> None:
    assert harness.assign_or_refuse("h1") == ["10.0.0.0"]
    assert harness.blocks() == {BLOCK_0: "host:node-a"}
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}
    assert harness.handle_counts("h1") == {BLOCK_0: 1}
    block = harness.block(BLOCK_0)
    assert block.sequences[0] == harness.clock.wall_ns  # the new block's number, from before the address was taken
    assert block.sequence == harness.clock.wall_ns + 1


def test_what_is_stored_with_an_address_says_whose_it_is(harness: IPAMHarness) -> None:
    harness.assign(evolve(make_request("h1"), owner=(("container", "c1"), ("network", "net"), ("pod", "web-0"))))
    (held,) = harness.block(BLOCK_0).held()
    assert held.attribute.handle == "h1"
    assert held.attribute.owner == (
        ("container", "c1"),
        ("network", "net"),
        ("node", NODE),
        ("pod", "web-0"),
        ("timestamp", "2026-01-01T00:00:00Z"),
    )


def test_the_answer_names_the_pool_each_address_is_from(harness: IPAMHarness) -> None:
    harness.add_pool("six", SIX)
    assignment = harness.decision(make_request("h1", ipv4(), ipv6())).result
    assert assignment == Assignment(
        addresses=(
            AssignedAddress(address=Address.parse("10.0.0.0"), prefix=Prefix.parse("10.0.0.0/24")),
            AssignedAddress(address=Address.parse("fd80:24e2:f998:72d6::"), prefix=Prefix.parse(SIX)),
        )
    )


def test_families_come_in_the_order_of_the_request(harness: IPAMHarness) -> None:
    harness.add_pool("six", SIX)
    assert harness.assign_or_refuse("h", ipv6(), ipv4()) == ["fd80:24e2:f998:72d6::", "10.0.0.0"]


def test_a_pool_larger_than_any_list_is_served() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("huge", "fd00::/64")
    assert harness.assign_or_refuse("h", ipv6(65)) == [
        f"fd00::{number:x}" if number else "fd00::" for number in range(65)
    ]


def test_nothing_wanted_is_nothing_given(harness: IPAMHarness) -> None:
    assert harness.assign(evolve(make_request("h"), wanted=())) == []
    assert harness.handles() == []


def test_a_disabled_pool_serves_no_more_and_what_was_given_stays(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.disable_pool("main")
    harness.add_pool("next", "11.0.0.0/24")
    assert harness.assign_or_refuse("h2") == ["11.0.0.0"]
    assert harness.assign_or_refuse("h1") == ["10.0.0.0"]
    assert harness.release("h1") == ["10.0.0.0"]


def test_a_deleted_pool_gives_no_more_addresses(harness: IPAMHarness) -> None:  # I-26
    harness.assign_or_refuse("h1")
    harness.remove(ippool_key("main"))
    harness.add_pool("next", "11.0.0.0/24")
    assert harness.assign_or_refuse("h2") == ["11.0.0.0"]
    # What is held is still held; its range is its block's now.
    assert harness.decision(make_request("h1")).result == Assignment(
        addresses=(AssignedAddress(address=Address.parse("10.0.0.0"), prefix=Prefix.parse(BLOCK_0)),)
    )


def test_pools_are_taken_in_the_order_given_until_it_is_enough(harness: IPAMHarness) -> None:
    harness.add_pool("tiny", "11.0.0.0/31")
    assert harness.assign_or_refuse("h", ipv4(3, "tiny", "10.0.0.0/24")) == ["10.0.0.0", "11.0.0.0", "11.0.0.1"]


def test_an_empty_block_of_another_size_than_the_pool_has_now_is_given_up(harness: IPAMHarness) -> None:
    harness.put_owned_block("10.0.0.240/28")
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]
    assert list(harness.blocks()) == [BLOCK_0]


# --- asked again -------------------------------------------------------------------------------------------------


def test_a_second_request_gets_the_same_addresses_and_writes_nothing(harness: IPAMHarness) -> None:
    harness.add_pool("six", SIX)
    first = harness.assign_or_refuse("h", ipv4(2), ipv6())
    stored = harness.block(BLOCK_0)
    harness.take_call_counts()
    assert harness.assign_or_refuse("h", ipv4(2), ipv6()) == first
    assert harness.take_call_counts() == (2, 0)
    assert harness.block(BLOCK_0) == stored


def test_a_request_states_the_total(harness: IPAMHarness) -> None:  # I-46
    assert harness.assign_or_refuse("h", ipv4(1)) == ["10.0.0.0"]
    assert harness.assign_or_refuse("h", ipv4(3)) == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]
    assert harness.assign_or_refuse("h", ipv4(2)) == ["10.0.0.0", "10.0.0.1"]
    assert harness.handle_counts("h") == {BLOCK_0: 3}


def test_another_node_gets_the_same_addresses(harness: IPAMHarness) -> None:
    assert harness.assign_or_refuse("h") == harness.assign_or_refuse("h", node=OTHER_NODE) == ["10.0.0.0"]


# --- what the handle counts ----------------------------------------------------------------------------------------


def handle_writes(harness: IPAMHarness, *wanted: Automatic) -> list[tuple[str, object]]:
    """The writes of an assignment to blocks and its handle, in order: how much it holds there, or what it counts."""
    changes: list[tuple[str, object]] = []
    for write in harness.decision(make_request("h", *wanted)).writes:
        if isinstance(write, Create | Update) and isinstance(write.value, Block):
            changes.append((str(write.value.prefix), len(write.value.held_by("h"))))
        elif isinstance(write, Create | Update) and isinstance(write.value, Handle):
            changes.append(("h", {str(prefix): count for prefix, count in write.value.blocks}))
    return changes


def test_a_handle_that_counts_too_much_is_corrected_by_an_assignment(harness: IPAMHarness) -> None:
    """What a killed assignment counted in a block that is not stored stays: its write may still create the block."""
    harness.put_owned_block(BLOCK_0)
    harness.put_handle("h", b0=5, b1=2)
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]
    assert harness.handle_counts("h") == {BLOCK_0: 1, BLOCK_1: 2}
    assert harness.release("h") == ["10.0.0.0"]
    assert harness.handles() == []


def test_a_block_is_stored_once_more_before_its_count_goes_down(harness: IPAMHarness) -> None:
    """The write of a killed assignment, which that count is for, may still arrive."""
    harness.put_owned_block(BLOCK_0)
    harness.put_owned_block(BLOCK_1, OTHER_NODE)
    harness.put_handle("h", b0=5, b1=2)
    assert handle_writes(harness) == [
        (BLOCK_1, 0), (BLOCK_0, 0), ("h", {BLOCK_0: 1}), (BLOCK_0, 1),
    ]  # fmt: skip
    before = harness.block(BLOCK_0), harness.block(BLOCK_1)
    harness.assign_or_refuse("h")
    assert harness.block(BLOCK_0).sequence == before[0].sequence + 2
    assert harness.block(BLOCK_1) == before[1].touched()


def test_a_block_that_the_commit_writes_before_the_handle_is_not_stored_twice(harness: IPAMHarness) -> None:
    harness.put_block(BLOCK_0)
    harness.put_affinity(BLOCK_0, AffinityState.PENDING)
    harness.put_handle("h", b0=5)
    assert handle_writes(harness) == [(BLOCK_0, 0), ("h", {BLOCK_0: 1}), (BLOCK_0, 1)]


def test_a_block_that_is_given_up_is_not_stored_once_more(harness: IPAMHarness) -> None:
    harness.put_owned_block("11.0.0.0/26")
    harness.put(handle_key("h"), Handle(blocks=((Prefix.parse("11.0.0.0/26"), 1),)))
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]
    assert harness.handle_counts("h") == {BLOCK_0: 1}
    assert list(harness.blocks()) == [BLOCK_0]


def test_counts_that_are_right_already_are_stored_once_more(harness: IPAMHarness) -> None:
    """An attempt that lost the race for the block had written the handle. An unfinished deletion of it has to fail."""
    harness.put_owned_block(BLOCK_0)
    harness.put_handle("h", b0=1)
    (before,) = harness.records(HANDLE)
    assert handle_writes(harness) == [("h", {BLOCK_0: 1}), (BLOCK_0, 1)]
    harness.assign_or_refuse("h")
    (after,) = harness.records(HANDLE)
    assert after.value == before.value.touched()


def test_a_handle_that_counts_too_little_is_corrected_too(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h", ipv4(2))
    harness.put_handle("h", b0=1)
    assert harness.assign_or_refuse("h", ipv4(3)) == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]
    assert harness.handle_counts("h") == {BLOCK_0: 3}


def test_what_is_held_already_is_counted_right_by_a_second_request(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h")
    harness.put_handle("h", b0=3)
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]
    assert harness.handle_counts("h") == {BLOCK_0: 1}


def test_more_blocks_than_a_commit_takes_are_corrected_by_the_next_ones(harness: IPAMHarness) -> None:
    blocks = [f"11.0.{number}.0/26" for number in range(120)]
    for cidr in blocks:
        harness.put_owned_block(cidr, OTHER_NODE)
    harness.put(handle_key("h"), Handle(blocks=tuple((Prefix.parse(cidr), 1) for cidr in blocks)))
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]
    counts = harness.handle_counts("h")
    assert counts.pop(BLOCK_0) == 1
    assert 0 < len(counts) < RECORDS_PER_ASSIGNMENT
    assert harness.assign_or_refuse("h", ipv4(2)) == ["10.0.0.0", "10.0.0.1"]
    assert harness.handle_counts("h") == {BLOCK_0: 2}


def test_a_handle_counts_what_was_taken_and_not_what_was_asked() -> None:
    """Trap 26: a block that had less to give than was asked leaves no count behind."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/26")
    harness.assign_or_refuse("h1", ipv4(60))
    assert len(harness.assign_up_to("h2", ipv4(9))) == 4
    assert harness.handle_counts("h2") == {BLOCK_0: 4}
    harness.release("h2")
    assert harness.handles() == ["h1"]


# --- without a handle --------------------------------------------------------------------------------------------


def test_addresses_without_a_handle_are_new_ones_each_time(harness: IPAMHarness) -> None:
    assert harness.assign_or_refuse(None) == ["10.0.0.0"]
    assert harness.assign_or_refuse(None) == ["10.0.0.1"]
    assert harness.handles() == []
    assert harness.held() == {"10.0.0.0": None, "10.0.0.1": None}


def test_a_decision_without_a_handle_cannot_recognise_its_own_output(harness: IPAMHarness) -> None:
    assert not harness.decision(make_request(None)).is_repeatable
    assert harness.decision(make_request("h")).is_repeatable
    assert harness.decision(evolve(make_request(None), wanted=())).is_repeatable  # it writes nothing


def test_addresses_of_no_node_have_none_written_beside_them(harness: IPAMHarness) -> None:
    request = evolve(make_request("h", node=""), affine_to="virtual:load-balancer")
    harness.assign(request)
    (held,) = harness.block(BLOCK_0).held()
    assert held.attribute.owner == (("timestamp", "2026-01-01T00:00:00Z"),)


def test_blocks_of_a_virtual_claimant_are_its_own(harness: IPAMHarness) -> None:
    request = evolve(make_request("h"), affine_to="virtual:load-balancer")
    assert harness.assign(request) == ["10.0.0.0"]
    assert harness.assign_or_refuse("h2") == ["10.0.0.64"]
    assert harness.blocks() == {BLOCK_0: "virtual:load-balancer", BLOCK_1: "host:node-a"}
    assert harness.affinities() == {("load-balancer", BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}
    assert harness.assign(evolve(request, handle="h3")) == ["10.0.0.1"]


# --- at most so many per handle ------------------------------------------------------------------------------------


def test_a_maximum_per_handle_caps_the_total(harness: IPAMHarness) -> None:  # I-46
    def totals(handle: str, most: int) -> list[list[str]]:
        return [harness.assign(evolve(make_request(handle, ipv4(count)), max_per_handle=most)) for count in (1, 2, 3)]

    assert totals("one", 1) == [["10.0.0.0"]] * 3
    assert totals("two", 2) == [["10.0.0.1"], ["10.0.0.1", "10.0.0.2"], ["10.0.0.1", "10.0.0.2"]]
    decision = harness.decision(evolve(make_request("two", ipv4(3)), max_per_handle=2))
    assert decision.trace == (RuleTrace(rule=AllocationRule.MAX_PER_HANDLE, detail="2"),)
    assert harness.decision(evolve(make_request("two", ipv4(2)), max_per_handle=2)).trace == ()
    harness.remove(ippool_key("main"))
    assert harness.decision(evolve(make_request("new", ipv4(3)), max_per_handle=2)).trace == decision.trace


def test_a_maximum_per_handle_is_one_of_each_family(harness: IPAMHarness) -> None:
    harness.add_pool("six", SIX)
    assert len(harness.assign(evolve(make_request("h", ipv4(2), ipv6(2)), max_per_handle=1))) == 2


def test_what_a_maximum_refused_is_not_stored_later(harness: IPAMHarness) -> None:
    """Trap 4: a block is a value; what was decided and not committed is nowhere."""
    request = evolve(make_request("h"), max_per_handle=1)
    harness.assign(request)
    before = harness.block(BLOCK_0)
    harness.assign(evolve(request, wanted=(ipv4(5),)))
    assert harness.block(BLOCK_0) == before
    harness.assign_or_refuse("h2")
    assert harness.held() == {"10.0.0.0": "h", "10.0.0.1": "h2"}


def test_deciding_changes_nothing_that_was_read(harness: IPAMHarness) -> None:
    """Trap 22: pools and blocks are frozen, so a remembered one cannot be spoiled."""
    harness.assign_or_refuse("h1")
    read = harness.read(*queries(make_request("h")), Get(block_key(Prefix.parse(BLOCK_0))))
    before = dict(read.results)
    first = decide(read, make_request("h"), 1, first_block_first)
    assert decide(read, make_request("h"), 1, first_block_first) == first
    assert read.results == before


# --- shortfall ---------------------------------------------------------------------------------------------------


def test_less_than_asked_is_an_answer_where_the_request_says_so() -> None:  # I-17
    harness = IPAMHarness.new()
    harness.add_pool("four", FOUR)
    harness.add_pool("six", SIX)
    given = harness.assign_up_to("h", ipv4(257), ipv6(257))
    assert len(set(given)) == 512
    decision = harness.decision(evolve(make_request("h", ipv4(257), ipv6(257)), shortfall=Shortfall.RETURN))
    shortfall = PoolsExhausted(Family.IPV4, 256, 257, decision.trace)
    assert "No IPs available in pools: [192.168.1.0/24 fd80:24e2:f998:72d6::/120]" in str(shortfall)
    assert decision.writes == ()


def test_a_shortfall_refuses_all_families_and_writes_nothing(harness: IPAMHarness) -> None:
    harness.add_pool("six", "fd00::/127")
    harness.take_call_counts()
    with pytest.raises(PoolsExhausted) as caught:
        harness.assign_or_refuse("h", ipv4(), ipv6(3))
    assert harness.take_call_counts() == (3, 0)
    assert str(caught.value) == (
        "Only 2 of the 3 requested IPv6 addresses are available, so nothing new is held; "
        "No IPs available in pools: [fd00::/127]; "
        "IPPool six (fd00::/127): 2 addresses, 0 used, 0 reserved, 0 cooling, 0 free in blocks of other nodes"
    )
    assert (harness.blocks(), harness.affinities(), harness.handles()) == ({}, {}, [])


def test_what_is_free_in_the_blocks_of_others_is_said(harness: IPAMHarness) -> None:
    harness.configure(is_affinity_strict=True)
    for number in range(4):
        harness.assign_or_refuse(f"h{number}", node=f"node-{number}")
    with pytest.raises(
        StrictlyExhausted, match="256 addresses, 4 used, 0 reserved, 0 cooling, 252 free in blocks of other nodes"
    ):
        harness.assign_or_refuse("h")


def test_nothing_at_all_is_an_answer_too_and_says_why(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(256), node=OTHER_NODE)
    request = evolve(make_request("h"), shortfall=Shortfall.RETURN)
    result = harness.ipam().assign(request, NO_ENDPOINT, deadline=harness.deadline)
    assert result.addresses == ()
    (shortfall,) = result.shortfalls
    assert (shortfall.code, shortfall.identifier) == (105, "pools-exhausted")
    assert "h" not in harness.handles()


@pytest.mark.parametrize("wanted", [(ipv4(), ipv6()), (ipv6(), ipv4())])
def test_what_one_family_cannot_have_does_not_keep_the_other_from_its_own(
    harness: IPAMHarness, wanted: tuple[Automatic, ...]
) -> None:
    """No IPv6 pool is no shortfall by itself, but is one beside an IPv4 address."""
    request = evolve(make_request("h", *wanted), shortfall=Shortfall.RETURN)
    result = harness.ipam().assign(request, NO_ENDPOINT, deadline=harness.deadline)
    assert [str(assigned.address) for assigned in result.addresses] == ["10.0.0.0"]
    assert [type(shortfall) for shortfall in result.shortfalls] == [NoPoolServes]
    with pytest.raises(NoPoolServes):
        harness.assign(evolve(request, wanted=(ipv6(),)))


def test_what_is_held_already_is_an_answer_where_there_is_no_more(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h")
    harness.disable_pool("main")
    assert harness.assign_up_to("h", ipv4(2)) == ["10.0.0.0"]


def test_no_address_of_the_first_family_stays_when_the_second_is_refused(harness: IPAMHarness) -> None:
    """Trap 32: not even where less than asked would do."""
    harness.add_pool("six", SIX)
    for shortfall in Shortfall:
        with pytest.raises(AllocationError, match="does not exist"):
            harness.assign(evolve(make_request("h", ipv4(), ipv6(1, "fd00::/64")), shortfall=shortfall))
    assert (harness.held(), harness.blocks(), harness.handles()) == ({}, {}, [])


def test_an_unknown_pool_is_refused_whatever_the_request_tolerates(harness: IPAMHarness) -> None:  # I-29
    request = evolve(make_request("h", ipv4(1, "10.0.0.0/24", "40.0.0.0/24")), shortfall=Shortfall.RETURN)
    with pytest.raises(AllocationError, match=r"the given pool \(40\.0\.0\.0/24\) does not exist"):
        harness.assign(request)
    with pytest.raises(ConfigurationError, match="host bits"):
        harness.assign_or_refuse("h", ipv4(1, "10.0.0.1/24"))
    assert harness.handles() == []


def test_a_cluster_without_pools_says_so() -> None:
    with pytest.raises(AllocationError, match=r"node-a \(IPv4\): there is no IPv4 pool at all"):
        IPAMHarness.new().assign_or_refuse("h")


def test_a_refusal_takes_back_what_an_earlier_try_wrote_in_vain(harness: IPAMHarness) -> None:
    harness.configure(is_affinity_strict=True)
    for number in range(4):
        harness.assign_or_refuse(f"h{number}", node=f"node-{number}")
    for take in (harness.assign_or_refuse, harness.assign_up_to):
        harness.put_handle("h", b0=1)
        harness.put_affinity(BLOCK_0, AffinityState.PENDING)
        try:
            assert take("h") == []
        except StrictlyExhausted:
            assert take == harness.assign_or_refuse
        assert "h" not in harness.handles()
        assert (NODE, BLOCK_0) not in harness.affinities()


def test_a_refusal_leaves_what_is_held(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h", ipv4(2))
    with pytest.raises(PoolsExhausted):
        harness.assign_or_refuse("h", ipv4(300))
    assert harness.held() == {"10.0.0.0": "h", "10.0.0.1": "h"}
    assert harness.handle_counts("h") == {BLOCK_0: 2}


def test_an_unregistered_node_is_named_in_the_error(harness: IPAMHarness) -> None:
    harness.change_pool("main", node_selector="zone == 'x'")
    with pytest.raises(
        NoPoolServes, match=r"^no configured netplug pools for node node-a \(IPv4\), which is not registered "
    ) as caught:
        harness.assign_or_refuse("h")
    assert caught.value.is_registered is False
    harness.label_node(zone="y")
    with pytest.raises(NoPoolServes, match=r"^no configured .* for node node-a \(IPv4\): IPPool main "):
        harness.assign_or_refuse("h")


# --- the cluster's ready flag ------------------------------------------------------------------------------------


def test_a_locked_cluster_assigns_nothing(harness: IPAMHarness) -> None:
    harness.set_ready(is_ready=False)
    harness.take_call_counts()
    with pytest.raises(Unavailable) as caught:
        harness.assign_or_refuse("h")
    assert caught.value.code == 11
    assert str(caught.value) == ("ClusterInformation default: spec.datastoreReady is false: pod networking is locked")
    assert harness.take_call_counts() == (1, 0)
    assert harness.decision(make_request("h")).writes == ()
    harness.set_ready(is_ready=True)
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]


# --- the commit --------------------------------------------------------------------------------------------------


def revision(harness: IPAMHarness, key: Key[object]) -> Revision:
    record = harness.find_record(key)
    assert record is not None
    return record.revision


def test_a_commit_holds_only_while_everything_it_leant_on_is_as_it_was_read(harness: IPAMHarness) -> None:
    flag, pools, reservations, configuration, serving = harness.decision(make_request("h")).writes[:5]
    assert flag == Require(CLUSTER_INFORMATION_KEY, ABSENT)
    assert isinstance(pools, RequireUnchanged)
    assert pools.kind == IPPOOL
    assert isinstance(reservations, RequireUnchanged)
    assert reservations.kind == IPRESERVATION
    assert configuration == Require(IPAM_CONFIGURATION_KEY, ABSENT)
    assert serving == Require(ippool_key("main"), revision(harness, ippool_key("main")))


def test_a_configuration_and_a_node_that_were_looked_at_are_conditions_too(harness: IPAMHarness) -> None:
    harness.change_pool("main", node_selector="!has(zone)")
    harness.configure(cooldown_s=1)
    writes = harness.decision(make_request("h")).writes
    assert Require(IPAM_CONFIGURATION_KEY, revision(harness, IPAM_CONFIGURATION_KEY)) in writes
    assert Require(node_key(NODE), ABSENT) in writes
    harness.label_node(region="x")
    assert Require(node_key(NODE), revision(harness, node_key(NODE))) in harness.decision(make_request("h")).writes


def test_a_node_that_no_pool_selects_by_labels_is_no_condition(harness: IPAMHarness) -> None:
    harness.label_node(region="x")
    required = [write.key for write in harness.decision(make_request("h")).writes if isinstance(write, Require)]
    assert node_key(NODE) not in required


def test_each_pool_that_serves_is_required_once(harness: IPAMHarness) -> None:
    harness.add_pool("more", "11.0.0.0/24")
    writes = harness.decision(make_request("h", ipv4(300))).writes
    assert [str(write.key) for write in writes if isinstance(write, Require)][2:] == ["IPPool(main)", "IPPool(more)"]


@pytest.mark.parametrize("change, given", [
    (lambda harness: harness.add_pool("a", "11.0.0.0/24"), "11.0.0.0"),
    (lambda harness: harness.reserve("r", "10.0.0.0/32"), "10.0.0.1"),
    (lambda harness: harness.configure(cooldown_s=9), "10.0.0.0"),
    (lambda harness: harness.change_pool("main", allowed_uses=(AllowedUse.WORKLOAD,)), "10.0.0.0"),
    (lambda harness: harness.set_ready(is_ready=True), "10.0.0.0"),
])  # fmt: skip
def test_what_changes_between_read_and_commit_makes_the_decision_anew(
    harness: IPAMHarness, change: Callable[[IPAMHarness], object], given: str
) -> None:
    ipam = harness.ipam({1: RunBefore(lambda: change(harness))})
    result = ipam.assign(make_request("h"), NO_ENDPOINT, deadline=harness.deadline)
    assert [str(assigned.address) for assigned in result.addresses] == [given]
    assert isinstance(ipam.datastore, FaultyDatastore)
    assert ipam.datastore.commits == 2


def test_a_pool_disabled_between_read_and_commit_gives_nothing(harness: IPAMHarness) -> None:
    """Trap 8."""
    with pytest.raises(NoPoolServes, match="is disabled"):
        harness.assign(make_request("h"), {1: RunBefore(lambda: harness.disable_pool("main"))})
    assert (harness.held(), harness.blocks()) == ({}, {})


def test_a_node_relabelled_between_read_and_commit_is_judged_by_its_new_labels(harness: IPAMHarness) -> None:
    harness.change_pool("main", node_selector="zone == 'a'")
    harness.label_node(zone="a")
    with pytest.raises(NoPoolServes, match="does not select this node"):
        harness.assign(make_request("h"), {1: RunBefore(lambda: harness.label_node(zone="b"))})
    assert harness.held() == {}


def test_a_commit_writes_claim_then_handle_then_address(harness: IPAMHarness) -> None:
    writes = harness.decision(make_request("h")).writes[5:]
    claim, block = affinity_key(host_owner(NODE), Prefix.parse(BLOCK_0)), block_key(Prefix.parse(BLOCK_0))
    assert [(type(write), write.key) for write in writes if isinstance(write, Create | Update)] == [
        (Create, claim),
        (Create, block),
        (Update, claim),
        (Create, handle_key("h")),
        (Update, block),
    ]


@pytest.mark.parametrize("limit, has_block, rests_on_claims", [
    (None, False, False),
    (2, True, False),  # an address of a block that is the node's already
    (2, False, True),
])  # fmt: skip
def test_the_commit_rests_on_the_claims_there_are_where_a_block_is_claimed_under_a_limit(
    harness: IPAMHarness, limit: int | None, *, has_block: bool, rests_on_claims: bool
) -> None:
    if has_block:
        harness.put_owned_block(BLOCK_0)
    writes = harness.decision(evolve(make_request("h"), block_limit=limit)).writes
    assert any(isinstance(write, RequireUnchanged) and write.kind == AFFINITY for write in writes) is rests_on_claims


def test_what_a_decision_considered_is_in_its_trace(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(64))
    harness.put_block(BLOCK_1, node=OTHER_NODE)
    harness.put_affinity(BLOCK_1, AffinityState.PENDING)
    trace = harness.decision(make_request("h2")).trace
    assert trace == (
        PoolTrace(pool="main", prefix=Prefix.parse("10.0.0.0/24"), outcome=PoolOutcome.SERVES),
        BlockTrace(block=Prefix.parse(BLOCK_1), outcome=BlockOutcome.STALE),
        BlockTrace(block=Prefix.parse(BLOCK_0), outcome=BlockOutcome.FULL),
        BlockTrace(block=Prefix.parse(BLOCK_2), outcome=BlockOutcome.CLAIMED),
    )
    assert not any(isinstance(entry, PoolExhausted) for entry in trace)


def names_of(request: AssignRequest) -> list[str]:
    """What is read first for a request."""
    return [str(getattr(query, "key", getattr(query, "kind", ""))) for query in queries(request)]


def test_the_first_read_asks_for_the_rules_the_handle_and_the_claims() -> None:
    rules = ["IPPool", "IPReservation", "IPAMConfiguration(default)"]
    assert names_of(make_request("h", ipv4(), ipv6())) == [*rules, "IPAMHandle(h)", "BlockAffinity", "BlockAffinity"]
    assert names_of(make_request(None, ipv4())) == [*rules, "BlockAffinity"]
    assert names_of(make_request("h", specific("10.0.0.1"))) == [*rules, "IPAMHandle(h)"]


def test_a_block_that_was_made_again_never_repeats_a_number(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h")
    before = harness.block(BLOCK_0).sequence
    harness.clock.sleep(1)
    harness.remove(block_key(Prefix.parse(BLOCK_0)))
    harness.assign_or_refuse("h2")
    assert harness.block(BLOCK_0).sequences[0] > before


# --- how much one decision gives up --------------------------------------------------------------------------------


@pytest.fixture
def left_over() -> IPAMHarness:
    """Affinities of the node to 15 blocks of another node, and to 45 empty ones of a pool that does not select it."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24")
    made.add_pool("other", "10.1.0.0/20", 30)
    for number in range(45):
        made.put_owned_block(f"10.1.0.{4 * number}/30")
    for number in range(15):
        made.put_owned_block(f"10.1.1.{4 * number}/30", OTHER_NODE)
        made.put_affinity(f"10.1.1.{4 * number}/30", AffinityState.CONFIRMED)
    made.change_pool("other", node_selector="rack == 'b'")
    return made


def test_one_decision_gives_up_as_many_affinities_as_a_commit_takes(left_over: IPAMHarness) -> None:
    """A node whose 60 affinities were all given up at once could not assign any more: etcd refused the commit."""
    made = left_over.decision(make_request())
    deleted = [write.key for write in made.writes if isinstance(write, Delete) and write.key.kind == AFFINITY]
    assert len(deleted) == RELEASES_PER_DECISION
    assert len(made.writes) < 100


def test_the_following_decisions_give_up_the_rest(left_over: IPAMHarness) -> None:
    left = []
    for number in range(3):
        left_over.assign_or_refuse(f"h{number}")
        left.append(len(left_over.affinity_records()))
    assert left == [41, 21, 1]


def test_a_refusal_gives_up_no_more_than_that_either(left_over: IPAMHarness) -> None:
    left_over.reserve("everything", "10.0.0.0/24")
    for number in range(15, 30):
        left_over.put_owned_block(f"10.1.1.{4 * number}/30", OTHER_NODE)
        left_over.put_affinity(f"10.1.1.{4 * number}/30", AffinityState.CONFIRMED)
    made = left_over.decision(make_request())
    assert isinstance(made.result, PoolsExhausted)
    assert sum(isinstance(write, Delete) for write in made.writes) == RELEASES_PER_DECISION


def test_a_refusal_stores_the_blocks_of_the_handle_once_more_before_it_deletes_it(harness: IPAMHarness) -> None:
    """A killed assignment left the handle, and its write to the block may still arrive."""
    harness.put_owned_block(BLOCK_0, OTHER_NODE)
    harness.put_handle("h", b0=1)
    harness.disable_pool("main")
    before = harness.block(BLOCK_0)
    with pytest.raises(NetplugError):
        harness.assign_or_refuse("h")
    assert harness.block(BLOCK_0) == before.touched()
    assert harness.handles() == []


def test_a_refusal_leaves_a_handle_of_many_blocks_to_its_release(harness: IPAMHarness) -> None:
    blocks = [f"10.0.{number}.0/26" for number in range(RELEASES_PER_DECISION + 1)]
    for cidr in blocks:
        harness.put_owned_block(cidr, OTHER_NODE)
    harness.put(handle_key("h"), Handle(blocks=tuple((Prefix.parse(cidr), 1) for cidr in blocks)))
    harness.disable_pool("main")
    with pytest.raises(NetplugError):
        harness.assign_or_refuse("h")
    assert harness.handles() == ["h"]
    harness.release("h")
    assert harness.handles() == []
