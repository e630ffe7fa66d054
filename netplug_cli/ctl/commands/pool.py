"""``pool``: empties a pool, or replaces it by one of another size, while its workloads run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, Unpack

import click

from netplug_cli.ctl.commands.resources import parse_cidr
from netplug_cli.ctl.drain_report import DrainReport, plan_document, plan_lines
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.ctl.simulation.options import parse_duration
from netplug_cli.formatting import format_json, print_error
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.resources.drain import (
    Drainer,
    ResizePlan,
    WantedSize,
    cancel_drain,
    create_successor,
    drain,
    plan_drain,
    plan_resize,
)
from netplug_core.flows.resources.outcome import ResourceExists, ResourceMissing
from netplug_core.ipam.reporting.drain_plan import DrainedPool, DrainView
from netplug_core.resources.ippool import ippool_key

__all__ = ["pool"]

_Command = Callable[..., Any]
_NO_LIMIT_S = 10 * 365 * 86_400


class _RunOptions(TypedDict):
    """The options of both commands."""

    is_waiting: bool
    timeout_s: int | None
    is_dry_run: bool
    output: str


def _run_options(command: _Command) -> _Command:
    """``_RunOptions`` on the command line."""
    for option in (
        click.option(
            "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
            help="json: an event in JSON on each line.",
        ),
        click.option("--dry-run", "is_dry_run", is_flag=True, help="Print the plan, and change nothing."),
        click.option(
            "--timeout", "timeout_s", type=parse_duration, metavar="DURATION",
            help="With --wait: how long to wait, such as 90s or 2h.  [default: no limit]",
        ),
        click.option("--wait", "is_waiting", is_flag=True, help="Wait until the addresses in use are released."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.group()
def pool() -> None:
    """Empty a pool, or replace it by one of another size."""


@pool.command("drain", short_help="Empty a pool and disable it.")
@click.argument("name", metavar="NAME")
@_run_options
@click.option("--delete", "is_deleted", is_flag=True, help="Delete the pool when it is empty.")
@click.option("--undo", "is_undone", is_flag=True, help="Enable the pool again, unless it was disabled before.")
@click.option("-s", "--skip-not-exists", "may_be_gone", is_flag=True, help="A pool that does not exist is success.")
@click.pass_context
def drain_pool(
    context: click.Context,
    *,
    name: str,
    is_deleted: bool,
    is_undone: bool,
    may_be_gone: bool,
    **run: Unpack[_RunOptions],
) -> int:
    """Disable the pool NAME and release its unused blocks, until no address of it is in use; then it is empty.

    No address is taken from a workload: the pool waits until its workloads are gone. The command may be run again at
    any time, and goes on where the last run ended. The pool stays, disabled, unless --delete is given. The exit status
    is 0 if it is empty, with --delete if it is deleted, 3 if it waits for workloads, 1 if it is refused or fails.
    """
    _require_timeout_with_wait(run)
    outcome = DrainedPool.DELETED if is_deleted else DrainedPool.KEPT
    if is_undone and (is_deleted or run["is_waiting"] or run["is_dry_run"] or may_be_gone or run["output"] != "text"):
        raise click.UsageError("--undo is used alone.")
    session = session_of(context)
    with session.open_datastore() as store:
        drainer = _drainer(session, store)
        if is_undone:
            return _undo(drainer, name)
        report = _report(name, run, outcome)
        try:
            view, warnings = plan_drain(drainer, name)
        except ResourceMissing as error:
            if not may_be_gone:
                raise
            report.gone(str(error))
            return 0
        for warning in warnings:
            report.warn(warning)
        if run["is_dry_run"]:
            return _print_plan(view, None, run, outcome)
        return _run(drainer, view, report, _until(session, run))


@pool.command("resize", short_help="Replace a pool by one with another CIDR or block size.")
@click.argument("name", metavar="NAME")
@click.option("--successor", required=True, metavar="NAME", help="The name of the pool that takes its place.")
@click.option("--cidr", type=parse_cidr, metavar="CIDR", help="Its CIDR, apart from those of all pools.")
@click.option("--block-size", "block_length", type=int, metavar="N", help="Its block size.")
@_run_options
@click.pass_context
def resize_pool(
    context: click.Context,
    *,
    name: str,
    successor: str,
    cidr: Prefix | None,
    block_length: int | None,
    **run: Unpack[_RunOptions],
) -> int:
    """Create a pool with the settings of the pool NAME and another CIDR or block size, and drain the pool NAME.

    Neither can be changed in a stored pool, and pools must not overlap. So another block size needs another CIDR too.
    The command may be run again with the same options, and goes on where the last run ended. The exit status is that
    of pool drain.
    """
    _require_timeout_with_wait(run)
    if cidr is None and block_length is None:
        raise click.UsageError("Give --cidr, --block-size, or both.")
    session = session_of(context)
    wanted = WantedSize(successor=successor, prefix=cidr, block_length=block_length)
    with session.open_datastore() as store:
        drainer, report = _drainer(session, store), _report(name, run)
        plan = plan_resize(drainer, name, wanted)
        if plan.old is None:
            report.gone(f"{ippool_key(name)} is gone already, and {plan.successor.key} has taken its place")
            return 0
        view, _warnings = plan_drain(drainer, name)  # the successor takes its place
        if run["is_dry_run"]:
            return _print_plan(view, plan, run)
        _create(drainer, session, report, plan, wanted)
        return _run(drainer, view, report, _until(session, run))


def _create(drainer: Drainer, session: Session, report: DrainReport, plan: ResizePlan, wanted: WantedSize) -> None:
    while not plan.is_created:
        try:
            warnings = create_successor(drainer, plan, new_uid=session.new_uid).warnings
        except ResourceExists:  # perhaps another run of the same resize was faster; any other pool is refused here
            plan = plan_resize(drainer, report.name, wanted)
            continue
        for warning in warnings:
            report.warn(warning)
        report.created(plan.successor.metadata.name, str(plan.successor.spec.prefix))
        return


def _run(drainer: Drainer, view: DrainView, report: DrainReport, until: Deadline | None) -> int:
    try:
        for progress in drain(drainer, view.pool, until, report.outcome):
            report.show(progress)
    except BaseException:
        report.close()
        raise
    return report.end()


def _undo(drainer: Drainer, name: str) -> int:
    if cancel_drain(drainer, name):
        click.echo(f"{ippool_key(name)} is not drained any more")
    else:
        print_error(f"{ippool_key(name)} is not being drained; nothing is changed")
    return 0


def _print_plan(
    view: DrainView, plan: ResizePlan | None, run: _RunOptions, outcome: DrainedPool = DrainedPool.DELETED
) -> int:
    if run["output"] == "json":
        click.echo(format_json(plan_document(view, plan)))
    else:
        for line in plan_lines(view, plan, outcome):
            click.echo(line)
    return 0


def _drainer(session: Session, store: Datastore) -> Drainer:
    return Drainer(store=store, clock=session.clock, pace=session.pace)


def _report(name: str, run: _RunOptions, outcome: DrainedPool = DrainedPool.DELETED) -> DrainReport:
    return DrainReport(pool=str(ippool_key(name)), name=name, is_json=run["output"] == "json", outcome=outcome)


def _until(session: Session, run: _RunOptions) -> Deadline | None:
    return Deadline.after(session.clock, run["timeout_s"] or _NO_LIMIT_S) if run["is_waiting"] else None


def _require_timeout_with_wait(run: _RunOptions) -> None:
    if run["timeout_s"] is not None and not run["is_waiting"]:
        raise click.UsageError("--timeout is for --wait.")
