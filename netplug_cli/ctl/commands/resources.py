"""The verbs that change whole resources or check files; ``edits`` has those that change a part of one resource."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypedDict, Unpack

import click
from attrs import define, field

from netplug_cli.ctl.arguments import key_of_document, parse_keys
from netplug_cli.ctl.commands.options import DRY_RUN, FILES, FORCE, NAMESPACE, RESOURCES
from netplug_cli.ctl.documents import require_manifests
from netplug_cli.ctl.report import ChangeReport, Verb
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.formatting import print_error
from netplug_core.addressing import PrefixIndex
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import Unavailable
from netplug_core.flows.resources.apply import apply as apply_resource
from netplug_core.flows.resources.cluster import ensure_initialized
from netplug_core.flows.resources.create import create as create_resource
from netplug_core.flows.resources.damaged import Risk
from netplug_core.flows.resources.delete import delete as delete_resource
from netplug_core.flows.resources.outcome import Effect, Outcome
from netplug_core.flows.resources.pools import PoolNeighbours
from netplug_core.flows.resources.replace import replace as replace_resource
from netplug_core.flows.resources.validate import validate as validate_resource
from netplug_core.installation.pool_defaults import find_service_overlaps
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.kinds import kind_of
from netplug_core.resources.manifest import Manifest

__all__ = ["apply", "create", "delete", "replace", "validate"]


class _DeleteOptions(TypedDict):
    """The options of ``delete`` as click hands them over."""

    files: tuple[str, ...]
    namespace: str
    is_forced: bool
    is_dry_run: bool


@click.command()
@FILES
@DRY_RUN
@click.pass_context
def create(context: click.Context, files: tuple[str, ...], *, is_dry_run: bool) -> int:
    """Create the resources of some files, each in turn."""
    session = session_of(context, is_dry_run=is_dry_run)

    def operation(store: Datastore, manifest: Manifest, run: PoolNeighbours) -> Outcome:
        return create_resource(store, manifest, pace=session.pace(), new_uid=session.new_uid, run=run)

    return _run_on_files(session, Verb.CREATE, files, operation)


@click.command()
@FILES
@DRY_RUN
@click.pass_context
def apply(context: click.Context, files: tuple[str, ...], *, is_dry_run: bool) -> int:
    """Create the resources of some files, or change the labels, annotations and specs of stored ones."""
    session = session_of(context, is_dry_run=is_dry_run)

    def operation(store: Datastore, manifest: Manifest, run: PoolNeighbours) -> Outcome:
        return apply_resource(store, manifest, pace=session.pace(), new_uid=session.new_uid, run=run)

    return _run_on_files(session, Verb.APPLY, files, operation)


@click.command()
@FILES
@DRY_RUN
@click.pass_context
def replace(context: click.Context, files: tuple[str, ...], *, is_dry_run: bool) -> int:
    """Change the labels, annotations and specs of stored resources to those of some files; create none."""
    session = session_of(context, is_dry_run=is_dry_run)

    def operation(store: Datastore, manifest: Manifest, run: PoolNeighbours) -> Outcome:
        return replace_resource(store, manifest, pace=session.pace(), new_uid=session.new_uid, run=run)

    return _run_on_files(session, Verb.REPLACE, files, operation)


@click.command()
@RESOURCES
@FILES
@NAMESPACE
@FORCE
@DRY_RUN
@click.pass_context
def delete(context: click.Context, words: tuple[str, ...], **options: Unpack[_DeleteOptions]) -> int:
    """Delete resources: those of a KIND with some NAMEs, or those of some files.

    KIND/NAME names one too, as get -o name prints it. Several of these may be of different kinds.

    A damaged resource of any kind can be deleted by its name. With --force also a damaged pool that may hold addresses.
    """
    files = options["files"]
    keys = parse_keys(words, "delete", options["namespace"]) if words else ()
    if bool(keys) == bool(files) or (words and files):
        raise click.UsageError("Give either a KIND and at least one NAME, or files.")
    session = session_of(context, is_dry_run=options["is_dry_run"])
    risk = Risk.ACCEPTED if options["is_forced"] else Risk.REFUSED

    def operation(store: Datastore, manifest: Manifest, _run: PoolNeighbours) -> Outcome:
        key = key_of_document(manifest.resource, options["namespace"])
        return delete_resource(store, key, revision=manifest.revision, risk=risk, pace=session.pace())

    if files:
        return _run_on_files(session, Verb.DELETE, files, operation)
    report = ChangeReport(Verb.DELETE, session.is_dry_run)
    with session.open_datastore() as store:
        for key in keys:
            with report.collect_errors(key.kind.name):
                report.add_success(delete_resource(store, key, risk=risk, pace=session.pace()))
    return report.print_summary()


@click.command()
@FILES
@click.option("--skip-empty", "may_be_empty", is_flag=True, help="Accept files without resources.")
def validate(files: tuple[str, ...], *, may_be_empty: bool) -> int:
    """Check the resources of some files, together, against every rule that needs no datastore."""
    if not files:
        raise click.UsageError("Give at least one file: -f FILE.")
    manifests = require_manifests(files, may_be_empty=may_be_empty)
    if not manifests:
        click.echo("No resources specified")
        return 0
    report = ChangeReport(Verb.VALIDATE)
    earlier = PrefixIndex[IPPool]()
    for manifest in manifests:
        with report.collect_errors(kind_of(manifest.resource).name, manifest.source):
            report.add_success(validate_resource(manifest, earlier))
    return report.print_summary()


def _run_on_files(
    session: Session,
    verb: Verb,
    files: Sequence[str],
    operation: Callable[[Datastore, Manifest, PoolNeighbours], Outcome],
) -> int:
    if not files:
        raise click.UsageError("Give at least one file: -f FILE.")
    manifests = require_manifests(files)
    report = ChangeReport(verb, session.is_dry_run)
    makes_file = verb in (Verb.CREATE, Verb.APPLY)
    with (session.for_creation() if makes_file else session).open_datastore() as store:
        if makes_file:
            ensure_initialized(store, pace=session.pace(), new_uid=session.new_uid)
        made = _Confirmed(session, store, report)
        for manifest in manifests:
            with report.collect_errors(kind_of(manifest.resource).name, manifest.source):
                made.add(manifest, operation(store, manifest, made.run))
        made.report_all()
    _warn_of_services(session, made.pools)
    return report.print_summary()


def _warn_of_services(session: Session, made: Sequence[IPPool]) -> None:
    """Name new pools with addresses of services. Who may not read the range of these is not warned."""
    if not made or not session.settings().is_kubernetes:
        return
    with suppress(Unavailable), session.open_cluster() as cluster:
        for warning in find_service_overlaps(made, cluster.find_service_prefixes(deadline=session.deadline())):
            print_error(f"warning: {warning}")


@define
class _Confirmed:
    """The outcomes of a run. Those of pools that another one may have been created beside wait for a look at all.

    ``pools`` are those that were created.
    """

    session: Session
    store: Datastore
    report: ChangeReport
    run: PoolNeighbours = field(factory=PoolNeighbours, init=False)
    pools: list[IPPool] = field(factory=list, init=False)
    _waiting: list[tuple[Manifest, Outcome]] = field(factory=list, init=False)

    def add(self, manifest: Manifest, outcome: Outcome) -> None:
        """Report an outcome, or let it wait with those before it."""
        self._waiting.append((manifest, outcome))
        if not self.run.has_unconfirmed or self.run.is_due(self.session.pace().clock.monotonic()):
            self.report_all()

    def report_all(self) -> None:
        """Look, and report all that wait."""
        refused = self.run.confirm(self.store, pace=self.session.pace())
        waiting, self._waiting = self._waiting, []
        for manifest, outcome in waiting:
            with self.report.collect_errors(kind_of(manifest.resource).name, manifest.source):
                if outcome.effect is Effect.CREATED and outcome.key in refused:
                    raise refused[outcome.key]
                self.report.add_success(outcome)
                if outcome.effect is Effect.CREATED and isinstance(manifest.resource, IPPool):
                    self.pools.append(manifest.resource)
