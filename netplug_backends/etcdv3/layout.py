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

from netplug_backends.etcdv3.operations import KeyRange
from netplug_core.encoding.stored_json import STORED_JSON, JsonCodec, KindCodec
from netplug_core.errors import InvariantBroken
from netplug_core.names import API_VERSION
from netplug_core.records import Key, Kind, Malformed, NotSupported

__all__ = [
    "ETCD_JSON",
    "LAYOUT",
    "AffinityKeys",
    "BlockKeys",
    "HandleKeys",
    "IPAMConfigurationKeys",
    "KindKeys",
    "Layout",
    "ResourceKeys",
]

_RESOURCES = "/netplug/resources/v3/projectnetplug.org"
_IPAM = "/netplug/ipam/v2"

_LEGACY_SUFFIX = b"@"

_Path = tuple[str, ...]


class KindKeys(Protocol):
    """Where the records of one kind stand."""

    def key_of(self, path: _Path) -> str:
        """The key of a record."""
        ...

    def bounds(self, within: _Path) -> tuple[str, str]:
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

    kinds: Mapping[str, KindKeys]
    legacy_kinds: frozenset[str] = frozenset()

    def key(self, key: Key[object]) -> bytes:
        """Where a record stands.

        Raises:
            NotSupported: nothing of this kind is stored.
        """
        return self._find(key.kind).key_of(key.path).encode()

    def read_range(self, key: Key[object]) -> KeyRange:
        """Where a record may stand: its place, then its key of old.

        Between them lie keys whose prefix length goes on with a digit: no block is so large that one of them is one.
        """
        place = self.key(key)
        return (
            KeyRange(place, place + _LEGACY_SUFFIX + b"\0") if key.kind.name in self.legacy_kinds else KeyRange(place)
        )

    def legacy_key(self, key: Key[object]) -> bytes:
        """Where a record of old stands."""
        return self.key(key) + _LEGACY_SUFFIX

    def is_legacy(self, kind: Kind[object], raw: bytes) -> bool:
        """Whether a record of the kind stands at a key of old."""
        return raw.endswith(_LEGACY_SUFFIX) and kind.name in self.legacy_kinds

    def list_range(self, kind: Kind[object], within: _Path = ()) -> KeyRange:
        """Where the records stand whose paths begin so; errors as for ``key``."""
        placement = self._find(kind)
        if len(within) == len(kind.segments):
            return KeyRange(placement.key_of(within).encode())
        start, end = placement.bounds(within)
        return KeyRange(start.encode(), end.encode())

    def find_key(self, kind: Kind[object], raw: bytes) -> Key[object] | None:
        """The record that stands at a key within a span of the kind; None when it is something else.

        Raises:
            Malformed: nothing of ours could have made it.
        """
        place = raw.removesuffix(_LEGACY_SUFFIX) if self.is_legacy(kind, raw) else raw
        try:
            path = self._find(kind).find_path(place.decode())
        except ValueError as error:
            raise Malformed(repr(raw)[1:], f"it is no key of a {kind}") from error
        return None if path is None else kind.key(*path)

    def _find(self, kind: Kind[object]) -> KindKeys:
        placement = self.kinds.get(kind.name)
        if placement is None:
            raise NotSupported("storing", kind, f"etcd keeps {', '.join(sorted(self.kinds))}")
        return placement


@frozen
class ResourceKeys:
    """Records whose keys are a root and the segments of the path: the resources."""

    root: str
    path_length: int = 1

    def key_of(self, path: _Path) -> str:
        """The key of a record."""
        return "/".join((self.root, *map(_segment, path)))

    def bounds(self, within: _Path) -> tuple[str, str]:
        """Where the keys begin and end."""
        return _prefix_bounds(self.key_of(within))

    def find_path(self, key: str) -> _Path:
        """The path of a record."""
        path = tuple(key.removeprefix(f"{self.root}/").split("/"))
        if len(path) != self.path_length or "" in path:
            raise ValueError(key)
        return path


@frozen
class HandleKeys:
    """Handles: whatever they are called stands in the key as it is."""

    root: str = f"{_IPAM}/handle"

    def key_of(self, path: _Path) -> str:
        """The key of a record."""
        return f"{self.root}/{path[0]}"

    def bounds(self, within: _Path) -> tuple[str, str]:
        """Where the keys begin and end."""
        del within  # there is nothing between all of them and one
        return _prefix_bounds(self.root)

    def find_path(self, key: str) -> _Path:
        """The path of a record."""
        return (key.removeprefix(f"{self.root}/"),)


@frozen
class BlockKeys:
    """Blocks, by family and prefix."""

    root: str = f"{_IPAM}/assignment"

    def key_of(self, path: _Path) -> str:
        """The key of a record."""
        family, cidr = path
        return f"{self.root}/{_segment(family)}/block/{_encode_cidr(cidr)}"

    def bounds(self, within: _Path) -> tuple[str, str]:
        """Where the keys begin and end."""
        return _prefix_bounds(f"{self.root}/{_segment(within[0])}/block" if within else self.root)

    def find_path(self, key: str) -> _Path:
        """The path of a record."""
        family, word, cidr = key.removeprefix(f"{self.root}/").split("/")
        return family, _decode_cidr(word, cidr)


@frozen
class AffinityKeys:
    """Claims on blocks: the type of the owner (``host``, ``virtual``), its name, the family and the prefix.

    The types lie beside each other, and nothing else between the first and the last. Under a host's name alone there
    was once a mark, which is no claim.
    """

    root: str = _IPAM
    first_owner_type: str = "host"
    last_owner_type: str = "virtual"

    def key_of(self, path: _Path) -> str:
        """The key of a record."""
        *owner, cidr = path
        return f"{self.bounds(tuple(owner))[0]}{_encode_cidr(cidr)}"

    def bounds(self, within: _Path) -> tuple[str, str]:
        """Where the keys begin and end."""
        if not within:
            return _prefix_bounds(f"{self.root}/{self.first_owner_type}")[0], _prefix_bounds(
                f"{self.root}/{self.last_owner_type}"
            )[1]
        if not self.first_owner_type <= within[0] <= self.last_owner_type:
            raise InvariantBroken(
                f"a block is claimed by a {self.first_owner_type} or a {self.last_owner_type}, not by {within[0]!r}"
            )
        whole = 3  # type, name and family
        block = ("block",) if len(within) == whole else ()
        return _prefix_bounds("/".join((self.root, *map(_segment, within), *block)))

    def find_path(self, key: str) -> _Path | None:
        """The path of a record."""
        parts = key.removeprefix(f"{self.root}/").split("/")
        marked = 2
        if len(parts) == marked:
            return None
        type_, name, family, word, cidr = parts
        return type_, name, family, _decode_cidr(word, cidr)


@frozen
class IPAMConfigurationKeys:
    """The one object ``default`` that the allocator obeys. Any other name would stand among the resources."""

    default_key: str = f"{_IPAM}/config"
    other_keys: ResourceKeys = ResourceKeys(f"{_RESOURCES}/ipamconfigurations")

    def key_of(self, path: _Path) -> str:
        """The key of a record."""
        return self.default_key if path == ("default",) else self.other_keys.key_of(path)

    def bounds(self, within: _Path) -> tuple[str, str]:
        """Where the keys begin and end."""
        del within  # there is nothing between all of them and one
        return self.default_key, f"{self.default_key}\0"

    def find_path(self, key: str) -> _Path:
        """The path of a record."""
        del key  # the span holds no other
        return ("default",)


LAYOUT: Final = Layout(
    {
        "BlockAffinity": AffinityKeys(),
        "ClusterInformation": ResourceKeys(f"{_RESOURCES}/clusterinformations"),
        "IPAMBlock": BlockKeys(),
        "IPAMConfiguration": IPAMConfigurationKeys(),
        "IPAMHandle": HandleKeys(),
        "IPPool": ResourceKeys(f"{_RESOURCES}/ippools"),
        "IPReservation": ResourceKeys(f"{_RESOURCES}/ipreservations"),
        "Node": ResourceKeys(f"{_RESOURCES}/nodes"),
        "Profile": ResourceKeys(f"{_RESOURCES}/profiles"),
        "WorkloadEndpoint": ResourceKeys(f"{_RESOURCES}/workloadendpoints", path_length=2),
    },
    legacy_kinds=frozenset(("BlockAffinity", "IPAMBlock")),
)
"""Where netplug keeps every kind of this release."""


def _prefix_bounds(key: str) -> tuple[str, str]:
    """Where the keys begin and end that go on from a place: all of ``host/node1/``, none of ``host/node10/``."""
    return f"{key}/", f"{key}0"  # "0" is what follows "/"


def _segment(text: str) -> str:
    if not text or "/" in text:
        raise InvariantBroken(f"a part of a key is a word without a slash, not {text!r}")
    return text


def _encode_cidr(cidr: str) -> str:
    address, _, length = cidr.partition("/")
    return f"{_segment(address)}-{_segment(length)}"


def _decode_cidr(word: str, cidr: str) -> str:
    address, _, length = cidr.rpartition("-")
    if word != "block" or not address or not length.isdecimal():
        raise ValueError(cidr)
    return f"{address}/{length}"


# --- the allocator's configuration ---------------------------------------------------------------------------------

# Fields of the object's spec that are called something else in what the allocator reads; the others keep their names.
_STORED_NAMES = {"strictAffinity": "strict_affinity", "autoAllocateBlocks": "auto_allocate_blocks"}
_FIELD_NAMES = {stored: field for field, stored in _STORED_NAMES.items()}
_OBJECT_FIELD = "object"  # where the object's other members stand, the metadata first


def _flatten(mapping: Mapping[str, object]) -> Mapping[str, object]:
    """The configuration as the allocator reads it, from the object that people see."""
    spec = cast("Mapping[str, object]", mapping["spec"])
    rest = {name: member for name, member in mapping.items() if name not in ("kind", "apiVersion", "spec")}
    return {_STORED_NAMES.get(name, name): member for name, member in spec.items()} | {_OBJECT_FIELD: rest}


def _unflatten(kind: Kind[object], stored: Mapping[str, object]) -> Mapping[str, object]:
    """The object that people see. A flag that is not there is off, which is not what a new object begins with."""
    rest = stored.get(_OBJECT_FIELD, {"metadata": {"name": "default"}})
    if not isinstance(rest, dict):
        raise ValueError(f"{_OBJECT_FIELD} is not an object")
    spec = {_FIELD_NAMES.get(name, name): member for name, member in stored.items() if name != _OBJECT_FIELD}
    spec = {"autoAllocateBlocks": False} | spec
    return rest | {"kind": kind.name, "apiVersion": API_VERSION, "spec": spec}


def _configuration() -> KindCodec:
    codec = STORED_JSON.kinds["IPAMConfiguration"]()
    return KindCodec(
        lambda value: _flatten(codec.to_mapping(value)),
        lambda kind, stored: codec.from_mapping(kind, _unflatten(kind, stored)),
    )


@frozen
class _EtcdJson(JsonCodec):
    def decode(self, key: Key[object], data: bytes) -> object:
        """The value that was stored under the key; very old claims were keys without one."""
        return super().decode(key, b"{}" if not data and key.kind.name == "BlockAffinity" else data)


ETCD_JSON: Final = _EtcdJson({**STORED_JSON.kinds, "IPAMConfiguration": _configuration})
"""What every store that keeps bytes writes, but for the allocator's configuration."""
