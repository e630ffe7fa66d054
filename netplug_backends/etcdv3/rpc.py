"""One member of an etcd cluster over gRPC: transactions, logins and watches. Nothing is retried here.

This is the only module that imports grpc and etcd3. It uses etcd3's stubs; ``messages`` replaces its generated code.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from threading import Event, Thread, Timer
from typing import Any, assert_never
from urllib.parse import quote, unquote

from netplug_backends.etcdv3 import messages
from netplug_backends.etcdv3.operations import (
    CallFailed,
    CallFailure,
    Compare,
    DeleteKey,
    Interruption,
    KeyEvent,
    KeyRange,
    KeyValue,
    ModRevisionIs,
    NoneModifiedSince,
    Put,
    RangeRead,
    RangeResult,
    Txn,
    TxnResult,
    WatchBatch,
    WatchStart,
    classify,
    find_failure,
)
from netplug_backends.etcdv3.tls import TlsMaterial, find_system_roots
from netplug_core.clock import Clock, Deadline
from netplug_core.settings.model import EtcdEndpoint

# gRPC reads this variable when it is loaded. By default it writes every failed handshake to standard error, which a
# CNI runtime reads. The error of the call has the same text.
_HAS_VERBOSITY = "GRPC_VERBOSITY" in os.environ
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc  # noqa: E402  # only now may it be loaded

if not _HAS_VERBOSITY:
    del os.environ["GRPC_VERBOSITY"]

# The generated module of etcd3 0.12 does not load with current protobuf, so etcd3 finds this one in its place.
sys.modules.setdefault("etcd3.etcdrpc.rpc_pb2", messages.generated_module("etcd3.etcdrpc.rpc_pb2"))
from etcd3.etcdrpc import KVStub, WatchStub  # noqa: E402  # only now can it be imported

__all__ = ["MemberConnection"]

# How a TLS server ends a plain connection: in the second case there was data that it had not read.
_CONNECTION_CLOSED = re.compile(r"Socket closed|Connection reset by peer")

_CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),  # pings keep a silent watch open
    ("grpc.min_reconnect_backoff_ms", 10_000),  # how long one attempt to connect may last
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),  # find a member that restarts soon
    ("grpc.max_receive_message_length", -1),  # a reply that is dropped for its size would be a lost reply
    ("grpc.service_config_disable_resolution", 1),  # no lookup of TXT records
    ("grpc.enable_http_proxy", 0),  # connect directly, whatever proxy the environment names
    ("grpc.use_local_subchannel_pool", 1),  # channels with different certificates never share a connection
)

# A member without a leader refuses a call with this header at once.
_NEEDS_LEADER = ("hasleader", "true")
_RECENT_S = 1.0
_LONG_AGO = float("-inf")

# After a request for a channel's state, a thread of gRPC's uses the channel for about this long. If the channel is
# closed meanwhile, that thread writes a traceback to standard error.
_STATE_WATCH_S = 0.5

# gRPC closes a channel when all calls have ended. One that Ctrl-C interrupted while it began never ends.
_CLOSE_S = 1.0


_MESSAGE = messages.CLASSES
_COMPARE = _MESSAGE["Compare"]
_DELETE_EVENT = 1  # an event's type


class MemberConnection:
    """The channel to one member, for any number of threads."""

    def __init__(self, endpoint: EtcdEndpoint, material: TlsMaterial, *, clock: Clock) -> None:
        self.endpoint = endpoint
        self._clock = clock
        self._channel = _channel(endpoint, material)
        self._kv = KVStub(self._channel)
        self._watch = WatchStub(self._channel)
        self._answered_at = _LONG_AGO
        self._state_asked_at = _LONG_AGO
        self._is_closed = False

    def close(self) -> None:
        """End every call and the connection: at once, or shortly after the last request for its state."""
        self._is_closed = True
        if self._clock.monotonic() - self._state_asked_at > _STATE_WATCH_S:
            closing = Thread(target=self._channel.close, daemon=True)
            closing.start()
            closing.join(_CLOSE_S)
            return
        later = Timer(_STATE_WATCH_S, self.close)
        later.daemon = True  # it must not keep the process alive
        later.start()

    def wait_until_connected(self, *, timeout_s: float) -> None:
        """Return once there is a connection.

        Raises:
            CallFailed: ``UNREACHABLE``, ``SERVER_NOT_TRUSTED`` or ``CLIENT_NOT_TRUSTED``, with the reason.
        """
        if self._clock.monotonic() - self._answered_at < _RECENT_S:
            return
        started = self._clock.monotonic()
        state = self._wait_for_state(timeout_s)
        if state is grpc.ChannelConnectivity.READY:
            return
        if state is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            raise CallFailed(CallFailure.UNREACHABLE, f"no answer within {timeout_s:.1f} s")
        # A channel's state has no reason. An empty transaction fails with the reason, and changes nothing.
        left_s = max(0.0, timeout_s - (self._clock.monotonic() - started))
        try:
            self.txn(Txn(), token="", timeout_s=left_s)
        except CallFailed as error:
            if error.failure is CallFailure.NO_REPLY:
                raise CallFailed(CallFailure.UNREACHABLE, error.text) from error
            if error.failure in (
                CallFailure.UNREACHABLE,
                CallFailure.SERVER_NOT_TRUSTED,
                CallFailure.CLIENT_NOT_TRUSTED,
            ):
                raise

    def txn(self, txn: Txn, *, token: str, timeout_s: float) -> TxnResult:
        """One transaction.

        Raises:
            CallFailed: there is no reply.
        """
        request = _MESSAGE["TxnRequest"](
            compare=map(_compare, txn.compares),
            success=map(_operation, txn.success),
            failure=map(_operation, txn.failure),
        )
        reply = self._answer(lambda: self._kv.Txn(request, timeout=timeout_s, metadata=_metadata(token)), timeout_s)
        found = (each.response_range for each in reply.responses if each.HasField("response_range"))
        return TxnResult(reply.succeeded, reply.header.revision, tuple(map(_range_result, found)))

    def compact(self, revision: int, *, token: str, timeout_s: float) -> None:
        """Forget what was before a revision.

        Raises:
            CallFailed: there is no reply; ``COMPACTED`` if that is done already.
        """
        request = _MESSAGE["CompactionRequest"](revision=revision)
        self._answer(lambda: self._kv.Compact(request, timeout=timeout_s, metadata=_metadata(token)), timeout_s)

    def log_in(self, user: str, password: str, *, timeout_s: float) -> str:
        """A token for the user, for later calls.

        Raises:
            CallFailed: there is no reply; ``PERMISSION_DENIED`` if the password is wrong.
        """
        request = _MESSAGE["AuthenticateRequest"](name=user, password=password)
        # etcd3's stub for this service needs thirty more message types.
        call = self._channel.unary_unary(
            "/etcdserverpb.Auth/Authenticate",
            request_serializer=_MESSAGE["AuthenticateRequest"].SerializeToString,
            response_deserializer=_MESSAGE["AuthenticateResponse"].FromString,
        )
        token: str = self._answer(lambda: call(request, timeout=timeout_s, metadata=(_NEEDS_LEADER,)), timeout_s).token
        return token

    def watch(
        self, starts: Sequence[WatchStart], interruption: Interruption, *, token: str, timeout_s: float
    ) -> Iterator[WatchBatch]:
        """Changes as they happen, until the stream ends or is interrupted; closing the iterator ends it.

        Raises:
            CallFailed: the stream ended; ``COMPACTED`` if a start's revision has been compacted, ``FUTURE_REVISION`` if
            the store has never reached it.
        """
        ends = Deadline.after(self._clock, timeout_s)
        requests = [_watch_request(start) for start in starts]
        try:
            stream = self._watch.Watch(iter(requests), timeout=timeout_s, metadata=_metadata(token))
        except ValueError as error:  # the channel was closed meanwhile
            raise CallFailed(CallFailure.UNREACHABLE, str(error)) from error
        indexes: dict[
            int, int
        ] = {}  # by the member's watch id; the member creates watches in the order of the requests
        interruption.watch_begun(stream.cancel)
        try:
            for message in stream:
                self._answered_at = self._clock.monotonic()
                _refuse_cancelled(message)
                if message.created:
                    self._refuse_future_revision(starts[len(indexes)], message.header.revision, token, ends)
                    indexes[message.watch_id] = len(indexes)
                else:
                    yield WatchBatch(indexes[message.watch_id], tuple(map(_key_event, message.events)))
            raise CallFailed(CallFailure.NO_REPLY, "the member ended the watch")
        except grpc.RpcError as error:
            if interruption.is_asked:
                return
            raise self._failure_of(error, timeout_s) from error
        finally:
            stream.cancel()

    def _refuse_future_revision(self, start: WatchStart, revision: int, token: str, deadline: Deadline) -> None:
        """Refuse a watch from a revision that the store has never reached: it would be silent until then."""
        after = start.revision - 1
        if revision >= after:
            return
        # This member may lag behind the others. A read of a key, unlike an empty transaction, waits for them.
        probe = Txn(success=(RangeRead(key_range=KeyRange(start.key_range.start)),))
        reached = self.txn(probe, token=token, timeout_s=deadline.remaining_s).revision
        if reached < after:
            raise CallFailed(
                CallFailure.FUTURE_REVISION,
                f"the store is at revision {reached}, and changes after {after} are asked for",
            )

    def _wait_for_state(self, timeout_s: float) -> object:
        """Wait until the channel is ready or has failed; its last state."""
        settled = Event()
        states: list[object] = [None]

        def note(state: object) -> None:
            states.append(state)
            if state in (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE):
                settled.set()

        self._state_asked_at = float("inf")
        try:
            if self._is_closed:
                raise CallFailed(CallFailure.UNREACHABLE, "the connection was closed")
            self._channel.subscribe(note, try_to_connect=True)
            settled.wait(timeout_s)
        finally:
            self._channel.unsubscribe(note)
            self._state_asked_at = self._clock.monotonic()
        return states[-1]

    def _answer(self, call: Callable[[], Any], timeout_s: float) -> Any:  # noqa: ANN401  # a message of protobuf's
        try:
            reply = call()
        except grpc.RpcError as error:
            raise self._failure_of(error, timeout_s) from error
        except ValueError as error:  # grpc raises it if the channel was closed meanwhile
            raise CallFailed(CallFailure.UNREACHABLE, str(error)) from error
        self._answered_at = self._clock.monotonic()
        return reply

    def _failure_of(self, error: grpc.RpcError, timeout_s: float) -> CallFailed:
        failed = _failure_of_error(error, timeout_s)
        has_answered = self._answered_at != _LONG_AGO
        if self.endpoint.is_secure or has_answered or not _CONNECTION_CLOSED.search(failed.text):
            return failed
        return CallFailed(failed.failure, f"{failed.text}; does the server speak TLS? Then write https")


def _channel(endpoint: EtcdEndpoint, material: TlsMaterial) -> Any:  # noqa: ANN401  # grpc has no types
    # With its scheme, because gRPC takes a host named ``unix`` or ``dns`` for a scheme. A zone may be quoted already.
    target = f"dns:///{quote(unquote(endpoint.target), safe='[]:')}"
    if not endpoint.is_secure:
        return grpc.insecure_channel(target, options=_CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=material.roots or find_system_roots(),
        private_key=material.key or None,
        certificate_chain=material.certificate or None,
    )
    return grpc.secure_channel(target, credentials, options=_CHANNEL_OPTIONS)


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (_NEEDS_LEADER, ("token", token)) if token else (_NEEDS_LEADER,)


def _compare(compare: Compare) -> object:
    match compare:
        case ModRevisionIs(key, 0):
            return _COMPARE(key=key, target=_COMPARE.CREATE, result=_COMPARE.EQUAL, create_revision=0)
        case ModRevisionIs(key, revision):
            return _COMPARE(key=key, target=_COMPARE.MOD, result=_COMPARE.EQUAL, mod_revision=revision)
        case NoneModifiedSince(key_range, revision):
            return _COMPARE(
                key=key_range.start,
                range_end=key_range.end,
                target=_COMPARE.MOD,
                result=_COMPARE.LESS,
                mod_revision=revision + 1,
            )
        case _:
            assert_never(compare)


def _operation(operation: RangeRead | Put | DeleteKey) -> object:
    kind = _MESSAGE["RequestOp"]
    match operation:
        case RangeRead():
            request = _MESSAGE["RangeRequest"](
                key=operation.key_range.start,
                range_end=operation.key_range.end,
                limit=operation.limit,
                revision=operation.revision,
                min_mod_revision=operation.min_mod_revision,
            )
            return kind(request_range=request)
        case Put(key, value):
            return kind(request_put=_MESSAGE["PutRequest"](key=key, value=value))
        case DeleteKey(key):
            return kind(request_delete_range=_MESSAGE["DeleteRangeRequest"](key=key))
        case _:
            assert_never(operation)


def _range_result(response: Any) -> RangeResult:  # noqa: ANN401  # a message of protobuf's
    found = tuple(KeyValue(kv.key, kv.value, kv.mod_revision) for kv in response.kvs)
    return RangeResult(found, response.more, response.count - len(found) if response.more else 0)


def _watch_request(start: WatchStart) -> object:
    create = _MESSAGE["WatchCreateRequest"](
        key=start.key_range.start, range_end=start.key_range.end, start_revision=start.revision
    )
    return _MESSAGE["WatchRequest"](create_request=create)


def _key_event(event: Any) -> KeyEvent:  # noqa: ANN401  # a message of protobuf's
    value = None if event.type == _DELETE_EVENT else event.kv.value
    return KeyEvent(event.kv.key, value, event.kv.mod_revision)


def _refuse_cancelled(message: Any) -> None:  # noqa: ANN401  # a message of protobuf's
    if message.compact_revision:
        raise CallFailed(CallFailure.COMPACTED, f"revisions before {message.compact_revision} are no longer kept")
    if message.canceled:
        text = message.cancel_reason or "the member ended the watch"
        raise CallFailed(find_failure(text) or CallFailure.NO_REPLY, text)


def _failure_of_error(error: grpc.RpcError, timeout_s: float) -> CallFailed:
    status, text = error.code(), error.details() or ""
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return CallFailed(CallFailure.NO_REPLY, f"no answer within {timeout_s:.1f} s")
    return classify(status.name, text)
