"""What several kinds have in common: metadata, switches, log levels, durations, ports, and the errors about a field.

A resource is a :class:`Metadata` and a spec. ``unknown_json`` holds, as canonical JSON text, the stored members that
this release does not know. A newer release may have put them there, so they are written back unchanged.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from attrs import field, frozen

from netplug_core.addressing import InterfaceAddress
from netplug_core.decoding.codecs import (
    ADDRESS,
    INTEGER,
    NONEMPTY_TEXT,
    PREFIX,
    TEXT,
    TEXT_MAP,
    TIME,
    Codec,
    checked,
    codec_of,
    enum_codec,
)
from netplug_core.decoding.tables import Keeps, ListOf, json_object, member
from netplug_core.errors import ConfigurationError, excerpt
from netplug_core.names import MAX_NAME_LENGTH, is_resource_name
from netplug_core.selectors import Everything, SelectorError, leaf_terms, parse

__all__ = [
    "AS_NUMBER", "CIDR", "DURATION", "ENVELOPE", "INTERFACE_ADDRESS", "IP_ADDRESS", "MAC_ADDRESS", "MAX_PORT",
    "MAX_SELECTOR_LENGTH", "NAME_LIMITS", "NAME_PATTERN", "PORT", "PORT_OR_NONE", "PORT_RANGE", "SWITCH",
    "WORD_PATTERN", "FieldError", "InvalidResource", "Labels", "LogSeverity", "Metadata", "OwnerReference", "PortRange",
    "Switch", "find_label_name_problems", "find_label_problems", "integer_between", "parse_duration_s",
    "validate_regular_expression", "validate_selector", "validate_word",
]  # fmt: skip


# --- switch ----------------------------------------------------------------------------------------------------------


class Switch(enum.Enum):
    """Whether something is done."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


# --- log severity ----------------------------------------------------------------------------------------------------


class LogSeverity(enum.Enum):
    """The level below which a program writes no lines."""

    NONE = "None"
    DEBUG = "Debug"
    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"
    FATAL = "Fatal"


# --- field codecs ----------------------------------------------------------------------------------------------------


MAX_PORT: Final = 65_535
_MAC: Final = "[0-9a-f]{2}(:[0-9a-f]{2}){5}"
_DURATION: Final = r"0|([0-9]+(\.[0-9]+)?(h|m|s|ms|us|ns))+"


def _is_duration(text: str) -> bool:
    return re.fullmatch(_DURATION, text, re.ASCII) is not None


DURATION: Final = checked(
    TEXT, _is_duration, "a duration such as 90s or 15m0s, or 0", schema={"pattern": f"^({_DURATION})?$"}
)
"""A duration as Go writes it. The text is kept, so that it stays as a person wrote it."""

_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_UNIT_S: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration_s(text: str) -> float:
    """The seconds of a duration such as ``90s`` or ``1h30m``, as Go writes it.

    Raises:
        ValueError: it is none, or not longer than nothing.
    """
    parts = _DURATION_PART.findall(text)
    seconds = sum(float(number) * _UNIT_S[unit] for number, unit in parts)
    if "".join(f"{number}{unit}" for number, unit in parts) != text or seconds <= 0:
        raise ValueError(f"{text!r} is not accepted; a duration such as 90s or 1h30m is")
    return float(seconds)


def integer_between(lowest: int, highest: int, what: str = "a whole number") -> Codec[int]:
    """A number between two, which are included; both have 32 bits."""
    return checked(
        INTEGER,
        lambda number: lowest <= number <= highest,
        f"{what} from {lowest} to {highest}",
        is_empty_accepted=False,
        schema={"format": "int32", "minimum": lowest, "maximum": highest},
    )


PORT: Final = integer_between(1, MAX_PORT, "a port")
_PORT_RANGE: Final = "[0-9]{1,5}(:[0-9]{1,5})?"


@frozen
class PortRange:
    """Ports from ``first`` to ``last``."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}:{self.last}"


def _read_port_range(value: object) -> PortRange:
    text = TEXT.decode(value)
    if re.fullmatch(_PORT_RANGE, text, re.ASCII):
        first, _, last = text.partition(":")
        found = PortRange(int(first), int(last or first))
        if 1 <= found.first <= found.last <= MAX_PORT:
            return found
    raise ValueError(f"two ports up to {MAX_PORT} with ':' between, such as 32768:65535, or one port")


PORT_RANGE: Final = Codec(_read_port_range, str, schema={"type": "string", "pattern": f"^({_PORT_RANGE})$"})
"""Ports, as ``first:last``, or one port."""

PORT_OR_NONE: Final = checked(
    INTEGER,
    lambda port: 0 <= port <= MAX_PORT,
    f"a port up to {MAX_PORT}, or 0",
    schema={"format": "int32", "minimum": 0, "maximum": MAX_PORT},
)
"""A port that something listens on; 0: it does not."""

_MAX_AS_NUMBER: Final = 2**32 - 1
_HALF_BITS: Final = 16
_DOTTED: Final = re.compile(r"([0-9]{1,5})\.([0-9]{1,5})")
_PLAIN: Final = re.compile(r"[0-9]{1,10}")


def _read_as_number(value: object) -> int:
    """A number, or a text: the number, or its halves of 16 bits with a dot between (RFC 5396)."""
    number = 0
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and _PLAIN.fullmatch(value):
        number = int(value)
    elif isinstance(value, str) and (halves := _DOTTED.fullmatch(value)):
        high, low = map(int, halves.groups())
        number = (high << _HALF_BITS) + low if low >> _HALF_BITS == 0 else 0
    if not 1 <= number <= _MAX_AS_NUMBER:
        raise ValueError(f"an AS number from 1 to {_MAX_AS_NUMBER}, or a text such as '1.10'")
    return number


AS_NUMBER: Final = Codec(
    _read_as_number, schema={"type": "integer", "format": "int64", "minimum": 1, "maximum": _MAX_AS_NUMBER}
)
"""The number of an autonomous system."""

IP_ADDRESS: Final = Codec(ADDRESS.decode, ADDRESS.encode, schema={"type": "string"})


def _read_interface_address(value: object) -> InterfaceAddress:
    try:
        return InterfaceAddress.parse(TEXT.decode(value))
    except ValueError:
        raise ValueError("an IP address with the length of its prefix, such as 192.0.2.7/24") from None


def _write_interface_address(held: InterfaceAddress) -> str:
    return str(held.address) if held.length == held.address.family.width else str(held)


INTERFACE_ADDRESS: Final = codec_of(_read_interface_address, _write_interface_address, schema={"type": "string"})
"""An address of a node. Without a length it is that address alone: /32 or /128."""

MAC_ADDRESS: Final = checked(
    TEXT,
    lambda text: re.fullmatch(_MAC, text) is not None,
    "a MAC such as 66:0a:1b:2c:3d:4e",
    schema={"pattern": f"^({_MAC})?$"},
)
CIDR: Final = Codec(PREFIX.decode, PREFIX.encode, schema={"type": "string", "format": "cidr"})
SWITCH: Final = enum_codec(Switch)


# --- field errors ----------------------------------------------------------------------------------------------------


MAX_SELECTOR_LENGTH: Final = 1024

_LABEL_WORD: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_RULE: Final = "at most 63 letters, digits, '-', '_' and '.', between letters or digits"

WORD_PATTERN: Final = "[A-Za-z0-9_.-]{1,128}"
"""A name within a resource, such as that of a port."""

_DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAME_PATTERN: Final = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
NAME_LIMITS: Final[Mapping[str, object]] = {"maxLength": MAX_NAME_LENGTH, "pattern": f"^{NAME_PATTERN}$"}
"""What a schema says of the name of a resource or a node."""


@frozen
class FieldError:
    """One field that cannot be accepted, what it holds, and the rule it breaks."""

    field: str
    value: object
    reason: str

    def __str__(self) -> str:
        return f"error with field {excerpt(self.field)} = '{excerpt(self.value)}' ({self.reason})"


@frozen
class InvalidResource(ConfigurationError):
    """A resource that breaks rules; ``where`` names it, ``problems`` has every rule it breaks."""

    field_errors: tuple[FieldError, ...]

    @classmethod
    def from_field_errors(cls, where: str, problems: Iterable[FieldError]) -> InvalidResource:
        """The error for one problem or several."""
        found = tuple(problems)
        return cls(where, found[0].value, found[0].reason, found)

    def __str__(self) -> str:
        return f"{excerpt(self.where)}: {'; '.join(map(str, self.field_errors))}"


def find_label_problems(field: str, labels: Iterable[tuple[str, str]]) -> Iterator[FieldError]:
    """Names and texts that no label can have. Source: the Kubernetes page on labels and selectors."""
    pairs = tuple(labels)
    yield from find_label_name_problems(field, (name for name, _text in pairs))
    for name, text in pairs:
        if text and not _LABEL_WORD.fullmatch(text):
            yield FieldError(f"{field}[{name}]", text, f"a label's text is {_LABEL_RULE}, or empty")


def find_label_name_problems(field: str, names: Iterable[str]) -> Iterator[FieldError]:
    """Names that no label and no annotation can have."""
    for name in names:
        domain, slash, last = name.rpartition("/")
        if not _LABEL_WORD.fullmatch(last) or (slash and not is_resource_name(domain)):
            yield FieldError(field, name, f"a name is {_LABEL_RULE}, and may have a DNS name and '/' before it")


_NO_GLOBAL: Final = "global() cannot be used: it selects neither nodes nor namespaces"


def validate_selector(field: str, text: str, *, no_global: str = _NO_GLOBAL) -> Iterator[FieldError]:
    """What is wrong with the selector that a field holds; ``no_global`` says why it cannot have ``global()``."""
    if len(text) > MAX_SELECTOR_LENGTH:
        yield FieldError(field, text, f"at most {MAX_SELECTOR_LENGTH} characters")
        return
    try:
        selector = parse(text)
    except SelectorError as error:
        yield FieldError(field, text, str(error))
        return
    if Everything.GLOBAL in leaf_terms(selector):
        yield FieldError(field, text, no_global)


def validate_regular_expression(field: str, text: str) -> Iterator[FieldError]:
    """What is wrong with a regular expression."""
    try:
        re.compile(text)
    except (re.error, OverflowError) as error:
        yield FieldError(field, text, f"no regular expression: {error}")


def validate_word(field: str, text: str) -> Iterator[FieldError]:
    """What is wrong with a name within a resource."""
    if not re.fullmatch(WORD_PATTERN, text):
        yield FieldError(field, text, "must be 1 to 128 letters, digits, '_', '.' and '-'")


# --- metadata --------------------------------------------------------------------------------------------------------

ENVELOPE = ("kind", "apiVersion")
"""The members of every resource that say what it is."""

Labels = tuple[tuple[str, str], ...]
"""Key and value pairs, sorted by key; each key once."""


@json_object(keeps=Keeps.UNKNOWN)
@frozen(kw_only=True)
class OwnerReference:
    """Whose deletion removes the resource too (Kubernetes' ``ownerReferences``)."""

    api_version: str = field(metadata=member("apiVersion", TEXT, "the group and version of the owner"))
    kind: str = field(metadata=member("kind", TEXT, "the kind of the owner"))
    name: str = field(metadata=member("name", TEXT, "the name of the owner"))
    uid: str = field(metadata=member("uid", TEXT, "the uid of the owner"))
    unknown_json: str = ""


@json_object(ignored=("resourceVersion", "selfLink", "generation", "managedFields", "deletionGracePeriodSeconds"))
@frozen(kw_only=True)
class Metadata:
    """The identity and bookkeeping of one resource. Times are nanoseconds since the epoch; None means not set.

    ``attempt`` is the random number of the call that created the resource. A store that chooses the uid itself keeps
    it, so that a call whose reply was lost recognises its own resource. It is no field of a document.
    """

    name: str = field(
        metadata=member(
            "name", NONEMPTY_TEXT, "the name, unique among those of its kind, in its namespace if the kind has some"
        )
    )
    namespace: str = field(default="", metadata=member("namespace", TEXT, "the namespace, of a kind that has some"))
    generate_name: str = field(default="", metadata=member("generateName", TEXT, "what a generated name begins with"))
    uid: str = field(default="", metadata=member("uid", TEXT, "the identity that the datastore gives it"))
    creation_time_ns: int | None = field(
        default=None, metadata=member("creationTimestamp", TIME, "when it was created")
    )
    deletion_time_ns: int | None = field(
        default=None, metadata=member("deletionTimestamp", TIME, "when its deletion was asked for")
    )
    labels: Labels = field(
        default=(), metadata=member("labels", TEXT_MAP, "names and texts by which selectors find it")
    )
    annotations: Labels = field(
        default=(), metadata=member("annotations", TEXT_MAP, "names and texts for people and programs")
    )
    finalizers: tuple[str, ...] = field(
        default=(), metadata=member("finalizers", ListOf(TEXT), "what has to be done before it is deleted")
    )
    owner_references: tuple[OwnerReference, ...] = field(
        default=(), metadata=member("ownerReferences", ListOf(OwnerReference), "whose deletion deletes it too")
    )
    unknown_json: str = ""
    attempt: str = field(default="", eq=False)
