"""IPReservation and IPAMConfiguration as JSON-like mappings; see ``codec``, which is what the others call."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from netplug_core.addressing import Prefix
from netplug_core.resources.fields import (
    Fields,
    Json,
    Origin,
    as_flag,
    as_number,
    as_prefix,
    as_text,
    carried_members,
    present,
)
from netplug_core.resources.ipamconfiguration import IPAMConfiguration, IPAMConfigurationSpec
from netplug_core.resources.ipreservation import IPReservation, IPReservationSpec
from netplug_core.resources.metadata import Metadata

if TYPE_CHECKING:
    from cattrs import BaseConverter

__all__ = ["read_configuration", "read_reservation", "write_configuration", "write_reservation"]


# --- IPReservation -------------------------------------------------------------------------------------------------


def read_reservation(converter: BaseConverter, fields: Fields) -> IPReservation:
    """The reservation that an object stands for."""
    return IPReservation(
        metadata=converter.structure(fields.take_object("metadata"), Metadata),
        spec=_read_reservation_spec(fields.take_object("spec")),
        carried=fields.finish(),
    )


def _read_reservation_spec(fields: Fields) -> IPReservationSpec:
    read = as_prefix if fields.origin is Origin.PERSON else _stored_entry
    entries = fields.take_each("reservedCIDRs", read)
    return IPReservationSpec(
        reserved=tuple(entry for entry in entries if isinstance(entry, Prefix)),
        unread=tuple(entry for entry in entries if isinstance(entry, str)),
        carried=fields.finish(),
    )


def _stored_entry(value: object) -> Prefix | str:
    """What an entry reserves, host bits cleared; as JSON text where it cannot be read (nobody is there to ask)."""
    try:
        return Prefix.enclosing(as_text(value))
    except ValueError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def write_reservation(converter: BaseConverter, reservation: IPReservation) -> Json:
    """The members that stand for a reservation, but its kind."""
    spec = reservation.spec
    entries: list[object] = [*map(str, spec.reserved), *map(json.loads, spec.unread)]
    return carried_members(reservation.carried) | {
        "metadata": converter.unstructure(reservation.metadata),
        "spec": carried_members(spec.carried) | {"reservedCIDRs": entries},
    }


# --- IPAMConfiguration ---------------------------------------------------------------------------------------------


def read_configuration(converter: BaseConverter, fields: Fields) -> IPAMConfiguration:
    """The configuration of block assignment that an object stands for."""
    metadata = converter.structure(fields.take_object("metadata"), Metadata)
    spec = fields.take_object("spec")
    return IPAMConfiguration(
        metadata=metadata,
        spec=IPAMConfigurationSpec(
            is_affinity_strict=spec.take("strictAffinity", as_flag, default=False),
            claims_blocks=spec.take("autoAllocateBlocks", as_flag, default=True),
            max_blocks=spec.take("maxBlocksPerHost", as_number, 0),
            cooldown_s=spec.take("ipCooldownSeconds", as_number, 0),
            vm_persistence=spec.take("kubeVirtVMAddressPersistence", as_text, ""),
            carried=spec.finish(),
        ),
        carried=fields.finish(),
    )


def write_configuration(converter: BaseConverter, configuration: IPAMConfiguration) -> Json:
    """The members that stand for the configuration, but its kind."""
    spec = configuration.spec
    out: Json = {
        "strictAffinity": spec.is_affinity_strict,
        "autoAllocateBlocks": spec.claims_blocks,
        "maxBlocksPerHost": spec.max_blocks,
        "ipCooldownSeconds": spec.cooldown_s,
    }
    out |= present(kubeVirtVMAddressPersistence=spec.vm_persistence)
    return carried_members(configuration.carried) | {
        "metadata": converter.unstructure(configuration.metadata),
        "spec": carried_members(spec.carried) | out,
    }
