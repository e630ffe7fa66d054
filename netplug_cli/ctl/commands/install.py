"""``netplugctl install`` and ``uninstall``: the executables on this host."""

from __future__ import annotations

import click

from netplug_cli.ctl.session import session_of
from netplug_core.errors import NetplugError

__all__ = ["install", "uninstall"]


@click.group()
def install() -> None:
    """Put netplug onto a machine."""


@install.command("host")
@click.option("--bin-dir", required=True, metavar="DIR", help="The runtime's plugin folder, such as /opt/cni/bin.")
@click.option(
    "--client",
    type=click.Choice(("static", "python")),
    help="The client of the node process: static is built with the C compiler of this host, if it was not built before."
    " Without this option: static if it was built, otherwise python.",
)
@click.option(
    "--trust-environment", is_flag=True, help="Install from an environment that a user other than root may write."
)
@click.pass_context
def install_host(context: click.Context, bin_dir: str, client: str | None, *, trust_environment: bool) -> None:
    """Write the executables netplug and netplug-ipam into DIR, and say what else this machine lacks."""
    session = session_of(context)
    try:
        if not trust_environment:
            session.require_trusted_environment()
        session.install_executables(bin_dir, client or "built", click.echo)
        for problem in session.find_host_problems(bin_dir):
            click.echo(f"warning: {problem}")
    except NetplugError as error:
        raise click.ClickException(str(error)) from error


@click.group()
def uninstall() -> None:
    """Take netplug off a machine."""


@uninstall.command("host")
@click.option("--bin-dir", required=True, metavar="DIR", help="The runtime's plugin folder, such as /opt/cni/bin.")
@click.pass_context
def uninstall_host(context: click.Context, bin_dir: str) -> None:
    """Remove the executables netplug and netplug-ipam from DIR."""
    try:
        session_of(context).uninstall_executables(bin_dir, click.echo)
    except NetplugError as error:
        raise click.ClickException(str(error)) from error
