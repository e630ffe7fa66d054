"""``netplugctl install`` and ``uninstall``: the executables on this host, and what a cluster's Installation says."""

from __future__ import annotations

import click

from netplug_cli.ctl.commands.install_apply import apply
from netplug_cli.ctl.commands.install_status import status
from netplug_cli.ctl.commands.installation import render, validate
from netplug_cli.ctl.commands.uninstall_cluster import uninstall_cluster
from netplug_cli.ctl.session import session_of
from netplug_core.errors import NetplugError

__all__ = ["install", "uninstall"]


_UNIT_DIR = click.option(
    "--unit-dir",
    default="/etc/systemd/system",
    show_default=True,
    metavar="DIR",
    help="Where systemd looks for the units of the node process.",
)


@click.group()
def install() -> None:
    """Put netplug onto a machine or into a cluster, and show whether it works there."""


for command in (validate, render, apply, status):
    install.add_command(command)


@install.command("host")
@click.option("--bin-dir", required=True, metavar="DIR", help="The runtime's plugin folder, such as /opt/cni/bin.")
@click.option(
    "--client",
    type=click.Choice(("static", "python")),
    help="The client of the node process: static is built with the C compiler of this host, if it was not built before."
    " Without this option: static if it was built, otherwise python.",
)
@click.option("--node", "has_node", is_flag=True, help="Install the node process too, with its systemd units.")
@_UNIT_DIR
@click.option(
    "--trust-environment", is_flag=True, help="Install from an environment that a user other than root may write."
)
@click.option(
    "--without-helpers",
    is_flag=True,
    help="Only warn of a plugin without which no pod starts, as in an image that gets it later.",
)
def install_host(
    bin_dir: str,
    client: str | None,
    unit_dir: str,
    *,
    has_node: bool,
    trust_environment: bool,
    without_helpers: bool,
) -> None:
    """Write the executables netplug and netplug-ipam into DIR, and say what else this machine lacks.

    Everything is installed, and the exit status is 1, if loopback is missing, or a plugin that a configuration list in
    /etc/cni/net.d chains with netplug.
    """
    context = click.get_current_context()
    session = session_of(context)
    try:
        if not trust_environment:
            session.require_trusted_environment()
        session.install_executables(bin_dir, client or "built", click.echo)
        if has_node:
            session.install_node(bin_dir, unit_dir, click.echo)
        for problem in session.find_host_problems(bin_dir):
            click.echo(f"warning: {problem}")
        missing = session.find_missing_plugins(bin_dir)
    except NetplugError as error:
        raise click.ClickException(str(error)) from error
    for problem in missing:
        if without_helpers:
            click.echo(f"warning: {problem}")
        else:
            click.echo(f"Error: {problem}", err=True)
    if missing and not without_helpers:
        context.exit(1)


@click.group()
def uninstall() -> None:
    """Take netplug off a machine, or out of a cluster."""


uninstall.add_command(uninstall_cluster)


@uninstall.command("host")
@click.option("--bin-dir", required=True, metavar="DIR", help="The runtime's plugin folder, such as /opt/cni/bin.")
@_UNIT_DIR
@click.pass_context
def uninstall_host(context: click.Context, bin_dir: str, unit_dir: str) -> None:
    """Remove the executables netplug and netplug-ipam from DIR, and the node process with its systemd units."""
    session = session_of(context)
    try:
        session.uninstall_executables(bin_dir, click.echo)
        session.uninstall_node(bin_dir, unit_dir, click.echo)
    except NetplugError as error:
        raise click.ClickException(str(error)) from error
