"""Whether netplug works in a cluster: what is there, judged check by check. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final

from attrs import frozen

from netplug_core.installation.cluster import ClusterState, DaemonSetState, InstallationState, OperatorState, PodState
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.unprogrammed import NO_ROUTES, find_unrouted, inert_settings

__all__ = ["Check", "Condition", "PoolsFound", "Status", "judge"]

_ETCD = "etcdv3"


class Condition(enum.Enum):
    """How something is, the best first. What is limited works as far as this release goes."""

    AVAILABLE = "available"
    LIMITED = "limited"
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
        node_checks = [_check_missing_daemonset(state)]
    elif count > 1:
        places = " and ".join(one.namespace for one in state.daemonsets)
        node_checks = [Check("DaemonSet", Condition.DEGRADED, f"there is one in each of {places}; remove one")]
    else:
        node_checks = list(_node_checks(state, state.daemonsets[0]))
    uses_pools = any(one.assigns_addresses for one in state.daemonsets)
    return Status(
        checks=(
            *_operator_checks(state),
            *(_check_installation(one, state.operator) for one in state.installations),
            *_definition_checks(state),
            *node_checks,
            *([_check_pools(pools), *_check_routes(state, pools)] if uses_pools else []),
        )
    )


# --- the operator -----------------------------------------------------------------------------------------------------


def _operator_checks(state: ClusterState) -> Iterator[Check]:
    """Whether an operator runs, where one should: there is an Installation, a pod of it, or it has been there."""
    found = state.operator
    failing = [pod for pod in found.pods if pod.problem]
    if found.is_acting:
        yield Check("operator", Condition.AVAILABLE, f"{found.pod} acts")
    elif failing:
        pod = failing[0]
        see = f"see kubectl -n {found.namespace} describe pod {pod.name}"
        yield Check("operator", Condition.DEGRADED, f"{_NO_OPERATOR}: pod {pod.name}: {pod.problem}; {see}")
    elif found.holder:
        place = found.namespace or _OPERATOR_NAMESPACE
        stopped = f"{found.pod} has stopped renewing its Lease, last at {found.renewed}"
        yield Check("operator", Condition.DEGRADED, f"{_NO_OPERATOR}: {stopped}; see kubectl -n {place} get pods")
    elif found.pods:
        yield Check("operator", Condition.PROGRESSING, f"pod {found.pods[0].name}: it does not act yet")
    elif state.installations:
        start = "apply operator.yaml, or install the chart netplug-operator; if it is there, scale it to 1"
        yield Check("operator", Condition.DEGRADED, f"{_NO_OPERATOR}: {start}")


_NO_OPERATOR: Final = "no operator runs, so that a changed Installation has no effect and a deleted one stays"
_OPERATOR_NAMESPACE: Final = "netplug-operator"


def _check_installation(installation: InstallationState, operator: OperatorState) -> Check:
    """What the operator has said, and whether that is of the settings that are there now."""
    found = {kind: message for kind, status, message in installation.conditions if status == "True"}
    name = f"Installation({installation.name})"
    awaited = Condition.PROGRESSING if operator.is_acting or operator.pods else Condition.DEGRADED
    if installation.is_being_deleted:
        return Check(
            name, awaited, f"it is being deleted; {found.get('Progressing') or 'the operator lets it go last'}"
        )
    if "Degraded" in found:
        return Check(name, Condition.DEGRADED, found["Degraded"])
    if not installation.conditions:
        return Check(name, awaited, "no operator has acted upon it yet")
    if installation.observed_generation < installation.generation:
        stale = f"its generation is {installation.generation}, and the operator has acted upon"
        return Check(name, awaited, f"{stale} {installation.observed_generation}; what the status says is of that")
    if "Ready" not in found:
        return Check(name, Condition.PROGRESSING, found.get("Progressing") or "it is not ready yet")
    return Check(name, Condition.AVAILABLE, found["Ready"] or "ready")


def _check_missing_daemonset(state: ClusterState) -> Check:
    """Why nothing runs on the nodes: nothing was installed, or an operator is not so far or shall install none."""
    none = "no DaemonSet netplug-node in kube-system or netplug-system"
    operator = state.operator
    if not (operator.holder or operator.pods or state.installations):
        detail = f"{none}: netplug is not installed; see netplugctl install apply --help"
        return Check("DaemonSet", Condition.DEGRADED, detail)
    if any(kind == "Ready" and status == "True" for one in state.installations for kind, status, _ in one.conditions):
        return Check("DaemonSet", Condition.AVAILABLE, f"{none}; the Installation needs none")
    if not state.installations:
        detail = f"{none}: the operator waits for an Installation; create one: kubectl apply -f FILE"
        return Check("DaemonSet", Condition.PROGRESSING, detail)
    return Check("DaemonSet", Condition.PROGRESSING, f"{none} yet: the operator installs it")


# --- what is installed ------------------------------------------------------------------------------------------------


def _definition_checks(state: ClusterState) -> Iterator[Check]:
    """With etcd as the datastore there are none."""
    if any(one.datastore == _ETCD for one in state.daemonsets):
        return
    missing = [name for name, is_established in state.definitions if not is_established]
    count = f"{len(state.definitions) - len(missing)} of {len(state.definitions)} established"
    if not state.crd_mode and (state.operator.holder or state.operator.pods):
        yield Check("CRDs", Condition.PROGRESSING, "there are none yet; the operator brings them")
    elif not state.crd_mode:
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
    serving = find_unrouted(found.pools)
    if not serving:
        return Check(
            "pools",
            Condition.DEGRADED,
            f"none of {len(found.pools)} gives addresses to pods; add one with netplugctl apply",
        )
    shown = ", ".join(f"{one.metadata.name} {one.spec.prefix}" for one in serving)
    return Check("pools", Condition.AVAILABLE, shown)


def _check_routes(state: ClusterState, found: PoolsFound) -> Iterator[Check]:
    """What pods lack although everything is installed. On one node they need no routes between nodes."""
    unrouted = find_unrouted(found.pools)
    if not unrouted or len(state.nodes) <= 1:
        return
    settings = dict.fromkeys(setting for one in unrouted for setting in inert_settings(one))
    inert = f"; nothing in this release programs {', '.join(settings)}" if settings else ""
    advice = "give each node a route to each block of the others: netplugctl ipam show --show-blocks names them"
    yield Check("routes", Condition.LIMITED, f"{NO_ROUTES}{inert}; unless others make them, {advice}")
