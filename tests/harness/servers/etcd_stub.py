"""A member of etcd whose answers a test chooses: those that a real one gives too rarely."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import grpc
from attrs import define, field, frozen

from netplug_backends.etcdv3.messages import CLASSES

__all__ = ["EtcdStub", "GrpcRefusal", "answer_late", "open_etcd_stub"]

Message = Any  # a message of protobuf's

_LATE_S = 2.5


@frozen
class GrpcRefusal:
    """A refusal: a status and its text."""

    status: grpc.StatusCode
    text: str


@define
class EtcdStub:
    """What it was sent, and its answers. By default a transaction succeeds at revision 7 and finds nothing."""

    on_txn: Callable[[], Message | GrpcRefusal] = field(factory=lambda: lambda: None)
    on_login: Callable[[], Message | GrpcRefusal] = field(factory=lambda: lambda: None)
    revision: int = 7
    watched_at: int = 7
    txns: list[Message] = field(factory=list)
    metadata: list[dict[str, str]] = field(factory=list)
    logins: list[Message] = field(factory=list)
    url: str = ""
    stopped: Event = field(factory=Event)

    @property
    def writes(self) -> list[Message]:
        """The transactions that would have changed something."""
        return [txn for txn in self.txns if any(not each.HasField("request_range") for each in txn.success)]

    def txn(self, request: Message, context: Any) -> Message:  # noqa: ANN401  # grpc has no types
        self.txns.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        found = [CLASSES["ResponseOp"](response_range=CLASSES["RangeResponse"]()) for _ in request.success]
        usual = CLASSES["TxnResponse"](
            header=CLASSES["ResponseHeader"](revision=self.revision), succeeded=True, responses=found
        )
        return _reply(self.on_txn(), usual, context)

    def log_in(self, request: Message, context: Any) -> Message:  # noqa: ANN401  # grpc has no types
        self.logins.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        return _reply(self.on_login(), CLASSES["AuthenticateResponse"](token="t"), context)  # noqa: S106

    def watch(self, requests: Iterator[Message], context: Any) -> Iterator[Message]:  # noqa: ANN401
        """Begin the watch, send one change at the requested revision, and then nothing until the stream ends."""
        self.metadata.append(dict(context.invocation_metadata()))
        create = next(requests).create_request
        header = CLASSES["ResponseHeader"](revision=self.watched_at)
        yield CLASSES["WatchResponse"](header=header, created=True)
        kv = CLASSES["KeyValue"](key=create.key + b"main", value=b'"a"', mod_revision=create.start_revision)
        yield CLASSES["WatchResponse"](header=header, events=[CLASSES["Event"](kv=kv)])
        while context.is_active() and not self.stopped.wait(0.02):
            pass


def answer_late() -> None:
    """Answer after more than a second."""
    Event().wait(_LATE_S)


def _reply(answer: Message | GrpcRefusal, usual: Message, context: Any) -> Message:  # noqa: ANN401  # grpc has no types
    if isinstance(answer, GrpcRefusal):
        context.abort(answer.status, answer.text)
    return answer or usual


@contextmanager
def open_etcd_stub(
    on_txn: Callable[[], Message | GrpcRefusal] = lambda: None,
    on_login: Callable[[], Message | GrpcRefusal] = lambda: None,
) -> Iterator[EtcdStub]:
    """A member on loopback."""
    stub = EtcdStub(on_txn, on_login)
    server = grpc.server(ThreadPoolExecutor(8))
    for service, method, handler in (
        ("KV", "Txn", _unary(stub.txn, "Txn")),
        ("Auth", "Authenticate", _unary(stub.log_in, "Authenticate")),
        (
            "Watch",
            "Watch",
            grpc.stream_stream_rpc_method_handler(
                stub.watch, CLASSES["WatchRequest"].FromString, CLASSES["WatchResponse"].SerializeToString
            ),
        ),
    ):
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(f"etcdserverpb.{service}", {method: handler}),)
        )
    stub.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield stub
    finally:
        stub.stopped.set()
        server.stop(None)


def _unary(behaviour: Callable[[Message, Any], Message], name: str) -> Any:  # noqa: ANN401  # grpc has no types
    return grpc.unary_unary_rpc_method_handler(
        behaviour, CLASSES[f"{name}Request"].FromString, CLASSES[f"{name}Response"].SerializeToString
    )
