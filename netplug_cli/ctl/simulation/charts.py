"""Charts of shares over time, and their rendering as text; ``svg`` renders the same charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen

from netplug_cli.formatting import format_duration

__all__ = ["Chart", "ChartSeries", "Plot", "axis_maximum", "format_axis_percent", "render_text"]

_AXIS_MAXIMA = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_WIDTH = 60
_HEIGHT = 8
_MIN_SHOWN_SHARE = 0.01
_PARTIAL_CELL = "."
_FULL_CELL = "#"


@frozen(kw_only=True)
class ChartSeries:
    """A share from 0 to 1 for each time of a plot. The only series of a chart needs no name."""

    values: tuple[float, ...]
    name: str = ""


@frozen(kw_only=True)
class Chart:
    """Series with one axis, which ends at ``maximum``."""

    title: str
    series: tuple[ChartSeries, ...]
    maximum: float = 1.0


@frozen(kw_only=True)
class Plot:
    """Charts over the same times (seconds from the beginning, ascending); ``markers`` are times with a name."""

    title: str
    times: tuple[int, ...]
    charts: tuple[Chart, ...]
    markers: tuple[tuple[float, str], ...] = ()


def axis_maximum(values: Sequence[float]) -> float:
    """The end of an axis that fits some shares."""
    highest = max(values)
    return next((maximum for maximum in _AXIS_MAXIMA if highest <= maximum), 1.0)


def format_axis_percent(share: float) -> str:
    """A share as an axis shows it."""
    return f"{100 * share:g}%"


def render_text(plot: Plot) -> list[str]:
    """A plot in plain characters: a column chart over time for each series."""
    lines: list[str] = []
    for chart in plot.charts:
        for series in chart.series:
            title = f"{chart.title}: {series.name}" if series.name else chart.title
            highest, least = max(series.values), _MIN_SHOWN_SHARE * chart.maximum
            if highest >= least:
                lines.extend(("", title, *_columns(series.values, chart.maximum, plot.times[-1])))
            else:
                lines.extend(("", f"{title}: {f'below {format_axis_percent(least)}' if highest else 0} all the time"))
    return lines[1:]


def _columns(values: Sequence[float], maximum: float, end_s: int) -> Iterator[str]:
    heights = [value / maximum * _HEIGHT for value in _resample(values)]
    labels = {_HEIGHT: maximum, _HEIGHT // 2: maximum / 2}
    margin = max(len(format_axis_percent(share)) for share in labels.values())
    for row in range(_HEIGHT, 0, -1):
        label = format_axis_percent(labels[row]) if row in labels else ""
        yield f"{label:>{margin}} |{''.join(_cell(height, row) for height in heights)}".rstrip()
    yield f"{format_axis_percent(0):>{margin}} +{'-' * len(heights)}"
    yield f"{'':>{margin}}  0s{format_duration(end_s):>{len(heights) - 2}}"


def _cell(height: float, row: int) -> str:
    """The character of a column in a row (the lowest is 1); a column above zero always shows in the lowest row."""
    if height >= row - 0.5:
        return _FULL_CELL
    return _PARTIAL_CELL if row == 1 and height > 0 else " "


def _resample(values: Sequence[float]) -> list[float]:
    """The values in about as many columns as fit; a column of several values shows the highest."""
    count = len(values)
    if count <= _WIDTH:
        return [value for value in values for _ in range(_WIDTH // count)]
    return [max(values[column * count // _WIDTH : (column + 1) * count // _WIDTH]) for column in range(_WIDTH)]
