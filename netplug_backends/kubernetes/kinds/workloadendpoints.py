"""The store of WorkloadEndpoints: views of pods. The plugin writes the addresses into three annotations of the pod.

A pod that is scheduled and does not use its node's network has an endpoint, perhaps without addresses. A write is a
patch of the pod's status: the plugin's account may write that, and the kubelet's data stay as they are. A pod has one
endpoint, that of its first interface.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from attrs import define, frozen

from netplug_backends.kubernetes.client.apiclient import (
    STRATEGIC_TYPE,
    ApiClient,
    ApiReply,
    ApiRequest,
    Json,
    parse_json,
)
from netplug_backends.kubernetes.client.objects import (
    ObjectVersion,
    error_of_reply,
    event_object,
    find_object,
    get_object,
    is_valid_path,
    parse_revision,
    revision_of,
)
from netplug_backends.kubernetes.kinds.customobjects import (
    CONFLICT,
    NOTHING_FOUND,
    ConditionFailed,
    QueryResult,
    event_of_record,
    get_precondition,
    list_records,
    list_result,
    record_result,
    write_error,
)
from netplug_backends.kubernetes.kinds.profiles import pod_facts
from netplug_backends.kubernetes.names import PODS_PATH, namespaced_path, pod_path
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, RequestError, narrow
from netplug_core.names import (
    DEFAULT_INTERFACE,
    KUBERNETES_ORCHESTRATOR,
    STORED_ANNOTATIONS,
    InvalidName,
    WorkloadEndpointIdentifiers,
    endpoint_labels,
    host_interface_name,
    parse_endpoint_name,
    workload_endpoint_name,
)
from netplug_core.orchestrator.model import PodFacts, PodNetwork
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    NotSupported,
    Record,
    Revision,
    Update,
    WatchEvent,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.workloadendpoint import IPNAT, WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.settings.model import DEFAULT_ANNOTATION_PREFIX
from netplug_core.workload import PodDetails, pod_details

__all__ = ["WorkloadEndpointStore", "find_pod_endpoint", "pod_endpoint_record"]

# The names of annotations, after their prefix.
_POD_IP, _POD_IPS, _CONTAINER = STORED_ANNOTATIONS
_FLOATING, _ALLOWED_SOURCES = "floatingIPs", "allowedSourcePrefixes"
_INVALID = 422
# A name that was too long is cut and ends in a hash, so the pod's name cannot be read from it.
_HASHED_NAME = re.compile(r".*-[0-9a-f]{16}")


@define(eq=False, repr=False)
class WorkloadEndpointStore:
    """The endpoints of a cluster's pods; the names of the annotations begin with ``annotation_prefix``."""

    _client: ApiClient
    _annotation_prefix: str = DEFAULT_ANNOTATION_PREFIX

    def find(self, query: Get[object], *, deadline: Deadline) -> QueryResult:
        """The endpoint of one pod; see :class:`~netplug_backends.kubernetes.kinds.customobjects.KindStore`."""
        return record_result(self._find_record(query.key, deadline))

    def find_all(self, query: List[object], *, deadline: Deadline) -> QueryResult:
        """The endpoints of all pods, or of the pods of a namespace."""
        path = namespaced_path(query.within[0], "pods") if query.within else PODS_PATH
        if not is_valid_path(path):
            return NOTHING_FOUND
        found, resource_version = list_records(
            self._client,
            ApiRequest("GET", path),
            lambda item: self._find_endpoint_record(query.kind, item),
            deadline=deadline,
        )
        return list_result(query, found, resource_version)

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Refused: a pod that exists has its endpoint already, and this store cannot create pods.

        Raises:
            RequestError: there is no such pod. Unlike after a conflict, another attempt would not help.
            ConfigurationError: the pod is on another node, or the endpoint does not belong to a pod.
        """
        raise ConditionFailed(self._get_existing(write.key, _endpoint(write.value).spec, deadline))

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Write addresses and container into the pod. Only the uid is compared: the kubelet changes pods often."""
        endpoint = _endpoint(write.value)
        prefixes = [str(address.host_prefix) for address in endpoint.spec.addresses]
        annotations = {
            _POD_IP: prefixes[0] if prefixes else "",
            _POD_IPS: ",".join(prefixes),
            _CONTAINER: endpoint.spec.container_id,
        }
        metadata = {
            "uid": self._precondition(write.key, revision, deadline).uid,
            "annotations": self._prefixed(annotations),
        }
        return self._patch(write.key, metadata, deadline)

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Empty the addresses in the pod; the container id stays."""
        version = self._precondition(write.key, revision, deadline)
        condition = {"uid": version.uid, "resourceVersion": version.resource_version}
        return self._patch(
            write.key, {**condition, "annotations": self._prefixed({_POD_IP: "", _POD_IPS: ""})}, deadline
        )

    def watched_collections(self, kind: Kind[object], revision: Revision) -> tuple[tuple[ApiRequest, str], ...]:
        """All pods."""
        del kind
        return ((ApiRequest("GET", PODS_PATH), parse_revision(revision).resource_version),)

    def decode_event(self, kind: Kind[object], event: Json) -> WatchEvent[object] | None:
        """The change that an event about a pod means for its endpoint; None if the pod has no endpoint."""
        record = self._find_endpoint_record(kind, event_object(event))
        return None if record is None else event_of_record(event, record)

    def _prefixed(self, annotations: Mapping[str, str]) -> Json:
        return {f"{self._annotation_prefix}/{name}": text for name, text in annotations.items()}

    # --- one pod -----------------------------------------------------------------------------------------------------

    def _find_record(self, key: Key[object], deadline: Deadline) -> Record[object] | None:
        namespace, name = key.path
        identity = _find_identity(name)
        if identity is not None and identity.orchestrator == KUBERNETES_ORCHESTRATOR and identity.pod:
            found = self._find_pod(namespace, identity.pod, deadline)
            record = None if found is None else self._find_endpoint_record(key.kind, found)
            if record is not None and record.key == key:
                return record
        if not _HASHED_NAME.fullmatch(name):
            return None
        listing = self.find_all(List(key.kind, (namespace,)), deadline=deadline)
        return next((record for record in listing.found.records if record.key == key), None)

    def _find_endpoint_record(self, kind: Kind[object], found: Json) -> Record[object] | None:
        return _endpoint_record(kind, pod_facts(found), revision_of(found), self._annotation_prefix)

    def _find_pod(self, namespace: str, name: str, deadline: Deadline) -> Json | None:
        return find_object(self._client, pod_path(namespace, name), deadline=deadline)

    def _get_existing(self, key: Key[object], spec: WorkloadEndpointSpec, deadline: Deadline) -> Record[object]:
        if spec.orchestrator != KUBERNETES_ORCHESTRATOR:
            accepted = "endpoints are kept in pods: CNI_ARGS must name K8S_POD_NAMESPACE and K8S_POD_NAME"
            raise ConfigurationError(str(key), spec.orchestrator, accepted)
        if spec.endpoint != DEFAULT_INTERFACE:
            what = f"storing the endpoint {spec.endpoint}"
            raise NotSupported(what, key.kind, f"a pod holds that of {DEFAULT_INTERFACE} only")
        current = self._find_record(key, deadline)
        if current is not None:
            return current
        name = f"pod {key.path[0]}/{spec.pod}"
        found = self._find_pod(key.path[0], spec.pod, deadline)
        if found is None:
            raise RequestError(f"{name}, which K8S_POD_NAMESPACE and K8S_POD_NAME of CNI_ARGS name, does not exist")
        facts = pod_facts(found)
        if facts.network is PodNetwork.HOST:
            raise RequestError(f"{name} uses its node's network: it cannot be attached to another")
        accepted = f"{name} is on node {facts.node!r}: nodename must be that"
        raise ConfigurationError("nodename", spec.node, accepted)

    def _precondition(self, key: Key[object], revision: Revision, deadline: Deadline) -> ObjectVersion:
        return get_precondition(revision, lambda: self._find_record(key, deadline))

    def _patch(self, key: Key[object], metadata: Json, deadline: Deadline) -> Revision:
        identity = _find_identity(key.path[1])
        pod = identity.pod if identity is not None and not _HASHED_NAME.fullmatch(key.path[1]) else ""
        if not pod:
            current = self._find_record(key, deadline)
            if current is None:
                raise ConditionFailed(None)
            pod = _endpoint(current.value).spec.pod
        path = f"{pod_path(key.path[0], pod)}/status"
        if not is_valid_path(path):
            raise ConditionFailed(None)
        request = ApiRequest("PATCH", path, body={"metadata": metadata}, content_type=STRATEGIC_TYPE)
        reply = self._client.send(request, deadline=deadline)
        if reply.is_success:
            return revision_of(get_object(self._client, request, reply))
        raise self._write_error(key, metadata, (request, reply), deadline)

    def _write_error(
        self, key: Key[object], metadata: Json, exchange: tuple[ApiRequest, ApiReply], deadline: Deadline
    ) -> Exception:
        request, reply = exchange
        error = write_error(
            self._client, exchange, lambda: self._find_record(key, deadline), conflict_statuses=(CONFLICT, _INVALID)
        )
        # The server reports another uid as an invalid object. If the uid is as expected, something else is invalid.
        current = error.current if isinstance(error, ConditionFailed) else None
        if reply.status == _INVALID and current is not None and parse_revision(current.revision).uid == metadata["uid"]:
            return error_of_reply(self._client, request, reply)
        return error


def pod_endpoint_record(pod: Record[object], prefix: str) -> Record[object] | None:
    """The endpoint of a pod that was read, with the pod's revision; None if it has none."""
    return _endpoint_record(WORKLOAD_ENDPOINT, narrow(pod.value, PodFacts), pod.revision, prefix)


def _endpoint_record(kind: Kind[object], pod: PodFacts, revision: Revision, prefix: str) -> Record[object] | None:
    endpoint = find_pod_endpoint(pod, prefix)
    if endpoint is None:
        return None
    return Record(kind.key(endpoint.metadata.namespace, endpoint.metadata.name), endpoint, revision)


@frozen
class _AnnotatedPod:
    """A pod and its annotations with one prefix. Any program may have written those."""

    pod: PodFacts
    prefix: str

    def text(self, name: str) -> str | None:
        return self.pod.find_annotation(f"{self.prefix}/{name}")

    def array(self, name: str) -> Iterator[str]:
        try:
            items = parse_json(self.text(name) or "[]")
        except ValueError:
            return
        yield from (item for item in items if isinstance(item, str)) if isinstance(items, list) else ()


def find_pod_endpoint(pod: PodFacts, prefix: str = DEFAULT_ANNOTATION_PREFIX) -> WorkloadEndpoint | None:
    """The endpoint of a pod; None while the pod is not scheduled, or if it uses its node's network."""
    if not pod.node or pod.network is PodNetwork.HOST:
        return None
    identity = WorkloadEndpointIdentifiers(
        node=pod.node, orchestrator=KUBERNETES_ORCHESTRATOR, pod=pod.name, endpoint=DEFAULT_INTERFACE
    )
    details = pod_details(pod)
    return WorkloadEndpoint(
        metadata=Metadata(
            name=workload_endpoint_name(identity),
            namespace=pod.namespace,
            generate_name=details.generate_name,
            uid=pod.runtime_uid,
            creation_time_ns=pod.creation_time_ns,
            deletion_time_ns=pod.deletion_time_ns,
            labels=endpoint_labels(
                namespace=pod.namespace,
                orchestrator=KUBERNETES_ORCHESTRATOR,
                service_account=details.service_account,
                workload=details.labels,
            ),
        ),
        spec=_spec(_AnnotatedPod(pod, prefix), details),
    )


def _spec(pod_annotations: _AnnotatedPod, details: PodDetails) -> WorkloadEndpointSpec:
    pod, addresses = pod_annotations.pod, tuple(_addresses(pod_annotations))
    return WorkloadEndpointSpec(
        orchestrator=KUBERNETES_ORCHESTRATOR,
        node=pod.node,
        container_id=pod_annotations.text(_CONTAINER) or "",
        pod=pod.name,
        endpoint=DEFAULT_INTERFACE,
        service_account=details.service_account,
        addresses=addresses,
        ip_nats=tuple(_mappings(pod_annotations, addresses)),
        profiles=details.profiles,
        interface_name=host_interface_name(
            pod_namespace=pod.namespace, pod=pod.name, container_id="", ifname=DEFAULT_INTERFACE
        ),
        ports=details.ports,
        allowed_source_prefixes=tuple(_valid_prefixes(pod_annotations.array(_ALLOWED_SOURCES))),
    )


def _addresses(pod_annotations: _AnnotatedPod) -> Iterator[Address]:
    """The addresses that the kubelet reported, else those that the plugin wrote.

    None for a pod that has ended, or that is being deleted and whose addresses are released.
    """
    pod, first = pod_annotations.pod, pod_annotations.text(_POD_IP)
    if pod.is_terminated or (pod.deletion_time_ns is not None and first == ""):
        return
    if pod.addresses:
        yield from pod.addresses
        return
    for text in (pod_annotations.text(_POD_IPS) or first or "").split(","):
        try:
            yield Prefix.parse(text.strip()).first
        except ValueError:
            continue  # an invalid text is no address


def _mappings(pod_annotations: _AnnotatedPod, addresses: tuple[Address, ...]) -> Iterator[IPNAT]:
    for text in dict.fromkeys(pod_annotations.array(_FLOATING)):
        try:
            external = Address.parse(text)
        except ValueError:
            continue  # refused when the pod was attached
        own = next((address for address in addresses if address.family is external.family), None)
        if own is not None:
            yield IPNAT(internal=own, external=external)


def _valid_prefixes(texts: Iterator[str]) -> Iterator[str]:
    for text in texts:
        try:
            yield str(Prefix.enclosing(text))
        except ValueError:
            continue  # refused when the pod was attached


def _find_identity(name: str) -> WorkloadEndpointIdentifiers | None:
    try:
        return parse_endpoint_name(name)
    except InvalidName:
        return None


def _endpoint(value: object) -> WorkloadEndpoint:
    return narrow(value, WorkloadEndpoint)
