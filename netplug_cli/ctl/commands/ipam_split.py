"""``ipam split``: replaces a pool by pools of equal parts of its range."""

from __future__ import annotations

import click

from netplug_cli.ctl.commands.options import parse_cidr
from netplug_cli.ctl.session import session_of
from netplug_cli.formatting import print_error
from netplug_core.addressing import Prefix
from netplug_core.flows.resources.split import SplitPlan, WantedSplit, plan_split, split
from netplug_core.resources.ippool import ippool_key

__all__ = ["ipam_split"]


@click.command("split", short_help="Replace a pool by pools of equal parts of its range.")
@click.argument("count", type=int, metavar="N")
@click.option("--cidr", type=parse_cidr, metavar="CIDR", help="The pool with this CIDR.")
@click.option("--name", default="", metavar="NAME", help="The pool of this name.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Say what would be done, and change nothing.")
@click.pass_context
def ipam_split(context: click.Context, *, count: int, cidr: Prefix | None, name: str, is_dry_run: bool) -> int:
    """Replace a pool by N pools, each with an equal part of its range and the same settings and labels.

    N is a power of 2. The parts of the pool NAME are called split-NAME-0, split-NAME-1 and so on. The datastore has to
    be locked (datastore migrate lock). Blocks and addresses stay as they are. A run that was interrupted is run again
    with the same options, before the datastore is unlocked.
    """
    if bool(name) is (cidr is not None):
        raise click.UsageError("Give --cidr CIDR or --name NAME.")
    session = session_of(context)
    with session.open_datastore() as store:
        plan = plan_split(store, WantedSplit(count=count, name=name, prefix=cidr), deadline=session.deadline())
        if plan.old is None:
            click.echo(f"{ippool_key(plan.name)} is split into {count} pools already")
            return 0
        if is_dry_run:
            _print_plan(plan)
            return 0
        for done in split(store, plan, pace=session.pace, new_uid=session.new_uid):
            click.echo(done)
    click.echo(f"Successfully split {ippool_key(plan.name)} into {count} pools")
    print_error(f"network configurations and annotations that name the pool {plan.name} have to name its parts")
    return 0


def _print_plan(plan: SplitPlan) -> None:
    for part in plan.parts:
        state = "is created already" if part.metadata.name in plan.created else "would be created"
        click.echo(f"{part.key} {state}: {part.spec.prefix}")
    click.echo(f"{ippool_key(plan.name)} would be deleted; its blocks would stay as they are")
