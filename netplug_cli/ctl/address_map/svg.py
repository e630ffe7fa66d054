"""A map as a picture that any browser shows, in a column that fits a phone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from attrs import define, field

from netplug_cli.ctl.address_map.bars import BAR_HEIGHT, STYLE, Frame, bar_elements, legend_elements
from netplug_cli.ctl.address_map.drawing import Bar, DrawnPool, DrawnRow
from netplug_core.ipam.reporting.address_map import AddressUse

__all__ = ["render_svg"]

_WIDTH = 480
_MARGIN = 16
_INNER = _WIDTH - 2 * _MARGIN
_LEGEND_COLUMNS = 3
# For each style of text: the height of a line, and how many of its characters, which are equally wide, fit.
_LINES = {"small": (16, 66), "strong": (18, 56), "head": (24, 45)}
_STYLE = f"""{STYLE}
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
        f"<style>{_STYLE}</style>",
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
