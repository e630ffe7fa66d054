"""``pool``: empties a pool, or replaces it by one of another size, while its workloads run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypedDict, Unpack

import click
from attrs import define

from netplug_cli.ctl.arguments import parse_cidr
from netplug_cli.ctl.completion import complete_pools
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.ctl.tables import Column, Report, ReportFormat, print_report, text_cell
from netplug_cli.formatting import format_columns, format_json, parse_duration, print_error, truncate
from netplug_cli.progress import estimate_left
from netplug_core.addressing import Prefix
from netplug_core.clock import Clock, Deadline, format_time
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import LATEST_COMMIT_S
from netplug_core.flows.resources.drain import (
    Drainer,
    DrainProgress,
    ResizePlan,
    WantedSize,
    cancel_drain,
    create_successor,
    drain,
    plan_drain,
    plan_resize,
)
from netplug_core.flows.resources.outcome import ResourceExists, ResourceMissing
from netplug_core.ipam.reporting.drain_plan import (
    DrainedPool,
    DrainStep,
    DrainView,
    HeldAddress,
    is_draining,
)
from netplug_core.resources.ippool import ippool_key

__all__ = [
    "EXIT_WAITING", "DrainReport", "holder_lines", "plan_lines", "plan_report", "pool",
]  # fmt: skip


# --- drain report ----------------------------------------------------------------------------------------------------


EXIT_WAITING = 3
"""The exit status of a drain that waits for workloads."""

_MAX_CELL_LENGTH = 60
_HEADERS = ("NODE", "NAMESPACE", "ADDRESSES", "HELD BY")
_ERASE_LINE = "\r\x1b[K"


@define
class DrainReport:
    """Reports the progress of one drain. On a terminal, the line about what is left to wait for is updated in place.

    ``pool`` is the pool as messages name it, ``name`` its name, ``outcome`` what becomes of it. How long the rest takes
    is estimated by how fast addresses were released since the wait began.
    """

    pool: str
    name: str
    is_json: bool
    clock: Clock
    outcome: DrainedPool = DrainedPool.DELETED
    _waiting: DrainView | None = None
    _first: tuple[float, int] = (0.0, 0)
    _problem: str = ""
    _has_open_line: bool = False

    def warn(self, text: str) -> None:
        """Report a warning."""
        if self.is_json:
            self._event("warning", message=text)
        else:
            print_error(f"warning: {text}")

    def created(self, successor: str, cidr: str) -> None:
        """Report that the successor of the pool is stored."""
        if self.is_json:
            self._event("created", successor=successor, cidr=cidr)
        else:
            click.echo(f"IPPool({successor}) created: {cidr}")

    def gone(self, text: str) -> None:
        """Report that the pool was gone before."""
        if self.is_json:
            self._event("deleted")
        else:
            print_error(text)

    def show(self, progress: DrainProgress) -> None:
        """Report a step."""
        view = progress.view
        if progress.problem is not None:
            self._show_problem(str(progress.problem))
            return
        self._problem = ""
        if view is None:
            self._waiting = None
            self._step("deleted", f"{self.pool} deleted")
        elif progress.step is DrainStep.KEEP:
            self._waiting = None
            command = f"netplugctl pool drain {self.name}"
            ways = f"{command} --delete deletes it, {command} --undo enables it again"
            self._step("empty", f"{self.pool} is empty, and disabled: {ways}")
        elif progress.step is DrainStep.DISABLE:
            cidr = view.pool.value.spec.prefix
            self._step("disabled", f"{self.pool} disabled: no new address of {cidr} is assigned", cidr=str(cidr))
        elif progress.step is DrainStep.SETTLE:
            self._settle()
        elif progress.step is DrainStep.RELEASE:
            count = view.unused_count
            self._step("released", f"{self.pool}: unused blocks released: {count}", blocks=count)
        else:
            self._wait(view)

    def end(self) -> int:
        """Report what is left to be done, if anything; the exit status."""
        self.close()
        if self._waiting is None:
            return 0
        if not self.is_json:
            again = f"run the command again to go on; netplugctl pool drain {self.name} --undo enables the pool again"
            end = "deleted" if self.outcome is DrainedPool.DELETED else "empty"
            print_error(f"{self.pool} is not {end} yet: it waits for {_left(self._waiting)}; {again}")
        return EXIT_WAITING

    def close(self) -> None:
        """End the line that is updated in place."""
        if self._has_open_line:
            click.echo(err=True)
            self._has_open_line = False

    def _settle(self) -> None:
        if self.is_json:
            self._event("settling", seconds=LATEST_COMMIT_S)
        else:
            self.close()
            print_error(f"waiting {LATEST_COMMIT_S:g} s, until every ADD that began before has ended")

    def _wait(self, view: DrainView) -> None:
        before, self._waiting = self._waiting, view
        if before is not None and _left(before) == _left(view) and before.held == view.held:
            return
        if self.is_json:
            self._event("waiting", **_waiting_members(view))
        elif before is None:
            self._first = (self.clock.monotonic(), len(view.held))
            click.echo(f"{self.pool} waits for {_left(view)}")
            for line in holder_lines(view.held):
                click.echo(line)
        elif sys.stderr.isatty():
            began_s, total = self._first
            left = estimate_left(total - len(view.held), total, self.clock.monotonic() - began_s)
            click.echo(f"{_ERASE_LINE}netplugctl: {self.pool} waits for {_left(view)}{left}", err=True, nl=False)
            self._has_open_line = True
        else:
            print_error(f"{self.pool} waits for {_left(view)}")

    def _show_problem(self, text: str) -> None:
        """Report why nothing can be done now; once, as long as it stays the same."""
        if text == self._problem:
            return
        self._problem = text
        if self.is_json:
            self._event("retrying", problem=text)
        else:
            self.close()
            print_error(f"{self.pool}: {text}; it is tried again")

    def _step(self, event: str, text: str, **members: object) -> None:
        if self.is_json:
            self._event(event, **members)
        else:
            self.close()
            click.echo(text)

    def _event(self, event: str, **members: object) -> None:
        click.echo(format_json({"event": event, "pool": self.name, **members}))


def plan_lines(
    view: DrainView, plan: ResizePlan | None = None, outcome: DrainedPool = DrainedPool.DELETED
) -> list[str]:
    """What a drain, or with ``plan`` a resize, will do."""
    pool = view.pool.value
    steps: list[str] = []
    if plan is not None:
        spec = plan.successor.spec
        done = "done: " if plan.is_created else ""
        steps.append(f"{done}create {plan.successor.key}: {spec.prefix}, blockSize {spec.block_length}")
    done = "done: " if is_draining(pool) else ""
    steps.append(f"{done}disable {pool.key}: no new address of {pool.spec.prefix} is assigned")
    if view.unused_count:
        steps.append(f"release its unused blocks: {view.unused_count}")
    if not view.is_empty:
        steps.append(f"wait for {_left(view)}")
    if outcome is DrainedPool.DELETED:
        steps.append("delete it")
    return [*(f"{number}. {step}" for number, step in enumerate(steps, 1)), *holder_lines(view.held)]


_HELD_COLUMNS = tuple(Column("", name) for name in ("address", "node", "namespace", "name", "handle"))


def plan_report(view: DrainView, plan: ResizePlan | None = None, outcome: DrainedPool = DrainedPool.DELETED) -> Report:
    """The plan of a drain or a resize; the addresses that are held are the rows."""
    rows = ((str(each.address), each.node, each.namespace, each.name, each.handle) for each in view.held)
    return Report(
        _HELD_COLUMNS,
        tuple(tuple(map(text_cell, row)) for row in rows),
        name="held",
        facts=_plan_facts(view, plan),
        shown=tuple(plan_lines(view, plan, outcome)),
    )


def _plan_facts(view: DrainView, plan: ResizePlan | None) -> dict[str, object]:
    pool = view.pool.value
    document: dict[str, object] = {"event": "plan", "pool": pool.metadata.name, "cidr": str(pool.spec.prefix)}
    if plan is not None:
        spec = plan.successor.spec
        document["successor"] = {
            "name": plan.successor.metadata.name,
            "cidr": str(spec.prefix),
            "blockSize": spec.block_length,
            "created": plan.is_created,
        }
    waiting = {name: value for name, value in _waiting_members(view).items() if name != "held"}
    return {**document, "disabled": is_draining(pool), "unusedBlocks": view.unused_count, **waiting}


def holder_lines(held: Iterable[HeldAddress]) -> list[str]:
    """The table of who holds addresses, per node and namespace; no line if none is held."""
    groups: dict[tuple[str, str], list[HeldAddress]] = {}
    for each in held:
        groups.setdefault((each.node, each.namespace), []).append(each)
    rows = (
        (node or "-", namespace or "-", str(len(group)), truncate(_names(group), _MAX_CELL_LENGTH))
        for (node, namespace), group in sorted(groups.items())
    )
    return format_columns(_HEADERS, rows) if groups else []


def _names(group: Iterable[HeldAddress]) -> str:
    return ", ".join(sorted({each.name or str(each.address) for each in group}))


def _left(view: DrainView) -> str:
    """What a drain waits for, in words."""
    words = []
    if view.held:
        words.append(f"{_count(len(view.held), 'address')} in use, in {_count(view.blocks_in_use, 'block')}")
    if view.cooling and view.cooldown_ends_ns is not None:
        until = format_time(view.cooldown_ends_ns)
        words.append(f"{_count(view.cooling, 'address')} in cooldown until {until}")
    if not words:
        words.append(f"the finalizers of its deletion: {', '.join(view.pool.value.metadata.finalizers)}")
    return " and ".join(words)


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}es" if noun.endswith("s") else f"{number} {noun}s"


def _waiting_members(view: DrainView) -> dict[str, object]:
    held = [
        {
            "address": str(each.address),
            "node": each.node,
            "namespace": each.namespace,
            "name": each.name,
            "handle": each.handle,
        }
        for each in view.held
    ]
    ends = None if view.cooldown_ends_ns is None else format_time(view.cooldown_ends_ns)
    return {
        "addresses": len(held),
        "blocks": view.blocks_in_use,
        "cooling": view.cooling,
        "cooldownEnds": ends,
        "finalizers": list(view.pool.value.metadata.finalizers),
        "held": held,
    }


# --- pool ------------------------------------------------------------------------------------------------------------


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
            "-o", "--output", type=click.Choice([each.value for each in ReportFormat]), default=ReportFormat.TEXT.value,
            show_default=True, help="json: an event in JSON on each line; yaml and csv: with --dry-run, the plan.",
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
@click.argument("name", metavar="NAME", shell_complete=complete_pools)
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
        report = _report(session, name, run, outcome)
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
@click.argument("name", metavar="NAME", shell_complete=complete_pools)
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
        drainer, report = _drainer(session, store), _report(session, name, run)
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
    report = plan_report(view, plan, outcome)
    if run["output"] == ReportFormat.JSON.value:
        click.echo(format_json(report.document()))
    else:
        print_report(report, run["output"])
    return 0


def _drainer(session: Session, store: Datastore) -> Drainer:
    return Drainer(store=store, clock=session.clock, pace=session.pace)


def _report(session: Session, name: str, run: _RunOptions, outcome: DrainedPool = DrainedPool.DELETED) -> DrainReport:
    is_json = run["output"] == "json"
    return DrainReport(pool=str(ippool_key(name)), name=name, is_json=is_json, clock=session.clock, outcome=outcome)


def _until(session: Session, run: _RunOptions) -> Deadline | None:
    return Deadline.after(session.clock, run["timeout_s"] or _NO_LIMIT_S) if run["is_waiting"] else None


def _require_timeout_with_wait(run: _RunOptions) -> None:
    if run["output"] in (ReportFormat.YAML.value, ReportFormat.CSV.value) and not run["is_dry_run"]:
        raise click.UsageError("-o yaml and csv are for --dry-run.")
    if run["timeout_s"] is not None and not run["is_waiting"]:
        raise click.UsageError("--timeout is for --wait.")
