"""How each component of an installation is, in an object of its own: ``NetplugStatus``. Pure.

It is the layer below the conditions of the Installation, which say the same of all components together. An object has
the name of its component; its only content is its status, and it goes with the Installation.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from netplug_core.decoding.tables import find_member
from netplug_core.operator.actions import ChangePool
from netplug_core.operator.conditions import Report, conditions_of, generation_of, with_pending
from netplug_core.operator.objects import Json, ObjectRef, marked
from netplug_core.operator.plan import Plan
from netplug_core.resources.installation import INSTALLATION_API_VERSION

__all__ = [
    "STATUS_CONDITIONS", "STATUS_KIND", "Component", "component_object", "component_ref", "component_reports",
    "component_status", "component_status_schema", "has_conditions",
]  # fmt: skip

STATUS_KIND: Final = "NetplugStatus"
STATUS_CONDITIONS: Final = ("Available", "Progressing", "Degraded")
"""The types of its conditions."""

_TEXTS: Final = ("type", "status", "reason", "message", "lastTransitionTime")


class Component(enum.Enum):
    """A part of an installation; the value is the name of its object."""

    NETPLUG = "netplug"
    POOLS = "ippools"


def component_ref(component: Component) -> ObjectRef:
    """The name of the object of a component."""
    return ObjectRef(INSTALLATION_API_VERSION, STATUS_KIND, component.value)


def component_object(component: Component) -> Json:
    """The object of a component, without its status, as it is applied."""
    ref = component_ref(component)
    return marked({"apiVersion": ref.api_version, "kind": ref.kind, "metadata": {"name": ref.name}})


def component_reports(plan: Plan) -> Mapping[Component, Report]:
    """What there is to say of each component after a plan, or of all of them together if it went no further."""
    pools, others = plan.pools or plan.report, plan.nodes or plan.report
    changes = [action for action in plan.actions if isinstance(action, ChangePool)]
    return {
        Component.NETPLUG: with_pending(others, len(plan.actions) - len(changes)),
        Component.POOLS: with_pending(pools, len(changes)),
    }


def component_status(report: Report, found: Json, installation: Json, now: str) -> Json:
    """The status of a component. Times are those of its object, the generation is the Installation's."""
    generation = generation_of(installation)
    return {"conditions": conditions_of(report, found, now, generation=generation, types=STATUS_CONDITIONS)}


def has_conditions(found: Json, status: Json) -> bool:
    """Whether the object has this status already."""
    return find_member(found, "status", "conditions") == status["conditions"]


def component_status_schema() -> dict[str, object]:
    """The schema of the kind."""
    texts = {name: {"type": "string"} for name in _TEXTS}
    condition = {
        "type": "object",
        "properties": {**texts, "observedGeneration": {"type": "integer", "format": "int64"}},
        "required": ["type", "status"],
    }
    conditions = {
        "type": "array",
        "items": condition,
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }
    return {
        "type": "object",
        "description": "How a component of netplug is. The operator writes it, and it has no settings.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "status": {"type": "object", "properties": {"conditions": conditions}},
        },
    }
