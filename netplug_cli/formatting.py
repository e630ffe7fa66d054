"""Values as text for a person: tables, counts, durations, and the lines on standard error. Every room may use it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence

import click

__all__ = [
    "DURATION_UNITS", "column_widths", "escape_cells", "escape_unprintable", "format_bool", "format_columns",
    "format_count", "format_duration", "format_json", "format_row", "paint", "paint_diff", "parse_duration",
    "print_error", "print_failure", "truncate",
]  # fmt: skip


# --- formatting ------------------------------------------------------------------------------------------------------


DURATION_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
"""Seconds of each unit of a duration, the largest first."""

_MIN_WIDTH = 5
_GAP = 3
_ELLIPSIS = "..."
_MAX_EXACT = 10**9


def format_columns(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table; every cell is padded, and no line ends in blanks.

    Control characters in cells are written out: names come from outside, and a terminal obeys them.
    """
    lines = [tuple(headers), *(escape_cells(row) for row in rows)]
    widths = column_widths(lines)
    return [format_row(line, widths) for line in lines]


def escape_cells(cells: Iterable[str]) -> tuple[str, ...]:
    """The cells of a row with control characters written out."""
    return tuple(map(escape_unprintable, cells))


def column_widths(lines: Iterable[Sequence[str]]) -> tuple[int, ...]:
    """The width of each column of a table, with the gap after it."""
    return tuple(max(_MIN_WIDTH, _GAP + max(map(len, cells))) for cells in zip(*lines, strict=True))


def format_row(cells: Sequence[str], widths: Sequence[int]) -> str:
    """One line of a table, without blanks at its end. No cell may be wider than its column."""
    return "".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def format_count(count: int) -> str:
    """A count: exact below 10**9, above it with five significant digits."""
    return str(count) if count < _MAX_EXACT else f"{count:.5g}"


def format_bool(value: object) -> str:
    """``true`` or ``false``."""
    return "true" if value else "false"


def format_duration(seconds: float) -> str:
    """A duration such as ``1h30m``, to the second."""
    left, parts = round(seconds), list[str]()
    for name, unit in DURATION_UNITS.items():
        number, left = divmod(left, unit)
        if number:
            parts.append(f"{number}{name}")
    return "".join(parts) or "0s"


def truncate(text: str, max_length: int) -> str:
    """A text of at most that many characters; a longer one ends in ``...``."""
    return text if len(text) <= max_length else f"{text[: max_length - len(_ELLIPSIS)]}{_ELLIPSIS}"


def escape_unprintable(text: str) -> str:
    """A text from outside that a terminal, XML and HTML can show: characters that control something are written out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def format_json(value: object, *, indent: int | None = None, separators: tuple[str, str] | None = None) -> str:
    """A value as JSON, on one line unless it is indented, with the members in their own order.

    What :func:`escape_unprintable` writes out is escaped here too, which JSON asks for below U+0020 only; who reads it
    gets the value as it is.
    """
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
    if text.replace("\n", "").isprintable():  # the line breaks are those of the indentation
        return text
    return "".join(c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text)


def print_error(text: str) -> None:
    """Print one line on standard error, under the name of the tool; control characters are written out."""
    name = paint(_NAME, "yellow") if text.startswith(_WARNING) else _NAME
    click.echo(f"{name} {escape_unprintable(text)}", err=True)


def print_failure(text: str) -> None:
    """Print what made a command fail, or a part of it; on a terminal in red, unlike a remark."""
    click.echo(f"{paint(_NAME, 'red')} {escape_unprintable(text)}", err=True)


_NAME, _WARNING = "netplugctl:", "warning:"
_DIFF_COLOURS = (("@@", "cyan"), ("+", "green"), ("-", "red"))


def paint(text: str, colour: str) -> str:
    """The text in a colour; as it is with NO_COLOR or TERM=dumb. ``click.echo`` takes colours out off a terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return click.style(text, fg=colour)


def paint_diff(line: str) -> str:
    """A line of a unified diff in the colour of what it says."""
    return next((paint(line, colour) for mark, colour in _DIFF_COLOURS if line.startswith(mark)), line)


# --- durations -------------------------------------------------------------------------------------------------------


_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_MAX_DIGITS = 6


def parse_duration(text: str) -> int:
    """Seconds, more than none, that are given as ``90s``, ``5m``, ``1h30m`` or ``2d``.

    Raises:
        click.BadParameter: they are not.
    """
    match = _DURATION.fullmatch(text)
    numbers = match.groups(default="0") if match else ()
    seconds = sum(
        int(number[:_MAX_DIGITS]) * unit for number, unit in zip(numbers, DURATION_UNITS.values(), strict=False)
    )
    if not seconds or any(len(number) > _MAX_DIGITS for number in numbers):
        raise click.BadParameter(f"{text!r} is not a duration; expected one such as 90s, 5m, 1h30m or 2d")
    return seconds
