"""The paths of ``-o jsonpath`` and ``-o custom-columns``: the part of kubectl's language that only looks up.

A path leads through objects and lists to values. Nothing is computed, so a path from elsewhere can do no harm.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import TypeAlias, assert_never

from attrs import frozen

from netplug_cli.formatting import escape_unprintable, format_bool, format_json
from netplug_core.errors import quote

__all__ = ["Every", "Item", "JSONPath", "Member", "PathError", "format_value", "parse_path", "unescape"]

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
