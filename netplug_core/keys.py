"""The identity of records: kinds, keys, revisions, and the queries that ask for records by them.

``records`` offers all of them beside snapshots and writes. Only it and the top of ``netplug_core`` import this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NewType, TypeAlias, TypeVar

from attrs import field, frozen

from netplug_core.errors import InvariantBroken

__all__ = ["PAGE_SIZE", "Get", "Key", "Kind", "List", "Query", "Record", "Revision", "ValueCondition"]

V_co = TypeVar("V_co", covariant=True)  # a key of pools is a key of something: what carries keys only reads them

Revision = NewType("Revision", str)
"""A store's name for one state of one key, or of a kind. It is opaque: only equality has a meaning."""


@frozen
class Kind(Generic[V_co]):
    """A kind of record: its name, and the names of the segments of its keys, the widest first.

    ``is_large``: one record may have tens of kilobytes, so that thousands of them are too much for one page.
    """

    name: str
    segments: tuple[str, ...] = field(eq=False)
    is_large: bool = field(default=False, eq=False)

    def __hash__(self) -> int:
        return hash(self.name)

    def key(self, *path: str) -> Key[V_co]:
        """The key with that path; one segment for each of ``segments``."""
        if len(path) != len(self.segments):
            raise InvariantBroken(f"a key of {self.name} has {len(self.segments)} segments, not {path!r}")
        return Key(self, path)

    def __str__(self) -> str:
        return self.name


@frozen(order=True)
class Key(Generic[V_co]):
    """The identity of one record: ``IPPool(main)``, ``Block(10.0.0.0/26)``."""

    kind: Kind[V_co] = field(order=str)
    path: tuple[str, ...]

    @property
    def name(self) -> str:
        """The last segment: the name that users give to the record."""
        return self.path[-1]

    def __eq__(self, other: object) -> bool:  # keys are compared and hashed dozens of times for every address
        return isinstance(other, Key) and self.path == other.path and self.kind.name == other.kind.name

    def __hash__(self) -> int:
        return hash(self.path)  # kinds seldom share paths

    def __str__(self) -> str:
        return f"{self.kind}({'/'.join(self.path)})"


@frozen
class Record(Generic[V_co]):
    """One stored value as a read found it."""

    key: Key[V_co]
    value: V_co
    revision: Revision


@frozen
class Get(Generic[V_co]):
    """Ask for the record with one key, which may not exist."""

    key: Key[V_co]

    @property
    def kind(self) -> Kind[V_co]:
        """The kind of the record."""
        return self.key.kind

    def __hash__(self) -> int:
        return hash(self.key.path)


PAGE_SIZE = 1000  # records of one page of a long list


@frozen
class ValueCondition:
    """A condition on stored values that a store can judge before it decodes them.

    ``holds`` judges a decoded value. A store that keeps another form judges that one, by the condition's name.
    """

    name: str
    holds: Callable[[object], bool] = field(eq=False)


@frozen
class List(Generic[V_co]):
    """Ask for every record of a kind whose path begins with ``within``, in path order.

    ``name_prefix``: only the records whose name, the one segment after ``within``, begins with this text. A page is a
    list with a ``limit`` (0: no limit) and, but for the first page, the opaque ``after`` that the page before ended
    with. The pages of one list show one revision. ``may_be_cached``: the store may show an older state.
    ``keys_only_if``: of values for which this certainly holds the store may answer with the keys alone.
    """

    kind: Kind[V_co]
    within: tuple[str, ...] = ()
    limit: int = 0
    after: str = ""
    may_be_cached: bool = False
    name_prefix: str = ""
    keys_only_if: ValueCondition | None = None

    @property
    def start(self) -> tuple[str, ...]:
        """No path of the list comes before this one."""
        return (*self.within, self.name_prefix) if self.name_prefix else self.within

    def covers(self, key: Key[object]) -> bool:
        """Whether a record with this key belongs to the list."""
        path, depth = key.path, len(self.within)
        if self.kind.name != key.kind.name or path[:depth] != self.within:
            return False
        return not self.name_prefix or (len(path) == depth + 1 and path[depth].startswith(self.name_prefix))

    def __hash__(self) -> int:
        return hash((self.kind.name, self.within, self.after, self.name_prefix))


Query: TypeAlias = Get[object] | List[object]
