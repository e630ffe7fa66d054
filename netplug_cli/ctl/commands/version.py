"""``version``: which release this tool is, and which the cluster runs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click
from attrs import frozen

from netplug_cli.formatting import parse_duration, print_error
from netplug_core import __version__
from netplug_core.errors import ConfigurationError, NetplugError

if TYPE_CHECKING:
    from netplug_cli.ctl.session import Session

__all__ = ["version"]

_UNKNOWN = "unknown"
_TEXT = "text"
_FORMATS = (_TEXT, "json", "yaml", "csv")
_CLIENT = f"Client Version: v{__version__}"


@click.command()
@click.option("--client", "is_client_only", is_flag=True, help="Do not ask the datastore.")
@click.option(
    "--poll", "interval_s", type=parse_duration, metavar="DURATION",
    help="Ask again after each DURATION, such as 5s, and print every change, until Ctrl-C.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Choice(_FORMATS), default=_TEXT, show_default=True, help="The format.")
@click.pass_context
def version(context: click.Context, *, is_client_only: bool, interval_s: int | None, output: str) -> int:
    """Show the versions of this tool and of the cluster."""
    if is_client_only and interval_s:
        raise click.UsageError("--poll asks the datastore; leave out --client.")
    if interval_s is not None and output != _TEXT:
        raise click.UsageError("--poll prints text only; leave out -o.")
    if output != _TEXT:
        _print_versions(None if is_client_only else _ask(_session(context)), output)
        return 0
    click.echo(_CLIENT)
    if is_client_only:
        return 0
    session = _session(context)
    if interval_s is None:
        click.echo(_lines(_ask(session)))
        return 0
    # An interruption is the usual end, so it is no failure.
    with suppress(KeyboardInterrupt):
        _poll(session, interval_s)
    return 0


def _session(context: click.Context) -> Session:
    """The session, whose module imports every kind: with ``--client`` that takes longer than all else."""
    from netplug_cli.ctl.session import session_of

    return session_of(context)


@frozen
class _Cluster:
    """The version of a cluster, empty if it is not known, and its type."""

    version: str
    type: str


def _print_versions(cluster: _Cluster | None, output: str) -> None:
    """Print the versions in a format for programs."""
    # Only here: the module of the tables imports every kind, which takes longer than all else that this command does.
    from netplug_cli.ctl.tables import Column, Report, print_report, text_cell

    rows = [("client", f"v{__version__}", "")]
    if cluster is not None:
        rows.append(("cluster", cluster.version, cluster.type))
    columns = tuple(Column(name.upper(), name) for name in ("component", "version", "type"))
    print_report(Report(columns, tuple(tuple(map(text_cell, row)) for row in rows), name="versions"), output)


def _lines(cluster: _Cluster) -> str:
    return f"Cluster Version: {cluster.version or _UNKNOWN}\nCluster Type: {cluster.type}"


def _ask(session: Session) -> _Cluster:
    """The cluster. The datastore is opened anew, so that new credentials are read.

    A cluster of which no component has recorded a type is shown with that of its datastore.
    """
    from netplug_core.flows.resources.cluster import cluster_type_on, find_cluster_information

    with session.open_datastore_of_any_release() as store:
        cluster = find_cluster_information(store, deadline=session.deadline())
        kind = cluster_type_on(store, cluster.cluster_type) or store.description.name
    return _Cluster(cluster.version, kind)


def _poll(session: Session, interval_s: int) -> None:
    """Print what the datastore answers, again whenever that changes, and when it stops and begins to answer.

    Raises:
        ConfigurationError: the first question cannot be asked.
    """
    answer: str | None = None  # the last one that was printed; empty after an error, so that the next one is printed
    while True:
        try:
            found = _lines(_ask(session))
        except NetplugError as error:
            if answer is None and isinstance(error, ConfigurationError):
                raise
            if answer != "":
                print_error(f"{error}; asking again every {interval_s} s")
            answer = ""
        else:
            if found != answer:
                click.echo(found)
            answer = found
        session.clock.sleep(interval_s)
