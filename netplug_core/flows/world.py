"""The opened interfaces that a flow acts through, one bundle per role.

``netplug_cli.wiring`` opens them. A flow takes the narrowest: the CNI commands take ``CNIWorld``; a flow of the tool
needs a datastore and a pace only, and takes those.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.protocol import Dataplane
from netplug_core.datastore.protocol import Datastore
from netplug_core.ipam.protocol import IPAM
from netplug_core.locks import CallLocks, LockHost
from netplug_core.log import Log

if TYPE_CHECKING:
    from netplug_core.dataplane.ruleset import PacketTable
    from netplug_core.orchestrator.model import Orchestrator
    from netplug_core.workload import ProbeResult

__all__ = ["CNIWorld", "FolderChanges", "Host", "HostWorld", "PolicyGuard", "RecordCounts", "RecordFiles", "ReplayTime"]


class FolderChanges(Protocol):
    """The changes of a folder, as the kernel reports them if it can."""

    def wait(self, seconds: float) -> None:
        """Return when something in the folder has changed, or after that time."""
        ...


class PolicyGuard(Protocol):
    """The table of policy of this machine, as far as an ADD has to do with it. Every method raises KernelError."""

    def has_table(self) -> bool:
        """Whether the kernel has the table, whatever is in it."""
        ...

    def has_workload_links(self) -> bool:
        """Whether the host has the end of any workload's link."""
        ...

    def create(self, table: PacketTable) -> None:
        """Make the table, unless another process has just made it: that one stays as it is."""
        ...

    def find_problem(self) -> str:
        """What is missing on this machine to make a table; empty if nothing is."""
        ...


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

    def watch_folder(self, path: str) -> AbstractContextManager[FolderChanges]:
        """The changes of a folder from now on; it may be missing."""
        ...

    def probe(self, url: str, *, deadline: Deadline) -> ProbeResult:
        """What a GET of an HTTP URL answers; no failure is raised."""
        ...

    def new_uid(self) -> str:
        """A fresh random UUID."""
        ...


@frozen(kw_only=True)
class RecordCounts:
    """How many release records wait: ``own`` of the stores that are asked about, ``foreign`` of others, and damaged."""

    own: int = 0
    foreign: int = 0
    damaged: int = 0


class RecordFiles(Protocol):
    """The files of release records on this machine: texts that are called as attachments, in folders of stores.

    A *location* leads to a folder. At first that is a folder of the location's own; from ``lead`` on it is that of a
    store, to which several locations may lead. A record is at one path at any time, and is found by its location, also
    while a folder is renamed. Processes share the folder. Every method raises OSError if the system refuses.
    """

    @property
    def folder(self) -> str:
        """The path of the whole folder."""
        ...

    def path(self, location: str, attachment: str) -> str:
        """The path by which people find a record."""
        ...

    def find(self, location: str, attachment: str) -> str | None:
        """The text of a record; None if there is none. One path is opened, and nothing is listed.

        Raises:
            OSError: it exists and cannot be read, is no file, or is larger than a small one.
        """
        ...

    def names(self, location: str) -> tuple[str, ...]:
        """The attachments that have a record, the one that was written first comes first."""
        ...

    def write(self, location: str, attachment: str, text: str) -> str:
        """Write or replace a record, whole or not at all; it is on the disk when this returns its path."""
        ...

    def remove(self, location: str, attachment: str, text: str) -> None:
        """Remove a record that has this text; one that was replaced meanwhile stays."""
        ...

    def set_aside(self, location: str, attachment: str, text: str | None) -> None:
        """Make a record one of the damaged ones, if it still has this text; None: whatever it has."""
        ...

    def find_store(self, location: str) -> str | None:
        """The store that a location leads to; None if that is not known yet."""
        ...

    def has_stores(self) -> bool:
        """Whether any folder has a record."""
        ...

    def lead(self, location: str, store: str) -> None:
        """Let a location lead to the folder of a store, and bring the records of the location's own folder there."""
        ...

    def find_former(self, attachment: str) -> tuple[str, ...]:
        """The names of an attachment's records in the form of earlier releases, which lie in the folder itself.

        After ``end_takeover`` there is none, and nothing is listed.
        """
        ...

    def list_former(self) -> tuple[str, ...]:
        """The names of all records of that form, oldest first."""
        ...

    def read_former(self, name: str) -> str | None:
        """The text of such a record; errors as for ``find``."""
        ...

    def adopt(self, name: str, location: str, attachment: str) -> None:
        """Move such a record to a location."""
        ...

    def remove_former(self, name: str) -> None:
        """Remove such a record."""
        ...

    def set_former_aside(self, name: str) -> None:
        """Make such a record one of the damaged ones."""
        ...

    def end_takeover(self) -> None:
        """Note that there are no more such records."""
        ...

    def count(self, locations: Collection[str]) -> RecordCounts:
        """How many records wait, ``own`` being those of the stores that these locations lead to."""
        ...

    def orphan(self, locations: Collection[str], *, before_ns: int) -> int:
        """Put away damaged records, and those of stores that no location leads to, last written before a time; count.

        Also remove what processes that were killed have left.
        """
        ...

    def find_report_ns(self) -> int | None:
        """When a process last reported records that cannot be done; None if that is not known."""
        ...

    def note_report(self, now_ns: int) -> None:
        """Note that it is being done now."""
        ...


class ReplayTime(enum.Enum):
    """When release records are replayed: after each call, or by a task of the process, and then in no call."""

    AFTER_CALLS = "after calls"
    BY_TASK = "by a task"


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

    ``open_guard`` opens the table of policy. ``open_orchestrator`` opens the orchestrator; None if the configuration
    does not say how to reach one. ``while_waiting`` is entered while a call only waits for the work of others.
    """

    datastore: Datastore
    ipam: IPAM
    dataplane: Dataplane
    host: Host
    records: RecordFiles
    locks: CallLocks
    clock: Clock
    log: Log
    open_guard: Callable[[], PolicyGuard]
    replay_time: ReplayTime = ReplayTime.AFTER_CALLS
    while_waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    open_orchestrator: Callable[[], AbstractContextManager[Orchestrator]] | None = None
