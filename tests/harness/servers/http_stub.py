"""An API server that answers, or fails to answer, as a test's script says. On loopback, in plain HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias

from attrs import define, field, frozen

__all__ = [
    "CloseConnection",
    "HTTPStubServer",
    "NeverReply",
    "ReceivedRequest",
    "SendReply",
    "SendReplyAndClose",
    "SendSlowly",
    "SendStream",
    "StubAction",
    "StubScript",
    "open_http_stub",
]


@frozen
class ReceivedRequest:
    """A request as it arrived."""

    method: str
    path: str
    host: str
    authorization: str
    body: object


@frozen
class SendReply:
    """Answer, with so many seconds between the head and the body."""

    status: int
    body: object = None
    headers: tuple[tuple[str, str], ...] = ()
    pause_s: float = 0.0


@frozen
class SendReplyAndClose:
    """Answer, and close the connection though the answer said nothing of that."""

    reply: SendReply


@frozen
class SendStream:
    """Send lines, then end the stream; ``is_cut`` breaks the connection in the middle of the next one."""

    events: Sequence[object]
    is_cut: bool = False


@frozen
class NeverReply:
    """Never answer."""


@frozen
class CloseConnection:
    """Close the connection without a word."""


@frozen
class SendSlowly:
    """Send the answer so slowly that it never ends."""


StubAction: TypeAlias = SendReply | SendReplyAndClose | SendStream | NeverReply | CloseConnection | SendSlowly
StubScript: TypeAlias = Callable[[ReceivedRequest], StubAction]


@define
class HTTPStubServer:
    """The server, the requests that it received, their connections and how many it has closed, and its script."""

    url: str
    script: StubScript
    requests: list[ReceivedRequest] = field(factory=list)
    client_addresses: list[object] = field(factory=list)
    closed: int = 0
    stopping: threading.Event = field(factory=threading.Event)

    @property
    def calls(self) -> list[str]:
        """Method and path of each request."""
        return [f"{received.method} {received.path}" for received in self.requests]


class _Handler(BaseHTTPRequestHandler):
    """One connection: each request is recorded and answered."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body is not kept back until its head has been acknowledged
    stub: HTTPStubServer

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        said = self.headers
        received = ReceivedRequest(self.command, self.path, said.get("Host", ""), said.get("Authorization", ""), body)
        self.stub.requests.append(received)
        if self.client_address not in self.stub.client_addresses:
            self.stub.client_addresses.append(self.client_address)
        with suppress(OSError):  # the client may have gone
            self.perform(self.stub.script(received))

    def perform(self, act: StubAction) -> None:
        if isinstance(act, SendReply):
            self.send_reply(act)
            return
        self.close_connection = True
        if isinstance(act, SendReplyAndClose):
            self.send_reply(act.reply)
        elif isinstance(act, NeverReply):
            self.stub.stopping.wait(30)
        elif isinstance(act, SendSlowly):
            self.send_slowly()
        elif isinstance(act, SendStream):
            self.send_stream(act)

    def send_reply(self, act: SendReply) -> None:
        data = act.body.encode() if isinstance(act.body, str) else json.dumps(act.body or {}).encode()
        self.send_response(act.status)
        self.send_header("Content-Length", str(len(data)))
        for name, text in act.headers:
            self.send_header(name, text)
        self.end_headers()
        time.sleep(act.pause_s)
        self.wfile.write(data)

    def send_stream(self, act: SendStream) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in act.events:
            self.send_chunk(json.dumps(event).encode() + b"\n")
        if act.is_cut:
            self.send_chunk(b'{"type":"ADD')
        else:
            self.wfile.write(b"0\r\n\r\n")

    def send_chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def send_slowly(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not self.stub.stopping.is_set():
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.05)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's own name for it
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    stub: HTTPStubServer

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        super().shutdown_request(request)
        self.stub.closed += 1


class _Server6(_Server):
    address_family = socket.AF_INET6


@contextmanager
def open_http_stub(script: StubScript, host: str = "127.0.0.1") -> Iterator[HTTPStubServer]:
    """A server that follows a script."""
    handler: type[_Handler] = type("Handler", (_Handler,), {})
    server = (_Server6 if ":" in host else _Server)((host, 0), handler)
    name = f"[{host}]" if ":" in host else host
    stub = server.stub = handler.stub = HTTPStubServer(f"http://{name}:{server.server_port}", script)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        stub.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()
