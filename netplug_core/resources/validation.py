"""What a user may ask for: a resource by itself, a pool beside the other pools, a change of a pool, network kinds.

``flows.resources`` calls it before it writes. ``codec`` decides whether a document can be read. What controllers or an
older release wrote is not checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import assert_never

from netplug_core.addressing import Family, Prefix, unusable_ranges
from netplug_core.names import MAX_NAME_LENGTH, is_resource_name
from netplug_core.resources.bgp import (
    BGPConfiguration,
    BGPFilter,
    BGPPeer,
    validate_bgp_configuration,
    validate_bgp_filter,
    validate_bgp_peer,
)
from netplug_core.resources.clusterinformation import ClusterInformation
from netplug_core.resources.fields import (
    FieldError,
    InvalidResource,
    Metadata,
    find_label_name_problems,
    find_label_problems,
    validate_regular_expression,
    validate_selector,
)
from netplug_core.resources.hostendpoint import HostEndpoint, validate_host_endpoint
from netplug_core.resources.ippool import AllowedUse, Encapsulation, IPAMConfiguration, IPPool, IPReservation
from netplug_core.resources.kinds import (
    OF_NODE,
    NetworkResource,
    PolicyResource,
    Resource,
    ResourceScope,
    key_of,
    kind_of,
)
from netplug_core.resources.kubecontrollersconfiguration import KubeControllersConfiguration
from netplug_core.resources.networkpolicy import (
    GlobalNetworkPolicy,
    GlobalNetworkSet,
    NetworkPolicy,
    NetworkSet,
    validate_network_set,
    validate_policy,
)
from netplug_core.resources.node import Node, validate_node
from netplug_core.resources.nodeconfiguration import NodeConfiguration, validate_node_configuration
from netplug_core.resources.profile import (
    DEFAULT_ALLOW_PROFILE,
    NAMESPACE_PROFILE_PREFIX,
    SERVICE_ACCOUNT_PROFILE_PREFIX,
    Profile,
    validate_profile,
)
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = [
    "FieldError", "InvalidResource", "find_unusual_settings", "pool_overlap", "resource_warnings",
    "validate_network_resource", "validate_policy_resource", "validate_pool_overlaps", "validate_pool_update",
    "validate_resource",
]  # fmt: skip


# --- network rules ---------------------------------------------------------------------------------------------------


def validate_network_resource(resource: NetworkResource) -> Iterator[FieldError]:
    """What is wrong with a resource by itself."""
    match resource:
        case HostEndpoint():
            return validate_host_endpoint(resource)
        case BGPConfiguration():
            return validate_bgp_configuration(resource)
        case BGPPeer():
            return validate_bgp_peer(resource)
        case BGPFilter():
            return validate_bgp_filter(resource)
        case NodeConfiguration():
            return validate_node_configuration(resource)
        case _:
            assert_never(resource)


def validate_policy_resource(resource: PolicyResource) -> Iterator[FieldError]:
    """What is wrong with a policy or a set of networks by itself."""
    match resource:
        case NetworkPolicy() | GlobalNetworkPolicy():
            return validate_policy(resource)
        case NetworkSet() | GlobalNetworkSet():
            return validate_network_set(resource)
        case _:
            assert_never(resource)


# --- validation ------------------------------------------------------------------------------------------------------


_MAX_ANNOTATIONS_BYTES = 256 * 1024
_SELECT_ALL = "all()"
_VM_PERSISTENCE = ("", "Enabled", "Disabled")

_LARGE_BLOCK_BITS = 9  # 512 addresses


def validate_resource(resource: Resource) -> None:
    """Check a resource against the rules that need nothing else.

    Raises:
        InvalidResource: it breaks some; all of them are named.
    """
    _raise_if_any(resource, (*_validate_metadata(resource), *_validate_spec(resource)))


def validate_pool_overlaps(pool: IPPool, others: Iterable[IPPool], blocks: Iterable[Prefix] = ()) -> None:
    """Check a new pool against the existing pools, and against the blocks that deleted pools left.

    Raises:
        InvalidResource: it overlaps another pool, or a block of another size holds addresses in its range.
    """
    _raise_if_any(pool, _pool_overlaps(pool, others))
    prefix = pool.spec.prefix
    left = (block for block in blocks if block.overlaps(prefix) and block.length != pool.spec.block_length)
    text = "IPPool blocksSize conflicts with existing allocations that use a different blockSize"
    _raise_if_any(pool, (FieldError("spec.blockSize", pool.spec.block_length, f"{text}: {block}") for block in left))


def pool_overlap(pool: IPPool, others: Iterable[IPPool]) -> InvalidResource:
    """The error about a pool that overlaps others."""
    return InvalidResource.from_field_errors(str(key_of(pool)), tuple(_pool_overlaps(pool, others)))


def _pool_overlaps(pool: IPPool, others: Iterable[IPPool]) -> Iterator[FieldError]:
    prefix, where = pool.spec.prefix, key_of(pool)
    return (
        FieldError("spec.cidr", prefix, f"{where} CIDR overlaps with {key_of(other)} CIDR {other.spec.prefix}")
        for other in others
        if other.spec.prefix.overlaps(prefix) and other.metadata.name != pool.metadata.name
    )


def validate_pool_update(stored: IPPool, updated: IPPool) -> None:
    """Check a change of a pool against the stored pool.

    Raises:
        InvalidResource: the change concerns a field that cannot be changed.
    """
    _raise_if_any(updated, _validate_immutable_fields(stored, updated))


def resource_warnings(resource: Resource) -> tuple[str, ...]:
    """What of a resource this release does not act upon, and settings of a pool that are seldom meant, as texts."""
    match resource:
        case IPPool():
            return tuple(f"{key_of(resource)}: {one.value}: {one.reason}" for one in find_unusual_settings(resource))
        case KubeControllersConfiguration(spec=spec) if spec.controllers.load_balancer is not None:
            return (f"{key_of(resource)}: controllers.loadBalancer is stored, but no controller assigns addresses yet",)
        case BGPPeer(spec=spec) if spec.local_workload_selector:
            return (f"{key_of(resource)}: localWorkloadSelector is not yet supported: there is no session",)
        case BGPConfiguration(spec=spec) if spec.has_service_ranges:
            return (f"{key_of(resource)}: ranges of Services are stored, but not advertised yet",)
    return ()


def find_unusual_settings(pool: IPPool) -> Iterator[FieldError]:
    """The settings of a pool that are accepted and seldom meant."""
    spec = pool.spec
    if spec.prefix.family.width - spec.block_length > _LARGE_BLOCK_BITS:
        smaller = spec.prefix.family.width - _LARGE_BLOCK_BITS
        problem = "a block of so many addresses can outgrow what a datastore accepts, and then takes no more"
        yield FieldError("spec.blockSize", f"blockSize {spec.block_length}", f"{problem}; use {smaller} or more")


def _raise_if_any(resource: Resource, problems: Iterable[FieldError]) -> None:
    found = tuple(problems)
    if found:
        raise InvalidResource.from_field_errors(str(key_of(resource)), found)


# --- any kind ------------------------------------------------------------------------------------------------------


def _validate_metadata(resource: Resource) -> Iterator[FieldError]:
    metadata, row = resource.metadata, kind_of(resource)
    if row.has_node_objects:
        if metadata.name != row.fixed_name and not metadata.name.startswith(OF_NODE):
            rule = f"must be {row.fixed_name}, or {OF_NODE} and the name of a node, such as {OF_NODE}node-a"
            yield FieldError("metadata.name", metadata.name, rule)
    elif row.fixed_name and metadata.name != row.fixed_name:
        yield FieldError("metadata.name", metadata.name, f"there is one {row.name}, and its name is {row.fixed_name}")
    if not is_resource_name(metadata.name):
        rule = f"at most {MAX_NAME_LENGTH} lower-case letters, digits, '-' and '.', each part between letters or digits"
        yield FieldError("metadata.name", metadata.name, rule)
    if metadata.namespace and row.scope is ResourceScope.CLUSTER:
        yield FieldError("metadata.namespace", metadata.namespace, f"{row.name} is not namespaced")
    if row.scope is ResourceScope.NAMESPACED and not is_resource_name(metadata.namespace):
        yield FieldError("metadata.namespace", metadata.namespace, f"{row.name} needs the name of a namespace")
    yield from _validate_labels(metadata)
    size = _annotations_size(metadata)
    if size > _MAX_ANNOTATIONS_BYTES:
        yield FieldError("metadata.annotations", f"{size} bytes", f"at most {_MAX_ANNOTATIONS_BYTES} bytes in total")


def _validate_labels(metadata: Metadata) -> Iterator[FieldError]:
    """What an API server would refuse; a resource must be able to move to another datastore."""
    yield from find_label_problems("metadata.labels", metadata.labels)
    yield from find_label_name_problems("metadata.annotations", (name.lower() for name, _text in metadata.annotations))


def _annotations_size(metadata: Metadata) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in metadata.annotations)


def _validate_spec(resource: Resource) -> Iterator[FieldError]:
    match resource:
        case IPPool():
            for rule in _POOL_VALIDATORS:
                yield from rule(resource)
        case IPAMConfiguration():
            yield from _validate_ipam_configuration(resource)
        case Node():
            yield from validate_node(resource)
        case Profile():
            yield from _validate_reserved_profile_names(resource)
            yield from validate_profile(resource)
        case KubeControllersConfiguration():
            yield from _validate_host_endpoint_templates(resource)
        case HostEndpoint() | BGPConfiguration() | BGPPeer() | BGPFilter() | NodeConfiguration():
            yield from validate_network_resource(resource)
        case NetworkPolicy() | GlobalNetworkPolicy() | NetworkSet() | GlobalNetworkSet():
            yield from validate_policy_resource(resource)
        case IPReservation() | WorkloadEndpoint() | ClusterInformation():
            return  # what can be read may be wanted
        case _:
            assert_never(resource)


def _validate_ipam_configuration(configuration: IPAMConfiguration) -> Iterator[FieldError]:
    spec = configuration.spec
    if not spec.is_affinity_strict and not spec.may_auto_allocate_blocks:
        rule = "must be true unless strictAffinity is: a node without blocks would live on borrowed addresses alone"
        yield FieldError("spec.autoAllocateBlocks", "false", rule)
    if spec.max_blocks_per_host > 0 and not spec.is_affinity_strict:
        yield FieldError("spec.maxBlocksPerHost", spec.max_blocks_per_host, "can only be set with strictAffinity true")
    for field, number in (
        ("spec.maxBlocksPerHost", spec.max_blocks_per_host),
        ("spec.ipCooldownSeconds", spec.cooldown_s),
    ):
        if number < 0:
            yield FieldError(field, number, "must not be negative")
    if spec.vm_address_persistence not in _VM_PERSISTENCE:
        yield FieldError(
            "spec.kubeVirtVMAddressPersistence", spec.vm_address_persistence, "must be Enabled or Disabled"
        )


def _validate_host_endpoint_templates(configuration: KubeControllersConfiguration) -> Iterator[FieldError]:
    node, names = configuration.spec.controllers.node, set[str]()
    for index, template in enumerate(() if node is None else node.host_endpoint.templates):
        where = f"spec.controllers.node.hostEndpoint.templates[{index}]"
        if not is_resource_name(template.generate_name):
            yield FieldError(f"{where}.generateName", template.generate_name, "must be a part of a resource's name")
        elif template.generate_name in names:
            yield FieldError(f"{where}.generateName", template.generate_name, "another template has it too")
        names.add(template.generate_name)
        if not template.interface_cidrs and not template.interface_pattern:
            yield FieldError(f"{where}.interfaceCIDRs", "", "must be given, or interfacePattern")
        yield from validate_regular_expression(f"{where}.interfacePattern", template.interface_pattern)
        yield from validate_selector(f"{where}.nodeSelector", template.node_selector)


def _validate_reserved_profile_names(profile: Profile) -> Iterator[FieldError]:
    name = profile.metadata.name
    for prefix, whose in (
        (NAMESPACE_PROFILE_PREFIX, "namespaces"),
        (SERVICE_ACCOUNT_PROFILE_PREFIX, "service accounts"),
    ):
        if name.startswith(prefix):
            yield FieldError("metadata.name", name, f"profiles {prefix}* are made of the orchestrator's {whose}")
    if name == DEFAULT_ALLOW_PROFILE.key.name:
        yield FieldError("metadata.name", name, "it is there in every cluster, and cannot be changed")


# --- one pool by itself --------------------------------------------------------------------------------------------


def _validate_block_size(pool: IPPool) -> Iterator[FieldError]:
    prefix, length = pool.spec.prefix, pool.spec.block_length
    shortest, longest = prefix.family.block_lengths
    if not shortest <= length <= longest:
        (v4_shortest, v4_longest), (v6_shortest, v6_longest) = (family.block_lengths for family in Family)
        rule = (
            f"blockSize must be between {v4_shortest} and {v4_longest} for IPv4 pools, "
            f"and between {v6_shortest} and {v6_longest} for IPv6 pools"
        )
        yield FieldError("spec.blockSize", length, rule)
    elif prefix.length > length and not pool.spec.is_disabled:
        rule = f"IP pool size is too small: blockSize {length} needs a prefix of at most /{length}"
        yield FieldError("spec.cidr", prefix, rule)


def _validate_cidr_range(pool: IPPool) -> Iterator[FieldError]:
    for word, reserved in unusable_ranges(pool.spec.prefix):
        yield FieldError("spec.cidr", pool.spec.prefix, f"IPPool CIDR overlaps with the {word} range {reserved}")


def _validate_encapsulation(pool: IPPool) -> Iterator[FieldError]:
    spec = pool.spec
    if spec.ipip_mode is not Encapsulation.NEVER and spec.vxlan_mode is not Encapsulation.NEVER:
        yield FieldError("spec.vxlanMode", spec.vxlan_mode.value, "ipipMode and vxlanMode cannot both be enabled")
    if spec.ipip_mode is not Encapsulation.NEVER and spec.prefix.family is Family.IPV6:
        yield FieldError("spec.ipipMode", spec.ipip_mode.value, "IPIP is not supported on IPv6 pools")


def _validate_load_balancer_use(pool: IPPool) -> Iterator[FieldError]:
    spec = pool.spec
    if AllowedUse.LOAD_BALANCER not in spec.allowed_uses:
        return
    if set(spec.allowed_uses) != {AllowedUse.LOAD_BALANCER}:
        uses = ", ".join(use.value for use in spec.allowed_uses)
        yield FieldError("spec.allowedUses", uses, "LoadBalancer cannot be combined with other uses")
    for field, mode in (("spec.ipipMode", spec.ipip_mode), ("spec.vxlanMode", spec.vxlan_mode)):
        if mode is not Encapsulation.NEVER:
            yield FieldError(field, mode.value, "must be Never with allowedUses LoadBalancer")
    if spec.is_bgp_export_disabled:
        yield FieldError("spec.disableBGPExport", "true", "must be false with allowedUses LoadBalancer")
    if spec.node_selector != _SELECT_ALL:
        yield FieldError("spec.nodeSelector", spec.node_selector, "must be all() with allowedUses LoadBalancer")


def _validate_selectors(pool: IPPool) -> Iterator[FieldError]:
    spec = pool.spec
    for field, selector in (
        ("spec.nodeSelector", spec.node_selector),
        ("spec.namespaceSelector", spec.namespace_selector),
    ):
        yield from validate_selector(field, selector)
    if spec.namespace_selector and AllowedUse.TUNNEL in spec.allowed_uses:
        rule = "cannot be used with allowedUses Tunnel, which is a default: set allowedUses [Workload]"
        yield FieldError("spec.namespaceSelector", spec.namespace_selector, rule)


_POOL_VALIDATORS: tuple[Callable[[IPPool], Iterator[FieldError]], ...] = (
    _validate_block_size,
    _validate_cidr_range,
    _validate_encapsulation,
    _validate_load_balancer_use,
    _validate_selectors,
)


# --- a change of a pool --------------------------------------------------------------------------------------------


def _validate_immutable_fields(stored: IPPool, updated: IPPool) -> Iterator[FieldError]:
    old, new = stored.spec, updated.spec
    if old.prefix != new.prefix:
        yield FieldError("spec.cidr", new.prefix, f"IPPool CIDR cannot be modified; it is {old.prefix}")
    if old.block_length != new.block_length:
        rule = f"IPPool BlockSize cannot be modified; it is {old.block_length}"
        yield FieldError("spec.blockSize", new.block_length, rule)
    if (AllowedUse.LOAD_BALANCER in old.allowed_uses) != (AllowedUse.LOAD_BALANCER in new.allowed_uses):
        uses = ", ".join(use.value for use in new.allowed_uses)
        yield FieldError("spec.allowedUses", uses, "cannot be changed between LoadBalancer and other uses")
