"""What ``lint --fix`` writes: each value that is known for certain, and nothing else of a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff
from typing import cast

from attrs import frozen

from netplug_backends.host.atomic_files import replace_file
from netplug_cli.ctl.documents import Document, read_text
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.text_edits import replace_value
from netplug_core.errors import ConfigurationError
from netplug_core.lint.finding import Finding, Repair

__all__ = ["FileRepair", "plan_repairs", "write_repair"]


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
