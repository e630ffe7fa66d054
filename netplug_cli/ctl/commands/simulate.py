"""``simulate``: how pools serve a number of nodes and pods. It uses no datastore."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypedDict, Unpack

import click
from attrs import Factory, define, field, frozen

from netplug_cli.ctl.documents import read_manifests
from netplug_cli.ctl.editor import write_open_file
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.ctl.simulation_report import make_plot, render_svg, simulation_report
from netplug_cli.ctl.tables import TABLE_OUTPUT, print_report
from netplug_cli.formatting import format_count, format_duration, parse_duration, print_error
from netplug_cli.progress import Progress, show_progress
from netplug_core.addressing import Family, Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.names import prefix_to_name
from netplug_core.resources.codec import Manifest
from netplug_core.resources.fields import Labels, Metadata
from netplug_core.resources.ippool import AllowedUse, IPAMConfiguration, IPPool, IPPoolSpec, IPReservation
from netplug_core.resources.kinds import Resource, key_of
from netplug_core.resources.node import Node
from netplug_core.resources.validation import InvalidResource, validate_resource
from netplug_core.simulation.scenario import Placement, PodLoad, ProcessModel, Scenario
from netplug_core.simulation.simulator import SimulatedCall, SimulatedClock, SimulationResult, StepSample
from netplug_core.simulation.simulator import simulate as run_scenario

__all__ = [
    "NodeGroup", "ScenarioResources", "generate_nodes", "parse_labels", "parse_node_group",
    "parse_percentage", "parse_pool", "read_scenario_files", "simulate", "workload_families",
]  # fmt: skip


# --- options ---------------------------------------------------------------------------------------------------------


# --- options ---------------------------------------------------------------------------------------------------------


_MAX_DIGITS = 6
_SLASHES_WITH_BLOCK_SIZE = 2


@frozen(kw_only=True)
class NodeGroup:
    """Generated nodes with the same labels."""

    count: int
    labels: Labels = ()


def parse_pool(text: str) -> IPPool:
    """A pool that is given as ``CIDR`` or ``CIDR/BLOCKSIZE``, named after its CIDR.

    Raises:
        click.BadParameter: it is not one that could be created.
    """
    cidr, _, block_size = text.rpartition("/") if text.count("/") == _SLASHES_WITH_BLOCK_SIZE else (text, "", "")
    try:
        prefix = Prefix.parse(cidr)
    except ValueError as error:
        raise click.BadParameter(f"{error}; expected CIDR[/BLOCKSIZE], such as 10.0.0.0/16/26") from None
    if block_size and not _is_number(block_size):
        raise click.BadParameter(f"{block_size!r} is not a block size; expected a number, as in 10.0.0.0/16/26")
    length = int(block_size) if block_size else prefix.family.default_block_length
    made = IPPool(
        metadata=Metadata(name=prefix_to_name(prefix).strip("-")), spec=IPPoolSpec(prefix=prefix, block_length=length)
    )
    try:
        validate_resource(made)
    except InvalidResource as error:
        raise click.BadParameter(str(error)) from None
    return made


def parse_node_group(text: str) -> NodeGroup:
    """Nodes that are given as ``COUNT`` or ``COUNT:LABEL=VALUE,...``.

    Raises:
        click.BadParameter: it is neither.
    """
    number, colon, rest = text.partition(":")
    if not _is_number(number) or int(number) < 1:
        raise click.BadParameter(f"{text!r}: expected COUNT[:LABEL=VALUE,...], such as 200 or 200:zone=a")
    return NodeGroup(count=int(number), labels=parse_labels(rest) if colon else ())


def parse_labels(text: str) -> Labels:
    """Labels that are given as ``LABEL=VALUE,...``.

    Raises:
        click.BadParameter: one of them is not, or is given twice.
    """
    found: dict[str, str] = {}
    for word in text.split(","):
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{word!r} is not a label; expected LABEL=VALUE,..., such as zone=a,rack=7")
        if key in found:
            raise click.BadParameter(f"the label {key!r} is given twice")
        found[key] = value
    return tuple(sorted(found.items()))


def parse_percentage(text: str) -> float:
    """A share that is given in percent, with or without the sign.

    Raises:
        click.BadParameter: it is no number from 0 to 100.
    """
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1
    if not 0 <= number <= 100:  # noqa: PLR2004 - percent
        raise click.BadParameter(f"{text!r} is not a percentage; expected 0 to 100, such as 10 or 2.5%")
    return number / 100


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


# --- resources -------------------------------------------------------------------------------------------------------


@define
class ScenarioResources:
    """The resources in the files of a simulation."""

    pools: list[IPPool] = Factory(list)
    reservations: list[IPReservation] = Factory(list)
    nodes: list[Node] = Factory(list)
    configuration: IPAMConfiguration | None = field(default=None)

    def add(self, resource: Resource, *, source: str) -> None:
        """Add a resource.

        Raises:
            ConfigurationError: a simulation does not use its kind, or there is a configuration already.
        """
        match resource:
            case IPPool():
                self.pools.append(resource)
            case IPReservation():
                self.reservations.append(resource)
            case Node():
                self.nodes.append(resource)
            case IPAMConfiguration():
                if self.configuration is not None:
                    raise ConfigurationError(source, str(key_of(resource)), "there is one, and it was given already")
                self.configuration = resource
            case _:
                accepted = "a simulation takes IPPool, IPReservation, IPAMConfiguration and Node"
                raise ConfigurationError(source, str(key_of(resource)), accepted)


def read_scenario_files(files: Sequence[str]) -> ScenarioResources:
    """The resources of some files.

    Raises:
        InputError: some cannot be used; every problem is named.
    """
    resources = ScenarioResources()

    def accept(manifest: Manifest) -> None:
        validate_resource(manifest.resource)
        resources.add(manifest.resource, source=manifest.source)

    _, problems = read_manifests(files, accept)
    if problems:
        raise InputError("failed to simulate", None, "; ".join(problems))
    return resources


def generate_nodes(groups: Iterable[NodeGroup]) -> tuple[Node, ...]:
    """The nodes of some groups, numbered from ``node-001`` without gaps."""
    all_labels = [group.labels for group in groups for _ in range(group.count)]
    digits = len(str(len(all_labels)))
    return tuple(
        Node(metadata=Metadata(name=f"node-{number:0{digits}}", labels=of_node))
        for number, of_node in enumerate(all_labels, start=1)
    )


def workload_families(pools: Iterable[IPPool]) -> tuple[Family, ...]:
    """The families of which pods want an address: those of the enabled pools for workloads."""
    found = {
        pool.spec.prefix.family
        for pool in pools
        if AllowedUse.WORKLOAD in pool.spec.allowed_uses and not pool.spec.is_disabled
    }
    return tuple(sorted(found))


# --- simulate --------------------------------------------------------------------------------------------------------


_DEFAULT_STEPS = 60
_MAX_STEPS = 100_000
_MAX_PODS = 1_000_000
_DEFAULT_MAX_PODS_PER_NODE = 110  # the kubelet's default


class _SimulateOptions(TypedDict):
    """The options as click hands them over."""

    files: tuple[str, ...]
    pools: tuple[IPPool, ...]
    nodes: tuple[NodeGroup, ...]
    pods_per_node: int
    max_per_node: int | None
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
    "--pool", "pools", multiple=True, type=parse_pool, metavar="CIDR[/BLOCKSIZE]", help="A pool, beside those of files."
)
@click.option(
    "--nodes",
    multiple=True,
    type=parse_node_group,
    metavar="COUNT[:LABEL=VALUE,...]",
    help="A number of nodes, beside those of files; can be repeated for nodes with other labels.",
)
@click.option("--pods-per-node", type=click.IntRange(1), required=True, metavar="N", help="Pods for each node.")
@click.option(
    "--max-pods-per-node",
    "max_per_node",
    type=click.IntRange(1),
    metavar="N",
    help=f"Pods that a node can run.  [default: {_DEFAULT_MAX_PODS_PER_NODE}, or --pods-per-node if that is more]",
)
@click.option(
    "--pods-per-second",
    "arrivals_per_s",
    type=click.FloatRange(0, min_open=True),
    metavar="RATE",
    help="How fast the pods arrive, in the whole cluster.  [default: all in the first half of the time]",
)
@click.option(
    "--churn",
    type=parse_percentage,
    default="0",
    metavar="PERCENT",
    show_default=True,
    help="Pods replaced in every step.",
)
@click.option(
    "--lifetime",
    "lifetime_s",
    type=parse_duration,
    metavar="TIME",
    help="The longest that a pod runs before it is replaced.",
)
@click.option(
    "--placement",
    type=click.Choice([placement.value for placement in Placement]),
    default=Placement.SPREAD.value,
    show_default=True,
    help="Where a new pod goes: to a node with few, to any, or to the first with room.",
)
@click.option(
    "--namespace-labels", type=parse_labels, metavar="LABEL=VALUE,...", help="The labels of the pods' namespace."
)
@click.option(
    "--resident",
    "is_resident",
    is_flag=True,
    help="Count the datastore calls of a resident process on each node, not of a process for each call.",
)
@click.option(
    "--step", "step_s", type=parse_duration, default="1m", metavar="TIME", show_default=True, help="One step."
)
@click.option(
    "--steps",
    type=click.IntRange(1, _MAX_STEPS),
    metavar="N",
    help=f"How many steps to simulate.  [default: {_DEFAULT_STEPS}]",
)
@click.option(
    "--duration", "duration_s", type=parse_duration, metavar="TIME", help="The simulated time, in place of --steps."
)
@click.option("--seed", type=int, default=1, metavar="N", show_default=True, help="The seed of all random choices.")
@TABLE_OUTPUT
@click.option(
    "--plot", type=click.Path(dir_okay=False), metavar="FILE.svg", help="Draw fill and borrowing into a file, too."
)  # fmt: skip
@click.pass_context
def simulate(context: click.Context, **options: Unpack[_SimulateOptions]) -> int:
    """Simulate how pools serve generated nodes and pods; addresses are assigned as in production.

    Prints whether every pod gets an address, when nodes begin to borrow from each other and how much, when a pool is
    full, and how many blocks nodes take. No cluster is read or changed, and the same command line always has the same
    result. TIME is a duration such as 90s, 5m, 1h30m or 2d.
    """
    scenario, session = _make_scenario(options), session_of(context)
    began_s = session.clock.monotonic()
    result = _run(scenario, session)
    took_s = session.clock.monotonic() - began_s
    print_report(simulation_report(scenario, result), options["output"])
    if options["plot"] is not None:
        _write_plot(scenario, result, options["plot"])
    print_error(f"simulated {format_duration(scenario.duration_s)} in {took_s:.1f} s")
    return 0


def _make_scenario(options: _SimulateOptions) -> Scenario:
    """The scenario of the options; click has checked each of them by itself."""
    cluster = read_scenario_files(options["files"])
    pools, families = (*cluster.pools, *options["pools"]), workload_families([*cluster.pools, *options["pools"]])
    if not families:
        raise click.UsageError("Give a pool for workloads: --pool CIDR, or an enabled IPPool in a file.")
    node_count = len(cluster.nodes) + sum(group.count for group in options["nodes"])
    max_per_node, steps = _max_pods_per_node(options, node_count), _step_count(options)
    step_s, pods = options["step_s"], options["pods_per_node"]
    return Scenario(
        nodes=(*cluster.nodes, *generate_nodes(options["nodes"])),
        pools=pools,
        reservations=tuple(cluster.reservations),
        configuration=cluster.configuration,
        load=PodLoad(
            pods_per_node=pods,
            max_per_node=max_per_node,
            arrivals_per_s=options["arrivals_per_s"] or node_count * pods / (step_s * -(-steps // 2)),
            churn=options["churn"],
            lifetime_s=options["lifetime_s"],
            placement=Placement(options["placement"]),
            families=families,
            namespace_labels=options["namespace_labels"] or (),
        ),
        steps=steps,
        step_s=step_s,
        seed=options["seed"],
        process_model=ProcessModel.RESIDENT if options["is_resident"] else ProcessModel.ONE_SHOT,
    )


def _max_pods_per_node(options: _SimulateOptions, node_count: int) -> int:
    """How many pods a node can run; refuses more pods in all than can be simulated."""
    pods, most = options["pods_per_node"], options["max_per_node"]
    if most is not None and most < pods:
        raise click.UsageError(f"--max-pods-per-node {most} is less than --pods-per-node {pods}.")
    if not node_count:
        raise click.UsageError("Give some nodes: --nodes COUNT, or Nodes in a file.")
    most = max(pods, _DEFAULT_MAX_PODS_PER_NODE) if most is None else most
    if node_count * most > _MAX_PODS:
        places = f"{node_count} nodes that can run {most} pods each"
        raise click.UsageError(f"That is too much: {places}. At most {_MAX_PODS} pods can be simulated.")
    return most


def _step_count(options: _SimulateOptions) -> int:
    if options["duration_s"] is None:
        return options["steps"] or _DEFAULT_STEPS
    if options["steps"] is not None:
        raise click.UsageError("Give --steps or --duration, not both.")
    steps = -(-options["duration_s"] // options["step_s"])
    if steps > _MAX_STEPS:
        raise click.UsageError(f"That is {steps} steps; at most {_MAX_STEPS}: give a longer --step.")
    return steps


def _run(scenario: Scenario, session: Session) -> SimulationResult:
    clock = SimulatedClock()
    with (
        session.open_memory_datastore(clock) as store,
        show_progress("simulating", scenario.steps, session.clock) as progress,
    ):
        return run_scenario(scenario, store, clock, observe=_observer(progress))


def _observer(progress: Progress) -> Callable[[SimulatedCall | StepSample], None]:
    """What shows how many steps and calls were simulated; the first step may have most of the calls."""
    steps = calls = 0

    def observe(event: SimulatedCall | StepSample) -> None:
        nonlocal steps, calls
        if isinstance(event, StepSample):
            steps += 1
        else:
            calls += 1
        progress.update(steps, f" steps, {format_count(calls)} calls")

    return observe


def _write_plot(scenario: Scenario, result: SimulationResult, path: str) -> None:
    write_open_file(path, render_svg(make_plot(scenario, result)))
