"""A cluster as the operator and the installation read and write it: nodes, objects, and what is installed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Final

from attrs import define, field

from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import (
    METADATA_TYPE,
    STRATEGIC_TYPE,
    ApiClient,
    ApiReply,
    ApiRequest,
    Json,
    RateLimiter,
    open_api_client,
)
from netplug_backends.kubernetes.client.objects import (
    convert_objects,
    error_of_reply,
    get_object,
    list_objects,
    metadata_of,
)
from netplug_backends.kubernetes.kinds.profiles import node_facts
from netplug_backends.kubernetes.layout import KIND_MAPPINGS
from netplug_backends.kubernetes.names import NODES_PATH, CrdMode, namespaced_path, node_path, path_segment
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import SECOND_NS, Clock, Deadline, format_time
from netplug_core.cni.plugins import REPORT_COUNTS_S
from netplug_core.decoding.tables import find_member, find_text
from netplug_core.errors import ConfigurationError, excerpt
from netplug_core.installation.cluster import (
    ApplyEffect,
    ClusterInventory,
    ClusterNode,
    ClusterState,
    ControllersState,
    DaemonSetState,
    FieldConflict,
    InstallationState,
    NodeReport,
    ObjectEvent,
    OperatorState,
    Ownership,
    PodState,
    Writing,
)
from netplug_core.installation.controllers import CONTROLLERS_NAME
from netplug_core.installation.daemonset import CONFIG_MAP_KEY, NODE_ACCOUNT
from netplug_core.installation.static import STATIC_CONFIG_MAP, STATIC_NAMESPACE, TEMPLATE_KEY
from netplug_core.operator.deployment import OPERATOR_LABEL
from netplug_core.operator.report import COMPONENT_REFS, ContainerFailure, failures_of
from netplug_core.operator.state import (
    AWS_NODE,
    CONFIG_MAP_REF,
    CONTROLLERS_REF,
    DAEMONSET_REF,
    KUBEADM_CONFIG,
    LEASE,
    STATIC_CONTROLLERS_REF,
    STATIC_DAEMONSET_REF,
    ClusterMode,
    ModeEvidence,
    ObjectRef,
    detect_provider,
    is_being_deleted,
    is_ours,
    platform_prefixes,
    ref_of,
    service_prefixes,
)
from netplug_core.reconcile.lease import read_lease
from netplug_core.resources.installation import (
    INSTALLATION_API_VERSION,
    INSTALLATION_KIND,
    INSTALLATION_NAME,
    OVERLAY_NAME,
    KubernetesProvider,
)
from netplug_core.settings.model import ETCD_DATASTORE, KUBERNETES_DATASTORE, DatastoreSettings, KubernetesAccess

__all__ = [
    "FIELD_MANAGER", "OPERATOR_FIELD_MANAGER", "ClusterObjects", "KubernetesCluster", "has_condition", "is_established",
    "members_at", "number_at", "open_cluster", "open_cluster_objects", "read_daemonset", "read_installation",
    "read_node", "read_operator", "read_pod",
]  # fmt: skip


# --- cluster state ---------------------------------------------------------------------------------------------------


_BLOCK_IPAM = '"netplug-ipam"'


def number_at(found: Json, *path: str) -> int:
    """The number at a path; 0 if there is none."""
    value = find_member(found, *path)
    return value if isinstance(value, int) else 0


def members_at(found: Json, *path: str) -> list[Json]:
    """The objects in the list at a path."""
    value = find_member(found, *path)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def read_node(found: Json) -> ClusterNode:
    """A node of the cluster."""
    facts = node_facts(found)
    texts = [find_text(one, "address") for one in members_at(found, "status", "addresses") if _is_address(one)]
    addresses = tuple(map(Address.parse, texts))
    return ClusterNode(name=facts.name, addresses=addresses, pod_prefixes=facts.pod_cidrs)


def is_established(definition: Json) -> bool:
    """Whether objects of a definition can be stored."""
    return has_condition(definition, "Established")


def read_daemonset(found: Json, *, namespace: str, template: str) -> DaemonSetState:
    """A DaemonSet of netplug. ``template`` is the text of its conflist."""
    observed = number_at(found, "status", "observedGeneration")
    containers = members_at(found, "spec", "template", "spec", "containers")
    variables = [one for container in containers for one in members_at(container, "env")]
    settings = {find_text(one, "name"): find_text(one, "value") for one in variables}
    return DaemonSetState(
        namespace=namespace,
        is_observed=observed >= number_at(metadata_of(found), "generation"),
        desired=number_at(found, "status", "desiredNumberScheduled"),
        updated=number_at(found, "status", "updatedNumberScheduled"),
        assigns_addresses=_BLOCK_IPAM in template,
        datastore=settings.get("DATASTORE_TYPE", KUBERNETES_DATASTORE),
        makes_routes=settings.get("NETPLUG_NETWORKING_BACKEND") != "none",
    )


def read_controllers(found: Json, pods: Iterable[Json], *, namespace: str) -> ControllersState:
    """The Deployment of the controllers, with its pods that are not about to end."""
    staying = (pod for pod in pods if not metadata_of(pod).get("deletionTimestamp"))
    return ControllersState(
        namespace=namespace,
        desired=number_at(found, "spec", "replicas"),
        available=number_at(found, "status", "availableReplicas"),
        is_observed=number_at(found, "status", "observedGeneration") >= number_at(metadata_of(found), "generation"),
        pods=tuple(read_pod(pod, datastore=KUBERNETES_DATASTORE) for pod in staying),
    )


def read_pod(found: Json, *, datastore: str) -> PodState:
    """A pod of a node.

    With etcd it counts as ready with one ready container: the node process is not ready while the datastore is
    locked, as during an upgrade, and serves all the same.
    """
    containers = members_at(found, "status", "containerStatuses")
    is_ready = has_condition(found, "Ready")
    if datastore == ETCD_DATASTORE:
        is_ready = is_ready or any(one.get("ready") is True for one in containers)
    return PodState(
        name=find_text(found, "metadata", "name"),
        node=find_text(found, "spec", "nodeName"),
        is_ready=is_ready,
        problem=next(map(_describe, failures_of(found)), ""),
    )


def read_installation(found: Json) -> InstallationState:
    """An Installation with what its operator says."""
    conditions = (
        (find_text(one, "type"), find_text(one, "status"), excerpt(find_text(one, "message")))
        for one in members_at(found, "status", "conditions")
    )
    generations = [number_at(one, "observedGeneration") for one in members_at(found, "status", "conditions")]
    return InstallationState(
        name=find_text(found, "metadata", "name"),
        conditions=tuple(conditions),
        generation=number_at(found, "metadata", "generation"),
        observed_generation=min(generations, default=0),
        is_being_deleted=is_being_deleted(found),
    )


def read_operator(lease: Json | None, pods: Sequence[Json]) -> OperatorState:
    """What shows whether an operator runs: its Lease, and its pods."""
    record = read_lease(lease)
    staying = [pod for pod in pods if not is_being_deleted(pod)]
    return OperatorState(
        holder=record.holder,
        renewed=record.renewed,
        pods=tuple(read_pod(pod, datastore=KUBERNETES_DATASTORE) for pod in staying),
        namespace=next((find_text(pod, "metadata", "namespace") for pod in staying), ""),
    )


def read_reports(events: Sequence[Json], *, now_ns: int) -> tuple[NodeReport, ...]:
    """The Events of node processes about their Nodes that still count, the newest last."""
    oldest = format_time(now_ns - round(REPORT_COUNTS_S * SECOND_NS))
    counting = (event for event in events if find_text(event, "lastTimestamp") >= oldest)
    return tuple(
        NodeReport(
            node=find_text(event, "involvedObject", "name"),
            reason=find_text(event, "reason"),
            message=excerpt(find_text(event, "message")),
        )
        for event in sorted(counting, key=lambda event: find_text(event, "lastTimestamp"))
    )


def read_event(event: Json) -> ObjectEvent:
    """An Event of either API: older ones count, newer ones are a series, or have one time."""
    counts = (find_member(event, "count"), find_member(event, "series", "count"))
    times = ("lastTimestamp",), ("series", "lastObservedTime"), ("eventTime",), ("metadata", "creationTimestamp")
    return ObjectEvent(
        last_seen=next(filter(None, (find_text(event, *path) for path in times)), ""),
        is_warning=find_text(event, "type") == "Warning",
        reason=find_text(event, "reason"),
        message=excerpt(find_text(event, "message")),
        component=find_text(event, "source", "component") or find_text(event, "reportingComponent"),
        count=next((count for count in counts if isinstance(count, int) and count > 0), 1),
    )


def _describe(failure: ContainerFailure) -> str:
    return excerpt(f"{failure}: {failure.message}" if failure.message else str(failure))


def has_condition(found: Json, kind: str) -> bool:
    """Whether a condition of an object is true."""
    return any(
        one.get("type") == kind and one.get("status") == "True" for one in members_at(found, "status", "conditions")
    )


def _is_address(found: Json) -> bool:
    if find_text(found, "type") not in ("InternalIP", "ExternalIP"):
        return False
    try:
        Address.parse(find_text(found, "address"))
    except ValueError:
        return False
    return True


# --- cluster objects -------------------------------------------------------------------------------------------------


OPERATOR_FIELD_MANAGER: Final = "netplug-operator"
"""Who owns the fields that are applied."""

_APPLY_TYPE: Final = "application/apply-patch+yaml"
_QPS, _BURST = 20.0, 40
_CONFLICT, _NOT_FOUND = 409, 404


def open_cluster_objects(access: KubernetesAccess, environ: Mapping[str, str], *, clock: Clock) -> ClusterObjects:
    """The objects on the server that an access leads to; nothing is sent yet."""
    limiter = RateLimiter(clock=clock, qps=_QPS, burst=_BURST)
    return ClusterObjects(ApiClient(AccessSource(access, environ), clock=clock, rate_limiter=limiter))


@define
class ClusterObjects:
    """Single objects, by their names."""

    _client: ApiClient
    _manager: str = OPERATOR_FIELD_MANAGER

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def find(self, ref: ObjectRef, *, deadline: Deadline) -> Json | None:
        """An object; None if it, or its definition, does not exist."""
        request = ApiRequest("GET", _path_of(ref))
        reply = self._client.send(request, deadline=deadline)
        if reply.status == _NOT_FOUND:
            return None
        if not reply.is_success:
            raise error_of_reply(self._client, request, reply)
        return get_object(self._client, request, reply)

    def list_nodes(self, label: str, *, deadline: Deadline) -> tuple[Json, ...]:
        """The nodes with a label, whatever its value; all of them if it is empty."""
        request = ApiRequest("GET", "/api/v1/nodes", {"labelSelector": label} if label else {})
        return tuple(list_objects(self._client, request, deadline=deadline)[0])

    def list_pods(self, namespace: str, label: str, *, deadline: Deadline) -> tuple[Json, ...]:
        """The pods of a namespace with a label, such as ``k8s-app=netplug-node``."""
        request = ApiRequest("GET", namespaced_path(namespace, "pods"), {"labelSelector": label})
        return tuple(list_objects(self._client, request, deadline=deadline)[0])

    def find_modes(self, *, deadline: Deadline) -> frozenset[ClusterMode]:
        """The API groups for netplug's resources that the server offers."""
        names = set(self._names("/apis", "groups", deadline))
        return frozenset(mode for mode in ClusterMode if CrdMode[mode.name].group in names)

    def find_resources(self, mode: ClusterMode, *, deadline: Deadline) -> frozenset[str]:
        """The names under which the server lists the objects of a group; none if it does not offer the group."""
        return self.find_plurals(CrdMode[mode.name].value, deadline=deadline)

    def find_plurals(self, api_version: str, *, deadline: Deadline) -> frozenset[str]:
        """The plurals of the kinds of an API version, such as ``projectnetplug.org/v3``; none if it is not offered."""
        return frozenset(self._names(f"/apis/{api_version}", "resources", deadline))

    def find_provider(self, *, deadline: Deadline) -> KubernetesProvider:
        """Which product the cluster is, as far as the API and one of the nodes show it."""
        groups = self._names("/apis", "groups", deadline)
        request = ApiRequest("GET", "/api/v1/nodes", {"limit": "1"})
        reply = self._client.send(request, deadline=deadline)
        if not reply.is_success:
            raise error_of_reply(self._client, request, reply)
        items = reply.object.get("items")
        first = next(iter(items), None) if isinstance(items, list) else None
        return detect_provider(set(groups), first if isinstance(first, Mapping) else None)

    def apply(
        self,
        wanted: Json,
        *,
        deadline: Deadline,
        subresource: str = "",
        ownership: Ownership = Ownership.TAKEN,
        writing: Writing = Writing.STORED,
    ) -> Json:
        """Make some fields of an object as they are wanted; the rest stays. The new object.

        A ``uid`` in the metadata is a condition: an object with another one is not touched, and none is created.

        Raises:
            FieldConflict: fields belong to another manager, and ownership is respected.
            ConfigurationError: the server refuses the object, or it has another uid.
        """
        path = _path_of(ref_of(wanted)) + (f"/{subresource}" if subresource else "")
        query = {"fieldManager": self._manager}
        if ownership is Ownership.TAKEN:
            query["force"] = "true"
        if writing is Writing.TRIED:
            query["dryRun"] = "All"
        request = ApiRequest("PATCH", path, query, body=wanted, content_type=_APPLY_TYPE)
        reply = self._client.send(request, deadline=deadline)
        if reply.status == _CONFLICT:
            if conflicts := list(_field_conflicts(reply)):
                raise FieldConflict(
                    str(ref_of(wanted)), excerpt("; ".join(conflicts)), "leave the fields to it, or take them over"
                )
            raise ConfigurationError(self._client.describe(request), ref_of(wanted).name, reply.message)
        if not reply.is_success:
            raise error_of_reply(self._client, request, reply)
        if writing is Writing.TRIED:
            return reply.object  # one that is not stored has no resourceVersion
        return get_object(self._client, request, reply)

    def delete(self, ref: ObjectRef, uid: str, *, deadline: Deadline) -> None:
        """Delete the object with that uid, and in the background what it owns; success if it is gone already."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        request = ApiRequest("DELETE", _path_of(ref), body=body)
        reply = self._client.send(request, deadline=deadline)
        if not reply.is_success and reply.status not in (_NOT_FOUND, _CONFLICT):  # conflict: another object by now
            raise error_of_reply(self._client, request, reply)

    def replace(self, wanted: Json, *, deadline: Deadline) -> Json | None:
        """Store an object whole: a new one, or the one with the ``resourceVersion`` in its metadata.

        None if another process was faster.
        """
        ref, metadata = ref_of(wanted), wanted.get("metadata")
        is_new = not (isinstance(metadata, Mapping) and metadata.get("resourceVersion"))
        path = _path_of(ref)
        method, path = ("POST", path.rpartition("/")[0]) if is_new else ("PUT", path)
        request = ApiRequest(method, path, body=wanted)
        reply = self._client.send(request, deadline=deadline)
        if reply.status == _CONFLICT or (reply.status == _NOT_FOUND and reply.is_missing):
            return None
        if not reply.is_success:
            raise error_of_reply(self._client, request, reply)
        return get_object(self._client, request, reply)

    def _names(self, path: str, member: str, deadline: Deadline) -> Iterable[str]:
        request = ApiRequest("GET", path)
        reply = self._client.send(request, deadline=deadline)
        if reply.status == _NOT_FOUND:
            return ()
        if not reply.is_success:
            raise error_of_reply(self._client, request, reply)
        listed = reply.object.get(member)
        if not isinstance(listed, list):
            raise self._client.unusable_reply(request, f"it has no list of {member}")
        return [str(one.get("name")) for one in listed if isinstance(one, Mapping)]


def _field_conflicts(reply: ApiReply) -> Iterator[str]:
    """Each field that belongs to another manager: its path, and the server's words about who that is."""
    causes = find_member(reply.object, "details", "causes")
    for cause in causes if isinstance(causes, list) else ():
        if find_text(cause, "reason") == "FieldManagerConflict":
            yield f"{find_text(cause, 'field')}: {find_text(cause, 'message')}"


def _path_of(ref: ObjectRef) -> str:
    root = "/api/v1" if ref.api_version == "v1" else f"/apis/{ref.api_version}"
    place = f"/namespaces/{path_segment(ref.namespace)}" if ref.namespace else ""
    return f"{root}{place}/{ref.plural}/{path_segment(ref.name)}"


# --- cluster ---------------------------------------------------------------------------------------------------------


FIELD_MANAGER = "netplugctl"
"""The owner of the fields that are applied, in the metadata of each object."""

_SERVICE_CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"
_INSTALLATIONS = f"/apis/{INSTALLATION_API_VERSION}/installations"
_SERVICES = ApiRequest("GET", "/api/v1/services", accept=METADATA_TYPE)
_LINUX_NODES = ApiRequest("GET", NODES_PATH, {"labelSelector": "kubernetes.io/os=linux"})
_EVENTS = "/api/v1/namespaces/{}/events"
_NO_NAMESPACE = "default"  # where Kubernetes has the Events of what has no namespace
_NODE_EVENTS = ApiRequest(
    "GET",
    _EVENTS.format(_NO_NAMESPACE),
    {"fieldSelector": f"involvedObject.kind=Node,source={NODE_ACCOUNT}"},
)
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
        yield KubernetesCluster(client, clock)


@define(eq=False)
class KubernetesCluster:
    """See :class:`~netplug_core.installation.cluster.Cluster`."""

    _client: ApiClient
    _clock: Clock
    _objects: ClusterObjects = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._objects = ClusterObjects(self._client, FIELD_MANAGER)

    def apply(self, wanted: Json, *, ownership: Ownership, writing: Writing, deadline: Deadline) -> ApplyEffect:
        """Apply an object on the server, as the owner of the fields that are wanted."""
        before = self._objects.find(ref_of(wanted), deadline=deadline)
        after = self._objects.apply(wanted, ownership=ownership, writing=writing, deadline=deadline)
        if before is None:
            return ApplyEffect.CREATED
        return ApplyEffect.UNCHANGED if _comparable(before) == _comparable(after) else ApplyEffect.CHANGED

    def label_node(self, name: str, labels: Mapping[str, str], *, deadline: Deadline) -> None:
        """Patch the labels of a node."""
        body = {"metadata": {"labels": dict(labels)}}
        request = ApiRequest("PATCH", node_path(name), {}, body=body, content_type=STRATEGIC_TYPE)
        reply = self._client.send(request, deadline=deadline)
        if not reply.is_success:
            raise error_of_reply(self._client, request, reply)

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

    def find_events(self, kind: str, name: str, namespace: str, *, deadline: Deadline) -> tuple[ObjectEvent, ...]:
        """The Events about an object, the newest last."""
        selector = f"involvedObject.kind={kind},involvedObject.name={name}"
        path = _EVENTS.format(namespace or _NO_NAMESPACE)
        request = ApiRequest("GET", path, {"fieldSelector": selector})
        found, _ = convert_objects(self._client, request, read_event, deadline=deadline)
        return tuple(sorted(found, key=lambda event: event.last_seen))

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
            controllers=tuple(self._read_controllers(deadline)),
            pods=tuple(pods),
            nodes=tuple(str(metadata_of(node).get("name")) for node in nodes),
            reports=read_reports(
                list_objects(self._client, _NODE_EVENTS, deadline=deadline)[0], now_ns=self._clock.now_ns()
            ),
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

    def _read_controllers(self, deadline: Deadline) -> Iterator[ControllersState]:
        for deployment in (CONTROLLERS_REF, STATIC_CONTROLLERS_REF):
            found, place = self._objects.find(deployment, deadline=deadline), deployment.namespace
            if found is not None:
                pods = self._objects.list_pods(place, f"k8s-app={CONTROLLERS_NAME}", deadline=deadline)
                yield read_controllers(found, pods, namespace=place)

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
