"""The conditions of an Installation: Ready, Progressing and Degraded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from netplug_core.decoding.tables import find_member
from netplug_core.operator.objects import Json, find_text

__all__ = ["Reason", "Report", "condition_values", "conditions_of", "find_condition"]


class Reason:
    """Why a condition is as it is; the words that the API shows."""

    AVAILABLE: Final = "AllObjectsAvailable"
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


def conditions_of(report: Report, installation: Json, now: str) -> list[Json]:
    """The conditions for a report. The time of a condition changes with its status only; ``now`` is the time."""
    states = {
        "Ready": (Reason.AVAILABLE, "\n".join(report.notes)) if report.is_ready else None,
        "Progressing": report.progressing,
        "Degraded": report.degraded,
    }
    otherwise = Reason.AVAILABLE if report.is_ready else Reason.UNKNOWN
    generation = find_member(installation, "metadata", "generation")
    conditions = list[Json]()
    for kind, state in states.items():
        reason, message = state or (report.unready if kind == "Ready" else None) or (otherwise, "")
        status, former = ("False" if state is None else "True"), find_condition(installation, kind)
        has_changed = find_text(former, "status") != status
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": now if has_changed else find_text(former, "lastTransitionTime") or now,
                "observedGeneration": generation if isinstance(generation, int) else 0,
            }
        )
    return conditions


def condition_values(status: Json) -> dict[str, float]:
    """The conditions of a status by their types: 1 for one that is true, otherwise 0."""
    found = {kind: find_condition({"status": status}, kind) for kind in ("Ready", "Progressing", "Degraded")}
    return {kind: float(find_text(one, "status") == "True") for kind, one in found.items()}


def find_condition(found: Json, kind: str) -> Json:
    """The condition of that type in the status of an object; an empty one if it has none."""
    listed = find_member(found, "status", "conditions")
    conditions = (one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, Mapping))
    return next((one for one in conditions if find_text(one, "type") == kind), {})
