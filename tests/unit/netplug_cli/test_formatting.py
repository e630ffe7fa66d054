"""Values as text: tables, counts, durations, and texts that are cut."""

import json

import pytest

from netplug_cli.formatting import (
    escape_unprintable,
    format_columns,
    format_count,
    format_duration,
    format_json,
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


@pytest.mark.parametrize(
    "text, shown",
    [
        ("nœud é", '"nœud é"'),
        ("\x1b\x07\n\t", r'"\u001b\u0007\n\t"'),
        ("\x7f\x80\x85\x9b\x9f", r'"\u007f\u0080\u0085\u009b\u009f"'),
        ("\u202egnirts\u2028", r'"\u202egnirts\u2028"'),
        ("\U000e0001\ud800", r'"\udb40\udc01\ud800"'),
    ],
)
def test_what_a_terminal_would_obey_is_escaped_in_json(text: str, shown: str) -> None:
    assert format_json(text) == shown
    assert json.loads(shown) == text
    assert format_json({text: [text]}, indent=1) == f"{{\n {shown}: [\n  {shown}\n ]\n}}"


def test_json_may_be_compact() -> None:
    assert format_json({"a": [1, None]}, separators=(",", ":")) == '{"a":[1,null]}'


def test_an_error_is_a_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("no such pool")
    assert capsys.readouterr() == ("", "netplugctl: no such pool\n")
