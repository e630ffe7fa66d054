"""A real bundle on a host that has nothing but the kernel: no Python, no C library, no shell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import frozen

from tests.harness.installer import RUN
from tests.harness.node_process import ROOT
from tests.harness.waiting import EMERGENCY_STOP_S
from tools.bundle import build_bundle

pytestmark = [
    pytest.mark.netns,
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a root directory and namespaces of its own"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler: apt-get install gcc libc6-dev"),
]

STORE = "var/lib/netplug/netplug.db"
TEMPLATE = json.dumps(
    {
        "name": "net1",
        "cniVersion": "1.0.0",
        "type": "netplug",
        "nodename": "__KUBERNETES_NODE_NAME__",
        "datastore_type": "sqlite",
        "sqlite_path": f"/{STORE}",
        "ipam": {"type": "netplug-ipam"},
    }
)
POOL = """
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: v4}
spec: {cidr: 10.65.0.0/24}
"""
IN_HOST = 'mount -t proc proc "$0/proc"; exec chroot "$0" "$1" < "$0/conf"'


@frozen
class BareHost:
    """A root directory in which nothing is installed but netplug. ``namespace`` is its network's."""

    root: Path
    namespace: str
    pod: str

    def path(self, path: str) -> Path:
        return self.root / path

    def call(self, program: str, command: str, **environ: str) -> dict[str, object]:
        """What an executable of the host answers, called in its root directory."""
        shutil.copy(self.path("etc/cni/net.d/10-netplug.conflist"), self.path("conf"))
        variables = {"CNI_COMMAND": command, "CNI_PATH": "/opt/cni/bin", "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0"}
        entered = ["nsenter", f"--net={self.namespace}", "unshare", "-m", "sh", "-ec", IN_HOST, str(self.root)]
        done = subprocess.run(
            [*entered, f"/opt/cni/bin/{program}"],
            env={"PATH": os.environ["PATH"], **variables, "CNI_NETNS": self.pod, **environ},
            capture_output=True,
            check=False,
            timeout=EMERGENCY_STOP_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, object] = json.loads(done.stdout or "{}")
        return found


@contextmanager
def network_namespace() -> Iterator[str]:
    """The path of a new network namespace."""
    with subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec sleep 3600"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield f"/proc/{process.pid}/ns/net"
        process.kill()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareHost]:
    folder = tmp_path_factory.mktemp("bundle")
    build_bundle(folder / "bundle")
    with network_namespace() as namespace, network_namespace() as pod:
        host = BareHost(folder / "root", namespace, pod)
        for path in ("proc", "run", "opt/cni/bin", "etc", "var/lib/netplug"):
            host.path(path).mkdir(parents=True)
        environ = {"SLEEP": "false", "KUBERNETES_NODE_NAME": "node-1", "CNI_NETWORK_CONFIG": TEMPLATE}
        arguments = ["--bin-dir", str(host.path("opt/cni/bin")), "--conf-dir", str(host.path("etc/cni/net.d"))]
        command = [sys.executable, "-c", RUN, *arguments, "--bundle", str(folder / "bundle"), "--plugins", "/nothing"]
        environ |= {**os.environ, "PYTHONPATH": ROOT}
        subprocess.run(command, env=environ, check=True, timeout=EMERGENCY_STOP_S)
        shutil.rmtree(folder / "bundle")  # the image is gone
        yield host


@pytest.mark.parametrize("program", ["netplug", "netplug-ipam", "netplug-standalone", "netplug-ipam-standalone"])
def test_every_executable_answers_version(host: BareHost, program: str) -> None:
    assert "1.1.0" in str(host.call(program, "VERSION")["supportedVersions"])


def test_an_add_and_a_del_without_node_process(host: BareHost) -> None:
    environ = {**os.environ, "DATASTORE_TYPE": "sqlite", "SQLITE_PATH": str(host.path(STORE)), "PYTHONPATH": ROOT}
    tool = [sys.executable, "-m", "netplug_cli.wiring.ctl", "create", "-f", "-"]
    subprocess.run(tool, env=environ, input=POOL.encode(), check=True, timeout=EMERGENCY_STOP_S)
    result = host.call("netplug", "ADD")
    assert isinstance(result["ips"], list)
    (address,) = (found["address"] for found in result["ips"])
    assert address.startswith("10.65.0.")
    links = subprocess.run(["nsenter", f"--net={host.pod}", "ip", "-o", "addr"], capture_output=True, check=True).stdout
    assert address.encode() in links
    host.call("netplug", "DEL")
    assert host.call("netplug", "DEL") == {}


def test_the_libraries_of_every_datastore_load(host: BareHost) -> None:
    """The interpreter of the bundle imports them in the root directory of the host; ours imports the client of etcd."""
    modules = ("grpc", "dns.resolver", "yaml", "pyroute2", "sqlite3", "ssl", "ctypes", "cattrs", "pluggy")
    backends = ("etcdv3.rpc", "kubernetes.client.apiclient", "sqlite.datastore", "linux.dataplane")
    names = [*modules, *(f"netplug_backends.{name}" for name in backends)]
    folder = f"/opt/cni/bin/.netplug/{os.readlink(host.path('opt/cni/bin/.netplug/current'))}"
    code = (
        f"import sys; sys.path.append('{folder}/packages'); [__import__(name) for name in {names}]; print(sys.prefix)"
    )
    loader = [f"{folder}/loader", "--inhibit-cache", "--library-path", f"{folder}/libraries"]
    command = ["chroot", str(host.root), *loader, f"{folder}/python/bin/python3", "-IS", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=EMERGENCY_STOP_S)
    assert (done.stdout.strip(), done.stderr) == (f"{folder}/python", "")


def test_nothing_else_is_on_the_host(host: BareHost) -> None:
    outside = [str(path.relative_to(host.root)) for path in host.root.rglob("*") if ".netplug/" not in f"{path}/"]
    assert not [path for path in outside if "python" in path or "lib/ld" in path or path.endswith("/sh")]
    assert {path.split("/")[0] for path in outside} <= {"proc", "run", "opt", "etc", "var", "conf"}
