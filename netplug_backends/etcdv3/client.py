"""The cluster: each call goes to a member that answers, in time, as often as that is safe and no more.

A read may be asked of one member after another. A write goes to another one only when it was provably not sent, or
refused before anything was done; when its reply is lost the outcome is unknown, and that is what the caller is told.
A member that failed rests: it is asked last until it has rested long enough, and then takes its place again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import TypeVar

from attrs import frozen

from netplug_backends.etcdv3.calls import CallFailed, Failure, News, Range, Reply, Txn, WatchFrom
from netplug_backends.etcdv3.endpoints import Endpoint
from netplug_backends.etcdv3.rpc import Connection
from netplug_backends.etcdv3.tls import Credentials, TlsMaterial
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import Unauthorized, Unavailable
from netplug_core.records import OutcomeUnknown

__all__ = ["EtcdClient", "RevisionGone"]

T = TypeVar("T")
_Call = Callable[[Connection, str, Deadline], T]  # with a token, by the member's share of the time

_REST_S = 15.0
# How long a call keeps looking for a member while none is there: one that restarts is back by then, and a pod that is
# taken down while the cluster is gone does not wait for longer.
_PATIENCE_S = 2.0
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.4

_NEVER = frozenset[Failure]()
_UNKNOWN = frozenset((Failure.UNANSWERED, Failure.UNSETTLED))
_NOT_THERE = frozenset((Failure.UNREACHABLE, Failure.UNANSWERED))
# Failures that no waiting changes; another member may have other certificates.
_DISTRUST = frozenset((Failure.UNTRUSTED, Failure.UNWELCOME))
_UNCONNECTED = _DISTRUST | {Failure.UNREACHABLE}
_UNAUTHORIZED = frozenset((Failure.DENIED, Failure.STRANGER))


@frozen
class RevisionGone(Unavailable):
    """The revision that was asked for is no longer kept."""


class EtcdClient:
    """Calls to the members at some addresses.

    The first one to ask is drawn by ``chance`` (a number below the one it is given), so that the nodes of a cluster
    do not all ask the same. Constructing connects to nobody.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        credentials: Credentials,
        *,
        clock: Clock,
        chance: Callable[[int], int] = random.randrange,
    ) -> None:
        first = chance(len(endpoints))
        self.location = ",".join(map(str, endpoints))
        self._endpoints = (*endpoints[first:], *endpoints[:first])
        self._credentials = credentials
        self._clock = clock
        self._lock = Lock()
        self._connections: dict[Endpoint, Connection] = {}
        self._material = TlsMaterial()
        self._failed_at: dict[Endpoint, float] = {}
        self._token: str | None = None  # an empty one where the cluster knows no users

    def close(self) -> None:
        """End every call; a later one would connect again."""
        with self._lock:
            connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    def read(self, ranges: Sequence[Range], *, deadline: Deadline) -> Reply:
        """What some ranges hold, all at one moment.

        Raises:
            RevisionGone: a range asks for a revision that is no longer kept.
            Unavailable, Unauthorized: no member answers in time, or lets us.
        """
        txn = Txn(then=tuple(ranges))

        def call(connection: Connection, token: str, share: Deadline) -> Reply:
            return connection.txn(txn, token=token, timeout_s=share.remaining_s)

        return self._called(call, deadline)

    def write(self, txn: Txn, *, deadline: Deadline) -> Reply:
        """A transaction that may change something.

        Raises:
            OutcomeUnknown: the reply was lost.
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

        return self._called(call, deadline, final=_UNKNOWN)

    def watch(self, starts: Sequence[WatchFrom], *, deadline: Deadline) -> Iterator[News]:
        """What changes in some spans until the deadline, or until the member is lost: then watch on from there.

        Raises:
            RevisionGone: changes after a start are no longer kept.
            Unavailable, Unauthorized: no member is there, or lets us.
        """
        watched: list[Endpoint] = []

        def call(connection: Connection, token: str, share: Deadline) -> Iterator[News]:
            connection.reach(timeout_s=share.remaining_s)
            watched[:] = [connection.endpoint]
            return connection.watch(starts, token=token, timeout_s=deadline.remaining_s)

        stream = self._called(call, deadline)
        try:
            yield from stream
        except CallFailed as error:
            if error.failure is Failure.STRANGER and self._credentials.user:
                self._token = None  # it ran out; the next watch brings a new one
            elif not deadline.has_passed:  # that is how a watch ends, and no fault of the member
                self._judge(error, watched[0], _NEVER)

    def _called(self, call: _Call[T], deadline: Deadline, *, final: frozenset[Failure] = _NEVER) -> T:
        """What the call comes to at the first member that serves it; after a ``final`` failure nobody else is asked."""
        started, pause_s = self._clock.monotonic(), _FIRST_PAUSE_S
        while True:
            failures: dict[Endpoint, CallFailed] = {}
            order = self._order()
            for position, endpoint in enumerate(order):
                if deadline.has_passed:
                    break
                share = deadline.capped(deadline.remaining_s / (len(order) - position))
                try:
                    return self._asked(endpoint, call, share)
                except CallFailed as error:
                    self._judge(error, endpoint, final)
                    failures[endpoint] = error
            self._give_up_after(failures, deadline, self._clock.monotonic() - started)
            self._clock.sleep(min(pause_s, deadline.remaining_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    @staticmethod
    def _give_up_after(failures: Mapping[Endpoint, CallFailed], deadline: Deadline, waited_s: float) -> None:
        """Return if the members may be asked once more."""
        kinds = {error.failure for error in failures.values()}
        is_hopeless = kinds <= _DISTRUST or (kinds <= _NOT_THERE | _DISTRUST and waited_s > _PATIENCE_S)
        if deadline.has_passed or is_hopeless:
            texts = [f"{endpoint}: {error.text}" for endpoint, error in failures.items()]
            refusal = Unauthorized if Failure.UNWELCOME in kinds else Unavailable
            raise refusal("etcd", "; ".join(texts) or "the deadline passed before it could be asked")

    def _order(self) -> Sequence[Endpoint]:
        """The members, those that rest behind the others, the one that failed last behind them all."""
        awake = self._clock.monotonic() - _REST_S
        failed_at = dict(self._failed_at)
        return sorted(self._endpoints, key=lambda endpoint: max(awake, failed_at.get(endpoint, awake)))

    def _asked(self, endpoint: Endpoint, call: _Call[T], share: Deadline) -> T:
        connection = self._connection(endpoint)
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

    def _connection(self, endpoint: Endpoint) -> Connection:
        material = self._credentials.material()
        with self._lock:
            if material is not self._material:
                self._material = material
                self._connections.clear()  # they end with the last call that uses them
            connection = self._connections.get(endpoint)
            if connection is None:
                connection = Connection(endpoint, material, clock=self._clock)
                self._connections[endpoint] = connection
            return connection

    def _judge(self, error: CallFailed, endpoint: Endpoint, final: frozenset[Failure]) -> None:
        """Return if another member may be asked."""
        text = f"{endpoint}: {error.text}"
        if error.failure in _UNAUTHORIZED:
            raise Unauthorized("etcd", text) from error
        if error.failure is Failure.COMPACTED:
            raise RevisionGone("etcd", text) from error
        if error.failure is Failure.REFUSED:
            raise Unavailable("etcd", text) from error
        self._failed_at[endpoint] = self._clock.monotonic()
        if error.failure in final:
            raise OutcomeUnknown("etcd", text) from error
