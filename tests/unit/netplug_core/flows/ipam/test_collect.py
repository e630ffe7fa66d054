"""The collector: what is given back, when, on whose word, and what an operator reads about it."""

from collections.abc import Callable, Sequence

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.ipam.gc.candidates import UndeterminedReason
from netplug_core.ipam.gc.model import CollectionReport, FreeHandle, IdleReason, ScanHistory, StoreView
from netplug_core.ipam.model.affinity import AFFINITY, AffinityState, affinity_key
from netplug_core.ipam.model.block import BLOCK, RESERVED_HANDLE, Block, block_key
from netplug_core.ipam.model.handle import Handle, handle_key
from netplug_core.log import Level
from netplug_core.records import Get, Malformed, Query, Snapshot
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.faults import FaultyDatastore, LostReply, LostRequest, RunBefore
from tests.harness.collector import GRACE_S, CollectorHarness

HALF_S = GRACE_S / 2


@pytest.fixture
def bench() -> CollectorHarness:
    made = CollectorHarness()
    made.add_pool("four", "10.0.0.0/24")
    made.add_pool("six", "fd00::/120")
    return made


def texts(report: CollectionReport) -> list[str]:
    return [str(action) for action in report.done]


# --- leaked addresses -------------------------------------------------------------------------------------------------


def test_an_address_whose_pod_is_gone_is_freed_after_the_grace_period(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.assign_to_pod("10.0.0.2", "db")
    bench.orchestrator.run_pod("db", "node-a", "10.0.0.2")
    report = bench.tick()
    assert (report.done, [leak.owner.handle for leak in report.candidates]) == ((), ["h-web"])
    bench.clock.sleep(HALF_S)
    assert bench.tick().done == ()
    bench.clock.sleep(HALF_S)
    assert texts(bench.tick()) == [
        "free the addresses of handle h-web: 10.0.0.1 of pod default/web on node node-a (its pod does not exist)"
    ]
    assert (bench.held(), bench.handles()) == ({"10.0.0.2": "h-db"}, ["h-db"])
    assert bench.tick().is_quiet


def test_a_candidate_that_is_used_again_starts_anew(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.tick()
    bench.clock.sleep(HALF_S)
    bench.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    assert bench.tick().candidates == ()
    bench.orchestrator.remove_pod("web")
    bench.clock.sleep(HALF_S)
    assert bench.tick().done == ()
    bench.clock.sleep(GRACE_S)
    assert len(bench.tick().freed) == 1


def test_an_address_that_was_taken_anew_is_another_suspect(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.tick()
    bench.clock.sleep(HALF_S)
    bench.release("10.0.0.1")
    bench.assign_to_pod("10.0.0.1")
    bench.put(handle_key("h-web"), Handle(blocks=((Prefix.parse("10.0.0.0/30"), 1),)))
    bench.tick()
    bench.clock.sleep(HALF_S)
    assert bench.tick().done == ()
    assert bench.held() == {"10.0.0.1": "h-web"}


def test_a_view_that_is_behind_frees_nothing(bench: CollectorHarness) -> None:
    """The second witness: the pod is not in the view yet, and a direct read finds it."""
    bench.assign_to_pod("10.0.0.1")
    stale = bench.view()
    bench.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    bench.tick(stale)
    bench.clock.sleep(GRACE_S)
    report = bench.tick(stale)
    assert (report.done, [action.handle for action in report.in_use]) == ((), ["h-web"])
    assert bench.orchestrator.lookups == ["pod default/web"]
    bench.clock.sleep(HALF_S)
    assert bench.tick(stale).in_use == ()  # its time has started anew
    assert bench.held() == {"10.0.0.1": "h-web"}


def test_an_empty_view_by_mistake_frees_nothing(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.assign_to("10.0.0.5", "tunnel", node="node-b", type="vxlanTunnelAddress")
    bench.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    before = bench.blocks(), bench.affinities(), bench.handles()
    empty = evolve(bench.view(), cluster=evolve(bench.orchestrator.cluster, pods=(), nodes=frozenset()))
    for _ in range(3):
        assert bench.tick(empty).done == ()
        bench.clock.sleep(GRACE_S)
    assert (bench.blocks(), bench.affinities(), bench.handles()) == before


def test_nothing_is_freed_while_the_witness_does_not_answer(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.orchestrator.is_unavailable = True
    report = bench.tick_twice()
    assert (report.done, report.is_settled) == ((), False)
    assert bench.held() == {"10.0.0.1": "h-web"}
    level, message, fields = bench.log.lines[-2]
    assert (level, message, fields["count"]) == (Level.WARNING, "could not be collected", 1)
    assert fields["cause"] == "pod default/web could not be looked up: the orchestrator: connection refused"
    bench.orchestrator.is_unavailable = False
    assert len(bench.tick().freed) == 1


def test_all_addresses_of_a_handle_are_freed_or_none(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.assign_to_pod("fd00::1")
    bench.assign_to_pod("10.0.0.5", "db", handle="h-web", node="node-b")
    bench.orchestrator.run_pod("db", "node-b", "10.0.0.5")
    report = bench.tick_twice()
    assert (report.done, len(report.candidates)) == ((), 2)
    bench.orchestrator.remove_pod("db")
    assert bench.tick_twice().done != ()
    assert (bench.held(), bench.handles()) == ({}, [])


def test_a_dual_stack_handle_waits_for_its_younger_address(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.tick()
    bench.clock.sleep(HALF_S)
    bench.assign_to_pod("fd00::1")
    bench.tick()
    bench.clock.sleep(HALF_S)
    assert bench.tick().done == ()
    bench.clock.sleep(HALF_S)
    assert len(bench.tick().freed) == 2


def test_an_address_whose_handle_is_lost_is_judged_like_any_other(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.remove(handle_key("h-web"))
    assert len(bench.tick_twice().freed) == 1
    assert bench.held() == {}


def test_an_address_that_no_pool_covers_any_more_is_freed_too(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.remove(ippool_key("four"))
    assert len(bench.tick_twice().freed) == 1
    assert bench.held() == {}


def test_what_cannot_be_judged_is_kept_and_told(bench: CollectorHarness) -> None:
    bench.assign_to("10.0.0.1", None, node="node-a")
    bench.assign_to("10.0.0.2", "h-bare", node="node-a", container="c", network="net1", interface="eth0")
    bench.assign_to("10.0.0.5", "h-half", node="node-b", pod="web")
    report = bench.tick_twice()
    assert [str(unjudged) for unjudged in report.undetermined] == [
        "10.0.0.1 (handle None): it has no handle",
        "10.0.0.2 (handle h-bare): its attributes name neither a pod nor a tunnel",
        "10.0.0.5 (handle h-half): its attributes have only one of pod and namespace",
    ]
    assert len(bench.held()) == 3


def test_without_an_orchestrator_no_address_and_no_node_is_judged(bench: CollectorHarness) -> None:
    """Plain containers on a store of their own: what is still collected needs no pods."""
    bench.is_orchestrated = False
    bench.orchestrator.nodes = set()
    bench.assign_to_pod("10.0.0.1")
    bench.assign_to("10.0.0.5", "tunnel", node="node-b", type="vxlanTunnelAddress")
    bench.assign_to("10.0.0.9", None, node="node-b")
    bench.put(handle_key("h-left"), Handle(blocks=((Prefix.parse("10.0.0.0/30"), 1),)))
    report = bench.tick_twice()
    assert texts(report) == ["repair handle h-left: its counts differ from its blocks"]
    assert [unjudged.reason for unjudged in report.undetermined] == [
        UndeterminedReason.NO_ORCHESTRATOR,
        UndeterminedReason.NO_ORCHESTRATOR,
        UndeterminedReason.NO_HANDLE,
    ]
    assert bench.orchestrator.lookups == []
    assert len(bench.held()) == 3


def test_i_75_a_pod_of_a_gone_node_that_runs_elsewhere_is_a_leak_at_once(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.orchestrator.nodes.remove("node-a")
    bench.orchestrator.run_pod("web", "node-b", "10.0.0.9")
    report = bench.tick()
    assert [str(leak) for leak in report.freed] == [
        "10.0.0.1 of pod default/web on node node-a (its pod runs on another node)"
    ]
    assert (bench.held(), bench.affinities(), bench.blocks()) == ({}, [], [])


def test_i_75_a_pod_that_still_reports_the_address_on_a_gone_node_keeps_it(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.orchestrator.nodes.remove("node-a")
    bench.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    report = bench.tick_twice()
    assert report.done == ()
    assert [str(waiting) for waiting in report.waiting] == [
        "node node-a is gone; its affinities are kept because of 10.0.0.1"
    ]
    assert bench.affinities() == ["node-a 10.0.0.0/30"]


def test_a_node_that_is_back_gives_its_pods_the_grace_period(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.orchestrator.nodes.remove("node-a")
    stale = bench.view()
    bench.orchestrator.nodes.add("node-a")
    report = bench.tick(stale)
    assert (report.done, len(report.in_use)) == ((), 1)
    bench.clock.sleep(GRACE_S)
    assert len(bench.tick().freed) == 1  # suspect since the first look, whatever the node


def test_i_76_a_gone_nodes_tunnel_address_goes_in_one_run_with_its_pods_and_claims(bench: CollectorHarness) -> None:
    bench.assign_to("10.0.0.2", "a-tunnel", node="node-a", type="ipipTunnelAddress")
    bench.assign_to("fd00::2", "six-tunnel", block_of="node-a", type="wireguardV6TunnelAddress")
    bench.assign_to_pod("10.0.0.1")
    bench.tick()
    assert len(bench.held()) == 3
    bench.orchestrator.nodes.remove("node-a")
    report = bench.tick()
    freed = [action.handle for action in report.done if isinstance(action, FreeHandle)]
    assert freed == ["h-web", "a-tunnel", "six-tunnel"]  # pods first
    assert (bench.held(), bench.handles(), bench.affinities(), bench.blocks()) == ({}, [], [], [])


def test_with_no_grace_period_only_gone_nodes_are_cleared(bench: CollectorHarness) -> None:
    bench.change_settings(grace_s=0)
    bench.assign_to_pod("10.0.0.1")
    bench.assign_to_pod("10.0.0.5", "db", node="node-b")
    bench.add_block("10.0.0.8/30")
    bench.put(handle_key("h-left"), Handle(blocks=((Prefix.parse("10.0.0.0/30"), 1),)))
    assert bench.tick_twice(over_s=1e6).done == ()
    assert bench.memory == ScanHistory()
    bench.orchestrator.nodes.remove("node-b")
    bench.tick()
    assert (bench.held(), bench.affinities()) == ({"10.0.0.1": "h-web"}, ["node-a 10.0.0.0/30", "node-a 10.0.0.8/30"])


# --- races and crashes ------------------------------------------------------------------------------------------------


def with_faults(harness: CollectorHarness, *faults: LostReply | LostRequest | RunBefore) -> None:
    harness.store = FaultyDatastore(harness.inner, dict(enumerate(faults, 1)))


def test_a_racing_add_wins(bench: CollectorHarness) -> None:
    """The address is released and taken anew between the tick's look and its commit."""

    def another_call() -> None:
        bench.release("10.0.0.1")
        bench.assign_to_pod("10.0.0.1")

    bench.assign_to_pod("10.0.0.1")
    with_faults(bench, RunBefore(another_call))
    report = bench.tick_twice()
    assert (report.done, [action.subject for action in report.skipped]) == ((), ["handle h-web"])
    assert bench.held() == {"10.0.0.1": "h-web"}


def test_trap_40_a_release_whose_reply_was_lost_is_done(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    with_faults(bench, LostReply())
    report = bench.tick_twice()
    assert (len(report.freed), report.failures) == (1, ())
    assert bench.held() == {}
    assert bench.get(block_key(Prefix.parse("10.0.0.0/30"))).problem() == ""


def test_what_the_workload_gave_back_itself_is_done_too(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.tick()
    bench.clock.sleep(GRACE_S)
    stale = bench.view()
    bench.release("10.0.0.1")
    bench.remove(handle_key("h-web"))
    commits = bench.inner.calls.commits
    assert len(bench.tick(stale).done) == 1
    assert bench.inner.calls.commits == commits


def test_what_was_freed_is_not_freed_again_by_a_view_that_is_behind(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    stale = bench.view()
    assert len(bench.tick_twice().freed) == 1
    report = bench.tick(stale)
    assert (report.done, len(report.candidates)) == ((), 1)


def test_trap_20_one_failing_batch_does_not_stop_the_rest(bench: CollectorHarness) -> None:
    bench.change_settings(batch_size=1)
    for n in (1, 5, 9):
        bench.assign_to_pod(f"10.0.0.{n}", f"p{n}")
    with_faults(bench, LostRequest())
    report = bench.tick_twice()
    assert [failure.action.subject for failure in report.failures] == ["handle h-p1"]
    assert str(report.failures[0]).endswith(": the scripted datastore: the request was lost")
    assert bench.held() == {"10.0.0.1": "h-p1"}
    bench.store = bench.inner
    assert len(bench.tick().freed) == 1


def test_a_store_that_does_not_answer_is_asked_once_a_batch(bench: CollectorHarness) -> None:
    for n in (1, 5, 9):
        bench.assign_to_pod(f"10.0.0.{n}", f"p{n}")
    store = FaultyDatastore(bench.inner, {1: LostRequest()})
    bench.store = store
    report = bench.tick_twice()
    assert (len(report.failures), report.done, store.commits) == (3, (), 1)


def test_trap_20_one_bad_record_does_not_stop_its_batch(bench: CollectorHarness) -> None:
    for n in (1, 5, 9):
        bench.assign_to_pod(f"10.0.0.{n}", f"p{n}")
    bench.store = MalformedBlockDatastore(bench.inner, "10.0.0.4/30")
    report = bench.tick_twice()
    assert [failure.cause for failure in report.failures] == [
        "the stored record IPAMBlock(ipv4/10.0.0.4/30) is malformed: attributes: 7 is not an object"
    ]
    assert bench.held() == {"10.0.0.5": "h-p5"}


class MalformedBlockDatastore(FaultyDatastore):
    """A store in which one block cannot be understood."""

    def __init__(self, inner: MemoryDatastore, name: str) -> None:
        super().__init__(inner, {})
        self.key = block_key(Prefix.parse(name))

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        if Get(self.key) in queries:
            raise Malformed(str(self.key), "attributes: 7 is not an object")
        return super().read(queries, deadline=deadline)


def test_trap_20_a_stale_number_holds_up_only_its_own_handle(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.assign_to_pod("10.0.0.2", "db")
    bench.tick()
    bench.clock.sleep(GRACE_S)
    stale = bench.view()
    bench.release("10.0.0.1")
    bench.assign_to_pod("10.0.0.1")
    report = bench.tick(stale)
    assert [leak.owner.handle for leak in report.freed] == ["h-db"]
    assert bench.held() == {"10.0.0.1": "h-web"}


@pytest.mark.parametrize("mode", list(MemoryMode))
def test_a_tick_cut_off_at_any_commit_is_finished_by_the_next(mode: MemoryMode) -> None:
    for cut in range(1, 8):
        bench = CollectorHarness()
        bench.inner = MemoryDatastore(mode, clock=bench.clock)
        bench.store = bench.inner
        bench.add_pool("four", "10.0.0.0/24")
        bench.assign_to_pod("10.0.0.1")
        bench.assign_to("10.0.0.5", "tunnel", node="node-b", type="ipipTunnelAddress")
        bench.add_block("10.0.0.8/30")
        bench.put_affinity("10.0.0.12/30", state=AffinityState.PENDING)
        bench.add_block("10.0.0.16/30", "")
        bench.put(handle_key("h-left"), Handle(blocks=((Prefix.parse("10.0.0.0/30"), 1),)))
        bench.orchestrator.nodes.remove("node-b")
        bench.store = FaultyDatastore(bench.inner, {cut: LostRequest()})
        bench.tick_twice()
        bench.store = bench.inner
        bench.tick()
        bench.clock.sleep(GRACE_S)
        bench.tick()
        assert (bench.held(), bench.handles()) == ({}, [])
        assert bench.affinities() == [f"node-a {block}" for block in bench.blocks()]
        assert len(bench.blocks()) == 1


# --- standing still ---------------------------------------------------------------------------------------------------


def test_i_79_while_the_store_is_locked_nothing_is_written(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.tick()
    bench.clock.sleep(GRACE_S)
    bench.set_ready()
    commits = bench.inner.calls.commits
    report = bench.tick()
    assert (report.idle, report.is_settled) == (IdleReason.LOCKED, False)
    assert bench.log.lines[-1] == (
        Level.INFO,
        "the collector is idle",
        {"why": "ClusterInformation default: spec.datastoreReady is false"},
    )
    assert (bench.inner.calls.commits, bench.memory) == (commits, ScanHistory())
    bench.set_ready(is_ready=True)
    assert bench.tick().done == ()  # what was seen before the lock proves nothing now
    bench.clock.sleep(GRACE_S)
    assert len(bench.tick().freed) == 1


def test_before_the_first_complete_view_nothing_is_done(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.orchestrator.nodes.clear()
    report = bench.tick(StoreView(idle=IdleReason.INCOMPLETE))
    assert report == CollectionReport(idle=IdleReason.INCOMPLETE)
    assert bench.held() == {"10.0.0.1": "h-web"}


def leaked_address(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")


def left_handle(harness: CollectorHarness) -> None:
    harness.put(handle_key("h-left"), Handle(blocks=((Prefix.parse("10.0.0.0/30"), 1),)))


def left_claim(harness: CollectorHarness) -> None:
    harness.put_affinity("10.0.0.12/30", state=AffinityState.PENDING)


def unowned_block(harness: CollectorHarness) -> None:
    harness.add_block("10.0.0.16/30", "")


@pytest.mark.parametrize("leave", [leaked_address, left_handle, left_claim, unowned_block])
def test_a_lock_that_comes_in_mid_tick_is_noticed(
    bench: CollectorHarness, leave: Callable[[CollectorHarness], None]
) -> None:
    leave(bench)
    bench.tick()
    bench.clock.sleep(GRACE_S)
    stale = bench.view()
    bench.set_ready()
    before = bench.held(), bench.blocks(), bench.handles(), bench.affinities()
    report = bench.tick(stale)
    assert [failure.cause for failure in report.failures] == [
        "ClusterInformation default: spec.datastoreReady is false: pod networking is locked"
    ]
    assert (bench.held(), bench.blocks(), bench.handles(), bench.affinities()) == before


# --- what has cooled down ---------------------------------------------------------------------------------------------


def test_i_80_what_has_cooled_down_becomes_free_and_a_block_that_changed_is_skipped(bench: CollectorHarness) -> None:
    bench.set_cooldown(60)
    for n in (1, 5):
        bench.orchestrator.run_pod(f"p{n}", "node-a", f"10.0.0.{n}", f"10.0.0.{n + 1}")
        bench.assign_to_pod(f"10.0.0.{n}", f"p{n}")
        bench.assign_to_pod(f"10.0.0.{n + 1}", f"p{n}")
        bench.release(f"10.0.0.{n}", cooling=True)
    assert bench.tick().done == ()
    bench.clock.sleep(61)
    stale = bench.view()
    bench.assign_to_pod("10.0.0.3", "p1")
    report = bench.tick(stale)
    assert texts(report) == ["free the addresses of block 10.0.0.4/30 whose cooldown has expired"]
    assert [action.subject for action in report.skipped] == ["expired cooldowns of block 10.0.0.0/30"]
    one, two = (bench.get(bench.key_of(text)) for text in ("10.0.0.1", "10.0.0.5"))
    assert (one.cooling_count, two.cooling_count) == (1, 0)
    assert two.sequence > stale.blocks[1].value.sequence
    assert [int(n) for n in two.free] == [0, 3, 1]


def test_i_80_where_nothing_cools_nothing_is_written(bench: CollectorHarness) -> None:
    bench.set_cooldown(60)
    bench.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    bench.assign_to_pod("10.0.0.1")
    before = bench.find_record(bench.key_of("10.0.0.1"))
    commits = bench.inner.calls.commits
    assert bench.tick_twice().is_quiet
    assert bench.inner.calls.commits == commits
    assert bench.find_record(bench.key_of("10.0.0.1")) == before


def test_a_nodes_block_outlives_its_last_cooled_address(bench: CollectorHarness) -> None:
    bench.set_cooldown(60)
    bench.assign_to_pod("10.0.0.1")
    bench.release("10.0.0.1", cooling=True)
    bench.remove(handle_key("h-web"))
    bench.clock.sleep(61)
    assert len(bench.tick().done) == 1
    assert bench.get(bench.key_of("10.0.0.1")).is_empty


def test_a_longer_cooldown_counts_at_once(bench: CollectorHarness) -> None:
    """The view knows the old one, and the write reads the new one."""
    bench.set_cooldown(60)
    bench.assign_to_pod("10.0.0.1")
    bench.release("10.0.0.1", cooling=True)
    bench.clock.sleep(61)
    stale = bench.view()
    bench.set_cooldown(3600)
    bench.tick(stale)
    assert bench.get(bench.key_of("10.0.0.1")).cooling_count == 1


def test_a_block_without_an_owner_goes_with_its_last_cooled_address(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    block = bench.get(bench.key_of("10.0.0.1"))
    bench.put(block.key, block.relinquished())
    bench.remove(affinity_key("host:node-a", block.prefix))
    bench.set_cooldown(60)
    bench.release("10.0.0.1", cooling=True)
    bench.remove(handle_key("h-web"))
    bench.clock.sleep(61)
    with_faults(bench, LostReply())
    assert texts(bench.tick()) == ["free the addresses of block 10.0.0.0/30 whose cooldown has expired"]
    assert bench.blocks() == []


def test_leaked_addresses_cool_down_like_any_other(bench: CollectorHarness) -> None:
    bench.set_cooldown(60)
    bench.assign_to_pod("10.0.0.1")
    bench.orchestrator.nodes.remove("node-a")
    report = bench.tick()
    assert [type(action).__name__ for action in report.done] == ["FreeHandle"]
    assert [type(action).__name__ for action in report.skipped] == ["RelinquishAffinity"]  # its block is not empty yet
    bench.clock.sleep(61)
    bench.tick()
    assert (bench.blocks(), bench.affinities()) == ([], [])


# --- handles ----------------------------------------------------------------------------------------------------------


def test_trap_47_a_handle_without_addresses_goes_after_the_grace_period(bench: CollectorHarness) -> None:
    left_handle(bench)
    bench.tick()
    assert bench.handles() == ["h-left"]
    bench.clock.sleep(GRACE_S)
    assert texts(bench.tick()) == ["repair handle h-left: its counts differ from its blocks"]
    assert bench.handles() == []


def test_i_87_a_handle_that_was_written_before_its_block_is_not_touched(bench: CollectorHarness) -> None:
    """An assignment on an ordered store, stopped between handle and block, and tried again half a grace later."""
    left_handle(bench)
    bench.tick()
    bench.clock.sleep(HALF_S)
    left_handle(bench)  # written once more: it is suspect from now on
    bench.tick()
    bench.clock.sleep(HALF_S)
    assert bench.tick().done == ()
    assert bench.handles() == ["h-left"]


def test_a_count_that_is_too_high_is_set_right(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    one, two = Prefix.parse("10.0.0.0/30"), Prefix.parse("10.0.0.4/30")
    bench.put(handle_key("h-web"), Handle(blocks=((one, 3), (two, 1))))
    bench.tick_twice()
    assert bench.get(handle_key("h-web")).blocks == ((one, 1),)


def test_a_handle_that_does_not_know_its_block_learns_of_it(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    bench.put(handle_key("h-web"), Handle())
    bench.tick_twice()
    assert bench.get(handle_key("h-web")).blocks == ((Prefix.parse("10.0.0.0/30"), 1),)


def test_a_handle_that_is_written_in_between_is_passed_over(bench: CollectorHarness) -> None:
    left_handle(bench)
    with_faults(bench, RunBefore(lambda: left_handle(bench)))
    report = bench.tick_twice()
    assert (report.done, [action.subject for action in report.skipped]) == ((), ["handle h-left"])
    assert bench.handles() == ["h-left"]


def test_the_handle_of_what_hosts_keep_back_is_not_judged(bench: CollectorHarness) -> None:
    prefix = Prefix.parse("10.0.0.0/30")
    bench.add_block(str(prefix))
    bench.put(block_key(prefix), Block.new(prefix, owner="host:node-a", now_ns=1, host_reserved=(2, 1)))
    bench.put(handle_key(RESERVED_HANDLE), Handle(blocks=((prefix, 3),)))
    assert bench.tick_twice().is_quiet
    assert bench.tick().undetermined == ()


@pytest.mark.parametrize("end", ["filled", "deleted"])
def test_a_handle_that_became_right_needs_no_write(bench: CollectorHarness, end: str) -> None:
    left_handle(bench)
    bench.tick()
    bench.clock.sleep(GRACE_S)
    stale = bench.view()
    if end == "filled":
        bench.assign_to_pod("10.0.0.1", handle="h-left")
        bench.put(handle_key("h-left"), Handle(blocks=((Prefix.parse("10.0.0.0/30"), 1),)))
    else:
        bench.remove(handle_key("h-left"))
    commits = bench.inner.calls.commits
    assert len(bench.tick(stale).done) == 1
    assert bench.inner.calls.commits == commits


# --- claims and blocks ------------------------------------------------------------------------------------------------


def test_i_74_a_live_node_keeps_one_of_its_empty_blocks(bench: CollectorHarness) -> None:
    for n in (0, 4, 8, 12, 16):
        bench.add_block(f"10.0.0.{n}/30")
    bench.tick()
    bench.clock.sleep(HALF_S)
    assert bench.tick().done == ()
    bench.clock.sleep(HALF_S)
    assert texts(bench.tick())[0] == (
        "relinquish the affinity of host:node-a for block 10.0.0.12/30: the block is empty, and the node has others"
    )
    assert (bench.affinities(), bench.blocks()) == (["node-a 10.0.0.0/30"], ["10.0.0.0/30"])
    assert bench.tick_twice().is_quiet
    bench.orchestrator.nodes.remove("node-a")
    assert texts(bench.tick()) == ["relinquish the affinity of host:node-a for block 10.0.0.0/30: the node is gone"]
    assert (bench.affinities(), bench.blocks()) == ([], [])


def test_a_block_that_was_used_in_between_keeps_its_time(bench: CollectorHarness) -> None:
    for n in (0, 4):
        bench.add_block(f"10.0.0.{n}/30")
    bench.tick()
    bench.clock.sleep(HALF_S)
    bench.assign_to("10.0.0.5", None)
    bench.release("10.0.0.5")
    bench.tick()
    bench.clock.sleep(HALF_S)
    bench.tick()
    assert bench.affinities() == ["node-a 10.0.0.4/30"]  # only the one that was empty all the time went


def test_a_node_with_addresses_gives_up_every_empty_block(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    bench.add_block("10.0.0.4/30")
    bench.add_block("fd00::/126")
    bench.tick_twice()
    assert bench.affinities() == ["node-a 10.0.0.0/30", "node-a fd00::/126"]  # one of each family stays


def test_a_block_that_may_serve_is_kept_before_one_that_may_not(bench: CollectorHarness) -> None:
    bench.add_pool("off", "10.1.0.0/24", is_disabled=True)
    bench.add_pool("on", "10.9.0.0/24")
    for cidr in ("10.1.0.0/30", "10.2.0.0/30", "10.9.0.8/30", "10.9.0.4/30"):
        bench.add_block(cidr)
    bench.tick_twice()
    assert bench.affinities() == ["node-a 10.9.0.4/30"]


def test_an_empty_block_that_is_taken_from_in_between_is_passed_over(bench: CollectorHarness) -> None:
    for n in (0, 4):
        bench.add_block(f"10.0.0.{n}/30")

    def take() -> None:
        bench.assign_to("10.0.0.5", None)

    with_faults(bench, RunBefore(take))
    report = bench.tick_twice()
    assert (report.done, [action.subject for action in report.skipped]) == (
        (),
        ["BlockAffinity(host/node-a/ipv4/10.0.0.4/30)"],
    )
    assert bench.held() == {"10.0.0.5": None}


def test_an_empty_block_that_is_written_in_between_is_passed_over(bench: CollectorHarness) -> None:
    """A request of its node has just secured it, and is about to take an address."""
    for n in (0, 4):
        bench.add_block(f"10.0.0.{n}/30")
    block = bench.get(block_key(Prefix.parse("10.0.0.4/30")))
    with_faults(bench, RunBefore(lambda: bench.put(block.key, block.touched())))
    report = bench.tick_twice()
    assert (report.done, len(report.skipped), len(bench.blocks())) == ((), 1, 2)


def test_a_block_that_its_owner_does_not_claim_is_not_the_one_that_stays(bench: CollectorHarness) -> None:
    bench.add_block("10.0.0.0/30")
    bench.assign_to_pod("10.0.0.5")
    bench.orchestrator.run_pod("web", "node-a", "10.0.0.5")
    bench.remove(affinity_key("host:node-a", Prefix.parse("10.0.0.4/30")))
    bench.tick_twice()
    assert bench.affinities() == ["node-a 10.0.0.0/30"]


def test_blocks_of_those_who_are_no_nodes_are_theirs_to_give_up(bench: CollectorHarness) -> None:
    for n in (0, 4):
        bench.add_block(f"10.0.0.{n}/30", "")
        block = bench.get(block_key(Prefix.parse(f"10.0.0.{n}/30")))
        bench.put(block.key, evolve(block, owner="virtual:lb"))
        bench.put_affinity(f"10.0.0.{n}/30", "virtual:lb")
    assert bench.tick_twice().is_quiet


@pytest.mark.parametrize("state", list(AffinityState))
@pytest.mark.parametrize("owner", ["host:node-a", "virtual:lb"])
def test_trap_44_a_claim_without_a_block_goes_after_the_grace_period(
    bench: CollectorHarness, state: AffinityState, owner: str
) -> None:
    bench.put_affinity("10.0.0.12/30", owner, state)
    bench.tick()
    assert len(bench.affinities()) == 1
    bench.clock.sleep(GRACE_S)
    assert texts(bench.tick()) == [f"relinquish the affinity of {owner} for block 10.0.0.12/30: there is no such block"]
    assert bench.affinities() == []


def test_i_84_a_gone_nodes_claim_without_a_block_goes_at_once(bench: CollectorHarness) -> None:
    bench.put_affinity("10.0.0.12/30", state=AffinityState.PENDING_DELETION)
    bench.orchestrator.nodes.remove("node-a")
    bench.tick()
    assert bench.affinities() == []


def test_a_claim_on_a_block_of_another_goes_and_the_block_stays(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1", node="node-b")
    bench.orchestrator.run_pod("web", "node-b", "10.0.0.1")
    bench.put_affinity("10.0.0.0/30")
    assert texts(bench.tick_twice()) == [
        "relinquish the affinity of host:node-a for block 10.0.0.0/30: the block has another owner"
    ]
    assert (bench.affinities(), bench.held()) == (["node-b 10.0.0.0/30"], {"10.0.0.1": "h-web"})


@pytest.mark.parametrize("step", ["claim written once more", "block made"])
def test_a_claim_that_somebody_goes_on_with_is_passed_over(bench: CollectorHarness, step: str) -> None:
    """A request of the node found its own pending claim, and is about to make use of it."""
    left_claim(bench)
    bench.tick()
    bench.clock.sleep(GRACE_S)
    stale = bench.view()
    prefix = Prefix.parse("10.0.0.12/30")
    if step == "block made":
        bench.put(block_key(prefix), Block.new(prefix, owner="host:node-a", now_ns=bench.clock.now_ns()))
    else:
        left_claim(bench)
    report = bench.tick(stale)
    assert (report.done, len(report.skipped)) == ((), 1)
    assert bench.affinities() == ["node-a 10.0.0.12/30"]


def test_a_claim_that_is_gone_is_done(bench: CollectorHarness) -> None:
    left_claim(bench)
    with_faults(bench, LostReply())
    assert len(bench.tick_twice().done) == 1
    assert bench.affinities() == []


@pytest.mark.parametrize("node", ["", "node-a", "node-gone"])
def test_trap_34_an_empty_block_that_nobody_claims_goes(bench: CollectorHarness, node: str) -> None:
    bench.add_block("10.0.0.16/30", node)
    if node:
        bench.remove(affinity_key(f"host:{node}", Prefix.parse("10.0.0.16/30")))
    bench.tick()
    assert bench.blocks() == ["10.0.0.16/30"]
    bench.clock.sleep(GRACE_S)
    assert texts(bench.tick()) == ["delete block 10.0.0.16/30: it is empty and has no affinity"]
    assert bench.blocks() == []


@pytest.mark.parametrize("happens", ["claimed", "written", "gone"])
def test_an_unclaimed_block_that_somebody_takes_is_passed_over(bench: CollectorHarness, happens: str) -> None:
    bench.add_block("10.0.0.16/30", "node-a")
    key = affinity_key("host:node-a", Prefix.parse("10.0.0.16/30"))
    bench.remove(key)
    bench.tick()
    bench.clock.sleep(GRACE_S)
    stale = bench.view()
    block = bench.get(block_key(Prefix.parse("10.0.0.16/30")))
    match happens:
        case "claimed":
            bench.put_affinity("10.0.0.16/30")
        case "written":
            bench.put(block.key, block.touched())
        case _:
            bench.remove(block.key)
    report = bench.tick(stale)
    assert (len(report.done), len(report.skipped)) == ((1, 0) if happens == "gone" else (0, 1))
    assert bench.blocks() == ([] if happens == "gone" else ["10.0.0.16/30"])


def test_a_claim_in_the_last_moment_saves_a_block(bench: CollectorHarness) -> None:
    bench.add_block("10.0.0.16/30", "node-a")
    bench.remove(affinity_key("host:node-a", Prefix.parse("10.0.0.16/30")))
    with_faults(bench, RunBefore(lambda: bench.put_affinity("10.0.0.16/30")))
    assert bench.tick_twice().done == ()
    assert bench.blocks() == ["10.0.0.16/30"]


def test_a_claim_whose_key_names_no_block_stops_nothing(bench: CollectorHarness) -> None:
    left_claim(bench)
    bench.put(
        AFFINITY.key("host", "node-a", "ipv4", "x"), bench.get(AFFINITY.key("host", "node-a", "ipv4", "10.0.0.12/30"))
    )
    report = bench.tick_twice()
    assert len(report.done) == 1
    assert [str(error) for error in report.unreadable] == [
        "the stored record BlockAffinity(host/node-a/ipv4/x) is malformed: 'x' is not an IP address"
    ]
    assert bench.affinities() == ["node-a x"]


# --- gone nodes -------------------------------------------------------------------------------------------------------


def test_an_address_that_may_be_used_keeps_all_claims_of_its_gone_node(bench: CollectorHarness) -> None:
    """Wherever it lies: it was borrowed from another node's block, and nobody can judge it."""
    bench.add_block("10.0.0.0/30")
    bench.add_block("10.0.0.8/30")
    bench.assign_to("10.0.0.5", "h-bare", block_of="node-b", node="node-a", container="c")
    bench.orchestrator.nodes.remove("node-a")
    report = bench.tick_twice()
    assert [(waiting.node, [str(a) for a in waiting.addresses]) for waiting in report.waiting] == [
        ("node-a", ["10.0.0.5"])
    ]
    assert bench.affinities() == ["node-a 10.0.0.0/30", "node-a 10.0.0.8/30", "node-b 10.0.0.4/30"]


def test_an_address_lent_to_another_node_keeps_only_its_own_block(bench: CollectorHarness) -> None:
    bench.add_block("10.0.0.0/30")
    bench.assign_to_pod("10.0.0.5", node="node-b", block_of="node-a")
    bench.orchestrator.run_pod("web", "node-b", "10.0.0.5")
    bench.orchestrator.nodes.remove("node-a")
    report = bench.tick()
    assert (len(report.waiting), report.skipped) == (1, ())
    assert (bench.affinities(), bench.held()) == (["node-a 10.0.0.4/30"], {"10.0.0.5": "h-web"})


def test_a_gone_nodes_claims_wait_for_addresses_that_could_not_be_freed(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.add_block("10.0.0.4/30")
    bench.orchestrator.nodes.remove("node-a")
    with_faults(bench, LostRequest())
    report = bench.tick()
    assert (report.done, len(report.failures), len(bench.affinities())) == ((), 1, 2)
    bench.store = bench.inner
    bench.tick()
    assert bench.affinities() == []


def test_claims_of_a_node_that_the_witness_knows_stay(bench: CollectorHarness) -> None:
    bench.add_block("10.0.0.0/30")
    bench.orchestrator.nodes.remove("node-a")
    stale = bench.view()
    bench.orchestrator.nodes.add("node-a")
    assert bench.tick(stale).done == ()
    assert bench.affinities() == ["node-a 10.0.0.0/30"]


def test_i_77_one_node_that_fails_does_not_stop_another_and_is_tried_again(bench: CollectorHarness) -> None:
    bench.add_block("10.0.0.0/30", "node-a")
    bench.add_block("10.0.0.4/30", "node-b")
    bench.orchestrator.nodes.clear()
    with_faults(bench, LostRequest())
    report = bench.tick()
    assert [failure.action.subject for failure in report.failures] == ["BlockAffinity(host/node-a/ipv4/10.0.0.0/30)"]
    assert (bench.affinities(), report.is_settled) == (["node-a 10.0.0.0/30"], False)
    bench.store = bench.inner
    assert bench.tick().is_settled
    assert bench.affinities() == []


def test_a_node_that_nobody_can_speak_about_keeps_its_claims(bench: CollectorHarness) -> None:
    bench.add_block("10.0.0.0/30")
    bench.orchestrator.nodes.remove("node-a")
    bench.orchestrator.is_unavailable = True
    report = bench.tick()
    assert [failure.cause for failure in report.failures] == [
        "node node-a could not be looked up: the orchestrator: connection refused"
    ]
    assert bench.affinities() == ["node-a 10.0.0.0/30"]


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_a_tick_does_no_more_than_it_may(bench: CollectorHarness) -> None:
    bench.change_settings(max_actions=3, batch_size=2)
    for n in range(8):
        bench.assign_to_pod(f"10.0.0.{n}", f"p{n}")
    report = bench.tick_twice()
    assert (len(report.done), report.postponed, report.is_settled) == (3, 5, False)
    assert (len(bench.tick().freed), len(bench.tick().freed), len(bench.held())) == (3, 2, 0)


def test_what_leaks_the_longest_goes_first(bench: CollectorHarness) -> None:
    bench.change_settings(max_actions=1)
    bench.assign_to_pod("10.0.0.2", "b")
    bench.tick()
    bench.clock.sleep(1)
    bench.assign_to_pod("10.0.0.1", "a")
    bench.tick_twice()
    assert bench.held() == {"10.0.0.1": "h-a"}


def test_what_fails_does_not_hold_up_the_rest_for_ever(bench: CollectorHarness) -> None:
    bench.change_settings(max_actions=1, batch_size=1)
    for n in (1, 2, 5):
        bench.assign_to_pod(f"10.0.0.{n}", f"p{n}")
    bench.store = MalformedBlockDatastore(bench.inner, "10.0.0.0/30")
    bench.tick_twice()
    assert dict(bench.memory.failures) == {"handle h-p1": 1}
    bench.tick()
    bench.tick()
    assert bench.held() == {"10.0.0.1": "h-p1", "10.0.0.2": "h-p2"}
    bench.store = bench.inner
    bench.tick()
    bench.tick()
    assert (bench.held(), bench.memory.failures) == ({}, ())


def test_a_tick_ends_in_time_and_an_orchestrator_that_is_slow_takes_half_of_it(bench: CollectorHarness) -> None:
    bench.change_settings(batch_size=1)
    for n in range(8):
        bench.assign_to_pod(f"10.0.0.{n}", f"p{n}")
    left_handle(bench)
    bench.tick()
    bench.clock.sleep(GRACE_S)
    bench.change_settings(tick_s=60)
    bench.orchestrator.is_unavailable = True
    bench.orchestrator.delay = lambda: bench.clock.sleep(11)
    report = bench.tick()
    assert (len(report.failures), report.postponed) == (3, 5)
    assert bench.handles() == [f"h-p{n}" for n in range(8)]  # the other half was enough for the handle


# --- bookkeeping ------------------------------------------------------------------------------------------------------


def test_trap_20_the_memory_forgets_what_is_gone(bench: CollectorHarness) -> None:
    leaked_address(bench)
    left_handle(bench)
    left_claim(bench)
    unowned_block(bench)
    bench.add_block("10.0.0.20/30", "node-b")
    bench.tick()
    assert len(bench.memory.since) == 5
    bench.release("10.0.0.1")
    for kind in (AFFINITY, BLOCK):
        for name in bench.names(kind):
            record = next(r for r in bench.view().affinities + bench.view().blocks if r.key.name == name)
            bench.remove(record.key)
    for handle in bench.handles():
        bench.remove(handle_key(handle))
    bench.tick()
    assert bench.memory == ScanHistory()


def test_an_operator_reads_what_happened_and_what_did_not(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.assign_to("10.0.0.5", None, node="node-b")
    report = bench.tick_twice()
    assert bench.log.lines[-2:] == [
        (Level.INFO, "collected", {"what": str(report.done[0])}),
        (
            Level.INFO,
            "collector tick",
            {
                "freed": 1,
                "done": 1,
                "skipped": 0,
                "failed": 0,
                "in_use": 0,
                "candidates": 0,
                "undetermined": 1,
                "postponed": 0,
            },
        ),
    ]
    bench.tick()
    assert bench.log.lines[-1][0] is Level.DEBUG


def test_a_store_of_many_pages_is_seen_whole(bench: CollectorHarness) -> None:
    for n in range(1001):
        bench.put(handle_key(f"h{n:04}"), Handle())
    assert len(bench.view().handles) == 1001
