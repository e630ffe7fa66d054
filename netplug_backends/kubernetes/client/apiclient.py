"""Requests to the API server in plain JSON, and what their failures mean.

The keepers of records call it, and the orchestrator. A read that failed on a connection that the server had closed is
asked again; a write is sent once, and where its reply was lost the outcome is unknown and says so. A 401 reads the
credentials again and tries once more; a server that is too busy (429) names the time to come back. Everything ends by
the caller's deadline. No credential is ever part of an error.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from http.client import HTTPException
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, urlencode

from attrs import define, field, frozen

from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.credentials import ApiAccess, parse_scheme
from netplug_backends.kubernetes.client.transport import ApiConnection, RawReply, connect, tls_context
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import ConfigurationError, Unauthorized, Unavailable
from netplug_core.records import OutcomeUnknown

if TYPE_CHECKING:
    from netplug_backends.kubernetes.client.ratelimit import RateLimiter

__all__ = ["ApiClient", "ApiReply", "ApiRequest", "Json", "WatchStream", "parse_json", "path_segment"]

Json = Mapping[str, object]

_JSON = "application/json"
_AGENT = "netplug/3.33"
_ACCEPTED, _REDIRECT = range(200, 300), range(300, 400)
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY, _SERVER_ERROR, _UNAVAILABLE = 401, 403, 404, 429, 500, 503
_API_PATH_PREFIX = "/api"  # where objects are, of the core and of other groups; elsewhere (/readyz) it answers in words
_MAX_IDLE = 4
_DEFAULT_RETRY_S = 1.0


@frozen
class ApiRequest:
    """One request; ``path`` is made with :func:`segment`. A ``GET`` is a read, anything else a write."""

    method: str
    path: str
    query: Mapping[str, str] = field(factory=dict)
    body: object | None = field(default=None, repr=False)
    content_type: str = _JSON

    @property
    def is_read(self) -> bool:
        """Whether it may be sent twice."""
        return self.method == "GET"

    @property
    def target(self) -> str:
        """Path and query as they are sent."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


@frozen
class ApiReply:
    """What the server answered: the object, or the ``Status`` that says why not."""

    status: int
    object: Json = field(repr=False)

    @property
    def is_success(self) -> bool:
        """Whether the request did what it was for."""
        return self.status in _ACCEPTED

    @property
    def is_missing(self) -> bool:
        """Whether there is no such object. A path that nobody serves is no object either, but says so differently."""
        details = self.object.get("details")
        return self.status == _NOT_FOUND and isinstance(details, Mapping) and bool(details.get("name"))

    @property
    def reason(self) -> str:
        """The word for a refusal, such as ``Expired``."""
        return str(self.object.get("reason") or "")

    @property
    def message(self) -> str:
        """The sentence for a refusal."""
        return str(self.object.get("message") or f"HTTP status {self.status}")


@define
class WatchStream:
    """A watch: objects, one a line, until the server or the deadline ends it."""

    reply: ApiReply
    _what: str
    _connection: ApiConnection

    def events(self) -> Iterator[Json]:
        """Every event; ends when the server does or the connection breaks.

        Raises:
            TimeoutError: the deadline passed.
            Unavailable: what comes are no events.
        """
        while True:
            try:
                line = self._connection.next_line()
            except TimeoutError:
                raise
            except (OSError, HTTPException):
                return
            if not line.endswith(b"\n"):
                return  # cut off in the middle, or closed by us: the caller goes on from the last event it saw
            event = _find_object(line)
            if event is None or not isinstance(event.get("object"), Mapping):
                raise Unavailable(self._what, f"the answer is none of the API's: {_excerpt(line)}")
            yield event

    def close(self) -> None:
        """Give the connection up."""
        self._connection.close()


@define
class _ConnectionPool:
    """The connections that one access made."""

    access: ApiAccess
    tls_context: ssl.SSLContext | None
    idle: list[ApiConnection] = field(factory=list)

    def close_idle(self) -> None:
        """Close those that nobody uses."""
        while self.idle:
            with suppress(IndexError):  # another thread may take the last one, and then it is that one's
                self.idle.pop().close()


class ApiClient:
    """The API server that an access leads to. Any number of threads may ask it at once."""

    def __init__(self, source: AccessSource, *, clock: Clock, rate_limiter: RateLimiter) -> None:
        self._source = source
        self._clock = clock
        self._rate_limiter = rate_limiter
        self._pool: _ConnectionPool | None = None

    @property
    def location(self) -> str:
        """Where the API is, for people; where the access is from as long as nobody has asked for it."""
        return self._pool.access.server if self._pool else self._source.origin

    def close(self) -> None:
        """Give up the connections; a later call would open new ones."""
        secured, self._pool = self._pool, None
        if secured is not None:
            secured.close_idle()

    def send(self, request: ApiRequest, *, deadline: Deadline) -> ApiReply:
        """The server's answer: a success, or a refusal that concerns the object.

        Raises:
            ConfigurationError: there is no usable access.
            Unauthorized: it does not know us, or we may not do this.
            OutcomeUnknown: the request is a write, and its reply was lost or does not say.
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
        """A watch; its reply may be a refusal that concerns the object. Errors are those of ``ask``.

        ``asked`` is told of every connection before its reply is waited for, so that another thread can interrupt it.
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
                    stream = WatchStream(self._check_reply(request, raw), self._describe(request), connection)
                    undo.pop_all()
                    return stream

    def _open_stream_once(
        self, request: ApiRequest, deadline: Deadline, on_connect: Callable[[ApiConnection], None]
    ) -> tuple[ApiConnection, RawReply]:
        secured = self._current_pool(deadline)
        connection = self._connect(secured, request, deadline)
        try:
            on_connect(connection)
            connection.send(request.method, request.target, _headers(secured.access, request), None, deadline)
            return connection, connection.open_stream()
        except (OSError, HTTPException) as error:
            connection.close()
            raise Unavailable(self._describe(request), _describe_lost_reply(error, connection)) from error

    def sleep(self, seconds: float, deadline: Deadline) -> None:
        """Let some time pass before the next request, but none beyond the deadline."""
        self._clock.sleep(min(seconds, deadline.remaining_s))

    def _wait_before_retry(self, request: ApiRequest, raw: RawReply, deadline: Deadline) -> bool:
        """Whether the server asked to come back later, and it is later now."""
        wait_s = _find_retry_delay_s(raw, request)
        if wait_s is None:
            return False
        if wait_s >= deadline.remaining_s:
            raise Unavailable(
                self._describe(request), f"the server asked to come back in {wait_s:g} s: {_message_of(raw)}"
            )
        self._clock.sleep(wait_s)
        return True

    # --- one exchange ----------------------------------------------------------------------------------------------

    def _exchange(self, request: ApiRequest, deadline: Deadline) -> tuple[ApiAccess, RawReply]:
        """The reply to one request, on an idle connection if there is one, and who asked it."""
        if not self._rate_limiter.try_acquire(deadline):
            raise Unavailable(self._describe(request), "the deadline passed before it could be asked")
        secured = self._current_pool(deadline)
        headers = _headers(secured.access, request)
        body = None if request.body is None else json.dumps(request.body, separators=(",", ":")).encode()
        while True:
            idle = _find_idle_connection(secured)
            connection = idle or self._connect(secured, request, deadline)
            try:
                connection.send(request.method, request.target, headers, body, deadline)
                raw = connection.receive()
            except (OSError, HTTPException) as error:
                connection.close()
                if request.is_read and idle is not None and not deadline.has_passed:
                    continue  # the server had grown tired of the idle connection
                failure = Unavailable if request.is_read else OutcomeUnknown
                raise failure(self._describe(request), _describe_lost_reply(error, connection)) from error
            except BaseException:  # an interrupt: the reply would be taken for another's
                connection.close()
                raise
            if raw.is_last or len(secured.idle) >= _MAX_IDLE or secured is not self._pool:
                connection.close()
            else:
                secured.idle.append(connection)
                if secured is not self._pool:  # given up between the two looks
                    secured.close_idle()
            return secured.access, raw

    def _connect(self, pool: _ConnectionPool, request: ApiRequest, deadline: Deadline) -> ApiConnection:
        try:
            return connect(pool.access, pool.tls_context, deadline)
        except OSError as error:
            raise Unavailable(self._describe(request), _describe_error(error)) from error

    def _current_pool(self, deadline: Deadline) -> _ConnectionPool:
        access = self._source.current(deadline=deadline)
        secured = self._pool
        if secured is None or secured.access is not access:
            try:
                context = tls_context(access)
            except ConfigurationError:
                if secured is None:
                    raise
                return secured  # half of a rotation is done: the next call looks again
            self.close()
            secured = self._pool = _ConnectionPool(access, context)
        return secured

    def _check_reply(self, request: ApiRequest, raw: RawReply) -> ApiReply:
        if raw.status == _UNAUTHORIZED:
            raise Unauthorized(
                self._describe(request),
                f"it does not accept the credentials of {self._source.origin}: {_message_of(raw)}",
            )
        if raw.status == _FORBIDDEN:
            raise Unauthorized(self._describe(request), f"a right is missing: {_message_of(raw)}")
        if raw.status >= _SERVER_ERROR:
            failure = Unavailable if request.is_read else OutcomeUnknown
            raise failure(self._describe(request), _message_of(raw))
        reply = _decode_reply(raw)
        if (
            reply.is_success
            and request.path.startswith(_API_PATH_PREFIX)
            and raw.body
            and _find_object(raw.body) is None
        ):
            # Somebody between us and the server: an empty list is not what this means.
            failure = Unavailable if request.is_read else OutcomeUnknown
            raise failure(self._describe(request), f"the answer is none of the API's: {reply.message}")
        return reply

    def _describe(self, request: ApiRequest) -> str:
        return f"kubernetes API {self.location}: {request.method} {request.path}"


def path_segment(text: str) -> str:
    """A name as one segment of a path; one that came as bytes outside UTF-8 is spelled as those."""
    return quote(text, safe="", errors="surrogateescape")


def parse_json(text: str | bytes) -> object:
    """The value that a text is in JSON, whoever wrote it.

    Raises:
        ValueError: it is none, or nested too deeply to be read.
    """
    try:
        value: object = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _find_idle_connection(pool: _ConnectionPool) -> ApiConnection | None:
    while True:
        with suppress(IndexError):  # another thread may take the last one
            connection = pool.idle.pop()
            if not connection.is_stale:
                return connection
            connection.close()
            continue
        return None


def _headers(access: ApiAccess, request: ApiRequest) -> dict[str, str]:
    headers = {"Accept": _JSON, "User-Agent": _AGENT}
    if request.body is not None:
        headers["Content-Type"] = request.content_type
    if access.token:
        headers["Authorization"] = f"Bearer {access.token}"
    return headers


def _decode_reply(raw: RawReply) -> ApiReply:
    if raw.status in _REDIRECT:
        return ApiReply(
            raw.status, {"message": f"HTTP status {raw.status}, which leads to {_redacted_location(raw.location)}"}
        )
    # A proxy, or a path that nobody serves, answers in its own words.
    found = _find_object(raw.body) if raw.body else {}
    return ApiReply(raw.status, {"message": _excerpt(raw.body)} if found is None else found)


def _redacted_location(location: str) -> str:
    """As much of a URL as can be no secret: not what is behind a question mark or a hash, and no user or password."""
    shown = location.partition("?")[0].partition("#")[0]
    return "…" if "@" in shown else shown or "nowhere"


def _excerpt(data: bytes) -> str:
    return data[:200].decode(errors="replace").strip()


def _find_object(data: bytes) -> Json | None:
    """The object that some data is; None when it is something else."""
    try:
        found = parse_json(data)
    except ValueError:
        return None
    return cast("Json", found) if isinstance(found, dict) else None


def _message_of(raw: RawReply) -> str:
    return _decode_reply(raw).message


def _find_retry_delay_s(raw: RawReply, request: ApiRequest) -> float | None:
    """How long to wait before asking again; None where the answer stands. A write is only repeated if none was done."""
    seconds = float(raw.retry_after) if raw.retry_after.isascii() and raw.retry_after.isdigit() else None
    if raw.status == _TOO_MANY:
        return _DEFAULT_RETRY_S if seconds is None else seconds
    if raw.status == _UNAVAILABLE and request.is_read:
        return seconds
    return None


def _describe_lost_reply(error: Exception, connection: ApiConnection) -> str:
    """Why a reply did not come; a server that speaks TLS has nothing to say to those who do not."""
    is_deaf = not connection.has_answered and not isinstance(error, TimeoutError)
    if is_deaf and parse_scheme(connection.access.server) == "http":
        return f"{_describe_error(error)}; does the server speak TLS? Then write https"
    return _describe_error(error)


def _describe_error(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "it did not answer by the deadline"
    return str(error) or type(error).__name__
