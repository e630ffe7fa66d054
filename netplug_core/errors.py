"""The base classes of every error, sorted by whose move it is.

An error that carries a key, a value or a trace stands beside it (``records``, ``ipam``, ``dataplane``); it
derives from one of these. ``ErrorCode`` is the one table of their codes. Nothing here imports anything of netplug.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from types import UnionType
from typing import ClassVar, TypeVar

from attrs import frozen

__all__ = [
    "REDACTED", "AllocationError", "ConfigurationError", "ConnectionTestFailed", "ContentionExhausted",
    "DataplaneError", "DatastoreError", "DecodeError", "ErrorCode", "IncompatibleVersion", "InvalidArgument",
    "InvariantBroken", "LimitedConnectivity", "NamespaceError", "NamespaceNotFound", "NetplugError", "NotYetSupported",
    "ReadError", "RequestError", "Unauthorized", "Unavailable", "UnhealthyStatus", "UsageError", "did_you_mean",
    "excerpt", "find_similar", "narrow", "quote", "redact_url_credentials", "redacted_repr", "require_count",
    "require_tuple", "require_type", "shorten",
]  # fmt: skip

T = TypeVar("T")

REDACTED = "…"
"""What an error shows in place of a value that may be a secret."""

_MAX_SHOWN_LENGTH = 200
_MIN_BEGINNING = 3  # letters of a word of which the rest is not typed
_LONG_WORD = re.compile(rf"\S{{{_MAX_SHOWN_LENGTH + 1},}}")
_PLAIN_TYPES = (str, bytes, int, float, list, tuple, dict, type(None))


class ErrorCode(enum.Enum):
    """Every code that a CNI runtime reads, and its identifier if it has one; both are the same in every release.

    Codes below 100 are the CNI specification's; 101 to 119 belong to allocation, 120 to 139 to the dataplane, 140 to
    159 to what is stored, 160 to 179 to other programs. The identifier is the name of the reason, such as
    ``pool-not-found``, and the next step is what a person can do about it, in one sentence. The codes of allocation
    have both; of the others, those whose texts do not say themselves what to do have a next step.
    ``docs/errors.md`` says what each code means; ``python -m tools.errors`` writes it.
    """

    INCOMPATIBLE_VERSION = (1, "")
    BAD_REQUEST = (4, "")
    UNREADABLE_INPUT = (5, "")
    UNDECODABLE = (6, "")
    NOT_ACCEPTED = (7, "")
    NAMESPACE_NOT_SERVED = (8, "")
    TRY_AGAIN = (11, "")
    NOT_READY = (50, "")
    LIMITED_CONNECTIVITY = (51, "")
    USAGE = (100, "")
    POOL_NOT_FOUND = (101, "pool-not-found", "name a pool by its name or its whole CIDR, or create it")
    POOL_DISABLED = (102, "pool-disabled", "name another pool, or enable this one")
    POOL_WRONG_FAMILY = (103, "pool-wrong-family", "move the entry to the list of its family")
    NO_POOL_SELECTED = (
        104,
        "no-pool-selected",
        "label the node or namespace, change a selector, or name a pool",
    )
    POOLS_EXHAUSTED = (105, "pools-exhausted", "add a pool, shrink the reservations, or shorten the cooldown")
    BLOCK_LIMIT_REACHED = (106, "block-limit-reached", "raise maxBlocksPerHost, or run fewer workloads on the node")
    POOL_BEING_REMOVED = (107, "pool-being-removed", "name another pool")
    POOL_NOT_ALLOCATABLE = (108, "pool-not-allocatable", "resolve the condition in the status of the pool")
    POOL_WRONG_USE = (109, "pool-wrong-use", "add the use to the allowedUses of the pool, or a pool that has it")
    NO_ADDRESS_WANTED = (110, "no-address-wanted", 'set one of the two to the string "true"')
    ADDRESS_OUTSIDE_POOLS = (111, "address-outside-pools", "ask for an address of an enabled pool")
    ADDRESS_TAKEN = (112, "address-taken", "ask for another address, or release this one")
    ADDRESS_COOLING = (113, "address-cooling", "wait, or shorten ipCooldownSeconds")
    USE_MISSING = (114, "use-missing", "say what the addresses are for")
    STRICT_AFFINITY = (115, "strict-affinity", "add a pool, or allow borrowing by strictAffinity false")
    CLAIMS_OFF = (116, "claims-off", "claim blocks for the node, or set autoAllocateBlocks to true")
    SEQUENCE_MISMATCH = (
        117,
        "sequence-mismatch",
        "check who holds the address now; nothing else is needed",
    )
    HANDLE_MISMATCH = (118, "handle-mismatch", "find the holder by netplugctl ipam show --ip")
    BLOCK_NOT_EMPTY = (119, "block-not-empty", "try again later, or release the addresses")
    NAMESPACE_REFUSED = (120, "")
    LINK_EXISTS = (121, "")
    ROUTE_CONFLICT = (122, "")
    KERNEL_REFUSED = (123, "")
    KERNEL_TIMEOUT = (124, "")
    HOST_INTERFACE_TAKEN = (125, "")
    ATTACHMENT_DIFFERS = (130, "")
    ADDRESSES_NOT_HELD = (131, "")
    ENDPOINT_DIFFERS = (132, "")
    MALFORMED_RECORD = (140, "", "netplugctl ipam check lists damaged records; replace or delete them")
    NOT_STORED = (141, "")
    IPAM_PLUGIN_FAILED = (160, "", "run the plugin by hand, or look at its own log")
    UNFORESEEN = (999, "")

    def __init__(self, number: int, identifier: str, next_step: str = "") -> None:
        self.number = number
        self.identifier = identifier
        self.next_step = next_step


class NetplugError(Exception):
    """Everything netplug raises on purpose; never raised itself.

    A class is declared with its ``error_code``; ``code``, ``identifier`` and ``next_step`` follow from it.
    """

    error_code: ClassVar[ErrorCode] = ErrorCode.UNFORESEEN
    code: ClassVar[int] = ErrorCode.UNFORESEEN.number
    identifier: ClassVar[str] = ErrorCode.UNFORESEEN.identifier
    next_step: ClassVar[str] = ErrorCode.UNFORESEEN.next_step

    @property
    def reported_code(self) -> int:
        """The code that a runtime reads: that of the class, except where another program has chosen it."""
        return self.code

    def __init_subclass__(cls, *, error_code: ErrorCode | None = None) -> None:
        super().__init_subclass__()
        if error_code is not None:  # attrs makes each class twice, the second time without the argument
            cls.error_code, cls.code = error_code, error_code.number
            cls.identifier = error_code.identifier
            if "next_step" not in vars(cls):  # a class may derive it from its fields
                cls.next_step = error_code.next_step


@frozen
class _Sentence(NetplugError):
    """An error whose sentence is written where it is raised."""

    message: str

    def __str__(self) -> str:
        return self.message


@frozen
class IncompatibleVersion(_Sentence, error_code=ErrorCode.INCOMPATIBLE_VERSION):
    """The network configuration asks for a CNI version, or a verb, that it cannot have (code 1)."""

    details: str = ""


@frozen
class RequestError(_Sentence, error_code=ErrorCode.BAD_REQUEST):
    """The runtime's move: an environment variable is missing or malformed (code 4)."""


@frozen
class ReadError(_Sentence, error_code=ErrorCode.UNREADABLE_INPUT):
    """Standard input could not be read (code 5)."""


@frozen
class DecodeError(NetplugError, error_code=ErrorCode.UNDECODABLE):
    """The text is not JSON, not an object, or a key has the wrong JSON type (code 6)."""

    where: str
    problem: str

    def __str__(self) -> str:
        return f"{excerpt(self.where)}: {self.problem}"


@frozen
class ConfigurationError(NetplugError, error_code=ErrorCode.NOT_ACCEPTED):
    """The user's move: a value that cannot be accepted (code 7).

    ``where`` names the object and the field, ``value`` is what was found there, ``accepted`` what would do.
    """

    where: str
    value: object
    accepted: str

    def __str__(self) -> str:
        return f"{excerpt(self.where)}: {quote(self.value)} is not accepted; {self.accepted}"


@frozen
class UnusableFile(ConfigurationError):
    """A file that the configuration names is missing, cannot be read, or is damaged (code 7); it may come back."""


@frozen
class InvalidArgument(ConfigurationError):
    """A program called the library with an argument of a wrong type or value; ``where`` names the argument."""


@frozen
class NotYetSupported(ConfigurationError):
    """A setting of the specification that this release does not serve yet (code 7)."""

    def __str__(self) -> str:
        return f"{excerpt(self.where)}: {quote(self.value)} is not yet supported; {self.accepted}"


@frozen
class NamespaceError(_Sentence, error_code=ErrorCode.NAMESPACE_NOT_SERVED):
    """CNI_NETNS names a namespace that cannot be served (code 8)."""


@frozen
class NamespaceNotFound(NamespaceError, error_code=ErrorCode.BAD_REQUEST):
    """CNI_NETNS leads to no network namespace: a variable that is wrong, as others may be (code 4)."""


class DatastoreError(NetplugError):
    """Base of what a datastore answers; the members stand in ``records``."""


@frozen
class Unavailable(DatastoreError, error_code=ErrorCode.TRY_AGAIN):
    """Something this call needs does not answer now; the runtime tries again later (code 11)."""

    what: str
    cause: str

    def __str__(self) -> str:
        return f"{self.what}: {self.cause}"


@frozen
class NotServed(Unavailable):
    """The server knows no such kind: its definition is not installed, or is older than netplug (code 11)."""


@frozen
class Unauthorized(Unavailable):
    """The store or the orchestrator refused our credentials or rights (code 11)."""


@frozen
class ContentionExhausted(NetplugError, error_code=ErrorCode.TRY_AGAIN):
    """Every attempt lost against other writers until the deadline passed (code 11)."""

    attempts: int
    last_error: str

    def __str__(self) -> str:
        return f"gave up after {self.attempts} attempts against concurrent writers; the last one: {self.last_error}"


@frozen
class UnhealthyStatus(NetplugError, error_code=ErrorCode.NOT_READY):
    """STATUS: an ADD could not be served now (code 50)."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@frozen
class LimitedConnectivity(_Sentence, error_code=ErrorCode.LIMITED_CONNECTIVITY):
    """STATUS: an ADD would be served, but workloads would not reach all that they should (code 51)."""


@frozen
class UsageError(_Sentence, error_code=ErrorCode.USAGE):
    """The executables' own flags are wrong (code 100)."""

    details: str = ""


@frozen
class ConnectionTestFailed(_Sentence, error_code=ErrorCode.USAGE):
    """The flag ``-t`` of the executables: the datastore does not answer or is not ready (code 100)."""

    details: str = ""


class AllocationError(NetplugError):
    """An address could not be assigned or released (codes 101 to 119); the person who plans capacity can act.

    ``identifier`` is the name of the reason; it is as stable as the code.
    """


class DataplaneError(NetplugError, error_code=ErrorCode.NAMESPACE_REFUSED):
    """An attachment failed on the node (codes 120 to 139); the person who runs the node can act."""


@frozen
class InvariantBroken(NetplugError):
    """Our own mistake: something that cannot be, was (code 999)."""

    message: str

    def __str__(self) -> str:
        return f"internal error: {self.message}"


def narrow(value: object, cls: type[T]) -> T:
    """A value that is of a class for certain, where no type checker can follow why.

    Raises:
        InvariantBroken: it is of another one.
    """
    if not isinstance(value, cls):
        raise InvariantBroken(f"a {type(value).__name__} stands where a {cls.__name__} has to be")
    return value


def find_similar(word: str, known: Iterable[str]) -> str:
    """The known word that was most likely meant by a mistyped one; empty if none is close.

    Letter case counts for nothing. Otherwise one letter may be wrong, missing, in excess or swapped with its neighbour
    for every four that are typed, and one in shorter words; a word that only begins as typed is close too.
    """
    typed = word.lower()[:_MAX_SHOWN_LENGTH]
    if not typed:
        return ""
    limit = max(len(typed) // 4, min(1, len(typed) - 1))
    ranked = ((_distance(typed, one.lower(), limit), one) for one in known)
    nearest = min(((distance, one) for distance, one in ranked if distance <= limit), default=None)
    return nearest[1] if nearest else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The question to append to an error about an unknown word; empty if no known word is close."""
    found = find_similar(word, known)
    return f"did you mean {found}?" if found else ""


def _distance(typed: str, known: str, limit: int) -> int:
    """How many letters differ, with two swapped neighbours as one; more than the limit if it would exceed that.

    A known word that only begins as typed counts as the limit: any other close word is the better guess.
    """
    if known.startswith(typed) and len(typed) >= _MIN_BEGINNING:
        return min(limit, len(known) - len(typed))
    if abs(len(typed) - len(known)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(known) + 1))
    for i, letter in enumerate(typed, start=1):
        earlier, before, row = before, row, [i]
        for j, other in enumerate(known, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == known[j - 2] and typed[i - 2] == other:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
    return row[-1]


def excerpt(value: object, length: int = _MAX_SHOWN_LENGTH) -> str:
    """A text that came from outside, as a message shows it: at most so many characters of it."""
    text = str(value)
    return text if len(text) <= length else f"{text[:length]}{REDACTED}"


def shorten(text: str) -> str:
    """A text of ours with texts from outside in it: what has no space in it is cut as ``excerpt`` cuts it."""
    if len(text) <= _MAX_SHOWN_LENGTH:
        return text
    return _LONG_WORD.sub(lambda word: f"{word[0][:_MAX_SHOWN_LENGTH]}{REDACTED}", text)


def quote(value: object) -> str:
    """The ``repr`` of a value that came from outside, cut like every such text; of a value of ours that of its text."""
    has_text = not isinstance(value, _PLAIN_TYPES) and type(value).__str__ is not object.__str__
    return excerpt(repr(str(value) if has_text else value))


def redact_url_credentials(value: object) -> object:
    """The value, or ``REDACTED`` if it may be a URL with a user or a password in it: both stand before an ``@``."""
    return REDACTED if "@" in repr(value) else value


def redacted_repr(value: object) -> str:
    """The ``repr`` of such a value, for a field of a class."""
    return repr(redact_url_credentials(value))


def require_type(where: str, value: object, expected: type | UnionType, accepted: str) -> None:
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


def require_tuple(where: str, value: object, members: type | tuple[type, ...], accepted: str) -> None:
    """Check that an argument is a tuple whose members have the right type.

    Raises:
        InvalidArgument: it is not.
    """
    if isinstance(value, tuple):
        for member in value:
            if not isinstance(member, members):
                break
        else:
            return
    raise InvalidArgument(where, value, accepted)
