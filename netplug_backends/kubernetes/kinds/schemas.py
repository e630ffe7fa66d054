"""The OpenAPI schemas of the custom resources, with validation rules in the API's expression language (CEL).

``manifests`` puts them into the definitions. The rules are those of the core, as far as CEL can express them: it has no
parser and sees one object, so it checks neither all of a selector's grammar nor overlapping pools. The allocator's
records may have unknown members, so that those of a newer release are not lost. Users' resources have exactly the
members of this release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from netplug_backends.kubernetes.kinds.network_schemas import (
    bgp_configuration_schema,
    bgp_peer_schema,
    host_endpoint_schema,
    node_configuration_schema,
)
from netplug_backends.kubernetes.kinds.schema_parts import (
    MAX_CIDR_LENGTH,
    NAME_IS_DEFAULT,
    NO_HOST_BITS,
    choice,
    flag,
    list_of,
    map_of,
    number,
    object_of,
    preserve_unknown,
    resource,
    selector,
    text,
)
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Family
from netplug_core.decoding.schema import Schema, collect_fields, table_schema
from netplug_core.ipam.model.affinity import AffinityState
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, Encapsulation
from netplug_core.resources.kubecontrollers_tables import FIELD_TEXTS, KUBE_CONTROLLERS_TABLES
from netplug_core.resources.kubecontrollersconfiguration import KubeControllersSpec

__all__ = ["SCHEMAS", "Schema"]

_OWNER = r"^(host|virtual):[a-zA-Z0-9\.\-_]+$"
_MAX_ORDINALS = 4096
_MAX_RESERVATIONS = 1024
_MAX_TEMPLATES = 32


def _cidr_of_block() -> Schema:
    """The prefix of an allocator's record; an invalid one would make every list fail."""
    schema = text("The block's prefix.", maxLength=MAX_CIDR_LENGTH)
    schema["x-kubernetes-validations"] = [{"rule": "isCIDR(self)", "message": "a CIDR is expected"}, NO_HOST_BITS]
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
    condition = object_of(
        "One condition, such as Allocatable.",
        {"type": text(), "status": text(), "reason": text(), "message": text()},
        required=["type", "status"],
    )
    spec = object_of(
        "What is asked of the pool.",
        {
            "cidr": text("The range of the pool's addresses.", maxLength=MAX_CIDR_LENGTH),
            "blockSize": number("Prefix length of the blocks that nodes claim; 26 and 122 unless given.", minimum=0),
            "disabled": flag("Nobody is given an address of it."),
            "allowedUses": list_of(
                "What its addresses may be given to.", choice("A use.", AllowedUse), len(AllowedUse)
            ),
            "nodeSelector": selector("Which nodes may assign from it; all() unless given."),
            "namespaceSelector": selector("Whose pods it serves; all unless given."),
            "assignmentMode": choice("Whether it serves requests that do not name it.", AssignmentMode),
            "ipipMode": choice("When packets to it are wrapped in IP.", Encapsulation),
            "vxlanMode": choice("When packets to it are wrapped in VXLAN.", Encapsulation),
            "natOutgoing": flag("Packets that leave the pools are masqueraded."),
            "disableBGPExport": flag("Its routes are not announced."),
        },
        required=["cidr"],
        rules=[*_cidr_rules(), *_use_rules(), *_change_rules()],
    )
    status = object_of(
        "What controllers found out about it.", {"conditions": list_of("Conditions.", preserve_unknown(condition), 16)}
    )
    return resource("A range of addresses, and who may use it.", spec, status=preserve_unknown(status))


def _reservation(mode: CrdMode) -> Schema:
    del mode
    entry = text(maxLength=MAX_CIDR_LENGTH)
    entry["x-kubernetes-validations"] = [
        {"rule": "isCIDR(self) || isIP(self)", "message": "a CIDR or an IP address is expected"},
        NO_HOST_BITS,
    ]
    members = {"reservedCIDRs": list_of("Addresses and ranges.", entry, _MAX_RESERVATIONS)}
    spec = object_of("What is reserved.", members)
    return resource("Addresses of pools that nobody is given unless they ask for exactly one.", spec)


def _configuration(mode: CrdMode) -> Schema:
    del mode
    strict = "has(self.strictAffinity) && self.strictAffinity"
    spec = object_of(
        "The rules; what is left out has its default.",
        {
            "strictAffinity": flag("A node uses only the blocks that it has claimed."),
            "autoAllocateBlocks": flag("An assignment may claim blocks; true unless given."),
            "maxBlocksPerHost": number("How many blocks a node may have; 0 for no limit of yours.", minimum=0),
            "ipCooldownSeconds": number("How long a released address rests.", minimum=0),
            "kubeVirtVMAddressPersistence": text("Kept as it is written.", enum=["", "Enabled", "Disabled"]),
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
    return resource("How blocks are assigned in the whole cluster.", spec, rules=[NAME_IS_DEFAULT])


def _cluster(mode: CrdMode) -> Schema:
    del mode
    spec = object_of(
        "What netplug says of the cluster.",
        {
            "clusterGUID": text("The cluster's identity."),
            "clusterType": text("What it is made of."),
            "netplugVersion": text("The release that runs it."),
            "datastoreReady": flag("False locks the datastore: nothing new is attached."),
        },
    )
    return resource("The cluster's identity and its ready flag.", spec, rules=[NAME_IS_DEFAULT])


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
    fields[f"{place}[].nodeSelector"].update(selector(FIELD_TEXTS[f"{place}[].nodeSelector"]))
    status = object_of(
        "What the controllers run with.",
        {
            "runningConfig": preserve_unknown({"type": "object", "description": "The settings that are in force."}),
            "environmentVars": map_of(text(), "The variables that a setting was taken from."),
        },
    )
    what = "The settings of the controllers. No program of this release reads them."
    return resource(what, spec, rules=[NAME_IS_DEFAULT], status=status)


# --- the allocator's records -----------------------------------------------------------------------------------------


def _deleted(mode: CrdMode) -> Schema:
    what = "Set by programs that delete in two steps."
    return text(what) if mode is CrdMode.V1 else flag(what)


def _block(mode: CrdMode) -> Schema:
    attribute = object_of(
        "Who holds addresses, by handle.",
        {"handle_id": text(), "secondary": map_of(text()), "alternateOwnerAttrs": map_of(text()), "releasedAt": text()},
    )
    owner = text("Who claimed it; none: nobody.", **({} if mode is CrdMode.V1 else {"pattern": _OWNER}))
    members = {
        "cidr": _cidr_of_block(),
        "affinity": owner,
        "affinityClaimTime": text("When it was claimed."),
        "allocations": list_of(
            "For each ordinal the attributes of its holder, or null.", number(nullable=True, minimum=0), _MAX_ORDINALS
        ),
        "unallocated": list_of("Free ordinals, the longest-free first.", number(minimum=0), _MAX_ORDINALS),
        "attributes": list_of("Holders.", preserve_unknown(attribute), _MAX_ORDINALS),
        "sequenceNumber": number("Grows with every change.", minimum=0),
        "sequenceNumberForAllocation": map_of(number(minimum=0), "The number from before an ordinal was taken."),
        "deleted": flag("Set by programs that delete in two steps."),
    }
    if mode is CrdMode.V1:
        members["strictAffinity"] = flag("Obsolete.")
    spec = object_of("The block.", members, required=["cidr", "allocations", "unallocated", "attributes"])
    return resource("A slice of a pool, and who holds its addresses. Written by netplug alone.", preserve_unknown(spec))


def _affinity(mode: CrdMode) -> Schema:
    spec = object_of(
        "The claim.",
        {
            "state": choice("How far it has come.", AffinityState),
            "node": text("Whose it is.", minLength=1),
            "type": text("What the owner is: host, or virtual."),
            "cidr": _cidr_of_block(),
            "deleted": _deleted(mode),
        },
        required=["cidr", "node", "state"],
    )
    return resource("A node's claim on a block. Written by netplug alone.", preserve_unknown(spec))


def _handle(mode: CrdMode) -> Schema:
    del mode
    spec = object_of(
        "The handle.",
        {
            "handleID": text("Its id.", minLength=1),
            "block": map_of(number(minimum=0), "How many addresses it holds, by block."),
            "sequenceNumber": number("Grows with a write that changes no count.", minimum=0),
            "deleted": flag("Set by programs that delete in two steps."),
        },
        required=["handleID", "block"],
    )
    return resource("What a workload's addresses are released by. Written by netplug alone.", preserve_unknown(spec))


SCHEMAS: Mapping[str, Callable[[CrdMode], Schema]] = {
    "BGPConfiguration": bgp_configuration_schema,
    "BGPPeer": bgp_peer_schema,
    "BlockAffinity": _affinity,
    "ClusterInformation": _cluster,
    "HostEndpoint": host_endpoint_schema,
    "IPAMBlock": _block,
    "IPAMConfiguration": _configuration,
    "IPAMHandle": _handle,
    "IPPool": _pool,
    "IPReservation": _reservation,
    "KubeControllersConfiguration": _kube_controllers,
    "NodeConfiguration": node_configuration_schema,
}
"""The schema of each kind that is stored as custom objects, by the kind's name."""
