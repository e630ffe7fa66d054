"""How addresses become free: at once or after a rest, and what happens to the block."""

import pytest

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.ipam.allocation.pools import Cooldown
from netplug_core.ipam.model import RESERVED_HANDLE, Attribute, Block
from netplug_core.records import Delete, Get, Record, Revision, Update
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY
from tests.harness.ipam import NODE, IPAMHarness

SECOND_NS = 1_000_000_000
NOW_NS = 1_767_225_600 * SECOND_NS
AT_ONCE = Cooldown(0, NOW_NS)
A_MINUTE = Cooldown(60 * SECOND_NS, NOW_NS)


def later(cooling: Cooldown, seconds: float) -> Cooldown:
    return Cooldown(cooling.cooldown_ns, cooling.now_ns + round(seconds * SECOND_NS))


def stored(block: Block) -> Record[Block]:
    return Record(block.key, block, Revision("7"))


def block_of(*handles: str, owner: str = f"host:{NODE}", kept_back: tuple[int, int] = (0, 0)) -> Block:
    """A block of eight, with an address for each handle."""
    block = Block.new(Prefix.parse("10.0.0.0/29"), owner=owner, now_ns=NOW_NS, host_reserved=kept_back)
    for handle in handles:
        block = block.assign(block.free[:1], Attribute(handle=handle))
    return block


def released(cooling: Cooldown, block: Block, *handles: str) -> Block | None:
    """The block as it is written; None where it is deleted."""
    held = [held for handle in handles for held in block.held_by(handle)]
    write = cooling.release(stored(block), held)
    assert isinstance(write, Update | Delete)
    assert (write.key, write.revision) == (block.key, Revision("7"))
    if isinstance(write, Delete):
        return None
    assert isinstance(write.value, Block)
    return write.value


@pytest.mark.parametrize("cooldown_s, cooldown_ns", [(None, 0), (0, 0), (90, 90 * SECOND_NS)])
def test_the_configuration_says_how_long_an_address_rests(cooldown_s: int | None, cooldown_ns: int) -> None:
    harness = IPAMHarness.new()
    if cooldown_s is not None:
        harness.configure(cooldown_s=cooldown_s)
    assert Cooldown.of(harness.read(Get(IPAM_CONFIGURATION_KEY)), NOW_NS) == Cooldown(cooldown_ns, NOW_NS)


def test_without_a_rest_an_address_is_free_at_once() -> None:
    left = released(AT_ONCE, block_of("a", "b", "c"), "b")
    assert left is not None
    assert [held.attribute.handle for held in left.held()] == ["a", "c"]
    assert left.free[-1] == Ordinal(1)
    assert left.sequence == block_of("a", "b", "c").sequence + 1


def test_an_address_that_rests_is_nobodys_and_not_free() -> None:
    left = released(A_MINUTE, block_of("a", "b"), "a")
    assert left is not None
    assert left.held_by("a") == ()
    assert Ordinal(0) not in left.free
    assert left.cooling_count == 1
    assert not left.is_empty


@pytest.mark.parametrize("owner", [f"host:{NODE}", "virtual:load-balancer"])
def test_the_empty_block_of_an_owner_stays(owner: str) -> None:
    left = released(AT_ONCE, block_of("a", owner=owner), "a")
    assert left is not None
    assert left.is_empty
    assert left.owner == owner


def test_an_empty_block_of_nobody_is_deleted() -> None:
    assert released(AT_ONCE, block_of("a", "b", owner=""), "a", "b") is None
    assert released(AT_ONCE, block_of("a", "b", owner=""), "a") is not None


def test_what_a_host_keeps_back_does_not_keep_a_block() -> None:
    block = block_of("a", owner="", kept_back=(1, 1))
    assert [held.attribute.handle for held in block.held()] == [RESERVED_HANDLE, "a", RESERVED_HANDLE]
    assert released(AT_ONCE, block, "a") is None


def test_a_block_of_nobody_stays_while_an_address_rests() -> None:
    resting = released(A_MINUTE, block_of("a", owner=""), "a")
    assert resting is not None
    assert resting.cooling_count == 1


def test_a_release_frees_addresses_whose_cooldown_is_over() -> None:
    first = released(A_MINUTE, block_of("a", "b", "c"), "a")
    assert first is not None
    soon = released(later(A_MINUTE, 60.9), first, "b")
    assert soon is not None
    assert soon.cooling_count == 2
    late = released(later(A_MINUTE, 61), first, "b")
    assert late is not None
    assert late.cooling_count == 1
    assert late.free[-1] == Ordinal(0)


def test_where_the_rest_was_switched_off_meanwhile_it_is_over_with_the_next_release() -> None:
    first = released(A_MINUTE, block_of("a", "b", owner=""), "a")
    assert first is not None
    assert released(Cooldown(0, NOW_NS), first, "b") is None


@pytest.mark.parametrize("seconds, resting_count", [(59, 1), (60, 1), (60.999, 1), (61, 0), (3600, 0)])
def test_trap_39_an_address_rests_a_second_more_than_it_must(seconds: float, resting_count: int) -> None:
    """Stamps are whole seconds, so the second in which it was released may have been nearly over."""
    resting = released(A_MINUTE, block_of("a"), "a")
    assert resting is not None
    assert later(A_MINUTE, seconds).expire(resting).cooling_count == resting_count


def test_trap_39_a_stamp_of_the_future_counts_as_now() -> None:
    ahead = released(later(A_MINUTE, 7200), block_of("a"), "a")
    assert ahead is not None
    met = A_MINUTE.expire(ahead)
    assert met.cooling_count == 1
    assert later(A_MINUTE, 61).expire(met).cooling_count == 0


def test_where_nothing_rests_a_block_is_itself() -> None:
    block = block_of("a")
    assert A_MINUTE.expire(block) is block
