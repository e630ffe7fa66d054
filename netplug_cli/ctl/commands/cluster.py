"""``cluster`` and ``controllers``: how the cluster is, and what its controllers do."""

from __future__ import annotations

from collections.abc import Iterator

import click

from netplug_cli.ctl.session import session_of
from netplug_cli.ctl.tables import REPORT_OUTPUT, Cell, Column, Report, pool_report, print_report, text_cell
from netplug_cli.formatting import escape_unprintable, format_columns
from netplug_core.flows.resources.overview import (
    ClusterOverview,
    ControllersOverview,
    read_cluster_overview,
    read_controllers,
)
from netplug_core.installation.controllers import CONTROLLERS_NAME

__all__ = ["cluster", "controllers"]


# --- controllers ------------------------------------------------------------------------------------------------------


@click.group(short_help="Show what the controllers of the cluster do.")
def controllers() -> None:
    """Show what the controllers of the cluster do. They keep its records in order."""


@controllers.command(name="status", short_help="Show which controllers run, and with which settings.")
@REPORT_OUTPUT
@click.pass_context
def controllers_status(context: click.Context, *, output: str) -> int:
    """Show which controllers run, and with which settings. They are what the controllers have stored themselves.

    Also which process acts, where the datastore shows it. The exit status is 1 if none does, or none ever has.
    """
    session = session_of(context)
    with session.open_datastore() as store:
        found = read_controllers(store, CONTROLLERS_NAME, clock=session.clock, deadline=session.deadline())
    print_report(_controllers_report(found), output)
    return 0 if found.has_run and found.is_acting is not False else 1


_CONTROLLER_COLUMNS = (
    Column("CONTROLLER", "name"),
    Column("STATE", "state"),
    Column("COMPARES EVERY", "reconcilerPeriod"),
)


def _controllers_report(found: ControllersOverview) -> Report:
    on = "stopped" if found.is_acting is False else "running" if found.is_acting else "on"
    rows = tuple(
        (
            text_cell(each.name),
            text_cell(on if each.is_running else "off"),
            Cell(each.period, each.period or "-"),
        )
        for each in found.controllers
    )
    facts = {
        "hasRun": found.has_run,
        "acting": found.is_acting,
        "holder": "" if found.lease is None else found.lease.holder,
        "environment": dict(found.environment),
        "automaticHostEndpoints": found.has_automatic_endpoints,
    }
    lines = list(map(escape_unprintable, _controllers_lines(found)))
    if rows:
        headers = tuple(column.header for column in _CONTROLLER_COLUMNS)
        lines += format_columns(headers, [tuple(cell.text for cell in row) for row in rows])
    return Report(_CONTROLLER_COLUMNS, rows, name="controllers", facts=facts, shown=tuple(lines))


def _controllers_lines(found: ControllersOverview) -> Iterator[str]:
    if not found.has_run:
        yield "No controllers have run yet."
        return
    if found.lease is None:
        yield "Acting:   not known: the datastore does not show the lease of the controllers"
    elif found.is_acting:
        yield f"Acting:   {found.lease.holder}, renewed {found.lease.renewed}"
    else:
        yield f"Acting:   none; the last one was {found.lease.holder or '-'}, renewed {found.lease.renewed or 'never'}"
    for name, text in found.environment:
        yield f"Variable: {name}={text}"


# --- the cluster ------------------------------------------------------------------------------------------------------


@click.group(short_help="Show how the cluster is, on one screen.")
def cluster() -> None:
    """Show how the cluster is."""


@cluster.command(name="status", short_help="Show nodes, pools, controllers and what is wrong.")
@REPORT_OUTPUT
@click.pass_context
def cluster_status(context: click.Context, *, output: str) -> int:
    """Show release, nodes, controllers and how full the pools are, and what is wrong, on one screen.

    The addresses are checked as by ipam check, which names each problem. The exit status is 1 if something is wrong.
    """
    session = session_of(context)
    with session.open_datastore() as store:
        found = read_cluster_overview(store, CONTROLLERS_NAME, clock=session.clock, deadline=session.deadline())
    print_report(_cluster_report(found), output)
    return 1 if found.wrong else 0


def _cluster_report(found: ClusterOverview) -> Report:
    """The pools are the rows."""
    pools = pool_report(found.pools)
    running = found.controllers.running
    facts = {
        "version": found.information.version,
        "clusterType": found.information.cluster_type,
        "datastore": found.datastore,
        "locked": found.is_locked,
        "nodes": [node.metadata.name for node in found.nodes],
        "notReady": [*found.not_ready],
        "releases": {release: [*nodes] for release, nodes in found.releases},
        "controllers": [*running],
        "problems": found.problems,
        "repairable": found.repairable,
        "wrong": [*found.wrong],
    }
    heads = (
        ("Release", found.information.version or "unknown"),
        ("Type", found.information.cluster_type or "unknown"),
        ("Datastore", f"{found.datastore}{', locked' if found.is_locked else ''}"),
        ("Nodes", f"{len(found.nodes)}, of them {len(found.not_ready)} not ready"),
        ("They run", ", ".join(f"{each or 'not recorded'}: {len(nodes)}" for each, nodes in found.releases) or "-"),
        ("Controllers", f"{', '.join(running) or 'none'}{', stopped' if found.controllers.is_acting is False else ''}"),
    )
    lines = [escape_unprintable(f"{name + ':':13}{text}") for name, text in heads]
    wrong = [escape_unprintable(f"! {each}") for each in found.wrong] or ["Nothing is wrong."]
    table = ["", *pools.lines(), ""] if found.pools else [""]
    return Report(pools.columns, pools.rows, name="pools", facts=facts, shown=(*lines, *table, *wrong))
