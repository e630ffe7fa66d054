"""The kinds NetworkSet and GlobalNetworkSet: addresses outside the cluster that rules select by labels.

A set is selected as an endpoint is: a NetworkSet is in its namespace, a GlobalNetworkSet in none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, TypeAlias

from attrs import field, frozen

from netplug_core.addressing import Prefix
from netplug_core.decoding.codecs import PREFIX, TEXT, Codec
from netplug_core.decoding.tables import ListOf, find_unknown, items_of, json_object, member
from netplug_core.records import Kind
from netplug_core.resources.fields import FieldError
from netplug_core.resources.metadata import ENVELOPE, Metadata

__all__ = [
    "GLOBAL_NETWORK_SET", "MAX_NETS", "NETWORK_SET", "GlobalNetworkSet", "NetworkSet", "NetworkSetSpec",
    "SetOfNetworks", "validate_network_set",
]  # fmt: skip

MAX_NETS: Final = 10_000


def _read_stored_entry(value: object) -> Prefix | str:
    """An entry of a set, host bits cleared. One that cannot be read is kept as JSON text."""
    try:
        return Prefix.enclosing(TEXT.decode(value))
    except ValueError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _write_entry(entry: object) -> object:
    return json.loads(entry) if isinstance(entry, str) else str(entry)


_NET: Final[Codec[Prefix | str]] = Codec(PREFIX.decode, _write_entry, _read_stored_entry, {"type": "string"})


def _split_entries(values: dict[str, object], _: object) -> dict[str, object]:
    nets, unparsed = items_of(values, "nets", Prefix), items_of(values, "nets", str)
    return {**values, "nets": nets, "unparsed": unparsed}


@json_object(finish=_split_entries)
@frozen(kw_only=True)
class NetworkSetSpec:
    """The addresses of a set, of both families.

    ``unparsed`` holds the stored entries that cannot be read, each as canonical JSON text. They are no members, and are
    written back unchanged.
    """

    # fmt: off
    nets: tuple[Prefix, ...] = field(default=(), metadata=member("nets", ListOf(_NET),
        "prefixes and addresses, of both families", limits={"maxItems": MAX_NETS}, written="entries"))
    # fmt: on
    unparsed: tuple[str, ...] = ()
    unknown_json: str = ""

    @property
    def entries(self) -> tuple[Prefix | str, ...]:
        """Every entry of the list: the prefixes, and the texts that cannot be read."""
        return (*self.nets, *self.unparsed)

    @property
    def not_supported(self) -> tuple[str, ...]:
        """The paths in the spec of what this release does not know of a stored set, or cannot read."""
        return (*sorted(find_unknown(self)), *(("nets",) if self.unparsed else ()))


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class NetworkSet:
    """A set of a namespace, as it is stored."""

    # fmt: off
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: NetworkSetSpec = field(default=NetworkSetSpec(), metadata=member("spec", NetworkSetSpec,
        is_always_written=True))
    # fmt: on
    unknown_json: str = ""


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class GlobalNetworkSet:
    """A set of no namespace, as it is stored."""

    # fmt: off
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: NetworkSetSpec = field(default=NetworkSetSpec(), metadata=member("spec", NetworkSetSpec,
        is_always_written=True))
    # fmt: on
    unknown_json: str = ""


SetOfNetworks: TypeAlias = NetworkSet | GlobalNetworkSet

NETWORK_SET: Kind[NetworkSet] = Kind("NetworkSet", ("namespace", "name"))
GLOBAL_NETWORK_SET: Kind[GlobalNetworkSet] = Kind("GlobalNetworkSet", ("name",))


def validate_network_set(found: SetOfNetworks) -> Iterator[FieldError]:
    """What is wrong with a set by itself."""
    if len(found.spec.nets) > MAX_NETS:
        yield FieldError("spec.nets", len(found.spec.nets), f"must be at most {MAX_NETS} prefixes")
