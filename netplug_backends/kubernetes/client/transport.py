"""One connection to the API server: sends a request, receives a reply or a stream of lines, all by a deadline.

``apiclient`` uses it and decides what to do after a failure. It is the standard library's HTTP client, because the one
of the ``kubernetes`` package takes five times as long to load, for every pod (docs/backends/kubernetes.md).
"""

from __future__ import annotations

import http.client
import select
import socket
import ssl
from contextlib import ExitStack, suppress
from typing import cast
from urllib.parse import SplitResult, urlsplit

from netplug_backends.connections import DeadlineSocket, connect_to, start_tls
from netplug_backends.kubernetes.client.credentials import ApiAccess, Pem, TlsVerification, parse_scheme
from netplug_backends.kubernetes.client.messages import RawReply
from netplug_core.clock import Deadline
from netplug_core.errors import UnusableFile

__all__ = ["ApiConnection", "connect", "port_of", "tls_context"]

# A watch may be silent for hours. These find a server that is gone within a minute.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class ApiConnection:
    """An open connection, for one caller at a time; ``has_answered`` once the server has sent an HTTP reply."""

    def __init__(self, access: ApiAccess, socket_: DeadlineSocket) -> None:
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
        """Whether the server has closed it, or has sent something without a request."""
        poll = select.poll()
        poll.register(self._socket.plain, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes | None, deadline: Deadline) -> None:
        """Send a request."""
        self._socket.deadline = deadline
        self._socket.cork()
        self._http.request(method, self._prefix + path, body, {"Host": self._host, **headers})
        self._socket.uncork()

    def receive(self) -> RawReply:
        """The whole reply to the request."""
        response = self._http.getresponse()
        return self._raw_reply(response, response.read())

    def open_stream(self) -> RawReply:
        """The reply to a watch request; its body is read by ``next_line``, unless it is a refusal."""
        response = self._response = self._http.getresponse()
        is_stream = response.status == http.client.OK
        return self._raw_reply(response, b"" if is_stream else response.read())

    def next_line(self) -> bytes:
        """The next line of the stream; empty if the server has ended it."""
        return b"" if self._response is None else self._response.readline()

    def _raw_reply(self, response: http.client.HTTPResponse, body: bytes) -> RawReply:
        self.has_answered = True
        retry_after, location = (response.headers.get(name, "") for name in ("Retry-After", "Location"))
        return RawReply(response.status, retry_after, location, body, response.will_close)

    def interrupt(self) -> None:
        """End a wait for this connection in another thread, with an error there."""
        with suppress(OSError):  # it may be closed already
            socket.socket.shutdown(self._socket.plain, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()
        self._socket.plain.close()


def port_of(address: SplitResult) -> int:
    """The port in a server's URL, or the scheme's default."""
    return address.port or (443 if address.scheme == "https" else 80)


def _host_header(address: SplitResult) -> str:
    """The value of the Host header: the port is part of it if the URL has one (RFC 9110, 7.2)."""
    host = address.hostname or ""
    name = f"[{host.partition('%')[0]}]" if ":" in host else host.encode("idna").decode()
    return f"{name}:{address.port}" if address.port else name


def connect(access: ApiAccess, context: ssl.SSLContext | None, deadline: Deadline) -> ApiConnection:
    """A connection to the server; ``context`` is None for plain HTTP.

    Raises:
        OSError: the server cannot be reached; nothing was sent.
    """
    address = urlsplit(access.server)
    with ExitStack() as undo:
        plain = connect_to(address.hostname or "", port_of(address), deadline)
        undo.callback(plain.close)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            plain.setsockopt(socket.IPPROTO_TCP, option, value)
        if context is not None:
            plain = start_tls(plain, context, access.tls_server_name or address.hostname or "", deadline)
        undo.pop_all()
    return ApiConnection(access, DeadlineSocket(plain, deadline))


def tls_context(access: ApiAccess) -> ssl.SSLContext | None:
    """The TLS settings for the server: only the configured authority is trusted. None for plain HTTP.

    Raises:
        ConfigurationError: the URL is invalid, or a certificate or key cannot be used.
    """
    if parse_scheme(access.server) == "http":
        return None
    context = _verifying_context(access)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The strict checks of newer Pythons refuse certificates that clusters' own authorities issue.
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
            # Data is read through a file too: as text it would have to be ASCII, and comments may not be.
            return ssl.create_default_context(cafile=authority.open_path(stack) or None)
        except (OSError, ValueError) as error:
            raise UnusableFile(authority.label, _reason(error), "certificates in PEM are expected") from error


def _load_client_certificate(context: ssl.SSLContext, certificate: Pem, key: Pem) -> None:
    where = f"{certificate.label} with {key.label}"
    with ExitStack() as stack:
        try:
            context.load_cert_chain(certificate.open_path(stack), key.open_path(stack), password=_refuse_encrypted_key)
        except (OSError, ValueError) as error:
            raise UnusableFile(where, _reason(error), "a certificate and its key in PEM are expected") from error


def _refuse_encrypted_key() -> str:
    # Without this OpenSSL would ask at the terminal.
    raise ValueError("the key is encrypted")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
