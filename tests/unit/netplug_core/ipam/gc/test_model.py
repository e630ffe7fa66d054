"""The texts of actions and reports, and the history."""

from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.ipam.gc.candidates import (
    AllocationOwner,
    AllocationRef,
    CollectionReport,
    DeleteBlock,
    ExpireCooldown,
    FailedAction,
    FreeCondition,
    FreeHandle,
    GCAction,
    IdleReason,
    Leak,
    LeakReason,
    RecordRef,
    RelinquishAffinity,
    RelinquishReason,
    RepairHandle,
    ScanHistory,
    WaitingNode,
)
from netplug_core.ipam.model import affinity_key, block_key, handle_key
from netplug_core.records import Revision

BLOCK = Prefix.parse("10.0.0.0/30")
ONE = Revision("1")
HELD = AllocationOwner(
    address=BLOCK.nth(1), block=BLOCK, handle="h", sequence=7, node="node-a", pod="web", namespace="default"
)
POD = Leak(owner=HELD, reason=LeakReason.POD_FINISHED, condition=FreeCondition.GRACE)
TUNNEL = Leak(
    owner=evolve(HELD, pod="", namespace="", type="ipipTunnelAddress", node=""),
    reason=LeakReason.NODE_GONE,
    condition=FreeCondition.NODE_GONE,
)
FREE = FreeHandle(handle="h", leaks=(POD,))
RELINQUISH = RelinquishAffinity(affinity=affinity_key("host:node-a", BLOCK), reason=RelinquishReason.NODE_GONE)


def test_the_text_of_an_action_says_what_is_done_and_why() -> None:
    block = RecordRef(block_key(BLOCK), ONE)
    expected: dict[GCAction, tuple[str, str]] = {
        FREE: (
            "handle h",
            "free the addresses of handle h: 10.0.0.1 of pod default/web on node node-a (its pod has finished)",
        ),
        FreeHandle(handle="t", leaks=(TUNNEL,)): (
            "handle t",
            "free the addresses of handle t: 10.0.0.1 of ipipTunnelAddress on node unknown (its node is gone)",
        ),
        RepairHandle(record=RecordRef(handle_key("h"), ONE), blocks=()): (
            "handle h",
            "repair handle h: its counts differ from its blocks",
        ),
        ExpireCooldown(record=block): (
            "expired cooldowns of block 10.0.0.0/30",
            "free the addresses of block 10.0.0.0/30 whose cooldown has expired",
        ),
        DeleteBlock(record=block, affinity=None): (
            "block 10.0.0.0/30",
            "delete block 10.0.0.0/30: it is empty and has no affinity",
        ),
        RELINQUISH: (
            "BlockAffinity(host/node-a/ipv4/10.0.0.0/30)",
            "relinquish the affinity of host:node-a for block 10.0.0.0/30: the node is gone",
        ),
    }
    assert {action: (action.subject, str(action)) for action in expected} == expected


def test_the_texts_of_a_failure_and_of_a_waiting_node() -> None:
    assert str(FailedAction(action=RELINQUISH, cause="timed out")) == (
        "could not relinquish the affinity of host:node-a for block 10.0.0.0/30: the node is gone: timed out"
    )
    assert str(WaitingNode(node="node-a", addresses=(BLOCK.nth(1), BLOCK.nth(2)))) == (
        "node node-a is gone; its affinities are kept because of 10.0.0.1, 10.0.0.2"
    )


def test_candidates_can_be_removed_from_a_history() -> None:
    one, two = AllocationRef(BLOCK.nth(1), "h", 7), RecordRef(handle_key("h"), ONE)
    history = ScanHistory(since=((one, 5), (two, 6)), failures=(("handle h", 1),))
    assert history.without([one]) == ScanHistory(since=((two, 6),), failures=(("handle h", 1),))
    assert history.without(FREE.candidates) == history.without([one])


def test_a_report_is_settled_without_remaining_work_and_quiet_without_anything_to_report() -> None:
    nothing = CollectionReport()
    assert (nothing.is_settled, nothing.is_quiet) == (True, True)
    for report in (
        CollectionReport(idle=IdleReason.LOCKED),
        CollectionReport(postponed=1),
        CollectionReport(failures=(FailedAction(action=FREE, cause=""),)),
    ):
        assert (report.is_settled, report.is_quiet) == (False, False)
    for report in (
        CollectionReport(done=(FREE,)),
        CollectionReport(skipped=(FREE,)),
        CollectionReport(in_use=(FREE,)),
        CollectionReport(candidates=(POD,)),
    ):
        assert (report.is_settled, report.is_quiet) == (True, False)
    assert CollectionReport(done=(RELINQUISH, FREE)).freed == (POD,)
