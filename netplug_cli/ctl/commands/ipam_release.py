"""``ipam release``: frees addresses whose workloads are gone, and whose DEL never came."""

from __future__ import annotations

from typing import assert_never

import click
from attrs import evolve

from netplug_cli.ctl.commands.ipam_from_report import release_from_reports, say_that_it_waits
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.formatting import escape_unprintable, print_error
from netplug_core.addressing import Address
from netplug_core.clock import Deadline
from netplug_core.flows.ipam.explain import find_addresses_of_handle
from netplug_core.flows.ipam.release_held import EndpointCheck, HeldRelease, ReleaseResult, release_held

__all__ = ["ipam_release", "parse_address"]

_TIMEOUT_S = 600.0  # Kubernetes needs 90 s of it


def parse_address(text: str) -> Address:
    """The value of an option, with an error of the command line if it is no address."""
    try:
        return Address.parse(text)
    except ValueError:
        raise click.BadParameter(f"invalid IP address: {text!r}") from None


@click.command("release", short_help="Free addresses whose workloads are gone.")
@click.option(
    "--ip", "addresses", type=parse_address, multiple=True, metavar="ADDRESS", help="An address; can be repeated."
)
@click.option("--handle", metavar="HANDLE", help="Every address that this handle holds.")
@click.option(
    "--from-report", "reports", multiple=True, metavar="FILE",
    help="What this report of ipam check calls leaked; if repeated, what every one does. - is standard input.",
)  # fmt: skip
@click.option(
    "--force", "is_forced", is_flag=True,
    help="Release it though a workload endpoint has it; with --from-report: though the datastore is not locked, or the "
    "report is old.",
)  # fmt: skip
@click.option("--dry-run", "is_dry_run", is_flag=True, help="With --from-report: say what it would release.")
@click.pass_context
def ipam_release(
    context: click.Context,
    *,
    addresses: tuple[Address, ...],
    handle: str | None,
    reports: tuple[str, ...],
    is_forced: bool,
    is_dry_run: bool,
) -> int:
    """Free addresses whose workloads are gone, and whose DEL never came.

    Nothing is freed that a workload endpoint has, since the workload would share it with the next one. Without
    --force, it waits 90 seconds on Kubernetes, until every ADD that is running has stored its endpoint. The exit status
    is 1 if an address stays held, or was not assigned.

    --from-report frees what ipam check -o found to be leaked, and is still as it was. The datastore has to be locked
    (datastore migrate lock), and a report written since; --force goes on without both, and with a report of another
    release. An address that is assigned again, or that is in use by now, stays also with --force, which does not
    shorten the wait here.
    """
    if [bool(addresses), handle is not None, bool(reports)].count(True) != 1:
        raise click.UsageError("Give --ip ADDRESS, --handle HANDLE or --from-report FILE.")
    if is_dry_run and not reports:
        raise click.UsageError("--dry-run is for --from-report.")
    session = session_of(context)
    if reports:
        return release_from_reports(session, reports, is_forced=is_forced, is_dry_run=is_dry_run)
    return _release(session, addresses, handle, is_forced=is_forced)


def _release(session: Session, addresses: tuple[Address, ...], handle: str | None, *, is_forced: bool) -> int:
    """Release addresses, or those of a handle, as they are found; the exit status."""
    deadline = Deadline.after(session.clock, _TIMEOUT_S)
    check = EndpointCheck.SKIPPED if is_forced else EndpointCheck.REFUSED
    with session.open_datastore() as store:
        if handle is not None:
            held = find_addresses_of_handle(store, handle, deadline=deadline)
            addresses = held.addresses
            for problem in held.problems:
                print_error(problem)
            if not addresses:
                print_error(f"no address is held by the handle {handle}")
                return 1
        pace = evolve(session.pace(), deadline=deadline)
        done = release_held(store, addresses, check, pace=pace, before_wait=say_that_it_waits)
    for one in done:
        click.echo(_line(one), err=one.result is not ReleaseResult.RELEASED)
    return 0 if all(one.result is ReleaseResult.RELEASED for one in done) else 1


def _line(one: HeldRelease) -> str:
    match one.result:
        case ReleaseResult.RELEASED:
            return f"Successfully released IP address {one.address}"
        case ReleaseResult.NOT_ASSIGNED:
            return f"netplugctl: {one.address} is not assigned"
        case ReleaseResult.COOLING:
            return f"netplugctl: {one.address} is released already, and cooling down"
        case ReleaseResult.IN_USE:
            way = "delete the workload, or its endpoint if the workload is gone; or use --force"
            return escape_unprintable(f"netplugctl: {one.address} is not released: {one.endpoint} has it; {way}")
        case ReleaseResult.CHANGED:
            return f"netplugctl: {one.address} is not released: {one.result.value}"
        case result:
            assert_never(result)
