"""Sends requests to the API server: connections, credentials, rate limit, retries and their errors.

The kind stores and the orchestrator call it. A read that fails on an idle connection is sent again, because the server
may have closed that connection. A write is sent once; if its reply is lost, the outcome is unknown. After a 401 the
credentials are read again and the request is sent once more. After a 429 the client waits as long as the server says.
Everything ends by the caller's deadline. No error contains a credential.
"""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from http.client import HTTPException
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.credentials import ApiAccess, FileReader, parse_scheme
from netplug_backends.kubernetes.client.messages import (
    ApiReply,
    ApiRequest,
    Json,
    RawReply,
    decode_reply,
    excerpt_bytes,
    find_json_object,
)
from netplug_backends.kubernetes.client.ratelimit import RateLimiter
from netplug_backends.kubernetes.client.transport import ApiConnection, connect, tls_context
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import CredentialsInUse
from netplug_core.errors import ConfigurationError, Unauthorized, Unavailable

if TYPE_CHECKING:
    from netplug_core.settings.model import DatastoreSettings

__all__ = ["ApiClient", "RightMissing", "WatchStream", "open_api_client"]

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


class ApiClient:
    """The API server that an access leads to. Any number of threads may use it at once."""

    def __init__(self, source: AccessSource, *, clock: Clock, rate_limiter: RateLimiter) -> None:
        self._source = source
        self._clock = clock
        self._rate_limiter = rate_limiter
        self._pool: _ConnectionPool | None = None

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
