"""The fields of an Installation for people and servers: what each is for, and the OpenAPI schema of the kind.

The definition of the kind, the schema of the chart's values and ``docs/installation.md`` are made of it. Rules in the
API's expression language (CEL) have what an API server can check of one object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from attrs import frozen

from netplug_core.decoding.tables import Schema, collect_fields, table_schema
from netplug_core.installation.document import INSTALLATION_TABLES, CNIType, IPAMType
from netplug_core.resources.installation import (
    INSTALLATION_NAME,
    MAX_INSTALLATION_POOLS,
    OVERLAY_NAME,
    InstallationSpec,
)

__all__ = [
    "FIELDS", "FieldText", "custom_resource", "field_schemas", "find_field_text", "installation_schema",
    "spec_schema",
]  # fmt: skip


# --- what each field is for -------------------------------------------------------------------------------------------


@frozen
class FieldText:
    """The texts about one field; an object of fields has no default and ends up nowhere by itself."""

    effect: str
    default: str = ""
    ends_up_in: str = ""


_AFFECTS_POOL: Final = "`{}` of the IPPool"
_CONFLIST: Final = "`{}` in the conflist"
_IMAGES: Final = "image references"
_NETPLUG_ONLY: Final = "only with the CNI plugin Netplug"
_POOL: Final = "netplugNetwork.ipPools[]"
_METHOD: Final = "a method of finding the node's address: "

_DETECTION: Final[Mapping[str, FieldText]] = {
    "firstFound": FieldText(f"{_METHOD}the first usable address", "false", "`first-found`"),
    "kubernetes": FieldText(f"{_METHOD}that of the Node object", "unset", "`kubernetes-internal-ip`"),
    "interface": FieldText(f"{_METHOD}interfaces that match a regular expression", "unset", "`interface=…`"),
    "skipInterface": FieldText(f"{_METHOD}interfaces that do not match one", "unset", "`skip-interface=…`"),
    "canReach": FieldText(f"{_METHOD}the one that reaches a host", "unset", "`can-reach=…`"),
    "cidrs": FieldText(f"{_METHOD}one within these CIDRs", "unset", "`cidr=…`"),
}

FIELDS: Final[Mapping[str, FieldText]] = {
    "netplugNetwork": FieldText("the pods' network"),
    "netplugNetwork.cni": FieldText("the CNI plugin and its IPAM"),
    "netplugNetwork.cni.type": FieldText(
        "the CNI plugin that connects pods; letter case is ignored",
        "by provider: AKS AzureVNET, EKS AmazonVPC, GKE GKE; otherwise Netplug",
        "whether a conflist is installed",
    ),
    "netplugNetwork.cni.ipam": FieldText("the IPAM"),
    "netplugNetwork.cni.ipam.type": FieldText(
        "who assigns addresses; HostLocal assigns from the node's pod CIDRs",
        "by CNI plugin: Netplug, or HostLocal with GKE, or its own",
        _CONFLIST.format("ipam"),
    ),
    "netplugNetwork.cni.ipam.plugin": FieldText("another spelling of `type`", "", _CONFLIST.format("ipam")),
    "netplugNetwork.cni.specVersion": FieldText(
        f"the version of the CNI specification; Auto is 1.0.0; {_NETPLUG_ONLY}", "Auto", _CONFLIST.format("cniVersion")
    ),
    "netplugNetwork.cni.binDir": FieldText(
        "the folder of CNI plugins on the nodes",
        "/opt/cni/bin; GKE /home/kubernetes/bin; OpenShift /var/lib/cni/bin",
        "volume `cni-bin-dir`",
    ),
    "netplugNetwork.cni.confDir": FieldText(
        "the folder of CNI configurations on the nodes",
        "/etc/cni/net.d; OpenShift /var/run/multus/cni/net.d",
        "volume `cni-net-dir`, `CNI_NET_DIR`",
    ),
    "netplugNetwork.cni.installMode": FieldText(
        "whether bandwidth, host-local, loopback, portmap and tuning are installed too", "All", "an init container"
    ),
    _POOL[:-2]: FieldText(
        "the pools of the cluster, at most 25; an empty list leaves them to others",
        "on a new cluster the platform's pod CIDRs, or 192.168.0.0/16 with the IPAM Netplug",
        "IPPools; the address families of the conflist",
    ),
    f"{_POOL}.cidr": FieldText("the addresses of the pool", "required", _AFFECTS_POOL.format("cidr")),
    f"{_POOL}.name": FieldText(
        "the name of the IPPool",
        "default-ipv4-ippool, default-ipv6-ippool; made of the CIDR if there are more",
        "name of the IPPool",
    ),
    f"{_POOL}.encapsulation": FieldText(
        "how packets between nodes are wrapped",
        "IPv4 with the CNI plugin Netplug IPIP; otherwise None",
        "`ipipMode`, `vxlanMode` of the IPPool",
    ),
    f"{_POOL}.natOutgoing": FieldText(
        "whether packets to addresses outside of all pools get the node's address",
        "IPv4 Enabled, IPv6 Disabled",
        _AFFECTS_POOL.format("natOutgoing"),
    ),
    f"{_POOL}.nodeSelector": FieldText(
        "the nodes that assign from the pool", "all()", _AFFECTS_POOL.format("nodeSelector")
    ),
    f"{_POOL}.blockSize": FieldText(
        "the prefix length of the pool's blocks", "IPv4 26, IPv6 122", _AFFECTS_POOL.format("blockSize")
    ),
    f"{_POOL}.disableBGPExport": FieldText(
        "whether routes to the pool are kept from BGP peers", "false", _AFFECTS_POOL.format("disableBGPExport")
    ),
    f"{_POOL}.disableNewAllocations": FieldText(
        "whether the pool assigns no further addresses", "false", _AFFECTS_POOL.format("disabled")
    ),
    f"{_POOL}.allowedUses": FieldText(
        "what its addresses are for; LoadBalancer stands alone",
        "Workload, Tunnel",
        _AFFECTS_POOL.format("allowedUses"),
    ),
    f"{_POOL}.assignmentMode": FieldText(
        "whether the pool serves pods that do not name it", "Automatic", _AFFECTS_POOL.format("assignmentMode")
    ),
    "netplugNetwork.linuxPolicySetupTimeoutSeconds": FieldText(
        "holds back the start of a pod until its policy is programmed, at most so many seconds",
        "0",
        _CONFLIST.format("policy_setup_timeout_seconds"),
    ),
    "netplugNetwork.bgp": FieldText(
        f"whether nodes exchange routes by BGP; {_NETPLUG_ONLY}",
        "Enabled with the CNI plugin Netplug, except on EKS; otherwise Disabled",
        "`NETPLUG_NETWORKING_BACKEND` of the node",
    ),
    "netplugNetwork.mtu": FieldText(
        "the MTU of pods' interfaces; 0: each node finds out", "0", f"{_CONFLIST.format('mtu')}; tunnels of the node"
    ),
    "netplugNetwork.nodeAddressAutodetectionV4": FieldText(
        "how a node finds its IPv4 address: one method",
        "with an enabled IPv4 pool in the cluster or BPF: firstFound; DockerEnterprise skipInterface ^br-.*; "
        "EKS canReach 8.8.8.8",
        "`IP`, `IP_AUTODETECTION_METHOD` of the node",
    ),
    "netplugNetwork.nodeAddressAutodetectionV6": FieldText(
        "how a node finds its IPv6 address: one method",
        "with an enabled IPv6 pool in the cluster: firstFound",
        "`IP6`, `IP6_AUTODETECTION_METHOD` of the node",
    ),
    **{
        f"netplugNetwork.nodeAddressAutodetectionV{version}.{name}": text
        for version in (4, 6)
        for name, text in _DETECTION.items()
    },
    "netplugNetwork.hostPorts": FieldText(
        f"whether pods may have host ports; {_NETPLUG_ONLY}", "Enabled", "the plugin `portmap` in the conflist"
    ),
    "netplugNetwork.containerIPForwarding": FieldText(
        f"whether containers may forward packets; {_NETPLUG_ONLY}",
        "Disabled",
        _CONFLIST.format("container_settings"),
    ),
    "netplugNetwork.linuxDataplane": FieldText(
        "who programs the packet filter of the nodes", "Iptables", "with VPP `dataplane_options` in the conflist"
    ),
    "netplugNetwork.multiInterfaceMode": FieldText(
        f"who gives pods further interfaces; {_NETPLUG_ONLY}", "None", "nothing in this release"
    ),
    "netplugNetwork.linuxPodInterfaceType": FieldText(
        f"the kind of pods' interfaces; {_NETPLUG_ONLY}", "Veth", "with Netkit `device_type` in the conflist"
    ),
    "netplugNetwork.sysctl": FieldText("kernel parameters of pods", "none", "the plugin `tuning` in the conflist"),
    "netplugNetwork.sysctl[].key": FieldText(
        "net.ipv4.tcp_keepalive_intvl, _probes or _time", "required", "the plugin `tuning`"
    ),
    "netplugNetwork.sysctl[].value": FieldText("the parameter's value", "required", "the plugin `tuning`"),
    "netplugNetwork.cniFeatures": FieldText(
        "annotations by which a pod can reach what is not its own", "", _CONFLIST.format("feature_control")
    ),
    "netplugNetwork.cniFeatures.ipAddrsNoIpam": FieldText(
        "whether pods may name addresses that no address assignment holds",
        "Disabled",
        _CONFLIST.format("feature_control.ip_addrs_no_ipam"),
    ),
    "netplugNetwork.cniFeatures.floatingIPs": FieldText(
        "whether pods may have floating IPs", "Disabled", _CONFLIST.format("feature_control.floating_ips")
    ),
    "netplugNetwork.cniFeatures.allowedSourcePrefixes": FieldText(
        "whether pods may send from other addresses than their own",
        "Disabled",
        _CONFLIST.format("feature_control.allowed_source_prefixes"),
    ),
    "netplugNetwork.readinessGates": FieldText(
        "URLs that must answer before a pod gets its addresses", "none", _CONFLIST.format("readiness_gates")
    ),
    "logging": FieldText("what is logged"),
    "logging.cni": FieldText("the log of the CNI plugin"),
    "logging.cni.logSeverity": FieldText(
        "lines below this level are not written", "Info", _CONFLIST.format("log_level")
    ),
    "logging.cni.logFileMaxSize": FieldText(
        "size at which the file is rotated, with a binary suffix; at least 1Mi",
        "100Mi",
        f"{_CONFLIST.format('log_file_max_size')}, in MiB",
    ),
    "logging.cni.logFileMaxAgeDays": FieldText(
        "days after which a rotated file is removed", "30", _CONFLIST.format("log_file_max_age")
    ),
    "logging.cni.logFileMaxCount": FieldText(
        "how many rotated files are kept", "10", _CONFLIST.format("log_file_max_count")
    ),
    "kubernetesProvider": FieldText(
        "which product the cluster is; empty for any other", "detected", "folders, defaults, `CLUSTER_TYPE` of the node"
    ),
    "registry": FieldText(
        "the registry of images, such as registry.example.com:5000/; UseDefault is the default", "UseDefault", _IMAGES
    ),
    "imagePath": FieldText("the path of images in the registry", "UseDefault", _IMAGES),
    "imagePrefix": FieldText("what stands before the name of each image", "UseDefault", _IMAGES),
    "imagePullSecrets": FieldText("Secrets with the credentials of the registry", "none", "pods of netplug"),
    "imagePullSecrets[].name": FieldText("the name of the Secret", "required", "pods of netplug"),
    "imagePullPolicy": FieldText("when images are pulled", "IfNotPresent", "containers of netplug"),
    "controlPlaneReplicas": FieldText("how many pods each Deployment has", "2", "Deployments"),
    "controlPlaneNodeSelector": FieldText(
        "the labels of nodes that run the Deployments; kubernetes.io/os can only be linux", "none", "Deployments"
    ),
    "flexVolumePath": FieldText("an absolute path, or None; for manifests of others", "unset", "nothing"),
    "kubeletVolumePluginPath": FieldText("an absolute path, or None; for manifests of others", "unset", "nothing"),
    "nodeUpdateStrategy": FieldText("how the pods on the nodes are updated", "", "the DaemonSet"),
    "nodeUpdateStrategy.type": FieldText("only RollingUpdate", "RollingUpdate", "the DaemonSet"),
    "nodeUpdateStrategy.rollingUpdate": FieldText("how many nodes at a time", "", "the DaemonSet"),
    "nodeUpdateStrategy.rollingUpdate.maxUnavailable": FieldText(
        "nodes that may be without the pod; a number or a percentage", "1", "the DaemonSet"
    ),
    "nodeUpdateStrategy.rollingUpdate.maxSurge": FieldText(
        "nodes that may have two pods; a number or a percentage", "0", "the DaemonSet"
    ),
    "nodeResources": FieldText(
        "what the node process gets of its node", "requests cpu 100m, memory 96Mi", "the DaemonSet"
    ),
    "nodeResources.requests": FieldText("what is kept for it, such as cpu: 100m", "", "the DaemonSet"),
    "nodeResources.limits": FieldText("the most that it gets, such as memory: 512Mi", "", "the DaemonSet"),
}
"""The texts of every field, by its path below ``spec``; ``[]`` stands behind a list."""


def find_field_text(path: str) -> FieldText:
    """The texts of a field; ``cni`` beside ``netplugNetwork`` is another spelling of ``netplugNetwork.cni``.

    Raises:
        KeyError: there is no such field.
    """
    if path in FIELDS:
        return FIELDS[path]
    other = FIELDS[f"netplugNetwork.{path}"]
    return FieldText(f"another spelling of `netplugNetwork.{path}`", "", other.ends_up_in)


# --- the schema -------------------------------------------------------------------------------------------------------


_METHODS: Final = ("kubernetes", "interface", "skipInterface", "canReach")
_MAX_LENGTH: Final = 1024
_SPELLED: Final = {"type": CNIType, "ipam.type": IPAMType, "ipam.plugin": IPAMType}


def installation_schema() -> Schema:
    """The schema of the whole object."""
    spec = spec_schema()
    name = f"self.metadata.name in ['{INSTALLATION_NAME}', '{OVERLAY_NAME}']"
    return custom_resource(
        "How netplug is installed in this cluster.",
        spec,
        rule=name,
        message=f"the name is {INSTALLATION_NAME}, or {OVERLAY_NAME}",
    )


def custom_resource(description: str, spec: Schema, *, rule: str, message: str) -> Schema:
    """The schema of a whole object with a status, whose server keeps one rule about it."""
    return {
        "type": "object",
        "description": description,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
        "x-kubernetes-validations": [{"rule": rule, "message": message}],
    }


def field_schemas() -> Mapping[str, Schema]:
    """The schema of each field, by its path below ``spec``; ``[]`` stands behind a list."""
    return collect_fields(spec_schema())


def spec_schema() -> Schema:
    """The schema of ``spec``."""
    spec = table_schema(InstallationSpec, INSTALLATION_TABLES, lambda path: find_field_text(path).effect)
    _limit(spec)
    return spec


# --- what the tables do not say --------------------------------------------------------------------------------------


def _limit(spec: Schema) -> None:
    """Add limits, so that a server can estimate the cost of the rules, and the rules."""
    fields = collect_fields(spec)
    pools = fields["netplugNetwork.ipPools"]
    pools["maxItems"] = MAX_INSTALLATION_POOLS
    cast("Schema", pools["items"])["required"] = ["cidr"]
    for place in ("cni", "netplugNetwork.cni"):
        for name, choices in _SPELLED.items():
            words = "|".join(str(choice.value) for choice in choices)
            fields[f"{place}.{name}"] |= {"pattern": f"^(?i:{words})?$", "maxLength": _MAX_LENGTH}
        for name in ("binDir", "confDir"):
            fields[f"{place}.{name}"]["maxLength"] = _MAX_LENGTH
    for version in (4, 6):
        detection = fields[f"netplugNetwork.nodeAddressAutodetectionV{version}"]
        detection["x-kubernetes-validations"] = [_one_method()]
    spec["x-kubernetes-validations"] = _spelling_rules()


def _one_method() -> Schema:
    counted = [
        "(has(self.firstFound) && self.firstFound ? 1 : 0)",
        *(f"(has(self.{name}) && self.{name} != '' ? 1 : 0)" for name in _METHODS),
        "(has(self.cidrs) && self.cidrs.size() > 0 ? 1 : 0)",
    ]
    return {"rule": f"{' + '.join(counted)} <= 1", "message": "one method is expected"}


def _spelling_rules() -> list[Schema]:
    """Each pair of spellings of one setting is equal, or one of the two is not set."""
    ipams = [f"{place}.ipam.{name}" for place in ("cni", "netplugNetwork.cni") for name in ("type", "plugin")]
    pairs = [(one, other) for index, one in enumerate(ipams) for other in ipams[index + 1 :]]
    names = ("type", "specVersion", "binDir", "confDir", "installMode")
    pairs += [(f"cni.{name}", f"netplugNetwork.cni.{name}") for name in names]
    return [
        {
            "rule": f"!({_is_set(one)}) || !({_is_set(other)}) || {_compared(one)} == {_compared(other)}",
            "message": f"spec.{one} and spec.{other} are spellings of one setting; they have to be equal",
        }
        for one, other in pairs
    ]


def _is_set(path: str) -> str:
    names = path.split(".")
    steps = [f"has(self.{'.'.join(names[: depth + 1])})" for depth in range(len(names))]
    return " && ".join([*steps, f"self.{path} != ''"])


def _compared(path: str) -> str:
    return f"self.{path}.lowerAscii()" if path.endswith((".type", ".plugin")) else f"self.{path}"
