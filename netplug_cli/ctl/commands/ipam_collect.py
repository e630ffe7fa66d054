"""``ipam collect``: one tick of the garbage collector, which only looks without --apply."""

from __future__ import annotations

import click
from attrs import evolve

from netplug_cli.ctl.collect_report import collection_document, collection_lines
from netplug_cli.ctl.documents import render_json
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.ctl.simulation.options import parse_duration
from netplug_cli.formatting import escape_unprintable, format_duration, print_error
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.cluster_facts import DatastoreLookup, read_cluster
from netplug_core.flows.ipam.collect import Collector, TickMode, read_view, tick
from netplug_core.ipam.gc.model import CollectionReport, CollectorSettings, ScanHistory
from netplug_core.log import Level

__all__ = ["ipam_collect"]

_TIMEOUT_S = 600.0
_MIN_WAIT_S = 120  # longer than an ADD takes on any store


@click.command("collect", short_help="Look for what is abandoned once, as the garbage collector does.")
@click.option("--apply", "is_applied", is_flag=True, help="Free and delete it. Without it nothing is changed.")
@click.option(
    "--wait", "wait_s", type=parse_duration, metavar="DURATION",
    help="Take it as the grace period, such as 15m: look again until it has passed. At least 2m.  [default: one look]",
)  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def ipam_collect(context: click.Context, *, is_applied: bool, wait_s: int | None, output: str) -> int:
    """Look for leaked addresses, and for unused handles, affinities and blocks, and say what would be done.

    In one look, only the addresses of nodes that are gone and expired cooldowns are due. Everything else is a
    candidate: it is due when it looks abandoned for the grace period, which --wait waits for. Before an address is
    freed, its pod is looked up once more. Where the datastore shows no pods, no address is judged. Nothing is done
    while the datastore is locked. The exit status is 1 if it is, or if something could not be done.
    """
    if wait_s is not None and wait_s < _MIN_WAIT_S:
        raise click.BadParameter("a grace period of at least 2m is expected", param_hint="--wait")
    session = session_of(context)
    with session.open_datastore() as store:
        report = _collect(session, store, wait_s, TickMode.ACT if is_applied else TickMode.LOOK)
    if report.idle is not None:
        raise InputError("ipam collect", None, f"nothing is collected: {report.idle.value}")
    for problem in (*map(str, report.failures), *map(str, report.unreadable)):
        print_error(escape_unprintable(problem))
    if output == "json":
        click.echo(render_json(collection_document(report, is_applied=is_applied)), nl=False)
    else:
        for line in collection_lines(report, is_applied=is_applied):
            click.echo(line)
    return 1 if report.failures or report.unreadable else 0


def _collect(session: Session, store: Datastore, wait_s: int | None, mode: TickMode) -> CollectionReport:
    """Look once, or over the grace period about as often as the collector does; only the last look acts."""
    settings = CollectorSettings(tick_s=_TIMEOUT_S)
    history = ScanHistory()
    if wait_s is not None:
        settings = CollectorSettings(grace_s=wait_s, tick_s=_TIMEOUT_S)
        print_error(f"looking again until the grace period of {format_duration(wait_s)} has passed")
        for _half in range(2):
            history, report = _tick(session, store, settings, history, TickMode.LOOK)
            if report.idle is not None:
                return report
            session.clock.sleep(wait_s / 2)
    return _tick(session, store, settings, history, mode)[1]


def _tick(
    session: Session, store: Datastore, settings: CollectorSettings, history: ScanHistory, mode: TickMode
) -> tuple[ScanHistory, CollectionReport]:
    clock = session.clock
    deadline = Deadline.after(clock, _TIMEOUT_S)
    # Blocks before pods: a pod that comes between is taken for one that was there.
    view = read_view(store, None, now_ns=clock.now_ns(), deadline=deadline)
    view = evolve(view, cluster=read_cluster(store, deadline=deadline))
    collector = Collector(
        store=store,
        live_lookup=DatastoreLookup(store),
        clock=clock,
        chance=session.chance,
        log=_no_log,
        settings=settings,
        mode=mode,
    )
    return tick(collector, view, history)


def _no_log(_level: Level, _message: str, /, **_fields: object) -> None:
    """The report says what a log would."""
