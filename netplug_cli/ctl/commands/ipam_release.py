"""``ipam release``: frees addresses whose workloads are gone, and whose DEL never came."""

from __future__ import annotations

from typing import assert_never

import click
from attrs import evolve

from netplug_cli.ctl.session import session_of
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
@click.option("--force", "is_forced", is_flag=True, help="Release it though a workload endpoint has it.")
@click.pass_context
def ipam_release(context: click.Context, *, addresses: tuple[Address, ...], handle: str | None, is_forced: bool) -> int:
    """Free addresses whose workloads are gone, and whose DEL never came.

    Nothing is freed that a workload endpoint has, since the workload would share it with the next one. Without
    --force, it waits 90 seconds on Kubernetes, until every ADD that is running has stored its endpoint. The exit status
    is 1 if an address stays held, or was not assigned.
    """
    if bool(addresses) is (handle is not None):
        raise click.UsageError("Give --ip ADDRESS, once or more often, or --handle HANDLE.")
    session = session_of(context)
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
        done = release_held(store, addresses, check, pace=pace, before_wait=_say_that_it_waits)
    for one in done:
        click.echo(_line(one), err=one.result is not ReleaseResult.RELEASED)
    return 0 if all(one.result is ReleaseResult.RELEASED for one in done) else 1


def _say_that_it_waits(seconds: float) -> None:
    print_error(f"waiting {seconds:g} s, until every ADD that is running has stored its endpoint")


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
