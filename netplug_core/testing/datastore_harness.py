"""What the datastore suite works with: how a backend opens its stores, what is stored, and calls with its deadline.

Every backend can keep the kinds of ``FRUIT_AND_TOOLS``. A backend that only keeps netplug's own kinds brings its own
:class:`Samples`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from typing import TypeAlias

from attrs import frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Atomicity, Datastore
from netplug_core.errors import InvalidArgument, require_type
from netplug_core.records import (
    Create,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    Query,
    Record,
    Revision,
    Snapshot,
    ValueCondition,
    WatchEvent,
    Write,
)
from netplug_core.testing.clock import ManualClock

__all__ = [
    "FRUIT", "FRUIT_AND_TOOLS", "SAMPLE_CODEC", "TOOL", "DatastoreHarness", "Medium", "OpenMedium", "OpenStore",
    "Samples", "TextCodec", "open_harness",
]  # fmt: skip


# --- medium ----------------------------------------------------------------------------------------------------------


OpenStore: TypeAlias = Callable[[Clock], AbstractContextManager[Datastore]]
"""Opens an empty store that waits on the clock it is given, and closes it."""


@frozen
class Medium:
    """An empty place where a backend keeps records: a file, a database, a server.

    ``open_handle`` opens a store on it. The suite opens two, as two processes would, and calls each from several
    threads. A store that lives in one process returns the same object twice.

    ``hold`` returns a context manager. While its block runs, another holder has locked the medium, so that no commit
    can be made. None if nothing can lock it. ``forget`` drops the history of all changes made so far, as a compaction
    does. None if the store keeps its history for ever.
    """

    open_handle: Callable[[], AbstractContextManager[Datastore]]
    hold: Callable[[], AbstractContextManager[object]] | None = None
    forget: Callable[[], object] | None = None


OpenMedium: TypeAlias = Callable[[Clock], AbstractContextManager[Medium]]
"""Makes an empty medium, whose stores wait on the clock, and removes it."""


# --- samples ---------------------------------------------------------------------------------------------------------


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


# --- datastore harness -----------------------------------------------------------------------------------------------


CALL_S = 30.0  # more than a store needs that shares its machine with other tests


@frozen
class DatastoreHarness:
    """Two handles on one empty medium, and what to put there."""

    medium: Medium
    store: Datastore
    other: Datastore
    samples: Samples
    clock: Clock

    @property
    def deadline(self) -> Deadline:
        """Time enough for any one call."""
        return self.deadline_in(CALL_S)

    def deadline_in(self, seconds: float) -> Deadline:
        """The deadline that many seconds from now."""
        return Deadline.after(self.clock, seconds)

    @property
    def is_atomic(self) -> bool:
        """Whether the store applies a commit whole or not at all."""
        return self.store.description.atomicity is Atomicity.ATOMIC

    def read(self, *queries: Query) -> Snapshot:
        """Read from the first handle."""
        return self.store.read(queries, deadline=self.deadline)

    def find(self, key: Key[object]) -> Record[object] | None:
        """What the first handle finds at the key."""
        return self.read(Get(key)).find(key)

    def commit(self, *writes: Write) -> tuple[Revision, ...]:
        """Commit by the first handle."""
        return self.store.commit(writes, deadline=self.deadline)

    def create(self, key: Key[object], number: int = 0) -> Revision:
        """Create the n-th value of a key by the first handle."""
        return self.commit(Create(key, self.samples.value(key, number)))[0]

    def watch(self, start: dict[Kind[object], Revision], count: int) -> list[WatchEvent[object]]:
        """So many events of a watch by the first handle; fewer if the watch ends before."""
        return list(islice(self.store.watch(start, deadline=self.deadline), count))


@contextmanager
def open_harness(
    open_medium: OpenMedium, samples: Samples, make_clock: Callable[[], Clock] = ManualClock
) -> Iterator[DatastoreHarness]:
    """A harness over an empty medium of the backend.

    Raises:
        InvalidArgument: the backend's functions do not open a ``Medium`` or a datastore.
    """
    clock = make_clock()
    with ExitStack() as stack:
        medium = stack.enter_context(open_medium(clock))
        require_type("open_medium", medium, Medium, "its context has to yield a Medium")
        store, other = (stack.enter_context(medium.open_handle()) for _ in range(2))
        for handle in (store, other):
            if not all(hasattr(handle, name) for name in ("description", "read", "commit", "watch")):
                raise InvalidArgument("open_handle", handle, "its context has to yield a Datastore")
        yield DatastoreHarness(medium, store, other, samples, clock)
