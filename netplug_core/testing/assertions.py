"""The assertions of the conformance suites.

Unlike ``assert`` they also hold under ``python -O``, and each one says in its message what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from attrs import fields

from netplug_core.errors import NetplugError
from netplug_core.records import (
    CommitError,
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Record,
    Require,
    RequireUnchanged,
    Update,
    WatchEvent,
)

__all__ = ["describe", "expect", "expect_refused", "expect_same"]

E = TypeVar("E", bound=NetplugError)

_SHOWN_BY_FIELD = (Record, WatchEvent, Get, List, Create, Update, Delete, Require, RequireUnchanged, CommitError)


def expect(condition: bool, problem: str) -> None:  # noqa: FBT001  # the condition itself, as in an assertion
    """Fail with the problem unless the condition holds."""
    if not condition:
        raise AssertionError(problem)


def expect_same(found: object, expected: object, what: str) -> None:
    """Fail, and show both values, unless the value found equals the expected one."""
    if found != expected:
        found_list, expected_list = (value if isinstance(value, list) else [] for value in (found, expected))
        difference = _list_difference(found_list, expected_list)
        raise AssertionError(f"{what}: found {describe(found)}, expected {describe(expected)}{difference}")


def expect_refused(error: type[E], call: Callable[[], object], *words: str, what: str = "the call") -> E:
    """The error that the call raises; fail unless it is of that class and its text contains all the words."""
    try:
        result = call()
    except error as refusal:
        expect(all(word in str(refusal) for word in words), f"{words!r} are not all in {str(refusal)!r}")
        return refusal
    except NetplugError as other:
        raise AssertionError(f"{what} was refused with {describe(other)}, expected {error.__name__}") from other
    raise AssertionError(f"{what} was not refused with {error.__name__}; it returned {describe(result)}")


def describe(value: object) -> str:
    """The text of a value in a message: its ``repr``, in which keys are written like ``Fruit(green/apple)``."""
    if isinstance(value, Key | Kind):
        return str(value)
    if isinstance(value, _SHOWN_BY_FIELD):
        shown = (f"{each.name}={describe(getattr(value, each.name))}" for each in fields(type(value)))
        return f"{type(value).__name__}({', '.join(shown)})"
    if isinstance(value, list):
        return f"[{', '.join(map(describe, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(describe, value))}{',' * (len(value) == 1)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{describe(key)}: {describe(each)}' for key, each in value.items())}}}"
    return repr(value)


def _list_difference(found: list[object], expected: list[object]) -> str:
    """What is wrong with a list, for its readers; empty if either is no list."""
    missing = [each for each in expected if each not in found]
    foreign = [each for each in found if each not in expected]
    repeated = [
        each
        for position, each in enumerate(found)
        if each in expected and found.index(each) == position and found.count(each) > expected.count(each)
    ]
    parts = [
        f"{label}: {', '.join(map(describe, values))}"
        for label, values in (("missing", missing), ("not expected", foreign), ("twice", repeated))
        if values
    ]
    if not parts and len(found) == len(expected) and found:
        position = next(index for index, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
        parts = [f"not in order at position {position + 1}"]
    return f" ({'; '.join(parts)})" if parts else ""
