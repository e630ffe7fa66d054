"""``datastore``: the datastore as a whole: locking it, and moving its records into another one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import click

from netplug_cli.ctl.arguments import format_key
from netplug_cli.ctl.documents import read_text
from netplug_cli.ctl.reading import count_reads
from netplug_cli.ctl.session import session_of
from netplug_cli.ctl.tables import STEP_OUTPUT, report_steps
from netplug_cli.formatting import print_error
from netplug_cli.progress import show_progress
from netplug_core import __version__
from netplug_core.clock import Deadline
from netplug_core.encoding.export import decode_export, encode_export
from netplug_core.flows.ipam.check import settle_s
from netplug_core.flows.resources.cluster import LockState, find_lock_state, lock, require_release, unlock
from netplug_core.flows.resources.migration import (
    ImportPlan,
    count_kinds,
    export_datastore,
    import_export,
    plan_import,
)
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY

__all__ = ["datastore"]

_TIMEOUT_S = 3600.0
_REPORT_EVERY = 1000
_LOCK_NAME = format_key(CLUSTER_INFORMATION_KEY)  # it has the lock

_DRY_RUN = click.option("--dry-run", "is_dry_run", is_flag=True, help="Say what would be done, and change nothing.")


@click.group()
def datastore() -> None:
    """Lock the datastore, and move its records into another one."""


@datastore.group()
def migrate() -> None:
    """Move all records of a datastore into another one: lock, export, import, unlock."""


@migrate.command("lock", short_help="Lock the datastore.")
@_DRY_RUN
@STEP_OUTPUT
@click.pass_context
def lock_datastore(context: click.Context, *, is_dry_run: bool, output: str) -> int:
    """Lock the datastore, until it is unlocked: no ADD is served, and the collector frees nothing.

    A DEL cleans its node and succeeds. It leaves a release record there, which is carried out after the unlocking.
    """
    session = session_of(context)
    with session.open_datastore() as store, report_steps(output) as steps:
        if is_dry_run:
            is_locked = find_lock_state(store, deadline=session.deadline()) is LockState.LOCKED
            text = "The datastore is locked already." if is_locked else "The datastore would be locked."
            steps.add(text, "" if is_locked else _LOCK_NAME)
            return 0
        lock(store, pace=session.pace(), new_uid=session.new_uid)
        steps.add("Datastore locked.", _LOCK_NAME)
    return 0


@migrate.command("unlock", short_help="Unlock the datastore.")
@_DRY_RUN
@STEP_OUTPUT
@click.pass_context
def unlock_datastore(context: click.Context, *, is_dry_run: bool, output: str) -> int:
    """Unlock the datastore. It is refused while an import into it is not finished."""
    session = session_of(context)
    with session.open_datastore() as store, report_steps(output) as steps:
        if is_dry_run:
            is_locked = find_lock_state(store, deadline=session.deadline()) is LockState.LOCKED
            text = "The datastore would be unlocked." if is_locked else "The datastore is not locked."
            steps.add(text, _LOCK_NAME if is_locked else "")
            return 0
        unlock(store, pace=session.pace())
        steps.add("Datastore unlocked.", _LOCK_NAME)
    return 0


@migrate.command("export", short_help="Print all records of the locked datastore.")
@_DRY_RUN
@click.pass_context
def export_records(context: click.Context, *, is_dry_run: bool) -> int:
    """Print all records of the locked datastore, one JSON document a line, for datastore migrate import.

    With --dry-run it reads and checks all of them, and prints how many there are.
    """
    session = session_of(context)
    deadline = Deadline.after(session.clock, _TIMEOUT_S)
    with session.open_datastore() as store:
        if settle_s(store):
            print_error(f"waiting {settle_s(store):g} s, until every ADD that began before the lock has ended")
        with count_reads(store, session.clock) as counted:
            export = export_datastore(
                counted, clock=session.clock, deadline=deadline, export_id=session.new_uid(), release=f"v{__version__}"
            )
    if is_dry_run:
        click.echo(f"would export {count_kinds(export.records)}")
        return 0
    for line in encode_export(export):
        click.echo(line)
    print_error(f"exported {count_kinds(export.records)}")
    return 0


@migrate.command("import", short_help="Store the records of an export in an empty datastore.")
@click.option("-f", "--filename", "file", required=True, metavar="FILE", help="The export; - is standard input.")
@_DRY_RUN
@STEP_OUTPUT
@click.pass_context
def import_records(context: click.Context, *, file: str, is_dry_run: bool, output: str) -> int:
    """Store the records of an export in a datastore without records, and leave it locked.

    The whole file is checked before anything is written. An import that was interrupted is run again with the same
    file. With --dry-run it says what would be stored.
    """
    session = session_of(context)
    export = decode_export(read_text(file).splitlines(), "standard input" if file == "-" else file)
    require_release(export.header.release, __version__)
    deadline = Deadline.after(session.clock, _TIMEOUT_S)
    with (session if is_dry_run else session.for_creation()).open_datastore() as store, report_steps(output) as steps:
        plan = plan_import(store, export, deadline=deadline)
        if plan.left_out:
            print_error(f"left out, since the datastore reads them from the cluster: {count_kinds(plan.left_out)}")
        if plan.is_done or is_dry_run:
            steps.add_all(_planned_text(plan), () if plan.is_done else _steps(plan, "would be imported"))
            return 0
        with show_progress("records", len(plan.records), session.clock) as progress:
            report = progress.update if sys.stderr.isatty() else _progress(len(plan.records))
            import_export(store, export, plan, pace=session.pace, deadline=deadline, report=report)
        line = f"imported {count_kinds(plan.records)}; the datastore is locked: datastore migrate unlock"
        steps.add_all(line, _steps(plan, "imported"))
    return 0


def _steps(plan: ImportPlan, text: str) -> Iterator[tuple[str, str]]:
    return ((format_key(record.key), text) for record in plan.records)


def _planned_text(plan: ImportPlan) -> str:
    if plan.is_done:
        return "every record of the export is stored already"
    return f"would {'go on to ' if plan.is_begun else ''}import {count_kinds(plan.records)}"


def _progress(total: int) -> Callable[[int], None]:
    """Prints every so many records how many are stored."""
    printed = 0

    def report(done: int) -> None:
        nonlocal printed
        if done - printed >= _REPORT_EVERY:
            printed = done
            print_error(f"{done} of {total} records are stored")

    return report
