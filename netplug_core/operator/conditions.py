"""The conditions of an Installation: Ready, Progressing and Degraded. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import evolve, frozen

from netplug_core.decoding.tables import find_member
from netplug_core.operator.objects import Json, find_text

__all__ = [
    "CONDITIONS", "Reason", "Report", "condition_values", "conditions_of", "find_condition", "generation_of",
    "with_pending",
]  # fmt: skip


CONDITIONS: Final = ("Ready", "Progressing", "Degraded")
"""The types of an Installation's conditions."""


class Reason:
    """Why a condition is as it is; the words that the API shows."""

    AVAILABLE: Final = "AllObjectsAvailable"
    BLOCKS_LOST: Final = "BlocksLost"
    CONVERSION: Final = "MigrationError"
    INVALID: Final = "InvalidConfigurationError"
    MIGRATION: Final = "ResourceMigrationError"
    NOT_IMPLEMENTED: Final = "NotImplemented"
    NOT_FOUND: Final = "ResourceNotFound"
    NOT_READY: Final = "ResourceNotReady"
    POD_FAILURE: Final = "PodFailure"
    READ_ERROR: Final = "ResourceReadError"
    UNKNOWN: Final = "Unknown"
    UPDATE_ERROR: Final = "ResourceUpdateError"


@frozen(kw_only=True)
class Report:
    """What there is to say: why it is degraded, what is under way, and what an administrator should know otherwise.

    ``degraded`` and ``progressing`` are a reason and a message. None: it is not. ``unready`` is why it is not ready
    although nothing is wrong or under way.
    """

    degraded: tuple[str, str] | None = None
    progressing: tuple[str, str] | None = None
    unready: tuple[str, str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether everything is as it should be."""
        return self.degraded is None and self.progressing is None and self.unready is None


def conditions_of(
    report: Report, found: Json, now: str, *, generation: int | None = None, types: Sequence[str] = CONDITIONS
) -> list[Json]:
    """The conditions for a report. The time of a condition changes with its status only; ``now`` is the time.

    ``found`` is the object that they are for, ``generation`` that of the object that the report is about, if it is
    another one. ``types`` are what is called ready, progressing, degraded.
    """
    ready = (Reason.AVAILABLE, "\n".join(report.notes)) if report.is_ready else None
    states = dict(zip(types, (ready, report.progressing, report.degraded), strict=True))
    conditions = list[Json]()
    for index, (kind, state) in enumerate(states.items()):
        reason, message = state or (report.unready if index == 0 else None) or _otherwise(report)
        status, former = ("False" if state is None else "True"), find_condition(found, kind)
        has_changed = find_text(former, "status") != status
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": now if has_changed else find_text(former, "lastTransitionTime") or now,
                "observedGeneration": generation_of(found) if generation is None else generation,
            }
        )
    return conditions


def _otherwise(report: Report) -> tuple[str, str]:
    """The reason and the message of a condition that is not so: what is under way is why nothing else is known yet."""
    if report.is_ready:
        return Reason.AVAILABLE, ""
    return report.progressing or (Reason.UNKNOWN, "")


def with_pending(report: Report, count: int) -> Report:
    """While there are so many changes to be made, nothing is ready."""
    if not count or report.progressing is not None:
        return report
    return evolve(report, progressing=(Reason.NOT_READY, f"changes that are being made: {count}"))


def generation_of(found: Json) -> int:
    """The generation of an object; 0 if it has none."""
    generation = find_member(found, "metadata", "generation")
    return generation if isinstance(generation, int) else 0


def condition_values(status: Json) -> dict[str, float]:
    """The conditions of a status by their types: 1 for one that is true, otherwise 0."""
    found = {kind: find_condition({"status": status}, kind) for kind in CONDITIONS}
    return {kind: float(find_text(one, "status") == "True") for kind, one in found.items()}


def find_condition(found: Json, kind: str) -> Json:
    """The condition of that type in the status of an object; an empty one if it has none."""
    listed = find_member(found, "status", "conditions")
    conditions = (one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, Mapping))
    return next((one for one in conditions if find_text(one, "type") == kind), {})
