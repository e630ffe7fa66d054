"""``netplugctl install status``: whether netplug works in a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
from attrs import evolve

from netplug_cli.ctl.commands.found_cluster import explained, read_pools
from netplug_cli.ctl.documents import render_json, render_yaml
from netplug_cli.ctl.session import session_of
from netplug_cli.formatting import format_columns, print_error
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.installation.cluster_status import Check, Condition, PoolsFound, Status, judge
from netplug_core.operator.lease import TRUSTED_S, is_recent
from netplug_core.settings.model import ETCD_DATASTORE

if TYPE_CHECKING:
    from netplug_cli.ctl.session import Session
    from netplug_core.installation.cluster import Cluster, ClusterState, OperatorState

__all__ = ["await_rollout", "status"]

_STATUSES = {Condition.AVAILABLE: 0, Condition.LIMITED: 0, Condition.PROGRESSING: 6, Condition.DEGRADED: 7}
_POLL_S = 1.0


@click.command()
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@click.pass_context
def status(context: click.Context, output: str) -> int:
    """Show whether netplug works in the cluster of the kubeconfig, and what to do if not.

    The exit status is 0 if everything does, or is limited by what this release can do; 6 if it is on its way, and 7 if
    something has to be done.
    """
    session = session_of(context)
    with session.for_cluster().open_cluster() as cluster, explained():
        found = _read_status(session, cluster)
    if output == "table":
        rows = ((check.name, check.condition.value, check.detail) for check in found.checks)
        for line in format_columns(("WHAT", "CONDITION", "DETAIL"), rows):
            click.echo(line)
    else:
        document = {"condition": found.condition.value, "checks": list(map(_document_of, found.checks))}
        click.echo(render_json(document) if output == "json" else render_yaml(document), nl=False)
    return _STATUSES[found.condition]


def await_rollout(session: Session, cluster: Cluster, deadline: Deadline) -> bool:
    """Wait until everything is available; print what is not when the deadline has passed."""
    while True:
        found = _read_status(session, cluster)
        if _STATUSES[found.condition] == 0:
            click.echo("netplug works on every node")
            return True
        if deadline.has_passed:
            for check in found.checks:
                if _STATUSES[check.condition] != 0:
                    print_error(f"{check.name}: {check.condition.value}: {check.detail}")
            return False
        session.clock.sleep(min(_POLL_S, deadline.remaining_s))


def _read_status(session: Session, cluster: Cluster) -> Status:
    state = cluster.read_state(deadline=session.deadline())
    if state.operator.holder:
        state = evolve(state, operator=_watch_lease(session, cluster, state.operator))
    return judge(state, _find_pools(session, state))


def _watch_lease(session: Session, cluster: Cluster, first: OperatorState) -> OperatorState:
    """Whether the Lease is renewed. The clocks of machines differ: one that looks old counts as old if it stays so."""
    if is_recent(first.renewed, session.clock.now_ns()):
        return first
    deadline, found = Deadline.after(session.clock, TRUSTED_S), first
    while not deadline.has_passed:
        session.clock.sleep(min(_POLL_S, deadline.remaining_s))
        found = cluster.read_operator(deadline=session.deadline())
        if (found.holder, found.renewed) != (first.holder, first.renewed):
            return found
    return evolve(found, is_renewed=False)


def _find_pools(session: Session, state: ClusterState) -> PoolsFound:
    """The pools that the DaemonSet's pods use: in the API server, or in the etcd that the tool's own settings name."""
    has_etcd = any(one.datastore == ETCD_DATASTORE for one in state.daemonsets)
    if not has_etcd and not state.crd_mode:
        return PoolsFound()
    try:
        if has_etcd and session.settings().type != ETCD_DATASTORE:
            raise ConfigurationError("DATASTORE_TYPE", session.settings().type, "the pools are in etcd; name it")
        found = read_pools(session if has_etcd else session.for_cluster())
        return PoolsFound(pools=tuple(record.value for record in found))
    except NetplugError as error:
        return PoolsFound(failure=str(error))


def _document_of(check: Check) -> Mapping[str, str]:
    return {"name": check.name, "condition": check.condition.value, "detail": check.detail}
