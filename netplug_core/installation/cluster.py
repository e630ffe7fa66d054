"""A cluster as an installation finds it: what is in it, what stands in the way, how the parts of netplug are.

``netplug_backends.kubernetes.installing.cluster`` reads it. ``install status`` and the operator's status are made of
these rules.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.cni.plugins import PLUGINS_FOUND, PLUGINS_MISSING
from netplug_core.errors import ConfigurationError, excerpt, quote
from netplug_core.installation.document import write_spec
from netplug_core.installation.settings import ResolvedInstallation, ResolvedLog, ResolvedPool
from netplug_core.resources.installation import (
    CNISettings,
    InstallationPool,
    InstallationSpec,
    IPAMSettings,
    KubernetesProvider,
    Logging,
    LogSettings,
    NetworkSettings,
    Switch,
)
from netplug_core.resources.ippool import IPPool

__all__ = [
    "ApplyEffect", "Check", "Cluster", "ClusterInventory", "ClusterNode", "ClusterState", "Condition",
    "ControllersState", "DaemonSetState",
    "FieldConflict", "IncompatibleCluster", "InstallationState", "NodeReport", "ObjectEvent", "OperatorState",
    "Ownership", "PodState", "PoolsFound", "Status", "Writing", "computed_spec", "judge",
]  # fmt: skip


# --- the cluster ------------------------------------------------------------------------------------------------------


Json = Mapping[str, object]


class ApplyEffect(enum.Enum):
    """What applying an object did to it."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


class Ownership(enum.Enum):
    """What happens to fields that another manager has set to another value."""

    RESPECTED = "respected"
    TAKEN = "taken"


class Writing(enum.Enum):
    """Whether the API server stores what it accepts."""

    STORED = "stored"
    TRIED = "tried"


class FieldConflict(ConfigurationError):
    """Fields of an object belong to another manager. ``where`` is the object, ``value`` names fields and owners."""

    def __str__(self) -> str:
        return f"{self.value}; {self.accepted}"


@frozen(kw_only=True)
class ClusterNode:
    """A node: its addresses, and the prefixes that the platform has given it for its pods."""

    name: str
    addresses: tuple[Address, ...] = ()
    pod_prefixes: tuple[Prefix, ...] = ()


@frozen(kw_only=True)
class ClusterInventory:
    """What a cluster has that an Installation has to fit.

    ``crd_mode`` is ``v1`` or ``v3``, empty if there are no definitions yet. ``has_pools`` is whether pools can be read;
    after an installation that was interrupted they may not. ``service_prefixes`` are empty if they cannot be known.
    ``platform_prefixes`` are the pod CIDRs that it was set up with. ``operated_object`` is the name of an object that
    shows that an operator installs netplug, empty if there is none. ``daemonsets`` are the namespaces in which netplug
    has a DaemonSet.
    """

    crd_mode: str = ""
    has_pools: bool = False
    nodes: tuple[ClusterNode, ...] = ()
    service_count: int = 0
    service_prefixes: tuple[Prefix, ...] = ()
    platform_prefixes: tuple[Prefix, ...] = ()
    provider: KubernetesProvider = KubernetesProvider.OTHER
    has_aws_node: bool = False
    operated_object: str = ""
    daemonsets: tuple[str, ...] = ()


@frozen(kw_only=True)
class PodState:
    """A pod of a node. ``problem`` is what keeps a container from running; empty if it only takes its time."""

    name: str
    node: str
    is_ready: bool = False
    problem: str = ""


@frozen(kw_only=True)
class DaemonSetState:
    """A DaemonSet of netplug. ``is_observed`` is whether the counts are those of its latest change.

    ``assigns_addresses`` is whether the pods' addresses come from pools; ``datastore`` is the type of their datastore.
    ``makes_routes`` is whether the node process connects the nodes with each other.
    """

    namespace: str
    is_observed: bool
    desired: int
    updated: int
    assigns_addresses: bool
    datastore: str
    makes_routes: bool = True


@frozen(kw_only=True)
class ControllersState:
    """The Deployment of the controllers. ``is_observed`` is whether the counts are those of its latest change."""

    namespace: str
    desired: int
    available: int
    is_observed: bool = True
    pods: tuple[PodState, ...] = ()


@frozen(kw_only=True)
class InstallationState:
    """The conditions of an Installation: each with its type, its status, and its message.

    ``generation`` counts the changes of its settings, ``observed_generation`` is that of which the conditions speak.
    """

    name: str
    conditions: tuple[tuple[str, str, str], ...] = ()
    generation: int = 0
    observed_generation: int = 0
    is_being_deleted: bool = False


@frozen(kw_only=True)
class OperatorState:
    """What shows whether an operator runs.

    ``holder`` is the process that has the Lease, empty if none has, and ``renewed`` when it has renewed it, as a text
    of the API. ``is_renewed`` is whether that goes on. ``pods`` are those of the operator, in their ``namespace``.
    """

    holder: str = ""
    renewed: str = ""
    is_renewed: bool = True
    pods: tuple[PodState, ...] = ()
    namespace: str = ""

    @property
    def pod(self) -> str:
        """The name of the pod that has the Lease: the name of a process has more behind it."""
        return self.holder.partition("_")[0]

    @property
    def is_acting(self) -> bool:
        """Whether an operator acts upon the Installation."""
        return bool(self.holder) and self.is_renewed


_NO_OPERATOR = OperatorState()


@frozen(kw_only=True)
class NodeReport:
    """An Event about a node; its ``reason`` is one word, its ``message`` is for a person."""

    node: str
    reason: str
    message: str


@frozen(kw_only=True)
class ObjectEvent:
    """An Event about an object: what happened, how often, when for the last time, and which process says so."""

    last_seen: str
    is_warning: bool
    reason: str
    message: str
    component: str
    count: int = 1


@frozen(kw_only=True)
class ClusterState:
    """What of netplug is in a cluster. ``definitions`` are names of CRDs, and whether they are established.

    ``nodes`` are the names of those that run Linux; ``pods`` are those of the DaemonSets. ``reports`` are the Events of
    their node processes about plugins that a host lacks, the newest last.
    """

    crd_mode: str = ""
    definitions: tuple[tuple[str, bool], ...] = ()
    daemonsets: tuple[DaemonSetState, ...] = ()
    controllers: tuple[ControllersState, ...] = ()
    pods: tuple[PodState, ...] = ()
    nodes: tuple[str, ...] = ()
    reports: tuple[NodeReport, ...] = ()
    installations: tuple[InstallationState, ...] = ()
    operator: OperatorState = _NO_OPERATOR


class Cluster(Protocol):
    """The API server of a cluster."""

    def apply(self, wanted: Json, *, ownership: Ownership, writing: Writing, deadline: Deadline) -> ApplyEffect:
        """Give an object the fields that are wanted; others stay.

        Raises:
            FieldConflict: fields belong to another manager, and ownership is respected.
            ConfigurationError: the server does not accept the object.
            Unavailable: the server does not answer, or a right is missing.
        """
        ...

    def find_resources(self, crd_mode: str, *, deadline: Deadline) -> frozenset[str]:
        """The names under which netplug's objects can be listed; errors are those of ``read_state``."""
        ...

    def remove_installation(self, *, deadline: Deadline) -> tuple[str, ...]:
        """Delete the Installations and the components, unless that has begun; which of them are still there.

        An operator removes what it has installed before it lets an Installation go. Errors are those of ``read_state``.
        """
        ...

    def find_events(self, kind: str, name: str, namespace: str, *, deadline: Deadline) -> tuple[ObjectEvent, ...]:
        """The Events about an object, the newest last; errors are those of ``read_state``.

        The namespace is empty for an object that is in none.
        """
        ...

    def find_service_prefixes(self, *, deadline: Deadline) -> tuple[Prefix, ...]:
        """The prefixes of the addresses of services, none if they are not known; errors are those of ``read_state``."""
        ...

    def label_node(self, name: str, labels: Mapping[str, str], *, deadline: Deadline) -> None:
        """Give a node some labels; its others stay.

        Raises:
            Unavailable: the server does not answer, there is no such node, or a right is missing.
        """
        ...

    def read_inventory(self, *, deadline: Deadline) -> ClusterInventory:
        """What an Installation has to fit; errors are those of ``read_state``."""
        ...

    def read_operator(self, *, deadline: Deadline) -> OperatorState:
        """What shows whether an operator runs; errors are those of ``read_state``."""
        ...

    def read_state(self, *, deadline: Deadline) -> ClusterState:
        """What of netplug is there.

        Raises:
            Unavailable: the server does not answer, or a right is missing.
        """
        ...


# --- what stands in the way -------------------------------------------------------------------------------------------


@frozen
class IncompatibleCluster(ConfigurationError):
    """A setting that an Installation cannot take over. ``where`` is the component, ``accepted`` what to do.

    ``field`` is the setting in the component, and ``value`` what it is.
    """

    field: str

    def __str__(self) -> str:
        found = "nothing" if self.value is None else quote(self.value)
        return f"{excerpt(self.where)}: {excerpt(self.field)}: {found} cannot be taken over; {self.accepted}"


# --- how its parts are ------------------------------------------------------------------------------------------------


_ETCD = "etcdv3"


class Condition(enum.Enum):
    """How something is, the best first. What is limited works as far as it is meant to, and lacks something."""

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
        node_checks = [*_node_checks(state, state.daemonsets[0]), _check_controllers(state, state.daemonsets[0])]
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
        yield Check("operator", Condition.DEGRADED, f"{_NO_OPERATOR_RUNS}: pod {pod.name}: {pod.problem}; {see}")
    elif found.holder:
        place = found.namespace or _OPERATOR_NAMESPACE
        stopped = f"{found.pod} has stopped renewing its Lease, last at {found.renewed}"
        yield Check("operator", Condition.DEGRADED, f"{_NO_OPERATOR_RUNS}: {stopped}; see kubectl -n {place} get pods")
    elif found.pods:
        yield Check("operator", Condition.PROGRESSING, f"pod {found.pods[0].name}: it does not act yet")
    elif state.installations:
        start = "apply operator.yaml, or install the chart netplug-operator; if it is there, scale it to 1"
        yield Check("operator", Condition.DEGRADED, f"{_NO_OPERATOR_RUNS}: {start}")


_NO_OPERATOR_RUNS: Final = "no operator runs, so that a changed Installation has no effect and a deleted one stays"
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
    yield from _check_plugins(state)
    if len(state.pods) < wanted:
        served = {pod.node for pod in state.pods}
        for node in sorted(set(state.nodes) - served):
            yield Check(f"node {node}", Condition.PROGRESSING, "no pod of netplug-node")


def _check_controllers(state: ClusterState, daemonset: DaemonSetState) -> Check:
    """Whether the controllers run that were installed with a DaemonSet. The nodes serve pods without them."""
    place, name = daemonset.namespace, "controllers"
    lacking = _LEAKS
    if daemonset.datastore == _ETCD:
        lacking = f"{_LEAKS}, and pods of a new namespace pass nothing where policy is enforced"
    found = next((one for one in state.controllers if one.namespace == place), None)
    if found is None and state.installations:
        return Check(name, Condition.PROGRESSING, f"no Deployment of the controllers in {place} yet")
    if found is None:
        again = f"no Deployment of the controllers in {place}: {lacking}; apply what has installed netplug again"
        return Check(name, Condition.DEGRADED, again)
    if not found.desired:
        return Check(name, Condition.DEGRADED, f"{place}: scaled to 0: {lacking}; scale it to 1")
    failing = next((pod for pod in found.pods if pod.problem), None)
    if failing is not None:
        see = f"see kubectl -n {place} describe pod {failing.name}"
        return Check(name, Condition.DEGRADED, f"pod {failing.name}: {failing.problem}; {see}")
    is_complete = found.is_observed and found.available >= found.desired
    detail = f"{place}: {found.available} of {found.desired} pods available"
    return Check(name, Condition.AVAILABLE if is_complete else Condition.PROGRESSING, detail)


_LEAKS: Final = "leaked addresses stay"


def _check_plugins(state: ClusterState) -> Iterator[Check]:
    """The nodes on which no pod starts, because their host lacks a plugin; their last report counts."""
    last = {report.node: report for report in state.reports if report.reason in (PLUGINS_MISSING, PLUGINS_FOUND)}
    for node in sorted(set(state.nodes) & set(last)):
        if last[node].reason == PLUGINS_MISSING:
            yield Check(f"node {node}", Condition.DEGRADED, last[node].message)


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
    serving = [pool for pool in found.pools if pool.spec.serves_workloads]
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
    serving = [pool for pool in found.pools if pool.spec.serves_workloads]
    if not serving or len(state.nodes) <= 1 or all(one.makes_routes for one in state.daemonsets):
        return
    asked = dict.fromkeys(setting for pool in serving for setting in pool.spec.network_settings)
    inert = f", so that {', '.join(asked)} of pools have no effect" if asked else ""
    cause = f"NETPLUG_NETWORKING_BACKEND of netplug-node is none{inert}"
    yield Check("routes", Condition.LIMITED, f"netplug makes no routes between nodes: {cause}")


# --- what was computed ------------------------------------------------------------------------------------------------


def computed_spec(resolved: ResolvedInstallation) -> dict[str, object]:
    """The settings, each at the place where a document may set it; the CNI plugin in ``cni``."""
    rolling = resolved.node_update.rolling_update
    limits = {"maxUnavailable": rolling.max_unavailable, "maxSurge": rolling.max_surge}
    update = {"type": resolved.node_update.type, "rollingUpdate": limits}
    settings = write_spec(
        InstallationSpec(
            network=_network(resolved),
            cni=CNISettings(
                type=resolved.cni.value,
                ipam=IPAMSettings(type=resolved.ipam.value),
                spec_version=resolved.spec_version,
                bin_dir=resolved.bin_dir,
                conf_dir=resolved.conf_dir,
                install_mode=resolved.install_mode,
            ),
            logging=Logging(cni=_log(resolved.log)),
            provider=resolved.provider,
            registry=resolved.registry,
            image_path=resolved.image_path,
            image_prefix=resolved.image_prefix,
            image_pull_policy=resolved.image_pull_policy,
            image_pull_secrets=resolved.image_pull_secrets,
            control_plane_replicas=resolved.control_plane_replicas,
            node_resources=resolved.node_resources,
        )
    )
    return {**settings, "nodeUpdateStrategy": update}  # the writer leaves out its defaults


def _network(resolved: ResolvedInstallation) -> NetworkSettings:
    return NetworkSettings(
        pools=tuple(map(_pool, resolved.pools)),
        policy_setup_timeout_s=resolved.policy_setup_timeout_s,
        bgp=resolved.bgp,
        mtu=resolved.mtu,
        ipv4_detection=resolved.ipv4_detection,
        ipv6_detection=resolved.ipv6_detection,
        host_ports=resolved.host_ports,
        container_ip_forwarding=resolved.container_ip_forwarding,
        linux_dataplane=resolved.dataplane,
        multi_interface_mode=resolved.multi_interface_mode,
        pod_interface_type=resolved.pod_interface_type,
        sysctls=resolved.sysctls,
        features=resolved.features,
        readiness_gates=resolved.readiness_gates,
    )


def _pool(one: ResolvedPool) -> InstallationPool:
    spec = one.pool.spec
    return InstallationPool(
        cidr=str(spec.prefix),
        name=one.pool.metadata.name,
        encapsulation=one.encapsulation,
        nat_outgoing=Switch.ENABLED if spec.has_outgoing_nat else Switch.DISABLED,
        node_selector=spec.node_selector,
        block_size=spec.block_length,
        is_bgp_export_disabled=spec.is_bgp_export_disabled,
        is_new_allocation_disabled=spec.is_disabled,
        allowed_uses=spec.allowed_uses,
        assignment_mode=spec.assignment_mode,
    )


def _log(log: ResolvedLog) -> LogSettings:
    return LogSettings(
        severity=log.severity,
        max_size=f"{log.max_size_mib}Mi",
        max_age_days=log.max_age_days,
        max_count=log.max_count,
    )
