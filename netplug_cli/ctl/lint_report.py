"""What ``lint`` found, as a table and as an object for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netplug_cli.formatting import format_columns
from netplug_core.lint.check import LintResult
from netplug_core.lint.finding import Finding
from netplug_core.lint.rules import Severity

__all__ = ["count_of", "report_lines", "report_object"]

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
