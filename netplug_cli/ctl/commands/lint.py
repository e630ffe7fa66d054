"""``lint``: finds what is wrong in configurations and manifests before they are used, and repairs what is certain."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import unified_diff
from typing import TypedDict, Unpack

import click
from attrs import frozen

from netplug_backends.host.atomic_files import replace_file
from netplug_cli.ctl.arguments import files_with, parse_cidr
from netplug_cli.ctl.documents import (
    MANIFEST_SUFFIXES,
    NETWORK_SUFFIXES,
    STDIN,
    Document,
    parse_text,
    read_documents,
    read_text,
)
from netplug_cli.ctl.editor import replace_value
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.ctl.tables import TABLE_OUTPUT, Cell, Column, Report, print_report, text_cell
from netplug_cli.formatting import format_columns, paint_diff, print_error
from netplug_core.addressing import Prefix
from netplug_core.datastore.transaction import read_pages
from netplug_core.errors import ConfigurationError
from netplug_core.flows.resources.read import list_all
from netplug_core.lint.check import LintResult, check, unreadable
from netplug_core.lint.clusters import HostRoute, Surroundings, read_routes
from netplug_core.lint.documents import Document as LintDocument
from netplug_core.lint.rules import Finding, Repair, Severity
from netplug_core.orchestrator.networkpolicy import KUBERNETES_NETWORK_POLICY, KubernetesNetworkPolicy
from netplug_core.records import NotSupported
from netplug_core.resources.kinds import Resource, get_kind

__all__ = [
    "FileRepair",
    "count_of",
    "lint",
    "lint_report",
    "plan_repairs",
    "report_lines",
    "write_repair",
]  # fmt: skip


# --- lint report -----------------------------------------------------------------------------------------------------


# --- lint report -----------------------------------------------------------------------------------------------------


_HEADERS = ("ID", "SEVERITY", "OBJECT", "FIELD", "VALUE", "SOURCE")


def count_of(found: Sequence[Finding], severity: Severity) -> int:
    """How many of some findings have a severity."""
    return sum(one.rule.severity is severity for one in found)


def report_lines(result: LintResult) -> Iterator[str]:
    """A row for each finding, below it what would be accepted and what to do, and a summary."""
    if result.found:
        header, *rows = format_columns(_HEADERS, map(_cells, result.found))
        yield header
        for one, row in zip(result.found, rows, strict=True):
            yield row
            yield f"   {_one_line(one.accepted)}"
            yield f"   next: {one.rule.next_step}"
        yield ""
    errors, warnings = (_plural(count_of(result.found, severity), severity.value) for severity in Severity)
    yield f"{errors} and {warnings} in {_plural(result.count, 'object')}"


_COLUMNS = tuple(
    Column("", name)
    for name in ("id", "name", "severity", "source", "object", "field", "value", "accepted", "next", "fixable")
)


def lint_report(result: LintResult) -> Report:
    """The findings; the value of one is null where nothing is there or nothing may be shown."""
    counts = {f"{severity.value}s": count_of(result.found, severity) for severity in Severity}
    return Report(
        _COLUMNS,
        tuple(map(_row, result.found)),
        name="findings",
        facts={**counts, "objects": result.count},
        shown=tuple(report_lines(result)),
    )


def _row(one: Finding) -> tuple[Cell, ...]:
    value = one.value if one.value is None or isinstance(one.value, bool | int | float) else one.shown_value
    texts = (one.rule.identifier, one.rule.word, one.rule.severity.value, one.source, one.subject, one.field)
    rest = (one.accepted, one.rule.next_step)
    return (*map(text_cell, texts), Cell(value, ""), *map(text_cell, rest), Cell(one.repair is not None, ""))


def _cells(one: Finding) -> tuple[str, ...]:
    cells = (one.rule.identifier, one.rule.severity.value, one.subject, one.field, one.shown_value, one.source)
    return tuple(map(_one_line, cells))


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


# --- lint repairs ----------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class FileRepair:
    """A file, its text as it was read, and as it shall be. ``problems`` are the errors of values that stay."""

    file: str
    before: str
    after: str
    problems: tuple[ConfigurationError, ...] = ()

    def diff_lines(self) -> Iterator[str]:
        """The difference, as ``diff -u`` prints it."""
        before, after = self.before.splitlines(), self.after.splitlines()
        return unified_diff(before, after, self.file, self.file, lineterm="")


def plan_repairs(documents: Sequence[Document], found: Iterable[Finding]) -> tuple[FileRepair, ...]:
    """The files in which something can be repaired, each with all of its repairs.

    Raises:
        InputError: a file cannot be read any more.
    """
    by_source = {document.source: document for document in documents}
    by_file: dict[str, list[tuple[Document, str, Repair]]] = {}
    for one in found:
        if one.repair is not None:
            document = by_source[one.source]
            by_file.setdefault(document.file, []).append((document, f"{one.source} {one.field}", one.repair))
    return tuple(_plan(file, repairs) for file, repairs in by_file.items())


def write_repair(repair: FileRepair) -> None:
    """Replace the file as a whole; mode and owner stay, and a link still leads to it.

    Raises:
        InputError: it cannot be written, or has been changed since it was read.
    """
    if read_text(repair.file) != repair.before:
        raise InputError(repair.file, None, "the file was changed meanwhile, and nothing was written; run it again")
    path = os.path.realpath(repair.file)
    try:
        old = os.stat(path)

        def keep_owner(new_file: str) -> None:
            new = os.stat(new_file)
            if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
                os.chown(new_file, old.st_uid, old.st_gid)

        replace_file(path, repair.after, stat.S_IMODE(old.st_mode), keep_owner)
    except OSError as error:
        raise InputError(repair.file, None, f"it cannot be written: {error.strerror}") from error


def _plan(file: str, repairs: Sequence[tuple[Document, str, Repair]]) -> FileRepair:
    before = after = read_text(file)
    problems = list[ConfigurationError]()
    for document, name, repair in repairs:
        path, value = (*document.path, *repair.path), repair.value
        try:
            after = replace_value(after, document.number, path, value, name=name)
        except InputError as error:
            problems.append(error)
    return FileRepair(file=file, before=before, after=after, problems=tuple(problems))


# --- lint ------------------------------------------------------------------------------------------------------------


_FOUND = 3
_SUFFIXES = (*MANIFEST_SUFFIXES, *NETWORK_SUFFIXES)
_STORED_KINDS = (
    "IPPool", "IPReservation", "IPAMConfiguration", "Node", "Profile", "HostEndpoint", "WorkloadEndpoint",
    "NetworkPolicy", "GlobalNetworkPolicy",
)  # fmt: skip


@frozen
class _Stored:
    """What is judged of a datastore."""

    resources: tuple[Resource, ...] = ()
    policies: tuple[KubernetesNetworkPolicy, ...] = ()


class _LintOptions(TypedDict):
    """The options of ``lint`` as click hands them over."""

    service_cidrs: tuple[Prefix, ...]
    host_cidrs: tuple[Prefix, ...]
    routes: str
    reads_datastore: bool
    output: str
    is_strict: bool
    is_fixed: bool
    is_dry_run: bool


def _cidrs(option: str, name: str, text: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    return click.option(option, name, multiple=True, type=parse_cidr, metavar="CIDR", help=text)


@click.command()
@files_with(_SUFFIXES)
@_cidrs("--service-cidr", "service_cidrs", "A range of the cluster's services, which pods must not have.")
@_cidrs("--host-cidr", "host_cidrs", "A network of the hosts, which pods must not have.")
@click.option("--routes", default="", metavar="FILE", help="The routes of a host, as ip -j route prints them.")
@click.option("--datastore", "reads_datastore", is_flag=True, help="Judge with what is stored in the datastore too.")
@TABLE_OUTPUT
@click.option("--strict", "is_strict", is_flag=True, help=f"End with status {_FOUND} for warnings too.")
@click.option("--fix", "is_fixed", is_flag=True, help="Correct in the files what is certain, and show each change.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="With --fix: show the changes, and write nothing.")
@click.pass_context
def lint(context: click.Context, files: tuple[str, ...], **options: Unpack[_LintOptions]) -> int:
    """Find what is wrong in network configurations, netplug's resources, Installations, pods, namespaces and nodes.

    All files are judged together; objects of other programs are skipped. A folder stands for its files that end in
    .yaml, .yml, .json, .conf or .conflist. The exit status is 3 if there is an error, 1 if lint itself fails. The
    rules are in docs/lint.md.
    """
    if not files and not options["reads_datastore"]:
        raise click.UsageError("Give at least one file: -f FILE; or --datastore.")
    if options["is_dry_run"] and not options["is_fixed"]:
        raise click.UsageError("--dry-run is for --fix.")
    if options["is_fixed"] and STDIN in files:
        raise click.UsageError("--fix changes files; standard input is none.")
    surroundings = Surroundings(
        services=options["service_cidrs"], hosts=options["host_cidrs"], routes=_read_routes(options["routes"])
    )
    stored = _read_stored(session_of(context)) if options["reads_datastore"] else _Stored()
    files = _distinct(files)
    result, documents = _lint(files, surroundings, stored)
    if options["is_fixed"]:
        repairs = plan_repairs(documents, result.found)
        _print_repairs(repairs, is_error=options["output"] != "table")
        if repairs and not options["is_dry_run"]:
            for repair in repairs:
                if repair.after != repair.before:
                    write_repair(repair)
            result, documents = _lint(files, surroundings, stored)
    _print_result(result, options["output"])
    worst = (Severity.ERROR, Severity.WARNING) if options["is_strict"] else (Severity.ERROR,)
    return _FOUND if any(count_of(result.found, severity) for severity in worst) else 0


def _lint(files: Sequence[str], surroundings: Surroundings, stored: _Stored) -> tuple[LintResult, tuple[Document, ...]]:
    """What the files break, and their documents."""
    documents, failed = list[Document](), list[Finding]()
    for file in files:
        try:
            documents.extend(read_documents([file]))
        except InputError as error:
            failed.append(unreadable(error.where, error.accepted))
    judged = [
        LintDocument(source=one.source, mapping=one.mapping, file="" if one.file == STDIN else one.file)
        for one in documents
    ]
    result = check(judged, surroundings, stored.resources, stored.policies)
    whole = LintResult(found=(*failed, *result.found), count=result.count + len(failed), skipped=result.skipped)
    return whole, tuple(documents)


def _distinct(files: Sequence[str]) -> tuple[str, ...]:
    """Each file once, under the first of its names: beside itself, it would break rules that it does not break."""
    by_path = dict[str, str]()
    for file in files:
        by_path.setdefault(file if file == STDIN else os.path.realpath(file), file)
    return tuple(by_path.values())


def _read_routes(file: str) -> tuple[HostRoute, ...]:
    if not file:
        return ()
    values = list(parse_text(read_text(file), file))
    if len(values) != 1:
        raise InputError(file, None, "one list of routes is expected, as ip -j route prints it")
    return read_routes(values[0], source=file)


def _read_stored(session: Session) -> _Stored:
    with session.open_datastore() as store:
        deadline = session.deadline()
        found = tuple(
            record.value for name in _STORED_KINDS for record in list_all(store, get_kind(name), deadline=deadline)
        )
        try:
            listed = read_pages(store, KUBERNETES_NETWORK_POLICY, (), deadline=deadline)
            return _Stored(found, tuple(record.value for record in listed))
        except NotSupported:
            return _Stored(found)  # a controller copies them: they are among the resources


def _print_repairs(repairs: Sequence[FileRepair], *, is_error: bool) -> None:
    for repair in repairs:
        for line in repair.diff_lines():
            click.echo(paint_diff(line), err=is_error)
        for problem in repair.problems:
            print_error(str(problem))


def _print_result(result: LintResult, output: str) -> None:
    if result.skipped:
        print_error(f"skipped, since lint does not know them: {', '.join(result.skipped)}")
    print_report(lint_report(result), output)
