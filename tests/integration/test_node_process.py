"""The node process on a real kernel: it answers as the executables do, for many calls at once, and keeps nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.harness.node import CNIRuntime, NetnsNode, PluginReply, open_node
from tests.harness.node_process import ClientRuntime, NodeProcess, NodeProcessRuntime, start_node_process
from tests.harness.release_records import record_files
from tests.harness.scripted_plugin import ScriptedPlugin
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.alone]

STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \[(\w+)\]\[\d+\]", re.MULTILINE)
MAX_GROWTH_KIB = 8 * 1024
"""Of the memory, over 200 calls: far below what a store per call would take."""


@pytest.fixture
def process(node: NetnsNode) -> NodeProcess:
    """A node process on the node; it ends with the node."""
    return start_node_process(node)


@pytest.fixture
def served(runtime: CNIRuntime, process: NodeProcess) -> NodeProcessRuntime:
    """A runtime whose calls go to the node process."""
    return NodeProcessRuntime(runtime.node, runtime.bin_dir, process.socket)


@pytest.mark.parametrize("passes_namespace", [False, True], ids=["by path", "by descriptor"])
def test_an_attachment_comes_and_goes(runtime: CNIRuntime, process: NodeProcess, *, passes_namespace: bool) -> None:
    served = NodeProcessRuntime(runtime.node, runtime.bin_dir, process.socket, passes_namespace=passes_namespace)
    pod, conf = served.node.make_pod(), served.make_netconf(cniVersion="1.1.0")
    before = served.node.leftovers()
    added = served.add(conf, pod)
    assert served.check(conf, pod, added).is_success_without_output
    assert served.call("STATUS", conf).is_success_without_output
    served.collect(conf, pod.name)
    assert served.node.can_ping(added.addresses[0])
    served.delete(conf, pod)
    assert served.node.store.is_empty
    assert served.node.leftovers() == before


def test_a_namespace_that_the_node_process_cannot_find_is_used_by_its_descriptor(
    runtime: CNIRuntime, process: NodeProcess
) -> None:
    """As in a container, whose mount namespace has no ``/run/netns`` of the host. Results have the path of the call."""
    pod = runtime.node.make_pod()
    served = NodeProcessRuntime(runtime.node, runtime.bin_dir, process.socket)
    by_descriptor = NodeProcessRuntime(
        runtime.node, runtime.bin_dir, process.socket, hidden_namespaces={"/hidden/netns": pod.path}
    )
    conf = served.make_netconf()
    assert served.call("ADD", conf, pod, CNI_NETNS="/hidden/netns").code == 4
    added = by_descriptor.add(conf, pod, CNI_NETNS="/hidden/netns")
    assert [interface.get("sandbox") for interface in interfaces(added)] == [None, "/hidden/netns"]
    assert "eth0" in runtime.node.links(pod)
    assert by_descriptor.check(conf, pod, added, CNI_NETNS="/hidden/netns").is_success_without_output
    by_descriptor.delete(conf, pod, CNI_NETNS="/hidden/netns")
    assert "eth0" not in runtime.node.links(pod)


def interfaces(reply: PluginReply) -> list[dict[str, object]]:
    found = reply.result["interfaces"]
    assert isinstance(found, list)
    return found


# --- the same answers ----------------------------------------------------------------------------------------------


def answers(runtime: CNIRuntime) -> Iterator[PluginReply]:
    """The replies to calls of every kind, on a node that has seen none."""
    plugin = ScriptedPlugin.make(Path(runtime.node.file("scripted")))
    plugin.script("ADD", "echo a line of its own >&2\n")
    pod, other = runtime.node.make_pods(2)
    log = {"log_level": "debug", "log_file_path": runtime.node.file("cni.log")}
    conf = runtime.make_netconf(cniVersion="1.1.0", ipam={"type": "netplug-ipam", "assign_ipv6": "true"}, **log)
    added = runtime.add(conf, pod, CNI_ARGS="K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1")
    yield added
    yield runtime.call("ADD", conf, pod)
    yield runtime.check(conf, pod, added)
    runtime.node.run("ip", "-n", pod.name, "addr", "flush", "dev", "eth0")
    yield runtime.check(conf, pod, added)
    yield runtime.call("STATUS", conf)
    yield runtime.call("GC", conf)
    yield runtime.call("GC", {**conf, "cni.dev/valid-attachments": [{"containerID": pod.name, "ifname": "eth0"}]})
    yield runtime.call("DEL", conf, pod)
    yield runtime.call("DEL", conf, pod)
    bridge = {**conf, "type": "bridge"}
    yield runtime.call("ADD", bridge, other, plugin="netplug-ipam")
    yield runtime.call("DEL", bridge, other, plugin="netplug-ipam")
    delegated = {**conf, "ipam": {"type": "my-ipam"}}
    path = str(plugin.folder)
    yield runtime.call("ADD", delegated, other, CNI_PATH=path)
    yield runtime.call("DEL", delegated, other, CNI_PATH=path)
    yield runtime.call("ADD", {**conf, "cniVersion": "9.9.9"}, pod)
    yield runtime.call("ADD", {**conf, "mtu": -1}, pod)
    yield runtime.call("ADD", {**conf, "sqlite_path": "/dev/null/netplug.db"}, pod)
    yield runtime.call("ADD", {**conf, "datastore_type": "foo"}, pod)
    yield runtime.call("ADD", conf, pod, CNI_NETNS="/nowhere")
    yield runtime.call("ADD", conf, pod, CNI_NETNS="/proc/self/ns/net")
    yield runtime.call("ADD", conf, pod, CNI_IFNAME=None, CNI_CONTAINERID=None)
    yield runtime.call("NONSENSE", conf, pod)
    yield runtime.call("ADD", "{", pod)
    yield runtime.call("VERSION", conf)


def observed(runtime: CNIRuntime) -> list[tuple[int, str, str]]:
    """What a runtime saw of those calls, and what the log file has, without times, processes and folders."""

    def cleaned(text: str) -> str:
        return STAMP.sub(r"TIME [\1]", text).replace(runtime.node.folder, "FOLDER")

    seen = [(reply.status, reply.stdout, cleaned(reply.stderr)) for reply in answers(runtime)]
    return [*seen, (0, "", cleaned(Path(runtime.node.file("cni.log")).read_text()))]


def test_every_answer_is_that_of_the_executables_byte_for_byte(
    bin_dir: str, static_bin_dir: str, tmp_path: Path
) -> None:
    """However it is asked: with the protocol alone, by the Python client, and by the static one."""
    found = {}
    for name in ("alone", "asked", "python", "static"):
        (tmp_path / name).mkdir()
        with open_node(str(tmp_path / name)) as node:
            node.store.add_pool("v4", "10.65.0.0/24")
            node.store.add_pool("v6", "fd65::/112")
            path = start_node_process(node).socket
            runtimes = {
                "alone": CNIRuntime(node, bin_dir),
                "asked": NodeProcessRuntime(node, bin_dir, path),
                "python": ClientRuntime(node, bin_dir, path),
                "static": ClientRuntime(node, static_bin_dir, path),
            }
            found[name] = observed(runtimes[name])
    assert len(found["alone"]) == 24
    assert "a line of its own\n" in found["alone"][11][2]
    assert found == dict.fromkeys(found, found["alone"])


@pytest.mark.parametrize("folder", ["bin_dir", "static_bin_dir"])
def test_the_installed_executables_ask_it(
    node: NetnsNode, process: NodeProcess, folder: str, request: pytest.FixtureRequest
) -> None:
    runtime = CNIRuntime(node, request.getfixturevalue(folder))
    pod, log = runtime.node.make_pod(), runtime.node.file("cni.log")
    conf = runtime.make_netconf(log_file_path=log)
    added = runtime.add(conf, pod, NETPLUG_NODE_SOCKET=process.socket)
    assert runtime.node.can_ping(added.addresses[0])
    assert added.stderr == Path(log).read_text()
    runtime.delete(conf, pod, NETPLUG_NODE_SOCKET=process.socket)
    numbers = re.findall(r"\[INFO\]\[(\d+)\]", Path(log).read_text())
    assert set(numbers) == {str(process.child.pid)}
    assert len(numbers) > 2
    assert runtime.node.store.is_empty


# --- many calls ----------------------------------------------------------------------------------------------------


def test_forty_at_once(node: NetnsNode, served: NodeProcessRuntime) -> None:
    before, pods, conf = node.leftovers(), node.make_pods(40), served.make_netconf()
    with ThreadPoolExecutor(len(pods)) as pool:
        added = list(pool.map(lambda pod: served.add(conf, pod), pods))
    given = [address for reply in added for address in reply.addresses]
    assert len(set(given)) == len(given) == 40
    assert node.store.held() == {f"net1.{pod.name}": reply.addresses for pod, reply in zip(pods, added, strict=True)}
    with ThreadPoolExecutor(len(pods)) as pool:
        list(pool.map(lambda pod: served.delete(conf, pod), pods))
    assert node.store.is_empty
    assert node.leftovers() == before


def test_calls_of_one_attachment_exclude_each_other_and_those_of_executables(
    node: NetnsNode, runtime: CNIRuntime, served: NodeProcessRuntime
) -> None:
    pod, conf = node.make_pod(), served.make_netconf()
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda each: each.call("ADD", conf, pod), [*[served] * 6, *[runtime] * 2]))
    assert sorted(reply.code for reply in replies if reply.status) == [121] * 7
    (held,) = node.store.held().values()
    assert [reply.addresses for reply in replies if not reply.status] == [held]
    assert len([name for name in node.links() if name.startswith("netp")]) == 1


def test_two_hundred_calls_leave_nothing_in_the_process(
    node: NetnsNode, served: NodeProcessRuntime, process: NodeProcess
) -> None:
    pods, conf = node.make_pods(5), served.make_netconf(log_file_path=node.file("cni.log"))

    def rounds(count: int) -> None:
        for _ in range(count):
            with ThreadPoolExecutor(len(pods)) as pool:
                list(pool.map(lambda pod: served.add(conf, pod), pods))
                list(pool.map(lambda pod: served.delete(conf, pod), pods))

    rounds(2)
    wait_until(lambda: process.connections == 0, "the connections are closed")
    # A housekeeping task may have a file open when one looks.
    before = (min(process.descriptors for _ in range(100)), process.threads, process.memory_kib)
    rounds(20)
    wait_until(lambda: process.descriptors <= before[0], "no descriptor stays open")
    assert process.threads == before[1]
    assert process.memory_kib - before[2] < MAX_GROWTH_KIB
    own = os.readlink(f"/proc/{node.pid}/ns/net")
    assert {os.readlink(f"/proc/{process.child.pid}/task/{task}/ns/net") for task in process.tasks} == {own}


def test_a_release_record_is_done_without_another_call(
    node: NetnsNode, served: NodeProcessRuntime, process: NodeProcess
) -> None:
    pod, conf = node.make_pod(), served.make_netconf()
    served.add(conf, pod)
    os.rename(node.database, node.file("away"))
    os.mkdir(node.database)
    served.delete(conf, pod)
    assert len(record_files(str(conf["release_record_dir"]))) == 1
    os.rmdir(node.database)
    os.rename(node.file("away"), node.database)
    wait_until(lambda: not record_files(str(conf["release_record_dir"])), "the record is done")
    assert node.store.is_empty
    wait_until(lambda: "release record done" in process.lines, "it is logged")


def test_a_call_that_another_plugin_keeps_waiting_delays_no_other(
    node: NetnsNode, served: NodeProcessRuntime, tmp_path: Path
) -> None:
    plugin = ScriptedPlugin.make(tmp_path / "scripted")
    plugin.script("ADD", "while [ ! -e go ]; do sleep 0.02; done\n")
    slow, pod = node.make_pods(2)
    conf = served.make_netconf()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            served.call, "ADD", {**conf, "ipam": {"type": "my-ipam"}}, slow, CNI_PATH=str(plugin.folder)
        )
        wait_until(lambda: bool(plugin.calls()), "the other plugin runs")
        served.add(conf, pod)
        served.delete(conf, pod)
        assert not waiting.done()
        (plugin.folder / "go").touch()
        assert waiting.result().status == 0
