"""The result of a simulation for people: the answer first, then tables and a plot. ``exports`` has it for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netplug_cli.ctl.simulation.charts import Chart, ChartSeries, Plot, axis_maximum, render_text
from netplug_cli.formatting import format_columns, format_count, format_duration
from netplug_core.simulation.result import Distribution, PoolSample, SimulationResult, StepSample
from netplug_core.simulation.scenario import Scenario

__all__ = ["make_plot", "report_lines"]

_MAX_ROWS = 20
_MIN_SHOWN_SHARE = 0.0001


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
        _distribution(pool.blocks_per_node),
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
        _distribution(sample.blocks_per_node),
        str(sample.unaffined_blocks),
        str(sample.started),
        str(sample.ended),
        str(sample.refused),
        str(sample.calls.reads),
        str(sample.calls.commits),
    )


def _distribution(distribution: Distribution) -> str:
    """Minimum, median and maximum over the nodes; one number if they are equal."""
    if distribution.minimum == distribution.maximum:
        return str(distribution.minimum)
    return f"{distribution.minimum}/{distribution.median}/{distribution.maximum}"


def _percent(share: float) -> str:
    """A share as a percentage with three significant digits."""
    return f"{100 * share:.3g}%" if share >= _MIN_SHOWN_SHARE or not share else "<0.01%"
