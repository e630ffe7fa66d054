"""Members of foreign JSON objects: where a path leads, copies with another value, other letter cases, and containment.

``lint`` and the reader of an Installation judge copies of a document. The operator asks whether an object of the
cluster has everything that is wanted of it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from attrs import frozen

from netplug_core.errors import quote

__all__ = [
    "RespelledMember", "contains", "find_at", "find_steps", "take_respelled", "with_member", "without_member",
]  # fmt: skip


# --- where a path leads -----------------------------------------------------------------------------------------------


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
    changed = _with_member(members, tuple(path), value)
    return changed if isinstance(changed, Mapping) else members


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


# --- other letter cases -----------------------------------------------------------------------------------------------


@frozen
class RespelledMember:
    """A member that a path leads to if letter case is ignored; ``path`` is as the document spells it."""

    path: str
    names: tuple[str, ...]
    value: object


def take_respelled(
    members: Mapping[str, object], *paths: tuple[str, ...]
) -> tuple[Mapping[str, object], tuple[RespelledMember, ...]]:
    """The object without the members that these paths lead to only if letter case is ignored, and those members.

    An object in which nothing else is left goes with them. A member that is spelled exactly stays.
    """
    taken: list[RespelledMember] = []
    left = _without(members, paths, (), taken, is_exact=True)
    return (left, tuple(taken)) if taken else (members, ())


def _without(
    members: Mapping[str, object],
    paths: tuple[tuple[str, ...], ...],
    above: tuple[str, ...],
    taken: list[RespelledMember],
    *,
    is_exact: bool,
) -> Mapping[str, object]:
    left: dict[str, object] = {}
    for name, value in members.items():
        found = tuple(path for path in paths if path[0].lower() == str(name).lower())
        here, is_here_exact = (*above, str(name)), is_exact and any(path[0] == name for path in found)
        ends = next((path for path in found if len(path) == 1), None)
        if ends is not None and not is_here_exact:
            taken.append(RespelledMember(".".join(here), tuple(part.lower() for part in here), value))
            continue
        longer = tuple(path[1:] for path in found if len(path) > 1)
        if longer and isinstance(value, Mapping):
            inner = _without(value, longer, here, taken, is_exact=is_here_exact)
            if inner or not value or is_here_exact:
                left[name] = inner
            continue
        left[name] = value
    return left


# --- containment ------------------------------------------------------------------------------------------------------


_NAME = "name"


def contains(found: object, wanted: object) -> bool:
    """Whether a found value has all members of a wanted one, at every depth; it may have more.

    An empty or false value is found where there is nothing. Items of a list are found by their ``name`` if each wanted
    item has one of its own; otherwise the lists have to be of one length, and the items are compared in their order.
    """
    if isinstance(wanted, Mapping):
        members = found if isinstance(found, Mapping) else {}
        if found is not None and not isinstance(found, Mapping):
            return False
        return all(contains(members.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list | tuple):
        if found is not None and not isinstance(found, list | tuple):
            return False
        return _contains_items(found or (), wanted)
    if not wanted and found is None:
        return True
    return found == wanted and isinstance(found, bool) is isinstance(wanted, bool)


def _contains_items(found: Sequence[object], wanted: Sequence[object]) -> bool:
    names = [item.get(_NAME) if isinstance(item, Mapping) else None for item in wanted]
    if names and None not in names and len(set(map(str, names))) == len(names):
        by_name = {item.get(_NAME): item for item in found if isinstance(item, Mapping)}
        return all(name in by_name and contains(by_name[name], item) for name, item in zip(names, wanted, strict=True))
    return len(found) == len(wanted) and all(map(contains, found, wanted))
