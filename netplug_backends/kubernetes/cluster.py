"""The cluster that netplug is installed in: objects are applied, and what is there is read.

``cluster_objects`` finds and applies single objects, ``cluster_state`` reads the answers. ``netplugctl install`` calls
it through the wiring.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from netplug_backends.kubernetes.client.apiclient import ApiClient, open_api_client
from netplug_backends.kubernetes.client.messages import METADATA_TYPE, ApiRequest, Json
from netplug_backends.kubernetes.client.objects import error_of_reply, list_objects, metadata_of
from netplug_backends.kubernetes.cluster_objects import ClusterObjects
from netplug_backends.kubernetes.cluster_state import (
    is_established,
    members_at,
    read_daemonset,
    read_installation,
    read_node,
    read_operator,
    read_pod,
)
from netplug_backends.kubernetes.layout import KIND_MAPPINGS
from netplug_backends.kubernetes.names import NODES_PATH, CrdMode
from netplug_core.addressing import Prefix
from netplug_core.clock import Clock, Deadline
from netplug_core.decoding.tables import find_member
from netplug_core.installation.cluster import (
    ApplyEffect,
    ClusterInventory,
    ClusterState,
    DaemonSetState,
    OperatorState,
    Ownership,
    PodState,
    Writing,
)
from netplug_core.installation.methods import TEMPLATE_KEY
from netplug_core.installation.node_daemonset import CONFIG_MAP_KEY, NODE_ACCOUNT
from netplug_core.installation.static_manifest import STATIC_CONFIG_MAP, STATIC_NAMESPACE
from netplug_core.operator.components import COMPONENT_REFS
from netplug_core.operator.crd_mode import ClusterMode, ModeEvidence
from netplug_core.operator.deployment import OPERATOR_LABEL
from netplug_core.operator.lease import LEASE
from netplug_core.operator.objects import ObjectRef, find_text, is_being_deleted, is_ours, ref_of
from netplug_core.operator.platform import AWS_NODE, KUBEADM_CONFIG, platform_prefixes, service_prefixes
from netplug_core.operator.wanted import CONFIG_MAP_REF, DAEMONSET_REF, STATIC_DAEMONSET_REF
from netplug_core.resources.installation import (
    INSTALLATION_API_VERSION,
    INSTALLATION_KIND,
    INSTALLATION_NAME,
    OVERLAY_NAME,
)
from netplug_core.settings.model import DatastoreSettings

__all__ = ["FIELD_MANAGER", "KubernetesCluster", "open_cluster"]

FIELD_MANAGER = "netplugctl"
"""The owner of the fields that are applied, in the metadata of each object."""

_NOT_FOUND = 404
_SERVICE_CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"
_INSTALLATIONS = f"/apis/{INSTALLATION_API_VERSION}/installations"
_SERVICES = ApiRequest("GET", "/api/v1/services", accept=METADATA_TYPE)
_LINUX_NODES = ApiRequest("GET", NODES_PATH, {"labelSelector": "kubernetes.io/os=linux"})
_OPERATOR_PODS = ApiRequest("GET", "/api/v1/pods", {"labelSelector": f"k8s-app={OPERATOR_LABEL}"})
_INSTALLATION = ObjectRef(INSTALLATION_API_VERSION, INSTALLATION_KIND, INSTALLATION_NAME)
_OVERLAY = ObjectRef(INSTALLATION_API_VERSION, INSTALLATION_KIND, OVERLAY_NAME)
_REMOVED = (_INSTALLATION, _OVERLAY, *COMPONENT_REFS.values())
_STATIC_CONFIG_MAP = ObjectRef("v1", "ConfigMap", STATIC_CONFIG_MAP, STATIC_NAMESPACE)

# Each DaemonSet that netplug may have, with the object and its key that have the conflist.
_ROLLOUTS = (
    (DAEMONSET_REF, CONFIG_MAP_REF, CONFIG_MAP_KEY),
    (STATIC_DAEMONSET_REF, _STATIC_CONFIG_MAP, TEMPLATE_KEY),
)
# What others than the one who applies an object change.
_BOOKKEEPING = ("generation", "managedFields", "resourceVersion")


@contextmanager
def open_cluster(settings: DatastoreSettings, clock: Clock) -> Iterator[KubernetesCluster]:
    """The cluster that settings lead to; nothing is sent before the first call."""
    with closing(open_api_client(settings, os.environ, clock=clock)) as client:
        yield KubernetesCluster(client)


class KubernetesCluster:
    """See :class:`~netplug_core.installation.cluster.Cluster`."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._objects = ClusterObjects(client, FIELD_MANAGER)

    def apply(self, wanted: Json, *, ownership: Ownership, writing: Writing, deadline: Deadline) -> ApplyEffect:
        """Apply an object on the server, as the owner of the fields that are wanted."""
        before = self._objects.find(ref_of(wanted), deadline=deadline)
        after = self._objects.apply(wanted, ownership=ownership, writing=writing, deadline=deadline)
        if before is None:
            return ApplyEffect.CREATED
        return ApplyEffect.UNCHANGED if _comparable(before) == _comparable(after) else ApplyEffect.CHANGED

    def find_resources(self, crd_mode: str, *, deadline: Deadline) -> frozenset[str]:
        """The names under which netplug's objects can be listed."""
        return self._objects.find_resources(ClusterMode(crd_mode), deadline=deadline)

    def remove_installation(self, *, deadline: Deadline) -> tuple[str, ...]:
        """Delete the Installations and the components, unless that has begun; which of them are still there."""
        read = {ref: self._objects.find(ref, deadline=deadline) for ref in _REMOVED}
        found = {ref: one for ref, one in read.items() if one is not None}
        for ref, one in found.items():
            if not is_being_deleted(one):
                self._objects.delete(ref, find_text(one, "metadata", "uid"), deadline=deadline)
        return tuple(map(str, found))

    def find_service_prefixes(self, *, deadline: Deadline) -> tuple[Prefix, ...]:
        """The prefixes of the addresses of services."""
        return self._find_service_prefixes(self._objects.find(KUBEADM_CONFIG, deadline=deadline), deadline)

    def read_inventory(self, *, deadline: Deadline) -> ClusterInventory:
        """What an Installation has to fit."""
        mode = self._find_mode(deadline)
        nodes, _ = list_objects(self._client, _LINUX_NODES, deadline=deadline)
        services, _ = list_objects(self._client, _SERVICES, deadline=deadline)
        settings = self._objects.find(KUBEADM_CONFIG, deadline=deadline)
        daemonsets = {ref: self._objects.find(ref, deadline=deadline) for ref, _, _ in _ROLLOUTS}
        return ClusterInventory(
            crd_mode=mode,
            has_pools=bool(mode) and "ippools" in self.find_resources(mode, deadline=deadline),
            nodes=tuple(map(read_node, nodes)),
            service_count=len(services),
            service_prefixes=self._find_service_prefixes(settings, deadline),
            platform_prefixes=platform_prefixes(settings),
            provider=self._objects.find_provider(deadline=deadline),
            has_aws_node=self._objects.find(AWS_NODE, deadline=deadline) is not None,
            operated_object=self._find_operated_object(daemonsets[DAEMONSET_REF], deadline),
            daemonsets=tuple(ref.namespace for ref, found in daemonsets.items() if found is not None),
        )

    def read_state(self, *, deadline: Deadline) -> ClusterState:
        """What of netplug is there."""
        mode = self._find_mode(deadline)
        daemonsets, pods = list[DaemonSetState](), list[PodState]()
        for daemonset, config_map, key in _ROLLOUTS:
            found = self._objects.find(daemonset, deadline=deadline)
            if found is not None:
                conflist = find_text(self._objects.find(config_map, deadline=deadline), "data", key)
                daemonsets.append(read_daemonset(found, namespace=daemonset.namespace, template=conflist))
                pods += self._read_pods(daemonsets[-1], deadline)
        nodes, _ = list_objects(self._client, _LINUX_NODES, deadline=deadline)
        installations = self._find_collection(_INSTALLATIONS, deadline) or ()
        return ClusterState(
            crd_mode=mode,
            definitions=tuple(self._read_definitions(mode, deadline)),
            daemonsets=tuple(daemonsets),
            pods=tuple(pods),
            nodes=tuple(str(metadata_of(node).get("name")) for node in nodes),
            installations=tuple(map(read_installation, installations)),
            operator=self.read_operator(deadline=deadline),
        )

    def read_operator(self, *, deadline: Deadline) -> OperatorState:
        """What shows whether an operator runs; its namespace is that of the release of a chart."""
        pods, _ = list_objects(self._client, _OPERATOR_PODS, deadline=deadline)
        return read_operator(self._objects.find(LEASE, deadline=deadline), pods)

    def _read_pods(self, daemonset: DaemonSetState, deadline: Deadline) -> Iterator[PodState]:
        """The pods of a DaemonSet that are not about to end."""
        found = self._objects.list_pods(daemonset.namespace, f"k8s-app={NODE_ACCOUNT}", deadline=deadline)
        staying = (pod for pod in found if not metadata_of(pod).get("deletionTimestamp"))
        return (read_pod(pod, datastore=daemonset.datastore) for pod in staying)

    def _read_definitions(self, mode: str, deadline: Deadline) -> Iterator[tuple[str, bool]]:
        if not mode:
            return
        found_mode = CrdMode[mode.upper()]
        for mapping in KIND_MAPPINGS.values():
            name = f"{mapping.plural[found_mode]}.{found_mode.group}"
            ref = ObjectRef("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
            definition = self._objects.find(ref, deadline=deadline)
            yield name, definition is not None and is_established(definition)

    def _find_mode(self, deadline: Deadline) -> str:
        mode = ModeEvidence(served=self._objects.find_modes(deadline=deadline)).present
        return "" if mode is None else mode.value

    def _find_operated_object(self, own: Json | None, deadline: Deadline) -> str:
        """What shows that an operator installs netplug: an Installation, or its label on the DaemonSet."""
        if self._objects.find(_INSTALLATION, deadline=deadline) is not None:
            return str(_INSTALLATION)
        return str(DAEMONSET_REF) if own is not None and is_ours(own) else ""

    def _find_service_prefixes(self, settings: Json | None, deadline: Deadline) -> tuple[Prefix, ...]:
        """From the objects for it, which older servers do not have, or else from the configuration of kubeadm."""
        found = self._find_collection(_SERVICE_CIDRS, deadline)
        if found is None:
            return service_prefixes(settings)
        return tuple(Prefix.enclosing(text) for item in found for text in _service_cidrs(item))

    def _find_collection(self, path: str, deadline: Deadline) -> Sequence[Json] | None:
        """The objects of a collection of few; None if it is not served."""
        request = ApiRequest("GET", path)
        reply = self._client.send(request, deadline=deadline)
        if reply.status == _NOT_FOUND:
            return None
        if not reply.is_success:
            raise error_of_reply(self._client, request, reply)
        return members_at(reply.object, "items")


def _service_cidrs(found: Json) -> Sequence[str]:
    cidrs = find_member(found, "spec", "cidrs")
    return [cidr for cidr in cidrs if isinstance(cidr, str)] if isinstance(cidrs, list) else []


def _comparable(found: Json) -> Mapping[str, object]:
    """What counts as a change of an object: neither the server's own notes, nor the status."""
    metadata = {name: value for name, value in metadata_of(found).items() if name not in _BOOKKEEPING}
    return {**found, "metadata": metadata, "status": None}
