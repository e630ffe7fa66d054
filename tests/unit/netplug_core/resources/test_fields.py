"""What fields of several kinds have in common: durations."""

import pytest

from netplug_core.resources.fields import INTERFACE_ADDRESS, parse_duration_s


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("1us", 1e-6),
        ("2µs1ns", 2.001e-6),
    ],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "90", "s", "0s", "-5s", "1h30", "1 h", "1d", "1h x", "1.2.3s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as 90s or 1h30m is"):
        parse_duration_s(text)


@pytest.mark.parametrize("text", ["192.0.2.7/33", "node-1/24", "192.0.2.7/"])
def test_an_address_of_an_interface_has_the_length_of_its_prefix(text: str) -> None:
    with pytest.raises(ValueError, match=r"an IP address with the length of its prefix, such as 192\.0\.2\.7/24"):
        INTERFACE_ADDRESS.decode(text)
    assert INTERFACE_ADDRESS.encode(INTERFACE_ADDRESS.decode("192.0.2.7/24")) == "192.0.2.7/24"
