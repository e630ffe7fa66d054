"""A small HTTP server for pages that are made when they are asked for. Calls of runtimes never come here.

Each request has a thread of its own, so that one that hangs delays no other. At most a few are served at once: if more
come, the one that has lasted longest is cut off.
"""

from __future__ import annotations

import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from threading import Lock, Thread
from typing import TypeAlias

from attrs import frozen

from netplug_core.errors import narrow
from netplug_core.log import Level, Log

__all__ = ["MAX_REQUESTS", "METRICS_TYPE", "PLAIN_TEXT", "Page", "PageServer", "Pages"]

MAX_REQUESTS = 8
"""How many requests are served at once before the oldest is cut off."""

PLAIN_TEXT = "text/plain; charset=utf-8"

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of metrics, as Prometheus reads them."""

_MAX_THREADS = 2 * MAX_REQUESTS  # a thread that is cut off ends only when its page is made
_READ_S = 5.0
_POLL_S = 0.1  # how long the end may take
_NO_ROOM_S = 0.1  # a wait for descriptors or memory


@frozen(kw_only=True)
class Page:
    """The answer to a request."""

    body: bytes
    media_type: str = PLAIN_TEXT
    status: HTTPStatus = HTTPStatus.OK


Pages: TypeAlias = Mapping[str, Callable[[], Page]]
"""What makes the page of each path."""


class PageServer:
    """Serves pages over a listening socket, in threads, from ``start`` to ``stop``."""

    def __init__(self, listening: socket.socket, pages: Pages, log: Log) -> None:
        self._server = _Server(listening, pages, log)
        self._thread = Thread(target=self._server.serve_forever, args=(_POLL_S,), name="pages", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Accept no further request, and close the socket. Requests that are being served are not waited for."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """One request; the connection is closed after it."""

    timeout = _READ_S
    server_version = "netplug"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with the page of the path."""
        page = narrow(self.server, _Server).make_page(self.path.partition("?")[0])
        self.send_response(page.status)
        self.send_header("Content-Type", page.media_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        self.wfile.write(page.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of http.server
        """Log nothing: a probe comes every few seconds."""


class _Server(ThreadingMixIn, TCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listening: socket.socket, pages: Pages, log: Log) -> None:
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        listening.settimeout(0)  # a client may be gone before it is accepted
        self._pages = pages
        self._log = log
        self._open: deque[socket.socket] = deque()
        self._lock = Lock()

    def make_page(self, path: str) -> Page:
        """The page of a path."""
        make = self._pages.get(path)
        if make is None:
            known = "".join(f"{each}\n" for each in self._pages)
            return Page(body=known.encode(), status=HTTPStatus.NOT_FOUND)
        try:
            return make()
        except Exception:  # noqa: BLE001  the next request may succeed
            self._log(Level.ERROR, f"{path} could not be made\n{traceback.format_exc()}")
            return Page(body=b"internal error; see the log\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept a connection."""
        try:
            return super().get_request()
        except BlockingIOError:
            raise
        except OSError:
            time.sleep(_NO_ROOM_S)
            raise

    def verify_request(self, request: socket.socket, client_address: object) -> bool:  # type: ignore[override]  # noqa: ARG002
        """Whether there is room for it; cuts off the oldest one if there are many."""
        with self._lock:
            if len(self._open) >= _MAX_THREADS:
                return False
            if len(self._open) >= MAX_REQUESTS:
                _cut_off(self._open[0])
                self._open.rotate(-1)
            self._open.append(request)
            return True

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        """Close a connection."""
        with self._lock:
            if request in self._open:
                self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]  # noqa: ARG002
        """Log what is not the connection's end: the client closes it, or it is cut off."""
        if not isinstance(sys.exception(), OSError):
            self._log(Level.ERROR, f"a request could not be answered\n{traceback.format_exc()}")


def _cut_off(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed already
