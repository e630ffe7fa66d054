"""Values as text: tables, counts, durations, and texts that are cut."""

import pytest

from netplug_cli.formatting import (
    escape_unprintable,
    format_columns,
    format_count,
    format_duration,
    print_error,
    truncate,
)


def test_cells_are_padded_by_three_and_to_five_at_least() -> None:
    assert format_columns(("A", "LONGER"), [("b", ""), ("", "x")]) == [
        "A    LONGER",
        "b",
        "     x",
    ]


@pytest.mark.parametrize(
    "seconds, text", [(0, "0s"), (0.4, "0s"), (59.6, "1m"), (90, "1m30s"), (3_600, "1h"), (90_061, "1d1h1m1s")]
)
def test_a_duration_is_spelled_to_the_second(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("count, text", [(0, "0"), (999_999_999, "999999999"), (2**64, "1.8447e+19")])
def test_a_count_is_exact_as_long_as_it_is_short(count: int, text: str) -> None:
    assert format_count(count) == text


def test_a_text_that_is_too_long_ends_in_an_ellipsis() -> None:
    assert truncate("abcdef", 6) == "abcdef"
    assert truncate("abcdefg", 6) == "abc..."


@pytest.mark.parametrize(
    "text, shown",
    [
        ("node-a", "node-a"),
        ("nœud é", "nœud é"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\u202egnirts\x9b", r"\u202egnirts\x9b"),
        ("\ud800\ufffe", r"\ud800\ufffe"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text: str, shown: str) -> None:
    assert escape_unprintable(text) == shown
    assert shown.isprintable()


def test_an_error_is_a_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("no such pool")
    assert capsys.readouterr() == ("", "netplugctl: no such pool\n")
