"""Values as bytes: compact JSON of every stored kind, for stores that keep bytes.

sqlite and etcd share it. It only finds the codec of a kind and names the key when a stored record makes no sense;
what the JSON looks like is the business of ``resources.codec`` and ``ipam.codec``. They are imported when the first
value of theirs passes, so that a call which touches no pool does not load the pools' codec.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, cast

from attrs import frozen

from netplug_core.errors import ConfigurationError
from netplug_core.records import Key, Kind, Malformed, NotSupported

if TYPE_CHECKING:
    from netplug_core.resources.kinds import Resource

__all__ = ["STORED_JSON", "JsonCodec", "KindCodec", "ValueCodec"]


class ValueCodec(Protocol):
    """How a store turns values into bytes and back."""

    def encode(self, key: Key[object], value: object) -> bytes:
        """The bytes to store under the key.

        Raises:
            NotSupported: nothing of this kind can be stored.
        """
        ...

    def decode(self, key: Key[object], data: bytes) -> object:
        """The value that was stored under the key.

        Raises:
            Malformed: the bytes mean no value of this kind.
            NotSupported: nothing of this kind can be stored.
        """
        ...


@frozen
class KindCodec:
    """The JSON of some kinds: a value to an object of plain JSON values, and back.

    ``from_mapping`` refuses with ``ValueError`` or an error of ours that names the field.
    """

    to_mapping: Callable[[object], Mapping[str, object]]
    from_mapping: Callable[[Kind[object], Mapping[str, object]], object]


@frozen
class JsonCodec:
    """Compact JSON objects in UTF-8, by a table of kind names; each entry is asked for when it is first needed."""

    kinds: Mapping[str, Callable[[], KindCodec]]

    def encode(self, key: Key[object], value: object) -> bytes:
        """The bytes to store under the key; see :class:`ValueCodec`."""
        mapping = self._find(key.kind).to_mapping(value)
        return json.dumps(mapping, separators=(",", ":"), ensure_ascii=False).encode()

    def decode(self, key: Key[object], data: bytes) -> object:
        """The value that was stored under the key; see :class:`ValueCodec`."""
        codec = self._find(key.kind)
        try:
            mapping = json.loads(data)
            if not isinstance(mapping, dict):
                raise Malformed(str(key), f"not a JSON object but {type(mapping).__name__}")
            return codec.from_mapping(key.kind, mapping)
        # ValueError covers what json and UTF-8 refuse too; nesting past the interpreter's depth is no record of ours.
        except (ValueError, ConfigurationError, RecursionError) as error:
            raise Malformed(str(key), str(error)) from error

    def _find(self, kind: Kind[object]) -> KindCodec:
        source = self.kinds.get(kind.name)
        if source is None:
            raise NotSupported("storing", kind, f"this release stores {', '.join(sorted(self.kinds))}")
        return source()


def _ipam_codec() -> KindCodec:
    from netplug_core.encoding.ipam import from_mapping, to_mapping

    return KindCodec(to_mapping, from_mapping)


def _resource_codec() -> KindCodec:
    from netplug_core.resources.codec import DocumentOrigin, from_mapping, to_mapping

    return KindCodec(
        lambda value: to_mapping(cast("Resource", value)),
        lambda kind, mapping: from_mapping(mapping, origin=DocumentOrigin.DATASTORE, kind=kind),
    )


STORED_JSON: Final = JsonCodec(
    {
        "BlockAffinity": _ipam_codec,
        "ClusterInformation": _resource_codec,
        "IPAMBlock": _ipam_codec,
        "IPAMConfiguration": _resource_codec,
        "IPAMHandle": _ipam_codec,
        "IPPool": _resource_codec,
        "IPReservation": _resource_codec,
        "Node": _resource_codec,
        "Profile": _resource_codec,
        "WorkloadEndpoint": _resource_codec,
    }
)
"""What stores that keep bytes use unless they are told otherwise: every kind of this release."""
