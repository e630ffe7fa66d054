"""The interface of a lab to the kernel; ``netplug_cli.wiring.lab`` opens the real one."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from netplug_core.addressing import Address, Family

__all__ = ["SOCKET_FAMILIES", "Namespaces"]

SOCKET_FAMILIES = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}


class Namespaces(Protocol):
    """Network namespaces that are pinned to files, so that they outlive the command that makes them.

    Each method raises DataplaneError when the kernel refuses.
    """

    def make(self, path: str) -> None:
        """Pin a new namespace to a new file; its only interface is the loopback, which is up."""
        ...

    def remove(self, path: str) -> None:
        """Remove a namespace and its file, if they exist."""
        ...

    def find_below(self, folder: str) -> tuple[str, ...]:
        """The files below a folder to which a namespace is pinned, sorted."""
        ...

    def configure_node(self, path: str, addresses: Iterable[Address]) -> None:
        """Switch on forwarding in a namespace, as on a node, and add addresses."""
        ...

    def interfaces(self, path: str) -> tuple[str, ...]:
        """The names of a namespace's interfaces without the loopback."""
        ...

    def enter(self, path: str) -> AbstractContextManager[None]:
        """Put the calling thread, and processes that it starts, into a namespace until the block ends."""
        ...
