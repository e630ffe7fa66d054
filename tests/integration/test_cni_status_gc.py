"""STATUS and GC (CNI 1.1.0): could an ADD be served, and what the runtime no longer knows is given back.

Numbers are those of the black-box checks.
"""

from __future__ import annotations

import os

import pytest

from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PodNamespace

pytestmark = pytest.mark.netns

PLUGINS = ("netplug", "netplug-ipam")


def newest(runtime: CNIRuntime, **changes: object) -> NetConfDict:
    """A configuration of the one version that has these commands."""
    return runtime.make_netconf(cniVersion="1.1.0", **changes)


def listed(*pods: PodNamespace) -> list[dict[str, str]]:
    """The runtime's list of valid attachments."""
    return [{"containerID": pod.name, "ifname": "eth0"} for pod in pods]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_status_of_a_healthy_node(node: NetnsNode, runtime: CNIRuntime, plugin: str) -> None:
    """Check 99: silent success, and nothing is assigned by asking."""
    assert runtime.call("STATUS", newest(runtime), plugin=plugin).is_success_without_output
    assert node.store.is_empty
    assert node.store.blocks() == ()


@pytest.mark.parametrize("plugin", PLUGINS)
def test_status_while_the_cluster_is_locked(node: NetnsNode, runtime: CNIRuntime, plugin: str) -> None:
    """Check 99: code 50 with the reason, until the flag is set again."""
    node.store.set_ready(is_ready=False)
    reply = runtime.call("STATUS", newest(runtime), plugin=plugin)

    assert reply.code == 50
    assert "datastoreReady" in reply.text
    node.store.set_ready(is_ready=True)
    assert runtime.call("STATUS", newest(runtime), plugin=plugin).is_success_without_output


@pytest.mark.parametrize("plugin", PLUGINS)
def test_status_while_the_store_is_away(node: NetnsNode, runtime: CNIRuntime, plugin: str) -> None:
    """Check 99: code 50, naming the store."""
    path = os.path.join(node.write_file("plain", ""), "netplug.db")
    reply = runtime.call("STATUS", newest(runtime, sqlite_path=path), plugin=plugin)

    assert reply.code == 50
    assert path in reply.text


def test_status_while_every_pool_is_full(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 99: code 50 names the pool; an address given back makes the node healthy again."""
    node.store.add_pool("tiny", "10.66.0.0/32")
    conf = newest(runtime, ipam={"type": "netplug-ipam", "ipv4_pools": ["tiny"]})
    assert runtime.call("STATUS", conf).is_success_without_output
    runtime.add(conf, pod)
    reply = runtime.call("STATUS", conf)

    assert reply.code == 50
    assert "10.66.0.0/32" in reply.text
    runtime.delete(conf, pod)
    assert runtime.call("STATUS", conf).is_success_without_output


def test_status_of_a_configuration_that_add_would_refuse(node: NetnsNode, runtime: CNIRuntime) -> None:
    """A pool that is not there, or a setting that is not served: no ADD could succeed."""
    missing = newest(runtime, ipam={"type": "netplug-ipam", "ipv4_pools": ["nowhere"]})

    assert runtime.call("STATUS", missing).code == 50
    assert runtime.call("STATUS", newest(runtime, device_type="bogus")).code == 7


def test_status_and_add_say_the_same_of_an_mtu_that_is_too_small(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    """Every ADD failed with "accept_dad: No such file or directory", and STATUS was ready."""
    six = {"type": "netplug-ipam", "assign_ipv4": "false", "assign_ipv6": "true"}
    local = {"type": "host-local", "ranges": [[{"subnet": "fd77::/64"}]], "dataDir": node.file("networks")}
    for conf in (newest(runtime, mtu=1200, ipam=six), newest(runtime, mtu=1200, ipam=local), newest(runtime, mtu=60)):
        status, added = runtime.call("STATUS", conf), runtime.call("ADD", conf, pod)
        assert (status.code, added.code) == (51, 7)
        assert status.error["msg"] == added.error["msg"]
        assert f"the MTU {conf['mtu']} is too small" in status.text
    assert node.store.is_empty
    assert runtime.call("STATUS", newest(runtime, mtu=1280, ipam=six)).is_success_without_output


def test_status_of_a_kernel_without_ipv6(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """IPv4 alone works there; where IPv6 is asked for, STATUS and ADD say what is missing."""
    both = newest(runtime, ipam={"type": "netplug-ipam", "assign_ipv6": "true"})
    node.run("mount", "-t", "tmpfs", "none", "/proc/sys/net/ipv6")
    status, added = runtime.call("STATUS", both), runtime.call("ADD", both, pod)
    assert (status.code, added.code) == (51, 123)
    assert status.error["msg"] == added.error["msg"]
    assert "IPv6 is asked for, and the kernel of this node has no IPv6" in status.text
    assert node.store.is_empty
    assert runtime.call("STATUS", newest(runtime)).is_success_without_output
    runtime.add(newest(runtime), pod)
    runtime.delete(newest(runtime), pod)


def test_settings_that_are_right_are_not_written(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """With a read-only /proc/sys an ADD works where a namespace has its value; else ADD and STATUS say so."""
    node.run("sysctl", "-qw", "net.ipv4.ip_forward=0", inside=pod.name)
    node.run("mount", "--bind", "/proc/sys", "/proc/sys")
    node.run("mount", "-o", "remount,ro,bind", "/proc/sys")
    right, wrong = newest(runtime), newest(runtime, container_settings={"allow_ip_forwarding": True})
    added = runtime.add(right, pod)
    (address,) = added.addresses
    assert node.can_ping(address)
    checked = runtime.check(right, pod, added)
    assert checked.is_success_without_output, checked
    runtime.delete(right, pod)

    refused = runtime.call("ADD", wrong, pod)
    assert refused.code == 123
    assert "setting net/ipv4/ip_forward = 1 in" in refused.text
    assert "Read-only file system (it is 0; /proc/sys has to be writable)" in refused.text
    six = newest(runtime, ipam={"type": "netplug-ipam", "assign_ipv6": "true"})
    status = runtime.call("STATUS", six)
    assert status.code == 51
    assert "Read-only file system" in status.text
    assert node.store.is_empty


def test_gc_gives_back_what_is_not_listed(node: NetnsNode, runtime: CNIRuntime) -> None:
    """Check 100: one of two containers is listed; it stays, as do other nodes and other networks."""
    kept, leaked, foreign, abroad = node.make_pods(4)
    elsewhere, other = newest(runtime, nodename="node-2"), newest(runtime, name="net2")
    (address,) = runtime.add(newest(runtime), kept).addresses
    runtime.add(newest(runtime), leaked)
    runtime.add(elsewhere, foreign)
    runtime.add(other, abroad)
    # As after a crash of the machine: the namespace is gone, and nobody asked for DEL.
    node.remove_pod(leaked)

    reply = runtime.call("GC", newest(runtime, **{"cni.dev/valid-attachments": listed(kept)}))
    assert reply.is_success_without_output, reply
    handles = {f"net1.{kept.name}", f"net1.{foreign.name}", f"net2.{abroad.name}"}
    assert set(node.store.held()) == node.store.handles() == handles
    containers = {endpoint.spec.container_id for endpoint in node.store.endpoints().values()}
    assert containers == {kept.name, foreign.name, abroad.name}
    assert node.can_ping(address)

    assert runtime.call("GC", newest(runtime, **{"cni.dev/valid-attachments": []})).is_success_without_output
    assert set(node.store.held()) == handles - {f"net1.{kept.name}"}
    for conf, pod in ((newest(runtime), kept), (elsewhere, foreign), (other, abroad)):
        runtime.delete(conf, pod)
    assert node.store.is_empty


@pytest.mark.parametrize("plugin", PLUGINS)
def test_gc_with_null_gives_everything_back(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, plugin: str
) -> None:
    """Check 100: libcni writes the empty list so, and a runtime has it after a restart of its host."""
    runtime.add(newest(runtime), pod, plugin=plugin)
    node.remove_pod(pod)
    conf = {**newest(runtime), "cni.dev/valid-attachments": None, "cni.dev/attachments": None}

    kept = runtime.call("GC", {**conf, "disableGC": True}, plugin=plugin)
    assert kept.is_success_without_output, kept
    assert "disableGC" in kept.stderr
    assert f"net1.{pod.name}" in node.store.held()
    assert runtime.call("GC", conf, plugin=plugin).is_success_without_output
    assert node.store.is_empty


@pytest.mark.parametrize("key", ["cni.dev/valid-attachments", "cni.dev/attachments"])
def test_gc_reads_either_list(node: NetnsNode, runtime: CNIRuntime, key: str) -> None:
    """Check 100: newer runtimes send the list under a second name; interfaces are compared as well."""
    kept, leaked = node.make_pods(2)
    runtime.add(newest(runtime), kept)
    runtime.add(newest(runtime), kept, CNI_IFNAME="net1")
    runtime.add(newest(runtime), leaked)

    assert runtime.call("GC", newest(runtime, **{key: listed(kept)})).is_success_without_output
    assert set(node.store.held()) == {f"net1.{kept.name}"}


def test_gc_without_a_list_does_nothing(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 100: without either key nothing is said about what is valid."""
    runtime.add(newest(runtime), pod)

    reply = runtime.call("GC", newest(runtime))
    assert reply.is_success_without_output, reply
    assert "nothing is freed" in reply.stderr
    assert f"net1.{pod.name}" in node.store.held()
    runtime.delete(newest(runtime), pod)


def test_gc_of_addresses_alone(node: NetnsNode, runtime: CNIRuntime) -> None:
    """Check 100 for ``netplug-ipam``: the addresses of containers that are not listed."""
    kept, leaked = node.make_pods(2)
    for pod in (kept, leaked):
        runtime.add(newest(runtime), pod, plugin="netplug-ipam")

    reply = runtime.call("GC", newest(runtime, **{"cni.dev/valid-attachments": listed(kept)}), plugin="netplug-ipam")
    assert reply.is_success_without_output, reply
    assert set(node.store.held()) == {f"net1.{kept.name}"}


def test_gc_while_the_store_is_away(node: NetnsNode, runtime: CNIRuntime) -> None:
    """Code 11: the runtime asks again."""
    path = os.path.join(node.write_file("plain", ""), "netplug.db")
    conf = newest(runtime, sqlite_path=path, **{"cni.dev/valid-attachments": []})

    assert runtime.call("GC", conf).code == 11
