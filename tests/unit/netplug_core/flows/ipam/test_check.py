"""The check and its repairs on a store: races, damage, and the wait on a store that writes one record at a time."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import NotServed, Unavailable
from netplug_core.flows.ipam.check import SETTLE_S, RepairResult, check_ipam, repair, settle_s
from netplug_core.ipam.model import AFFINITY, Block, Handle, affinity_key, block_key, handle_key
from netplug_core.ipam.reporting.check import CheckReport
from netplug_core.records import Key
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION_KEY,
    IPPOOL,
    IPRESERVATION,
    IPAMConfiguration,
    IPReservation,
    IPReservationSpec,
    ippool_key,
    ipreservation_key,
)
from netplug_core.resources.kubecontrollersconfiguration import KUBE_CONTROLLERS_CONFIGURATION
from netplug_core.testing.faults import DamagedDatastore, FaultyDatastore, LostReply, RunBefore
from tests.harness.collector import CollectorHarness, leave_affinity, leave_block, leave_handle
from tests.harness.stores import HookedStore, StoreOfOldDefinitions

ONE, TWO = Prefix.parse("10.0.0.0/30"), Prefix.parse("10.0.0.4/30")


def make_harness(mode: MemoryMode) -> CollectorHarness:
    harness = CollectorHarness()
    harness.inner = harness.store = MemoryDatastore(mode, clock=harness.clock)
    harness.add_pool("four", "10.0.0.0/24")
    harness.assign_to_pod("10.0.0.1")
    harness.assign_to_pod("10.0.0.5", "db", node="node-b")
    return harness


@pytest.fixture
def harness() -> CollectorHarness:
    return make_harness(MemoryMode.ATOMIC)


@pytest.fixture(params=MemoryMode)
def any_harness(request: pytest.FixtureRequest) -> CollectorHarness:
    return make_harness(request.param)


def check_of(harness: CollectorHarness, store: Datastore | None = None) -> CheckReport:
    deadline = Deadline.after(harness.clock, 600)
    return check_ipam(store or harness.store, clock=harness.clock, deadline=deadline)


def repair_all(
    harness: CollectorHarness, report: CheckReport, store: Datastore | None = None
) -> list[tuple[str, RepairResult]]:
    deadline = Deadline.after(harness.clock, 600)
    attempts = repair(store or harness.store, report, chance=lambda: 0.5, deadline=deadline)
    return [(str(attempt.repair).partition(":")[0], attempt.result) for attempt in attempts]


def break_records(harness: CollectorHarness) -> None:
    """Each kind of problem, once."""
    leave_handle(harness)
    leave_affinity(harness)
    leave_block(harness)
    harness.remove(handle_key("h-web"))
    harness.remove(affinity_key("host:node-b", TWO))
    harness.clock.sleep(60)  # an empty block may be the work of a release, for as long


def test_all_that_does_not_fit_is_repaired_and_no_address_is_freed(any_harness: CollectorHarness) -> None:
    harness = any_harness
    break_records(harness)
    held = harness.held()
    report = check_of(harness)
    assert len(report.repairs) == 5
    assert {result for _text, result in repair_all(harness, report)} == {RepairResult.DONE}
    assert check_of(harness).problems == 0
    assert harness.held() == held
    assert harness.get(handle_key("h-web")) == Handle(blocks=((ONE, 1),))
    assert harness.affinities() == ["node-a 10.0.0.0/30", "node-b 10.0.0.4/30"]


def test_a_count_that_is_too_high_is_no_problem_and_is_repaired(any_harness: CollectorHarness) -> None:
    harness = any_harness
    harness.put(handle_key("h-web"), Handle(blocks=((ONE, 3), (TWO, 1))))
    report = check_of(harness)
    assert (report.problems, len(report.high_counts)) == (0, 1)
    assert repair_all(harness, report) == [("repair handle h-web", RepairResult.DONE)]
    assert check_of(harness).high_counts == ()
    assert harness.get(handle_key("h-web")) == Handle(blocks=((ONE, 1),))


def test_a_repair_waits_where_an_assignment_takes_several_writes(any_harness: CollectorHarness) -> None:
    harness, began = any_harness, any_harness.clock.monotonic()
    leave_handle(harness)
    report = check_of(harness)
    repair_all(harness, report)
    is_ordered = harness.inner.mode is not MemoryMode.ATOMIC
    assert harness.clock.monotonic() - began == (SETTLE_S if is_ordered else 0.0) == settle_s(harness.store)
    repair_all(harness, check_of(harness))
    assert harness.clock.monotonic() - began == (SETTLE_S if is_ordered else 0.0)


def test_after_the_wait_the_records_are_read_once() -> None:
    harness = make_harness(MemoryMode.ORDERED)
    calls = harness.inner.calls
    before = calls.reads
    check_of(harness)
    scan = calls.reads - before
    leave_handle(harness)
    report = check_of(harness)
    before = calls.reads
    repair_all(harness, report)
    assert calls.reads - before == scan + len(report.repairs)


def test_an_assignment_between_two_of_its_writes_is_left_alone() -> None:
    """On an ordered store, the handle is there before the block that it counts."""
    harness = make_harness(MemoryMode.ORDERED)
    harness.put(handle_key("h-new"), Handle(blocks=((ONE, 1),)))
    report = check_of(harness)
    assert [str(each) for each in report.repairs] == ["repair handle h-new: its counts differ from its blocks"]
    harness.remove(handle_key("h-new"))
    harness.assign_to_pod("10.0.0.2", "new")  # what the assignment has made in the end
    assert repair_all(harness, report) == [("repair handle h-new", RepairResult.CHANGED)]
    assert harness.get(handle_key("h-new")) == Handle(blocks=((ONE, 1),))


def test_a_pod_that_comes_while_records_are_read_is_no_problem(harness: CollectorHarness) -> None:
    """Its block was read without it, its handle with it."""
    store = HookedStore(harness.inner)
    steps: Iterator[Callable[[], object]] = iter((partial(harness.assign_to_pod, "10.0.0.2", "new"),))

    def once() -> None:
        for step in steps:
            step()

    store.after_read = once
    assert check_of(harness, store).problems == 0
    assert harness.held()["10.0.0.2"] == "h-new"


def test_what_changes_before_the_commit_is_left_alone(harness: CollectorHarness) -> None:
    leave_handle(harness)
    report = check_of(harness)
    store = FaultyDatastore(harness.inner, {1: RunBefore(partial(leave_handle, harness))})
    assert repair_all(harness, report, store) == [("repair handle h-left", RepairResult.CHANGED)]
    assert harness.handles() == ["h-db", "h-left", "h-web"]


def test_a_handle_of_an_address_that_is_released_before_the_commit_is_not_restored(harness: CollectorHarness) -> None:
    harness.remove(handle_key("h-web"))
    report = check_of(harness)
    store = FaultyDatastore(harness.inner, {1: RunBefore(lambda: harness.release("10.0.0.1"))})
    assert repair_all(harness, report, store) == [("restore handle h-web from its blocks", RepairResult.DONE)]
    assert harness.handles() == ["h-db"]


def test_an_affinity_of_a_block_that_is_given_up_before_the_commit_is_not_restored(harness: CollectorHarness) -> None:
    harness.remove(affinity_key("host:node-b", TWO))
    report = check_of(harness)

    def give_up() -> None:
        harness.put(block_key(TWO), harness.get(block_key(TWO)).relinquished())

    store = FaultyDatastore(harness.inner, {1: RunBefore(give_up)})
    ((_text, result),) = repair_all(harness, report, store)
    assert result is RepairResult.CHANGED
    assert harness.names(AFFINITY) == ["10.0.0.0/30"]


def test_a_lost_reply_is_no_failure(harness: CollectorHarness) -> None:
    break_records(harness)
    report = check_of(harness)
    store = FaultyDatastore(harness.inner, {number: LostReply() for number in (1, 3, 5, 7, 9)})
    assert {result for _text, result in repair_all(harness, report, store)} == {RepairResult.DONE}
    assert check_of(harness).problems == 0


@define
class DamagedStore:
    """A harness whose store is damaged."""

    harness: CollectorHarness
    store: DamagedDatastore = field()

    @classmethod
    def of(cls, harness: CollectorHarness, *keys: Key[object]) -> "DamagedStore":
        return cls(harness, DamagedDatastore(harness.inner, damage=dict.fromkeys(keys, b"no JSON")))


def test_damaged_handles_and_affinities_are_made_from_the_blocks(any_harness: CollectorHarness) -> None:
    harness = any_harness
    leave_handle(harness)
    leave_affinity(harness)
    held = harness.held()
    damaged = DamagedStore.of(
        harness,
        handle_key("h-web"),
        handle_key("h-left"),
        affinity_key("host:node-b", TWO),
        affinity_key("host:node-a", Prefix.parse("10.0.0.12/30")),
    )
    report = check_of(harness, damaged.store)
    assert {result for _text, result in repair_all(harness, report, damaged.store)} == {RepairResult.DONE}
    assert damaged.store.damage == {}
    assert check_of(harness, damaged.store).problems == 0
    assert harness.held() == held
    assert harness.get(handle_key("h-web")) == Handle(blocks=((ONE, 1),))


@pytest.mark.parametrize("has_leftover", [False, True])
def test_damage_that_only_one_of_two_looks_finds_is_no_problem(
    harness: CollectorHarness, *, has_leftover: bool
) -> None:
    """Another writer has replaced the record meanwhile, or is about to."""
    if has_leftover:
        leave_block(harness)
        harness.clock.sleep(60)
    damaged = DamagedStore.of(harness, block_key(ONE))
    store = HookedStore(damaged.store, after_read=damaged.store.damage.clear)
    report = check_of(harness, store)
    assert (len(report.repairs), report.unrepairable) == (int(has_leftover), ())
    damaged.store.damage[block_key(ONE)] = b"no JSON"
    found = str(check_of(harness, damaged.store).unrepairable[0])
    assert found.startswith("the stored record IPAMBlock(ipv4/10.0.0.0/30) is malformed: ")


def test_a_repair_that_needs_a_record_that_is_damaged_by_now_fails_alone(harness: CollectorHarness) -> None:
    leave_handle(harness)
    harness.put(handle_key("h-db"), Handle(blocks=((TWO, 2),)))
    report = check_of(harness)
    damaged = DamagedStore.of(harness, block_key(TWO))
    assert repair_all(harness, report, damaged.store) == [
        ("repair handle h-db", RepairResult.FAILED),
        ("repair handle h-left", RepairResult.DONE),
    ]


def test_a_store_that_is_away_ends_the_repairs(harness: CollectorHarness) -> None:
    leave_handle(harness)
    report = check_of(harness)

    def go_away() -> None:
        raise Unavailable("the store", "connection refused")

    store = HookedStore(harness.inner, before_commit=go_away)
    with pytest.raises(Unavailable, match="connection refused"):
        repair_all(harness, report, store)


def test_a_young_empty_block_is_kept(harness: CollectorHarness) -> None:
    """A release may have created it, so that a late creation of a killed assignment fails."""
    block = Block.new(Prefix.parse("10.0.0.16/30"), owner="", now_ns=harness.clock.now_ns())
    harness.put(block.key, block)
    assert check_of(harness).problems == 0
    harness.clock.sleep(60)
    assert [str(each) for each in check_of(harness).repairs] == [
        "delete block 10.0.0.16/30: it is empty and has no affinity"
    ]


def test_kinds_that_came_after_the_release_of_a_cluster_are_no_problem(harness: CollectorHarness) -> None:
    old = StoreOfOldDefinitions(harness.store, frozenset({KUBE_CONTROLLERS_CONFIGURATION}))
    assert check_of(harness, old).problems == check_of(harness).problems == 0
    with pytest.raises(NotServed):
        check_of(harness, StoreOfOldDefinitions(harness.store, frozenset({AFFINITY})))


def test_pools_and_reservations_that_assignments_cannot_judge_are_problems(any_harness: CollectorHarness) -> None:
    harness = any_harness
    pool = harness.get(ippool_key("four"))
    spec = evolve(pool.spec, node_selector="zone = 'a'", namespace_selector="(team == 'b'")
    harness.put(pool.key, evolve(pool, spec=spec))
    harness.put(IPAM_CONFIGURATION_KEY, IPAMConfiguration(metadata=Metadata(name="default")))
    reservation = IPReservation(metadata=Metadata(name="r"), spec=IPReservationSpec(unparsed=('"10.0.0.1-9"',)))
    harness.put(ipreservation_key("r"), reservation)
    node, namespace, entry = (str(each) for each in check_of(harness).unrepairable)
    assert node.startswith("IPPool(four) spec.nodeSelector: \"zone = 'a'\" is not accepted; position 6: ")
    assert namespace.startswith("IPPool(four) spec.namespaceSelector: ")
    assert all(text.endswith("; the pool serves only who names it") for text in (node, namespace))
    assert entry.startswith('IPReservation(r) spec.reservedCIDRs: "10.0.0.1-9" is neither an address nor a CIDR')


def test_a_cluster_without_some_kinds_is_checked(harness: CollectorHarness) -> None:
    for kind in (IPPOOL, IPRESERVATION):
        assert check_of(harness, StoreOfOldDefinitions(harness.inner, frozenset({kind}))).problems == 0
