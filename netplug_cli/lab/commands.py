"""``netplugctl lab``: nodes with pods in namespaces of this machine, made, shown and removed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypedDict, Unpack

import click
from attrs import evolve

from netplug_cli.lab.folder import LockMode, default_folder, find_lab, find_other_labs, lock_folder
from netplug_cli.lab.model import (
    MAX_NODES,
    MAX_PODS,
    ExternalServers,
    Lab,
    LabError,
    LabFolder,
    LabNetwork,
    LabPlan,
    LabStore,
    Routing,
    StoreKind,
)
from netplug_cli.lab.pods import PodTest, ask_by_pods
from netplug_cli.lab.processes import find_bird
from netplug_cli.lab.report import (
    LabStatus,
    SilentProgress,
    access_lines,
    inspect_lab,
    matrix_lines,
    node_lines,
    path_lines,
    path_table,
    pod_lines,
    pod_table,
    problem_lines,
    result_problems,
    status_table,
)
from netplug_cli.lab.setup import EarlierLab, RemovalExtent, down, removal_table, up
from netplug_cli.lab.store_setup import StoreOptions, resolve_store
from netplug_cli.lab.world import LabWorld
from netplug_core.dataplane.connectivity import PathResult, PeerKind

__all__ = ["make_connectivity_group", "make_group"]

_HELP = """Run nodes with pods in namespaces of this machine.

Nothing outside the lab's namespaces and its folder is touched. Root is needed, or a user namespace:
unshare --user --map-root-user --net --mount.
"""
_NOWHERE = re.compile(r"\bnone\b")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?")


def _check_name(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if not _NAME.fullmatch(value):
        raise click.BadParameter("at most 30 small letters, digits and dashes, none of them at an end")
    return value


def _check_lab_name(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    # Two options have this name, and click calls the one that is not given too.
    given: str | None = context.params.get(str(parameter.name))
    return given if value is None else _check_name(context, parameter, value)


_DEFAULT_NAME = "lab"
_NAME_OPTION = click.option(
    "--name",
    default=_DEFAULT_NAME,
    show_default=True,
    callback=_check_name,
    help="Which lab; several can be up at once.",
)
_DIR_OPTION = click.option(
    "--dir",
    "path",
    metavar="DIR",
    help="The lab's folder, made and removed with it. Default: netplug-NAME in /run, or where a user may write.",
)


_OUTPUT_OPTION = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml", "csv"]),
    default="text",
    show_default=True,
    help="The format.",
)
_PODS = 3


class _UpArguments(TypedDict):
    """The options that say what a lab consists of."""

    pods: int | None
    nodes: int | None
    routing: str | None
    datastore: str
    server_programs_dir: str
    urls: tuple[str, ...]


def make_group(make_world: Callable[[click.Context], LabWorld]) -> click.Group:
    """The commands of ``netplugctl lab``; each acts through the world that ``make_world`` makes."""
    return click.Group(
        "lab", commands=[lab_up, lab_status, lab_down], help=_HELP, context_settings=_settings(make_world)
    )


def make_connectivity_group(make_world: Callable[[click.Context], LabWorld]) -> click.Group:
    """The commands of ``netplugctl connectivity``; each acts through the world that ``make_world`` makes."""
    help_text = "Test who reaches whom with packets."
    return click.Group("connectivity", commands=[test_command], help=help_text, context_settings=_settings(make_world))


def _settings(make_world: Callable[[click.Context], LabWorld]) -> dict[str, object]:
    # A command keeps the help option of its first call for good (click), so these are the ones of netplugctl here too.
    return {"obj": make_world, "help_option_names": ["-h", "--help"]}


@click.command("up")
@click.option(
    "--pods",
    type=click.IntRange(1, MAX_PODS),
    help="How many pods, spread over the nodes. [default: 3; with --nodes: two for each node]",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, MAX_NODES),
    help="How many nodes, on one switch, each with a node process. Default: one node without a network of nodes.",
)
@click.option(
    "--routing",
    type=click.Choice([each.value for each in Routing]),
    help="What carries packets of pods between nodes; bgp needs BIRD 2. [default: vxlan]",
)
@click.option(
    "--datastore",
    type=click.Choice([kind.value for kind in StoreKind]),
    default=StoreKind.SQLITE.value,
    show_default=True,
    help="What the lab keeps its data in.",
)
@click.option(
    "--servers",
    "server_programs_dir",
    metavar="DIR",
    default="",
    help="Start the servers from the programs there (etcd; kube-apiserver), in the lab's node; they go with the lab.",
)
@click.option(
    "--server",
    "urls",
    metavar="URL",
    multiple=True,
    help="Use an etcd that runs; again for each member. Default: what ETCD_ENDPOINTS or KUBECONFIG names.",
)
@click.option("--replace", "is_replaced", is_flag=True, help="Remove a lab of the name that is up, with its pods.")
@_NAME_OPTION
@_DIR_OPTION
@_OUTPUT_OPTION
@click.pass_context
def lab_up(
    context: click.Context,
    *,
    name: str,
    path: str | None,
    is_replaced: bool,
    output: str,
    **arguments: Unpack[_UpArguments],
) -> None:
    """Make nodes and their pods, with addresses from the lab's own pools.

    A lab that is up is left alone, unless --replace is given; what an interrupted one has left is removed first.
    """
    world, folder = _make_world(context, output), _folder(name, path)
    store = resolve_store(_store_options(arguments), world.session.settings(), world.server_addresses)
    network = _network(arguments["nodes"], arguments["routing"], store)
    pods = arguments["pods"] or (_PODS if network is None else min(2 * network.node_count, MAX_PODS))
    earlier = EarlierLab.REPLACED if is_replaced else EarlierLab.KEPT
    lab = up(world, folder, LabPlan(name=name, pod_count=pods, store=store, network=network), earlier)
    if output != "text":
        click.echo(world.render_table(pod_table(lab, folder), output))
        return
    where = lab.nodes[0].name if network is None else f"{network.node_count} nodes"
    click.echo(f"The lab is up: {pods} pods on {where}. To look around:")
    _print(access_lines(lab, folder))


@click.command("status")
@_NAME_OPTION
@_DIR_OPTION
@_OUTPUT_OPTION
@click.pass_context
def lab_status(context: click.Context, *, name: str, path: str | None, output: str) -> int:
    """Show the nodes and pods, who reaches whom, and the addresses held; exit status 1 if one cannot be reached."""
    world, folder = _make_world(context), _folder(name, path)
    progress = world.progress
    with _open_lab(world, folder) as lab:
        with progress.activity("asking everybody from everybody"):
            status = inspect_lab(world, folder, lab)
        problems = problem_lines(lab, status)
        if not lab.is_complete:
            problems.append("the lab is not complete: lab up was interrupted")
        if output != "text":
            click.echo(world.render_table(status_table(lab, folder, status, problems), output))
            return 1 if problems else 0
        _print(_status_lines(lab, folder, status))
        for problem in problems:
            progress.warn(problem)
        # Last, because a store that does not answer ends the command.
        click.echo("\nThe pools, their blocks and the addresses held (netplugctl ipam show --show-blocks):\n")
        with world.open_store(lab, folder) as store:
            _print(world.usage_lines(store, world.session.deadline()))
    if not problems:
        click.echo(f"\nAll {len(status.results)} ways work.")
    return 1 if problems else 0


class _TestArguments(TypedDict):
    """The options of a test of a cluster."""

    namespace: str
    image: str
    node_count: int
    outside: tuple[str, ...]
    timeout: float


@click.command("test")
@click.option("--lab", "name", callback=_check_lab_name, metavar="NAME", help="Test this lab, and no cluster.")
@click.option("--name", "name", callback=_check_lab_name, hidden=True)
@_DIR_OPTION
@click.option(
    "--namespace", default="netplug-connectivity-test", show_default=True, metavar="NS",
    help="Where the pods are made; it is made for them and removed with them.",
)  # fmt: skip
@click.option(
    "--image", default="", metavar="IMAGE", help="The image of the pods, with Python 3. Default: that of netplug-node."
)
@click.option(
    "--nodes", "node_count", type=click.IntRange(1, MAX_NODES), default=3, show_default=True,
    help="On how many nodes at most.",
)  # fmt: skip
@click.option(
    "--outside", multiple=True, metavar="ADDRESS:PORT", help="Something outside that is to answer. May be repeated."
)
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=120.0, show_default=True, metavar="SECONDS",
    help="How long pods may take to run, and to answer.",
)  # fmt: skip
@_OUTPUT_OPTION
@click.pass_context
def test_command(
    context: click.Context, *, name: str | None, path: str | None, output: str, **arguments: Unpack[_TestArguments]
) -> int:
    """Send packets from pods to pods, nodes, a service and outside, and show which come back.

    On a cluster, where the datastore is Kubernetes: by two pods on each of some nodes, in a namespace of their own,
    which is removed at the end and after Ctrl-C. Otherwise, and with --lab or --dir: from the pods of netplugctl lab up
    to each pod and each node. The exit status is 1 if something does not come back.
    """
    world = _make_world(context)
    if name is None and path is None and world.session.settings().is_kubernetes:
        return _test_cluster(world, arguments, output)
    folder = _folder(name or _DEFAULT_NAME, path)
    with _open_lab(world, folder) as lab:
        with world.progress.activity("asking everybody from each pod"):
            status = inspect_lab(world, folder, lab, {PeerKind.POD})
        problems = problem_lines(lab, status)
    return _show_paths(world, status.results, problems, output)


def _test_cluster(world: LabWorld, arguments: _TestArguments, output: str) -> int:
    wanted = PodTest(
        namespace=arguments["namespace"],
        image=arguments["image"],
        node_count=arguments["node_count"],
        outside=arguments["outside"],
        timeout_s=arguments["timeout"],
    )
    progress = world.progress if output == "text" else SilentProgress()
    with world.open_pods(world.session.settings()) as pods:
        results = ask_by_pods(pods, wanted, clock=world.session.clock, progress=progress)
    return _show_paths(world, results, result_problems(results), output)


def _show_paths(world: LabWorld, results: Sequence[PathResult], problems: Sequence[str], output: str) -> int:
    if output != "text":
        click.echo(world.render_table(path_table(results, {"problems": [*problems]}), output))
        return 1 if problems else 0
    _print(path_lines(results))
    for problem in problems:
        world.progress.warn(problem)
    failed = sum(bool(result.failure) for result in results)
    count = len(results)
    click.echo(f"\n{failed} of {count} paths do not work." if failed else f"\nAll {count} paths work.")
    return 1 if problems else 0


@click.command("down")
@_NAME_OPTION
@_DIR_OPTION
@_OUTPUT_OPTION
@click.pass_context
def lab_down(context: click.Context, *, name: str, path: str | None, output: str) -> int:
    """Detach the pods and remove everything of the lab; nothing to remove is fine."""
    world, folder = _make_world(context, output), _folder(name, path)
    removal = down(world, folder)
    for problem in removal.problems:
        world.progress.warn(problem)
    if output != "text":
        click.echo(world.render_table(removal_table(folder, removal), output))
        return 1 if removal.problems else 0
    match removal.extent:
        case RemovalExtent.NOTHING:
            click.echo(f"no lab in {folder.path}: nothing to remove{_others(folder)}")
        case RemovalExtent.COMPLETE:
            click.echo(f"{folder.path} is removed")
        case RemovalExtent.LOCAL_ONLY | RemovalExtent.FOLDER_KEPT:
            pass  # the problems say what stays, and why
    return 1 if removal.problems else 0


@contextmanager
def _open_lab(world: LabWorld, folder: LabFolder) -> Iterator[Lab]:
    """The lab that is up in a folder; no other command changes it until the block ends."""
    with lock_folder(folder, LockMode.SHARED, clock=world.session.clock, report=world.progress.warn) as locked:
        lab = find_lab(folder) if locked is not None else None
        if lab is None:
            others = _others(folder)
            raise click.ClickException(f"no lab is up in {folder.path}; netplugctl lab up makes one{others}")
        yield lab


def _make_world(context: click.Context, output: str = "text") -> LabWorld:
    make_world: Callable[[click.Context], LabWorld] = context.obj
    world = make_world(context)
    return world if output == "text" else evolve(world, progress=SilentProgress())


def _store_options(arguments: _UpArguments) -> StoreOptions:
    return StoreOptions(
        kind=StoreKind(arguments["datastore"]), programs_dir=arguments["server_programs_dir"], urls=arguments["urls"]
    )


def _network(nodes: int | None, routing: str | None, store: LabStore) -> LabNetwork | None:
    """The network that the options ask for.

    Raises:
        LabError: the other options, or this machine, do not go with it.
    """
    if nodes is None:
        if routing is not None:
            raise LabError("--routing is for several nodes: say how many with --nodes")
        return None
    if isinstance(store, ExternalServers):
        # A node of theirs would take those of the lab for its own kind, and make routes to them.
        raise LabError("several nodes need a store of their own: take --datastore sqlite, or --servers DIR")
    network = LabNetwork(node_count=nodes, routing=Routing(routing or Routing.VXLAN.value))
    if network.routing is Routing.BGP and find_bird() is None:
        raise LabError(
            "--routing bgp needs BIRD 2, and this machine has no program bird: apt-get install bird2, then "
            "systemctl disable --now bird; --routing vxlan needs nothing"
        )
    return network


def _status_lines(lab: Lab, folder: LabFolder, status: LabStatus) -> Iterator[str]:
    if lab.network is None:
        yield f"Lab {lab.name} in {folder.path}: node {lab.nodes[0].name}, {len(lab.pods)} pods\n"
    else:
        count, routing = lab.network.node_count, lab.network.routing.value
        yield f"Lab {lab.name} in {folder.path}: {count} nodes, routing {routing}, {len(lab.pods)} pods\n"
        yield from node_lines(lab, folder, status)
        yield ""
    yield from pod_lines(lab, folder)
    yield "\nWho reaches whom (a UDP packet there and back):\n"
    yield from map(_coloured, matrix_lines(status))


def _coloured(line: str) -> str:
    """A line of the table of who reaches whom; on a terminal, what does not work is red."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return line
    return _NOWHERE.sub(lambda found: click.style(found[0], fg="red"), line)


def _others(folder: LabFolder) -> str:
    """Which other labs there are, for a person who has forgotten a name."""
    names = find_other_labs(folder, os.environ)
    return f" (others of yours: {', '.join(f'--name {name}' for name in names)})" if names else ""


def _folder(name: str, path: str | None) -> LabFolder:
    return default_folder(name, os.environ) if path is None else LabFolder(os.path.realpath(path))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
