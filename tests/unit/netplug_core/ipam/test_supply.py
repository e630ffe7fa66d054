"""Where addresses come from first: what the handle holds, and the node's own blocks, whatever a crash left of them."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Prefix
from netplug_core.ipam.affinity import AFFINITY, AffinityState, affinity_key, host_owner
from netplug_core.ipam.block import BLOCK
from netplug_core.ipam.handle import HANDLE
from netplug_core.ipam.interface import NO_ENDPOINT
from netplug_core.ipam.refusals import BlockLimitReached, NoPoolServes
from netplug_core.ipam.request import AssignedAddress, Shortfall
from netplug_core.ipam.supply import pool_of
from netplug_core.ipam.trace import BlockOutcome, BlockSeen
from netplug_core.records import Create, Malformed, Update
from netplug_core.resources.ippool import IPPOOL, AllowedUse, AssignmentMode, ippool_key
from netplug_core.testing.faults import Meanwhile
from tests.unit.netplug_core.ipam.bench import NODE, OTHER, Bench, request, v4, v6

BLOCK_0, BLOCK_1, BLOCK_2 = "10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26"
NEXT = "11.0.0.0/26"


@pytest.fixture
def bench() -> Bench:
    """A cluster with one pool of four blocks."""
    made = Bench.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


def test_a_block_is_one_of_the_pool_it_lies_in_and_has_the_size_of(bench: Bench) -> None:
    bench.add_pool("narrow", "11.0.0.0/24", 28)
    pools = bench.records(IPPOOL)
    found = [pool_of(Prefix.parse(cidr), pools) for cidr in (BLOCK_0, "11.0.0.16/28", "11.0.0.0/26", "12.0.0.0/26")]
    assert [record.key.name if record else None for record in found] == ["main", "narrow", None, None]


# --- what the handle holds ---------------------------------------------------------------------------------------


def test_a_handle_keeps_what_it_holds_of_a_family_and_gets_the_rest(bench: Bench) -> None:
    bench.add_pool("six", "fd00::/120")
    bench.take("h", v4(2))
    assert bench.take("h", v4(3), v6()) == ["10.0.0.0", "10.0.0.1", "10.0.0.2", "fd00::"]


def test_what_is_held_already_comes_with_the_range_of_its_pool(bench: Bench) -> None:
    bench.take("h")
    (kept,) = bench.ipam().assign(request("h"), NO_ENDPOINT, deadline=bench.deadline).addresses
    assert kept == AssignedAddress(address=Address.parse("10.0.0.0"), prefix=Prefix.parse("10.0.0.0/24"))


def test_what_cools_down_is_not_held_any_more(bench: Bench) -> None:
    bench.configure(cooldown_s=60)
    bench.take("h")
    bench.release("h")
    assert bench.take("h") == ["10.0.0.1"]


def test_a_handle_whose_block_is_gone_holds_nothing_in_it(bench: Bench) -> None:
    bench.leave_handle("h", b2=1)
    assert bench.take("h") == ["10.0.0.0"]


# --- its own blocks ----------------------------------------------------------------------------------------------


def test_own_blocks_are_used_up_before_a_new_one_is_claimed(bench: Bench) -> None:
    bench.take("h1", v4(60))
    assert bench.take("h2", v4(6))[3:] == ["10.0.0.63", "10.0.0.64", "10.0.0.65"]
    assert bench.claims() == {(NODE, BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}


def test_no_more_of_its_blocks_are_touched_than_it_takes(bench: Bench) -> None:
    bench.give_block(BLOCK_0)
    bench.give_block(BLOCK_1)
    bench.take("h", v4(64))
    assert bench.block(BLOCK_1).is_empty
    assert bench.take("h2") == ["10.0.0.64"]


def test_own_blocks_that_are_reserved_as_a_whole_are_passed_over(bench: Bench) -> None:
    bench.take("h1")
    bench.reserve("r", BLOCK_0)
    decision = bench.decision(request("h2"))
    assert BlockSeen(block=Prefix.parse(BLOCK_0), outcome=BlockOutcome.RESERVED) in decision.trace
    assert bench.take("h2") == ["10.0.0.64"]


def test_own_blocks_of_a_pool_that_may_not_serve_are_not_used(bench: Bench) -> None:
    """Trap 8: the pool is disabled, or gone, or another one is named."""
    bench.take("h1")
    bench.add_pool("next", "11.0.0.0/24")
    assert bench.take("h2", v4(1, "next")) == ["11.0.0.0"]
    bench.disable_pool("main")
    assert bench.take("h3") == ["11.0.0.1"]
    bench.remove(ippool_key("main"))
    assert bench.take("h4") == ["11.0.0.2"]


@pytest.mark.parametrize("state", AffinityState)
def test_a_claim_without_its_block_is_gone_on_with(bench: Bench, state: AffinityState) -> None:
    bench.leave_claim(BLOCK_2, state)
    assert bench.take("h") == ["10.0.0.128"]
    assert bench.claims() == {(NODE, BLOCK_2): "confirmed"}
    assert bench.blocks() == {BLOCK_2: "host:node-a"}


def test_a_claim_without_its_block_in_a_pool_that_may_not_serve_is_left_alone(bench: Bench) -> None:
    bench.add_pool("next", "11.0.0.0/24")
    bench.leave_claim(NEXT, AffinityState.PENDING)
    assert bench.take("h", v4(1, "main")) == ["10.0.0.0"]
    assert bench.claims() == {(NODE, BLOCK_0): "confirmed", (NODE, NEXT): "pending"}


def test_a_pending_claim_is_no_ownership(bench: Bench) -> None:
    """Trap 6: it neither counts as a block nor gives an address before it is confirmed."""
    bench.configure(is_affinity_strict=True, max_blocks=1)
    bench.leave_claim(BLOCK_1, AffinityState.PENDING)
    bench.leave_claim(BLOCK_2, AffinityState.PENDING)
    assert bench.take("h") == ["10.0.0.128"]
    assert bench.blocks() == {BLOCK_2: "host:node-a"}
    assert bench.claims() == {(NODE, BLOCK_1): "pending", (NODE, BLOCK_2): "confirmed"}


@pytest.mark.parametrize("state", [AffinityState.PENDING, AffinityState.PENDING_DELETION])
def test_a_claim_half_made_or_half_given_up_is_confirmed_again(bench: Bench, state: AffinityState) -> None:  # I-86
    bench.leave_block(BLOCK_2)
    bench.leave_claim(BLOCK_2, state)
    before = bench.block(BLOCK_2).sequence
    assert bench.take("h") == ["10.0.0.128"]
    assert bench.claims() == {(NODE, BLOCK_2): "confirmed"}
    block = bench.block(BLOCK_2)
    (held,) = block.held()
    assert held.sequence == before + 1  # it was stored once more before the address was taken
    assert block.sequence == before + 2


def test_a_claim_keeps_what_a_newer_release_stored_in_it(bench: Bench) -> None:
    key = affinity_key(host_owner(NODE), Prefix.parse(BLOCK_2))
    bench.leave_block(BLOCK_2)
    bench.leave_claim(BLOCK_2, AffinityState.PENDING_DELETION)
    bench.put(key, evolve(bench.get(key), carried='{"x":1}'))
    bench.take("h")
    assert bench.get(key).carried == '{"x":1}'


@pytest.mark.parametrize("owner", [OTHER, ""])
@pytest.mark.parametrize("state", AffinityState)
def test_a_claim_that_another_won_is_given_up(bench: Bench, state: AffinityState, owner: str) -> None:  # I-40, I-85
    bench.leave_block(BLOCK_0, node=owner)
    bench.leave_claim(BLOCK_0, state)
    assert bench.take("h") == ["10.0.0.64"]
    assert bench.claims() == {(NODE, BLOCK_1): "confirmed"}
    assert bench.blocks()[BLOCK_0] == (f"host:{owner}" if owner else "")


@pytest.mark.parametrize("owner", [OTHER, ""])
def test_a_claim_that_another_won_serves_again_where_its_block_is_the_only_one_left(owner: str) -> None:
    bench = Bench.new()
    bench.add_pool("main", BLOCK_0)
    bench.leave_block(BLOCK_0, node=owner)
    bench.leave_claim(BLOCK_0, AffinityState.PENDING_DELETION)
    bench.clock.sleep(61)
    assert bench.take("h") == ["10.0.0.0"]
    assert bench.claims() == {(NODE, BLOCK_0): "confirmed"}
    assert bench.blocks() == {BLOCK_0: "host:node-a"}


def test_what_was_healed_stays_so_in_one_commit(bench: Bench) -> None:
    bench.leave_block(BLOCK_2)
    bench.leave_claim(BLOCK_2, AffinityState.PENDING)
    bench.spent()
    bench.take("h1")
    assert bench.spent() == (2, 1)
    changed = [write.key.kind for write in bench.decision(request("h2")).writes if isinstance(write, Create | Update)]
    assert changed == [HANDLE, BLOCK]


def test_a_handle_that_counts_too_much_is_put_right_where_it_takes(bench: Bench) -> None:  # a crash before the block
    bench.leave_handle("h", b0=5, b1=2)
    assert bench.take("h") == ["10.0.0.0"]
    assert bench.counts("h") == {BLOCK_0: 1, BLOCK_1: 2}
    assert bench.release("h") == ["10.0.0.0"]
    assert bench.handles() == []


def test_a_handle_counts_what_was_taken_and_not_what_was_asked() -> None:
    """Trap 26: a block that had less to give than was asked leaves no count behind."""
    bench = Bench.new()
    bench.add_pool("main", "10.0.0.0/26")
    bench.take("h1", v4(60))
    assert len(bench.take_what_there_is("h2", v4(9))) == 4
    assert bench.counts("h2") == {BLOCK_0: 4}
    bench.release("h2")
    assert bench.handles() == ["h1"]


def test_a_claim_whose_key_is_rubbish_is_named(bench: Bench) -> None:
    bench.leave_claim(BLOCK_0, AffinityState.CONFIRMED)
    record = bench.records(AFFINITY)[0]
    bench.put(AFFINITY.key(*record.key.path[:3], "rubbish"), record.value)
    with pytest.raises(Malformed, match=r"BlockAffinity\(host/node-a/ipv4/rubbish\) is malformed"):
        bench.take("h")


# --- blocks in pools that select the node no more -----------------------------------------------------------------


@pytest.fixture
def deselected() -> Bench:
    """A node with a block in a pool that has ceased to select it, and a pool that serves."""
    bench = Bench.new()
    bench.add_pool("main", "10.0.0.0/24")
    bench.add_pool("next", "11.0.0.0/24")
    bench.change_pool("main", node_selector="has(old)")
    bench.label_node()
    return bench


def test_an_empty_block_is_given_up_with_the_next_assignment(deselected: Bench) -> None:
    deselected.give_block(BLOCK_0)
    decision = deselected.decision(request("h"))
    assert BlockSeen(block=Prefix.parse(BLOCK_0), outcome=BlockOutcome.GIVEN_UP) in decision.trace
    deselected.spent()
    assert deselected.take("h") == ["11.0.0.0"]
    assert deselected.spent() == (3, 1)
    assert deselected.blocks() == {NEXT: "host:node-a"}
    assert deselected.claims() == {(NODE, NEXT): "confirmed"}


def test_what_is_given_up_makes_room_for_what_is_claimed(deselected: Bench) -> None:
    deselected.configure(is_affinity_strict=True, max_blocks=1)
    deselected.give_block(BLOCK_0)
    assert deselected.take("h") == ["11.0.0.0"]
    assert deselected.blocks() == {NEXT: "host:node-a"}


def test_nothing_is_given_up_where_nothing_can_be_had(deselected: Bench) -> None:
    deselected.give_block(BLOCK_0)
    deselected.disable_pool("next")
    with pytest.raises(NoPoolServes):
        deselected.take("h")
    assert deselected.blocks() == {BLOCK_0: "host:node-a"}


def test_a_block_in_use_stays_and_counts(deselected: Bench) -> None:
    deselected.take("h1", v4(1, "main"))
    deselected.configure(is_affinity_strict=True, max_blocks=1)
    assert deselected.take_what_there_is("h2", v4(1, "main")) == ["10.0.0.1"]
    with pytest.raises(BlockLimitReached, match="limit of 1 blocks reached"):
        deselected.take("h3")
    assert deselected.blocks() == {BLOCK_0: "host:node-a"}


def test_a_block_that_only_cools_down_stays_until_it_has(deselected: Bench) -> None:
    deselected.configure(cooldown_s=30)
    deselected.take("h1", v4(1, "main"))
    deselected.release("h1")
    deselected.take("h2")
    assert BLOCK_0 in deselected.blocks()
    deselected.clock.sleep(31)
    deselected.take("h3")
    assert BLOCK_0 not in deselected.blocks()


def test_a_block_that_is_borrowed_from_meanwhile_is_not_given_up(deselected: Bench) -> None:
    deselected.give_block(BLOCK_0)
    deselected.label_node(OTHER, old="yes")
    borrow = Meanwhile(lambda: deselected.take("h2", v4(4 * 64, "main"), node=OTHER))
    assert deselected.assign(request("h1"), {1: borrow}) == ["11.0.0.0"]
    assert deselected.blocks()[BLOCK_0] == "host:node-a"
    assert len(deselected.held()) == 257


@pytest.mark.parametrize("changes", [
    {"node_selector": "all()", "is_disabled": True},
    {"is_disabled": True},
    {"node_selector": "all()", "assignment_mode": AssignmentMode.MANUAL},
    {"node_selector": "all()", "namespace_selector": "has(team)"},
    {"node_selector": "all()", "allowed_uses": (AllowedUse.TUNNEL,)},
])  # fmt: skip
def test_a_block_left_out_for_another_reason_stays(deselected: Bench, changes: dict[str, object]) -> None:
    """Trap 25, I-37: only a node selector makes a node give its blocks up."""
    deselected.give_block(BLOCK_0)
    deselected.change_pool("main", **changes)
    deselected.take("h")
    assert deselected.claims() == {(NODE, BLOCK_0): "confirmed", (NODE, NEXT): "confirmed"}


def test_a_block_stays_where_another_pool_is_named(deselected: Bench) -> None:  # trap 25
    deselected.change_pool("main", node_selector="all()")
    deselected.give_block(BLOCK_0)
    deselected.take("h", v4(1, "next"))
    assert deselected.claims() == {(NODE, BLOCK_0): "confirmed", (NODE, NEXT): "confirmed"}


def test_a_block_of_a_pool_that_is_being_removed_or_gone_is_left_to_who_removes_it(deselected: Bench) -> None:
    deselected.give_block(BLOCK_0)
    pool = deselected.get(ippool_key("main"))
    deselected.put(pool.key, evolve(pool, metadata=evolve(pool.metadata, deletion_time_ns=1)))
    deselected.take("h1")
    assert BLOCK_0 in deselected.blocks()
    deselected.remove(pool.key)
    deselected.take("h2")
    assert BLOCK_0 in deselected.blocks()


def test_a_block_is_not_given_up_on_a_selector_that_cannot_be_read(deselected: Bench) -> None:
    deselected.change_pool("main", node_selector="has(")
    deselected.give_block(BLOCK_0)
    deselected.take("h", v4(1, "next"))
    assert BLOCK_0 in deselected.blocks()


def test_a_block_of_the_other_family_is_given_up_only_with_an_assignment_of_it(deselected: Bench) -> None:
    deselected.add_pool("six", "fd00::/120")
    deselected.give_block(BLOCK_0)
    wish = evolve(request("h", v6()), shortfall=Shortfall.RETURN)
    assert deselected.assign(wish) == ["fd00::"]
    assert BLOCK_0 in deselected.blocks()


def test_a_node_that_nobody_registered_is_told_so(bench: Bench) -> None:
    bench.change_pool("main", node_selector="zone == 'x'")
    with pytest.raises(
        NoPoolServes, match=r"^no configured netplug pools for node node-a \(IPv4\), which is not registered "
    ) as caught:
        bench.take("h")
    assert caught.value.is_registered is False
    bench.label_node(zone="y")
    with pytest.raises(NoPoolServes, match=r"^no configured .* for node node-a \(IPv4\): IPPool main "):
        bench.take("h")
