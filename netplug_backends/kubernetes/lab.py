"""The objects of a lab, and of a test of connectivity, on an API server: labelled as their own, and removed with them.

``netplugctl lab`` and ``connectivity test`` call it, through ``netplug_cli.wiring.lab``. Objects that existed before
are neither changed nor removed. Custom resource definitions stay, because others may use them by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from urllib.parse import urlsplit

from attrs import define, field, frozen

from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiReply, ApiRequest, Json, open_api_client, port_of
from netplug_backends.kubernetes.client.objects import list_objects
from netplug_backends.kubernetes.installing.cluster import (
    FIELD_MANAGER,
    ClusterObjects,
    has_condition,
    members_at,
    read_node,
)
from netplug_backends.kubernetes.installing.manifests import definitions
from netplug_backends.kubernetes.names import (
    NAMESPACES_PATH,
    NODES_PATH,
    PODS_PATH,
    CrdMode,
    namespaced_path,
    path_segment,
)
from netplug_core.addressing import Address
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.connectivity import TEST_LABEL, RunningPod, UsableNode
from netplug_core.decoding.tables import find_member, find_text
from netplug_core.errors import ConfigurationError, NetplugError, Unavailable, excerpt
from netplug_core.names import LAB_LABEL
from netplug_core.operator.report import failures_of
from netplug_core.operator.state import DAEMONSET_REF, STATIC_DAEMONSET_REF, ObjectRef, is_being_deleted
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess

__all__ = ["ApiPods", "LabCluster", "ObjectRefused", "get_api_address", "open_cluster", "open_pods"]

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_COLLECTIONS = (PODS_PATH, NODES_PATH, NAMESPACES_PATH)
_CONFLICT = 409
_TIMEOUT_S, _POLL_S = 30.0, 0.05
_NO_GRACE_PERIOD = {"gracePeriodSeconds": "0"}  # no kubelet reports that a pod has ended


@frozen
class ObjectRefused(NetplugError):
    """An object of a lab cannot be created; the reason is the server's, or that the object exists."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def get_api_address(settings: KubernetesAccess) -> tuple[str, int]:
    """Host and port of the API server that settings name.

    Raises:
        ConfigurationError: the settings name none.
    """
    server = urlsplit(AccessSource(settings, {}).server)
    return server.hostname or "", port_of(server)


def open_cluster(settings: DatastoreSettings, owner: str, *, clock: Clock) -> AbstractContextManager[LabCluster]:
    """A lab's objects on the server that settings name; nothing is sent yet."""
    return closing(LabCluster(open_api_client(settings, {}, clock=clock), clock=clock, owner=owner))


@define(eq=False, repr=False)
class LabCluster:
    """The objects of one lab on a server; ``owner`` identifies the lab in their label."""

    _client: ApiClient
    _clock: Clock = field(kw_only=True, alias="clock")
    _owner: str = field(kw_only=True, alias="owner")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def require_ready(self) -> None:
        """Raise NetplugError unless the server is ready and this account may list the lab's objects."""
        reply = self._send(ApiRequest("GET", "/readyz"))
        if not reply.is_success:
            raise Unavailable("kubernetes API", reply.message)
        for collection in _COLLECTIONS:
            self._list(collection)

    def has_definitions(self) -> bool:
        """Whether the server serves netplug's pools, in either API group.

        Raises:
            NetplugError: the server does not answer.
        """
        paths = (f"/apis/{mode.value}/ippools" for mode in CrdMode)
        return any(
            self._send(ApiRequest("GET", path, {"limit": "1"}), tolerated_status=404).is_success for path in paths
        )

    def install_definitions(self) -> int:
        """Install the definitions that are missing, and wait until they are served; how many were installed.

        Raises:
            NetplugError: the server refuses a definition, or does not serve it in time.
        """
        mode, installed = self._mode(), 0
        for _, definition in definitions(mode):
            request = ApiRequest("POST", _DEFINITIONS, body=definition)
            installed += self._send(request, tolerated_status=_CONFLICT).is_success
        deadline = Deadline.after(self._clock, _TIMEOUT_S)
        for plural, _ in definitions(mode):
            while not self._send(ApiRequest("GET", f"/apis/{mode.value}/{plural}"), tolerated_status=404).is_success:
                if deadline.has_passed:
                    raise Unavailable("kubernetes API", f"it does not serve {plural} of {mode.value}")
                self._clock.sleep(_POLL_S)
        return installed

    def make_node(self, name: str) -> None:
        """Create a node that is not schedulable."""
        self._create(NODES_PATH, {"metadata": self._metadata(name), "spec": {"unschedulable": True}})

    def make_namespace(self, name: str) -> None:
        """Create a namespace with the service account that its pods need."""
        self._create(NAMESPACES_PATH, {"metadata": self._metadata(name)})
        account = {"metadata": {"name": "default"}}
        # If controllers run, they may create it first.
        accounts = namespaced_path(name, "serviceaccounts")
        self._send(ApiRequest("POST", accounts, body=account), tolerated_status=_CONFLICT)

    def make_pod(self, namespace: str, name: str, *, node: str) -> None:
        """Create a pod on a node; no kubelet runs it, and it tolerates every taint, so it is not evicted."""
        spec = {
            "nodeName": node,
            "containers": [{"name": "main", "image": "lab.invalid/none"}],
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
        }
        self._create(namespaced_path(namespace, "pods"), {"metadata": self._metadata(name), "spec": spec})

    def remove_all(self) -> int:
        """Remove every object of the lab that still exists; how many there were."""
        return sum(1 for collection in _COLLECTIONS for _ in self._delete_each(collection))

    def _list(self, collection: str) -> Sequence[object]:
        reply = self._send(ApiRequest("GET", collection, {"labelSelector": f"{LAB_LABEL}={self._owner}"}))
        items = reply.object.get("items")
        return items if isinstance(items, list) else ()

    def _delete_each(self, collection: str) -> Iterator[str]:
        for item in self._list(collection):
            name, namespace = _member(item, "metadata", "name"), _member(item, "metadata", "namespace")
            path = f"{namespaced_path(namespace, 'pods') if namespace else collection}/{path_segment(name)}"
            self._send(ApiRequest("DELETE", path, _NO_GRACE_PERIOD), tolerated_status=404)
            yield path

    def _mode(self) -> CrdMode:
        """The API group that the cluster has; v1 if it has none."""
        for mode in (CrdMode.V1, CrdMode.V3):
            path = f"{_DEFINITIONS}/ippools.{mode.group}"
            if self._send(ApiRequest("GET", path), tolerated_status=404).is_success:
                return mode
        return CrdMode.V1

    def _create(self, collection: str, body: Json) -> None:
        """Create an object, unless it exists and is the lab's."""
        reply = self._send(ApiRequest("POST", collection, body=body), tolerated_status=_CONFLICT)
        if reply.is_success:
            return
        path = f"{collection}/{path_segment(_member(body, 'metadata', 'name'))}"
        existing = self._send(ApiRequest("GET", path), tolerated_status=404).object
        if _member(existing, "metadata", "labels", LAB_LABEL) != self._owner:
            raise ObjectRefused(path, "it is there already, and not this lab's")

    def _metadata(self, name: str) -> Json:
        return {"name": name, "labels": {LAB_LABEL: self._owner}}

    def _send(self, request: ApiRequest, *, tolerated_status: int = 0) -> ApiReply:
        reply = self._client.send(request, deadline=Deadline.after(self._clock, _TIMEOUT_S))
        if not reply.is_success and reply.status != tolerated_status:
            raise ObjectRefused(request.path, reply.message)
        return reply


def _member(found: object, *path: str) -> str:
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return str(found or "")


# --- the pods of a test -----------------------------------------------------------------------------------------------


_LINUX_NODES = ApiRequest("GET", NODES_PATH, {"labelSelector": "kubernetes.io/os=linux"})
_NO_ACCOUNT = "service account"  # what the server says until a controller has made the namespace's own
_POLL_PODS_S = 0.5


def open_pods(
    settings: DatastoreSettings, environ: Mapping[str, str], *, clock: Clock
) -> AbstractContextManager[ApiPods]:
    """The nodes and pods of the cluster that settings lead to; nothing is sent before the first call."""
    return closing(ApiPods(open_api_client(settings, environ, clock=clock), clock))


@define(eq=False)
class ApiPods:
    """See :class:`~netplug_core.dataplane.connectivity.ClusterPods`."""

    _client: ApiClient
    _clock: Clock
    _objects: ClusterObjects = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._objects = ClusterObjects(self._client, FIELD_MANAGER)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def find_image(self, *, deadline: Deadline) -> str:
        """The image of the node process, as its DaemonSet has it."""
        for ref in (DAEMONSET_REF, STATIC_DAEMONSET_REF):
            found = self._objects.find(ref, deadline=deadline)
            containers = members_at(found or {}, "spec", "template", "spec", "containers")
            if containers:
                return find_text(containers[0], "image")
        return ""

    def list_nodes(self, *, deadline: Deadline) -> tuple[UsableNode, ...]:
        """The nodes that run Linux, are ready and take pods."""
        found, _ = list_objects(self._client, _LINUX_NODES, deadline=deadline)
        usable = (one for one in found if has_condition(one, "Ready") and not find_member(one, "spec", "unschedulable"))
        nodes = map(read_node, usable)
        found_nodes = (UsableNode(name=node.name, addresses=node.addresses) for node in nodes)
        return tuple(sorted(found_nodes, key=lambda node: node.name))

    def make_namespace(self, name: str, *, deadline: Deadline) -> None:
        """Make a namespace, when what an interrupted test left of it is gone."""
        ref = ObjectRef("v1", "Namespace", name)
        while (found := self._objects.find(ref, deadline=deadline)) is not None:
            if not _is_of_test(found):
                raise ConfigurationError("--namespace", name, "it exists, and no test has made it; take another name")
            if not is_being_deleted(found):
                self._objects.delete(ref, find_text(found, "metadata", "uid"), deadline=deadline)
            if deadline.has_passed:
                raise ConfigurationError("--namespace", name, "it is still being removed; wait, or take another name")
            self._clock.sleep(_POLL_PODS_S)
        labels = {TEST_LABEL: "namespace", "pod-security.kubernetes.io/enforce": "restricted"}
        wanted = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self._objects.apply(wanted, deadline=deadline)

    def make(self, document: Json, *, deadline: Deadline) -> None:
        """Make an object. A new namespace takes no pods until a controller has made its service account."""
        while True:
            try:
                self._objects.apply(document, deadline=deadline)
            except NetplugError as error:
                if _NO_ACCOUNT not in str(error) or deadline.has_passed:
                    raise
                self._clock.sleep(_POLL_PODS_S)
            else:
                return

    def list_pods(self, namespace: str, *, deadline: Deadline) -> tuple[RunningPod, ...]:
        """The pods of a test."""
        return tuple(map(_read_pod, self._objects.list_pods(namespace, TEST_LABEL, deadline=deadline)))

    def find_service_addresses(self, namespace: str, name: str, *, deadline: Deadline) -> tuple[Address, ...]:
        """The addresses of a service."""
        found = self._objects.find(ObjectRef("v1", "Service", name, namespace), deadline=deadline)
        texts = find_member(found or {}, "spec", "clusterIPs")
        return tuple(Address.parse(str(text)) for text in texts) if isinstance(texts, list) else ()

    def remove_namespace(self, name: str, *, deadline: Deadline) -> None:
        """Begin to remove a namespace, if a test has made it."""
        ref = ObjectRef("v1", "Namespace", name)
        found = self._objects.find(ref, deadline=deadline)
        if found is not None and _is_of_test(found):
            self._objects.delete(ref, find_text(found, "metadata", "uid"), deadline=deadline)


def _is_of_test(found: Json) -> bool:
    return bool(find_text(found, "metadata", "labels", TEST_LABEL))


def _read_pod(found: Json) -> RunningPod:
    states = members_at(found, "status", "containerStatuses")
    ended = (find_text(one, "state", "terminated", "message") for one in states)
    failures = (f"{one}: {one.message}" if one.message else str(one) for one in failures_of(found))
    return RunningPod(
        name=find_text(found, "metadata", "name"),
        node=find_text(found, "spec", "nodeName"),
        phase=find_text(found, "status", "phase"),
        addresses=tuple(Address.parse(find_text(one, "ip")) for one in members_at(found, "status", "podIPs")),
        message=next(ended, ""),
        problem=excerpt(next(failures, find_text(found, "status", "message"))),
    )
