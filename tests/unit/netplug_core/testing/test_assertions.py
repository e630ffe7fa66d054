"""The assertions of the suites say what is wrong."""

import re

import pytest

from netplug_core.errors import ConfigurationError, NetplugError, Unavailable
from netplug_core.records import Create
from netplug_core.testing.assertions import describe, expect, expect_refused, expect_same
from netplug_core.testing.datastore_harness import FRUIT

LOST = Unavailable("the store", "the cable was cut")


def refuse(error: NetplugError) -> None:
    raise error


def test_an_assertion_shows_what_was_found_and_what_was_expected() -> None:
    expect_same(1, 1, "the number")
    with pytest.raises(AssertionError, match="the number: found 1, expected 2"):
        expect_same(1, 2, "the number")
    is_late = True
    expect(is_late, "it is early")
    with pytest.raises(AssertionError, match="it is late"):
        expect(not is_late, "it is late")


def test_keys_are_shown_as_users_write_them_and_lists_with_their_difference() -> None:
    apple, pear = FRUIT.key("green", "apple"), FRUIT.key("green", "pear")
    assert describe({FRUIT: (Create(apple, "red"),)}) == "{Fruit: (Create(key=Fruit(green/apple), value='red'),)}"
    for found, difference in (
        ([apple, apple, pear], "twice: Fruit(green/apple)"),
        ([pear], "missing: Fruit(green/apple)"),
        ([apple, pear, "stone"], "not expected: 'stone'"),
        ([pear, apple], "not in order at position 1"),
    ):
        with pytest.raises(AssertionError, match=re.escape(f"({difference})")):
            expect_same(found, [apple, pear], "the fruits")


def test_a_refusal_is_the_expected_error_with_the_expected_words() -> None:
    assert expect_refused(Unavailable, lambda: refuse(LOST), "store", "cable") is LOST
    with pytest.raises(AssertionError, match=r"\('rope',\) are not all in 'the store: the cable was cut'"):
        expect_refused(Unavailable, lambda: refuse(LOST), "rope")


def test_no_refusal_and_another_one_are_failures() -> None:
    with pytest.raises(AssertionError, match="the read was not refused with Unavailable; it returned 5"):
        expect_refused(Unavailable, lambda: 5, what="the read")
    with pytest.raises(AssertionError, match=r"the read was refused with Unavailable.*, expected ConfigurationError"):
        expect_refused(ConfigurationError, lambda: refuse(LOST), what="the read")
