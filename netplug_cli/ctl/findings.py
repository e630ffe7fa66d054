"""What a simulation found, for people: the answer first, then tables and a plot; ``exports`` has it for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netplug_cli.ctl.charts import Chart, Line, Plot, ceiling_of, text_lines
from netplug_cli.ctl.studies import spell_duration
from netplug_cli.ctl.tables import columns
from netplug_core.flows.study import Findings, PoolSample, Sample, Spread, Study

__all__ = ["finding_lines", "plot_of"]

_MOST_ROWS = 20
_EXACT_BELOW = 10**9
_LEAST_SHOWN = 0.0001


def finding_lines(study: Study, findings: Findings) -> list[str]:
    """Everything that a person reads, line by line."""
    return [
        _question(study),
        "",
        *_answer(study, findings),
        "",
        "At the end:",
        "",
        *_pool_table(findings),
        "",
        *_step_table(findings),
        "",
        *text_lines(plot_of(study, findings)),
    ]


def plot_of(study: Study, findings: Findings) -> Plot:
    """How full the pools are over time, what is borrowed, and who waits, if anybody does."""
    samples = findings.samples
    fills = tuple(
        Line(name=pool.name, values=tuple(sample.pools[index].fill for sample in samples))
        for index, pool in enumerate(findings.last.pools)
    )
    charts = [
        Chart(title="Addresses in use, share of the pool", lines=fills),
        _lonely("Borrowed, share of the addresses held", [sample.borrowed_share for sample in samples]),
    ]
    waiting = [sample.waiting / study.pod_count for sample in samples]
    if any(waiting):
        charts.append(_lonely("Pods without an address, share of all", waiting))
    marks: list[tuple[float, str]] = []
    if findings.first_loan_s is not None:
        marks.append((findings.first_loan_s, f"first loan: {spell_duration(findings.first_loan_s)}"))
    if findings.first_refusal is not None:
        first = findings.first_refusal
        marks.append((first.at_s, f"first refusal: {spell_duration(first.at_s)}"))
    title = f"{len(study.nodes)} nodes, {study.workload.pods_per_node} pods each"
    return Plot(title=title, times=tuple(sample.at_s for sample in samples), charts=tuple(charts), marks=tuple(marks))


def _lonely(title: str, values: Sequence[float]) -> Chart:
    """A chart of one line, with an axis that suits it."""
    return Chart(title=title, lines=(Line(values=tuple(values)),), ceiling=ceiling_of(values))


# --- the answer ----------------------------------------------------------------------------------------------------


def _question(study: Study) -> str:
    workload = study.workload
    rate = workload.arrivals_per_s
    parts = [
        f"{len(study.nodes)} nodes x {workload.pods_per_node} pods = {study.pod_count} pods",
        "all there in the first step" if rate is None else f"{rate:.3g} more every second",
        f"placement {workload.placement.value}",
    ]
    if workload.churn:
        parts.append(f"{_percent(workload.churn)} of them replaced every {spell_duration(study.step_s)}")
    if workload.lifetime_s is not None:
        parts.append(f"each replaced after {spell_duration(workload.lifetime_s)}")
    return f"{', '.join(parts)}; {spell_duration(study.duration_s)} of simulated time, seed {study.seed}."


def _answer(study: Study, findings: Findings) -> Iterator[str]:
    yield from _about_refusals(study, findings)
    yield from _about_loans(findings)
    for pool in findings.last.pools:
        full_s = findings.full_s(pool.name)
        if full_s is not None:
            yield f"Pool {pool.name} had no address left to give by {spell_duration(full_s)}."
    yield _about_calls(findings)


def _about_refusals(study: Study, findings: Findings) -> Iterator[str]:
    last, first = findings.last, findings.first_refusal
    if first is None:
        missing = study.pod_count - last.running
        late = f"; {missing} more had not arrived yet" if missing else ""
        yield f"It holds: every pod got its addresses, {last.running} have them at the end{late}."
        return
    most = max(findings.samples, key=lambda sample: sample.waiting)
    if last.waiting:
        yield f"It does not hold: {last.waiting} of {last.waiting + last.running} pods have no address at the end."
    elif most.waiting:
        yield f"It does not hold all the time: at {spell_duration(most.at_s)} {most.waiting} pods had no address."
    else:
        yield "It hardly holds: pods were refused addresses, and got some within the same step."
    counts = ", ".join(f"{identifier} {count}" for identifier, count in findings.refusals)
    yield f"Refused: {counts}; first at {spell_duration(first.at_s)} on {first.node}:"
    yield f"  {first.text}"


def _about_loans(findings: Findings) -> Iterator[str]:
    if findings.first_loan_s is None:
        reason = "" if findings.first_refusal else ": every node had blocks of its own for its pods"
        yield f"Nothing was borrowed{reason}."
        return
    most = max(findings.samples, key=lambda sample: sample.borrowed_share)
    yield (
        f"Borrowing began at {spell_duration(findings.first_loan_s)}; most was borrowed at "
        f"{spell_duration(most.at_s)}, {most.borrowed} addresses ({_percent(most.borrowed_share)} of those held), "
        f"and {findings.last.borrowed} ({_percent(findings.last.borrowed_share)}) at the end."
    )


def _about_calls(findings: Findings) -> str:
    calls = findings.calls
    asked = max(1, sum(sample.started + sample.ended + sample.refused for sample in findings.samples))
    return (
        f"The datastore was read {calls.reads} times and written {calls.commits} times: {calls.reads / asked:.3g} and "
        f"{calls.commits / asked:.3g} for each assignment or release."
    )


# --- tables --------------------------------------------------------------------------------------------------------


def _pool_table(findings: Findings) -> list[str]:
    headers = (
        "POOL", "CIDR", "IPS TOTAL", "IPS IN USE", "IPS COOLING", "IPS RESERVED", "IPS FREE", "BORROWED", "BLOCKS",
        "BLOCKS/NODE",
    )  # fmt: skip
    return columns(headers, map(_pool_row, findings.last.pools))


def _pool_row(pool: PoolSample) -> tuple[str, ...]:
    return (
        pool.name,
        str(pool.prefix),
        _number(pool.prefix.size),
        f"{pool.in_use} ({_percent(pool.fill)})",
        str(pool.cooling),
        _number(pool.reserved),
        _number(pool.available),
        str(pool.borrowed),
        f"{pool.blocks} of {_number(pool.most_blocks)}",
        _spread(pool.blocks_per_node),
    )


def _step_table(findings: Findings) -> list[str]:
    """Some of the steps, evenly picked, and always the last."""
    samples = findings.samples
    every = -(-len(samples) // _MOST_ROWS)
    shown = samples[(len(samples) - 1) % every :: every]
    pools = findings.last.pools
    headers = (
        "TIME", "PODS", "WAITING", *(f"FILL {pool.name}" if len(pools) > 1 else "FILL" for pool in pools), "BORROWED",
        "BLOCKS", "BLOCKS/NODE", "UNOWNED", "STARTED", "ENDED", "REFUSED", "READS", "COMMITS",
    )  # fmt: skip
    title = "Over time:" if every == 1 else f"Over time, every {every} steps (-o csv has all of them):"
    return [title, "", *columns(headers, map(_step_row, shown))]


def _step_row(sample: Sample) -> tuple[str, ...]:
    return (
        spell_duration(sample.at_s),
        str(sample.running),
        str(sample.waiting),
        *(_percent(pool.fill) for pool in sample.pools),
        _percent(sample.borrowed_share),
        str(sample.blocks),
        _spread(sample.blocks_per_node),
        str(sample.unowned),
        str(sample.started),
        str(sample.ended),
        str(sample.refused),
        str(sample.calls.reads),
        str(sample.calls.commits),
    )


def _spread(spread: Spread) -> str:
    """The least, the median and the most of all nodes; one number where they are the same."""
    if spread.least == spread.most:
        return str(spread.least)
    return f"{spread.least}/{spread.median}/{spread.most}"


def _percent(share: float) -> str:
    """A share with three digits that mean something."""
    return f"{100 * share:.3g}%" if share >= _LEAST_SHOWN or not share else "<0.01%"


def _number(count: int) -> str:
    return str(count) if count < _EXACT_BELOW else f"{count:.5g}"
