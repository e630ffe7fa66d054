"""One attachment on a real kernel, from ADD to DEL: what it is made of, and what is left of it, which is nothing.

Numbers are those of the black-box checks.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import pytest

from netplug_core.names import container_mac, host_interface_name
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PodNamespace
from tests.harness.plugin_datastores import PluginDatastore, on_every_datastore
from tests.harness.release_records import record_files
from tests.harness.waiting import is_eventually, wait_until

pytestmark = pytest.mark.netns

IPV4_OF_HOST_END = {
    "ipv4/conf/{}/proxy_arp": "1",
    "ipv4/neigh/{}/proxy_delay": "0",
    "ipv4/conf/{}/forwarding": "1",
    "ipv4/conf/{}/route_localnet": "0",
    "ipv4/conf/{}/rp_filter": "1",
    "ipv6/conf/{}/accept_ra": "0",
}
IPV6_OF_HOST_END = {
    "ipv6/conf/{}/proxy_ndp": "1",
    "ipv6/conf/{}/forwarding": "1",
    "ipv6/conf/{}/accept_dad": "0",
    "ipv6/conf/{}/disable_ipv6": "0",
    "ipv6/conf/{}/accept_ra": "0",
}


def host_name(pod: PodNamespace, ifname: str = "eth0") -> str:
    """The node's end of a pod's interface."""
    return host_interface_name(pod_namespace="", pod="", container_id=pod.name, ifname=ifname)


def dual(runtime: CNIRuntime, **changes: object) -> NetConfDict:
    """A configuration for both families."""
    return runtime.make_netconf(ipam={"type": "netplug-ipam", "assign_ipv6": "true"}, **changes)


def test_the_end_on_the_node(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 41: it is up, proxies ARP at once and forwards, and has one route: the address, protocol 78, metric 10."""
    (address,) = runtime.add(runtime.make_netconf(), pod).addresses
    name = host_name(pod)

    flags = node.links()[name]["flags"]
    assert isinstance(flags, list)
    assert {"UP", "LOWER_UP"} <= set(flags)
    assert node.links()[name]["address"] == "ee:ee:ee:ee:ee:ee"
    assert {path: node.setting(path.format(name)) for path in IPV4_OF_HOST_END} == IPV4_OF_HOST_END
    (route,) = [route for route in node.routes() if route["dev"] == name]
    expected = {"type": "unicast", "dst": address, "protocol": "78", "scope": "link", "metric": 10}
    assert {key: route.get(key) for key in expected} == expected
    assert "gateway" not in route
    runtime.delete(runtime.make_netconf(), pod)


def test_the_end_on_the_node_with_ipv6(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 41 for IPv6: no wait for duplicates, the gateway's address, and a route better than a learned one."""
    conf = runtime.make_netconf(ipam={"type": "netplug-ipam", "assign_ipv4": "false", "assign_ipv6": "true"})
    (address,) = runtime.add(conf, pod).addresses
    name = host_name(pod)

    assert {path: node.setting(path.format(name)) for path in IPV6_OF_HOST_END} == IPV6_OF_HOST_END
    routes = [route for route in node.routes(family=6) if route["dev"] == name and route["dst"] == address]
    assert [(route["protocol"], route["metric"]) for route in routes] == [("78", 10)]
    assert [route for route in node.routes() if route["dev"] == name] == []
    held = node.links()[name]["addr_info"]
    assert isinstance(held, list)
    assert [info["local"] for info in held] == ["fe80::ecee:eeff:feee:eeee"]
    runtime.delete(conf, pod)


def test_the_end_in_the_container(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 42: a default route by 169.254.1.1, itself on the link, both protocol boot; nothing is forwarded."""
    node.set_setting("ipv4/ip_forward", "1", pod)
    (address,) = runtime.add(runtime.make_netconf(), pod).addresses

    routes = node.routes(pod)
    assert [
        (route["dst"], route.get("gateway"), route["dev"], route["scope"], route["protocol"])
        for route in sorted(routes, key=lambda route: str(route["dst"]))
    ] == [("169.254.1.1", None, "eth0", "link", "boot"), ("default", "169.254.1.1", "eth0", "global", "boot")]
    assert node.setting("ipv4/ip_forward", pod) == "0"
    link = node.links(pod)["eth0"]
    assert link["address"] == container_mac(f"net1.{pod.name}")
    held = link["addr_info"]
    assert isinstance(held, list)
    assert [(info["local"], info["prefixlen"]) for info in held if info["family"] == "inet"] == [(address, 32)]
    runtime.delete(runtime.make_netconf(), pod)


def test_no_default_route_of_the_node_is_needed(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 42 where proxy ARP would not answer: the container knows its next hop's hardware address."""
    node.run("ip", "route", "del", "default")
    (address,) = runtime.add(runtime.make_netconf(), pod).addresses

    assert node.can_ping("192.0.2.1", inside=pod.name)
    assert node.can_ping("192.0.2.2", inside=pod.name)
    assert node.can_ping(address)
    runtime.delete(runtime.make_netconf(), pod)


def test_pods_reach_each_other(node: NetnsNode, runtime: CNIRuntime) -> None:
    """Two containers of one node, in both families."""
    one, other = node.make_pods(2)
    runtime.add(dual(runtime), one)
    theirs = runtime.add(dual(runtime), other).addresses

    assert all(node.can_ping(address, inside=one.name) for address in theirs)
    runtime.delete(dual(runtime), one)
    runtime.delete(dual(runtime), other)


def test_del_leaves_nothing_and_may_come_again(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 44: endpoint, both interfaces, routes, settings and addresses are gone; a second DEL succeeds too."""
    before = node.leftovers()
    runtime.add(dual(runtime), pod)
    assert node.leftovers() != before
    assert len(node.store.held()) == len(node.store.endpoints()) == 1
    runtime.delete(dual(runtime), pod)

    assert node.leftovers() == before
    assert set(node.links(pod)) == {"lo"}
    assert node.store.is_empty
    runtime.delete(dual(runtime), pod)
    runtime.delete(dual(runtime), pod, CNI_NETNS="")


@pytest.mark.parametrize("is_allowed, preset, expected", [(True, "0", "1"), (False, "1", "0")])
def test_forwarding_in_the_container(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, *, is_allowed: bool, preset: str, expected: str
) -> None:
    """Check 45: as configured, whatever the namespace had before."""
    paths = ("ipv4/ip_forward", "ipv6/conf/all/forwarding")
    for path in paths:
        node.set_setting(path, preset, pod)
    conf = dual(runtime, container_settings={"allow_ip_forwarding": is_allowed})
    runtime.add(conf, pod)

    assert [node.setting(path, pod) for path in paths] == [expected, expected]
    runtime.delete(conf, pod)


def test_check_46_an_interface_in_the_way_is_named_and_left_alone(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    """It has the name of our end; whose it is, its alias would say."""
    name = host_name(pod)
    node.run("ip", "link", "add", name, "type", "veth", "peer", "name", "other0")
    node.run("ip", "link", "set", name, "alias", "uplink of the rack")
    before = node.leftovers()
    reply = runtime.call("ADD", runtime.make_netconf(), pod)

    assert reply.code == 125
    assert name in reply.text
    assert "'uplink of the rack'" in reply.text
    runtime.delete(runtime.make_netconf(), pod)
    assert node.leftovers() == before
    assert node.store.is_empty


def test_a_pod_with_the_same_host_interface_name_keeps_its_network(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    """Two pods whose names have one hash: the second ADD fails and the first pod notices nothing."""
    first = runtime.add(runtime.make_netconf(), pod)
    node.run("ip", "link", "set", host_name(pod), "down")
    second = node.make_pod()
    node.run("ip", "link", "set", host_name(pod), "name", host_name(second))
    node.run("ip", "link", "set", host_name(second), "up")
    node.run("ip", "route", "add", f"{first.addresses[0]}/32", "dev", host_name(second))
    reply = runtime.call("ADD", runtime.make_netconf(), second)

    assert (reply.code, set(node.links(second))) == (125, {"lo"})
    assert f"container {pod.name}," in reply.text
    assert node.can_ping(first.addresses[0])
    runtime.delete(runtime.make_netconf(), second)
    assert node.can_ping(first.addresses[0])
    # It is found from inside the namespace, by its alias.
    runtime.delete(runtime.make_netconf(), pod)
    assert set(node.links()) == {"lo", "up0"}


def test_del_leaves_the_interface_of_a_recycled_namespace(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    """CNI_NETNS can name a process that has ended, whose number another container's process has by now."""
    conf, other = runtime.make_netconf(), node.make_pod()
    runtime.add(conf, pod)
    (address,) = runtime.add(conf, other).addresses
    runtime.delete(conf, pod, CNI_NETNS=other.path)

    assert node.can_ping(address)
    assert set(node.links(pod)) == {"lo"}
    runtime.delete(conf, pod, CNI_NETNS=other.path)
    assert node.can_ping(address)


def test_a_foreign_route_is_not_taken(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Somebody else's route to the very address: ADD fails, names both interfaces and leaves nothing."""
    node.run("ip", "route", "add", "10.65.0.0/32", "dev", "up0", "metric", "10")
    before = node.leftovers()
    reply = runtime.call("ADD", runtime.make_netconf(), pod)

    assert reply.code == 122
    assert "up0" in reply.text
    assert host_name(pod) in reply.text
    assert node.leftovers() == before
    assert set(node.links(pod)) == {"lo"}
    assert node.store.is_empty


@pytest.mark.parametrize("version", ["0.2.0"])
def test_the_oldest_results(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, version: str) -> None:
    """Check 51: one address of each family under a key of its own, and no interfaces."""
    conf = dual(runtime, cniVersion=version)
    result = runtime.add(conf, pod).result

    four, six = result["ip4"], result["ip6"]
    assert isinstance(four, dict)
    assert isinstance(six, dict)
    assert four["ip"].endswith("/32")
    assert six["ip"].endswith("/128")
    assert four["routes"] == [{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}]
    assert "interfaces" not in result
    runtime.delete(conf, pod)


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0", "1.1.0"])
def test_the_results_of_today(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, version: str) -> None:
    """Check 51: an address says its family until 0.4.0; the container's interface has a sandbox, ours has none."""
    conf = dual(runtime, cniVersion=version, mtu=1400)
    result = runtime.add(conf, pod).result

    ips, interfaces = result["ips"], result["interfaces"]
    assert isinstance(ips, list)
    assert isinstance(interfaces, list)
    families = ["4", "6"] if version < "1" else [None, None]
    assert [ip.get("version") for ip in ips] == families
    assert [ip["interface"] for ip in ips] == [1, 1]
    theirs = {"name": "eth0", "mac": container_mac(f"net1.{pod.name}"), "sandbox": pod.path}
    assert interfaces == [{"name": host_name(pod)}, {**theirs, **({"mtu": 1400} if version == "1.1.0" else {})}]
    runtime.delete(conf, pod)


def test_the_handle_owns_what_the_endpoint_says(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 52: ``network.container`` holds exactly the endpoint's addresses, and the result's."""
    addresses = runtime.add(dual(runtime), pod).addresses

    assert node.store.held() == {f"net1.{pod.name}": addresses}
    ((name, endpoint),) = node.store.endpoints().items()
    assert name == f"default/node--1-cni-{pod.name.replace('-', '--')}-eth0"
    assert tuple(str(address) for address in endpoint.spec.addresses) == addresses
    assert endpoint.spec.interface_name == host_name(pod)
    assert endpoint.spec.mac == node.links(pod)["eth0"]["address"]
    assert endpoint.spec.profiles == ("net1",)
    runtime.delete(dual(runtime), pod)


def test_a_pod_is_known_by_its_name(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 60: an orchestrator's variables name the endpoint and the host end; unknown ones are passed over."""
    args = "IgnoreUnknown=1;K8S_POD_UID=u;K8S_POD_NAMESPACE=test;K8S_POD_NAME=test-pod-1;K8S_POD_INFRA_CONTAINER_ID=x"
    runtime.add(runtime.make_netconf(), pod, CNI_ARGS=args)

    ((name, endpoint),) = node.store.endpoints().items()
    assert name == "test/node--1-k8s-test--pod--1-eth0"
    assert (endpoint.spec.orchestrator, endpoint.spec.pod, endpoint.spec.container_id) == (
        "k8s", "test-pod-1", pod.name,
    )  # fmt: skip
    assert "netpfpjvd75v4hp" in node.links()
    runtime.delete(runtime.make_netconf(), pod, CNI_ARGS=args)
    assert node.store.is_empty


def test_a_late_del_of_a_restarted_pod(node: NetnsNode, runtime: CNIRuntime) -> None:
    """Check 67: DEL of the pod's old container frees the old address and touches nothing of the new one."""
    args = "K8S_POD_NAMESPACE=test;K8S_POD_NAME=web"
    old, new = node.make_pods(2)
    runtime.add(runtime.make_netconf(), old, CNI_ARGS=args)
    (address,) = runtime.add(runtime.make_netconf(), new, CNI_ARGS=args).addresses
    runtime.delete(runtime.make_netconf(), old, CNI_ARGS=args)

    assert node.store.held() == {f"net1.{new.name}": (address,)}
    (endpoint,) = node.store.endpoints().values()
    assert endpoint.spec.container_id == new.name
    assert node.can_ping(address)
    runtime.delete(runtime.make_netconf(), new, CNI_ARGS=args)
    assert node.store.is_empty
    assert set(node.links()) == {"lo", "up0"}


@pytest.mark.parametrize("network", ["net1", "net2"])
def test_a_second_add_is_refused_and_harms_nothing(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, network: str
) -> None:
    """Check 54: the interface is there, so this is an error that names it; the first attachment works as before."""
    first = runtime.add(dual(runtime), pod)
    wait_until(node.has_local_routes, "the host interface has its link-local address")
    before, held = node.leftovers(), node.store.held()
    reply = runtime.call("ADD", dual(runtime, name=network), pod)

    assert reply.code == 121
    assert "eth0" in reply.text
    assert (node.leftovers(), node.store.held()) == (before, held)
    assert all(node.can_ping(address) for address in first.addresses)
    assert runtime.check(dual(runtime), pod, first).is_success_without_output
    runtime.delete(dual(runtime), pod)


@pytest.mark.parametrize("container", ["", "another"])
def test_checks_55_and_69_an_add_beside_a_host_end_of_another_name(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, container: str
) -> None:
    """Of the same container, or of another one in its namespace: refused, and what the first one holds stays."""
    conf, second = runtime.make_netconf(), container or pod.name
    runtime.add(conf, pod)
    node.run("ip", "link", "set", host_name(pod), "down")
    node.run("ip", "link", "set", host_name(pod), "name", "renamed0")
    held = node.store.held()
    assert runtime.call("ADD", conf, pod, CNI_CONTAINERID=second).code == 121
    assert (node.store.held(), node.store.handles()) == (held, {f"net1.{pod.name}"})
    if container:
        runtime.delete(conf, pod, CNI_CONTAINERID=container)
        assert node.store.held() == held
        assert "eth0" in node.links(pod)
    runtime.delete(conf, pod)
    assert node.store.is_empty
    assert set(node.links()) == {"lo", "up0"}


def test_a_foreign_interface_of_that_name_is_left_alone(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    """Likewise where another plugin made it: nothing is allocated."""
    node.run("ip", "-n", pod.name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth9")

    assert runtime.call("ADD", runtime.make_netconf(), pod).code == 121
    assert set(node.links(pod)) == {"lo", "eth0", "eth9"}
    assert node.store.is_empty


def test_the_same_addresses_in_a_new_namespace(node: NetnsNode, runtime: CNIRuntime) -> None:
    """The namespace was lost and made again for the same container: ADD succeeds with what it held before."""
    one, other = node.make_pods(2)
    first = runtime.add(dual(runtime), one)
    node.remove_pod(one)
    again = runtime.add(dual(runtime), other, CNI_CONTAINERID=one.name)

    assert again.addresses == first.addresses
    assert all(node.can_ping(address) for address in again.addresses)
    assert len(node.store.endpoints()) == 1
    runtime.delete(dual(runtime), other, CNI_CONTAINERID=one.name)
    assert node.store.is_empty


def test_a_second_interface_lives_beside_the_first(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 70: each has an address, a handle and a host end of its own, and DEL of one leaves the other working."""
    (first,) = runtime.add(runtime.make_netconf(), pod).addresses
    (second,) = runtime.add(runtime.make_netconf(), pod, CNI_IFNAME="net1").addresses

    assert node.store.held() == {f"net1.{pod.name}": (first,), f"net1.{pod.name}.net1": (second,)}
    assert {host_name(pod), host_name(pod, "net1")} <= set(node.links())
    assert node.can_ping(first)
    assert node.can_ping(second)
    runtime.delete(runtime.make_netconf(), pod)
    assert set(node.links(pod)) == {"lo", "net1"}
    assert node.store.held() == {f"net1.{pod.name}.net1": (second,)}
    assert node.can_ping(second)
    runtime.delete(runtime.make_netconf(), pod, CNI_IFNAME="net1")
    assert node.store.is_empty
    assert set(node.links()) == {"lo", "up0"}


def test_del_of_what_never_was(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 47: with a namespace, without one, with a path to nothing and one to a plain file."""
    before = node.leftovers()
    for namespace in (pod.path, "", "/not/a/real/path1234567890", node.write_file("plain", "")):
        runtime.delete(runtime.make_netconf(), pod, CNI_NETNS=namespace)

    assert node.leftovers() == before
    assert node.store.is_empty


def test_del_after_the_namespace_is_gone(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 47: endpoint and address go; the interfaces go with the namespace."""
    runtime.add(dual(runtime), pod)
    node.remove_pod(pod)
    runtime.delete(dual(runtime), pod)

    assert node.store.is_empty
    assert is_eventually(lambda: set(node.links()) == {"lo", "up0"})


@pytest.mark.parametrize("path", ["/not/there", "plain"])
def test_add_needs_a_namespace(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, path: str) -> None:
    """A path that leads to none is a wrong variable, code 4, and nothing is allocated."""
    node.write_file("plain", "")
    reply = runtime.call("ADD", runtime.make_netconf(), pod, CNI_NETNS=os.path.join(node.folder, path))

    assert reply.code == 4
    assert "CNI_NETNS" in reply.text
    assert node.store.is_empty


def test_an_add_that_finds_no_address_leaves_nothing(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """The second family cannot be had: the first is not kept, and nothing is made."""
    before = node.leftovers()
    conf = runtime.make_netconf(ipam={"type": "netplug-ipam", "assign_ipv6": "true", "ipv6_pools": ["nowhere"]})
    reply = runtime.call("ADD", conf, pod)

    assert reply.code == 101
    assert "nowhere" in reply.text
    assert node.leftovers() == before
    assert set(node.links(pod)) == {"lo"}
    assert node.store.is_empty


def test_add_while_the_store_is_away(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Code 11, naming the store, and nothing is made."""
    path = os.path.join(node.write_file("plain", ""), "netplug.db")
    reply = runtime.call("ADD", runtime.make_netconf(sqlite_path=path), pod)

    assert reply.code == 11
    assert path in reply.text
    assert set(node.links()) == {"lo", "up0"}
    assert set(node.links(pod)) == {"lo"}


def test_del_while_the_store_is_away(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """The node's side is cleaned, and a release record keeps the rest for a later call."""
    before = node.leftovers()
    conf = dual(runtime)
    runtime.add(conf, pod)
    os.rename(node.database, node.file("away"))
    os.mkdir(node.database)
    runtime.delete(conf, pod)

    (name,) = record_files(str(conf["release_record_dir"]))
    record = os.path.join(str(conf["release_record_dir"]), name)
    assert os.stat(record).st_mode & 0o777 == 0o600
    assert node.leftovers() == before
    assert set(node.links(pod)) == {"lo"}
    os.rmdir(node.database)
    os.rename(node.file("away"), node.database)
    assert set(node.store.held()) == {f"net1.{pod.name}"}
    runtime.collect(conf)
    assert node.store.is_empty
    wait_until(lambda: not os.path.exists(record), "the record is done")  # by a task of a node process


def test_del_whose_record_cannot_be_written(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """The runtime repeats it: code 11, and the log says why there is no record."""
    before = node.leftovers()
    conf = runtime.make_netconf(release_record_dir=os.path.join(node.write_file("plain", ""), "records"))
    runtime.add(conf, pod)
    os.rename(node.database, node.file("away"))
    os.mkdir(node.database)
    reply = runtime.call("DEL", conf, pod)

    assert reply.code == 11
    assert node.database in reply.text
    assert "the release record cannot be written" in reply.stderr
    assert node.leftovers() == before
    os.rmdir(node.database)
    os.rename(node.file("away"), node.database)
    runtime.delete(conf, pod)
    assert node.store.is_empty


def test_del_while_another_writer_holds_the_store(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Likewise where it is locked for longer than one call to it may take."""
    before = node.leftovers()
    conf = dual(runtime)
    runtime.add(conf, pod)
    with closing(sqlite3.connect(node.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        reply = runtime.delete(conf, pod)
        other.execute("ROLLBACK")

    assert "locked" in reply.stderr
    assert node.leftovers() == before
    assert not node.store.is_empty
    runtime.delete(conf, pod)
    assert node.store.is_empty


def test_the_ready_flag(node: NetnsNode, runtime: CNIRuntime) -> None:
    """Check 27: false stops ADD before anything is done; DEL cleans the node's side and leaves a release record.

    Unset, or no object at all, means ready.
    """
    before = node.leftovers()
    one, other = node.make_pods(2)
    runtime.add(runtime.make_netconf(), one)
    node.store.set_ready(is_ready=False)
    held = node.store.held()

    refused = runtime.call("ADD", runtime.make_netconf(), other)
    assert refused.code == 11
    assert "datastoreReady" in refused.text
    assert set(node.links(other)) == {"lo"}
    runtime.delete(runtime.make_netconf(), one)
    assert set(node.links(one)) == {"lo"}
    assert node.leftovers() == before
    assert node.store.held() == held
    node.store.set_ready(is_ready=True)
    runtime.delete(runtime.make_netconf(), one)
    assert node.store.is_empty
    node.store.set_ready(is_ready=None)
    runtime.add(runtime.make_netconf(), other)
    runtime.delete(runtime.make_netconf(), other)


@pytest.mark.parametrize(
    "harm",
    [
        "ip -n {pod} route del default",
        "ip route del {address}/32",
    ],
)
def test_check_sees_what_was_changed(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, harm: str) -> None:
    """CHECK succeeds right after ADD, and no more once somebody changed one thing that ADD made."""
    conf = runtime.make_netconf(cniVersion="1.1.0", mtu=1500)
    added = runtime.add(conf, pod)
    assert runtime.check(conf, pod, added).is_success_without_output

    node.run("sh", "-c", harm.format(pod=pod.name, host=host_name(pod), address=added.addresses[0]))
    assert runtime.check(conf, pod, added).code == 130
    runtime.delete(conf, pod)
    assert node.store.is_empty


@on_every_datastore
def test_a_node_renamed_between_add_and_del(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, plugin_datastore: PluginDatastore
) -> None:
    """The endpoint is stored under the old name; DEL finds it by the attributes of the addresses."""
    plugin_datastore.register_pods([pod])
    args, before = plugin_datastore.make_cni_args(pod.name), node.leftovers()
    conf = runtime.make_netconf(**plugin_datastore.netconf_keys)
    runtime.add(conf, pod, CNI_ARGS=args)
    assert plugin_datastore.attached_containers() == [pod.name]
    runtime.delete({**conf, "nodename": "node-2"}, pod, CNI_ARGS=args)
    assert plugin_datastore.attached_containers() == []
    assert plugin_datastore.store.held() == {}
    assert plugin_datastore.store.handles() == set()
    assert node.leftovers() == before
