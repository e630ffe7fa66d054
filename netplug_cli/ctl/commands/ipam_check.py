"""``ipam check``: whether the records fit together, their repair, and the report of who uses which address."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TypedDict, Unpack

import click
from attrs import frozen

from netplug_cli.ctl.documents import STDIN
from netplug_cli.ctl.reading import count_reads
from netplug_cli.ctl.reports import (
    PROGRAM_FORMATS,
    Shown,
    address_list_lines,
    address_list_report,
    report_lines,
    require_report_file,
    write_report,
)
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.ctl.tables import attempt_line, check_lines, check_report, print_report
from netplug_cli.formatting import print_error
from netplug_core import __version__
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.check import RepairAttempt, RepairResult, check_ipam, repair, restore_blocks, settle_s
from netplug_core.flows.ipam.leaks import read_addresses, read_allocation_report
from netplug_core.ipam.reporting.check import CheckReport, RestoreHandle
from netplug_core.ipam.reporting.usage import ListedAddress, UseState
from netplug_core.names import DEFAULT_NETWORK

__all__ = ["ipam_check"]

_TIMEOUT_S = 600.0


class _CheckOptions(TypedDict):
    """The options of ``ipam check`` as click hands them over."""

    is_fixed: bool
    is_restored: bool
    network: str
    is_dry_run: bool
    report_file: str
    is_replacing: bool
    shows_all: bool
    shows_problems: bool


@frozen(kw_only=True)
class _AddressRequest:
    """Which addresses to list, in which format for programs, and where to write the report; empty for none."""

    shown: Shown
    output: str
    report_file: str
    is_replacing: bool

    @classmethod
    def of(cls, options: _CheckOptions) -> _AddressRequest:
        """What the options ask for.

        Raises:
            InputError: the file cannot be written.
            click.UsageError: there is none to replace.
        """
        shown = Shown.ALL if options["shows_all"] else Shown.PROBLEMS if options["shows_problems"] else Shown.NONE
        output = options["report_file"] if options["report_file"] in PROGRAM_FORMATS else ""
        file = "" if output else options["report_file"]
        if options["is_replacing"] and not file:
            raise click.UsageError("--overwrite is for -o FILE.")
        require_report_file(file, is_replacing=options["is_replacing"])
        return cls(shown=shown, output=output, report_file=file, is_replacing=options["is_replacing"])

    @property
    def is_for_program(self) -> bool:
        """Whether standard output is that of a report or of the list, so that all else goes to standard error."""
        return bool(self.output) or self.report_file == STDIN


@click.command("check", short_help="Check whether blocks, handles and affinities fit together.")
@click.option("--fix", "is_fixed", is_flag=True, help="Repair what can be repaired without freeing an address.")
@click.option(
    "--restore",
    "is_restored",
    is_flag=True,
    help="Store lost blocks again from the addresses that workloads have, then repair as --fix does.",
)
@click.option(
    "--network",
    metavar="NAME",
    default=DEFAULT_NETWORK,
    show_default=True,
    help="With --restore: the name of the network in the configuration of the nodes.",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="With --fix: say what it would do, and change nothing.")
@click.option("--show-all-ips", "shows_all", is_flag=True, help="List each address, and who uses it.")
@click.option("--show-problem-ips", "shows_problems", is_flag=True, help="List the addresses that have a problem.")
@click.option(
    "-o", "--output-file", "report_file", metavar="FILE", default="",
    help="Write who uses each address, and what is leaked, into FILE, as JSON; - is standard output. "
    "json, yaml and csv print the problems instead, or the list of --show-all-ips and --show-problem-ips.",
)  # fmt: skip
@click.option("--overwrite", "is_replacing", is_flag=True, help="Replace a FILE that exists.")
@click.pass_context
def ipam_check(context: click.Context, **options: Unpack[_CheckOptions]) -> int:
    """Check whether blocks, handles and affinities fit together, and whether every record can be read.

    --fix repairs handles and affinities from the blocks, and deletes empty blocks without an affinity. It frees no
    address, and nodes may go on meanwhile. On Kubernetes it waits 90 seconds first, so that it takes no running ADD for
    damage. With -o it also looks for addresses that are not in use, and for handles that hold none: ipam release
    --from-report releases them. --show-all-ips and --show-problem-ips look for them too, and for addresses that
    workloads have and no block holds. The exit status is 1 if problems or leaks are left.

    --restore is for a cluster whose definitions were deleted while pods run: blocks are made from the endpoints, as
    large as those of the pool that has the address, or of the default size without one.
    """
    if options["is_restored"] and options["is_dry_run"]:
        raise click.UsageError("--dry-run is for --fix; --restore shows each block that it stores.")
    if options["is_dry_run"] and not options["is_fixed"]:
        raise click.UsageError("--dry-run is for --fix.")
    request = _AddressRequest.of(options)
    session = session_of(context)
    deadline = Deadline.after(session.clock, _TIMEOUT_S)
    echo: Callable[[str], None] = partial(click.echo, err=request.is_for_program)
    with session.open_datastore() as store:
        is_whole = not options["is_restored"] or _restore(session, store, options["network"], echo, deadline)
        with count_reads(store, session.clock) as counted:
            report = check_ipam(counted, clock=session.clock, deadline=deadline)
        if options["is_restored"]:  # the pools are made again after it
            report = report.before_pools()
        repairs = (options["is_fixed"] or options["is_restored"]) and not options["is_dry_run"]
        for line in check_lines(report, shows_repairs=not repairs):
            echo(line)
        attempts = _repair(session, store, report, echo, deadline) if repairs else ()
        left = report.repairs
        if repairs:
            undone = (one.repair for one in attempts if one.result is not RepairResult.DONE)
            left = tuple(repair for repair in undone if repair not in report.high_counts)
        if request.output and request.shown is Shown.NONE:
            print_report(check_report(report, attempts), request.output)
        is_sound = is_whole and not (left or report.unrepairable)
        if request.report_file or request.shown is not Shown.NONE:
            lost = frozenset(repair.key.name for repair in left if isinstance(repair, RestoreHandle))
            is_sound &= _report_addresses(session, store, request, lost, deadline)
    return 0 if is_sound else 1


def _report_addresses(
    session: Session,
    store: Datastore,
    request: _AddressRequest,
    lost_handles: Collection[str],
    deadline: Deadline,
) -> bool:
    """Print the list and write the report that are asked for; whether no address and no handle has a problem."""
    version, addresses = f"v{__version__}", tuple[ListedAddress, ...]()
    echo = partial(click.echo, err=request.is_for_program)
    with count_reads(store, session.clock) as counted:
        if request.shown is Shown.NONE:
            report = read_allocation_report(counted, version=version, deadline=deadline)
        else:
            report, addresses = read_addresses(counted, version=version, lost_handles=lost_handles, deadline=deadline)
    if request.report_file:
        write_report(request.report_file, report, is_replacing=request.is_replacing)
    if request.output:
        print_report(address_list_report(request.shown.of(addresses)), request.output)
    else:
        for line in address_list_lines(request.shown.of(addresses)):
            echo(line)
    for line in report_lines(report):
        echo(line)
    return not (report.of_state(UseState.LEAKED) or report.leaked_handles or Shown.PROBLEMS.of(addresses))


def _restore(session: Session, store: Datastore, network: str, echo: Callable[[str], None], deadline: Deadline) -> bool:
    """Store lost blocks again; whether every address that a workload has is held then."""
    is_whole = True
    for attempt in restore_blocks(store, network=network, chance=session.chance, deadline=deadline):
        echo(attempt_line(attempt))
        is_whole &= attempt.result is RepairResult.DONE
    return is_whole


def _repair(
    session: Session, store: Datastore, report: CheckReport, echo: Callable[[str], None], deadline: Deadline
) -> tuple[RepairAttempt, ...]:
    """Repair what a check found; what became of each repair."""
    if (report.repairs or report.high_counts) and settle_s(store):
        print_error(f"waiting {settle_s(store):g} s, so that no running ADD is taken for damage")
    attempts = list[RepairAttempt]()
    for attempt in repair(store, report, chance=session.chance, deadline=deadline):
        echo(attempt_line(attempt))
        attempts.append(attempt)
    return tuple(attempts)
