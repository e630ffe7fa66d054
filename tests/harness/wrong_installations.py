"""Installations that are refused: document or spec, the class of the problem, the field, and what the error also says.

"check" and a number name a check that others can look up, "V" and a number a rule of ``installation/rules``.
"""

from __future__ import annotations

from tests.harness.installations import manifest, network

__all__ = ["V4", "WRONG_DOCUMENTS", "WRONG_SPECS", "N", "pool"]

N = "spec.netplugNetwork"
U = "spec.nodeUpdateStrategy.rollingUpdate"
V4, V6 = "10.0.0.0/16", "fd00::/48"


def pool(cidr: object = V4, **fields: object) -> dict[str, object]:
    return network(ipPools=[{"cidr": cidr, **fields}])


def cni(cni_type: str, **fields: object) -> dict[str, object]:
    return {"cni": {"type": cni_type}, "netplugNetwork": fields}


def dataplane(name: str, **fields: object) -> dict[str, object]:
    return network(linuxDataplane=name, **fields)


WRONG_DOCUMENTS = [
    # the document itself
    (manifest(kind="Instalation"), "Unsupported", "kind", "expected Installation"),
    ({**manifest(), "kind": None}, "Required", "kind", "expected Installation"),
    (manifest(apiVersion="projectnetplug.org/v3"), "Unsupported", "apiVersion", "operator.projectnetplug.org/v1"),
    (manifest(name="prod"), "Unsupported", "metadata.name", "expected default or overlay"),  # check 30
    ({**manifest(), "metadata": {}}, "Required", "metadata.name", "expected default or overlay"),
    ({**manifest(), "metadata": "default"}, "Format", "metadata", "expected an object"),
    (manifest([1]), "Format", "spec", "expected an object"),
    (manifest({"Netplugnetwork": {}}), "Unsupported", "spec.Netplugnetwork", "netplugNetwork"),
    (manifest(Spec={"netplugNetwork": {}}), "Unsupported", "Spec", "there is no such field"),
    (manifest(network(ipPool=[])), "Unsupported", f"{N}.ipPool", "ipPools"),
    (manifest(pool(cidrs=[V4])), "Unsupported", f"{N}.ipPools[0].cidrs", "cidr"),
    (manifest(network(bgp=True)), "Format", f"{N}.bgp", "one of Enabled, Disabled"),
    (manifest(network(bgp="enabled")), "Unsupported", f"{N}.bgp", "one of Enabled, Disabled"),
    (manifest(network(mtu="1450")), "Format", f"{N}.mtu", "a whole number"),
    (manifest(network(mtu=2**31)), "OutOfRange", f"{N}.mtu", "32 bits"),
    (manifest(network(ipPools={"cidr": V4})), "Format", f"{N}.ipPools", "a list"),
    (manifest(network(sysctl=[{"key": "net.ipv4.tcp_keepalive_time"}])), "Required", f"{N}.sysctl[0].value", "a name"),
    (manifest({"logging": {"cni": {"logSeverity": "Trace"}}}), "Unsupported", "spec.logging.cni.logSeverity", "Debug"),
    (manifest(network(readinessGates=["a"])), "OutOfRange", f"{N}.readinessGates[0]", "an http or https URL"),
    (manifest({"nodeResources": {"limits": {"cpu": "much"}}}), "OutOfRange", "spec.nodeResources.limits[cpu]", "100m"),
    (manifest({"kubernetesProvider": "eks"}), "Unsupported", "spec.kubernetesProvider", "EKS"),
    (
        manifest({"nodeUpdateStrategy": {"rollingUpdate": {"maxUnavailable": 1.5}}}),
        "Format",
        f"{U}.maxUnavailable",
        "or a percentage up to 100%",
    ),
    *(
        (
            manifest({"nodeUpdateStrategy": {"rollingUpdate": {"maxSurge": amount}}}),
            found,
            f"{U}.maxSurge",
            "up to 100%",
        )
        for amount, found in (
            ("99999999999%", "Unsupported"),
            ("many", "Unsupported"),
            (-1, "OutOfRange"),
            (True, "Format"),
        )
    ),
]

WRONG_SPECS = [
    # the MTU beside the families
    (
        network(mtu=1200, ipPools=[{"cidr": V6}]),
        "OutOfRange",
        f"{N}.mtu",
        "1200 is too small for IPv6, which needs 1280",
    ),
    (network(mtu=67), "OutOfRange", f"{N}.mtu", "the MTU 67 is too small: a link needs 68"),
    # the CNI plugin and its IPAM
    ({"cni": {"type": "Calico"}}, "Unsupported", "spec.cni.type", "Netplug, GKE, AmazonVPC, AzureVNET"),  # V5
    (network(cni={"ipam": {"type": "host-local"}}), "Unsupported", f"{N}.cni.ipam.type", "HostLocal"),
    ({"cni": {"ipam": {"plugin": "None"}}}, "Unsupported", "spec.cni.ipam.plugin", "HostLocal"),
    (
        {"cni": {"ipam": {"type": "Netplug", "plugin": "HostLocal"}}},  # check 15, V21
        "Conflict",
        "spec.cni.ipam.type and spec.cni.ipam.plugin",
        "'Netplug, HostLocal'",
    ),
    (
        {"cni": {"type": "GKE"}, "netplugNetwork": {"cni": {"type": "Netplug"}}},
        "Conflict",
        f"spec.cni.type and {N}.cni.type",
        "they have to be equal",
    ),
    (
        {"cni": {"binDir": "/a"}, "netplugNetwork": {"cni": {"binDir": "/b"}}},
        "Conflict",
        f"spec.cni.binDir and {N}.cni.binDir",
        "'/a, /b'",
    ),
    (
        {"cni": {"specVersion": "1.0.0"}, "netplugNetwork": {"cni": {"specVersion": "0.3.1"}}},
        "Conflict",
        f"spec.cni.specVersion and {N}.cni.specVersion",
        "'1.0.0, 0.3.1'",
    ),
    ({"cni": {"type": "GKE", "specVersion": "1.0.0"}}, "Incompatible", "spec.cni.specVersion", "leave it out"),  # V2
    ({"cni": {"ipam": {"type": "AmazonVPC"}}}, "Incompatible", "spec.cni.ipam.type", "Netplug or HostLocal"),  # V3
    ({"cni": {"type": "GKE", "ipam": {"type": "Netplug"}}}, "Incompatible", "spec.cni.ipam.type", "HostLocal"),  # V4
    (
        {"cni": {"type": "AmazonVPC"}, "kubernetesProvider": "GKE"},
        "Incompatible",
        "spec.cni.type",
        "the one of EKS; the provider is GKE",
    ),
    ({"cni": {"type": "AzureVNET", "ipam": {"type": "HostLocal"}}}, "Incompatible", "spec.cni.ipam.type", "AzureVNET"),
    (network(cni={"binDir": "opt/cni/bin"}), "Format", f"{N}.cni.binDir", "an absolute path"),
    ({"cni": {"confDir": "./net.d"}}, "Format", "spec.cni.confDir", "an absolute path"),
    # logging, V6
    ({"logging": {"cni": {"logFileMaxAgeDays": 0}}}, "OutOfRange", "spec.logging.cni.logFileMaxAgeDays", "more than 0"),
    ({"logging": {"cni": {"logFileMaxCount": -1}}}, "OutOfRange", "spec.logging.cni.logFileMaxCount", "more than 0"),
    ({"logging": {"cni": {"logFileMaxSize": "100MB"}}}, "Format", "spec.logging.cni.logFileMaxSize", "binary suffix"),
    ({"logging": {"cni": {"logFileMaxSize": "100"}}}, "Format", "spec.logging.cni.logFileMaxSize", "such as 100Mi"),
    ({"logging": {"cni": {"logFileMaxSize": "512Ki"}}}, "OutOfRange", "spec.logging.cni.logFileMaxSize", "least 1Mi"),
    # the dataplane
    (
        dataplane("BPF", nodeAddressAutodetectionV4={}, ipPools=[{"cidr": V4}]),  # V7
        "Required",
        f"{N}.nodeAddressAutodetectionV4",
        "IPv4 pool needs a method",
    ),
    (dataplane("BPF", ipPools=[{"cidr": V6}]), "Required", f"{N}.nodeAddressAutodetectionV6", "IPv6 pool needs"),
    (dataplane("VPP", bgp="Disabled"), "Incompatible", f"{N}.bgp", "VPP needs Enabled"),  # V12
    (dataplane("VPP", hostPorts="Disabled"), "Incompatible", f"{N}.hostPorts", "VPP needs Enabled"),
    (cni("GKE", linuxDataplane="VPP"), "Incompatible", "spec.cni.type", "VPP needs Netplug"),
    (
        dataplane("VPP", linuxPolicySetupTimeoutSeconds=5),  # check 24, V18
        "Incompatible",
        f"{N}.linuxPolicySetupTimeoutSeconds",
        "leave it out with the dataplane VPP",
    ),
    (
        network(linuxPolicySetupTimeoutSeconds=-1),  # check 24, V17
        "OutOfRange",
        f"{N}.linuxPolicySetupTimeoutSeconds",
        "0 or more",
    ),
    # pools
    (pool(""), "Required", f"{N}.ipPools[0].cidr", "a CIDR such as 10.0.0.0/16"),
    (pool("10.0.0.0"), "Format", f"{N}.ipPools[0].cidr", "a CIDR such as 10.0.0.0/16"),
    (pool("10.0.0.0/33"), "Format", f"{N}.ipPools[0].cidr", "a CIDR such as 10.0.0.0/16"),
    (pool("169.254.0.0/16"), "OutOfRange", f"{N}.ipPools[0].cidr", "link-local range"),
    (pool(blockSize=19), "OutOfRange", f"{N}.ipPools[0].blockSize", "20 to 32 for an IPv4 pool"),
    (pool(V6, blockSize=26), "OutOfRange", f"{N}.ipPools[0].blockSize", "116 to 128 for an IPv6 pool"),
    (pool(blockSize=-1), "OutOfRange", f"{N}.ipPools[0].blockSize", "20 to 32 for an IPv4 pool"),
    (pool("10.0.0.0/28"), "OutOfRange", f"{N}.ipPools[0].cidr", "IP pool size is too small"),
    (pool(nodeSelector=""), "Required", f"{N}.ipPools[0].nodeSelector", "all()"),
    (pool(nodeSelector="a =="), "Format", f"{N}.ipPools[0].nodeSelector", "expected"),
    (pool(nodeSelector="global()"), "Format", f"{N}.ipPools[0].nodeSelector", "cannot be used"),
    (pool(name="Main_Pool"), "Format", f"{N}.ipPools[0].name", "lower-case letters"),
    (pool(V6, encapsulation="IPIP"), "Incompatible", f"{N}.ipPools[0].encapsulation", V6),  # check 21, V8
    (pool(V6, encapsulation="IPIPCrossSubnet"), "Incompatible", f"{N}.ipPools[0].encapsulation", V6),
    (
        network(bgp="Disabled", ipPools=[{"cidr": V4, "encapsulation": "None"}]),  # check 22, V9
        "Incompatible",
        f"{N}.ipPools[0].encapsulation",
        "set bgp Enabled, IPIP or VXLAN",
    ),
    (
        {**pool(encapsulation="IPIP"), "cni": {"type": "AmazonVPC"}},  # V11
        "Incompatible",
        f"{N}.ipPools[0].encapsulation",
        "None is expected",
    ),
    (
        {**pool(nodeSelector="has(a)"), "cni": {"type": "AmazonVPC"}},
        "Incompatible",
        f"{N}.ipPools[0].nodeSelector",
        "all() is expected",
    ),
    (
        pool(allowedUses=["LoadBalancer", "Workload"]),  # check 41
        "Incompatible",
        f"{N}.ipPools[0].allowedUses",
        "cannot be combined",
    ),
    (
        pool(allowedUses=["LoadBalancer"], encapsulation="VXLAN"),
        "Incompatible",
        f"{N}.ipPools[0].encapsulation",
        "must be Never with allowedUses LoadBalancer",
    ),
    (
        pool(allowedUses=["LoadBalancer"], disableBGPExport=True),
        "Incompatible",
        f"{N}.ipPools[0].disableBGPExport",
        "must be false",
    ),
    (
        network(ipPools=[{"cidr": "10.0.0.0/16"}, {"cidr": "10.0.1.0/16"}]),  # check 116
        "Duplicate",
        f"{N}.ipPools[0].cidr and {N}.ipPools[1].cidr",
        "a CIDR of its own",
    ),
    (
        network(ipPools=[{"cidr": "10.0.0.0/8"}, {"cidr": "10.1.0.0/16"}]),
        "Conflict",
        f"{N}.ipPools[0].cidr and {N}.ipPools[1].cidr",
        "pools cannot overlap",
    ),
    (
        network(ipPools=[{"cidr": V4, "name": "a"}, {"cidr": V6, "name": "a"}]),
        "Duplicate",
        f"{N}.ipPools[0].name and {N}.ipPools[1].name",
        "a name of its own",
    ),
    (
        network(ipPools=[{"cidr": f"10.{number}.0.0/16"} for number in range(26)]),  # check 29
        "OutOfRange",
        f"{N}.ipPools",
        "at most 25 pools",
    ),
    # other settings of the network
    (network(mtu=65536), "OutOfRange", f"{N}.mtu", "0 to 65535"),
    (
        network(nodeAddressAutodetectionV4={"firstFound": True, "canReach": "8.8.8.8"}),  # V13
        "Conflict",
        f"{N}.nodeAddressAutodetectionV4.firstFound and {N}.nodeAddressAutodetectionV4.canReach",
        "one method",
    ),
    (
        network(nodeAddressAutodetectionV6={"cidrs": ["fd00::/8", "fd00::1"]}),  # V14
        "Format",
        f"{N}.nodeAddressAutodetectionV6.cidrs[1]",
        "a CIDR is expected",
    ),
    (
        network(sysctl=[{"key": "net.ipv4.ip_forward", "value": "1"}]),  # check 10, V16
        "Unsupported",
        f"{N}.sysctl[0].key",
        "tcp_keepalive_intvl, net.ipv4.tcp_keepalive_probes, net.ipv4.tcp_keepalive_time",
    ),
    (
        network(sysctl=[{"key": "net.ipv4.tcp_keepalive_time", "value": text} for text in ("1", "2")]),
        "Duplicate",
        f"{N}.sysctl[1].key",
        "each key once",
    ),
    (cni("AmazonVPC", bgp="Enabled"), "Incompatible", f"{N}.bgp", "leave it out"),  # V11
    (cni("AmazonVPC", hostPorts="Enabled"), "Incompatible", f"{N}.hostPorts", "leave it out"),  # check 25, V15
    (cni("GKE", multiInterfaceMode="None"), "Incompatible", f"{N}.multiInterfaceMode", "leave it out"),
    (cni("GKE", containerIPForwarding="Disabled"), "Incompatible", f"{N}.containerIPForwarding", "leave it out"),
    (cni("GKE", linuxPodInterfaceType="Veth"), "Incompatible", f"{N}.linuxPodInterfaceType", "leave it out"),
    (
        cni("GKE", cniFeatures={"floatingIPs": "Disabled"}),
        "Incompatible",
        f"{N}.cniFeatures.floatingIPs",
        "leave it out",
    ),
    (cni("GKE", readinessGates=["http://a/"]), "Incompatible", f"{N}.readinessGates[0]", "leave it out"),
    # what is installed
    ({"flexVolumePath": "var/lib"}, "Format", "spec.flexVolumePath", "an absolute path or None"),  # V19
    ({"kubeletVolumePluginPath": "none"}, "Format", "spec.kubeletVolumePluginPath", "an absolute path or None"),
    *(
        ({name: text}, "Format", f"spec.{name}", "or UseDefault")
        for name, text in (
            ("registry", "registry.example/\n"),
            ("registry", "registry example/"),
            ("registry", "https://registry.example/"),
            ("imagePath", "team/../x"),
            ("imagePath", "team x"),
            ("imagePrefix", "a/b-"),
        )
    ),
    *(
        ({"cni": {name: folder}}, "Format", f"spec.cni.{name}", "without ..")
        for name in ("binDir", "confDir")
        for folder in ("/../../etc", "/opt/cni/..", "/", "//", "/opt/cni bin", "/opt\n")
    ),
    *(
        (
            {"nodeUpdateStrategy": {"rollingUpdate": update}},
            "Conflict",
            f"{U}.maxUnavailable and {U}.maxSurge",
            "exactly one",
        )
        for update in (
            {"maxUnavailable": 0, "maxSurge": 0},
            {"maxUnavailable": 0},
            {"maxUnavailable": "0%"},
            {"maxSurge": 1},
            {"maxUnavailable": "10%", "maxSurge": "10%"},
        )
    ),
    (
        network(nodeAddressAutodetectionV4={"interface": "(("}),
        "Format",
        f"{N}.nodeAddressAutodetectionV4.interface",
        "no regular",
    ),
    (
        network(nodeAddressAutodetectionV6={"skipInterface": "*"}),
        "Format",
        f"{N}.nodeAddressAutodetectionV6.skipInterface",
        "no regular",
    ),
    ({"controlPlaneNodeSelector": {"a b": "c"}}, "Format", "spec.controlPlaneNodeSelector", "a DNS name"),
    ({"controlPlaneNodeSelector": {"a": "b c"}}, "Format", "spec.controlPlaneNodeSelector[a]", "a label's text"),
    (
        {"nodeUpdateStrategy": {"type": "OnDelete"}},
        "Unsupported",
        "spec.nodeUpdateStrategy.type",
        "RollingUpdate",
    ),  # V20
    ({"controlPlaneReplicas": 0}, "OutOfRange", "spec.controlPlaneReplicas", "at least 1"),
    (
        {"controlPlaneNodeSelector": {"kubernetes.io/os": "windows"}},
        "Unsupported",
        "spec.controlPlaneNodeSelector[kubernetes.io/os]",
        "linux is expected",
    ),
]
