"""The opened interfaces that a flow acts through, one bundle per role.

``netplug_cli.wiring`` opens them. A flow takes the narrowest: the CNI commands take ``CNIWorld``; a flow of the tool
needs a datastore and a pace only, and takes those.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.protocol import Dataplane
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.locks import CallLocks
from netplug_core.ipam.protocol import IPAM
from netplug_core.locks import LockHost
from netplug_core.log import Log

if TYPE_CHECKING:
    from netplug_core.orchestrator.protocol import Orchestrator
    from netplug_core.workload.gates import ProbeResult

__all__ = ["CNIWorld", "Host", "HostWorld"]


class Host(LockHost, Protocol):
    """The machine that the flow runs on."""

    def host_name(self) -> str:
        """The machine's own name."""
        ...

    def find_text(self, path: str) -> str | None:
        """The content of a small file; None if it does not exist.

        Raises:
            OSError: it exists and cannot be read, is no file, or is larger than a small one.
            ValueError: no file can have that path.
        """
        ...

    def probe(self, url: str, *, deadline: Deadline) -> ProbeResult:
        """What a GET of an HTTP URL answers; no failure is raised."""
        ...

    def list_folder(self, path: str) -> tuple[str, ...]:
        """The names in a folder, in no order; none if it does not exist.

        Raises:
            OSError: it exists and cannot be read.
        """
        ...

    def write_durably(self, path: str, text: str) -> None:
        """Write a small file whole or not at all; it is on the disk when this returns. The folder is made.

        Another file of the folder may stay if the process is killed: the name with ``.tmp`` after it.

        Raises:
            OSError: it cannot be written; it is not there, or may not survive a crash of the machine.
        """
        ...

    def remove_file(self, path: str) -> None:
        """Remove a file; one that does not exist is success.

        Raises:
            OSError: it cannot be removed.
        """
        ...

    def new_uid(self) -> str:
        """A fresh random UUID."""
        ...


class HostWorld(Protocol):
    """What flows on a node have in common."""

    @property
    def host(self) -> Host:
        """The machine."""
        ...

    @property
    def log(self) -> Log:
        """Where a flow reports what it does."""
        ...


@frozen(kw_only=True)
class CNIWorld:
    """The interfaces of a CNI command.

    ``open_orchestrator`` opens the orchestrator; None if the configuration does not say how to reach one.
    """

    datastore: Datastore
    ipam: IPAM
    dataplane: Dataplane
    host: Host
    locks: CallLocks
    clock: Clock
    log: Log
    open_orchestrator: Callable[[], AbstractContextManager[Orchestrator]] | None = None
