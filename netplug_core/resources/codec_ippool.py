"""IPPool as a JSON-like mapping; see ``codec``, which is what the others call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netplug_core.addressing import Address, Prefix
from netplug_core.resources.fields import (
    Fields,
    Json,
    Origin,
    as_choice,
    as_flag,
    as_number,
    as_text,
    carried_members,
    present,
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


def read_pool(converter: BaseConverter, fields: Fields) -> IPPool:
    """The pool that an object stands for."""
    metadata = converter.structure(fields.take_object("metadata"), Metadata)
    status = fields.take_object("status")
    return IPPool(
        metadata=metadata,
        spec=_read_pool_spec(fields.take_object("spec")),
        # A status is the controllers' to write; a person hands one in only because ``get`` printed it.
        status=_read_pool_status(status) if fields.origin is Origin.STORE else IPPoolStatus(),
        carried=fields.finish(),
    )


def _read_pool_spec(fields: Fields) -> IPPoolSpec:
    prefix = _read_cidr(fields)
    if fields.origin is Origin.STORE:
        fields.drop("ipip", "nat-outgoing")  # fields of the first API version; nothing reads them any more
    return IPPoolSpec(
        prefix=prefix,
        block_length=fields.take("blockSize", as_number, 0) or prefix.family.default_block_length,
        is_disabled=fields.take("disabled", as_flag, default=False),
        allowed_uses=fields.take_each("allowedUses", as_choice(AllowedUse)) or (AllowedUse.WORKLOAD, AllowedUse.TUNNEL),
        node_selector=fields.take("nodeSelector", as_text, "") or "all()",
        namespace_selector=fields.take("namespaceSelector", as_text, ""),
        assignment_mode=fields.take("assignmentMode", as_choice(AssignmentMode), AssignmentMode.AUTOMATIC),
        ipip_mode=fields.take("ipipMode", as_choice(Encapsulation), Encapsulation.NEVER),
        vxlan_mode=fields.take("vxlanMode", as_choice(Encapsulation), Encapsulation.NEVER),
        has_outgoing_nat=fields.take("natOutgoing", as_flag, default=False),
        is_bgp_export_disabled=fields.take("disableBGPExport", as_flag, default=False),
        carried=fields.finish(),
    )


def _read_cidr(fields: Fields) -> Prefix:
    text = fields.take("cidr", as_text, "")
    if not text:
        raise fields.refusal("cidr", "a CIDR", None, "IPPool CIDR must be specified")
    try:
        prefix = Prefix.enclosing(text)
    except ValueError:
        raise fields.refusal("cidr", "a CIDR", text, "IPPool CIDR must be a valid subnet") from None
    # What is stored already serves as it was meant; only a person can still be asked what that is.
    if fields.origin is Origin.PERSON and Address.parse(text.partition("/")[0]) != prefix.first:
        reason = f"IPPool CIDR is not strictly masked; {prefix} is the one that holds it"
        raise fields.refusal("cidr", "a CIDR", text, reason)
    return prefix


def _read_pool_status(fields: Fields) -> IPPoolStatus:
    return IPPoolStatus(
        conditions=fields.take_objects("conditions", _read_condition),
        carried=fields.finish(),
    )


def _read_condition(fields: Fields) -> PoolCondition:
    return PoolCondition(
        type=fields.need("type", as_text),
        status=fields.need("status", as_text),
        reason=fields.take("reason", as_text, ""),
        message=fields.take("message", as_text, ""),
        carried=fields.finish(),
    )


def write_pool(converter: BaseConverter, pool: IPPool) -> Json:
    """The members that stand for a pool, but its kind."""
    out: Json = {"metadata": converter.unstructure(pool.metadata), "spec": _write_pool_spec(pool.spec)}
    status = carried_members(pool.status.carried)
    if pool.status.conditions:
        status["conditions"] = [_write_condition(condition) for condition in pool.status.conditions]
    return carried_members(pool.carried) | out | present(status=status)


def _write_pool_spec(spec: IPPoolSpec) -> Json:
    out: Json = {
        "cidr": str(spec.prefix),
        "blockSize": spec.block_length,
        "ipipMode": spec.ipip_mode.value,
        "vxlanMode": spec.vxlan_mode.value,
        "natOutgoing": spec.has_outgoing_nat,
        "nodeSelector": spec.node_selector,
        "allowedUses": [use.value for use in spec.allowed_uses],
        "assignmentMode": spec.assignment_mode.value,
    }
    out |= present(
        namespaceSelector=spec.namespace_selector,
        disabled=spec.is_disabled,
        disableBGPExport=spec.is_bgp_export_disabled,
    )
    return carried_members(spec.carried) | out


def _write_condition(condition: PoolCondition) -> Json:
    out: Json = {"type": condition.type, "status": condition.status}
    out |= present(reason=condition.reason, message=condition.message)
    return carried_members(condition.carried) | out
