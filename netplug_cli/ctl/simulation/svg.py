"""A plot as a picture that any browser shows: SVG 1.1, written by hand since a few lines and words are all there is."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from attrs import frozen

from netplug_cli.ctl.simulation.charts import Chart, Plot, format_axis_percent
from netplug_cli.formatting import format_duration, truncate

__all__ = ["render_svg"]

_WIDTH = 960
_LEFT, _RIGHT = 70, 220
_TOP, _PANEL, _GAP, _BOTTOM = 64, 200, 56, 48
_MARKER_ROW = 16
_SERIES_ROW = 20
_GRID_LINES = 4
_MAX_NAME_LENGTH = 25
_MAX_TIME_LABELS = 8
_TIME_STEPS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
)  # fmt: skip
# Colours that differ for colour-blind eyes too (the palette of Okabe and Ito), the darkest first.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_GREY, _INK = "#d0d0d0", "#222222"


def render_svg(plot: Plot) -> str:
    """The text of an SVG file."""
    first = _TOP + len(plot.markers) * _MARKER_ROW
    height = first + len(plot.charts) * (_PANEL + _GAP) - _GAP + _BOTTOM
    panels = [_Panel(plot, chart, first + index * (_PANEL + _GAP)) for index, chart in enumerate(plot.charts)]
    size = f'width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(plot.title)}</title>",
        f'<rect {size} fill="#ffffff"/>',
        _text_element(_LEFT, 24, plot.title, size=16),
        _text_element(_LEFT, _TOP - 10, plot.charts[0].title, weight="bold"),
        *(_text_element(_LEFT, panel.top - 10, panel.chart.title, weight="bold") for panel in panels[1:]),
        *(part for panel in panels for part in panel.elements()),
        *_markers(plot, panels),
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

    def elements(self) -> Iterator[str]:
        """Its axes, its lines and their names."""
        for index in range(_GRID_LINES + 1):
            share = self.chart.maximum * index / _GRID_LINES
            y = self._y(share)
            yield _path_element(f"M{_LEFT} {y}H{_WIDTH - _RIGHT}", _GREY)
            yield _text_element(_LEFT - 8, y + 4, format_axis_percent(share), anchor="end")
        for at_s in _time_labels(self.plot.times[-1]):
            x = _x(self.plot, at_s)
            yield _path_element(f"M{x} {self.top}V{self.bottom}", _GREY)
            yield _text_element(x, self.bottom + 18, format_duration(at_s), anchor="middle")
        for index, line in enumerate(self.chart.series):
            colour = _COLOURS[index % len(_COLOURS)]
            points = zip((0, *self.plot.times), (0.0, *line.values), strict=True)
            path = "L".join(f"{_x(self.plot, at_s)} {self._y(share)}" for at_s, share in points)
            yield _path_element(f"M{path}", colour, width=2)
            if line.name:
                y = self.top + 12 + index * _SERIES_ROW
                yield _path_element(f"M{_WIDTH - _RIGHT + 14} {y - 4}h20", colour, width=3)
                yield _text_element(_WIDTH - _RIGHT + 40, y, truncate(line.name, _MAX_NAME_LENGTH))

    def _y(self, share: float) -> float:
        return round(self.bottom - min(share / self.chart.maximum, 1.0) * _PANEL, 1)


def _markers(plot: Plot, panels: list[_Panel]) -> Iterator[str]:
    """Dashed lines through the panels; their names stand above the first, one below the other."""
    for index, (at_s, name) in enumerate(plot.markers):
        x, y = _x(plot, at_s), _TOP + index * _MARKER_ROW
        for panel in panels:
            top = y - 2 if panel is panels[0] else panel.top
            yield _path_element(f"M{x} {top}V{panel.bottom}", _INK, dashes="4 4")
        is_left = x < _WIDTH / 2
        yield _text_element(x + (4 if is_left else -4), y + 8, name, anchor="start" if is_left else "end")


def _x(plot: Plot, at_s: float) -> float:
    return round(_LEFT + at_s / plot.times[-1] * (_WIDTH - _LEFT - _RIGHT), 1)


def _time_labels(end_s: int) -> range:
    """Round times from the beginning to the end, not too many."""
    step = next((step for step in _TIME_STEPS if end_s / step <= _MAX_TIME_LABELS), end_s)
    return range(0, end_s + 1, step)


def _path_element(path: str, colour: str, *, width: int = 1, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>'


def _text_element(
    x: float, y: float, text: str, *, size: int = 13, anchor: str = "start", weight: str = "normal"
) -> str:
    return (
        f'<text x="{x}" y="{y}" fill="{_INK}" font-family="sans-serif" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )
