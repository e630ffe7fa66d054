"""Where addresses come from first: what the handle holds, and the node's own blocks, whatever a crash left of them."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Prefix
from netplug_core.ipam.allocation.pools import find_pool_of_block
from netplug_core.ipam.allocation.request import AssignedAddress, Shortfall
from netplug_core.ipam.model.affinity import AFFINITY, AffinityState, affinity_key, host_owner
from netplug_core.ipam.model.block import BLOCK
from netplug_core.ipam.model.handle import HANDLE
from netplug_core.ipam.outcome.refusals import BlockLimitReached, NoPoolServes
from netplug_core.ipam.outcome.trace import BlockOutcome, BlockTrace
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Create, Malformed, Update
from netplug_core.resources.ippool import IPPOOL, AllowedUse, AssignmentMode, ippool_key
from netplug_core.testing.faults import RunBefore
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, ipv6, make_request

BLOCK_0, BLOCK_1, BLOCK_2 = "10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26"
NEXT = "11.0.0.0/26"


@pytest.fixture
def harness() -> IPAMHarness:
    """A cluster with one pool of four blocks."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


def test_a_block_is_one_of_the_pool_it_lies_in_and_has_the_size_of(harness: IPAMHarness) -> None:
    harness.add_pool("narrow", "11.0.0.0/24", 28)
    pools = harness.records(IPPOOL)
    found = [
        find_pool_of_block(pools, Prefix.parse(cidr))
        for cidr in (BLOCK_0, "11.0.0.16/28", "11.0.0.0/26", "12.0.0.0/26")
    ]
    assert [record.key.name if record else None for record in found] == ["main", "narrow", None, None]


# --- what the handle holds ---------------------------------------------------------------------------------------


def test_a_handle_keeps_what_it_holds_of_a_family_and_gets_the_rest(harness: IPAMHarness) -> None:
    harness.add_pool("six", "fd00::/120")
    harness.assign_or_refuse("h", ipv4(2))
    assert harness.assign_or_refuse("h", ipv4(3), ipv6()) == ["10.0.0.0", "10.0.0.1", "10.0.0.2", "fd00::"]


def test_what_is_held_already_comes_with_the_range_of_its_pool(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h")
    (kept,) = harness.ipam().assign(make_request("h"), NO_ENDPOINT, deadline=harness.deadline).addresses
    assert kept == AssignedAddress(address=Address.parse("10.0.0.0"), prefix=Prefix.parse("10.0.0.0/24"))


def test_what_cools_down_is_not_held_any_more(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=60)
    harness.assign_or_refuse("h")
    harness.release("h")
    assert harness.assign_or_refuse("h") == ["10.0.0.1"]


def test_a_handle_whose_block_is_gone_holds_nothing_in_it(harness: IPAMHarness) -> None:
    harness.put_handle("h", b2=1)
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]


# --- its own blocks ----------------------------------------------------------------------------------------------


def test_own_blocks_are_used_up_before_a_new_one_is_claimed(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(60))
    assert harness.assign_or_refuse("h2", ipv4(6))[3:] == ["10.0.0.63", "10.0.0.64", "10.0.0.65"]
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}


def test_no_more_of_its_blocks_are_touched_than_it_takes(harness: IPAMHarness) -> None:
    harness.put_owned_block(BLOCK_0)
    harness.put_owned_block(BLOCK_1)
    harness.assign_or_refuse("h", ipv4(64))
    assert harness.block(BLOCK_1).is_empty
    assert harness.assign_or_refuse("h2") == ["10.0.0.64"]


def test_own_blocks_that_are_reserved_as_a_whole_are_passed_over(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.reserve("r", BLOCK_0)
    decision = harness.decision(make_request("h2"))
    assert BlockTrace(block=Prefix.parse(BLOCK_0), outcome=BlockOutcome.RESERVED) in decision.trace
    assert harness.assign_or_refuse("h2") == ["10.0.0.64"]


def test_own_blocks_of_a_pool_that_may_not_serve_are_not_used(harness: IPAMHarness) -> None:
    """Trap 8: the pool is disabled, or gone, or another one is named."""
    harness.assign_or_refuse("h1")
    harness.add_pool("next", "11.0.0.0/24")
    assert harness.assign_or_refuse("h2", ipv4(1, "next")) == ["11.0.0.0"]
    harness.disable_pool("main")
    assert harness.assign_or_refuse("h3") == ["11.0.0.1"]
    harness.remove(ippool_key("main"))
    assert harness.assign_or_refuse("h4") == ["11.0.0.2"]


@pytest.mark.parametrize("state", AffinityState)
def test_a_claim_without_its_block_is_gone_on_with(harness: IPAMHarness, state: AffinityState) -> None:
    harness.put_affinity(BLOCK_2, state)
    assert harness.assign_or_refuse("h") == ["10.0.0.128"]
    assert harness.affinities() == {(NODE, BLOCK_2): "confirmed"}
    assert harness.blocks() == {BLOCK_2: "host:node-a"}


def test_a_claim_without_its_block_in_a_pool_that_may_not_serve_is_left_alone(harness: IPAMHarness) -> None:
    harness.add_pool("next", "11.0.0.0/24")
    harness.put_affinity(NEXT, AffinityState.PENDING)
    assert harness.assign_or_refuse("h", ipv4(1, "main")) == ["10.0.0.0"]
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed", (NODE, NEXT): "pending"}


def test_a_pending_claim_is_no_ownership(harness: IPAMHarness) -> None:
    """Trap 6: it neither counts as a block nor gives an address before it is confirmed."""
    harness.configure(is_affinity_strict=True, max_blocks_per_host=1)
    harness.put_affinity(BLOCK_1, AffinityState.PENDING)
    harness.put_affinity(BLOCK_2, AffinityState.PENDING)
    assert harness.assign_or_refuse("h") == ["10.0.0.128"]
    assert harness.blocks() == {BLOCK_2: "host:node-a"}
    assert harness.affinities() == {(NODE, BLOCK_1): "pending", (NODE, BLOCK_2): "confirmed"}


@pytest.mark.parametrize("state", [AffinityState.PENDING, AffinityState.PENDING_DELETION])
def test_a_claim_half_made_or_half_given_up_is_confirmed_again(
    harness: IPAMHarness, state: AffinityState
) -> None:  # I-86
    harness.put_block(BLOCK_2)
    harness.put_affinity(BLOCK_2, state)
    before = harness.block(BLOCK_2).sequence
    assert harness.assign_or_refuse("h") == ["10.0.0.128"]
    assert harness.affinities() == {(NODE, BLOCK_2): "confirmed"}
    block = harness.block(BLOCK_2)
    (held,) = block.held()
    assert held.sequence == before + 1  # it was stored once more before the address was taken
    assert block.sequence == before + 2


def test_a_claim_keeps_what_a_newer_release_stored_in_it(harness: IPAMHarness) -> None:
    key = affinity_key(host_owner(NODE), Prefix.parse(BLOCK_2))
    harness.put_block(BLOCK_2)
    harness.put_affinity(BLOCK_2, AffinityState.PENDING_DELETION)
    harness.put(key, evolve(harness.get(key), unknown_json='{"x":1}'))
    harness.assign_or_refuse("h")
    assert harness.get(key).unknown_json == '{"x":1}'


@pytest.mark.parametrize("owner", [OTHER_NODE, ""])
@pytest.mark.parametrize("state", AffinityState)
def test_a_claim_that_another_won_is_given_up(
    harness: IPAMHarness, state: AffinityState, owner: str
) -> None:  # I-40, I-85
    harness.put_block(BLOCK_0, node=owner)
    harness.put_affinity(BLOCK_0, state)
    assert harness.assign_or_refuse("h") == ["10.0.0.64"]
    assert harness.affinities() == {(NODE, BLOCK_1): "confirmed"}
    assert harness.blocks()[BLOCK_0] == (f"host:{owner}" if owner else "")


@pytest.mark.parametrize("owner", [OTHER_NODE, ""])
def test_a_claim_that_another_won_serves_again_where_its_block_is_the_only_one_left(owner: str) -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", BLOCK_0)
    harness.put_block(BLOCK_0, node=owner)
    harness.put_affinity(BLOCK_0, AffinityState.PENDING_DELETION)
    harness.clock.sleep(61)
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}
    assert harness.blocks() == {BLOCK_0: "host:node-a"}


def test_what_was_healed_stays_so_in_one_commit(harness: IPAMHarness) -> None:
    harness.put_block(BLOCK_2)
    harness.put_affinity(BLOCK_2, AffinityState.PENDING)
    harness.take_call_counts()
    harness.assign_or_refuse("h1")
    assert harness.take_call_counts() == (2, 1)
    changed = [
        write.key.kind for write in harness.decision(make_request("h2")).writes if isinstance(write, Create | Update)
    ]
    assert changed == [HANDLE, BLOCK]


def test_a_handle_that_counts_too_much_is_put_right_where_it_takes(
    harness: IPAMHarness,
) -> None:  # a crash before the block
    harness.put_handle("h", b0=5, b1=2)
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]
    assert harness.handle_counts("h") == {BLOCK_0: 1, BLOCK_1: 2}
    assert harness.release("h") == ["10.0.0.0"]
    assert harness.handles() == []


def test_a_handle_counts_what_was_taken_and_not_what_was_asked() -> None:
    """Trap 26: a block that had less to give than was asked leaves no count behind."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/26")
    harness.assign_or_refuse("h1", ipv4(60))
    assert len(harness.assign_up_to("h2", ipv4(9))) == 4
    assert harness.handle_counts("h2") == {BLOCK_0: 4}
    harness.release("h2")
    assert harness.handles() == ["h1"]


def test_a_claim_whose_key_is_rubbish_is_named(harness: IPAMHarness) -> None:
    harness.put_affinity(BLOCK_0, AffinityState.CONFIRMED)
    record = harness.records(AFFINITY)[0]
    harness.put(AFFINITY.key(*record.key.path[:3], "rubbish"), record.value)
    with pytest.raises(Malformed, match=r"BlockAffinity\(host/node-a/ipv4/rubbish\) is malformed"):
        harness.assign_or_refuse("h")


# --- blocks in pools that select the node no more -----------------------------------------------------------------


@pytest.fixture
def deselected() -> IPAMHarness:
    """A node with a block in a pool that has ceased to select it, and a pool that serves."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24")
    harness.add_pool("next", "11.0.0.0/24")
    harness.change_pool("main", node_selector="has(old)")
    harness.label_node()
    return harness


def test_an_empty_block_is_given_up_with_the_next_assignment(deselected: IPAMHarness) -> None:
    deselected.put_owned_block(BLOCK_0)
    decision = deselected.decision(make_request("h"))
    assert BlockTrace(block=Prefix.parse(BLOCK_0), outcome=BlockOutcome.RELINQUISHED) in decision.trace
    deselected.take_call_counts()
    assert deselected.assign_or_refuse("h") == ["11.0.0.0"]
    assert deselected.take_call_counts() == (3, 1)
    assert deselected.blocks() == {NEXT: "host:node-a"}
    assert deselected.affinities() == {(NODE, NEXT): "confirmed"}


def test_what_is_given_up_makes_room_for_what_is_claimed(deselected: IPAMHarness) -> None:
    deselected.configure(is_affinity_strict=True, max_blocks_per_host=1)
    deselected.put_owned_block(BLOCK_0)
    assert deselected.assign_or_refuse("h") == ["11.0.0.0"]
    assert deselected.blocks() == {NEXT: "host:node-a"}


def test_nothing_is_given_up_where_nothing_can_be_had(deselected: IPAMHarness) -> None:
    deselected.put_owned_block(BLOCK_0)
    deselected.disable_pool("next")
    with pytest.raises(NoPoolServes):
        deselected.assign_or_refuse("h")
    assert deselected.blocks() == {BLOCK_0: "host:node-a"}


def test_a_block_in_use_stays_and_counts(deselected: IPAMHarness) -> None:
    deselected.assign_or_refuse("h1", ipv4(1, "main"))
    deselected.configure(is_affinity_strict=True, max_blocks_per_host=1)
    assert deselected.assign_up_to("h2", ipv4(1, "main")) == ["10.0.0.1"]
    with pytest.raises(BlockLimitReached, match="limit of 1 blocks reached"):
        deselected.assign_or_refuse("h3")
    assert deselected.blocks() == {BLOCK_0: "host:node-a"}


def test_a_block_that_only_cools_down_stays_until_it_has(deselected: IPAMHarness) -> None:
    deselected.configure(cooldown_s=30)
    deselected.assign_or_refuse("h1", ipv4(1, "main"))
    deselected.release("h1")
    deselected.assign_or_refuse("h2")
    assert BLOCK_0 in deselected.blocks()
    deselected.clock.sleep(31)
    deselected.assign_or_refuse("h3")
    assert BLOCK_0 not in deselected.blocks()


def test_a_block_that_is_borrowed_from_meanwhile_is_not_given_up(deselected: IPAMHarness) -> None:
    deselected.put_owned_block(BLOCK_0)
    deselected.label_node(OTHER_NODE, old="yes")
    borrow = RunBefore(lambda: deselected.assign_or_refuse("h2", ipv4(4 * 64, "main"), node=OTHER_NODE))
    assert deselected.assign(make_request("h1"), {1: borrow}) == ["11.0.0.0"]
    assert deselected.blocks()[BLOCK_0] == "host:node-a"
    assert len(deselected.held()) == 257


@pytest.mark.parametrize("changes", [
    {"node_selector": "all()", "is_disabled": True},
    {"is_disabled": True},
    {"node_selector": "all()", "assignment_mode": AssignmentMode.MANUAL},
    {"node_selector": "all()", "namespace_selector": "has(team)"},
    {"node_selector": "all()", "allowed_uses": (AllowedUse.TUNNEL,)},
])  # fmt: skip
def test_a_block_left_out_for_another_reason_stays(deselected: IPAMHarness, changes: dict[str, object]) -> None:
    """Trap 25, I-37: only a node selector makes a node give its blocks up."""
    deselected.put_owned_block(BLOCK_0)
    deselected.change_pool("main", **changes)
    deselected.assign_or_refuse("h")
    assert deselected.affinities() == {(NODE, BLOCK_0): "confirmed", (NODE, NEXT): "confirmed"}


def test_a_block_stays_where_another_pool_is_named(deselected: IPAMHarness) -> None:  # trap 25
    deselected.change_pool("main", node_selector="all()")
    deselected.put_owned_block(BLOCK_0)
    deselected.assign_or_refuse("h", ipv4(1, "next"))
    assert deselected.affinities() == {(NODE, BLOCK_0): "confirmed", (NODE, NEXT): "confirmed"}


def test_a_block_of_a_pool_that_is_being_removed_or_gone_is_left_to_who_removes_it(deselected: IPAMHarness) -> None:
    deselected.put_owned_block(BLOCK_0)
    pool = deselected.get(ippool_key("main"))
    deselected.put(pool.key, evolve(pool, metadata=evolve(pool.metadata, deletion_time_ns=1)))
    deselected.assign_or_refuse("h1")
    assert BLOCK_0 in deselected.blocks()
    deselected.remove(pool.key)
    deselected.assign_or_refuse("h2")
    assert BLOCK_0 in deselected.blocks()


def test_a_block_is_not_given_up_on_a_selector_that_cannot_be_read(deselected: IPAMHarness) -> None:
    deselected.change_pool("main", node_selector="has(")
    deselected.put_owned_block(BLOCK_0)
    deselected.assign_or_refuse("h", ipv4(1, "next"))
    assert BLOCK_0 in deselected.blocks()


def test_a_block_of_the_other_family_is_given_up_only_with_an_assignment_of_it(deselected: IPAMHarness) -> None:
    deselected.add_pool("six", "fd00::/120")
    deselected.put_owned_block(BLOCK_0)
    request = evolve(make_request("h", ipv6()), shortfall=Shortfall.RETURN)
    assert deselected.assign(request) == ["fd00::"]
    assert BLOCK_0 in deselected.blocks()


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
