"""One JSON-like object, read member by member: where errors get their path, and unknown members their fate.

Only the codecs use it. A reader knows which document and which place in it it stands at (``pool.yaml#1 $.spec``), and
which members were asked for; what nobody asked for is refused when a person wrote it and carried along when a store
had it. It knows nothing of any kind.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import parse_time
from netplug_core.errors import ConfigurationError

__all__ = [
    "DocumentOrigin",
    "JSONDict",
    "MalformedField",
    "ObjectReader",
    "UnknownField",
    "as_address",
    "as_boolean",
    "as_enum",
    "as_nonempty_string",
    "as_nonnegative_integer",
    "as_prefix",
    "as_string",
    "as_time",
    "decode_unknown_json",
    "omit_empty",
]

T = TypeVar("T")
E = TypeVar("E", bound=enum.Enum)
JSONDict = dict[str, object]


class DocumentOrigin(enum.Enum):
    """Who wrote a mapping: a person, whose slips are refused, or a store, whose unknown members are kept."""

    USER = "person"
    DATASTORE = "store"


@frozen
class MalformedField(ConfigurationError):
    """A field whose value cannot be read; ``accepted`` is what was expected, ``reason`` what is wrong, if known."""

    reason: str = ""

    def __str__(self) -> str:
        found = "nothing" if self.value is None else repr(self.value)
        because = f": {self.reason}" if self.reason else ""
        return f"expected {self.accepted} @ {self.where}, found {found}{because}"


class UnknownField(ConfigurationError):
    """A field that a person wrote and the kind does not have."""

    def __str__(self) -> str:
        return (
            f"field in document is not recognized or is in the wrong location: {self.value} @ {self.where}; "
            f"there are {self.accepted}"
        )


class ObjectReader:
    """A reader of one object.

    Each ``take`` names a member and how to understand its value; a null counts as a member that is not there.
    ``finish`` ends the reading.
    """

    __slots__ = ("_at", "_mapping", "_source", "_taken", "origin")

    def __init__(self, mapping: Mapping[str, object], *, origin: DocumentOrigin, source: str, path: str = "$") -> None:
        self.origin = origin
        self._mapping = mapping
        self._source = source
        self._at = path
        self._taken: set[str] = set()

    def optional(self, name: str, read: Callable[[object], T], default: T) -> T:
        """A member that may be missing.

        Raises:
            MalformedField: ``read`` refused its value with ``ValueError``, whose text is what was expected.
        """
        value = self._next(name)
        return default if value is None else self._read(name, value, read)

    def required(self, name: str, read: Callable[[object], T]) -> T:
        """A member that has to be there."""
        return self._read(name, self._next(name), read)

    def list_of(self, name: str, read: Callable[[object], T]) -> tuple[T, ...]:
        """The items of a list, each understood by itself; empty when the list is missing."""
        items = self._items(name)
        return tuple(self._read(f"{name}[{index}]", item, read) for index, item in enumerate(items))

    def object_list(self, name: str, read: Callable[[ObjectReader], T]) -> tuple[T, ...]:
        """The objects of a list, each by a reader of its own."""
        items = self._items(name)
        return tuple(read(self._reader(f"{name}[{index}]", item)) for index, item in enumerate(items))

    def optional_object(self, name: str) -> ObjectReader:
        """A reader of an object in this one; of an empty object when it is missing."""
        value = self._next(name)
        return self._reader(name, {} if value is None else value)

    def string_map(self, name: str) -> tuple[tuple[str, str], ...]:
        """The members of an object of texts, sorted; labels and annotations are such objects."""
        value = self._next(name)
        if value is None:
            return ()
        if not isinstance(value, Mapping):
            raise self.malformed_field(name, "an object of texts", value)
        for key, text in value.items():
            if not isinstance(key, str):
                raise self.malformed_field(name, "texts as keys", key)
            if not isinstance(text, str):
                raise self.malformed_field(f"{name}[{key!r}]", "a text", text)
        return tuple(sorted(value.items()))

    def ignore(self, *names: str) -> None:
        """Members that are known and mean nothing here."""
        self._taken.update(names)

    def keeping_unknown_fields(self) -> ObjectReader:
        """This reader, keeping unknown members whoever wrote them."""
        return ObjectReader(self._mapping, origin=DocumentOrigin.DATASTORE, source=self._source, path=self._at)

    def finish_unknown_json(self) -> str:
        """What nobody asked for, as canonical JSON text; empty when there is nothing.

        Raises:
            UnknownField: there is something, and a person wrote it.
        """
        unknown = {name: value for name, value in self._mapping.items() if name not in self._taken}
        if not unknown:
            return ""
        if self.origin is DocumentOrigin.USER:
            known = ", ".join(sorted(self._taken))
            raise UnknownField(self.path_of(), ", ".join(map(str, unknown)), known)
        return json.dumps(unknown, sort_keys=True, separators=(",", ":"))

    def malformed_field(self, name: str, expected: str, value: object, reason: str = "") -> MalformedField:
        """The error that says what a member of this object should have been."""
        return MalformedField(self.path_of(name), value, expected, reason)

    def path_of(self, name: str = "") -> str:
        """The place of this object, or of a member, in its document."""
        path = f"{self._at}.{name}" if name else self._at
        return f"{self._source} {path}" if self._source else path

    def _next(self, name: str) -> object:
        self._taken.add(name)
        return self._mapping.get(name)

    def _read(self, name: str, value: object, read: Callable[[object], T]) -> T:
        try:
            return read(value)
        except ValueError as error:
            raise self.malformed_field(name, str(error), value) from None

    def _items(self, name: str) -> Sequence[object]:
        value = self._next(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise self.malformed_field(name, "a list", value)
        return value

    def _reader(self, name: str, value: object) -> ObjectReader:
        if not isinstance(value, Mapping):
            raise self.malformed_field(name, "an object", value)
        return ObjectReader(value, origin=self.origin, source=self._source, path=f"{self._at}.{name}")


def decode_unknown_json(unknown_json: str) -> dict[str, object]:
    """The members that a ``carried`` text holds."""
    return dict(json.loads(unknown_json)) if unknown_json else {}


def omit_empty(**members: object) -> JSONDict:
    """Those members that are set: false, zero, empty texts and empty lists are left out."""
    return {name: value for name, value in members.items() if value}


# --- single values: each refuses with ``ValueError``, whose text is what it expected ---------------------------------


def as_string(value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError("a text")
    return value


def as_nonempty_string(value: object) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError("a name")
    return value


def as_boolean(value: object) -> bool:
    """A boolean; no word, no number stands for one."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def as_nonnegative_integer(value: object) -> int:
    """A whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a whole number of at least 0")
    return value


def as_time(value: object) -> int | None:
    """Nanoseconds since the epoch of an RFC 3339 text."""
    try:
        return parse_time(as_string(value))
    except ValueError:
        raise ValueError("a time such as 2026-08-20T10:00:00Z") from None


def as_address(value: object) -> Address:
    """An address without a mask."""
    try:
        return Address.parse(as_string(value))
    except ValueError:
        raise ValueError("an IP address") from None


def as_prefix(value: object) -> Prefix:
    """A CIDR without host bits, or an address, which means the prefix of just that one."""
    try:
        text = as_string(value)
        prefix = Prefix.enclosing(text)
    except ValueError:
        raise ValueError("a CIDR or an IP address") from None
    if Address.parse(text.partition("/")[0]) != prefix.first:
        raise ValueError(f"a CIDR without host bits ({prefix})")
    return prefix


def as_enum(choices: type[E]) -> Callable[[object], E]:
    """A reader of the values of an enumeration."""

    def read(value: object) -> E:
        try:
            return choices(value)
        except ValueError:
            raise ValueError(f"one of {', '.join(str(choice.value) for choice in choices)}") from None

    return read
