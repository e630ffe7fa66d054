"""What a lab needs of a Kubernetes API server; ``netplug_cli.wiring.backends`` has the real one."""

from __future__ import annotations

from typing import Protocol

__all__ = ["ClusterObjects"]


class ClusterObjects(Protocol):
    """The objects that stand for a lab's node and pods. Each method raises NetplugError when the server refuses.

    Making what is there and the lab's own changes nothing.
    """

    def require_ready(self) -> None:
        """Return if the server is ready, and lets us look for what is the lab's."""
        ...

    def install_definitions(self) -> int:
        """Install those of netplug's definitions that are not there; how many they were."""
        ...

    def make_node(self, name: str) -> None:
        """Make a node that nobody schedules to."""
        ...

    def make_namespace(self, name: str) -> None:
        """Make a namespace, and the account that its pods need."""
        ...

    def make_pod(self, namespace: str, name: str, *, node: str) -> None:
        """Make a pod that is on a node."""
        ...

    def has_definitions(self) -> bool:
        """Whether the server has netplug's definitions, so that there may be records."""
        ...

    def remove_all(self) -> int:
        """Remove everything of the lab but the definitions; how many objects there were."""
        ...
