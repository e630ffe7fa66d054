"""``ipam release --from-report``: releases what the reports of ``ipam check`` call leaked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import click

from netplug_cli.ctl.allocation_reports import read_leaks
from netplug_cli.ctl.session import Session
from netplug_cli.formatting import escape_unprintable, print_error
from netplug_core import __version__
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import ContentionExhausted
from netplug_core.flows.ipam.check import settle_s
from netplug_core.flows.ipam.release_leaked import (
    HandleResult,
    LeakRelease,
    ReleasePlan,
    plan_release,
    release_handle,
    release_planned_addresses,
    require_usable,
)
from netplug_core.ipam.reporting.allocation_report import HandleRef
from netplug_core.records import Malformed

__all__ = ["release_from_reports", "say_that_it_waits"]

_TIMEOUT_S = 3600.0
_REPORT_EVERY = 10_000


def release_from_reports(session: Session, files: Sequence[str], *, is_forced: bool, is_dry_run: bool) -> int:
    """Release what every one of some reports calls leaked; the exit status."""
    reports = [read_leaks(file) for file in files]
    deadline = Deadline.after(session.clock, _TIMEOUT_S)
    with session.open_datastore() as store:
        version = f"v{__version__}"
        require_usable(store, reports, version=version, is_forced=is_forced, deadline=deadline)
        wait_s = 0.0 if is_dry_run else settle_s(store)
        plan = plan_release(store, reports, deadline=deadline, before_look=partial(_settle, session, wait_s))
        _print_kept(plan)
        is_clean = all(each.is_due for each in plan.addresses)
        if is_dry_run:
            _print_plan(plan)
        else:
            _release_addresses(session, store, plan)
            is_clean &= _release_handles(session, store, plan.handles)
    return 0 if is_clean else 1


def say_that_it_waits(wait_s: float) -> None:
    """Say on standard error why a release does not begin yet."""
    print_error(f"waiting {wait_s:g} s, until every ADD that is running has stored its endpoint")


def _settle(session: Session, wait_s: float) -> None:
    if wait_s:
        say_that_it_waits(wait_s)
        session.clock.sleep(wait_s)


def _print_kept(plan: ReleasePlan) -> None:
    """Say which addresses of the reports are not released, and why."""
    if plan.outdated:
        print_error(f"addresses that are not assigned any more as the reports say: {plan.outdated}")
    for each in plan.addresses:
        if not each.is_due:
            print_error(escape_unprintable(f"{each.ref.address} is not released: {each.use.text or 'it cools down'}"))


def _print_plan(plan: ReleasePlan) -> None:
    due = [each for each in plan.addresses if each.is_due]
    for each in due:
        click.echo(_line(each))
    for handle in plan.handles:
        click.echo(escape_unprintable(f"would release handle {handle.id}, if it is unchanged"))
    click.echo(f"Would release {len(due)} IPs and at most {len(plan.handles)} handles")


def _line(each: LeakRelease) -> str:
    handle = f"of handle {each.ref.handle}" if each.ref.handle else "without a handle"
    return escape_unprintable(f"would release {each.ref.address} {handle}: {each.use.text}")


def _release_addresses(session: Session, store: Datastore, plan: ReleasePlan) -> None:
    released = printed = 0
    try:
        for addresses in release_planned_addresses(store, plan, pace=session.pace):
            released += len(addresses)
            if released - printed >= _REPORT_EVERY:
                printed = released
                print_error(f"{released} addresses are released")
    finally:  # also if the datastore stops answering: what is released stays so
        if released:
            click.echo(f"Released {released} IPs successfully")


def _release_handles(session: Session, store: Datastore, handles: Iterable[HandleRef]) -> bool:
    """Release handles, and say how many; whether there was no error."""
    released = skipped = errors = 0
    try:
        for handle in handles:
            try:
                result = release_handle(store, handle, pace=session.pace())
            except (Malformed, ContentionExhausted) as error:
                errors += 1
                print_error(escape_unprintable(f"handle {handle.id} is not released: {error}"))
                continue
            released += result is HandleResult.RELEASED
            skipped += result is HandleResult.SKIPPED
    finally:
        click.echo(f"Released {released} handles; {skipped} skipped; {errors} errors.")
    return not errors
