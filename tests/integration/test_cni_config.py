"""What the network configuration says becomes true on a real node, or is refused before anything is done.

Numbers are those of the black-box checks.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.node import NODE_HOST_NAME, CNIRuntime, NetnsNode, PodNamespace

pytestmark = pytest.mark.netns


def ends(node: NetnsNode, pod: PodNamespace) -> tuple[dict[str, object], dict[str, object]]:
    """The container's and the node's end of the only attachment."""
    hosts = [link for name, link in node.links().items() if name.startswith("netp")]
    assert len(hosts) == 1, hosts
    return node.links(pod)["eth0"], hosts[0]


def is_untouched(node: NetnsNode) -> bool:
    """Whether a refused call left nothing."""
    return node.store.is_empty and set(node.links()) == {"lo", "up0"}


@pytest.mark.parametrize("key", ["assign_ipv4", "assign_ipv6"])
@pytest.mark.parametrize("plugin", ["netplug", "netplug-ipam"])
def test_a_boolean_is_no_string(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, plugin: str, key: str) -> None:
    """Check 16: the key is named and nothing is allocated."""
    reply = runtime.call("ADD", runtime.make_netconf(ipam={"type": "netplug-ipam", key: True}), pod, plugin=plugin)

    assert reply.code == 6
    assert key in reply.text
    assert is_untouched(node)


@pytest.mark.parametrize("text", ["True", "1"])
def test_only_two_texts_are_booleans(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, text: str) -> None:
    """Check 16, second half: code 7, naming what would do."""
    reply = runtime.call("ADD", runtime.make_netconf(ipam={"type": "netplug-ipam", "assign_ipv4": text}), pod)

    assert reply.code == 7
    assert '"true" or "false"' in reply.text
    assert is_untouched(node)


def test_ipv6_alone(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 17: IPv4 off, IPv6 on, a pool of each: exactly one address, and it works."""
    conf = runtime.make_netconf(ipam={"type": "netplug-ipam", "assign_ipv4": "false", "assign_ipv6": "true"})
    added = runtime.add(conf, pod)

    assert len(added.addresses) == 1
    assert added.addresses[0].startswith("fd65::")
    assert node.routes(pod) == []
    assert node.can_ping(added.addresses[0])
    assert node.can_ping("2001:db8::2", inside=pod.name)
    runtime.delete(conf, pod)


def test_both_families(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 17, the other way: one address of each, and both reach the world."""
    conf = runtime.make_netconf(ipam={"type": "netplug-ipam", "assign_ipv6": "true"})
    added = runtime.add(conf, pod)

    assert [":" in address for address in added.addresses] == [False, True]
    assert all(node.can_ping(target, inside=pod.name) for target in ("192.0.2.2", "2001:db8::2"))
    assert runtime.check(conf, pod, added).is_success_without_output
    runtime.delete(conf, pod)


def test_mtu_of_the_file(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 29: both ends get it, and the result says it."""
    node.write_file("mtu", "3000\n")
    conf = runtime.make_netconf(cniVersion="1.1.0")
    added = runtime.add(conf, pod)

    assert [end["mtu"] for end in ends(node, pod)] == [3000, 3000]
    assert '"mtu": 3000' in added.stdout
    assert runtime.check(conf, pod, added).is_success_without_output
    runtime.delete(conf, pod)


def test_configured_mtu_wins_over_the_file(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 29: the file is only asked where nothing is configured."""
    node.write_file("mtu", "3000\n")
    runtime.add(runtime.make_netconf(mtu=1450), pod)

    assert [end["mtu"] for end in ends(node, pod)] == [1450, 1450]
    runtime.delete(runtime.make_netconf(), pod)


@pytest.mark.parametrize("text", ["abc", "-5", "70000"])
def test_a_broken_mtu_file_stops_add(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, text: str) -> None:
    """Check 29: even where an MTU is configured; DEL does not care."""
    node.write_file("mtu", text)
    reply = runtime.call("ADD", runtime.make_netconf(mtu=1450), pod)

    assert reply.code == 7
    assert node.file("mtu") in reply.text
    assert is_untouched(node)
    runtime.delete(runtime.make_netconf(mtu=1450), pod)


def test_a_required_mtu_file(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 29: missing, it stops ADD and not DEL."""
    reply = runtime.call("ADD", runtime.make_netconf(require_mtu_file=True), pod)

    assert reply.code == 7
    assert "require_mtu_file" in reply.text
    assert is_untouched(node)
    runtime.delete(runtime.make_netconf(require_mtu_file=True), pod)


@pytest.mark.parametrize("asked, queues", [(None, 1), (4, 4), (0, 1), (-3, 1)])
def test_queues_of_both_ends(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, asked: int | None, queues: int
) -> None:
    """Check 30: one each unless more are asked, however many processors the machine has."""
    runtime.add(runtime.make_netconf(num_queues=asked), pod)

    for end in ends(node, pod):
        assert (end["num_rx_queues"], end["num_tx_queues"]) == (queues, queues)
    runtime.delete(runtime.make_netconf(num_queues=asked), pod)


def test_device_types(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 31: an unknown one is refused and the known ones are listed; ``veth`` is what it says."""
    reply = runtime.call("ADD", runtime.make_netconf(device_type="bogus"), pod)

    assert reply.code == 7
    assert all(name in reply.text for name in ("bogus", "veth", "netkit"))
    assert is_untouched(node)
    runtime.add(runtime.make_netconf(device_type="veth"), pod)
    kinds = [end["linkinfo"] for end in ends(node, pod)]
    assert all(isinstance(kind, dict) and kind["info_kind"] == "veth" for kind in kinds)
    runtime.delete(runtime.make_netconf(device_type="bogus"), pod)
    assert is_untouched(node)


def test_an_unknown_dataplane(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 31: refused before an address is taken."""
    reply = runtime.call("ADD", runtime.make_netconf(dataplane_options={"type": "invalid"}), pod)

    assert reply.code == 7
    assert "invalid dataplane type" in reply.text
    assert is_untouched(node)


@pytest.mark.parametrize(
    "keys, file, expected",
    [
        ({"nodename": "a", "hostname": "b"}, "filenode\n", "a"),
        ({"nodename": None, "hostname": "named-hostname.somewhere"}, None, "named-hostname.somewhere"),
        ({"nodename": None}, "filenode\n", "filenode"),
        ({"nodename": None, "hostname": "b"}, "filenode\n", "filenode"),
        ({"nodename": None}, None, NODE_HOST_NAME.lower()),
    ],
    ids=["nodename", "hostname", "file", "file-before-hostname", "machine"],
)
def test_the_name_of_the_node(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, keys: dict[str, object], file: str | None, expected: str
) -> None:
    """Check 32: nodename, then the file, then hostname, then the machine's own name in lower case."""
    if file is not None:
        node.write_file("nodename", file)
    conf = runtime.make_netconf(**keys)
    runtime.add(conf, pod)

    (endpoint,) = node.store.endpoints().values()
    (block,) = node.store.blocks()
    assert endpoint.spec.node == expected
    assert block.owner == f"host:{expected}"
    assert {held.attribute.owner_value("node") for held in block.held()} == {expected}
    runtime.delete(conf, pod)
    assert is_untouched(node)


def test_a_required_node_name_file(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Where the file must be there it stops ADD with code 11, even if a name is configured, and never DEL."""
    conf = runtime.make_netconf(nodename_file_optional=False)
    reply = runtime.call("ADD", conf, pod)

    assert reply.code == 11
    assert node.file("nodename") in reply.text
    assert is_untouched(node)
    runtime.delete(conf, pod)
    node.write_file("nodename", "node-1\n")
    runtime.add(conf, pod)
    runtime.delete(conf, pod)


def test_a_setting_of_a_later_release_is_refused(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """What this release does not serve stops ADD, naming the key, and never DEL."""
    conf = runtime.make_netconf(device_type="netkit")
    reply = runtime.call("ADD", conf, pod)

    assert reply.code == 7
    assert "device_type" in reply.text
    assert is_untouched(node)
    runtime.delete(conf, pod)


@pytest.mark.parametrize(
    "keys, texts",
    [
        ({"datastore_type": "foo"}, ("'foo'", "etcdv3, kubernetes, memory, sqlite")),
        (
            {"datastore_type": "etcdv3", "etcd_endpoints": "http://127.0.0.1:1", "etcd_discovery_srv": "example.org"},
            ('"etcd_endpoints"', '"etcd_discovery_srv"'),
        ),
    ],
    ids=["unknown-type", "two-ways-to-etcd"],
)
def test_check_24_which_datastore(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, keys: dict[str, object], texts: tuple[str, ...]
) -> None:
    reply = runtime.call("ADD", runtime.make_netconf(**keys), pod)

    assert reply.code == 7
    assert all(text in reply.text for text in texts), reply
    assert is_untouched(node)
    assert set(node.links(pod)) == {"lo"}


def test_the_log_file(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Check 34: its folder is made and lines are appended; a path that cannot be written is no reason to fail."""
    conf = runtime.make_netconf(log_file_path=node.file("logs/deep/cni.log"))
    runtime.add(conf, pod)
    runtime.delete(conf, pod)

    path = Path(node.file("logs/deep/cni.log"))
    lines = path.read_text(encoding="utf-8")
    assert path.stat().st_mode & 0o777 == 0o644
    assert "container attached" in lines
    assert "container detached" in lines
    broken = runtime.make_netconf(log_file_path=node.file("netplug.db/cni.log"))
    assert "[WARNING]" in runtime.add(broken, pod).stderr
    runtime.delete(broken, pod)


def test_check_34_without_a_path_there_is_no_log_file(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """Lines go to standard error all the same."""
    node.run("mount", "-t", "tmpfs", "none", "/var/log")
    assert "container attached" in runtime.add(runtime.make_netconf(), pod).stderr
    assert "container detached" in runtime.delete(runtime.make_netconf(), pod).stderr
    assert node.run("ls", "-A", "/var/log") == ""
    assert [name for name in node.run("ls", "-A", node.folder).split() if "log" in name] == []


@pytest.mark.parametrize("text, count", [("ERROR", 1), ("warn", 2), ("Warning", 2), ("info", 3), ("DEBUG", 4)])
def test_check_35_lines_of_the_level_or_worse_are_written(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, text: str, count: int
) -> None:
    """An ADD and a DEL that have something to say on every level."""
    unwritable = node.file("netplug.db/cni.log")
    conf = runtime.make_netconf(log_level=text, log_file_path=unwritable)
    replies = [runtime.call("ADD", conf, pod, CNI_NETNS="/not/there"), runtime.delete(conf, pod)]

    levels = set(re.findall(r"^\S+ \S+ \[(\w+)\]", "".join(reply.stderr for reply in replies), re.MULTILINE))
    assert levels == {"ERROR", "WARNING", "INFO", "DEBUG"} - set(("DEBUG", "INFO", "WARNING")[: 4 - count])
