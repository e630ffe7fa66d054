"""The objects that an Installation wants in the cluster, in the order in which they are applied. Pure."""

from __future__ import annotations

from typing import Final

from netplug_core.installation.node_daemonset import CONFIG_MAP, NODE_ACCOUNT
from netplug_core.installation.render import SYSTEM_NAMESPACE, RenderedInstallation
from netplug_core.installation.static_manifest import STATIC_NAMESPACE
from netplug_core.operator.cluster import Shipped
from netplug_core.operator.crd_mode import ClusterMode
from netplug_core.operator.objects import Json, ObjectRef, marked, ref_of

__all__ = [
    "CONFIG_MAP_REF", "DAEMONSET_REF", "NAMESPACE_REF", "STATIC_DAEMONSET_REF", "installed_refs", "wanted_definitions",
    "wanted_objects",
]  # fmt: skip

NAMESPACE_REF: Final = ObjectRef("v1", "Namespace", SYSTEM_NAMESPACE)
CONFIG_MAP_REF: Final = ObjectRef("v1", "ConfigMap", CONFIG_MAP, SYSTEM_NAMESPACE)
DAEMONSET_REF: Final = ObjectRef("apps/v1", "DaemonSet", NODE_ACCOUNT, SYSTEM_NAMESPACE)
STATIC_DAEMONSET_REF: Final = ObjectRef("apps/v1", "DaemonSet", NODE_ACCOUNT, STATIC_NAMESPACE)
"""The DaemonSet of a static manifest. Its plugin has its rights by the cluster role that an Installation has too."""


def wanted_objects(rendered: RenderedInstallation, shipped: Shipped) -> tuple[Json, ...]:
    """Everything that is installed. Without a conflist there is neither ConfigMap nor DaemonSet."""
    accounts = (*shipped.plugin_accounts, *shipped.node_accounts)
    objects = (rendered.namespace, *accounts, rendered.config_map, rendered.daemonset)
    return tuple(marked(one) for one in objects if one is not None)


def wanted_definitions(mode: ClusterMode, shipped: Shipped) -> tuple[Json, ...]:
    """The definitions of a mode, and before them those of the operator's own kinds, and what protects all of them."""
    return tuple(map(marked, shipped.all_definitions(mode)))


def installed_refs(shipped: Shipped) -> tuple[ObjectRef, ...]:
    """The names of everything that an Installation may have installed, definitions apart."""
    accounts = (*shipped.plugin_accounts, *shipped.node_accounts)
    return (NAMESPACE_REF, *map(ref_of, accounts), CONFIG_MAP_REF, DAEMONSET_REF)
