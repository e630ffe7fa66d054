"""What a lab needs of this machine's kernel; ``netplug_cli.wiring.backends`` has the real one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from netplug_core.addressing import Address

__all__ = ["Namespaces"]


class Namespaces(Protocol):
    """Network namespaces that are pinned over files, so that they outlive the command that makes them.

    Each method raises DataplaneError when the kernel refuses.
    """

    def make(self, path: str) -> None:
        """Pin a new namespace over a new file; its loopback interface is up and it has no other."""
        ...

    def remove(self, path: str) -> None:
        """Remove a namespace and its file, if they are there."""
        ...

    def find_below(self, folder: str) -> tuple[str, ...]:
        """The files below a folder that have a namespace pinned over them, sorted."""
        ...

    def configure_node(self, path: str, addresses: Iterable[Address]) -> None:
        """Make a namespace forward like a node, and give it addresses of its own."""
        ...

    def interfaces(self, path: str) -> tuple[str, ...]:
        """The names of a namespace's interfaces, the loopback aside."""
        ...

    def enter(self, path: str) -> AbstractContextManager[None]:
        """Put the calling thread into a namespace until the block ends; processes it starts then are in it too."""
        ...
