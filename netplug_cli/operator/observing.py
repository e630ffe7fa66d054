"""Reads everything of a cluster that a plan depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import evolve, frozen

from netplug_cli.operator.world import Cluster, Pools
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import NetplugError
from netplug_core.installation.controllers import CONTROLLERS_NAME
from netplug_core.installation.daemonset import NODE_ACCOUNT, SYSTEM_NAMESPACE
from netplug_core.installation.settings import ClusterFacts
from netplug_core.installation.static import STATIC_NAMESPACE
from netplug_core.operator.report import controllers_rollout_of, rollout_of
from netplug_core.operator.state import (
    AWS_NODE,
    CONTROLLERS_LEASE_REF,
    CONTROLLERS_REF,
    DAEMONSET_REF,
    KUBEADM_CONFIG,
    STATIC_DAEMONSET_REF,
    ClusterMode,
    ClusterState,
    Json,
    ModeRefused,
    ObjectRef,
    OperatorSettings,
    Shipped,
    decide_mode,
    installed_refs,
    is_being_deleted,
    platform_prefixes,
    ref_of,
    service_prefixes,
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
)

__all__ = ["INSTALLATION", "Observer", "Unreadable"]


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
