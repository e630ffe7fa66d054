"""Where each record stands in etcd, and the JSON of the one kind that looks different there.

Everything is under ``/netplug``. A kind's keys lie in one span, so that one range lists it, one comparison sees it
change and one watch follows it. A name's characters stand in the key as they are; the ``/`` of a prefix becomes ``-``.
Keys sort by their bytes, in which ``-`` and ``.`` come before ``/``: pages of a kind whose paths have several
segments come in that order (a whole list is sorted by path).

Blocks and claims of old may stand at a key that goes on with an ``@``. They are read, changed and removed there, and
nothing is created beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol, cast

from attrs import frozen

from netplug_backends.etcdv3.calls import Span
from netplug_core.datastore.encoding import STORED_JSON, JsonCodec, KindCodec
from netplug_core.errors import InvariantBroken
from netplug_core.records import Key, Kind, Malformed, NotSupported

__all__ = ["ETCD_JSON", "LAYOUT", "Affinities", "Blocks", "Configuration", "Handles", "Layout", "Objects", "Placement"]

_RESOURCES = "/netplug/resources/v3/projectnetplug.org"
_IPAM = "/netplug/ipam/v2"

_OLD = b"@"

_Path = tuple[str, ...]


class Placement(Protocol):
    """Where the records of one kind stand."""

    def place(self, path: _Path) -> str:
        """The key of a record."""
        ...

    def spans(self, within: _Path) -> tuple[str, str]:
        """Where the keys of the records begin and end whose paths begin so; fewer segments than a path has."""
        ...

    def find_path(self, key: str) -> _Path | None:
        """The path of a record; None when something else stands there.

        Raises:
            ValueError: nothing of ours could have made the key.
        """
        ...


@frozen
class Layout:
    """All kinds, by name, and those of them of which records may stand at keys of old."""

    kinds: Mapping[str, Placement]
    aged: frozenset[str] = frozenset()

    def key(self, key: Key[object]) -> bytes:
        """Where a record stands.

        Raises:
            NotSupported: nothing of this kind is stored.
        """
        return self._find(key.kind).place(key.path).encode()

    def places(self, key: Key[object]) -> Span:
        """Where a record may stand: its place, then its key of old.

        Between them lie keys whose prefix length goes on with a digit: no block is so large that one of them is one.
        """
        place = self.key(key)
        return Span(place, place + _OLD + b"\0") if key.kind.name in self.aged else Span(place)

    def old_key(self, key: Key[object]) -> bytes:
        """Where a record of old stands."""
        return self.key(key) + _OLD

    def is_old(self, kind: Kind[object], raw: bytes) -> bool:
        """Whether a record of the kind stands at a key of old."""
        return raw.endswith(_OLD) and kind.name in self.aged

    def span(self, kind: Kind[object], within: _Path = ()) -> Span:
        """Where the records stand whose paths begin so; errors as for ``key``."""
        placement = self._find(kind)
        if len(within) == len(kind.segments):
            return Span(placement.place(within).encode())
        start, end = placement.spans(within)
        return Span(start.encode(), end.encode())

    def find_key(self, kind: Kind[object], raw: bytes) -> Key[object] | None:
        """The record that stands at a key within a span of the kind; None when it is something else.

        Raises:
            Malformed: nothing of ours could have made it.
        """
        place = raw.removesuffix(_OLD) if self.is_old(kind, raw) else raw
        try:
            path = self._find(kind).find_path(place.decode())
        except ValueError as error:
            raise Malformed(repr(raw)[1:], f"it is no key of a {kind}") from error
        return None if path is None else kind.key(*path)

    def _find(self, kind: Kind[object]) -> Placement:
        placement = self.kinds.get(kind.name)
        if placement is None:
            raise NotSupported("storing", kind, f"etcd keeps {', '.join(sorted(self.kinds))}")
        return placement


@frozen
class Objects:
    """Records whose keys are a root and the segments of the path: the resources."""

    root: str
    length: int = 1

    def place(self, path: _Path) -> str:
        """The key of a record."""
        return "/".join((self.root, *map(_segment, path)))

    def spans(self, within: _Path) -> tuple[str, str]:
        """Where the keys begin and end."""
        return _below(self.place(within))

    def find_path(self, key: str) -> _Path:
        """The path of a record."""
        path = tuple(key.removeprefix(f"{self.root}/").split("/"))
        if len(path) != self.length or "" in path:
            raise ValueError(key)
        return path


@frozen
class Handles:
    """Handles: whatever they are called stands in the key as it is."""

    root: str = f"{_IPAM}/handle"

    def place(self, path: _Path) -> str:
        """The key of a record."""
        return f"{self.root}/{path[0]}"

    def spans(self, within: _Path) -> tuple[str, str]:
        """Where the keys begin and end."""
        del within  # there is nothing between all of them and one
        return _below(self.root)

    def find_path(self, key: str) -> _Path:
        """The path of a record."""
        return (key.removeprefix(f"{self.root}/"),)


@frozen
class Blocks:
    """Blocks, by family and prefix."""

    root: str = f"{_IPAM}/assignment"

    def place(self, path: _Path) -> str:
        """The key of a record."""
        family, cidr = path
        return f"{self.root}/{_segment(family)}/block/{_dashed(cidr)}"

    def spans(self, within: _Path) -> tuple[str, str]:
        """Where the keys begin and end."""
        return _below(f"{self.root}/{_segment(within[0])}/block" if within else self.root)

    def find_path(self, key: str) -> _Path:
        """The path of a record."""
        family, word, cidr = key.removeprefix(f"{self.root}/").split("/")
        return family, _slashed(word, cidr)


@frozen
class Affinities:
    """Claims on blocks: the type of the owner (``host``, ``virtual``), its name, the family and the prefix.

    The types lie beside each other, and nothing else between the first and the last. Under a host's name alone there
    was once a mark, which is no claim.
    """

    root: str = _IPAM
    first: str = "host"
    last: str = "virtual"

    def place(self, path: _Path) -> str:
        """The key of a record."""
        *owner, cidr = path
        return f"{self.spans(tuple(owner))[0]}{_dashed(cidr)}"

    def spans(self, within: _Path) -> tuple[str, str]:
        """Where the keys begin and end."""
        if not within:
            return _below(f"{self.root}/{self.first}")[0], _below(f"{self.root}/{self.last}")[1]
        if not self.first <= within[0] <= self.last:
            raise InvariantBroken(f"a block is claimed by a {self.first} or a {self.last}, not by {within[0]!r}")
        whole = 3  # type, name and family
        block = ("block",) if len(within) == whole else ()
        return _below("/".join((self.root, *map(_segment, within), *block)))

    def find_path(self, key: str) -> _Path | None:
        """The path of a record."""
        parts = key.removeprefix(f"{self.root}/").split("/")
        marked = 2
        if len(parts) == marked:
            return None
        type_, name, family, word, cidr = parts
        return type_, name, family, _slashed(word, cidr)


@frozen
class Configuration:
    """The one object ``default`` that the allocator obeys. Any other name would stand among the resources."""

    place_of_default: str = f"{_IPAM}/config"
    others: Objects = Objects(f"{_RESOURCES}/ipamconfigurations")

    def place(self, path: _Path) -> str:
        """The key of a record."""
        return self.place_of_default if path == ("default",) else self.others.place(path)

    def spans(self, within: _Path) -> tuple[str, str]:
        """Where the keys begin and end."""
        del within  # there is nothing between all of them and one
        return self.place_of_default, f"{self.place_of_default}\0"

    def find_path(self, key: str) -> _Path:
        """The path of a record."""
        del key  # the span holds no other
        return ("default",)


LAYOUT: Final = Layout(
    {
        "BlockAffinity": Affinities(),
        "ClusterInformation": Objects(f"{_RESOURCES}/clusterinformations"),
        "IPAMBlock": Blocks(),
        "IPAMConfiguration": Configuration(),
        "IPAMHandle": Handles(),
        "IPPool": Objects(f"{_RESOURCES}/ippools"),
        "IPReservation": Objects(f"{_RESOURCES}/ipreservations"),
        "Node": Objects(f"{_RESOURCES}/nodes"),
        "Profile": Objects(f"{_RESOURCES}/profiles"),
        "WorkloadEndpoint": Objects(f"{_RESOURCES}/workloadendpoints", length=2),
    },
    aged=frozenset(("BlockAffinity", "IPAMBlock")),
)
"""Where netplug keeps every kind of this release."""


def _below(place: str) -> tuple[str, str]:
    """Where the keys begin and end that go on from a place: all of ``host/node1/``, none of ``host/node10/``."""
    return f"{place}/", f"{place}0"  # "0" is what follows "/"


def _segment(text: str) -> str:
    if not text or "/" in text:
        raise InvariantBroken(f"a part of a key is a word without a slash, not {text!r}")
    return text


def _dashed(cidr: str) -> str:
    address, _, length = cidr.partition("/")
    return f"{_segment(address)}-{_segment(length)}"


def _slashed(word: str, cidr: str) -> str:
    address, _, length = cidr.rpartition("-")
    if word != "block" or not address or not length.isdecimal():
        raise ValueError(cidr)
    return f"{address}/{length}"


# --- the allocator's configuration ---------------------------------------------------------------------------------

# Fields of the object's spec that are called something else in what the allocator reads; the others keep their names.
_SPELLINGS = {"strictAffinity": "strict_affinity", "autoAllocateBlocks": "auto_allocate_blocks"}
_FIELDS = {stored: field for field, stored in _SPELLINGS.items()}
_REST = "object"  # where the object's other members stand, the metadata first


def _flattened(mapping: Mapping[str, object]) -> Mapping[str, object]:
    """The configuration as the allocator reads it, from the object that people see."""
    spec = cast("Mapping[str, object]", mapping["spec"])
    rest = {name: member for name, member in mapping.items() if name not in ("kind", "apiVersion", "spec")}
    return {_SPELLINGS.get(name, name): member for name, member in spec.items()} | {_REST: rest}


def _unflattened(kind: Kind[object], stored: Mapping[str, object]) -> Mapping[str, object]:
    """The object that people see. A flag that is not there is off, which is not what a new object begins with."""
    rest = stored.get(_REST, {"metadata": {"name": "default"}})
    if not isinstance(rest, dict):
        raise ValueError(f"{_REST} is not an object")
    spec = {_FIELDS.get(name, name): member for name, member in stored.items() if name != _REST}
    spec = {"autoAllocateBlocks": False} | spec
    return rest | {"kind": kind.name, "apiVersion": "projectnetplug.org/v3", "spec": spec}


def _configuration() -> KindCodec:
    codec = STORED_JSON.kinds["IPAMConfiguration"]()
    return KindCodec(
        lambda value: _flattened(codec.to_mapping(value)),
        lambda kind, stored: codec.from_mapping(kind, _unflattened(kind, stored)),
    )


@frozen
class _EtcdJson(JsonCodec):
    def decode(self, key: Key[object], data: bytes) -> object:
        """The value that was stored under the key; very old claims were keys without one."""
        return super().decode(key, b"{}" if not data and key.kind.name == "BlockAffinity" else data)


ETCD_JSON: Final = _EtcdJson({**STORED_JSON.kinds, "IPAMConfiguration": _configuration})
"""What every store that keeps bytes writes, but for the allocator's configuration."""
