"""One member of an etcd cluster over gRPC: a transaction, a login, a watch. Nothing here tries twice.

The only module that imports grpc and etcd3, and so the only one to touch when either is replaced. Of etcd3 it takes
the stubs; ``messages`` stands in for its generated code.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from threading import Event, Timer
from typing import Any, assert_never
from urllib.parse import quote, unquote

from netplug_backends.etcdv3 import messages
from netplug_backends.etcdv3.endpoints import EtcdEndpoint
from netplug_backends.etcdv3.operations import (
    CallFailed,
    CallFailure,
    Compare,
    DeleteKey,
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
)
from netplug_backends.etcdv3.tls import TlsMaterial, find_system_roots
from netplug_core.clock import Clock, Deadline

# What gRPC's core writes to standard error is decided when it is loaded: by default every failed handshake, over and
# over, where a CNI runtime reads. The failure of the call says it once.
_HAS_VERBOSITY = "GRPC_VERBOSITY" in os.environ
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc  # noqa: E402  # only now may it be loaded

if not _HAS_VERBOSITY:
    del os.environ["GRPC_VERBOSITY"]

# etcd3 0.12 finds its generated module, which loads on no protobuf of today, already loaded.
sys.modules.setdefault("etcd3.etcdrpc.rpc_pb2", messages.generated_module("etcd3.etcdrpc.rpc_pb2"))
from etcd3.etcdrpc import KVStub, WatchStub  # noqa: E402  # only now can it be imported

__all__ = ["MemberConnection"]

# What etcd says, where the status alone does not tell.
_FAILURE_BY_TEXT = {
    "etcdserver: no leader": CallFailure.MEMBER_NOT_SERVING,
    "etcdserver: too many requests": CallFailure.MEMBER_NOT_SERVING,
    "etcdserver: rpc not supported for learner": CallFailure.MEMBER_NOT_SERVING,
    "etcdserver: user name is empty": CallFailure.UNAUTHENTICATED,
    "etcdserver: revision of auth store is old": CallFailure.UNAUTHENTICATED,
    "etcdserver: authentication failed": CallFailure.PERMISSION_DENIED,
    "auth: authentication failed": CallFailure.PERMISSION_DENIED,  # as of a user who has no password
    "etcdserver: permission denied": CallFailure.PERMISSION_DENIED,
    "etcdserver: authentication is not enabled": CallFailure.AUTH_NOT_ENABLED,
    "etcdserver: mvcc: required revision has been compacted": CallFailure.COMPACTED,
    # Not told by its status: transports end streams with that one too.
    "etcdserver: mvcc: database space exceeded": CallFailure.NO_SPACE,
    "grpc: received message larger than max": CallFailure.REJECTED,
}
_FAILURE_BY_STATUS = {
    grpc.StatusCode.UNAUTHENTICATED: CallFailure.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED: CallFailure.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT: CallFailure.REJECTED,
    grpc.StatusCode.FAILED_PRECONDITION: CallFailure.REJECTED,
    grpc.StatusCode.OUT_OF_RANGE: CallFailure.REJECTED,
    grpc.StatusCode.NOT_FOUND: CallFailure.REJECTED,
    grpc.StatusCode.UNIMPLEMENTED: CallFailure.REJECTED,
}

# How a handshake fails: OpenSSL's words, and ours.
_HANDSHAKE_FAILURES = (
    (
        re.compile(r"CERTIFICATE_VERIFY_FAILED(?:: ([^:]+))?"),
        CallFailure.SERVER_NOT_TRUSTED,
        "the server's certificate is not trusted: {0}",
    ),
    (
        re.compile(r"Hostname Verification Check failed|is not in peer certificate"),
        CallFailure.SERVER_NOT_TRUSTED,
        "the server's certificate is not trusted: it is not for this address",
    ),
    (
        re.compile(r"(?:TLSV1|SSLV3)_ALERT_(\w+)"),
        CallFailure.CLIENT_NOT_TRUSTED,
        "the server does not accept the client's certificate, or its absence: {0}",
    ),
    (
        # Since TLS 1.3 the server judges when the client thinks that all is well; what comes then is only garbled.
        re.compile(r"Unwrap failed"),
        CallFailure.CLIENT_NOT_TRUSTED,
        "the server does not accept the client's certificate, or its absence",
    ),
    (
        re.compile(r"WRONG_VERSION_NUMBER|Handshake read failed"),
        CallFailure.UNREACHABLE,
        "the TLS handshake was not answered; does the server speak TLS?",
    ),
)

# How a server ends a connection that does not begin with the handshake it expects: there is no more to read, or there
# was still something that it did not want to read.
_CONNECTION_CLOSED = re.compile(r"Socket closed|Connection reset by peer")

# The status and the address that gRPC puts before what went wrong with a connection.
_PREFIX = re.compile(r"^[A-Z_]+: ipv[46]:\S+ ")

_CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),  # a quiet watch lives on pings
    ("grpc.min_reconnect_backoff_ms", 10_000),  # for how long one attempt to connect may last
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),  # a member that is back is to be found soon
    ("grpc.max_receive_message_length", -1),  # a reply that is dropped for its size would be a lost one
    ("grpc.service_config_disable_resolution", 1),  # no TXT records looked up beside an address
    ("grpc.enable_http_proxy", 0),  # the store is reached directly, whatever a shell's environment says
    ("grpc.use_local_subchannel_pool", 1),  # two channels never share a connection made with other certificates
)

# A member that is cut off from the others says so instead of letting a call wait.
_NEEDS_LEADER = ("hasleader", "true")
_RECENT_S = 1.0
_LONG_AGO = float("-inf")

# For so long, and some more, gRPC's own thread looks at a channel after it was asked for its state. Where the channel
# is closed under it, it shows a traceback to whoever reads standard error.
_STATE_WATCH_S = 0.5


_MESSAGE = messages.CLASSES
_COMPARE = _MESSAGE["Compare"]
_DELETE_EVENT = 1  # the type of an event


class MemberConnection:
    """The channel to one member. Its calls may come from several threads."""

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
        """End every call, and the connection: at once, or soon where somebody has just asked for its state."""
        self._is_closed = True
        if self._clock.monotonic() - self._state_asked_at > _STATE_WATCH_S:
            self._channel.close()
            return
        later = Timer(_STATE_WATCH_S, self.close)
        later.daemon = True  # where the process ends, so do connections
        later.start()

    def wait_until_connected(self, *, timeout_s: float) -> None:
        """Return once there is a connection.

        Raises:
            CallFailed: ``UNREACHABLE``, ``SERVER_NOT_TRUSTED`` or ``CLIENT_NOT_TRUSTED``, with what stands in the way.
        """
        if self._clock.monotonic() - self._answered_at < _RECENT_S:
            return
        started = self._clock.monotonic()
        state = self._wait_for_state(timeout_s)
        if state is grpc.ChannelConnectivity.READY:
            return
        if state is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            raise CallFailed(CallFailure.UNREACHABLE, f"no answer within {timeout_s:.1f} s")
        # The state of a channel does not say why; an empty transaction does, and whoever gets it has lost nothing.
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
            CallFailed: it has no reply.
        """
        request = _MESSAGE["TxnRequest"](
            compare=map(_compare, txn.compares),
            success=map(_operation, txn.success),
            failure=map(_operation, txn.failure),
        )
        reply = self._answer(lambda: self._kv.Txn(request, timeout=timeout_s, metadata=_metadata(token)), timeout_s)
        found = (each.response_range for each in reply.responses if each.HasField("response_range"))
        return TxnResult(reply.succeeded, reply.header.revision, tuple(map(_range_result, found)))

    def log_in(self, user: str, password: str, *, timeout_s: float) -> str:
        """A token for the user, which calls then carry.

        Raises:
            CallFailed: it has no reply; ``DENIED`` when the password is wrong.
        """
        request = _MESSAGE["AuthenticateRequest"](name=user, password=password)
        # The library's stub for this service would want thirty more kinds of message.
        call = self._channel.unary_unary(
            "/etcdserverpb.Auth/Authenticate",
            request_serializer=_MESSAGE["AuthenticateRequest"].SerializeToString,
            response_deserializer=_MESSAGE["AuthenticateResponse"].FromString,
        )
        token: str = self._answer(lambda: call(request, timeout=timeout_s, metadata=(_NEEDS_LEADER,)), timeout_s).token
        return token

    def watch(self, starts: Sequence[WatchStart], *, token: str, timeout_s: float) -> Iterator[WatchBatch]:
        """What changes, as it does, until the stream ends; closing the iterator ends it.

        Raises:
            CallFailed: it ended; ``COMPACTED`` when a revision is no longer kept, ``FUTURE_REVISION`` when none came
            so far.
        """
        ends = Deadline.after(self._clock, timeout_s)
        requests = [_watch_request(start) for start in starts]
        try:
            stream = self._watch.Watch(iter(requests), timeout=timeout_s, metadata=_metadata(token))
        except ValueError as error:  # as of a call
            raise CallFailed(CallFailure.UNREACHABLE, str(error)) from error
        indexes: dict[int, int] = {}  # the member's number of each watch; it begins them in the order of the requests
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
            raise self._failure_of(error, timeout_s) from error
        finally:
            stream.cancel()

    def _refuse_future_revision(self, start: WatchStart, revision: int, token: str, deadline: Deadline) -> None:
        """Refuse a watch from what the store never reached: it would be silent until the store comes so far."""
        after = start.revision - 1
        if revision >= after:
            return
        # This member may only lag behind the others. A read of a key, unlike an empty transaction, waits for them.
        asked = Txn(success=(RangeRead(key_range=KeyRange(start.key_range.start)),))
        reached = self.txn(asked, token=token, timeout_s=deadline.remaining_s).revision
        if reached < after:
            raise CallFailed(
                CallFailure.FUTURE_REVISION,
                f"the store is at revision {reached}, and changes after {after} are asked for",
            )

    def _wait_for_state(self, timeout_s: float) -> object:
        """Whether the channel comes up or fails in time: its last state."""
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
        except ValueError as error:  # what grpc says of a channel that was closed meanwhile
            raise CallFailed(CallFailure.UNREACHABLE, str(error)) from error
        self._answered_at = self._clock.monotonic()
        return reply

    def _failure_of(self, error: grpc.RpcError, timeout_s: float) -> CallFailed:
        failed = _classify(error, timeout_s)
        has_answered = self._answered_at != _LONG_AGO
        if self.endpoint.is_secure or has_answered or not _CONNECTION_CLOSED.search(failed.text):
            return failed
        return CallFailed(failed.failure, f"{failed.text}; does the server speak TLS? Then write https")


def _channel(endpoint: EtcdEndpoint, material: TlsMaterial) -> Any:  # noqa: ANN401  # grpc has no types
    # With its scheme: gRPC would take a host of the name ``unix`` or ``dns`` for one. A zone may be quoted already.
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
        case NoneModifiedSince(span, revision):
            return _COMPARE(
                key=span.start,
                range_end=span.end,
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
    return RangeResult(tuple(KeyValue(kv.key, kv.value, kv.mod_revision) for kv in response.kvs), response.more)


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
        raise CallFailed(_find_failure(text) or CallFailure.NO_REPLY, text)


def _classify(error: grpc.RpcError, timeout_s: float) -> CallFailed:
    status, text = error.code(), error.details() or ""
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return CallFailed(CallFailure.NO_REPLY, f"no answer within {timeout_s:.1f} s")
    for pattern, meaning, sentence in _HANDSHAKE_FAILURES:
        found = pattern.search(text)
        if found:
            return CallFailed(meaning, sentence.format(*found.groups("the reason is not told")))
    failure = _find_failure(text) or _FAILURE_BY_STATUS.get(status)
    if failure is None:
        failure = CallFailure.OUTCOME_UNKNOWN if text.startswith("etcdserver:") else CallFailure.NO_REPLY
    return CallFailed(failure, _PREFIX.sub("", text.rpartition("last error: ")[2]) or f"gRPC status {status.name}")


def _find_failure(text: str) -> CallFailure | None:
    return next((failure for beginning, failure in _FAILURE_BY_TEXT.items() if beginning in text), None)
