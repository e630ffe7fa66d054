"""STATUS: nothing to say while an ADD could be served, else why not."""

from contextlib import closing
from pathlib import Path

import pytest

from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_core.cni.dispatch import Plugin
from netplug_core.errors import ConfigurationError, LimitedConnectivity, UnhealthyStatus
from netplug_core.log import Level
from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.node import Node, node_key
from tests.harness.cni_node import DEFAULT_CONTAINER, DUAL_STACK, CNINodeHarness, ContainerInterface

BOTH = pytest.mark.parametrize("plugin", list(Plugin))


def unhealthy(harness: CNINodeHarness, plugin: Plugin = Plugin.MAIN, **changes: object) -> str:
    with pytest.raises(UnhealthyStatus) as refusal:
        harness.run("STATUS", DEFAULT_CONTAINER, plugin, **changes)
    assert refusal.value.code == 50
    return str(refusal.value)


@BOTH
@pytest.mark.parametrize("ipam", [{"type": "netplug-ipam"}, DUAL_STACK])
def test_check_99_a_healthy_node_has_nothing_to_say(
    harness: CNINodeHarness, plugin: Plugin, ipam: dict[str, object]
) -> None:
    assert harness.run("STATUS", DEFAULT_CONTAINER, plugin, ipam=ipam) is None
    assert harness.memory.calls.commits == 2, "the fixture's two pools"
    assert harness.affinities() == {}
    assert harness.host.locks.taken == []


@BOTH
def test_check_99_a_locked_cluster_is_unhealthy(harness: CNINodeHarness, plugin: Plugin) -> None:
    harness.set_ready()
    assert unhealthy(harness, plugin) == (
        "ClusterInformation default: spec.datastoreReady is false: pod networking is locked"
    )
    harness.set_ready(is_ready=True)
    harness.run("STATUS", DEFAULT_CONTAINER, plugin)


@BOTH
def test_check_99_full_pools_are_unhealthy(plugin: Plugin) -> None:
    harness = CNINodeHarness()
    harness.add_pool("one", "10.65.0.0/32")
    harness.add()
    assert unhealthy(harness, plugin).startswith("Assigned 0 out of 1 requested IPv4 addresses; ")


def test_check_99_a_node_that_the_orchestrator_does_not_know_is_unhealthy() -> None:
    """Its pods are on nodes. Elsewhere the node may not be registered yet."""
    harness = CNINodeHarness()
    harness.add_pool("one", "10.65.0.0/24")
    assert harness.run("STATUS", DEFAULT_CONTAINER) is None
    kept_there = {"datastore_type": "kubernetes", "nodename": "node-1"}
    assert (
        unhealthy(harness, Plugin.MAIN, **kept_there)
        == "the cluster has no node 'node-1': nodename must be the name of one"
    )
    node = Node(metadata=Metadata(name="node-1"))
    harness.commit(Create(node_key("node-1"), node))
    assert harness.run("STATUS", DEFAULT_CONTAINER, Plugin.MAIN, **kept_there) is None


def test_the_ipam_plugin_serves_a_host_that_is_no_node_of_the_orchestrator() -> None:
    harness = CNINodeHarness()
    harness.add_pool("one", "10.65.0.0/24")
    assert harness.run("STATUS", DEFAULT_CONTAINER, Plugin.IPAM, datastore_type="kubernetes", nodename="a-host") is None


def test_a_container_called_status_counts_for_nothing() -> None:
    harness = CNINodeHarness()
    harness.add_pool("one", "10.65.0.0/32")
    harness.add(ContainerInterface(id="status"))
    assert unhealthy(harness).startswith("Assigned 0 out of 1 requested IPv4 addresses; ")


@BOTH
def test_a_family_without_a_pool_is_unhealthy(plugin: Plugin) -> None:
    harness = CNINodeHarness()
    harness.add_pool("four", "10.65.0.0/24")
    assert "there is no IPv6 pool at all" in unhealthy(harness, plugin, ipam=DUAL_STACK)


@BOTH
def test_a_named_pool_that_is_missing_is_unhealthy(harness: CNINodeHarness, plugin: Plugin) -> None:
    text = unhealthy(harness, plugin, ipam={"type": "netplug-ipam", "ipv4_pools": ["nowhere"]})
    assert text.startswith("the given pool (nowhere) does not exist")


@BOTH
def test_wanting_no_address_is_unhealthy(harness: CNINodeHarness, plugin: Plugin) -> None:
    assert "asks for no address" in unhealthy(harness, plugin, ipam={"type": "netplug-ipam", "assign_ipv4": "false"})


@BOTH
def test_a_node_that_is_not_ready_is_unhealthy(harness: CNINodeHarness, plugin: Plugin) -> None:
    assert unhealthy(harness, plugin, nodename_file_optional=False).startswith(
        "/var/lib/netplug/nodename: no such file or directory: "
    )
    harness.host.texts = {"/var/lib/netplug/nodename": "node-1"}
    harness.run("STATUS", DEFAULT_CONTAINER, plugin, nodename_file_optional=False)


@BOTH
@pytest.mark.parametrize("where", ["file", "file/below"])
def test_check_99_a_store_that_is_away_is_unhealthy(
    harness: CNINodeHarness, tmp_path: Path, plugin: Plugin, where: str
) -> None:
    (tmp_path / "file").write_text("no database at all, and no folder either" * 100)
    path = str(tmp_path / where)
    with closing(SqliteDatastore(path, clock=harness.clock)) as store:
        harness.store = store
        assert path in unhealthy(harness, plugin)


@BOTH
@pytest.mark.parametrize(
    "changes",
    [
        {"ipam": {"type": "host-local", "ipv4_pools": ["one"]}},
        {"ipam": {"type": "netplug-ipam", "routes": [{"dst": "10.0.0.0/8"}]}},
    ],
)
def test_a_setting_that_is_not_served_is_code_7(
    harness: CNINodeHarness, plugin: Plugin, changes: dict[str, object]
) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        harness.run("STATUS", DEFAULT_CONTAINER, plugin, **changes)
    assert refusal.value.code == 7


def test_check_29_a_broken_mtu_file_is_code_7_where_interfaces_are_made(harness: CNINodeHarness) -> None:
    harness.host.texts = {"/var/lib/netplug/mtu": "abc"}
    with pytest.raises(ConfigurationError, match=r"^failed to read MTU file"):
        harness.run("STATUS")
    harness.run("STATUS", DEFAULT_CONTAINER, Plugin.IPAM)


@BOTH
@pytest.mark.parametrize("command", ["STATUS", "ADD"])
def test_keys_of_etcd_beside_the_orchestrator_are_passed_over_with_one_warning(plugin: Plugin, command: str) -> None:
    harness = CNINodeHarness()
    harness.add_pool("one", "10.65.0.0/24")
    node = Node(metadata=Metadata(name="node-1"))
    harness.commit(Create(node_key("node-1"), node))
    keys = {"nodename": "node-1", "etcd_endpoints": "http://a:1", "etcd_discovery_srv": "b.org", "etcd_key_file": ""}
    keys |= {"etcd_authority": "a:1", "etcd_scheme": "http"}
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
    harness.run(command, DEFAULT_CONTAINER, plugin, datastore_type="kubernetes", **keys)
    told = [(text, fields) for level, text, fields in harness.log.lines if level is Level.WARNING]
    names = {"keys": "etcd_authority, etcd_discovery_srv, etcd_endpoints, etcd_scheme"}
    assert told == [("etcd's keys are ignored: the datastore is kubernetes", names)]
    harness.log.lines.clear()
    harness.run("STATUS", DEFAULT_CONTAINER, plugin, datastore_type="sqlite", nodename="node-1", etcd_authority="a:1")
    assert harness.log.of(Level.WARNING) == []


def test_a_node_that_does_not_forward_has_limited_connectivity() -> None:
    """For the families of the configuration alone: code 51, and the command that mends it."""
    harness = CNINodeHarness()
    harness.add_pool("one", "10.65.0.0/24")
    harness.add_pool("six", "fd65::/64")
    harness.dataplane.node_settings["net/ipv6/conf/all/forwarding"] = "0"
    harness.run("STATUS")
    with pytest.raises(LimitedConnectivity, match=r"net.ipv6.conf.all.forwarding is 0 .*; run: sysctl -w") as limited:
        harness.run("STATUS", ipam=DUAL_STACK)
    assert limited.value.code == 51
    harness.run("STATUS", plugin=Plugin.IPAM, ipam=DUAL_STACK)
    harness.dataplane.node_settings["net/ipv4/ip_forward"] = "0"
    with pytest.raises(LimitedConnectivity, match=r"=1; net.ipv6.conf.all"):
        harness.run("STATUS", ipam=DUAL_STACK)
    harness.dataplane.node_settings.clear()
    harness.dataplane.node_settings["net/ipv4/conf/all/route_localnet"] = "1"
    harness.run("STATUS", ipam=DUAL_STACK)
    assert harness.add().ips


SIX = {"type": "netplug-ipam", "assign_ipv4": "false", "assign_ipv6": "true"}


@pytest.mark.parametrize("ipam", [SIX, DUAL_STACK])
@pytest.mark.parametrize("is_in_file", [False, True])
def test_an_mtu_that_no_add_can_use_says_what_add_says(
    harness: CNINodeHarness, ipam: dict[str, object], *, is_in_file: bool
) -> None:
    changes: dict[str, object] = {"ipam": ipam} if is_in_file else {"ipam": ipam, "mtu": 1200}
    where = "network configuration.mtu"
    if is_in_file:
        harness.host.texts["/var/lib/netplug/mtu"] = "1200\n"
        where = "MTU file /var/lib/netplug/mtu"
    with pytest.raises(LimitedConnectivity) as limited:
        harness.run("STATUS", DEFAULT_CONTAINER, Plugin.MAIN, **changes)
    assert limited.value.code == 51
    assert str(limited.value) == (
        f"{where}: 1200 is not accepted; the MTU 1200 is too small for IPv6, which needs 1280"
    )
    with pytest.raises(ConfigurationError) as refusal:
        harness.add(DEFAULT_CONTAINER, **changes)
    assert (refusal.value.code, str(refusal.value)) == (7, str(limited.value))
    assert harness.affinities() == {}, "nothing was assigned for it"
    harness.run("STATUS", DEFAULT_CONTAINER, Plugin.IPAM, **changes)


def test_an_mtu_below_68_carries_nothing(harness: CNINodeHarness) -> None:
    for command in ("STATUS", "ADD"):
        with pytest.raises((LimitedConnectivity, ConfigurationError), match=r"mtu: 67 .*; the MTU 67 is too small"):
            harness.add(DEFAULT_CONTAINER, mtu=67) if command == "ADD" else harness.run("STATUS", mtu=67)
    harness.run("STATUS", DEFAULT_CONTAINER, mtu=68)


def test_what_the_kernel_refuses_every_add_is_said() -> None:
    harness = CNINodeHarness()
    harness.add_pool("four", "10.65.0.0/24")
    harness.dataplane.obstacles = ("one thing", "another")
    with pytest.raises(LimitedConnectivity, match=r"^one thing; another$"):
        harness.run("STATUS", DEFAULT_CONTAINER, container_settings={"allow_ip_forwarding": True})
    harness.run("STATUS", DEFAULT_CONTAINER, Plugin.IPAM)


def test_an_unhealthy_node_is_said_before_its_limits() -> None:
    harness = CNINodeHarness()
    harness.dataplane.node_settings["net/ipv4/ip_forward"] = "0"
    assert "pools" in unhealthy(harness)
