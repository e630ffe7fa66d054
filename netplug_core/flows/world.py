"""The opened interfaces a flow acts through, as one value; ``netplug_cli.wiring`` opens it, tests build their own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from attrs import frozen

from netplug_core.clock import Clock
from netplug_core.dataplane.protocol import Dataplane
from netplug_core.datastore.protocol import Datastore
from netplug_core.ipam.protocol import IPAM
from netplug_core.log import Log

__all__ = ["CNIWorld", "Host"]


class Host(Protocol):
    """This machine, as far as flows need it."""

    def host_name(self) -> str:
        """The machine's own name."""
        ...

    def find_text(self, path: str) -> str | None:
        """The content of a small file; None when there is none.

        Raises:
            OSError: it is there and cannot be read.
        """
        ...

    def lock(self, path: str) -> AbstractContextManager[None]:
        """Hold the host's lock of that name; wait for it.

        Raises:
            OSError: it cannot be taken at all (no right, no directory).
        """
        ...

    def new_uid(self) -> str:
        """A fresh random UUID."""
        ...


@frozen(kw_only=True)
class CNIWorld:
    """What a CNI command acts through."""

    datastore: Datastore
    ipam: IPAM
    dataplane: Dataplane
    host: Host
    clock: Clock
    log: Log
