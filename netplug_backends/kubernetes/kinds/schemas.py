"""The OpenAPI schemas of the definitions, made from the members that the kinds declare, with the rules of a server."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Family
from netplug_core.decoding.tables import Schema, collect_fields, inner_schema, member_schemas, object_schema
from netplug_core.ipam.model import AffinityState
from netplug_core.names import MAX_NAME_LENGTH
from netplug_core.resources.bgp import DEFAULT_ONLY, BGPConfiguration, BGPFilter, BGPPeer
from netplug_core.resources.clusterinformation import ClusterInformation
from netplug_core.resources.fields import NAME_PATTERN
from netplug_core.resources.hostendpoint import HostEndpoint
from netplug_core.resources.ippool import MAX_CIDR_LENGTH, IPAMConfiguration, IPPool, IPReservation
from netplug_core.resources.kubecontrollersconfiguration import KubeControllersConfiguration
from netplug_core.resources.networkpolicy import GlobalNetworkPolicy, NetworkPolicy, NetworkSet
from netplug_core.resources.nodeconfiguration import NodeConfiguration
from netplug_core.resources.policyrule import NOT_SUPPORTED, PROTOCOL_NUMBERS
from netplug_core.selectors import SELECTOR_PARENTHESES, SELECTOR_PATTERN

__all__ = [
    "NAME_IS_DEFAULT", "NAME_IS_DEFAULT_OR_OF_NODE", "NO_HOST_BITS", "SCHEMAS", "Schema", "bgp_configuration_schema",
    "bgp_filter_schema", "bgp_peer_schema", "choice", "flag", "global_network_policy_schema", "host_endpoint_schema",
    "list_of", "map_of", "network_policy_schema", "network_set_schema", "node_configuration_schema", "number",
    "object_of", "preserve_unknown", "resource", "selector", "text", "validations",
]  # fmt: skip


# --- schema parts ----------------------------------------------------------------------------------------------------


_MAX_SELECTOR_LENGTH = 1024

_SELECTOR_EXAMPLE = "a selector is expected, such as zone == 'a' && has(gpu)"
_PARENTHESES = f"self.findAll(r'''{SELECTOR_PARENTHESES}''')"


def text(description: str = "", **more: object) -> Schema:
    """A text."""
    return {"type": "string", **({"description": description} if description else {}), **more}


def selector() -> Schema:
    """A selector, as far as expressions can judge it: the rest is refused by who reads it."""
    rules = (
        (f"self.matches(r'''{SELECTOR_PATTERN}''')", _SELECTOR_EXAMPLE),
        (
            f"{_PARENTHESES}.filter(one, one == '(').size() == {_PARENTHESES}.filter(one, one == ')').size()",
            "a selector has as many ')' as '('",
        ),
    )
    return text(maxLength=_MAX_SELECTOR_LENGTH) | validations(*rules)


def flag(description: str) -> Schema:
    """True or false."""
    return {"type": "boolean", "description": description}


def number(description: str = "", **more: object) -> Schema:
    """A whole number of 64 bits."""
    return {"type": "integer", "format": "int64", **({"description": description} if description else {}), **more}


def choice(description: str, choices: type[enum.Enum]) -> Schema:
    """One of the values of an enumeration."""
    return text(description, enum=[choice.value for choice in choices])


def list_of(description: str, items: Schema, max_items: int) -> Schema:
    """A list with a bound, without which the server would reckon rules on its items too costly."""
    return {"type": "array", "description": description, "items": items, "maxItems": max_items}


def map_of(values: Schema, description: str = "") -> Schema:
    """An object with any members of one kind."""
    schema: Schema = {"type": "object", "additionalProperties": values}
    if description:
        schema["description"] = description
    return schema


def object_of(
    description: str,
    members: Mapping[str, Schema],
    *,
    required: Sequence[str] = (),
    rules: Sequence[tuple[str, str]] = (),
) -> Schema:
    """An object with these members and no others; a rule is an expression and its message."""
    schema: Schema = {"type": "object", "description": description, "properties": dict(members)}
    if required:
        schema["required"] = list(required)
    return schema | validations(*rules)


def validations(*rules: tuple[str, str]) -> Schema:
    """The member of a schema that holds rules, each an expression and its message."""
    listed = [{"rule": rule, "message": message} for rule, message in rules]
    return {"x-kubernetes-validations": listed} if rules else {}


def preserve_unknown(schema: Schema) -> Schema:
    """The schema with unknown members allowed."""
    return {**schema, "x-kubernetes-preserve-unknown-fields": True}


def resource(description: str, spec: Schema, *, rules: Sequence[tuple[str, str]] = (), **members: Schema) -> Schema:
    """A whole resource: its envelope, a spec, and further members."""
    envelope: dict[str, Schema] = {"apiVersion": text(), "kind": text(), "metadata": {"type": "object"}}
    return object_of(description, {**envelope, "spec": spec, **members}, required=["spec"], rules=rules)


NO_HOST_BITS = {
    "rule": "!isCIDR(self) || cidr(self) == cidr(self).masked()",
    "message": "a CIDR without host bits is expected",
}
NAME_IS_DEFAULT = ("self.metadata.name == 'default'", "there is one, and its name is default")
NAME_IS_DEFAULT_OR_OF_NODE = (
    "self.metadata.name == 'default' || self.metadata.name.startsWith('node.')",
    "must be default, or node. and the name of a node",
)


# --- network schemas -------------------------------------------------------------------------------------------------


_MAX_ITEMS: Final = 256
_MAX_ADDRESS_LENGTH: Final = 39
_ADDRESS: Final[Schema] = {
    "maxLength": _MAX_ADDRESS_LENGTH,
    **validations(("isIP(self)", "an IP address is expected")),
}
_IS_IPV4_WITH_PORT: Final = "self.matches('^[0-9.]+:[0-9]{1,5}$') && isIP(self.substring(0, self.indexOf(':')))"
_IS_IPV6_WITH_PORT: Final = r"self.matches('^\\[[^\\]]+\\]:[0-9]{1,5}$') && isIP(self.substring(1, self.indexOf(']')))"
_PEER: Final[Schema] = {
    "maxLength": len("[]:65535") + _MAX_ADDRESS_LENGTH,
    **validations(
        (
            f"self == '' || isIP(self) || ({_IS_IPV4_WITH_PORT}) || ({_IS_IPV6_WITH_PORT})",
            "an IP address is expected, which may have a port",
        )
    ),
}
_CIDR: Final[Schema] = {
    "maxLength": MAX_CIDR_LENGTH,
    "x-kubernetes-validations": [NO_HOST_BITS],
}


def _spec_of(cls: type) -> dict[str, Schema]:
    """The schema of each field of a spec, by its path; the spec itself has the empty path. Lists have a bound."""
    spec = member_schemas(object_schema(cls))["spec"]
    fields = {"": spec} | collect_fields(spec)
    for schema in fields.values():
        if schema.get("type") == "array":
            schema.setdefault("maxItems", _MAX_ITEMS)
    return fields


def _items(schema: Schema) -> Schema:
    return inner_schema(schema, "items")


def _is_given(field: str) -> str:
    """Whether a text or a list of the object is given, and not empty."""
    return f"has(self.{field}) && self.{field}.size() > 0"


def host_endpoint_schema(mode: CrdMode) -> Schema:
    """The schema of a HostEndpoint."""
    del mode
    fields = _spec_of(HostEndpoint)
    spec = fields[""]
    spec["required"] = ["node"]
    spec |= validations(
        (
            f"({_is_given('interfaceName')}) || ({_is_given('expectedIPs')})",
            "interfaceName or expectedIPs must be given",
        ),
        (f"!({_is_given('ports')}) || ({_is_given('expectedIPs')})", "ports need expectedIPs"),
    )
    _items(fields["expectedIPs"]).update(_ADDRESS)
    return resource("An interface of a node, or all of them, for policy.", spec)


def bgp_configuration_schema(mode: CrdMode) -> Schema:
    """The schema of a BGPConfiguration."""
    del mode
    fields = _spec_of(BGPConfiguration)
    spec = fields[""]
    spec |= validations(
        *(
            (
                f"!has(self.{member}) || !has(self.nodeToNodeMeshEnabled) || self.nodeToNodeMeshEnabled",
                f"{member} needs nodeToNodeMeshEnabled true",
            )
            for member in ("nodeMeshPassword", "nodeMeshMaxRestartTime")
        )
    )
    for path, schema in fields.items():
        if path.endswith("[].cidr"):
            schema.update(_CIDR)
    fields["communities"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    rules = (
        (f"self.metadata.name == 'default' || !has(self.spec.{member})", f"Cannot set {title} on a non default one")
        for member, title in DEFAULT_ONLY.items()
    )
    what = "How nodes exchange routes by BGP."
    return resource(what, spec, rules=[NAME_IS_DEFAULT_OR_OF_NODE, *rules])


_IS_NEXT_HOP_KEPT: Final = "has(self.keepOriginalNextHop) && self.keepOriginalNextHop"


def bgp_peer_schema(mode: CrdMode) -> Schema:
    """The schema of a BGPPeer."""
    del mode
    fields = _spec_of(BGPPeer)
    spec = fields[""]
    has_address, has_selector = _is_given("peerIP"), _is_given("peerSelector")
    has_workload = _is_given("localWorkloadSelector")
    spec |= validations(
        (f"!({_is_given('node')}) || !({_is_given('nodeSelector')})", "nodeSelector cannot be used with node"),
        (f"({has_address}) || ({has_selector}) || ({has_workload})", "peerIP or peerSelector must be given"),
        (f"!({has_address}) || !({has_selector})", "peerSelector cannot be used with peerIP"),
        (
            f"!({has_workload}) || !(({has_address}) || ({has_selector}))",
            "localWorkloadSelector cannot be used with peerIP or peerSelector",
        ),
        (
            f"(({has_address}) || ({has_workload})) == has(self.asNumber)",
            "asNumber must be given with peerIP and localWorkloadSelector, and cannot be without",
        ),
        (
            f"!({_IS_NEXT_HOP_KEPT}) || !has(self.nextHopMode) || self.nextHopMode == 'Keep'",
            "keepOriginalNextHop cannot be used with another nextHopMode",
        ),
        (f"!has(self.reachableBy) || ({has_address})", "reachableBy needs peerIP"),
    )
    fields["peerIP"].update(_PEER)
    fields["reachableBy"].update(_ADDRESS)
    for name in ("nodeSelector", "peerSelector", "localWorkloadSelector"):
        fields[name].update(selector())
    return resource("With whom nodes exchange routes by BGP.", spec)


_MAX_RULES: Final = 64  # of each family and direction, so that the server reckons the rules on them as cheap enough


def bgp_filter_schema(mode: CrdMode) -> Schema:
    """The schema of a BGPFilter."""
    del mode
    fields = _spec_of(BGPFilter)
    for name, family in (("exportV4", 4), ("importV4", 4), ("exportV6", 6), ("importV6", 6)):
        fields[name]["maxItems"] = _MAX_RULES
        rule = _items(fields[name])
        rule |= validations(
            ("has(self.cidr) == has(self.matchOperator)", "cidr and matchOperator are given together"),
            ("!has(self.prefixLength) || has(self.cidr)", "prefixLength needs cidr"),
            (
                "!has(self.operations) || self.operations.size() == 0 || self.action == 'Accept'",
                "operations can only be used with action Accept",
            ),
            *([("!has(self.source)", "source cannot be used in a rule for import")] if "import" in name else []),
        )
        fields[f"{name}[].cidr"].update(
            {
                "maxLength": MAX_CIDR_LENGTH,
                "x-kubernetes-validations": [
                    NO_HOST_BITS,
                    {
                        "rule": f"!isCIDR(self) || cidr(self).ip().family() == {family}",
                        "message": f"a CIDR of IPv{family} is expected",
                    },
                ],
            }
        )
        lengths = fields[f"{name}[].prefixLength"]
        lengths |= validations(("!has(self.min) || !has(self.max) || self.min <= self.max", "min is at most max"))
        for bound in ("min", "max"):
            fields[f"{name}[].prefixLength.{bound}"]["maximum"] = Family(family).width
        operation = _items(fields[f"{name}[].operations"])
        given = " + ".join(f"(has(self.{one}) ? 1 : 0)" for one in ("addCommunity", "prependASPath", "setPriority"))
        operation |= validations((f"{given} == 1", "exactly one operation is expected"))
    return resource("Which routes nodes exchange with a peer.", fields[""])


def node_configuration_schema(mode: CrdMode) -> Schema:
    """The schema of a NodeConfiguration."""
    del mode
    fields = _spec_of(NodeConfiguration)
    for name in ("failsafeInboundHostPorts[].net", "failsafeOutboundHostPorts[].net"):
        fields[name].update(_CIDR)
    _items(fields["externalNodesCIDRList"]).update(_CIDR)
    for name in ("healthHost", "prometheusMetricsHost"):
        is_host = (
            f"self == '' || isIP(self) || self.matches(r'^{NAME_PATTERN}$')",
            "an address or a host name is expected",
        )
        fields[name].update({"maxLength": MAX_NAME_LENGTH, **validations(is_host)})
    return resource("The settings of the node process.", fields[""], rules=[NAME_IS_DEFAULT_OR_OF_NODE])


# --- policy schemas --------------------------------------------------------------------------------------------------


_NET: Final[Schema] = {"maxLength": MAX_CIDR_LENGTH, "pattern": "^[0-9A-Fa-f.:]{2,39}(/[0-9]{1,3})?$"}
"""A prefix or an address. There are too many in a rule for an expression on each; who reads them clears host bits."""


def _is_protocol(*names: str) -> str:
    """Whether the protocol is one of some; it may be given by its number."""
    same = (f"self.protocol == '{name}' || self.protocol == {PROTOCOL_NUMBERS[name]}" for name in names)
    return f"has(self.protocol) && ({' || '.join(same)})"


def _rule_rules() -> Iterator[tuple[str, str]]:
    is_icmp, has_ports = _is_protocol("ICMP", "ICMPv6"), _is_protocol("TCP", "UDP", "SCTP")
    yield "!has(self.http)", NOT_SUPPORTED["http"]
    for name in ("icmp", "notICMP"):
        yield f"!has(self.{name}) || ({is_icmp})", f"{name} needs protocol ICMP or ICMPv6"
    for end in ("source", "destination"):
        for name in ("ports", "notPorts"):
            given = f"has(self.{end}) && has(self.{end}.{name}) && self.{end}.{name}.size() > 0"
            yield f"!({given}) || ({has_ports})", f"{end}.{name} needs protocol TCP, UDP or SCTP"
    for protocol, family in (("ICMP", Family.IPV6), ("ICMPv6", Family.IPV4)):
        wrong = f"has(self.ipVersion) && self.ipVersion == {family.value} && {_is_protocol(protocol)}"
        yield f"!({wrong})", f"protocol {protocol} is not of {family}"


def _policy_schema(cls: type, what: str) -> Schema:
    fields = _spec_of(cls)
    for path, schema in fields.items():
        match path.rpartition("[].")[2].rpartition(".")[2]:
            case "nets" | "notNets":
                _items(schema).update(_NET)
            case "selector" | "namespaceSelector" | "serviceAccountSelector" if "[]" not in path:
                schema.update(selector())
            case "selector" | "notSelector" | "namespaceSelector":
                schema["pattern"] = SELECTOR_PATTERN
            case "services" | "http":
                schema.update(preserve_unknown({"type": "object"}))
            case "source" | "destination":
                schema.update(validations(("!has(self.services)", NOT_SUPPORTED["services"])))
            case "icmp" | "notICMP":
                schema.update(validations(("!has(self.code) || has(self.type)", "code needs type")))
            case "ingress" | "egress":
                _items(schema).update(validations(*_rule_rules()))
            case "types":
                schema["x-kubernetes-list-type"] = "set"
    return resource(what, fields[""])


def network_policy_schema(mode: CrdMode) -> Schema:
    """The schema of a NetworkPolicy."""
    del mode
    return _policy_schema(NetworkPolicy, "Which packets of endpoints of its namespace pass.")


def global_network_policy_schema(mode: CrdMode) -> Schema:
    """The schema of a GlobalNetworkPolicy."""
    del mode
    return _policy_schema(GlobalNetworkPolicy, "Which packets of endpoints of all namespaces and of hosts pass.")


def network_set_schema(mode: CrdMode) -> Schema:
    """The schema of a NetworkSet and of a GlobalNetworkSet."""
    del mode
    fields = _spec_of(NetworkSet)
    _items(fields["nets"]).update(_NET)
    return resource("Addresses outside the cluster that rules select by the labels of the set.", fields[""])


# --- schemas ---------------------------------------------------------------------------------------------------------


_OWNER = r"^(host|virtual):[a-zA-Z0-9\.\-_]+$"
_MAX_ORDINALS = 4096


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
    spec = _spec_of(IPPool)[""] | validations(*_cidr_rules(), *_use_rules(), *_change_rules())
    members = member_schemas(spec)
    for name in ("nodeSelector", "namespaceSelector"):
        members[name] |= selector()
    status = member_schemas(object_schema(IPPool))["status"]
    conditions = collect_fields(status)["conditions"]
    conditions |= {"items": preserve_unknown(_items(conditions)), "maxItems": 16}
    return resource("A range of addresses, and who may use it.", spec, status=preserve_unknown(status))


def _reservation(mode: CrdMode) -> Schema:
    del mode
    fields = _spec_of(IPReservation)
    entry = _items(fields["reservedCIDRs"])
    entry["maxLength"] = MAX_CIDR_LENGTH
    entry["x-kubernetes-validations"] = [
        {"rule": "isCIDR(self) || isIP(self)", "message": "a CIDR or an IP address is expected"},
        NO_HOST_BITS,
    ]
    return resource("Addresses of pools that nobody is given unless they ask for exactly one.", fields[""])


def _configuration(mode: CrdMode) -> Schema:
    del mode
    strict = "has(self.strictAffinity) && self.strictAffinity"
    rules = validations(
        (
            f"!has(self.autoAllocateBlocks) || self.autoAllocateBlocks || ({strict})",
            "autoAllocateBlocks must be true unless strictAffinity is",
        ),
        (
            f"!has(self.maxBlocksPerHost) || self.maxBlocksPerHost == 0 || ({strict})",
            "maxBlocksPerHost can only be set with strictAffinity true",
        ),
    )
    spec = _spec_of(IPAMConfiguration)[""] | rules
    return resource("How blocks are assigned in the whole cluster.", spec, rules=[NAME_IS_DEFAULT])


def _cluster(mode: CrdMode) -> Schema:
    del mode
    spec = _spec_of(ClusterInformation)[""]
    return resource("The cluster's identity and its ready flag.", spec, rules=[NAME_IS_DEFAULT])


def _kube_controllers(mode: CrdMode) -> Schema:
    del mode
    fields, place = _spec_of(KubeControllersConfiguration), "controllers.node.hostEndpoint.templates"
    template = _items(fields[place])
    template["required"] = ["generateName"]
    template["x-kubernetes-validations"] = [
        {
            "rule": "(has(self.interfaceCIDRs) && self.interfaceCIDRs.size() > 0) || "
            "(has(self.interfacePattern) && self.interfacePattern != '')",
            "message": "interfaceCIDRs or interfacePattern must be given",
        }
    ]
    fields[place] |= {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["generateName"],
    }
    fields[f"{place}[].nodeSelector"].update(selector())
    status = object_of(
        "What the controllers run with.",
        {
            "runningConfig": preserve_unknown({"type": "object", "description": "The settings that are in force."}),
            "environmentVars": map_of(text(), "The variables that a setting was taken from."),
        },
    )
    what = "The settings of the controllers."
    return resource(what, fields[""], rules=[NAME_IS_DEFAULT], status=status)


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
    "BGPFilter": bgp_filter_schema,
    "BGPPeer": bgp_peer_schema,
    "BlockAffinity": _affinity,
    "ClusterInformation": _cluster,
    "GlobalNetworkPolicy": global_network_policy_schema,
    "GlobalNetworkSet": network_set_schema,
    "HostEndpoint": host_endpoint_schema,
    "IPAMBlock": _block,
    "IPAMConfiguration": _configuration,
    "IPAMHandle": _handle,
    "IPPool": _pool,
    "IPReservation": _reservation,
    "KubeControllersConfiguration": _kube_controllers,
    "NetworkPolicy": network_policy_schema,
    "NetworkSet": network_set_schema,
    "NodeConfiguration": node_configuration_schema,
}
"""The schema of each kind that is stored as custom objects, by the kind's name."""
