"""Objects of the cluster as they are installed: read, applied on the server, deleted by their uid.

``netplug_cli.operator`` calls it, and ``cluster`` for ``netplugctl install``. The pools are written through the
datastore, because blocks depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from attrs import define

from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import ApiClient
from netplug_backends.kubernetes.client.messages import ApiReply, ApiRequest, Json
from netplug_backends.kubernetes.client.objects import (
    error_of_reply,
    get_object,
    list_objects,
)
from netplug_backends.kubernetes.client.ratelimit import RateLimiter
from netplug_backends.kubernetes.names import CrdMode, namespaced_path, path_segment
from netplug_core.clock import Clock, Deadline
from netplug_core.decoding.tables import find_member
from netplug_core.errors import ConfigurationError, excerpt
from netplug_core.installation.cluster import FieldConflict, Ownership, Writing
from netplug_core.operator.crd_mode import ClusterMode
from netplug_core.operator.objects import ObjectRef, find_text, ref_of
from netplug_core.operator.provider import detect_provider
from netplug_core.resources.installation import KubernetesProvider
from netplug_core.settings.model import KubernetesAccess

__all__ = ["FIELD_MANAGER", "ClusterObjects", "open_cluster_objects"]

FIELD_MANAGER: Final = "netplug-operator"
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
    _manager: str = FIELD_MANAGER

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
