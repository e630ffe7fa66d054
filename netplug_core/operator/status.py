"""The status of the Installation and of its components, and the Events about both, from one plan. Pure.

A status is written only if it differs. An Event comes with a change, never with a look that finds everything as before.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final

from attrs import evolve, frozen

from netplug_core.addressing import Family
from netplug_core.cni.plugins import PLUGINS_FOUND, PLUGINS_MISSING, MissingPlugin
from netplug_core.decoding.tables import find_member, find_text
from netplug_core.errors import excerpt
from netplug_core.installation.cluster import computed_spec
from netplug_core.installation.daemonset import CONFIG_MAP_KEY, NODE_ACCOUNT
from netplug_core.installation.pools import PoolAction
from netplug_core.operator.plan import Plan
from netplug_core.operator.report import Reason, Report, conditions_of, find_condition, generation_of, with_pending
from netplug_core.operator.state import (
    CONFIG_MAP_REF,
    Action,
    ApplyObject,
    ChangePool,
    Json,
    ObjectRef,
    describe,
    marked,
    ref_of,
)
from netplug_core.reconcile.controller import Problem
from netplug_core.resources.installation import INSTALLATION_API_VERSION

__all__ = [
    "STATUS_CONDITIONS", "STATUS_KIND", "TAKE_OVER", "Component", "Event", "component_object", "component_ref",
    "component_reports", "component_status", "component_status_schema", "event_of", "event_of_plugins",
    "event_of_problem", "events_of_status", "has_conditions", "has_status", "plan_after_failure", "ref_of_event",
    "render_event", "report_failure", "status_of",
]  # fmt: skip


# --- the status -------------------------------------------------------------------------------------------------------


_MEMBERS = ("conditions", "computed", "crdMode", "detectedProvider", "mtu", "netplugVersion")


def status_of(plan: Plan, installation: Json, *, version: str, now: str) -> Json:
    """The status after a plan. What it does not know stays as it was: the mode, the settings, the version.

    The version is that of the release whose objects were all there last.
    """
    before = find_member(installation, "status")
    status = {name: before[name] for name in _MEMBERS if name in before} if isinstance(before, dict) else {}
    status["conditions"] = conditions_of(plan.report, installation, now)
    if plan.mode is not None:
        status["crdMode"] = find_text(installation, "status", "crdMode") or plan.mode.value
    if plan.checked is not None and plan.checked.resolved is not None:
        status["computed"] = computed_spec(plan.checked.resolved)
        status["mtu"] = plan.checked.resolved.mtu
    if plan.provider is not None:
        status["detectedProvider"] = plan.provider.value
    if plan.report.is_ready:
        status["netplugVersion"] = version
    return status


def has_status(installation: Json, status: Json) -> bool:
    """Whether the object has this status already. Members of others do not count."""
    return all(find_member(installation, "status", name) == status.get(name) for name in _MEMBERS)


def plan_after_failure(plan: Plan, action: Action, error: Exception) -> Plan:
    """A plan of which an action has failed: the component that the action is of is degraded."""

    def failed(report: Report) -> Report:
        return report_failure(report, describe(action), error)

    is_pool, pools, nodes = isinstance(action, ChangePool), plan.pools or plan.report, plan.nodes or plan.report
    return evolve(
        plan,
        report=failed(plan.report),
        pools=failed(pools) if is_pool else pools,
        nodes=nodes if is_pool else failed(nodes),
    )


def report_failure(report: Report, what: str, error: Exception, *, is_read: bool = False) -> Report:
    """The report if an action failed, or if the cluster could not be read; ``what`` names it."""
    reason = Reason.READ_ERROR if is_read else Reason.UPDATE_ERROR
    return evolve(report, degraded=(reason, f"{what}: {excerpt(error)}"))


# --- of the components ------------------------------------------------------------------------------------------------


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


# --- Events -----------------------------------------------------------------------------------------------------------


_NAMESPACE: Final = "default"
"""Where Kubernetes has the Events of what has no namespace."""

_MAX_MESSAGE: Final = 1000
_HASH_DIGITS: Final = 16

_ADVICE: Final[Mapping[str, str]] = {
    Reason.INVALID: "Correct the Installation; netplugctl install validate shows every mistake.",
    Reason.READ_ERROR: "The API server does not answer, or refuses: look at it, and at the rights of the operator.",
    Reason.UPDATE_ERROR: "The API server does not answer, or refuses: look at it, and at the rights of the operator.",
    Reason.POD_FAILURE: "Look at these pods: kubectl describe pods -n netplug-system.",
    PoolAction.WAIT.value: "Look at the pools: netplugctl get ippools -o yaml.",
    PoolAction.REFUSE.value: "Change the pool in the Installation, or the one that is there.",
}
"""What to do, by the reason of Degraded, where the message does not say it."""

_FLUCTUATING: Final = (Reason.READ_ERROR, Reason.UPDATE_ERROR, Reason.POD_FAILURE)
"""Reasons whose message changes while the problem stays the same."""

_POOL_REASONS: Final = {
    PoolAction.CREATE: "PoolCreated",
    PoolAction.UPDATE: "PoolUpdated",
    PoolAction.DELETE: "PoolDeleted",
}


@frozen(kw_only=True)
class Event:
    """``reason`` is one word; the ``message`` is for a person. ``component`` is the program that reports it."""

    reason: str
    message: str
    is_warning: bool = False
    component: str = "netplug-operator"


TAKE_OVER: Final = Event(reason="OperatorActs", message="an operator process has the Lease, and acts from now on")
"""What is said by a process that begins to act."""


def event_of(action: Action, objects: Mapping[ObjectRef, Json]) -> Event | None:
    """The Event about an action that was done; None if it has none: a change of a pool, or of families has.

    ``objects`` are those of the cluster before it.
    """
    if isinstance(action, ApplyObject):
        return _event_of_families(objects.get(CONFIG_MAP_REF), action.wanted)
    if not isinstance(action, ChangePool):
        return None
    pool = action.step.pool
    reason = _POOL_REASONS.get(action.step.action)
    text = f"IPPool {pool.metadata.name} ({pool.spec.prefix}): {action.step.reason}"
    return None if reason is None else Event(reason=reason, message=text)


def _event_of_families(found: Json | None, wanted: Json) -> Event | None:
    """Pods get addresses of a family that they did not get before, because of a pool."""
    if ref_of(wanted) != CONFIG_MAP_REF or found is None:
        return None
    before, after = _families_of(found), _families_of(wanted)
    added = [str(family) for family in Family if family in after - before]
    if not before or not added:
        return None
    text = f"the cluster has its first pool of {' and '.join(added)}: new pods get such an address too"
    return Event(reason="FamilyAdded", message=f"{text}, and the pods of netplug-node are replaced on every node")


def _families_of(config_map: Json) -> set[Family]:
    """The families of which the conflist of a ConfigMap asks the block IPAM for addresses."""
    text = find_text(config_map, "data", CONFIG_MAP_KEY).replace(" ", "")
    return {family for family in Family if f'"assign_ipv{family.value}":"true"' in text}


def event_of_plugins(missing: tuple[MissingPlugin, ...]) -> Event:
    """The Event of a node process about plugins that its host lacks; none: that they are there again."""
    if not missing:
        return Event(reason=PLUGINS_FOUND, message="no plugin is missing any more", component=NODE_ACCOUNT)
    text = f"each start of a pod on this node fails: {'; '.join(map(str, missing))}"
    return Event(reason=PLUGINS_MISSING, message=text, is_warning=True, component=NODE_ACCOUNT)


def event_of_problem(problem: Problem) -> Event:
    """The Event of a node process about a problem that has one."""
    text = f"{problem.message}: {problem.cause}"
    return Event(reason=problem.event, message=text, is_warning=True, component=NODE_ACCOUNT)


def events_of_status(installation: Json, status: Json) -> Iterator[Event]:
    """The Events about a new status of the Installation, compared with the one that it has."""
    after = {"status": status}
    degraded, before = find_condition(after, "Degraded"), find_condition(installation, "Degraded")
    if find_text(degraded, "status") == "True" and _differs(degraded, before):
        reason, message = find_text(degraded, "reason"), find_text(degraded, "message")
        advice = _ADVICE.get(reason, "")
        yield Event(reason=reason, message=f"{message}\n{advice}" if advice else message, is_warning=True)
    ready = find_condition(after, "Ready")
    if find_text(ready, "status") == "True" and find_text(find_condition(installation, "Ready"), "status") != "True":
        release = find_text(after, "status", "netplugVersion")
        text = f"everything of release {release} is there, and every node is ready"
        yield Event(reason=Reason.AVAILABLE, message=text)


def ref_of_event(event: Event, about: Json) -> ObjectRef:
    """The name of the object for an Event; the same text about the same object has the same one.

    What an Event is ``about`` is an object without a namespace: the Installation, or a Node.
    """
    parts = (find_text(about, "metadata", "uid"), event.reason, event.message)
    digest = sha256("\0".join(parts).encode()).hexdigest()[:_HASH_DIGITS]
    return ObjectRef("v1", "Event", f"{find_text(about, 'metadata', 'name')}.{digest}", _NAMESPACE)


def render_event(event: Event, about: Json, found: Json | None, *, identity: str, now: str) -> Json:
    """The object for an Event, with one more count if it is there already. ``identity`` is the process."""
    ref, count = ref_of_event(event, about), find_member(found or {}, "count")
    version = find_text(found, "metadata", "resourceVersion")
    kind = {"apiVersion": find_text(about, "apiVersion"), "kind": find_text(about, "kind")}
    names = {member: find_text(about, "metadata", member) for member in ("name", "uid")}
    return {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "metadata": {
            "name": ref.name,
            "namespace": ref.namespace,
            **({"resourceVersion": version} if version else {}),
        },
        "involvedObject": {**kind, **names},
        "type": "Warning" if event.is_warning else "Normal",
        "reason": event.reason,
        "message": event.message[:_MAX_MESSAGE],
        "count": count + 1 if isinstance(count, int) else 1,
        "firstTimestamp": find_text(found, "firstTimestamp") or now,
        "lastTimestamp": now,
        "source": {"component": event.component},
        "reportingComponent": event.component,
        "reportingInstance": identity,
    }


def _differs(after: Json, before: Json) -> bool:
    members = ("status", "reason") if find_text(after, "reason") in _FLUCTUATING else ("status", "reason", "message")
    return any(find_text(after, member) != find_text(before, member) for member in members)
