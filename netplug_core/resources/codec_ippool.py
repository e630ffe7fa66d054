"""IPPool as a JSON-like mapping; see ``codec``, which is what the others call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netplug_core.addressing import Address, Prefix
from netplug_core.decoding.reader import (
    DocumentOrigin,
    JSONDict,
    ObjectReader,
    as_boolean,
    as_enum,
    as_nonnegative_integer,
    as_string,
    decode_unknown_json,
    omit_empty,
)
from netplug_core.resources.ippool import (
    AllowedUse,
    AssignmentMode,
    Encapsulation,
    IPPool,
    IPPoolSpec,
    IPPoolStatus,
    PoolCondition,
)
from netplug_core.resources.metadata import Metadata

if TYPE_CHECKING:
    from cattrs import BaseConverter

__all__ = ["read_pool", "write_pool"]


def read_pool(converter: BaseConverter, fields: ObjectReader) -> IPPool:
    """The pool that an object stands for."""
    metadata = converter.structure(fields.optional_object("metadata"), Metadata)
    status = fields.optional_object("status")
    return IPPool(
        metadata=metadata,
        spec=_read_pool_spec(fields.optional_object("spec")),
        # A status is the controllers' to write; a person hands one in only because ``get`` printed it.
        status=_read_pool_status(status) if fields.origin is DocumentOrigin.DATASTORE else IPPoolStatus(),
        unknown_json=fields.finish_unknown_json(),
    )


def _read_pool_spec(fields: ObjectReader) -> IPPoolSpec:
    prefix = _read_cidr(fields)
    if fields.origin is DocumentOrigin.DATASTORE:
        fields.ignore("ipip", "nat-outgoing")  # fields of the first API version; nothing reads them any more
    return IPPoolSpec(
        prefix=prefix,
        block_length=fields.optional("blockSize", as_nonnegative_integer, 0) or prefix.family.default_block_length,
        is_disabled=fields.optional("disabled", as_boolean, default=False),
        allowed_uses=fields.list_of("allowedUses", as_enum(AllowedUse)) or (AllowedUse.WORKLOAD, AllowedUse.TUNNEL),
        node_selector=fields.optional("nodeSelector", as_string, "") or "all()",
        namespace_selector=fields.optional("namespaceSelector", as_string, ""),
        assignment_mode=fields.optional("assignmentMode", as_enum(AssignmentMode), AssignmentMode.AUTOMATIC),
        ipip_mode=fields.optional("ipipMode", as_enum(Encapsulation), Encapsulation.NEVER),
        vxlan_mode=fields.optional("vxlanMode", as_enum(Encapsulation), Encapsulation.NEVER),
        has_outgoing_nat=fields.optional("natOutgoing", as_boolean, default=False),
        is_bgp_export_disabled=fields.optional("disableBGPExport", as_boolean, default=False),
        unknown_json=fields.finish_unknown_json(),
    )


def _read_cidr(fields: ObjectReader) -> Prefix:
    text = fields.optional("cidr", as_string, "")
    if not text:
        raise fields.malformed_field("cidr", "a CIDR", None, "IPPool CIDR must be specified")
    try:
        prefix = Prefix.enclosing(text)
    except ValueError:
        raise fields.malformed_field("cidr", "a CIDR", text, "IPPool CIDR must be a valid subnet") from None
    # What is stored already serves as it was meant; only a person can still be asked what that is.
    if fields.origin is DocumentOrigin.USER and Address.parse(text.partition("/")[0]) != prefix.first:
        reason = f"IPPool CIDR is not strictly masked; {prefix} is the one that holds it"
        raise fields.malformed_field("cidr", "a CIDR", text, reason)
    return prefix


def _read_pool_status(fields: ObjectReader) -> IPPoolStatus:
    return IPPoolStatus(
        conditions=fields.object_list("conditions", _read_condition),
        unknown_json=fields.finish_unknown_json(),
    )


def _read_condition(fields: ObjectReader) -> PoolCondition:
    return PoolCondition(
        type=fields.required("type", as_string),
        status=fields.required("status", as_string),
        reason=fields.optional("reason", as_string, ""),
        message=fields.optional("message", as_string, ""),
        unknown_json=fields.finish_unknown_json(),
    )


def write_pool(converter: BaseConverter, pool: IPPool) -> JSONDict:
    """The members that stand for a pool, but its kind."""
    out: JSONDict = {"metadata": converter.unstructure(pool.metadata), "spec": _write_pool_spec(pool.spec)}
    status = decode_unknown_json(pool.status.unknown_json)
    if pool.status.conditions:
        status["conditions"] = [_write_condition(condition) for condition in pool.status.conditions]
    return decode_unknown_json(pool.unknown_json) | out | omit_empty(status=status)


def _write_pool_spec(spec: IPPoolSpec) -> JSONDict:
    out: JSONDict = {
        "cidr": str(spec.prefix),
        "blockSize": spec.block_length,
        "ipipMode": spec.ipip_mode.value,
        "vxlanMode": spec.vxlan_mode.value,
        "natOutgoing": spec.has_outgoing_nat,
        "nodeSelector": spec.node_selector,
        "allowedUses": [use.value for use in spec.allowed_uses],
        "assignmentMode": spec.assignment_mode.value,
    }
    out |= omit_empty(
        namespaceSelector=spec.namespace_selector,
        disabled=spec.is_disabled,
        disableBGPExport=spec.is_bgp_export_disabled,
    )
    return decode_unknown_json(spec.unknown_json) | out


def _write_condition(condition: PoolCondition) -> JSONDict:
    out: JSONDict = {"type": condition.type, "status": condition.status}
    out |= omit_empty(reason=condition.reason, message=condition.message)
    return decode_unknown_json(condition.unknown_json) | out
