"""The pod CIDRs that kubeadm has set a cluster up with. Pure."""

from __future__ import annotations

from typing import Final

from netplug_core.addressing import Prefix
from netplug_core.decoding.tables import find_member
from netplug_core.installation.pool_defaults import find_prefix
from netplug_core.operator.objects import Json, ObjectRef

__all__ = ["KUBEADM_CONFIG", "platform_prefixes"]

KUBEADM_CONFIG: Final = ObjectRef("v1", "ConfigMap", "kubeadm-config", "kube-system")
_MEMBER: Final = "podSubnet: "


def platform_prefixes(config: Json | None) -> tuple[Prefix, ...]:
    """The prefixes of the first ``podSubnet`` in the configuration of kubeadm; none if there is none.

    The document is YAML in a text; its line is found without reading the rest, which is of other releases.
    """
    data = find_member(config or {}, "data")
    texts = data.values() if isinstance(data, dict) else ()
    lines = (line.strip() for text in texts if isinstance(text, str) for line in text.splitlines())
    found = next((line.removeprefix(_MEMBER) for line in lines if line.startswith(_MEMBER)), "")
    prefixes = (find_prefix(part.strip().strip("\"'")) for part in found.split(","))
    return tuple(prefix for prefix in prefixes if prefix is not None)
