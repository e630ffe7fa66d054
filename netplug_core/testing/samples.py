"""What the datastore suite stores: keys of two plain kinds, their values and a codec for them.

Every backend can keep these kinds. A backend that only keeps netplug's own kinds brings its own :class:`Samples`.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from attrs import frozen

from netplug_core.records import Key, Kind, List, Malformed, ValueCondition

__all__ = ["FRUIT", "FRUIT_AND_TOOLS", "SAMPLE_CODEC", "TOOL", "Samples", "TextCodec"]

FRUIT: Kind[str] = Kind("Fruit", ("shelf", "name"))
TOOL: Kind[str] = Kind("Tool", ("name",))


class TextCodec:
    """Texts as JSON strings; open a store that keeps bytes with this codec, so that it can keep the samples."""

    def encode(self, key: Key[object], value: object) -> bytes:
        """The bytes to store under the key."""
        del key
        return json.dumps(value).encode()

    def decode(self, key: Key[object], data: bytes) -> object:
        """The value that was stored under the key."""
        value = json.loads(data)
        if not isinstance(value, str):
            raise Malformed(str(key), "not a JSON string")
        return value

    def holds(self, condition: ValueCondition, data: bytes) -> bool:
        """Whether a condition holds for the value that is stored so."""
        return condition.holds(json.loads(data))


SAMPLE_CODEC = TextCodec()


@frozen
class Samples:
    """Keys of at least two kinds, four or more of the first kind, and the n-th value of a key.

    Values of one key differ. Keys stand in path order within their kind.
    """

    keys: tuple[Key[object], ...]
    value: Callable[[Key[object], int], object]

    @property
    def kinds(self) -> tuple[Kind[object], ...]:
        """The kinds of the keys, in the order of the keys."""
        return tuple(dict.fromkeys(key.kind for key in self.keys))

    @property
    def prefixes(self) -> tuple[List[object], ...]:
        """A list of each kind, one of each part of it that the paths of the keys begin with, and some by names.

        Of each name there is a list of those that begin with its first character, and of those that begin with all.
        """
        wholes = (List(kind) for kind in self.kinds)
        parts = (List(key.kind, key.path[:length]) for key in self.keys for length in range(1, len(key.path) + 1))
        named = (
            List(key.kind, key.path[:-1], name_prefix=text) for key in self.keys for text in (key.name[:1], key.name)
        )
        return tuple(dict.fromkeys((*wholes, *parts, *named)))


# "green" begins the name of another shelf, and "-" sorts below the letters but above any separator.
_FRUITS = (("green", "apple"), ("green", "pear"), ("green-house", "apple"), ("yellow", "apple"))
FRUIT_AND_TOOLS = Samples(
    keys=(*(FRUIT.key(*path) for path in _FRUITS), TOOL.key("knife"), TOOL.key("peeler")),
    value=lambda key, number: f"{key} {number}",
)
