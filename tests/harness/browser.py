"""A real browser without a screen: Debian's chromium, which is asked over a pipe."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field

__all__ = ["Browser", "open_browser"]

_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # tests run as root, and open files of their own alone
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--no-first-run",
    "--remote-debugging-pipe",
)
_EXIT_TIMEOUT_S = 60


@define
class Browser:
    """A browser with one page. ``requested`` has the address of everything that pages asked for."""

    requests_fd: int
    replies_fd: int
    session: str = ""
    last_id: int = 0
    unread: bytes = b""
    requested: list[str] = field(factory=list)

    def open_page(self) -> None:
        """Open the page that everything else is about."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = str(self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def show(self, file: Path, *, width: int, scheme: str) -> None:
        """Show a file in a window of that width, light or dark; return when it is loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=file.as_uri())
        while self._receive().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> object:
        """The value of an expression of JavaScript in the page, which may run no scripts of its own."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        result = answer["result"]
        assert isinstance(result, dict)
        return result.get("value")

    def call(self, method: str, **parameters: object) -> dict[str, object]:
        """The result of a call of the DevTools protocol."""
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.requests_fd, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self.last_id:
                assert "error" not in reply, reply
                result = reply["result"]
                assert isinstance(result, dict)
                return result

    def _receive(self) -> dict[str, object]:
        while b"\0" not in self.unread:
            read = os.read(self.replies_fd, 65_536)
            assert read, "the browser has ended"
            self.unread += read
        text, _, self.unread = self.unread.partition(b"\0")
        message = json.loads(text)
        assert isinstance(message, dict)
        if message.get("method") == "Network.requestWillBeSent":
            self.requested.append(message["params"]["request"]["url"])
        return message


@contextmanager
def open_browser(program: str, folder: Path) -> Iterator[Browser]:
    """A browser with an empty page and a profile in that folder; it ends with the context."""
    (for_requests, requests), (replies, for_replies) = os.pipe(), os.pipe()

    # It reads requests from descriptor 3 and writes replies to 4.
    script = f'exec 3<&{for_requests} 4>&{for_replies}; exec "$@"'
    command = ["bash", "-c", script, "bash", program, *_OPTIONS, f"--user-data-dir={folder}"]
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(command, pass_fds=(for_requests, for_replies), stdout=log, stderr=log)
    os.close(for_requests)
    os.close(for_replies)
    try:
        browser = Browser(requests_fd=requests, replies_fd=replies)
        browser.open_page()
        yield browser
    finally:
        os.close(requests)
        os.close(replies)
        process.terminate()
        try:
            process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
