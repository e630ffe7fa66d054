"""The Events on an Installation: what the operator has done, and what an administrator has to do. Pure.

An Event comes with a change, never with a look that finds everything as before. One that comes again is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final

from attrs import frozen

from netplug_core.addressing import Family
from netplug_core.decoding.tables import find_member
from netplug_core.installation.node_daemonset import CONFIG_MAP_KEY
from netplug_core.installation.pool_plan import PoolAction
from netplug_core.operator.actions import Action, ApplyObject, ChangePool
from netplug_core.operator.conditions import Reason, find_condition
from netplug_core.operator.objects import Json, ObjectRef, find_text, ref_of
from netplug_core.operator.wanted import CONFIG_MAP_REF

__all__ = ["TAKE_OVER", "Event", "event_of", "events_of_status", "ref_of_event", "render_event"]

_NAMESPACE: Final = "default"
"""Where Kubernetes has the Events of what has no namespace."""

_COMPONENT: Final = "netplug-operator"
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
    """``reason`` is one word; the ``message`` is for a person."""

    reason: str
    message: str
    is_warning: bool = False


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


def ref_of_event(event: Event, installation: Json) -> ObjectRef:
    """The name of the object for an Event; the same text about the same Installation has the same one."""
    parts = (find_text(installation, "metadata", "uid"), event.reason, event.message)
    digest = sha256("\0".join(parts).encode()).hexdigest()[:_HASH_DIGITS]
    return ObjectRef("v1", "Event", f"{find_text(installation, 'metadata', 'name')}.{digest}", _NAMESPACE)


def render_event(event: Event, installation: Json, found: Json | None, *, identity: str, now: str) -> Json:
    """The object for an Event, with one more count if it is there already. ``identity`` is the process."""
    ref, count = ref_of_event(event, installation), find_member(found or {}, "count")
    version = find_text(found, "metadata", "resourceVersion")
    about = {"apiVersion": find_text(installation, "apiVersion"), "kind": find_text(installation, "kind")}
    names = {member: find_text(installation, "metadata", member) for member in ("name", "uid")}
    return {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "metadata": {
            "name": ref.name,
            "namespace": ref.namespace,
            **({"resourceVersion": version} if version else {}),
        },
        "involvedObject": {**about, **names},
        "type": "Warning" if event.is_warning else "Normal",
        "reason": event.reason,
        "message": event.message[:_MAX_MESSAGE],
        "count": count + 1 if isinstance(count, int) else 1,
        "firstTimestamp": find_text(found, "firstTimestamp") or now,
        "lastTimestamp": now,
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "reportingInstance": identity,
    }


def _differs(after: Json, before: Json) -> bool:
    members = ("status", "reason") if find_text(after, "reason") in _FLUCTUATING else ("status", "reason", "message")
    return any(find_text(after, member) != find_text(before, member) for member in members)
