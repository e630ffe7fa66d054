"""Values as bytes: compact JSON of every stored kind, for stores that keep bytes.

sqlite and etcd share it. It finds the codec of a kind, and names the key of a stored record that cannot be decoded.
``resources.codec`` and ``encoding.ipam`` define what the JSON looks like.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, Protocol

from attrs import evolve, frozen

from netplug_core.decoding.tables import DocumentOrigin
from netplug_core.encoding import ipam
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE, Block
from netplug_core.records import Key, Kind, Malformed, NotSupported, ValueCondition
from netplug_core.resources.codec import from_mapping, readable_part, to_mapping
from netplug_core.resources.kinds import KINDS, resource_of

__all__ = ["STORED_JSON", "JsonCodec", "KindCodec", "ValueCodec"]


_DECODE: Final = json.JSONDecoder().raw_decode
_TO_TEXT: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class ValueCodec(Protocol):
    """How a store turns values into bytes and back."""

    def encode(self, key: Key[object], value: object) -> bytes:
        """The bytes to store under the key.

        Raises:
            NotSupported: nothing of this kind can be stored.
        """
        ...

    def decode(self, key: Key[object], data: bytes) -> object | None:
        """The value that was stored under the key; None if the record is marked as deleted.

        Raises:
            Malformed: the bytes mean no value of this kind.
            NotSupported: nothing of this kind can be stored.
        """
        ...

    def holds(self, condition: ValueCondition, data: bytes) -> bool:
        """Whether a condition certainly holds for the value that is stored so; the bytes are not decoded."""
        ...


@frozen(eq=False)
class KindCodec:
    """The JSON of some kinds: a value to an object of plain JSON values, and back.

    ``from_mapping`` refuses with ``ValueError`` or an error of ours that names the field. ``is_deleted`` says whether
    an object is marked as deleted; it is not decoded then. ``is_repeated``: many records have the same bytes, as the
    handles of pods with an address of one block.
    """

    to_mapping: Callable[[object], Mapping[str, object]]
    from_mapping: Callable[[Kind[object], Mapping[str, object]], object]
    is_deleted: Callable[[Mapping[str, object]], bool] = lambda _mapping: False
    is_repeated: bool = False


@frozen
class JsonCodec:
    """Compact JSON objects in UTF-8, by a table of kind names."""

    kinds: Mapping[str, KindCodec]

    def encode(self, key: Key[object], value: object) -> bytes:
        """The bytes to store under the key; see :class:`ValueCodec`."""
        mapping = self._find(key.kind).to_mapping(value)
        try:
            return _TO_TEXT(mapping).encode()
        except UnicodeEncodeError:
            # An unknown member that another program stored has a surrogate, which only an escape can spell.
            return json.dumps(mapping, separators=(",", ":")).encode()

    def decode(self, key: Key[object], data: bytes) -> object | None:
        """The value that was stored under the key; see :class:`ValueCodec`."""
        codec = self._find(key.kind)
        try:
            if codec.is_repeated:
                return _decode_repeated(codec, key.kind, data)
            mapping = _require_object(_parse(data))
            if codec.is_deleted(mapping):
                return None
            return _checked(key, mapping, codec.from_mapping(key.kind, mapping))
        # ValueError covers what json and UTF-8 refuse too; nesting past the interpreter's depth is no record of ours.
        except (ValueError, ConfigurationError, RecursionError) as error:
            part = readable_part(key, data.decode(errors="replace"))
            raise Malformed(str(key), str(error), subject=key, counts_as=part) from error

    def holds(self, condition: ValueCondition, data: bytes) -> bool:
        """Whether a condition certainly holds; see :class:`ValueCodec`."""
        return ipam.holds_stored(condition, data)

    def _find(self, kind: Kind[object]) -> KindCodec:
        codec = self.kinds.get(kind.name)
        if codec is None:
            raise NotSupported("storing", kind, f"this release stores {', '.join(sorted(self.kinds))}")
        return codec


@lru_cache(maxsize=16_384)
def _decode_repeated(codec: KindCodec, kind: Kind[object], data: bytes) -> object | None:
    mapping = _require_object(_parse(data))
    return None if codec.is_deleted(mapping) else codec.from_mapping(kind, mapping)


def _parse(data: bytes) -> object:
    # json.loads looks for other encodings and for blanks too, which takes as long as a handle.
    if data.startswith(b'{"'):  # no other encoding begins so
        text = data.decode(errors="surrogatepass")
        found: tuple[object, int] = _DECODE(text)
        if found[1] == len(text):
            return found[0]
    return json.loads(data)


def _require_object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object but {type(value).__name__}")
    return value


def _checked(key: Key[object], mapping: Mapping[str, object], value: object) -> object:
    """The value; a block that names another prefix than its key would give the addresses of that one."""
    if isinstance(value, Block) and mapping["cidr"] != key.name and value.key != key:
        raise ValueError(f"cidr: {mapping['cidr']!r} is not the prefix that the block is stored under")
    return value


def _resource_from_mapping(kind: Kind[object], mapping: Mapping[str, object]) -> object:
    return from_mapping(mapping, origin=DocumentOrigin.DATASTORE, kind=kind)


_IPAM_CODEC: Final = KindCodec(ipam.to_mapping, ipam.from_mapping, ipam.is_marked_deleted)
_REPEATED_IPAM_CODEC: Final = evolve(_IPAM_CODEC, is_repeated=True)
_RESOURCE_CODEC: Final = KindCodec(lambda value: to_mapping(resource_of(value)), _resource_from_mapping)

STORED_JSON: Final = JsonCodec(
    {BLOCK.name: _IPAM_CODEC, AFFINITY.name: _REPEATED_IPAM_CODEC, HANDLE.name: _REPEATED_IPAM_CODEC}
    | {row.name: _RESOURCE_CODEC for row in KINDS}
)
"""The codec of every kind of this release, for stores that keep bytes."""
