"""``ipam check``: whether the records fit together, their repair, and the report of who uses which address."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click

from netplug_cli.ctl.allocation_reports import report_lines, require_report_file, write_report
from netplug_cli.ctl.documents import STDIN
from netplug_cli.ctl.ipam_tables import attempt_line, check_lines
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.formatting import print_error
from netplug_core import __version__
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.allocation_report import read_allocation_report
from netplug_core.flows.ipam.check import RepairResult, check_ipam, repair, settle_s
from netplug_core.ipam.reporting.address_use import UseState
from netplug_core.ipam.reporting.check import CheckReport

__all__ = ["ipam_check"]

_TIMEOUT_S = 600.0


@click.command("check", short_help="Check whether blocks, handles and affinities fit together.")
@click.option("--fix", "is_fixed", is_flag=True, help="Repair what can be repaired without freeing an address.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="With --fix: say what it would do, and change nothing.")
@click.option(
    "-o", "--output-file", "report_file", metavar="FILE", default="",
    help="Write who uses each address, and what is leaked, into FILE, as JSON; - is standard output.",
)  # fmt: skip
@click.option("--overwrite", "is_replacing", is_flag=True, help="Replace a FILE that exists.")
@click.pass_context
def ipam_check(
    context: click.Context, *, is_fixed: bool, is_dry_run: bool, report_file: str, is_replacing: bool
) -> int:
    """Check whether blocks, handles and affinities fit together, and whether every record can be read.

    --fix repairs handles and affinities from the blocks, and deletes empty blocks without an affinity. It frees no
    address, and nodes may go on meanwhile. On Kubernetes it waits 90 seconds first, so that it takes no running ADD for
    damage. With -o it also looks for addresses that are not in use, and for handles that hold none: ipam release
    --from-report releases them. The exit status is 1 if problems or leaks are left.
    """
    if is_dry_run and not is_fixed:
        raise click.UsageError("--dry-run is for --fix.")
    if is_replacing and not report_file:
        raise click.UsageError("--overwrite is for -o.")
    require_report_file(report_file, is_replacing=is_replacing)
    session = session_of(context)
    deadline = Deadline.after(session.clock, _TIMEOUT_S)
    echo: Callable[[str], None] = partial(click.echo, err=report_file == STDIN)  # standard output is the report's
    with session.open_datastore() as store:
        report = check_ipam(store, clock=session.clock, deadline=deadline)
        for line in check_lines(report, shows_repairs=is_dry_run or not is_fixed):
            echo(line)
        is_sound = not report.problems
        if is_fixed and not is_dry_run:
            is_sound = _repair(session, store, report, echo, deadline)
        if report_file:
            leaks = read_allocation_report(store, version=f"v{__version__}", deadline=deadline)
            write_report(report_file, leaks, is_replacing=is_replacing)
            for line in report_lines(leaks):
                echo(line)
            is_sound &= not (leaks.of_state(UseState.LEAKED) or leaks.leaked_handles)
    return 0 if is_sound else 1


def _repair(
    session: Session, store: Datastore, report: CheckReport, echo: Callable[[str], None], deadline: Deadline
) -> bool:
    """Repair what a check found; whether nothing is left."""
    if report.repairs and settle_s(store):
        print_error(f"waiting {settle_s(store):g} s, so that no running ADD is taken for damage")
    is_repaired = True
    for attempt in repair(store, report, chance=session.chance, deadline=deadline):
        echo(attempt_line(attempt))
        is_repaired &= attempt.result is RepairResult.DONE
    return is_repaired and not report.unrepairable
