"""The keeper of WorkloadEndpoints: views of pods, whose addresses the plugin writes into three annotations.

A pod that is scheduled and has a network of its own is an endpoint, perhaps without addresses. Storing one is a patch
of the pod's status, which the plugin's account may write and which leaves everything else to the kubelet. A pod holds
one endpoint, that of its first interface.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import cast

from attrs import frozen

from netplug_backends.kubernetes.client import Client, Json, Reply, Request, from_json, segment
from netplug_backends.kubernetes.facts import pod_facts
from netplug_backends.kubernetes.keeper import (
    ConditionFailed,
    Found,
    Version,
    answered,
    can_exist,
    condition_of,
    failure,
    found_at,
    listed,
    object_of,
    revision_of,
    version_of,
)
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, RequestError
from netplug_core.names import (
    EndpointIdentity,
    NameProblem,
    host_interface_name,
    parse_endpoint_name,
    workload_endpoint_name,
)
from netplug_core.netconf.model import DEFAULT_ANNOTATION_PREFIX
from netplug_core.orchestrator.interface import ContainerPort, PodFacts, PodNetwork
from netplug_core.records import (
    Change,
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
)
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.workloadendpoint import (
    AddressMapping,
    EndpointPort,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)

__all__ = ["Endpoints", "endpoint_of"]

# What annotations are called behind their prefix.
_POD_IP, _POD_IPS, _CONTAINER = "podIP", "podIPs", "containerID"
_FLOATING, _SPOOFABLE = "floatingIPs", "allowedSourcePrefixes"
_LABEL_DOMAIN = "projectnetplug.org"
_ORCHESTRATOR, _INTERFACE = "k8s", "eth0"
_STRATEGIC = "application/strategic-merge-patch+json"
_CONFLICT, _INVALID = 409, 422
# A name that was too long is cut, and ends in a hash instead of the interface: the pod's cannot be read from it.
_CUT = re.compile(r".*-[0-9a-f]{16}")


class Endpoints:
    """The endpoints of a cluster's pods; ``prefix`` is what the annotations begin with that they are written into."""

    def __init__(self, client: Client, prefix: str = DEFAULT_ANNOTATION_PREFIX) -> None:
        self._client = client
        self._prefix = prefix

    def find(self, query: Get[object], *, deadline: Deadline) -> Found:
        """The endpoint of one pod; see :class:`~netplug_backends.kubernetes.keeper.Keeper`."""
        record = self._current(query.key, deadline)
        return Found((record,), record.revision) if record else Found(())

    def find_all(self, query: List[object], *, deadline: Deadline) -> Found:
        """The endpoints of all pods, or of a namespace's."""
        path = f"/api/v1/namespaces/{segment(query.within[0])}/pods" if query.within else "/api/v1/pods"
        if not can_exist(path):
            return Found(())
        items, number = listed(self._client, Request("GET", path), deadline=deadline)
        found = (record for item in items if (record := self._record(query.kind, item)) is not None)
        inside = (record for record in found if record.key.path[: len(query.within)] == query.within)
        return Found(tuple(sorted(inside, key=lambda record: record.key.path)), Revision(number))

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Refused: a pod that exists is an endpoint already, and one that does not cannot be made here.

        Raises:
            RequestError: there is no such pod. Trying again would not help, as it does after a lost race.
            ConfigurationError: the pod is another node's, or there is none that could hold the endpoint.
        """
        raise ConditionFailed(self._present(write.key, _endpoint(write.value).spec, deadline))

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Write addresses and container into the pod; only its identity is compared, for the kubelet never rests."""
        endpoint = _endpoint(write.value)
        prefixes = [str(address.host_prefix) for address in endpoint.spec.addresses]
        annotations = {
            _POD_IP: prefixes[0] if prefixes else "",
            _POD_IPS: ",".join(prefixes),
            _CONTAINER: endpoint.spec.container_id,
        }
        metadata = {"uid": self._condition(write.key, revision, deadline).uid, "annotations": self._named(annotations)}
        return self._patch(write.key, metadata, deadline)

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Empty the addresses in the pod; whose they were stays to be read."""
        version = self._condition(write.key, revision, deadline)
        condition = {"uid": version.uid, "resourceVersion": version.number}
        return self._patch(write.key, {**condition, "annotations": self._named({_POD_IP: "", _POD_IPS: ""})}, deadline)

    def sources(self, kind: Kind[object], revision: Revision) -> tuple[tuple[Request, str], ...]:
        """All pods."""
        del kind
        return ((Request("GET", "/api/v1/pods"), version_of(revision).number),)

    def change(self, kind: Kind[object], event: Json) -> Change[object] | None:
        """What an event about a pod means to its endpoint; None for a pod that is none."""
        record = self._record(kind, object_of(event))
        if record is None:
            return None
        return Change(record.key, None if event.get("type") == "DELETED" else record.value, record.revision)

    def _named(self, annotations: Mapping[str, str]) -> Json:
        return {f"{self._prefix}/{name}": text for name, text in annotations.items()}

    # --- one pod -----------------------------------------------------------------------------------------------------

    def _current(self, key: Key[object], deadline: Deadline) -> Record[object] | None:
        namespace, name = key.path
        identity = _identity(name)
        if identity is not None and identity.orchestrator == _ORCHESTRATOR and identity.pod:
            found = self._pod(namespace, identity.pod, deadline)
            record = None if found is None else self._record(key.kind, found)
            if record is not None and record.key == key:
                return record
        if not _CUT.fullmatch(name):
            return None
        listing = self.find_all(List(key.kind, (namespace,)), deadline=deadline)
        return next((record for record in listing.records if record.key == key), None)

    def _record(self, kind: Kind[object], found: Json) -> Record[object] | None:
        endpoint = endpoint_of(pod_facts(found), self._prefix)
        if endpoint is None:
            return None
        key = kind.key(endpoint.metadata.namespace, endpoint.metadata.name)
        return Record(key, endpoint, revision_of(found))

    def _pod(self, namespace: str, name: str, deadline: Deadline) -> Json | None:
        return found_at(self._client, _pod_path(namespace, name), deadline=deadline)

    def _present(self, key: Key[object], spec: WorkloadEndpointSpec, deadline: Deadline) -> Record[object]:
        if spec.orchestrator != _ORCHESTRATOR:
            accepted = "endpoints are kept in pods: CNI_ARGS must name K8S_POD_NAMESPACE and K8S_POD_NAME"
            raise ConfigurationError(str(key), spec.orchestrator, accepted)
        if spec.endpoint != _INTERFACE:
            what = f"storing the endpoint {spec.endpoint}"
            raise NotSupported(what, key.kind, f"a pod holds that of {_INTERFACE} only")
        current = self._current(key, deadline)
        if current is not None:
            return current
        name = f"pod {key.path[0]}/{spec.pod}"
        found = self._pod(key.path[0], spec.pod, deadline)
        if found is None:
            raise RequestError(f"{name}, which K8S_POD_NAMESPACE and K8S_POD_NAME of CNI_ARGS name, does not exist")
        facts = pod_facts(found)
        if facts.network is PodNetwork.HOST:
            raise RequestError(f"{name} uses its node's network: it cannot be attached to another")
        accepted = f"{name} is on node {facts.node!r}: nodename must be that"
        raise ConfigurationError("nodename", spec.node, accepted)

    def _condition(self, key: Key[object], revision: Revision, deadline: Deadline) -> Version:
        """What a write names; one that could name nothing is refused before it is sent."""
        version = condition_of(revision)
        if version is None:
            raise ConditionFailed(self._current(key, deadline))
        return version

    def _patch(self, key: Key[object], metadata: Json, deadline: Deadline) -> Revision:
        identity = _identity(key.path[1])
        pod = identity.pod if identity is not None and not _CUT.fullmatch(key.path[1]) else ""
        if not pod:
            current = self._current(key, deadline)
            if current is None:
                raise ConditionFailed(None)
            pod = _endpoint(current.value).spec.pod
        path = f"{_pod_path(key.path[0], pod)}/status"
        if not can_exist(path):
            raise ConditionFailed(None)
        request = Request("PATCH", path, body={"metadata": metadata}, content_type=_STRATEGIC)
        reply = self._client.ask(request, deadline=deadline)
        if reply.is_success:
            return revision_of(answered(self._client, request, reply))
        raise self._refused(key, metadata, (request, reply), deadline)

    def _refused(
        self, key: Key[object], metadata: Json, exchange: tuple[Request, Reply], deadline: Deadline
    ) -> Exception:
        request, reply = exchange
        if not reply.is_missing and reply.status not in (_CONFLICT, _INVALID):
            return failure(self._client, request, reply)
        current = self._current(key, deadline)
        # Another identity breaks a rule of the schema, as other nonsense would.
        if reply.status == _INVALID and current is not None and version_of(current.revision).uid == metadata["uid"]:
            return failure(self._client, request, reply)
        return ConditionFailed(current)


@frozen
class _Written:
    """A pod, and what stands in the annotations of one prefix. Anybody may write those."""

    pod: PodFacts
    prefix: str

    def text(self, name: str) -> str | None:
        return self.pod.annotation(f"{self.prefix}/{name}")

    def array(self, name: str) -> Iterator[str]:
        try:
            items = from_json(self.text(name) or "[]")
        except ValueError:
            return
        yield from (item for item in items if isinstance(item, str)) if isinstance(items, list) else ()


def endpoint_of(pod: PodFacts, prefix: str = DEFAULT_ANNOTATION_PREFIX) -> WorkloadEndpoint | None:
    """The endpoint that a pod is; None while it is not scheduled, and where it uses its node's network."""
    if not pod.node or pod.network is PodNetwork.HOST:
        return None
    identity = EndpointIdentity(node=pod.node, orchestrator=_ORCHESTRATOR, pod=pod.name, endpoint=_INTERFACE)
    own = (
        (f"{_LABEL_DOMAIN}/namespace", pod.namespace),
        (f"{_LABEL_DOMAIN}/orchestrator", _ORCHESTRATOR),
        (f"{_LABEL_DOMAIN}/serviceaccount", pod.service_account),
    )
    labels = {**dict(pod.labels), **{name: value for name, value in own if value}}
    return WorkloadEndpoint(
        metadata=Metadata(
            name=workload_endpoint_name(identity),
            namespace=pod.namespace,
            generate_name=pod.generate_name,
            uid=pod.uid,
            creation_time_ns=pod.creation_time_ns,
            deletion_time_ns=pod.deletion_time_ns,
            labels=tuple(sorted(labels.items())),
        ),
        spec=_spec(_Written(pod, prefix)),
    )


def _spec(written: _Written) -> WorkloadEndpointSpec:
    pod, addresses = written.pod, tuple(_addresses(written))
    account = (f"ksa.{pod.namespace}.{pod.service_account}",) if pod.service_account else ()
    return WorkloadEndpointSpec(
        orchestrator=_ORCHESTRATOR,
        node=pod.node,
        container_id=written.text(_CONTAINER) or "",
        pod=pod.name,
        endpoint=_INTERFACE,
        service_account=pod.service_account,
        addresses=addresses,
        address_mappings=tuple(_mappings(written, addresses)),
        profiles=(f"kns.{pod.namespace}", *account),
        interface_name=host_interface_name(
            pod_namespace=pod.namespace, pod=pod.name, container_id="", ifname=_INTERFACE
        ),
        ports=tuple(map(_port, pod.ports)),
        spoofable_prefixes=tuple(_masked(written.array(_SPOOFABLE))),
    )


def _port(port: ContainerPort) -> EndpointPort:
    return EndpointPort(
        name=port.name, protocol=port.protocol, port=port.port, host_port=port.host_port, host_ip=port.host_ip
    )


def _addresses(written: _Written) -> Iterator[Address]:
    """What the node reported, else what the plugin wrote; nothing of a pod that is over, or released and going."""
    pod, first = written.pod, written.text(_POD_IP)
    if pod.is_over or (pod.deletion_time_ns is not None and first == ""):
        return
    if pod.addresses:
        yield from pod.addresses
        return
    for text in (written.text(_POD_IPS) or first or "").split(","):
        try:
            yield Prefix.parse(text.strip()).first
        except ValueError:
            continue  # one that makes no sense gives no address


def _mappings(written: _Written, addresses: tuple[Address, ...]) -> Iterator[AddressMapping]:
    for text in written.array(_FLOATING):
        try:
            external = Address.parse(text)
        except ValueError:
            continue  # refused when the pod was attached
        own = next((address for address in addresses if address.family is external.family), None)
        if own is not None:
            yield AddressMapping(internal=own, external=external)


def _masked(given: Iterator[str]) -> Iterator[str]:
    for text in given:
        try:
            yield str(Prefix.enclosing(text))
        except ValueError:
            continue  # refused when the pod was attached


def _identity(name: str) -> EndpointIdentity | None:
    try:
        return parse_endpoint_name(name)
    except NameProblem:
        return None


def _endpoint(value: object) -> WorkloadEndpoint:
    return cast("WorkloadEndpoint", value)


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{segment(namespace)}/pods/{segment(name)}"
