"""Whether one JSON value has everything that another one asks for. Pure.

A server adds defaults and what others wrote, and leaves out empty values; so two objects that stand for the same are
seldom equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["contains"]

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
