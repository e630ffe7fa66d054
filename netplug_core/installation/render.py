"""What an Installation installs in a cluster, as far as this release renders it. Pure.

The conflist, the pools, and the pods of the nodes with their environment. Called for a document without problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import evolve, frozen

from netplug_core.installation.conflist import APIEndpoint, render_conflist
from netplug_core.installation.defaults import ResolvedInstallation, resolve
from netplug_core.installation.document import InstallationDocument
from netplug_core.installation.environment import render_environment
from netplug_core.installation.facts import ClusterFacts
from netplug_core.installation.node_daemonset import CONFIG_MAP, CONFIG_MAP_KEY, render_daemonset
from netplug_core.installation.pool_plan import PoolAPI, PoolStep, plan_pools, pools_afterwards
from netplug_core.resources.ippool import IPPool

__all__ = ["SYSTEM_NAMESPACE", "RenderedInstallation", "render"]

SYSTEM_NAMESPACE: Final = "netplug-system"
"""The namespace of netplug's own accounts and pods."""


@frozen(kw_only=True)
class RenderedInstallation:
    """The result. ``pools`` are those of the cluster once the ``steps`` are done.

    A ``conflist`` of None has its reason in ``no_conflist_reason``, which is empty otherwise. Then nothing is installed
    on the nodes either.
    """

    steps: tuple[PoolStep, ...]
    pools: tuple[IPPool, ...]
    conflist: str | None
    no_conflist_reason: str
    environment: Mapping[str, str]
    daemonset: Mapping[str, object] | None

    @property
    def namespace(self) -> Mapping[str, object]:
        """The namespace of everything that has one. Its pods may be privileged (Pod Security Admission)."""
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE, "labels": labels}}

    @property
    def config_map(self) -> Mapping[str, object] | None:
        """The object that the container on every node takes the conflist from."""
        if self.conflist is None:
            return None
        metadata = {"name": CONFIG_MAP, "namespace": SYSTEM_NAMESPACE}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {CONFIG_MAP_KEY: self.conflist}}


def render(
    document: InstallationDocument,
    facts: ClusterFacts,
    *,
    version: str,
    api_group: str = "",
    endpoint: APIEndpoint | None = None,
    pool_api: PoolAPI = PoolAPI.AVAILABLE,
) -> RenderedInstallation:
    """What a document installs. Conflist and environment are those for the pools that the steps lead to.

    ``version`` is the release whose images are installed, such as ``3.33.0``.
    """
    steps = plan_pools(resolve(document, facts), facts, pool_api)
    pools = pools_afterwards(facts, steps)
    later = evolve(facts, pools=pools)
    resolved = resolve(document, later)
    conflist = render_conflist(resolved, later, api_group=api_group, endpoint=endpoint)
    environment = render_environment(resolved, api_group=api_group)
    return RenderedInstallation(
        steps=steps,
        pools=pools,
        conflist=conflist,
        no_conflist_reason=_why_none(resolved) if conflist is None else "",
        environment=environment,
        daemonset=None
        if conflist is None
        else render_daemonset(
            resolved,
            namespace=SYSTEM_NAMESPACE,
            version=version,
            conflist=conflist,
            environment=environment,
            api_group=api_group,
        ),
    )


def _why_none(resolved: ResolvedInstallation) -> str:
    if not resolved.is_netplug:
        return f"the CNI plugin is {resolved.cni.value}"
    return "the IPAM Netplug needs a pool that serves pods, and the Installation creates none"
