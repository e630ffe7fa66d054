"""The plan of a drain: the step that comes next, who holds addresses, and the mark of a pool."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.clock import SECOND_NS
from netplug_core.ipam.allocation.pools import Cooldown
from netplug_core.ipam.model import RESERVED_HANDLE, Affinity, Attribute, Block, affinity_key
from netplug_core.ipam.reporting.drain_plan import (
    DRAIN_MARK,
    DrainStep,
    DrainView,
    HeldAddress,
    drain_view,
    drain_warnings,
    is_draining,
    marked,
    next_step,
    unmarked,
    was_disabled,
)
from netplug_core.records import Key, Record, Revision
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, IPPool
from tests.harness.resources import make_pool

NOW_NS = 1_000 * SECOND_NS
SEEN = Revision("7")
POOL = make_pool("10.0.0.0/24")
MARKED = marked(POOL)
HELD = Attribute(handle="net.a", owner=(("namespace", "shop"), ("node", "n1"), ("pod", "web-0")))


def block(cidr: str = "10.0.0.0/26", *held: int, owner: str = "host:n1", attribute: Attribute = HELD) -> Block:
    made = Block.new(Prefix.parse(cidr), owner=owner, now_ns=1)
    return made.assign(tuple(map(Ordinal, held)), attribute) if held else made


def key(cidr: str = "10.0.0.0/26", owner: str = "host:n1") -> Key[Affinity]:
    return affinity_key(owner, Prefix.parse(cidr))


def view(*blocks: Block, affinities: tuple[Key[Affinity], ...] = (), pool: IPPool = MARKED) -> DrainView:
    return drain_view(Record(pool.key, pool, SEEN), blocks, affinities, Cooldown(60 * SECOND_NS, NOW_NS))


# --- the mark ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["enabled", "disabled"])
def test_a_mark_remembers_what_the_pool_was(text: str) -> None:
    is_disabled = text == "disabled"
    pool = make_pool(is_disabled=is_disabled)
    assert not is_draining(pool)
    assert was_disabled(pool) is is_disabled
    drained = marked(pool)
    assert drained.metadata.annotations == ((DRAIN_MARK, text),)
    assert drained.spec.is_disabled
    assert is_draining(drained)
    assert was_disabled(drained) is is_disabled
    assert marked(drained) == drained
    assert unmarked(drained) == pool
    assert unmarked(pool) == pool


def test_a_marked_pool_that_was_enabled_by_hand_is_not_drained() -> None:
    enabled = evolve(MARKED, spec=evolve(MARKED.spec, is_disabled=False))
    assert not is_draining(enabled)
    assert marked(enabled) == MARKED
    assert unmarked(enabled) == POOL


def test_other_annotations_stay() -> None:
    pool = evolve(POOL, metadata=evolve(POOL.metadata, annotations=(("team", "net"),)))
    assert marked(pool).metadata.annotations == ((DRAIN_MARK, "enabled"), ("team", "net"))
    assert unmarked(marked(pool)) == pool


def test_a_terminating_pool_is_drained() -> None:
    assert is_draining(evolve(POOL, metadata=evolve(POOL.metadata, deletion_time_ns=1)))


# --- the next step ----------------------------------------------------------------------------------------------------


def test_the_steps_come_in_their_order() -> None:
    used, unused = block("10.0.0.0/26", 3), block("10.0.0.64/26")
    assert next_step(view(used, pool=POOL), SEEN) is DrainStep.DISABLE
    assert next_step(view(used), None) is DrainStep.SETTLE
    assert next_step(view(used), Revision("6")) is DrainStep.SETTLE
    assert next_step(view(used, unused), SEEN) is DrainStep.RELEASE
    assert next_step(view(used), SEEN) is DrainStep.WAIT
    assert next_step(view(), SEEN) is DrainStep.DELETE


def test_a_deleted_pool_waits_for_its_finalizers() -> None:
    deleted = evolve(MARKED, metadata=evolve(MARKED.metadata, deletion_time_ns=1, finalizers=("a.b/c",)))
    assert next_step(view(pool=deleted), SEEN) is DrainStep.WAIT


# --- what is in the range ---------------------------------------------------------------------------------------------


def test_claims_and_blocks_in_use_stay() -> None:
    seen = view(block("10.0.0.0/26", 3), affinities=(key(),))
    assert (seen.affinities, seen.ownerless, seen.unused_count, seen.blocks_in_use) == ((), (), 0, 1)


@pytest.mark.parametrize(
    "stored, affinities, released",
    [
        ((block(),), (key(),), (key(),)),
        ((block(),), (), (key(),)),  # the affinity is lost
        ((), (key(),), (key(),)),  # the block was not stored
        ((block("10.0.0.0/26", 3, owner="host:n2"),), (key(),), (key(),)),  # the block is another owner's
        ((block("10.0.1.0/26"),), (key("10.0.1.0/26"),), ()),
        ((), (key("10.0.0.0/20"),), ()),
    ],
)
def test_unused_claims_in_the_range_are_released(
    stored: tuple[Block, ...], affinities: tuple[Key[Affinity], ...], released: tuple[Key[Affinity], ...]
) -> None:
    assert view(*stored, affinities=affinities).affinities == released


def test_blocks_without_owner_and_address_are_deleted() -> None:
    free, used, outside = (block(f"10.0.{n}.0/26", *held, owner="") for n, held in ((0, ()), (0, (1,)), (1, ())))
    assert view(free).ownerless == (free.prefix,)
    assert view(used).ownerless == ()
    assert view(outside).ownerless == ()


def test_addresses_in_cooldown_are_waited_for() -> None:
    cooled = block("10.0.0.0/26", 3, 4).release(frozenset({Ordinal(3)}), cooling_from_ns=NOW_NS - 10 * SECOND_NS)
    seen = view(cooled)
    assert (len(seen.held), seen.cooling, seen.is_empty) == (1, 1, False)
    assert seen.cooldown_ends_ns == NOW_NS + 51 * SECOND_NS
    expired = block("10.0.0.0/26", 3).release(frozenset({Ordinal(3)}), cooling_from_ns=NOW_NS - 90 * SECOND_NS)
    assert view(expired).is_empty
    assert view(expired).affinities == (key(),)


def test_what_a_host_reserves_for_itself_is_not_in_use() -> None:
    reserved = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:n1", now_ns=1, host_reserved=(2, 1))
    assert view(reserved).held == ()
    assert view(reserved).affinities == (key(),)
    assert [held.handle for held in view(reserved.assign((Ordinal(9),), HELD)).held] == ["net.a"]
    assert RESERVED_HANDLE in reserved.attributes.handles


@pytest.mark.parametrize(
    "attribute, expected",
    [
        (HELD, ("n1", "shop", "web-0", "net.a")),
        (Attribute(handle="h", owner=(("container", "c1"), ("node", "n1"))), ("n1", "", "c1", "h")),
        (Attribute(handle="t", owner=(("node", "n1"), ("type", "tunnel"))), ("n1", "", "tunnel", "t")),
        (Attribute(handle="h"), ("", "", "h", "h")),
        (Attribute(), ("", "", "", "")),
    ],
)  # fmt: skip
def test_holders_are_named(attribute: Attribute, expected: tuple[str, str, str, str]) -> None:
    (held,) = view(block("10.0.0.0/26", 5, attribute=attribute)).held
    assert held == HeldAddress(
        address=Address.parse("10.0.0.5"), node=expected[0], namespace=expected[1], name=expected[2], handle=expected[3]
    )


def test_of_a_larger_block_of_an_older_pool_only_addresses_in_the_range_count() -> None:
    large = block("10.0.0.0/23", 1, 300)
    assert [str(held.address) for held in view(large).held] == ["10.0.0.1"]
    assert view(block("10.0.0.0/23")).unused_count == 0


# --- warnings ---------------------------------------------------------------------------------------------------------

ALONE = ("IPPool(p): no other enabled IPv4 pool serves Workload, Tunnel; new requests will be refused",)


@pytest.mark.parametrize(
    "other, expected",
    [
        (make_pool("10.9.0.0/24", "q"), ()),
        (make_pool("10.9.0.0/24", "q", is_disabled=True), ALONE),
        (make_pool("10.9.0.0/24", "q", assignment_mode=AssignmentMode.MANUAL), ALONE),
        (make_pool("fd00::/112", "q"), ALONE),
        (
            make_pool("10.9.0.0/24", "q", allowed_uses=(AllowedUse.TUNNEL,)),
            ("IPPool(p): no other enabled IPv4 pool serves Workload; new requests will be refused",),
        ),
    ],
)
def test_a_pool_that_no_other_one_can_replace_is_warned_about(other: IPPool, expected: tuple[str, ...]) -> None:
    assert drain_warnings(POOL, (POOL, other)) == expected


def test_a_pool_that_serves_nothing_by_itself_needs_no_warning() -> None:
    assert drain_warnings(MARKED, (MARKED,)) == ()
    manual = make_pool(assignment_mode=AssignmentMode.MANUAL)
    assert drain_warnings(manual, (manual,)) == ()
