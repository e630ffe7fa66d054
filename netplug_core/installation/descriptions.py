"""What each field of an Installation is for, by its path below ``spec``: its default, its effect, where it ends up.

The definition of the kind has the effects as descriptions; ``docs/installation.md`` has a table of all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

__all__ = ["FIELDS", "FieldText", "find_field_text"]


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
