"""What a check finds in a view, and what it calls repairable."""

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.clock import SECOND_NS
from netplug_core.datastore.transaction import read_pages
from netplug_core.ipam.gc.candidates import ScanTime, StoreView
from netplug_core.ipam.gc.detect import HandleTally
from netplug_core.ipam.model import AFFINITY, HANDLE, RESERVED_HANDLE, Block, Handle, affinity_key, handle_key
from netplug_core.ipam.reporting.check import CheckedRecords, CheckReport, DamagedRecord, check
from netplug_core.records import Key, Malformed, Record, Revision
from netplug_core.resources.ippool import IPPOOL, ippool_key
from tests.harness.collector import CollectorHarness, leave_affinity, leave_block, leave_handle
from tests.harness.resources import make_pool

ONE, TWO = Prefix.parse("10.0.0.0/30"), Prefix.parse("10.0.0.4/30")


@pytest.fixture
def harness() -> CollectorHarness:
    """Two pods on two nodes, and a spare block: nothing is wrong."""
    harness = CollectorHarness.with_pools()
    harness.assign_to_pod("10.0.0.1")
    harness.assign_to_pod("10.0.0.5", "db", node="node-b")
    harness.add_block("10.0.0.8/30")
    return harness


def whole_view(harness: CollectorHarness) -> StoreView:
    """What is stored, with all handles."""
    handles = tuple(read_pages(harness.inner, HANDLE, deadline=harness.deadline))
    return evolve(harness.view(), handles=handles)


def records_of(view: StoreView, damaged: tuple[DamagedRecord, ...] = ()) -> CheckedRecords:
    handles = HandleTally.of(record.value for record in view.blocks)
    for record in view.handles:
        handles.add(record)
    return CheckedRecords(blocks=view.blocks, affinities=view.affinities, handles=handles, damaged=damaged)


def check_of(harness: CollectorHarness, *damaged: DamagedRecord) -> CheckReport:
    now_ns = harness.clock.now_ns() + 3600 * SECOND_NS  # no block is young
    return check(records_of(whole_view(harness), damaged), ScanTime(wall_ns=now_ns, elapsed_ms=0))


def damage(key: Key[object], *, is_known: bool = True) -> DamagedRecord:
    error = Malformed(str(key), "it is rotten", Revision("7"), key if is_known else None)
    return DamagedRecord(kind=key.kind, error=error)


def texts(report: CheckReport) -> list[str]:
    return [str(each) for each in (*report.repairs, *report.unrepairable)]


def test_what_fits_together_is_no_problem(harness: CollectorHarness) -> None:
    harness.set_cooldown(60)
    harness.assign_to_pod("10.0.0.2", "old")
    harness.release("10.0.0.2", cooling=True)
    harness.remove(handle_key("h-old"))
    report = check_of(harness)
    assert (texts(report), report.problems) == ([], 0)
    assert (report.blocks, report.addresses, report.handles, report.affinities) == (3, 2, 2, 3)


def test_each_record_that_leads_nowhere_is_found(harness: CollectorHarness) -> None:
    leave_handle(harness)
    leave_affinity(harness)
    leave_block(harness)
    harness.put_affinity("10.0.0.4/30", "host:node-a")
    harness.put(handle_key("h-db"), Handle(blocks=((ONE, 1),)))
    assert texts(check_of(harness)) == [
        "repair handle h-db: its counts differ from its blocks",
        "repair handle h-left: its counts differ from its blocks",
        "relinquish the affinity of host:node-a for block 10.0.0.12/30: there is no such block",
        "relinquish the affinity of host:node-a for block 10.0.0.4/30: the block has another owner",
        "delete block 10.0.0.16/30: it is empty and has no affinity",
    ]


@pytest.mark.parametrize("blocks", [((TWO, 2),), ((ONE, 1), (TWO, 1))])
def test_a_handle_that_counts_more_than_it_holds_is_no_problem(
    harness: CollectorHarness, blocks: tuple[tuple[Prefix, int], ...]
) -> None:
    """A killed assignment leaves it; the next call for the container corrects it."""
    harness.put(handle_key("h-db"), Handle(blocks=blocks))
    report = check_of(harness)
    assert (texts(report), report.problems) == ([], 0)
    assert [str(each) for each in report.high_counts] == ["repair handle h-db: its counts differ from its blocks"]


def test_a_high_count_that_may_lead_to_a_damaged_block_is_reported(harness: CollectorHarness) -> None:
    harness.put(handle_key("h-db"), Handle(blocks=((TWO, 1), (Prefix.parse("10.0.0.20/30"), 1))))
    report = check_of(harness, damage(Block.new(Prefix.parse("10.0.0.20/30"), owner="", now_ns=1).key))
    assert report.high_counts == ()
    assert "repair handle h-db: its counts differ from its blocks: not while a block is damaged, " in texts(report)[-1]


def test_a_handle_or_an_affinity_that_is_missing_is_restored(harness: CollectorHarness) -> None:
    harness.remove(handle_key("h-web"))
    harness.remove(affinity_key("host:node-b", TWO))
    assert texts(check_of(harness)) == [
        "restore handle h-web from its blocks: it is missing or damaged",
        "restore the affinity of host:node-b for block 10.0.0.4/30: it is missing or damaged",
    ]


def test_an_address_without_a_handle_and_those_of_the_host_are_no_problem(harness: CollectorHarness) -> None:
    harness.assign_to("10.0.0.2", None, node="node-a")
    harness.assign_to("10.0.0.3", RESERVED_HANDLE, node="node-a")
    assert texts(check_of(harness)) == []


def report_with_pools(harness: CollectorHarness, *cidrs: str, has_all: bool = True) -> CheckReport:
    pools = tuple(Record(ippool_key(cidr), make_pool(cidr), Revision("1")) for cidr in cidrs)
    records = evolve(records_of(whole_view(harness)), pools=pools, has_all_pools=has_all)
    return check(records, ScanTime(wall_ns=harness.clock.now_ns(), elapsed_ms=0))


def test_an_address_in_no_pool_is_a_problem(harness: CollectorHarness) -> None:
    """Its pool was deleted while its workload runs. An empty block is no problem."""
    harness.assign_to_pod("10.0.0.2", "second")
    assert texts(report_with_pools(harness, "10.0.0.0/24")) == []
    one = "block 10.0.0.4/30: 10.0.0.5 is held, and in no pool; create a pool with block size 30 around the block, or "
    report = report_with_pools(harness, "10.0.0.0/30")
    assert [text.startswith(one) for text in texts(report)] == [True]
    assert report.problems == 1
    assert report.before_pools().problems == 0
    two = "block 10.0.0.0/30: 2 addresses, 10.0.0.1 to 10.0.0.2, are held, and in no pool; "
    assert [text.split("create", 1)[0] for text in texts(report_with_pools(harness))][:1] == [two]
    assert texts(report_with_pools(harness, has_all=False)) == []  # one that cannot be read may contain them


def test_a_pool_may_contain_a_part_of_a_block(harness: CollectorHarness) -> None:
    assert texts(report_with_pools(harness, "10.0.0.0/31", "10.0.0.4/30")) == []
    assert texts(report_with_pools(harness, "10.0.0.2/31", "10.0.0.4/30")) != []


def test_what_cools_down_or_is_reserved_is_in_no_pool_without_a_problem(harness: CollectorHarness) -> None:
    harness.set_cooldown(3600)
    harness.release("10.0.0.5", cooling=True)
    harness.remove(handle_key("h-db"))
    harness.assign_to("10.0.0.6", RESERVED_HANDLE, node="node-b")
    assert texts(report_with_pools(harness, "10.0.0.0/30")) == []


def test_a_block_within_another_is_reported(harness: CollectorHarness) -> None:
    wide = Block.new(Prefix.parse("10.0.0.0/28"), owner="", now_ns=1)
    harness.put(wide.key, wide)
    assert texts(check_of(harness)) == [
        "delete block 10.0.0.0/28: it is empty and has no affinity",
        "block 10.0.0.0/30 lies in block 10.0.0.0/28: an address of both may have two owners",
        "block 10.0.0.4/30 lies in block 10.0.0.0/28: an address of both may have two owners",
        "block 10.0.0.8/30 lies in block 10.0.0.0/28: an address of both may have two owners",
    ]


# --- damage ----------------------------------------------------------------------------------------------------------


def test_damaged_handles_and_affinities_are_restored_where_blocks_need_them(harness: CollectorHarness) -> None:
    """The others are deleted."""
    harness.remove(handle_key("h-web"))
    harness.remove(affinity_key("host:node-a", ONE))
    report = check_of(
        harness,
        damage(handle_key("h-web")),
        damage(handle_key("h-gone")),
        damage(affinity_key("host:node-a", ONE)),
        damage(affinity_key("host:node-z", ONE)),
    )
    assert texts(report) == [
        "restore handle h-web from its blocks: it is missing or damaged",
        "restore the affinity of host:node-a for block 10.0.0.0/30: it is missing or damaged",
        "delete IPAMHandle(h-gone): it is damaged, and no block needs it",
        "delete BlockAffinity(host/node-z/ipv4/10.0.0.0/30): it is damaged, and no block needs it",
    ]
    assert report.unrepairable == ()


def test_the_affinity_of_an_empty_block_may_be_the_damaged_one(harness: CollectorHarness) -> None:
    harness.remove(affinity_key("host:node-a", Prefix.parse("10.0.0.8/30")))
    assert texts(check_of(harness)) == ["delete block 10.0.0.8/30: it is empty and has no affinity"]
    unknown = damage(affinity_key("host:node-x", ONE), is_known=False)
    assert texts(check_of(harness, unknown)) == [
        "restore the affinity of host:node-a for block 10.0.0.8/30: it is missing or damaged",
        "the stored record BlockAffinity(host/node-x/ipv4/10.0.0.0/30) is malformed: it is rotten",
    ]


@pytest.mark.parametrize("key", [ippool_key("main"), handle_key("h-unknown")])
def test_other_damage_is_reported(harness: CollectorHarness, key: Key[object]) -> None:
    report = check_of(harness, damage(key, is_known=key.kind == IPPOOL))
    assert texts(report) == [f"the stored record {key} is malformed: it is rotten"]
    assert report.problems == 1


def test_nothing_that_may_lead_to_a_damaged_block_is_repaired(harness: CollectorHarness) -> None:
    """The damaged block may hold what the handles count, and may be the one that the affinity names."""
    leave_handle(harness)  # counts an address in a block that can be read
    leave_affinity(harness)
    leave_block(harness)
    harness.put(handle_key("h-db"), Handle(blocks=((TWO, 1), (Prefix.parse("10.0.0.20/30"), 1))))
    harness.remove(handle_key("h-web"))
    damaged = damage(Block.new(Prefix.parse("10.0.0.20/30"), owner="", now_ns=1).key)
    report = check_of(harness, damaged, damage(handle_key("h-bad")))
    reason = "not while a block is damaged, which it may lead to"
    assert list(map(str, report.repairs)) == [
        "repair handle h-left: its counts differ from its blocks",
        "delete block 10.0.0.16/30: it is empty and has no affinity",
    ]
    assert list(map(str, report.unrepairable)) == [
        "the stored record IPAMBlock(ipv4/10.0.0.20/30) is malformed: it is rotten",
        "the stored record IPAMHandle(h-bad) is malformed: it is rotten",
        f"repair handle h-db: its counts differ from its blocks: {reason}",
        f"restore handle h-web from its blocks: it is missing or damaged: {reason}",
        f"relinquish the affinity of host:node-a for block 10.0.0.12/30: there is no such block: {reason}",
        f"delete IPAMHandle(h-bad): it is damaged, and no block needs it: {reason}",
    ]


def test_an_affinity_whose_key_names_no_block_is_reported(harness: CollectorHarness) -> None:
    harness.put_affinity("10.0.0.12/30")
    found = whole_view(harness)
    odd = AFFINITY.key("host", "node-a", "ipv4", "here")
    record = found.affinities[-1]
    view = type(found)(
        blocks=found.blocks,
        handles=found.handles,
        affinities=(*found.affinities[:-1], type(record)(odd, record.value, record.revision)),
    )
    report = check(records_of(view), ScanTime(wall_ns=0, elapsed_ms=0))
    assert [str(each) for each in report.unrepairable if "here" in str(each)] != []
