"""One connection to the API server: a request out, a reply or a stream of lines in, every wait bounded by a deadline.

Only ``client`` uses it, and decides what to do about failures. It is the standard library's HTTP: the client that the
``kubernetes`` package brings costs five times as much to load, for every pod (docs/backends/kubernetes.md).
"""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias, cast
from urllib.parse import SplitResult, urlsplit

from attrs import frozen

from netplug_backends.kubernetes.client.credentials import ApiAccess, Pem, TlsVerification, parse_scheme
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["ApiConnection", "RawReply", "connect", "port_of", "tls_context"]

_ResolvedAddress: TypeAlias = "tuple[int, int, int, str, tuple[object, ...]]"  # as the system's resolver tells it

_CHUNK = 65536
_MIN_TIMEOUT_S = 0.001

# A watch may be told nothing for hours: a server that is gone without a word is found out after a minute.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


@frozen
class RawReply:
    """A reply as it came; after the ``is_last`` one its connection is closed."""

    status: int
    retry_after: str
    location: str
    body: bytes
    is_last: bool


class _DeadlineReader(io.RawIOBase):
    """What a socket receives; no wait outlives the deadline of its connection."""

    def __init__(self, socket_: _DeadlineSocket) -> None:
        self._socket = socket_

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._socket.receive_into(buffer)


class _DeadlineSocket:
    """As much of a socket as ``http.client`` asks for."""

    def __init__(self, plain: socket.socket, deadline: Deadline) -> None:
        self.plain = plain
        self.deadline = deadline

    def sendall(self, data: bytes) -> None:
        self.plain.settimeout(self._remaining_s())
        self.plain.sendall(data)

    def receive_into(self, buffer: WriteableBuffer) -> int:
        self.plain.settimeout(self._remaining_s())
        try:
            return self.plain.recv_into(buffer)
        except TimeoutError as error:
            if error.errno is None:  # ours
                raise
            raise ConnectionAbortedError("the server is gone without a word") from error  # the kernel's

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self), _CHUNK)

    def close(self) -> None:
        """Nothing: ``http.client`` says so once a head tells that the server will close; the body is yet to be read."""

    def _remaining_s(self) -> float:
        left = self.deadline.remaining_s
        if not left:
            raise TimeoutError("the deadline passed")
        return left


class ApiConnection:
    """An open connection; used by one caller at a time. ``has_answered``: whoever is there speaks HTTP."""

    def __init__(self, access: ApiAccess, socket_: _DeadlineSocket) -> None:
        self.access = access
        self.has_answered = False
        self._socket = socket_
        address = urlsplit(access.server)
        self._prefix = address.path.rstrip("/")
        self._host = _host_header(address)
        self._http = http.client.HTTPConnection(address.hostname or "", port_of(address))
        self._http.sock = cast("socket.socket", socket_)
        self._response: http.client.HTTPResponse | None = None

    @property
    def is_stale(self) -> bool:
        """Whether the other side has closed it, or said something that nobody asked for."""
        poll = select.poll()
        poll.register(self._socket.plain, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes | None, deadline: Deadline) -> None:
        """Send a request."""
        self._socket.deadline = deadline
        self._http.request(method, self._prefix + path, body, {"Host": self._host, **headers})

    def receive(self) -> RawReply:
        """The whole reply to the request."""
        response = self._http.getresponse()
        return self._raw_reply(response, response.read())

    def open_stream(self) -> RawReply:
        """The reply to a request whose body is to be read line by line; a refusal comes whole."""
        response = self._response = self._http.getresponse()
        is_stream = response.status == http.client.OK
        return self._raw_reply(response, b"" if is_stream else response.read())

    def next_line(self) -> bytes:
        """The next line of the stream; empty when the server has ended it."""
        return b"" if self._response is None else self._response.readline()

    def _raw_reply(self, response: http.client.HTTPResponse, body: bytes) -> RawReply:
        self.has_answered = True
        said = response.headers
        return RawReply(
            response.status, said.get("Retry-After", ""), said.get("Location", ""), body, response.will_close
        )

    def interrupt(self) -> None:
        """Wake whoever waits for this connection in another thread; it ends there with an error."""
        with suppress(OSError):  # it may be closed already
            socket.socket.shutdown(self._socket.plain, socket.SHUT_RDWR)

    def close(self) -> None:
        """Give it up."""
        self._http.close()
        self._socket.plain.close()


def port_of(address: SplitResult) -> int:
    """The port that a server's address leads to."""
    return address.port or (443 if address.scheme == "https" else 80)


def _host_header(address: SplitResult) -> str:
    """The host as a header names it, with the port where the address has one (RFC 9110, 7.2)."""
    host = address.hostname or ""
    name = f"[{host.partition('%')[0]}]" if ":" in host else host.encode("idna").decode()
    return f"{name}:{address.port}" if address.port else name


def connect(access: ApiAccess, context: ssl.SSLContext | None, deadline: Deadline) -> ApiConnection:
    """A connection to the server; ``context`` is None where it speaks plain HTTP.

    Raises:
        OSError: there is none to be had; nothing was asked yet.
    """
    address = urlsplit(access.server)
    with ExitStack() as undo:
        plain = _connect_to_any(_resolve(address.hostname or "", port_of(address), deadline), deadline)
        undo.callback(plain.close)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            plain.setsockopt(socket.IPPROTO_TCP, option, value)
        if context is not None:
            plain.settimeout(max(deadline.remaining_s, _MIN_TIMEOUT_S))
            plain = context.wrap_socket(plain, server_hostname=access.tls_server_name or address.hostname)
        undo.pop_all()
    return ApiConnection(access, _DeadlineSocket(plain, deadline))


def _resolve(host: str, port: int, deadline: Deadline) -> Sequence[_ResolvedAddress]:
    """Where a host is. The system's resolver knows of no deadline, so it is left behind where it takes too long."""
    answer: list[Sequence[_ResolvedAddress] | OSError] = []

    def ask() -> None:
        try:
            answer.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            answer.append(error)

    if _is_address(host):
        ask()
    else:
        thread = Thread(target=ask, name=f"resolve {host}", daemon=True)
        thread.start()
        thread.join(deadline.remaining_s)
    found = answer[0] if answer else TimeoutError("no name server answered by the deadline")
    if isinstance(found, OSError):
        raise found
    return found


def _is_address(host: str) -> bool:
    return ":" in host or host.rpartition(".")[2].isdigit()


def _connect_to_any(addresses: Sequence[_ResolvedAddress], deadline: Deadline) -> socket.socket:
    """A connection to the first address that takes one; none of them gets the others' share of the time."""
    problem: OSError = TimeoutError("the deadline passed")
    for position, (family, kind, protocol, _, address) in enumerate(addresses):
        left = deadline.remaining_s
        if not left:
            break
        with ExitStack() as undo:
            plain = undo.enter_context(socket.socket(family, kind, protocol))
            plain.settimeout(left / (len(addresses) - position))
            try:
                plain.connect(address)
            except OSError as error:
                problem = error
            else:
                undo.pop_all()
                return plain
    raise problem


def tls_context(access: ApiAccess) -> ssl.SSLContext | None:
    """How to speak to the server: with the authority that is configured and no other, and with our certificate.

    Raises:
        ConfigurationError: the address is none, or a certificate or key cannot be used.
    """
    if parse_scheme(access.server) == "http":
        return None
    context = _verifying_context(access)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Newer Pythons ask more of a certificate than clusters' own authorities put into one, and than other clients ask.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if access.verification is TlsVerification.SKIPPED:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.certificate:
        _load_client_certificate(context, access.certificate, access.key)
    return context


def _verifying_context(access: ApiAccess) -> ssl.SSLContext:
    authority = access.certificate_authority
    with ExitStack() as stack:
        try:
            # Also what is no file is read as one: a remark between certificates may be in any language.
            return ssl.create_default_context(cafile=authority.open_path(stack) or None)
        except (OSError, ValueError) as error:
            raise ConfigurationError(authority.label, _reason(error), "certificates in PEM are expected") from error


def _load_client_certificate(context: ssl.SSLContext, certificate: Pem, key: Pem) -> None:
    where = f"{certificate.label} with {key.label}"
    with ExitStack() as stack:
        try:
            context.load_cert_chain(certificate.open_path(stack), key.open_path(stack), password=_refuse_encrypted_key)
        except (OSError, ValueError) as error:
            raise ConfigurationError(where, _reason(error), "a certificate and its key in PEM are expected") from error


def _refuse_encrypted_key() -> str:
    # Without this the library would ask at the terminal.
    raise ValueError("the key is encrypted")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
