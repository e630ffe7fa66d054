"""The image of the nodes, from its archive alone: in containerd, which reaches no registry.

It is built twice, which takes minutes and needs apt; so only a deep run has it.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from attrs import frozen

from netplug_core import __version__
from tests.harness.node import CNIRuntime, NetnsNode, PluginReply
from tests.harness.node_process import listens
from tests.harness.runtimes.node_image import SOURCE, build_image
from tests.harness.runtimes.nodes import missing_runtime, open_runtime_node, replace_containerd, run_containerd
from tests.harness.servers.binaries import find_containerd
from tests.harness.waiting import wait_until
from tools.images.build import REFERENCE, Built
from tools.images.root import PROGRAMS

pytestmark = [
    pytest.mark.netns,
    pytest.mark.runtimes,
    pytest.mark.alone,
]

DEBIAN, NEWER = "debian", "containerd-v2.4.2"
BIN, CONF = "/opt/cni/bin", "/etc/cni/net.d"
SOCKET = "/run/netplug/node.sock"
HELPERS = {"bandwidth", "host-local", "loopback", "portmap", "tuning"}
NETPLUG = {
    "type": "netplug",
    "nodename": "__KUBERNETES_NODE_NAME__",
    "datastore_type": "sqlite",
    "ipam": {"type": "netplug-ipam"},
}


@frozen
class Host:
    """A node whose containerd has the image from its archive. Nothing of netplug is on it."""

    node: NetnsNode

    def run(self, name: str, *command: str, options: tuple[str, ...] = ()) -> str:
        """What a command prints in a container of the image; it succeeds."""
        return self.node.run("ctr", "run", "--rm", *options, REFERENCE, name, *command)

    def install(self, name: str, *arguments: str) -> str:
        """Run the installer as the pods of the nodes do."""
        plugin = {**NETPLUG, "sqlite_path": self.node.database}
        template = json.dumps({"name": "net1", "cniVersion": "1.0.0", "plugins": [plugin]})
        variables = {"SLEEP": "false", "KUBERNETES_NODE_NAME": "node-1", "CNI_NETWORK_CONFIG": template}
        options = [
            *(f"--env={name}={text}" for name, text in variables.items()),
            *(f"--mount=type=bind,src={path},dst=/host{path},options=rbind:rw" for path in (BIN, CONF)),
        ]
        return self.run(name, "netplug-install", *arguments, options=("--user=0:0", "--privileged", *options))

    def call(self, command: str, pod_name: str) -> PluginReply:
        """A call of the executable that is installed, which finds the node process where it always is."""
        conf = json.loads(self.node.run("cat", f"{CONF}/10-netplug.conflist"))
        one = {"name": conf["name"], "cniVersion": conf["cniVersion"], **conf["plugins"][0]}
        variables = {"CNI_CONTAINERID": pod_name, "CNI_NETNS": f"/run/netns/{pod_name}", "CNI_IFNAME": "eth0"}
        runtime = CNIRuntime(self.node, BIN)
        environ = runtime.make_environ(command, None, **variables, NETPLUG_NODE_SOCKET=None)
        done = self.node.run_unchecked(f"{BIN}/netplug", stdin=json.dumps(one), env=environ)
        return PluginReply(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module", params=[DEBIAN, NEWER])
def host(
    built_image: Built, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    reason = missing_runtime("containerd", "ctr")
    if reason:
        pytest.skip(reason)
    with ExitStack() as stack:
        node = stack.enter_context(open_runtime_node(tmp_path_factory.mktemp("host")))
        if request.param != DEBIAN:
            replace_containerd(node, find_containerd(request.param))
        stack.enter_context(run_containerd(node, built_image.archive))
        node.run("sh", "-ec", f"mkdir -p {BIN} {CONF}; rm -rf {BIN}/* {CONF}/*")
        yield Host(node)


def test_two_builds_are_one_image(built_image: Built, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        again = build_image(tmp_path)
    finally:
        os.umask(before)
    assert again.digest == built_image.digest
    assert again.archive.read_bytes() == built_image.archive.read_bytes()
    assert again.sbom.read_bytes() == built_image.sbom.read_bytes()


def test_containerd_has_it_under_its_name_and_digest(host: Host, built_image: Built) -> None:
    (line,) = [line for line in host.node.run("ctr", "images", "list").splitlines() if line.startswith(REFERENCE)]
    assert built_image.digest in line
    assert "linux/amd64" in line or "linux/arm64" in line


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_every_program_runs_without_rights_and_writes_nothing(host: Host, program: str) -> None:
    assert program in host.run(f"help-{program}", program, "--help", options=("--read-only",))


def test_without_a_command_it_prints_its_version(host: Host) -> None:
    assert host.run("version") == f"Client Version: v{__version__}\n"


def test_the_bgp_daemon_is_in_it(host: Host) -> None:
    shown = host.node.run_unchecked("ctr", "run", "--rm", REFERENCE, "bird", "/usr/sbin/bird", "--version")
    # containerd warns of hosts that it will not serve for ever, such as those with cgroups of version 1.
    lines = [line for line in (shown.stdout + shown.stderr).splitlines() if " level=warning " not in line]
    assert lines == ["BIRD version 2.0.12"]


def test_its_user_is_not_root(host: Host) -> None:
    code = "import os; print(os.getuid(), os.getgid(), os.access('/opt/netplug', os.W_OK))"
    assert host.run("user", "python3", "-ISc", code) == "65532 65532 False\n"


def test_the_bill_of_materials_is_in_it(host: Host, built_image: Built) -> None:
    code = "print(open('/usr/share/sbom/netplug-node.spdx.json').read(), end='')"
    assert host.run("sbom", "python3", "-ISc", code) == built_image.sbom.read_text()
    names = {package["name"] for package in json.loads(built_image.sbom.read_text())["packages"]}
    assert {"netplug-node", "netplug", "libc6", "libssl3", "containernetworking-plugins", "grpcio"} <= names


@pytest.mark.parametrize("host", [NEWER], indirect=True)  # Debian's ctr cannot run a container as another user
def test_installed_from_the_image_the_plugin_works_with_its_node_process(host: Host) -> None:
    """Install, install again, serve a pod from a container of the image, and uninstall."""
    node = host.node
    host.install("install-1")
    files = node.run("ls", BIN).split()
    assert {"netplug", "netplug-ipam", "netplug-standalone"} | HELPERS <= set(files)
    listing = f"find {BIN} {CONF} -printf '%p %m %i %T@\\n' | sort"
    before = node.run("sh", "-c", listing)
    host.install("install-2")
    assert node.run("sh", "-c", listing) == before

    node.store.add_pool("v4", "10.65.0.0/24")
    standalone = f"{BIN}/netplug-standalone"
    pod = node.make_pod()
    added = host.call("ADD", pod.name)  # no node process yet: the bundle
    assert added.addresses[0].startswith("10.65.0.")
    assert host.call("DEL", pod.name).is_success_without_output

    mount = "--mount=type=bind,src=/,dst=/host,options=rbind:rslave"
    arguments = ("--host-root=/host", "--metrics-port=9470")
    options = ("--user=0:0", "--privileged", "--net-host", mount)
    process = node.start_process("ctr", "run", "--rm", *options, REFERENCE, "node", "netplug-node", *arguments)
    path = f"/proc/{node.pid}/root{SOCKET}"
    wait_until(lambda: listens(path) or process.poll() is not None, "the node process listens")
    assert process.poll() is None
    pids = node.run("pgrep", "-f", "netplug-node --host-root").split()
    maps = [node.run("cat", f"/proc/{pid}/maps") for pid in pids]
    assert any(" /usr/lib/libnftables.so.1\n" in each for each in maps)  # that of the image, not the host's
    wait_until(lambda: "netplug_net" in node.run("nft", "list", "tables"), "the packet filter is programmed")
    node.run("mv", standalone, f"{standalone}.away")  # only the node process can answer now
    added = host.call("ADD", pod.name)
    assert added.addresses[0].startswith("10.65.0.")
    assert host.call("DEL", pod.name).is_success_without_output
    assert node.store.is_empty
    node.run("ctr", "task", "kill", "--signal", "SIGTERM", "node")
    assert process.wait(60) == 0
    node.run("mv", f"{standalone}.away", standalone)

    host.install("uninstall", "--uninstall")
    assert set(node.run("ls", BIN).split()) == HELPERS
    assert node.run("ls", CONF) == ""


def test_every_file_of_the_archive_belongs_to_root_and_has_one_time(built_image: Built) -> None:
    with tarfile.open(built_image.archive) as tar:
        assert {(entry.uid, entry.gid, int(entry.mtime)) for entry in tar} == {(0, 0, SOURCE.created)}
