"""Which product a cluster is, from what its API and its nodes show. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from netplug_core.decoding.tables import find_member
from netplug_core.operator.objects import Json, find_text
from netplug_core.resources.installation import KubernetesProvider

__all__ = ["detect_provider"]

_OF_GROUPS: Final = {"config.openshift.io": KubernetesProvider.OPENSHIFT}
_OF_LABELS: Final = {
    "eks.amazonaws.com/": KubernetesProvider.EKS,
    "cloud.google.com/gke-": KubernetesProvider.GKE,
    "kubernetes.azure.com/cluster": KubernetesProvider.AKS,
    "com.docker.ucp": KubernetesProvider.DOCKER_ENTERPRISE,
    "run.tanzu.vmware.com/": KubernetesProvider.TKG,
}
"""How labels of the product's nodes begin."""

_OF_VERSIONS: Final = {
    "-eks-": KubernetesProvider.EKS,
    "-gke.": KubernetesProvider.GKE,
    "+rke2r": KubernetesProvider.RKE2,
}
"""What the version of the product's kubelet has in it, such as ``v1.31.2-eks-7f9249a``."""

_OF_NODE_IDS: Final = {"kind://": KubernetesProvider.KIND}
"""How the ``providerID`` of the product's nodes begins."""


def detect_provider(groups: Collection[str], node: Json | None) -> KubernetesProvider:
    """The provider by the API groups that are served, and by one of the nodes; any other if neither shows one."""
    by_group = (provider for group, provider in _OF_GROUPS.items() if group in groups)
    return next(by_group, None) or _provider_of(node or {})


def _provider_of(node: Json) -> KubernetesProvider:
    found = find_member(node, "metadata", "labels")
    labels = tuple(found) if isinstance(found, dict) else ()
    kubelet, identity = find_text(node, "status", "nodeInfo", "kubeletVersion"), find_text(node, "spec", "providerID")
    for begin, provider in _OF_LABELS.items():
        if any(str(label).startswith(begin) for label in labels):
            return provider
    for part, provider in _OF_VERSIONS.items():
        if part in kubelet:
            return provider
    return next((one for begin, one in _OF_NODE_IDS.items() if identity.startswith(begin)), KubernetesProvider.OTHER)
