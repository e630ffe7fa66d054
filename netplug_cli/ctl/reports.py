"""Reports of the tool as text and JSON: addresses, checks and collections."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import assert_never

import click
from attrs import Factory, define

from netplug_cli.ctl.arguments import format_key
from netplug_cli.ctl.documents import STDIN, read_text
from netplug_cli.ctl.editor import require_free, write_private_file
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.tables import Cell, Column, Report, text_cell
from netplug_cli.formatting import escape_unprintable, print_error, print_failure
from netplug_core.encoding.export import decode_report, encode_report
from netplug_core.errors import NetplugError
from netplug_core.flows.resources.outcome import Effect, Outcome, ResourceMissing
from netplug_core.ipam.gc.candidates import CollectionReport, GCAction
from netplug_core.ipam.reporting.usage import AddressUse, AllocationReport, LeakList, ListedAddress, UseState
from netplug_core.resources.codec import Manifest
from netplug_core.resources.fields import InvalidResource

__all__ = [
    "PROGRAM_FORMATS", "ChangeReport", "Shown", "Verb", "address_list_lines", "address_list_report",
    "collection_report", "error_place", "read_leaks", "report_lines", "require_report_file",
    "write_report",
]  # fmt: skip


# --- report ----------------------------------------------------------------------------------------------------------


class Verb(enum.Enum):
    """A verb; its value is the past participle."""

    APPLY = "applied"
    CREATE = "created"
    DELETE = "deleted"
    PATCH = "patched"
    REPLACE = "replaced"
    VALIDATE = "validated"

    @property
    def imperative(self) -> str:
        """The verb as it is typed."""
        return self.name.lower()


_CONDITIONALS = {
    Effect.CREATED: "would create",
    Effect.UPDATED: "would change",
    Effect.UNCHANGED: "would not change",
    Effect.DELETED: "would delete",
    Effect.REPAIRED: "would repair",
}


@define
class ChangeReport:
    """The results of one run of a verb. Successes are printed at once, failures with the summary.

    ``is_dry_run``: they are what would have happened. ``output`` is ``name`` if only kinds and names are printed.
    ``is_absence_ignored``: a resource that does not exist is no failure. ``explain`` may say more of an error.
    """

    verb: Verb
    is_dry_run: bool = False
    output: str | None = None
    is_absence_ignored: bool = False
    explain: Callable[[NetplugError], NetplugError] = lambda error: error
    _kinds: set[str] = Factory(set)
    _success_count: int = 0
    _failures: list[tuple[str, NetplugError]] = Factory(list)

    def add_success(self, outcome: Outcome) -> None:
        """Print the outcome of a document."""
        self._success_count += 1
        if self.output:
            click.echo(escape_unprintable(format_key(outcome.key)))
        elif self.is_dry_run:
            click.echo(f"{_CONDITIONALS[outcome.effect]} {outcome.key}")
        else:
            click.echo(f"{outcome.key} {outcome.effect.value}")
        for warning in outcome.warnings:
            print_error(f"warning: {warning}")

    @contextmanager
    def collect_errors(self, kind: str, manifest: Manifest | None = None) -> Iterator[None]:
        """Collect the error of one document, so that the next ones are still processed.

        ``manifest`` is what the document was read as; None for the command line.
        """
        self._kinds.add(kind)
        try:
            yield
        except ResourceMissing as error:
            if not self.is_absence_ignored:
                self._add_failure(error, manifest)
        except NetplugError as error:
            self._add_failure(error, manifest)

    def _add_failure(self, error: NetplugError, manifest: Manifest | None) -> None:
        self._failures.append((f"{error_place(manifest, error)}: " if manifest else "", self.explain(error)))

    def print_summary(self) -> int:
        """Print the summary; return the exit status."""
        done, failed, verb = self._success_count, len(self._failures), self.verb.imperative
        kind = f"'{next(iter(self._kinds))}' " if len(self._kinds) == 1 else ""
        past = f"would {verb}" if self.is_dry_run else self.verb.value
        fail = f"would fail to {verb}" if self.is_dry_run else f"failed to {verb}"
        end = "; nothing was written" if self.is_dry_run else ""
        if not failed:
            self._say(f"{'Dry run:' if self.is_dry_run else 'Successfully'} {past} {done} {kind}resource(s){end}")
            return 0
        if failed == 1 and not done:
            where, error = self._failures[0]
            print_failure(f"{fail} {kind}resource: {where}{error}")
            return 1
        for where, error in self._failures:
            print_failure(f"{where}{error}")
        if done:
            self._say(f"Partial success: {past} {done} out of {done + failed} {kind}resources{end}")
        else:
            print_failure(f"{fail} any {kind}resources")
        return 1

    def _say(self, line: str) -> None:
        if not self.output:
            click.echo(line)


def error_place(manifest: Manifest, error: NetplugError) -> str:
    """Where in its file a refused field stands, or the document."""
    if isinstance(error, InvalidResource):
        return manifest.place_of(error.field_errors[0].field)
    return manifest.source


# --- allocation reports ----------------------------------------------------------------------------------------------


PROGRAM_FORMATS = ("json", "yaml", "csv")
"""What ``ipam check`` takes as a format after ``-o``, and not as the name of a file."""

_FORMATS = ("text", "table", "wide", "name")


def require_report_file(path: str, *, is_replacing: bool) -> None:
    """Refuse a file that cannot be written, and the name of a format, as other commands have it after ``-o``.

    Raises:
        InputError: it is one of these.
    """
    if path in _FORMATS:
        ways = f"{', '.join(PROGRAM_FORMATS)} print what is found, and ./{path} is a file of that name"
        raise InputError(f"-o {path}", path, f"-o takes a file here: {ways}")
    if path != STDIN:
        require_free(path, is_replacing=is_replacing)


def write_report(path: str, report: AllocationReport, *, is_replacing: bool) -> None:
    """Write a report into a file as a whole, or to standard output.

    Raises:
        InputError: the file cannot be written; nothing is left behind.
    """
    if path == STDIN:
        for line in encode_report(report):
            click.echo(line, nl=False)
        return
    write_private_file(path, (line.encode() for line in encode_report(report)), is_replacing=is_replacing)


def read_leaks(path: str) -> LeakList:
    """What the report in a file calls leaked.

    Raises:
        ConfigurationError: it cannot be read, or is no report.
    """
    return decode_report(read_text(path), "standard input" if path == STDIN else path)


def report_lines(report: AllocationReport) -> Iterator[str]:
    """What a report counts."""
    count = {state: len(report.of_state(state)) for state in UseState}
    yield (
        f"Found {count[UseState.LEAKED]} addresses that are not in use ({count[UseState.USED]} are, "
        f"{count[UseState.COOLING]} cool down, and of {count[UseState.UNDETERMINED]} it is not known)."
    )
    leaked = len(report.leaked_handles)
    yield f"Found {leaked} handles with no matching IPs (and {report.handles - leaked} handles with matches)."


# --- address lists ---------------------------------------------------------------------------------------------------


class Shown(enum.Enum):
    """Which addresses are listed."""

    NONE = "none"
    PROBLEMS = "problems"
    ALL = "all"

    def of(self, addresses: Iterable[ListedAddress]) -> tuple[ListedAddress, ...]:
        """Those of some addresses."""
        return tuple(each for each in addresses if self is Shown.ALL or each.problems)


def address_list_lines(addresses: Iterable[ListedAddress]) -> Iterator[str]:
    """A line for each address, with its handle and its problems, as far as it has any."""
    for each in addresses:
        handle = f", handle {each.handle}" if each.handle else ""
        problems = f"; problem: {', '.join(each.problems)}" if each.problems else ""
        yield escape_unprintable(f"{each.address} {_state_text(each.use)}{handle}{problems}")


_LISTED_COLUMNS = tuple(Column("", name) for name in ("ip", "allocated", "handle", "state", "detail", "problems"))


def address_list_report(addresses: Sequence[ListedAddress]) -> Report:
    """The list as a report for programs."""
    rows = tuple(
        (
            text_cell(str(each.address)),
            Cell(each.is_allocated, ""),
            text_cell(each.handle),
            text_cell(each.use.state.value),
            text_cell(each.use.text),
            text_cell("; ".join(each.problems)),
        )
        for each in addresses
    )
    return Report(_LISTED_COLUMNS, rows, name="", facts=_address_list_document(addresses), shown=())


def _address_list_document(addresses: Iterable[ListedAddress]) -> Mapping[str, object]:
    return {
        "addresses": [
            {
                "ip": str(each.address),
                "allocated": each.is_allocated,
                "handle": each.handle,
                "state": each.use.state.value,
                "detail": each.use.text,
                "problems": list(each.problems),
            }
            for each in addresses
        ]
    }


def _state_text(use: AddressUse) -> str:
    match use.state:
        case UseState.USED:
            return f"is used by {use.text}"
        case UseState.LEAKED:
            return "is not in use"
        case UseState.COOLING:
            return "cools down"
        case UseState.UNDETERMINED:
            return f"may be in use: {use.text}"
        case _:
            assert_never(use.state)


# --- collect report --------------------------------------------------------------------------------------------------


_CHANGED = "its record was written meanwhile"
_USED = "a direct look says that it is in use"


def _lines(report: CollectionReport, *, is_applied: bool) -> Iterator[str]:
    for action in report.done:
        yield f"done: {action}" if is_applied else f"would {action}"
    for kept, reason in _kept(report):
        yield f"left alone: {kept} ({reason})"
    for leak in report.candidates:
        yield f"waits for the grace period, or for other addresses of its handle: {leak}"
    for record in report.pending:
        yield f"waits for the grace period: {record.key} looks abandoned"
    for node in report.waiting:
        yield str(node)
    for reason, count in sorted(Counter(each.reason.value for each in report.undetermined).items()):
        yield f"not known whether in use: {count} addresses ({reason})"
    if report.postponed:
        yield f"postponed: {report.postponed} actions, more than one tick does; run it again"
    verb = "Freed" if is_applied else "Would free"
    yield (
        f"{verb} {len(report.freed)} addresses in {len(report.done)} actions; "
        f"{len(report.candidates) + len(report.pending)} candidates wait."
    )


_ACTION_COLUMNS = tuple(Column("", name) for name in ("subject", "text", "result", "cause"))


def collection_report(report: CollectionReport, *, is_applied: bool) -> Report:
    """What was done or would be, what waits, and what is not known; the actions are the rows."""
    actions = (
        *(_action(action, "done" if is_applied else "would be done") for action in report.done),
        *(_action(action, "left alone", reason) for action, reason in _kept(report)),
        *(_action(failure.action, "failed", failure.cause) for failure in report.failures),
    )
    shown = tuple(map(escape_unprintable, _lines(report, is_applied=is_applied)))
    return Report(_ACTION_COLUMNS, actions, name="actions", facts=_facts(report, is_applied=is_applied), shown=shown)


def _facts(report: CollectionReport, *, is_applied: bool) -> Mapping[str, object]:
    return {
        "applied": is_applied,
        "freed": [
            {
                "ip": str(leak.owner.address),
                "handle": leak.owner.handle or "",
                "sequenceNumber": leak.owner.sequence,
                "node": leak.owner.node,
                "reason": leak.reason.value,
            }
            for leak in report.freed
        ],
        "candidates": [*map(str, report.candidates), *(str(record.key) for record in report.pending)],
        "undetermined": [
            {"ip": str(each.owner.address), "handle": each.owner.handle or "", "reason": each.reason.value}
            for each in report.undetermined
        ],
        "waitingNodes": [{"node": each.node, "ips": [*map(str, each.addresses)]} for each in report.waiting],
        "unreadable": [*map(str, report.unreadable)],
        "postponed": report.postponed,
    }


def _kept(report: CollectionReport) -> Iterator[tuple[GCAction, str]]:
    """The actions that were due and not done, and why."""
    yield from ((action, _CHANGED) for action in report.skipped)
    yield from ((action, _USED) for action in report.in_use)


def _action(action: GCAction, result: str, cause: str = "") -> tuple[Cell, ...]:
    return tuple(map(text_cell, (action.subject, str(action), result, cause)))
