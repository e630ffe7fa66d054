"""Copies of a JSON object with another value at one place. ``lint`` judges such copies, and writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

__all__ = ["find_at", "with_member"]


def find_at(whole: object, path: Sequence[str | int]) -> object:
    """What names and positions lead to; None if nothing is there."""
    for step in path:
        if isinstance(whole, Mapping):
            whole = whole.get(step)
        elif isinstance(whole, list) and isinstance(step, int) and step < len(whole):
            whole = whole[step]
        else:
            return None
    return whole


def with_member(members: Mapping[str, object], path: Sequence[str | int], value: object) -> Mapping[str, object]:
    """The object with another value where names and positions lead to; None leaves that member out.

    The copy is equal to the object if nothing is there.
    """
    return cast("Mapping[str, object]", _with_member(members, tuple(path), value))


def _with_member(whole: object, path: tuple[str | int, ...], value: object) -> object:
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(whole, list):
        return [_with_member(one, rest, value) if n == first else one for n, one in enumerate(whole)]
    if not isinstance(whole, Mapping) or first not in whole:
        return whole
    if value is None and not rest:
        return {name: one for name, one in whole.items() if name != first}
    return {**whole, first: _with_member(whole[first], rest, value)}
