"""Requests to an API server: rate limit, connections, messages, retries, and what an answer means."""

from __future__ import annotations

import hashlib
import http.client
import json
import select
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from http.client import HTTPException
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias, cast
from urllib.parse import SplitResult, urlencode, urlsplit

from attrs import define, field, frozen

from netplug_backends.connections import DeadlineSocket, connect_to, start_tls
from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.credentials import ApiAccess, FileReader, Pem, TlsVerification, parse_scheme
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import CredentialsInUse
from netplug_core.errors import ConfigurationError, Unauthorized, Unavailable, UnusableFile, excerpt
from netplug_core.records import OutcomeUnknown

if TYPE_CHECKING:
    from netplug_core.settings.model import DatastoreSettings

__all__ = [
    "DEFAULT_BURST", "DEFAULT_QPS", "METADATA_TYPE", "STRATEGIC_TYPE", "ApiClient", "ApiConnection", "ApiReply",
    "ApiRequest", "Json", "RateLimiter", "RawReply", "RightMissing", "WatchStream", "connect", "decode_reply",
    "excerpt_bytes", "find_json_object", "open_api_client", "parse_json", "port_of", "tls_context",
]  # fmt: skip


# --- ratelimit -------------------------------------------------------------------------------------------------------


DEFAULT_QPS = 100.0
"""The default average of requests per second. The server has limits of its own."""

DEFAULT_BURST = 200
"""The default number of requests at once."""


class RateLimiter:
    """A bucket of ``burst`` tokens that gains ``qps`` tokens per second; 0 means the default."""

    def __init__(self, *, clock: Clock, qps: float = 0, burst: int = 0) -> None:
        self._clock = clock
        self._qps = qps or DEFAULT_QPS
        self._burst = float(burst or DEFAULT_BURST)
        self._tokens = self._burst
        self._filled_at = clock.monotonic()
        self._lock = Lock()

    def try_acquire(self, deadline: Deadline) -> bool:
        """Take a token, and wait for it if there is none; false, without one, if it would come after the deadline."""
        if deadline.has_passed:
            return False
        with self._lock:
            now = self._clock.monotonic()
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
            self._filled_at = now
            wait_s = max(0.0, (1.0 - self._tokens) / self._qps)
            if wait_s >= deadline.remaining_s:
                return False
            self._tokens -= 1.0
        if wait_s:
            self._clock.sleep(wait_s)
        return True


# --- messages --------------------------------------------------------------------------------------------------------


Json: TypeAlias = Mapping[str, object]
"""A JSON object."""

JSON_TYPE = "application/json"
STRATEGIC_TYPE = "application/strategic-merge-patch+json"
METADATA_TYPE = f"{JSON_TYPE};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON_TYPE}"
"""What a request accepts that asks for the metadata of a collection's objects; a server without it sends them whole."""

_SUCCESS, _REDIRECT = range(200, 300), range(300, 400)
_NOT_FOUND = 404
_NOT_HELD = " RBAC permissions not currently held:"
"""What a server says, before the rights, to an account that would give more than it has."""

_MAX_MESSAGE = 400
"""How much of a sentence of the server is shown: it names object and account before the right that is missing."""

_MAX_BYTES = 1000  # more than a message shows of them, whatever the alphabet


@frozen
class RawReply:
    """A reply as it was received; if ``is_last``, the server closes the connection after it."""

    status: int
    retry_after: str
    location: str
    body: bytes
    is_last: bool


@frozen
class ApiRequest:
    """One request. Each segment of ``path`` is quoted already. A ``GET`` is a read, anything else a write."""

    method: str
    path: str
    query: Mapping[str, str] = field(factory=dict)
    body: object | None = field(default=None, repr=False)
    content_type: str = JSON_TYPE
    accept: str = JSON_TYPE

    @property
    def is_read(self) -> bool:
        """Whether it may be sent twice."""
        return self.method == "GET"

    @property
    def no_answer_error(self) -> type[Unavailable]:
        """The error of a request that was sent without a usable answer: a write may have been applied."""
        return Unavailable if self.is_read else OutcomeUnknown

    @property
    def target(self) -> str:
        """Path and query, as they are sent."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


@frozen
class ApiReply:
    """The server's answer: an object, or the ``Status`` that explains a refusal."""

    status: int
    object: Json = field(repr=False)

    @property
    def is_success(self) -> bool:
        """Whether the request succeeded."""
        return self.status in _SUCCESS

    @property
    def is_missing(self) -> bool:
        """Whether the object does not exist. A path that the server does not serve is a 404 too, but without a name."""
        details = self.object.get("details")
        return self.status == _NOT_FOUND and isinstance(details, Mapping) and bool(details.get("name"))

    @property
    def reason(self) -> str:
        """The machine-readable reason of a refusal, such as ``Expired``."""
        return str(self.object.get("reason") or "")

    @property
    def message(self) -> str:
        """The server's sentence about a refusal, cut like every text from outside."""
        text = str(self.object.get("message") or f"HTTP status {self.status}")
        head, missing, rights = text.partition(_NOT_HELD)
        if missing:  # before the rights come the account and its groups, at a length that would hide them
            text = f"{head.partition(':')[0]}: {missing.strip()} {rights.strip()}"
        return excerpt(text, _MAX_MESSAGE)


def decode_reply(raw: RawReply) -> ApiReply:
    """A received reply as a value; text that is not a JSON object becomes the message."""
    if raw.status in _REDIRECT:
        message = f"HTTP status {raw.status}, which leads to {_redacted_location(raw.location)}"
        return ApiReply(raw.status, {"message": message})
    # A proxy answers in plain text, and so does the server for a path that it does not serve.
    found = find_json_object(raw.body) if raw.body else {}
    return ApiReply(raw.status, {"message": excerpt_bytes(raw.body)} if found is None else found)


def _redacted_location(location: str) -> str:
    """A URL without the parts that may be secret: query, fragment, user and password."""
    shown = location.partition("?")[0].partition("#")[0]
    return "…" if "@" in shown else shown or "nowhere"


def parse_json(text: str | bytes) -> object:
    """The value of a JSON text from an untrusted source.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.
    """
    try:
        value: object = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def find_json_object(data: bytes) -> Json | None:
    """The JSON object in some data; None if the data is anything else."""
    try:
        found = parse_json(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def excerpt_bytes(data: bytes) -> str:
    """The beginning of some data, for an error text."""
    return excerpt(data[:_MAX_BYTES].decode(errors="replace").strip())


# --- transport -------------------------------------------------------------------------------------------------------


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
        self._http.sock = cast("socket.socket", socket_)  # http.client only sends, receives and closes it
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


# --- apiclient -------------------------------------------------------------------------------------------------------


_USER_AGENT = "netplug/3.33"
_AFTER_REMOVAL = "have they expired, or has netplug been removed from this cluster?"
_AFTER_START = "if the API server has just started, wait: it does not know every right yet"
_UNAUTHORIZED, _FORBIDDEN, _TOO_MANY, _SERVER_ERROR, _UNAVAILABLE = 401, 403, 429, 500, 503
_API_PATH_PREFIX = "/api"  # below it all replies are JSON objects; other paths (/readyz) answer in plain text
_MAX_IDLE = 4
_DEFAULT_RETRY_S = 1.0


@frozen
class RightMissing(Unauthorized):
    """The server knows who we are, and we may not do this (code 11)."""


def open_api_client(settings: DatastoreSettings, environ: Mapping[str, str], *, clock: Clock) -> ApiClient:
    """A client for the API server that settings name; nothing is read or sent before the first request."""
    return ApiClient(
        AccessSource(settings.kubernetes, environ),
        clock=clock,
        rate_limiter=RateLimiter(clock=clock, qps=settings.qps, burst=settings.burst),
    )


@define
class WatchStream:
    """The reply to a watch request: one event per line, until the server or the deadline ends it."""

    reply: ApiReply
    _what: str
    _connection: ApiConnection

    def events(self) -> Iterator[Json]:
        """Every event, until the server ends the stream or the connection breaks.

        Raises:
            TimeoutError: the deadline passed.
            Unavailable: a line is not an event.
        """
        while True:
            try:
                line = self._connection.next_line()
            except TimeoutError:
                raise
            except (OSError, HTTPException):
                return
            if not line.endswith(b"\n"):
                return  # cut off in the middle, or closed by us: the caller continues after the last whole event
            event = find_json_object(line)
            if event is None or not isinstance(event.get("object"), Mapping):
                raise Unavailable(self._what, f"the answer is none of the API's: {excerpt_bytes(line)}")
            yield event

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@define
class _ConnectionPool:
    """The idle connections made with one access."""

    access: ApiAccess
    tls_context: ssl.SSLContext | None
    idle: list[ApiConnection] = field(factory=list)

    def take_idle(self) -> ApiConnection | None:
        """An idle connection that the server has not closed; None if there is none."""
        while True:
            with suppress(IndexError):  # another thread may take the last one
                connection = self.idle.pop()
                if not connection.is_stale:
                    return connection
                connection.close()
                continue
            return None

    def close_idle(self) -> None:
        """Close the idle connections."""
        while self.idle:
            with suppress(IndexError):  # another thread may take the last one, and then closes it
                self.idle.pop().close()


@define(eq=False, repr=False)
class ApiClient:
    """The API server that an access leads to. Any number of threads may use it at once.

    ``report``, if there is one, is called for each page of a collection: with how many objects of it are read, and how
    many follow, 0 if the server does not say.
    """

    _source: AccessSource
    _clock: Clock = field(kw_only=True, alias="clock")
    _rate_limiter: RateLimiter = field(kw_only=True, alias="rate_limiter")
    report: Callable[[int, int], None] | None = field(default=None, init=False)
    _pool: _ConnectionPool | None = field(default=None, init=False)

    @property
    def location(self) -> str:
        """The server's URL, for people; before the first request, where the access comes from."""
        return self._pool.access.server if self._pool else self._source.origin

    def server_digest(self, *, deadline: Deadline) -> str:
        """A hash of the server's URL and of the authority that it is trusted by. Errors are those of ``send``."""
        access = self._source.current(deadline=deadline)
        pem = access.certificate_authority
        authority = FileReader().read_content(pem.path, pem.where) if pem.path else pem.data
        return hashlib.sha256(access.server.encode() + b"\0" + authority).hexdigest()

    def credentials_in_use(self) -> CredentialsInUse | None:
        """See :class:`~netplug_core.datastore.protocol.HasCredentials`."""
        access = self._source.loaded
        if access is None:
            return None
        pem = access.certificate
        return CredentialsInUse(
            access="kubernetes",
            location=access.server,
            certificate=FileReader().read_content(pem.path, pem.where) if pem.path else pem.data,
            token=access.token,
            expires_ns=access.expires_ns,
        )

    def describe(self, request: ApiRequest) -> str:
        """A request as error texts name it."""
        return f"kubernetes API {self.location}: {request.method} {request.path}"

    def close(self) -> None:
        """Close the idle connections; a later request opens new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close_idle()

    def send(self, request: ApiRequest, *, deadline: Deadline) -> ApiReply:
        """The server's answer: a success, or a refusal that concerns the object.

        Raises:
            ConfigurationError: there is no usable access.
            Unauthorized: the server does not accept the credentials, or a right is missing.
            OutcomeUnknown: the request is a write, and its reply was lost or is not the API's.
            Unavailable: nothing was done.
        """
        is_renewed = False
        while True:
            access, raw = self._exchange(request, deadline)
            if raw.status == _UNAUTHORIZED and not is_renewed:
                self._source.invalidate(access)
                is_renewed = True
                continue
            if not self._wait_before_retry(request, raw, deadline):
                return self._check_reply(request, raw)

    def open_stream(
        self, request: ApiRequest, *, deadline: Deadline, on_connect: Callable[[ApiConnection], None] = lambda _: None
    ) -> WatchStream:
        """A watch; its reply may be a refusal that concerns the object. Errors are those of ``send``.

        ``on_connect`` gets each connection before the reply is waited for, so that another thread can interrupt it.
        """
        is_renewed = False
        while True:
            connection, raw = self._open_stream_once(request, deadline, on_connect)
            with ExitStack() as undo:
                undo.callback(connection.close)
                if raw.status == _UNAUTHORIZED and not is_renewed:
                    self._source.invalidate(connection.access)
                    is_renewed = True
                elif not self._wait_before_retry(request, raw, deadline):
                    stream = WatchStream(self._check_reply(request, raw), self.describe(request), connection)
                    undo.pop_all()
                    return stream

    def _open_stream_once(
        self, request: ApiRequest, deadline: Deadline, on_connect: Callable[[ApiConnection], None]
    ) -> tuple[ApiConnection, RawReply]:
        pool = self._current_pool(deadline)
        connection = self._connect(pool, request, deadline)
        try:
            on_connect(connection)
            connection.send(request.method, request.target, _headers(pool.access, request), None, deadline)
            return connection, connection.open_stream()
        except (OSError, HTTPException) as error:
            connection.close()
            raise Unavailable(self.describe(request), _describe_lost_reply(error, connection)) from error

    def sleep(self, seconds: float, deadline: Deadline) -> None:
        """Wait before the next request, at most until the deadline."""
        self._clock.sleep(min(seconds, deadline.remaining_s))

    def _wait_before_retry(self, request: ApiRequest, raw: RawReply, deadline: Deadline) -> bool:
        """Wait if the server asked to send the request again later; whether to send it again."""
        wait_s = _find_retry_delay_s(raw, request)
        if wait_s is None:
            return False
        if wait_s >= deadline.remaining_s:
            problem = f"the server asked to come back in {wait_s:g} s: {decode_reply(raw).message}"
            raise Unavailable(self.describe(request), problem)
        self._clock.sleep(wait_s)
        return True

    # --- one exchange ----------------------------------------------------------------------------------------------

    def _exchange(self, request: ApiRequest, deadline: Deadline) -> tuple[ApiAccess, RawReply]:
        """The reply to one request, on an idle connection if there is one, and the access that was used."""
        if not self._rate_limiter.try_acquire(deadline):
            raise Unavailable(self.describe(request), "the deadline passed before it could be asked")
        pool = self._current_pool(deadline)
        headers = _headers(pool.access, request)
        body = None if request.body is None else json.dumps(request.body, separators=(",", ":")).encode()
        while True:
            idle = pool.take_idle()
            connection = idle or self._connect(pool, request, deadline)
            try:
                connection.send(request.method, request.target, headers, body, deadline)
                raw = connection.receive()
            except (OSError, HTTPException) as error:
                connection.close()
                if request.is_read and idle is not None and not deadline.has_passed:
                    continue  # the server has closed the idle connection
                problem = _describe_lost_reply(error, connection)
                raise request.no_answer_error(self.describe(request), problem) from error
            except BaseException:  # an interrupt: the next request would read this one's reply
                connection.close()
                raise
            if raw.is_last or len(pool.idle) >= _MAX_IDLE or pool is not self._pool:
                connection.close()
            else:
                pool.idle.append(connection)
                if pool is not self._pool:  # the pool was replaced between the two checks
                    pool.close_idle()
            return pool.access, raw

    def _connect(self, pool: _ConnectionPool, request: ApiRequest, deadline: Deadline) -> ApiConnection:
        try:
            return connect(pool.access, pool.tls_context, deadline)
        except OSError as error:
            raise Unavailable(self.describe(request), _describe_error(error)) from error

    def _current_pool(self, deadline: Deadline) -> _ConnectionPool:
        access = self._source.current(deadline=deadline)
        pool = self._pool
        if pool is None or pool.access is not access:
            try:
                context = tls_context(access)
            except ConfigurationError:
                if pool is None:
                    raise
                return pool  # a rotation is half done: the next request tries again
            self.close()
            pool = self._pool = _ConnectionPool(access, context)
        return pool

    def _check_reply(self, request: ApiRequest, raw: RawReply) -> ApiReply:
        reply = decode_reply(raw)
        if raw.status == _UNAUTHORIZED:
            problem = f"it does not accept the credentials of {self._source.origin}: {reply.message}"
            raise Unauthorized(self.describe(request), f"{problem}; {_AFTER_REMOVAL}")
        if raw.status == _FORBIDDEN:
            raise RightMissing(self.describe(request), f"a right is missing: {reply.message}; {_AFTER_START}")
        if raw.status >= _SERVER_ERROR:
            raise request.no_answer_error(self.describe(request), reply.message)
        is_api = request.path.startswith(_API_PATH_PREFIX)
        if reply.is_success and is_api and raw.body and find_json_object(raw.body) is None:
            # A proxy answered. Its text must not be taken for an empty list.
            raise self.unusable_reply(request, reply.message)
        return reply

    def unusable_reply(self, request: ApiRequest, problem: str) -> Unavailable:
        """The error for a success that the API server cannot have sent; after a write the outcome is unknown."""
        return request.no_answer_error(self.describe(request), f"the answer is none of the API's: {problem}")


def _headers(access: ApiAccess, request: ApiRequest) -> dict[str, str]:
    headers = {"Accept": request.accept, "User-Agent": _USER_AGENT}
    if request.body is not None:
        headers["Content-Type"] = request.content_type
    if access.token:
        headers["Authorization"] = f"Bearer {access.token}"
    return headers


def _find_retry_delay_s(raw: RawReply, request: ApiRequest) -> float | None:
    """How long to wait before the request is sent again; None if the answer is final.

    A write is sent again only after a status that proves that nothing was done.
    """
    seconds = float(raw.retry_after) if raw.retry_after.isascii() and raw.retry_after.isdigit() else None
    if raw.status == _TOO_MANY:
        return _DEFAULT_RETRY_S if seconds is None else seconds
    if raw.status == _UNAVAILABLE and request.is_read:
        return seconds
    return None


def _describe_lost_reply(error: Exception, connection: ApiConnection) -> str:
    """Why no reply came; a TLS server closes a plain HTTP connection without an answer."""
    is_unanswered = not connection.has_answered and not isinstance(error, TimeoutError)
    if is_unanswered and parse_scheme(connection.access.server) == "http":
        return f"{_describe_error(error)}; does the server speak TLS? Then write https"
    return _describe_error(error)


def _describe_error(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "it did not answer by the deadline"
    return str(error) or type(error).__name__
