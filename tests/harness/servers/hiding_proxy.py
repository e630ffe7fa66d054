"""A proxy in front of an API server that answers one client, for some paths, as if nothing was there, or as before.

It speaks plain HTTP, and sends on what it gets as it comes, watches too; or it keeps what a watch says to itself.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from threading import Thread

from attrs import define, field

from tests.harness.servers.kube_apiserver import ADMIN_TOKEN, ApiServer
from tests.harness.waiting import EMERGENCY_STOP_S

__all__ = ["HidingProxy", "open_hiding_proxy"]

_OF_CONNECTION = {"connection", "content-length", "keep-alive", "transfer-encoding"}
_CHUNK = 65_536


@define
class HidingProxy:
    """Paths without queries that are ``hidden`` from those whose ``User-Agent`` begins with ``client``.

    ``asked`` counts its requests for each hidden path. While ``swallows_watches`` is set, watches stay open and say
    nothing: what the server sends is lost. Lists at the ``frozen`` paths are answered as they were then, as by a server
    that has heard of nothing since; ``asked`` counts them too.
    """

    server: ApiServer
    client: str
    port: int = 0
    hidden: set[str] = field(factory=set)
    frozen: dict[str, bytes] = field(factory=dict)
    asked: Counter[str] = field(factory=Counter)
    swallows_watches: bool = False

    def write_kubeconfig(self) -> str:
        """A file that leads to the proxy."""
        path = self.server.folder / "hiding-proxy"
        kubeconfig = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "test", "user": {"token": ADMIN_TOKEN}}],
        }
        path.write_text(json.dumps(kubeconfig))
        return str(path)

    def freeze(self, path: str) -> None:
        """Answer a list from now on as it is now."""
        self.frozen[path] = json.dumps(self.server.get(path)).encode()

    def find_frozen(self, command: str, path: str, client: str) -> bytes | None:
        """The answer to a list that is frozen; None: the server answers."""
        plain, _, query = path.partition("?")
        found = self.frozen.get(plain)
        if found is None or command != "GET" or "watch=" in query or not client.startswith(self.client):
            return None
        self.asked[plain] += 1
        return found

    def is_hidden(self, path: str, client: str) -> bool:
        """Whether a request is for a hidden path and from the client that it is hidden from; it is counted then."""
        found = path.partition("?")[0]
        if found not in self.hidden or not client.startswith(self.client):
            return False
        self.asked[found] += 1
        return True


@contextmanager
def open_hiding_proxy(server: ApiServer, *, client: str) -> Iterator[HidingProxy]:
    """The proxy, as long as the context lasts."""
    proxy = HidingProxy(server, client)
    with ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(proxy)) as listening:
        listening.daemon_threads = True
        proxy.port = listening.server_port
        serving = Thread(target=listening.serve_forever, daemon=True)
        serving.start()
        try:
            yield proxy
        finally:
            listening.shutdown()
            serving.join(EMERGENCY_STOP_S)


def _pass_on(reply: http.client.HTTPResponse, to: BufferedIOBase, is_lost: Callable[[], bool]) -> None:
    """Send on what comes as it comes, unless it is lost."""
    try:
        while chunk := reply.read1(_CHUNK):
            if not is_lost():
                to.write(chunk)
                to.flush()
    except (OSError, http.client.HTTPException):
        return  # one of the two has gone


def _make_handler(proxy: HidingProxy) -> type[BaseHTTPRequestHandler]:
    context = ssl.create_default_context(cafile=proxy.server.ca_file)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name in http.server
            """The log of the test is not that of the proxy."""

        def _send_json(self, body: bytes) -> None:
            self.send_response(http.HTTPStatus.OK)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.close_connection = True
            if proxy.is_hidden(self.path, self.headers.get("User-Agent", "")):
                self.send_error(http.HTTPStatus.NOT_FOUND)
                return
            frozen = proxy.find_frozen(self.command, self.path, self.headers.get("User-Agent", ""))
            if frozen is not None:
                self._send_json(frozen)
                return
            upstream = http.client.HTTPSConnection("127.0.0.1", proxy.server.port, context=context)
            with closing(upstream):
                upstream.request(self.command, self.path, body, dict(self.headers))
                reply = upstream.getresponse()
                self.send_response(reply.status)
                for name, value in reply.getheaders():
                    if name.lower() not in _OF_CONNECTION:
                        self.send_header(name, value)
                self.send_header("Connection", "close")
                self.end_headers()
                _pass_on(reply, self.wfile, lambda: "watch=1" in self.path and proxy.swallows_watches)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815  # the names of http.server

    return Handler
