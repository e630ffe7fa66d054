"""The drawing of ``ipam map`` as a page, a picture and a text."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import chain

import click
from attrs import define, field

from netplug_cli.ctl.address_map.drawing import (
    BAR_HEIGHT,
    STYLE,
    Bar,
    DrawnPool,
    DrawnRow,
    Frame,
    bar_elements,
    legend_elements,
)
from netplug_core.ipam.reporting.address_map import AddressUse

__all__ = [
    "TextColour", "render_html", "render_svg", "render_text",
]  # fmt: skip


# --- html ------------------------------------------------------------------------------------------------------------


_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = f"""{STYLE}
body{{margin:0;background:var(--background);color:var(--ink);font:16px/1.4 sans-serif}}
main{{max-width:60rem;margin:0 auto;padding:1rem;overflow-wrap:anywhere}}
h1{{font-size:1.4rem}}h2{{font-size:1.2rem;margin:2rem 0 .25rem}}p{{margin:.25rem 0}}
ul{{list-style:none;margin:0;padding:0}}
.legend{{display:flex;flex-wrap:wrap;gap:.25rem 1.5rem;margin:.75rem 0}}
.legend svg{{width:1.5rem;height:.75rem;vertical-align:-.05rem}}
.bar{{display:block;width:100%;height:1.1rem;margin:.2rem 0}}
.rows li{{padding:.35rem 0}}
.detail,.note,.lead{{color:var(--faint)}}
"""


def render_html(pools: Sequence[DrawnPool], title: str, explanation: str) -> str:
    """The text of an HTML file, which is also well-formed XML."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        "<main>",
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(explanation)}</p>',
        '<ul class="legend" aria-label="Legend">',
        *(_legend_item(use) for use in AddressUse),
        "</ul>",
        *(line for pool in pools for line in _section(pool)),
        "</main>",
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _legend_item(use: AddressUse) -> str:
    sample = legend_elements(use, Frame(width=24))
    return f'<li><svg viewBox="0 0 24 {BAR_HEIGHT}" aria-hidden="true">{sample}</svg> {use.value}</li>'


def _section(pool: DrawnPool) -> Iterator[str]:
    yield "<section>"
    yield f"<h2>{escape(pool.title)}</h2>"
    yield f"<p>{escape(pool.summary)}</p>"
    yield _bar_element(pool.bar, pool.summary)
    yield from (f'<p class="note">{escape(note)}</p>' for note in pool.notes)
    yield '<ul class="rows">'
    yield from map(_row_item, pool.rows)
    yield "</ul>"
    yield "</section>"


def _row_item(row: DrawnRow) -> str:
    words = f'<strong>{escape(row.label)}</strong> <span class="detail">{escape(row.detail)}</span>'
    bar = "" if row.bar is None else _bar_element(row.bar, f"{row.label} {row.detail}")
    return f"<li>{words}{bar}</li>"


def _bar_element(bar: Bar, description: str) -> str:
    width = len(bar.cells)
    attributes = f'class="bar" viewBox="0 0 {width} {BAR_HEIGHT}" preserveAspectRatio="none" role="img"'
    elements = "".join(bar_elements(bar, Frame(width=width)))
    return f'<svg {attributes} aria-label="{escape(description)}">{elements}</svg>'


# --- svg -------------------------------------------------------------------------------------------------------------


_WIDTH = 480
_MARGIN = 16
_INNER = _WIDTH - 2 * _MARGIN
_LEGEND_COLUMNS = 3
# For each style of text: the height of a line, and how many of its characters, which are equally wide, fit.
_LINES = {"small": (16, 66), "strong": (18, 56), "head": (24, 45)}
_SVG_STYLE = f"""{STYLE}
text{{font-family:monospace}}
.small{{font-size:11px;fill:var(--faint)}}
.strong{{font-size:13px;font-weight:bold;fill:var(--ink)}}
.head{{font-size:16px;font-weight:bold;fill:var(--ink)}}
.sheet{{fill:var(--background)}}
"""


def render_svg(pools: Sequence[DrawnPool], title: str, explanation: str) -> str:
    """The text of an SVG file."""
    column = _Column()
    column.write(title, "head")
    column.write(explanation)
    column.add_legend()
    for pool in pools:
        column.skip(16)
        _add_pool(column, pool)
    height = column.y + _MARGIN
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="map-title map-description">',
        f'<title id="map-title">{escape(title)}</title>',
        f'<desc id="map-description">{escape(explanation)}</desc>',
        f"<style>{_SVG_STYLE}</style>",
        f'<rect class="sheet" width="{_WIDTH}" height="{height}"/>',
        *column.elements,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@define
class _Column:
    """Elements one below the other; ``y`` is where the next one begins."""

    y: int = _MARGIN
    elements: list[str] = field(factory=list)

    def skip(self, height: int) -> None:
        self.y += height

    def write(self, text: str, style: str = "small") -> None:
        """Add a text, in as many lines as it needs."""
        height, length = _LINES[style]
        for line in _wrapped(text, length):
            self.y += height
            self.elements.append(f'<text class="{style}" x="{_MARGIN}" y="{self.y - 4}">{escape(line)}</text>')

    def add_bar(self, bar: Bar) -> None:
        self.elements.extend(bar_elements(bar, Frame(x=_MARGIN, y=self.y + 2, width=_INNER)))
        self.y += BAR_HEIGHT + 6

    def add_legend(self) -> None:
        for index, use in enumerate(AddressUse):
            row, place = divmod(index, _LEGEND_COLUMNS)
            x, y = _MARGIN + place * _INNER // _LEGEND_COLUMNS, self.y + 8 + row * 20
            self.elements.append(legend_elements(use, Frame(x=x, y=y, width=20)))
            self.elements.append(f'<text class="small" x="{x + 26}" y="{y + BAR_HEIGHT - 2}">{use.value}</text>')
        self.y += 8 + -(-len(AddressUse) // _LEGEND_COLUMNS) * 20


def _add_pool(column: _Column, pool: DrawnPool) -> None:
    column.write(pool.title, "head")
    column.write(pool.summary)
    column.add_bar(pool.bar)
    for note in pool.notes:
        column.write(note)
    for row in pool.rows:
        _add_row(column, row)


def _add_row(column: _Column, row: DrawnRow) -> None:
    column.skip(6)
    column.write(row.label, "strong")
    column.write(row.detail)
    if row.bar is not None:
        column.add_bar(row.bar)


def _wrapped(text: str, length: int) -> Iterator[str]:
    """The lines of a text; a word that is longer than a line has one of its own."""
    line = ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > length:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


# --- text ------------------------------------------------------------------------------------------------------------


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
