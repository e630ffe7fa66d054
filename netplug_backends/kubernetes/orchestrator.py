"""The orchestrator interface on the API server: one GET per lookup."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from attrs import define

from netplug_backends.kubernetes.client.apiclient import ApiClient, Json
from netplug_backends.kubernetes.client.objects import find_object
from netplug_backends.kubernetes.kinds.profiles import namespace_facts, node_facts, pod_facts
from netplug_backends.kubernetes.names import namespace_path, node_path, pod_path
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import CredentialsInUse
from netplug_core.orchestrator.model import NamespaceFacts, NodeFacts, PodFacts

__all__ = ["KubernetesOrchestrator"]

T = TypeVar("T")


@define(eq=False, repr=False)
class KubernetesOrchestrator:
    """See :class:`~netplug_core.orchestrator.model.Orchestrator`."""

    _client: ApiClient

    def credentials_in_use(self) -> CredentialsInUse | None:
        """See :class:`~netplug_core.datastore.protocol.HasCredentials`."""
        return self._client.credentials_in_use()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def find_pod(self, namespace: str, name: str, *, deadline: Deadline) -> PodFacts | None:
        """The pod of that name; None if there is none."""
        return self._find(pod_path(namespace, name), pod_facts, deadline)

    def find_namespace(self, name: str, *, deadline: Deadline) -> NamespaceFacts | None:
        """The namespace of that name; None if there is none."""
        return self._find(namespace_path(name), namespace_facts, deadline)

    def find_node(self, name: str, *, deadline: Deadline) -> NodeFacts | None:
        """The node of that name; None if there is none."""
        return self._find(node_path(name), node_facts, deadline)

    def _find(self, path: str, decode: Callable[[Json], T], deadline: Deadline) -> T | None:
        found = find_object(self._client, path, deadline=deadline)
        return None if found is None else decode(found)
