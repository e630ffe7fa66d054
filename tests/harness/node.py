"""A node of a test's own, pods on it, its store, and a CNI runtime that runs executables there.

A node is a network, a mount and a host-name namespace, held by one process that ends with the test run, however that
ends: nothing is left on the machine, and nothing of its own network is touched. The node has an uplink with a default
route to a second namespace, ``world``, from which tests look at it as another machine would.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from datetime import datetime
from ipaddress import IPv6Interface
from pathlib import Path

from attrs import define, field, frozen

from netplug_backends.host.executables import EXECUTABLES
from netplug_backends.host.machine import SystemClock
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.ipam.model import BLOCK, HANDLE, Block
from netplug_core.records import Create, Get, List, Update
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import AllowedUse, IPPool, IPPoolSpec, ippool_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint
from tests.harness.waiting import EMERGENCY_STOP_S, deadline_in, wait_until

__all__ = [
    "DEBIAN_PLUGINS",
    "GATEWAY_ADDRESS",
    "NODE_ADDRESS",
    "NODE_HOST_NAME",
    "PEER_NAMESPACE",
    "CNIRuntime",
    "NetnsNode",
    "PluginReply",
    "PodNamespace",
    "StoreInspector",
    "check_reply",
    "missing_requirement",
    "open_node",
]

NetConfDict = dict[str, object]
JSONObject = dict[str, object]

DEBIAN_PLUGINS = "/usr/lib/cni"
NODE_HOST_NAME = "Node-7.Example"
NODE_ADDRESS = "192.0.2.1"
GATEWAY_ADDRESS = "192.0.2.2"
PEER_NAMESPACE = "world"

# No dad, no router advertisements, no generated addresses: what the node has is the same before and after a test.
_NODE_SETUP_SCRIPT = f"""
set -e
mkdir /run/netns
echo {NODE_HOST_NAME} > /proc/sys/kernel/hostname
ip netns add {PEER_NAMESPACE}
ip -batch - <<END
link set lo up
link add up0 type veth peer name up0 netns {PEER_NAMESPACE}
link set up0 addrgenmode none up
addr add {NODE_ADDRESS}/24 dev up0
addr add 2001:db8::1/64 dev up0 nodad
addr add fe80::1/64 dev up0 nodad
END
ip -n {PEER_NAMESPACE} -batch - <<END
link set lo up
link set up0 addrgenmode none up
addr add {GATEWAY_ADDRESS}/24 dev up0
addr add 2001:db8::2/64 dev up0 nodad
addr add fe80::2/64 dev up0 nodad
route add default via {NODE_ADDRESS}
route add default via 2001:db8::1
END
ip route add default via {GATEWAY_ADDRESS}
ip route add default via 2001:db8::2
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
"""

_STAMP = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) \[", re.MULTILINE)
"""The time of a line of the log."""
_NAMESPACES = ("--net", "--mount", "--uts")
_PROCESS_NAMESPACES = ("--pid", "--ipc")

# What a workload could leave on a node: interfaces, routes, neighbours, settings of any of them, packet filters.
_LEFTOVERS_SCRIPT = """
ip -br link | cut -d' ' -f1
ip route show table all; ip -6 route show table all
ip neigh show nud permanent; ip -6 neigh show nud permanent
cd /proc/sys/net; grep -rs . ipv4/conf ipv6/conf ipv4/ip_forward; ls ipv4/neigh ipv6/neigh
iptables-save -c 2>/dev/null | grep -v '^[#:*]' | sed 's/^[[].*[]] //' | sort
true
"""


@frozen
class PluginReply:
    """How one call of an executable ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> JSONObject:
        """The one JSON document on standard output."""
        found = json.loads(self.stdout)
        assert isinstance(found, dict), self
        return found

    @property
    def result(self) -> JSONObject:
        """What a successful ADD printed."""
        assert self.status == 0, self
        return self.document

    @property
    def error(self) -> JSONObject:
        """The error object of a failed call."""
        assert self.status == 1, self
        return self.document

    @property
    def logged_s(self) -> float:
        """The time between the first and the last line of the call's own log: a busy machine starts programs late."""
        stamps = [datetime.fromisoformat(text) for text in _STAMP.findall(self.stderr)]
        assert len(stamps) > 1, self
        return (stamps[-1] - stamps[0]).total_seconds()

    @property
    def code(self) -> object:
        """The error object's number."""
        return self.error["code"]

    @property
    def text(self) -> str:
        """All that the error object says."""
        return f"{self.error['msg']} {self.error.get('details', '')}"

    @property
    def is_success_without_output(self) -> bool:
        """Whether the call succeeded as DEL, CHECK, GC and STATUS do: with nothing on standard output."""
        return self.status == 0 and self.stdout == ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of a result since 0.3.0, without their lengths."""
        ips = self.result["ips"]
        assert isinstance(ips, list), self
        return tuple(ip["address"].partition("/")[0] for ip in ips)


@define
class StoreInspector:
    """Reads and fills a store for a test."""

    open: Callable[[], AbstractContextManager[Datastore]]

    def add_pool(
        self,
        name: str,
        prefix: str,
        *,
        block_length: int = 0,
        uses: tuple[AllowedUse, ...] = (AllowedUse.WORKLOAD,),
        node_selector: str = "",
    ) -> None:
        """A new pool with blocks of that length, or of the family's usual one."""
        parsed = Prefix.parse(prefix)
        length = block_length or max(parsed.family.default_block_length, parsed.length)
        spec = IPPoolSpec(prefix=parsed, block_length=length, allowed_uses=uses, node_selector=node_selector)
        with self._opened() as (store, deadline):
            pool = IPPool(metadata=Metadata(name=name), spec=spec)
            store.commit([Create(ippool_key(name), pool)], deadline=deadline)

    def set_ready(self, *, is_ready: bool | None) -> None:
        """Set the cluster's ready flag."""
        spec = ClusterInformationSpec(is_datastore_ready=is_ready)
        value = ClusterInformation(metadata=Metadata(name="default"), spec=spec)
        key = CLUSTER_INFORMATION_KEY
        with self._opened() as (store, deadline):
            stored = store.read([Get(key)], deadline=deadline).find(key)
            write = Update(key, value, stored.revision) if stored else Create(key, value)
            store.commit([write], deadline=deadline)

    def blocks(self) -> tuple[Block, ...]:
        """Every block."""
        with self._opened() as (store, deadline):
            return tuple(record.value for record in store.read([List(BLOCK)], deadline=deadline).list(List(BLOCK)))

    def held(self) -> dict[str, tuple[str, ...]]:
        """Every handle that holds addresses, with them."""
        found: dict[str, tuple[str, ...]] = {}
        for block in self.blocks():
            for held in block.held():
                handle = held.attribute.handle or ""
                found[handle] = (*found.get(handle, ()), str(held.address))
        return found

    def handles(self) -> set[str]:
        """The ids of all stored handles."""
        with self._opened() as (store, deadline):
            return {record.key.name for record in store.read([List(HANDLE)], deadline=deadline).list(List(HANDLE))}

    def endpoints(self) -> dict[str, WorkloadEndpoint]:
        """Every workload endpoint by ``namespace/name``."""
        query = List(WORKLOAD_ENDPOINT)
        with self._opened() as (store, deadline):
            found = store.read([query], deadline=deadline).list(query)
        return {"/".join(record.key.path): record.value for record in found}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held and nothing stands for a workload."""
        return not self.held() and not self.handles() and not self.endpoints()

    @contextmanager
    def _opened(self) -> Iterator[tuple[Datastore, Deadline]]:
        with self.open() as store:
            yield store, deadline_in()


@frozen
class PodNamespace:
    """A container's network namespace on a node, with ``lo`` up. ``path`` is valid on the node."""

    name: str

    @property
    def path(self) -> str:
        """Where the namespace is found."""
        return f"/run/netns/{self.name}"


@define
class NetnsNode:
    """One node; ``folder`` is its private state on the machine's file system."""

    folder: str
    pid: int
    _holder: subprocess.Popen[str]
    _namespaces: tuple[str, ...] = _NAMESPACES
    _children: ExitStack = field(factory=ExitStack)
    _pods: int = 0

    @property
    def database(self) -> str:
        """The file of the node's sqlite store."""
        return self.file("netplug.db")

    @property
    def store(self) -> StoreInspector:
        """That store."""
        return StoreInspector(lambda: closing(SqliteDatastore(self.database, clock=SystemClock())))

    def file(self, name: str) -> str:
        """The path of a file of the node."""
        return os.path.join(self.folder, name)

    def write_file(self, name: str, text: str) -> str:
        """Make a file of the node and return its path."""
        path = self.file(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def make_pod(self) -> PodNamespace:
        """A new pod."""
        self._pods += 1
        pod = PodNamespace(f"pod-{self._pods}")
        self.run("sh", "-c", f"ip netns add {pod.name} && ip -n {pod.name} link set lo up")
        return pod

    def make_pods(self, count: int) -> tuple[PodNamespace, ...]:
        """So many new pods."""
        first, self._pods = self._pods + 1, self._pods + count
        pods = tuple(PodNamespace(f"pod-{number}") for number in range(first, first + count))
        names = " ".join(pod.name for pod in pods)
        self.run("sh", "-ec", f"for n in {names}; do ip netns add $n; ip -n $n link set lo up; done")
        return pods

    def remove_pod(self, pod: PodNamespace) -> None:
        """Remove a pod's namespace; the kernel takes its interfaces apart a little later."""
        self.run("ip", "netns", "delete", pod.name)

    def run(self, *argv: str, inside: str = "", stdin: str = "", env: Mapping[str, str] | None = None) -> str:
        """Run a program on the node, or inside one of its namespaces, and return what it printed."""
        done = self.run_unchecked(*argv, inside=inside, stdin=stdin, env=env)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def run_unchecked(
        self, *argv: str, inside: str = "", stdin: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program likewise, however it ends."""
        return subprocess.run(
            self.entering(inside, argv),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=EMERGENCY_STOP_S,
            env=env,
            check=False,
        )

    def start_process(self, *argv: str, inside: str = "") -> subprocess.Popen[str]:
        """Start a program that is ended with the node at the latest; its standard output can be read."""
        child = subprocess.Popen(
            self.entering(inside, argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        self._children.callback(_kill_and_wait, child)
        return child

    def links(self, pod: PodNamespace | None = None) -> dict[str, dict[str, object]]:
        """The interfaces of the node, or of a pod, by name: all that the kernel says of them."""
        at = ("-n", pod.name) if pod else ()
        return {link["ifname"]: link for link in json.loads(self.run("ip", *at, "-d", "-j", "addr"))}

    def routes(self, pod: PodNamespace | None = None, *, family: int = 4) -> list[dict[str, object]]:
        """The routes of the main table."""
        at = ("-n", pod.name) if pod else ()
        found: list[dict[str, object]] = json.loads(self.run("ip", *at, f"-{family}", "-d", "-j", "route"))
        return found

    def setting(self, path: str, pod: PodNamespace | None = None) -> str:
        """A kernel setting below ``/proc/sys/net``."""
        return self.run("cat", f"/proc/sys/net/{path}", inside=pod.name if pod else "").strip()

    def set_setting(self, path: str, value: str, pod: PodNamespace | None = None) -> None:
        """Change one."""
        self.run("sh", "-c", f"echo {value} > /proc/sys/net/{path}", inside=pod.name if pod else "")

    def leftovers(self) -> list[str]:
        """Everything that workloads could leave on the node."""
        return self.run("sh", "-c", _LEFTOVERS_SCRIPT).splitlines()

    def has_local_routes(self) -> bool:
        """Whether each interface has its IPv6 addresses and their routes, which a worker of the kernel adds later.

        Tests that compare ``leftovers`` before and after wait for this first.
        """
        lines = self.run("ip", "-6", "-o", "addr").splitlines()
        addresses = [(line.split()[1], IPv6Interface(line.split()[3])) for line in lines]
        routes = self.run("ip", "-6", "route", "show", "table", "local")
        expected = [f"local {address.ip} dev {name} " for name, address in addresses]
        expected += [f"anycast {address.network[0]} dev {name} " for name, address in addresses if name != "lo"]
        return set(self.links()) == {name for name, _ in addresses} and all(route in routes for route in expected)

    def can_ping(self, target: str, *, inside: str = "") -> bool:
        """Whether an address answers."""
        return self.run_unchecked("ping", "-n", "-c", "1", "-W", "2", target, inside=inside).returncode == 0

    def close(self) -> None:
        """End whatever was started on the node, and the node. A BGP daemon outlives who has started it."""
        self._children.close()
        self.run_unchecked("sh", "-c", "kill -9 $(cat /run/netplug/bird/bird.pid) 2>/dev/null")
        _kill_and_wait(self._holder)

    def entering(self, inside: str, argv: tuple[str, ...]) -> list[str]:
        """The command line of a program that is to run on the node, or inside one of its namespaces."""
        whole = ["nsenter", "--target", str(self.pid), *self._namespaces]
        return [*whole, *(("nsenter", f"--net=/run/netns/{inside}") if inside else ()), *argv]


@contextmanager
def open_node(folder: str, *, private_files: str | None = None) -> Iterator[NetnsNode]:
    """A new node, for as long as the context lasts.

    ``private_files`` is a script that mounts what only the node shall see. Such a node has processes of its own, too:
    the holder is the first of them, which reaps the others, and all end with it.
    """
    isolation = () if private_files is None else (*_PROCESS_NAMESPACES, "--fork", "--kill-child", "--mount-proc")
    script = f"mount -t tmpfs none /run\n{private_files or ''}{_NODE_SETUP_SCRIPT}echo ready\nread -r _ || true"
    holder = subprocess.Popen(
        ["unshare", *_NAMESPACES, *isolation, "bash", "-c", script],
        stdin=subprocess.PIPE,  # closed when the test run ends: then the script ends, and with it the namespaces
        stdout=subprocess.PIPE,
        text=True,
    )
    node = NetnsNode(folder, holder.pid, holder)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n", "the node could not be set up"
        if private_files is not None:
            (child,) = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
            node = NetnsNode(folder, int(child), holder, (*_NAMESPACES, *_PROCESS_NAMESPACES))
        wait_until(node.has_local_routes, "the uplink has its addresses")
        yield node
    finally:
        node.close()


@frozen
class CNIRuntime:
    """A container runtime for one node: runs executables as a runtime does, and checks the form of their answers."""

    node: NetnsNode
    bin_dir: str

    def make_netconf(self, **changes: object) -> NetConfDict:
        """The usual configuration with some keys changed; a key set to None is left out."""
        usual: NetConfDict = {
            "cniVersion": "1.0.0",
            "name": "net1",
            "type": "netplug",
            "nodename": "node-1",
            "datastore_type": "sqlite",
            "sqlite_path": self.node.database,
            "ipam_lock_file": self.node.file("ipam.lock"),
            "release_record_dir": self.node.file("release-records"),
            "nodename_file": self.node.file("nodename"),
            "mtu_file": self.node.file("mtu"),
            "ipam": {"type": "netplug-ipam"},
        }
        return {key: value for key, value in {**usual, **changes}.items() if value is not None}

    def make_environ(self, command: str, pod: PodNamespace | None, **changes: str | None) -> dict[str, str]:
        """The variables of a call; the container is called like the pod unless they are changed."""
        usual: dict[str, str | None] = {
            "PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            "NETPLUG_NODE_SOCKET": "",  # a node process of this machine is not asked
            "CNI_COMMAND": command,
            "CNI_PATH": f"{self.bin_dir}:{DEBIAN_PLUGINS}",
        }
        if pod is not None:
            usual.update(CNI_CONTAINERID=pod.name, CNI_NETNS=pod.path, CNI_IFNAME="eth0")
        return {name: value for name, value in {**usual, **changes}.items() if value is not None}

    def call(
        self,
        command: str,
        conf: NetConfDict | str,
        pod: PodNamespace | None = None,
        *,
        plugin: str = "netplug",
        **variables: str | None,
    ) -> PluginReply:
        """Run one of the executables and return how it ended.

        Whatever happens, standard output holds one JSON document or nothing, a failure is an error object, and no
        traceback reaches the runtime.
        """
        text = conf if isinstance(conf, str) else json.dumps(conf)
        done = self.node.run_unchecked(
            self.executable(plugin), stdin=text, env=self.make_environ(command, pod, **variables)
        )
        reply = PluginReply(done.returncode, done.stdout, done.stderr)
        check_reply(reply, is_ours=plugin in EXECUTABLES)
        return reply

    def add(
        self, conf: NetConfDict, pod: PodNamespace, *, plugin: str = "netplug", **variables: str | None
    ) -> PluginReply:
        """An ADD that succeeds."""
        reply = self.call("ADD", conf, pod, plugin=plugin, **variables)
        assert reply.result["cniVersion"] == conf["cniVersion"]
        return reply

    def delete(
        self, conf: NetConfDict, pod: PodNamespace, *, plugin: str = "netplug", **variables: str | None
    ) -> PluginReply:
        """A DEL that succeeds."""
        reply = self.call("DEL", conf, pod, plugin=plugin, **variables)
        assert reply.is_success_without_output, reply
        return reply

    def collect(self, conf: NetConfDict, *valid: str) -> None:
        """A GC that succeeds; valid are the first interfaces of some containers."""
        reply = self.try_collect(conf, *valid)
        assert reply.is_success_without_output, reply

    def try_collect(self, conf: NetConfDict, *valid: str) -> PluginReply:
        """A GC, whatever comes of it."""
        listed = [{"containerID": container, "ifname": "eth0"} for container in valid]
        return self.call("GC", {**conf, "cniVersion": "1.1.0", "cni.dev/valid-attachments": listed})

    def check(
        self,
        conf: NetConfDict,
        pod: PodNamespace,
        added: PluginReply,
        *,
        plugin: str = "netplug",
        **variables: str | None,
    ) -> PluginReply:
        """A CHECK of what an ADD reported."""
        return self.call("CHECK", {**conf, "prevResult": added.result}, pod, plugin=plugin, **variables)

    def executable(self, plugin: str) -> str:
        """The file of a plugin: ours, else Debian's."""
        own = os.path.join(self.bin_dir, plugin)
        return own if os.path.exists(own) else os.path.join(DEBIAN_PLUGINS, plugin)


def missing_requirement(*programs: str) -> str:
    """Why tests on a node cannot run on this machine; empty when they can."""
    if os.geteuid() != 0:
        return "not root: a node needs namespaces"
    folders = [*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/sbin"]
    for program in ("ip", "nsenter", "unshare", "ping", *programs):
        places = [program] if "/" in program else [os.path.join(folder, program) for folder in folders]
        if not any(os.access(place, os.X_OK) for place in places):
            return f"{program} is missing"
    return ""


def check_reply(reply: PluginReply, *, is_ours: bool) -> None:
    """Check the form of an answer."""
    assert reply.status in (0, 1), reply
    assert "Traceback" not in reply.stdout, reply
    if reply.stdout:
        reply.document  # noqa: B018  raises if it is not exactly one document
    if reply.status:
        assert isinstance(reply.error["code"], int), reply
        assert isinstance(reply.error["msg"], str), reply
        assert not is_ours or isinstance(reply.error["cniVersion"], str), reply


def _kill_and_wait(child: subprocess.Popen[str]) -> None:
    child.kill()
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()
    child.wait()
