"""``get``, once or with ``--watch``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from itertools import groupby, islice
from typing import TypedDict, Unpack, assert_never, cast

import click
from attrs import define, evolve, field, frozen

from netplug_cli.ctl.arguments import DEFAULT_NAMESPACE, format_key, key_of_document, parse_keys, parse_kind
from netplug_cli.ctl.commands.resources import FILES, RESOURCES, SELECTOR, Selected, selected_of
from netplug_cli.ctl.documents import render_json, render_json_line, render_yaml, require_manifests
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.outputs import (
    OUTPUT,
    Columns,
    CustomColumns,
    ObjectFormat,
    OutputFormat,
    Template,
    UnknownColumn,
    columns_of_width,
)
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.ctl.tables import Width
from netplug_cli.formatting import column_widths, escape_cells, escape_unprintable, format_row, print_error
from netplug_core.clock import Deadline
from netplug_core.errors import NetplugError
from netplug_core.flows.resources.outcome import ResourceMissing
from netplug_core.flows.resources.read import (
    EventType,
    ResourceEvent,
    ResourceEvents,
    Selection,
    WatchProblem,
    WatchResumed,
    find,
    list_in_pages,
    watch,
)
from netplug_core.names import API_VERSION
from netplug_core.records import Key, Kind, Record
from netplug_core.resources.codec import to_mapping
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.resources.kinds import Resource, ResourceKind, ResourceScope, get_kind
from netplug_core.resources.patch import strip_cluster_fields
from netplug_core.resources.unprogrammed import pools_warning

__all__ = [
    "get", "watch_resources",
]  # fmt: skip


# --- get -------------------------------------------------------------------------------------------------------------


_ALL_NAMESPACES = "*"
_ROWS_AT_ONCE = 1_000
_LIST_TIMEOUT_S = 600.0  # for a quarter of a million; each page has the time of one call


class _GetOptions(TypedDict):
    """The options of ``get`` as click hands them over."""

    files: tuple[str, ...]
    output: OutputFormat
    namespace: str | None
    is_export: bool
    is_watch: bool


@frozen(kw_only=True)
class _GetRequest:
    """What to show.

    ``kind`` is the one kind that was named, None for files and for several. ``keys`` are the resources that were named,
    None for all of the kind: in one ``namespace``, or in every one if that is empty, and of these the ``selected``.
    ``list_kind`` is the kind of the object that several are the items of; empty for a list without one.
    ``is_export`` leaves out what belongs to this cluster.
    """

    kind: ResourceKind | None
    keys: tuple[Key[Resource], ...] | None
    list_kind: str
    namespace: str = ""
    selected: Selected = field(factory=Selected)
    is_export: bool = False


@click.command()
@RESOURCES
@FILES
@OUTPUT
@click.option("-n", "--namespace", metavar="NS", help="The namespace, for kinds that have one.")
@click.option("-A", "-a", "--all-namespaces", "namespace", flag_value=_ALL_NAMESPACES, help="Every namespace.")
@click.option(
    "--export",
    "is_export",
    is_flag=True,
    help="Leave out fields that belong to this cluster, of a resource that is named.",
)
@click.option(
    "-w",
    "--watch",
    "is_watch",
    is_flag=True,
    help="Go on with every change, in any output, until Ctrl-C.",
)
@click.option("--output-watch-events", is_flag=True, expose_value=False, hidden=True)  # kubectl's; here it is usual
@SELECTOR
@click.pass_context
def get(context: click.Context, words: tuple[str, ...], **options: Unpack[_GetOptions]) -> int:
    """Show resources: all of a KIND, those with some NAMEs, or those of some files.

    KIND/NAME names one too, as -o name prints it. Several of these may be of different kinds.
    """
    files, output, selected = options["files"], options["output"], selected_of(context)
    if bool(words) == bool(files):
        raise click.UsageError("Give either a KIND or files.")
    if options["is_watch"] and (files or options["is_export"]):
        raise click.UsageError("--watch follows resources of one KIND; leave out files and --export.")
    session = session_of(context)
    if files:
        request = _make_file_request(files, options["namespace"], selected)
    else:
        request = _make_get_request(words, options["namespace"], selected, is_export=options["is_export"])
    if options["is_watch"]:
        return _watch(session, request, output)
    if request.keys is None:
        return _list(session, request, output)
    return _show_named(session, request, request.keys, output)


def _watch(session: Session, request: _GetRequest, output: OutputFormat) -> int:
    if request.kind is None:
        raise click.UsageError("--watch follows resources of one KIND; several are named.")
    keys = None if request.keys is None else frozenset(request.keys)
    selection = Selection(kind=request.kind, keys=keys, namespace=request.namespace, selector=request.selected.selector)
    columns = _columns_of(request.kind, request, output)
    return watch_resources(session, selection, output, columns, clause=request.selected.clause)


def _make_get_request(
    words: Sequence[str], namespace: str | None, selected: Selected, *, is_export: bool
) -> _GetRequest:
    keys = parse_keys(words, "get", namespace or DEFAULT_NAMESPACE)
    kinds = tuple(_kinds_of(keys).values()) or (parse_kind(words[0], "get"),)
    if namespace is not None and all(kind.scope is ResourceScope.CLUSTER for kind in kinds):
        raise InputError("failed to get resources", namespace, f"{kinds[0].name} is not namespaced")
    kind = kinds[0] if len(kinds) == 1 else None
    list_kind = f"{kind.name if kind else ''}List"
    if keys:
        _refuse_selector(selected)
        if namespace == _ALL_NAMESPACES:
            raise click.UsageError("A NAME is looked for in one namespace.")
        return _GetRequest(kind=kind, keys=keys, list_kind=list_kind, is_export=is_export)
    within = "" if namespace == _ALL_NAMESPACES else namespace or DEFAULT_NAMESPACE
    request = _GetRequest(kind=kind, keys=None, list_kind=list_kind, selected=selected)
    return evolve(request, namespace=within) if kinds[0].scope is ResourceScope.NAMESPACED else request


def _make_file_request(files: Sequence[str], namespace: str | None, selected: Selected) -> _GetRequest:
    _refuse_selector(selected)
    if namespace == _ALL_NAMESPACES:
        raise click.UsageError("A resource of a file is looked for in one namespace.")
    manifests = require_manifests(files)
    keys = tuple(key_of_document(manifest.resource, namespace or DEFAULT_NAMESPACE) for manifest in manifests)
    return _GetRequest(kind=None, keys=keys, list_kind="")


def _refuse_selector(selected: Selected) -> None:
    if selected.texts:
        raise click.UsageError("--selector selects among all of a KIND; leave out names and files.")


def _kinds_of(keys: Iterable[Key[Resource]]) -> dict[Kind[Resource], ResourceKind]:
    """The kinds of some keys, each once."""
    return {key.kind: get_kind(key.kind.name) for key in keys}


def _show_named(session: Session, request: _GetRequest, keys: Sequence[Key[Resource]], output: OutputFormat) -> int:
    columns = {kind: _columns_of(row, request, output) for kind, row in _kinds_of(keys).items()}
    found, missing = _find(session, keys)
    _print_named(request, found, output, columns)
    for error in missing:
        print_error(str(error))
    return 1 if missing else 0


def _find(session: Session, keys: Sequence[Key[Resource]]) -> tuple[list[Record[Resource]], list[NetplugError]]:
    """The resources under some keys, and an error for each key where nothing is stored."""
    with session.open_datastore() as store:
        records = find(store, keys, deadline=session.deadline())
        missing = [
            session.explain(store, ResourceMissing.of(key))
            for key, record in zip(keys, records, strict=True)
            if record is None
        ]
    return [record for record in records if record is not None], missing


def _list(session: Session, request: _GetRequest, output: OutputFormat) -> int:
    """Print every resource of a kind; a table begins with its first rows, however many there are."""
    row = cast("ResourceKind", request.kind)
    columns = _columns_of(row, request, output)
    with session.open_datastore() as store:
        found = list_in_pages(
            store,
            row,
            namespace=request.namespace,
            selector=request.selected.selector,
            deadline=Deadline.after(session.clock, _LIST_TIMEOUT_S),
        )
        if columns is not None:
            pools = list[Record[Resource]]()
            is_empty = _print_rows(columns, _collecting(found, pools) if row.name == IPPOOL.name else found)
            _warn_of_pools(pools, output)
        elif output is ObjectFormat.NAME:
            is_empty = _print_names(found)
        else:
            _print_objects(request, list(found), output)
            return 0
    if is_empty:
        within = f" in namespace {request.namespace}; -A shows all namespaces" if request.namespace else ""
        print_error(f"no {row.name}{request.selected.clause} found{within}")
    return 0


def _columns_of(row: ResourceKind, request: _GetRequest, output: OutputFormat) -> Columns | None:
    """The columns of a table of a kind; None if the output is none."""
    if isinstance(output, Width):
        is_everywhere = request.keys is None and row.scope is ResourceScope.NAMESPACED and not request.namespace
        return columns_of_width(row, output, ("NAMESPACE",) if is_everywhere else ())
    if not isinstance(output, CustomColumns):
        return None
    try:
        return output.of_kind(row, partial(_mapping_of, request))
    except UnknownColumn as error:
        raise click.BadParameter(str(error), param_hint="'-o' / '--output'") from None


def _print_rows(columns: Columns, found: Iterator[Record[Resource]]) -> bool:
    """Print a table in parts, and return whether it has no row. A wider row widens the columns from its part on."""
    lines, widths, is_empty = [columns.headers], column_widths([columns.headers]), True
    while part := list(islice(found, _ROWS_AT_ONCE)):
        lines.extend(escape_cells(columns.cells(record)) for record in part)
        widths = tuple(map(max, widths, column_widths(lines)))
        _print_lines(format_row(line, widths) for line in lines)
        lines, is_empty = [], False
    _print_lines(format_row(line, widths) for line in lines)
    return is_empty


def _collecting(found: Iterator[Record[Resource]], collected: list[Record[Resource]]) -> Iterator[Record[Resource]]:
    """The records as they come, and at the end all of them in a list."""
    for record in found:
        collected.append(record)
        yield record


def _warn_of_pools(found: Iterable[Record[Resource]], output: OutputFormat) -> None:
    """Say below a table for people which settings of its pools have no effect; programs read other outputs."""
    warning = pools_warning(record.value for record in found if isinstance(record.value, IPPool))
    if warning and isinstance(output, Width):
        print_error(f"warning: {warning}")


def _print_names(found: Iterable[Record[Resource]]) -> bool:
    """Print kind and name of each resource, as kubectl does, and return whether there is none."""
    is_empty = True
    for record in found:
        is_empty = False
        click.echo(escape_unprintable(format_key(record.key)))
    return is_empty


def _print_named(
    request: _GetRequest,
    found: Sequence[Record[Resource]],
    output: OutputFormat,
    columns: Mapping[Kind[Resource], Columns | None],
) -> None:
    """Print the resources that were named; of tables, whose columns each kind has, a new one where the kind changes."""
    if output is ObjectFormat.NAME:
        _print_names(found)
        return
    if isinstance(output, (ObjectFormat, Template)):
        _print_objects(request, found, output)
        return
    for position, (kind, records) in enumerate(groupby(found, key=lambda record: record.key.kind)):
        if position:
            click.echo()
        _print_rows(cast("Columns", columns[kind]), records)
    _warn_of_pools(found, output)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _mapping_of(request: _GetRequest, record: Record[Resource]) -> dict[str, object]:
    """The object that a resource is shown as."""
    if request.is_export:
        return to_mapping(strip_cluster_fields(record.value))
    return to_mapping(record.value, revision=record.revision)


def _print_objects(request: _GetRequest, found: Sequence[Record[Resource]], output: OutputFormat) -> None:
    objects = [_mapping_of(request, record) for record in found]
    shown: object = objects
    if request.keys is not None and len(request.keys) == 1:
        if not objects:
            return
        shown = objects[0]
    elif request.list_kind:
        shown = {"kind": request.list_kind, "apiVersion": API_VERSION, "items": objects}
    if isinstance(output, Template):
        click.echo(output.render(shown), nl=False)
    else:
        click.echo(render_yaml(shown) if output is ObjectFormat.YAML else render_json(shown), nl=False)


# --- watching --------------------------------------------------------------------------------------------------------


_TYPE_HEADER = "EVENT"


def watch_resources(
    session: Session, selection: Selection, output: OutputFormat, columns: Columns | None, *, clause: str = ""
) -> int:
    """Print what is stored of a selection, then every change, until the person interrupts it; the exit status.

    ``columns`` are those of an output that is a table. ``clause`` is what the message about an empty selection adds.
    """
    printer = _Printer(selection, output, columns, clause)
    # An interruption is the usual end of a watch, so it is no failure.
    with suppress(KeyboardInterrupt), session.open_datastore() as store:
        for item in watch(store, selection, clock=session.clock, chance=session.chance):
            match item:
                case ResourceEvents(events):
                    printer.print_events(events)
                case WatchProblem(error):
                    print_error(f"{error}; the watch goes on")
                case WatchResumed():
                    print_error("the datastore answers again; every change is shown")
                case _:
                    assert_never(item)
    return 0


@define
class _Printer:
    """Prints events: as rows below the ``columns`` of a table, otherwise each as the ``output`` has one object."""

    selection: Selection
    output: OutputFormat
    columns: Columns | None
    clause: str
    _has_begun: bool = False
    _widths: tuple[int, ...] = ()

    def print_events(self, events: Sequence[ResourceEvent]) -> None:
        """Print some events; the first call prints the head of the table, also if there are none."""
        if not self._has_begun:
            self._has_begun = True
            self._print_missing({event.record.key for event in events})
        if self.columns is not None:
            self._print_rows(self.columns, events)
            return
        for event in events:
            click.echo(_render(event, self.output), nl=False)

    def _print_rows(self, columns: Columns, events: Sequence[ResourceEvent]) -> None:
        # A person who chose the columns gets these, for a program to read.
        has_type = isinstance(self.output, Width)
        rows = [
            (*((event.type.value,) if has_type else ()), *escape_cells(columns.cells(event.record))) for event in events
        ]
        if not self._widths:
            types = column_widths((event.value,) for event in EventType) if has_type else ()
            self._widths = (*types, *(0 for _ in columns.headers))
            rows.insert(0, (*((_TYPE_HEADER,) if has_type else ()), *columns.headers))
        # A later row may be wider than the rows before it: then the columns grow from there on.
        self._widths = tuple(map(max, self._widths, column_widths(rows)))
        for row in rows:
            click.echo(format_row(row, self._widths))

    def _print_missing(self, found: AbstractSet[Key[Resource]]) -> None:
        selection = self.selection
        if selection.keys is None and not found:
            within = f" in namespace {selection.namespace}; -A shows all namespaces" if selection.namespace else ""
            print_error(f"no {selection.kind.name}{self.clause} found{within}; waiting for one")
        for key in sorted((selection.keys or frozenset()) - found):
            print_error(f"resource does not exist: {key}; waiting for it")


def _render(event: ResourceEvent, output: OutputFormat) -> str:
    """An event in an output without columns: of YAML and JSON with its type, of the others as the resource alone."""
    record = event.record
    if output is ObjectFormat.NAME:
        return f"{escape_unprintable(format_key(record.key))}\n"
    shown = to_mapping(record.value, revision=record.revision)
    if isinstance(output, Template):
        return output.render(shown)
    document = {"type": event.type.value, "object": shown}
    return f"---\n{render_yaml(document)}" if output is ObjectFormat.YAML else render_json_line(document)
