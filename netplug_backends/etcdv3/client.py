"""Calls to the cluster: which member gets a call, and when a call is repeated on another member.

A read may be sent to one member after another. A write goes to another member only if it was provably not sent, or was
refused before anything was done; if its reply is lost, the outcome is unknown. A member that failed is tried last for
some seconds. The members come from a list of endpoints here, or from DNS (``discovery``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Event, Lock
from typing import Protocol, TypeVar
from weakref import WeakSet

from attrs import define, field, frozen

from netplug_backends.connections import resolve
from netplug_backends.etcdv3.operations import (
    CallFailed,
    CallFailure,
    Interruption,
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
from netplug_core.settings.model import EtcdEndpoint

__all__ = [
    "ClientClosed", "EtcdClient", "FutureRevision", "MemberSource", "NoSpaceLeft", "RandomBelow",
    "RevisionUnavailable", "StaticMembers",
]  # fmt: skip


# --- client ----------------------------------------------------------------------------------------------------------


# --- endpoints -------------------------------------------------------------------------------------------------------


RandomBelow = Callable[[int], int]
"""Draws a random number from 0 up to, but not including, its argument."""


class MemberSource(Protocol):
    """Finds the members of one cluster."""

    @property
    def location(self) -> str:
        """The cluster, as error texts name it."""
        ...

    def find_members(self, random_below: RandomBelow, *, deadline: Deadline) -> tuple[EtcdEndpoint, ...]:
        """The members in the order to try them; the first is drawn, so that not all nodes use the same member.

        Raises:
            Unavailable: they cannot be found in time.
        """
        ...


@frozen
class StaticMembers:
    """Members that the configuration lists."""

    endpoints: tuple[EtcdEndpoint, ...]

    @property
    def location(self) -> str:
        """The cluster, as error texts name it."""
        return ",".join(map(str, self.endpoints))

    def find_members(self, random_below: RandomBelow, *, deadline: Deadline) -> tuple[EtcdEndpoint, ...]:
        """The members, beginning with one that is drawn."""
        del deadline  # no lookup is needed
        first = random_below(len(self.endpoints))
        return (*self.endpoints[first:], *self.endpoints[:first])


# --- client ----------------------------------------------------------------------------------------------------------


T = TypeVar("T")
_Call = Callable[[MemberConnection, str, Deadline], T]  # connection, token, deadline of this attempt

_MEMBER_BACKOFF_S = 15.0
# How long connections with replaced certificates are kept: longer than any call but a watch takes.
_RETIRED_CONNECTION_S = 10.0
# How long a call retries while no member is reachable: long enough for a member that restarts, and short enough for
# the DEL of a pod while the cluster is away.
_MAX_SEARCH_S = 2.0
_MIN_RETRY_DELAY_S = 0.05
_MAX_RETRY_DELAY_S = 0.4

_NO_FAILURE = frozenset[CallFailure]()
_OUTCOME_UNKNOWN = frozenset((CallFailure.NO_REPLY, CallFailure.OUTCOME_UNKNOWN, CallFailure.NO_SPACE))
# What a member replies to a read while there is no leader; it may serve the next one.
_NOT_YET = frozenset((CallFailure.MEMBER_NOT_SERVING, CallFailure.OUTCOME_UNKNOWN))
_NO_MEMBER = frozenset((CallFailure.UNREACHABLE, CallFailure.NO_REPLY))
# Failures that stay until a certificate is replaced; another member may have another certificate.
_TLS_FAILURES = frozenset((CallFailure.SERVER_NOT_TRUSTED, CallFailure.CLIENT_NOT_TRUSTED))
_NOT_SENT = _TLS_FAILURES | {CallFailure.UNREACHABLE}
_UNAUTHORIZED = frozenset((CallFailure.PERMISSION_DENIED, CallFailure.UNAUTHENTICATED))
_CLOSED = "the store was closed"
_NO_SPACE_ADVICE = "the store is full: compact and defragment it, then disarm its alarm"


@frozen
class RevisionUnavailable(Unavailable):
    """The requested revision has been compacted, or was never reached by this store."""


@frozen
class FutureRevision(RevisionUnavailable):
    """The requested revision was never reached by this store."""


@frozen
class NoSpaceLeft(OutcomeUnknown):
    """The cluster's space is used up: the write was either the last one applied, or refused."""


@frozen
class ClientClosed(Unavailable):
    """The client was closed during a call."""


_REVISION_ERRORS: Mapping[CallFailure, type[RevisionUnavailable]] = {
    CallFailure.COMPACTED: RevisionUnavailable,
    CallFailure.FUTURE_REVISION: FutureRevision,
}


@define(eq=False, repr=False)
class EtcdClient:
    """Calls to the members of a cluster. The first call looks the members up; constructing sends nothing."""

    _member_source: MemberSource
    _credentials: Credentials
    _clock: Clock = field(kw_only=True, alias="clock")
    _random_below: RandomBelow = field(default=random.randrange, kw_only=True, alias="random_below")
    _endpoints: tuple[EtcdEndpoint, ...] = field(default=(), init=False)  # until the first call
    _discovery_lock: Lock = field(factory=Lock, init=False)  # held while the members are looked up
    _lock: Lock = field(factory=Lock, init=False)
    _closing: Event = field(factory=Event, init=False)
    _connections: dict[EtcdEndpoint, MemberConnection] = field(factory=dict, init=False)
    # Each with the time when it was replaced.
    _retired: list[tuple[float, MemberConnection]] = field(factory=list, init=False)
    # Those above, and those that only a watch uses.
    _open_connections: WeakSet[MemberConnection] = field(factory=WeakSet, init=False)
    _material: TlsMaterial = field(factory=TlsMaterial, init=False)
    _failed_at: dict[EtcdEndpoint, float] = field(factory=dict, init=False)
    _resolved: set[EtcdEndpoint] = field(factory=set, init=False)  # whose names have an address
    _token: str | None = field(default=None, init=False)  # empty if the cluster has no users

    @property
    def location(self) -> str:
        """The cluster, as a text for users."""
        return self._member_source.location

    def close(self) -> None:
        """End every call and watch; a later call connects again."""
        with self._lock:
            self._closing.set()
            self._closing = Event()
            connections = list(self._open_connections)
            self._connections, self._retired, self._open_connections = {}, [], WeakSet()
        for connection in connections:
            connection.close()

    @property
    def certificate(self) -> bytes:
        """The client's certificate (PEM) of the last call; empty if it has none."""
        return self._material.certificate

    @property
    def closing(self) -> Event:
        """Set by the next :meth:`close`; it ends every call that began before."""
        return self._closing

    def read(self, ranges: Sequence[RangeRead], *, deadline: Deadline) -> TxnResult:
        """The contents of some ranges, all at one revision.

        Raises:
            RevisionUnavailable: a range names a revision that has been compacted.
            Unavailable, Unauthorized: no member answers in time, or the user may not read.
        """
        txn = Txn(success=tuple(ranges))

        def call(connection: MemberConnection, token: str, share: Deadline) -> TxnResult:
            return connection.txn(txn, token=token, timeout_s=share.remaining_s)

        return self._call(call, deadline, self._closing)

    def write(self, txn: Txn, *, deadline: Deadline) -> TxnResult:
        """A transaction that may write.

        Raises:
            OutcomeUnknown: the reply was lost, or (``NoSpaceLeft``) leaves the outcome open.
            Unavailable, Unauthorized: nothing was sent, or the cluster refused it and did nothing.
        """

        def call(connection: MemberConnection, token: str, share: Deadline) -> TxnResult:
            connection.wait_until_connected(timeout_s=share.remaining_s)
            # Wait for the reply until the caller's deadline: no other member may be tried any more.
            try:
                return connection.txn(txn, token=token, timeout_s=deadline.remaining_s)
            except CallFailed as error:
                if error.failure not in _NOT_SENT:
                    raise
                # The connection was there before, so its loss does not prove that nothing was sent.
                raise CallFailed(CallFailure.NO_REPLY, error.text) from error

        return self._call(call, deadline, self._closing, final=_OUTCOME_UNKNOWN)

    def compact(self, revision: int, *, deadline: Deadline) -> None:
        """Forget what was before a revision.

        Raises:
            RevisionUnavailable: that is done already.
            Unavailable, Unauthorized: no member answers in time, or the user may not.
        """

        def call(connection: MemberConnection, token: str, share: Deadline) -> None:
            connection.compact(revision, token=token, timeout_s=share.remaining_s)

        self._call(call, deadline, self._closing)

    def watch(
        self, starts: Sequence[WatchStart], interruption: Interruption, *, deadline: Deadline, closing: Event
    ) -> Iterator[WatchBatch]:
        """Changes in some ranges, until the deadline, the interruption, or the loss of the connection to the member.

        Raises:
            ClientClosed: ``closing`` is set, which the caller took from the client before.
            RevisionUnavailable: a start's revision has been compacted, or the store has never reached it.
            Unavailable, Unauthorized: no member is reachable, or the user may not read.
        """
        watched: list[EtcdEndpoint] = []

        def call(connection: MemberConnection, token: str, share: Deadline) -> Iterator[WatchBatch]:
            connection.wait_until_connected(timeout_s=share.remaining_s)
            watched[:] = [connection.endpoint]
            return connection.watch(starts, interruption, token=token, timeout_s=deadline.remaining_s)

        stream = self._call(call, deadline, closing)
        try:
            yield from stream
        except CallFailed as error:
            if error.failure is CallFailure.UNAUTHENTICATED and self._credentials.user:
                self._token = None  # it has expired; the next watch logs in again
            elif not deadline.has_passed:  # after the deadline this is the normal end of a watch
                self._raise_if_final(error, watched[0], closing, _NO_FAILURE)

    def _call(
        self, call: _Call[T], deadline: Deadline, closing: Event, *, final: frozenset[CallFailure] = _NO_FAILURE
    ) -> T:
        """The result of the first member that serves the call; after a ``final`` failure no other member is tried."""
        started, pause_s = self._clock.monotonic(), _MIN_RETRY_DELAY_S
        failures: dict[EtcdEndpoint, CallFailed] = {}  # the last of each
        while True:
            order = self._members_in_order(deadline)
            for position, endpoint in enumerate(order):
                if deadline.has_passed:
                    break
                # While members elect a leader, the last one asked may be the one that hangs: leave time for a round.
                shares = len(order) - position
                if failures:
                    shares += any(each.failure in _NOT_YET for each in failures.values())
                share = deadline.capped(deadline.remaining_s / shares)
                try:
                    return self._call_member(endpoint, call, share, closing)
                except CallFailed as error:
                    self._raise_if_final(error, endpoint, closing, final)
                    failures[endpoint] = error
            waited_s = self._clock.monotonic() - started
            # Without time for another round, report the reasons of this one.
            if deadline.remaining_s < 2 * pause_s or _is_permanent(failures.values(), waited_s):
                raise _error_of_failures(failures)
            self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_RETRY_DELAY_S)

    def _members_in_order(self, deadline: Deadline) -> Sequence[EtcdEndpoint]:
        """The members; those that failed recently come last, the latest failure at the end."""
        if not self._endpoints:
            self._find_members(deadline)
        failed_at = dict(self._failed_at)
        if not failed_at:
            return self._endpoints
        backoff_start = self._clock.monotonic() - _MEMBER_BACKOFF_S
        return sorted(self._endpoints, key=lambda endpoint: max(backoff_start, failed_at.get(endpoint, backoff_start)))

    def _find_members(self, deadline: Deadline) -> None:
        """Look the members up, unless another call has done so meanwhile."""
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
            # The token has expired, or users were changed. The check comes first, so nothing was done.
            token = self._get_token(connection, share, expired=token)
            result = call(connection, token, share)
        self._failed_at.pop(endpoint, None)
        return result

    def _check_host(self, endpoint: EtcdEndpoint, share: Deadline) -> None:
        """Require that the endpoint's name has an address, or had one when it was last used."""
        if not endpoint.has_name or endpoint in self._resolved:
            return
        try:
            resolve(endpoint.host, endpoint.port, share)
        except OSError as error:
            text = f"no address of {endpoint.host} is known: {error.strerror or error}"
            raise CallFailed(CallFailure.UNREACHABLE, text) from error
        self._resolved.add(endpoint)

    def _get_token(self, connection: MemberConnection, share: Deadline, *, expired: str | None = None) -> str:
        """The token for calls; empty if none is needed."""
        user, token = self._credentials.user, self._token
        if not user:
            return ""
        if token is not None and token != expired:
            return token
        try:
            token = connection.log_in(user, self._credentials.password, timeout_s=share.remaining_s)
        except CallFailed as error:
            if error.failure is not CallFailure.AUTH_NOT_ENABLED:
                # Whatever the login's outcome is, the call itself was not sent.
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
            # A retired connection ends with the last call that uses it.
            if self._retired:
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
        """Raise the error for a failure after which no other member may be tried; otherwise return."""
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
        if error.failure is CallFailure.UNREACHABLE:  # every other failure came over a connection
            self._resolved.discard(endpoint)
        if error.failure in final:
            raise OutcomeUnknown("etcd", text) from error


def _is_permanent(failures: Iterable[CallFailed], waited_s: float) -> bool:
    """Whether another round over the members would fail in the same way."""
    kinds = {error.failure for error in failures}
    return kinds <= _TLS_FAILURES or (kinds <= _NO_MEMBER | _TLS_FAILURES and waited_s > _MAX_SEARCH_S)


def _error_of_failures(failures: Mapping[EtcdEndpoint, CallFailed]) -> Unavailable:
    texts = [f"{endpoint}: {error.text}" for endpoint, error in failures.items()]
    is_refused = any(error.failure is CallFailure.CLIENT_NOT_TRUSTED for error in failures.values())
    error_type = Unauthorized if is_refused else Unavailable
    return error_type("etcd", "; ".join(texts) or "the deadline passed before it could be asked")
