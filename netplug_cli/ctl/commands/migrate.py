"""``migrate``: from what people had to write to what the controllers do by themselves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypedDict, Unpack

import click
from attrs import frozen

from netplug_cli.ctl.arguments import format_key
from netplug_cli.ctl.documents import require_manifests
from netplug_cli.ctl.editor import require_free, write_private_file
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.ctl.tables import STEP_OUTPUT, StepReport, report_steps
from netplug_cli.ctl.yaml_documents import render_manifest
from netplug_cli.formatting import print_error
from netplug_cli.progress import show_progress
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import Unavailable
from netplug_core.flows.resources.automatic_endpoints import (
    Inventory,
    OnConflict,
    delete_endpoint,
    find_awaited,
    restore_endpoint,
    set_automatic,
    take_inventory,
)
from netplug_core.resources.codec import to_mapping
from netplug_core.resources.fields import Switch
from netplug_core.resources.hostendpoint import HostEndpoint

__all__ = ["migrate"]

_WAIT_S = 1.0
_DEFAULT_TIMEOUT_S = 120


@click.group(short_help="Let controllers do what people had to write.")
def migrate() -> None:
    """Let controllers do by themselves what people had to write."""


class _Options(TypedDict):
    """The options of the command as click hands them over."""

    is_dry_run: bool
    on_conflict: str
    backup: str | None
    undo_file: str | None
    timeout: int
    output: str


@migrate.command(name="auto-host-endpoints", short_help="Replace host endpoints of all interfaces by automatic ones.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option(
    "--on-conflict",
    type=click.Choice([each.value for each in OnConflict]),
    default=OnConflict.ABORT.value,
    show_default=True,
    help="What becomes of a label that the node has with another text.",
)
@click.option("--backup", metavar="FILE", help="Where the old host endpoints are written before one is deleted.")
@click.option("--undo", "undo_file", metavar="FILE", help="Restore the host endpoints of a backup; automatic ones go.")
@click.option(
    "--timeout", type=click.IntRange(1), default=_DEFAULT_TIMEOUT_S, show_default=True, metavar="SECONDS",
    help="How long it waits for the controllers.",
)  # fmt: skip
@STEP_OUTPUT
@click.pass_context
def auto_host_endpoints(context: click.Context, **options: Unpack[_Options]) -> int:
    """Replace the host endpoints that stand for all interfaces of a node by the automatic ones of the controllers.

    Their labels are copied to the nodes of Kubernetes, automatic host endpoints are enabled, and when that of a node
    is there, with its labels, the old one is deleted. So no node is without one. A run that was interrupted is run
    again. It needs the controllers, a cluster, and the right to patch nodes.

    The exit status is 1 if something is left to be done.
    """
    session, is_dry_run, backup = session_of(context), options["is_dry_run"], options["backup"]
    if options["undo_file"] is not None:
        with report_steps(options["output"]) as steps:
            return _undo(session, options["undo_file"], steps, is_dry_run=is_dry_run)
    if not is_dry_run and backup is None:
        raise click.UsageError("--backup FILE is needed: the old host endpoints are written there.")
    with session.open_datastore() as store, report_steps(options["output"]) as steps:
        found = take_inventory(store, OnConflict(options["on_conflict"]), deadline=session.deadline())
        for text in (*found.problems, *(warning for old in found.endpoints for warning in old.warnings)):
            print_error(f"warning: {text}")
        for text in found.conflicts:
            print_error(f"conflict: {text}")
        if is_dry_run or found.conflicts:
            _add_planned(steps, found)
            return 1 if found.conflicts or found.problems else 0
        if not found.endpoints:
            steps.add("No host endpoint is left to be replaced.")
            return 1 if found.problems else 0
        _migrate(_Run(session, store, steps), found, str(backup), options["timeout"])
    return 1 if found.problems else 0


@frozen
class _Run:
    """What a run acts through, and where it says what it does."""

    session: Session
    store: Datastore
    steps: StepReport


_CONFIGURATION = "kubecontrollersconfiguration/default"


def _add_planned(steps: StepReport, found: Inventory) -> None:
    """Report what would be done."""
    for machine, labels in found.labels.items():
        pairs = ", ".join(f"{name}={text}" for name, text in sorted(labels.items()))
        steps.add(f"would label Node {machine}: {pairs}", f"node/{machine}")
    if found.endpoints:
        place = "spec.controllers.node.hostEndpoint.autoCreate of KubeControllersConfiguration default"
        steps.add(f"would set {place}", _CONFIGURATION)
    for old in found.endpoints:
        steps.add(f"would delete {old.record.key}", format_key(old.record.key))


def _migrate(run: _Run, found: Inventory, backup: str, timeout: int) -> None:
    session, store, steps = run.session, run.store, run.steps
    is_written = _has_backup(backup, found)
    if found.labels:
        with session.for_cluster().open_cluster() as cluster:
            for machine, labels in found.labels.items():
                cluster.label_node(machine, labels, deadline=session.deadline())
                steps.add(f"Node {machine} labelled", f"node/{machine}")
    if set_automatic(store, Switch.ENABLED, deadline=session.deadline()):
        steps.add("automatic host endpoints enabled", _CONFIGURATION)
    _wait(session, timeout, lambda: find_awaited(store, found.endpoints, deadline=session.deadline()))
    if not is_written:
        text = render_manifest([to_mapping(old.record.value) for old in found.endpoints])
        write_private_file(backup, [text.encode()], is_replacing=False)
        steps.add(f"old host endpoints written to {backup}; --undo {backup} restores them")
    for old in found.endpoints:
        delete_endpoint(store, old, deadline=session.deadline())
        steps.add(f"{old.record.key} deleted", format_key(old.record.key))


def _has_backup(file: str, found: Inventory) -> bool:
    """Whether a run that was interrupted has written the file, with every endpoint that is left.

    Raises:
        InputError: it is another file.
    """
    if not os.path.exists(file):
        return False
    written = {endpoint.metadata.name: endpoint.spec for endpoint in _read_backup(file)}
    if any(written.get(old.record.key.name) != old.record.value.spec for old in found.endpoints):
        require_free(file, is_replacing=False)
    return True


def _read_backup(file: str) -> Iterator[HostEndpoint]:
    for manifest in require_manifests((file,)):
        if not isinstance(manifest.resource, HostEndpoint):
            raise InputError(file, file, "a backup has host endpoints alone")
        yield manifest.resource


def _wait(session: Session, timeout: int, find: Callable[[], tuple[str, ...]]) -> None:
    deadline, total = Deadline.after(session.clock, timeout), 0
    with show_progress("automatic host endpoints", 0, session.clock, deadline) as progress:
        while awaited := find():
            if deadline.has_passed:
                raise Unavailable("the controllers", f"{awaited[0]}; nothing is deleted; run this again")
            total = max(total, len(awaited))
            progress.update(total - len(awaited), total=total)
            session.clock.sleep(_WAIT_S)


def _undo(session: Session, file: str, steps: StepReport, *, is_dry_run: bool) -> int:
    """Restore first, so that no node is without an endpoint."""
    endpoints = tuple(_read_backup(file))
    if is_dry_run:
        for endpoint in endpoints:
            steps.add(f"would restore HostEndpoint({endpoint.metadata.name})", f"hostendpoint/{endpoint.metadata.name}")
        return 0
    with session.open_datastore() as store:
        for endpoint in endpoints:
            is_restored = restore_endpoint(store, endpoint, deadline=session.deadline())
            name = endpoint.metadata.name
            result = "restored" if is_restored else "is there"
            steps.add(f"HostEndpoint({name}) {result}", f"hostendpoint/{name}")
        if set_automatic(store, Switch.DISABLED, deadline=session.deadline()):
            steps.add("automatic host endpoints disabled", _CONFIGURATION)
    return 0
