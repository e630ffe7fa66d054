"""The report of ``ipam check``: writing it into a file, reading it again, and what is printed about it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from netplug_cli.ctl.documents import STDIN, read_text
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.private_files import require_free, write_private_file
from netplug_core.encoding.allocation_report import decode_report, encode_report
from netplug_core.ipam.reporting.address_use import UseState
from netplug_core.ipam.reporting.allocation_report import AllocationReport, LeakList

__all__ = ["read_leaks", "report_lines", "require_report_file", "write_report"]

_FORMATS = ("json", "yaml", "text", "table", "wide", "name")


def require_report_file(path: str, *, is_replacing: bool) -> None:
    """Refuse a file that cannot be written, and the name of a format, as other commands have it after ``-o``.

    Raises:
        InputError: it is one of these.
    """
    if path in _FORMATS:
        lists = "with --show-all-ips or --show-problem-ips -o json prints their list, " if path == "json" else ""
        ways = f"{lists}-o - prints the report in JSON on standard output, and ./{path} is a file of that name"
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
