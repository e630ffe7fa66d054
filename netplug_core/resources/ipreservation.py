"""The kind IPReservation: addresses in pools that nobody is given unless they ask for exactly one (spec 2.5)."""

from __future__ import annotations

from attrs import frozen

from netplug_core.addressing import Prefix
from netplug_core.records import Key, Kind
from netplug_core.resources.metadata import Metadata

__all__ = ["IPRESERVATION", "IPReservation", "IPReservationSpec", "ipreservation_key"]


@frozen(kw_only=True)
class IPReservationSpec:
    """The reserved prefixes, as they were listed; a bare address is one of a single address.

    ``unread`` holds, each as canonical JSON text, what a store listed and nobody can read: it reserves nothing, and
    is written back unchanged.
    """

    reserved: tuple[Prefix, ...] = ()
    unparsed: tuple[str, ...] = ()
    unknown_json: str = ""


@frozen(kw_only=True)
class IPReservation:
    """A reservation as it is stored. It binds automatic assignment; who holds an address keeps it."""

    metadata: Metadata
    spec: IPReservationSpec = IPReservationSpec()
    unknown_json: str = ""


IPRESERVATION: Kind[IPReservation] = Kind("IPReservation", ("name",))


def ipreservation_key(name: str) -> Key[IPReservation]:
    """The key of the reservation with that name."""
    return IPRESERVATION.key(name)
