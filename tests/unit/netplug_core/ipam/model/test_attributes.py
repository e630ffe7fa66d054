"""The row of a block's attribute entries: read like a sequence, kept in columns."""

import pytest
from attrs import evolve

from netplug_core.ipam.model import Attribute, Attributes, cooldown_ends_ns

WEB = Attribute(handle="h1", owner=(("node", "node-a"), ("pod", "web-0")))
DB = Attribute(handle="h2", owner=(("node", "node-a"), ("pod", "db-0")))
TUNNEL = Attribute(handle="tunnel", owner=(("node", "node-a"), ("type", "vxlanTunnelAddress")))
BARE = Attribute()
COOLING = Attribute(released_ns=7)
MOVING = evolve(WEB, handle="h3", alternate=(("pod", "web-1"),))
NEWER = evolve(WEB, handle="h4", unknown_json='{"zone":"eu"}')
ALL = (WEB, DB, TUNNEL, BARE, COOLING, MOVING, NEWER)


def test_an_attribute_knows_its_owner() -> None:
    assert (WEB.owner_value("pod"), WEB.owner_value("namespace")) == ("web-0", "")


def test_an_attribute_says_nothing_by_itself() -> None:
    assert Attribute() == Attribute(handle=None, owner=(), alternate=(), released_ns=None, unknown_json="")


def test_only_what_the_columns_cannot_say_is_kept_whole() -> None:
    assert Attributes.of(ALL).whole == (None, None, None, None, COOLING, MOVING, NEWER)


def test_entries_come_out_as_they_went_in() -> None:
    row = Attributes.of(ALL)
    assert (len(row), tuple(row)) == (7, ALL)
    assert [row[index] for index in range(7)] == list(ALL)


def test_a_row_is_the_same_however_it_was_made() -> None:
    row = Attributes()
    for attribute in ALL:
        row = row.plus(attribute)
    assert row == Attributes.of(ALL)
    assert hash(row) == hash(Attributes.of(ALL))
    assert row != Attributes.of(ALL[1:])


def test_entries_with_the_same_names_share_them() -> None:
    row = Attributes().plus(WEB).plus(TUNNEL).plus(DB).plus(evolve(DB, handle="h5"))
    assert row.names[2] is row.names[3]


@pytest.mark.parametrize("attribute", ALL)
def test_an_entry_is_found_by_all_that_it_says(attribute: Attribute) -> None:
    row = Attributes.of(ALL)
    assert row.find(attribute) == ALL.index(attribute)
    assert row.find(evolve(attribute, owner=(("node", "node-b"),))) is None


def test_a_handle_holds_its_entries_but_those_that_cool_down() -> None:
    row = Attributes.of((WEB, DB, evolve(WEB, owner=()), evolve(WEB, released_ns=7)))
    assert (row.held_by("h1"), row.held_by("h2"), row.held_by("h")) == ((0, 2), (1,), ())


def test_cooling_entries_are_listed_with_their_time() -> None:
    assert Attributes.of(ALL).cooling() == ((4, 7),)
    assert Attributes.of((WEB, DB)).cooling() == ()


def test_some_of_the_entries_make_a_row_too() -> None:
    assert Attributes.of(ALL).only([1, 4]) == Attributes.of((DB, COOLING))
    assert Attributes.of(ALL).only([]) == Attributes()


@pytest.mark.parametrize(
    "cooldown_ns, until_ns", [(0, 7), (-1, 7), (1, 1_000_000_008), (60_000_000_000, 61_000_000_007)]
)
def test_an_address_rests_a_second_longer_than_the_cooldown_or_not_at_all(cooldown_ns: int, until_ns: int) -> None:
    assert cooldown_ends_ns(7, cooldown_ns) == until_ns
