"""``version``: which release this tool is, and which the cluster runs."""

from __future__ import annotations

import click

from netplug_cli.ctl.session import session_of
from netplug_core import __version__
from netplug_core.flows.resources.cluster import find_cluster_information

__all__ = ["version"]

_UNKNOWN = "unknown"


@click.command()
@click.option("--client", "is_client_only", is_flag=True, help="Do not ask the datastore.")
@click.pass_context
def version(context: click.Context, *, is_client_only: bool) -> int:
    """Show the versions of this tool and of the cluster."""
    click.echo(f"Client Version: v{__version__}")
    if is_client_only:
        return 0
    session = session_of(context)
    with session.open_datastore_of_any_release() as store:
        cluster = find_cluster_information(store, deadline=session.deadline())
    click.echo(f"Cluster Version: {cluster.version or _UNKNOWN}")
    click.echo(f"Cluster Type: {cluster.cluster_type or _UNKNOWN}")
    return 0
