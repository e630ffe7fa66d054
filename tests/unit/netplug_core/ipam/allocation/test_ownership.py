"""The ownership table: every standing and purpose, and what the block becomes."""

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.clock import SECOND_NS
from netplug_core.ipam.allocation.ownership import (
    TAKE_OVER_AGE_S,
    Acquisition,
    Claimant,
    Ownership,
    Purpose,
    find_ownership,
    is_owned,
)
from netplug_core.ipam.allocation.pools import Cooldown
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, affinity_key
from netplug_core.records import Record, Revision
from netplug_core.resources.ippool import IPPool

NOW_NS = 1_767_225_600 * SECOND_NS
OLD_NS = NOW_NS - (TAKE_OVER_AGE_S + 1) * SECOND_NS
OURS, OTHERS = "host:a", "host:b"
PREFIX = Prefix.parse("10.0.0.0/29")
POOL = Record(IPPool.for_prefix(PREFIX, name="p").key, IPPool.for_prefix(PREFIX, name="p"), Revision("1"))
CLAIMANT = Claimant(owner=OURS, cooldown=Cooldown(0, NOW_NS))


def make_block(owner: str, claimed_ns: int = OLD_NS) -> Block:
    return Block.new(PREFIX, owner=owner, now_ns=claimed_ns)


def in_use(block: Block) -> Block:
    return block.assign(block.free[:1], Attribute(handle="h"))


def make_affinity(state: AffinityState) -> Record[Affinity]:
    return Record(affinity_key(OURS, PREFIX), Affinity(state=state), Revision("2"))


CONFIRMED, PENDING = make_affinity(AffinityState.CONFIRMED), make_affinity(AffinityState.PENDING)
CASES: dict[Ownership, tuple[Block | None, Record[Affinity] | None]] = {
    Ownership.MISSING: (None, PENDING),
    Ownership.OWN: (make_block(OURS), CONFIRMED),
    Ownership.UNCONFIRMED: (make_block(OURS), PENDING),
    Ownership.OWNERLESS: (evolve(make_block(OURS), owner="", claim_time_ns=None), None),
    Ownership.UNUSED: (make_block(OTHERS), None),
    Ownership.FOREIGN: (in_use(make_block(OTHERS)), None),
}


@pytest.mark.parametrize("expected", Ownership)
def test_each_standing(expected: Ownership) -> None:
    block, affinity = CASES[expected]
    assert find_ownership(block, OURS, affinity, NOW_NS) is expected


@pytest.mark.parametrize("block, affinity, expected", [
    (make_block(OURS), None, Ownership.UNCONFIRMED),
    (make_block(OURS), make_affinity(AffinityState.PENDING_DELETION), Ownership.UNCONFIRMED),
    (make_block(OTHERS), CONFIRMED, Ownership.UNUSED),
    (make_block(OTHERS, NOW_NS), None, Ownership.FOREIGN),
    (make_block(OTHERS, NOW_NS - TAKE_OVER_AGE_S * SECOND_NS), None, Ownership.FOREIGN),
    (evolve(make_block(OTHERS), claim_time_ns=None), None, Ownership.UNUSED),
])  # fmt: skip
def test_the_block_decides_who_owns_it(
    block: Block, affinity: Record[Affinity] | None, expected: Ownership
) -> None:  # fmt: skip
    assert find_ownership(block, OURS, affinity, NOW_NS) is expected


OWN, UNCONFIRMED, NEW = Acquisition.OWN, Acquisition.UNCONFIRMED, Acquisition.NEW
ADOPTED, TAKEN_OVER, BORROWED = Acquisition.ADOPTED, Acquisition.TAKEN_OVER, Acquisition.BORROWED
TABLE = {
    #                         MISSING OWN  UNCONFIRMED  OWNERLESS UNUSED      FOREIGN
    Purpose.AUTOMATIC:       (NEW,    OWN, UNCONFIRMED, ADOPTED,  TAKEN_OVER, None),
    Purpose.BORROW:          (None,   OWN, UNCONFIRMED, BORROWED, BORROWED,   BORROWED),
    Purpose.SPECIFIC:        (NEW,    OWN, UNCONFIRMED, BORROWED, BORROWED,   BORROWED),
    Purpose.SPECIFIC_STRICT: (NEW,    OWN, UNCONFIRMED, ADOPTED,  None,       None),
    Purpose.CLAIM:           (NEW,    OWN, UNCONFIRMED, ADOPTED,  None,       None),
}  # fmt: skip


@pytest.mark.parametrize("purpose", Purpose)
def test_what_a_block_becomes_for_each_purpose(purpose: Purpose) -> None:
    found = []
    for block, affinity in CASES.values():
        record = None if block is None else Record(block.key, block, Revision("3"))
        candidate = CLAIMANT.find_candidate(purpose, POOL, PREFIX, record, affinity)
        found.append(candidate.acquisition if candidate else None)
    assert tuple(found) == TABLE[purpose]


@pytest.mark.parametrize("purpose, at, owner", [
    (Purpose.AUTOMATIC, Ownership.MISSING, OURS),
    (Purpose.AUTOMATIC, Ownership.OWNERLESS, OURS),
    (Purpose.AUTOMATIC, Ownership.UNUSED, OURS),
    (Purpose.SPECIFIC, Ownership.OWNERLESS, ""),
    (Purpose.SPECIFIC, Ownership.UNUSED, OTHERS),
    (Purpose.BORROW, Ownership.FOREIGN, OTHERS),
])  # fmt: skip
def test_a_candidate_is_the_block_as_it_will_be(purpose: Purpose, at: Ownership, owner: str) -> None:
    block, affinity = CASES[at]
    record = None if block is None else Record(block.key, block, Revision("3"))
    candidate = CLAIMANT.find_candidate(purpose, POOL, PREFIX, record, affinity)
    assert candidate is not None
    assert candidate.block.owner == owner
    assert candidate.revision == (record.revision if record else None)
    assert candidate.affinity is affinity


def test_an_unconfirmed_block_is_stored_once_more() -> None:
    block, affinity = CASES[Ownership.UNCONFIRMED]
    assert block is not None
    candidate = CLAIMANT.find_candidate(
        Purpose.CLAIM, POOL, PREFIX, Record(block.key, block, Revision("3")), affinity
    )  # fmt: skip
    assert candidate is not None
    assert candidate.block == block.touched()


def test_a_new_or_taken_over_block_keeps_addresses_for_its_host() -> None:
    claimant = evolve(CLAIMANT, host_reserved=(1, 1))
    other = make_block(OTHERS)
    for record in (None, Record(other.key, other, Revision("3"))):
        candidate = claimant.find_candidate(Purpose.AUTOMATIC, POOL, PREFIX, record)
        assert candidate is not None
        assert len(candidate.block.free) == PREFIX.size - 2


@pytest.mark.parametrize("block, expected", [
    (None, False),
    (make_block(OURS), True),
    (make_block(OTHERS), False),
    (make_block(""), False),
])  # fmt: skip
def test_an_affinity_is_backed_by_a_block_of_its_owner_only(block: Block | None, *, expected: bool) -> None:
    assert is_owned(block, affinity_key(OURS, PREFIX)) is expected
