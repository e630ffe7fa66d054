"""The base classes of every error, sorted by whose move it is.

An error that carries a key, a value or a trace stands beside it (``records``, ``ipam``, ``dataplane``); it
derives from one of these. ``code`` is the number a CNI runtime reads (CNI specification, "Error codes"): codes
below 100 are the specification's, 101 to 119 belong to allocation, 120 to 139 to the dataplane, 999 to what nobody
foresaw. Nothing here imports anything of netplug.
"""

from __future__ import annotations

from types import UnionType
from typing import ClassVar

from attrs import frozen

__all__ = [
    "REDACTED",
    "AllocationError",
    "ConfigurationError",
    "ContentionExhausted",
    "DataplaneError",
    "DatastoreError",
    "DecodeError",
    "IncompatibleVersion",
    "InvalidArgument",
    "InvariantBroken",
    "NamespaceError",
    "NamespaceNotFound",
    "NetplugError",
    "NotYetSupported",
    "ReadError",
    "RequestError",
    "Unauthorized",
    "Unavailable",
    "UnhealthyStatus",
    "UsageError",
    "redact_url_credentials",
    "require_count",
    "require_tuple",
    "require_type",
]

REDACTED = "…"
"""What an error shows in place of a value that may be a secret."""

_MAX_SHOWN_LENGTH = 120  # characters of an argument


class NetplugError(Exception):
    """Everything netplug raises on purpose; never raised itself."""

    code: ClassVar[int] = 999


@frozen
class IncompatibleVersion(NetplugError):
    """The network configuration asks for a CNI version, or a verb, that it cannot have (code 1)."""

    code: ClassVar[int] = 1
    message: str
    details: str = ""

    def __str__(self) -> str:
        return self.message


@frozen
class RequestError(NetplugError):
    """The runtime's move: an environment variable is missing or malformed (code 4)."""

    code: ClassVar[int] = 4
    message: str

    def __str__(self) -> str:
        return self.message


@frozen
class ReadError(NetplugError):
    """Standard input could not be read (code 5)."""

    code: ClassVar[int] = 5
    message: str

    def __str__(self) -> str:
        return self.message


@frozen
class DecodeError(NetplugError):
    """The text is not JSON, not an object, or a key has the wrong JSON type (code 6)."""

    code: ClassVar[int] = 6
    where: str
    problem: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


@frozen
class ConfigurationError(NetplugError):
    """The user's move: a value that cannot be accepted (code 7).

    ``where`` names the object and the field, ``value`` is what was found there, ``accepted`` what would do.
    """

    code: ClassVar[int] = 7
    where: str
    value: object
    accepted: str

    def __str__(self) -> str:
        return f"{self.where}: {self.value!r} is not accepted; {self.accepted}"


@frozen
class InvalidArgument(ConfigurationError):
    """A program called the library with an argument of a wrong type or value; ``where`` names the argument."""

    def __str__(self) -> str:
        shown = repr(self.value)
        if len(shown) > _MAX_SHOWN_LENGTH:
            shown = f"{shown[:_MAX_SHOWN_LENGTH]}{REDACTED}"
        return f"{self.where}: {shown} is not accepted; {self.accepted}"


@frozen
class NotYetSupported(ConfigurationError):
    """A setting of the specification that this release does not serve yet (code 7)."""

    def __str__(self) -> str:
        return f"{self.where}: {self.value!r} is not yet supported; {self.accepted}"


@frozen
class NamespaceError(NetplugError):
    """CNI_NETNS names a namespace that cannot be served (code 8)."""

    code: ClassVar[int] = 8
    message: str

    def __str__(self) -> str:
        return self.message


@frozen
class NamespaceNotFound(NamespaceError):
    """CNI_NETNS leads to no network namespace: a variable that is wrong, as others may be (code 4)."""

    code: ClassVar[int] = 4


class DatastoreError(NetplugError):
    """Base of what a datastore answers; the members stand in ``records``."""


@frozen
class Unavailable(DatastoreError):
    """Something this call needs does not answer now; the runtime tries again later (code 11)."""

    code: ClassVar[int] = 11
    what: str
    cause: str

    def __str__(self) -> str:
        return f"{self.what}: {self.cause}"


@frozen
class Unauthorized(Unavailable):
    """The store or the orchestrator refused our credentials or rights (code 11)."""


@frozen
class ContentionExhausted(NetplugError):
    """Every attempt lost against other writers until the deadline passed (code 11)."""

    code: ClassVar[int] = 11
    attempts: int
    last_error: str

    def __str__(self) -> str:
        return f"gave up after {self.attempts} attempts against concurrent writers; the last one: {self.last_error}"


@frozen
class UnhealthyStatus(NetplugError):
    """STATUS: an ADD could not be served now (code 50)."""

    code: ClassVar[int] = 50
    reason: str

    def __str__(self) -> str:
        return self.reason


@frozen
class UsageError(NetplugError):
    """The executables' own flags are wrong (code 100)."""

    code: ClassVar[int] = 100
    message: str
    details: str = ""

    def __str__(self) -> str:
        return self.message


class AllocationError(NetplugError):
    """The move of whoever plans capacity (codes 101 to 119); the members stand in ``ipam``.

    ``identifier`` names the reason in a word that is as stable as the code.
    """

    identifier: ClassVar[str] = ""


class DataplaneError(NetplugError):
    """The move of whoever runs the node (codes 120 to 139); the members stand in ``dataplane``."""

    code: ClassVar[int] = 120


@frozen
class InvariantBroken(NetplugError):
    """Our own mistake: something that cannot be, was (code 999)."""

    message: str

    def __str__(self) -> str:
        return f"internal error: {self.message}"


def redact_url_credentials(value: object) -> object:
    """The value, or ``REDACTED`` if it may be a URL with a user or a password in it: both stand before an ``@``."""
    return REDACTED if "@" in repr(value) else value


def require_type(where: str, value: object, expected: type, accepted: str) -> None:
    """Check the type of an argument, which a caller without a type checker may get wrong.

    Raises:
        InvalidArgument: it has another type.
    """
    if not isinstance(value, expected):
        raise InvalidArgument(where, value, accepted)


def require_count(where: str, value: object, minimum: int = 1) -> None:
    """Check that an argument is a whole number that is large enough; a boolean is not a number.

    Raises:
        InvalidArgument: it is not.
    """
    if type(value) is not int or value < minimum:
        raise InvalidArgument(where, value, f"a whole number of at least {minimum} is expected")


def require_tuple(where: str, value: object, members: type | UnionType, accepted: str) -> None:
    """Check that an argument is a tuple whose members have the right type.

    Raises:
        InvalidArgument: it is not.
    """
    if not isinstance(value, tuple) or not all(isinstance(member, members) for member in value):
        raise InvalidArgument(where, value, accepted)
