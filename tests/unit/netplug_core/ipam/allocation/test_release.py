"""Release by handle: from what is stored, whatever a crash or a person left of it."""

import pytest

from netplug_core.addressing import Address, Prefix
from netplug_core.errors import Unavailable
from netplug_core.flows.readiness import READINESS_GATE
from netplug_core.ipam.allocation.release import decide_release, held, release_queries
from netplug_core.ipam.allocation.request import Released, ReleaseRequest
from netplug_core.ipam.model.affinity import affinity_key, host_owner
from netplug_core.ipam.model.block import Attribute, block_key
from netplug_core.ipam.model.handle import Handle, handle_key
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import ABSENT, Decision, Delete, NeedMore, Require, Update
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY
from netplug_core.resources.ippool import ippool_key
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, ipv6
from tests.harness.ipam_release import decide_without_commit, sequence_of, texts

BLOCK_0, BLOCK_1 = "10.0.0.0/26", "10.0.0.64/26"


@pytest.fixture
def bench() -> IPAMHarness:
    """A cluster with one pool of four blocks."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


def test_everything_a_handle_holds_is_freed_and_nothing_else(bench: IPAMHarness) -> None:
    bench.add_pool("six", "fd00::/120")
    bench.assign_or_refuse("h1", ipv4(70), ipv6(2))
    bench.assign_or_refuse("h2", ipv4(1))
    freed = bench.release("h1")
    assert len(freed) == 72
    assert bench.held() == {"10.0.0.70": "h2"}
    assert bench.handles() == ["h2"]
    assert bench.affinities()[(NODE, BLOCK_0)] == "confirmed"  # an empty block stays its node's


def test_trap_26_a_handle_counts_what_it_took_and_not_what_it_wanted(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("other", ipv4(60))
    bench.assign_or_refuse("h1", ipv4(6))
    assert bench.handle_counts("h1") == {BLOCK_0: 4, BLOCK_1: 2}
    bench.release("h1")
    assert bench.handles() == ["other"]


def test_the_freed_addresses_are_named_by_block_and_number(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(2))
    assert bench.release("h1") == ["10.0.0.0", "10.0.0.1"]


@pytest.mark.parametrize("handle", ["h1", "never-heard-of"])
def test_releasing_twice_is_releasing_once(bench: IPAMHarness, handle: str) -> None:
    bench.assign_or_refuse("h1")
    bench.release("h1")
    bench.take_call_counts()
    assert bench.release(handle) == []
    assert bench.take_call_counts() == (1, 0)


def test_pool_node_and_claim_may_be_gone(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.remove(ippool_key("main"))
    bench.remove(affinity_key(host_owner(NODE), Prefix.parse(BLOCK_0)))
    assert bench.release("h1") == ["10.0.0.0"]


def test_the_last_address_takes_a_block_of_nobody_with_it(bench: IPAMHarness) -> None:
    bench.put_block(BLOCK_0, node="")
    key = block_key(Prefix.parse(BLOCK_0))
    block = bench.get(key)
    bench.put(key, block.assign(block.free[:1], Attribute(handle="h1")).assign(block.free[1:2], Attribute(handle="h2")))
    bench.put_handle("h1", b0=1)
    bench.put_handle("h2", b0=1)
    assert bench.release("h1") == ["10.0.0.0"]
    assert bench.blocks() == {BLOCK_0: ""}
    assert bench.release("h2") == ["10.0.0.1"]
    assert bench.blocks() == {}


def test_a_handle_that_holds_nothing_is_removed(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("other")
    bench.put_handle("h1", b0=3)
    assert bench.release("h1") == []
    assert bench.handles() == ["other"]
    assert bench.held() == {"10.0.0.0": "other"}


def test_a_handle_that_names_no_block_is_removed(bench: IPAMHarness) -> None:
    bench.put(handle_key("h1"), Handle())
    assert bench.release("h1") == []
    assert bench.handles() == []


def test_trap_30_a_handle_that_counts_too_much_goes_in_the_same_commit(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.put_handle("h1", b0=9)
    bench.take_call_counts()
    assert bench.release("h1") == ["10.0.0.0"]
    assert bench.take_call_counts() == (2, 1)
    assert bench.handles() == []


def test_trap_47_a_block_that_is_gone_or_holds_nothing_of_it_is_dropped_from_the_handle(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.assign_or_refuse("other", node=OTHER_NODE)
    bench.put_handle("h1", b0=1, b1=1, b3=2)
    assert bench.release("h1") == ["10.0.0.0"]
    assert bench.handles() == ["other"]
    assert bench.held() == {"10.0.0.64": "other"}


def test_a_handle_whose_blocks_are_all_gone_is_removed(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.put_handle("h1", b0=1, b1=1)
    bench.remove(block_key(Prefix.parse(BLOCK_0)))
    assert bench.release("h1") == []
    assert bench.handles() == []


# --- by sequence number -----------------------------------------------------------------------------------------


def release_taken_under(harness: IPAMHarness, handle: str, number: int) -> list[str]:
    wanted = ReleaseRequest(handle=handle, sequence=number)
    return texts(harness.ipam().release(wanted, NO_ENDPOINT, deadline=harness.deadline).addresses)


def test_trap_3_what_was_taken_under_another_number_stays_and_is_counted(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(2))
    first = sequence_of(bench, "10.0.0.0", BLOCK_0)
    bench.assign_or_refuse("h1", ipv4(4))
    bench.put_handle("h1", b0=9)
    assert release_taken_under(bench, "h1", first + 1) == ["10.0.0.2", "10.0.0.3"]
    assert bench.held() == {"10.0.0.0": "h1", "10.0.0.1": "h1"}
    assert bench.handle_counts("h1") == {BLOCK_0: 2}
    assert release_taken_under(bench, "h1", first) == ["10.0.0.0", "10.0.0.1"]
    assert bench.handles() == []


def test_trap_2_a_handle_loses_as_many_as_are_released(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(3))
    bench.assign_or_refuse("h1", ipv4(5))
    number = sequence_of(bench, "10.0.0.0", BLOCK_0)
    assert len(release_taken_under(bench, "h1", number)) == 3
    assert bench.handle_counts("h1") == {BLOCK_0: 2}


def test_a_number_that_nothing_was_taken_under_changes_nothing(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.take_call_counts()
    assert release_taken_under(bench, "h1", 1) == []
    assert bench.take_call_counts() == (2, 0)
    assert bench.handle_counts("h1") == {BLOCK_0: 1}


# --- addresses that have to rest --------------------------------------------------------------------------------


def test_a_handle_goes_at_once_though_its_addresses_rest(bench: IPAMHarness) -> None:
    bench.configure(cooldown_s=60)
    bench.assign_or_refuse("h1", ipv4(2))
    assert bench.release("h1") == ["10.0.0.0", "10.0.0.1"]
    assert bench.handles() == []
    assert bench.block(BLOCK_0).cooling_count == 2
    assert bench.assign_or_refuse("h2") == ["10.0.0.2"]


def test_what_rests_is_not_released_again(bench: IPAMHarness) -> None:
    bench.configure(cooldown_s=60)
    bench.assign_or_refuse("h1")
    bench.release("h1")
    before = bench.block(BLOCK_0)
    bench.put_handle("h1", b0=1)
    bench.clock.sleep(30)
    assert bench.release("h1") == []
    assert bench.block(BLOCK_0) == before
    assert bench.handles() == []


def test_a_release_frees_what_others_left_to_rest_long_ago(bench: IPAMHarness) -> None:
    bench.configure(cooldown_s=60)
    bench.assign_or_refuse("h1")
    bench.assign_or_refuse("h2")
    bench.release("h1")
    bench.clock.sleep(61)
    bench.release("h2")
    assert texts(held.address for held in bench.block(BLOCK_0).held()) == ["10.0.0.1"]
    assert bench.block(BLOCK_0).free[-1] == 0


# --- what may get in between ------------------------------------------------------------------------------------


def test_a_locked_cluster_frees_nothing(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.set_ready(is_ready=False)
    with pytest.raises(Unavailable, match="datastoreReady is false") as caught:
        bench.release("h1")
    assert caught.value.code == 11
    assert bench.held() == {"10.0.0.0": "h1"}


def test_an_address_returns_only_after_all_others(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.release("h1")
    assert [bench.assign_or_refuse(f"h{number}")[0] for number in range(2, 66)] == [
        *(f"10.0.0.{number}" for number in range(1, 64)), "10.0.0.0",
    ]  # fmt: skip


def decision(harness: IPAMHarness, handle: str) -> Decision[Released]:
    request = ReleaseRequest(handle=handle)
    now_ns = harness.clock.now_ns()
    return decide_without_commit(
        harness,
        (READINESS_GATE.query, *release_queries(request)),
        lambda snapshot: READINESS_GATE.decide(snapshot, lambda seen: decide_release(seen, request, now_ns)),
    )


def test_the_commit_frees_addresses_before_it_forgets_the_handle(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    made = decision(bench, "h1")
    flag, configuration, block, handle = made.writes
    assert flag == Require(CLUSTER_INFORMATION_KEY, ABSENT)
    assert configuration == Require(IPAM_CONFIGURATION_KEY, ABSENT)
    assert isinstance(block, Update)
    assert isinstance(handle, Delete)
    assert made.result == Released(addresses=(Address.parse("10.0.0.0"),))


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_release_of_nothing_writes_nothing(bench: IPAMHarness, *, is_ready: bool) -> None:
    bench.set_ready(is_ready=is_ready)
    assert decision(bench, "h1").writes == ()


def test_the_commit_rests_on_the_configuration_for_it_says_how_long_addresses_rest(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.configure(cooldown_s=60)
    stored = bench.find_record(IPAM_CONFIGURATION_KEY)
    assert stored is not None
    assert decision(bench, "h1").writes[1] == Require(stored.key, stored.revision)


def test_a_handle_that_counts_more_than_is_found_is_nothing_to_decide_from_memory(bench: IPAMHarness) -> None:
    """A block that is remembered may be older than the handle: only one that is read shows that nothing is held."""
    bench.assign_or_refuse("h1")
    assert not decision(bench, "h1").is_partial
    bench.put_handle("h2", b0=1, b1=1)
    short = decision(bench, "h2")
    assert short.is_partial
    assert isinstance(short.writes[-1], Delete)


def test_what_a_handle_holds_can_be_asked(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(2), node=OTHER_NODE)
    snapshot = bench.read(*release_queries(ReleaseRequest(handle="h1")))
    more = held(snapshot, "h1")
    assert isinstance(more, NeedMore)
    assert held(snapshot.merged(bench.read(*more.queries)), "h1") == tuple(map(Address.parse, ("10.0.0.0", "10.0.0.1")))
