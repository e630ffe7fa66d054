"""``create``, ``apply``, ``replace``, ``delete``, ``validate`` and ``diff``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from difflib import unified_diff
from functools import partial
from typing import TypedDict, Unpack

import click
from attrs import define, field, frozen

from netplug_cli.ctl.arguments import (
    ALL,
    DRY_RUN,
    FILES,
    FORCE,
    IGNORE_NOT_FOUND,
    NAME_OUTPUT,
    NAMESPACE,
    RESOURCES,
    SELECTOR,
    Named,
    find_keys,
    selected_of,
)
from netplug_cli.ctl.documents import render_yaml, require_manifests
from netplug_cli.ctl.reports import ChangeReport, Verb, error_place
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.ctl.tables import REPORT_OUTPUT, Cell, Column, Report, print_report, text_cell
from netplug_cli.formatting import paint_diff, print_error, print_failure
from netplug_core.addressing import PrefixIndex
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.flows.resources.cluster import ensure_initialized
from netplug_core.flows.resources.delete import Risk
from netplug_core.flows.resources.delete import delete as delete_resource
from netplug_core.flows.resources.outcome import Effect, Outcome
from netplug_core.flows.resources.pools import PoolNeighbours
from netplug_core.flows.resources.write import Preview, preview
from netplug_core.flows.resources.write import apply as apply_resource
from netplug_core.flows.resources.write import create as create_resource
from netplug_core.flows.resources.write import replace as replace_resource
from netplug_core.flows.resources.write import validate as validate_resource
from netplug_core.installation.settings import find_service_overlaps
from netplug_core.resources.codec import Manifest, to_mapping
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.kinds import Resource, key_of, kind_of

__all__ = [
    "apply", "create", "delete", "diff", "replace", "validate",
]  # fmt: skip


# --- resources -------------------------------------------------------------------------------------------------------


class _DeleteOptions(TypedDict):
    """The options of ``delete`` as click hands them over."""

    files: tuple[str, ...]
    namespace: str
    is_forced: bool
    is_dry_run: bool
    is_all: bool
    is_absence_ignored: bool
    output: str | None


@click.command()
@FILES
@NAMESPACE
@DRY_RUN
@NAME_OUTPUT
@click.pass_context
def create(
    context: click.Context, files: tuple[str, ...], namespace: str, *, is_dry_run: bool, output: str | None
) -> int:
    """Create the resources of some files, each in turn."""
    session = session_of(context, is_dry_run=is_dry_run)

    def operation(store: Datastore, manifest: Manifest, run: PoolNeighbours) -> Outcome:
        return create_resource(store, manifest, pace=session.pace(), new_uid=session.new_uid, run=run)

    report = ChangeReport(Verb.CREATE, session.is_dry_run, output)
    return _run_on_files(session, report, _Files(files, namespace), operation)


@click.command()
@FILES
@NAMESPACE
@DRY_RUN
@NAME_OUTPUT
@click.pass_context
def apply(
    context: click.Context, files: tuple[str, ...], namespace: str, *, is_dry_run: bool, output: str | None
) -> int:
    """Create the resources of some files, or change the labels, annotations and specs of stored ones."""
    session = session_of(context, is_dry_run=is_dry_run)

    def operation(store: Datastore, manifest: Manifest, run: PoolNeighbours) -> Outcome:
        return apply_resource(store, manifest, pace=session.pace(), new_uid=session.new_uid, run=run)

    report = ChangeReport(Verb.APPLY, session.is_dry_run, output)
    return _run_on_files(session, report, _Files(files, namespace), operation)


@click.command()
@FILES
@NAMESPACE
@DRY_RUN
@NAME_OUTPUT
@click.pass_context
def replace(
    context: click.Context, files: tuple[str, ...], namespace: str, *, is_dry_run: bool, output: str | None
) -> int:
    """Change the labels, annotations and specs of stored resources to those of some files; create none."""
    session = session_of(context, is_dry_run=is_dry_run)

    def operation(store: Datastore, manifest: Manifest, run: PoolNeighbours) -> Outcome:
        return replace_resource(store, manifest, pace=session.pace(), new_uid=session.new_uid, run=run)

    report = ChangeReport(Verb.REPLACE, session.is_dry_run, output)
    return _run_on_files(session, report, _Files(files, namespace), operation)


@click.command()
@RESOURCES
@FILES
@NAMESPACE
@SELECTOR
@ALL
@FORCE
@IGNORE_NOT_FOUND
@DRY_RUN
@NAME_OUTPUT
@click.pass_context
def delete(context: click.Context, words: tuple[str, ...], **options: Unpack[_DeleteOptions]) -> int:
    """Delete resources: those of a KIND with some NAMEs, those with some labels, or those of some files.

    KIND/NAME names one too, as get -o name prints it. Several of these may be of different kinds.

    A damaged resource of any kind can be deleted by its name. With --force also a damaged pool that may hold addresses.
    """
    files, selected = options["files"], selected_of(context)
    if files and (words or selected.texts or options["is_all"]):
        raise click.UsageError("Give either a KIND and at least one NAME, or files.")
    session = session_of(context, is_dry_run=options["is_dry_run"])
    risk = Risk.ACCEPTED if options["is_forced"] else Risk.REFUSED
    report = ChangeReport(Verb.DELETE, session.is_dry_run, options["output"])
    report.is_absence_ignored = options["is_absence_ignored"]

    def operation(store: Datastore, manifest: Manifest, _run: PoolNeighbours) -> Outcome:
        return delete_resource(
            store, key_of(manifest.resource), revision=manifest.revision, risk=risk, pace=session.pace()
        )

    if files:
        return _run_on_files(session, report, _Files(files, options["namespace"]), operation)
    named = Named.of(words, "delete", options["namespace"], selected, is_all=options["is_all"])
    with session.open_datastore() as store:
        report.explain = partial(session.explain, store)
        for key in find_keys(store, named, selected, deadline=session.deadline()):
            with report.collect_errors(key.kind.name):
                report.add_success(delete_resource(store, key, risk=risk, pace=session.pace()))
    return report.print_summary()


@click.command()
@FILES
@NAMESPACE
@click.option("--skip-empty", "may_be_empty", is_flag=True, help="Accept files without resources.")
@NAME_OUTPUT
def validate(files: tuple[str, ...], namespace: str, *, may_be_empty: bool, output: str | None) -> int:
    """Check the resources of some files, together, against every rule that needs no datastore."""
    if not files:
        raise click.UsageError("Give at least one file: -f FILE.")
    manifests = [one.within(namespace) for one in require_manifests(files, may_be_empty=may_be_empty)]
    if not manifests:
        click.echo("No resources specified", err=output is not None)
        return 0
    report = ChangeReport(Verb.VALIDATE, output=output)
    earlier = PrefixIndex[IPPool]()
    for manifest in manifests:
        with report.collect_errors(kind_of(manifest.resource).name, manifest):
            report.add_success(validate_resource(manifest, earlier))
    return report.print_summary()


@frozen
class _Files:
    """The files of a command line, and the namespace of the resources in them that name none."""

    names: tuple[str, ...]
    namespace: str

    def read(self) -> list[Manifest]:
        if not self.names:
            raise click.UsageError("Give at least one file: -f FILE.")
        return [manifest.within(self.namespace) for manifest in require_manifests(self.names)]


def _run_on_files(
    session: Session,
    report: ChangeReport,
    files: _Files,
    operation: Callable[[Datastore, Manifest, PoolNeighbours], Outcome],
) -> int:
    manifests = files.read()
    makes_file = report.verb in (Verb.CREATE, Verb.APPLY)
    with (session.for_creation() if makes_file else session).open_datastore() as store:
        if makes_file:
            ensure_initialized(store, pace=session.pace(), new_uid=session.new_uid)
        report.explain = partial(session.explain, store)
        made = _Confirmed(session, store, report)
        for manifest in manifests:
            with report.collect_errors(kind_of(manifest.resource).name, manifest):
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
            with self.report.collect_errors(kind_of(manifest.resource).name, manifest):
                if outcome.effect is Effect.CREATED and outcome.key in refused:
                    raise refused[outcome.key]
                self.report.add_success(outcome)
                if outcome.effect is Effect.CREATED and isinstance(manifest.resource, IPPool):
                    self.pools.append(manifest.resource)


# --- diff ------------------------------------------------------------------------------------------------------------


_DIFFERENT, _FAILED = 1, 2


_DIFF_COLUMNS = (
    Column("KIND", "kind"), Column("NAMESPACE", "namespace"), Column("NAME", "name"), Column("CHANGE", "change"),
    Column("SOURCE", "source"), Column("DIFF", "diff"),
)  # fmt: skip


@click.command()
@FILES
@NAMESPACE
@REPORT_OUTPUT
@click.pass_context
def diff(context: click.Context, files: tuple[str, ...], namespace: str, output: str) -> int:
    """Show what apply would change, as a unified diff of the YAML. Each document is compared with what is stored now.

    The exit status is 0 if nothing would change, 1 if something would, and 2 after an error.
    """
    if not files:
        raise click.UsageError("Give at least one file: -f FILE.")
    try:
        return _diff(session_of(context), _Files(files, namespace), output)
    except NetplugError as error:
        print_failure(str(error))
        return _FAILED


def _diff(session: Session, files: _Files, output: str) -> int:
    manifests = files.read()
    status, neighbours = 0, PoolNeighbours()
    rows, lines = list[tuple[Cell, ...]](), list[str]()
    with session.open_datastore() as store:
        for manifest in manifests:
            try:
                found = preview(store, manifest, pace=session.pace(), run=neighbours)
            except NetplugError as error:
                print_failure(f"{error_place(manifest, error)}: {error}")
                status = _FAILED
                continue
            changed = tuple(_diff_lines(found, manifest.source))
            if changed:
                status = max(status, _DIFFERENT)
            rows.append(_diff_row(found, manifest.source, changed))
            lines += changed
    print_report(Report(_DIFF_COLUMNS, tuple(rows), name="changes", shown=tuple(map(paint_diff, lines))), output)
    return status


def _diff_row(found: Preview, source: str, changed: Sequence[str]) -> tuple[Cell, ...]:
    change = "created" if found.before is None else "changed" if changed else "none"
    metadata, kind = found.after.metadata, kind_of(found.after).name
    texts = (kind, metadata.namespace, metadata.name, change, source, "\n".join(changed))
    return tuple(map(text_cell, texts))


def _diff_lines(found: Preview, source: str) -> Iterator[str]:
    state = "" if found.before else " (damaged)" if found.is_damaged else " (not stored)"
    return unified_diff(
        _lines(found.before), _lines(found.after), f"{found.key}{state}", f"{source} {found.key}", lineterm=""
    )


def _lines(resource: Resource | None) -> list[str]:
    return [] if resource is None else render_yaml(to_mapping(resource)).splitlines()
