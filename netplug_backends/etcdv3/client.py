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

from netplug_backends.etcdv3.endpoints import EtcdEndpoint, MemberSource, RandomBelow
from netplug_backends.etcdv3.operations import (
    CallFailed,
    CallFailure,
    RangeRead,
    Txn,
    TxnResult,
    WatchBatch,
    WatchStart,
)
from netplug_backends.etcdv3.rpc import MemberConnection
from netplug_backends.etcdv3.tls import Credentials, TlsMaterial
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import Unauthorized, Unavailable
from netplug_core.records import OutcomeUnknown

__all__ = ["ClientClosed", "EtcdClient", "FutureRevision", "NoSpaceLeft", "RevisionUnavailable"]

T = TypeVar("T")
_Call = Callable[[MemberConnection, str, Deadline], T]  # with a token, by the member's share of the time

_MEMBER_BACKOFF_S = 15.0
# For how long connections made with other certificates are kept. A call begins with a look at its connection, which
# must outlive that by a while; and none but a watch lasts so long.
_RETIRED_CONNECTION_S = 10.0
# How long a call keeps looking for a member while none is there: one that restarts is back by then, and a pod that is
# taken down while the cluster is gone does not wait for longer.
_MAX_SEARCH_S = 2.0
_MIN_RETRY_DELAY_S = 0.05
_MAX_RETRY_DELAY_S = 0.4

_NO_FAILURE = frozenset[CallFailure]()
_OUTCOME_UNKNOWN = frozenset((CallFailure.NO_REPLY, CallFailure.OUTCOME_UNKNOWN, CallFailure.NO_SPACE))
_NO_MEMBER = frozenset((CallFailure.UNREACHABLE, CallFailure.NO_REPLY))
# Failures that no waiting changes; another member may have other certificates.
_TLS_FAILURES = frozenset((CallFailure.SERVER_NOT_TRUSTED, CallFailure.CLIENT_NOT_TRUSTED))
_NOT_SENT = _TLS_FAILURES | {CallFailure.UNREACHABLE}
_UNAUTHORIZED = frozenset((CallFailure.PERMISSION_DENIED, CallFailure.UNAUTHENTICATED))
_CLOSED = "the store was closed"
_NO_SPACE_ADVICE = "the store is full: compact and defragment it, then disarm its alarm"


@frozen
class RevisionUnavailable(Unavailable):
    """The revision that was asked for is not there: no longer kept, or never reached by this store."""


@frozen
class FutureRevision(RevisionUnavailable):
    """The revision that was asked for was never reached by this store."""


@frozen
class NoSpaceLeft(OutcomeUnknown):
    """A write used up the room, and was made, or came when none was left, and was not."""


@frozen
class ClientClosed(Unavailable):
    """The client was closed under a call."""


_REVISION_ERRORS: Mapping[CallFailure, type[RevisionUnavailable]] = {
    CallFailure.COMPACTED: RevisionUnavailable,
    CallFailure.FUTURE_REVISION: FutureRevision,
}


class EtcdClient:
    """Calls to the members that a directory knows; it is asked once, by the first call. Constructing asks nobody."""

    def __init__(
        self,
        member_source: MemberSource,
        credentials: Credentials,
        *,
        clock: Clock,
        random_below: RandomBelow = random.randrange,
    ) -> None:
        self.location = member_source.location
        self._member_source = member_source
        self._random_below = random_below
        self._endpoints: tuple[EtcdEndpoint, ...] = ()  # until the first call
        self._credentials = credentials
        self._clock = clock
        self._discovery_lock = Lock()  # held while the directory is
        self._lock = Lock()
        self._closing = Event()
        self._connections: dict[EtcdEndpoint, MemberConnection] = {}
        self._retired: list[tuple[float, MemberConnection]] = []  # since when
        self._open_connections: WeakSet[MemberConnection] = WeakSet()  # these, and those that only a watch still holds
        self._material = TlsMaterial()
        self._failed_at: dict[EtcdEndpoint, float] = {}
        self._resolved: set[EtcdEndpoint] = set()  # by their names
        self._token: str | None = None  # an empty one where the cluster knows no users

    def close(self) -> None:
        """End every call, watches too; one that begins later would connect again."""
        with self._lock:
            self._closing.set()
            self._closing = Event()
            connections = list(self._open_connections)
            self._connections, self._retired, self._open_connections = {}, [], WeakSet()
        for connection in connections:
            connection.close()

    @property
    def closing(self) -> Event:
        """Set by the next :meth:`close`: what ends everything that has begun by then."""
        return self._closing

    def read(self, ranges: Sequence[RangeRead], *, deadline: Deadline) -> TxnResult:
        """What some ranges hold, all at one moment.

        Raises:
            RevisionUnavailable: a range asks for a revision that is no longer kept.
            Unavailable, Unauthorized: no member answers in time, or lets us.
        """
        txn = Txn(success=tuple(ranges))

        def call(connection: MemberConnection, token: str, share: Deadline) -> TxnResult:
            return connection.txn(txn, token=token, timeout_s=share.remaining_s)

        return self._call(call, deadline, self._closing)

    def write(self, txn: Txn, *, deadline: Deadline) -> TxnResult:
        """A transaction that may change something.

        Raises:
            OutcomeUnknown: the reply was lost, or (``NoSpaceLeft``) does not say.
            Unavailable, Unauthorized: nothing was sent, or the cluster refused and did nothing.
        """

        def call(connection: MemberConnection, token: str, share: Deadline) -> TxnResult:
            connection.wait_until_connected(timeout_s=share.remaining_s)
            # The reply is waited for as long as the caller allows: nobody else can be asked any more.
            try:
                return connection.txn(txn, token=token, timeout_s=deadline.remaining_s)
            except CallFailed as error:
                if error.failure not in _NOT_SENT:
                    raise
                # There was a connection a moment ago; that there is none now does not prove that nothing was sent.
                raise CallFailed(CallFailure.NO_REPLY, error.text) from error

        return self._call(call, deadline, self._closing, final=_OUTCOME_UNKNOWN)

    def watch(self, starts: Sequence[WatchStart], *, deadline: Deadline, closing: Event) -> Iterator[WatchBatch]:
        """What changes in some spans until the deadline, or until the member is lost: then watch on from there.

        Raises:
            ClientClosed: the client's ``closing``, taken when the watching began, is set.
            RevisionUnavailable: changes after a start are no longer kept, or the store never came so far.
            Unavailable, Unauthorized: no member is there, or lets us.
        """
        watched: list[EtcdEndpoint] = []

        def call(connection: MemberConnection, token: str, share: Deadline) -> Iterator[WatchBatch]:
            connection.wait_until_connected(timeout_s=share.remaining_s)
            watched[:] = [connection.endpoint]
            return connection.watch(starts, token=token, timeout_s=deadline.remaining_s)

        stream = self._call(call, deadline, closing)
        try:
            yield from stream
        except CallFailed as error:
            if error.failure is CallFailure.UNAUTHENTICATED and self._credentials.user:
                self._token = None  # it ran out; the next watch brings a new one
            elif not deadline.has_passed:  # that is how a watch ends, and no fault of the member
                self._raise_if_final(error, watched[0], closing, _NO_FAILURE)

    def _call(
        self, call: _Call[T], deadline: Deadline, closing: Event, *, final: frozenset[CallFailure] = _NO_FAILURE
    ) -> T:
        """What the call comes to at the first member that serves it; after a ``final`` failure nobody else is asked."""
        started, pause_s = self._clock.monotonic(), _MIN_RETRY_DELAY_S
        failures: dict[EtcdEndpoint, CallFailed] = {}  # the last of each
        while True:
            order = self._members_in_order(deadline)
            for position, endpoint in enumerate(order):
                if deadline.has_passed:
                    break
                share = deadline.capped(deadline.remaining_s / (len(order) - position))
                try:
                    return self._call_member(endpoint, call, share, closing)
                except CallFailed as error:
                    self._raise_if_final(error, endpoint, closing, final)
                    failures[endpoint] = error
            waited_s = self._clock.monotonic() - started
            # A round without time would only forget the reasons.
            if deadline.remaining_s < 2 * pause_s or _is_permanent(failures.values(), waited_s):
                raise _error_of_failures(failures)
            self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_RETRY_DELAY_S)

    def _members_in_order(self, deadline: Deadline) -> Sequence[EtcdEndpoint]:
        """The members, those that rest behind the others, the one that failed last behind them all."""
        if not self._endpoints:
            self._find_members(deadline)
        awake = self._clock.monotonic() - _MEMBER_BACKOFF_S
        failed_at = dict(self._failed_at)
        return sorted(self._endpoints, key=lambda endpoint: max(awake, failed_at.get(endpoint, awake)))

    def _find_members(self, deadline: Deadline) -> None:
        """Ask who the members are, unless a call that came before this one has found out."""
        if not self._discovery_lock.acquire(timeout=deadline.remaining_s):
            raise _error_of_failures({})
        try:
            if not self._endpoints:
                self._endpoints = self._member_source.find_members(self._random_below, deadline=deadline)
        finally:
            self._discovery_lock.release()

    def _call_member(self, endpoint: EtcdEndpoint, call: _Call[T], share: Deadline, closing: Event) -> T:
        connection = self._connection(endpoint, closing)
        self._check_host(endpoint, share)
        token = self._get_token(connection, share)
        try:
            result = call(connection, token, share)
        except CallFailed as error:
            if error.failure is not CallFailure.UNAUTHENTICATED or not self._credentials.user:
                raise
            # The token ran out, or users came or changed: who calls was asked before anything else, so nothing is done.
            token = self._get_token(connection, share, expired=token)
            result = call(connection, token, share)
        self._failed_at.pop(endpoint, None)
        return result

    def _check_host(self, endpoint: EtcdEndpoint, share: Deadline) -> None:
        """Return if the endpoint's name leads somewhere, or did when it was last used."""
        if not endpoint.has_name or endpoint in self._resolved:
            return
        from netplug_backends.etcdv3.resolver import require_resolvable

        try:
            require_resolvable(endpoint.host, endpoint.port, share)
        except OSError as error:
            text = f"no address of {endpoint.host} is known: {error.strerror or error}"
            raise CallFailed(CallFailure.UNREACHABLE, text) from error
        self._resolved.add(endpoint)

    def _get_token(self, connection: MemberConnection, share: Deadline, *, expired: str | None = None) -> str:
        """The token that calls carry; empty where none is needed."""
        user, token = self._credentials.user, self._token
        if not user:
            return ""
        if token is not None and token != expired:
            return token
        try:
            token = connection.log_in(user, self._credentials.password, timeout_s=share.remaining_s)
        except CallFailed as error:
            if error.failure is not CallFailure.AUTH_NOT_ENABLED:
                # Whatever became of the login, the call itself was not sent.
                failure = CallFailure.UNREACHABLE if error.failure in _OUTCOME_UNKNOWN else error.failure
                raise CallFailed(failure, error.text) from error
            token = ""
        self._token = token
        return token

    def _connection(self, endpoint: EtcdEndpoint, closing: Event) -> MemberConnection:
        material, now = self._credentials.material(), self._clock.monotonic()
        with self._lock:
            if closing.is_set():
                raise ClientClosed("etcd", _CLOSED)
            # They end with the last call that uses them.
            self._retired = [(since, each) for since, each in self._retired if now - since < _RETIRED_CONNECTION_S]
            if material is not self._material:
                self._material = material
                self._retired += [(now, each) for each in self._connections.values()]
                self._connections.clear()
            connection = self._connections.get(endpoint)
            if connection is None:
                connection = MemberConnection(endpoint, material, clock=self._clock)
                self._connections[endpoint] = connection
                self._open_connections.add(connection)
            return connection

    def _raise_if_final(
        self, error: CallFailed, endpoint: EtcdEndpoint, closing: Event, final: frozenset[CallFailure]
    ) -> None:
        """Return if another member may be asked."""
        text = f"{endpoint}: {error.text}"
        if error.failure in _UNAUTHORIZED:
            raise Unauthorized("etcd", text) from error
        if error.failure in _REVISION_ERRORS:
            raise _REVISION_ERRORS[error.failure]("etcd", text) from error
        if error.failure is CallFailure.REJECTED:
            raise Unavailable("etcd", text) from error
        if error.failure is CallFailure.NO_SPACE:
            refusal = NoSpaceLeft if error.failure in final else Unavailable
            raise refusal("etcd", f"{text}; {_NO_SPACE_ADVICE}") from error
        if closing.is_set() and error.failure not in final:
            raise ClientClosed("etcd", _CLOSED) from error
        self._failed_at[endpoint] = self._clock.monotonic()
        if error.failure is CallFailure.UNREACHABLE:  # any other was told over a connection that is there
            self._resolved.discard(endpoint)
        if error.failure in final:
            raise OutcomeUnknown("etcd", text) from error


def _is_permanent(failures: Iterable[CallFailed], waited_s: float) -> bool:
    """Whether asking the members once more would change nothing."""
    kinds = {error.failure for error in failures}
    return kinds <= _TLS_FAILURES or (kinds <= _NO_MEMBER | _TLS_FAILURES and waited_s > _MAX_SEARCH_S)


def _error_of_failures(failures: Mapping[EtcdEndpoint, CallFailed]) -> Unavailable:
    texts = [f"{endpoint}: {error.text}" for endpoint, error in failures.items()]
    is_unwelcome = any(error.failure is CallFailure.CLIENT_NOT_TRUSTED for error in failures.values())
    refusal = Unauthorized if is_unwelcome else Unavailable
    return refusal("etcd", "; ".join(texts) or "the deadline passed before it could be asked")
