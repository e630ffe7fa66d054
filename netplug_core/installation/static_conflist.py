"""The conflist of a static manifest, perhaps edited by its users: what an Installation can take over of it. Pure.

It is read as the installer fills it in, with the variables of its container. Each member of the first plugin is taken
over (``read_network``), has to be as the operator renders it, or does not matter. Everything else is a problem.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import evolve, field, frozen

from netplug_core.addressing import Family
from netplug_core.decoding.tables import find_member
from netplug_core.installation.conflist import ENDPOINT_STATUS_DIR, LOG_FILE, NETWORK_NAME
from netplug_core.installation.conflist_template import HostFacts, fill_conflist
from netplug_core.installation.incompatible import IncompatibleCluster
from netplug_core.installation.installer_settings import read_installer_settings
from netplug_core.installation.kubeconfig import FILE_NAME
from netplug_core.installation.rules import SYSCTLS
from netplug_core.installation.static_pod import shown
from netplug_core.names import API_VERSION
from netplug_core.resources.installation import (
    CNIFeatures,
    CNISettings,
    InstallationSpec,
    IPAMSettings,
    Logging,
    LogSettings,
    LogSeverity,
    NetworkSettings,
    PodInterfaceType,
    SpecVersion,
    Switch,
    Sysctl,
)

__all__ = ["CONFLIST", "StaticConflist", "find_conflist_problems", "read_conflist_settings", "read_static_conflist"]

CONFLIST: Final = "ConfigMap kube-system/netplug-config, cni_network_config"
"""The conflist of a static manifest, as messages name it."""

_NODE: Final = "node-of-the-pod"
"""Stands for the name of the node, which differs from node to node."""

_PORTMAP: Final = {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}}
_LEVELS: Final = {
    "error": LogSeverity.ERROR,
    "warning": LogSeverity.WARN,
    "info": LogSeverity.INFO,
    "debug": LogSeverity.DEBUG,
}
_SUBNETS: Final = {"usePodCidr": Family.IPV4, "usePodCidrIPv6": Family.IPV6}
_FEATURES: Final = ("ip_addrs_no_ipam", "floating_ips", "allowed_source_prefixes")
_REMOVE: Final = "an Installation has no such setting; remove it, restart the pods, and try again"
_BY_POOL: Final = "choose pools by their nodeSelector, or by an annotation of namespaces, and remove it"
_FIXES: Final = {"ipam.ipv4_pools": _BY_POOL, "ipam.ipv6_pools": _BY_POOL, "ipam.subnet": _BY_POOL}

_MEMBERS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "log_level": str,
    "log_file_max_size": int,
    "log_file_max_age": int,
    "log_file_max_count": int,
    "mtu": int,
    "policy_setup_timeout_seconds": int,
    "nodename_file_optional": bool,  # the operator's plugin always needs the file
    "container_settings.allow_ip_forwarding": bool,
    "readiness_gates": list,
    "ipam.type": str,
    "ipam.assign_ipv4": str,
    "ipam.assign_ipv6": str,
    **{f"feature_control.{name}": bool for name in _FEATURES},
}
"""Members that are taken over, or do not matter, and their types."""

Json = Mapping[str, object]
Problems = Iterator[IncompatibleCluster]


@frozen(kw_only=True)
class StaticConflist:
    """A conflist with its values. ``members`` are those of the first plugin, by their paths with dots."""

    name: object
    cni_version: object
    members: Mapping[str, object] = field(hash=False)
    others: tuple[Json, ...] = field(hash=False)
    conf_dir: str

    @property
    def families(self) -> frozenset[Family]:
        """The families of addresses that pods get from pools."""
        four, six = (self.members.get(f"ipam.assign_ipv{family.value}") for family in Family)
        return frozenset({Family.IPV4} if four != "false" else ()) | ({Family.IPV6} if six == "true" else frozenset())


def read_static_conflist(variables: Mapping[str, str]) -> StaticConflist:
    """The conflist that the installer makes with its variables.

    Raises:
        ConfigurationError: a variable, or the template, is not accepted by the installer.
    """
    settings = evolve(read_installer_settings(variables), node_name=_NODE)
    filled = fill_conflist(settings.template, CONFLIST, settings, HostFacts(host_name=_NODE))
    found: object = json.loads(filled.text)
    whole = found if isinstance(found, Mapping) else {}
    plugins = [one for one in _list(whole.get("plugins")) if isinstance(one, Mapping)]
    return StaticConflist(
        name=whole.get("name"),
        cni_version=whole.get("cniVersion"),
        members=dict(_leaves(plugins[0] if plugins else {}, "")),
        others=tuple(plugins[1:]),
        conf_dir=settings.net_dir,
    )


def find_conflist_problems(conflist: StaticConflist, api_group: str, pool_families: frozenset[Family]) -> Problems:
    """What an Installation cannot take over. ``pool_families`` are those of the pools that serve pods."""
    if conflist.name != NETWORK_NAME:
        yield _problem("name", conflist.name, f"the operator's network is {NETWORK_NAME}; addresses are held under it")
    if conflist.cni_version not in {version.value for version in SpecVersion}:
        yield _problem("cniVersion", conflist.cni_version, "0.3.1, 0.4.0 or 1.0.0 is expected")
    asserted = _asserted(conflist.conf_dir, api_group)
    for path, value in conflist.members.items():
        if path in asserted:
            accepted, fix = asserted[path]
            if value not in accepted:
                yield _problem(path, shown(path, value), fix)
        elif path in _MEMBERS:
            if not isinstance(value, _MEMBERS[path]) or (_MEMBERS[path] is int and isinstance(value, bool)):
                yield _problem(path, value, "a value of another type is expected")
        elif not _is_host_local_range(conflist, path):
            yield _problem(path, shown(path, value), _FIXES.get(path, _REMOVE))
    yield from _value_problems(conflist)
    yield from _ipam_problems(conflist, pool_families)
    yield from _chain_problems(conflist)


def read_conflist_settings(conflist: StaticConflist) -> InstallationSpec:
    """What a conflist without problems says, in the fields of an Installation. An MTU of 0 is left out."""
    found = conflist.members
    size, age, count = (_number(found.get(f"log_file_max_{name}")) for name in ("size", "age", "count"))
    severity = _LEVELS.get(str(found.get("log_level", "info")).lower())
    log = LogSettings(
        severity=None if severity is LogSeverity.INFO else severity,
        max_size=f"{size}Mi" if size else "",
        max_age_days=age or None,
        max_count=count or None,
    )
    version = next((one for one in SpecVersion if one.value == conflist.cni_version), None)
    ipam = "HostLocal" if found.get("ipam.type") == "host-local" else "Netplug"
    forwarding = found.get("container_settings.allow_ip_forwarding") is True
    network = NetworkSettings(
        cni=CNISettings(
            type="Netplug",
            ipam=IPAMSettings(type=ipam),
            spec_version=None if version is SpecVersion.V1_0_0 else version,
        ),
        policy_setup_timeout_s=_number(found.get("policy_setup_timeout_seconds")) or None,
        mtu=_number(found.get("mtu")) or None,
        host_ports=Switch.ENABLED if _PORTMAP in conflist.others else Switch.DISABLED,
        container_ip_forwarding=Switch.ENABLED if forwarding else None,
        pod_interface_type=PodInterfaceType.NETKIT if found.get("device_type") == "netkit" else None,
        sysctls=tuple(
            Sysctl(key=key, value=str(value)) for one in conflist.others for key, value in _sysctls(one).items()
        ),
        features=CNIFeatures(
            **{name: Switch.ENABLED for name in _FEATURES if found.get(f"feature_control.{name}") is True}
        ),
        readiness_gates=tuple(map(str, _list(found.get("readiness_gates")))),
    )
    return InstallationSpec(network=network, logging=Logging(cni=log))


# --- problems --------------------------------------------------------------------------------------------------------


def _asserted(conf_dir: str, api_group: str) -> dict[str, tuple[tuple[object, ...], str]]:
    """Members that have to be as the operator renders them: what is accepted, and what to do."""
    groups = (API_VERSION,) if api_group else ("", "crd.projectnetplug.org/v1")
    kubeconfig = f"{conf_dir}/{FILE_NAME}"
    return {
        "type": (("netplug",), "netplug is expected; a cluster with flannel's plugin cannot be converted"),
        "datastore_type": (
            ("kubernetes",),
            "the operator works with the Kubernetes API only; move the data first (netplugctl datastore migrate)",
        ),
        "netplug_api_group": (groups, f"the cluster has {groups[-1]}"),
        "nodename": ((_NODE,), "__KUBERNETES_NODE_NAME__ is expected"),
        "policy.type": (("k8s",), "k8s is expected"),
        "kubernetes.kubeconfig": ((kubeconfig,), "__KUBECONFIG_FILEPATH__ is expected"),
        "log_file_path": ((LOG_FILE,), f"the operator's log is {LOG_FILE}; set that"),
        "endpoint_status_dir": ((ENDPOINT_STATUS_DIR,), f"{ENDPOINT_STATUS_DIR} is expected"),
        "device_type": (("", "veth", "netkit"), "veth or netkit is expected"),
    }


def _value_problems(conflist: StaticConflist) -> Problems:
    if "datastore_type" not in conflist.members:
        fix = "without it the datastore is an etcd, and the operator works with the Kubernetes API only"
        yield _problem("datastore_type", None, f"{fix}; move the data first (netplugctl datastore migrate)")
    level = conflist.members.get("log_level", "info")
    if str(level).lower() not in _LEVELS:
        yield _problem("log_level", level, "ERROR, WARNING, INFO or DEBUG is expected")
    for family in Family:
        path = f"ipam.assign_ipv{family.value}"
        if conflist.members.get(path, "") not in ("", "true", "false"):
            yield _problem(path, conflist.members[path], "true or false, as a text, is expected")


def _ipam_problems(conflist: StaticConflist, pool_families: frozenset[Family]) -> Problems:
    kind = conflist.members.get("ipam.type")
    if kind == "host-local":
        names, wanted = _subnets(conflist.members), pool_families or {Family.IPV4}
        if [_SUBNETS.get(str(name)) for name in names] != [family for family in Family if family in wanted]:
            fix = "the operator renders usePodCidr with an IPv4 pool, and usePodCidrIPv6 with an IPv6 pool"
            yield _problem("ipam", names, fix)
    elif kind == "netplug-ipam":
        for family in sorted(pool_families - conflist.families, key=lambda family: family.value):
            fix = f"the cluster has an {family} pool, from which the operator's plugin assigns; disable it, or set true"
            yield _problem(f"ipam.assign_ipv{family.value}", "false", fix)
        for family in sorted(conflist.families - pool_families, key=lambda family: family.value):
            path = f"ipam.assign_ipv{family.value}"
            if pool_families and conflist.members.get(path) == "true":
                yield _problem(
                    path, "true", f"the cluster has no {family} pool that serves pods; create one, or set false"
                )
    else:
        yield _problem("ipam.type", kind, "netplug-ipam or host-local is expected")


def _chain_problems(conflist: StaticConflist) -> Problems:
    for position, plugin in enumerate(conflist.others, 1):
        where, kind = f"plugins[{position}]", plugin.get("type")
        if kind == "tuning":
            extra = sorted({*plugin} - {"type", "sysctl"} | ({*_sysctls(plugin)} - {*SYSCTLS}))
            if extra:
                yield _problem(where, ", ".join(extra), f"of tuning, {', '.join(SYSCTLS)} can be taken over")
        elif plugin != _PORTMAP:
            fix = "portmap with snat and portMappings, and tuning, can be taken over; remove it"
            yield _problem(where, kind if kind != "portmap" else plugin, fix)


def _is_host_local_range(conflist: StaticConflist, path: str) -> bool:
    return conflist.members.get("ipam.type") == "host-local" and path in ("ipam.subnet", "ipam.ranges")


def _problem(path: str, value: object, fix: str) -> IncompatibleCluster:
    return IncompatibleCluster(CONFLIST, value, fix, path)


# --- reading ---------------------------------------------------------------------------------------------------------


def _leaves(members: Json, above: str) -> Iterator[tuple[str, object]]:
    """Each value that is no object, by its path; an empty object sets nothing."""
    for name, value in members.items():
        path = f"{above}.{name}".removeprefix(".")
        if isinstance(value, Mapping):
            yield from _leaves(value, path)
        else:
            yield path, value


def _subnets(members: Mapping[str, object]) -> list[object]:
    """The subnets of host-local in their order: one, or one of each range."""
    if "ipam.subnet" in members:
        return [members["ipam.subnet"]]
    ranges = _list(members.get("ipam.ranges"))
    return [find_member(one, "subnet") for group in ranges for one in _list(group) if isinstance(one, Mapping)]


def _sysctls(plugin: Json) -> Json:
    found = plugin.get("sysctl") if plugin.get("type") == "tuning" else None
    return found if isinstance(found, Mapping) else {}


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
