"""The assertions of the conformance suites.

Unlike ``assert`` they also hold under ``python -O``, and each one says in its message what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from netplug_core.errors import NetplugError

__all__ = ["expect", "expect_refused", "expect_same"]

E = TypeVar("E", bound=NetplugError)


def expect(condition: bool, problem: str) -> None:  # noqa: FBT001  # the condition itself, as in an assertion
    """Fail with the problem unless the condition holds."""
    if not condition:
        raise AssertionError(problem)


def expect_same(found: object, expected: object, what: str) -> None:
    """Fail, and show both values, unless the value found equals the expected one."""
    expect(found == expected, f"{what}: found {found!r}, expected {expected!r}")


def expect_refused(error: type[E], call: Callable[[], object], *words: str, what: str = "the call") -> E:
    """The error that the call raises; fail unless it is of that class and its text contains all the words."""
    try:
        result = call()
    except error as refusal:
        expect(all(word in str(refusal) for word in words), f"{words!r} are not all in {str(refusal)!r}")
        return refusal
    except NetplugError as other:
        raise AssertionError(f"{what} was refused with {other!r}, expected {error.__name__}") from other
    raise AssertionError(f"{what} was not refused with {error.__name__}; it returned {result!r}")
