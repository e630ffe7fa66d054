"""The interface of a lab to a Kubernetes API server; ``netplug_cli.wiring.lab`` opens the real one."""

from __future__ import annotations

from typing import Protocol

__all__ = ["ClusterObjects"]


class ClusterObjects(Protocol):
    """The objects of a lab's node and pods. Each method raises NetplugError when the server refuses.

    Making an object that exists and belongs to the lab changes nothing.
    """

    def require_ready(self) -> None:
        """Return if the server is ready and allows the lab to list its objects."""
        ...

    def install_definitions(self) -> int:
        """Install the definitions of netplug that are missing; return how many were."""
        ...

    def make_node(self, name: str) -> None:
        """Make a node that gets no pods scheduled."""
        ...

    def make_namespace(self, name: str) -> None:
        """Make a namespace, and the service account that its pods need."""
        ...

    def make_pod(self, namespace: str, name: str, *, node: str) -> None:
        """Make a pod on a node."""
        ...

    def has_definitions(self) -> bool:
        """Whether the server has netplug's definitions, so that there may be records."""
        ...

    def remove_all(self) -> int:
        """Remove everything of the lab but the definitions; return how many objects were removed."""
        ...
