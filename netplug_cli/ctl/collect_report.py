"""What ``ipam collect`` prints: lines for a person, or one JSON object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from netplug_cli.formatting import escape_unprintable
from netplug_core.ipam.gc.model import CollectionReport, GCAction

__all__ = ["collection_document", "collection_lines"]

_CHANGED = "its record was written meanwhile"
_USED = "a direct look says that it is in use"


def collection_lines(report: CollectionReport, *, is_applied: bool) -> Iterator[str]:
    """What was done or would be, what waits, and what is not known."""
    for line in _lines(report, is_applied=is_applied):
        yield escape_unprintable(line)


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


def collection_document(report: CollectionReport, *, is_applied: bool) -> Mapping[str, object]:
    """The same as an object for JSON."""
    return {
        "applied": is_applied,
        "actions": [
            *(_action(action, "done" if is_applied else "would be done") for action in report.done),
            *(_action(action, "left alone", reason) for action, reason in _kept(report)),
            *(_action(failure.action, "failed", failure.cause) for failure in report.failures),
        ],
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


def _action(action: GCAction, result: str, cause: str = "") -> Mapping[str, str]:
    return {"subject": action.subject, "text": str(action), "result": result, "cause": cause}
