"""The parts of a lab, as values: its nodes and pods, its paths, its datastore, and the interface to the kernel.

Its prefixes are private; nothing outside the lab's namespaces sees them.
"""

from __future__ import annotations

import enum
import os.path
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import cycle
from typing import Protocol, assert_never

from attrs import evolve, field, frozen

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.cni.result import CNIResult
from netplug_core.errors import NetplugError
from netplug_core.names import DEFAULT_INTERFACE
from netplug_core.settings.model import netconf_path

__all__ = [
    "API_PORT", "API_URL", "CNI_VERSION", "ETCD_PORT", "ETCD_URL", "IFNAME", "LAB_POOLS", "MAX_NODES", "MAX_PODS",
    "NODE_ADDRESSES", "NODE_NETNS", "NODE_PORT", "POD_NAMESPACE", "SOCKET_FAMILIES", "SWITCH_NETNS",
    "ExternalServers", "Lab", "LabError", "LabFolder", "LabNetwork", "LabNode", "LabPlan", "LabPod", "LabPool",
    "LabStore", "Namespaces", "NodeFiles", "OwnServers", "Routing", "SqliteStore", "StoreKind", "as_lab_errors",
    "is_kubernetes", "new_lab", "store_environment", "store_netconf_keys",
]  # fmt: skip


# --- namespaces ------------------------------------------------------------------------------------------------------


NODE_NETNS = "node"
"""The name of the namespace of a lab's only node, beside those of the pods."""
SWITCH_NETNS = "switch"
"""The name of the namespace between several nodes; servers of the lab's own are there too."""
NODE_PORT = "lan0"
"""The interface with which a node is plugged into the switch."""

SOCKET_FAMILIES = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}


class Namespaces(Protocol):
    """Network namespaces that are pinned to files, so that they outlive the command that makes them.

    Each method raises DataplaneError when the kernel refuses.
    """

    def make(self, path: str) -> None:
        """Pin a new namespace to a new file; its only interface is the loopback, which is up."""
        ...

    def remove(self, path: str) -> None:
        """Remove a namespace and its file, if they exist."""
        ...

    def find_below(self, folder: str) -> tuple[str, ...]:
        """The files below a folder to which a namespace is pinned, sorted."""
        ...

    def configure_node(self, path: str, addresses: Iterable[Address]) -> None:
        """Switch on forwarding in a namespace, as on a node, and add addresses."""
        ...

    def make_switch(self, path: str) -> None:
        """Make a switch in a namespace."""
        ...

    def plug_in(self, path: str, interface: str, switch: str, port: str, addresses: Iterable[InterfaceAddress]) -> None:
        """Connect an interface in a namespace with the port of a switch in another one, and add addresses to it."""
        ...

    def interfaces(self, path: str) -> tuple[str, ...]:
        """The names of a namespace's interfaces without the loopback."""
        ...

    def enter(self, path: str) -> AbstractContextManager[None]:
        """Put the calling thread, and processes that it starts, into a namespace until the block ends."""
        ...


# --- paths -----------------------------------------------------------------------------------------------------------


@frozen
class LabFolder:
    """The folder of one lab, and the paths in it."""

    path: str

    @property
    def record_file(self) -> str:
        """The record of the lab."""
        return self._path("lab.json")

    @property
    def subfolders(self) -> tuple[str, ...]:
        """The folders inside; a lab has only these and its record."""
        return tuple(self._path(part) for part in ("bin", "conf", "log", "netns", "run", "servers", "store"))

    @property
    def bin_dir(self) -> str:
        """The plugin executables."""
        return self._path("bin")

    @property
    def pools_file(self) -> str:
        """The IP pools, as ``netplugctl create -f`` takes them."""
        return self._path("conf", "pools.yaml")

    @property
    def store_file(self) -> str:
        """The datastore."""
        return self._path("store", "netplug.db")

    @property
    def processes_dir(self) -> str:
        """The ids of the lab's processes, a file each."""
        return self._path("run")

    @property
    def kubeconfig_file(self) -> str:
        """The kubeconfig of the lab's own API server."""
        return self._path("conf", "kubeconfig")

    @property
    def tokens_file(self) -> str:
        """The tokens of that server's users."""
        return self._path("conf", "tokens.csv")

    def server_dir(self, name: str) -> str:
        """The data folder of a server of the lab's own; the server makes it."""
        return self._path("servers", name)

    def process_log(self, name: str) -> str:
        """The log of a process of the lab."""
        return self._path("log", f"{name}.log")

    @property
    def netns_dir(self) -> str:
        """The folder of the files to which namespaces are pinned."""
        return self._path("netns")

    def netns(self, name: str) -> str:
        """The namespace of the node or of a pod."""
        return self._path("netns", name)

    def node_files(self, netns: str = NODE_NETNS) -> NodeFiles:
        """The files of the node with that namespace."""
        return NodeFiles(self, "" if netns == NODE_NETNS else netns)

    def _path(self, *names: str) -> str:
        return os.path.join(self.path, *names)


@frozen
class NodeFiles:
    """The files of a node. ``part`` is the name of its own folders; empty: the lab's, where it is the only node."""

    folder: LabFolder
    part: str

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that it has for itself."""
        return tuple(self._path(kind) for kind in ("conf", "log", "run")) if self.part else ()

    @property
    def conflist_file(self) -> str:
        """The configuration list."""
        return self._path("conf", "10-netplug.conflist")

    @property
    def log_file(self) -> str:
        """The log of the plugins."""
        return self._path("log", "cni.log")

    @property
    def nodename_file(self) -> str:
        """Where a node process writes the node's name, once it has registered it."""
        return self._path("run", "nodename")

    @property
    def mtu_file(self) -> str:
        """Where a node process writes the MTU, once it has registered the node."""
        return self._path("run", "mtu")

    @property
    def ipam_lock_file(self) -> str:
        """The lock between the plugins of this node."""
        return self._path("run", "ipam.lock")

    @property
    def release_record_dir(self) -> str:
        """What DELs could not release while the datastore was away."""
        return self._path("run", "release-records")

    @property
    def endpoint_status_dir(self) -> str:
        """The folder in which the node process says which endpoints are programmed."""
        return self._path("run", "endpoint-status")

    @property
    def node_socket(self) -> str:
        """Where the node process listens."""
        return self._path("run", "node.sock")

    @property
    def bgp_dir(self) -> str:
        """The files of the BGP daemon, with the marker that the routes of its protocol are netplug's."""
        return self._path("run", "bird")

    @property
    def process_name(self) -> str:
        """The name of the node process among the lab's processes."""
        return f"netplug-{self.part}" if self.part else "netplug-node"

    def _path(self, kind: str, name: str = "") -> str:
        return os.path.join(self.folder.path, kind, *filter(None, (self.part, name)))


# --- stores ----------------------------------------------------------------------------------------------------------


ETCD_PORT, API_PORT = 2379, 6443
ETCD_URL = f"http://127.0.0.1:{ETCD_PORT}"
"""Where a lab's own etcd answers, inside the node's namespace."""
API_URL = f"https://127.0.0.1:{API_PORT}"
"""Where a lab's own API server answers there."""


class StoreKind(enum.Enum):
    """The datastores that a lab can be on; the value is the datastore's name."""

    SQLITE = "sqlite"
    ETCD = "etcdv3"
    KUBERNETES = "kubernetes"


@frozen
class SqliteStore:
    """A sqlite file in the lab's folder."""

    @property
    def kind(self) -> StoreKind:
        """Which datastore it is."""
        return StoreKind.SQLITE


@frozen(kw_only=True)
class OwnServers:
    """Servers that the lab starts and ends, inside its node's namespace; the API server is empty for etcd alone."""

    etcd: str
    apiserver: str = ""

    @property
    def kind(self) -> StoreKind:
        """Which datastore they are."""
        return StoreKind.KUBERNETES if self.apiserver else StoreKind.ETCD


@frozen(kw_only=True)
class ExternalServers:
    """Servers outside the lab: the environment that leads ``netplugctl`` to them, and host and port of each."""

    kind: StoreKind
    environment: tuple[tuple[str, str], ...]
    addresses: tuple[tuple[str, int], ...]


LabStore = SqliteStore | OwnServers | ExternalServers


def is_kubernetes(store: LabStore) -> bool:
    """Whether nodes and pods are objects there."""
    return store.kind is StoreKind.KUBERNETES


def store_environment(store: LabStore, folder: LabFolder) -> Mapping[str, str]:
    """The environment that makes ``netplugctl`` use the store."""
    named = {"DATASTORE_TYPE": store.kind.value}
    match store:
        case SqliteStore():
            return {**named, "SQLITE_PATH": folder.store_file}
        case OwnServers(apiserver=""):
            return {**named, "ETCD_ENDPOINTS": ETCD_URL}
        case OwnServers():
            return {**named, "KUBECONFIG": folder.kubeconfig_file}
        case ExternalServers():
            return {**named, **dict(store.environment)}
    assert_never(store)


def store_netconf_keys(store: LabStore, folder: LabFolder) -> Mapping[str, object]:
    """The members of a plugin's configuration that make it use the store."""
    members: dict[str, object] = {}
    for variable, value in store_environment(store, folder).items():
        first, *inner = netconf_path(variable)
        members[first] = {inner[0]: value} if inner else value
    return members


# --- model -----------------------------------------------------------------------------------------------------------


CNI_VERSION = "1.0.0"
IFNAME = DEFAULT_INTERFACE
POD_NAMESPACE = "lab"

MAX_NODES, MAX_PODS = 20, 100


@frozen
class LabPool:
    """An IP pool of the lab; ``block_length`` is the prefix length of its blocks."""

    name: str
    prefix: Prefix
    block_length: int


# A unique local prefix (RFC 4193) of our own; the pool is its first /64.
_IPV6_POOL = LabPool("lab-ipv6", Prefix.parse("fd98:6e70:6c67::/64"), 122)
LAB_POOLS = (LabPool("lab-ipv4", Prefix.parse("10.98.0.0/24"), 26), _IPV6_POOL)
_NETWORK_POOLS = (LabPool("lab-ipv4", Prefix.parse("10.98.64.0/18"), 26), _IPV6_POOL)  # with blocks for all nodes

NODE_ADDRESSES = (Address.parse("10.98.1.1"), Address.parse("fd98:6e70:6c67:1::1"))
"""The addresses of the first node: outside the pools, as on a real node. The next ones follow them."""
_NODE_SUBNET_LENGTHS = {Family.IPV4: 24, Family.IPV6: 64}


class LabError(NetplugError):
    """A lab that cannot be made, shown or removed; the text is the reason."""


@contextmanager
def as_lab_errors(path: str) -> Iterator[None]:
    """Raise an OSError, such as that of a full disk, as LabError; ``path`` is named if the error names no file."""
    try:
        yield
    except OSError as error:
        raise LabError(f"{error.filename or path}: {error.strerror or error}") from error


class Routing(enum.Enum):
    """What carries packets between the nodes of a lab."""

    VXLAN = "vxlan"
    BGP = "bgp"
    NONE = "none"


@frozen(kw_only=True)
class LabNetwork:
    """So many nodes on one switch, and what carries the packets of their pods."""

    node_count: int
    routing: Routing


@frozen(kw_only=True)
class LabNode:
    """A node: the name that it is registered under, that of its namespace, and its addresses."""

    name: str
    netns: str
    addresses: tuple[Address, ...]

    @property
    def switch_addresses(self) -> tuple[InterfaceAddress, ...]:
        """Its addresses in the subnet of all nodes."""
        return tuple(InterfaceAddress(each, _NODE_SUBNET_LENGTHS[each.family]) for each in self.addresses)


@frozen(kw_only=True)
class LabPod:
    """A pod of the lab. ``add_output`` is what its ADD printed, empty before; ``result`` is that as a value.

    ``node`` is the name of the namespace of its node.
    """

    name: str
    node: str = NODE_NETNS
    add_output: str = ""
    result: CNIResult = field(default=CNIResult(), eq=False)

    @property
    def is_attached(self) -> bool:
        """Whether its ADD has succeeded."""
        return bool(self.add_output)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses that it was assigned."""
        return tuple(ip.address for ip in self.result.ips)

    @property
    def host_interface(self) -> str:
        """The node's end of its interface; empty before it is attached."""
        return next((interface.name for interface in self.result.interfaces if not interface.sandbox), "")


@frozen(kw_only=True)
class Lab:
    """The parts of a lab; recorded before any of them is made.

    ``uid`` is in the label of everything that the lab stores on external servers. ``network`` is that of several nodes;
    None: there is one node, which has no interface but those of its pods, and is not registered.
    """

    name: str
    uid: str
    pods: tuple[LabPod, ...]
    store: LabStore = field(factory=SqliteStore)
    network: LabNetwork | None = None
    is_complete: bool = False

    @property
    def nodes(self) -> tuple[LabNode, ...]:
        """The nodes."""
        if self.network is None:
            return (LabNode(name=f"{self.name}-node", netns=NODE_NETNS, addresses=NODE_ADDRESSES),)
        return tuple(
            LabNode(
                name=f"{self.name}-node-{number}",
                netns=f"node-{number}",
                addresses=tuple(Address(each.family, each.value + number - 1) for each in NODE_ADDRESSES),
            )
            for number in range(1, self.network.node_count + 1)
        )

    @property
    def pools(self) -> tuple[LabPool, ...]:
        """The IP pools."""
        return LAB_POOLS if self.network is None else _NETWORK_POOLS

    @property
    def server_netns(self) -> str:
        """The name of the namespace in which servers of its own run."""
        return NODE_NETNS if self.network is None else SWITCH_NETNS

    def node_of(self, pod: LabPod) -> LabNode:
        """The node of a pod."""
        return next(node for node in self.nodes if node.netns == pod.node)

    def with_pod(self, pod: LabPod) -> Lab:
        """The same lab with the pod of that name replaced."""
        return evolve(self, pods=tuple(pod if other.name == pod.name else other for other in self.pods))


@frozen(kw_only=True)
class LabPlan:
    """What a person asks for."""

    name: str
    pod_count: int
    store: LabStore = field(factory=SqliteStore)
    network: LabNetwork | None = None


def new_lab(plan: LabPlan, *, uid: str) -> Lab:
    """A lab before any part of it is made; the pods are spread over its nodes."""
    bare = Lab(name=plan.name, uid=uid, pods=(), store=plan.store, network=plan.network)
    nodes = cycle(bare.nodes)
    pods = (LabPod(name=f"pod-{number}", node=next(nodes).netns) for number in range(1, plan.pod_count + 1))
    return evolve(bare, pods=tuple(pods))
