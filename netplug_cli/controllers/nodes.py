"""The controllers of the configuration and of nodes, by name.

- ``cluster information``: the identity of the cluster, and the release that it runs
- ``configuration``: what the controllers run with; the stored object is made if there is none, and its status is kept
- ``host endpoints``: those that nodes have by themselves
- ``gone nodes``: Nodes whose machines the orchestrator does not know any more; where it stores no Nodes itself
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias, TypeVar

from attrs import define, evolve, field, frozen

from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.view import View
from netplug_core.errors import Unavailable
from netplug_core.flows.resources.cluster import ensure_initialized
from netplug_core.log import CallLog, Level, Log, LogSettings
from netplug_core.orchestrator.model import KUBERNETES_NODE
from netplug_core.reconcile.cluster import complete_information
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Problem, Source, Timing
from netplug_core.reconcile.hostendpoints import (
    HostEndpointChange,
    WantedHostEndpoints,
    find_host_endpoint_changes,
    wanted_host_endpoints,
)
from netplug_core.reconcile.kubecontrollers import (
    CopySource,
    RunningControllers,
    default_configuration,
    find_running_controllers,
    log_level,
    period_s,
    with_status,
)
from netplug_core.reconcile.nodes import find_gone_nodes, orchestrator_name
from netplug_core.records import Create, Delete, Get, Kind, Record, Update
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION,
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.hostendpoint import HOST_ENDPOINT, HostEndpoint
from netplug_core.resources.kubecontrollersconfiguration import (
    KUBE_CONTROLLERS_CONFIGURATION,
    KUBE_CONTROLLERS_CONFIGURATION_KEY,
    KubeControllersConfiguration,
)
from netplug_core.resources.node import NODE, Node

__all__ = [
    "CONFIGURATION_CHANGED", "CONTROLLER_KINDS", "LEADER_CHANGED", "WRITE_S", "Acting", "ClusterIdentity",
    "Configuration", "GoneNodes", "HostEndpoints",
]  # fmt: skip

CONTROLLER_KINDS: Final[tuple[Kind[object], ...]] = (
    NODE,
    HOST_ENDPOINT,
    KUBE_CONTROLLERS_CONFIGURATION,
    CLUSTER_INFORMATION,
)
"""What these controllers follow."""

CONFIGURATION_CHANGED: Final = Source("configuration of the controllers")
"""Other settings are in force."""

LEADER_CHANGED: Final = Source("leader of the controllers")
"""This process acts from now on, or acts no more."""

WRITE_S: Final = CALL_TIMEOUT_S
"""How long one write may take, with the look before it. A server that has died in silence answers none that was sent to
it, and others wait behind this one; the next pass looks at what has become of it, and may reach another server.
"""

_RESYNC_S: Final = 300.0
"""How long after a pass the next one comes, if nothing is noticed."""

_IDENTITY_REST_S: Final = 1.0  # the nodes of a large cluster are looked at once for many of their changes
_WAIT_S: Final = 5.0  # while something is not known yet, and in a process that does not act

V = TypeVar("V")
_Write: TypeAlias = Create[V] | Update[V] | Delete[V]


@frozen(kw_only=True)
class Acting:
    """What these controllers act through. ``is_leading`` says whether this process may write.

    ``find_datastore`` is the open datastore; None while there is none.
    """

    view: View
    find_datastore: Callable[[], Datastore | None]
    is_leading: Callable[[], bool]
    new_uid: Callable[[], str]
    clock: Clock

    def new_metadata(self, wanted: Metadata) -> Metadata:
        """The metadata of an object that is created now."""
        uid = self.new_uid()
        return evolve(wanted, uid=uid, attempt=uid, creation_time_ns=self.clock.now_ns())

    def commit(self, write: _Write[V], deadline: Deadline) -> bool:
        """Make one write if this process may; whether it did. A conflict raises; the view then brings what is new."""
        store = self.find_datastore()
        if store is None:
            raise Unavailable("the datastore", "it is not open")
        is_leading = self.is_leading()
        if is_leading:
            store.commit((write,), deadline=deadline)
        return is_leading


# --- cluster information ----------------------------------------------------------------------------------------------


@define(kw_only=True, eq=False)
class ClusterIdentity:
    """Makes ClusterInformation if there is none, and raises the release of the cluster when the last node has one."""

    acting: Acting
    chance: Callable[[], float]
    log: Log

    def controller(self) -> Controller[_Identity | None, _Identity]:
        """What looks."""
        return Controller(
            name="cluster information",
            observe=self._observe,
            plan=_plan_identity,
            act=self._act,
            failure="the identity and the release of the cluster are not stored",
            inputs=frozenset((NODE, CLUSTER_INFORMATION, LEADER_CHANGED)),
            timing=Timing(backoff=Backoff(first_s=1.0, longest_s=60.0), rest_s=_IDENTITY_REST_S),
        )

    def _observe(self, _deadline: Deadline) -> _Identity | None:
        view = self.acting.view
        if not self.acting.is_leading() or not view.has_listed((NODE, CLUSTER_INFORMATION)):
            return None
        record = view.find(CLUSTER_INFORMATION_KEY)
        releases = frozenset(each.value.status.release for each in view.list(NODE))
        return _Identity(stored=None if record is None else record.value, releases=releases)

    def _act(self, identity: _Identity, deadline: Deadline) -> None:
        acting, store = self.acting, self.acting.find_datastore()
        if store is None:
            raise Unavailable("the datastore", "it is not open")
        if not acting.is_leading():
            return
        pace = Pace(clock=acting.clock, deadline=deadline, chance=self.chance)
        found = ensure_initialized(store, pace=pace, new_uid=acting.new_uid, recorded=sorted(identity.releases))
        if identity.stored is None:
            self.log(Level.INFO, "the cluster has an identity now", release=found.spec.version or "none recorded")
        elif found.spec.version != identity.stored.spec.version:
            self.log(Level.INFO, "the cluster runs another release now", release=found.spec.version)


@frozen(kw_only=True)
class _Identity:
    """What is stored of the cluster, and the releases that its nodes have recorded."""

    stored: ClusterInformation | None
    releases: frozenset[str]


def _plan_identity(identity: _Identity | None) -> Plan[_Identity]:
    if identity is None:
        return Plan(look_again_s=_WAIT_S)
    stored = identity.stored
    if stored is not None:
        guid = stored.spec.cluster_guid
        wanted = complete_information(stored.spec, guid=guid, recorded=identity.releases)
        # A locked cluster keeps its release, as it is being repaired or moved.
        if stored.is_locked or (guid and wanted == stored.spec):
            return Plan(look_again_s=_RESYNC_S)
    return Plan(actions=(identity,), look_again_s=_RESYNC_S)


# --- configuration ----------------------------------------------------------------------------------------------------


@define(kw_only=True, eq=False)
class Configuration:
    """Reads the stored configuration again whenever it changes. ``note_change`` is called when other settings count."""

    acting: Acting
    environ: Mapping[str, str]
    source: CopySource
    note_change: Callable[[], None]
    log: CallLog
    running: RunningControllers | None = field(default=None, init=False)

    def controller(self) -> Controller[_Stored | None, _Write[KubeControllersConfiguration]]:
        """What looks."""
        return Controller(
            name="configuration",
            observe=self._observe,
            plan=self._plan,
            act=self._act,
            failure="the configuration of the controllers cannot be read or shown; the settings of before count",
            inputs=frozenset((KUBE_CONTROLLERS_CONFIGURATION, LEADER_CHANGED)),
            timing=Timing(step_s=WRITE_S),
        )

    def _observe(self, _deadline: Deadline) -> _Stored | None:
        """What is stored; None as long as that is not known."""
        view = self.acting.view
        if not view.has_listed((KUBE_CONTROLLERS_CONFIGURATION,)):
            return None
        record = view.find(KUBE_CONTROLLERS_CONFIGURATION_KEY)
        value = default_configuration(self.source) if record is None else record.value
        running = find_running_controllers(value.spec, self.environ, self.source)
        if running != self.running:
            known = self.running.idle if self.running is not None else ()
            if self.source is CopySource.DATASTORE and set(running.idle) - set(known):
                text = "there is nothing to copy: the datastore shows what Kubernetes has"
                self.log(Level.INFO, text, controllers=", ".join(running.idle))
            self.log.configure(LogSettings(level=log_level(running.spec)))
            self.running = running
            self.note_change()
        return _Stored(record=record, value=value, running=running)

    def _plan(self, stored: _Stored | None) -> Plan[_Write[KubeControllersConfiguration]]:
        if stored is None:
            return Plan(look_again_s=_WAIT_S)
        problems = tuple(_configuration_problems(stored.running))
        shown = with_status(stored.value, stored.running)
        if stored.record is None:
            return Plan(actions=(Create(KUBE_CONTROLLERS_CONFIGURATION_KEY, shown),), problems=problems)
        if shown == stored.record.value:
            return Plan(look_again_s=_RESYNC_S, problems=problems)
        return Plan(
            actions=(Update(KUBE_CONTROLLERS_CONFIGURATION_KEY, shown, stored.record.revision),), problems=problems
        )

    def _act(self, write: _Write[KubeControllersConfiguration], deadline: Deadline) -> None:
        if isinstance(write, Create):
            metadata = self.acting.new_metadata(write.value.metadata)
            write = Create(write.key, evolve(write.value, metadata=metadata))
        self.acting.commit(write, deadline)


@frozen(kw_only=True)
class _Stored:
    """The stored configuration, or that of a cluster without one, and what is in force with it."""

    record: Record[KubeControllersConfiguration] | None
    value: KubeControllersConfiguration
    running: RunningControllers


def _configuration_problems(running: RunningControllers) -> Iterator[Problem]:
    for name in running.ignored:
        yield Problem(message=f"the controller {name} is not there; its settings count for nothing")
    for name in running.idle if running.source is CopySource.NONE else ():
        cause = "it is not known which Kubernetes to copy from: KUBECONFIG is not set"
        yield Problem(message=f"the controller {name} does nothing", cause=cause)


# --- host endpoints ---------------------------------------------------------------------------------------------------


@define(kw_only=True, eq=False)
class HostEndpoints:
    """Makes, changes and deletes the host endpoints that nodes have by themselves."""

    acting: Acting
    find_running: Callable[[], RunningControllers | None]

    def controller(self) -> Controller[_HostEndpointLook | None, HostEndpointChange]:
        """What looks."""
        return Controller(
            name="host endpoints",
            observe=self._observe,
            plan=_plan_host_endpoints,
            act=self._act,
            failure="the host endpoints of nodes are not as the configuration says",
            inputs=frozenset((NODE, HOST_ENDPOINT, CONFIGURATION_CHANGED, LEADER_CHANGED)),
            timing=Timing(backoff=Backoff(first_s=1.0, longest_s=60.0), step_s=WRITE_S),
        )

    def _observe(self, _deadline: Deadline) -> _HostEndpointLook | None:
        view, running = self.acting.view, self.find_running()
        if running is None or not self.acting.is_leading() or not view.has_listed((NODE, HOST_ENDPOINT)):
            return None
        nodes = tuple(record.value for record in view.list(NODE))
        known = {node.metadata.name: node.status.internal_addresses for node in nodes}
        wanted = wanted_host_endpoints(nodes, running.host_endpoints, known)
        return _HostEndpointLook(wanted=wanted, stored=view.list(HOST_ENDPOINT), period_s=period_s(running.node))

    def _act(self, change: HostEndpointChange, deadline: Deadline) -> None:
        if isinstance(change, Create):
            change = Create(change.key, evolve(change.value, metadata=self.acting.new_metadata(change.value.metadata)))
        self.acting.commit(change, deadline)


@frozen(kw_only=True)
class _HostEndpointLook:
    wanted: WantedHostEndpoints
    stored: tuple[Record[HostEndpoint], ...]
    period_s: float | None


def _plan_host_endpoints(look: _HostEndpointLook | None) -> Plan[HostEndpointChange]:
    if look is None:
        return Plan(look_again_s=_WAIT_S)
    changes, problems = find_host_endpoint_changes(look.wanted, look.stored)
    return Plan(actions=changes, look_again_s=look.period_s, problems=problems)


# --- gone nodes -------------------------------------------------------------------------------------------------------


@define(kw_only=True, eq=False)
class GoneNodes:
    """Deletes Nodes whose machines are gone from the orchestrator, each after one more look at the orchestrator.

    ``find_source`` is the open datastore that shows the orchestrator's nodes, ``cluster`` the view of them.
    """

    acting: Acting
    find_running: Callable[[], RunningControllers | None]
    cluster: View
    find_source: Callable[[], Datastore | None]
    log: Log

    def controller(self) -> Controller[_GoneLook | None, Record[Node]]:
        """What looks."""
        return Controller(
            name="gone nodes",
            observe=self._observe,
            plan=_plan_gone,
            act=self._act,
            failure="Nodes whose machines are gone are not deleted",
            inputs=frozenset((NODE, KUBERNETES_NODE, CONFIGURATION_CHANGED, LEADER_CHANGED)),
            timing=Timing(backoff=Backoff(first_s=1.0, longest_s=60.0), step_s=WRITE_S),
        )

    def _observe(self, _deadline: Deadline) -> _GoneLook | None:
        running = self.find_running()
        is_known = self.acting.view.has_listed((NODE,)) and self.cluster.has_listed((KUBERNETES_NODE,))
        if running is None or running.node is None or not is_known or not self.acting.is_leading():
            return None
        known = frozenset(record.key.name for record in self.cluster.list(KUBERNETES_NODE))
        gone = find_gone_nodes(self.acting.view.list(NODE), known)
        return _GoneLook(gone=gone, period_s=period_s(running.node))

    def _act(self, record: Record[Node], deadline: Deadline) -> None:
        source, name = self.find_source(), orchestrator_name(record.value)
        if source is None:
            raise Unavailable("the orchestrator", "it is not connected")
        wanted = Get(KUBERNETES_NODE.key(name))
        if source.read((wanted,), deadline=deadline).find(wanted) is None:
            self.acting.commit(Delete(record.key, record.revision), deadline)
            self.log(Level.INFO, "a Node is deleted: its machine is gone", node=record.key.name, machine=name)


@frozen(kw_only=True)
class _GoneLook:
    gone: tuple[Record[Node], ...]
    period_s: float | None


def _plan_gone(look: _GoneLook | None) -> Plan[Record[Node]]:
    return Plan(look_again_s=_WAIT_S) if look is None else Plan(actions=look.gone, look_again_s=look.period_s)
