"""The sentences that remarks and refusals are rendered to, and their codes."""

import pytest

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import AllocationError
from netplug_core.ipam.trace import (
    BlockOutcome,
    BlockSeen,
    NoPoolServes,
    PoolFull,
    PoolOutcome,
    PoolSeen,
    PoolsExhausted,
    PoolUnknown,
)
from netplug_core.records import Remark

POOL = Prefix.parse("192.168.1.0/24")
BLOCK = Prefix.parse("192.168.1.64/26")
FULL = PoolFull(pool="main", prefix=POOL, used=256, free_elsewhere=0)
LIMIT = BlockSeen(block=BLOCK, outcome=BlockOutcome.LIMIT, detail="limit 20")


@pytest.mark.parametrize("remark, text", [
    (PoolSeen(pool="main", prefix=POOL, outcome=PoolOutcome.SERVES), "IPPool main (192.168.1.0/24) may serve"),
    (
        PoolSeen(pool="main", prefix=POOL, outcome=PoolOutcome.WRONG_USE, detail="allowedUses: Tunnel"),
        "IPPool main (192.168.1.0/24) is not for this use (allowedUses: Tunnel)",
    ),
    (BlockSeen(block=BLOCK, outcome=BlockOutcome.TAKEN_FROM), "block 192.168.1.64/26 gave addresses"),
    (LIMIT, "block 192.168.1.64/26 was not claimed: the node has reached its block limit (limit 20)"),
    (FULL, "IPPool main (192.168.1.0/24): 256 addresses, 256 used, 0 free in blocks of other nodes"),
])  # fmt: skip
def test_a_remark_is_a_sentence(remark: Remark, text: str) -> None:
    assert str(remark) == text


NOBODY = NoPoolServes(
    Family.IPV4,
    "node-a",
    (
        PoolSeen(pool="a", prefix=POOL, outcome=PoolOutcome.DISABLED),
        PoolSeen(pool="b", prefix=BLOCK, outcome=PoolOutcome.NODE_SELECTOR, detail="has(x)"),
    ),
)
NOBODY_TEXT = (
    "no configured netplug pools for node node-a (IPv4): IPPool a (192.168.1.0/24) is disabled; "
    "IPPool b (192.168.1.64/26) has a nodeSelector, a rule that is not yet supported (has(x))"
)
NO_POOL_TEXT = "no configured netplug pools for node node-a (IPv6): there is no IPv6 pool at all"
FULL_TEXT = (
    "Assigned 256 out of 257 requested IPv4 addresses; No IPs available in pools: [192.168.1.0/24]; "
    "IPPool main (192.168.1.0/24): 256 addresses, 256 used, 0 free in blocks of other nodes"
)
LIMIT_TEXT = (  # no word of exhausted pools: they have addresses, but not for this node
    "Assigned 0 out of 1 requested IPv4 addresses; "
    "IPPool main (192.168.1.0/24): 256 addresses, 256 used, 0 free in blocks of other nodes; "
    "block 192.168.1.64/26 was not claimed: the node has reached its block limit (limit 20)"
)


@pytest.mark.parametrize("error, code, text", [
    (PoolUnknown("x", ()), 101, "the given pool (x) does not exist; pools of this cluster: none"),
    (NoPoolServes(Family.IPV6, "node-a", ()), 104, NO_POOL_TEXT),
    (NOBODY, 104, NOBODY_TEXT),
    (PoolsExhausted(Family.IPV4, 256, 257, (FULL,)), 105, FULL_TEXT),
    (PoolsExhausted(Family.IPV4, 0, 1, (FULL, LIMIT)), 105, LIMIT_TEXT),
])  # fmt: skip
def test_a_refusal_has_a_code_and_a_reason(error: AllocationError, code: int, text: str) -> None:
    assert (error.code, str(error)) == (code, text)
