"""A cluster on one screen: who runs what, its nodes, how full its pools are, and what is wrong.

Everything is read from the datastore as it is now; nothing is changed. ``netplugctl cluster status`` and ``controllers
status`` show it.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore, ShowsLeases
from netplug_core.errors import Unauthorized
from netplug_core.flows.ipam.check import check_ipam
from netplug_core.flows.resources.cluster import find_cluster_information
from netplug_core.flows.resources.pools import read_utilization
from netplug_core.ipam.reporting.usage import PoolUsage
from netplug_core.reconcile.cluster import raised_release
from netplug_core.reconcile.lease import LeaseRecord, is_recent, read_lease, read_lease_text
from netplug_core.records import Get, List
from netplug_core.resources.clusterinformation import ClusterInformationSpec
from netplug_core.resources.fields import Switch
from netplug_core.resources.kubecontrollersconfiguration import (
    KUBE_CONTROLLERS_CONFIGURATION_KEY,
    KubeControllersSpec,
    KubeControllersStatus,
)
from netplug_core.resources.node import NODE, Node

__all__ = [
    "ClusterOverview", "ControllerState", "ControllersOverview", "read_cluster_overview", "read_controllers",
]  # fmt: skip


# --- controllers ------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ControllerState:
    """A controller by its name in the settings, whether it runs, and how often it compares everything."""

    name: str
    is_running: bool
    period: str = ""


@frozen(kw_only=True)
class ControllersOverview:
    """What the controllers say of themselves. ``has_run`` is whether they ever have.

    ``lease`` is what is stored of who acts; None: the datastore does not show it, or not to this reader. ``is_acting``
    is whether it seems to be renewed, None: not known.
    """

    has_run: bool
    controllers: tuple[ControllerState, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    lease: LeaseRecord | None = None
    is_acting: bool | None = None
    has_automatic_endpoints: bool = False

    @property
    def running(self) -> tuple[str, ...]:
        """The names of those that run."""
        return tuple(each.name for each in self.controllers if each.is_running)


def read_controllers(store: Datastore, lease: str, *, clock: Clock, deadline: Deadline) -> ControllersOverview:
    """What the controllers run with, and by whom; ``lease`` is the name of their lease.

    What they have stored says nothing of whether they still run. That is in the lease.

    Raises:
        Unavailable: the store does not answer.
    """
    wanted = Get(KUBE_CONTROLLERS_CONFIGURATION_KEY)
    found = store.read([wanted], deadline=deadline.capped(CALL_TIMEOUT_S)).find(wanted)
    status = KubeControllersStatus() if found is None else found.value.status
    running, record = status.running, _find_lease(store, lease, deadline)
    node = None if running is None else running.controllers.node
    return ControllersOverview(
        has_run=running is not None,
        controllers=() if running is None else tuple(_states(running)),
        environment=status.environment,
        lease=record,
        is_acting=None if record is None else bool(record.holder) and is_recent(record.renewed, clock.now_ns()),
        has_automatic_endpoints=node is not None and node.host_endpoint.auto_create is Switch.ENABLED,
    )


def _find_lease(store: Datastore, name: str, deadline: Deadline) -> LeaseRecord | None:
    """What is stored of who acts; one that cannot be read as it should be is free."""
    if not isinstance(store, ShowsLeases):
        return None
    try:
        found = store.read_lease(name, deadline=deadline)
    except Unauthorized:  # who may read the records need not have the right to read leases
        return None
    return read_lease(None if found is None else {"spec": read_lease_text(found[0])})


def _states(running: KubeControllersSpec) -> Iterator[ControllerState]:
    controllers = running.controllers
    for name, settings in (
        ("node", controllers.node),
        ("policy", controllers.policy),
        ("namespace", controllers.namespace),
        ("serviceaccount", controllers.service_account),
        ("workloadendpoint", controllers.workload_endpoint),
    ):
        period = "" if settings is None else settings.reconciler_period
        yield ControllerState(name=name, is_running=settings is not None, period=period)


# --- the cluster ------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ClusterOverview:
    """The cluster. ``problems`` are what ``ipam check`` finds; ``repairable`` of them it can repair."""

    datastore: str
    information: ClusterInformationSpec
    controllers: ControllersOverview
    nodes: tuple[Node, ...]
    pools: tuple[PoolUsage, ...]
    problems: int
    repairable: int

    @property
    def is_locked(self) -> bool:
        """Whether nothing new is attached."""
        return self.information.is_datastore_ready is False

    @property
    def not_ready(self) -> tuple[str, ...]:
        """The names of the nodes of which the orchestrator says that they are not ready."""
        return tuple(node.metadata.name for node in self.nodes if node.status.is_ready is False)

    @property
    def releases(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The releases that node processes have recorded, each with its nodes; the empty one if some have not."""
        found: dict[str, list[str]] = {}
        for node in self.nodes:
            found.setdefault(node.status.release, []).append(node.metadata.name)
        return tuple((release, tuple(found[release])) for release in sorted(found))

    @property
    def behind(self) -> tuple[str, ...]:
        """The names of the nodes that run an earlier release than the cluster."""
        cluster = self.information.version
        behind = (
            nodes for release, nodes in self.releases if release and raised_release(release, (cluster,)) != release
        )
        return tuple(sorted(name for nodes in behind for name in nodes))

    @property
    def full(self) -> tuple[str, ...]:
        """The names of the pools that have no free address."""
        return tuple(pool.name for pool in self.pools if pool.pool is not None and not pool.available)

    @property
    def wrong(self) -> tuple[str, ...]:
        """What a person has to look at, a sentence each."""
        return tuple(self._wrong())

    def _wrong(self) -> Iterator[str]:
        if self.is_locked:
            yield "the datastore is locked: nothing new is attached"
        if self.not_ready:
            yield f"nodes that are not ready: {', '.join(self.not_ready)}"
        if self.behind:
            yield f"nodes of an earlier release than the cluster: {', '.join(self.behind)}"
        if self.full:
            yield f"pools without a free address: {', '.join(self.full)}"
        if self.problems:
            yield f"{self.problems} problems of addresses and blocks: netplugctl ipam check names them"
        if not self.controllers.has_run:
            yield "no controllers have run yet: leaked addresses stay"
        elif self.controllers.is_acting is False:
            yield "the controllers do not run: leaked addresses stay"


def read_cluster_overview(store: Datastore, lease: str, *, clock: Clock, deadline: Deadline) -> ClusterOverview:
    """The cluster as it is now.

    Raises:
        Unavailable: the store does not answer.
    """
    nodes = List(NODE)
    report = check_ipam(store, clock=clock, deadline=deadline)
    return ClusterOverview(
        datastore=store.description.name,
        information=find_cluster_information(store, deadline=deadline),
        controllers=read_controllers(store, lease, clock=clock, deadline=deadline),
        nodes=tuple(record.value for record in store.read([nodes], deadline=deadline).readable(nodes)),
        pools=read_utilization(store, deadline=deadline),
        problems=report.problems,
        repairable=len(report.repairs),
    )
