"""``simulate``: how pools would hold out with so many nodes and pods. It needs no datastore and changes none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypedDict, Unpack

import click

from netplug_cli.ctl.session import session_of
from netplug_cli.ctl.studies import (
    NodeGroup,
    duration,
    families_of,
    generated_nodes,
    labels,
    node_group,
    percent,
    pool,
    read_cluster,
    spell_duration,
)
from netplug_core.errors import ConfigurationError
from netplug_core.flows.simulate import SimulatedClock
from netplug_core.flows.simulate import simulate as run_study
from netplug_core.flows.study import Call, Findings, Placement, Process, Sample, Study, Workload
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.metadata import Labels

__all__ = ["simulate"]

_STEPS = 60
_MOST_STEPS = 100_000
_MOST_PLACES = 1_000_000
_USUAL_MOST_PER_NODE = 110  # the kubelet's default


class _Given(TypedDict):
    """The options as click hands them over."""

    files: tuple[str, ...]
    pools: tuple[IPPool, ...]
    nodes: tuple[NodeGroup, ...]
    pods_per_node: int
    most_per_node: int | None
    arrivals_per_s: float | None
    churn: float
    lifetime_s: int | None
    placement: str
    namespace_labels: Labels | None
    is_resident: bool
    step_s: int
    steps: int | None
    duration_s: int | None
    seed: int
    output: str
    plot: str | None


class _Unwritable(ConfigurationError):
    """A file that cannot be written; ``accepted`` is the reason."""

    def __str__(self) -> str:
        return f"{self.where}: {self.accepted}"


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="A file of IPPools, IPReservations, Nodes and an IPAMConfiguration; - is standard input.",
)
@click.option(
    "--pool", "pools", multiple=True, type=pool, metavar="CIDR[/BLOCKSIZE]", help="A pool, beside those of files."
)
@click.option(
    "--nodes",
    multiple=True,
    type=node_group,
    metavar="COUNT[:LABEL=VALUE,...]",
    help="So many nodes, beside those of files; again for nodes with other labels.",
)
@click.option("--pods-per-node", type=click.IntRange(1), required=True, metavar="N", help="Pods for each node.")
@click.option(
    "--max-pods-per-node",
    "most_per_node",
    type=click.IntRange(1),
    metavar="N",
    help=f"Pods that a node can run.  [default: {_USUAL_MOST_PER_NODE}, or --pods-per-node if that is more]",
)
@click.option(
    "--pods-per-second",
    "arrivals_per_s",
    type=click.FloatRange(0, min_open=True),
    metavar="RATE",
    help="How fast the pods arrive, in the whole cluster.  [default: all in the first half of the time]",
)
@click.option(
    "--churn", type=percent, default="0", metavar="PERCENT", show_default=True, help="Pods replaced in every step."
)
@click.option("--lifetime", "lifetime_s", type=duration, metavar="TIME", help="When a pod is replaced in any case.")
@click.option(
    "--placement",
    type=click.Choice([placement.value for placement in Placement]),
    default=Placement.SPREAD.value,
    show_default=True,
    help="Where a new pod goes: to a node with few, to any, or to the first with room.",
)
@click.option("--namespace-labels", type=labels, metavar="LABEL=VALUE,...", help="Those of the pods' namespace.")
@click.option(
    "--resident",
    "is_resident",
    is_flag=True,
    help="Count datastore calls of a process that stays on each node, not of one for each call.",
)
@click.option("--step", "step_s", type=duration, default="1m", metavar="TIME", show_default=True, help="One step.")
@click.option(
    "--steps", type=click.IntRange(1, _MOST_STEPS), metavar="N", help=f"How many steps to look at.  [default: {_STEPS}]"
)
@click.option("--duration", "duration_s", type=duration, metavar="TIME", help="The same as a time.")
@click.option("--seed", type=int, default=1, metavar="N", show_default=True, help="Another one: other coincidences.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option(
    "--plot", type=click.Path(dir_okay=False), metavar="FILE.svg", help="Draw fill and borrowing into a file, too."
)  # fmt: skip
@click.pass_context
def simulate(context: click.Context, **given: Unpack[_Given]) -> int:
    """Try how pools would hold out: nodes and pods are made up, addresses are assigned as in production.

    Says whether every pod gets an address, when nodes begin to borrow from each other and how much, when a pool is
    full, and how many blocks nodes take. Nothing is asked or changed in any cluster, and the same command line always
    has the same answer. TIME is a duration such as 90s, 5m, 1h30m or 2d.
    """
    study = _study(given)
    clock = session_of(context).clock
    began_s = clock.monotonic()
    findings = _run(study)
    took_s = clock.monotonic() - began_s
    _print(study, findings, given["output"])
    if given["plot"] is not None:
        _draw(study, findings, given["plot"])
    click.echo(f"netplugctl: simulated {spell_duration(study.duration_s)} in {took_s:.1f} s", err=True)
    return 0


def _study(given: _Given) -> Study:
    """What was asked; click has looked at every option by itself."""
    cluster = read_cluster(given["files"])
    pools, families = (*cluster.pools, *given["pools"]), families_of([*cluster.pools, *given["pools"]])
    if not families:
        raise click.UsageError("Give a pool for workloads: --pool CIDR, or an enabled IPPool in a file.")
    node_count = len(cluster.nodes) + sum(group.count for group in given["nodes"])
    most_per_node, steps = _most_per_node(given, node_count), _steps(given)
    step_s, pods = given["step_s"], given["pods_per_node"]
    return Study(
        nodes=(*cluster.nodes, *generated_nodes(given["nodes"])),
        pools=pools,
        reservations=tuple(cluster.reservations),
        configuration=cluster.configuration,
        workload=Workload(
            pods_per_node=pods,
            most_per_node=most_per_node,
            arrivals_per_s=given["arrivals_per_s"] or node_count * pods / (step_s * -(-steps // 2)),
            churn=given["churn"],
            lifetime_s=given["lifetime_s"],
            placement=Placement(given["placement"]),
            families=families,
            namespace_labels=given["namespace_labels"] or (),
        ),
        steps=steps,
        step_s=step_s,
        seed=given["seed"],
        process=Process.RESIDENT if given["is_resident"] else Process.ONE_SHOT,
    )


def _most_per_node(given: _Given, node_count: int) -> int:
    """How many pods a node can run; refuses what no machine could keep in mind."""
    pods, most = given["pods_per_node"], given["most_per_node"]
    if most is not None and most < pods:
        raise click.UsageError(f"--max-pods-per-node {most} is less than --pods-per-node {pods}.")
    if not node_count:
        raise click.UsageError("Give some nodes: --nodes COUNT, or Nodes in a file.")
    most = max(pods, _USUAL_MOST_PER_NODE) if most is None else most
    if node_count * most > _MOST_PLACES:
        places = f"{node_count} nodes that can run {most} pods each"
        raise click.UsageError(f"That is too much: {places}. At most {_MOST_PLACES} pods can be simulated.")
    return most


def _steps(given: _Given) -> int:
    if given["duration_s"] is None:
        return given["steps"] or _STEPS
    if given["steps"] is not None:
        raise click.UsageError("Give --steps or --duration, not both.")
    steps = -(-given["duration_s"] // given["step_s"])
    if steps > _MOST_STEPS:
        raise click.UsageError(f"That is {steps} steps; at most {_MOST_STEPS}: give a longer --step.")
    return steps


def _run(study: Study) -> Findings:
    from netplug_cli import wiring

    clock = SimulatedClock()
    with wiring.open_empty_datastore(clock) as store, _progress(study.steps) as watch:
        return run_study(study, store, clock, watch=watch)


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[Call | Sample], None]]:
    """What to tell of every step: a bar where somebody watches, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _event: None
        return
    with click.progressbar(length=steps, label="simulating", file=sys.stderr) as bar:
        yield lambda event: bar.update(1) if isinstance(event, Sample) else None


def _print(study: Study, findings: Findings, output: str) -> None:
    from netplug_cli.ctl.documents import render_json
    from netplug_cli.ctl.exports import findings_csv, findings_mapping
    from netplug_cli.ctl.findings import finding_lines

    if output == "json":
        click.echo(render_json(findings_mapping(study, findings)), nl=False)
    elif output == "csv":
        click.echo(findings_csv(findings), nl=False)
    else:
        for line in finding_lines(study, findings):
            click.echo(line.rstrip())


def _draw(study: Study, findings: Findings, path: str) -> None:
    from netplug_cli.ctl.findings import plot_of
    from netplug_cli.ctl.svg import render_svg

    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(render_svg(plot_of(study, findings)))
    except OSError as error:
        raise _Unwritable(path, None, error.strerror or str(error)) from error
