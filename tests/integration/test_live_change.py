"""Fields of an Installation that are changed while pods run: the nodes follow, and no ping between the pods is lost.

They are the fields that reach the configuration of the plugin, the pools, or the pods of the nodes, also those whose
effect nothing programs yet. A CNI plugin and an IPAM cannot be changed in a cluster that runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from attrs import frozen

from tests.harness.installations import manifest
from tests.harness.runtimes.from_empty import CONF, EmptyCluster, open_empty_cluster
from tests.harness.tool_user import ToolUser
from tools.images.build import REFERENCE

pytestmark = [pytest.mark.netns, pytest.mark.runtimes, pytest.mark.cluster]

NODES = ("node-1", "node-2")
OTHER_CONF, OTHER_BIN = "/etc/cni/other.d", "/opt/cni/other"
MIRRORED = REFERENCE.replace("docker.io/netplug/node", "registry.example/mirror/edge-node")
PLAIN: dict[str, object] = {"encapsulation": "VXLAN", "natOutgoing": "Disabled"}
MAIN: dict[str, object] = {"name": "main", "cidr": "10.65.0.0/16", **PLAIN}
FURTHER: dict[str, object] = {"name": "further", "cidr": "10.67.0.0/16", **PLAIN}
SIX: dict[str, object] = {"name": "six", "cidr": "fd67::/48", **PLAIN}


@frozen(kw_only=True)
class Change:
    """A change of the Installation, and what of it is found afterwards: each a part of the whole.

    ``plugins`` are those of the conflist by type, ``settings`` the spec of the DaemonSet's pods, ``pools`` by name.
    """

    spec: Mapping[str, object]
    plugins: Mapping[str, object] | None = None
    variables: Mapping[str, str] | None = None
    settings: Mapping[str, object] | None = None
    strategy: Mapping[str, object] | None = None
    pools: Mapping[str, object] | None = None
    folder: str = CONF


def network(*pools: Mapping[str, object], **members: object) -> dict[str, object]:
    return {"netplugNetwork": {"bgp": "Disabled", "ipPools": [MAIN, *pools], **members}}


def changed_pool(**fields: object) -> dict[str, object]:
    return network({**FURTHER, **fields})


LOG = {"logSeverity": "Debug", "logFileMaxSize": "2Mi", "logFileMaxAgeDays": 3, "logFileMaxCount": 4}
CHANGES = {
    "the log": Change(
        spec={**network(), "logging": {"cni": LOG}},
        plugins={
            "netplug": {"log_level": "DEBUG", "log_file_max_size": 2, "log_file_max_age": 3, "log_file_max_count": 4}
        },
    ),
    "interfaces of pods": Change(
        spec=network(mtu=1400, containerIPForwarding="Enabled", linuxPolicySetupTimeoutSeconds=1),
        plugins={
            "netplug": {
                "mtu": 1400,
                "container_settings": {"allow_ip_forwarding": True},
                "policy_setup_timeout_seconds": 1,
            }
        },
        variables={"NETPLUG_ENDPOINT_STATUS_PATH_PREFIX": "/var/run/netplug"},
    ),
    "chained plugins": Change(
        spec=network(hostPorts="Disabled", sysctl=[{"key": "net.ipv4.tcp_keepalive_time", "value": "40"}]),
        plugins={"portmap": None, "tuning": {"sysctl": {"net.ipv4.tcp_keepalive_time": "40"}}},
    ),
    "what is not programmed yet": Change(
        spec=network(linuxPodInterfaceType="Netkit", multiInterfaceMode="Multus", linuxDataplane="Nftables"),
        plugins={"netplug": {"device_type": "netkit"}},
    ),
    "bgp and the addresses of nodes": Change(
        spec=network(
            bgp="Enabled",
            nodeAddressAutodetectionV4={"interface": "lan.*"},
            nodeAddressAutodetectionV6={"cidrs": ["fd24::/64"]},
        ),
        variables={
            "NETPLUG_NETWORKING_BACKEND": "bird",
            "IP_AUTODETECTION_METHOD": "interface=lan.*",
            "IP6_AUTODETECTION_METHOD": "cidr=fd24::/64",
        },
    ),
    "the version of the configuration": Change(spec=network(cni={"specVersion": "0.4.0"}), plugins={}),
    "only the own plugins": Change(
        spec=network(cni={"installMode": "NetplugOnly"}),
        settings={"initContainers": [{"env": [{"name": "SKIP_CNI_BINARIES"}]}]},
    ),
    "the folders": Change(
        spec=network(cni={"confDir": OTHER_CONF, "binDir": OTHER_BIN}), plugins={"netplug": {}}, folder=OTHER_CONF
    ),
    "the provider": Change(
        spec={**network(cni={"type": "Netplug"}), "kubernetesProvider": "AKS"},
        variables={"CLUSTER_TYPE": "k8s,operator,aks"},
    ),
    "where images are": Change(
        spec={
            **network(),
            "registry": "registry.example/",
            "imagePath": "mirror",
            "imagePrefix": "edge-",
            "imagePullSecrets": [{"name": "keys"}],
        },
        settings={
            "imagePullSecrets": [{"name": "keys"}],
            "initContainers": [{"image": MIRRORED}],
            "containers": [{"image": MIRRORED, "imagePullPolicy": "IfNotPresent"}],
        },
    ),
    "how pods are updated": Change(
        spec={**network(), "nodeUpdateStrategy": {"rollingUpdate": {"maxUnavailable": "50%"}}},
        strategy={"rollingUpdate": {"maxUnavailable": "50%"}},
    ),
    "a further pool": Change(spec=network(FURTHER), pools={"further": {"cidr": "10.67.0.0/16", "blockSize": 26}}),
    "the other family": Change(
        spec=network(FURTHER, SIX),
        plugins={"netplug": {"ipam": {"assign_ipv4": "true", "assign_ipv6": "true"}}},
        pools={"six": {"cidr": "fd67::/48", "blockSize": 122}},
    ),
    "every field of a pool": Change(
        spec=changed_pool(
            encapsulation="VXLANCrossSubnet",
            natOutgoing="Enabled",
            nodeSelector="zone == 'a'",
            disableBGPExport=True,
            disableNewAllocations=True,
            allowedUses=["Tunnel"],
            assignmentMode="Manual",
        ),
        plugins={"netplug": {"ipam": {"assign_ipv4": "true", "assign_ipv6": "false"}}},
        pools={
            "further": {
                "vxlanMode": "CrossSubnet",
                "natOutgoing": True,
                "nodeSelector": "zone == 'a'",
                "disableBGPExport": True,
                "disabled": True,
                "allowedUses": ["Tunnel"],
                "assignmentMode": "Manual",
            },
            "six": None,
        },
    ),
    "nothing any more": Change(
        spec=network(), plugins={"portmap": {}, "tuning": None, "netplug": {"mtu": 0}}, pools={"further": None}
    ),
}


def is_part(wanted: object, found: object) -> bool:
    """Whether everything that is wanted is found, in objects among other members. None stands for what is not there."""
    match wanted:
        case Mapping():
            return isinstance(found, Mapping) and all(is_part(value, found.get(key)) for key, value in wanted.items())
        case list():
            return isinstance(found, list) and all(any(is_part(value, one) for one in found) for value in wanted)
    return wanted == found


@pytest.fixture(scope="module")
def cluster(node_image: Path, busybox_image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmptyCluster]:
    """Two nodes; their image has a second name, that of a registry which nobody reaches."""
    with open_empty_cluster(tmp_path_factory.mktemp("cluster"), [busybox_image, node_image], *NODES) as opened:
        for node in opened.nodes.values():
            node.run("ctr", "-n", "k8s.io", "images", "tag", REFERENCE, MIRRORED)
        yield opened


def conflist_plugins(cluster: EmptyCluster, node: str, folder: str) -> dict[str, object]:
    """The plugins of the conflist on a node by type; of a conflist that is not there, none."""
    shown = cluster.nodes[node].run_unchecked("cat", f"{folder}/10-netplug.conflist").stdout
    return {one["type"]: one for one in json.loads(shown or '{"plugins": []}')["plugins"]}


def check_followed(cluster: EmptyCluster, tool: ToolUser, change: Change) -> None:
    """What follows from a change is there, on every node too."""
    shown = cluster.cluster.run_kubectl("-n", "netplug-system", "get", "daemonset", "netplug-node", "-o", "json")
    spec = json.loads(shown)["spec"]
    pod = spec["template"]["spec"]
    variables = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert is_part(change.variables or {}, variables), variables
    assert is_part(change.settings or {}, pod), pod
    assert is_part(change.strategy or {}, spec["updateStrategy"]), spec["updateStrategy"]
    for node in NODES:
        found = conflist_plugins(cluster, node, change.folder)
        assert is_part(change.plugins or {}, found), (node, found)
    listed = yaml.safe_load(tool.run_command("get", "ippools", "-o", "yaml").out)["items"]
    pools = {one["metadata"]["name"]: one["spec"] for one in listed}
    assert is_part(change.pools or {}, pools), pools


def apply(tool: ToolUser, spec: Mapping[str, object]) -> None:
    """Apply an Installation; returns when every node has what follows from it."""
    path = tool.file(yaml.safe_dump(manifest(spec)))
    result = tool.run_command("install", "apply", "-f", path, "--wait")
    assert result.status == 0, result.all_output


def pods_of_nodes(cluster: EmptyCluster) -> set[str]:
    """The pods of netplug-node, by their UIDs."""
    shown = cluster.cluster.run_kubectl(
        "-n", "netplug-system", "get", "pods", "-l", "k8s-app=netplug-node", "-o", "json"
    )
    return {one["metadata"]["uid"] for one in json.loads(shown)["items"]}


def test_the_nodes_follow_every_field_and_no_ping_is_lost(cluster: EmptyCluster, tmp_path: Path) -> None:
    tool = cluster.make_tool(tmp_path)
    apply(tool, network())
    with cluster.pinging(cluster.start_pods(2)) as lost:
        for what, change in CHANGES.items():
            apply(tool, change.spec)
            check_followed(cluster, tool, change)
            assert lost() == [], what
    cluster.stop_pods()


def test_an_update_takes_the_plugin_from_one_node_at_most(cluster: EmptyCluster, tmp_path: Path) -> None:
    """So many may be without the pod, unless ``maxUnavailable`` says another number."""
    tool = cluster.make_tool(tmp_path)
    apply(tool, network())
    before = pods_of_nodes(cluster)
    with cluster.asking_status() as rounds:
        apply(tool, {**network(), "nodeResources": {"limits": {"memory": "300Mi"}}})
    after = pods_of_nodes(cluster)
    assert (len(before & after), len(after)) == (0, len(NODES)), "every pod was replaced"
    without = [names for names in rounds if names]
    print(f"{len(without)} of {len(rounds)} rounds found a node without a plugin that works")  # noqa: T201
    assert max(map(len, rounds)) <= 1, without
