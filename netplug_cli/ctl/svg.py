"""A plot as a picture that any browser shows: SVG 1.1, written by hand since a few lines and words are all there is."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from attrs import frozen

from netplug_cli.ctl.charts import Chart, Plot, percent_label
from netplug_cli.ctl.studies import spell_duration

__all__ = ["render_svg"]

_WIDTH = 960
_LEFT, _RIGHT = 70, 220
_TOP, _PANEL, _GAP, _BOTTOM = 64, 200, 56, 48
_MARK_ROW = 16
_LINE_ROW = 20
_GRID = 4
_LONGEST_NAME = 25
_MOST_TIMES = 8
_TIME_STEPS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
)  # fmt: skip
# Colours that differ for colour-blind eyes too (the palette of Okabe and Ito), the darkest first.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_GREY, _INK = "#d0d0d0", "#222222"


def render_svg(plot: Plot) -> str:
    """The text of an SVG file."""
    first = _TOP + len(plot.marks) * _MARK_ROW
    height = first + len(plot.charts) * (_PANEL + _GAP) - _GAP + _BOTTOM
    panels = [_Panel(plot, chart, first + index * (_PANEL + _GAP)) for index, chart in enumerate(plot.charts)]
    size = f'width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(plot.title)}</title>",
        f'<rect {size} fill="#ffffff"/>',
        _text(_LEFT, 24, plot.title, size=16),
        _text(_LEFT, _TOP - 10, plot.charts[0].title, weight="bold"),
        *(_text(_LEFT, panel.top - 10, panel.chart.title, weight="bold") for panel in panels[1:]),
        *(part for panel in panels for part in panel.parts()),
        *_marks(plot, panels),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@frozen
class _Panel:
    """One chart, and where its upper edge lies."""

    plot: Plot
    chart: Chart
    top: int

    @property
    def bottom(self) -> int:
        """Where its axis of time lies."""
        return self.top + _PANEL

    def parts(self) -> Iterator[str]:
        """Its axes, its lines and their names."""
        for index in range(_GRID + 1):
            share = self.chart.ceiling * index / _GRID
            y = self._y(share)
            yield _stroke(f"M{_LEFT} {y}H{_WIDTH - _RIGHT}", _GREY)
            yield _text(_LEFT - 8, y + 4, percent_label(share), anchor="end")
        for at_s in _times(self.plot.times[-1]):
            x = _x(self.plot, at_s)
            yield _stroke(f"M{x} {self.top}V{self.bottom}", _GREY)
            yield _text(x, self.bottom + 18, spell_duration(at_s), anchor="middle")
        for index, line in enumerate(self.chart.lines):
            colour = _COLOURS[index % len(_COLOURS)]
            points = zip((0, *self.plot.times), (0.0, *line.values), strict=True)
            path = "L".join(f"{_x(self.plot, at_s)} {self._y(share)}" for at_s, share in points)
            yield _stroke(f"M{path}", colour, width=2)
            if line.name:
                y = self.top + 12 + index * _LINE_ROW
                yield _stroke(f"M{_WIDTH - _RIGHT + 14} {y - 4}h20", colour, width=3)
                yield _text(_WIDTH - _RIGHT + 40, y, _cut(line.name))

    def _y(self, share: float) -> float:
        return round(self.bottom - min(share / self.chart.ceiling, 1.0) * _PANEL, 1)


def _marks(plot: Plot, panels: list[_Panel]) -> Iterator[str]:
    """Dashed lines through the panels; their names stand above the first, one below the other."""
    for index, (at_s, name) in enumerate(plot.marks):
        x, y = _x(plot, at_s), _TOP + index * _MARK_ROW
        for panel in panels:
            top = y - 2 if panel is panels[0] else panel.top
            yield _stroke(f"M{x} {top}V{panel.bottom}", _INK, dashes="4 4")
        is_left = x < _WIDTH / 2
        yield _text(x + (4 if is_left else -4), y + 8, name, anchor="start" if is_left else "end")


def _x(plot: Plot, at_s: float) -> float:
    return round(_LEFT + at_s / plot.times[-1] * (_WIDTH - _LEFT - _RIGHT), 1)


def _times(end_s: int) -> range:
    """Round times from the beginning to the end, not too many."""
    step = next((step for step in _TIME_STEPS if end_s / step <= _MOST_TIMES), end_s)
    return range(0, end_s + 1, step)


def _stroke(path: str, colour: str, *, width: int = 1, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>'


def _text(x: float, y: float, text: str, *, size: int = 13, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x}" y="{y}" fill="{_INK}" font-family="sans-serif" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
