"""Which member of a JSON object is which attribute of a class: its declaration, the reader, the schema, the errors.

A class says it at its attributes: ``field(metadata=member("ipipMTU", MTU, "the MTU of the tunnel"))``. A class that has
other members on another wire has a ``Table`` for each wire in place of that.

A room makes one ``Decoder`` for each wire it reads. The converter behind it is cattrs' plain one, with a hook factory
for classes that have members. It interprets them and compiles nothing: a function generated for each class costs a call
of the plugin more than all its decoding. An error is in the words of resource or of CNI documents.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, Generic, ParamSpec, TypeAlias, TypeVar, cast

from attrs import NOTHING, Attribute, field, fields_dict, frozen, has

from netplug_core.decoding.codecs import Codec, JSONType, Refused, Unreadable, WrongType, enum_codec, is_utf8, unchanged
from netplug_core.errors import (
    REDACTED,
    ConfigurationError,
    DecodeError,
    NetplugError,
    did_you_mean,
    excerpt,
    narrow,
    quote,
    redact_url_credentials,
)

if TYPE_CHECKING:
    from cattrs import BaseConverter

__all__ = [
    "Decoder", "DocumentOrigin", "Field", "Finish", "Keeps", "ListOf", "MalformedField", "Schema", "Table",
    "UnknownField", "UnknownKeys", "attributes_of", "carried_json", "cni_error", "collect_fields", "collect_members",
    "collect_unknown", "declared_table", "document_error", "find_member", "find_object", "find_text", "find_unknown",
    "inner_schema", "items_of", "json_object", "member", "member_schemas", "object_schema", "path_in_document",
    "split_path", "unreadable_json",
]  # fmt: skip


# --- members ----------------------------------------------------------------------------------------------------------


P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_MEMBER: Final = "member"
_OBJECT: Final = "__json_object__"
_UNKNOWN: Final = "unknown_json"
Decode = Callable[[object], object]
Finish = Callable[[dict[str, object], Mapping[str, str]], dict[str, object]]


class DocumentOrigin(enum.Enum):
    """Who wrote an object: a user, whose unknown members are refused, or a datastore, whose unknown ones are kept."""

    USER = "person"
    DATASTORE = "store"


class Keeps(enum.Enum):
    """Which members an object with ``unknown_json`` keeps there as they are."""

    STORED = "unknown ones of a datastore"
    UNKNOWN = "unknown ones, whoever wrote them: others define the object's members"
    UNREADABLE = "unknown ones of a datastore, and those whose value cannot be read; their attribute has its default"


class UnknownKeys(Refused):
    """Members that the table does not have; the value is their names, the reason where the first one belongs."""

    is_shown = True


@frozen
class ListOf:
    """A list, as a tuple of values of one codec, enumeration or class with members."""

    item: Codec[object] | ListOf | type


@frozen
class Field:
    """One member. Null counts as absent, and an absent member as the attribute's default.

    ``key`` is its name, or the names that lead to it. With no name the class is read from the same object.

    ``alternatives`` are members that are read in its place if it is absent. ``is_unset_if_empty``: an empty value
    counts as absent too. ``is_always_written``: also if it is the default. ``is_users``: false for what users may not
    set; it is ignored in a document of theirs. ``written`` is the property that is written in place of the attribute.

    ``text`` says what it is for. ``limits`` are what a schema says beside that and the codec. ``default`` and
    ``ends_up_in`` are further texts of a page: what holds if it is absent, and what is made of it.
    """

    key: str | tuple[str, ...]
    codec: Codec[object] | ListOf | type
    text: str = ""
    default: str = ""
    ends_up_in: str = ""
    alternatives: tuple[Field, ...] = field(default=(), kw_only=True)
    is_required: bool = field(default=False, kw_only=True)
    is_unset_if_empty: bool = field(default=False, kw_only=True)
    is_always_written: bool = field(default=False, kw_only=True)
    is_users: bool = field(default=True, kw_only=True)
    written: str = field(default="", kw_only=True)
    limits: Mapping[str, object] = field(factory=dict, kw_only=True, eq=False, repr=False)

    @property
    def path(self) -> tuple[str, ...]:
        """The names that lead to the member."""
        return (self.key,) if isinstance(self.key, str) else self.key


def _metadata_with(make: Callable[P, Field]) -> Callable[P, dict[str, object]]:
    return lambda *args, **kwargs: {_MEMBER: make(*args, **kwargs)}


member: Final = _metadata_with(Field)
"""The metadata of an attribute that is a member; the arguments are those of ``Field``."""


def items_of(values: Mapping[str, object], name: str, cls: type[T]) -> tuple[T, ...]:
    """Those items of an attribute that are of a class; none if its member is absent."""
    items = values.get(name, ())
    return tuple(item for item in items if isinstance(item, cls)) if isinstance(items, tuple) else ()


def find_member(members: Mapping[str, object], *names: str) -> object:
    """The member that some names lead to; None if it is absent, or on the way there is no object."""
    value: object = members
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def find_text(found: object, *names: str) -> str:
    """The text that some names lead to in an object; empty if there is none."""
    value = find_member(found, *names) if isinstance(found, Mapping) else None
    return value if isinstance(value, str) else ""


def find_object(members: Mapping[str, object], *names: str) -> Mapping[str, object]:
    """The object that some names lead to; empty if there is none."""
    found = find_member(members, *names)
    return found if isinstance(found, Mapping) else {}


def fields_of(codec: Codec[object] | ListOf, **keys: str) -> dict[str, Field]:
    """Members with one codec: each attribute, and the key of its member."""
    return {attribute: Field(key, codec) for attribute, key in keys.items()}


@frozen(kw_only=True)
class Table(Generic[T_co]):
    """The members of one class, by attribute. Errors come in the order of the table.

    ``ignored`` are known members without a meaning, in documents of either origin or of one. The attribute
    ``unknown_json``, if the class has it, holds the unknown members as canonical JSON text; ``keeps`` says which ones.
    ``is_partial``: other members of the same object are read by another table. ``finish`` completes the attributes; it
    also gets the key that each was read from.
    """

    cls: type[T_co]
    fields: Mapping[str, Field]
    ignored: tuple[str, ...] = ()
    ignored_from_users: tuple[str, ...] = ()
    ignored_if_stored: tuple[str, ...] = ()
    keeps: Keeps = Keeps.STORED
    is_partial: bool = False
    finish: Finish | None = None


def json_object(
    *,
    ignored: tuple[str, ...] = (),
    ignored_from_users: tuple[str, ...] = (),
    ignored_if_stored: tuple[str, ...] = (),
    keeps: Keeps = Keeps.STORED,
    is_partial: bool = False,
    finish: Finish | None = None,
) -> Callable[[type[T]], type[T]]:
    """Says of a class that declares its members what a ``Table`` says of the whole object."""

    def declare(cls: type[T]) -> type[T]:
        table = Table(
            cls=cls,
            fields=_declared_fields(cls),
            ignored=ignored,
            ignored_from_users=ignored_from_users,
            ignored_if_stored=ignored_if_stored,
            keeps=keeps,
            is_partial=is_partial,
            finish=finish,
        )
        setattr(cls, _OBJECT, table)
        return cls

    return declare


@cache
def declared_table(cls: type) -> Table[object]:
    """The members that a class declares at its attributes, in their order."""
    return cls.__dict__.get(_OBJECT) or Table(cls=cls, fields=_declared_fields(cls))


def _declared_fields(cls: type) -> dict[str, Field]:
    return {name: one.metadata[_MEMBER] for name, one in attributes_of(cls).items() if _MEMBER in one.metadata}


# --- the reader -------------------------------------------------------------------------------------------------------


@frozen
class Decoder:
    """Reads and writes the classes of some tables, and the classes that declare their members.

    ``error`` makes the error from what was refused and from the name of the document. Without an ``origin`` unknown
    members are ignored. ``defaults_if_refused``: a value outside its set counts as not set.
    """

    error: Callable[[Refused, str], NetplugError]
    origin: DocumentOrigin | None = None
    tables: tuple[Table[object], ...] = ()
    defaults_if_refused: bool = False
    _converter: BaseConverter = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        from cattrs import BaseConverter  # heavy; a command that decodes nothing does not load it

        converter = BaseConverter()
        converter.register_structure_hook_factory(
            self._has_members, lambda cls: _ObjectReader(self, cls, converter).structure
        )
        converter.register_unstructure_hook_factory(
            self._has_members, lambda cls: _object_writer(self.table_of(cls), converter)
        )
        converter.register_structure_hook_factory(_is_enum, _enum_reader)
        object.__setattr__(self, "_converter", converter)

    def table_of(self, cls: type) -> Table[object]:
        """The members of a class on this wire."""
        return next((table for table in self.tables if table.cls is cls), None) or declared_table(cls)

    def _has_members(self, cls: type) -> bool:
        return bool(self.table_of(cls).fields)

    def decode(self, value: object, cls: type[T], where: str) -> T:
        """The value of a class that a JSON object stands for; ``where`` names the document in errors."""
        try:
            return self._converter.structure(value, cls)
        except Refused as refused:
            refused.locate("", value)  # it may be about the document itself
            if self.origin is DocumentOrigin.USER:
                refused.reason = refused.reason or _quoting_hint(refused)
            raise self.error(refused, where) from None

    def encode(self, value: object) -> dict[str, object]:
        """The JSON object that stands for a value; attributes with their default value are left out."""
        members: dict[str, object] = self._converter.unstructure(value)
        return members


@frozen
class _Row:
    """One field of one table, with what is worked out once: how it is decoded and what errors show of it."""

    attribute: str
    path: tuple[str, ...]
    decode: Decode
    is_required: bool
    is_unset_if_empty: bool
    is_single_value: bool
    show_in_error: Callable[[object], object]
    key: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "key", ".".join(self.path))

    def read(self, members: Mapping[str, object]) -> object:
        value: object = members
        for depth, name in enumerate(self.path):
            if type(value) is not dict and not isinstance(value, Mapping):
                raise self._refused(WrongType(JSONType.OBJECT), self.path[:depth], value)
            value = value.get(name)
            if value is None:
                break
        if value is None and not self.is_required:
            return None
        try:
            decoded = self.decode(value)
        except ValueError as error:
            raise self._refused(error, self.path, value) from None
        return None if self.is_unset_if_empty and not decoded else decoded

    def _refused(self, error: ValueError, names: tuple[str, ...], value: object) -> Refused:
        refused = _located(error, "".join(f".{name}" for name in names), value)
        refused.show(self.show_in_error)
        return refused


class _ObjectReader:
    """Reads objects of one class."""

    __slots__ = (
        "_decoder", "_keeps_unknown", "_keeps_unreadable", "_known", "_lines", "_needed", "_plain", "_table",
    )  # fmt: skip

    def __init__(self, decoder: Decoder, cls: type, converter: BaseConverter) -> None:
        self._decoder, self._table = decoder, decoder.table_of(cls)
        attributes = attributes_of(self._table.cls)
        is_stored = decoder.origin is DocumentOrigin.DATASTORE
        rows = (
            tuple(
                _row(name, one, attributes.get(name), _decode_function(one.codec, converter, is_stored=is_stored))
                for one in (line, *line.alternatives)
            )
            for name, line in self._table.fields.items()
            if line.is_users or is_stored
        )
        self._lines = tuple((_name_of_optional(line), line) for line in rows)
        self._known = _known_keys(self._table, decoder)
        self._known.update(self._table.ignored_if_stored if is_stored else self._table.ignored_from_users)
        self._keeps_unknown = _UNKNOWN in attributes and (is_stored or self._table.keeps is Keeps.UNKNOWN)
        self._keeps_unreadable = is_stored and self._table.keeps is Keeps.UNREADABLE
        self._plain, self._needed = _plain_rows(self._table, [line for _name, line in self._lines])
        if self._keeps_unreadable or decoder.defaults_if_refused or self._table.finish is not None:
            self._plain = {}

    def structure(self, members: object, _: object) -> object:
        if type(members) is not dict and not isinstance(members, Mapping):
            raise WrongType(JSONType.OBJECT)
        plain = self._read_plain(members) if self._plain else None
        if plain is not None:
            return self._table.cls(**plain)
        unknown = self._find_unknown(members)  # first: a mistyped name is refused by itself, not as what it left out
        values: dict[str, object] = {}
        keys: dict[str, str] = {}
        for name, rows in self._lines:
            if name and name not in members:
                continue  # the usual case: most members are absent from most objects
            for row in rows:
                value = (
                    self._read_or_keep(row, members, unknown) if self._keeps_unreadable else self._read(row, members)
                )
                if value is not None:
                    values[row.attribute], keys[row.attribute] = value, row.key
                    break
        if unknown and self._keeps_unknown:
            values[_UNKNOWN] = _json_of(unknown)
        if self._table.finish is not None:
            values = self._finish(self._table.finish, values, keys)
        return self._table.cls(**values)

    def _read_plain(self, members: Mapping[str, object]) -> dict[str, object] | None:
        """The attributes of an object with plain members only, which is the usual case; None of any other object.

        It looks at the members that there are, of the many that there could be. What is refused is read once more, so
        that the error is the first one in the order of the table.
        """
        values: dict[str, object] = {}
        for name, value in members.items():
            if name not in self._plain or value is None:
                return None
            row = self._plain[name]
            if row is None:
                continue
            try:
                decoded = row.decode(value)
            except ValueError:
                return None
            if decoded is None:
                return None
            values[row.attribute] = decoded
        return values if self._needed <= values.keys() else None

    def _read(self, row: _Row, members: Mapping[str, object]) -> object:
        if not (self._decoder.defaults_if_refused and row.is_single_value):
            return row.read(members)
        try:
            return row.read(members)
        except (WrongType, Unreadable):
            raise
        except Refused:
            return None

    def _read_or_keep(self, row: _Row, members: Mapping[str, object], unknown: dict[str, object]) -> object:
        try:
            return self._read(row, members)
        except Refused:
            if row.path[0] in members:
                unknown[row.path[0]] = members[row.path[0]]
            return None

    def _finish(self, finish: Finish, values: dict[str, object], keys: Mapping[str, str]) -> dict[str, object]:
        try:
            return finish(values, keys)
        except Refused as refused:
            refused.is_shown = True
            raise

    def _find_unknown(self, members: Mapping[str, object]) -> dict[str, object]:
        """The members that the class does not have, if they are judged at all.

        Raises:
            UnknownKeys: a user wrote them.
            WrongType: they are kept, and are not UTF-8.
        """
        origin = self._decoder.origin
        if origin is None or self._table.is_partial or self._known.issuperset(members):
            return {}
        unknown = {name: value for name, value in members.items() if name not in self._known}
        if origin is DocumentOrigin.USER:
            if not self._keeps_unknown:
                elsewhere = self._find_elsewhere(next(iter(unknown)))
                raise UnknownKeys(", ".join(sorted(self._known)), value=", ".join(map(str, unknown)), reason=elsewhere)
            if not is_utf8(json.dumps(unknown, ensure_ascii=False)):
                raise WrongType(JSONType.UTF8, value=unknown)
        return unknown

    def _find_elsewhere(self, name: str) -> str:
        """The member that has a member of a name which this object does not have; empty if none has."""
        for line in self._table.fields.values():
            codec = line.codec
            if (
                line.path
                and isinstance(codec, type)
                and name in _known_keys(self._decoder.table_of(codec), self._decoder)
            ):
                return ".".join(line.path)
        return ""


def _name_of_optional(rows: tuple[_Row, ...]) -> str:
    """The name without which none of some rows reads anything; empty if there is no such name."""
    row = rows[0]
    return row.path[0] if len(rows) == 1 and row.path and not row.is_required else ""


def _plain_rows(
    table: Table[object], lines: Sequence[tuple[_Row, ...]]
) -> tuple[dict[str, _Row | None], frozenset[str]]:
    """The rows of members whose value is taken as it is decoded, None for a member without a meaning; those required.

    There are none if a line that is required is another one.
    """
    rows: dict[str, _Row | None] = dict.fromkeys(table.ignored)
    needed: set[str] = set()
    for line in lines:
        row = line[0]
        if len(line) == 1 and len(row.path) == 1 and not row.is_unset_if_empty:
            rows[row.path[0]] = row
            needed |= {row.attribute} if row.is_required else set()
        elif not _name_of_optional(line):
            return {}, frozenset()
    return rows, frozenset(needed)


def attributes_of(cls: type) -> Mapping[str, Attribute[object]]:
    """The attributes of a class of attrs by their names; none of any other class."""
    return fields_dict(cls) if has(cls) else {}


def _known_keys(table: Table[object], decoder: Decoder) -> set[str]:
    known = set(table.ignored)
    for line in table.fields.values():
        for one in (line, *line.alternatives):
            if one.path:
                known.add(one.path[0])
            else:  # only an object is read in place of its own members
                known |= _known_keys(decoder.table_of(narrow(one.codec, type)), decoder)
    return known


def _row(name: str, line: Field, attribute: Attribute[object] | None, decode: Decode) -> _Row:
    is_required = line.is_required or (attribute is not None and attribute.default is NOTHING)
    is_single_value, show = isinstance(line.codec, Codec) or _is_enum(line.codec), _show_function(attribute)
    return _Row(name, line.path, decode, is_required, line.is_unset_if_empty, is_single_value, show)


def _decode_function(codec: Codec[object] | ListOf | type, converter: BaseConverter, *, is_stored: bool) -> Decode:
    match codec:
        case Codec():
            return codec.decode_stored if is_stored and codec.decode_stored else codec.decode
        case ListOf():
            return _list_decode_function(_decode_function(codec.item, converter, is_stored=is_stored))
    hook = converter.get_structure_hook(codec)
    return lambda value: hook({} if value is None else value, codec)


def _is_enum(cls: object) -> bool:
    return isinstance(cls, type) and issubclass(cls, enum.Enum)


def _enum_reader(cls: type[enum.Enum]) -> Callable[[object, object], object]:
    decode = enum_codec(cls).decode
    return lambda value, _: decode(value)


def _list_decode_function(decode: Decode) -> Decode:
    def decode_list(value: object) -> object:
        if not isinstance(value, list | tuple):
            raise WrongType(JSONType.ARRAY)
        items: list[object] = []
        for position, item in enumerate(value):
            try:
                items.append(decode(item))
            except ValueError as error:
                raise _located(error, f"[{position}]", item) from None
        return tuple(items)

    return decode_list


def _object_writer(table: Table[object], converter: BaseConverter) -> Callable[[object], dict[str, object]]:
    attributes = attributes_of(table.cls)
    rows = tuple(
        (
            line.written or name,
            line.path[0],
            _encode_function(line.codec, converter),
            NOTHING if line.is_always_written else attributes[name].default,
        )
        for name, line in table.fields.items()
    )

    def write(value: object) -> dict[str, object]:
        text: str = getattr(value, _UNKNOWN, "")
        out: dict[str, object] = json.loads(text) if text else {}
        for name, key, encode, omitted in rows:
            found = getattr(value, name)
            if found != omitted:
                out[key] = found if encode is unchanged else encode(found)
        return out

    return write


def _encode_function(codec: Codec[object] | ListOf | type, converter: BaseConverter) -> Callable[[object], object]:
    match codec:
        case Codec():
            return codec.encode
        case ListOf():
            encode = _encode_function(codec.item, converter)
            # The attribute of a list, or the property that is written in place of it, is some collection.
            return lambda values: [encode(value) for value in cast("Iterable[object]", values)]
    return converter.get_unstructure_hook(codec)


def _show_function(attribute: Attribute[object] | None) -> Callable[[object], object]:
    """What an error shows of an attribute's value: no more than the value's own ``repr`` does."""
    if attribute is None or attribute.repr is True:
        return lambda value: value
    return redact_url_credentials if attribute.repr else lambda _: REDACTED


def _located(error: ValueError, path: str, value: object) -> Refused:
    refused = error if isinstance(error, Refused) else Unreadable(str(error))
    refused.locate(path, value)
    return refused


# --- the schema -------------------------------------------------------------------------------------------------------


Schema: TypeAlias = dict[str, object]


def object_schema(cls: type) -> Schema:
    """The schema of a class that declares its members."""
    table = declared_table(cls)
    members: dict[str, Schema] = {}
    required = []
    for attribute, line in table.fields.items():
        (name,) = line.path
        members[name] = _value_of(line.codec) | ({"description": line.text} if line.text else {}) | dict(line.limits)
        if _is_required(table, attribute):
            required.append(name)
    return {"type": "object", "properties": members, **({"required": required} if required else {})}


def collect_members(cls: type, path: str = "") -> dict[str, Field]:
    """Each member of a class that declares them, by its path; ``[]`` stands behind a list."""
    found: dict[str, Field] = {}
    for line in declared_table(cls).fields.values():
        here, codec = f"{path}.{line.path[0]}".removeprefix("."), line.codec
        found[here] = line
        if isinstance(codec, ListOf):
            here, codec = f"{here}[]", codec.item
        found |= collect_members(codec, here) if isinstance(codec, type) else {}
    return found


def find_unknown(value: object) -> frozenset[str]:
    """The names of the members that a decoded value keeps as unknown, without those of the values within."""
    text: str = getattr(value, _UNKNOWN, "")
    return frozenset(json.loads(text)) if text else frozenset()


def unreadable_json(value: object) -> str:
    """What a value keeps of the members that its class has, because they could not be read, as JSON text."""
    return _json_of(_kept_members(value, is_declared=True))


def carried_json(stored: object, wanted: object) -> str:
    """What a value that replaces a stored one keeps: the unknown members of that, and its own unreadable ones."""
    undeclared = _kept_members(stored, is_declared=False)
    return _json_of(undeclared | _kept_members(wanted, is_declared=True))


def _kept_members(value: object, *, is_declared: bool) -> dict[str, object]:
    text: str = getattr(value, _UNKNOWN, "")
    if not text:
        return {}
    cls: type = type(value)
    declared = {line.path[0] for line in declared_table(cls).fields.values()}
    return {name: one for name, one in json.loads(text).items() if (name in declared) is is_declared}


def _json_of(members: dict[str, object]) -> str:
    return json.dumps(members, sort_keys=True, separators=(",", ":")) if members else ""


def collect_unknown(value: object, path: str = "") -> tuple[str, ...]:
    """The paths of the members that a decoded value keeps as unknown, its own and those of the values within."""
    found = [f"{path}.{name}".removeprefix(".") for name in sorted(find_unknown(value))]
    cls: type = type(value)
    for attribute, line in declared_table(cls).fields.items():
        here, inner = f"{path}.{line.path[0]}".removeprefix("."), getattr(value, attribute)
        items = enumerate(inner or ()) if isinstance(line.codec, ListOf) else ()
        found += [one for n, item in items for one in collect_unknown(item, f"{here}[{n}]")]
        found += collect_unknown(inner, here) if isinstance(line.codec, type) else ()
    return tuple(found)


def collect_fields(schema: Schema, path: str = "") -> dict[str, Schema]:
    """The schema of each field of an object, by its path; ``[]`` stands behind a list."""
    found: dict[str, Schema] = {}
    for name, member in member_schemas(schema).items():
        here = f"{path}.{name}".removeprefix(".")
        found[here] = member
        found |= collect_fields(member, here)
        found |= collect_fields(inner_schema(member, "items"), f"{here}[]")
    return found


def inner_schema(schema: Schema, name: str) -> Schema:
    """The schema that stands in another one, such as that of the ``items`` of a list; empty if there is none."""
    found = schema.get(name)
    return found if isinstance(found, dict) else {}


def member_schemas(schema: Schema) -> dict[str, Schema]:
    """The schemas of an object's members, by their names; what changes them changes that of the object."""
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _is_required(table: Table[object], attribute: str) -> bool:
    return table.fields[attribute].is_required or attributes_of(table.cls)[attribute].default is NOTHING


def _value_of(codec: Codec[object] | ListOf | type) -> Schema:
    match codec:
        case Codec():
            return dict(codec.schema)
        case ListOf():
            return {"type": "array", "items": _value_of(codec.item)}
    return dict(enum_codec(codec).schema) if issubclass(codec, enum.Enum) else object_schema(codec)


# --- the errors -------------------------------------------------------------------------------------------------------


@frozen
class MalformedField(ConfigurationError):
    """A field whose value cannot be read; ``accepted`` is what was expected, ``reason`` what is wrong, if known."""

    reason: str = ""

    def __str__(self) -> str:
        found = "nothing" if self.value is None else quote(self.value)
        because = f": {self.reason}" if self.reason else ""
        return f"expected {self.accepted} @ {excerpt(self.where)}, found {found}{because}"


@frozen
class UnknownField(ConfigurationError):
    """A field of a user's document that the kind does not have.

    ``elsewhere`` is the member that has a field of this name; empty if none has.
    """

    elsewhere: str = ""

    def __str__(self) -> str:
        return (
            f"field in document is not recognized or is in the wrong location: {excerpt(self.value)} @ "
            f"{excerpt(self.where)}; "
            f"{self.advice}"
        )

    @property
    def first_name(self) -> str:
        """The first of the names that are not known."""
        return str(self.value).partition(", ")[0]

    @property
    def advice(self) -> str:
        """Where the first name belongs, or the known name that it is close to, and all that there are."""
        if self.elsewhere:
            return f"it belongs in {self.elsewhere}; there are {self.accepted}"
        meant = did_you_mean(self.first_name, self.accepted.split(", "))
        return f"{meant}{' ' if meant else ''}there are {self.accepted}"


def path_in_document(source: str, path: str) -> str:
    """A place in a document, such as ``pool.yaml#1 $.spec``; ``source`` may be empty."""
    return f"{source} ${path}" if source else f"${path}"


def split_path(where: str, source: str) -> str | None:
    """The path of a place that :func:`path_in_document` made for a document; None for any other text."""
    start = path_in_document(source, "")
    return where.removeprefix(start) if where.startswith(start) else None


def document_error(refused: Refused, source: str) -> NetplugError:
    """The error about a resource, or about the file of the tool."""
    where = path_in_document(source, refused.path)
    if isinstance(refused, UnknownKeys):
        return UnknownField(where, refused.value, refused.accepted, refused.reason)
    return MalformedField(where, refused.value, refused.accepted, refused.reason)


_NUMBERS = "a whole number"


def _quoting_hint(refused: Refused) -> str:
    """What to do about a number or a switch in quotes, or a text that YAML reads as one of these without quotes."""
    value, expected = refused.value, refused.expected if isinstance(refused, WrongType) else None
    if isinstance(value, str):
        is_number = refused.accepted.startswith(_NUMBERS) and value.removeprefix("-").isdecimal()
        is_switch = expected is JSONType.BOOLEAN and value.lower() in ("true", "false")
        return "it is a text; leave out the quotes" if is_number or is_switch else ""
    is_plain = isinstance(value, bool | int | float) and expected in (JSONType.STRING, JSONType.TEXT_MAP)
    return "put it in quotes" if is_plain else ""


def cni_error(refused: Refused, where: str) -> NetplugError:
    """The error about a document of a runtime: code 6 for a wrong type, code 7 for a value that is not accepted."""
    at = f"{where}{refused.path}"
    if isinstance(refused, WrongType):
        return DecodeError(at, refused.expected.value[1])
    if isinstance(refused, Unreadable):
        return DecodeError(at, refused.accepted)
    # A value in the wrong place may be a URL with a password.
    return ConfigurationError(at, redact_url_credentials(refused.value), refused.accepted)
