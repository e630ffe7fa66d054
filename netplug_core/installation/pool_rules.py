"""What is refused of the pools of an Installation, alone and beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from netplug_core.addressing import Family
from netplug_core.installation.defaults import ResolvedInstallation
from netplug_core.installation.document import InstallationDocument
from netplug_core.installation.facts import ClusterFacts
from netplug_core.installation.pool_defaults import POOLS_PATH, SELECT_ALL, ResolvedPool, find_prefix
from netplug_core.installation.problems import InvalidInstallation, ProblemClass
from netplug_core.installation.selection import IPAMType
from netplug_core.resources.installation import MAX_INSTALLATION_POOLS, PoolEncapsulation, Switch
from netplug_core.resources.validation import FieldError, InvalidResource, validate_resource

__all__ = ["find_encapsulation_problems", "find_entry_problems", "find_pool_problems"]

_IPIP: Final = (PoolEncapsulation.IPIP, PoolEncapsulation.IPIP_CROSS_SUBNET)
_VXLAN: Final = (PoolEncapsulation.VXLAN, PoolEncapsulation.VXLAN_CROSS_SUBNET)
# The fields of a stored pool, as an entry of an Installation spells them, with the class of their problems.
_FIELDS: Final = {
    "metadata.name": ("name", ProblemClass.FORMAT),
    "spec.cidr": ("cidr", ProblemClass.OUT_OF_RANGE),
    "spec.blockSize": ("blockSize", ProblemClass.OUT_OF_RANGE),
    "spec.nodeSelector": ("nodeSelector", ProblemClass.FORMAT),
    "spec.allowedUses": ("allowedUses", ProblemClass.INCOMPATIBLE),
    "spec.ipipMode": ("encapsulation", ProblemClass.INCOMPATIBLE),
    "spec.vxlanMode": ("encapsulation", ProblemClass.INCOMPATIBLE),
    "spec.disableBGPExport": ("disableBGPExport", ProblemClass.INCOMPATIBLE),
}


def find_entry_problems(document: InstallationDocument) -> Iterator[InvalidInstallation]:
    """What is wrong with entries in any cluster: their number, CIDRs, block sizes and selectors."""
    listed = document.installation.spec.network.pools or ()
    where = document.where
    if len(listed) > MAX_INSTALLATION_POOLS:
        accepted = f"at most {MAX_INSTALLATION_POOLS} pools"
        yield InvalidInstallation(where, f"{len(listed)} pools", accepted, ProblemClass.OUT_OF_RANGE, (POOLS_PATH,))
    for index, entry in enumerate(listed):
        path = f"{POOLS_PATH}[{index}]"
        prefix = find_prefix(entry.cidr)
        if prefix is None:
            problem_class = ProblemClass.FORMAT if entry.cidr else ProblemClass.REQUIRED
            accepted = "a CIDR such as 10.0.0.0/16 is expected"
            yield InvalidInstallation(where, entry.cidr or None, accepted, problem_class, (f"{path}.cidr",))
            continue
        shortest, longest = prefix.family.block_lengths
        if entry.block_size is not None and not shortest <= entry.block_size <= longest:
            accepted = f"{shortest} to {longest} for an {prefix.family} pool"
            field = (f"{path}.blockSize",)
            yield InvalidInstallation(where, entry.block_size, accepted, ProblemClass.OUT_OF_RANGE, field)
        if entry.node_selector == "":
            field = (f"{path}.nodeSelector",)
            yield InvalidInstallation(where, "", f"a selector such as {SELECT_ALL}", ProblemClass.REQUIRED, field)


def find_pool_problems(
    document: InstallationDocument, resolved: ResolvedInstallation, facts: ClusterFacts
) -> Iterator[InvalidInstallation]:
    """What is wrong with the pools that the entries become: by themselves, beside each other, in this cluster."""
    for one in resolved.pools:
        yield from _own_problems(document, one)
        yield from _platform_problems(document, one, facts)
        if not resolved.is_netplug and one.pool.spec.node_selector not in ("", SELECT_ALL):
            accepted = f"{SELECT_ALL} is expected: the CNI plugin {resolved.cni.value} assigns from every pool"
            yield _problem(document, one, "nodeSelector", one.pool.spec.node_selector, accepted)
    yield from _neighbour_problems(document, resolved.pools)


def find_encapsulation_problems(
    document: InstallationDocument, resolved: ResolvedInstallation
) -> Iterator[InvalidInstallation]:
    """Encapsulations that the family, IPAM, BGP or CNI plugin exclude (V8 to V11)."""
    for one in resolved.pools:
        value, prefix = one.encapsulation, one.pool.spec.prefix
        if value in _IPIP and prefix.family is Family.IPV6:
            accepted = f"the IPv6 pool {prefix} can have VXLAN, VXLANCrossSubnet or None"
        elif not resolved.is_netplug and value is not PoolEncapsulation.NONE:
            accepted = f"None is expected: netplug programs no routes with the CNI plugin {resolved.cni.value}"
        elif resolved.ipam is IPAMType.HOST_LOCAL and value in _VXLAN:
            accepted = (
                f"the CNI plugin {resolved.cni.value} with the IPAM HostLocal can have IPIP, IPIPCrossSubnet or None"
            )
        elif _needs_bgp(resolved, value):
            accepted = "with bgp Disabled nothing programs routes without encapsulation: set bgp Enabled, IPIP or VXLAN"
        else:
            continue
        yield _problem(document, one, "encapsulation", value.value, accepted)


def _needs_bgp(resolved: ResolvedInstallation, value: PoolEncapsulation) -> bool:
    """Without BGP the node process programs the routes of encapsulated packets only."""
    return (
        resolved.is_netplug
        and resolved.ipam is IPAMType.NETPLUG
        and resolved.bgp is Switch.DISABLED
        and value is PoolEncapsulation.NONE
    )


def _own_problems(document: InstallationDocument, one: ResolvedPool) -> Iterator[InvalidInstallation]:
    """The rules of every pool; what ``find_entry_problems`` names is left out."""
    try:
        validate_resource(one.pool)
    except InvalidResource as error:
        for found in error.field_errors:
            if not _is_judged_elsewhere(one, found):
                name, problem_class = _FIELDS[found.field]
                yield _problem(document, one, name, found.value, found.reason, problem_class)


def _is_judged_elsewhere(one: ResolvedPool, found: FieldError) -> bool:
    shortest, longest = one.pool.spec.prefix.family.block_lengths
    match found.field:
        case "spec.blockSize":
            return not shortest <= one.pool.spec.block_length <= longest
        case "spec.nodeSelector":
            return not one.pool.spec.node_selector
        case "spec.ipipMode":
            return one.pool.spec.prefix.family is Family.IPV6
    return False


def _platform_problems(
    document: InstallationDocument, one: ResolvedPool, facts: ClusterFacts
) -> Iterator[InvalidInstallation]:
    """A new cluster's platform routes only the pod CIDRs that it was set up with."""
    platform, prefix = facts.platform_prefixes, one.pool.spec.prefix
    if platform and not facts.pools and not any(prefix in whole for whole in platform):
        accepted = f"a CIDR within the platform's {', '.join(map(str, platform))}"
        yield _problem(document, one, "cidr", str(prefix), accepted)


def _neighbour_problems(
    document: InstallationDocument, pools: tuple[ResolvedPool, ...]
) -> Iterator[InvalidInstallation]:
    for index, one in enumerate(pools):
        for other in pools[:index]:
            prefix, others = one.pool.spec.prefix, other.pool.spec.prefix
            fields = (f"{other.path}.cidr", f"{one.path}.cidr")
            if prefix == others:
                accepted = "each pool needs a CIDR of its own"
                yield InvalidInstallation(document.where, str(prefix), accepted, ProblemClass.DUPLICATE, fields)
                continue  # made of the CIDR, the names are equal too
            if prefix.overlaps(others):
                both = f"{others} and {prefix}"
                accepted = "pools cannot overlap"
                yield InvalidInstallation(document.where, both, accepted, ProblemClass.CONFLICT, fields)
            if one.pool.metadata.name == other.pool.metadata.name:
                fields = (f"{other.path}.name", f"{one.path}.name")
                accepted = "each pool needs a name of its own"
                name = one.pool.metadata.name
                yield InvalidInstallation(document.where, name, accepted, ProblemClass.DUPLICATE, fields)


def _problem(
    document: InstallationDocument,
    one: ResolvedPool,
    name: str,
    value: object,
    accepted: str,
    problem_class: ProblemClass = ProblemClass.INCOMPATIBLE,
) -> InvalidInstallation:
    field = f"{one.path or POOLS_PATH}.{name}"
    return InvalidInstallation(document.where, value, accepted, problem_class, (field,))
