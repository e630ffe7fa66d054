"""``ipam import-host-local``: gives the addresses that host-local holds on this node to netplug-ipam."""

from __future__ import annotations

import os

import click

from netplug_cli.ctl.session import session_of
from netplug_cli.formatting import escape_unprintable, print_error
from netplug_core.flows.ipam.host_local_import import ImportReport, ImportRequest, import_host_local
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.hostlocal.settings import DEFAULT_DATA_FOLDER

__all__ = ["ipam_import_host_local"]

_NODE_VARIABLE = "KUBERNETES_NODE_NAME"
_LOOK_AGAIN_S = 5.0


@click.command("import-host-local", short_help="Give the addresses that host-local holds on this node to netplug-ipam.")
@click.option("--node", default="", metavar="NAME", help=f"This node's name.  [default: {_NODE_VARIABLE}]")
@click.option(
    "--network", default="k8s-pod-network", show_default=True, metavar="NAME", help="The network: a folder of files."
)
@click.option(
    "--data-dir", default=DEFAULT_DATA_FOLDER, show_default=True, metavar="DIR", help="The folder of all networks."
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Say what would be done, and change nothing.")
@click.pass_context
def ipam_import_host_local(context: click.Context, *, node: str, network: str, data_dir: str, is_dry_run: bool) -> int:
    """Assign the addresses that host-local holds on this node to their pods, and remove its files.

    The plugin's configuration names netplug-ipam already, and the pools of the addresses have the assignmentMode
    Manual, until it was run on every node. An address is the pod's that shows it. A file of a container without a pod
    is removed; while it is younger than a minute, the pod may come to show the address, so it is looked at again.
    Only with the datastore kubernetes. The exit status is 1 if an address could not be imported; run it again.
    """
    session = session_of(context, is_dry_run=is_dry_run)
    name = node or session.environ.get(_NODE_VARIABLE, "")
    if not name:
        raise click.UsageError(f"Give --node NAME, or set {_NODE_VARIABLE}.")
    request = ImportRequest(node=name, network=network, keeps_files=is_dry_run)
    folder = session.open_host_local_folder(os.path.join(data_dir, network))
    if not folder.read().files:
        click.echo(f"host-local holds no address of {network} on this node")
        return 0
    with session.open_datastore() as store:
        ipam = BlockIPAM(datastore=store, clock=session.clock, chance=session.chance)
        while True:
            report = import_host_local(ipam, folder, request, new_pace=session.pace)
            _print_report(report, is_dry_run=is_dry_run)
            if report.refused or is_dry_run or not (report.plan.young or report.plan.imported or report.plan.gone):
                return 1 if report.refused else 0
            session.clock.sleep(_LOOK_AGAIN_S)


def _print_report(report: ImportReport, *, is_dry_run: bool) -> None:
    would = "would be " if is_dry_run else ""
    for attachment in report.imported:
        for address in attachment.addresses:
            click.echo(f"{address}: {would}assigned to the pod {attachment.pod}")
    for one in report.plan.gone:
        click.echo(f"{one.address}: no pod has it; its file {'would be' if is_dry_run else 'is'} removed")
    for one in report.plan.young:
        click.echo(f"{one.address}: no pod has it yet")
    for one in report.plan.elsewhere:
        print_error(f"{one.address}: a pod of another node has it; its file stays")
    for one in report.plan.unnamed:
        print_error(f"{one.address}: its file names no container and stays; an IPReservation keeps the address")
    for attachment, error in report.refused:
        addresses = ", ".join(map(str, attachment.addresses))
        print_error(escape_unprintable(f"{addresses} of the pod {attachment.pod} stays: {error}"))
