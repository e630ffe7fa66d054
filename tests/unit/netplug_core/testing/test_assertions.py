"""The assertions of the suites say what is wrong."""

import pytest

from netplug_core.errors import ConfigurationError, NetplugError, Unavailable
from netplug_core.testing.assertions import expect, expect_refused, expect_same

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


def test_a_refusal_is_the_expected_error_with_the_expected_words() -> None:
    assert expect_refused(Unavailable, lambda: refuse(LOST), "store", "cable") is LOST
    with pytest.raises(AssertionError, match=r"\('rope',\) are not all in 'the store: the cable was cut'"):
        expect_refused(Unavailable, lambda: refuse(LOST), "rope")


def test_no_refusal_and_another_one_are_failures() -> None:
    with pytest.raises(AssertionError, match="the read was not refused with Unavailable; it returned 5"):
        expect_refused(Unavailable, lambda: 5, what="the read")
    with pytest.raises(AssertionError, match=r"the read was refused with Unavailable.*, expected ConfigurationError"):
        expect_refused(ConfigurationError, lambda: refuse(LOST), what="the read")
