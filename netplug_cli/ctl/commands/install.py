"""``netplugctl install`` and ``uninstall``: the executables on this host."""

from __future__ import annotations

import click

from netplug_core.errors import NetplugError

__all__ = ["install", "uninstall"]


@click.group()
def install() -> None:
    """Put netplug onto a machine."""


@install.command("host")
@click.option("--bin-dir", required=True, metavar="DIR", help="The runtime's plugin folder, such as /opt/cni/bin.")
def install_host(bin_dir: str) -> None:
    """Write the executables netplug and netplug-ipam into DIR."""
    from netplug_cli.wiring.backends import install_executables

    try:
        install_executables(bin_dir, click.echo)
    except NetplugError as error:
        raise click.ClickException(str(error)) from error


@click.group()
def uninstall() -> None:
    """Take netplug off a machine."""


@uninstall.command("host")
@click.option("--bin-dir", required=True, metavar="DIR", help="The runtime's plugin folder, such as /opt/cni/bin.")
def uninstall_host(bin_dir: str) -> None:
    """Remove the executables netplug and netplug-ipam from DIR."""
    from netplug_cli.wiring.backends import uninstall_executables

    try:
        uninstall_executables(bin_dir, click.echo)
    except NetplugError as error:
        raise click.ClickException(str(error)) from error
