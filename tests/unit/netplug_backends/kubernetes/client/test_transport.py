"""TLS settings, connecting, and invalid URLs, certificates and keys; no error has a secret."""

import errno
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme

from netplug_backends.connections import DeadlineSocket
from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.client.apiclient import ApiConnection, connect, tls_context
from netplug_backends.kubernetes.client.credentials import ApiAccess, Pem, TlsVerification
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError
from tests.harness.waiting import MARGIN_S

AUTHORITY = trustme.CA()


def refusal(access: ApiAccess) -> str:
    with pytest.raises(ConfigurationError) as refused:
        tls_context(access)
    return str(refused.value)


@pytest.mark.parametrize(
    "server",
    [
        "",
        "api",
        "ftp://api",
        "https://",
        "https://api:x",
        "https://api:99999",
        "https://a:0",
        "https://a..b",
        "https://u@a",
        "https://.api",
        "https://a b",
        "https://[::1",
        "http://api/ü",
        "http://api/a b",
    ],
)
def test_an_invalid_url_is_refused(server: str) -> None:
    assert "a URL such as https://host:6443 is expected" in refusal(ApiAccess(server=server))


def test_plain_http_needs_no_context() -> None:
    assert tls_context(ApiAccess(server="http://api")) is None


def test_only_the_configured_authorities_are_trusted_and_all_of_them(tmp_path: Path) -> None:
    both = tmp_path / "ca.pem"
    both.write_bytes(AUTHORITY.cert_pem.bytes() + trustme.CA().cert_pem.bytes())
    for authority in (Pem(path=str(both)), Pem(data=both.read_bytes())):
        context = tls_context(ApiAccess(server="https://api", certificate_authority=authority))
        assert context is not None
        assert len(context.get_ca_certs()) == 2
        assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_comment_between_certificates_need_not_be_ascii(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(AUTHORITY.cert_pem.bytes() + "# the café's\n".encode() + trustme.CA().cert_pem.bytes())
    for authority in (Pem(path=str(file)), Pem(data=file.read_bytes())):
        context = tls_context(ApiAccess(server="https://api", certificate_authority=authority))
        assert context is not None
        assert len(context.get_ca_certs()) == 2


def test_verification_is_skipped_if_the_setting_says_so() -> None:
    context = tls_context(ApiAccess(server="https://api", verification=TlsVerification.SKIPPED))
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_NONE)


def test_a_certificate_and_its_key_may_be_files_or_data(tmp_path: Path) -> None:
    issued = AUTHORITY.issue_cert("somebody.example")
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    for pair in (
        (Pem(path=str(certificate)), Pem(path=str(key))),
        (Pem(data=certificate.read_bytes()), Pem(data=key.read_bytes())),
    ):
        assert tls_context(ApiAccess(server="https://api", certificate=pair[0], key=pair[1])) is not None


def test_an_unusable_certificate_is_named_without_its_content(tmp_path: Path) -> None:
    """Trap 26: empty files, another certificate's key, no certificates at all."""
    empty, missing = tmp_path / "empty.pem", tmp_path / "missing.pem"
    empty.write_text("")
    issued, other = AUTHORITY.issue_cert("a.example"), AUTHORITY.issue_cert("b.example")
    certificate = Pem(data=issued.cert_chain_pems[0].bytes(), where="client-certificate-data")
    key = Pem(data=other.private_key_pem.bytes(), where="client-key-data")
    authority = "certificate-authority-data"
    cases = (
        (ApiAccess(server="https://api", certificate_authority=Pem(path=str(empty))), str(empty)),
        (ApiAccess(server="https://api", certificate_authority=Pem(path=str(missing))), f"file: '{missing}'"),
        (ApiAccess(server="https://api", certificate_authority=Pem(data=b"\xff", where=authority)), authority),
        (ApiAccess(server="https://api", certificate_authority=Pem(data=b"none", where=authority)), authority),
        (
            ApiAccess(server="https://api", certificate=certificate, key=key),
            "client-certificate-data with client-key-data",
        ),
        (ApiAccess(server="https://api", certificate=Pem(path=str(empty)), key=key), f"{empty} with client-key-data"),
    )
    for access, where in cases:
        text = refusal(access)
        assert text.startswith(where), text
        assert any(
            reason in text for reason in ("PEM is expected", "in PEM are expected", "it cannot be read: No such")
        )
        assert "PRIVATE" not in text


# --- where the server is ---------------------------------------------------------------------------------------------


def soon(seconds: float) -> Deadline:
    return Deadline.after(SystemClock(), seconds)


def resolved_to(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """Resolve every name to these ports of this machine."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in ports]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: found)


@pytest.fixture
def listening_port() -> Iterator[int]:
    """A port that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that does not answer: its queue is full, so the kernel drops new connections."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def test_after_a_silent_address_the_next_one_is_tried(
    monkeypatch: pytest.MonkeyPatch, silent_port: int, listening_port: int
) -> None:
    resolved_to(monkeypatch, silent_port, listening_port)
    began = time.monotonic()
    connect(ApiAccess(server="http://api.example"), None, soon(3.0)).close()
    assert time.monotonic() - began > 1.4


def test_d14_silent_addresses_share_the_deadline(monkeypatch: pytest.MonkeyPatch, silent_port: int) -> None:
    resolved_to(monkeypatch, silent_port, silent_port, silent_port)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        connect(ApiAccess(server="http://api.example"), None, soon(0.6))
    assert 0.5 < time.monotonic() - began < 0.6 + MARGIN_S


def test_d14_a_silent_name_server_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch, listening_port: int) -> None:
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: answer.wait(60))
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="no name server answered"):
        connect(ApiAccess(server=f"http://api.example:{listening_port}"), None, soon(0.3))
    assert time.monotonic() - began < 0.3 + MARGIN_S
    answer.set()


def test_an_unknown_host_name_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_args: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(socket.gaierror, match="Name or service not known"):
        connect(ApiAccess(server="http://api.example"), None, soon(5.0))


@pytest.mark.parametrize(
    "server,port,host",
    [
        ("http://[fd00::abcd]", 80, "[fd00::abcd]"),
        ("http://[::1]", 80, "[::1]"),
        ("http://[::1]:8001", 8001, "[::1]:8001"),
        ("http://[fe80::1%eth0]", 80, "[fe80::1]"),
        ("http://api.example", 80, "api.example"),
        ("https://api.example", 443, "api.example"),
        ("http://bücher.example:8001", 8001, "xn--bcher-kva.example:8001"),
        ("http://кластер.example", 80, "xn--80akne1aeh.example"),
        ("http://127.0.0.1:8001/behind", 8001, "127.0.0.1:8001"),
    ],
)
def test_a_url_without_a_port_has_the_schemes_port_and_no_port_in_the_host_header(
    monkeypatch: pytest.MonkeyPatch, server: str, port: int, host: str
) -> None:
    ports: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def lead(_host: str, port: int, **_options: object) -> list[object]:
            ports.append(port)
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", listener.getsockname())]

        monkeypatch.setattr(socket, "getaddrinfo", lead)
        connection = connect(ApiAccess(server=server), None, soon(5.0))
        connection.send("GET", "/", {}, None, soon(5.0))
        accepted, _ = listener.accept()
        with accepted:
            received = accepted.recv(4096).decode().splitlines()
        connection.close()
    assert ports == [port]
    assert f"Host: {host}" in received


def test_no_connection_is_begun_after_the_deadline(listening_port: int) -> None:
    with pytest.raises(TimeoutError, match="the deadline passed"):
        connect(ApiAccess(server=f"http://127.0.0.1:{listening_port}"), None, soon(0.0))


class _Gone(socket.socket):
    """A socket on which the kernel's keepalive probes have failed; a test cannot wait for that."""

    def recv_into(self, buffer: object, nbytes: int = 0, flags: int = 0) -> int:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")


def test_a_kernel_timeout_is_not_a_deadline(monkeypatch: pytest.MonkeyPatch, listening_port: int) -> None:
    """Otherwise a watch would end as if its deadline had passed."""
    sockets: list[socket.socket] = []

    def gone(*arguments: int) -> socket.socket:
        sockets.append(_Gone(*arguments))
        return sockets[-1]

    monkeypatch.setattr(socket, "socket", gone)
    connection = connect(ApiAccess(server=f"http://127.0.0.1:{listening_port}"), None, soon(5.0))
    assert sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
    connection.send("GET", "/", {}, None, soon(5.0))
    with pytest.raises(ConnectionAbortedError, match="gone without a word"):
        connection.receive()
    connection.close()


class _RecordingSocket(socket.socket):
    """A socket that is not connected, and keeps what is sent, piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def sendall(self, data: bytes, *_flags: int) -> None:  # type: ignore[override]
        self.pieces.append(data)


def test_head_and_body_leave_in_one_piece() -> None:
    """A relay that waits for the answer to the first of two would delay the second."""
    with _RecordingSocket() as plain:
        connection = ApiConnection(ApiAccess(server="http://127.0.0.1:1"), DeadlineSocket(plain, soon(60)))
        connection.send("PUT", "/api/v1/pods", {"X-Number": "1"}, b'{"a": 1}', soon(60))
    (piece,) = plain.pieces
    assert piece.startswith(b"PUT /api/v1/pods HTTP/1.1\r\n")
    assert piece.endswith(b'\r\n\r\n{"a": 1}')
