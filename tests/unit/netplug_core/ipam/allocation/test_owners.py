"""Finding the holder of an address, and changing its stored owners."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.allocation.release import (
    NO_REVISION,
    AddressHolder,
    OwnerChange,
    OwnerMismatch,
    decide_owner,
    find_holder_of,
    owner_queries,
)
from netplug_core.ipam.model import Attribute, Attributes, Pairs
from netplug_core.ipam.outcome import HandleMismatch
from netplug_core.records import Decision, NeedMore, Update
from netplug_core.resources.ippool import ippool_key
from tests.harness.ipam import IPAMHarness, ipv4
from tests.harness.ipam_release import decide_without_commit

FIRST, SECOND = Address.parse("10.0.0.0"), Address.parse("10.0.0.1")
BLOCK_0 = "10.0.0.0/26"
OLD: Pairs = (("node", "node-a"), ("pod", "old"))
NEW: Pairs = (("node", "node-b"), ("pod", "new"))


@pytest.fixture
def harness() -> IPAMHarness:
    """A cluster with two addresses of one request, which share their attribute entry."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24")
    harness.assign_or_refuse("h1", ipv4(2))
    block = harness.block(BLOCK_0)
    harness.put(block.key, evolve(block, attributes=Attributes.of((Attribute(handle="h1", owner=OLD),))))
    return harness


def holder(harness: IPAMHarness, address: Address) -> AddressHolder:
    snapshot = harness.read(*owner_queries())
    while isinstance(held := find_holder_of(snapshot, address), NeedMore):
        snapshot = snapshot.merged(harness.read(*held.queries))
    return held


def decision(harness: IPAMHarness, change: OwnerChange) -> Decision[AddressHolder]:
    return decide_without_commit(harness, owner_queries(), lambda snapshot: decide_owner(snapshot, change))


def change_to(
    owner: Pairs | None = NEW,
    *,
    alternate: Pairs | None = None,
    expected: Pairs | None = None,
    expected_alternate: Pairs | None = None,
) -> OwnerChange:
    return OwnerChange(
        address=FIRST,
        handle="h1",
        owner=owner,
        alternate=alternate,
        expected=expected,
        expected_alternate=expected_alternate,
    )


def changed(harness: IPAMHarness, change: OwnerChange) -> AddressHolder:
    """Commit a change that is not refused."""
    decided = decision(harness, change)
    assert isinstance(decided.result, AddressHolder)
    harness.commit(*decided.writes)
    return decided.result


def stored(harness: IPAMHarness, address: Address = FIRST) -> Attribute:
    held = harness.block(BLOCK_0).find(address)
    assert held is not None
    return held.attribute


# --- who holds it -----------------------------------------------------------------------------------------------


def test_the_holder_of_an_address_is_found(harness: IPAMHarness) -> None:
    held = holder(harness, FIRST)
    assert not held.is_cooling
    assert held.block == harness.block(BLOCK_0)
    assert held.allocation is not None
    assert held.allocation.attribute == Attribute(handle="h1", owner=OLD)


def test_a_free_address_has_a_block_and_no_holder(harness: IPAMHarness) -> None:
    held = holder(harness, Address.parse("10.0.0.9"))
    assert (held.is_cooling, held.allocation) == (False, None)
    assert held.block == harness.block(BLOCK_0)


@pytest.mark.parametrize("address", ["10.0.0.200", "11.0.0.1", "fd00::1"])
def test_an_address_without_a_block_has_neither(harness: IPAMHarness, address: str) -> None:
    held = holder(harness, Address.parse(address))
    assert (held.block, held.revision, held.allocation) == (None, NO_REVISION, None)


def test_an_address_that_is_cooling_down_has_no_holder(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=60)
    harness.release("h1")
    held = holder(harness, FIRST)
    assert held.is_cooling


def test_a_holder_is_found_in_a_block_without_a_pool(harness: IPAMHarness) -> None:
    harness.remove(ippool_key("main"))
    found = holder(harness, SECOND)
    assert found.allocation is not None
    assert not found.is_cooling


# --- changing it ------------------------------------------------------------------------------------------------


def test_the_owner_is_replaced_and_the_alternate_stays(harness: IPAMHarness) -> None:
    result = changed(harness, change_to())
    assert stored(harness) == Attribute(handle="h1", owner=NEW)
    assert result.allocation is not None
    assert result.allocation.attribute == stored(harness)
    changed(harness, change_to(None, alternate=OLD))
    assert stored(harness) == Attribute(handle="h1", owner=NEW, alternate=OLD)


def test_owner_and_alternate_are_swapped_in_one_change(harness: IPAMHarness) -> None:
    changed(harness, change_to(None, alternate=NEW))
    changed(harness, change_to(NEW, alternate=(), expected=OLD, expected_alternate=NEW))
    assert stored(harness) == Attribute(handle="h1", owner=NEW)


def test_trap_36_other_addresses_of_the_same_request_keep_their_owner(harness: IPAMHarness) -> None:
    changed(harness, change_to())
    assert stored(harness, SECOND) == Attribute(handle="h1", owner=OLD)
    assert len(harness.block(BLOCK_0).attributes) == 2
    assert harness.block(BLOCK_0).problem() == ""


def test_a_change_of_the_owner_keeps_the_allocation(harness: IPAMHarness) -> None:
    before = harness.block(BLOCK_0).find(FIRST)
    changed(harness, change_to())
    after = harness.block(BLOCK_0).find(FIRST)
    assert before is not None
    assert after is not None
    assert after.sequence == before.sequence
    assert harness.release("h1") == ["10.0.0.0", "10.0.0.1"]


def test_a_change_to_the_stored_owner_is_not_written(harness: IPAMHarness) -> None:
    decided = decision(harness, change_to(OLD))
    assert decided.writes == ()
    assert decided.result == holder(harness, FIRST)


def test_a_change_is_written_by_the_revision_that_was_read(harness: IPAMHarness) -> None:
    (write,) = decision(harness, change_to()).writes
    assert isinstance(write, Update)
    assert (write.key, write.revision) == (harness.block(BLOCK_0).key, holder(harness, FIRST).revision)


# --- what it refuses --------------------------------------------------------------------------------------------


def refused(harness: IPAMHarness, change: OwnerChange) -> object:
    decided = decision(harness, change)
    assert decided.writes == ()
    return decided.result


def test_a_change_without_a_new_owner_is_refused(harness: IPAMHarness) -> None:
    error = refused(harness, OwnerChange(address=FIRST, handle="h1", expected=OLD))
    assert isinstance(error, ConfigurationError)
    assert str(error) == "the owner of 10.0.0.0: None is not accepted; name a new owner or a new alternate owner"


@pytest.mark.parametrize("address, expected", [("10.0.0.0", "h1"), ("10.0.0.9", None), ("11.0.0.1", None)])
def test_an_address_that_the_handle_does_not_hold_is_refused(
    harness: IPAMHarness, address: str, expected: str | None
) -> None:
    error = refused(harness, OwnerChange(address=Address.parse(address), handle="h2", owner=NEW))
    assert isinstance(error, HandleMismatch)
    assert (error.requested, error.expected) == ("h2", expected)


def test_the_owner_of_an_address_that_is_cooling_down_cannot_be_changed(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=60)
    harness.release("h1")
    assert isinstance(refused(harness, change_to()), HandleMismatch)


@pytest.mark.parametrize("change", [change_to(expected=NEW), change_to(expected=OLD, expected_alternate=NEW)])
def test_an_owner_that_is_not_the_expected_one_is_kept(harness: IPAMHarness, change: OwnerChange) -> None:
    error = refused(harness, change)
    assert isinstance(error, OwnerMismatch)
    assert error.code == 7


def test_the_refusal_names_the_stored_and_the_expected_owner(harness: IPAMHarness) -> None:
    assert str(refused(harness, change_to(expected=NEW))) == (
        "10.0.0.0 is owned by {'node': 'node-a', 'pod': 'old'}, not by {'node': 'node-b', 'pod': 'new'}: "
        "nothing is changed"
    )


def test_a_change_with_expectations_is_not_repeatable(harness: IPAMHarness) -> None:
    assert decision(harness, change_to()).is_repeatable
    assert not decision(harness, change_to(expected=OLD)).is_repeatable
    assert not decision(harness, change_to(expected_alternate=())).is_repeatable
