"""Who holds the addresses of a block: one entry, and the columns of entries that a block stores.

``block`` and ``encoding.ipam`` call it. A block is read and stored for every pod, and a list has thousands of them,
but most callers look at one entry only. So a block stores columns, and makes an entry when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

__all__ = ["Attribute", "Attributes", "Pairs", "Row", "row"]

Pairs = tuple[tuple[str, str], ...]


@frozen(kw_only=True)
class Attribute:
    """Who holds an address; several ordinals of a block may share one entry.

    ``owner`` and ``alternate`` are sorted pairs such as ``("node", "node-a")``; ``released_ns`` marks an address
    in cooldown, which no handle holds. ``unknown_json`` is what a newer release stored beside them, as JSON text.
    """

    handle: str | None = None
    owner: Pairs = ()
    alternate: Pairs = ()
    released_ns: int | None = None
    unknown_json: str = ""

    def owner_value(self, name: str) -> str:
        """The owner's value of that name; empty when it has none."""
        return next((value for key, value in self.owner if key == name), "")


Row = tuple[str | None, tuple[str, ...], tuple[str, ...], Attribute | None]
"""One entry as columns: handle, names and values of the owner, and the whole entry if these do not say all."""


@frozen
class Attributes:
    """The attribute entries of a block, by index: a sequence of :class:`Attribute`.

    ``handles`` has each entry's handle, ``names`` and ``values`` its owner. Pairs of text take five times as much
    memory as values beside names, because entries with the same names share one tuple. ``whole`` has the entry itself
    if these columns do not say all of it, as for an address in cooldown, and None otherwise.
    """

    handles: tuple[str | None, ...] = ()
    names: tuple[tuple[str, ...], ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    whole: tuple[Attribute | None, ...] = ()

    @classmethod
    def of(cls, attributes: Iterable[Attribute]) -> Attributes:
        """These entries in this order."""
        return cls(*zip(*map(row, attributes), strict=True))

    def __len__(self) -> int:
        return len(self.handles)

    def __iter__(self) -> Iterator[Attribute]:
        return map(self.__getitem__, range(len(self.handles)))

    def __getitem__(self, index: int) -> Attribute:
        whole = self.whole[index]
        if whole is not None:
            return whole
        return Attribute(
            handle=self.handles[index], owner=tuple(zip(self.names[index], self.values[index], strict=True))
        )

    def find(self, attribute: Attribute) -> int | None:
        """The index of the entry that is equal to this one."""
        if attribute.handle not in self.handles:  # the usual answer, without a loop
            return None
        return next((index for index, entry in self._with_handle(attribute.handle) if entry == attribute), None)

    def held_by(self, handle: str) -> tuple[int, ...]:
        """The indexes of a handle's entries."""
        if handle not in self.handles:  # likewise
            return ()
        return tuple(index for index, entry in self._with_handle(handle) if entry.released_ns is None)

    def cooling(self) -> tuple[tuple[int, int], ...]:
        """The indexes of the entries in cooldown, each with its release time."""
        if self.whole.count(None) == len(self.whole):  # likewise
            return ()
        return tuple(
            (index, entry.released_ns)
            for index, entry in enumerate(self.whole)
            if entry is not None and entry.released_ns is not None
        )

    def plus(self, attribute: Attribute) -> Attributes:
        """These entries and one more at the end."""
        handle, names, values, whole = row(attribute)
        if self.names and self.names[-1] == names:
            names = self.names[-1]
        return Attributes((*self.handles, handle), (*self.names, names), (*self.values, values), (*self.whole, whole))

    def only(self, indexes: Sequence[int]) -> Attributes:
        """The entries with these indexes, in this order."""
        return Attributes(
            tuple(map(self.handles.__getitem__, indexes)),
            tuple(map(self.names.__getitem__, indexes)),
            tuple(map(self.values.__getitem__, indexes)),
            tuple(map(self.whole.__getitem__, indexes)),
        )

    def _with_handle(self, handle: str | None) -> Iterator[tuple[int, Attribute]]:
        return ((index, self[index]) for index, other in enumerate(self.handles) if other == handle)


def row(attribute: Attribute) -> Row:
    """An entry as columns."""
    is_plain = not attribute.alternate and attribute.released_ns is None and not attribute.unknown_json
    names, values = zip(*attribute.owner, strict=True) if attribute.owner else ((), ())
    return attribute.handle, names, values, None if is_plain else attribute
