"""The datastores that are open: shared by the calls of the same configuration, measured, and fed from their watches.

Credentials are read again when their files change. The last answer of a datastore says whether it can be reached.
"""

from __future__ import annotations

import enum
import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from threading import Event, Lock
from typing import Generic, TypeAlias, TypeVar

from attrs import define, evolve, field, frozen

from netplug_cli.runtime.controllers import Runtime
from netplug_cli.runtime.feed import FOLLOW_S, LIVE_FOLLOW_S, StoppableClock, as_observed, do_none
from netplug_core.clock import SECOND_NS, Clock, Deadline
from netplug_core.datastore.batch import RequestQueue
from netplug_core.datastore.feed import follow, follow_endpoints
from netplug_core.datastore.protocol import (
    CALL_TIMEOUT_S,
    Atomicity,
    CommitCall,
    CredentialsInUse,
    Datastore,
    DatastoreCall,
    HasCredentials,
    LiveWatch,
    ObservedDatastore,
    ShowsNodeEndpoints,
)
from netplug_core.datastore.view import View
from netplug_core.errors import ConfigurationError, DatastoreError, NetplugError, Unavailable
from netplug_core.expiry import parse_certificate_expiry, parse_token_expiry
from netplug_core.flows.ipam.cache import followed_kinds, make_node_cache
from netplug_core.flows.resources.cluster import find_cluster_information
from netplug_core.ipam.outcome import RecordMemory
from netplug_core.ipam.reporting.usage import OwnUsage, own_usage
from netplug_core.locks import Turn
from netplug_core.log import Level, Log
from netplug_core.reconcile.controller import Backoff, Controller, Input, Plan, Problem, Source, Timing
from netplug_core.records import Kind, NotSupported, WatchExpired

__all__ = [
    "ANSWERS_USED", "CHECK_S", "MAX_SHARED", "NODE_NAMED", "STALE_S", "CacheFeed",
    "CacheRefresh", "CurrentValues", "DatastoreState", "EndpointFeed", "FindCredentials", "KnownCredentials",
    "NoteCall", "OpenCaches", "OpenDatastores", "OpeningUse", "SharedDatastore", "SharedOpenings",
]  # fmt: skip


# --- what there is now -----------------------------------------------------------------------------------------------


T = TypeVar("T")


@define(eq=False, repr=False)
class CurrentValues(Generic[T]):
    """The values that there are now, in the order in which they came."""

    _values: list[T] = field(factory=list, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    @contextmanager
    def including(self, value: T) -> Iterator[T]:
        """The value is one of them for as long as the context lasts."""
        self.add(value)
        try:
            yield value
        finally:
            with self._lock:
                self._values = [each for each in self._values if each is not value]

    def add(self, value: T) -> None:
        """The value is one of them from now on."""
        with self._lock:
            self._values.append(value)

    def all(self) -> tuple[T, ...]:
        """All of them."""
        with self._lock:
            return tuple(self._values)


# --- credentials -----------------------------------------------------------------------------------------------------


FindCredentials: TypeAlias = Callable[[], CredentialsInUse | None]
"""The credentials that are in use; None if there are none yet."""


@define(eq=False, repr=False)
class KnownCredentials:
    """The credentials that the process has now. Threads may share it."""

    _clock: Clock
    _sources: CurrentValues[FindCredentials] = field(factory=CurrentValues, init=False)

    def add(self, find: FindCredentials) -> None:
        """These are its own from now on."""
        self._sources.add(find)

    def used_by(self, opened: object) -> AbstractContextManager[object]:
        """Those of a datastore or an orchestrator, if it has any, are its own for as long as the context lasts."""
        return (
            self._sources.including(opened.credentials_in_use) if isinstance(opened, HasCredentials) else nullcontext()
        )

    def seconds_left(self) -> dict[tuple[str, ...], float]:
        """The seconds until each expires, by access, location and ``certificate`` or ``token``; negative once it has.

        What cannot be read, or does not say when it expires, has no value. Of several with one name the first to
        expire counts.
        """
        left: dict[tuple[str, ...], float] = {}
        now_ns = self._clock.now_ns()
        for name, expires_ns in self._expiries():
            seconds = (expires_ns - now_ns) / SECOND_NS
            left[name] = min(seconds, left.get(name, seconds))
        return left

    def _expiries(self) -> Iterator[tuple[tuple[str, str, str], int]]:
        for find in self._sources.all():
            with suppress(ConfigurationError):  # its file is being replaced
                found = find()
                if found is not None:
                    yield from _expiries_of(found)


def _expiries_of(found: CredentialsInUse) -> Iterator[tuple[tuple[str, str, str], int]]:
    if found.certificate:
        with suppress(ValueError):
            yield (found.access, found.location, "certificate"), parse_certificate_expiry(found.certificate)
    if found.expires_ns is not None:
        yield (found.access, found.location, "token"), found.expires_ns
    elif found.token:
        with suppress(ValueError):  # a token need not be one that says so
            yield (found.access, found.location, "token"), parse_token_expiry(found.token)


# --- cache feed ------------------------------------------------------------------------------------------------------


_FIRST_FOLLOW_S = 5.0  # after a failure, so that a line soon says that it is over
_PAUSE_S = 1.0  # after a failure; twice as long after each further one
_MAX_PAUSES = 32
_STOP_S = 0.3  # a watch of etcd ends a moment later, when the datastore is closed

ANSWERS_USED = Source("answers used")
"""Calls have used answers that become too old."""

NODE_NAMED = Source("node named")
"""A call has named the node of which endpoints are to be followed."""

_NOT_REFRESHED = "what calls use could not be read again"


def _wake_nobody() -> None:
    pass


class CacheFeed:
    """Follows some kinds of a datastore. Without it, a commit on outdated records fails, and is made anew.

    Each pass of its ``controller`` is one watch. After a failure everything is forgotten: the connection may lead to a
    store that was restored, whose revisions may repeat.
    """

    _name, _what = "cache feed", "the changes of the datastore"
    _inputs: frozenset[Input] = frozenset()

    def __init__(
        self, datastore: Datastore, cache: View, kinds: Sequence[Kind[object]], *, pause_s: float = _PAUSE_S
    ) -> None:
        self._datastore = datastore
        self._cache = cache
        self._kinds = kinds
        is_atomic = datastore.description.atomicity is Atomicity.ATOMIC
        self._follow_s = FOLLOW_S if is_atomic else LIVE_FOLLOW_S
        self._clock = StoppableClock(cache.clock, Event())
        self._is_failing = False
        self._has_expired = False
        self._fields = (("datastore", datastore.description.location),)
        self._failure = f"{self._what} cannot be followed; calls read what they need"
        longest_s = self._follow_s + CALL_TIMEOUT_S
        self.controller: Controller[Plan[None], None] = Controller(
            name=self._name,
            observe=self._observe,
            plan=as_observed,
            act=do_none,
            inputs=self._inputs,
            failure=self._failure,
            recovered=f"{self._what} are followed again",
            fields=self._fields,
            timing=Timing(
                backoff=Backoff(first_s=pause_s, longest_s=pause_s * _MAX_PAUSES),
                step_s=longest_s,
                stuck_s=2 * longest_s,
                jitter=0.0,
            ),
            interrupt=self._interrupt,
        )

    def _observe(self, deadline: Deadline) -> Plan[None]:
        """Make one watch; what hinders it is the problem of the plan, and the next one begins at once."""
        seconds = _FIRST_FOLLOW_S if self._is_failing else self._follow_s
        try:
            hindrance = self._follow(Deadline.after(self._clock, seconds))
        except NotSupported:
            return Plan()  # another IPAM assigns the addresses
        except Exception as error:
            self._forget()
            if self._clock.stopping.is_set():
                return Plan()
            if isinstance(error, WatchExpired) and not self._has_expired:
                # Stores forget old changes, and of some kinds all changes are old. They are listed again at once.
                self._has_expired = True
                return self._observe(deadline)
            self._is_failing = True
            raise
        self._is_failing, self._has_expired = hindrance is not None, False
        if hindrance is None:
            return Plan(look_again_s=0.0)
        problem = Problem(message=self._failure, cause=str(hindrance), fields=self._fields)
        return Plan(look_again_s=0.0, problems=(problem,))

    def _interrupt(self) -> None:
        self._clock.stopping.set()
        watch = self._find_watch()
        if watch is not None:
            watch.close()

    def _find_watch(self) -> LiveWatch | None:
        return self._cache.watch

    def _follow(self, deadline: Deadline) -> NetplugError | None:
        """Follow until the deadline; why some kinds could not be followed meanwhile."""
        return follow(self._datastore, self._cache, self._kinds, deadline=deadline)

    def _forget(self) -> None:
        self._cache.invalidate()


class EndpointFeed(CacheFeed):
    """Follows the endpoints of a node whose pods are shown by a datastore, from its first pod on."""

    _name, _what = "endpoint feed", "the pods of the node"
    _inputs: frozenset[Input] = frozenset((NODE_NAMED,))

    def __init__(
        self, datastore: Datastore, shown: ShowsNodeEndpoints, cache: View, *, pause_s: float = _PAUSE_S
    ) -> None:
        super().__init__(datastore, cache, (), pause_s=pause_s)
        self._shown = shown
        self._node = ""
        self._naming = Lock()
        self.on_node: Callable[[], None] = _wake_nobody

    def follow_node(self, node: str) -> None:
        """Follow the endpoints of this node, if none is followed yet; ``on_node`` is called then."""
        if not node:
            return
        with self._naming:
            if self._node:
                return
            self._node = node
        self.on_node()

    def _observe(self, deadline: Deadline) -> Plan[None]:
        return super()._observe(deadline) if self._node else Plan()

    def _find_watch(self) -> LiveWatch | None:
        return self._cache.endpoint_watch

    def _follow(self, deadline: Deadline) -> None:
        follow_endpoints(self._shown, self._cache, self._node, deadline=deadline)

    def _forget(self) -> None:
        """Nothing: the endpoints are forgotten already."""


class CacheRefresh:
    """Reads again what calls use of an ordered datastore when it is too old for them, so that they need not.

    Nothing is read while there are no calls: what no call has used since it was read is read by the next one.
    """

    def __init__(self, datastore: Datastore, cache: View) -> None:
        self._datastore = datastore
        self._cache = cache
        self._clock = StoppableClock(cache.clock, Event())
        self.controller: Controller[Plan[None], None] = Controller(
            name="cache refresh",
            observe=self._observe,
            plan=as_observed,
            act=do_none,
            inputs=frozenset((ANSWERS_USED,)),
            failure=_NOT_REFRESHED,
            timing=Timing(gather_s=0.0, jitter=0.0, step_s=CALL_TIMEOUT_S),
            interrupt=self._clock.stopping.set,
        )

    def _observe(self, _deadline: Deadline) -> Plan[None]:
        try:
            wait_s = self._cache.refresh(self._datastore, deadline=Deadline.after(self._clock, CALL_TIMEOUT_S))
        except NetplugError as error:  # the next call reads it itself, and says what is wrong
            return Plan(problems=(Problem(message=_NOT_REFRESHED, cause=str(error), level=Level.DEBUG),))
        return Plan(look_again_s=wait_s)


# --- shared ----------------------------------------------------------------------------------------------------------


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_SHARED = 8
"""How many different datastores stay open. While all of them are in use, a call with another one opens its own."""


@frozen
class SharedDatastore:
    """A datastore of many calls, and a cache of it, so that a call begins without a read.

    Calls that wait while a commit is in flight share the next one, through ``queue``. An ordered store has none: it
    makes the writes of a commit one by one, so that sharing saves nothing, and calls at the same time would lose
    commits to each other. It has a ``turn`` in place of it, which one call at a time has. ``shown`` is a datastore
    whose endpoints are views of pods, and ``endpoints`` what follows those of the node while the datastore is ``fed``.
    ``memory`` is what the calls remember of records that cannot be read.
    """

    datastore: Datastore
    cache: View
    queue: RequestQueue | None
    shown: ShowsNodeEndpoints | None = None
    endpoints: EndpointFeed | None = None
    turn: Turn | None = None
    memory: RecordMemory = field(factory=RecordMemory)

    @classmethod
    def of(cls, datastore: Datastore, clock: Clock, shown: ShowsNodeEndpoints | None = None) -> SharedDatastore:
        """A datastore with a cache of its own, and a queue if it can use one."""
        cache = make_node_cache(datastore, clock=clock, guard=Lock())
        turn = Turn(guard=Lock(), make_signal=Event)
        if datastore.description.atomicity is not Atomicity.ATOMIC:
            cache.refreshing = Turn(guard=Lock(), make_signal=Event).taken
            return cls(datastore, cache, None, shown, turn=turn)
        return cls(datastore, cache, RequestQueue(store=datastore, cache=cache, turn=turn))

    @contextmanager
    def fed(self, log: Log) -> Iterator[SharedDatastore]:
        """The same, its cache kept true by a watch as long as the context lasts."""
        feeds = [CacheFeed(self.datastore, self.cache, followed_kinds(self.datastore)).controller]
        endpoints = None
        if self.queue is None:
            feeds.append(CacheRefresh(self.datastore, self.cache).controller)
        if self.shown is not None:
            endpoints = EndpointFeed(self.datastore, self.shown, self.cache)
            feeds.append(endpoints.controller)
        runtime = Runtime(feeds, clock=self.cache.clock, log=log)
        self.cache.on_use = partial(runtime.wake, ANSWERS_USED)
        if endpoints is not None:
            endpoints.on_node = partial(runtime.wake, NODE_NAMED)
        with runtime.running(stop_s=_STOP_S):
            yield self if endpoints is None else evolve(self, endpoints=endpoints)


@define(eq=False)
class _Opening(Generic[V]):
    """One key's value, while calls use it or it waits for the next one. ``lock`` is held while it is opened."""

    users: int = 0
    opened: tuple[V, ...] = ()  # the value, once it is open
    stack: ExitStack = field(factory=ExitStack)
    lock: AbstractContextManager[object] = field(factory=Lock)


class OpeningUse(enum.Enum):
    """Who uses what is open: a call, which the next ones are like, or a task of the process itself."""

    CALL = "call"
    TASK = "task"


@define(eq=False, repr=False)
class SharedOpenings(Generic[K, V]):
    """Opened values by what they were opened with, at most ``limit``. Threads may share it.

    A value stays open until ``close``, or until another one needs its place and no call uses it: the one that was
    used longest ago goes. An opening that takes long delays only calls with the same key. A value that cannot be
    closed is a line of the log, and no error of the call that needed its place.
    """

    _limit: int = field(default=MAX_SHARED, alias="limit")
    _log: Log | None = field(default=None, kw_only=True, alias="log")
    _openings: dict[K, _Opening[V]] = field(factory=dict, init=False)  # the one that was used longest ago is the first
    _lock: Lock = field(factory=Lock, init=False)

    @contextmanager
    def open(
        self, key: K, opening: Callable[[], AbstractContextManager[V]], *, use: OpeningUse = OpeningUse.CALL
    ) -> Iterator[V]:
        """The value for a key: the one that is open, else a new one by ``opening``, whose errors are raised.

        If ``limit`` values are in use, a new one is the caller's alone. So is one that a task opens: it takes no place,
        and what it uses counts as used no later than by its last call.
        """
        found, former = self._enter(key, use)
        if former is not None:
            self._close(former.stack)
        if found is None:
            own = ExitStack()
            try:
                yield own.enter_context(opening())
            finally:
                self._close(own)
            return
        try:
            with found.lock:
                if not found.opened:
                    found.opened = (found.stack.enter_context(opening()),)
            yield found.opened[0]
        finally:
            self._leave(key, found)

    def close(self) -> None:
        """Close every value; no call may use one."""
        with self._lock:
            openings = tuple(self._openings.values())
            self._openings.clear()
        for each in openings:
            self._close(each.stack)

    def __len__(self) -> int:
        return len(self._openings)

    def _enter(self, key: K, use: OpeningUse) -> tuple[_Opening[V] | None, _Opening[V] | None]:
        """What the caller uses from now on, None if it opens its own; and what has to be closed for it."""
        former = None
        with self._lock:
            found = self._openings.get(key)
            if found is None:
                if use is OpeningUse.TASK:
                    return None, None
                if len(self._openings) >= self._limit:
                    idle = next((each for each, opening in self._openings.items() if not opening.users), None)
                    if idle is None:
                        return None, None
                    former = self._openings.pop(idle)
                found = self._openings[key] = _Opening()
            elif use is OpeningUse.CALL:
                self._openings[key] = self._openings.pop(key)
            found.users += 1
        return found, former

    def _leave(self, key: K, found: _Opening[V]) -> None:
        with self._lock:
            found.users -= 1
            if not found.opened and not found.users:
                self._openings.pop(key, None)  # it could not be opened

    def _close(self, stack: ExitStack) -> None:
        try:
            stack.close()
        except Exception:  # noqa: BLE001  what is closed is used no more, whatever happened
            if self._log is not None:
                self._log(Level.ERROR, f"a connection could not be closed\n{traceback.format_exc()}")


# --- caches ----------------------------------------------------------------------------------------------------------


@frozen(eq=False)
class _OpenCache:
    name: str
    location: str
    cache: View


@frozen(eq=False)
class _OpenMemory:
    name: str
    location: str
    memory: RecordMemory


@define(eq=False, repr=False)
class OpenCaches:
    """The caches and memories that are open now. Threads may share it. Nothing is read from a datastore."""

    _clock: Clock
    _open: CurrentValues[_OpenCache] = field(factory=CurrentValues, init=False)
    _memories: CurrentValues[_OpenMemory] = field(factory=CurrentValues, init=False)

    @contextmanager
    def used_by(self, shared: SharedDatastore) -> Iterator[None]:
        """Those of a datastore are open for as long as the context lasts.

        The cache of an ordered store is left out: the calls confirm it, so that its age would say how long there was
        none.
        """
        cache = None if shared.queue is None else shared.queue.cache
        description = shared.datastore.description
        name, location = description.name, description.location
        with self._memories.including(_OpenMemory(name, location, shared.memory)):
            if cache is None:
                yield
                return
            with self._open.including(_OpenCache(name, location, cache)):
                yield

    def passed_over(self) -> dict[tuple[str, ...], float]:
        """How many records calls passed over of late, by datastore, location and kind."""
        now_s = self._clock.monotonic()
        return {
            (each.name, each.location, kind): float(count)
            for each in self._memories.all()
            for kind, count in each.memory.counts(now_s).items()
        }

    def ages(self) -> dict[tuple[str, ...], float]:
        """How many seconds ago it was confirmed that what is followed is true, the oldest kind counting.

        Names are those of the datastore and its location. A datastore that is not followed now has no value.
        """
        found = ((each, tuple(each.cache.watched.values())) for each in self._open.all())
        now_s = self._clock.monotonic()
        return {(each.name, each.location): max(0.0, now_s - min(confirmed)) for each, confirmed in found if confirmed}

    def range_sizes(self) -> dict[tuple[str, ...], float]:
        """The addresses of each pool's range, by datastore, location and pool."""
        return self._usages(lambda usage: usage.range_size)

    def block_sizes(self) -> dict[tuple[str, ...], float]:
        """The addresses of the node's own blocks, by datastore, location and pool."""
        return self._usages(lambda usage: usage.block_size)

    def in_use(self) -> dict[tuple[str, ...], float]:
        """Those that are assigned, cool down, or are reserved for the host."""
        return self._usages(lambda usage: usage.in_use)

    def _usages(self, count: Callable[[OwnUsage], int]) -> dict[tuple[str, ...], float]:
        return {name: float(count(usage)) for name, usage in self._own_usages()}

    def _own_usages(self) -> Iterator[tuple[tuple[str, str, str], OwnUsage]]:
        for each in self._open.all():
            for usage in own_usage(each.cache.snapshot):
                yield (each.name, each.location, usage.pool), usage


# --- datastores ------------------------------------------------------------------------------------------------------


STALE_S = 10.0
"""A datastore that answered so long ago is asked once more before it counts as one that answers."""

CHECK_S = 2.0
"""The longest that asking all of them may take."""

NoteCall: TypeAlias = Callable[[tuple[str, str], str, str, float], None]
"""Takes a call of a datastore: the name and the location of the store, ``read`` or ``commit``, the outcome, seconds."""

_OK = "ok"


@frozen(kw_only=True)
class DatastoreState:
    """An open datastore. ``answered_s`` is how many seconds ago it answered; None: it has not.

    ``failure`` is the class of the error with which the last call found that it cannot be reached; empty if it could.
    """

    name: str
    location: str
    answered_s: float | None
    failure: str

    @property
    def does_answer(self) -> bool:
        """Whether it answered when it was last asked, and that is not long ago."""
        return not self.failure and self.answered_s is not None and self.answered_s <= STALE_S


@define(eq=False)
class _MeasuredDatastore(ObservedDatastore):
    """A datastore that notes its calls. Threads may share it."""

    clock: Clock
    note: NoteCall
    answered_at: float | None = None
    failure: str = ""

    @contextmanager
    def observe(self, call: DatastoreCall) -> Iterator[None]:
        operation = "commit" if isinstance(call, CommitCall) else "read"
        began, outcome, failure = self.clock.monotonic(), _OK, ""
        try:
            yield
        except Exception as error:
            outcome = type(error).__name__
            # A conflict, or a record that is not there, is an answer.
            failure = "" if isinstance(error, DatastoreError) and not isinstance(error, Unavailable) else outcome
            raise
        finally:
            ended = self.clock.monotonic()
            self.failure = failure
            if not failure:
                self.answered_at = ended
            self.note((self.description.name, self.description.location), operation, outcome, ended - began)

    @property
    def state(self) -> DatastoreState:
        """Its state now."""
        answered = self.answered_at
        return DatastoreState(
            name=self.description.name,
            location=self.description.location,
            answered_s=None if answered is None else self.clock.monotonic() - answered,
            failure=self.failure,
        )


@define(eq=False)
class OpenDatastores:
    """The datastores that are open now, with their credentials and their caches. Threads may share it."""

    _clock: Clock
    _note: NoteCall
    credentials: KnownCredentials = field(init=False)
    caches: OpenCaches = field(init=False)
    _open: CurrentValues[_MeasuredDatastore] = field(factory=CurrentValues, init=False)
    _checking: Lock = field(factory=Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.credentials, self.caches = KnownCredentials(self._clock), OpenCaches(self._clock)

    @contextmanager
    def measured(self, datastore: Datastore) -> Iterator[Datastore]:
        """The same datastore, whose calls are noted. It counts as open for as long as the context lasts."""
        measured = _MeasuredDatastore(datastore, self._clock, self._note)
        with self._open.including(measured), self.credentials.used_by(datastore):
            yield measured

    def states(self) -> tuple[DatastoreState, ...]:
        """Each of them, in the order in which they were opened. None is asked."""
        return tuple(each.state for each in self._open.all())

    def check(self) -> tuple[DatastoreState, ...]:
        """Each of them; those that do not count as answering are asked first."""
        with self._checking:  # who comes meanwhile finds them asked
            deadline = Deadline.after(self._clock, CHECK_S)
            for each in self._open.all():
                if not each.state.does_answer and not deadline.has_passed:
                    self._ask(each, deadline)
        return self.states()

    def _ask(self, datastore: _MeasuredDatastore, deadline: Deadline) -> None:
        try:
            find_cluster_information(datastore, deadline=deadline)
        except Exception:  # noqa: BLE001  it is noted as the state, which the caller reads
            return
