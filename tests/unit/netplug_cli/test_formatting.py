"""Values as text: tables, counts, durations, and texts that are cut."""

import json
import os
import pty
import subprocess
import sys

import pytest

from netplug_cli.formatting import (
    escape_unprintable,
    format_columns,
    format_count,
    format_duration,
    format_json,
    paint,
    paint_diff,
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


PRINT = """
import click
from netplug_cli.formatting import paint_diff, print_error, print_failure
print_failure("no such pool")
print_error("2 of 3 are stored")
print_error("warning: it overlaps")
click.echo(paint_diff("+  disabled: true"))
"""
PLAIN = [
    "netplugctl: no such pool",
    "netplugctl: 2 of 3 are stored",
    "netplugctl: warning: it overlaps",
    "+  disabled: true",
]


def printed_on_a_terminal(**environ: str) -> list[str]:
    """The lines that a process prints whose two outputs are a terminal."""
    kept = {name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    ours, its = pty.openpty()
    with open(ours, "rb", buffering=0) as screen:
        subprocess.run([sys.executable, "-c", PRINT], stdout=its, stderr=its, env=kept | environ, check=True)
        os.close(its)
        return screen.read(4096).decode().splitlines()


def test_errors_and_differences_have_colours_on_a_terminal() -> None:
    assert printed_on_a_terminal(TERM="xterm") == [
        "\x1b[31mnetplugctl:\x1b[0m no such pool",
        "netplugctl: 2 of 3 are stored",
        "\x1b[33mnetplugctl:\x1b[0m warning: it overlaps",
        "\x1b[32m+  disabled: true\x1b[0m",
    ]


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}])
def test_no_colours_where_none_are_wanted(environ: dict[str, str]) -> None:
    assert printed_on_a_terminal(**environ) == PLAIN


def test_off_a_terminal_there_are_none() -> None:
    kept = {name: text for name, text in os.environ.items() if name != "NO_COLOR"}
    ran = subprocess.run([sys.executable, "-c", PRINT], capture_output=True, text=True, check=True, env=kept)
    assert (ran.stderr + ran.stdout).splitlines() == PLAIN


@pytest.mark.parametrize("line, colour", [("--- a", "red"), ("+++ b", "green"), ("@@ -1 +1 @@", "cyan")])
def test_the_lines_of_a_difference(line: str, colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert paint_diff(line) == paint(line, colour) != line
    assert paint_diff(" spec:") == " spec:"
