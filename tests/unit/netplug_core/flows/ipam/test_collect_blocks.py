"""The collector: cooldowns, empty blocks, and affinities that are not used."""

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.ipam.model import AFFINITY, AffinityState, Block, affinity_key, block_key, handle_key
from netplug_core.resources.ippool import IPPoolStatus, PoolCondition, ippool_key
from netplug_core.testing.faults import LostReply, RunBefore
from tests.harness.collector import GRACE_S, HALF_GRACE_S, CollectorHarness, action_texts, inject_faults, leave_affinity


@pytest.fixture
def harness() -> CollectorHarness:
    return CollectorHarness.with_pools()


def test_i_80_expired_cooldowns_are_freed_and_a_changed_block_is_skipped(harness: CollectorHarness) -> None:
    harness.set_cooldown(60)
    for n in (1, 5):
        harness.orchestrator.run_pod(f"p{n}", "node-a", f"10.0.0.{n}", f"10.0.0.{n + 1}")
        harness.assign_to_pod(f"10.0.0.{n}", f"p{n}")
        harness.assign_to_pod(f"10.0.0.{n + 1}", f"p{n}")
        harness.release(f"10.0.0.{n}", cooling=True)
    assert harness.tick().done == ()
    harness.clock.sleep(61)
    stale = harness.view()
    harness.assign_to_pod("10.0.0.3", "p1")
    report = harness.tick(stale)
    assert action_texts(report) == ["free the addresses of block 10.0.0.4/30 whose cooldown has expired"]
    assert [action.subject for action in report.skipped] == ["expired cooldowns of block 10.0.0.0/30"]
    one, two = (harness.get(harness.key_of(text)) for text in ("10.0.0.1", "10.0.0.5"))
    assert (one.cooling_count, two.cooling_count) == (1, 0)
    assert two.sequence > stale.blocks[1].value.sequence
    assert [int(n) for n in two.free] == [0, 3, 1]


def test_i_80_without_expired_cooldowns_nothing_is_written(harness: CollectorHarness) -> None:
    harness.set_cooldown(60)
    harness.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    harness.assign_to_pod("10.0.0.1")
    before = harness.find_record(harness.key_of("10.0.0.1"))
    commits = harness.inner.calls.commits
    assert harness.tick_twice().is_quiet
    assert harness.inner.calls.commits == commits
    assert harness.find_record(harness.key_of("10.0.0.1")) == before


def test_an_owned_block_remains_when_its_last_cooldown_expires(harness: CollectorHarness) -> None:
    harness.set_cooldown(60)
    harness.assign_to_pod("10.0.0.1")
    harness.release("10.0.0.1", cooling=True)
    harness.remove(handle_key("h-web"))
    harness.clock.sleep(61)
    assert len(harness.tick().done) == 1
    assert harness.get(harness.key_of("10.0.0.1")).is_empty


def test_a_longer_cooldown_takes_effect_at_once(harness: CollectorHarness) -> None:
    """The view has the old cooldown, and the commit reads the new one."""
    harness.set_cooldown(60)
    harness.assign_to_pod("10.0.0.1")
    harness.release("10.0.0.1", cooling=True)
    harness.clock.sleep(61)
    stale = harness.view()
    harness.set_cooldown(3600)
    harness.tick(stale)
    assert harness.get(harness.key_of("10.0.0.1")).cooling_count == 1


def test_a_block_without_an_owner_is_deleted_when_its_last_cooldown_expires(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    block = harness.get(harness.key_of("10.0.0.1"))
    harness.put(block.key, block.relinquished())
    harness.remove(affinity_key("host:node-a", block.prefix))
    harness.set_cooldown(60)
    harness.release("10.0.0.1", cooling=True)
    harness.remove(handle_key("h-web"))
    harness.clock.sleep(61)
    inject_faults(harness, LostReply())
    assert action_texts(harness.tick()) == ["free the addresses of block 10.0.0.0/30 whose cooldown has expired"]
    assert harness.blocks() == []


def test_leaked_addresses_cool_down_like_any_other(harness: CollectorHarness) -> None:
    harness.set_cooldown(60)
    harness.assign_to_pod("10.0.0.1")
    harness.orchestrator.nodes.remove("node-a")
    report = harness.tick()
    assert [type(action).__name__ for action in report.done] == ["FreeHandle"]
    assert [type(action).__name__ for action in report.skipped] == ["RelinquishAffinity"]  # its block is not empty yet
    harness.clock.sleep(61)
    harness.tick()
    assert (harness.blocks(), harness.affinities()) == ([], [])


def test_i_74_an_existing_node_keeps_one_of_its_empty_blocks(harness: CollectorHarness) -> None:
    for n in (0, 4, 8, 12, 16):
        harness.add_block(f"10.0.0.{n}/30")
    harness.tick()
    harness.clock.sleep(HALF_GRACE_S)
    assert harness.tick().done == ()
    harness.clock.sleep(HALF_GRACE_S)
    assert action_texts(harness.tick())[0] == (
        "relinquish the affinity of host:node-a for block 10.0.0.12/30: the block is empty, and the node has others"
    )
    assert (harness.affinities(), harness.blocks()) == (["node-a 10.0.0.0/30"], ["10.0.0.0/30"])
    assert harness.tick_twice().is_quiet
    harness.orchestrator.nodes.remove("node-a")
    assert action_texts(harness.tick()) == [
        "relinquish the affinity of host:node-a for block 10.0.0.0/30: the node is gone"
    ]
    assert (harness.affinities(), harness.blocks()) == ([], [])


def test_the_grace_period_of_a_block_that_was_used_starts_again(harness: CollectorHarness) -> None:
    for n in (0, 4):
        harness.add_block(f"10.0.0.{n}/30")
    harness.tick()
    harness.clock.sleep(HALF_GRACE_S)
    harness.assign_to("10.0.0.5", None)
    harness.release("10.0.0.5")
    harness.tick()
    harness.clock.sleep(HALF_GRACE_S)
    harness.tick()
    assert harness.affinities() == ["node-a 10.0.0.4/30"]  # only the block that was always empty was relinquished


def test_a_node_with_addresses_keeps_no_empty_block(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    harness.add_block("10.0.0.4/30")
    harness.add_block("fd00::/126")
    harness.tick_twice()
    assert harness.affinities() == ["node-a 10.0.0.0/30", "node-a fd00::/126"]  # one of each family stays


def test_an_empty_block_in_an_enabled_pool_is_kept_first(harness: CollectorHarness) -> None:
    harness.add_pool("off", "10.1.0.0/24", is_disabled=True)
    harness.add_pool("on", "10.9.0.0/24")
    for cidr in ("10.1.0.0/30", "10.2.0.0/30", "10.9.0.8/30", "10.9.0.4/30"):
        harness.add_block(cidr)
    harness.tick_twice()
    assert harness.affinities() == ["node-a 10.9.0.4/30"]


def test_an_empty_block_in_a_pool_that_is_not_allocatable_is_not_kept_first(harness: CollectorHarness) -> None:
    harness.add_pool("overlapping", "9.0.0.0/24")
    condition = PoolCondition(type="Allocatable", status="False", reason="CIDROverlap")
    pool = harness.get(ippool_key("overlapping"))
    harness.put(ippool_key("overlapping"), evolve(pool, status=IPPoolStatus(conditions=(condition,))))
    for cidr in ("9.0.0.0/30", "10.0.0.8/30", "10.0.0.4/30"):
        harness.add_block(cidr)
    harness.tick_twice()
    assert harness.affinities() == ["node-a 10.0.0.4/30"]


def test_a_block_that_is_assigned_from_in_the_meantime_is_skipped(harness: CollectorHarness) -> None:
    for n in (0, 4):
        harness.add_block(f"10.0.0.{n}/30")

    def assign() -> None:
        harness.assign_to("10.0.0.5", None)

    inject_faults(harness, RunBefore(assign))
    report = harness.tick_twice()
    assert (report.done, [action.subject for action in report.skipped]) == (
        (),
        ["BlockAffinity(host/node-a/ipv4/10.0.0.4/30)"],
    )
    assert harness.held() == {"10.0.0.5": None}


def test_a_block_that_is_written_in_the_meantime_is_skipped(harness: CollectorHarness) -> None:
    """A request of its node has acquired it, and is about to assign an address."""
    for n in (0, 4):
        harness.add_block(f"10.0.0.{n}/30")
    block = harness.get(block_key(Prefix.parse("10.0.0.4/30")))
    inject_faults(harness, RunBefore(lambda: harness.put(block.key, block.touched())))
    report = harness.tick_twice()
    assert (report.done, len(report.skipped), len(harness.blocks())) == ((), 1, 2)


def test_the_block_that_a_node_keeps_has_an_affinity(harness: CollectorHarness) -> None:
    harness.add_block("10.0.0.0/30")
    harness.assign_to_pod("10.0.0.5")
    harness.orchestrator.run_pod("web", "node-a", "10.0.0.5")
    harness.remove(affinity_key("host:node-a", Prefix.parse("10.0.0.4/30")))
    harness.tick_twice()
    assert harness.affinities() == ["node-a 10.0.0.0/30"]


def test_blocks_of_other_owners_than_nodes_are_ignored(harness: CollectorHarness) -> None:
    for n in (0, 4):
        harness.add_block(f"10.0.0.{n}/30", "")
        block = harness.get(block_key(Prefix.parse(f"10.0.0.{n}/30")))
        harness.put(block.key, evolve(block, owner="virtual:lb"))
        harness.put_affinity(f"10.0.0.{n}/30", "virtual:lb")
    assert harness.tick_twice().is_quiet


@pytest.mark.parametrize("state", list(AffinityState))
@pytest.mark.parametrize("owner", ["host:node-a", "virtual:lb"])
def test_trap_44_an_affinity_without_a_block_is_deleted_after_the_grace_period(
    harness: CollectorHarness, state: AffinityState, owner: str
) -> None:
    harness.put_affinity("10.0.0.12/30", owner, state)
    harness.tick()
    assert len(harness.affinities()) == 1
    harness.clock.sleep(GRACE_S)
    assert action_texts(harness.tick()) == [
        f"relinquish the affinity of {owner} for block 10.0.0.12/30: there is no such block"
    ]
    assert harness.affinities() == []


def test_i_84_an_affinity_of_a_gone_node_without_a_block_is_deleted_at_once(harness: CollectorHarness) -> None:
    harness.put_affinity("10.0.0.12/30", state=AffinityState.PENDING_DELETION)
    harness.orchestrator.nodes.remove("node-a")
    harness.tick()
    assert harness.affinities() == []


def test_an_affinity_for_a_block_of_another_owner_is_deleted_without_the_block(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1", node="node-b")
    harness.orchestrator.run_pod("web", "node-b", "10.0.0.1")
    harness.put_affinity("10.0.0.0/30")
    assert action_texts(harness.tick_twice()) == [
        "relinquish the affinity of host:node-a for block 10.0.0.0/30: the block has another owner"
    ]
    assert (harness.affinities(), harness.held()) == (["node-b 10.0.0.0/30"], {"10.0.0.1": "h-web"})


@pytest.mark.parametrize("step", ["affinity written again", "block created"])
def test_an_affinity_that_is_used_in_the_meantime_is_skipped(harness: CollectorHarness, step: str) -> None:
    """A request of the node has found its own pending affinity, and is about to use it."""
    leave_affinity(harness)
    harness.tick()
    harness.clock.sleep(GRACE_S)
    stale = harness.view()
    prefix = Prefix.parse("10.0.0.12/30")
    if step == "block created":
        harness.put(block_key(prefix), Block.new(prefix, owner="host:node-a", now_ns=harness.clock.now_ns()))
    else:
        leave_affinity(harness)
    report = harness.tick(stale)
    assert (report.done, len(report.skipped)) == ((), 1)
    assert harness.affinities() == ["node-a 10.0.0.12/30"]


def test_an_affinity_that_is_gone_counts_as_done(harness: CollectorHarness) -> None:
    leave_affinity(harness)
    inject_faults(harness, LostReply())
    assert len(harness.tick_twice().done) == 1
    assert harness.affinities() == []


@pytest.mark.parametrize("node", ["", "node-a", "node-gone"])
def test_trap_34_an_empty_block_without_an_affinity_is_deleted(harness: CollectorHarness, node: str) -> None:
    harness.add_block("10.0.0.16/30", node)
    if node:
        harness.remove(affinity_key(f"host:{node}", Prefix.parse("10.0.0.16/30")))
    harness.tick()
    assert harness.blocks() == ["10.0.0.16/30"]
    harness.clock.sleep(GRACE_S)
    assert action_texts(harness.tick()) == ["delete block 10.0.0.16/30: it is empty and has no affinity"]
    assert harness.blocks() == []


@pytest.mark.parametrize("event", ["claimed", "written", "gone"])
def test_a_block_without_an_affinity_that_is_changed_in_the_meantime_is_skipped(
    harness: CollectorHarness, event: str
) -> None:
    harness.add_block("10.0.0.16/30", "node-a")
    key = affinity_key("host:node-a", Prefix.parse("10.0.0.16/30"))
    harness.remove(key)
    harness.tick()
    harness.clock.sleep(GRACE_S)
    stale = harness.view()
    block = harness.get(block_key(Prefix.parse("10.0.0.16/30")))
    match event:
        case "claimed":
            harness.put_affinity("10.0.0.16/30")
        case "written":
            harness.put(block.key, block.touched())
        case _:
            harness.remove(block.key)
    report = harness.tick(stale)
    assert (len(report.done), len(report.skipped)) == ((1, 0) if event == "gone" else (0, 1))
    assert harness.blocks() == ([] if event == "gone" else ["10.0.0.16/30"])


def test_a_concurrent_claim_keeps_the_block(harness: CollectorHarness) -> None:
    harness.add_block("10.0.0.16/30", "node-a")
    harness.remove(affinity_key("host:node-a", Prefix.parse("10.0.0.16/30")))
    inject_faults(harness, RunBefore(lambda: harness.put_affinity("10.0.0.16/30")))
    assert harness.tick_twice().done == ()
    assert harness.blocks() == ["10.0.0.16/30"]


def test_an_affinity_whose_key_names_no_block_is_reported_and_left_alone(harness: CollectorHarness) -> None:
    leave_affinity(harness)
    harness.put(
        AFFINITY.key("host", "node-a", "ipv4", "x"), harness.get(AFFINITY.key("host", "node-a", "ipv4", "10.0.0.12/30"))
    )
    report = harness.tick_twice()
    assert len(report.done) == 1
    assert [str(error) for error in report.unreadable] == [
        "the stored record BlockAffinity(host/node-a/ipv4/x) is malformed: 'x' is not an IP address"
    ]
    assert harness.affinities() == ["node-a x"]


@pytest.mark.parametrize("node", ["", "node-a"])
def test_a_block_is_kept_for_a_minute_however_short_the_grace_period_is(harness: CollectorHarness, node: str) -> None:
    """A release may have created it, so that the creation by a killed ADD fails when it arrives."""
    harness.change_settings(grace_s=1)
    harness.orchestrator.run_pod("web", "node-a", "10.0.0.5")
    harness.assign_to_pod("10.0.0.5")
    harness.clock.sleep(60)
    harness.add_block("10.0.0.0/30", node)
    assert harness.tick_twice(over_s=50).done == ()
    harness.clock.sleep(10)
    assert len(harness.tick().done) == 1
    assert harness.blocks() == ["10.0.0.4/30"]
