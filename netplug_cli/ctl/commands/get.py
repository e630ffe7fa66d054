"""``get``, once or with ``--watch``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from itertools import groupby, islice
from typing import TypedDict, Unpack, assert_never

import click
from attrs import define, evolve, field, frozen

from netplug_cli.ctl.arguments import (
    FILES,
    IGNORE_NOT_FOUND,
    RESOURCES,
    SELECTOR,
    Selected,
    format_key,
    parse_keys,
    parse_kind,
    selected_of,
)
from netplug_cli.ctl.documents import render_json, render_json_line, render_yaml, require_manifests
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.global_options import ALL_NAMESPACES, DEFAULT_NAMESPACE, SEPARATOR
from netplug_cli.ctl.outputs import (
    OUTPUT,
    Columns,
    CustomColumns,
    JSONPath,
    ObjectFormat,
    OutputFormat,
    PathError,
    Template,
    UnknownColumn,
    Width,
    columns_of_width,
    format_value,
    parse_path,
    with_labels,
)
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.formatting import column_widths, escape_cells, escape_unprintable, format_row, print_error
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
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
from netplug_core.resources.codec import strip_cluster_fields, to_mapping
from netplug_core.resources.kinds import KINDS, Resource, ResourceKind, ResourceScope, get_kind, key_of

__all__ = [
    "WatchLook", "get", "watch_resources",
]  # fmt: skip


# --- get -------------------------------------------------------------------------------------------------------------


_ROWS_AT_ONCE = 1_000
_LIST_TIMEOUT_S = 600.0  # for a quarter of a million; each page has the time of one call


class _GetOptions(TypedDict):
    """The options of ``get`` as click hands them over."""

    files: tuple[str, ...]
    output: OutputFormat
    namespace: str | None
    is_export: bool
    is_watch: bool
    is_watch_only: bool
    has_no_headers: bool
    shows_labels: bool
    label_columns: tuple[str, ...]
    sorted_by: JSONPath | None
    is_absence_ignored: bool


@frozen(kw_only=True)
class _Look:
    """What a person asks of tables besides the output; ``sorted_by`` orders every output.

    ``is_absence_ignored``: a resource that does not exist is no failure.
    """

    has_headers: bool = True
    shows_labels: bool = False
    label_columns: tuple[str, ...] = ()
    sorted_by: JSONPath | None = None
    is_absence_ignored: bool = False

    @classmethod
    def of(cls, options: _GetOptions) -> _Look:
        """What the options of a command line ask for."""
        names = (name.strip() for words in options["label_columns"] for name in words.split(","))
        return cls(
            has_headers=not options["has_no_headers"],
            shows_labels=options["shows_labels"],
            label_columns=tuple(name for name in names if name),
            sorted_by=options["sorted_by"],
            is_absence_ignored=options["is_absence_ignored"],
        )


@frozen(kw_only=True)
class _GetRequest:
    """What to show.

    ``kinds`` are those that were named, none for files. ``keys`` are the resources that were named, None for all of
    the kinds: in one ``namespace``, or in every one if that is empty, and of these the ``selected``.
    ``list_kind`` is the kind of the object that several are the items of; empty for a list without one.
    ``is_export`` leaves out what belongs to this cluster. ``look`` is how tables look and in which order they are.
    """

    kinds: tuple[ResourceKind, ...]
    keys: tuple[Key[Resource], ...] | None
    list_kind: str
    namespace: str = ""
    selected: Selected = field(factory=Selected)
    is_export: bool = False
    look: _Look = field(factory=_Look)

    @property
    def kind(self) -> ResourceKind | None:
        """The one kind; None for files and for several."""
        return self.kinds[0] if len(self.kinds) == 1 else None


def _parse_sorting(_context: click.Context, _parameter: click.Parameter, value: str | None) -> JSONPath | None:
    if value is None:
        return None
    path = value[1:-1] if value.startswith("{") and value.endswith("}") else value
    try:
        return parse_path(path if path[:1] in (".", "[", "$", "@") else f".{path}")
    except PathError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@RESOURCES
@FILES
@OUTPUT
@click.option("-n", "--namespace", metavar="NS", help="The namespace, for kinds that have one.")
@click.option("-A", "-a", "--all-namespaces", "namespace", flag_value=ALL_NAMESPACES, help="Every namespace.")
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
@click.option("--watch-only", "is_watch_only", is_flag=True, help="The same without what is stored now.")
@click.option("--no-headers", "has_no_headers", is_flag=True, help="Leave out the first line of tables.")
@click.option("--show-labels", "shows_labels", is_flag=True, help="Show all labels in a last column of tables.")
@click.option(
    "-L", "--label-columns", "label_columns", multiple=True, metavar="LABEL,...",
    help="Show these labels in columns of their own.",
)  # fmt: skip
@click.option(
    "--sort-by", "sorted_by", metavar="PATH", callback=_parse_sorting,
    help="Order what is shown by the value at a path, such as .metadata.creationTimestamp.",
)  # fmt: skip
@IGNORE_NOT_FOUND
@click.option("--output-watch-events", is_flag=True, expose_value=False, hidden=True)  # kubectl's; here it is usual
@SELECTOR
@click.pass_context
def get(context: click.Context, words: tuple[str, ...], **options: Unpack[_GetOptions]) -> int:
    """Show resources: all of a KIND, those with some NAMEs, or those of some files.

    Several kinds are named with commas between, and all of them by all. KIND/NAME names one too, as -o name prints it.
    Several of these may be of different kinds.
    """
    files, output, selected = options["files"], options["output"], selected_of(context)
    if bool(words) == bool(files):
        raise click.UsageError("Give either a KIND or files.")
    is_watch = options["is_watch"] or options["is_watch_only"]
    if is_watch and (files or options["is_export"] or options["sorted_by"]):
        raise click.UsageError("--watch follows resources of one KIND; leave out files, --export and --sort-by.")
    session = session_of(context)
    if files:
        request = _make_file_request(files, options["namespace"], selected)
    else:
        request = _make_get_request(words, options["namespace"], selected, is_export=options["is_export"])
    request = evolve(request, look=_Look.of(options))
    if is_watch:
        return _watch(session, request, output, is_first_list_shown=not options["is_watch_only"])
    if request.keys is None:
        return _list(session, request, output)
    return _show_named(session, request, request.keys, output)


def _watch(session: Session, request: _GetRequest, output: OutputFormat, *, is_first_list_shown: bool) -> int:
    if request.kind is None:
        raise click.UsageError("--watch follows resources of one KIND; several are named.")
    keys = None if request.keys is None else frozenset(request.keys)
    within = request.namespace if request.kind.scope is ResourceScope.NAMESPACED else ""
    selection = Selection(kind=request.kind, keys=keys, namespace=within, selector=request.selected.selector)
    columns = _columns_of(request.kind, request, output)
    look = WatchLook(has_headers=request.look.has_headers, is_first_list_shown=is_first_list_shown)
    return watch_resources(session, selection, output, columns, clause=request.selected.clause, look=look)


def _make_get_request(
    words: Sequence[str], namespace: str | None, selected: Selected, *, is_export: bool
) -> _GetRequest:
    listed = _parse_kinds(words)
    keys = () if listed else parse_keys(words, "get", namespace or DEFAULT_NAMESPACE)
    kinds = listed or tuple(_kinds_of(keys).values())
    has_namespaces = any(kind.scope is ResourceScope.NAMESPACED for kind in kinds)
    if namespace not in (None, ALL_NAMESPACES) and not has_namespaces:
        raise InputError("failed to get resources", namespace, f"{kinds[0].name} is not namespaced")
    list_kind = f"{kinds[0].name if len(kinds) == 1 else ''}List"
    if keys:
        _refuse_selector(selected)
        if namespace == ALL_NAMESPACES and has_namespaces:
            raise click.UsageError("A NAME is looked for in one namespace.")
        return _GetRequest(kinds=kinds, keys=keys, list_kind=list_kind, is_export=is_export)
    within = "" if namespace == ALL_NAMESPACES else namespace or DEFAULT_NAMESPACE
    return _GetRequest(kinds=kinds, keys=None, list_kind=list_kind, selected=selected, namespace=within)


_ALL_KINDS = "all"


def _parse_kinds(words: Sequence[str]) -> tuple[ResourceKind, ...]:
    """The kinds that a command line lists without a name: one word, with commas between; none for anything else."""
    if len(words) != 1 or SEPARATOR in words[0]:
        return ()
    if words[0].lower() == _ALL_KINDS:
        return KINDS
    return tuple(dict.fromkeys(parse_kind(word, "get") for word in words[0].split(",")))


def _make_file_request(files: Sequence[str], namespace: str | None, selected: Selected) -> _GetRequest:
    _refuse_selector(selected)
    if namespace == ALL_NAMESPACES:
        raise click.UsageError("A resource of a file is looked for in one namespace.")
    manifests = require_manifests(files)
    keys = tuple(key_of(manifest.within(namespace or DEFAULT_NAMESPACE).resource) for manifest in manifests)
    return _GetRequest(kinds=(), keys=keys, list_kind="")


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
    if request.look.is_absence_ignored:
        return 0
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
    """Print every resource of some kinds; a table begins with its first rows, however many there are."""
    columns = {kind: _columns_of(kind, request, output) for kind in request.kinds}
    with session.open_datastore() as store:
        if isinstance(output, (ObjectFormat, Template)) and output is not ObjectFormat.NAME:
            everything = [record for kind in request.kinds for record in _stored(store, session, kind, request)]
            _print_objects(request, _in_order(everything, request), output)
            return 0
        if len(request.kinds) > 1:
            _print_kinds(store, session, request, columns)
            return 0
        kind = next(iter(request.kinds))
        is_empty = _print_kind(_stored(store, session, kind, request), request, columns[kind])
    if is_empty:
        is_narrow = kind.scope is ResourceScope.NAMESPACED and request.namespace
        within = f" in namespace {request.namespace}; -A shows all namespaces" if is_narrow else ""
        print_error(f"no {kind.name}{request.selected.clause} found{within}")
    return 0


def _stored(store: Datastore, session: Session, kind: ResourceKind, request: _GetRequest) -> Iterator[Record[Resource]]:
    """The stored resources of a kind that are asked for, in pages."""
    return list_in_pages(
        store,
        kind,
        namespace=request.namespace if kind.scope is ResourceScope.NAMESPACED else "",
        selector=request.selected.selector,
        deadline=Deadline.after(session.clock, _LIST_TIMEOUT_S),
    )


def _print_kind(
    found: Iterator[Record[Resource]],
    request: _GetRequest,
    columns: Columns | None,
) -> bool:
    """Print the resources of one kind as a table or as names, and return whether there is none."""
    ordered = found if request.look.sorted_by is None else iter(_in_order(list(found), request))
    if columns is None:
        return _print_names(ordered)
    return _print_rows(columns, ordered, request.look)


def _print_kinds(
    store: Datastore, session: Session, request: _GetRequest, columns: Mapping[ResourceKind, Columns | None]
) -> None:
    """Print a table for each kind of which something is stored, with the kind in front of the name."""
    is_first = True
    for kind in request.kinds:
        found = _in_order(list(_stored(store, session, kind, request)), request)
        own = columns[kind]
        if own is None:
            is_first &= _print_names(found)
        elif found:
            if not is_first:
                click.echo()
            _print_rows(_with_kinds(own), iter(found), request.look)
            is_first = False
    if is_first:
        print_error(f"nothing{request.selected.clause} found")


def _with_kinds(columns: Columns) -> Columns:
    """The columns with the kind in front of each name, as one word that commands take."""

    def cells(record: Record[Resource]) -> tuple[str, ...]:
        pairs = zip(columns.headers, columns.cells(record), strict=True)
        return tuple(format_key(record.key) if header == "NAME" else cell for header, cell in pairs)

    return Columns(columns.headers, cells)


def _in_order(found: Sequence[Record[Resource]], request: _GetRequest) -> Sequence[Record[Resource]]:
    """The resources in the order that is asked for: numbers before texts, and first what has no such value."""
    path = request.look.sorted_by
    if path is None:
        return found

    def rank(record: Record[Resource]) -> tuple[bool, bool, float, str]:
        value = next(iter(path.select(to_mapping(record.value))), None)
        number = value if isinstance(value, int | float) else None
        return value is not None, number is None, number or 0, format_value(value)

    return sorted(found, key=rank)


def _columns_of(row: ResourceKind, request: _GetRequest, output: OutputFormat) -> Columns | None:
    """The columns of a table of a kind; None if the output is none."""
    if isinstance(output, Width):
        is_everywhere = request.keys is None and row.scope is ResourceScope.NAMESPACED and not request.namespace
        own = columns_of_width(row, output, ("NAMESPACE",) if is_everywhere else ())
        return with_labels(own, request.look.label_columns, shows_all=request.look.shows_labels)
    if not isinstance(output, CustomColumns):
        return None
    try:
        return output.of_kind(row, partial(_mapping_of, request))
    except UnknownColumn as error:
        raise click.BadParameter(str(error), param_hint="'-o' / '--output'") from None


def _print_rows(columns: Columns, found: Iterator[Record[Resource]], look: _Look) -> bool:
    """Print a table in parts, and return whether it has no row. A wider row widens the columns from its part on."""
    lines = [columns.headers] if look.has_headers else []
    widths, is_empty = column_widths(lines) or (0,) * len(columns.headers), True
    while part := list(islice(found, _ROWS_AT_ONCE)):
        lines.extend(escape_cells(columns.cells(record)) for record in part)
        widths = tuple(map(max, widths, column_widths(lines)))
        _print_lines(format_row(line, widths) for line in lines)
        lines, is_empty = [], False
    _print_lines(format_row(line, widths) for line in lines)
    return is_empty


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
    found = _in_order(found, request)
    if output is ObjectFormat.NAME:
        _print_names(found)
        return
    if isinstance(output, (ObjectFormat, Template)):
        _print_objects(request, found, output)
        return
    for position, (kind, records) in enumerate(groupby(found, key=lambda record: record.key.kind)):
        if position:
            click.echo()
        own = columns[kind]
        if own is not None:
            _print_rows(own, records, request.look)


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


@frozen(kw_only=True)
class WatchLook:
    """Whether a watch prints headers, and what is stored when it begins."""

    has_headers: bool = True
    is_first_list_shown: bool = True


def watch_resources(
    session: Session,
    selection: Selection,
    output: OutputFormat,
    columns: Columns | None,
    *,
    clause: str = "",
    look: WatchLook | None = None,
) -> int:
    """Print what is stored of a selection, then every change, until the person interrupts it; the exit status.

    ``columns`` are those of an output that is a table. ``clause`` is what the message about an empty selection adds.
    """
    printer = _Printer(selection, output, columns, clause, look or WatchLook())
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
    look: WatchLook
    _has_begun: bool = False
    _widths: tuple[int, ...] = ()

    def print_events(self, events: Sequence[ResourceEvent]) -> None:
        """Print some events; the first call prints the head of the table, also if there are none."""
        if not self._has_begun:
            self._has_begun = True
            self._print_missing({event.record.key for event in events})
            events = events if self.look.is_first_list_shown else ()
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
            if self.look.has_headers:
                rows.insert(0, (*((_TYPE_HEADER,) if has_type else ()), *columns.headers))
        # A later row may be wider than the rows before it: then the columns grow from there on.
        self._widths = tuple(map(max, self._widths, column_widths(rows))) if rows else self._widths
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
