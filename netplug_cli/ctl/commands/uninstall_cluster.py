"""``netplugctl uninstall cluster``: the operator removes netplug from a cluster. The chart calls it before it goes."""

from __future__ import annotations

import click

from netplug_cli.ctl.commands.found_cluster import explained
from netplug_cli.ctl.session import session_of
from netplug_core.clock import Deadline

__all__ = ["uninstall_cluster"]

_POLL_S = 0.5
_DEFAULT_WAIT_S = 300


@click.command("cluster")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.IntRange(1),
    default=_DEFAULT_WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the operator.",
)
@click.pass_context
def uninstall_cluster(context: click.Context, timeout_s: int) -> None:
    """Delete the Installation of the cluster of the kubeconfig, and wait until the operator has removed everything.

    What an Installation named overlay and the objects APIServer, FlowLogAPI and FlowLogViewer say goes with it. The
    definitions, the pools and all data stay. Repeated, it goes on.
    """
    session = session_of(context).for_cluster()
    deadline = Deadline.after(session.clock, timeout_s)
    with session.open_cluster() as cluster, explained():
        left = before = cluster.remove_installation(deadline=session.deadline())
        for name in before:
            click.echo(f"{name} is being deleted")
        while left:
            if deadline.has_passed:
                raise click.ClickException(
                    f"{', '.join(left)}: still there after {timeout_s} s; the operator removes what it has installed "
                    "first: see whether it runs, and what it logs"
                )
            session.clock.sleep(min(_POLL_S, deadline.remaining_s))
            left = cluster.remove_installation(deadline=session.deadline())
    click.echo("there is no Installation any more" if before else "there is no Installation")
