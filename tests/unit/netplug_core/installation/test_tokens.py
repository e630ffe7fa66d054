"""When a token is renewed, when it expires, and how a duration is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.clock import SECOND_NS
from netplug_core.installation.installer import IssuedToken, refresh_delay_s

NOW_NS = 1_790_000_000 * SECOND_NS
HOUR_S = 3600.0
chances = st.floats(0, 1)


def issued(lifetime_s: float) -> IssuedToken:
    return IssuedToken(text="t", expires_ns=NOW_NS + int(lifetime_s * SECOND_NS))


def delay_s(token: IssuedToken, chance: float, interval_s: float | None = None) -> float:
    return refresh_delay_s(token, now_ns=NOW_NS, interval_s=interval_s, chance=chance)


@given(chance=chances)
def test_a_token_of_a_day_is_renewed_after_six_to_twelve_hours(chance: float) -> None:
    assert 6 * HOUR_S <= delay_s(issued(24 * HOUR_S), chance) <= 12 * HOUR_S


def test_the_lifetime_that_the_server_granted_counts() -> None:
    assert delay_s(issued(600), 0.0) == 150.0
    assert delay_s(issued(600), 1.0) == 300.0


@given(chance=chances, interval_s=st.none() | st.floats(0.1, 1e6))
def test_one_that_has_expired_is_renewed_after_five_to_ten_seconds(chance: float, interval_s: float | None) -> None:
    assert 5.0 <= delay_s(issued(-1.0), chance, interval_s) <= 10.0


@pytest.mark.parametrize("lifetime_s", [-100.0, 0.0, 20.0])
def test_a_token_that_expires_soon_is_renewed_soon(lifetime_s: float) -> None:
    assert delay_s(issued(lifetime_s), 0.0, 1000.0) == 5.0


def test_a_configured_interval_replaces_the_quarter() -> None:
    assert delay_s(issued(24 * HOUR_S), 0.5, 60.0) == 90.0


def test_the_repr_of_a_token_does_not_show_it() -> None:
    assert "secret" not in repr(IssuedToken(text="secret", expires_ns=0))
