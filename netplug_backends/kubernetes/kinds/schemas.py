"""The OpenAPI schemas of the custom resources, with validation rules in the API's expression language (CEL).

``manifests`` puts them into the definitions. The rules are those of the core, as far as CEL can express them: it has no
selectors and sees one object, so it checks neither a selector's grammar nor overlapping pools. The allocator's records
may have unknown members, so that those of a newer release are not lost. Users' resources have exactly the members of
this release.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Family
from netplug_core.decoding.schema import Schema, collect_fields, table_schema
from netplug_core.ipam.model.affinity import AffinityState
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, Encapsulation
from netplug_core.resources.kubecontrollers_tables import FIELD_TEXTS, KUBE_CONTROLLERS_TABLES
from netplug_core.resources.kubecontrollersconfiguration import KubeControllersSpec

__all__ = ["SCHEMAS", "Schema"]

_OWNER = r"^(host|virtual):[a-zA-Z0-9\.\-_]+$"
_MAX_CIDR_LENGTH = 43
_MAX_SELECTOR_LENGTH = 1024
_MAX_ORDINALS = 4096
_MAX_RESERVATIONS = 1024
_MAX_TEMPLATES = 32


def _text(description: str = "", **more: object) -> Schema:
    return {"type": "string", **({"description": description} if description else {}), **more}


def _flag(description: str) -> Schema:
    return {"type": "boolean", "description": description}


def _number(description: str = "", **more: object) -> Schema:
    return {"type": "integer", "format": "int64", **({"description": description} if description else {}), **more}


def _choice(description: str, choices: type[enum.Enum]) -> Schema:
    return _text(description, enum=[choice.value for choice in choices])


def _list(description: str, items: Schema, max_items: int) -> Schema:
    return {"type": "array", "description": description, "items": items, "maxItems": max_items}


def _map(values: Schema, description: str = "") -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": values}
    if description:
        schema["description"] = description
    return schema


def _object(
    description: str,
    members: Mapping[str, Schema],
    *,
    required: Sequence[str] = (),
    rules: Sequence[tuple[str, str]] = (),
) -> Schema:
    schema: Schema = {"type": "object", "description": description, "properties": dict(members)}
    if required:
        schema["required"] = list(required)
    if rules:
        schema["x-kubernetes-validations"] = [{"rule": rule, "message": message} for rule, message in rules]
    return schema


def _preserve_unknown(schema: Schema) -> Schema:
    """The schema with unknown members allowed."""
    return {**schema, "x-kubernetes-preserve-unknown-fields": True}


def _resource(description: str, spec: Schema, *, rules: Sequence[tuple[str, str]] = (), **members: Schema) -> Schema:
    envelope: dict[str, Schema] = {"apiVersion": _text(), "kind": _text(), "metadata": {"type": "object"}}
    return _object(description, {**envelope, "spec": spec, **members}, required=["spec"], rules=rules)


_NO_HOST_BITS = {
    "rule": "!isCIDR(self) || cidr(self) == cidr(self).masked()",
    "message": "a CIDR without host bits is expected",
}
_NAME_IS_DEFAULT = (("self.metadata.name == 'default'", "there is one, and its name is default"),)


def _cidr_of_block() -> Schema:
    """The prefix of an allocator's record; an invalid one would make every list fail."""
    schema = _text("The block's prefix.", maxLength=_MAX_CIDR_LENGTH)
    schema["x-kubernetes-validations"] = [{"rule": "isCIDR(self)", "message": "a CIDR is expected"}, _NO_HOST_BITS]
    return schema


# --- the user's kinds ------------------------------------------------------------------------------------------------


_IPIP = "has(self.ipipMode) && self.ipipMode != 'Never'"
_VXLAN = "has(self.vxlanMode) && self.vxlanMode != 'Never'"
_IS_LOAD_BALANCER_POOL = "has(self.allowedUses) && self.allowedUses.exists(use, use == 'LoadBalancer')"
_MAY_SERVE_TUNNELS = (
    "!has(self.allowedUses) || self.allowedUses.size() == 0 || self.allowedUses.exists(use, use == 'Tunnel')"
)
_HAS_BLOCK_SIZE = "has(self.blockSize) && self.blockSize != 0"
_IS_IPV4 = f"cidr(self.cidr).ip().family() == {Family.IPV4.value}"
_BLOCK_SIZE = (
    f"({_HAS_BLOCK_SIZE} ? self.blockSize : {_IS_IPV4} ? "
    f"{Family.IPV4.default_block_length} : {Family.IPV6.default_block_length})"
)


def _cidr_rules() -> list[tuple[str, str]]:
    (v4_shortest, v4_longest), (v6_shortest, v6_longest) = (family.block_lengths for family in Family)
    return [
        ("isCIDR(self.cidr)", "IPPool CIDR must be a valid subnet"),
        _for_valid_cidr("cidr(self.cidr) == cidr(self.cidr).masked()", "IPPool CIDR is not strictly masked"),
        _for_valid_cidr(
            f"!({_HAS_BLOCK_SIZE}) || ({_IS_IPV4} ? self.blockSize >= {v4_shortest} && self.blockSize <= {v4_longest} "
            f": self.blockSize >= {v6_shortest} && self.blockSize <= {v6_longest})",
            f"blockSize must be between {v4_shortest} and {v4_longest} for IPv4 pools, "
            f"and between {v6_shortest} and {v6_longest} for IPv6 pools",
        ),
        _for_valid_cidr(
            f"(has(self.disabled) && self.disabled) || cidr(self.cidr).prefixLength() <= {_BLOCK_SIZE}",
            "IP pool size is too small: the prefix is longer than a block's",
        ),
        *(
            _for_valid_cidr(
                f"!cidr('{reserved}').containsCIDR(self.cidr) && !cidr(self.cidr).containsCIDR('{reserved}')",
                f"IPPool CIDR overlaps with the link-local range {reserved}",
            )
            for reserved in ("169.254.0.0/16", "fe80::/10")
        ),
    ]


def _use_rules() -> list[tuple[str, str]]:
    return [
        (f"!({_IPIP}) || !({_VXLAN})", "ipipMode and vxlanMode cannot both be enabled"),
        _for_valid_cidr(f"!({_IPIP}) || {_IS_IPV4}", "IPIP is not supported on IPv6 pools"),
        _for_load_balancer_pool(
            "self.allowedUses.all(use, use == 'LoadBalancer')", "LoadBalancer cannot be combined with other uses"
        ),
        _for_load_balancer_pool(f"!({_IPIP})", "ipipMode must be Never with allowedUses LoadBalancer"),
        _for_load_balancer_pool(f"!({_VXLAN})", "vxlanMode must be Never with allowedUses LoadBalancer"),
        _for_load_balancer_pool(
            "!has(self.disableBGPExport) || !self.disableBGPExport",
            "disableBGPExport must be false with allowedUses LoadBalancer",
        ),
        _for_load_balancer_pool(
            "!has(self.nodeSelector) || self.nodeSelector in ['', 'all()']",
            "nodeSelector must be all() with allowedUses LoadBalancer",
        ),
        (
            f"!has(self.namespaceSelector) || self.namespaceSelector == '' || !({_MAY_SERVE_TUNNELS})",
            "namespaceSelector cannot be used with allowedUses Tunnel, which is a default: set allowedUses [Workload]",
        ),
    ]


def _change_rules() -> list[tuple[str, str]]:
    """What may not change. Networks are compared, not texts, so another spelling is no change."""
    return [
        (
            "!isCIDR(self.cidr) || !isCIDR(oldSelf.cidr) || cidr(self.cidr).masked() == cidr(oldSelf.cidr).masked()",
            "IPPool CIDR cannot be modified",
        ),
        _for_valid_cidr(
            f"!isCIDR(oldSelf.cidr) || {_BLOCK_SIZE} == {_BLOCK_SIZE.replace('self.', 'oldSelf.')}",
            "IPPool BlockSize cannot be modified",
        ),
        (
            f"({_IS_LOAD_BALANCER_POOL}) == ({_IS_LOAD_BALANCER_POOL.replace('self.', 'oldSelf.')})",
            "allowedUses cannot be changed between LoadBalancer and other uses",
        ),
    ]


def _for_load_balancer_pool(rule: str, message: str) -> tuple[str, str]:
    """A rule for pools with the use LoadBalancer."""
    return f"!({_IS_LOAD_BALANCER_POOL}) || ({rule})", message


def _for_valid_cidr(rule: str, message: str) -> tuple[str, str]:
    """A rule for pools with a valid CIDR; another rule refuses the others."""
    return f"!isCIDR(self.cidr) || ({rule})", message


def _pool(mode: CrdMode) -> Schema:
    del mode
    condition = _object(
        "One condition, such as Allocatable.",
        {"type": _text(), "status": _text(), "reason": _text(), "message": _text()},
        required=["type", "status"],
    )
    spec = _object(
        "What is asked of the pool.",
        {
            "cidr": _text("The range of the pool's addresses.", maxLength=_MAX_CIDR_LENGTH),
            "blockSize": _number("Prefix length of the blocks that nodes claim; 26 and 122 unless given.", minimum=0),
            "disabled": _flag("Nobody is given an address of it."),
            "allowedUses": _list("What its addresses may be given to.", _choice("A use.", AllowedUse), len(AllowedUse)),
            "nodeSelector": _text(
                "Which nodes may assign from it; all() unless given.", maxLength=_MAX_SELECTOR_LENGTH
            ),
            "namespaceSelector": _text("Whose pods it serves; all unless given.", maxLength=_MAX_SELECTOR_LENGTH),
            "assignmentMode": _choice("Whether it serves requests that do not name it.", AssignmentMode),
            "ipipMode": _choice("When packets to it are wrapped in IP.", Encapsulation),
            "vxlanMode": _choice("When packets to it are wrapped in VXLAN.", Encapsulation),
            "natOutgoing": _flag("Packets that leave the pools are masqueraded."),
            "disableBGPExport": _flag("Its routes are not announced."),
        },
        required=["cidr"],
        rules=[*_cidr_rules(), *_use_rules(), *_change_rules()],
    )
    status = _object(
        "What controllers found out about it.", {"conditions": _list("Conditions.", _preserve_unknown(condition), 16)}
    )
    return _resource("A range of addresses, and who may use it.", spec, status=_preserve_unknown(status))


def _reservation(mode: CrdMode) -> Schema:
    del mode
    entry = _text(maxLength=_MAX_CIDR_LENGTH)
    entry["x-kubernetes-validations"] = [
        {"rule": "isCIDR(self) || isIP(self)", "message": "a CIDR or an IP address is expected"},
        _NO_HOST_BITS,
    ]
    members = {"reservedCIDRs": _list("Addresses and ranges.", entry, _MAX_RESERVATIONS)}
    spec = _object("What is reserved.", members)
    return _resource("Addresses of pools that nobody is given unless they ask for exactly one.", spec)


def _configuration(mode: CrdMode) -> Schema:
    del mode
    strict = "has(self.strictAffinity) && self.strictAffinity"
    spec = _object(
        "The rules; what is left out has its default.",
        {
            "strictAffinity": _flag("A node uses only the blocks that it has claimed."),
            "autoAllocateBlocks": _flag("An assignment may claim blocks; true unless given."),
            "maxBlocksPerHost": _number("How many blocks a node may have; 0 for no limit of yours.", minimum=0),
            "ipCooldownSeconds": _number("How long a released address rests.", minimum=0),
            "kubeVirtVMAddressPersistence": _text("Kept as it is written.", enum=["", "Enabled", "Disabled"]),
        },
        rules=[
            (
                f"!has(self.autoAllocateBlocks) || self.autoAllocateBlocks || ({strict})",
                "autoAllocateBlocks must be true unless strictAffinity is",
            ),
            (
                f"!has(self.maxBlocksPerHost) || self.maxBlocksPerHost == 0 || ({strict})",
                "maxBlocksPerHost can only be set with strictAffinity true",
            ),
        ],
    )
    return _resource("How blocks are assigned in the whole cluster.", spec, rules=_NAME_IS_DEFAULT)


def _cluster(mode: CrdMode) -> Schema:
    del mode
    spec = _object(
        "What netplug says of the cluster.",
        {
            "clusterGUID": _text("The cluster's identity."),
            "clusterType": _text("What it is made of."),
            "netplugVersion": _text("The release that runs it."),
            "datastoreReady": _flag("False locks the datastore: nothing new is attached."),
        },
    )
    return _resource("The cluster's identity and its ready flag.", spec, rules=_NAME_IS_DEFAULT)


def _kube_controllers(mode: CrdMode) -> Schema:
    del mode
    spec = table_schema(KubeControllersSpec, KUBE_CONTROLLERS_TABLES, FIELD_TEXTS.__getitem__)
    fields, place = collect_fields(spec), "controllers.node.hostEndpoint.templates"
    template = cast("Schema", fields[place]["items"])
    template["required"] = ["generateName"]
    template["x-kubernetes-validations"] = [
        {
            "rule": "(has(self.interfaceCIDRs) && self.interfaceCIDRs.size() > 0) || "
            "(has(self.interfacePattern) && self.interfacePattern != '')",
            "message": "interfaceCIDRs or interfacePattern must be given",
        }
    ]
    fields[place] |= {
        "maxItems": _MAX_TEMPLATES,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["generateName"],
    }
    fields[f"{place}[].interfaceCIDRs"]["maxItems"] = _MAX_RESERVATIONS
    status = _object(
        "What the controllers run with.",
        {
            "runningConfig": _preserve_unknown({"type": "object", "description": "The settings that are in force."}),
            "environmentVars": _map(_text(), "The variables that a setting was taken from."),
        },
    )
    text = "The settings of the controllers. No program of this release reads them."
    return _resource(text, spec, rules=_NAME_IS_DEFAULT, status=status)


# --- the allocator's records -----------------------------------------------------------------------------------------


def _deleted(mode: CrdMode) -> Schema:
    what = "Set by programs that delete in two steps."
    return _text(what) if mode is CrdMode.V1 else _flag(what)


def _block(mode: CrdMode) -> Schema:
    attribute = _object(
        "Who holds addresses, by handle.",
        {"handle_id": _text(), "secondary": _map(_text()), "alternateOwnerAttrs": _map(_text()), "releasedAt": _text()},
    )
    owner = _text("Who claimed it; none: nobody.", **({} if mode is CrdMode.V1 else {"pattern": _OWNER}))
    members = {
        "cidr": _cidr_of_block(),
        "affinity": owner,
        "affinityClaimTime": _text("When it was claimed."),
        "allocations": _list(
            "For each ordinal the attributes of its holder, or null.", _number(nullable=True, minimum=0), _MAX_ORDINALS
        ),
        "unallocated": _list("Free ordinals, the longest-free first.", _number(minimum=0), _MAX_ORDINALS),
        "attributes": _list("Holders.", _preserve_unknown(attribute), _MAX_ORDINALS),
        "sequenceNumber": _number("Grows with every change.", minimum=0),
        "sequenceNumberForAllocation": _map(_number(minimum=0), "The number from before an ordinal was taken."),
        "deleted": _flag("Set by programs that delete in two steps."),
    }
    if mode is CrdMode.V1:
        members["strictAffinity"] = _flag("Obsolete.")
    spec = _object("The block.", members, required=["cidr", "allocations", "unallocated", "attributes"])
    return _resource(
        "A slice of a pool, and who holds its addresses. Written by netplug alone.", _preserve_unknown(spec)
    )


def _affinity(mode: CrdMode) -> Schema:
    spec = _object(
        "The claim.",
        {
            "state": _choice("How far it has come.", AffinityState),
            "node": _text("Whose it is.", minLength=1),
            "type": _text("What the owner is: host, or virtual."),
            "cidr": _cidr_of_block(),
            "deleted": _deleted(mode),
        },
        required=["cidr", "node", "state"],
    )
    return _resource("A node's claim on a block. Written by netplug alone.", _preserve_unknown(spec))


def _handle(mode: CrdMode) -> Schema:
    del mode
    spec = _object(
        "The handle.",
        {
            "handleID": _text("Its id.", minLength=1),
            "block": _map(_number(minimum=0), "How many addresses it holds, by block."),
            "deleted": _flag("Set by programs that delete in two steps."),
        },
        required=["handleID", "block"],
    )
    return _resource("What a workload's addresses are released by. Written by netplug alone.", _preserve_unknown(spec))


SCHEMAS: Mapping[str, Callable[[CrdMode], Schema]] = {
    "BlockAffinity": _affinity,
    "ClusterInformation": _cluster,
    "IPAMBlock": _block,
    "IPAMConfiguration": _configuration,
    "IPAMHandle": _handle,
    "IPPool": _pool,
    "IPReservation": _reservation,
    "KubeControllersConfiguration": _kube_controllers,
}
"""The schema of each kind that is stored as custom objects, by the kind's name."""
