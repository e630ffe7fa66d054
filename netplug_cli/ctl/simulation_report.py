"""What ``simulate`` prints, draws and exports of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from attrs import frozen

from netplug_cli.ctl.tables import Cell, Column, Report, Value
from netplug_cli.formatting import format_columns, format_count, format_duration, truncate
from netplug_core.simulation.scenario import Scenario
from netplug_core.simulation.simulator import Distribution, PoolSample, SimulationResult, StepSample

__all__ = [
    "Chart", "ChartSeries", "Plot", "axis_maximum", "format_axis_percent", "make_plot", "render_svg", "render_text",
    "report_lines", "result_to_mapping", "simulation_report",
]  # fmt: skip


# --- charts ----------------------------------------------------------------------------------------------------------


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


# --- svg -------------------------------------------------------------------------------------------------------------


_SVG_WIDTH = 960
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
    size = f'width="{_SVG_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {_SVG_WIDTH} {height}" role="img">',
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
            yield _path_element(f"M{_LEFT} {y}H{_SVG_WIDTH - _RIGHT}", _GREY)
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
                yield _path_element(f"M{_SVG_WIDTH - _RIGHT + 14} {y - 4}h20", colour, width=3)
                yield _text_element(_SVG_WIDTH - _RIGHT + 40, y, truncate(line.name, _MAX_NAME_LENGTH))

    def _y(self, share: float) -> float:
        return round(self.bottom - min(share / self.chart.maximum, 1.0) * _PANEL, 1)


def _markers(plot: Plot, panels: list[_Panel]) -> Iterator[str]:
    """Dashed lines through the panels; their names stand above the first, one below the other."""
    for index, (at_s, name) in enumerate(plot.markers):
        x, y = _x(plot, at_s), _TOP + index * _MARKER_ROW
        for panel in panels:
            top = y - 2 if panel is panels[0] else panel.top
            yield _path_element(f"M{x} {top}V{panel.bottom}", _INK, dashes="4 4")
        is_left = x < _SVG_WIDTH / 2
        yield _text_element(x + (4 if is_left else -4), y + 8, name, anchor="start" if is_left else "end")


def _x(plot: Plot, at_s: float) -> float:
    return round(_LEFT + at_s / plot.times[-1] * (_SVG_WIDTH - _LEFT - _RIGHT), 1)


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


# --- exports ---------------------------------------------------------------------------------------------------------


_STEP_COLUMNS = (
    "seconds", "pods", "waiting", "held", "borrowed", "blocks", "unowned", "blocksPerNodeLeast",
    "blocksPerNodeMedian", "blocksPerNodeMost", "started", "ended", "refused", "reads", "commits",
)  # fmt: skip
_POOL_COLUMNS = ("inUse", "cooling", "reserved", "free", "borrowed", "blocks", "unowned")


def result_to_mapping(scenario: Scenario, result: SimulationResult) -> dict[str, object]:
    """The result and its scenario, with the types of JSON."""
    first = result.first_refusal
    return {
        "scenario": _scenario(scenario),
        "holds": first is None,
        "firstRefusal": first
        and {"seconds": first.at_s, "node": first.node, "identifier": first.identifier, "text": first.text},
        "firstBorrowedSeconds": result.first_borrowed_s,
        "refusals": dict(result.refusals),
        "reads": result.calls.reads,
        "commits": result.calls.commits,
        "pools": [
            {
                "name": pool.name,
                "cidr": str(pool.prefix),
                "total": pool.prefix.size,
                **_pool_values(pool),
                "mostBlocks": pool.max_blocks,
                "blocksPerNode": _distribution(pool.blocks_per_node),
                "fullSeconds": result.find_exhausted_s(pool.name),
            }
            for pool in result.last.pools
        ],
        "steps": [
            {
                **_step_values(sample),
                "refusals": dict(sample.refusals),
                "pools": {pool.name: _pool_values(pool) for pool in sample.pools},
            }
            for sample in result.samples
        ],
    }


def simulation_report(scenario: Scenario, result: SimulationResult) -> Report:
    """The result as a report. CSV has a row for each step; the columns of a pool begin with its name."""
    names = (*_STEP_COLUMNS, *(f"{pool.name}.{name}" for pool in result.last.pools for name in _POOL_COLUMNS))
    rows = tuple(
        (
            *(Cell(value, "") for value in _step_values(sample).values()),
            *(Cell(value, "") for pool in sample.pools for value in _pool_values(pool).values()),
        )
        for sample in result.samples
    )
    return Report(
        columns=tuple(Column("", name) for name in names),
        rows=rows,
        name="",
        facts=result_to_mapping(scenario, result),
        shown=tuple(report_lines(scenario, result)),
    )


def _scenario(scenario: Scenario) -> dict[str, object]:
    load = scenario.load
    return {
        "nodes": len(scenario.nodes),
        "podsPerNode": load.pods_per_node,
        "mostPodsPerNode": load.capacity_per_node,
        "podsPerSecond": load.arrivals_per_s,
        "churn": load.churn,
        "lifetimeSeconds": load.lifetime_s,
        "placement": load.placement.value,
        "process": scenario.process_model.value,
        "families": [family.value for family in load.families],
        "steps": scenario.steps,
        "stepSeconds": scenario.step_s,
        "seed": scenario.seed,
    }


def _step_values(sample: StepSample) -> dict[str, Value]:
    per_node = sample.blocks_per_node
    values = (
        sample.at_s, sample.running, sample.waiting, sample.held, sample.borrowed, sample.blocks,
        sample.unaffined_blocks,
        per_node.minimum, per_node.median, per_node.maximum, sample.started, sample.ended, sample.refused,
        sample.calls.reads,
        sample.calls.commits,
    )  # fmt: skip
    return dict(zip(_STEP_COLUMNS, values, strict=True))


def _pool_values(pool: PoolSample) -> dict[str, Value]:
    values = (
        pool.in_use, pool.cooling, pool.reserved, pool.available, pool.borrowed, pool.blocks, pool.unaffined_blocks,
    )  # fmt: skip
    return dict(zip(_POOL_COLUMNS, values, strict=True))


def _distribution(distribution: Distribution) -> dict[str, int]:
    return {"least": distribution.minimum, "median": distribution.median, "most": distribution.maximum}


# --- report ----------------------------------------------------------------------------------------------------------


_MAX_ROWS = 20
_MIN_REPORTED_SHARE = 0.0001


def report_lines(scenario: Scenario, result: SimulationResult) -> list[str]:
    """The whole report, line by line."""
    return [
        _scenario_line(scenario),
        "",
        *_verdict_lines(scenario, result),
        "",
        "At the end:",
        "",
        *_pool_table(result),
        "",
        *_step_table(result),
        "",
        *render_text(make_plot(scenario, result)),
    ]


def make_plot(scenario: Scenario, result: SimulationResult) -> Plot:
    """The plot: utilization of the pools, borrowed addresses, and waiting pods if there are any."""
    samples = result.samples
    fills = tuple(
        ChartSeries(name=pool.name, values=tuple(sample.pools[index].utilization for sample in samples))
        for index, pool in enumerate(result.last.pools)
    )
    charts = [
        Chart(title="Addresses in use, share of the pool", series=fills),
        _single_series_chart("Borrowed, share of the addresses held", [sample.borrowed_share for sample in samples]),
    ]
    waiting = [sample.waiting / scenario.pod_count for sample in samples]
    if any(waiting):
        charts.append(_single_series_chart("Pods without an address, share of all", waiting))
    markers: list[tuple[float, str]] = []
    if result.first_borrowed_s is not None:
        markers.append((result.first_borrowed_s, f"first borrowed: {format_duration(result.first_borrowed_s)}"))
    if result.first_refusal is not None:
        first = result.first_refusal
        markers.append((first.at_s, f"first refusal: {format_duration(first.at_s)}"))
    title = f"{len(scenario.nodes)} nodes, {scenario.load.pods_per_node} pods each"
    return Plot(
        title=title, times=tuple(sample.at_s for sample in samples), charts=tuple(charts), markers=tuple(markers)
    )


def _single_series_chart(title: str, values: Sequence[float]) -> Chart:
    """A chart of one series, with an axis that fits it."""
    return Chart(title=title, series=(ChartSeries(values=tuple(values)),), maximum=axis_maximum(values))


# --- the answer ----------------------------------------------------------------------------------------------------


def _scenario_line(scenario: Scenario) -> str:
    load = scenario.load
    rate = load.arrivals_per_s
    parts = [
        f"{len(scenario.nodes)} nodes x {load.pods_per_node} pods = {scenario.pod_count} pods",
        "all there in the first step" if rate is None else f"{rate:.3g} more every second",
        f"placement {load.placement.value}",
    ]
    if load.churn:
        parts.append(f"{_percent(load.churn)} of them replaced every {format_duration(scenario.step_s)}")
    if load.lifetime_s is not None:
        parts.append(f"each replaced after {format_duration(load.lifetime_s)}")
    return f"{', '.join(parts)}; {format_duration(scenario.duration_s)} of simulated time, seed {scenario.seed}."


def _verdict_lines(scenario: Scenario, result: SimulationResult) -> Iterator[str]:
    yield from _refusal_lines(scenario, result)
    yield from _borrowing_lines(result)
    for pool in result.last.pools:
        full_s = result.find_exhausted_s(pool.name)
        if full_s is not None:
            yield f"Pool {pool.name} had no address left to give by {format_duration(full_s)}."
    yield _datastore_call_line(result)


def _refusal_lines(scenario: Scenario, result: SimulationResult) -> Iterator[str]:
    last, first = result.last, result.first_refusal
    if first is None:
        missing = scenario.pod_count - last.running
        late = f"; {missing} more had not arrived yet" if missing else ""
        yield f"It holds: every pod got its addresses, {last.running} have them at the end{late}."
        return
    most = max(result.samples, key=lambda sample: sample.waiting)
    if last.waiting:
        yield f"It does not hold: {last.waiting} of {last.waiting + last.running} pods have no address at the end."
    elif most.waiting:
        yield f"It does not hold all the time: at {format_duration(most.at_s)} {most.waiting} pods had no address."
    else:
        yield "It hardly holds: pods were refused addresses, and got some within the same step."
    counts = ", ".join(f"{identifier} {count}" for identifier, count in result.refusals)
    yield f"Refused: {counts}; first at {format_duration(first.at_s)} on {first.node}:"
    yield f"  {first.text}"


def _borrowing_lines(result: SimulationResult) -> Iterator[str]:
    if result.first_borrowed_s is None:
        reason = "" if result.first_refusal else ": every node had blocks of its own for its pods"
        yield f"Nothing was borrowed{reason}."
        return
    most = max(result.samples, key=lambda sample: sample.borrowed_share)
    yield (
        f"Borrowing began at {format_duration(result.first_borrowed_s)}; most was borrowed at "
        f"{format_duration(most.at_s)}, {most.borrowed} addresses ({_percent(most.borrowed_share)} of those held), "
        f"and {result.last.borrowed} ({_percent(result.last.borrowed_share)}) at the end."
    )


def _datastore_call_line(result: SimulationResult) -> str:
    calls = result.calls
    asked = max(1, sum(sample.started + sample.ended + sample.refused for sample in result.samples))
    return (
        f"The datastore was read {calls.reads} times and written {calls.commits} times: {calls.reads / asked:.3g} and "
        f"{calls.commits / asked:.3g} for each assignment or release."
    )


# --- tables --------------------------------------------------------------------------------------------------------


def _pool_table(result: SimulationResult) -> list[str]:
    headers = (
        "POOL", "CIDR", "IPS TOTAL", "IPS IN USE", "IPS COOLING", "IPS RESERVED", "IPS FREE", "BORROWED", "BLOCKS",
        "BLOCKS/NODE",
    )  # fmt: skip
    return format_columns(headers, map(_pool_row, result.last.pools))


def _pool_row(pool: PoolSample) -> tuple[str, ...]:
    return (
        pool.name,
        str(pool.prefix),
        format_count(pool.prefix.size),
        f"{pool.in_use} ({_percent(pool.utilization)})",
        str(pool.cooling),
        format_count(pool.reserved),
        format_count(pool.available),
        str(pool.borrowed),
        f"{pool.blocks} of {format_count(pool.max_blocks)}",
        _distribution_text(pool.blocks_per_node),
    )


def _step_table(result: SimulationResult) -> list[str]:
    """Some of the steps at equal distances, with the last one."""
    samples = result.samples
    every = -(-len(samples) // _MAX_ROWS)
    shown = samples[(len(samples) - 1) % every :: every]
    pools = result.last.pools
    headers = (
        "TIME", "PODS", "WAITING", *(f"FILL {pool.name}" if len(pools) > 1 else "FILL" for pool in pools), "BORROWED",
        "BLOCKS", "BLOCKS/NODE", "UNOWNED", "STARTED", "ENDED", "REFUSED", "READS", "COMMITS",
    )  # fmt: skip
    title = "Over time:" if every == 1 else f"Over time, every {every} steps (-o csv has all of them):"
    return [title, "", *format_columns(headers, map(_step_row, shown))]


def _step_row(sample: StepSample) -> tuple[str, ...]:
    return (
        format_duration(sample.at_s),
        str(sample.running),
        str(sample.waiting),
        *(_percent(pool.utilization) for pool in sample.pools),
        _percent(sample.borrowed_share),
        str(sample.blocks),
        _distribution_text(sample.blocks_per_node),
        str(sample.unaffined_blocks),
        str(sample.started),
        str(sample.ended),
        str(sample.refused),
        str(sample.calls.reads),
        str(sample.calls.commits),
    )


def _distribution_text(distribution: Distribution) -> str:
    """Minimum, median and maximum over the nodes; one number if they are equal."""
    if distribution.minimum == distribution.maximum:
        return str(distribution.minimum)
    return f"{distribution.minimum}/{distribution.median}/{distribution.maximum}"


def _percent(share: float) -> str:
    """A share as a percentage with three significant digits."""
    return f"{100 * share:.3g}%" if share >= _MIN_REPORTED_SHARE or not share else "<0.01%"
