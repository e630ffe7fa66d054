"""The environment of the container on every node: how the settings outside of the conflist reach it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from netplug_core.addressing import Family
from netplug_core.installation.defaults import ResolvedInstallation
from netplug_core.installation.selection import IPAMType
from netplug_core.resources.installation import AddressDetection, KubernetesProvider, Switch

__all__ = ["render_environment"]

_MTU_VARIABLES: Final = ("NETPLUG_IPINIPMTU", "NETPLUG_VXLANMTU")
_SUFFIXES: Final = {Family.IPV4: "", Family.IPV6: "6"}


def render_environment(resolved: ResolvedInstallation, *, api_group: str = "") -> Mapping[str, str]:
    """The variables with a fixed value, sorted by name; ``NODENAME`` and ``NAMESPACE`` are the pod's own.

    ``api_group`` is as in ``render_conflist``.
    """
    variables = {
        "DATASTORE_TYPE": "kubernetes",
        "WAIT_FOR_DATASTORE": "true",
        "NO_DEFAULT_POOLS": "true",
        "CLUSTER_TYPE": ",".join(_cluster_type(resolved)),
        "NETPLUG_MANAGE_CNI": str(resolved.is_netplug).lower(),
        "NETPLUG_NETWORKING_BACKEND": _backend(resolved),
    }
    if resolved.ipam is IPAMType.HOST_LOCAL:
        variables["USE_POD_CIDR"] = "true"
    if resolved.mtu:
        variables |= dict.fromkeys(_MTU_VARIABLES, str(resolved.mtu))
    if api_group:
        variables["NETPLUG_API_GROUP"] = api_group
    if resolved.policy_setup_timeout_s:
        variables["NETPLUG_ENDPOINT_STATUS_PATH_PREFIX"] = "/var/run/netplug"
    for family, detection in ((Family.IPV4, resolved.ipv4_detection), (Family.IPV6, resolved.ipv6_detection)):
        variables |= _detection_variables(_SUFFIXES[family], detection)
    return dict(sorted(variables.items()))


def _cluster_type(resolved: ResolvedInstallation) -> list[str]:
    is_known = resolved.provider is not KubernetesProvider.OTHER
    provider = [resolved.provider.value.lower()] if is_known else []
    return ["k8s", "operator", *provider, *(["bgp"] if resolved.bgp is Switch.ENABLED else [])]


def _backend(resolved: ResolvedInstallation) -> str:
    if resolved.bgp is Switch.ENABLED:
        return "bird"
    return "vxlan" if resolved.ipam is IPAMType.NETPLUG else "none"


def _detection_variables(suffix: str, detection: AddressDetection | None) -> dict[str, str]:
    method = "" if detection is None else _method(detection)
    if not method:
        return {f"IP{suffix}": "none"}
    return {f"IP{suffix}": "autodetect", f"IP{suffix}_AUTODETECTION_METHOD": method}


def _method(detection: AddressDetection) -> str:
    """The one method that is set; empty if none is."""
    methods = {
        "first-found": detection.is_first_found,
        "kubernetes-internal-ip": detection.kubernetes is not None,
        f"interface={detection.interface}": detection.interface,
        f"skip-interface={detection.skip_interface}": detection.skip_interface,
        f"can-reach={detection.can_reach}": detection.can_reach,
        f"cidr={','.join(detection.cidrs)}": detection.cidrs,
    }
    return next((text for text, is_set in methods.items() if is_set), "")
