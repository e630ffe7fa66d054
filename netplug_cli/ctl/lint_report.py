"""What ``lint`` prints, and the repairs of ``--fix`` in the files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff
from typing import cast

from attrs import frozen

from netplug_backends.host.atomic_files import replace_file
from netplug_cli.ctl.documents import Document, read_text
from netplug_cli.ctl.editor import replace_value
from netplug_cli.ctl.errors import InputError
from netplug_cli.formatting import format_columns
from netplug_core.errors import ConfigurationError
from netplug_core.lint.check import LintResult
from netplug_core.lint.rules import Finding, Repair, Severity

__all__ = [
    "FileRepair", "count_of", "plan_repairs", "report_lines", "report_object", "write_repair",
]  # fmt: skip


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


def report_object(result: LintResult) -> dict[str, object]:
    """The same as an object; the value of a finding is null where nothing is there or nothing may be shown."""
    counts = {f"{severity.value}s": count_of(result.found, severity) for severity in Severity}
    return {"findings": [_object(one) for one in result.found], **counts, "objects": result.count}


def _object(one: Finding) -> dict[str, object]:
    is_plain = one.value is None or isinstance(one.value, bool | int | float)
    return {
        "id": one.rule.identifier,
        "name": one.rule.word,
        "severity": one.rule.severity.value,
        "source": one.source,
        "object": one.subject,
        "field": one.field,
        "value": one.value if is_plain else one.shown_value,
        "accepted": one.accepted,
        "next": one.rule.next_step,
        "fixable": one.repair is not None,
    }


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
        path, value = (*document.path, *repair.path), cast("str | float", repair.value)
        try:
            after = replace_value(after, document.number, path, value, name=name)
        except InputError as error:
            problems.append(error)
    return FileRepair(file=file, before=before, after=after, problems=tuple(problems))
