"""Requests to the API server and its replies, as values. Pure; ``apiclient`` sends and receives them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias, cast
from urllib.parse import urlencode

from attrs import field, frozen

from netplug_core.errors import Unavailable, excerpt
from netplug_core.records import OutcomeUnknown

__all__ = [
    "METADATA_TYPE",
    "ApiReply",
    "ApiRequest",
    "Json",
    "RawReply",
    "decode_reply",
    "excerpt_bytes",
    "find_json_object",
    "parse_json",
]

Json: TypeAlias = Mapping[str, object]
"""A JSON object."""

JSON_TYPE = "application/json"
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
    return cast("Json", found) if isinstance(found, dict) else None


def excerpt_bytes(data: bytes) -> str:
    """The beginning of some data, for an error text."""
    return excerpt(data[:_MAX_BYTES].decode(errors="replace").strip())
