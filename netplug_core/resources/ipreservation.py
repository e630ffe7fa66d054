"""The kind IPReservation: addresses of pools that are assigned only to a request for that address."""

from __future__ import annotations

import json
from typing import Final

from attrs import field, frozen

from netplug_core.addressing import Prefix
from netplug_core.decoding.codecs import PREFIX, TEXT, Codec
from netplug_core.decoding.tables import ListOf, items_of, json_object, member
from netplug_core.records import Key, Kind
from netplug_core.resources.metadata import ENVELOPE, Metadata

__all__ = ["IPRESERVATION", "IPReservation", "IPReservationSpec", "ipreservation_key"]


def read_stored_entry(value: object) -> Prefix | str:
    """An entry of a reservation, host bits cleared. One that cannot be read is kept as JSON text."""
    try:
        return Prefix.enclosing(TEXT.decode(value))
    except ValueError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _write_entry(entry: object) -> object:
    return json.loads(entry) if isinstance(entry, str) else str(entry)


MAX_RESERVED: Final = 1024
_RESERVED: Final[Codec[Prefix | str]] = Codec(PREFIX.decode, _write_entry, read_stored_entry, {"type": "string"})


def _split_reserved(values: dict[str, object], _: object) -> dict[str, object]:
    reserved, unparsed = items_of(values, "reserved", Prefix), items_of(values, "reserved", str)
    return {**values, "reserved": reserved, "unparsed": unparsed}


@json_object(finish=_split_reserved)
@frozen(kw_only=True)
class IPReservationSpec:
    """The reserved prefixes, as they were listed; a bare address is one of a single address.

    ``unparsed`` holds the stored entries that cannot be read, each as canonical JSON text. They reserve nothing, and
    are written back unchanged.
    """

    reserved: tuple[Prefix, ...] = field(
        default=(),
        metadata=member(
            "reservedCIDRs",
            ListOf(_RESERVED),
            "Addresses and ranges.",
            limits={"maxItems": MAX_RESERVED},
            is_always_written=True,
            written="entries",
        ),
    )
    unparsed: tuple[str, ...] = ()
    unknown_json: str = ""

    @property
    def entries(self) -> tuple[Prefix | str, ...]:
        """Every entry of the list: the prefixes, and the texts that cannot be read."""
        return (*self.reserved, *self.unparsed)


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class IPReservation:
    """A reservation as it is stored. It limits automatic assignment; a held address stays held."""

    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: IPReservationSpec = field(
        default=IPReservationSpec(),
        metadata=member("spec", IPReservationSpec, "What is reserved.", is_always_written=True),
    )
    unknown_json: str = ""


IPRESERVATION: Kind[IPReservation] = Kind("IPReservation", ("name",))


def ipreservation_key(name: str) -> Key[IPReservation]:
    """The key of the reservation with that name."""
    return IPRESERVATION.key(name)
