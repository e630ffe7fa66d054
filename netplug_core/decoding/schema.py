"""The OpenAPI schema of objects, made from the tables that decode them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, cast

from attrs import NOTHING, AttrsInstance, fields_dict

from netplug_core.decoding.codecs import Codec
from netplug_core.decoding.tables import ListOf, Table

__all__ = ["Schema", "collect_fields", "table_schema"]

Schema: TypeAlias = dict[str, object]


def table_schema(cls: type, tables: Iterable[Table[object]], describe: Callable[[str], str]) -> Schema:
    """The schema of a class. ``describe`` has the text of a field, by its path; ``[]`` stands behind a list."""
    return _object_of(cls, "", {table.cls: table for table in tables}, describe)


def collect_fields(schema: Schema, path: str = "") -> dict[str, Schema]:
    """The schema of each field of an object, by its path; ``[]`` stands behind a list."""
    found: dict[str, Schema] = {}
    for name, member in cast("dict[str, Schema]", schema.get("properties", {})).items():
        here = f"{path}.{name}".removeprefix(".")
        found[here] = member
        found |= collect_fields(member, here)
        found |= collect_fields(cast("Schema", member.get("items", {})), f"{here}[]")
    return found


def _object_of(cls: type, path: str, tables: dict[type, Table[object]], describe: Callable[[str], str]) -> Schema:
    table = tables[cls]
    members: dict[str, Schema] = {}
    required = []
    for attribute, line in table.fields.items():
        (name,) = line.path
        here = f"{path}.{name}".removeprefix(".")
        members[name] = _value_of(line.codec, here, tables, describe) | {"description": describe(here)}
        if _is_required(table, attribute):
            required.append(name)
    return {"type": "object", "properties": members, **({"required": required} if required else {})}


def _is_required(table: Table[object], attribute: str) -> bool:
    return fields_dict(cast("type[AttrsInstance]", table.cls))[attribute].default is NOTHING


def _value_of(
    codec: Codec | ListOf | type, path: str, tables: dict[type, Table[object]], describe: Callable[[str], str]
) -> Schema:
    match codec:
        case Codec():
            return dict(codec.schema)
        case ListOf():
            return {"type": "array", "items": _value_of(codec.item, f"{path}[]", tables, describe)}
    return _object_of(codec, path, tables, describe)
