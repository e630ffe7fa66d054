"""The cluster: each call goes to a member that answers, in time, as often as that is safe and no more.

A read may be asked of one member after another. A write goes to another one only when it was provably not sent, or
refused before anything was done; when its reply is lost the outcome is unknown, and that is what the caller is told.
A member that failed rests: it is asked last until it has rested long enough, and then takes its place again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Event, Lock
from typing import TypeVar
from weakref import WeakSet

from attrs import frozen

from netplug_backends.etcdv3.calls import CallFailed, Failure, News, Range, Reply, Txn, WatchFrom
from netplug_backends.etcdv3.endpoints import Chance, Directory, Endpoint
from netplug_backends.etcdv3.rpc import Connection
from netplug_backends.etcdv3.tls import Credentials, TlsMaterial
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import Unauthorized, Unavailable
from netplug_core.records import OutcomeUnknown

__all__ = ["ClientClosed", "EtcdClient", "RevisionAhead", "RevisionGone", "StoreIsFull"]

T = TypeVar("T")
_Call = Callable[[Connection, str, Deadline], T]  # with a token, by the member's share of the time

_REST_S = 15.0
# For how long connections made with other certificates are kept. A call begins with a look at its connection, which
# must outlive that by a while; and none but a watch lasts so long.
_RETIRED_S = 10.0
# How long a call keeps looking for a member while none is there: one that restarts is back by then, and a pod that is
# taken down while the cluster is gone does not wait for longer.
_PATIENCE_S = 2.0
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.4

_NEVER = frozenset[Failure]()
_UNKNOWN = frozenset((Failure.UNANSWERED, Failure.UNSETTLED, Failure.FULL))
_NOT_THERE = frozenset((Failure.UNREACHABLE, Failure.UNANSWERED))
# Failures that no waiting changes; another member may have other certificates.
_DISTRUST = frozenset((Failure.UNTRUSTED, Failure.UNWELCOME))
_UNCONNECTED = _DISTRUST | {Failure.UNREACHABLE}
_UNAUTHORIZED = frozenset((Failure.DENIED, Failure.STRANGER))
_CLOSED = "the store was closed"
_MAKE_ROOM = "the store is full: compact and defragment it, then disarm its alarm"


@frozen
class RevisionGone(Unavailable):
    """The revision that was asked for is not there: no longer kept, or never reached by this store."""


@frozen
class RevisionAhead(RevisionGone):
    """The revision that was asked for was never reached by this store."""


@frozen
class StoreIsFull(OutcomeUnknown):
    """A write used up the room, and was made, or came when none was left, and was not."""


@frozen
class ClientClosed(Unavailable):
    """The client was closed under a call."""


_GONE: Mapping[Failure, type[RevisionGone]] = {Failure.COMPACTED: RevisionGone, Failure.AHEAD: RevisionAhead}


class EtcdClient:
    """Calls to the members that a directory knows; it is asked once, by the first call. Constructing asks nobody."""

    def __init__(
        self,
        directory: Directory,
        credentials: Credentials,
        *,
        clock: Clock,
        chance: Chance = random.randrange,
    ) -> None:
        self.location = directory.location
        self._directory = directory
        self._chance = chance
        self._endpoints: tuple[Endpoint, ...] = ()  # until the first call
        self._credentials = credentials
        self._clock = clock
        self._asking = Lock()  # held while the directory is
        self._lock = Lock()
        self._closing = Event()
        self._connections: dict[Endpoint, Connection] = {}
        self._retired: list[tuple[float, Connection]] = []  # since when
        self._used: WeakSet[Connection] = WeakSet()  # these, and those that only a watch still holds
        self._material = TlsMaterial()
        self._failed_at: dict[Endpoint, float] = {}
        self._found: set[Endpoint] = set()  # by their names
        self._token: str | None = None  # an empty one where the cluster knows no users

    def close(self) -> None:
        """End every call, watches too; one that begins later would connect again."""
        with self._lock:
            self._closing.set()
            self._closing = Event()
            connections = list(self._used)
            self._connections, self._retired, self._used = {}, [], WeakSet()
        for connection in connections:
            connection.close()

    @property
    def closing(self) -> Event:
        """Set by the next :meth:`close`: what ends everything that has begun by then."""
        return self._closing

    def read(self, ranges: Sequence[Range], *, deadline: Deadline) -> Reply:
        """What some ranges hold, all at one moment.

        Raises:
            RevisionGone: a range asks for a revision that is no longer kept.
            Unavailable, Unauthorized: no member answers in time, or lets us.
        """
        txn = Txn(then=tuple(ranges))

        def call(connection: Connection, token: str, share: Deadline) -> Reply:
            return connection.txn(txn, token=token, timeout_s=share.remaining_s)

        return self._called(call, deadline, self._closing)

    def write(self, txn: Txn, *, deadline: Deadline) -> Reply:
        """A transaction that may change something.

        Raises:
            OutcomeUnknown: the reply was lost, or (``StoreIsFull``) does not say.
            Unavailable, Unauthorized: nothing was sent, or the cluster refused and did nothing.
        """

        def call(connection: Connection, token: str, share: Deadline) -> Reply:
            connection.reach(timeout_s=share.remaining_s)
            # The reply is waited for as long as the caller allows: nobody else can be asked any more.
            try:
                return connection.txn(txn, token=token, timeout_s=deadline.remaining_s)
            except CallFailed as error:
                if error.failure not in _UNCONNECTED:
                    raise
                # There was a connection a moment ago; that there is none now does not prove that nothing was sent.
                raise CallFailed(Failure.UNANSWERED, error.text) from error

        return self._called(call, deadline, self._closing, final=_UNKNOWN)

    def watch(self, starts: Sequence[WatchFrom], *, deadline: Deadline, closing: Event) -> Iterator[News]:
        """What changes in some spans until the deadline, or until the member is lost: then watch on from there.

        Raises:
            ClientClosed: the client's ``closing``, taken when the watching began, is set.
            RevisionGone: changes after a start are no longer kept, or the store never came so far.
            Unavailable, Unauthorized: no member is there, or lets us.
        """
        watched: list[Endpoint] = []

        def call(connection: Connection, token: str, share: Deadline) -> Iterator[News]:
            connection.reach(timeout_s=share.remaining_s)
            watched[:] = [connection.endpoint]
            return connection.watch(starts, token=token, timeout_s=deadline.remaining_s)

        stream = self._called(call, deadline, closing)
        try:
            yield from stream
        except CallFailed as error:
            if error.failure is Failure.STRANGER and self._credentials.user:
                self._token = None  # it ran out; the next watch brings a new one
            elif not deadline.has_passed:  # that is how a watch ends, and no fault of the member
                self._judge(error, watched[0], closing, _NEVER)

    def _called(self, call: _Call[T], deadline: Deadline, closing: Event, *, final: frozenset[Failure] = _NEVER) -> T:
        """What the call comes to at the first member that serves it; after a ``final`` failure nobody else is asked."""
        started, pause_s = self._clock.monotonic(), _FIRST_PAUSE_S
        failures: dict[Endpoint, CallFailed] = {}  # the last of each
        while True:
            order = self._order(deadline)
            for position, endpoint in enumerate(order):
                if deadline.has_passed:
                    break
                share = deadline.capped(deadline.remaining_s / (len(order) - position))
                try:
                    return self._asked(endpoint, call, share, closing)
                except CallFailed as error:
                    self._judge(error, endpoint, closing, final)
                    failures[endpoint] = error
            waited_s = self._clock.monotonic() - started
            # A round without time would only forget the reasons.
            if deadline.remaining_s < 2 * pause_s or _is_hopeless(failures.values(), waited_s):
                raise _refusal(failures)
            self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _order(self, deadline: Deadline) -> Sequence[Endpoint]:
        """The members, those that rest behind the others, the one that failed last behind them all."""
        if not self._endpoints:
            self._find_members(deadline)
        awake = self._clock.monotonic() - _REST_S
        failed_at = dict(self._failed_at)
        return sorted(self._endpoints, key=lambda endpoint: max(awake, failed_at.get(endpoint, awake)))

    def _find_members(self, deadline: Deadline) -> None:
        """Ask who the members are, unless a call that came before this one has found out."""
        if not self._asking.acquire(timeout=deadline.remaining_s):
            raise _refusal({})
        try:
            if not self._endpoints:
                self._endpoints = self._directory.find_members(self._chance, deadline=deadline)
        finally:
            self._asking.release()

    def _asked(self, endpoint: Endpoint, call: _Call[T], share: Deadline, closing: Event) -> T:
        connection = self._connection(endpoint, closing)
        self._find_host(endpoint, share)
        token = self._logged_in(connection, share)
        try:
            result = call(connection, token, share)
        except CallFailed as error:
            if error.failure is not Failure.STRANGER or not self._credentials.user:
                raise
            # The token ran out, or users came or changed: who calls was asked before anything else, so nothing is done.
            token = self._logged_in(connection, share, instead_of=token)
            result = call(connection, token, share)
        self._failed_at.pop(endpoint, None)
        return result

    def _find_host(self, endpoint: Endpoint, share: Deadline) -> None:
        """Return if the endpoint's name leads somewhere, or did when it was last used."""
        if not endpoint.has_name or endpoint in self._found:
            return
        from netplug_backends.etcdv3.hosts import find_host

        try:
            find_host(endpoint.host, endpoint.port, share)
        except OSError as error:
            text = f"no address of {endpoint.host} is known: {error.strerror or error}"
            raise CallFailed(Failure.UNREACHABLE, text) from error
        self._found.add(endpoint)

    def _logged_in(self, connection: Connection, share: Deadline, *, instead_of: str | None = None) -> str:
        """The token that calls carry; empty where none is needed."""
        user, token = self._credentials.user, self._token
        if not user:
            return ""
        if token is not None and token != instead_of:
            return token
        try:
            token = connection.log_in(user, self._credentials.password, timeout_s=share.remaining_s)
        except CallFailed as error:
            if error.failure is not Failure.UNGUARDED:
                # Whatever became of the login, the call itself was not sent.
                failure = Failure.UNREACHABLE if error.failure in _UNKNOWN else error.failure
                raise CallFailed(failure, error.text) from error
            token = ""
        self._token = token
        return token

    def _connection(self, endpoint: Endpoint, closing: Event) -> Connection:
        material, now = self._credentials.material(), self._clock.monotonic()
        with self._lock:
            if closing.is_set():
                raise ClientClosed("etcd", _CLOSED)
            # They end with the last call that uses them.
            self._retired = [(since, each) for since, each in self._retired if now - since < _RETIRED_S]
            if material is not self._material:
                self._material = material
                self._retired += [(now, each) for each in self._connections.values()]
                self._connections.clear()
            connection = self._connections.get(endpoint)
            if connection is None:
                connection = Connection(endpoint, material, clock=self._clock)
                self._connections[endpoint] = connection
                self._used.add(connection)
            return connection

    def _judge(self, error: CallFailed, endpoint: Endpoint, closing: Event, final: frozenset[Failure]) -> None:
        """Return if another member may be asked."""
        text = f"{endpoint}: {error.text}"
        if error.failure in _UNAUTHORIZED:
            raise Unauthorized("etcd", text) from error
        if error.failure in _GONE:
            raise _GONE[error.failure]("etcd", text) from error
        if error.failure is Failure.REFUSED:
            raise Unavailable("etcd", text) from error
        if error.failure is Failure.FULL:
            refusal = StoreIsFull if error.failure in final else Unavailable
            raise refusal("etcd", f"{text}; {_MAKE_ROOM}") from error
        if closing.is_set() and error.failure not in final:
            raise ClientClosed("etcd", _CLOSED) from error
        self._failed_at[endpoint] = self._clock.monotonic()
        if error.failure is Failure.UNREACHABLE:  # any other was told over a connection that is there
            self._found.discard(endpoint)
        if error.failure in final:
            raise OutcomeUnknown("etcd", text) from error


def _is_hopeless(failures: Iterable[CallFailed], waited_s: float) -> bool:
    """Whether asking the members once more would change nothing."""
    kinds = {error.failure for error in failures}
    return kinds <= _DISTRUST or (kinds <= _NOT_THERE | _DISTRUST and waited_s > _PATIENCE_S)


def _refusal(failures: Mapping[Endpoint, CallFailed]) -> Unavailable:
    texts = [f"{endpoint}: {error.text}" for endpoint, error in failures.items()]
    is_unwelcome = any(error.failure is Failure.UNWELCOME for error in failures.values())
    refusal = Unauthorized if is_unwelcome else Unavailable
    return refusal("etcd", "; ".join(texts) or "the deadline passed before it could be asked")
