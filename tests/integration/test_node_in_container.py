"""A node process in a container serves its host: the host's files, links and programs, and no others."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import frozen

from netplug_backends.host.machine import SystemClock
from netplug_backends.sqlite.datastore import SqliteDatastore
from tests.harness.containers import start_contained_node_process
from tests.harness.node import (
    DEBIAN_PLUGINS,
    CNIRuntime,
    NetConfDict,
    NetnsNode,
    PluginReply,
    PodNamespace,
    StoreInspector,
    missing_requirement,
    open_node,
)
from tests.harness.node_process import ROOT, NodeProcess, NodeProcessRuntime
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.alone]

# In the container each of these says something else than on the host.
_CONTAINER_FILES = """
mkdir -p /etc /run/there
echo of-the-container > /run/there/nodename
echo 1000 > /run/there/mtu
"""
_HOST_FILES = """
mkdir -p /run/there /run/links
echo of-the-host > /run/there/nodename
echo 1400 > /run/there/mtu
ln -s /run/there/nodename /run/links/nodename
ln -s ../../../../../../run/there/mtu /run/links/mtu
"""
# Runs host-local, and writes down where.
_PLUGIN = """#!/bin/sh
readlink /proc/self/ns/mnt > {folder}/mount-namespace
cat /run/there/nodename > {folder}/nodename
exec {plugins}/host-local
"""


@frozen
class Contained:
    """A host, the executables as they are there, and a node process that serves them from a container."""

    node: NetnsNode
    plain: CNIRuntime
    served: NodeProcessRuntime
    process: NodeProcess

    @property
    def plugins(self) -> str:
        return self.node.file("plugins")

    def conf(self, name: str, **changes: object) -> NetConfDict:
        """A configuration whose store is at a path of its own for each way of being served."""
        return self.plain.make_netconf(
            **{
                "sqlite_path": self.node.file(f"{name}.db"),
                "nodename": None,
                "nodename_file": "/run/links/nodename",
                "mtu_file": "/run/links/mtu",
                "log_file_path": self.node.file(f"{name}.log"),
                **changes,
            }
        )

    def add_and_delete(self, runtime: CNIRuntime, conf: NetConfDict, pod: PodNamespace) -> tuple[PluginReply, ...]:
        path = f"{self.plugins}:{DEBIAN_PLUGINS}"
        return tuple(runtime.call(command, conf, pod, CNI_PATH=path) for command in ("ADD", "DEL", "DEL"))


@pytest.fixture
def contained(tmp_path: Path, bin_dir: str) -> Iterator[Contained]:
    reason = missing_requirement()
    if reason:
        pytest.skip(reason)
    with open_node(str(tmp_path), private_files=_HOST_FILES) as node:
        for name in ("plain", "served"):
            shutil.copy(make_store(node), node.file(f"{name}.db"))
        os.mkdir(node.file("plugins"))
        script = Path(node.file("plugins/my-ipam"))
        script.write_text(_PLUGIN.format(folder=node.folder, plugins=DEBIAN_PLUGINS))
        script.chmod(0o755)
        process = start_contained_node_process(node, script=_CONTAINER_FILES)
        served = NodeProcessRuntime(node, bin_dir, process.socket, passes_namespace=True)
        yield Contained(node, CNIRuntime(node, bin_dir), served, process)


def make_store(node: NetnsNode) -> str:
    if not os.path.exists(node.database):
        node.store.add_pool("v4", "10.65.0.0/24")
        node.store.add_pool("v6", "fd65::/112")
    return node.database


@pytest.mark.parametrize("ipam", ["netplug-ipam", "host-local", "my-ipam"])
def test_add_and_del_are_those_of_a_plain_run(contained: Contained, ipam: str) -> None:
    pod, replies = contained.node.make_pod(), []
    for name, runtime in (("plain", contained.plain), ("served", contained.served)):
        ranges = [[{"subnet": "10.77.0.0/24"}], [{"subnet": "fd77::/64"}]]
        keys: dict[str, object] = {"type": ipam}
        if ipam != "netplug-ipam":
            keys |= {"dataDir": contained.node.file(f"networks-{name}"), "ranges": ranges}
        conf = contained.conf(name, ipam=keys, log_level="ERROR")
        replies.append([(one.status, one.stdout) for one in contained.add_and_delete(runtime, conf, pod)])
        assert Path(contained.node.file(f"{name}.db")).exists()
        if ipam != "netplug-ipam":
            assert os.listdir(contained.node.file(f"networks-{name}")) == ["net1"]
    assert replies[1] == replies[0]
    (added, _), (deleted, _), _ = ((status, text) for status, text in replies[0])
    assert (added, deleted) == (0, 0)


def test_links_of_the_host_lead_to_the_hosts_files(contained: Contained) -> None:
    pod, conf = contained.node.make_pod(), contained.conf("served", cniVersion="1.1.0")
    added = contained.served.add(conf, pod)
    interfaces = added.result["interfaces"]
    assert isinstance(interfaces, list)
    assert {interface["mtu"] for interface in interfaces if "mtu" in interface} == {1400}
    store = StoreInspector(lambda: closing(SqliteDatastore(contained.node.file("served.db"), clock=SystemClock())))
    assert [endpoint.spec.node for endpoint in store.endpoints().values()] == ["of-the-host"]
    assert "call begins" not in contained.process.lines
    assert Path(contained.node.file("served.log")).exists()


def test_another_ipam_plugin_runs_in_the_mount_namespace_of_the_host(contained: Contained) -> None:
    ipam = {"type": "my-ipam", "dataDir": contained.node.file("networks"), "ranges": [[{"subnet": "10.77.0.0/24"}]]}
    pod = contained.node.make_pod()
    added, *_ = contained.add_and_delete(contained.served, contained.conf("served", ipam=ipam), pod)
    assert added.addresses == ("10.77.0.2",)
    expected = contained.node.run("readlink", "/proc/self/ns/mnt")
    assert Path(contained.node.file("mount-namespace")).read_text() == expected
    assert Path(contained.node.file("nodename")).read_text() == "of-the-host\n"


def test_what_is_imported_late_comes_from_the_container(contained: Contained) -> None:
    """Other datastores and the clients of their servers are imported by the call that names them first."""
    pod = contained.node.make_pod()
    kubeconfig = contained.node.write_file(
        "kubeconfig",
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\ncurrent-context: c\n",
    )
    for keys in (
        {"datastore_type": "etcdv3", "etcd_endpoints": "http://127.0.0.1:1"},
        {"datastore_type": "kubernetes", "kubernetes": {"kubeconfig": kubeconfig}},
    ):
        conf = contained.conf("served", sqlite_path=None, nodename="node-1", **keys)
        texts = []
        for runtime in (contained.plain, contained.served):
            reply = runtime.call("ADD", conf, pod, CNI_ARGS="K8S_POD_NAMESPACE=default;K8S_POD_NAME=web")
            texts.append(json.loads(reply.stdout))
        assert texts[0] == texts[1]
        assert texts[0]["code"] == 11
    wait_until(lambda: "the packet filter is" in contained.process.lines, "its library is imported")
    assert "No module named" not in contained.process.lines


def test_a_folder_that_is_no_host_is_refused(node: NetnsNode) -> None:
    argv = (sys.executable, "-m", "netplug_cli.wiring.node", "--host-root", node.folder)
    ended = node.run_unchecked("env", "-C", ROOT, *argv, "--socket", node.file("node.sock"))
    text = f"netplug-node: {node.folder}/proc/1/ns/mnt: No such file or directory\n"
    assert (ended.returncode, ended.stderr) == (1, text)


def test_a_folder_that_is_not_the_hosts_root_is_refused(tmp_path: Path) -> None:
    with open_node(
        str(tmp_path), private_files="mkdir -p /run/half; mkdir /run/half/proc; mount --rbind /proc /run/half/proc\n"
    ) as node:
        argv = (sys.executable, "-m", "netplug_cli.wiring.node", "--host-root", "/run/half")
        ended = node.run_unchecked("env", "-C", ROOT, *argv, "--socket", node.file("node.sock"))
        assert ended.returncode == 1
        assert ended.stderr.startswith("netplug-node: /run/half: it is not the root of the host")
