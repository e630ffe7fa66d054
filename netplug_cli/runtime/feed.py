"""Keeps a view of a datastore true, and waits for notifications, for the controllers of a process.

A store that sends changes is followed by one watch after the other; each goes on where the last one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from math import inf
from threading import Event, Lock
from typing import TypeAlias

from attrs import define, field, frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.feed import Damage, follow
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Atomicity, Datastore, EndpointStorage
from netplug_core.datastore.view import View
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Problem, Timing
from netplug_core.records import Kind, WatchExpired
from netplug_core.resources.ippool import IPAM_CONFIGURATION
from netplug_core.settings.model import DatastoreSettings

__all__ = [
    "FOLLOW_S", "LIVE_FOLLOW_S", "OpenDatastore", "OpenedOnce", "StoppableClock", "StoreFeed", "as_observed", "do_none",
    "notifications_controller",
]  # fmt: skip

OpenDatastore: TypeAlias = Callable[[DatastoreSettings], AbstractContextManager[Datastore]]
"""Opens the datastore that settings name, as long as the context lasts."""

FOLLOW_S = 30.0
"""How long one watch lasts at most; the next one goes on where it ended."""

LIVE_FOLLOW_S = 600.0
"""The same for one that says how far it has come: each new one costs a request for every kind."""

LOOK_EVERY_S = 60.0
"""The pause between two looks for a datastore while none is configured."""

_ALLOCATOR_KINDS = frozenset[Kind[object]]((AFFINITY, BLOCK, HANDLE, IPAM_CONFIGURATION))
_NOTIFICATIONS_S = 300.0  # how long one wait lasts
_DAMAGED_EVERY_S = 5.0  # kinds with a record that cannot be read are listed again so often


@frozen
class StoppableClock:
    """A clock whose deadlines have all passed once the process stops."""

    clock: Clock
    stopping: Event

    def now_ns(self) -> int:
        """The time of day."""
        return self.clock.now_ns()

    def monotonic(self) -> float:
        """The time for deadlines; infinite once the process stops."""
        return inf if self.stopping.is_set() else self.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.clock.sleep(seconds)


def as_observed(plan: Plan[None]) -> Plan[None]:
    """The plan of a controller that only observes."""
    return plan


def do_none(_action: None, _deadline: Deadline) -> None:
    """There are no actions: what is observed is kept by the view, or wakes others."""


@define(eq=False)
class _Opening:
    """One datastore, and how many use it. ``opening`` is held while it is opened."""

    users: int = 0
    datastore: Datastore | None = None
    closing: ExitStack = field(factory=ExitStack)
    opening: Lock = field(factory=Lock)


@define(eq=False)
class OpenedOnce:
    """Opens a datastore once for all controllers of a process: a caller that opens an open one uses that one.

    Its last user closes it. Threads may share this object.
    """

    _open_datastore: OpenDatastore
    _openings: dict[DatastoreSettings, _Opening] = field(factory=dict, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    @contextmanager
    def open(self, settings: DatastoreSettings) -> Iterator[Datastore]:
        """The datastore of these settings. Errors are those of opening it."""
        with self._lock:
            opening = self._openings.setdefault(settings, _Opening())
            opening.users += 1
        try:
            with opening.opening:
                if opening.datastore is None:
                    opening.datastore = opening.closing.enter_context(self._open_datastore(settings))
            yield opening.datastore
        finally:
            with self._lock:
                opening.users -= 1
                is_last = not opening.users
                if is_last:
                    del self._openings[settings]
            if is_last:
                opening.closing.close()


@define(kw_only=True, eq=False)
class StoreFeed:
    """Keeps a view of some kinds true, for controllers. Each pass of its own controller is one watch.

    While the datastore is away, the view has what was known last, and controllers leave everything as it is.
    ``read_datastore`` says which datastore it is, and is asked again before each watch; None: there is none yet.
    ``what`` names the records in log lines. ``cluster_kinds`` are followed too where the datastore is a cluster's own:
    no other one has them. ``uses_pod_cidrs`` is what its settings say: it then has no records of the allocator.
    ``backoff`` has the pauses while the datastore is away: the more processes follow it, the longer they have to be.
    """

    name: str
    what: str
    kinds: tuple[Kind[object], ...]
    view: View
    read_datastore: Callable[[], DatastoreSettings | None]
    open_datastore: OpenDatastore
    clock: Clock
    cluster_kinds: tuple[Kind[object], ...] = ()
    backoff: Backoff = field(factory=Backoff)
    datastore: Datastore | None = field(default=None, init=False)
    followed: tuple[Kind[object], ...] = field(init=False)
    """The kinds that the datastore has, as far as it is known."""
    uses_pod_cidrs: bool = field(default=False, init=False)
    _settings: DatastoreSettings | None = field(default=None, init=False)
    _opened: ExitStack = field(factory=ExitStack, init=False)
    _stopping: Event = field(factory=Event, init=False)
    _has_damage: bool = field(default=False, init=False)
    _has_expired: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.followed = self.kinds

    def has_listed(self) -> bool:
        """Whether the view has all that is followed. Before that it is not known what is absent."""
        return self.view.has_listed(self.followed)

    def controller(self) -> Controller[Plan[None], None]:
        """What follows."""
        return Controller(
            name=self.name,
            observe=self._observe,
            plan=as_observed,
            act=do_none,
            failure=f"{self.what} cannot be followed; what follows from them stays as it is",
            recovered=f"{self.what} are followed again",
            timing=Timing(
                backoff=self.backoff,
                step_s=LIVE_FOLLOW_S + CALL_TIMEOUT_S,
                stuck_s=2 * LIVE_FOLLOW_S,
                jitter=0.0,
            ),
            interrupt=self._interrupt,
        )

    def close(self) -> None:
        """Close the datastore."""
        self._opened.close()
        self._opened, self.datastore, self._settings = ExitStack(), None, None

    def _observe(self, _deadline: Deadline) -> Plan[None]:
        settings = self.read_datastore()
        if settings is None:
            self.close()
            return Plan(look_again_s=LOOK_EVERY_S)
        if settings != self._settings:
            self.close()
            self.view.lose(frozenset(self.followed))
        if self.datastore is None:
            self.datastore = self._opened.enter_context(self.open_datastore(settings))
            self._settings = settings
            shows_pods = self.datastore.description.endpoints is EndpointStorage.PODS
            self.uses_pod_cidrs = settings.uses_pod_cidrs
            kinds = (*self.kinds, *self.cluster_kinds) if shows_pods else self.kinds
            self.followed = tuple(kind for kind in kinds if not (self.uses_pod_cidrs and kind in _ALLOCATOR_KINDS))
        is_atomic = self.datastore.description.atomicity is Atomicity.ATOMIC
        seconds = _DAMAGED_EVERY_S if self._has_damage else FOLLOW_S if is_atomic else LIVE_FOLLOW_S
        deadline = Deadline.after(StoppableClock(self.clock, self._stopping), seconds)
        try:
            damaged = follow(self.datastore, self.view, self.followed, deadline=deadline, damage=Damage.PASSED_OVER)
        except Exception as error:
            if isinstance(error, WatchExpired) and not self._has_expired:
                # Stores forget old changes: the kinds are listed again at once. A second time in a row is a failure.
                self._has_expired = True
                return Plan(look_again_s=0.0)
            self.close()
            if self._stopping.is_set():
                return Plan()
            raise
        self._has_damage, self._has_expired = damaged is not None, False
        message = "a stored record cannot be read; what was known of it before counts"
        problems = () if damaged is None else (Problem(message=message, cause=str(damaged)),)
        return Plan(look_again_s=1.0 if problems else 0.0, problems=problems)

    def _interrupt(self) -> None:
        self._stopping.set()
        watch, waiting = self.view.watch, self.view.interruptible_watch
        if watch is not None:
            watch.close()
        if waiting is not None:
            waiting.interrupt()


# --- notifications ----------------------------------------------------------------------------------------------------


def notifications_controller(
    *, name: str, failure: str, wait: Callable[[Deadline], None], close: Callable[[], None], clock: Clock
) -> Controller[Plan[None], None]:
    """What waits for notifications, as those of the kernel, one wait after the other.

    ``wait`` returns when it has passed on what came, at its deadline, or when ``close`` was called.
    """
    stopping = Event()

    def observe(_deadline: Deadline) -> Plan[None]:
        wait(Deadline.after(clock, _NOTIFICATIONS_S))
        return Plan(look_again_s=None if stopping.is_set() else 0.0)

    def interrupt() -> None:
        stopping.set()
        close()

    return Controller(
        name=name,
        observe=observe,
        plan=as_observed,
        act=do_none,
        failure=failure,
        timing=Timing(step_s=_NOTIFICATIONS_S, stuck_s=2 * _NOTIFICATIONS_S, jitter=0.0),
        interrupt=interrupt,
    )
