"""What the status of APIServer, FlowLogAPI and FlowLogViewer says: that nothing serves them yet. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from netplug_core.decoding.tables import find_member
from netplug_core.installation.components import unserved_text
from netplug_core.operator.conditions import Reason, Report, conditions_of
from netplug_core.operator.objects import Json, ObjectRef
from netplug_core.resources.components import COMPONENT_NAME, ComponentKind
from netplug_core.resources.installation import INSTALLATION_API_VERSION

__all__ = ["COMPONENT_REFS", "pending_statuses"]

COMPONENT_REFS: Final[Mapping[ComponentKind, ObjectRef]] = {
    kind: ObjectRef(INSTALLATION_API_VERSION, kind.value, COMPONENT_NAME) for kind in ComponentKind
}
"""The one object of each kind."""


def pending_statuses(found: Mapping[ComponentKind, Json], now: str) -> Iterator[tuple[Json, Json]]:
    """The components whose status is to be written, each with its status. ``found`` are those that exist."""
    for kind, component in found.items():
        status = {"conditions": conditions_of(_report(kind, found), component, now)}
        if find_member(component, "status", "conditions") != status["conditions"]:
            yield component, status


def _report(kind: ComponentKind, found: Mapping[ComponentKind, Json]) -> Report:
    unready = (Reason.NOT_IMPLEMENTED, unserved_text(kind))
    if kind is ComponentKind.FLOW_LOG_VIEWER and ComponentKind.FLOW_LOG_API not in found:
        ref = COMPONENT_REFS[ComponentKind.FLOW_LOG_API]
        missing = f"there is no {ref}, whose flow logs the viewer would show; create it, or delete the viewer"
        return Report(degraded=(Reason.NOT_FOUND, missing), unready=unready)
    return Report(unready=unready)
