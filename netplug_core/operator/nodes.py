"""How far the pods of the nodes are: what is still under way, and what fails. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from attrs import frozen

from netplug_core.decoding.tables import find_member
from netplug_core.operator.objects import Json, find_text, is_being_deleted

__all__ = ["ContainerFailure", "Rollout", "failures_of", "is_ready_pod", "rollout_of"]

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
    """``progress`` says what is awaited, ``failures`` which pods fail; both are empty if every node has its pod."""

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
    failures = tuple(dict.fromkeys(failure for pod in pods for failure in _failures(pod)))
    hidden = len(failures) - _SHOWN
    more = (f"{hidden} more",) if hidden > 0 else ()
    return Rollout(progress=_progress(daemonset), failures=(*failures[:_SHOWN], *more))


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
