"""What a node process stores on a real API server with the account of its pod, and not with that of the plugin.

The release of the cluster, and the addresses of the node.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import pytest
from attrs import frozen

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_backends.host.placing import run_here
from netplug_backends.kubernetes.names import CrdMode
from netplug_cli.wiring.node_network import open_node_datastore
from netplug_cli.wiring.node_process import _open_world
from netplug_core import __version__
from netplug_core.addressing import Family, InterfaceAddress
from netplug_core.clock import Pace
from netplug_core.dataplane.routing import HostAddress, HostInterface
from netplug_core.errors import Unauthorized
from netplug_core.flows.node import NodeWorld, settle_addresses
from netplug_core.flows.resources.cluster import (
    NodeRelease,
    ensure_initialized,
    find_cluster_information,
    store_release,
)
from netplug_core.netconf.model import NetConf
from netplug_core.reconcile.registration import FoundOnHost, RegistrationSettings
from netplug_core.records import Get
from netplug_core.resources.node import node_key
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess
from tests.harness.node_server import Lines
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, make_client
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import delete_custom_objects, install_definitions, install_role
from tests.harness.servers.node_account import NAMESPACE, install_node_account
from tests.harness.tool_user import ToolUser
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.apiserver

T = TypeVar("T")


@frozen
class NodePod:
    """A node process in a pod: its variables, the files of its account, and settings that name the plugin's access."""

    environ: dict[str, str]
    account_folder: str
    settings: DatastoreSettings

    def store(self, environ: dict[str, str], node: str = "addressed-1") -> str:
        """Store what the node process knows of the cluster; the release that the cluster runs from now on."""
        own = NodeRelease(node=node, release=f"v{__version__}", types=("k8s",))
        return self.do(
            environ,
            lambda world: store_release(world.datastore, own, pace=world.pace(), new_uid=world.host.new_uid),
        )

    def do(self, environ: dict[str, str], step: Callable[[NodeWorld], T]) -> T:
        clock = SystemClock()
        opening = partial(open_node_datastore, environ, run_here, clock, account_folder=self.account_folder)
        with _open_world(HostMachine(), clock, Lines(), opening, NetConf(datastore=self.settings)) as world:
            return step(world)


@pytest.fixture(params=list(CrdMode), ids=lambda mode: mode.name)
def mode(request: pytest.FixtureRequest, api_server: ApiServer) -> CrdMode:
    found: CrdMode = request.param
    install_definitions(api_server, found)
    delete_custom_objects(api_server, found)
    return found


@pytest.fixture
def pod(api_server: ApiServer, mode: CrdMode, tmp_path: Path) -> NodePod:
    account = tmp_path / "account"
    account.mkdir()
    plugin_token = install_role(api_server)
    (account / "token").write_text(install_node_account(api_server))
    (account / "ca.crt").write_bytes(Path(api_server.ca_file).read_bytes())
    (account / "namespace").write_text(NAMESPACE)
    environ = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(api_server.port),
        "KUBERNETES_SERVICE_PROTOCOL": "https",
    }
    access = KubernetesAccess(kubeconfig=api_server.write_kubeconfig(plugin_token, name="plugin"))
    settings = DatastoreSettings(type="kubernetes", kubernetes=access, api_group=mode.group)
    return NodePod(environ, str(account), settings)


def test_netplugctl_names_the_release_that_a_node_has_stored(
    pod: NodePod, mode: CrdMode, api_server: ApiServer, tmp_path: Path
) -> None:
    assert pod.store(pod.environ) == f"v{__version__}"
    assert not pod.store(pod.environ)
    access = {"kubeconfig": api_server.write_kubeconfig(), "netplugAPIGroup": mode.group}
    user = ToolUser(tmp_path, {"datastoreType": "kubernetes", **access})
    assert "Cluster Version: v3.33.0\nCluster Type: k8s,kdd\n" in user.run_command("version").out


def test_many_nodes_that_start_at_once_make_one_cluster(pod: NodePod, api_server: ApiServer, mode: CrdMode) -> None:
    starters = 6
    with ThreadPoolExecutor(starters) as pool:
        said = list(pool.map(lambda number: pod.store(pod.environ, f"starting-{number}"), range(starters)))
    assert sorted(said) == [*[""] * (starters - 1), f"v{__version__}"]
    items = api_server.get(f"/apis/{mode.value}/clusterinformations")["items"]
    assert isinstance(items, list)
    assert len(items) == 1


@pytest.mark.etcd
def test_many_nodes_and_controllers_that_start_at_once_beside_an_etcd_make_one_cluster(etcd: EtcdCluster) -> None:
    """Nodes of two releases, each with a client of its own, and processes that know of no release."""
    delete_all_entries(etcd)

    def start(number: int) -> str:
        clock = SystemClock()
        pace = Pace(clock=clock, deadline=deadline_in(), chance=random.random)
        with closing(EtcdDatastore(make_client(etcd, clock=clock))) as store:
            if number % 3 == 0:
                return ensure_initialized(store, pace=pace, new_uid=HostMachine().new_uid).spec.cluster_guid
            own = NodeRelease(node=f"n{number}", release=f"v3.3{number % 3}.0", types=("k8s",), others=("v3.31.0",))
            store_release(store, own, pace=pace, new_uid=HostMachine().new_uid)
            return find_cluster_information(store, deadline=deadline_in()).cluster_guid

    with ThreadPoolExecutor(9) as pool:
        assert len(set(pool.map(start, range(9)))) == 1
    with closing(EtcdDatastore(make_client(etcd, clock=SystemClock()))) as store:
        found = find_cluster_information(store, deadline=deadline_in())
    assert (found.version, found.cluster_type, found.is_datastore_ready) == ("v3.31.0", "k8s", True)
    delete_all_entries(etcd)


def test_a_node_that_has_not_been_upgraded_holds_the_release_back(
    pod: NodePod, nodes: tuple[str, str], api_server: ApiServer
) -> None:
    def record(release: str) -> None:
        change = {"metadata": {"annotations": {"projectnetplug.org/NetplugVersion": release}}}
        path = f"/api/v1/nodes/{nodes[1]}"
        api_server.request("PATCH", path, change, content_type="application/merge-patch+json")

    record("v3.32.0")
    assert pod.store(pod.environ, nodes[0]) == "v3.32.0"
    record(f"v{__version__}")
    assert pod.store(pod.environ, nodes[0]) == f"v{__version__}"


def test_the_account_of_the_plugin_may_not_store_it(pod: NodePod) -> None:
    """Outside a pod there is no other one."""
    with pytest.raises(Unauthorized, match='cannot list resource "nodes"'):
        pod.store({})


# --- the addresses of the node ----------------------------------------------------------------------------------------


def interface(address: str) -> FoundOnHost:
    held = HostAddress(held=InterfaceAddress.parse(address))
    return FoundOnHost(interfaces=(HostInterface(name="eth0", index=2, is_up=True, mtu=1500, addresses=(held,)),))


@pytest.fixture
def nodes(api_server: ApiServer) -> Iterator[tuple[str, str]]:
    """Two nodes of the cluster."""
    names = ("addressed-1", "addressed-2")
    for name in names:
        api_server.create("/api/v1/nodes", {"metadata": {"name": name, "annotations": {"theirs": "x"}}})
    yield names
    for name in names:
        api_server.request("DELETE", f"/api/v1/nodes/{name}")


def test_addresses_are_annotations_of_the_clusters_node(
    pod: NodePod, nodes: tuple[str, str], api_server: ApiServer
) -> None:
    first, second = nodes
    settings = RegistrationSettings.parse({"AS": "65000"})
    found = interface("10.240.0.11/24")
    settled = pod.do(pod.environ, lambda own: settle_addresses(own, first, settings, found))
    assert (settled.conflicts, settled.pod_mtu) == ((), 1500)
    stored = cast("dict[str, dict[str, dict[str, str]]]", api_server.request("GET", f"/api/v1/nodes/{first}"))
    annotations = stored["metadata"]["annotations"]
    assert annotations["projectnetplug.org/IPv4Address"] == "10.240.0.11/24"
    assert annotations["projectnetplug.org/ASNumber"] == "65000"
    assert annotations["projectnetplug.org/NetplugVersion"] == f"v{__version__}"
    assert annotations["theirs"] == "x"
    conflict = pod.do(pod.environ, lambda own: settle_addresses(own, second, settings, found)).conflicts
    assert list(map(str, conflict)) == [f"the node {first} has the address 10.240.0.11"]
    key = node_key(first)
    read = pod.do(pod.environ, lambda own: own.datastore.read([Get(key)], deadline=own.pace().deadline).find(key))
    assert read is not None
    assert str(read.value.find_address(Family.IPV4)) == "10.240.0.11/24"


def test_the_account_of_the_plugin_may_not_register_addresses(pod: NodePod, nodes: tuple[str, str]) -> None:
    with pytest.raises(Unauthorized):
        pod.do({}, lambda own: settle_addresses(own, nodes[0], RegistrationSettings(), interface("10.240.0.11/24")))
