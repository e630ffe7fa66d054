"""``netplugctl lab``: a node with pods in namespaces of this machine, made, shown and removed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import TypedDict, Unpack

import click

from netplug_cli.lab.folder import LockMode, default_folder, find_lab, lock_folder
from netplug_cli.lab.model import MAX_PODS, LabFolder, LabPlan, StoreKind
from netplug_cli.lab.report import access_lines, inspect_lab, matrix_lines, pod_lines, problem_lines
from netplug_cli.lab.setup import EarlierLab, up
from netplug_cli.lab.store_setup import StoreOptions, resolve_store
from netplug_cli.lab.teardown import RemovalExtent, down
from netplug_cli.lab.world import LabWorld

__all__ = ["make_group"]

_HELP = """Run a node with pods in namespaces of this machine.

Nothing outside the lab's namespaces and its folder is touched. Root is needed, or a user namespace:
unshare --user --map-root-user --net --mount.
"""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?")


def _check_name(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if not _NAME.fullmatch(value):
        raise click.BadParameter("at most 30 small letters, digits and dashes, none of them at an end")
    return value


_NAME_OPTION = click.option(
    "--name", default="lab", show_default=True, callback=_check_name, help="Which lab; several can be up at once."
)
_DIR_OPTION = click.option(
    "--dir",
    "path",
    metavar="DIR",
    help="The lab's folder, made and removed with it. Default: netplug-NAME in /run, or where a user may write.",
)


class _StoreArguments(TypedDict):
    """The options that select the datastore."""

    datastore: str
    server_programs_dir: str
    urls: tuple[str, ...]


def make_group(make_world: Callable[[click.Context], LabWorld]) -> click.Group:
    """The commands of ``netplugctl lab``; each acts through the world that ``make_world`` makes."""
    return click.Group("lab", commands=[lab_up, lab_status, lab_down], help=_HELP, context_settings={"obj": make_world})


@click.command("up")
@click.option("--pods", type=click.IntRange(1, MAX_PODS), default=3, show_default=True, help="How many pods.")
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
@click.pass_context
def lab_up(
    context: click.Context,
    *,
    pods: int,
    is_replaced: bool,
    name: str,
    path: str | None,
    **store_arguments: Unpack[_StoreArguments],
) -> None:
    """Make a node and its pods, with addresses from the lab's own pools.

    A lab that is up is left alone, unless --replace is given; what an interrupted one has left is removed first.
    """
    world, folder = _make_world(context), _folder(name, path)
    store = resolve_store(_store_options(store_arguments), world.session.settings(), world.server_addresses)
    earlier = EarlierLab.REPLACED if is_replaced else EarlierLab.KEPT
    lab = up(world, folder, LabPlan(name=name, pod_count=pods, store=store), earlier)
    click.echo(f"The lab is up: {pods} pods on {lab.node_name}. To look around:")
    _print(access_lines(lab, folder))


@click.command("status")
@_NAME_OPTION
@_DIR_OPTION
@click.pass_context
def lab_status(context: click.Context, *, name: str, path: str | None) -> int:
    """Show the pods, who reaches whom, and the addresses held; exit status 1 if a pod cannot be reached."""
    world, folder = _make_world(context), _folder(name, path)
    clock, progress = world.session.clock, world.progress
    with lock_folder(folder, LockMode.SHARED, clock=clock, report=progress.warn) as locked:
        lab = find_lab(folder) if locked is not None else None
        if lab is None:
            raise click.ClickException(f"no lab is up in {folder.path}; netplugctl lab up makes one")
        with progress.activity("asking everybody from everybody"):
            status = inspect_lab(world, folder, lab)
        click.echo(f"Lab {lab.name} in {folder.path}: node {lab.node_name}, {len(lab.pods)} pods\n")
        _print(pod_lines(lab, folder))
        click.echo("\nWho reaches whom (a UDP packet there and back):\n")
        _print(matrix_lines(status.matrix))
        problems = problem_lines(status)
        if not lab.is_complete:
            problems.append("the lab is not complete: lab up was interrupted")
        for problem in problems:
            progress.warn(problem)
        # Last, because a store that does not answer ends the command.
        click.echo("\nThe pools, their blocks and the addresses held (netplugctl ipam show --show-blocks):\n")
        with world.open_store(lab, folder) as store:
            _print(world.usage_lines(store, world.session.deadline()))
    if not problems:
        count = len(status.matrix.paths)
        click.echo(f"\nAll {count} ways work.")
    return 1 if problems else 0


@click.command("down")
@_NAME_OPTION
@_DIR_OPTION
@click.pass_context
def lab_down(context: click.Context, *, name: str, path: str | None) -> int:
    """Detach the pods and remove everything of the lab; nothing to remove is fine."""
    world, folder = _make_world(context), _folder(name, path)
    removal = down(world, folder)
    for problem in removal.problems:
        world.progress.warn(problem)
    match removal.extent:
        case RemovalExtent.NOTHING:
            click.echo(f"no lab in {folder.path}: nothing to remove")
        case RemovalExtent.COMPLETE:
            click.echo(f"{folder.path} is removed")
        case RemovalExtent.LOCAL_ONLY | RemovalExtent.FOLDER_KEPT:
            pass  # the problems say what stays, and why
    return 1 if removal.problems else 0


def _make_world(context: click.Context) -> LabWorld:
    make_world: Callable[[click.Context], LabWorld] = context.obj
    return make_world(context)


def _store_options(arguments: _StoreArguments) -> StoreOptions:
    return StoreOptions(
        kind=StoreKind(arguments["datastore"]), programs_dir=arguments["server_programs_dir"], urls=arguments["urls"]
    )


def _folder(name: str, path: str | None) -> LabFolder:
    return default_folder(name, os.environ) if path is None else LabFolder(os.path.realpath(path))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
