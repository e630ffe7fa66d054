"""Where addresses come from: the node's own blocks, what a crash left of them, new claims, the limit."""

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.ipam import supply
from netplug_core.ipam.affinity import AFFINITY, AffinityState, affinity_key, host_owner
from netplug_core.ipam.block import BLOCK
from netplug_core.ipam.handle import HANDLE
from netplug_core.ipam.request import Assignment, Reach, Shortfall
from netplug_core.ipam.trace import PoolsExhausted
from netplug_core.records import Create, List, Malformed, Update
from tests.unit.netplug_core.ipam.bench import NODE, OTHER, Bench, request, v4, v6

BLOCK_0, BLOCK_1, BLOCK_2 = "10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26"


@pytest.fixture
def bench() -> Bench:
    """A cluster with one pool of four blocks."""
    made = Bench.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


# --- on a shared link --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cidr, length, given", [
    ("10.0.0.0/29", 29, ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]),
    ("10.0.0.0/29", 31, ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]),
    ("10.0.0.0/29", 32, ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]),
    ("10.0.0.0/30", 32, ["10.0.0.2"]),
    ("10.0.0.0/31", 31, []),
    ("10.0.0.0/32", 32, []),
])  # fmt: skip
def test_network_gateway_and_broadcast_stay_free(cidr: str, length: int, given: list[str]) -> None:
    bench = Bench.new()
    bench.add_pool("link", cidr, length)
    wish = evolve(request("h", v4(8)), reach=Reach.ON_LINK, shortfall=Shortfall.RETURN)
    assert bench.assign(wish) == given


def test_blocks_that_a_link_cannot_use_do_not_count_as_claims() -> None:
    bench = Bench.new()
    bench.add_pool("link", "10.0.0.0/24", 32)
    wish = evolve(request("h", v4(20)), reach=Reach.ON_LINK)
    assert bench.assign(wish) == [f"10.0.0.{number}" for number in range(2, 22)]
    assert len(bench.blocks()) == 20


def test_a_link_of_ipv6_keeps_its_edges_too() -> None:
    bench = Bench.new()
    bench.add_pool("link", "fd00::/125")
    wish = evolve(request("h", v6(8)), reach=Reach.ON_LINK, shortfall=Shortfall.RETURN)
    assert bench.assign(wish) == ["fd00::2", "fd00::3", "fd00::4", "fd00::5", "fd00::6"]


# --- its own blocks ----------------------------------------------------------------------------------------------


def test_own_blocks_are_used_up_before_a_new_one_is_claimed(bench: Bench) -> None:
    bench.take("h1", v4(60))
    assert bench.take("h2", v4(6))[3:] == ["10.0.0.63", "10.0.0.64", "10.0.0.65"]
    assert bench.claims() == {(NODE, BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}


def test_blocks_of_others_are_passed_over(bench: Bench) -> None:
    bench.take("h1", node=OTHER)
    assert bench.take("h2") == ["10.0.0.64"]
    assert bench.blocks() == {BLOCK_0: "host:node-b", BLOCK_1: "host:node-a"}


def test_a_block_of_nobody_is_passed_over(bench: Bench) -> None:
    bench.leave_block(BLOCK_0, node="")
    assert bench.take("h") == ["10.0.0.64"]


@pytest.mark.parametrize("owner, are_listed", [(NODE, False), (OTHER, True)])
def test_all_blocks_are_listed_only_where_every_probe_is_taken_by_others(owner: str, *, are_listed: bool) -> None:
    bench = Bench.new()
    bench.add_pool("main", "10.0.0.0/24", 28)
    bench.take("h1", v4(10 * 16), node=owner)
    decision, reads = bench.decision_and_reads(request("h2"))
    assert isinstance(decision.result, Assignment)
    assert str(decision.result.addresses[0].address) == "10.0.0.160"
    assert len(reads) == 3
    assert any(isinstance(query, List) and query.kind == BLOCK for read in reads for query in read) is are_listed


def test_all_blocks_are_listed_page_by_page() -> None:
    bench = Bench.new()
    bench.add_pool("main", "10.0.0.0/20", 32)
    for number in range(supply.PAGE + 1):
        bench.leave_block(str(Prefix.parse("10.0.0.0/20").part(number, 32)), node=OTHER)
    _decision, reads = bench.decision_and_reads(request("h"))
    assert [len(read) for read in reads[1:]] == [supply.PROBES, 1, 1]
    assert bench.take("h") == ["10.0.3.233"]


@pytest.mark.parametrize("state", AffinityState)
def test_a_claim_without_its_block_is_gone_on_with(bench: Bench, state: AffinityState) -> None:
    bench.leave_claim(BLOCK_2, state)
    assert bench.take("h") == ["10.0.0.128"]
    assert bench.claims() == {(NODE, BLOCK_2): "confirmed"}
    assert bench.blocks() == {BLOCK_2: "host:node-a"}


@pytest.mark.parametrize("state", [AffinityState.PENDING, AffinityState.PENDING_DELETION])
def test_a_claim_half_made_or_half_given_up_is_confirmed_again(bench: Bench, state: AffinityState) -> None:  # I-86
    bench.leave_block(BLOCK_2)
    bench.leave_claim(BLOCK_2, state)
    before = bench.block(BLOCK_2).sequence
    assert bench.take("h") == ["10.0.0.128"]
    assert bench.claims() == {(NODE, BLOCK_2): "confirmed"}
    block = bench.block(BLOCK_2)
    assert block.sequences == ((0, before + 1),)  # it was stored once more before the address was taken
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


def test_a_block_whose_claim_was_lost_is_claimed_again(bench: Bench) -> None:
    bench.take("h1")
    bench.remove(affinity_key(host_owner(NODE), Prefix.parse(BLOCK_0)))
    assert bench.take("h2") == ["10.0.0.1"]
    assert bench.claims() == {(NODE, BLOCK_0): "confirmed"}
    assert bench.held() == {"10.0.0.0": "h1", "10.0.0.1": "h2"}


def test_a_full_block_whose_claim_was_lost_is_no_claim_to_make(bench: Bench) -> None:
    bench.take("h1", v4(64))
    bench.remove(affinity_key(host_owner(NODE), Prefix.parse(BLOCK_0)))
    assert bench.take("h2") == ["10.0.0.64"]
    assert bench.claims() == {(NODE, BLOCK_1): "confirmed"}


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


def test_a_claim_whose_key_is_rubbish_is_named(bench: Bench) -> None:
    bench.leave_claim(BLOCK_0, AffinityState.CONFIRMED)
    record = bench.records(AFFINITY)[0]
    bench.put(AFFINITY.key(*record.key.path[:3], "rubbish"), record.value)
    with pytest.raises(Malformed, match=r"BlockAffinity\(host/node-a/ipv4/rubbish\) is malformed"):
        bench.take("h")


# --- the limit ---------------------------------------------------------------------------------------------------


@pytest.fixture
def small_blocks() -> Bench:
    """A cluster whose pools have more blocks than a node may own."""
    made = Bench.new()
    made.add_pool("main", "10.0.0.0/24", 30)
    made.add_pool("other", "11.0.0.0/24", 30)
    return made


def test_a_node_owns_no_more_blocks_than_the_limit(small_blocks: Bench) -> None:
    given = small_blocks.take_what_there_is("h", v4(256, "main"))
    assert len(given) == 80
    assert len(small_blocks.blocks()) == 20
    assert small_blocks.take("h2", node=OTHER) == ["10.0.0.80"]


def test_alternating_pools_do_not_exceed_the_limit(small_blocks: Bench) -> None:
    small_blocks.take("h1", v4(76, "main"))
    assert len(small_blocks.take_what_there_is("h2", v4(76, "other"))) == 4
    assert len(small_blocks.blocks()) == 20


def test_the_limit_says_which_block_it_kept_from_being_claimed(small_blocks: Bench) -> None:
    small_blocks.take("h1", v4(80, "main"))
    with pytest.raises(PoolsExhausted) as caught:
        small_blocks.take("h2", v4(1, "main"))
    assert str(caught.value) == (
        "Assigned 0 out of 1 requested IPv4 addresses; "
        "IPPool main (10.0.0.0/24): 256 addresses, 80 used, 0 free in blocks of other nodes; "
        "block 10.0.0.80/30 was not claimed: the node has reached its block limit (limit 20)"
    )


def test_where_nothing_is_left_to_claim_the_limit_is_not_to_blame() -> None:
    bench = Bench.new()
    bench.add_pool("main", "10.0.0.0/28", 32)
    bench.add_pool("rest", "10.1.0.0/30", 32)
    bench.take("h1", v4(20))
    with pytest.raises(
        PoolsExhausted, match=r"No IPs available in pools: \[10\.0\.0\.0/28 10\.1\.0\.0/30\]; IPPool main"
    ):
        bench.take("h2")
