"""What the operator reports: conditions, how far the nodes' pods are, and components that nothing serves yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from attrs import evolve, frozen

from netplug_core.decoding.tables import find_member, find_text
from netplug_core.installation.components import COMPONENT_NAME, ComponentKind, unserved_text
from netplug_core.installation.controllers import CONTROLLERS_NAME
from netplug_core.operator.state import Json, ObjectRef, is_being_deleted
from netplug_core.resources.installation import INSTALLATION_API_VERSION

__all__ = [
    "COMPONENT_REFS", "CONDITIONS", "ContainerFailure", "Reason", "Report", "Rollout", "condition_values",
    "conditions_of", "controllers_rollout_of", "failures_of", "find_condition", "generation_of", "is_ready_pod",
    "pending_statuses", "rollout_of", "with_pending",
]  # fmt: skip


# --- conditions -------------------------------------------------------------------------------------------------------


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


# --- the nodes --------------------------------------------------------------------------------------------------------


_FAILING: Final = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""Reasons of a container that waits and will not run by itself."""

_OF_IMAGES: Final = frozenset({"ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName"})
"""Those of which the image is the cause."""

_SHOWN: Final = 3


@frozen(kw_only=True)
class Rollout:
    """``progress`` says what is awaited, ``failures`` which pods fail; both are empty if every pod is there."""

    progress: str = ""
    failures: tuple[str, ...] = ()


@frozen(kw_only=True)
class ContainerFailure:
    """A container that waits and will not run by itself.

    The ``message`` is the kubelet's, and changes while it tries again; ``image`` is the cause, if it is one, and
    ``last_status`` is how the container ended before, if it ran.
    """

    container: str
    reason: str
    message: str = ""
    image: str = ""
    last_status: int | None = None

    def __str__(self) -> str:
        ended = "" if self.last_status is None else f", it ended with status {self.last_status} before"
        image = f" of image {self.image}" if self.image else ""
        return f"{self.container}: {self.reason}{image}{ended}"


def rollout_of(daemonset: Json | None, pods: Iterable[Json]) -> Rollout:
    """The state of a DaemonSet and of its pods."""
    return Rollout(progress=_progress(daemonset), failures=_some_failures(pods))


def controllers_rollout_of(deployment: Json | None, pods: Iterable[Json]) -> Rollout:
    """The state of the Deployment of the controllers and of its pods; the nodes do not wait for its first status."""
    missing = 0 if deployment is None else _count(deployment, "status", "unavailableReplicas")
    progress = f"{CONTROLLERS_NAME} does not run: pods that are not available: {missing}" if missing else ""
    return Rollout(progress=progress, failures=_some_failures(pods))


def _some_failures(pods: Iterable[Json]) -> tuple[str, ...]:
    failures = tuple(dict.fromkeys(failure for pod in pods for failure in _failures(pod)))
    hidden = len(failures) - _SHOWN
    more = (f"{hidden} more",) if hidden > 0 else ()
    return (*failures[:_SHOWN], *more)


def _progress(daemonset: Json | None) -> str:
    if daemonset is None:
        return "the DaemonSet netplug-node is being created"
    if _count(daemonset, "metadata", "generation") > _count(daemonset, "status", "observedGeneration"):
        return "the DaemonSet netplug-node has not been read by the controller manager yet"
    wanted = _count(daemonset, "status", "desiredNumberScheduled")
    updated = _count(daemonset, "status", "updatedNumberScheduled")
    available = _count(daemonset, "status", "numberAvailable")
    if updated < wanted:
        return f"{updated} of {wanted} pods of netplug-node are updated"
    if available < wanted:
        return f"{available} of {wanted} pods of netplug-node are available"
    return ""


def failures_of(pod: Json) -> Iterator[ContainerFailure]:
    """The containers of a pod that will not run by themselves, the first ones first."""
    for member in ("initContainerStatuses", "containerStatuses"):
        containers = find_member(pod, "status", member)
        for container in containers if isinstance(containers, list) else ():
            reason = find_text(container, "state", "waiting", "reason")
            if reason in _FAILING:
                code = find_member(container, "lastState", "terminated", "exitCode")
                yield ContainerFailure(
                    container=find_text(container, "name"),
                    reason=reason,
                    message=find_text(container, "state", "waiting", "message"),
                    image=find_text(container, "image") if reason in _OF_IMAGES else "",
                    last_status=code if isinstance(code, int) else None,
                )


def is_ready_pod(pod: Json) -> bool:
    """Whether a pod is ready, and is not ending."""
    found = find_member(pod, "status", "conditions")
    conditions = found if isinstance(found, list) else ()
    is_ready = any(find_text(one, "type") == "Ready" and find_text(one, "status") == "True" for one in conditions)
    return is_ready and not is_being_deleted(pod)


def _failures(pod: Json) -> Iterator[str]:
    """What is wrong with the containers of a pod."""
    where = f"pod {find_text(pod, 'metadata', 'name')} on node {find_text(pod, 'spec', 'nodeName')}"
    return (f"{where}: container {failure}" for failure in failures_of(pod))


def _count(found: Json, *path: str) -> int:
    value = find_member(found, *path)
    return value if isinstance(value, int) else 0


# --- the components ---------------------------------------------------------------------------------------------------


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
