"""What an Installation takes over of a static manifest, and what it refuses to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from attrs import evolve

from netplug_core.errors import ConfigurationError
from netplug_core.installation.cluster import IncompatibleCluster
from netplug_core.installation.conversion import Conversion, convert
from netplug_core.installation.settings import ClusterFacts
from netplug_core.installation.static import Method
from netplug_core.names import MANAGED_BY
from netplug_core.resources.ippool import Encapsulation, IPPool
from tests.harness.installations import make_pool, network, read, resolved
from tests.harness.static_installations import Edit, conflist_edit, setting, static_objects, variable

V4, V6 = make_pool("10.0.0.0/16"), make_pool("fd00::/48", name="six")
HIDDEN = "secret-text"
NODE, INSTALLER = "netplug-node", "install-cni"
POOL = {
    "allowedUses": ["Workload", "Tunnel"], "assignmentMode": "Automatic", "blockSize": 26, "cidr": "10.0.0.0/16",
    "encapsulation": "None", "name": "existing", "natOutgoing": "Disabled", "nodeSelector": "all()",
}  # fmt: skip
KDD = network(bgp="Enabled", cni={"type": "Netplug", "ipam": {"type": "Netplug"}}, hostPorts="Enabled")
KDD = {**KDD, "nodeResources": {"requests": {"cpu": "100m", "memory": "96Mi"}}}


def converted(
    *edits: Edit,
    method: Method = Method.KDD,
    spec: Mapping[str, object] | None = None,
    pools: tuple[IPPool, ...] = (),
    api_group: str = "",
) -> Conversion:
    return convert(static_objects(method, *edits), read(spec), ClusterFacts(pools=pools), api_group=api_group)


def missing(
    *edits: Edit,
    method: Method = Method.KDD,
    spec: Mapping[str, object] | None = None,
    pools: tuple[IPPool, ...] = (),
) -> dict[str, Any]:
    found = converted(*edits, method=method, spec=spec, pools=pools)
    assert [str(problem) for problem in found.problems] == []
    return dict(found.missing)


def pod(change: Callable[[dict[str, Any]], object]) -> Edit:
    return lambda daemonset, _: change(daemonset["spec"]["template"]["spec"])


def container(name: str, /, **members: object) -> Edit:
    def change(found: dict[str, Any]) -> None:
        next(one for one in (*found["initContainers"], *found["containers"]) if one["name"] == name).update(members)

    return pod(change)


def plugin(**members: object) -> Edit:
    return conflist_edit(lambda whole: whole["plugins"][0].update(members))


def test_the_published_manifest() -> None:
    assert missing() == KDD
    assert missing(pools=(V4,)) == {**KDD, "netplugNetwork": {**KDD["netplugNetwork"], "ipPools": [POOL]}}  # type: ignore[dict-item]
    policy_only = missing(method=Method.KDD_POLICY_ONLY)["netplugNetwork"]
    assert policy_only == {
        "bgp": "Disabled", "cni": {"type": "Netplug", "ipam": {"type": "HostLocal"}}, "hostPorts": "Enabled",
        "mtu": 1500,
    }  # fmt: skip


@pytest.mark.parametrize("edits, members", [
    ((setting("veth_mtu", "1450"),), {"mtu": 1450}),
    ((setting("veth_mtu", "1450"), variable(NODE, "NETPLUG_VXLANMTU", "1450")), {"mtu": 1450}),
    ((plugin(mtu=1400),), {"mtu": 1400}),
    ((setting("netplug_backend", "vxlan"),), {"bgp": "Disabled"}),
    ((plugin(container_settings={"allow_ip_forwarding": True}),), {"containerIPForwarding": "Enabled"}),
    ((plugin(container_settings={}),), {}),
    ((plugin(policy_setup_timeout_seconds=9),), {"linuxPolicySetupTimeoutSeconds": 9}),
    ((plugin(feature_control={"floating_ips": True, "ip_addrs_no_ipam": True}),),  # check 115
     {"cniFeatures": {"floatingIPs": "Enabled", "ipAddrsNoIpam": "Enabled"}}),
    ((plugin(feature_control={"allowed_source_prefixes": True, "floating_ips": False}),),
     {"cniFeatures": {"allowedSourcePrefixes": "Enabled"}}),
    ((plugin(readiness_gates=["http://127.0.0.1:1/"]),), {"readinessGates": ["http://127.0.0.1:1/"]}),
    ((plugin(device_type="netkit"),), {"linuxPodInterfaceType": "Netkit"}),
    ((conflist_edit(lambda whole: whole["plugins"].pop()),), {"hostPorts": "Disabled"}),
    ((conflist_edit(lambda whole: whole["plugins"].append(
        {"type": "tuning", "sysctl": {"net.ipv4.tcp_keepalive_time": "40"}})),),
     {"sysctl": [{"key": "net.ipv4.tcp_keepalive_time", "value": "40"}]}),
    ((conflist_edit(lambda whole: whole.update(cniVersion="0.4.0")),),
     {"cni": {"type": "Netplug", "ipam": {"type": "Netplug"}, "specVersion": "0.4.0"}}),
    ((variable(INSTALLER, "SKIP_CNI_BINARIES", "bandwidth,flannel,host-local,loopback,portmap,tuning"),),
     {"cni": {"type": "Netplug", "ipam": {"type": "Netplug"}, "installMode": "NetplugOnly"}}),
    ((variable(NODE, "IP", "autodetect"), variable(NODE, "IP_AUTODETECTION_METHOD", "can-reach=10.0.0.1")),
     {"nodeAddressAutodetectionV4": {"canReach": "10.0.0.1"}}),
    ((variable(NODE, "IP6_AUTODETECTION_METHOD", "cidr=fd00::/64,fd01::/64"),),
     {"nodeAddressAutodetectionV6": {"cidrs": ["fd00::/64", "fd01::/64"]}}),
    ((variable(NODE, "IP_AUTODETECTION_METHOD", "first-found"),), {"nodeAddressAutodetectionV4": {"firstFound": True}}),
    ((variable(NODE, "IP_AUTODETECTION_METHOD", "kubernetes-internal-ip"),),
     {"nodeAddressAutodetectionV4": {"kubernetes": "NodeInternalIP"}}),
    ((variable(NODE, "IP_AUTODETECTION_METHOD", "interface=eth.*"),),
     {"nodeAddressAutodetectionV4": {"interface": "eth.*"}}),
    ((variable(NODE, "IP_AUTODETECTION_METHOD", "skip-interface=br-.*"),),
     {"nodeAddressAutodetectionV4": {"skipInterface": "br-.*"}}),
    ((variable(INSTALLER, "SLEEP", ""), variable(NODE, "IP", "none")), {}),
])  # fmt: skip
def test_settings_of_the_network_are_taken_over(edits: tuple[Edit, ...], members: dict[str, object]) -> None:
    assert missing(*edits)["netplugNetwork"] == {**KDD["netplugNetwork"], **members}  # type: ignore[dict-item]


@pytest.mark.parametrize("edits, members", [
    ((plugin(log_level="debug", log_file_max_size=5, log_file_max_age=6, log_file_max_count=7),),
     {"logging": {"cni": {"logSeverity": "Debug", "logFileMaxSize": "5Mi", "logFileMaxAgeDays": 6,
                          "logFileMaxCount": 7}}}),
    ((plugin(log_level="__LOG_LEVEL__"), variable(INSTALLER, "LOG_LEVEL", "error")),
     {"logging": {"cni": {"logSeverity": "Error"}}}),
    ((container(NODE, image="r.example:5000/a/b/x-node@sha256:1"), container(INSTALLER, image="r.example/a/node:v1")),
     {"registry": "r.example:5000/", "imagePath": "a/b", "imagePrefix": "x-"}),
    ((container(NODE, imagePullPolicy="Always"),), {"imagePullPolicy": "Always"}),
    ((container(NODE, resources={"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}),),
     {"nodeResources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}),
    ((pod(lambda found: found.update(imagePullSecrets=[{"name": "mine"}])),), {"imagePullSecrets": [{"name": "mine"}]}),
    ((lambda daemonset, _: daemonset["spec"]["updateStrategy"]["rollingUpdate"].update(maxUnavailable="20%"),),
     {"nodeUpdateStrategy": {"rollingUpdate": {"maxUnavailable": "20%"}}}),
    ((lambda daemonset, _: daemonset["spec"].pop("updateStrategy"),), {}),
    ((container(NODE, resources={}),), {"nodeResources": None}),
    ((lambda daemonset, _: daemonset["spec"]["template"]["metadata"].update(
        annotations={"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}),), {}),
])  # fmt: skip
def test_settings_of_the_pods_are_taken_over(edits: tuple[Edit, ...], members: dict[str, object]) -> None:
    found = missing(*edits)
    expected = {**KDD, "logging": {"cni": {"logSeverity": "Info"}}, **members}
    assert {"logging": {"cni": {"logSeverity": "Info"}}, **found} == {
        name: value for name, value in expected.items() if value is not None
    }


def test_folders_are_taken_over() -> None:
    def move(found: dict[str, Any]) -> None:
        for volume in found["volumes"][1:]:
            volume["hostPath"]["path"] = f"/srv{volume['hostPath']['path']}"

    edits = [pod(move), variable(INSTALLER, "CNI_NET_DIR", "/srv/etc/cni/net.d")]
    edits.append(variable(NODE, "CNI_NET_DIR", "/srv/etc/cni/net.d"))
    edits.append(variable(NODE, "CNI_BIN_DIR", "/srv/opt/cni/bin"))
    edits.append(variable(NODE, "KUBECONFIG", "/srv/etc/cni/net.d/netplug-kubeconfig"))
    cni = missing(*edits)["netplugNetwork"]["cni"]
    assert (cni["binDir"], cni["confDir"]) == ("/srv/opt/cni/bin", "/srv/etc/cni/net.d")


def test_what_the_installation_says_already_is_not_missing() -> None:
    spec = {**network(mtu=1450, bgp="Enabled"), "cni": {"ipam": {"plugin": "netplug"}}, "registry": "other.example/"}
    found = missing(setting("veth_mtu", "1450"), spec=spec, pools=(V4,))
    assert found == {
        "netplugNetwork": {"cni": {"type": "Netplug"}, "hostPorts": "Enabled", "ipPools": [POOL]},
        "nodeResources": KDD["nodeResources"],
    }
    whole = {**KDD, "netplugNetwork": {**KDD["netplugNetwork"], "ipPools": []}}  # type: ignore[dict-item]
    assert missing(spec=whole, pools=(V4,)) == {}


def test_with_what_is_missing_the_installation_has_the_settings() -> None:
    spec = missing(setting("veth_mtu", "1450"), plugin(feature_control={"floating_ips": True}), pools=(V4,))
    found = resolved(spec, pools=(V4,))
    assert (found.mtu, found.is_netplug, found.lists_pools) == (1450, True, True)
    assert (
        missing(setting("veth_mtu", "1450"), plugin(feature_control={"floating_ips": True}), spec=spec, pools=(V4,))
        == {}
    )


# --- pools -----------------------------------------------------------------------------------------------------------


def labelled(pool: IPPool) -> IPPool:
    return evolve(pool, metadata=evolve(pool.metadata, labels=(MANAGED_BY,)))


def with_spec(pool: IPPool, **members: object) -> IPPool:
    return evolve(pool, spec=evolve(pool.spec, **members))  # type: ignore[arg-type]


A, B, DEFAULT = (make_pool(f"10.{n}.0.0/16", name=name) for n, name in ((1, "a"), (2, "b"), (3, "default-ipv4-ippool")))
TWICE = {"ipip_mode": Encapsulation.ALWAYS, "vxlan_mode": Encapsulation.ALWAYS}


@pytest.mark.parametrize("pools, names", [
    ((A, B), ["a"]),
    ((A, DEFAULT, B), ["default-ipv4-ippool"]),
    ((with_spec(A, is_disabled=True), B), ["b"]),
    ((with_spec(A, namespace_selector="x == 'y'"),), None),
    ((with_spec(A, **TWICE),), None),
    ((A, labelled(B)), ["b"]),
    ((labelled(A), labelled(B)), ["a", "b"]),
    ((labelled(A), labelled(with_spec(B, **TWICE))), None),
    ((with_spec(A, ipip_mode=Encapsulation.CROSS_SUBNET, has_outgoing_nat=True),), ["a"]),
    (tuple(labelled(make_pool(f"10.{n}.0.0/16", name=f"p{n}")) for n in range(26)), None),
])  # fmt: skip
def test_pools_that_an_installation_can_describe_are_listed(pools: tuple[IPPool, ...], names: list[str] | None) -> None:
    found = missing(pools=pools)["netplugNetwork"].get("ipPools")
    assert names == (None if found is None else [one["name"] for one in found])


def test_a_pool_of_each_family_is_listed() -> None:
    edit = plugin(ipam={"type": "netplug-ipam", "assign_ipv4": "true", "assign_ipv6": "true"})
    assert [one["name"] for one in missing(edit, pools=(V6, V4))["netplugNetwork"]["ipPools"]] == ["existing", "six"]


# --- refusals --------------------------------------------------------------------------------------------------------


def tuning(**members: object) -> Edit:
    return conflist_edit(lambda whole: whole["plugins"].append({"type": "tuning", **members}))


@pytest.mark.parametrize("edits, field, words", [
    ((variable(NODE, "DATASTORE_TYPE", "etcdv3"),), "netplug-node.env.DATASTORE_TYPE: 'etcdv3'", "move the data first"),
    ((variable(NODE, "ETCD_PASSWORD", "secret-text"),), "netplug-node.env.ETCD_PASSWORD: '…'", "move the data first"),
    ((variable(NODE, "ETCD_ENDPOINTS", "http://e:1"),), "netplug-node.env.ETCD_ENDPOINTS: 'http://e:1'", "move the"),
    ((variable(NODE, "MINE", "1"),), "netplug-node.env.MINE: '1'", "an Installation has no such setting"),
    ((variable(INSTALLER, "CNI_CONF_NAME", "05-mine.conflist"),), "install-cni.env.CNI_CONF_NAME", "use that name"),
    ((variable(INSTALLER, "CNI_NETWORK_CONFIG_FILE", "/x"),), "env.CNI_NETWORK_CONFIG_FILE", "the key cni_n"),
    ((variable(INSTALLER, "KUBERNETES_SERVICE_HOST", "h"),), "install-cni.env.KUBERNETES_SERVICE_HOST: 'h'",
     "ConfigMap kubernetes-services-endpoint"),
    ((variable(INSTALLER, "SKIP_CNI_BINARIES", "portmap"),), "install-cni.env.SKIP_CNI_BINARIES", "all of bandwidth"),
    ((variable(NODE, "NETPLUG_NETWORKING_BACKEND", "x"),), "env.NETPLUG_NETWORKING_BACKEND", "vxlan or none"),
    ((variable(NODE, "NETPLUG_API_GROUP", "projectnetplug.org/v3"),), "env.NETPLUG_API_GROUP",
     "crd.projectnetplug.org/v1"),
    ((variable(NODE, "NODENAME", "n1"),), "netplug-node.env.NODENAME: 'n1'", "the field spec.nodeName"),
    ((variable(NODE, "NAMESPACE", {"fieldRef": {"fieldPath": "spec.nodeName"}}),), "netplug-node.env.NAMESPACE",
     "metadata.namespace"),
    ((variable(NODE, "IP", {"secretKeyRef": {"name": "a", "key": "b"}}),), "netplug-node.env.IP", "a text, or a key"),
    ((variable(NODE, "IP", {"configMapKeyRef": {"name": "netplug-config", "key": "b"}}),), "env.IP", "a text"),
    ((variable(NODE, "IP", "10.0.0.1"),), "env.IP: '10.0.0.1'", "autodetect or none"),
    ((variable(NODE, "IP_AUTODETECTION_METHOD", "guess"),), "env.IP_AUTODETECTION_METHOD: 'guess'", "first-found"),
    ((variable(NODE, "KUBECONFIG", "/root/.kube/config"),), "env.KUBECONFIG", "/etc/cni/net.d/netplug-kube"),
    ((variable(NODE, "NETPLUG_VXLANMTU", "1400"),), "MTU: 'NETPLUG_VXLANMTU 1400'", "the conflist has mtu 0"),
    ((container(NODE, envFrom=[{"secretRef": {"name": "x"}}]),), "netplug-node.envFrom", "no such setting"),
    ((container(NODE, args=["--host-root=/host"]),), "args", "as the published manifest"),
    ((container(NODE, image="mine:1"),), "netplug-node.image: 'mine:1'", "REGISTRY/PATH/PREFIXnode"),
    ((container(INSTALLER, resources={"limits": {"cpu": "1"}}),), "install-cni.resources", "no such setting"),
    ((container(INSTALLER, name="installer"),), "containers: 'installer'", "no such setting"),
    ((container(INSTALLER, name="installer"),), "containers: nothing", "a container install-cni is expected"),
    ((pod(lambda found: found["volumes"].append({"name": "mine"})),), "volumes: 'mine'", "no such setting"),
    ((pod(lambda found: found["volumes"][0]["hostPath"].update(path="/x")),), "volumes.host-root: '/x'", "published"),
    ((pod(lambda found: found.update(affinity={"nodeAffinity": {}})),), "affinity", "every Linux node"),
    ((pod(lambda found: found.update(nodeSelector={"a": "b"})),), "nodeSelector", "kubernetes.io/os: linux only"),
    ((pod(lambda found: found.pop("tolerations")),), "tolerations: []", "add operator: Exists"),
    ((lambda daemonset, _: daemonset["metadata"]["labels"].update({"addonmanager.kubernetes.io/mode": "Reconcile"}),),
     "metadata.labels[addonmanager.kubernetes.io/mode]: 'Reconcile'", "take it out"),
    ((lambda daemonset, _: daemonset["metadata"].update(annotations={"a": "b"}),), "annotations[a]: 'b'", "remove"),
    ((lambda daemonset, _: daemonset["spec"].update(updateStrategy={"type": "OnDelete"}),), "Strategy.type", "Rolling"),
    ((conflist_edit(lambda whole: whole.update(name="net")),), "name: 'net'", "k8s-pod-network"),
    ((conflist_edit(lambda whole: whole.update(cniVersion="1.1.0")),), "cniVersion: '1.1.0'", "0.3.1, 0.4.0 or 1.0.0"),
    ((plugin(type="other"), conflist_edit(lambda whole: whole["plugins"].append({"type": "netplug"}))), "type: 'other'",
     "flannel's plugin"),
    ((plugin(datastore_type="etcdv3"),), "datastore_type: 'etcdv3'", "move the data first"),
    ((conflist_edit(lambda whole: whole["plugins"][0].pop("datastore_type")),), "datastore_type: nothing", "an etcd"),
    ((plugin(k8s_auth_token=HIDDEN),), "k8s_auth_token: '…'", "no such setting"),
    ((plugin(log_level="none"),), "log_level: 'none'", "ERROR, WARNING"),
    ((plugin(mtu=True),), "mtu: True", "another type"),
    ((plugin(mtu="1"),), "mtu: '1'", "another type"),
    ((plugin(netplug_api_group="projectnetplug.org/v3"),), "netplug_api_group", "crd.projectnetplug.org/v1"),
    ((plugin(ipam={"type": "netplug-ipam", "ipv4_pools": ["a"]}),), "ipam.ipv4_pools: ['a']", "nodeSelector"),
    ((plugin(ipam={"type": "netplug-ipam", "subnet": "usePodCidr"}),), "ipam.subnet", "nodeSelector"),
    ((plugin(ipam={"type": "netplug-ipam", "assign_ipv4": "yes"}),), "ipam.assign_ipv4: 'yes'", "true or false"),
    ((plugin(ipam={"type": "dhcp"}),), "ipam.type: 'dhcp'", "netplug-ipam or host-local"),
    ((plugin(ipam={"type": "host-local", "subnet": "10.0.0.0/24"}),), "ipam: ['10.0.0.0/24']", "usePodCidr"),
    ((plugin(ipam={"type": "host-local", "ranges": [[{"subnet": "usePodCidrIPv6"}]]}),), "ipam", "with an IPv6 pool"),
    ((conflist_edit(lambda whole: whole["plugins"].append({"type": "mine"})),), "plugins[2]: 'mine'", "portmap"),
    ((conflist_edit(lambda whole: whole["plugins"][1].update(snat=False)),), "plugins[1]", "portmap with snat"),
    ((tuning(sysctl={"net.core.somaxconn": "1"}),), "plugins[2]: 'net.core.somaxconn'", "tcp_keepalive_intvl"),
    ((tuning(mac="aa:bb:cc:dd:ee:ff"),), "plugins[2]: 'mac'", "can be taken over"),
    ((setting("veth_mtu", "many"),), "CNI_MTU", "as a number"),
    ((setting("cni_network_config", "{"),), "cni_network_config", "JSON is expected"),
])  # fmt: skip
def test_what_cannot_be_taken_over_is_refused(edits: tuple[Edit, ...], field: str, words: str) -> None:
    problems = [str(one) for one in converted(*edits).problems]
    assert any(field in problem and words in problem for problem in problems), problems
    assert "secret-text" not in str(problems)


def test_each_other_manifest_is_refused() -> None:
    for method, words in (
        (Method.KDD_FLANNEL, "netplug with flannel cannot be converted"),
        (Method.ETCD, "move the data first"),
        (Method.ETCD_FLANNEL, "netplug with flannel cannot be converted"),
    ):
        problems = converted(method=method).problems
        assert words in str(list(map(str, problems))), method


def test_a_problem_names_component_field_value_and_next_step() -> None:
    (problem,) = converted(variable(NODE, "MINE", "1")).problems
    assert isinstance(problem, IncompatibleCluster)
    assert isinstance(problem, ConfigurationError)
    assert str(problem) == (
        "DaemonSet kube-system/netplug-node: netplug-node.env.MINE: '1' cannot be taken over; "
        "an Installation has no such setting; remove it, wait for the pods, and try again"
    )


@pytest.mark.parametrize("ipam, pools, words", [
    ({"assign_ipv4": "false", "assign_ipv6": "true"}, (V4, V6), "the cluster has an IPv4 pool"),
    ({}, (V4, V6), "the cluster has an IPv6 pool"),
    ({"assign_ipv6": "true"}, (V4,), "the cluster has no IPv6 pool"),
])  # fmt: skip
def test_families_that_contradict_the_pools(ipam: dict[str, object], pools: tuple[IPPool, ...], words: str) -> None:
    problems = converted(plugin(ipam={"type": "netplug-ipam", **ipam}), pools=pools).problems
    assert words in str(list(map(str, problems)))


def test_host_local_takes_the_families_of_the_pools() -> None:
    both = plugin(ipam={"type": "host-local", "ranges": [[{"subnet": "usePodCidr"}], [{"subnet": "usePodCidrIPv6"}]]})
    assert missing(both, pools=(V4, V6))["netplugNetwork"]["cni"]["ipam"] == {"type": "HostLocal"}
    six = plugin(ipam={"type": "host-local", "subnet": "usePodCidrIPv6"})
    assert missing(six, pools=(V6,))["netplugNetwork"]["cni"]["ipam"] == {"type": "HostLocal"}


@pytest.mark.parametrize("spec, path, words", [
    (network(mtu=1400), "spec.netplugNetwork.mtu: '1400'", "the static manifest has 0"),
    (network(hostPorts="Disabled"), "spec.netplugNetwork.hostPorts: 'Disabled'", "has Enabled"),
    (network(sysctl=[{"key": "net.ipv4.tcp_keepalive_time", "value": "1"}]), "spec.netplugNetwork.sysctl", "has none"),
    (network(cniFeatures={"floatingIPs": "Enabled"}), "cniFeatures: 'floating_ips Enabled'", "none"),
    (network(cni={"ipam": {"type": "HostLocal"}}), "spec.cni.ipam.type: 'HostLocal'", "has Netplug"),
    ({"cni": {"type": "GKE"}}, "spec.cni.type: 'GKE'", "has Netplug"),
])  # fmt: skip
def test_an_installation_that_says_otherwise(spec: dict[str, object], path: str, words: str) -> None:
    problems = list(map(str, converted(spec=spec).problems))
    assert any(path in problem and words in problem for problem in problems), problems


def test_the_group_of_native_definitions() -> None:
    group = "projectnetplug.org/v3"
    edits = (variable(INSTALLER, "NETPLUG_API_GROUP", group), plugin(netplug_api_group="__NETPLUG_API_GROUP__"))
    assert converted(*edits, api_group=group).problems == ()
    assert converted(*edits).problems != ()


@pytest.mark.parametrize("name, text, is_refused", [
    ("ENABLED_CONTROLLERS", "node", False), ("ENABLED_CONTROLLERS", "node,loadbalancer", False),
    ("ENABLED_CONTROLLERS", "node,policy", True),
    ("AUTO_HOST_ENDPOINTS", "disabled", False), ("AUTO_HOST_ENDPOINTS", "enabled", True),
])  # fmt: skip
def test_controllers_of_the_manifest(name: str, text: str, *, is_refused: bool) -> None:
    containers = [{"name": "controllers", "env": [{"name": name, "value": text}]}]
    controllers = {"spec": {"template": {"spec": {"containers": containers}}}}
    objects = evolve(static_objects(), controllers=controllers)
    problems = convert(objects, read(), ClusterFacts()).problems
    assert [str(problem).startswith("Deployment kube-system/netplug-kube-controllers") for problem in problems] == (
        [True] if is_refused else []
    )


def test_a_daemonset_of_something_else() -> None:
    objects = static_objects(Method.KDD, lambda daemonset, _: daemonset.update(spec={"template": {"spec": "?"}}))
    assert "a container netplug-node is expected" in str(
        list(map(str, convert(objects, read(), ClusterFacts()).problems))
    )
