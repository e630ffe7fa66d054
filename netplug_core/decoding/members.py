"""Copies of a JSON object with another value at one place, and what the path of an error leads to.

``lint`` and the reader of an Installation judge such copies; ``lint`` writes them too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

from netplug_core.errors import quote

__all__ = ["find_at", "find_steps", "with_member", "without_member"]


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


def find_steps(whole: object, path: str) -> tuple[str | int, ...]:
    """The names and positions of an error's path, such as ``spec.pools[0].cidr``, as far as they lead to something."""
    rest = path.removeprefix(".")
    for step, member in _members_of(whole):
        spellings = (f"[{step}]",) if isinstance(step, int) else (step, f"[{step}]", f"[{quote(step)}]")
        for spelling in spellings:
            after = rest.removeprefix(spelling)
            if after != rest and re.match(r"[.\[]|$", after):
                return step, *find_steps(member, after)
    return ()


def _members_of(whole: object) -> Sequence[tuple[str | int, object]]:
    if isinstance(whole, Mapping):
        return [(str(name), member) for name, member in whole.items()]
    return list(enumerate(whole)) if isinstance(whole, list) else []


def with_member(members: Mapping[str, object], path: Sequence[str | int], value: object) -> Mapping[str, object]:
    """The object with another value where names and positions lead to; None leaves that member out.

    The copy is equal to the object if nothing is there.
    """
    return cast("Mapping[str, object]", _with_member(members, tuple(path), value))


def without_member(members: Mapping[str, object], path: Sequence[str | int]) -> Mapping[str, object]:
    """The object without the member, or the entry of a list, that names and positions lead to."""
    *above, last = path
    around = find_at(members, above)
    if not isinstance(around, list):
        return with_member(members, path, None)
    return with_member(members, above, [one for position, one in enumerate(around) if position != last])


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
