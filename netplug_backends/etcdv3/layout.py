"""The etcd key of each record, and the JSON of the one kind that is encoded differently in etcd.

All keys begin with ``/netplug``. The keys of a kind are in one range, so one range read lists the kind, one comparison
detects a change and one watch covers it. A name is part of the key unchanged; the ``/`` of a prefix becomes ``-``. etcd
sorts keys by their bytes, where ``-`` and ``.`` come before ``/``: the pages of a kind whose paths have several
segments come in that order (a whole list is sorted by path).

Blocks and affinities that old releases wrote may have a legacy key, which ends in ``@``. They are read, updated and
deleted there, and no other key is created for the same record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from attrs import frozen

from netplug_backends.etcdv3.operations import KeyRange
from netplug_core.decoding.codecs import is_utf8
from netplug_core.decoding.tables import find_object
from netplug_core.encoding.stored_json import STORED_JSON, JsonCodec, KindCodec
from netplug_core.errors import InvariantBroken
from netplug_core.names import API_VERSION, InvalidName
from netplug_core.records import Key, Kind, Malformed, NotSupported

__all__ = [
    "ETCD_JSON",
    "LAYOUT",
    "LEASE_PREFIX",
    "NO_RECORDS",
    "STORE_ID_KEY",
    "AffinityKeys",
    "BlockKeys",
    "HandleKeys",
    "IPAMConfigurationKeys",
    "KindKeys",
    "Layout",
    "ResourceKeys",
]  # fmt: skip

_RESOURCES = "/netplug/resources/v3/projectnetplug.org"
_IPAM = "/netplug/ipam/v2"

_LEGACY_SUFFIX = b"@"
_AFTER_UTF8 = b"\xff"  # no character has this byte

NO_RECORDS: Final = KeyRange(b"/netplug/")
"""A range that no record is in."""

STORE_ID_KEY: Final = b"/netplug/store-id"
LEASE_PREFIX: Final = b"/netplug/leases/"
"""The key of the store's own id. It is in no range of records: an export does not take it along."""

_Path = tuple[str, ...]


class KindKeys(Protocol):
    """The keys of one kind's records."""

    def key_of(self, path: _Path) -> str:
        """The key of a record."""
        ...

    def bounds(self, within: _Path) -> tuple[str, str]:
        """The first key and the end of the range of records whose paths begin so; ``within`` is not a whole path."""
        ...

    def named_from(self, within: _Path, name_prefix: str) -> str:
        """What the keys begin with of records whose names begin so; other keys may begin so too."""
        ...

    def find_path(self, key: str) -> _Path | None:
        """The path of the record with that key; None if the key is known and no record's.

        Raises:
            ValueError: the key is not one of this kind.
        """
        ...


@frozen
class Layout:
    """The keys of all kinds, by the kinds' names; records of ``legacy_kinds`` may have legacy keys."""

    kinds: Mapping[str, KindKeys]
    legacy_kinds: frozenset[str] = frozenset()

    def key(self, key: Key[object]) -> bytes:
        """The key of a record.

        Raises:
            NotSupported: this kind is not stored.
            InvalidName: no key can have a part of the path.
        """
        return _encode_key(self._kind_keys(key.kind).key_of(key.path))

    def read_range(self, key: Key[object]) -> KeyRange:
        """The range with a record's key and its legacy key.

        Other keys in between would have a longer prefix length with the same digits in front; no block has one.
        """
        start = self.key(key)
        end = start + _LEGACY_SUFFIX + b"\0" if key.kind.name in self.legacy_kinds else b""
        return KeyRange(start, end)

    def legacy_key(self, key: Key[object]) -> bytes:
        """The legacy key of a record."""
        return self.key(key) + _LEGACY_SUFFIX

    def is_legacy(self, kind: Kind[object], raw: bytes) -> bool:
        """Whether a key is a legacy key of the kind."""
        return raw.endswith(_LEGACY_SUFFIX) and kind.name in self.legacy_kinds

    def list_range(self, kind: Kind[object], within: _Path = (), name_prefix: str = "") -> KeyRange:
        """The range of the records whose paths, and names after that, begin so; errors as for ``key``."""
        keys = self._kind_keys(kind)
        if name_prefix:
            first = _encode_key(keys.named_from(within, name_prefix))
            return KeyRange(first, first + _AFTER_UTF8)
        if len(within) == len(kind.segments):
            return KeyRange(_encode_key(keys.key_of(within)))
        start, end = keys.bounds(within)
        return KeyRange(_encode_key(start), _encode_key(end))

    def find_key(self, kind: Kind[object], raw: bytes) -> Key[object] | None:
        """The record that has an etcd key in the kind's range; None if the key is no record's.

        Raises:
            Malformed: the key is not one of the kind.
        """
        plain = raw.removesuffix(_LEGACY_SUFFIX) if self.is_legacy(kind, raw) else raw
        try:
            path = self._kind_keys(kind).find_path(plain.decode())
        except ValueError as error:
            raise Malformed(repr(raw)[1:], f"it is no key of a {kind}") from error
        return None if path is None else kind.key(*path)

    def _kind_keys(self, kind: Kind[object]) -> KindKeys:
        keys = self.kinds.get(kind.name)
        if keys is None:
            raise NotSupported("storing", kind, f"etcd keeps {', '.join(sorted(self.kinds))}")
        return keys


@frozen
class ResourceKeys:
    """Resources: the key is a root and the segments of the path."""

    root: str
    path_length: int = 1

    def key_of(self, path: _Path) -> str:
        """The key of a record."""
        return "/".join((self.root, *map(_segment, path)))

    def bounds(self, within: _Path) -> tuple[str, str]:
        """The first key and the end of the range."""
        return _prefix_bounds(self.key_of(within))

    def named_from(self, within: _Path, name_prefix: str) -> str:
        """What the keys begin with of records whose names begin so."""
        return f"{self.key_of(within)}/{name_prefix}"

    def find_path(self, key: str) -> _Path:
        """The path of a record."""
        path = tuple(key.removeprefix(f"{self.root}/").split("/"))
        if len(path) != self.path_length or "" in path:
            raise ValueError(key)
        return path


@frozen
class HandleKeys:
    """Handles: the key ends in the handle's id, unchanged."""

    root: str = f"{_IPAM}/handle"

    def key_of(self, path: _Path) -> str:
        """The key of a record."""
        return f"{self.root}/{path[0]}"

    def bounds(self, within: _Path) -> tuple[str, str]:
        """The first key and the end of the range."""
        del within  # a path has one segment, so this is always empty
        return _prefix_bounds(self.root)

    def named_from(self, within: _Path, name_prefix: str) -> str:
        """What the keys begin with of records whose names begin so."""
        del within
        return f"{self.root}/{name_prefix}"

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
        """The first key and the end of the range."""
        return _prefix_bounds(f"{self.root}/{_segment(within[0])}/block" if within else self.root)

    def named_from(self, within: _Path, name_prefix: str) -> str:
        """What the keys begin with of records whose names begin so."""
        return f"{self.bounds(within)[0]}{name_prefix.replace('/', '-')}"

    def find_path(self, key: str) -> _Path:
        """The path of a record."""
        family, word, cidr = key.removeprefix(f"{self.root}/").split("/")
        return family, _decode_cidr(word, cidr)


@frozen
class AffinityKeys:
    """Affinities, by the owner's type (``host``, ``virtual``), its name, the family and the prefix.

    The types are adjacent: no other key lies between the first and the last. Old releases wrote a key with the owner
    alone, which is no affinity.
    """

    root: str = _IPAM
    first_owner_type: str = "host"
    last_owner_type: str = "virtual"

    def key_of(self, path: _Path) -> str:
        """The key of a record."""
        *owner, cidr = path
        return f"{self.bounds(tuple(owner))[0]}{_encode_cidr(cidr)}"

    def bounds(self, within: _Path) -> tuple[str, str]:
        """The first key and the end of the range."""
        if not within:
            return _prefix_bounds(f"{self.root}/{self.first_owner_type}")[0], _prefix_bounds(
                f"{self.root}/{self.last_owner_type}"
            )[1]
        if not self.first_owner_type <= within[0] <= self.last_owner_type:
            raise InvariantBroken(
                f"a block is claimed by a {self.first_owner_type} or a {self.last_owner_type}, not by {within[0]!r}"
            )
        owner_and_family = 3  # segments: type, name and family
        block = ("block",) if len(within) == owner_and_family else ()
        return _prefix_bounds("/".join((self.root, *map(_segment, within), *block)))

    def named_from(self, within: _Path, name_prefix: str) -> str:
        """What the keys begin with of records whose names begin so."""
        return f"{self.bounds(within)[0]}{name_prefix.replace('/', '-')}"

    def find_path(self, key: str) -> _Path | None:
        """The path of a record."""
        parts = key.removeprefix(f"{self.root}/").split("/")
        owner_alone = 2
        if len(parts) == owner_alone:
            return None
        type_, name, family, word, cidr = parts
        return type_, name, family, _decode_cidr(word, cidr)


@frozen
class IPAMConfigurationKeys:
    """The object ``default`` has a key among the allocator's records; any other name has one among the resources."""

    default_key: str = f"{_IPAM}/config"
    other_keys: ResourceKeys = ResourceKeys(f"{_RESOURCES}/ipamconfigurations")

    def key_of(self, path: _Path) -> str:
        """The key of a record."""
        return self.default_key if path == ("default",) else self.other_keys.key_of(path)

    def bounds(self, within: _Path) -> tuple[str, str]:
        """The first key and the end of the range."""
        del within  # a path has one segment, so this is always empty
        return self.default_key, f"{self.default_key}\0"

    def named_from(self, within: _Path, name_prefix: str) -> str:
        """What the keys begin with of records whose names begin so."""
        del within, name_prefix  # the range has one key
        return self.default_key

    def find_path(self, key: str) -> _Path:
        """The path of a record."""
        del key  # the range has no other key
        return ("default",)


LAYOUT: Final = Layout(
    {
        "BGPConfiguration": ResourceKeys(f"{_RESOURCES}/bgpconfigurations"),
        "BGPFilter": ResourceKeys(f"{_RESOURCES}/bgpfilters"),
        "BGPPeer": ResourceKeys(f"{_RESOURCES}/bgppeers"),
        "BlockAffinity": AffinityKeys(),
        "ClusterInformation": ResourceKeys(f"{_RESOURCES}/clusterinformations"),
        "GlobalNetworkPolicy": ResourceKeys(f"{_RESOURCES}/globalnetworkpolicies"),
        "GlobalNetworkSet": ResourceKeys(f"{_RESOURCES}/globalnetworksets"),
        "HostEndpoint": ResourceKeys(f"{_RESOURCES}/hostendpoints"),
        "IPAMBlock": BlockKeys(),
        "IPAMConfiguration": IPAMConfigurationKeys(),
        "IPAMHandle": HandleKeys(),
        "IPPool": ResourceKeys(f"{_RESOURCES}/ippools"),
        "IPReservation": ResourceKeys(f"{_RESOURCES}/ipreservations"),
        "KubeControllersConfiguration": ResourceKeys(f"{_RESOURCES}/kubecontrollersconfigurations"),
        "NetworkPolicy": ResourceKeys(f"{_RESOURCES}/networkpolicies", path_length=2),
        "NetworkSet": ResourceKeys(f"{_RESOURCES}/networksets", path_length=2),
        "Node": ResourceKeys(f"{_RESOURCES}/nodes"),
        "NodeConfiguration": ResourceKeys(f"{_RESOURCES}/nodeconfigurations"),
        "Profile": ResourceKeys(f"{_RESOURCES}/profiles"),
        "WorkloadEndpoint": ResourceKeys(f"{_RESOURCES}/workloadendpoints", path_length=2),
    },
    legacy_kinds=frozenset(("BlockAffinity", "IPAMBlock")),
)
"""The keys of every kind that this release stores."""


def _prefix_bounds(key: str) -> tuple[str, str]:
    """The range of keys below a key: all of ``host/node1/``, none of ``host/node10/``."""
    return f"{key}/", f"{key}0"  # "0" is what follows "/"


def _segment(text: str) -> str:
    if not text or "/" in text:
        raise InvalidName("a name in an etcd key", text, "a text without '/' is expected, and not an empty one")
    return text


def _encode_key(key: str) -> bytes:
    if not is_utf8(key):
        raise InvalidName("a name in an etcd key", key, "text in UTF-8 is expected")
    return key.encode()


def _encode_cidr(cidr: str) -> str:
    address, _, length = cidr.partition("/")
    return f"{_segment(address)}-{_segment(length)}"


def _decode_cidr(word: str, cidr: str) -> str:
    address, _, length = cidr.rpartition("-")
    if word != "block" or not address or not length.isdecimal():
        raise ValueError(cidr)
    return f"{address}/{length}"


# --- the allocator's configuration ---------------------------------------------------------------------------------

# The members of the spec that have other names in the stored form.
_STORED_NAMES = {"strictAffinity": "strict_affinity", "autoAllocateBlocks": "auto_allocate_blocks"}
_FIELD_NAMES = {stored: field for field, stored in _STORED_NAMES.items()}
_OBJECT_FIELD = "object"  # holds the object's other members, such as the metadata


def _flatten(mapping: Mapping[str, object]) -> Mapping[str, object]:
    """The stored form of a configuration: the spec's members at the top."""
    spec = find_object(mapping, "spec")
    rest = {name: member for name, member in mapping.items() if name not in ("kind", "apiVersion", "spec")}
    return {_STORED_NAMES.get(name, name): member for name, member in spec.items()} | {_OBJECT_FIELD: rest}


def _unflatten(kind: Kind[object], stored: Mapping[str, object]) -> Mapping[str, object]:
    """The object of a stored form. A missing flag is false, although a new object's default may be true."""
    rest = stored.get(_OBJECT_FIELD, {"metadata": {"name": "default"}})
    if not isinstance(rest, dict):
        raise ValueError(f"{_OBJECT_FIELD} is not an object")
    spec = {_FIELD_NAMES.get(name, name): member for name, member in stored.items() if name != _OBJECT_FIELD}
    spec = {"autoAllocateBlocks": False} | spec
    return rest | {"kind": kind.name, "apiVersion": API_VERSION, "spec": spec}


def _configuration() -> KindCodec:
    codec = STORED_JSON.kinds["IPAMConfiguration"]
    return KindCodec(
        lambda value: _flatten(codec.to_mapping(value)),
        lambda kind, stored: codec.from_mapping(kind, _unflatten(kind, stored)),
    )


@frozen
class _EtcdJson(JsonCodec):
    def decode(self, key: Key[object], data: bytes) -> object | None:
        """The value that was stored under the key; very old affinities have an empty value."""
        return super().decode(key, b"{}" if not data and key.kind.name == "BlockAffinity" else data)


ETCD_JSON: Final = _EtcdJson({**STORED_JSON.kinds, "IPAMConfiguration": _configuration()})
"""The JSON that every store of bytes writes, except for IPAMConfiguration."""
