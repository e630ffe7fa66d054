"""``netplugctl migrate auto-host-endpoints`` on real servers, with real controllers: killed after each write, resumed.

Every state of the host endpoints that the server had is looked at, in the server's own order: no node is ever without
an endpoint for all its interfaces.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import define, field, frozen

from netplug_backends.kubernetes.names import CrdMode
from netplug_core.datastore.protocol import Datastore
from netplug_core.orchestrator.model import NodeFacts
from netplug_core.reconcile.hostendpoints import automatic_name
from netplug_core.reconcile.nodes import follow_cluster_node
from netplug_core.records import Conflict, Create, List, Revision, Update
from netplug_core.resources.fields import Metadata
from netplug_core.resources.hostendpoint import HOST_ENDPOINT, HostEndpoint, HostEndpointSpec
from netplug_core.resources.node import NODE, node_key
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE
from tests.harness.controllers_process import open_controllers
from tests.harness.controllers_scene import machine_node
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    install_definitions,
    make_namespace,
    make_node,
)
from tests.harness.tool_user import ToolUser
from tests.harness.waiting import deadline_in, wait_until

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[2]
KILLER = str(ROOT / "tests" / "harness" / "processes" / "migration_killer.py")
NODES = ("worker-1", "worker-2")
WRITES = ("label_node",) * 2 + ("commit", "write_private_file") + ("commit",) * 2
"""Labels of two nodes, the setting, the backup, and two deletions."""


@frozen(kw_only=True)
class State:
    """The host endpoints at one moment: the nodes that each covers, by name."""

    endpoints: dict[str, HostEndpoint]

    def is_covered(self, node: str) -> bool:
        """Whether the node has an endpoint for all its interfaces."""
        return any(each.spec.node == node and each.spec.interface_name == "*" for each in self.endpoints.values())


def written_endpoint(node: str) -> HostEndpoint:
    """What a person wrote for a node."""
    spec = HostEndpointSpec(node=node, interface_name="*", profiles=(DEFAULT_ALLOW_PROFILE.key.name,))
    return HostEndpoint(metadata=Metadata(name=f"old-{node}", labels=(("tier", node),)), spec=spec)


@define
class Scene:
    """Two nodes of a cluster with an endpoint each that a person wrote, and the user who migrates."""

    user: ToolUser
    server: ApiServer
    store: Datastore
    begin: Revision = field(init=False)

    def __attrs_post_init__(self) -> None:
        for endpoint in map(written_endpoint, NODES):
            key = HOST_ENDPOINT.key(endpoint.metadata.name)
            self.store.commit([Create(key, endpoint)], deadline=deadline_in())
        self.begin = self.store.read([List(HOST_ENDPOINT)], deadline=deadline_in()).revision(HOST_ENDPOINT)

    def endpoints(self) -> dict[str, HostEndpoint]:
        """Those that are stored."""
        found = self.store.read([List(HOST_ENDPOINT)], deadline=deadline_in()).list(List(HOST_ENDPOINT))
        return {record.key.name: record.value for record in found}

    def states(self) -> list[State]:
        """Every state since the beginning, in the order in which the server made them."""
        final, held = self.endpoints(), {each.metadata.name: each for each in map(written_endpoint, NODES)}
        states = [State(endpoints=dict(held))]
        for event in self.store.watch({HOST_ENDPOINT: self.begin}, deadline=deadline_in()):
            held.pop(event.key.name, None)
            if event.value is not None:
                assert isinstance(event.value, HostEndpoint)
                held[event.key.name] = event.value
            states.append(State(endpoints=dict(held)))
            if held.keys() == final.keys() and all(held[name].spec == final[name].spec for name in held):
                return states
        raise AssertionError(f"the changes do not lead to what is stored: {held.keys()}, {final.keys()}")

    def run(self, folder: Path, *, stop_at: int) -> tuple[int, list[str]]:
        """One run of the tool; its exit status, and its writes."""
        writes = folder / "writes"
        argv = ("-c", self.user.write_configuration(), "migrate", "auto-host-endpoints")
        command = [sys.executable, KILLER, str(stop_at), str(writes), *argv, "--backup", str(folder / "old.yaml")]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=dict(os.environ), check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode, [line.partition(" ")[2].rpartition(".")[2] for line in writes.read_text().splitlines()]


@contextmanager
def labels_followed(server: ApiServer, store: Datastore) -> Iterator[None]:
    """What the process of each node does with an etcd: the labels of the cluster's node go to the Node."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(0.1):
            for record in store.read([List(NODE)], deadline=deadline_in()).list(List(NODE)):
                metadata = server.get(f"/api/v1/nodes/{record.key.name}")["metadata"]
                assert isinstance(metadata, dict)
                labels = tuple(sorted((metadata.get("labels") or {}).items()))
                facts = NodeFacts(name=record.key.name, uid=str(metadata["uid"]), labels=labels)
                changed = follow_cluster_node(record.value, facts)
                if changed != record.value:
                    try:
                        store.commit([Update(record.key, changed, record.revision)], deadline=deadline_in())
                    except Conflict:
                        continue  # it is read again

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture(params=[pytest.param("etcdv3", marks=pytest.mark.etcd), "kubernetes"])
def scene(request: pytest.FixtureRequest, api_server: ApiServer, tmp_path: Path) -> Iterator[Scene]:
    make_namespace(api_server, "kube-system")
    install_definitions(api_server, CrdMode.V1)
    delete_custom_objects(api_server, CrdMode.V1)
    api_server.delete_collection("/api/v1/nodes")
    for name in NODES:
        make_node(api_server, name, labels={"zone": "a"})
    kubeconfig = api_server.write_kubeconfig()
    environ, spec = {"DATASTORE_TYPE": request.param, "KUBECONFIG": kubeconfig}, {"kubeconfig": kubeconfig}
    if request.param == "etcdv3":
        etcd: EtcdCluster = request.getfixturevalue("etcd")
        delete_all_entries(etcd)
        environ["ETCD_ENDPOINTS"] = spec["etcdEndpoints"] = ",".join(etcd.endpoints)
    user = ToolUser(tmp_path, spec)
    with open_controllers(tmp_path, environ, api_server) as controllers, user.store() as store:
        if request.param == "etcdv3":
            for name in NODES:
                store.commit([Create(node_key(name), machine_node(name, name))], deadline=deadline_in())
        opened = Scene(user, api_server, store)
        controllers.start()
        if request.param == "etcdv3":
            with labels_followed(api_server, store):
                yield opened
        else:
            yield opened
    api_server.delete_collection("/api/v1/nodes")


@pytest.mark.parametrize("stop_at", range(len(WRITES) + 1))
def test_killed_after_any_write_it_ends_the_same_and_no_node_is_ever_without_its_endpoint(
    scene: Scene, tmp_path: Path, stop_at: int
) -> None:
    status, writes = scene.run(tmp_path, stop_at=stop_at)
    assert (status, writes) == (-signal.SIGKILL if stop_at else 0, [*WRITES[: stop_at or len(WRITES)]])
    if stop_at:
        assert scene.run(tmp_path, stop_at=0)[0] == 0
    found = scene.endpoints()
    assert sorted(found) == [automatic_name(node) for node in NODES]
    for node in NODES:
        endpoint = found[automatic_name(node)]
        assert {("tier", node), ("zone", "a")} <= set(endpoint.metadata.labels)
        assert endpoint.spec.profiles == (DEFAULT_ALLOW_PROFILE.key.name,)
    states = scene.states()
    assert len(states) > 2 * len(NODES)
    assert [(number, node) for number, each in enumerate(states) for node in NODES if not each.is_covered(node)] == []
    undone = scene.user.run_command("migrate", "auto-host-endpoints", "--undo", str(tmp_path / "old.yaml"))
    assert undone.status == 0, undone
    wait_until(lambda: sorted(scene.endpoints()) == [f"old-{node}" for node in NODES], "all is as before")
    states = scene.states()
    assert [(number, node) for number, each in enumerate(states) for node in NODES if not each.is_covered(node)] == []
