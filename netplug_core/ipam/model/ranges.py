"""Which records of blocks and affinities concern a range of addresses.

A damaged record keeps its key, and the key names the block. So a pool can be made and deleted while a record of
another pool is damaged.
"""

from __future__ import annotations

from collections.abc import Iterable

from netplug_core.addressing import Prefix
from netplug_core.records import Key, Malformed

__all__ = ["is_within", "raise_if_within"]


def is_within(key: Key[object], range_: Prefix) -> bool:
    """Whether the block that the key of a block or an affinity names has addresses of a range.

    A key that names no block has none: nothing is ever assigned from it.
    """
    try:
        return Prefix.parse(key.name).overlaps(range_)
    except ValueError:
        return False


def raise_if_within(errors: Iterable[Malformed], range_: Prefix) -> None:
    """Refuse to go on if a block or an affinity that may lie within a range cannot be understood.

    Raises:
        Malformed: the first one.
    """
    for error in errors:
        if error.subject is None or is_within(error.subject, range_):
            raise error
