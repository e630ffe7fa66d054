"""The sentences that remarks are rendered to."""

import pytest

from netplug_core.addressing import Prefix
from netplug_core.ipam.trace import BlockOutcome, BlockSeen, PoolFull, PoolOutcome, PoolSeen, Rule, RuleSeen
from netplug_core.records import Remark

POOL = Prefix.parse("192.168.1.0/24")
BLOCK = Prefix.parse("192.168.1.64/26")


@pytest.mark.parametrize("remark, text", [
    (PoolSeen(pool="main", prefix=POOL, outcome=PoolOutcome.SERVES), "IPPool main (192.168.1.0/24) may serve"),
    (
        PoolSeen(pool="main", prefix=POOL, outcome=PoolOutcome.WRONG_USE, detail="allowedUses: Tunnel"),
        "IPPool main (192.168.1.0/24) is not for this use (allowedUses: Tunnel)",
    ),
    (BlockSeen(block=BLOCK, outcome=BlockOutcome.TAKEN_FROM), "block 192.168.1.64/26 gave addresses"),
    (
        BlockSeen(block=BLOCK, outcome=BlockOutcome.UNREACHED, detail="limit 20"),
        "block 192.168.1.64/26 was not claimed: the node has reached its block limit (limit 20)",
    ),
    (
        RuleSeen(rule=Rule.STRICT_AFFINITY),
        "strict affinity is on: nothing is borrowed from blocks of other nodes",
    ),
    (
        RuleSeen(rule=Rule.BLOCK_LIMIT, detail="2"),
        "no more blocks are claimed: the node has reached its limit (2)",
    ),
    (
        PoolFull(pool="main", prefix=POOL, used=20, reserved=4, cooling=2, free_elsewhere=50),
        "IPPool main (192.168.1.0/24): 256 addresses, 20 used, 4 reserved, 2 cooling, 50 free in blocks of other nodes",
    ),
])  # fmt: skip
def test_a_remark_is_a_sentence(remark: Remark, text: str) -> None:
    assert str(remark) == text


@pytest.mark.parametrize("outcomes", [PoolOutcome, BlockOutcome, Rule])
def test_each_outcome_says_something_of_its_own(outcomes: type[PoolOutcome] | type[BlockOutcome] | type[Rule]) -> None:
    said = [outcome.value for outcome in outcomes]
    assert len(set(said)) == len(said)
    assert all(said)
