"""What the operator acts through, what it reads of a cluster, and what it writes. ``netplug_cli.wiring`` opens it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol, assert_never

from attrs import define, evolve, field, frozen

from netplug_core.clock import Clock, Deadline, format_time
from netplug_core.decoding.tables import find_text
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.installation.controllers import CONTROLLERS_NAME
from netplug_core.installation.daemonset import NODE_ACCOUNT, SYSTEM_NAMESPACE
from netplug_core.installation.pools import PoolStep
from netplug_core.installation.settings import ClusterFacts
from netplug_core.installation.static import STATIC_NAMESPACE
from netplug_core.log import Level, Log
from netplug_core.operator.plan import Plan
from netplug_core.operator.report import COMPONENT_REFS, Report, controllers_rollout_of, pending_statuses, rollout_of
from netplug_core.operator.state import (
    AWS_NODE,
    CONTROLLERS_LEASE_REF,
    CONTROLLERS_REF,
    DAEMONSET_REF,
    FINALIZER,
    KUBEADM_CONFIG,
    STATIC_DAEMONSET_REF,
    Action,
    ApplyObject,
    ChangePool,
    ClusterMode,
    ClusterState,
    CompleteInstallation,
    DeleteObject,
    Json,
    LockDatastore,
    ModeRefused,
    ObjectRef,
    OperatorSettings,
    SetFinalizer,
    Shipped,
    decide_mode,
    installed_refs,
    is_being_deleted,
    may_delete,
    platform_prefixes,
    ref_of,
    service_prefixes,
)
from netplug_core.operator.status import (
    STATUS_KIND,
    Component,
    Event,
    component_object,
    component_ref,
    component_reports,
    component_status,
    has_conditions,
    ref_of_event,
    render_event,
)
from netplug_core.operator.takeover import (
    MIGRATION_LABEL,
    OVERRIDE_REF,
    STATIC_OVERRIDE_REF,
    is_under_way,
    static_refs,
)
from netplug_core.resources.installation import (
    INSTALLATION_API_VERSION,
    INSTALLATION_KIND,
    INSTALLATION_NAME,
    OVERLAY_NAME,
    KubernetesProvider,
)
from netplug_core.resources.ippool import IPPool

__all__ = [
    "INSTALLATION", "Actor", "Cluster", "ComponentStatuses", "Observer", "Pools", "Reporter", "Unreadable",
    "write_component_statuses",
]  # fmt: skip


class Cluster(Protocol):
    """The objects of the cluster. Every method raises NetplugError if the server does not answer, or refuses."""

    def find(self, ref: ObjectRef, *, deadline: Deadline) -> Json | None:
        """An object; None if it, or its definition, does not exist."""
        ...

    def list_nodes(self, label: str, *, deadline: Deadline) -> tuple[Json, ...]:
        """The nodes with a label, whatever its value; all of them if it is empty."""
        ...

    def list_pods(self, namespace: str, label: str, *, deadline: Deadline) -> tuple[Json, ...]:
        """The pods of a namespace with a label, such as ``k8s-app=netplug-node``."""
        ...

    def find_modes(self, *, deadline: Deadline) -> frozenset[ClusterMode]:
        """The API groups for netplug's resources that the server offers."""
        ...

    def find_resources(self, mode: ClusterMode, *, deadline: Deadline) -> frozenset[str]:
        """The names under which the server lists the objects of a group."""
        ...

    def find_provider(self, *, deadline: Deadline) -> KubernetesProvider:
        """Which product the cluster is, as far as it shows."""
        ...

    def apply(self, wanted: Json, *, deadline: Deadline, subresource: str = "") -> Json:
        """Make some fields of an object as they are wanted; a ``uid`` is a condition."""
        ...

    def delete(self, ref: ObjectRef, uid: str, *, deadline: Deadline) -> None:
        """Delete the object with that uid; success if it is gone already."""
        ...

    def replace(self, wanted: Json, *, deadline: Deadline) -> Json | None:
        """Store an object whole: a new one, or the one with that ``resourceVersion``; None if it has another."""
        ...


class Pools(Protocol):
    """The pools of the cluster. Every method raises NetplugError if it cannot be done.

    A change may last longer than the Lease, because of the blocks of a pool. Two operators may then make changes at
    once; each write is refused if another one was faster.
    """

    def read(self, mode: ClusterMode, *, deadline: Deadline) -> tuple[IPPool, ...]:
        """All pools."""
        ...

    def change(self, mode: ClusterMode, step: PoolStep) -> None:
        """Create, update or delete a pool, as it was last read."""
        ...

    def find_loss(self, mode: ClusterMode, *, deadline: Deadline) -> tuple[str, bool]:
        """What is wrong where workloads have addresses and blocks are lost, and whether the operator has locked for it.

        The text is empty if nothing is.
        """
        ...

    def lock(self, mode: ClusterMode, *, is_locked: bool) -> None:
        """Lock the datastore because blocks are lost, or unlock it if it is locked for that."""
        ...


# --- the reading -----------------------------------------------------------------------------------------------------

INSTALLATION = ObjectRef(INSTALLATION_API_VERSION, INSTALLATION_KIND, INSTALLATION_NAME)
_OVERLAY = ObjectRef(INSTALLATION_API_VERSION, INSTALLATION_KIND, OVERLAY_NAME)
_POOLS = "ippools"
_STORED = frozenset({_POOLS, "ipamblocks", "clusterinformations"})
_TIMEOUT_S = 30.0


class Unreadable(Exception):
    """The cluster could not be read; ``installation`` is what was read of it before, if anything."""

    def __init__(self, installation: Json | None, cause: NetplugError) -> None:
        super().__init__(str(cause))
        self.installation = installation


@frozen(kw_only=True)
class Observer:
    """Reads a cluster for a release and its settings."""

    cluster: Cluster
    pools: Pools
    shipped: Shipped
    settings: OperatorSettings
    clock: Clock

    def observe(self) -> ClusterState:
        """The cluster as it is now.

        Raises:
            Unreadable: it cannot be read.
        """
        deadline = Deadline.after(self.clock, _TIMEOUT_S)
        installation = None
        try:
            installation = self.cluster.find(INSTALLATION, deadline=deadline)
            return self._observe(installation, deadline)
        except NetplugError as error:
            raise Unreadable(installation, error) from error

    def _observe(self, installation: Json | None, deadline: Deadline) -> ClusterState:
        state = ClusterState(installation=installation, served_modes=self.cluster.find_modes(deadline=deadline))
        try:
            mode = decide_mode(state.evidence(self.settings.asked_mode))
        except ModeRefused:
            return state  # nothing is done in such a cluster, so nothing else is read
        if is_being_deleted(installation):
            return self._observe_removal(state, deadline)
        served = self.cluster.find_resources(mode, deadline=deadline)
        objects = self._objects((*self._definitions(mode), *self._installed()), deadline)
        kubeadm = self.cluster.find(KUBEADM_CONFIG, deadline=deadline)
        loss, is_locked = self._loss(mode, installation, served, deadline)
        found = ClusterState(
            installation=installation,
            overlay=self.cluster.find(_OVERLAY, deadline=deadline),
            objects=objects,
            served_modes=state.served_modes,
            served_resources=served,
            facts=ClusterFacts(
                provider=self.cluster.find_provider(deadline=deadline),
                has_aws_node=self.cluster.find(AWS_NODE, deadline=deadline) is not None,
                pools=self.pools.read(mode, deadline=deadline) if _POOLS in served else (),
                platform_prefixes=platform_prefixes(kubeadm),
                service_prefixes=service_prefixes(kubeadm),
            ),
            pods=self._pods(objects, deadline) if installation is not None else (),
            controller_pods=self._controller_pods(objects, deadline) if installation is not None else (),
            loss=loss,
            is_locked_for_loss=is_locked,
        )
        return found if installation is None else self._observe_static(found, deadline)

    def _loss(
        self, mode: ClusterMode, installation: Json | None, served: frozenset[str], deadline: Deadline
    ) -> tuple[str, bool]:
        """What is lost; nothing where it cannot be read, or nothing is installed."""
        if installation is None or not served >= _STORED:
            return "", False
        return self.pools.find_loss(mode, deadline=deadline)

    def _observe_static(self, state: ClusterState, deadline: Deadline) -> ClusterState:
        """What a static manifest has installed, as long as it is there or nodes are moved from it."""
        labelled = evolve(state, nodes=self.cluster.list_nodes(MIGRATION_LABEL, deadline=deadline))
        if STATIC_DAEMONSET_REF not in state.objects and not is_under_way(labelled):
            return state
        refs = (*static_refs(self.shipped), STATIC_OVERRIDE_REF, OVERRIDE_REF)
        label = f"k8s-app={NODE_ACCOUNT}"
        return evolve(
            state,
            objects={**state.objects, **self._objects(refs, deadline)},
            nodes=self.cluster.list_nodes("", deadline=deadline),
            pods=self.cluster.list_pods(SYSTEM_NAMESPACE, label, deadline=deadline),
            static_pods=self.cluster.list_pods(STATIC_NAMESPACE, label, deadline=deadline),
        )

    def _observe_removal(self, state: ClusterState, deadline: Deadline) -> ClusterState:
        """Only what a removal depends on: a pool that cannot be read does not keep an Installation for ever."""
        objects = self._objects(self._installed(), deadline)
        nodes = self.cluster.list_nodes(MIGRATION_LABEL, deadline=deadline)
        return evolve(state, objects=objects, pods=self._pods(objects, deadline), nodes=nodes)

    def _definitions(self, mode: ClusterMode) -> tuple[ObjectRef, ...]:
        if not self.settings.manages_definitions:
            return ()
        return tuple(map(ref_of, self.shipped.all_definitions(mode)))

    def _installed(self) -> tuple[ObjectRef, ...]:
        return (*installed_refs(self.shipped), STATIC_DAEMONSET_REF, CONTROLLERS_LEASE_REF)

    def _objects(self, refs: Iterable[ObjectRef], deadline: Deadline) -> dict[ObjectRef, Json]:
        found = ((ref, self.cluster.find(ref, deadline=deadline)) for ref in refs)
        return {ref: one for ref, one in found if one is not None}

    def _pods(self, objects: Mapping[ObjectRef, Json], deadline: Deadline) -> tuple[Json, ...]:
        """The pods of the nodes, of which there may be thousands: none if every node has its pod."""
        if not rollout_of(objects.get(DAEMONSET_REF), ()).progress:
            return ()
        return self.cluster.list_pods(SYSTEM_NAMESPACE, f"k8s-app={NODE_ACCOUNT}", deadline=deadline)

    def _controller_pods(self, objects: Mapping[ObjectRef, Json], deadline: Deadline) -> tuple[Json, ...]:
        """The pods of the controllers: none if all are available."""
        if not controllers_rollout_of(objects.get(CONTROLLERS_REF), ()).progress:
            return ()
        return self.cluster.list_pods(SYSTEM_NAMESPACE, f"k8s-app={CONTROLLERS_NAME}", deadline=deadline)


# --- component statuses ----------------------------------------------------------------------------------------------


_REQUESTS_S: Final = 5.0


@define(kw_only=True)
class ComponentStatuses:
    """They repeat what the Installation says, so one that cannot be written is a line of the log, and no failure."""

    cluster: Cluster
    clock: Clock
    log: Log
    _problem: str = field(default="", init=False)

    def write(self, installation: Json, plan: Plan) -> None:
        """Make the object of each component say how it is."""
        with self._reporting():
            for component, report in component_reports(plan).items():
                self._write(component, report, installation)

    def remove(self) -> None:
        """Delete those that there are: there is no Installation any more."""
        with self._reporting():
            for component in Component:
                self._remove(component)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """What fails within is a line of the log, once."""
        try:
            yield
        except NetplugError as error:
            if str(error) != self._problem:
                self.log(Level.WARNING, f"{STATUS_KIND} objects are not as they should be", cause=error)
            self._problem = str(error)
        else:
            self._problem = ""

    def _write(self, component: Component, report: Report, installation: Json) -> None:
        deadline = Deadline.after(self.clock, _REQUESTS_S)
        wanted, found = component_object(component), self.cluster.find(component_ref(component), deadline=deadline)
        if found is None:
            found = self.cluster.apply(wanted, deadline=deadline)
        status = component_status(report, found, installation, format_time(self.clock.now_ns()))
        if not has_conditions(found, status):
            metadata = {member: find_text(found, "metadata", member) for member in ("name", "uid")}
            document = {**wanted, "metadata": metadata, "status": status}
            self.cluster.apply(document, deadline=deadline, subresource="status")

    def _remove(self, component: Component) -> None:
        deadline = Deadline.after(self.clock, _REQUESTS_S)
        found = self.cluster.find(component_ref(component), deadline=deadline)
        if found is not None and may_delete(found) and not is_being_deleted(found):
            self.cluster.delete(component_ref(component), find_text(found, "metadata", "uid"), deadline=deadline)


# --- acting ----------------------------------------------------------------------------------------------------------


_WRITE_S: Final = 5.0
"""How long the write of an object may take: with it, one that was begun ends before another operator acts.

A change of a pool may take longer (``world.Pools``). It may end while another operator acts, so it relies on the
revisions of what it has read, and on nothing else.
"""


@frozen(kw_only=True)
class Actor:
    """Writes to a cluster. Every method raises NetplugError if it cannot be done."""

    cluster: Cluster
    pools: Pools
    clock: Clock

    def act(self, action: Action, mode: ClusterMode) -> None:
        """Do what an action says."""
        deadline = Deadline.after(self.clock, _WRITE_S)
        match action:
            case ApplyObject(wanted):
                self.cluster.apply(wanted, deadline=deadline)
            case DeleteObject(ref, uid):
                self.cluster.delete(ref, uid, deadline=deadline)
            case ChangePool(step):
                self.pools.change(mode, step)
            case CompleteInstallation(installation):
                if self.cluster.replace(installation, deadline=deadline) is None:
                    raise Unavailable(str(ref_of(installation)), "it has changed meanwhile, and is read again")
            case LockDatastore(is_locked):
                self.pools.lock(mode, is_locked=is_locked)
            case SetFinalizer(name, uid, is_held):
                finalizers = [FINALIZER] if is_held else []
                metadata = {"name": name, "uid": uid, "finalizers": finalizers}
                self.cluster.apply(_installation(metadata), deadline=deadline)
            case _:
                assert_never(action)

    def write_status(self, found: Json, status: Json) -> None:
        """Write the status of an object that was read."""
        head = {member: find_text(found, member) for member in ("apiVersion", "kind")}
        metadata = {member: find_text(found, "metadata", member) for member in ("name", "uid")}
        deadline = Deadline.after(self.clock, _WRITE_S)
        self.cluster.apply({**head, "metadata": metadata, "status": status}, deadline=deadline, subresource="status")


def _installation(metadata: Json) -> Json:
    return {"apiVersion": INSTALLATION_API_VERSION, "kind": INSTALLATION_KIND, "metadata": metadata}


# --- reporting -------------------------------------------------------------------------------------------------------


_REQUEST_S: Final = 5.0


@define(kw_only=True)
class Reporter:
    """``identity`` is the name of this process. An Event that cannot be written is a line of the log, and is lost."""

    cluster: Cluster
    identity: str
    clock: Clock
    log: Log
    _problem: str = field(default="", init=False)

    def report(self, installation: Json, events: Iterable[Event]) -> None:
        """Write some Events. One with the same text is counted up."""
        for event in events:
            try:
                self._report(installation, event)
            except NetplugError as error:
                if str(error) != self._problem:
                    self.log(Level.WARNING, "an Event cannot be written", reason=event.reason, cause=error)
                self._problem = str(error)
            else:
                self._problem = ""

    def _report(self, installation: Json, event: Event) -> None:
        deadline = Deadline.after(self.clock, _REQUEST_S)
        found = self.cluster.find(ref_of_event(event, installation), deadline=deadline)
        now = f"{format_time(self.clock.now_ns())[:19]}Z"
        self.cluster.replace(
            render_event(event, installation, found, identity=self.identity, now=now), deadline=deadline
        )


# --- components ------------------------------------------------------------------------------------------------------


_READ_S: Final = 5.0


def write_component_statuses(actor: Actor) -> None:
    """Make the status of each component that exists say what this release does for it.

    Raises:
        NetplugError: a component cannot be read, or its status cannot be written.
    """
    deadline = Deadline.after(actor.clock, _READ_S)
    read = {kind: actor.cluster.find(ref, deadline=deadline) for kind, ref in COMPONENT_REFS.items()}
    found = {kind: component for kind, component in read.items() if component is not None}
    for component, status in pending_statuses(found, format_time(actor.clock.now_ns())):
        actor.write_status(component, status)
