"""What stands for a lab's node and pods on an API server: made for it, labelled as its own, and removed with it.

``netplugctl lab`` comes here, through ``netplug_cli.wiring.backends``. Nothing that was there before is changed or
removed. The
definitions stay, because somebody else may have begun to use them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from urllib.parse import urlsplit

from attrs import frozen

from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiReply, ApiRequest, Json, path_segment
from netplug_backends.kubernetes.client.ratelimit import RateLimiter
from netplug_backends.kubernetes.client.transport import port_of
from netplug_backends.kubernetes.layout import CrdMode
from netplug_backends.kubernetes.manifests import definitions
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess

__all__ = ["LabCluster", "ObjectRefused", "get_api_address", "open_cluster"]

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NODES, _NAMESPACES = "/api/v1/nodes", "/api/v1/namespaces"
_COLLECTIONS = ("/api/v1/pods", _NODES, _NAMESPACES)
_LABEL = "projectnetplug.org/lab"
_CONFLICT = 409
_TIMEOUT_S, _POLL_S = 30.0, 0.05
_NO_GRACE_PERIOD = {"gracePeriodSeconds": "0"}  # no kubelet is there to say that a pod has ended


@frozen
class ObjectRefused(NetplugError):
    """An object that a lab has to make cannot be made; the reason is the server's, or that somebody has one."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def get_api_address(settings: KubernetesAccess) -> tuple[str, int]:
    """Host and port of the API server that settings lead to.

    Raises:
        ConfigurationError: they lead to none.
    """
    server = urlsplit(AccessSource(settings, {}).server)
    return server.hostname or "", port_of(server)


def open_cluster(settings: DatastoreSettings, owner: str, *, clock: Clock) -> AbstractContextManager[LabCluster]:
    """The server that settings lead to; nothing is sent yet."""
    client = ApiClient(
        AccessSource(settings.kubernetes, {}),
        clock=clock,
        rate_limiter=RateLimiter(clock=clock, qps=settings.qps, burst=settings.burst),
    )
    return closing(LabCluster(client, clock=clock, owner=owner))


class LabCluster:
    """The objects of one lab on a server; ``owner`` is the lab's own word for itself, for their label."""

    def __init__(self, client: ApiClient, *, clock: Clock, owner: str) -> None:
        self._client = client
        self._clock = clock
        self._owner = owner

    def close(self) -> None:
        """Give up the connections."""
        self._client.close()

    def require_ready(self) -> None:
        """Raises NetplugError unless the server is ready, and lets us see whether there is something of this lab."""
        reply = self._send(ApiRequest("GET", "/readyz"))
        if not reply.is_success:
            raise Unavailable("kubernetes API", reply.message)
        for collection in _COLLECTIONS:
            self._list(collection)

    def has_definitions(self) -> bool:
        """Whether the server serves netplug's pools, in whichever group.

        Raises:
            NetplugError: it does not say.
        """
        paths = (f"/apis/{mode.value}/ippools" for mode in CrdMode)
        return any(
            self._send(ApiRequest("GET", path, {"limit": "1"}), tolerated_status=404).is_success for path in paths
        )

    def install_definitions(self) -> int:
        """Install those of netplug's definitions that are not there, and wait until they are served; how many.

        Raises:
            NetplugError: the server refuses one, or does not serve it in time.
        """
        mode, made = self._mode(), 0
        for _, definition in definitions(mode):
            made += self._send(ApiRequest("POST", _DEFINITIONS, body=definition), tolerated_status=_CONFLICT).is_success
        deadline = Deadline.after(self._clock, _TIMEOUT_S)
        for plural, _ in definitions(mode):
            while not self._send(ApiRequest("GET", f"/apis/{mode.value}/{plural}"), tolerated_status=404).is_success:
                if deadline.has_passed:
                    raise Unavailable("kubernetes API", f"it does not serve {plural} of {mode.value}")
                self._clock.sleep(_POLL_S)
        return made

    def make_node(self, name: str) -> None:
        """Make a node that nobody schedules to."""
        self._create(_NODES, {"metadata": self._metadata(name), "spec": {"unschedulable": True}})

    def make_namespace(self, name: str) -> None:
        """Make a namespace with the account that its pods need."""
        self._create(_NAMESPACES, {"metadata": self._metadata(name)})
        account = {"metadata": {"name": "default"}}
        # Where controllers run, they may be faster.
        accounts = f"{_NAMESPACES}/{path_segment(name)}/serviceaccounts"
        self._send(ApiRequest("POST", accounts, body=account), tolerated_status=_CONFLICT)

    def make_pod(self, namespace: str, name: str, *, node: str) -> None:
        """Make a pod that is on a node for good: nobody runs it, and nobody evicts it."""
        spec = {
            "nodeName": node,
            "containers": [{"name": "main", "image": "lab.invalid/none"}],
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
        }
        path = f"{_NAMESPACES}/{path_segment(namespace)}/pods"
        self._create(path, {"metadata": self._metadata(name), "spec": spec})

    def remove_all(self) -> int:
        """Remove every object of the lab that is still there; how many there were."""
        return sum(1 for collection in _COLLECTIONS for _ in self._delete_each(collection))

    def _list(self, collection: str) -> Sequence[object]:
        found = self._send(ApiRequest("GET", collection, {"labelSelector": f"{_LABEL}={self._owner}"})).object.get(
            "items"
        )
        return found if isinstance(found, list) else ()

    def _delete_each(self, collection: str) -> Iterator[str]:
        for item in self._list(collection):
            name, namespace = _member(item, "metadata", "name"), _member(item, "metadata", "namespace")
            inner = f"{_NAMESPACES}/{path_segment(namespace)}/pods" if namespace else collection
            path = f"{inner}/{path_segment(name)}"
            self._send(ApiRequest("DELETE", path, _NO_GRACE_PERIOD), tolerated_status=404)
            yield path

    def _mode(self) -> CrdMode:
        """The group that the cluster began with; the first one where it has none."""
        for mode in (CrdMode.V1, CrdMode.V3):
            path = f"{_DEFINITIONS}/ippools.{mode.group}"
            if self._send(ApiRequest("GET", path), tolerated_status=404).is_success:
                return mode
        return CrdMode.V1

    def _create(self, collection: str, body: Json) -> None:
        """Make an object, unless it is there and the lab's."""
        reply = self._send(ApiRequest("POST", collection, body=body), tolerated_status=_CONFLICT)
        if reply.is_success:
            return
        path = f"{collection}/{path_segment(_member(body, 'metadata', 'name'))}"
        there = self._send(ApiRequest("GET", path), tolerated_status=404).object
        if _member(there, "metadata", "labels", _LABEL) != self._owner:
            raise ObjectRefused(path, "it is there already, and not this lab's")

    def _metadata(self, name: str) -> Json:
        return {"name": name, "labels": {_LABEL: self._owner}}

    def _send(self, request: ApiRequest, *, tolerated_status: int = 0) -> ApiReply:
        reply = self._client.send(request, deadline=Deadline.after(self._clock, _TIMEOUT_S))
        if not reply.is_success and reply.status != tolerated_status:
            raise ObjectRefused(request.path, reply.message)
        return reply


def _member(found: object, *path: str) -> str:
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return str(found or "")
