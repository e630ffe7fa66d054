"""The service account of the pod that this process runs in, and tokens for other accounts of its namespace."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Mapping

from attrs import define

from netplug_backends.kubernetes.client.access import SERVICE_ACCOUNT_FOLDER, AccessSource
from netplug_backends.kubernetes.client.apiclient import (
    STRATEGIC_TYPE,
    ApiClient,
    ApiReply,
    ApiRequest,
    RateLimiter,
)
from netplug_backends.kubernetes.client.credentials import (
    FileReader,
    FileStamp,
    find_file_stamp,
    in_cluster_server,
)
from netplug_backends.kubernetes.client.objects import error_of_reply, find_object
from netplug_backends.kubernetes.names import namespaced_path, node_path, path_segment
from netplug_core.clock import Clock, Deadline, parse_time
from netplug_core.decoding.tables import find_member
from netplug_core.errors import ConfigurationError, Unavailable, UnusableFile
from netplug_core.expiry import parse_token_expiry
from netplug_core.installation.installer import LIFETIME_S, IssuedToken
from netplug_core.settings.model import KubernetesAccess

__all__ = ["ServiceAccount", "find_account_client", "find_service_account"]

_TOKEN, _AUTHORITY, _NAMESPACE = "token", "ca.crt", "namespace"
_QPS, _BURST = 5.0, 10
_NOT_FOUND = 404
_CORE_API = "/api/v1"
_RESOURCE = "serviceaccounts/token"
_NETWORK_UNAVAILABLE = "NetworkUnavailable"


def find_service_account(
    environ: Mapping[str, str], *, clock: Clock, folder: str = SERVICE_ACCOUNT_FOLDER
) -> ServiceAccount | None:
    """The service account of this pod; None outside a pod, or in one without."""
    client = find_account_client(environ, clock=clock, folder=folder)
    return None if client is None else ServiceAccount(in_cluster_server(environ), folder, client)


def find_account_client(
    environ: Mapping[str, str], *, clock: Clock, folder: str = SERVICE_ACCOUNT_FOLDER
) -> ApiClient | None:
    """A client with the rights of this pod's account; None outside a pod, or in one without."""
    if not in_cluster_server(environ) or not os.path.exists(f"{folder}/{_TOKEN}"):
        return None
    return ApiClient(
        AccessSource(KubernetesAccess(), environ, folder),
        clock=clock,
        rate_limiter=RateLimiter(clock=clock, qps=_QPS, burst=_BURST),
    )


@define
class ServiceAccount:
    """See :class:`~netplug_core.installation.installer.TokenIssuer`. ``folder`` has the files of the account."""

    server: str
    folder: str
    _client: ApiClient

    def find_stamps(self) -> tuple[FileStamp, ...] | None:
        """What changes with the account's token and authority; None if they cannot be looked at."""
        token, authority = (find_file_stamp(f"{self.folder}/{name}") for name in (_TOKEN, _AUTHORITY))
        return None if token is None or authority is None else (token, authority)

    def read_certificate_authority(self) -> bytes:
        """The certificates (PEM) that the server's certificate is verified with.

        Raises:
            UnusableFile: they cannot be read.
        """
        return FileReader().read_content(f"{self.folder}/{_AUTHORITY}")

    def issue(self, account: str, *, deadline: Deadline) -> IssuedToken:
        """A new token of an account of this namespace, or this pod's own token if the server issues none.

        Raises:
            ConfigurationError: a file of this pod's account cannot be used, or there is no such account.
            Unauthorized: the right to create the token is missing.
            Unavailable: the server does not answer, or not as it should.
        """
        try:
            return self._issue(account, deadline)
        finally:
            self._client.close()  # the next token is hours away

    def find_secret(self, name: str, key: str, *, deadline: Deadline) -> str | None:
        """A member of a Secret of this namespace, without the line break that ends it; None if there is none.

        Raises:
            ConfigurationError: a file of this pod's account cannot be used.
            Unauthorized: the right to read it is missing.
            Unavailable: the server does not answer, or not as it should.
        """
        namespace = FileReader().read_stripped(f"{self.folder}/{_NAMESPACE}")
        request = ApiRequest("GET", f"{namespaced_path(namespace, 'secrets')}/{path_segment(name)}")
        reply = self._client.send(request, deadline=deadline)
        if reply.is_missing:
            return None
        if not reply.is_success:
            raise error_of_reply(self._client, request, reply)
        data = reply.object.get("data")
        encoded = data.get(key) if isinstance(data, Mapping) else None
        if not isinstance(encoded, str):
            return None
        try:
            return b64decode(encoded, validate=True).decode().removesuffix("\n")
        except ValueError:  # without the value, which is a secret
            raise Unavailable(self._client.describe(request), f"its member {key} is no text") from None

    def clear_network_unavailable(self, node: str, *, now: str, deadline: Deadline) -> bool:
        """Say of a node that its network works, where a cloud has said that it does not; whether that was so.

        ``now`` is the time, as the API server writes it.

        Raises:
            ConfigurationError: a file of this pod's account cannot be used.
            Unauthorized: a right is missing.
            Unavailable: the server does not answer, or not as it should.
        """
        found = find_object(self._client, node_path(node), deadline=deadline)
        conditions = () if found is None else find_member(found, "status", "conditions")
        if not any(_is_network_unavailable(one) for one in (conditions if isinstance(conditions, list) else ())):
            return False
        condition = {
            "type": _NETWORK_UNAVAILABLE,
            "status": "False",
            "reason": "NetplugHasRoutes",
            "message": "netplug-node has programmed the routes to other nodes",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        body = {"status": {"conditions": [condition]}}
        request = ApiRequest("PATCH", f"{node_path(node)}/status", body=body, content_type=STRATEGIC_TYPE)
        reply = self._client.send(request, deadline=deadline)
        if not reply.is_success:
            raise error_of_reply(self._client, request, reply)
        return True

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _issue(self, account: str, deadline: Deadline) -> IssuedToken:
        namespace = FileReader().read_stripped(f"{self.folder}/{_NAMESPACE}")
        path = f"{namespaced_path(namespace, 'serviceaccounts')}/{path_segment(account)}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": LIFETIME_S},
        }
        request = ApiRequest("POST", path, body=body)
        reply = self._client.send(request, deadline=deadline)
        if reply.is_success:
            return self._issued(request, reply)
        if reply.status == _NOT_FOUND and not self._does_issue(deadline):
            return self._mounted()
        if reply.is_missing:
            raise ConfigurationError(
                "NETPLUG_CNI_SERVICE_ACCOUNT", account, f"the namespace {namespace} has no service account of that name"
            )
        raise error_of_reply(self._client, request, reply)

    def _does_issue(self, deadline: Deadline) -> bool:
        """Whether the server lists the resource with which tokens are issued."""
        request = ApiRequest("GET", _CORE_API)
        reply = self._client.send(request, deadline=deadline)
        if not reply.is_success:
            raise error_of_reply(self._client, request, reply)
        resources = reply.object.get("resources")
        if not isinstance(resources, list):
            raise self._client.unusable_reply(request, "it has no list of resources")
        return any(isinstance(found, Mapping) and found.get("name") == _RESOURCE for found in resources)

    def _mounted(self) -> IssuedToken:
        path = f"{self.folder}/{_TOKEN}"
        token = FileReader().read_token(path)
        try:
            return IssuedToken(text=token, expires_ns=parse_token_expiry(token), is_mounted=True)
        except ValueError as error:
            raise UnusableFile(path, "", str(error)) from None

    def _issued(self, request: ApiRequest, reply: ApiReply) -> IssuedToken:
        status = reply.object.get("status")
        found = status if isinstance(status, Mapping) else {}
        token, expires = found.get("token"), found.get("expirationTimestamp")
        try:
            expires_ns = parse_time(expires) if isinstance(expires, str) else None
        except ValueError:
            expires_ns = None
        if not isinstance(token, str) or not token or expires_ns is None:
            # Without the reply: it may have a token.
            problem = "the answer is none of the API's: a token and its expirationTimestamp are expected"
            raise Unavailable(self._client.describe(request), problem)
        return IssuedToken(text=token, expires_ns=expires_ns)


def _is_network_unavailable(condition: object) -> bool:
    if not isinstance(condition, Mapping):
        return False
    return (condition.get("type"), condition.get("status")) == (_NETWORK_UNAVAILABLE, "True")
