"""What actions and reports say, and what a memory forgets."""

from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.ipam.affinity import affinity_key
from netplug_core.ipam.block import block_key
from netplug_core.ipam.collection import (
    Action,
    Basis,
    ClaimEnd,
    DeleteBlock,
    Failure,
    FreeCooled,
    FreeHandle,
    GiveUp,
    Leak,
    Memory,
    MendHandle,
    Report,
    Seen,
    Standstill,
    Taken,
    Waiting,
)
from netplug_core.ipam.handle import handle_key
from netplug_core.ipam.holdings import Holding, LeakReason
from netplug_core.records import Revision

BLOCK = Prefix.parse("10.0.0.0/30")
ONE = Revision("1")
HELD = Holding(address=BLOCK.nth(1), block=BLOCK, handle="h", sequence=7, node="node-a", pod="web", namespace="default")
POD = Leak(holding=HELD, reason=LeakReason.POD_FINISHED, basis=Basis.GRACE)
TUNNEL = Leak(
    holding=evolve(HELD, pod="", namespace="", type="ipipTunnelAddress", node=""),
    reason=LeakReason.NODE_GONE,
    basis=Basis.NODE_GONE,
)
FREE = FreeHandle(handle="h", leaks=(POD,))
GIVE_UP = GiveUp(claim=affinity_key("host:node-a", BLOCK), reason=ClaimEnd.NODE_GONE)


def test_each_action_says_what_is_done_and_why() -> None:
    block = Seen(block_key(BLOCK), ONE)
    expected: dict[Action, tuple[str, str]] = {
        FREE: (
            "handle h",
            "free what handle h holds: 10.0.0.1 of pod default/web on node node-a (its pod has finished)",
        ),
        FreeHandle(handle="t", leaks=(TUNNEL,)): (
            "handle t",
            "free what handle t holds: 10.0.0.1 of ipipTunnelAddress on node unknown (its node is gone)",
        ),
        MendHandle(seen=Seen(handle_key("h"), ONE), blocks=()): (
            "handle h",
            "mend handle h: it does not count what its blocks hold",
        ),
        FreeCooled(seen=block): (
            "cooled addresses of block 10.0.0.0/30",
            "free the addresses of block 10.0.0.0/30 that have cooled down",
        ),
        DeleteBlock(seen=block, claim=None): (
            "block 10.0.0.0/30",
            "delete block 10.0.0.0/30: it is empty, and nobody claims it",
        ),
        GIVE_UP: (
            "BlockAffinity(host/node-a/ipv4/10.0.0.0/30)",
            "give up the claim of host:node-a on 10.0.0.0/30: the node is gone",
        ),
    }
    assert {action: (action.subject, str(action)) for action in expected} == expected


def test_a_failure_and_a_wait_are_sentences() -> None:
    assert str(Failure(action=GIVE_UP, cause="timed out")) == (
        "could not give up the claim of host:node-a on 10.0.0.0/30: the node is gone: timed out"
    )
    assert str(Waiting(node="node-a", addresses=(BLOCK.nth(1), BLOCK.nth(2)))) == (
        "node node-a is gone and keeps claims because of 10.0.0.1, 10.0.0.2"
    )


def test_a_memory_forgets_what_it_is_told_to() -> None:
    one, two = Taken(BLOCK.nth(1), "h", 7), Seen(handle_key("h"), ONE)
    memory = Memory(since=((one, 5), (two, 6)), failures=(("handle h", 1),))
    assert memory.without([one]) == Memory(since=((two, 6),), failures=(("handle h", 1),))
    assert memory.without(FREE.suspects) == memory.without([one])


def test_a_report_knows_whether_anything_is_left_or_worth_telling() -> None:
    nothing = Report()
    assert (nothing.is_settled, nothing.is_quiet) == (True, True)
    for left in (
        Report(standstill=Standstill.LOCKED),
        Report(postponed=1),
        Report(failures=(Failure(action=FREE, cause=""),)),
    ):
        assert (left.is_settled, left.is_quiet) == (False, False)
    for told in (Report(done=(FREE,)), Report(passed_over=(FREE,)), Report(spared=(FREE,)), Report(candidates=(POD,))):
        assert (told.is_settled, told.is_quiet) == (True, False)
    assert Report(done=(GIVE_UP, FREE)).freed == (POD,)
