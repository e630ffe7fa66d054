"""The outputs of ``get -o`` that are computed from paths: columns, templates, and the formats that name them."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias, assert_never

import click
from attrs import define, field, frozen

from netplug_cli.ctl.tables import Width, column_names, table_headers, table_row
from netplug_cli.formatting import escape_unprintable, format_bool, format_json
from netplug_core.errors import did_you_mean, quote
from netplug_core.records import Record
from netplug_core.resources.kinds import Resource, ResourceKind

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = [
    "OUTPUT", "Columns", "CustomColumns", "Every", "Item", "JSONPath", "Member", "ObjectFormat", "OutputFormat",
    "PathError", "Template", "UnknownColumn", "columns_of_width", "format_value", "parse_columns", "parse_path",
    "parse_template", "unescape", "with_labels",
]  # fmt: skip


# --- paths -----------------------------------------------------------------------------------------------------------


_ACCEPTED = "a path is made of .name, ['name'], [0], [-1] for the last item, [*] and .*"
_STEP = re.compile(
    r"""\.(?P<name>(?:[^\s.,:\[\]$@{}()?*'"\\]|\\.)+)
      | (?P<every>\.\*|\[\*\])
      | \[(?P<index>-?[0-9]{1,9})\]
      | \[(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]""",
    re.VERBOSE | re.DOTALL,
)
# What kubectl has besides, so that the error can say what it is.
_OUTSIDE = (
    (re.compile(r"\.\."), "a search through all levels"),
    (re.compile(r"\[\?"), "a filter"),
    (re.compile(r"\[[^\]]*:"), "a slice"),
    (re.compile(r"\[[^\]]*,"), "a union"),
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_SHOWN_LENGTH = 20
_KEPT_CONTROLS = "\n\t"


class PathError(ValueError):
    """A text that is no path or no template: the position (1 is the first character), and what is accepted."""

    @classmethod
    def at(cls, position: int, problem: str) -> PathError:
        """The error about what stands at a position, counted from 0."""
        return cls(f"position {position + 1}: {problem}")


class Every(enum.Enum):
    """The step to every item of a list, or to the value of every member of an object."""

    EVERY = "*"


@frozen
class Member:
    """The step to the value of a member of an object."""

    name: str


@frozen
class Item:
    """The step to an item of a list; -1 is the last one."""

    index: int


Step: TypeAlias = Member | Item | Every


@frozen
class JSONPath:
    """The steps from a value to others."""

    steps: tuple[Step, ...]

    def select(self, value: object) -> list[object]:
        """The values that the path leads to, in their order; none where a step finds nothing."""
        found = [value]
        for step in self.steps:
            found = [after for before in found for after in _follow(step, before)]
        return found


def parse_path(text: str, *, offset: int = 0) -> JSONPath:
    """The path of a text; ``offset`` is where that begins in what a person typed.

    Raises:
        PathError: it is no path, or one with a step that is not offered.
    """
    if not text:
        raise PathError.at(offset, f"found nothing; {_ACCEPTED}")
    at = 1 if text[0] in "$@" else 0
    if text[at:] == ".":
        return JSONPath(())
    steps: list[Step] = []
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise PathError.at(offset + at, _problem(text[at:]))
        steps.append(_step(match))
        at = match.end()
    return JSONPath(tuple(steps))


def unescape(text: str) -> str:
    """A text in which each backslash stands for the character after it."""
    return _ESCAPED.sub(r"\1", text)


def format_value(value: object) -> str:
    """A value as a person reads it: a text as it is, anything else as JSON on one line; nothing for null.

    Control characters other than a line break and a tabulator are written out, because a terminal obeys them.
    """
    match value:
        case None:
            return ""
        case str():
            if value.isprintable():
                return value
            return "".join(c if c in _KEPT_CONTROLS else escape_unprintable(c) for c in value)
        case bool():
            return format_bool(value)
        case _:
            return format_json(value, separators=(",", ":"))


def _step(match: re.Match[str]) -> Step:
    if match["every"]:
        return Every.EVERY
    if match["index"]:
        return Item(int(match["index"]))
    return Member(unescape(match["name"] or match["quoted"][1:-1]))


def _problem(rest: str) -> str:
    found = quote(rest if len(rest) <= _SHOWN_LENGTH else f"{rest[:_SHOWN_LENGTH]}...")
    named = next((name for pattern, name in _OUTSIDE if pattern.match(rest)), None)
    return f"{found} begins {named}, which is not offered; {_ACCEPTED}" if named else f"found {found}; {_ACCEPTED}"


def _follow(step: Step, value: object) -> Sequence[object]:
    match step:
        case Member(name):
            return (value[name],) if isinstance(value, dict) and name in value else ()
        case Item(index):
            return (value[index],) if isinstance(value, list) and -len(value) <= index < len(value) else ()
        case Every.EVERY:
            return value if isinstance(value, list) else tuple(value.values()) if isinstance(value, dict) else ()
        case _:
            assert_never(step)


# --- columns ---------------------------------------------------------------------------------------------------------


_NOTHING = "<none>"
_ACCEPTED_COLUMNS = (
    "columns are HEADER:PATH, such as CIDR:.spec.cidr, or names of the kind's own columns, between commas"
)
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


def with_labels(columns: Columns, names: Sequence[str], *, shows_all: bool) -> Columns:
    """The columns with one for each label of a name, and with a last one for all labels."""
    if not names and not shows_all:
        return columns
    own = tuple(name.rpartition("/")[2].upper() for name in names)
    headers = (*columns.headers, *own, *(("LABELS",) if shows_all else ()))

    def cells(record: Record[Resource]) -> tuple[str, ...]:
        labels = dict(record.value.metadata.labels)
        joined = ",".join(f"{name}={text}" for name, text in labels.items()) or _NOTHING
        named = (labels.get(name, "") for name in names)
        return (*columns.cells(record), *named, *((joined,) if shows_all else ()))

    return Columns(headers, cells)


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
        raise PathError.at(position, f"found {quote(text)}; {_ACCEPTED_COLUMNS}")
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


# --- templates -------------------------------------------------------------------------------------------------------


_ACCEPTED_PARTS = "in braces stand a path, 'range' with a path, 'end', or a text in quotes"
_MAX_DEPTH = 16
_BRACES = re.compile(r"""\{((?:[^{}'"\\]|\\.|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")*)\}""", re.DOTALL)
_RANGE = re.compile(r"range\s+")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


@frozen
class Range:
    """Parts that are printed for each value of a path."""

    path: JSONPath
    parts: tuple[Part, ...]


Part: TypeAlias = str | JSONPath | Range


@frozen
class Template:
    """A template that was understood."""

    parts: tuple[Part, ...]

    def render(self, value: object) -> str:
        """The text that the template makes of a value. What a path does not find is left out."""
        return "".join(_render(self.parts, value))


def parse_template(text: str) -> Template:
    """The template of a text.

    Raises:
        PathError: it has no path, or something in braces that is not offered.
    """
    if "{" not in text:
        problem = f"found {quote(text)}, a text without a path; put the path in braces, such as {{.metadata.name}}"
        raise PathError.at(0, problem)
    parser, at = _Parser(), 0
    while (opened := text.find("{", at)) >= 0:
        parser.add(text[at:opened])
        match = _BRACES.match(text, opened)
        if match is None:
            raise PathError.at(opened, "'{' without its '}'; " + _ACCEPTED_PARTS)
        content = match[1].strip()
        parser.add_action(content, match.start(1) + match[1].find(content))
        at = match.end()
    parser.add(text[at:])
    return Template(parser.finish())


@define
class _OpenRange:
    """A range whose end is not read yet; the outermost one is the template, which has no path."""

    position: int
    path: JSONPath | None = None
    parts: list[Part] = field(factory=list)


@define
class _Parser:
    """The ranges that are open, the innermost one last."""

    _open: list[_OpenRange] = field(factory=lambda: [_OpenRange(0)])

    def add(self, part: Part) -> None:
        """Add a part to the innermost range."""
        if part != "":
            self._open[-1].parts.append(part)

    def add_action(self, content: str, position: int) -> None:
        """Read what stands in braces."""
        if content == "end":
            self._close(position)
        elif match := _RANGE.match(content):
            if len(self._open) > _MAX_DEPTH:
                raise PathError.at(position, f"there are more than {_MAX_DEPTH} ranges in each other")
            path = self._path(content[match.end() :], position + match.end())
            self._open.append(_OpenRange(position, path))
        elif _QUOTED.fullmatch(content):
            self.add(_ESCAPE.sub(lambda found: _escaped(found, position), content[1:-1]))
        elif content[:1] in (".", "[", "$", "@"):
            self.add(self._path(content, position))
        else:
            raise PathError.at(
                position, f"found {quote(content)}; {_ACCEPTED_PARTS}, and a path begins with '.' or '['"
            )

    def finish(self) -> tuple[Part, ...]:
        """All parts, once everything is read."""
        innermost = self._open[-1]
        if innermost.path is not None:
            raise PathError.at(innermost.position, "'range' without its {end}")
        return tuple(innermost.parts)

    def _close(self, position: int) -> None:
        closed = self._open[-1]
        if closed.path is None:
            raise PathError.at(position, "'end' without its {range PATH}")
        self._open.pop()
        self.add(Range(closed.path, tuple(closed.parts)))

    def _path(self, text: str, position: int) -> JSONPath:
        if text.startswith("$") and len(self._open) > 1:
            # kubectl takes it for '@' there, and every other tool for the whole answer.
            raise PathError.at(position, "'$' in a range; a path there begins at the value of the range, with '.'")
        return parse_path(text, offset=position)


def _escaped(match: re.Match[str], position: int) -> str:
    if match[1] not in _ESCAPES:
        accepted = ", ".join(f"\\{name}" for name in _ESCAPES)
        raise PathError.at(position + 1 + match.start(), f"found {match[0]}; accepted are {accepted}")
    return _ESCAPES[match[1]]


def _render(parts: Sequence[Part], value: object) -> Iterator[str]:
    for part in parts:
        match part:
            case str():
                yield part
            case JSONPath():
                yield " ".join(map(format_value, part.select(value)))
            case Range(path, inner):
                for each in path.select(value):
                    yield from _render(inner, each)
            case _:
                assert_never(part)


# --- formats ---------------------------------------------------------------------------------------------------------


class ObjectFormat(enum.Enum):
    """An output without a table: whole objects, or their kinds and names."""

    YAML = "yaml"
    JSON = "json"
    NAME = "name"


OutputFormat: TypeAlias = Width | ObjectFormat | CustomColumns | Template

_WORDS: dict[str, OutputFormat] = {
    **{width.value: width for width in Width},
    **{format_.value: format_ for format_ in ObjectFormat},
}
_PARSERS: dict[str, Callable[[str], OutputFormat]] = {"custom-columns": parse_columns, "jsonpath": parse_template}
_GO_TEMPLATES = ("go-template", "go-template-file", "template", "templatefile")
_EXAMPLE = """jsonpath='{range .items[*]}{.metadata.name}{"\\n"}{end}'"""
_ALL = ", ".join((*_WORDS, "custom-columns=COLUMNS", "jsonpath=TEMPLATE"))


class _OutputType(click.ParamType[OutputFormat]):
    """The value of ``-o``."""

    name = "format"

    def convert(
        self, value: str | OutputFormat, param: click.Parameter | None, ctx: click.Context | None
    ) -> OutputFormat:
        """The output; an error of the command line for anything else."""
        if not isinstance(value, str):
            return value
        if value in _WORDS:
            return _WORDS[value]
        word, _, text = value.partition("=")
        if word in _GO_TEMPLATES:
            self.fail(f"{word} is not offered: use {_EXAMPLE}, or custom-columns=NAME:.metadata.name", param, ctx)
        if word not in _PARSERS:
            meant = did_you_mean(value, _WORDS)
            self.fail(f"{value!r} is none of {_ALL}{f'; {meant}' if meant else ''}", param, ctx)
        try:
            return _PARSERS[word](text)
        except PathError as error:
            self.fail(f"{word}, {error}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        """The words that begin as typed."""
        from click.shell_completion import CompletionItem

        words = (*_WORDS, *(f"{word}=" for word in _PARSERS))
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


OUTPUT = click.option(
    "-o", "--output", type=_OutputType(), default=Width.NARROW.value, show_default=True, metavar="FORMAT",
    help=f"One of {_ALL}.",
)  # fmt: skip
"""``-o`` and ``--output``."""
