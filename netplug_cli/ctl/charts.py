"""Shares over time as a picture of text; ``svg`` draws the same values. Nothing here knows where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen

from netplug_cli.ctl.studies import spell_duration

__all__ = ["Chart", "Line", "Plot", "ceiling_of", "percent_label", "text_lines"]

_CEILINGS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_WIDTH = 60
_HEIGHT = 8
_WORTH_SHOWING = 0.01
_BELOW_HALF = "."
_FULL = "#"


@frozen(kw_only=True)
class Line:
    """One value at each of a plot's times: a share from 0 to 1. The only line of a chart needs no name."""

    values: tuple[float, ...]
    name: str = ""


@frozen(kw_only=True)
class Chart:
    """Some lines with one axis, which ends at ``ceiling``."""

    title: str
    lines: tuple[Line, ...]
    ceiling: float = 1.0


@frozen(kw_only=True)
class Plot:
    """Charts over the same times (seconds from the beginning, ascending); ``marks`` are moments with a name."""

    title: str
    times: tuple[int, ...]
    charts: tuple[Chart, ...]
    marks: tuple[tuple[float, str], ...] = ()


def ceiling_of(values: Sequence[float]) -> float:
    """Where an axis ends that is to show some shares well."""
    highest = max(values)
    return next((ceiling for ceiling in _CEILINGS if highest <= ceiling), 1.0)


def percent_label(share: float) -> str:
    """A share as an axis shows it."""
    return f"{100 * share:g}%"


def text_lines(plot: Plot) -> list[str]:
    """A plot in plain characters: for each line of its charts columns that stand on an axis of time."""
    lines: list[str] = []
    for chart in plot.charts:
        for line in chart.lines:
            title = f"{chart.title}: {line.name}" if line.name else chart.title
            highest, least = max(line.values), _WORTH_SHOWING * chart.ceiling
            if highest >= least:
                lines.extend(("", title, *_columns(line.values, chart.ceiling, plot.times[-1])))
            else:
                lines.extend(("", f"{title}: {f'below {percent_label(least)}' if highest else 0} all the time"))
    return lines[1:]


def _columns(values: Sequence[float], ceiling: float, end_s: int) -> Iterator[str]:
    heights = [value / ceiling * _HEIGHT for value in _resampled(values)]
    labels = {_HEIGHT: ceiling, _HEIGHT // 2: ceiling / 2}
    margin = max(len(percent_label(share)) for share in labels.values())
    for row in range(_HEIGHT, 0, -1):
        label = percent_label(labels[row]) if row in labels else ""
        yield f"{label:>{margin}} |{''.join(_cell(height, row) for height in heights)}".rstrip()
    yield f"{percent_label(0):>{margin}} +{'-' * len(heights)}"
    yield f"{'':>{margin}}  0s{spell_duration(end_s):>{len(heights) - 2}}"


def _cell(height: float, row: int) -> str:
    """What a column of that height shows in a row, the lowest being 1; what is more than nothing shows something."""
    if height >= row - 0.5:
        return _FULL
    return _BELOW_HALF if row == 1 and height > 0 else " "


def _resampled(values: Sequence[float]) -> list[float]:
    """The values in about as many columns as fit; where several share one, the highest counts."""
    count = len(values)
    if count <= _WIDTH:
        return [value for value in values for _ in range(_WIDTH // count)]
    return [max(values[column * count // _WIDTH : (column + 1) * count // _WIDTH]) for column in range(_WIDTH)]
