r"""The templates of ``-o jsonpath``: text, with paths and ranges in braces.

``{.metadata.name}`` prints a value, ``{range .items[*]}...{end}`` prints what is between for each value, and
``{"\n"}`` prints a text. This is the part of kubectl's language that reads what is there; ``paths`` has the paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias, assert_never

from attrs import define, field, frozen

from netplug_cli.ctl.outputs.paths import JSONPath, PathError, format_value, parse_path
from netplug_core.errors import quote

__all__ = ["Template", "parse_template"]

_ACCEPTED = "in braces stand a path, 'range' with a path, 'end', or a text in quotes"
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
            raise PathError.at(opened, "'{' without its '}'; " + _ACCEPTED)
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
            raise PathError.at(position, f"found {quote(content)}; {_ACCEPTED}, and a path begins with '.' or '['")

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
