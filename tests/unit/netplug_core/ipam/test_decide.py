"""Assignment as one decision: what one gets, what is refused and taken back, and the commit it comes in."""

from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError, ConfigurationError, Unavailable
from netplug_core.ipam.affinity import AFFINITY, AffinityState, affinity_key, host_owner
from netplug_core.ipam.block import block_key
from netplug_core.ipam.decide import decide, queries
from netplug_core.ipam.handle import handle_key
from netplug_core.ipam.interface import NO_ENDPOINT
from netplug_core.ipam.refusals import NoPoolServes, PoolsExhausted, StrictlyExhausted
from netplug_core.ipam.request import AssignedAddress, Assignment, AssignRequest, Automatic, Shortfall
from netplug_core.ipam.trace import BlockOutcome, BlockSeen, PoolFull, PoolOutcome, PoolSeen, Rule, RuleSeen
from netplug_core.records import ABSENT, Create, Get, Key, Require, RequireUnchanged, Revision, Update
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY
from netplug_core.resources.ippool import IPPOOL, AllowedUse, ippool_key
from netplug_core.resources.ipreservation import IPRESERVATION
from netplug_core.resources.node import node_key
from netplug_core.testing.faults import FaultyDatastore, Meanwhile
from tests.unit.netplug_core.ipam.bench import NODE, OTHER, Bench, from_first, ip, request, v4, v6

FOUR, SIX = "192.168.1.0/24", "fd80:24e2:f998:72d6::/120"
BLOCK_0, BLOCK_1, BLOCK_2 = "10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26"


@pytest.fixture
def bench() -> Bench:
    """A cluster with one pool of four blocks."""
    made = Bench.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


# --- what one gets -----------------------------------------------------------------------------------------------


def test_a_first_address_comes_with_block_claim_and_handle(bench: Bench) -> None:
    assert bench.take("h1") == ["10.0.0.0"]
    assert bench.blocks() == {BLOCK_0: "host:node-a"}
    assert bench.claims() == {(NODE, BLOCK_0): "confirmed"}
    assert bench.counts("h1") == {BLOCK_0: 1}
    block = bench.block(BLOCK_0)
    assert block.sequences[0] == bench.clock.wall_ns  # the new block's number, from before the address was taken
    assert block.sequence == bench.clock.wall_ns + 1


def test_what_is_stored_with_an_address_says_whose_it_is(bench: Bench) -> None:
    bench.assign(evolve(request("h1"), owner=(("container", "c1"), ("network", "net"), ("pod", "web-0"))))
    (held,) = bench.block(BLOCK_0).held()
    assert held.attribute.handle == "h1"
    assert held.attribute.owner == (
        ("container", "c1"),
        ("network", "net"),
        ("node", NODE),
        ("pod", "web-0"),
        ("timestamp", "2026-01-01T00:00:00Z"),
    )


def test_the_answer_names_the_pool_each_address_is_from(bench: Bench) -> None:
    bench.add_pool("six", SIX)
    assignment = bench.decision(request("h1", v4(), v6())).result
    assert assignment == Assignment(
        addresses=(
            AssignedAddress(address=Address.parse("10.0.0.0"), prefix=Prefix.parse("10.0.0.0/24")),
            AssignedAddress(address=Address.parse("fd80:24e2:f998:72d6::"), prefix=Prefix.parse(SIX)),
        )
    )


def test_families_come_in_the_order_of_the_request(bench: Bench) -> None:
    bench.add_pool("six", SIX)
    assert bench.take("h", v6(), v4()) == ["fd80:24e2:f998:72d6::", "10.0.0.0"]


def test_a_pool_larger_than_any_list_is_served() -> None:
    bench = Bench.new()
    bench.add_pool("huge", "fd00::/64")
    assert bench.take("h", v6(65)) == [f"fd00::{number:x}" if number else "fd00::" for number in range(65)]


def test_nothing_wanted_is_nothing_given(bench: Bench) -> None:
    assert bench.take("h", v4(0)) == []
    assert bench.handles() == []


def test_a_disabled_pool_serves_no_more_and_what_was_given_stays(bench: Bench) -> None:
    bench.take("h1")
    bench.disable_pool("main")
    bench.add_pool("next", "11.0.0.0/24")
    assert bench.take("h2") == ["11.0.0.0"]
    assert bench.take("h1") == ["10.0.0.0"]
    assert bench.release("h1") == ["10.0.0.0"]


def test_a_deleted_pool_gives_no_more_addresses(bench: Bench) -> None:  # I-26
    bench.take("h1")
    bench.remove(ippool_key("main"))
    bench.add_pool("next", "11.0.0.0/24")
    assert bench.take("h2") == ["11.0.0.0"]
    # What is held is still held; its range is its block's now.
    assert bench.decision(request("h1")).result == Assignment(
        addresses=(AssignedAddress(address=Address.parse("10.0.0.0"), prefix=Prefix.parse(BLOCK_0)),)
    )


def test_pools_are_taken_in_the_order_given_until_it_is_enough(bench: Bench) -> None:
    bench.add_pool("tiny", "11.0.0.0/31")
    assert bench.take("h", v4(3, "tiny", "10.0.0.0/24")) == ["10.0.0.0", "11.0.0.0", "11.0.0.1"]


def test_a_block_of_another_size_than_the_pool_has_now_is_left_alone(bench: Bench) -> None:
    bench.leave_block("10.0.0.240/28")
    bench.leave_claim("10.0.0.240/28", AffinityState.CONFIRMED)
    assert bench.take("h") == ["10.0.0.0"]
    assert bench.block("10.0.0.240/28").is_empty


# --- asked again -------------------------------------------------------------------------------------------------


def test_a_second_request_gets_the_same_addresses_and_writes_nothing(bench: Bench) -> None:
    bench.add_pool("six", SIX)
    first = bench.take("h", v4(2), v6())
    stored = bench.block(BLOCK_0)
    bench.spent()
    assert bench.take("h", v4(2), v6()) == first
    assert bench.spent() == (2, 0)
    assert bench.block(BLOCK_0) == stored


def test_a_request_states_the_total(bench: Bench) -> None:  # I-46
    assert bench.take("h", v4(1)) == ["10.0.0.0"]
    assert bench.take("h", v4(3)) == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]
    assert bench.take("h", v4(2)) == ["10.0.0.0", "10.0.0.1"]
    assert bench.counts("h") == {BLOCK_0: 3}


def test_another_node_is_told_the_same_addresses(bench: Bench) -> None:
    assert bench.take("h") == bench.take("h", node=OTHER) == ["10.0.0.0"]


# --- without a handle --------------------------------------------------------------------------------------------


def test_addresses_without_a_handle_are_new_ones_each_time(bench: Bench) -> None:
    assert bench.take(None) == ["10.0.0.0"]
    assert bench.take(None) == ["10.0.0.1"]
    assert bench.handles() == []
    assert bench.held() == {"10.0.0.0": None, "10.0.0.1": None}


def test_a_decision_without_a_handle_cannot_recognise_its_own_output(bench: Bench) -> None:
    assert not bench.decision(request(None)).repeatable
    assert bench.decision(request("h")).repeatable
    assert bench.decision(request(None, v4(0))).repeatable  # it writes nothing


def test_addresses_of_no_node_have_none_written_beside_them(bench: Bench) -> None:
    wish = evolve(request("h", node=""), affine_to="virtual:load-balancer")
    bench.assign(wish)
    (held,) = bench.block(BLOCK_0).held()
    assert held.attribute.owner == (("timestamp", "2026-01-01T00:00:00Z"),)


def test_blocks_of_a_virtual_claimant_are_its_own(bench: Bench) -> None:
    wish = evolve(request("h"), affine_to="virtual:load-balancer")
    assert bench.assign(wish) == ["10.0.0.0"]
    assert bench.take("h2") == ["10.0.0.64"]
    assert bench.blocks() == {BLOCK_0: "virtual:load-balancer", BLOCK_1: "host:node-a"}
    assert bench.claims() == {("load-balancer", BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}
    assert bench.assign(evolve(wish, handle="h3")) == ["10.0.0.1"]


# --- at most so many per handle ------------------------------------------------------------------------------------


def test_a_maximum_per_handle_caps_the_total(bench: Bench) -> None:  # I-46
    def totals(handle: str, most: int) -> list[list[str]]:
        return [bench.assign(evolve(request(handle, v4(count)), max_per_handle=most)) for count in (1, 2, 3)]

    assert totals("one", 1) == [["10.0.0.0"]] * 3
    assert totals("two", 2) == [["10.0.0.1"], ["10.0.0.1", "10.0.0.2"], ["10.0.0.1", "10.0.0.2"]]
    decision = bench.decision(evolve(request("two", v4(3)), max_per_handle=2))
    assert decision.trace == (RuleSeen(rule=Rule.MOST_PER_HANDLE, detail="2"),)
    assert bench.decision(evolve(request("two", v4(2)), max_per_handle=2)).trace == ()
    bench.remove(ippool_key("main"))
    assert bench.decision(evolve(request("new", v4(3)), max_per_handle=2)).trace == decision.trace


def test_a_maximum_per_handle_is_one_of_each_family(bench: Bench) -> None:
    bench.add_pool("six", SIX)
    assert len(bench.assign(evolve(request("h", v4(2), v6(2)), max_per_handle=1))) == 2


def test_what_a_maximum_refused_is_not_stored_later(bench: Bench) -> None:
    """Trap 4: a block is a value; what was decided and not committed is nowhere."""
    wish = evolve(request("h"), max_per_handle=1)
    bench.assign(wish)
    before = bench.block(BLOCK_0)
    bench.assign(evolve(wish, wanted=(v4(5),)))
    assert bench.block(BLOCK_0) == before
    bench.take("h2")
    assert bench.held() == {"10.0.0.0": "h", "10.0.0.1": "h2"}


def test_deciding_changes_nothing_that_was_read(bench: Bench) -> None:
    """Trap 22: pools and blocks are frozen, so a remembered one cannot be spoiled."""
    bench.take("h1")
    read = bench.read(*queries(request("h")), Get(block_key(Prefix.parse(BLOCK_0))))
    before = dict(read.answers)
    first = decide(read, request("h"), 1, from_first)
    assert decide(read, request("h"), 1, from_first) == first
    assert read.answers == before


# --- shortfall ---------------------------------------------------------------------------------------------------


def test_less_than_asked_is_an_answer_where_the_request_says_so() -> None:  # I-17
    bench = Bench.new()
    bench.add_pool("four", FOUR)
    bench.add_pool("six", SIX)
    given = bench.take_what_there_is("h", v4(257), v6(257))
    assert len(set(given)) == 512
    decision = bench.decision(evolve(request("h", v4(257), v6(257)), shortfall=Shortfall.RETURN))
    shortfall = PoolsExhausted(Family.IPV4, 256, 257, decision.trace)
    assert "No IPs available in pools: [192.168.1.0/24 fd80:24e2:f998:72d6::/120]" in str(shortfall)
    assert decision.writes == ()


def test_a_shortfall_refuses_all_families_and_writes_nothing(bench: Bench) -> None:
    bench.add_pool("six", "fd00::/127")
    bench.spent()
    with pytest.raises(PoolsExhausted) as caught:
        bench.take("h", v4(), v6(3))
    assert bench.spent() == (3, 0)
    assert str(caught.value) == (
        "Assigned 2 out of 3 requested IPv6 addresses; No IPs available in pools: [fd00::/127]; "
        "IPPool six (fd00::/127): 2 addresses, 0 used, 0 reserved, 0 cooling, 0 free in blocks of other nodes"
    )
    assert (bench.blocks(), bench.claims(), bench.handles()) == ({}, {}, [])


def test_what_is_free_in_the_blocks_of_others_is_said(bench: Bench) -> None:
    bench.configure(is_affinity_strict=True)
    for number in range(4):
        bench.take(f"h{number}", node=f"node-{number}")
    with pytest.raises(
        StrictlyExhausted, match="256 addresses, 4 used, 0 reserved, 0 cooling, 252 free in blocks of other nodes"
    ):
        bench.take("h")


def test_nothing_at_all_is_an_answer_too_and_says_why(bench: Bench) -> None:
    bench.take("h1", v4(256), node=OTHER)
    wish = evolve(request("h"), shortfall=Shortfall.RETURN)
    result = bench.ipam().assign(wish, NO_ENDPOINT, deadline=bench.deadline)
    assert result.addresses == ()
    (shortfall,) = result.shortfalls
    assert (shortfall.code, shortfall.identifier) == (105, "pools-exhausted")
    assert "h" not in bench.handles()


@pytest.mark.parametrize("wanted", [(v4(), v6()), (v6(), v4())])
def test_what_one_family_cannot_have_does_not_keep_the_other_from_its_own(
    bench: Bench, wanted: tuple[Automatic, ...]
) -> None:
    """No IPv6 pool is no shortfall by itself, but is one beside an IPv4 address."""
    wish = evolve(request("h", *wanted), shortfall=Shortfall.RETURN)
    result = bench.ipam().assign(wish, NO_ENDPOINT, deadline=bench.deadline)
    assert [str(assigned.address) for assigned in result.addresses] == ["10.0.0.0"]
    assert [type(shortfall) for shortfall in result.shortfalls] == [NoPoolServes]
    with pytest.raises(NoPoolServes):
        bench.assign(evolve(wish, wanted=(v6(),)))


def test_what_is_held_already_is_an_answer_where_there_is_no_more(bench: Bench) -> None:
    bench.take("h")
    bench.disable_pool("main")
    assert bench.take_what_there_is("h", v4(2)) == ["10.0.0.0"]


def test_no_address_of_the_first_family_stays_when_the_second_is_refused(bench: Bench) -> None:
    """Trap 32: not even where less than asked would do."""
    bench.add_pool("six", SIX)
    for shortfall in Shortfall:
        with pytest.raises(AllocationError, match="does not exist"):
            bench.assign(evolve(request("h", v4(), v6(1, "fd00::/64")), shortfall=shortfall))
    assert (bench.held(), bench.blocks(), bench.handles()) == ({}, {}, [])


def test_an_unknown_pool_is_refused_whatever_the_request_tolerates(bench: Bench) -> None:  # I-29
    wish = evolve(request("h", v4(1, "10.0.0.0/24", "40.0.0.0/24")), shortfall=Shortfall.RETURN)
    with pytest.raises(AllocationError, match=r"the given pool \(40\.0\.0\.0/24\) does not exist"):
        bench.assign(wish)
    with pytest.raises(ConfigurationError, match="host bits"):
        bench.take("h", v4(1, "10.0.0.1/24"))
    assert bench.handles() == []


def test_a_cluster_without_pools_says_so() -> None:
    with pytest.raises(AllocationError, match=r"node-a \(IPv4\): there is no IPv4 pool at all"):
        Bench.new().take("h")


def test_a_refusal_takes_back_what_an_earlier_try_wrote_in_vain(bench: Bench) -> None:
    bench.configure(is_affinity_strict=True)
    for number in range(4):
        bench.take(f"h{number}", node=f"node-{number}")
    for take in (bench.take, bench.take_what_there_is):
        bench.leave_handle("h", b0=1)
        bench.leave_claim(BLOCK_0, AffinityState.PENDING)
        try:
            assert take("h") == []
        except StrictlyExhausted:
            assert take == bench.take
        assert "h" not in bench.handles()
        assert (NODE, BLOCK_0) not in bench.claims()


def test_a_refusal_leaves_what_is_held(bench: Bench) -> None:
    bench.take("h", v4(2))
    with pytest.raises(PoolsExhausted):
        bench.take("h", v4(300))
    assert bench.held() == {"10.0.0.0": "h", "10.0.0.1": "h"}
    assert bench.counts("h") == {BLOCK_0: 2}


# --- the cluster's ready flag ------------------------------------------------------------------------------------


def test_a_locked_cluster_assigns_nothing(bench: Bench) -> None:
    bench.set_ready(is_ready=False)
    bench.spent()
    with pytest.raises(Unavailable) as caught:
        bench.take("h")
    assert caught.value.code == 11
    assert str(caught.value) == ("ClusterInformation default: spec.datastoreReady is false: pod networking is locked")
    assert bench.spent() == (1, 0)
    assert bench.decision(request("h")).writes == ()
    bench.set_ready(is_ready=True)
    assert bench.take("h") == ["10.0.0.0"]


# --- the commit --------------------------------------------------------------------------------------------------


def revision(bench: Bench, key: Key[object]) -> Revision:
    record = bench.find_record(key)
    assert record is not None
    return record.revision


def test_a_commit_holds_only_while_everything_it_leant_on_is_as_it_was_read(bench: Bench) -> None:
    flag, pools, reservations, configuration, serving = bench.decision(request("h")).writes[:5]
    assert flag == Require(CLUSTER_INFORMATION_KEY, ABSENT)
    assert isinstance(pools, RequireUnchanged)
    assert pools.kind == IPPOOL
    assert isinstance(reservations, RequireUnchanged)
    assert reservations.kind == IPRESERVATION
    assert configuration == Require(IPAM_CONFIGURATION_KEY, ABSENT)
    assert serving == Require(ippool_key("main"), revision(bench, ippool_key("main")))


def test_a_configuration_and_a_node_that_were_looked_at_are_conditions_too(bench: Bench) -> None:
    bench.change_pool("main", node_selector="!has(zone)")
    bench.configure(cooldown_s=1)
    writes = bench.decision(request("h")).writes
    assert Require(IPAM_CONFIGURATION_KEY, revision(bench, IPAM_CONFIGURATION_KEY)) in writes
    assert Require(node_key(NODE), ABSENT) in writes
    bench.label_node(region="x")
    assert Require(node_key(NODE), revision(bench, node_key(NODE))) in bench.decision(request("h")).writes


def test_a_node_that_no_pool_selects_by_labels_is_no_condition(bench: Bench) -> None:
    bench.label_node(region="x")
    required = [write.key for write in bench.decision(request("h")).writes if isinstance(write, Require)]
    assert node_key(NODE) not in required


def test_each_pool_that_serves_is_required_once(bench: Bench) -> None:
    bench.add_pool("more", "11.0.0.0/24")
    writes = bench.decision(request("h", v4(300))).writes
    assert [str(write.key) for write in writes if isinstance(write, Require)][2:] == ["IPPool(main)", "IPPool(more)"]


@pytest.mark.parametrize("change, given", [
    (lambda bench: bench.add_pool("a", "11.0.0.0/24"), "11.0.0.0"),
    (lambda bench: bench.reserve("r", "10.0.0.0/32"), "10.0.0.1"),
    (lambda bench: bench.configure(cooldown_s=9), "10.0.0.0"),
    (lambda bench: bench.change_pool("main", allowed_uses=(AllowedUse.WORKLOAD,)), "10.0.0.0"),
    (lambda bench: bench.set_ready(is_ready=True), "10.0.0.0"),
])  # fmt: skip
def test_what_changes_between_read_and_commit_makes_the_decision_anew(
    bench: Bench, change: Callable[[Bench], object], given: str
) -> None:
    ipam = bench.ipam({1: Meanwhile(lambda: change(bench))})
    result = ipam.assign(request("h"), NO_ENDPOINT, deadline=bench.deadline)
    assert [str(assigned.address) for assigned in result.addresses] == [given]
    assert isinstance(ipam.datastore, FaultyDatastore)
    assert ipam.datastore.commits == 2


def test_a_pool_disabled_between_read_and_commit_gives_nothing(bench: Bench) -> None:
    """Trap 8."""
    with pytest.raises(NoPoolServes, match="is disabled"):
        bench.assign(request("h"), {1: Meanwhile(lambda: bench.disable_pool("main"))})
    assert (bench.held(), bench.blocks()) == ({}, {})


def test_a_node_relabelled_between_read_and_commit_is_judged_by_its_new_labels(bench: Bench) -> None:
    bench.change_pool("main", node_selector="zone == 'a'")
    bench.label_node(zone="a")
    with pytest.raises(NoPoolServes, match="does not select this node"):
        bench.assign(request("h"), {1: Meanwhile(lambda: bench.label_node(zone="b"))})
    assert bench.held() == {}


def test_a_commit_writes_claim_then_handle_then_address(bench: Bench) -> None:
    writes = bench.decision(request("h")).writes[5:]
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
    bench: Bench, limit: int | None, *, has_block: bool, rests_on_claims: bool
) -> None:
    if has_block:
        bench.give_block(BLOCK_0)
    writes = bench.decision(evolve(request("h"), block_limit=limit)).writes
    assert any(isinstance(write, RequireUnchanged) and write.kind == AFFINITY for write in writes) is rests_on_claims


def test_what_a_decision_considered_is_in_its_trace(bench: Bench) -> None:
    bench.take("h1", v4(64))
    bench.leave_block(BLOCK_1, node=OTHER)
    bench.leave_claim(BLOCK_1, AffinityState.PENDING)
    trace = bench.decision(request("h2")).trace
    assert trace == (
        PoolSeen(pool="main", prefix=Prefix.parse("10.0.0.0/24"), outcome=PoolOutcome.SERVES),
        BlockSeen(block=Prefix.parse(BLOCK_1), outcome=BlockOutcome.STALE),
        BlockSeen(block=Prefix.parse(BLOCK_0), outcome=BlockOutcome.FULL),
        BlockSeen(block=Prefix.parse(BLOCK_2), outcome=BlockOutcome.CLAIMED),
    )
    assert not any(isinstance(remark, PoolFull) for remark in trace)


def names_of(wish: AssignRequest) -> list[str]:
    """What is read first for a wish."""
    return [str(getattr(query, "key", getattr(query, "kind", ""))) for query in queries(wish)]


def test_the_first_read_asks_for_the_rules_the_handle_and_the_claims() -> None:
    rules = ["ClusterInformation(default)", "IPPool", "IPReservation", "IPAMConfiguration(default)"]
    assert names_of(request("h", v4(), v6())) == [*rules, "IPAMHandle(h)", "BlockAffinity", "BlockAffinity"]
    assert names_of(request(None, v4())) == [*rules, "BlockAffinity"]
    assert names_of(request("h", ip("10.0.0.1"))) == [*rules, "IPAMHandle(h)"]


def test_a_block_that_was_made_again_never_repeats_a_number(bench: Bench) -> None:
    bench.take("h")
    before = bench.block(BLOCK_0).sequence
    bench.clock.sleep(1)
    bench.remove(block_key(Prefix.parse(BLOCK_0)))
    bench.take("h2")
    assert bench.block(BLOCK_0).sequences[0] > before
