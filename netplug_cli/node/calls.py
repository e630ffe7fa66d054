"""The calls that wait for a worker, in a queue that does not grow beyond its limit; and how one call is served.

What several calls look up at the same time is looked up once.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Event, Lock
from typing import Protocol, TypeAlias

from attrs import define, field, frozen

from netplug_core.addressing import Family
from netplug_core.clock import Deadline
from netplug_core.cni.wire import TAKEN, WireReply, WireRequest, encode_reply
from netplug_core.dataplane.plan import AttachmentPlan
from netplug_core.dataplane.protocol import Dataplane, Difference, Forwarding, InterfacePresence, Link, NodeProblem
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.view import View
from netplug_core.errors import ErrorCode, NetplugError
from netplug_core.log import Level, Log
from netplug_core.orchestrator.model import NAMESPACE, POD, NamespaceFacts, NodeFacts, Orchestrator, PodFacts
from netplug_core.records import Get

__all__ = [
    "ACKNOWLEDGE_S", "SEND_S", "AnswerCall", "AttachmentNotes", "CachedLookups", "CallQueue", "NodeProcessBusy",
    "NotedDataplane", "PendingCall", "RefuseCall", "serve_call",
]  # fmt: skip


# --- lookups ---------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class CachedLookups:
    """An :class:`~netplug_core.orchestrator.model.Orchestrator` on a datastore that shows pods and namespaces.

    A pod is read each time, because other programs change pods until they are attached. The answer has the pod's
    endpoint too, which the cache keeps for the commit. A namespace comes from the cache while what that knows counts.
    One that the cache lacks may have been made a moment ago, and is read.
    After its deadline no lookup is answered, whatever the cache knows.
    ``orchestrator`` looks up nodes, and ``follow_node`` gets the node of each pod.
    """

    orchestrator: Orchestrator
    datastore: Datastore
    cache: View
    follow_node: Callable[[str], None] | None = None

    def find_pod(self, namespace: str, name: str, *, deadline: Deadline) -> PodFacts | None:
        """The pod of that name; None if there is none."""
        wanted = Get(POD.key(namespace, name))
        record = self.cache.read(self.datastore, (wanted,), deadline=deadline).find(wanted)
        if record is None:
            return None
        if self.follow_node is not None:
            self.follow_node(record.value.node)
        return record.value

    def find_namespace(self, name: str, *, deadline: Deadline) -> NamespaceFacts | None:
        """The namespace of that name; None if there is none."""
        wanted = Get(NAMESPACE.key(name))
        known = self.cache.lookup((wanted,))
        record = None if known.missing or deadline.has_passed else known.snapshot.find(wanted)
        if record is None:
            record = self.cache.read(self.datastore, (wanted,), deadline=deadline).find(wanted)
        return None if record is None else record.value

    def find_node(self, name: str, *, deadline: Deadline) -> NodeFacts | None:
        """The node of that name; None if there is none."""
        return self.orchestrator.find_node(name, deadline=deadline)


# --- attachments -----------------------------------------------------------------------------------------------------


class AttachmentNotes(Protocol):
    """Who has to know which interfaces the calls of this process attach; any thread may call it."""

    def note_attached(self, interface: str, container_id: str) -> None:
        """The interface of a workload is attached for a container."""
        ...

    def note_detached(self, interface: str, container_id: str) -> None:
        """It is detached, or about to be."""
        ...


@frozen(kw_only=True)
class NotedDataplane:
    """A :class:`~netplug_core.dataplane.protocol.Dataplane` of a call, whose attachments are noted."""

    dataplane: Dataplane
    container_id: str
    notes: AttachmentNotes

    def find(self, link: Link) -> InterfacePresence:
        """The other one's answer."""
        return self.dataplane.find(link)

    def has_host_end(self, link: Link) -> bool:
        """The other one's answer."""
        return self.dataplane.has_host_end(link)

    def apply(self, plan: AttachmentPlan, *, deadline: Deadline) -> None:
        """Note the interface before its first packet."""
        self.notes.note_attached(plan.host.name, self.container_id)
        try:
            self.dataplane.apply(plan, deadline=deadline)
        except BaseException:
            self.notes.note_detached(plan.host.name, self.container_id)
            raise

    def verify(self, plan: AttachmentPlan, *, deadline: Deadline) -> tuple[Difference, ...]:
        """The other one's answer."""
        return self.dataplane.verify(plan, deadline=deadline)

    def remove(self, link: Link, *, deadline: Deadline) -> None:
        """Remove it, and note that."""
        self.notes.note_detached(link.host_name, self.container_id)
        self.dataplane.remove(link, deadline=deadline)

    def is_own_namespace(self, path: str) -> bool:
        """The other one's answer."""
        return self.dataplane.is_own_namespace(path)

    def find_node_problems(self, families: tuple[Family, ...]) -> tuple[NodeProblem, ...]:
        """The other one's answer."""
        return self.dataplane.find_node_problems(families)

    def find_obstacles(self, families: tuple[Family, ...], forwarding: Forwarding) -> tuple[str, ...]:
        """The other one's answer."""
        return self.dataplane.find_obstacles(families, forwarding)


# --- calls -----------------------------------------------------------------------------------------------------------


SEND_S = 5.0
"""The longest that a client may take to read its reply."""

ACKNOWLEDGE_S = 4.0
"""After which wait a client learns that its request is taken, though no worker is free: before it serves itself."""

AnswerCall: TypeAlias = Callable[[WireRequest, int | None], WireReply]
"""Does what a request asks for, in the network namespace of a descriptor if there is one. It leaves that open."""


@frozen(kw_only=True)
class NodeProcessBusy(NetplugError, error_code=ErrorCode.TRY_AGAIN):
    """As many calls wait as the node process lets wait (code 11)."""

    waiting: int

    def __str__(self) -> str:
        return f"the node process is busy: {self.waiting} calls wait; try again"


RefuseCall: TypeAlias = Callable[[WireRequest, NodeProcessBusy], WireReply]
"""The reply to a request that is not served."""


@define(kw_only=True)
class PendingCall:
    """A request that nothing has been done for, and the connection that its reply goes to.

    ``came_at`` and ``gives_up_at``: when it came, and when its client waits no more (monotonic seconds). ``is_taken``:
    the client knows that it is taken, and would resume it if its connection was closed.
    """

    connection: socket.socket
    request: WireRequest
    came_at: float
    gives_up_at: float
    namespace: int | None = None
    is_taken: bool = False

    def take(self) -> bool:
        """Let the client know that its request is taken; false if it has given up and serves itself."""
        try:
            self.connection.sendall(b"" if self.is_taken else TAKEN)
        except OSError:
            return False
        self.is_taken = True
        return True

    def close(self) -> None:
        """Close the connection and the descriptor of the namespace."""
        self.connection.close()
        namespace, self.namespace = self.namespace, None
        if namespace is not None:
            os.close(namespace)


@define
class CallQueue:
    """Calls in the order in which they came, at most ``limit``. Any number of threads may use it.

    Of the threads that wait for a call, the one that began to wait last is woken: while few calls come, few threads
    work, and the memory that each of them takes for its work is taken by few.
    """

    limit: int
    _calls: deque[PendingCall] = field(factory=deque, init=False)
    _lock: AbstractContextManager[object] = field(factory=Lock, init=False, repr=False, eq=False)
    _sleepers: list[Event] = field(factory=list, init=False)
    _is_closed: bool = field(default=False, init=False)

    def put(self, call: PendingCall) -> bool:
        """Let a call wait; false if the queue is full or closed, and the call stays the caller's."""
        with self._lock:
            if self._is_closed or len(self._calls) >= self.limit:
                return False
            self._calls.append(call)
            if self._sleepers:
                self._sleepers.pop().set()
            return True

    def take(self) -> PendingCall | None:
        """The call that has waited longest; waits for one. None: the queue is closed."""
        while True:
            with self._lock:
                if self._calls:
                    return self._calls.popleft()
                if self._is_closed:
                    return None
                woken = Event()
                self._sleepers.append(woken)
            woken.wait()

    def acknowledge(self, came_before: float) -> None:
        """Let the clients of calls that have waited for long know that these are taken; those that are gone go.

        A client serves itself after a while, and a process of its own takes many times what its call takes here. Where
        more calls come than are served in that time, this would take the machine what it needs to serve them.
        """
        with self._lock:
            gone = [call for call in self._calls if call.came_at < came_before and not call.take()]
            for call in gone:
                self._calls.remove(call)
        for call in gone:
            call.close()

    def close(self) -> None:
        """Close the connection of each call that waits; wake those that wait.

        Its client then serves itself, or resumes the call if it knows that this was taken.
        """
        with self._lock:
            self._is_closed = True
            waiting = tuple(self._calls)
            self._calls.clear()
            for woken in self._sleepers:
                woken.set()
        for call in waiting:
            call.close()

    @property
    def idle(self) -> int:
        """How many threads wait for a call."""
        return len(self._sleepers)

    def __len__(self) -> int:
        return len(self._calls)


def serve_call(call: PendingCall, answer: AnswerCall, *, now: float, log: Log) -> None:
    """Take a call, answer it and close it. If its client is there no more, nothing is done."""
    try:
        if now > call.gives_up_at:
            return
        call.connection.settimeout(SEND_S)
        if not call.take():
            return
        reply = encode_reply(answer(call.request, call.namespace))
        try:
            call.connection.sendall(reply)
        except OSError as error:
            log(Level.WARNING, "a reply could not be sent", program=call.request.program, cause=str(error))
    finally:
        call.close()
