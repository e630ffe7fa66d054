"""Whether netplug works in a cluster: what is there, judged check by check. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from attrs import frozen

from netplug_core.installation.cluster import ClusterState, DaemonSetState, InstallationState, PodState
from netplug_core.resources.ippool import AllowedUse, IPPool

__all__ = ["Check", "Condition", "PoolsFound", "Status", "judge"]

_ETCD = "etcdv3"


class Condition(enum.Enum):
    """How something is, the best first."""

    AVAILABLE = "available"
    PROGRESSING = "progressing"
    DEGRADED = "degraded"


_ORDER = tuple(Condition)


@frozen
class Check:
    """One thing that was looked at; ``detail`` says what was found."""

    name: str
    condition: Condition
    detail: str


@frozen(kw_only=True)
class PoolsFound:
    """The pools of the datastore, or in ``failure`` why they cannot be read."""

    pools: tuple[IPPool, ...] = ()
    failure: str = ""


@frozen(kw_only=True)
class Status:
    """The result: the checks in their order."""

    checks: tuple[Check, ...]

    @property
    def condition(self) -> Condition:
        """The worst of all checks."""
        return max((check.condition for check in self.checks), key=_ORDER.index)


def judge(state: ClusterState, pools: PoolsFound) -> Status:
    """The status of a cluster."""
    count = len(state.daemonsets)
    if count == 0:
        missing = (
            "no DaemonSet netplug-node in kube-system or netplug-system: netplug is not installed; "
            "see netplugctl install apply --help"
        )
        node_checks = [Check("DaemonSet", Condition.DEGRADED, missing)]
    elif count > 1:
        places = " and ".join(one.namespace for one in state.daemonsets)
        node_checks = [Check("DaemonSet", Condition.DEGRADED, f"there is one in each of {places}; remove one")]
    else:
        node_checks = list(_node_checks(state, state.daemonsets[0]))
    uses_pools = any(one.assigns_addresses for one in state.daemonsets)
    return Status(
        checks=(
            *map(_check_installation, state.installations),
            *_definition_checks(state),
            *node_checks,
            *([_check_pools(pools)] if uses_pools else []),
        )
    )


def _check_installation(installation: InstallationState) -> Check:
    """What the operator has said; without one there are no conditions."""
    found = {kind: message for kind, status, message in installation.conditions if status == "True"}
    name = f"Installation({installation.name})"
    if "Degraded" in found:
        return Check(name, Condition.DEGRADED, found["Degraded"])
    if installation.conditions and "Ready" not in found:
        return Check(name, Condition.PROGRESSING, found.get("Progressing") or "it is not ready yet")
    detail = found.get("Ready") or ("ready" if installation.conditions else "no operator acts upon it")
    return Check(name, Condition.AVAILABLE, detail)


def _definition_checks(state: ClusterState) -> Iterator[Check]:
    """With etcd as the datastore there are none."""
    if any(one.datastore == _ETCD for one in state.daemonsets):
        return
    missing = [name for name, is_established in state.definitions if not is_established]
    count = f"{len(state.definitions) - len(missing)} of {len(state.definitions)} established"
    if not state.crd_mode:
        yield Check("CRDs", Condition.DEGRADED, "there are none; netplugctl install apply brings them")
    elif missing:
        yield Check("CRDs", Condition.DEGRADED, f"{count}; missing: {', '.join(missing)}; install again")
    else:
        yield Check("CRDs", Condition.AVAILABLE, f"{count}, {state.crd_mode}")


def _node_checks(state: ClusterState, daemonset: DaemonSetState) -> Iterator[Check]:
    wanted, updated = daemonset.desired, daemonset.updated
    ready = sum(pod.is_ready for pod in state.pods)
    is_complete = daemonset.is_observed and wanted > 0 and min(updated, ready) >= wanted
    detail = f"{daemonset.namespace}: {wanted} nodes, {updated} with the latest pod, {ready} with a ready one"
    if not daemonset.is_observed:
        detail += "; the latest change is not rolled out yet"
    yield Check("DaemonSet", Condition.AVAILABLE if is_complete else Condition.PROGRESSING, detail)
    for pod in sorted(_waiting(state), key=lambda pod: (pod.node, pod.name)):
        yield _check_pod(pod, daemonset.namespace)
    if len(state.pods) < wanted:
        served = {pod.node for pod in state.pods}
        for node in sorted(set(state.nodes) - served):
            yield Check(f"node {node}", Condition.PROGRESSING, "no pod of netplug-node")


def _waiting(state: ClusterState) -> Iterator[PodState]:
    """The pods without which their node has no working plugin."""
    return (pod for pod in state.pods if not pod.is_ready or pod.problem)


def _check_pod(pod: PodState, namespace: str) -> Check:
    where = f"node {pod.node}" if pod.node else f"pod {pod.name}"
    if pod.problem:
        detail = f"pod {pod.name}: {pod.problem}; see kubectl -n {namespace} describe pod {pod.name}"
        return Check(where, Condition.DEGRADED, detail)
    return Check(where, Condition.PROGRESSING, f"pod {pod.name}: it is not ready yet")


def _check_pools(found: PoolsFound) -> Check:
    if found.failure:
        return Check("pools", Condition.DEGRADED, found.failure)
    serving = [one for one in found.pools if not one.spec.is_disabled and AllowedUse.WORKLOAD in one.spec.allowed_uses]
    if not serving:
        return Check(
            "pools",
            Condition.DEGRADED,
            f"none of {len(found.pools)} gives addresses to pods; add one with netplugctl apply",
        )
    shown = ", ".join(f"{one.metadata.name} {one.spec.prefix}" for one in serving)
    return Check("pools", Condition.AVAILABLE, shown)
