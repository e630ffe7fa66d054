"""The protocol between an executable that a runtime starts and the node process: one request on each connection.

Both sides and the clients in other languages follow this page. Numbers are unsigned and big-endian.

A request is 16 bytes and a body::

    7 bytes   "netplug"
    1 byte    the number of the protocol, 1
    4 bytes   for how many milliseconds the client waits for the reply
    4 bytes   the length of the body, at most 4 MiB

The body is strings that end with a NUL: the name of the executable (``netplug`` or ``netplug-ipam``), then the
variables of the environment as ``NAME=VALUE``, then an empty string. Of two variables of one name the first counts, as
in a process of its own. What follows is the standard input. With the first byte may come one descriptor (SCM_RIGHTS):
the network namespace of ``CNI_NETNS``, if the client could open it.

A reply is the byte "T" and a result::

    1 byte    "T": the request is taken
    4 bytes   the exit status
    4 bytes   the length of what goes to standard output
    4 bytes   the length of what goes to standard error
              the two texts

Until it reads the "T" a client may give up, close the connection and do the job itself: nothing has been done. If the
reply breaks off after it, the job may be done in part, and has to be resumed (``--resume``). A server that does not
understand a request closes the connection without a "T". What follows a reply is not read.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from netplug_core.errors import DecodeError

__all__ = [
    "HEADER_LENGTH", "MAX_BODY_LENGTH", "TAKEN", "RequestHeader", "WireReply", "WireRequest", "encode_reply",
    "encode_request", "parse_body", "parse_header", "parse_reply",
]  # fmt: skip

TAKEN = b"T"
"""The first byte of a reply."""

HEADER_LENGTH = 16
"""The bytes of a request before its body."""

MAX_BODY_LENGTH = 4 * 2**20
"""The most bytes of a body. A kernel passes at most a few hundred KiB of variables to a program."""

_MAGIC = b"netplug\x01"
_NUMBER = 4
_TEXT_ERRORS = "surrogateescape"  # as Python reads variables of its own process, which may be any bytes


@frozen(kw_only=True)
class RequestHeader:
    """The length of a request's body in bytes, and for how long its client waits."""

    body_length: int
    patience_s: float


@frozen(kw_only=True)
class WireRequest:
    """One call of a runtime: the executable's name, its variables and its standard input."""

    program: str
    environ: Mapping[str, str] = field(repr=False)
    stdin: bytes = field(repr=False)


@frozen(kw_only=True)
class WireReply:
    """What the executable prints, and its exit status."""

    exit_status: int
    stdout: bytes
    stderr: bytes


def encode_request(request: WireRequest, *, patience_s: float) -> bytes:
    """The bytes of a request."""
    strings = (request.program, *(f"{name}={value}" for name, value in request.environ.items()), "")
    body = b"".join(text.encode("utf-8", _TEXT_ERRORS) + b"\0" for text in strings) + request.stdin
    return _MAGIC + _numbers(round(patience_s * 1000), len(body)) + body


def parse_header(data: bytes) -> RequestHeader:
    """The header of a request.

    Raises:
        DecodeError: it is none, is of another protocol, or the body is too long.
    """
    if len(data) != HEADER_LENGTH or not data.startswith(_MAGIC):
        raise DecodeError("the request", f"does not begin with {_MAGIC!r}: {data[: len(_MAGIC)]!r}")
    patience_ms, length = _parse_numbers(data[len(_MAGIC) :])
    if length > MAX_BODY_LENGTH:
        raise DecodeError("the request", f"has {length} bytes, at most {MAX_BODY_LENGTH} are accepted")
    return RequestHeader(body_length=length, patience_s=patience_ms / 1000)


def parse_body(data: bytes) -> WireRequest:
    """The request in a body.

    Raises:
        DecodeError: it does not have the name of an executable and a list of variables that ends.
    """
    strings, separator, stdin = data.partition(b"\0\0")
    if not separator:
        raise DecodeError("the request", "has no end of its variables")
    program, *variables = (text.decode("utf-8", _TEXT_ERRORS) for text in strings.split(b"\0"))
    environ: dict[str, str] = {}
    for variable in variables:
        name, separator_of_value, value = variable.partition("=")
        if not name or not separator_of_value:
            raise DecodeError("the request", f"has a variable without a name or a value: {variable[:40]!r}")
        environ.setdefault(name, value)
    return WireRequest(program=program, environ=environ, stdin=stdin)


def encode_reply(reply: WireReply) -> bytes:
    """The bytes of a reply after the one that says that the request is taken."""
    return _numbers(reply.exit_status, len(reply.stdout), len(reply.stderr)) + reply.stdout + reply.stderr


def parse_reply(data: bytes) -> WireReply | None:
    """The reply in what a server sent, from the byte that says that the request is taken; None if it broke off."""
    numbers, texts = data[len(TAKEN) : len(TAKEN) + 3 * _NUMBER], data[len(TAKEN) + 3 * _NUMBER :]
    if not data.startswith(TAKEN) or len(numbers) < 3 * _NUMBER:
        return None
    exit_status, stdout, stderr = _parse_numbers(numbers)
    if len(texts) != stdout + stderr:
        return None
    return WireReply(exit_status=exit_status, stdout=texts[:stdout], stderr=texts[stdout:])


def _numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(_NUMBER, "big") for value in values)


def _parse_numbers(data: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(data[at : at + _NUMBER], "big") for at in range(0, len(data), _NUMBER))
