"""The tables of ``get``: those of a kind, and those whose columns a person chose (``-o custom-columns``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from attrs import frozen

from netplug_cli.ctl.outputs.paths import JSONPath, PathError, format_value, parse_path
from netplug_cli.ctl.tables import Width, column_names, table_headers, table_row
from netplug_core.errors import quote
from netplug_core.records import Record
from netplug_core.resources.kinds import Resource, ResourceKind

__all__ = ["Columns", "CustomColumns", "UnknownColumn", "columns_of_width", "parse_columns"]

_NOTHING = "<none>"
_ACCEPTED = "columns are HEADER:PATH, such as CIDR:.spec.cidr, or names of the kind's own columns, between commas"
# A comma in brackets is part of a path.
_TOKEN = re.compile(r"""\[(?:[^'"\]]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")*\]|.""", re.DOTALL)
MappingOf: TypeAlias = Callable[[Record[Resource]], Mapping[str, object]]


class UnknownColumn(ValueError):
    """A name of no column of a kind."""


@frozen
class Columns:
    """The columns of a table: their headers, and the cells of a record below them."""

    headers: tuple[str, ...]
    cells: Callable[[Record[Resource]], tuple[str, ...]]


@frozen
class PathColumn:
    """A column with what a path finds in each object."""

    header: str
    path: JSONPath


@frozen
class CustomColumns:
    """The columns that a person chose: paths, and names of columns of the kind's own tables."""

    columns: tuple[PathColumn | str, ...]

    def of_kind(self, kind: ResourceKind, mapping_of: MappingOf) -> Columns:
        """The columns of a table of a kind; ``mapping_of`` makes the object that the paths are for.

        Raises:
            UnknownColumn: the kind has no column of a name.
        """
        names = column_names(kind)
        for column in self.columns:
            if isinstance(column, str) and column not in names:
                there = ", ".join(names)
                raise UnknownColumn(f"{kind.name} has no column {quote(column)}; there are {there}, and HEADER:PATH")
        headers = (column if isinstance(column, str) else column.header for column in self.columns)
        return Columns(tuple(headers), partial(_cells, self.columns, mapping_of))


def columns_of_width(kind: ResourceKind, width: Width, leading: Sequence[str] = ()) -> Columns:
    """The columns of the table of a kind; ``leading`` ones are put in front."""
    headers = (*leading, *table_headers(kind, width))
    return Columns(headers, lambda record: table_row(record.value, headers))


def parse_columns(text: str) -> CustomColumns:
    """The columns of a text such as ``NAME:.metadata.name,CIDR``.

    Raises:
        PathError: a column has no header or no path, or something in it is not offered.
    """
    commas = (token.start() for token in _TOKEN.finditer(text) if token[0] == ",")
    ends = (-1, *commas, len(text))
    return CustomColumns(tuple(_parse_column(text[before + 1 : end], before + 1) for before, end in pairwise(ends)))


def _parse_column(text: str, position: int) -> PathColumn | str:
    header, colon, path = text.partition(":")
    if not header.strip() or (colon and not path.strip()):
        raise PathError.at(position, f"found {quote(text)}; {_ACCEPTED}")
    if not colon:
        return header.strip().upper()
    position += len(header) + 1 + len(path) - len(path.lstrip())
    path = path.strip()
    if path.startswith("{") and path.endswith("}"):
        path, position = path[1:-1], position + 1
    if path[:1] not in (".", "[", "$", "@"):
        path, position = f".{path}", position - 1
    return PathColumn(header.strip(), parse_path(path, offset=position))


def _cells(columns: Sequence[PathColumn | str], mapping_of: MappingOf, record: Record[Resource]) -> tuple[str, ...]:
    own = [column for column in columns if isinstance(column, str)]
    named = dict(zip(own, table_row(record.value, own), strict=True))
    mapping = mapping_of(record) if len(own) < len(columns) else {}
    return tuple(named[c] if isinstance(c, str) else _cell(c.path.select(mapping)) for c in columns)


def _cell(found: Sequence[object]) -> str:
    return ",".join(_NOTHING if value is None else format_value(value) for value in found) or _NOTHING
