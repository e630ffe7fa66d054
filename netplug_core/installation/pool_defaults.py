"""The pools that an Installation asks for, with nothing left open, as the pools of the datastore."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.installation.facts import ClusterFacts
from netplug_core.installation.selection import CNIType, IPAMType
from netplug_core.resources.installation import (
    InstallationPool,
    KubernetesProvider,
    PoolEncapsulation,
    Switch,
)
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, Encapsulation, IPPool, IPPoolSpec
from netplug_core.resources.metadata import Metadata

__all__ = [
    "POOLS_PATH",
    "SELECT_ALL",
    "ResolvedPool",
    "default_pools",
    "encapsulation_of",
    "find_prefix",
    "find_service_overlaps",
]

POOLS_PATH: Final = "spec.netplugNetwork.ipPools"
SELECT_ALL: Final = "all()"
_DEFAULT_NAMES: Final = {family: f"default-ipv{family.value}-ippool" for family in Family}
_MODES: Final = {
    PoolEncapsulation.IPIP: (Encapsulation.ALWAYS, Encapsulation.NEVER),
    PoolEncapsulation.IPIP_CROSS_SUBNET: (Encapsulation.CROSS_SUBNET, Encapsulation.NEVER),
    PoolEncapsulation.VXLAN: (Encapsulation.NEVER, Encapsulation.ALWAYS),
    PoolEncapsulation.VXLAN_CROSS_SUBNET: (Encapsulation.NEVER, Encapsulation.CROSS_SUBNET),
    PoolEncapsulation.NONE: (Encapsulation.NEVER, Encapsulation.NEVER),
}


@frozen(kw_only=True)
class ResolvedPool:
    """A pool that the cluster shall have. ``path`` is its entry in the document; empty if it is a default."""

    path: str
    pool: IPPool
    encapsulation: PoolEncapsulation


def default_pools(
    listed: tuple[InstallationPool, ...] | None,
    *,
    facts: ClusterFacts,
    cni: CNIType,
    ipam: IPAMType,
    provider: KubernetesProvider,
) -> tuple[ResolvedPool, ...]:
    """The pools of the list, or those of a new cluster that lists none. Entries without a usable CIDR are left out.

    With pools in the cluster and no list, the pools are the business of others.
    """
    if listed is not None:
        entries = [(f"{POOLS_PATH}[{index}]", pool) for index, pool in enumerate(listed)]
    elif facts.pools:
        entries = []
    else:
        entries = [("", pool) for pool in _pools_of_new_cluster(facts, ipam, provider)]
    readable = [(path, pool, prefix) for path, pool in entries if (prefix := find_prefix(pool.cidr)) is not None]
    families = [prefix.family for _path, _pool, prefix in readable]
    is_plain = len(set(families)) == len(families)  # one pool, or one of each family
    resolved = []
    for path, pool, prefix in readable:
        name = pool.name or _default_name(prefix, facts, is_plain=is_plain)
        resolved.append(_resolve_pool(path, pool, prefix, name, cni))
    return tuple(resolved)


def encapsulation_of(spec: IPPoolSpec) -> PoolEncapsulation | None:
    """How an Installation spells the encapsulation of a pool; None if it cannot."""
    modes = (spec.ipip_mode, spec.vxlan_mode)
    return next((one for one, of_pool in _MODES.items() if of_pool == modes), None)


def find_prefix(text: str) -> Prefix | None:
    """The prefix of a CIDR, host bits cleared; None if the text is no CIDR."""
    if "/" not in text:
        return None
    try:
        return Prefix.enclosing(text)
    except ValueError:
        return None


def find_service_overlaps(pools: Iterable[IPPool], services: Iterable[Prefix]) -> Iterator[str]:
    """Pools with addresses of services, as sentences: a packet to such a pod goes to a service, if to anything."""
    ranges = tuple(services)
    for pool in pools:
        for service in ranges:
            if pool.spec.prefix.overlaps(service):
                what = f"it has addresses of the cluster's services ({service}), so that pods with them are not reached"
                yield f"IPPool({pool.metadata.name}): spec.cidr: {pool.spec.prefix}: {what}; choose another range"


def _pools_of_new_cluster(
    facts: ClusterFacts, ipam: IPAMType, provider: KubernetesProvider
) -> tuple[InstallationPool, ...]:
    if facts.platform_prefixes:
        prefixes = tuple(dict.fromkeys(facts.platform_prefixes))
        firsts = {prefix.family: prefix for prefix in reversed(prefixes)}
        names = {prefix: _DEFAULT_NAMES[family] for family, prefix in firsts.items()}
        return tuple(InstallationPool(cidr=str(prefix), name=names.get(prefix, "")) for prefix in prefixes)
    if ipam is not IPAMType.NETPLUG:
        return ()
    if provider is KubernetesProvider.EKS:
        return (InstallationPool(cidr="172.16.0.0/16", encapsulation=PoolEncapsulation.VXLAN),)
    return (InstallationPool(cidr="192.168.0.0/16"),)


def _default_name(prefix: Prefix, facts: ClusterFacts, *, is_plain: bool) -> str:
    for pool in facts.pools:
        if pool.spec.prefix == prefix:
            return pool.metadata.name
    if is_plain:
        return _DEFAULT_NAMES[prefix.family]
    network = ipaddress.ip_address(str(prefix.first)).exploded.replace(":", ".")
    return f"{network}-{prefix.length}"


def _resolve_pool(path: str, pool: InstallationPool, prefix: Prefix, name: str, cni: CNIType) -> ResolvedPool:
    uses = pool.allowed_uses or (AllowedUse.WORKLOAD, AllowedUse.TUNNEL)
    encapsulation = pool.encapsulation or _default_encapsulation(prefix, uses, cni)
    ipip, vxlan = _MODES[encapsulation]
    nat = pool.nat_outgoing or (Switch.ENABLED if prefix.family is Family.IPV4 else Switch.DISABLED)
    spec = IPPoolSpec(
        prefix=prefix,
        block_length=_block_length(pool, prefix.family),
        is_disabled=pool.is_new_allocation_disabled,
        allowed_uses=uses,
        node_selector=SELECT_ALL if pool.node_selector is None else pool.node_selector,
        assignment_mode=pool.assignment_mode or AssignmentMode.AUTOMATIC,
        ipip_mode=ipip,
        vxlan_mode=vxlan,
        has_outgoing_nat=nat is Switch.ENABLED,
        is_bgp_export_disabled=pool.is_bgp_export_disabled,
    )
    return ResolvedPool(path=path, pool=IPPool(metadata=Metadata(name=name), spec=spec), encapsulation=encapsulation)


def _default_encapsulation(prefix: Prefix, uses: tuple[AllowedUse, ...], cni: CNIType) -> PoolEncapsulation:
    """No packet is wrapped for an address of a load balancer: those pools cannot have an encapsulation."""
    is_wrapped = prefix.family is Family.IPV4 and cni is CNIType.NETPLUG and AllowedUse.LOAD_BALANCER not in uses
    return PoolEncapsulation.IPIP if is_wrapped else PoolEncapsulation.NONE


def _block_length(pool: InstallationPool, family: Family) -> int:
    """A number that is no prefix length is refused by the rules; its pool has the default."""
    if pool.block_size is None or not 0 <= pool.block_size <= family.width:
        return family.default_block_length
    return pool.block_size
