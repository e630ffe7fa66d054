"""``get --watch``: what ``get`` prints of each resource, again with every change, until it is interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import assert_never

import click
from attrs import define

from netplug_cli.ctl.arguments import format_key
from netplug_cli.ctl.documents import render_json_line, render_yaml
from netplug_cli.ctl.outputs.columns import Columns
from netplug_cli.ctl.outputs.formats import ObjectFormat, OutputFormat
from netplug_cli.ctl.outputs.templates import Template
from netplug_cli.ctl.session import Session
from netplug_cli.ctl.tables import Width
from netplug_cli.formatting import column_widths, escape_cells, escape_unprintable, format_row, print_error
from netplug_core.flows.resources.watch import (
    EventType,
    ResourceEvent,
    ResourceEvents,
    Selection,
    WatchProblem,
    WatchResumed,
    watch,
)
from netplug_core.records import Key
from netplug_core.resources.codec import to_mapping
from netplug_core.resources.kinds import Resource

__all__ = ["watch_resources"]

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
