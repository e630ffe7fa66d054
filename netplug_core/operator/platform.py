"""What others have set a cluster up with: the CIDRs of kubeadm, and another CNI plugin. Pure."""

from __future__ import annotations

from typing import Final

from netplug_core.addressing import Prefix
from netplug_core.decoding.tables import find_member
from netplug_core.installation.pool_defaults import find_prefix
from netplug_core.operator.objects import Json, ObjectRef

__all__ = ["AWS_NODE", "KUBEADM_CONFIG", "platform_prefixes", "service_prefixes"]

AWS_NODE: Final = ObjectRef("apps/v1", "DaemonSet", "aws-node", "kube-system")
"""What shows that the cluster has the CNI plugin of Amazon."""

KUBEADM_CONFIG: Final = ObjectRef("v1", "ConfigMap", "kubeadm-config", "kube-system")


def platform_prefixes(config: Json | None) -> tuple[Prefix, ...]:
    """The prefixes that nodes take the addresses of their pods from; none if they are not known."""
    return _prefixes_at(config, "podSubnet: ")


def service_prefixes(config: Json | None) -> tuple[Prefix, ...]:
    """The prefixes of the addresses of services; none if they are not known."""
    return _prefixes_at(config, "serviceSubnet: ")


def _prefixes_at(config: Json | None, member: str) -> tuple[Prefix, ...]:
    """The prefixes of the first such member in the configuration of kubeadm; none if there is none.

    The document is YAML in a text; its line is found without reading the rest, which is of other releases.
    """
    data = find_member(config or {}, "data")
    texts = data.values() if isinstance(data, dict) else ()
    lines = (line.strip() for text in texts if isinstance(text, str) for line in text.splitlines())
    found = next((line.removeprefix(member) for line in lines if line.startswith(member)), "")
    prefixes = (find_prefix(part.strip().strip("\"'")) for part in found.split(","))
    return tuple(prefix for prefix in prefixes if prefix is not None)
