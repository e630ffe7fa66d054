"""Probes of readiness gates against servers that answer, redirect, are silent, or speak something else."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_backends.host.probes import MAX_REDIRECTS
from netplug_core.clock import Deadline
from netplug_core.flows.world import Host
from netplug_core.workload import ProbeResult
from tests.harness.servers.http_stub import (
    CloseConnection,
    NeverReply,
    ReceivedRequest,
    SendReply,
    SendSlowly,
    StubAction,
    open_http_stub,
)
from tests.harness.waiting import EMERGENCY_STOP_S

HOST: Host = HostMachine()


def probe(url: str, seconds: float = 60.0) -> ProbeResult:
    return HOST.probe(url, deadline=Deadline.after(SystemClock(), seconds))


def answer(action: StubAction, path: str = "/ready", seconds: float = 60.0) -> ProbeResult:
    with open_http_stub(lambda _request: action) as stub:
        return probe(f"{stub.url}{path}", seconds)


@contextmanager
def raw_server(answer: bytes, then: Callable[[socket.socket], None] = lambda _client: None) -> Iterator[str]:
    """A server of bytes, for one client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(65536)
                client.sendall(answer)
                then(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join(EMERGENCY_STOP_S)


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 204, 304, 404, 500, 503])
def test_the_status_is_the_servers(status: int) -> None:
    assert answer(SendReply(status)) == ProbeResult(status=status)


def test_the_request_is_a_plain_get() -> None:
    with open_http_stub(lambda _request: SendReply(200)) as stub:
        address = stub.url.removeprefix("http://")
        for path in ("", "/a%20b/ü?x=1&y=%2F"):
            assert probe(f"http://user:secret@{address}{path}").is_ready
    assert stub.calls == ["GET /", "GET /a%20b/%C3%BC?x=1&y=%2F"]
    assert {(request.host, request.authorization, request.body) for request in stub.requests} == {(address, "", None)}


def test_a_server_on_ipv6_is_asked() -> None:
    with open_http_stub(lambda _request: SendReply(200), "::1") as stub:
        assert probe(stub.url).is_ready


def test_brackets_around_an_ipv4_address_are_taken_off() -> None:
    with open_http_stub(lambda request: SendReply(200 if request.path == "/there" else 404)) as stub:
        bracketed = stub.url.replace("127.0.0.1", "[127.0.0.1]")
        assert bracketed != stub.url
        assert probe(f"{bracketed}/there").is_ready
        moved = SendReply(302, headers=(("Location", f"{bracketed}/there"),))
        with open_http_stub(lambda _request: moved) as redirecting:
            assert probe(redirecting.url).is_ready


@pytest.mark.parametrize("action", [SendReply(200, "x" * (8 << 20)), SendSlowly()], ids=["huge", "endless"])
def test_a_body_is_not_waited_for(action: StubAction) -> None:
    assert answer(action) == ProbeResult(status=200)


def test_an_interim_reply_is_not_the_answer() -> None:
    with raw_server(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\n\r\n") as url:
        assert probe(url) == ProbeResult(status=503)


# --- redirects -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_check_95_a_redirect_is_followed(status: int) -> None:
    def script(request: ReceivedRequest) -> StubAction:
        if request.path == "/ready":
            return SendReply(status, headers=(("Location", "../there?x=1"),))
        return SendReply(204 if request.path == "/there?x=1" else 404)

    with open_http_stub(script) as stub:
        assert probe(f"{stub.url}/ready") == ProbeResult(status=204)


def test_a_redirect_to_another_server_is_followed() -> None:
    with open_http_stub(lambda _request: SendReply(500)) as last:
        moved = SendReply(302, headers=(("Location", f"{last.url}/x"),))
        assert answer(moved) == ProbeResult(status=500)


def test_a_redirect_that_says_not_where_to_is_the_answer() -> None:
    assert answer(SendReply(302)) == ProbeResult(status=302)


def test_redirects_without_end_are_left() -> None:
    with open_http_stub(lambda _request: SendReply(302, headers=(("Location", "/ready"),))) as stub:
        assert probe(f"{stub.url}/ready") == ProbeResult(problem=f"more than {MAX_REDIRECTS} redirects")
    assert len(stub.requests) == MAX_REDIRECTS + 1


@pytest.mark.parametrize(
    "location, problem",
    [
        ("file:///etc/shadow", "status 302, to file:///etc/shadow, which is no http URL"),
        ("ftp://u:secret@h/", "status 302, to …, which is no http URL"),
        (f"x:{'y' * 999}?t=secret", f"status 302, to x:{'y' * 198}…, which is no http URL"),
        ("http://[::1", "status 302, to http://[::1, which is no http URL"),
        ("http://h:99999/", "status 302, to http://h:99999/, which is no http URL"),
        ("http://u:sec/ret@h/", "status 302, to …, which is no http URL"),
        ("https://:80/", "status 302, to https://:80/, which is no http URL"),
    ],
)
def test_a_redirect_to_what_is_no_http_url_is_not_followed(location: str, problem: str) -> None:
    assert answer(SendReply(302, headers=(("Location", location),))) == ProbeResult(problem=problem)


# --- no answers ------------------------------------------------------------------------------------------------------


def test_a_refused_connection_is_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    assert probe(url) == ProbeResult(problem="Connection refused")


def test_a_silent_server_is_left_at_the_deadline() -> None:
    assert answer(NeverReply(), seconds=0.2) == ProbeResult(problem="no answer in time")


def test_a_server_whose_head_comes_byte_by_byte_is_left_at_the_deadline() -> None:
    stopped = threading.Event()

    def drip(client: socket.socket) -> None:
        while not stopped.wait(0.02):
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    with raw_server(b"", drip) as url:
        result = probe(url, 0.3)
        stopped.set()
    assert result == ProbeResult(problem="no answer in time")


def test_a_deadline_that_has_passed_is_no_answer() -> None:
    with open_http_stub(lambda _request: SendReply(200)) as stub:
        assert probe(stub.url, 0.0) == ProbeResult(problem="no answer in time")
    assert stub.requests == []


def test_a_server_that_closes_is_not_ready() -> None:
    assert answer(CloseConnection()).problem.startswith("Remote end closed connection without response")


@pytest.mark.parametrize(
    "sent, problem",
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no answer in HTTP: BadStatusLine SSH-2.0-OpenSSH_9.2"),
        (b"\x00" * 100 + b"\r\n", "no answer in HTTP: BadStatusLine"),
        (b"HTTP/1.1 " + b"2" * 99999, "no answer in HTTP: LineTooLong"),
        (
            b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 999 + b"\r\n",
            "no answer in HTTP: HTTPException got more than 100 headers",
        ),
        (b"HTTP/1.1 abc OK\r\n\r\n", "no answer in HTTP: BadStatusLine"),
    ],
    ids=["ssh", "zeros", "long-line", "many-headers", "no-number"],
)
def test_what_is_no_http_is_not_ready(sent: bytes, problem: str) -> None:
    with raw_server(sent) as url:
        result = probe(url)
    assert result.problem.startswith(problem)
    assert len(result.problem) <= 201


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 64])
def test_a_host_that_does_not_exist_is_not_ready(host: str) -> None:
    result = probe(f"http://{host}/", 20.0)
    assert not result.is_ready
    assert result.problem


# --- TLS -------------------------------------------------------------------------------------------------------------


@contextmanager
def tls_server(authority: trustme.CA) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                try:
                    with context.wrap_socket(client, server_side=True) as secure:
                        secure.recv(65536)
                        secure.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                except OSError:
                    return  # the client does not trust the certificate

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join(EMERGENCY_STOP_S)


def test_tls_needs_an_authority_that_the_system_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    with tls_server(authority) as url:
        assert "certificate verify failed" in probe(url).problem
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with tls_server(authority) as url:
        assert probe(url) == ProbeResult(status=200)


def test_a_server_without_tls_is_not_ready() -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\n\r\n") as url:
        assert not probe(url.replace("http:", "https:")).is_ready
