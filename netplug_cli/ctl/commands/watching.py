"""``get --watch``: a table, or a JSON object a line, that goes on with every change until it is interrupted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import assert_never

import click
from attrs import define

from netplug_cli.ctl.session import Session
from netplug_cli.ctl.tables import Width, table_headers, table_row
from netplug_cli.formatting import column_widths, escape_cells, format_row, print_error
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
from netplug_core.resources.kinds import Resource, ResourceScope

__all__ = ["watch_resources"]


def watch_resources(session: Session, selection: Selection, output: str, *, clause: str = "") -> int:
    """Print what is stored of a selection, then every change, until the person interrupts it; the exit status.

    ``clause`` is what the message about an empty selection adds.
    """
    printer = _Printer(selection, None if output == "json" else Width(output), clause)
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
    """Prints events: as rows of a table of some width, or as JSON (``width`` None)."""

    selection: Selection
    width: Width | None
    clause: str
    _has_begun: bool = False
    _widths: tuple[int, ...] = ()

    def print_events(self, events: Sequence[ResourceEvent]) -> None:
        """Print some events; the first call prints the head of the table, also if there are none."""
        if not self._has_begun:
            self._has_begun = True
            self._print_missing({event.record.key for event in events})
        if self.width is None:
            for event in events:
                shown = to_mapping(event.record.value, revision=event.record.revision)
                click.echo(json.dumps({"type": event.type.value, "object": shown}, ensure_ascii=False))
            return
        headers = self._headers(self.width)
        rows: list[tuple[str, ...]] = [
            (event.type.value, *escape_cells(table_row(event.record.value, headers[1:]))) for event in events
        ]
        if not self._widths:
            self._widths = (*column_widths((event.value,) for event in EventType), *(0 for _ in headers[1:]))
            rows.insert(0, headers)
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

    def _headers(self, width: Width) -> tuple[str, ...]:
        kind, selection = self.selection.kind, self.selection
        is_everywhere = selection.keys is None and not selection.namespace
        leading = ("NAMESPACE",) if is_everywhere and kind.scope is ResourceScope.NAMESPACED else ()
        return ("EVENT", *leading, *table_headers(kind, width))
