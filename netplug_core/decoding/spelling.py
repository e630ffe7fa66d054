"""Members of a JSON object whose names are spelled in another letter case."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

__all__ = ["RespelledMember", "take_respelled"]


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
