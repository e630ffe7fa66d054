"""The verbs over whole resources: command lines to values, values to flows, outcomes to lines.

``edits`` has those that change a part of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypedDict, Unpack, cast

import click
from attrs import frozen

from netplug_cli.ctl.report import ChangeReport, Verb, print_error
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.ctl.tables import Width, format_resources
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.flows.resources import changes as flows
from netplug_core.flows.resources.cluster import ensure_initialized
from netplug_core.flows.resources.outcome import Outcome
from netplug_core.names import API_VERSION
from netplug_core.records import Key, Record
from netplug_core.resources.codec import to_mapping
from netplug_core.resources.kinds import Resource, ResourceKind, ResourceScope, UnknownKind, get_kind, key_of, kind_of
from netplug_core.resources.manifest import Manifest, manifest_from_mapping
from netplug_core.resources.patch import strip_cluster_fields

__all__ = ["DEFAULT_NAMESPACE", "apply", "create", "delete", "get", "parse_keys", "parse_kind", "replace", "validate"]

DEFAULT_NAMESPACE = "default"
_ALL_NAMESPACES = "*"

_FILES = click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE", help="A file of YAML or JSON; - is standard input."
)
_KIND = click.argument("kind", default="", metavar="[KIND]")
_NAMES = click.argument("names", nargs=-1, metavar="[NAME]...")


class _CommandFailed(ConfigurationError):
    """A command that was not begun; ``where`` says what failed, ``accepted`` why."""

    def __str__(self) -> str:
        return f"{self.where}: {self.accepted}"


class _GetOptions(TypedDict):
    """What the options of ``get`` say."""

    files: tuple[str, ...]
    output: str
    namespace: str | None
    is_export: bool


@frozen(kw_only=True)
class _GetRequest:
    """A ``get`` as it was meant.

    ``row`` is the kind that was named, None for files; ``keys`` what was named, None for all of the kind, in one
    ``namespace`` or (empty) in every. ``is_export``: what was named is to be shown so that it can be created elsewhere.
    """

    kind: ResourceKind | None
    keys: tuple[Key[Resource], ...] | None
    namespace: str = ""
    is_export: bool = False


# --- the commands --------------------------------------------------------------------------------------------------


@click.command()
@_FILES
@click.pass_context
def create(context: click.Context, files: tuple[str, ...]) -> int:
    """Create the resources of some files, each in turn."""
    session = session_of(context)

    def act(store: Datastore, manifest: Manifest) -> Outcome:
        return flows.create(store, manifest, pace=session.pace(), new_uid=session.new_uid)

    return _run_on_files(session, Verb.CREATE, files, act)


@click.command()
@_FILES
@click.pass_context
def apply(context: click.Context, files: tuple[str, ...]) -> int:
    """Create the resources of some files, or give stored ones the labels, annotations and spec that stand there."""
    session = session_of(context)

    def act(store: Datastore, manifest: Manifest) -> Outcome:
        return flows.apply(store, manifest, pace=session.pace(), new_uid=session.new_uid)

    return _run_on_files(session, Verb.APPLY, files, act)


@click.command()
@_FILES
@click.pass_context
def replace(context: click.Context, files: tuple[str, ...]) -> int:
    """Give stored resources the labels, annotations and spec that stand in some files; create none."""
    session = session_of(context)

    def act(store: Datastore, manifest: Manifest) -> Outcome:
        return flows.replace(store, manifest, pace=session.pace())

    return _run_on_files(session, Verb.REPLACE, files, act)


@click.command()
@_KIND
@_NAMES
@_FILES
@click.pass_context
def delete(context: click.Context, kind: str, names: tuple[str, ...], files: tuple[str, ...]) -> int:
    """Delete resources: those of a KIND with some NAMEs, or those of some files."""
    if bool(names) == bool(files) or bool(kind) == bool(files):
        raise click.UsageError("Give either a KIND and at least one NAME, or files.")
    session = session_of(context)

    def act(store: Datastore, manifest: Manifest) -> Outcome:
        return flows.delete(store, key_of(manifest.resource), revision=manifest.revision, pace=session.pace())

    if files:
        return _run_on_files(session, Verb.DELETE, files, act)
    keys = parse_keys(parse_kind(kind, "delete"), names, DEFAULT_NAMESPACE)
    report = ChangeReport(Verb.DELETE)
    with session.open_datastore() as store:
        for key in keys:
            with report.collect_errors(key.kind.name):
                report.add_success(flows.delete(store, key, pace=session.pace()))
    return report.print_summary()


@click.command()
@_FILES
@click.option("--skip-empty", "may_be_empty", is_flag=True, help="Files that hold nothing are fine.")
def validate(files: tuple[str, ...], *, may_be_empty: bool) -> int:
    """Hold the resources of some files against every rule that needs no datastore, and ask none."""
    if not files:
        raise click.UsageError("Give at least one file: -f FILE.")
    manifests = _read_manifests(files, may_be_empty=may_be_empty)
    if not manifests:
        click.echo("No resources specified")
        return 0
    report = ChangeReport(Verb.VALIDATE)
    for manifest in manifests:
        with report.collect_errors(kind_of(manifest.resource).name, manifest.source):
            report.add_success(flows.validate(manifest))
    return report.print_summary()


@click.command()
@_KIND
@_NAMES
@_FILES
@click.option("-o", "--output", type=click.Choice(["ps", "wide", "yaml", "json"]), default="ps", show_default=True)
@click.option("-n", "--namespace", metavar="NS", help="The namespace, for kinds that have one.")
@click.option("-A", "-a", "--all-namespaces", "namespace", flag_value=_ALL_NAMESPACES, help="Every namespace.")
@click.option("--export", "is_export", is_flag=True, help="Of one that is named: leave out what is only its own here.")
@click.pass_context
def get(context: click.Context, kind: str, names: tuple[str, ...], **given: Unpack[_GetOptions]) -> int:
    """Show resources: all of a KIND, those with some NAMEs, or those of some files."""
    files, output = given["files"], given["output"]
    if bool(kind) == bool(files):
        raise click.UsageError("Give either a KIND or files.")
    session = session_of(context)
    if files:
        keys = tuple(key_of(manifest.resource) for manifest in _read_manifests(files))
        question = _GetRequest(kind=None, keys=keys)
    else:
        question = _make_get_request(parse_kind(kind, "get"), names, given["namespace"], is_export=given["is_export"])
    found, missing = _read_records(session, question)
    if output in ("yaml", "json"):
        _print_objects(question, found, output)
    else:
        _print_tables(question, found, Width(output))
    for key in missing:
        print_error(f"resource does not exist: {key}")
    return 1 if missing else 0


# --- what was typed, as values -------------------------------------------------------------------------------------


def parse_kind(text: str, verb: str) -> ResourceKind:
    """The kind that was typed for a verb; a word for none is a refusal."""
    try:
        return get_kind(text)
    except UnknownKind as error:
        raise _CommandFailed(f"failed to {verb} resources", text, str(error)) from error


def parse_keys(kind: ResourceKind, names: Iterable[str], namespace: str) -> tuple[Key[Resource], ...]:
    """The keys of names that were typed; an empty one is wrong usage."""
    if not all(names):
        raise click.UsageError("A NAME must not be empty.")
    return tuple(kind.key(name, namespace) for name in names)


def _make_get_request(
    kind: ResourceKind, names: Sequence[str], namespace: str | None, *, is_export: bool
) -> _GetRequest:
    if namespace is not None and kind.scope is ResourceScope.CLUSTER:
        raise _CommandFailed("failed to get resources", namespace, f"{kind.name} is not namespaced")
    if not names:
        within = "" if namespace == _ALL_NAMESPACES else namespace or DEFAULT_NAMESPACE
        return _GetRequest(kind=kind, keys=None, namespace=within if kind.scope is ResourceScope.NAMESPACED else "")
    if namespace == _ALL_NAMESPACES:
        raise click.UsageError("A NAME is looked for in one namespace.")
    return _GetRequest(kind=kind, keys=parse_keys(kind, names, namespace or DEFAULT_NAMESPACE), is_export=is_export)


def _read_manifests(files: Sequence[str], *, may_be_empty: bool = False) -> tuple[Manifest, ...]:
    """What the files hold; nothing is begun before all of it could be read.

    Raises:
        _Refused: some of it could not.
    """
    from netplug_cli.ctl.documents import UnreadableFile, read_documents

    manifests: list[Manifest] = []
    problems: list[NetplugError] = []
    try:
        for document in read_documents(files):
            try:
                manifests.append(manifest_from_mapping(document.mapping, source=document.source))
            except ConfigurationError as error:
                problems.append(error)
    except UnreadableFile as error:
        problems.append(error)
    if problems:
        raise _CommandFailed("failed to execute command", None, "; ".join(map(str, problems)))
    if not manifests and not may_be_empty:
        raise _CommandFailed("failed to execute command", None, "no resources specified in file")
    return tuple(manifests)


# --- changing ------------------------------------------------------------------------------------------------------


def _run_on_files(
    session: Session, verb: Verb, files: Sequence[str], operation: Callable[[Datastore, Manifest], Outcome]
) -> int:
    if not files:
        raise click.UsageError("Give at least one file: -f FILE.")
    manifests = _read_manifests(files)
    report = ChangeReport(verb)
    with session.open_datastore() as store:
        if verb in (Verb.CREATE, Verb.APPLY):
            ensure_initialized(store, pace=session.pace(), new_uid=session.new_uid)
        for manifest in manifests:
            with report.collect_errors(kind_of(manifest.resource).name, manifest.source):
                report.add_success(operation(store, manifest))
    return report.print_summary()


# --- showing -------------------------------------------------------------------------------------------------------


def _read_records(session: Session, request: _GetRequest) -> tuple[list[Record[Resource]], list[Key[Resource]]]:
    with session.open_datastore() as store:
        if request.keys is not None:
            records = flows.find(store, request.keys, deadline=session.deadline())
            missing = [key for key, record in zip(request.keys, records, strict=True) if record is None]
            return [record for record in records if record is not None], missing
        row = cast("ResourceKind", request.kind)
        return list(flows.list_all(store, row, namespace=request.namespace, deadline=session.deadline())), []


def _print_tables(request: _GetRequest, found: Sequence[Record[Resource]], width: Width) -> None:
    if request.kind is not None and request.keys is None and not found:
        _print_lines(format_resources(request.kind, (), width))
    is_everywhere = request.keys is None and not request.namespace
    for position, (kind, records) in enumerate(groupby(found, key=lambda record: record.key.kind)):
        row = get_kind(kind.name)
        first = ("NAMESPACE",) if is_everywhere and row.scope is ResourceScope.NAMESPACED else ()
        if position:
            click.echo()
        _print_lines(format_resources(row, (record.value for record in records), width, leading_columns=first))


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _print_objects(request: _GetRequest, found: Sequence[Record[Resource]], output: str) -> None:
    from netplug_cli.ctl.documents import render_json, render_yaml

    if request.is_export:
        objects = [to_mapping(strip_cluster_fields(record.value)) for record in found]
    else:
        objects = [to_mapping(record.value, revision=record.revision) for record in found]
    shown: object = objects
    if request.keys is not None and len(request.keys) == 1:
        if not objects:
            return
        shown = objects[0]
    elif request.kind is not None:
        shown = {"kind": f"{request.kind.name}List", "apiVersion": API_VERSION, "items": objects}
    click.echo(render_yaml(shown) if output == "yaml" else render_json(shown), nl=False)
