"""What is known of the cluster that an Installation is for."""

from __future__ import annotations

from attrs import frozen

from netplug_core.addressing import Prefix
from netplug_core.installation.selection import CNIType
from netplug_core.resources.installation import KubernetesProvider
from netplug_core.resources.ippool import IPPool

__all__ = ["ClusterFacts"]


@frozen(kw_only=True)
class ClusterFacts:
    """The facts that defaults and rules depend on; without arguments, a new cluster of which nothing is known.

    ``provider`` is the detected one. ``recorded_provider`` was detected when defaults were chosen first, and
    ``recorded_cni`` is what was chosen: they go before every default. ``pools`` are the pools of the cluster.
    ``platform_prefixes`` are the pod CIDRs that the platform was set up with, in its order.
    ``service_prefixes`` are those of services, as far as an operator knows them.
    """

    provider: KubernetesProvider = KubernetesProvider.OTHER
    recorded_provider: KubernetesProvider | None = None
    has_aws_node: bool = False
    recorded_cni: CNIType | None = None
    pools: tuple[IPPool, ...] = ()
    platform_prefixes: tuple[Prefix, ...] = ()
    service_prefixes: tuple[Prefix, ...] = ()
