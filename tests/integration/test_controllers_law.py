"""The law of the controllers on real servers: whatever happens, in any order, ends in what the cluster says.

A thousand random events by night, some at a time: objects of the cluster and records of the etcd come, change and go.
One of the two processes is killed, paused as if its machine stood still, cut off from the etcd, or loses its Lease
while it acts, so that two act at once for a moment. After each part everything is healed, and has to be right.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import pytest
from attrs import define, field

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.host.machine import SystemClock
from netplug_core.datastore.protocol import Datastore
from netplug_core.names import endpoint_labels
from netplug_core.records import CommitError, Create, Delete, Get, Key, Kind, List, Update
from netplug_core.resources.hostendpoint import HOST_ENDPOINT
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.networkpolicy import NETWORK_POLICY, NetworkPolicy, NetworkPolicySpec
from netplug_core.resources.node import NODE, Node, node_key
from netplug_core.resources.profile import PROFILE, Profile, ProfileSpec, account_spec, namespace_spec
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.controllers_process import CONTROLLERS_LEASE_PATH, ControllersProcesses, open_controllers
from tests.harness.controllers_scene import machine_node
from tests.harness.operator_process import OperatorProcess
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, make_client
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.kube_objects import make_namespace, make_node, make_pod
from tests.harness.servers.tcp_proxy import ProxyMode, TCPProxy, open_proxy
from tests.harness.waiting import deadline_in, is_eventually

pytestmark = [pytest.mark.apiserver, pytest.mark.etcd, pytest.mark.stress]

NAMES: Final = ("a", "b", "c")
TEXTS: Final = ("red", "blue")
EVENTS_A_PART: Final = 40
PARTS: Final = int(os.environ.get("NETPLUG_CONTROLLERS_LAW_PARTS", "25"))
NAMESPACE = "law"
FOLDER = f"/api/v1/namespaces/{NAMESPACE}"
POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"
_REFUSED = (404, 409)
MERGE = "application/merge-patch+json"


@define
class World:
    """Two processes over a cluster and an etcd; each reaches the etcd through a wire of its own."""

    server: ApiServer
    store: Datastore
    controllers: ControllersProcesses
    wires: tuple[TCPProxy, ...]
    seed: int
    chance: random.Random = field(init=False)
    processes: list[OperatorProcess] = field(factory=list)
    own: set[str] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311  # no secret

    def start(self, number: int) -> OperatorProcess:
        """Begin a process."""
        return self.controllers.start(ETCD_ENDPOINTS=self.wires[number].url)

    # --- the cluster ------------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> bool:
        """A request that may be refused because of what is there; whether it was not."""
        try:
            self.server.request(method, path, body, content_type=content_type)
        except RequestRefused as error:
            if error.code not in _REFUSED:
                raise
            return False
        return True

    def apply(self, folder: str, name: str, change: dict[str, object]) -> None:
        """Change an object, or make it."""
        if not self.request("PATCH", f"{folder}/{name}", change, MERGE):
            metadata = change.get("metadata")
            body = {**change, "metadata": {**(metadata if isinstance(metadata, dict) else {}), "name": name}}
            self.request("POST", folder, body)

    def items(self, path: str) -> dict[str, dict[str, object]]:
        """The objects of a collection, by name."""
        found = self.server.get(path)["items"]
        assert isinstance(found, list)
        return {each["metadata"]["name"]: each for each in found}

    # --- the records ------------------------------------------------------------------------------------------------

    def put(self, key: Key[object], value: object) -> None:
        """Store a value, whatever is there."""
        for _attempt in range(100):
            found = self.store.read([Get(key)], deadline=deadline_in()).find(key)
            write = Create(key, value) if found is None else Update(key, value, found.revision)
            with suppress(CommitError):  # a controller was faster
                self.store.commit([write], deadline=deadline_in())
                return
        raise AssertionError(f"controllers write {key} again and again")

    def delete(self, key: Key[object]) -> None:
        """Delete what is there."""
        with suppress(CommitError):
            found = self.store.read([Get(key)], deadline=deadline_in()).find(key)
            if found is not None:
                self.store.commit([Delete(key, found.revision)], deadline=deadline_in())

    def values(self, kind: Kind[object]) -> dict[str, object]:
        """What is stored, by path."""
        found = self.store.read([List(kind)], deadline=deadline_in()).list(List(kind))
        return {"/".join(record.key.path): record.value for record in found}

    # --- what has to be so ------------------------------------------------------------------------------------------

    def find_wrong(self) -> str:
        """What is not as the cluster and users say; empty: nothing."""
        policies = self.values(NETWORK_POLICY)
        checks = (
            ("profiles", self._profiles(), self._expected_profiles()),
            ("copied policies", _copied(policies), self._expected_policies()),
            ("policies of users", _of_users(policies), {f"{NAMESPACE}/{name}" for name in self.own}),
            ("labels of endpoints", *self._endpoint_labels()),
            ("labels of nodes", *self._node_labels()),
            ("nodes", set(self.values(NODE)), {"bare", *(f"node-{name}" for name in self.items("/api/v1/nodes"))}),
            ("host endpoints", set(self.values(HOST_ENDPOINT)), {f"{name}-auto-hep" for name in self.values(NODE)}),
        )
        return next((f"{what}: {found} instead of {wanted}" for what, found, wanted in checks if found != wanted), "")

    def _profiles(self) -> dict[str, object]:
        found = self.values(PROFILE).items()
        return {name: value.spec for name, value in found if isinstance(value, Profile) and name not in NAMES}

    def _expected_profiles(self) -> dict[str, object]:
        namespaces = self.items("/api/v1/namespaces").items()
        wanted: dict[str, object] = {f"kns.{name}": namespace_spec(name, _labels(each)) for name, each in namespaces}
        accounts = self.server.get("/api/v1/serviceaccounts")["items"]
        assert isinstance(accounts, list)
        for each in accounts:
            namespace, name = each["metadata"]["namespace"], each["metadata"]["name"]
            wanted[f"ksa.{namespace}.{name}"] = account_spec(name, _labels(each))
        return wanted

    def _expected_policies(self) -> dict[str, str]:
        wanted = {}
        for name, each in self.items(POLICIES).items():
            spec = each["spec"]
            assert isinstance(spec, dict)
            team = spec["podSelector"]["matchLabels"]["team"]
            selector = f'(projectnetplug.org/orchestrator == "k8s" && team == "{team}")'
            wanted[f"{NAMESPACE}/knp.default.{name}"] = selector
        return wanted

    def _endpoint_labels(self) -> tuple[dict[str, object], dict[str, object]]:
        """Those of the endpoints of pods that run, and those that they should have."""
        pods, found, wanted = self.items(f"{FOLDER}/pods"), dict[str, object](), dict[str, object]()
        for path, value in self.values(WORKLOAD_ENDPOINT).items():
            assert isinstance(value, WorkloadEndpoint)
            pod = pods.get(value.spec.pod)
            status = {} if pod is None else pod.get("status")
            if pod is not None and isinstance(status, dict) and status.get("phase") not in ("Succeeded", "Failed"):
                found[path] = value.metadata.labels
                wanted[path] = endpoint_labels(
                    namespace=NAMESPACE, orchestrator="k8s", service_account="web", workload=_labels(pod)
                )
        return found, wanted

    def _node_labels(self) -> tuple[dict[str, object], dict[str, object]]:
        """Those of the Nodes of machines, without the one that is a Node's own, and those of the machines."""
        machines, found = self.items("/api/v1/nodes"), dict[str, object]()
        for name, value in self.values(NODE).items():
            assert isinstance(value, Node)
            if name != "bare":
                found[name] = tuple(each for each in value.metadata.labels if each[0] != "team")
        return found, {f"node-{name}": _labels(each) for name, each in machines.items()}

    def heal(self) -> None:
        """Everything is reached, and both processes run."""
        for wire in self.wires:
            wire.mode = ProxyMode.FORWARD
        for number, process in enumerate(self.processes):
            process.child.send_signal(signal.SIGCONT)
            if process.child.poll() is not None:  # as a kubelet does
                self.processes[number] = self.start(number)


def _labels(found: dict[str, object]) -> tuple[tuple[str, str], ...]:
    metadata = found["metadata"]
    assert isinstance(metadata, dict)
    return tuple(sorted((metadata.get("labels") or {}).items()))


def _copied(policies: dict[str, object]) -> dict[str, str]:
    return {
        name: value.spec.selector
        for name, value in policies.items()
        if isinstance(value, NetworkPolicy) and name.startswith(f"{NAMESPACE}/knp.")
    }


def _of_users(policies: dict[str, object]) -> set[str]:
    return {name for name in policies if name.startswith(f"{NAMESPACE}/") and "/knp." not in name}


# --- what happens -----------------------------------------------------------------------------------------------------


def _labelled(text: str) -> dict[str, object]:
    return {"metadata": {"labels": {"team": text}}}


def _policy(world: World, name: str, text: str) -> None:
    world.apply(POLICIES, name, {"spec": {"podSelector": {"matchLabels": {"team": text}}}})


def _pod(world: World, name: str, text: str) -> None:
    if not world.request("PATCH", f"{FOLDER}/pods/{name}", _labelled(text), MERGE):
        make_pod(world.server, NAMESPACE, name, node="n", labels={"team": text})


def _endpoint(world: World, name: str, _text: str) -> None:
    spec = WorkloadEndpointSpec(orchestrator="k8s", node="n", endpoint="eth0", pod=name)
    value = WorkloadEndpoint(metadata=Metadata(name=f"e-{name}", namespace=NAMESPACE), spec=spec)
    world.put(WORKLOAD_ENDPOINT.key(NAMESPACE, f"e-{name}"), value)


def _edit(world: World, name: str, text: str) -> None:
    spec = ProfileSpec(labels_to_apply=(("team", text),))
    for profile in (f"kns.{name}", f"ksa.{NAMESPACE}.{name}"):
        world.put(PROFILE.key(profile), Profile(metadata=Metadata(name=profile), spec=spec))
    metadata = Metadata(name=f"knp.default.{name}", namespace=NAMESPACE)
    policy = NetworkPolicy(metadata=metadata, spec=NetworkPolicySpec(order=1.0))
    world.put(NETWORK_POLICY.key(NAMESPACE, metadata.name), policy)


def _own(world: World, name: str, _text: str) -> None:
    world.put(NETWORK_POLICY.key(NAMESPACE, name), NetworkPolicy(metadata=Metadata(name=name, namespace=NAMESPACE)))
    world.own.add(name)


def _machine(world: World, name: str, text: str) -> None:
    make_node(world.server, name)
    world.put(node_key(f"node-{name}"), machine_node(f"node-{name}", name, team=text))


def _machine_label(world: World, name: str, text: str) -> None:
    change = {"metadata": {"labels": {"zone": text, "disk": None if text == "red" else "ssd"}}}
    world.request("PATCH", f"/api/v1/nodes/{name}", change, MERGE)


def _killed(world: World, _name: str, _text: str) -> None:
    number = world.chance.randrange(len(world.processes))
    world.processes[number].kill()
    world.processes[number] = world.start(number)


def _paused(world: World, _name: str, _text: str) -> None:
    world.chance.choice(world.processes).child.send_signal(signal.SIGSTOP)


def _goes_on(world: World, _name: str, _text: str) -> None:
    for process in world.processes:
        process.child.send_signal(signal.SIGCONT)


def _cut_off(world: World, _name: str, _text: str) -> None:
    wire = world.chance.choice(world.wires)
    wire.mode = world.chance.choice([ProxyMode.DROP_DATA, ProxyMode.DROP_REPLIES, ProxyMode.REFUSE])
    wire.close_connections()


def _reached(world: World, _name: str, _text: str) -> None:
    for wire in world.wires:
        wire.mode = ProxyMode.FORWARD


EVENTS: Final[dict[str, Callable[[World, str, str], None]]] = {
    "namespace": lambda world, name, text: world.apply("/api/v1/namespaces", f"law-{name}", _labelled(text)),
    "account": lambda world, name, text: world.apply(f"{FOLDER}/serviceaccounts", name, _labelled(text)),
    "account goes": lambda world, name, _: _ignore(world.request("DELETE", f"{FOLDER}/serviceaccounts/{name}")),
    "policy": _policy,
    "policy goes": lambda world, name, _: _ignore(world.request("DELETE", f"{POLICIES}/{name}")),
    "pod": _pod,
    "pod ends": lambda world, name, _: _ignore(
        world.request("PATCH", f"{FOLDER}/pods/{name}/status", {"status": {"phase": "Succeeded"}}, MERGE)
    ),
    "pod goes": lambda world, name, _: _ignore(world.request("DELETE", f"{FOLDER}/pods/{name}?gracePeriodSeconds=0")),
    "endpoint": _endpoint,
    "endpoint goes": lambda world, name, _: world.delete(WORKLOAD_ENDPOINT.key(NAMESPACE, f"e-{name}")),
    "machine": _machine,
    "machine label": _machine_label,
    "machine goes": lambda world, name, _: _ignore(world.request("DELETE", f"/api/v1/nodes/{name}")),
    "edit": _edit,
    "copy goes": lambda world, name, _: world.delete(PROFILE.key(f"kns.law-{name}")),
    "own": _own,
    "killed": _killed,
    "paused": _paused,
    "goes on": _goes_on,
    "cut off": _cut_off,
    "reached": _reached,
    "the Lease is gone": lambda world, _name, _text: _ignore(world.request("DELETE", CONTROLLERS_LEASE_PATH)),
}
_RARE = frozenset(("killed", "paused", "cut off", "the Lease is gone"))


def _ignore(_answer: bool) -> None:  # noqa: FBT001  # of a request whose object may be missing
    """Either is right."""


@pytest.fixture
def world(api_server: ApiServer, etcd: EtcdCluster, tmp_path: Path) -> Iterator[World]:
    delete_all_entries(etcd)
    api_server.delete_collection("/api/v1/nodes")
    for name in ("kube-system", NAMESPACE):
        make_namespace(api_server, name)
    environ = {
        "DATASTORE_TYPE": "etcdv3",
        "KUBECONFIG": api_server.write_kubeconfig(),
        "AUTO_HOST_ENDPOINTS": "enabled",
    }
    seed = int(os.environ.get("NETPLUG_CONTROLLERS_LAW_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
    port = etcd.members[0].port
    with (
        closing(EtcdDatastore(make_client(etcd, clock=SystemClock()))) as store,
        open_proxy(port) as first,
        open_proxy(port) as second,
        open_controllers(tmp_path, environ, api_server) as controllers,
    ):
        opened = World(api_server, store, controllers, (first, second), seed)
        opened.put(node_key("bare"), machine_node("bare"))
        opened.processes = [opened.start(number) for number in range(2)]
        yield opened
        opened.heal()
    for path in (f"{FOLDER}/pods", f"{FOLDER}/serviceaccounts", POLICIES, "/api/v1/nodes"):
        api_server.delete_collection(path)


def test_everything_ends_in_what_the_cluster_and_its_users_say(world: World) -> None:
    often = [*sorted(EVENTS), *sorted(EVENTS.keys() - _RARE)]
    for part in range(PARTS):
        happened = []
        for _number in range(EVENTS_A_PART):
            event, name, text = world.chance.choice(often), world.chance.choice(NAMES), world.chance.choice(TEXTS)
            happened.append((event, name, text))
            EVENTS[event](world, name, text)
        world.heal()
        if not is_eventually(lambda: not world.find_wrong()):
            seed = f"NETPLUG_CONTROLLERS_LAW_SEED={world.seed}"
            pytest.fail(f"{seed}, part {part}: {world.find_wrong()} after {happened}")
