"""Codecs of single values: how a member of a JSON object is decoded, and how it is encoded again.

A decoder raises one of three errors, which ``tables`` completes with the path and the reader turns into an error of
ours: ``WrongType`` (another JSON type), ``Refused`` (a value that is not accepted) or a plain ``ValueError``, whose
text says what was expected. Null never reaches a decoder, except for a member that must be there.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar, cast

from attrs import evolve, field, frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import format_time, parse_time
from netplug_core.errors import did_you_mean, quote

__all__ = [
    "ADDRESS", "BOOLEAN", "HTTP_URL", "INTEGER", "NONEMPTY_STRING", "NONEMPTY_TEXT", "NONNEGATIVE_INTEGER", "OBJECT",
    "PREFIX", "REQUESTED_ADDRESS", "STRING", "STRING_MAP", "TEXT", "TEXT_MAP", "TIME", "UINT32", "Codec", "JSONType",
    "Refused", "Unreadable", "WrongType", "checked", "checked_equal", "choice_of", "codec_of", "enum_codec", "exactly",
    "is_utf8", "is_utf8_without_nul", "limited", "number_in", "unchanged",
]  # fmt: skip

E = TypeVar("E", bound=enum.Enum)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_MAX_UINT32 = 2**32 - 1
_NOT_GIVEN: Final = object()


class JSONType(enum.Enum):
    """What a member has to be: the words in errors about resources, and those in errors about CNI documents."""

    STRING = ("a text", "must be a string")
    UTF8 = ("a text in UTF-8", "must be a text in UTF-8 without NUL")
    INTEGER = ("a whole number", "must be an integer")
    UINT32 = ("a whole number of 32 bits", f"must be an integer from 0 to {_MAX_UINT32}")
    BOOLEAN = ("true or false", "must be true or false")
    ARRAY = ("a list", "must be an array")
    OBJECT = ("an object", "must be an object")
    TEXT_MAP = ("an object of texts", "must be an object")
    TEXT_KEYS = ("texts as keys", "must be an object")


class Refused(ValueError):
    """A value that is not accepted: ``accepted`` says what would be, ``path`` where it stands in what is read.

    ``is_shown``: the value is already one that an error may show.
    """

    is_shown = False

    def __init__(self, accepted: str, *, reason: str = "", value: object = _NOT_GIVEN, path: str = "") -> None:
        super().__init__(accepted)
        self.accepted = accepted
        self.reason = reason
        self.value = value
        self.path = path

    def locate(self, path: str, value: object) -> None:
        """Put a step in front of the path; the first step also says which value it is about."""
        self.path = path + self.path
        if self.value is _NOT_GIVEN:
            self.value = value

    def show(self, show: Callable[[object], object]) -> None:
        """Replace the value by what an error may show of it, once."""
        if not self.is_shown:
            self.value, self.is_shown = show(self.value), True


class Unreadable(Refused):
    """A value of the right JSON type that cannot be read; ``accepted`` says what was expected."""


class WrongType(Refused):
    """A value of another JSON type."""

    def __init__(self, expected: JSONType, *, path: str = "", value: object = _NOT_GIVEN) -> None:
        super().__init__(expected.value[0], path=path, value=value)
        self.expected = expected


def unchanged(value: object) -> object:
    """A value that JSON has itself."""
    return value


@frozen
class Codec(Generic[T_co]):
    """One kind of value. ``decode_stored`` decodes what a datastore holds, if that is more lenient.

    ``schema`` says in JSON Schema what ``decode`` accepts, as far as that can say it.
    """

    decode: Callable[[object], T_co]
    encode: Callable[[object], object] = unchanged
    decode_stored: Callable[[object], T_co] | None = None
    schema: Mapping[str, object] = field(factory=dict, eq=False, repr=False)


def codec_of(
    decode: Callable[[object], T],
    encode: Callable[[T], object],
    *,
    decode_stored: Callable[[object], T] | None = None,
    schema: Mapping[str, object] | None = None,
) -> Codec[T]:
    """A codec whose values JSON does not have itself, so that ``encode`` relies on their class."""
    # A table gives the encoder the attribute that the decoder set, or its default; no checker can follow that.
    return Codec(decode, cast("Callable[[object], object]", encode), decode_stored, schema or {})


def is_utf8(text: str) -> bool:
    """Whether a text can be encoded as UTF-8: it has no surrogate.

    JSON can spell a surrogate, and a byte of the environment that is not UTF-8 becomes one.
    """
    if text.isascii():
        return True  # the usual case, without a copy
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_utf8_without_nul(text: str) -> bool:
    """Whether a text can be given to the operating system: UTF-8 without NUL."""
    return "\0" not in text and is_utf8(text)


def checked(
    codec: Codec[T],
    is_accepted: Callable[[T], bool],
    accepted: str,
    *,
    is_empty_accepted: bool = True,
    schema: Mapping[str, object] | None = None,
) -> Codec[T]:
    """A codec that also refuses values outside a set. An empty text or 0 is accepted: it usually means not set.

    ``schema`` says of which values the set is, the empty one included if it is accepted.
    """

    def decode(value: object) -> T:
        decoded = codec.decode(value)
        if not (is_empty_accepted and not decoded) and not is_accepted(decoded):
            raise Refused(accepted, value=decoded)
        return decoded

    return Codec(decode, codec.encode, schema={**codec.schema, **(schema or {})})


def limited(codec: Codec[T], **limits: object) -> Codec[T]:
    """A codec whose schema says more about its values; what reads them, or a rule of the kind, refuses the others."""
    return evolve(codec, schema={**codec.schema, **limits})


def exactly(pattern: str) -> str:
    """A pattern of JSON Schema for a whole text.

    Some programs let ``$`` match before a last line feed.
    """
    return f"^(?:{pattern})$(?!\\n)"


def choice_of(choices: tuple[str, ...], accepted: str) -> Codec[str]:
    """One of some texts, or the empty text, which means not set."""
    return checked(STRING, choices.__contains__, accepted, schema={"enum": ["", *choices]})


def number_in(lowest: int, highest: int | None, accepted: str) -> Codec[int]:
    """A whole number between two, which are included; 0 is accepted too."""
    numbers: dict[str, object] = {"minimum": min(lowest, 0)}
    if highest is not None:
        numbers["maximum"] = highest
    return checked(INTEGER, lambda number: _is_in(number, lowest, highest), accepted, schema=numbers)


def _is_in(number: int, lowest: int, highest: int | None) -> bool:
    return lowest <= number and (highest is None or number <= highest)


def checked_equal(expected: str) -> Codec[str]:
    """The one text that is accepted."""

    def decode(value: object) -> str:
        if ("" if value is None else _text(value)) != expected:
            raise ValueError(repr(expected))
        return expected

    return Codec(decode)


def enum_codec(choices: type[E]) -> Codec[E]:
    """The values of an enumeration."""

    def decode(value: object) -> E:
        try:
            return choices(value)
        except ValueError:
            # An empty text is a spelling of "not set": it names no choice.
            words = [str(choice.value) for choice in choices if choice.value]
            meant = did_you_mean(value, words) if isinstance(value, str) else ""
            raise Unreadable(f"one of {', '.join(words)}", reason=meant) from None

    schema = {"type": "string", "enum": [choice.value for choice in choices]}
    return codec_of(decode, lambda value: value.value, schema=schema)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise WrongType(JSONType.STRING)
    if not value.isascii() and not is_utf8(value):
        raise WrongType(JSONType.UTF8)
    return value


def _nonempty_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a name")
    return _text(value)


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise WrongType(JSONType.STRING)
    if not is_utf8_without_nul(value):
        raise WrongType(JSONType.UTF8)
    return value


def _nonempty_string(value: object) -> str:
    text = "" if value is None else _string(value)
    if not text:
        raise ValueError("is missing or empty")
    return text


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise WrongType(JSONType.BOOLEAN)
    return value


def _integer(value: object) -> int:
    # In Python a boolean is an integer; in JSON it is not.
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongType(JSONType.INTEGER)
    return value


def _uint32(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_UINT32:
        raise WrongType(JSONType.UINT32)
    return value


def _nonnegative_integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a whole number of at least 0")
    return value


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise WrongType(JSONType.OBJECT)
    return value


def _time(value: object) -> int:
    try:
        return parse_time(_text(value))
    except ValueError:
        raise ValueError("a time such as 2026-08-20T10:00:00Z") from None


def _address(value: object) -> Address:
    try:
        return Address.parse(_text(value))
    except ValueError:
        raise ValueError("an IP address") from None


def _requested_address(value: object) -> Address:
    text = _string(value)
    try:
        Prefix.enclosing(text)
        return Address.parse(text.partition("/")[0])
    except ValueError:
        raise Refused("an IP address such as 10.22.0.10 is expected", value=text) from None


def _prefix(value: object) -> Prefix:
    try:
        text = _text(value)
        prefix = Prefix.enclosing(text)
    except ValueError:
        raise ValueError("a CIDR or an IP address") from None
    if Address.parse(text.partition("/")[0]) != prefix.first:
        raise ValueError(f"a CIDR without host bits ({prefix})")
    return prefix


def _is_url(text: str) -> bool:
    return re.fullmatch(_HTTP_URL, text) is not None


def _map_of(decode: Callable[[object], str]) -> Callable[[object], tuple[tuple[str, str], ...]]:
    def decode_map(value: object) -> tuple[tuple[str, str], ...]:
        if not isinstance(value, Mapping):
            raise WrongType(JSONType.TEXT_MAP)
        for key, text in value.items():
            if not isinstance(key, str):
                raise WrongType(JSONType.TEXT_KEYS, value=key)
            try:
                decode(key)
                decode(text)
            except WrongType as error:
                raise WrongType(error.expected, path=f"[{quote(key)}]", value=text) from None
        return tuple(sorted(value.items()))

    return decode_map


def _encode_map(value: tuple[tuple[str, str], ...]) -> object:
    return dict(value)


TEXT: Final = Codec(_text, schema={"type": "string"})
NONEMPTY_TEXT: Final = Codec(_nonempty_text, schema={"type": "string", "minLength": 1})
TEXT_MAP: Final = codec_of(
    _map_of(_text), _encode_map, schema={"type": "object", "additionalProperties": {"type": "string"}}
)
"""An object of texts, as sorted pairs; labels and annotations are such objects."""

STRING: Final = Codec(_string, schema={"type": "string", "pattern": "^[^\\u0000]*$"})
"""A text that can be given to the operating system; other texts are refused."""

NONEMPTY_STRING: Final = Codec(_nonempty_string, schema={**STRING.schema, "minLength": 1})
# Reader and schema have one pattern, so that they agree: user and password, host, port and the rest. No space and no
# control character is in it.
_HTTP_URL: Final = (
    r"[Hh][Tt][Tt][Pp][Ss]?://(?:[^/?#\s\u0000-\u001f\u007f]*@)?"
    r"(?:\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]\s\u0000-\u001f\u007f]+)"
    r"(?::(?:0*(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?)?"
    r"(?:[/?#][^\s\u0000-\u001f\u007f]*)?"
)
HTTP_URL: Final = checked(
    STRING,
    _is_url,
    "an http or https URL with a host is expected",
    is_empty_accepted=False,
    schema={"pattern": exactly(_HTTP_URL)},
)
STRING_MAP: Final = Codec(
    lambda value: dict(_map_of(_string)(value)),
    schema={"type": "object", "propertyNames": STRING.schema, "additionalProperties": STRING.schema},
)
BOOLEAN: Final = Codec(_boolean, schema={"type": "boolean"})
"""True or false; no text and no number stands for one."""

INTEGER: Final = Codec(_integer, schema={"type": "integer"})
UINT32: Final = Codec(_uint32)
NONNEGATIVE_INTEGER: Final = Codec(_nonnegative_integer, schema={"type": "integer", "format": "int64", "minimum": 0})
OBJECT: Final = Codec(_object, schema={"type": "object"})
"""An object as it is, which another program or another table reads."""

TIME: Final = codec_of(_time, format_time)
"""Nanoseconds since the epoch; an RFC 3339 text in JSON."""

ADDRESS: Final = Codec(_address, str)
REQUESTED_ADDRESS: Final = Codec(_requested_address, str, schema=STRING.schema)
"""An address that a runtime asks for. A prefix length behind it is ignored: that of its pool or range counts."""

PREFIX: Final = Codec(_prefix, str)
"""A CIDR without host bits, or an address, which means the prefix of just that one."""
