"""The kind IPReservation: addresses of pools that are assigned only to a request for that address."""

from __future__ import annotations

from attrs import frozen

from netplug_core.addressing import Prefix
from netplug_core.records import Key, Kind
from netplug_core.resources.metadata import Metadata

__all__ = ["IPRESERVATION", "IPReservation", "IPReservationSpec", "ipreservation_key"]


@frozen(kw_only=True)
class IPReservationSpec:
    """The reserved prefixes, as they were listed; a bare address is one of a single address.

    ``unparsed`` holds the stored entries that cannot be read, each as canonical JSON text. They reserve nothing, and
    are written back unchanged.
    """

    reserved: tuple[Prefix, ...] = ()
    unparsed: tuple[str, ...] = ()
    unknown_json: str = ""

    @property
    def entries(self) -> tuple[Prefix | str, ...]:
        """Every entry of the list: the prefixes, and the texts that cannot be read."""
        return (*self.reserved, *self.unparsed)


@frozen(kw_only=True)
class IPReservation:
    """A reservation as it is stored. It limits automatic assignment; a held address stays held."""

    metadata: Metadata
    spec: IPReservationSpec = IPReservationSpec()
    unknown_json: str = ""


IPRESERVATION: Kind[IPReservation] = Kind("IPReservation", ("name",))


def ipreservation_key(name: str) -> Key[IPReservation]:
    """The key of the reservation with that name."""
    return IPRESERVATION.key(name)
