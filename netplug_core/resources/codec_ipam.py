"""IPReservation and IPAMConfiguration as JSON-like mappings; see ``codec``, which is what the others call."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from netplug_core.addressing import Prefix
from netplug_core.decoding.reader import (
    DocumentOrigin,
    JSONDict,
    ObjectReader,
    as_boolean,
    as_nonnegative_integer,
    as_prefix,
    as_string,
    decode_unknown_json,
    omit_empty,
)
from netplug_core.resources.ipamconfiguration import IPAMConfiguration, IPAMConfigurationSpec
from netplug_core.resources.ipreservation import IPReservation, IPReservationSpec
from netplug_core.resources.metadata import Metadata

if TYPE_CHECKING:
    from cattrs import BaseConverter

__all__ = ["read_configuration", "read_reservation", "write_configuration", "write_reservation"]


# --- IPReservation -------------------------------------------------------------------------------------------------


def read_reservation(converter: BaseConverter, fields: ObjectReader) -> IPReservation:
    """The reservation that an object stands for."""
    return IPReservation(
        metadata=converter.structure(fields.optional_object("metadata"), Metadata),
        spec=_read_reservation_spec(fields.optional_object("spec")),
        unknown_json=fields.finish_unknown_json(),
    )


def _read_reservation_spec(fields: ObjectReader) -> IPReservationSpec:
    read = as_prefix if fields.origin is DocumentOrigin.USER else _decode_stored_cidr
    entries = fields.list_of("reservedCIDRs", read)
    return IPReservationSpec(
        reserved=tuple(entry for entry in entries if isinstance(entry, Prefix)),
        unparsed=tuple(entry for entry in entries if isinstance(entry, str)),
        unknown_json=fields.finish_unknown_json(),
    )


def _decode_stored_cidr(value: object) -> Prefix | str:
    """What an entry reserves, host bits cleared; as JSON text where it cannot be read (nobody is there to ask)."""
    try:
        return Prefix.enclosing(as_string(value))
    except ValueError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def write_reservation(converter: BaseConverter, reservation: IPReservation) -> JSONDict:
    """The members that stand for a reservation, but its kind."""
    spec = reservation.spec
    entries: list[object] = [*map(str, spec.reserved), *map(json.loads, spec.unparsed)]
    return decode_unknown_json(reservation.unknown_json) | {
        "metadata": converter.unstructure(reservation.metadata),
        "spec": decode_unknown_json(spec.unknown_json) | {"reservedCIDRs": entries},
    }


# --- IPAMConfiguration ---------------------------------------------------------------------------------------------


def read_configuration(converter: BaseConverter, fields: ObjectReader) -> IPAMConfiguration:
    """The configuration of block assignment that an object stands for."""
    metadata = converter.structure(fields.optional_object("metadata"), Metadata)
    spec = fields.optional_object("spec")
    return IPAMConfiguration(
        metadata=metadata,
        spec=IPAMConfigurationSpec(
            is_affinity_strict=spec.optional("strictAffinity", as_boolean, default=False),
            may_auto_allocate_blocks=spec.optional("autoAllocateBlocks", as_boolean, default=True),
            max_blocks_per_host=spec.optional("maxBlocksPerHost", as_nonnegative_integer, 0),
            cooldown_s=spec.optional("ipCooldownSeconds", as_nonnegative_integer, 0),
            vm_address_persistence=spec.optional("kubeVirtVMAddressPersistence", as_string, ""),
            unknown_json=spec.finish_unknown_json(),
        ),
        unknown_json=fields.finish_unknown_json(),
    )


def write_configuration(converter: BaseConverter, configuration: IPAMConfiguration) -> JSONDict:
    """The members that stand for the configuration, but its kind."""
    spec = configuration.spec
    out: JSONDict = {
        "strictAffinity": spec.is_affinity_strict,
        "autoAllocateBlocks": spec.may_auto_allocate_blocks,
        "maxBlocksPerHost": spec.max_blocks_per_host,
        "ipCooldownSeconds": spec.cooldown_s,
    }
    out |= omit_empty(kubeVirtVMAddressPersistence=spec.vm_address_persistence)
    return decode_unknown_json(configuration.unknown_json) | {
        "metadata": converter.unstructure(configuration.metadata),
        "spec": decode_unknown_json(spec.unknown_json) | out,
    }
