"""A map in plain characters, for a terminal of 80 columns; with colours, if the terminal shows them."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from itertools import chain

import click

from netplug_cli.ctl.address_map.drawing import Bar, DrawnPool, DrawnRow
from netplug_core.ipam.reporting.address_map import AddressUse

__all__ = ["TextColour", "render_text"]

_CHARACTERS = {
    AddressUse.USED: ("#", "blue"),
    AddressUse.BORROWED: ("b", "yellow"),
    AddressUse.COOLING: ("~", "magenta"),
    AddressUse.RESERVED: ("r", "cyan"),
    AddressUse.FREE: (".", "green"),
    AddressUse.UNCLAIMED: ("_", "bright_black"),
}
_EXPLANATION = "In [ ] a character is an address; in | | it is a share, and what there is has one at least."


class TextColour(enum.Enum):
    """Whether a text has colours; without them, its characters say the same."""

    PLAIN = "plain"
    COLOURED = "coloured"


def render_text(pools: Iterable[DrawnPool], colour: TextColour) -> Iterator[str]:
    """The lines of a map."""
    legend = (f"{_painted(use, character, colour)} {use.value}" for use, (character, _) in _CHARACTERS.items())
    yield "   ".join(legend)
    yield _EXPLANATION
    for pool in pools:
        yield ""
        yield _emphasized(pool.title, colour)
        yield f"  {pool.summary}"
        yield f"  {_bar_text(pool.bar, colour)}"
        yield from (f"  {note}" for note in pool.notes)
        yield from chain.from_iterable(_row_lines(row, colour) for row in pool.rows)


def _row_lines(row: DrawnRow, colour: TextColour) -> Iterator[str]:
    yield f"  {_emphasized(row.label, colour)}  {row.detail}"
    if row.bar is not None:
        yield f"    {_bar_text(row.bar, colour)}"


def _bar_text(bar: Bar, colour: TextColour) -> str:
    start, end = "[]" if bar.is_exact else "||"
    return f"{start}{''.join(_painted(run.use, _character(run.use) * run.length, colour) for run in bar.runs)}{end}"


def _character(use: AddressUse) -> str:
    return _CHARACTERS[use][0]


def _painted(use: AddressUse, text: str, colour: TextColour) -> str:
    return text if colour is TextColour.PLAIN else click.style(text, fg=_CHARACTERS[use][1])


def _emphasized(text: str, colour: TextColour) -> str:
    return text if colour is TextColour.PLAIN else click.style(text, bold=True)
