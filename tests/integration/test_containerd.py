"""containerd: the page of its quick start, then pods over its CRI socket on the node that the page made.

Debian's, and at night a release 2, which takes results of CNI 1.1.0 as well.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from attrs import frozen

from tests.harness.annotations import prefixed
from tests.harness.local_stores import IS_DEEP
from tests.harness.node import NODE_ADDRESS, PEER_NAMESPACE, NetnsNode
from tests.harness.runtimes.cri import CRIError, CRIRuntime, PodSandbox
from tests.harness.runtimes.environment import ENVIRONMENT, mount_environment
from tests.harness.runtimes.image import IMAGE
from tests.harness.runtimes.nodes import missing_runtime, open_runtime_node, replace_containerd, run_containerd
from tests.harness.runtimes.pages import read_page, run_page
from tests.harness.servers.binaries import find_containerd
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.runtimes]

BY_HAND = Path(__file__).parents[2] / "docs" / "by-hand.md"
PAGE = "docs/quickstart-containerd.md"
CONFIGURATION = "/etc/cni/net.d/10-netplug.conflist"
NETPLUG = {
    "type": "netplug",
    "datastore_type": "sqlite",
    "ipam": {"type": "netplug-ipam", "assign_ipv6": "true"},
    "capabilities": {"io.kubernetes.cri.pod-annotations": True},
}
DEBIAN = "debian"
RELEASES = [DEBIAN, *(["containerd-v2.4.2"] if IS_DEEP else [])]
PORTMAP = {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}}
GET = """
import sys, urllib.request
print(urllib.request.urlopen(f"http://{sys.argv[1]}/passwd", timeout=5).read().decode())
"""


@frozen
class Host:
    """A node on which the page was followed, and its containerd."""

    node: NetnsNode
    cri: CRIRuntime
    version: str  # the newest of CNI whose results this release takes

    def configure(self, *, has_portmap: bool) -> None:
        """Replace the configuration list, and wait until containerd has it."""
        plugins = [{**NETPLUG, "sqlite_path": self.node.database}, *([PORTMAP] if has_portmap else [])]
        # Debian's portmap does not know CNI 1.1.0: containerd 2 calls its STATUS then, which it refuses.
        version = "1.0.0" if has_portmap else self.version
        text = json.dumps({"cniVersion": version, "name": "pods", "plugins": plugins})
        script = f"mkdir -p /etc/cni/net.d; cat >/etc/cni/net.d/.new; mv /etc/cni/net.d/.new {CONFIGURATION}"
        self.node.run("sh", "-ec", script, stdin=text)
        wait_until(lambda: not self.cri.network_problem(), "containerd has the configuration")

    def fetch(self, address: str, *, inside: str = "") -> str:
        """What a web server answers; empty if there is none."""
        return self.node.run_unchecked(sys.executable, "-ISc", GET, address, inside=inside).stdout.strip()

    def start_server(self, pod: PodSandbox) -> None:
        """Start a web server in a pod."""
        self.cri.run_container(pod, "httpd", "-f", "-h", "/etc")
        wait_until(lambda: bool(self.fetch(self.cri.addresses(pod)[0])), "the web server answers")

    def collect(self) -> None:
        """Call GC as a runtime without any pod: what nobody has is freed."""
        conf = {**NETPLUG, "sqlite_path": self.node.database, "cniVersion": "1.1.0", "name": "pods"}
        environ = {"CNI_COMMAND": "GC", "CNI_PATH": "/usr/lib/cni", "PATH": os.environ["PATH"]}
        text = json.dumps({**conf, "cni.dev/valid-attachments": []})
        assert self.node.run("/usr/lib/cni/netplug", stdin=text, env=environ) == ""

    def end_all_pods(self) -> None:
        """Stop and remove every pod, as a kubelet does that starts anew."""
        for pod in self.cri.pods():
            self.cri.end_pod(PodSandbox(pod, None))

    @property
    def is_clean(self) -> bool:
        """Whether nothing of any pod is left on the node or in the store."""
        interfaces = [name for name in self.node.links() if name not in ("lo", "up0")]
        return self.node.store.is_empty and not interfaces and not self.cri.pods()


@pytest.fixture(scope="module", params=RELEASES)
def host(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Host]:
    """A node on which the page of the quick start was followed from its first step to its last."""
    if reason := missing_runtime("containerd", "ctr"):
        pytest.skip(reason)
    image: Path = request.getfixturevalue("busybox_image")
    environment: Path = request.getfixturevalue("host_environment")
    with ExitStack() as stack:
        node = stack.enter_context(open_runtime_node(tmp_path_factory.mktemp("containerd")))
        if request.param != DEBIAN:
            replace_containerd(node, find_containerd(request.param))
        cri = stack.enter_context(run_containerd(node, image))
        mount_environment(node, environment)
        for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            node.set_setting(path, "0")
        node.store.add_pool("main", "10.65.0.0/16")
        node.store.add_pool("six", "fd65::/64")
        yield Host(node, cri, "1.0.0" if request.param == DEBIAN else "1.1.0")


@pytest.fixture
def followed(host: Host) -> Iterator[Host]:
    """The host with the executables of the page and an own datastore, whatever ran before."""
    if host.node.run_unchecked("ls", "/usr/lib/cni/netplug").returncode != 0:
        run_page(host.node, read_page(PAGE)[2:3], path=f"{ENVIRONMENT}/bin:{os.environ['PATH']}")
    host.configure(has_portmap=True)
    yield host
    host.end_all_pods()


def test_the_quick_start(host: Host) -> None:
    """Everything but the first step, which needs the internet."""
    first, *steps = read_page(PAGE)
    assert "apt-get install" in first.script
    image = "docker.io/library/busybox:1"
    assert f"ctr images pull {image}\n" in first.script
    host.node.run("ctr", "images", "tag", IMAGE, image)
    # A ctr that is not Debian's looks for plugins there, whatever containerd's configuration says.
    host.node.run("sh", "-ec", "mkdir -p /opt/cni && ln -s /usr/lib/cni /opt/cni/bin")
    run_page(host.node, steps, path=os.environ["PATH"])
    host.node.run("rm", "/opt/cni/bin")
    assert host.node.run("sh", "-c", "ls /etc/cni/net.d /usr/lib/cni | grep netplug || true") == ""


def test_by_hand(host: Host) -> None:
    """The few lines of its page; the first two need the internet."""
    (page,) = [
        step for step in read_page("docs/by-hand.md") if step.script.startswith(f"python3 -m venv {ENVIRONMENT}\n")
    ]
    _venv, pip, *lines = page.script.splitlines(keepends=True)
    assert pip.startswith(f"{ENVIRONMENT}/bin/pip install ")
    printed = host.node.run("bash", "-ec", "".join(lines), env={"PATH": os.environ["PATH"]})
    assert "installed /opt/cni/bin/netplug\n" in printed
    assert "warning: portmap is not in /opt/cni/bin" in printed
    assert "IPPool(main) created" in printed
    for command in re.findall(r"not in /opt/cni/bin: .*; run: (ln -s .*)", printed):
        host.node.run("sh", "-ec", command)
    (configuration,) = re.findall(r"```json\n(.*?)```", BY_HAND.read_text(), re.DOTALL)
    host.node.run("sh", "-ec", f"mkdir -p /etc/cni/net.d; cat >{CONFIGURATION}", stdin=configuration)
    routes = host.node.run("ctr", "run", "--rm", "--cni", IMAGE, "by-hand", "ip", "route")
    assert routes.startswith("default via 169.254.1.1 dev eth0")
    host.node.run("sh", "-ec", f"rm -r {CONFIGURATION} /var/lib/netplug /var/log/netplug /opt/cni")


def test_a_pod_with_a_host_port(followed: Host) -> None:
    """Its names are stored, both addresses answer, and the port leads to it until it ends."""
    pod = followed.cri.run_pod("web-0", namespace="shop", uid="u-1", host_ports={8080: 80})
    followed.start_server(pod)
    ipv4, ipv6 = followed.cri.addresses(pod)

    ((name, endpoint),) = followed.node.store.endpoints().items()
    assert name.startswith("shop/")
    assert (endpoint.spec.pod, endpoint.spec.orchestrator) == ("web-0", "k8s")
    assert sorted(map(str, endpoint.spec.addresses)) == sorted((ipv4, ipv6))
    assert followed.fetch(f"[{ipv6}]")
    assert followed.fetch(f"{NODE_ADDRESS}:8080", inside=PEER_NAMESPACE)

    followed.cri.stop_pod(pod)
    followed.cri.stop_pod(pod)
    followed.cri.remove_pod(pod)
    followed.cri.remove_pod(pod)
    assert followed.fetch(f"{NODE_ADDRESS}:8080", inside=PEER_NAMESPACE) == ""
    wait_until(lambda: followed.is_clean, "nothing is left")


def test_without_its_section_there_are_no_host_ports(followed: Host) -> None:
    """Spec, section 4, "CNI chaining", 3: the pod starts, and its port is not mapped."""
    followed.configure(has_portmap=False)
    pod = followed.cri.run_pod("web-0", host_ports={8080: 80})
    followed.start_server(pod)
    assert followed.fetch(f"{NODE_ADDRESS}:8080", inside=PEER_NAMESPACE) == ""
    followed.cri.end_pod(pod)
    wait_until(lambda: followed.is_clean, "nothing is left")


def test_annotations_of_the_pod_without_an_api_server(followed: Host) -> None:
    annotations = prefixed({"ipAddrs": '["10.65.7.7", "fd65::7:7"]', "hwAddr": "02:00:00:00:07:07"})
    pod = followed.cri.run_pod("fixed", annotations=annotations)
    assert followed.cri.addresses(pod) == ["10.65.7.7", "fd65::7:7"]
    container = followed.cri.run_container(pod)
    assert "02:00:00:00:07:07" in followed.cri.execute(container, "ip", "link", "show", "eth0")
    followed.cri.end_pod(pod)
    wait_until(lambda: followed.is_clean, "nothing is left")


def test_a_refused_annotation_is_said_and_leaves_nothing(followed: Host) -> None:
    with pytest.raises(CRIError, match=r'type="netplug" failed \(add\): .*not in a configured pool: 192\.0\.2\.9'):
        followed.cri.run_pod("wrong", annotations=prefixed({"ipAddrs": '["192.0.2.9"]'}))
    wait_until(lambda: followed.is_clean, "nothing is left")


def test_containerd_starts_no_pod_without_loopback(followed: Host) -> None:
    """``install host`` says so."""
    followed.node.run("mv", "/usr/lib/cni/loopback", "/usr/lib/cni/away")
    try:
        warnings = followed.node.run(
            f"{ENVIRONMENT}/bin/netplugctl", "install", "host", "--bin-dir", "/usr/lib/cni", "--without-helpers"
        ).splitlines()
        assert [line for line in warnings if line.startswith("warning: loopback is not in /usr/lib/cni")]
        with pytest.raises(CRIError, match='failed to find plugin "loopback"'):
            followed.cri.run_pod("web-0")
    finally:
        followed.node.run("mv", "/usr/lib/cni/away", "/usr/lib/cni/loopback")
    # A pod whose DEL fails, as this one for want of the same plugin: containerd 1 keeps it, containerd 2 forgets it.
    followed.end_all_pods()
    followed.collect()
    wait_until(lambda: followed.is_clean, "nothing is left")


def test_pods_started_and_ended_at_once_leave_nothing(followed: Host) -> None:
    """Every pod has addresses of its own while it runs."""
    pods = [followed.cri.run_pod(f"web-{number}") for number in range(5)]
    addresses = [address for pod in pods for address in followed.cri.addresses(pod)]
    assert len(set(addresses)) == len(addresses) == 10
    for pod in pods:
        followed.cri.end_pod(pod)
    wait_until(lambda: followed.is_clean, "nothing is left")
