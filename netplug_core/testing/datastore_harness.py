"""What the datastore's conformance suite works with: things to store, an open store, and verdicts that explain.

The samples are plain kinds that every backend can keep; one that can only keep kinds of netplug's own brings
:class:`Samples` of those instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from attrs import frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.records import Key, Kind, List, Malformed, Query, Revision, Snapshot, Write
from netplug_core.testing.clock import ManualClock

__all__ = [
    "FRUIT",
    "FRUIT_AND_TOOLS",
    "SAMPLE_CODEC",
    "TOOL",
    "DatastoreHarness",
    "OpenStore",
    "Samples",
    "TextCodec",
    "expect",
    "expect_same",
    "open_harness",
]

FRUIT: Kind[str] = Kind("Fruit", ("shelf", "name"))
TOOL: Kind[str] = Kind("Tool", ("name",))

OpenStore: TypeAlias = Callable[[Clock], AbstractContextManager[Datastore]]
"""Opens an empty store that waits on the clock it is given, and closes it."""


class TextCodec:
    """Texts as JSON strings: the codec to open a byte store with when it is to keep the samples."""

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


SAMPLE_CODEC = TextCodec()


@frozen
class Samples:
    """Keys of at least two kinds, three or more of the first one, and the n-th value of a key.

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
        """A list of each kind, and of each part of it that the keys' paths begin with."""
        wholes = (List(kind) for kind in self.kinds)
        parts = (List(key.kind, key.path[:length]) for key in self.keys for length in range(1, len(key.path) + 1))
        return tuple(dict.fromkeys((*wholes, *parts)))


# "green" begins the name of another shelf, and "-" sorts below the letters but above any separator.
_FRUITS = (("green", "apple"), ("green", "pear"), ("green-house", "apple"), ("yellow", "apple"))
FRUIT_AND_TOOLS = Samples(
    keys=(*(FRUIT.key(*path) for path in _FRUITS), TOOL.key("knife"), TOOL.key("peeler")),
    value=lambda key, number: f"{key} {number}",
)


@frozen
class DatastoreHarness:
    """An open store, what to put into it, and its calls with the suite's deadline."""

    store: Datastore
    samples: Samples
    clock: Clock

    @property
    def deadline(self) -> Deadline:
        """Enough for any one call."""
        return Deadline.after(self.clock, 5.0)

    def read(self, *queries: Query) -> Snapshot:
        """Read in time."""
        return self.store.read(queries, deadline=self.deadline)

    def commit(self, *writes: Write) -> tuple[Revision, ...]:
        """Commit in time."""
        return self.store.commit(writes, deadline=self.deadline)


@contextmanager
def open_harness(
    open_store: OpenStore, samples: Samples, make_clock: Callable[[], Clock] = ManualClock
) -> Iterator[DatastoreHarness]:
    """A bench over an empty store of the backend."""
    time = make_clock()
    with open_store(time) as store:
        yield DatastoreHarness(store, samples, time)


def expect(condition: bool, problem: str) -> None:  # noqa: FBT001  # the statement itself, as in an assertion
    """Fail with the problem unless the statement holds; unlike ``assert`` also under ``python -O``."""
    if not condition:
        raise AssertionError(problem)


def expect_same(found: object, expected: object, what: str) -> None:
    """Fail, showing both, unless what was found is what the text says."""
    expect(found == expected, f"{what}: found {found!r}, expected {expected!r}")
