"""A server of readiness gates on loopback: ``gate_server HITS``; it prints its port.

``/ready`` answers 200, ``/moved`` redirects there, ``/failing/N/...`` answers 500 N times and then 200, ``/silent``
never answers, and ``/file/PATH`` answers 200 as soon as that file exists and 503 before. The file HITS gets the path of
each request before its answer.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HITS = Counter[str]()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        HITS[self.path] += 1
        with open(sys.argv[1], "a", encoding="utf-8") as hits:
            hits.write(f"{self.path}\n")
        _, kind, *rest = self.path.split("/")
        if kind == "silent":
            threading.Event().wait()
        self.send_response(self.status_of(kind, rest))
        if kind == "moved":
            self.send_header("Location", "/ready")
        self.end_headers()

    def status_of(self, kind: str, rest: list[str]) -> int:
        if kind == "failing":
            return 500 if HITS[self.path] <= int(rest[0]) else 200
        if kind == "file":
            return 200 if os.path.exists("/" + "/".join(rest)) else 503
        return {"ready": 200, "moved": 302}[kind]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's own name for it
        """Say nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
