"""Annotations of pods and namespaces in a real API server, on a real kernel, with every datastore.

The numbers are those of the black-box checks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.harness.annotations import prefixed
from tests.harness.node import GATEWAY_ADDRESS, CNIRuntime, NetnsNode, PodNamespace
from tests.harness.plugin_datastores import PluginDatastore
from tests.harness.pod_cluster import NAMESPACE, PodCluster, cni_args, on_every_pod_datastore, open_pod_cluster
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import install_role, make_pod

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]

FEATURES = {"ip_addrs_no_ipam": True, "floating_ips": True, "allowed_source_prefixes": True}
CAPABILITY = "io.kubernetes.cri.pod-annotations"


@pytest.fixture
def cluster(
    node: NetnsNode, runtime: CNIRuntime, api_server: ApiServer, plugin_datastore: PluginDatastore
) -> Iterator[PodCluster]:
    with open_pod_cluster(node, runtime, api_server, plugin_datastore) as opened:
        yield opened


def host_end(node: NetnsNode) -> str:
    (name,) = [name for name in node.links() if name.startswith("netp")]
    return name


def addresses_of(node: NetnsNode, pod: PodNamespace) -> set[str]:
    """The addresses of the pod's interface, as the kernel has them."""
    found = node.links(pod)["eth0"]["addr_info"]
    assert isinstance(found, list)
    return {address["local"] for address in found}


@on_every_pod_datastore
def test_a_pod_has_the_addresses_that_it_names_and_keeps_them(cluster: PodCluster) -> None:
    """Checks 80, 81 and 87; no later change of an annotation alters a running pod."""
    texts = {"ipAddrs": '["fd65::9", "10.65.0.111"]', "hwAddr": "CA-FE-CA-FE-CA-FE", "ipv4pools": '["v6"]'}
    pod = cluster.make_pod(**texts)
    added = cluster.add(pod)
    assert list(added.addresses) == ["fd65::9", "10.65.0.111"]
    assert '"mac": "ca:fe:ca:fe:ca:fe"' in added.stdout
    expected = {"fd65::9", "10.65.0.111", "fe80::c8fe:caff:fefe:cafe"}
    assert addresses_of(cluster.node, pod) == expected
    assert cluster.node.links(pod)["eth0"]["address"] == "ca:fe:ca:fe:ca:fe"
    assert all(cluster.node.can_ping(address) for address in added.addresses)
    assert [sorted(held) for held in cluster.datastore.store.held().values()] == [["10.65.0.111", "fd65::9"]]

    cluster.annotate(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod.name}", ipAddrs='["10.65.0.7"]', hwAddr="x")
    cluster.annotate_namespace(ipv4pools='["nowhere"]')
    checked = cluster.runtime.check(cluster.conf(), pod, added, CNI_ARGS=cni_args(pod))
    assert checked.is_success_without_output, checked
    assert addresses_of(cluster.node, pod) == expected
    cluster.delete(pod)
    cluster.assert_nothing_left()


@on_every_pod_datastore
def test_check_89_a_new_container_of_the_pod_has_the_same_address(cluster: PodCluster) -> None:
    """The DEL of the former one comes late: it frees nothing, and the new one keeps its network."""
    former = cluster.make_pod(ipAddrs='["10.65.0.9"]')
    args = {"CNI_ARGS": cni_args(former)}
    cluster.runtime.add(cluster.conf(), former, **args)
    new = cluster.node.make_pod()
    again = cluster.runtime.add(cluster.conf(), new, **args)
    assert list(again.addresses) == ["10.65.0.9"]
    assert "a former container of the pod still held addresses" in again.stderr
    cluster.runtime.delete(cluster.conf(), former, **args)
    assert cluster.node.can_ping("10.65.0.9")
    assert list(cluster.datastore.store.held().values()) == [("10.65.0.9",)]
    assert cluster.runtime.check(cluster.conf(), new, again, **args).is_success_without_output
    cluster.runtime.delete(cluster.conf(), new, **args)
    cluster.assert_nothing_left()


@on_every_pod_datastore
def test_pools_of_the_namespace_and_of_the_pod(cluster: PodCluster) -> None:
    """Checks 76, 77 and 79."""
    cluster.datastore.store.add_pool("blue", "10.77.0.0/28")
    cluster.annotate_namespace(ipv4pools='["10.77.0.0/28"]')
    plain, own = cluster.make_pod(), cluster.make_pod(ipv4pools='["v4"]')
    added = cluster.add(plain)
    assert added.addresses[0].startswith("10.77.0.")
    assert cluster.add(own, ipam={"type": "netplug-ipam", "ipv4_pools": ["nowhere"]}).addresses[0].startswith("10.65.")
    cluster.annotate_namespace(ipv4pools='["missing"]')
    other = cluster.node.make_pod()
    make_pod(cluster.server, NAMESPACE, other.name, node="node-1")
    reply = cluster.runtime.call("ADD", cluster.conf(), other, CNI_ARGS=cni_args(other))
    assert (reply.code, "missing" in reply.text) == (101, True)
    for pod in (plain, own):
        cluster.delete(pod)
    cluster.assert_nothing_left()


@pytest.mark.parametrize("plugin_datastore", ["sqlite"], indirect=True)
def test_checks_76_and_79_a_full_pool_and_one_of_other_nodes(cluster: PodCluster) -> None:
    """The next pool of the list serves where the first is full; a pool that is named may be one of other nodes."""
    cluster.datastore.store.add_pool("tiny", "10.88.0.0/32")
    cluster.datastore.store.add_pool("far", "10.89.0.0/28", node_selector="rack == 'far'")
    first, second = cluster.make_pod(ipv4pools='["tiny"]'), cluster.make_pod(ipv4pools='["tiny"]')
    assert cluster.add(first).addresses == ("10.88.0.0",)
    reply = cluster.runtime.call("ADD", cluster.conf(), second, CNI_ARGS=cni_args(second))
    assert (reply.code, "Assigned 0 out of 1 requested IPv4 addresses" in reply.text) == (105, True), reply
    others = [cluster.make_pod(ipv4pools=text) for text in ('["tiny", "v4"]', '["far"]', "")]
    found = [cluster.add(pod).addresses[0] for pod in others]
    assert [address.rsplit(".", 1)[0] for address in found] == ["10.65.0", "10.89.0", "10.65.0"]
    for pod in (first, *others):
        cluster.delete(pod)
    cluster.assert_nothing_left()


@on_every_pod_datastore
def test_addresses_without_address_assignment(cluster: PodCluster) -> None:
    """Check 84: the pod has them, the node has the routes, and no block knows of them."""
    pod = cluster.make_pod(ipAddrsNoIpam='["203.0.113.9"]')
    refused = cluster.refusal(pod)
    assert (refused.code, "requested feature is not enabled: ip_addrs_no_ipam" in refused.text) == (7, True)
    conf = {"feature_control": FEATURES}
    added = cluster.add(pod, **conf)
    assert list(added.addresses) == ["203.0.113.9"]
    assert cluster.node.can_ping("203.0.113.9")
    assert (cluster.datastore.store.held(), cluster.datastore.store.handles()) == ({}, set())
    checked = cluster.runtime.check(cluster.conf(**conf), pod, added, CNI_ARGS=cni_args(pod))
    assert checked.is_success_without_output, checked
    cluster.delete(pod)
    cluster.assert_nothing_left()
    assert [route for route in cluster.node.routes() if route["dst"] == "203.0.113.9"] == []


@on_every_pod_datastore
def test_floating_ips_are_stored_and_logged_once(cluster: PodCluster) -> None:
    """Check 85."""
    pod = cluster.make_pod(floatingIPs='["198.51.100.1", "198.51.100.1"]')
    added = cluster.add(pod, feature_control=FEATURES)
    assert added.stderr.count("floating IPs are programmed only where NodeConfiguration has floatingIPs Enabled") == 1
    # On a shared API server, other tests have left pods with containers of that name in other namespaces.
    stored = [
        one
        for one in cluster.datastore.store.endpoints().values()
        if (one.metadata.namespace, one.spec.container_id) == (NAMESPACE, pod.name)
    ]
    assert [[(str(nat.internal), str(nat.external)) for nat in one.spec.ip_nats] for one in stored] == [
        [(added.addresses[0], "198.51.100.1")]
    ]
    cluster.delete(pod)
    cluster.assert_nothing_left()


def filtered_packets(node: NetnsNode) -> int:
    """How many packets the node's kernel has dropped because of their source."""
    names, counts = [
        line.split() for line in node.run("cat", "/proc/net/netstat").splitlines() if line.startswith("TcpExt:")
    ]
    return int(counts[names.index("IPReversePathFilter")])


@pytest.mark.parametrize("plugin_datastore", ["sqlite"], indirect=True)
def test_other_source_addresses(cluster: PodCluster) -> None:
    """Check 86: only the pod with the annotation may send from another address than its own."""
    node = cluster.node
    warning = "net.ipv4.conf.all.rp_filter is not 0 on this node: the kernel drops what 'eth0'"
    for of_all in ("1", "0"):
        node.set_setting("ipv4/conf/all/rp_filter", of_all)
        pod = cluster.make_pod(allowedSourcePrefixes='["198.51.100.7/32"]')
        assert (warning in cluster.add(pod, feature_control=FEATURES).stderr) is (of_all == "1")
        cluster.delete(pod)
    for texts, is_filtered in (({}, True), ({"allowedSourcePrefixes": '["198.51.100.7/32"]'}, False)):
        pod = cluster.make_pod(**texts)
        added = cluster.add(pod, feature_control=FEATURES)
        assert node.setting(f"ipv4/conf/{host_end(node)}/rp_filter") == ("1" if is_filtered else "0")
        node.run("ip", "addr", "add", "198.51.100.7/32", "dev", "eth0", inside=pod.name)
        before = filtered_packets(node)
        node.run_unchecked("ping", "-n", "-c", "1", "-W", "1", "-I", "198.51.100.7", GATEWAY_ADDRESS, inside=pod.name)
        assert (filtered_packets(node) > before) is is_filtered
        node.run("ip", "addr", "del", "198.51.100.7/32", "dev", "eth0", inside=pod.name)
        conf = cluster.conf(feature_control=FEATURES)
        checked = cluster.runtime.check(conf, pod, added, CNI_ARGS=cni_args(pod))
        assert checked.is_success_without_output, checked
        cluster.delete(pod)
    cluster.assert_nothing_left()


REFUSED: tuple[tuple[dict[str, str], int, str], ...] = (
    ({"ipAddrs": "10.65.0.9"}, 7, "failed to parse as JSON"),
    ({"ipAddrs": "[]"}, 7, "specified but empty"),
    ({"ipAddrs": '["10.65.0.8","10.65.0.9"]'}, 7, "cannot have more than one IPv4 address"),
    ({"ipAddrs": '["fd65::1","fd65::2"]'}, 7, "cannot have more than one IPv6 address"),
    ({"ipAddrs": '["10.65.0.9/32"]'}, 7, "invalid IP format: '10.65.0.9/32'"),
    ({"ipAddrs": '["10.65.0.9"]', "ipAddrsNoIpam": '["10.65.0.9"]'}, 7, "can't have both annotations"),
    ({"ipAddrs": '["192.0.2.77"]'}, 111, "192.0.2.77"),
    ({"ipv4pools": '["10.65.0.0/25"]'}, 101, "10.65.0.0/25"),
    ({"ipFamilies": '["IPv5"]'}, 7, "error parsing ipFamilies"),
    ({"floatingIPs": '["198.51.100.1"]'}, 7, "requested feature is not enabled: floating_ips"),
    ({"allowedSourcePrefixes": '["8.8.8.8"]'}, 7, "failed to parse as a CIDR: '8.8.8.8'"),
    ({"hwAddr": "invalid MAC address"}, 7, "failed to parse MAC address"),
    ({"ipv4Pools": '["v4"]'}, 7, "there is no such annotation"),
)


@pytest.mark.parametrize("plugin_datastore", ["sqlite"], indirect=True)
def test_checks_82_to_87_what_is_refused_leaves_nothing(cluster: PodCluster) -> None:
    for texts, code, text in REFUSED:
        reply = cluster.refusal(cluster.make_pod(**texts))
        assert (reply.code, text in reply.text) == (code, True), reply


@pytest.mark.parametrize("plugin_datastore", ["sqlite"], indirect=True)
def test_checks_65_what_cannot_be_looked_up(cluster: PodCluster) -> None:
    gone = cluster.node.make_pod()
    reply = cluster.refusal(gone)
    assert (reply.code, f"pod {NAMESPACE}/{gone.name}" in reply.text) == (4, True)
    token = install_role(cluster.server, without=("namespaces", "get"))
    blind = cluster.server.write_kubeconfig(token, name="blind")
    reply = cluster.refusal(cluster.make_pod(), kubernetes={"kubeconfig": blind})
    install_role(cluster.server)
    assert (reply.code, "namespaces" in reply.text) == (11, True)
    away = {"k8s_api_root": "https://127.0.0.1:1"}
    assert cluster.refusal(cluster.make_pod(), kubernetes=away).code == 11


@pytest.mark.parametrize("plugin_datastore", ["sqlite", "kubernetes"], indirect=True)
def test_check_26_the_test_flag_asks_the_api_server_too(cluster: PodCluster) -> None:
    """Beside another datastore, it is asked for the node; a node that is not there yet is no failure."""
    for access, status in (({"kubeconfig": cluster.kubeconfig}, 0), ({"k8s_api_root": "https://127.0.0.1:1"}, 1)):
        stdin = json.dumps(cluster.conf(nodename="unregistered", kubernetes=access))
        done = cluster.node.run_unchecked(cluster.runtime.executable("netplug"), "-t", stdin=stdin, env={})
        assert done.returncode == status, done
        assert ('"code": 100' in done.stdout, "https://127.0.0.1:1" in done.stdout) == (status == 1, status == 1)


def test_annotations_from_the_runtime(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Containerd sends them if the configuration declares the capability; nothing is asked of an API server."""
    sent = {CAPABILITY: prefixed({"ipAddrs": '["10.65.0.77"]', "hwAddr": "02:00:00:00:00:77"})}
    conf = runtime.make_netconf(capabilities={CAPABILITY: True}, runtimeConfig=sent)
    added = runtime.add(conf, pod, CNI_ARGS=cni_args(pod))
    assert list(added.addresses) == ["10.65.0.77"]
    assert node.links(pod)["eth0"]["address"] == "02:00:00:00:00:77"
    assert runtime.check(conf, pod, added, CNI_ARGS=cni_args(pod)).is_success_without_output
    runtime.delete(conf, pod, CNI_ARGS=cni_args(pod))
    assert node.store.is_empty
    broken = json.loads(json.dumps(conf).replace("10.65.0.77", "10.65.0.77/8"))
    reply = runtime.call("ADD", broken, pod, CNI_ARGS=cni_args(pod))
    assert (reply.code, "ipAddrs" in reply.text) == (7, True)
    assert node.store.is_empty
