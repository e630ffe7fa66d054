"""The opened interfaces that a flow acts through, one bundle per role.

``netplug_cli.wiring`` opens them. A flow takes the narrowest: the CNI commands take ``CNIWorld``; a flow of the tool
needs a datastore and a pace only, and takes those.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from netplug_core.clock import Clock
from netplug_core.dataplane.protocol import Dataplane
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.locks import CallLocks
from netplug_core.ipam.protocol import IPAM
from netplug_core.locks import LockHost
from netplug_core.log import Log

if TYPE_CHECKING:
    from netplug_core.orchestrator.protocol import Orchestrator

__all__ = ["CNIWorld", "Host"]


class Host(LockHost, Protocol):
    """The machine that the flow runs on."""

    def host_name(self) -> str:
        """The machine's own name."""
        ...

    def find_text(self, path: str) -> str | None:
        """The content of a small file; None if it does not exist.

        Raises:
            OSError: it exists and cannot be read.
        """
        ...

    def new_uid(self) -> str:
        """A fresh random UUID."""
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
