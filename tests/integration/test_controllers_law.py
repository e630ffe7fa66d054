"""The law of the controllers on real servers: whatever happens, in any order, ends in what the cluster says.

Objects of the cluster and records come, change and go. One of the two processes is killed, paused as if its machine
stood still, cut off from the API server or from the etcd, has its clock set by a day, or loses its Lease while it acts,
so that two act at once for a moment. After each part everything is healed, and has to be right. An address that a pod
has got is never freed while the pod lives.

A night tries a thousand events on each datastore. By day there are a few.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest
from attrs import define, evolve, field

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Address
from netplug_core.clock import SECOND_NS
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import AllocationError, narrow
from netplug_core.ipam.allocation.request import AssignRequest, Shortfall, Specific
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.names import endpoint_labels
from netplug_core.reconcile.hostendpoints import CREATED_BY, automatic_name
from netplug_core.reconcile.kubecontrollers import CopySource, default_configuration
from netplug_core.records import CommitError, Create, Delete, Get, Key, Kind, List, Update
from netplug_core.resources.fields import Metadata
from netplug_core.resources.hostendpoint import HOST_ENDPOINT, HostEndpoint, HostEndpointSpec
from netplug_core.resources.ippool import AllowedUse
from netplug_core.resources.kubecontrollersconfiguration import KUBE_CONTROLLERS_CONFIGURATION_KEY, NodeController
from netplug_core.resources.networkpolicy import NETWORK_POLICY, NetworkPolicy, NetworkPolicySpec
from netplug_core.resources.node import NODE, Node, node_key
from netplug_core.resources.profile import PROFILE, Profile, ProfileSpec, account_spec, namespace_spec
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.collector import CollectorHarness
from tests.harness.controllers_process import CONTROLLERS_LEASE_PATH, ControllersProcesses, open_controllers
from tests.harness.controllers_scene import machine_node
from tests.harness.local_stores import IS_DEEP, open_standalone_ipam
from tests.harness.operator_process import OperatorProcess
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    install_definitions,
    make_namespace,
    make_node,
    make_pod,
)
from tests.harness.servers.tcp_proxy import ProxyMode, TCPProxy, open_proxy
from tests.harness.set_clock import SetClock
from tests.harness.tool_user import ToolUser
from tests.harness.waiting import deadline_in, is_eventually, wait_until

pytestmark = pytest.mark.apiserver

NAMES: Final = ("a", "b", "c")
TEXTS: Final = ("red", "blue")
ADDRESSES: Final = {name: Address.parse(f"10.0.0.{number}") for number, name in enumerate(NAMES, 1)}
EVENTS_A_PART: Final = 100 if IS_DEEP else 20
PARTS: Final = int(os.environ.get("NETPLUG_CONTROLLERS_LAW_PARTS", "10" if IS_DEEP else "1"))
SEED: Final = "NETPLUG_CONTROLLERS_LAW_SEED"
NAMESPACE = "law"
FOLDER = f"/api/v1/namespaces/{NAMESPACE}"
POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"
MACHINE = "n"
"""A machine that stays, with the pods."""

DAY_NS: Final = 86_400 * SECOND_NS
MERGE = "application/merge-patch+json"
_REFUSED = (404, 409)


@define
class World:
    """Two processes over a cluster and a datastore, which may be the cluster's own.

    Each process reaches every server through a wire of its own, and has a clock of its own. ``own`` are the names of
    what users have written, and ``held`` the pods that live since they got an address.
    """

    server: ApiServer
    store: Datastore
    controllers: ControllersProcesses
    wires: tuple[dict[str, TCPProxy], ...]
    clocks: tuple[SetClock, ...]
    chance: random.Random
    is_etcd: bool
    processes: list[OperatorProcess] = field(factory=list)
    paused: set[int] = field(factory=set)
    own: dict[str, set[str]] = field(factory=lambda: {"policies": set(), "host endpoints": {"own"}})
    held: set[str] = field(factory=set)
    attempts: int = 0
    records: CollectorHarness = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.records = CollectorHarness(inner=self.store, clock=SystemClock())  # type: ignore[arg-type]

    # --- processes --------------------------------------------------------------------------------------------------

    def start(self, number: int) -> OperatorProcess:
        """Begin a process."""
        wires = self.wires[number]
        path = self.server.write_kubeconfig(name=f"kubeconfig-law-{number}", port=wires["api"].port)
        variables = {"ETCD_ENDPOINTS": wires["etcd"].url} if self.is_etcd else {}
        return self.controllers.start(self.clocks[number], KUBECONFIG=path, **variables)

    def reach(self) -> None:
        """Let every wire pass everything again; what was on one that passed nothing is lost with its connections."""
        for wire in (wire for wires in self.wires for wire in wires.values()):
            if wire.mode is not ProxyMode.FORWARD:
                wire.mode = ProxyMode.FORWARD
                wire.close_connections()

    def go_on(self) -> None:
        """No process is paused."""
        self.paused.clear()
        for process in self.processes:
            process.child.send_signal(signal.SIGCONT)

    def heal(self) -> None:
        """Everything is reached, and both processes run."""
        self.reach()
        self.go_on()
        for number, process in enumerate(self.processes):
            if process.child.poll() is not None:  # as a kubelet does
                self.processes[number] = self.start(number)

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

    def live_pods(self) -> dict[str, dict[str, object]]:
        """The pods that have not ended."""
        pods = self.items(f"{FOLDER}/pods")
        return {name: pod for name, pod in pods.items() if _phase(pod) not in ("Succeeded", "Failed")}

    # --- the records ------------------------------------------------------------------------------------------------

    def find(self, key: Key[object]) -> object:
        """What is stored."""
        found = self.store.read([Get(key)], deadline=deadline_in()).find(key)
        return None if found is None else found.value

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

    def addressed(self) -> set[str]:
        """The pods whose addresses are assigned."""
        found = self.records.held()
        return {name for name, address in ADDRESSES.items() if str(address) in found}

    # --- what has to be so ------------------------------------------------------------------------------------------

    def find_wrong(self) -> str:
        """What is not as the cluster and users say; empty: nothing.

        No more is looked at than is needed: the wires of the processes are threads of this one.
        """
        return next(
            (f"{what}: {found} instead of {wanted}" for what, found, wanted in self._checks() if found != wanted), ""
        )

    def _checks(self) -> Iterator[tuple[str, object, object]]:
        addressed = self.addressed()
        assert self.held <= addressed, f"freed while their pods live: {self.held - addressed}"
        yield "addresses", addressed, (addressed & self.live_pods().keys()) | self.held
        nodes = self.values(NODE)
        yield "host endpoints", *self._host_endpoints(nodes)
        if self.is_etcd:
            yield "nodes", set(nodes), {"bare", *(f"node-{name}" for name in self.items("/api/v1/nodes"))}
            yield "labels of nodes", *self._node_labels(nodes)
            policies = self.values(NETWORK_POLICY)
            yield "policies of users", _of_users(policies), {f"{NAMESPACE}/{name}" for name in self.own["policies"]}
            yield "copied policies", _copied(policies), self._expected_policies()
            yield "profiles", self._profiles(), self._expected_profiles()
            yield "labels of endpoints", *self._endpoint_labels()

    def _host_endpoints(self, nodes: dict[str, object]) -> tuple[object, object]:
        """The labels of those that nodes have by themselves, and no labels of those of users."""
        found = {}
        for name, value in self.values(HOST_ENDPOINT).items():
            labels = dict(narrow(value, HostEndpoint).metadata.labels)
            is_own = labels.pop(CREATED_BY, None) is None
            found[name] = (is_own, {} if is_own else labels)
        wanted = {
            automatic_name(name): (False, dict(narrow(node, Node).metadata.labels)) for name, node in nodes.items()
        }
        return found, {**wanted, **dict.fromkeys(self.own["host endpoints"], (True, {}))}

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

    def _endpoint_labels(self) -> tuple[object, object]:
        """Those of the endpoints of pods that run, and those that they should have."""
        pods, found, wanted = self.live_pods(), dict[str, object](), dict[str, object]()
        for path, value in self.values(WORKLOAD_ENDPOINT).items():
            assert isinstance(value, WorkloadEndpoint)
            pod = pods.get(value.spec.pod)
            if pod is not None:
                found[path] = value.metadata.labels
                wanted[path] = endpoint_labels(
                    namespace=NAMESPACE, orchestrator="k8s", service_account="web", workload=_labels(pod)
                )
        return found, wanted

    def _node_labels(self, nodes: dict[str, object]) -> tuple[object, object]:
        """Those of the Nodes of machines, without the one that is a Node's own, and those of the machines."""
        machines, found = self.items("/api/v1/nodes"), dict[str, object]()
        for name, value in nodes.items():
            if name != "bare":
                found[name] = tuple(each for each in narrow(value, Node).metadata.labels if each[0] != "team")
        return found, {f"node-{name}": _labels(each) for name, each in machines.items()}


def _labels(found: dict[str, object]) -> tuple[tuple[str, str], ...]:
    metadata = found["metadata"]
    assert isinstance(metadata, dict)
    return tuple(sorted((metadata.get("labels") or {}).items()))


def _phase(pod: dict[str, object]) -> object:
    status = pod.get("status")
    return status.get("phase") if isinstance(status, dict) else None


def _copied(policies: dict[str, object]) -> dict[str, str]:
    return {
        name: value.spec.selector
        for name, value in policies.items()
        if isinstance(value, NetworkPolicy) and name.startswith(f"{NAMESPACE}/knp.")
    }


def _of_users(policies: dict[str, object]) -> set[str]:
    return {name for name in policies if name.startswith(f"{NAMESPACE}/") and "/knp." not in name}


# --- what happens to the cluster and to records -----------------------------------------------------------------------


def _labelled(text: str) -> dict[str, object]:
    return {"metadata": {"labels": {"team": text}}}


def _ignore(_answer: bool) -> None:  # noqa: FBT001  # of a request whose object may be missing
    """Either is right."""


def _policy(world: World, name: str, text: str) -> None:
    world.apply(POLICIES, name, {"spec": {"podSelector": {"matchLabels": {"team": text}}}})


def _pod(world: World, name: str, text: str) -> None:
    if not world.request("PATCH", f"{FOLDER}/pods/{name}", _labelled(text), MERGE):
        make_pod(world.server, NAMESPACE, name, node=MACHINE, labels={"team": text})


def _address(world: World, name: str, _text: str) -> None:
    """A pod gets its address, unless a former one of that name still has it; it says nothing of it in its status."""
    if name not in world.live_pods():
        return
    world.attempts += 1
    owner = (("namespace", NAMESPACE), ("node", MACHINE), ("pod", name))
    request = AssignRequest(
        handle=f"{name}-{world.attempts}",
        node=MACHINE,
        wanted=(Specific(address=ADDRESSES[name]),),
        owner=owner,
        use=AllowedUse.WORKLOAD,
        shortfall=Shortfall.REFUSE,
    )
    with suppress(AllocationError):
        open_standalone_ipam(world.store, SystemClock()).assign(request, NO_ENDPOINT, deadline=deadline_in())
        world.held.add(name)


def _pod_ends(world: World, name: str, _text: str) -> None:
    world.held.discard(name)
    world.request("PATCH", f"{FOLDER}/pods/{name}/status", {"status": {"phase": "Succeeded"}}, MERGE)


def _pod_goes(world: World, name: str, _text: str) -> None:
    world.held.discard(name)
    world.request("DELETE", f"{FOLDER}/pods/{name}?gracePeriodSeconds=0")


def _endpoint(world: World, name: str, _text: str) -> None:
    spec = WorkloadEndpointSpec(orchestrator="k8s", node=MACHINE, endpoint="eth0", pod=name)
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
    world.own["policies"].add(name)


def _node_name(world: World, machine: str) -> str:
    """The name of its Node: on the cluster's own store they are one."""
    return f"node-{machine}" if world.is_etcd else machine


def _machine(world: World, name: str, text: str) -> None:
    make_node(world.server, name)
    if world.is_etcd:
        world.put(node_key(f"node-{name}"), machine_node(f"node-{name}", name, team=text))


def _machine_label(world: World, name: str, text: str) -> None:
    change = {"metadata": {"labels": {"zone": text, "disk": None if text == "red" else "ssd"}}}
    world.request("PATCH", f"/api/v1/nodes/{name}", change, MERGE)


def _edit_host_endpoint(world: World, name: str, text: str) -> None:
    """Somebody edits the labels of an endpoint that a node has by itself."""
    key = HOST_ENDPOINT.key(automatic_name(_node_name(world, name)))
    found = world.find(key)
    if isinstance(found, HostEndpoint):
        labels = tuple(sorted({**dict(found.metadata.labels), "team": text, "by": "hand"}.items()))
        with suppress(CommitError):
            world.put(key, evolve(found, metadata=evolve(found.metadata, labels=labels)))


def _own_host_endpoint(world: World, name: str, _text: str) -> None:
    spec = HostEndpointSpec(node=_node_name(world, name), interface_name="eth9")
    world.put(HOST_ENDPOINT.key(name), HostEndpoint(metadata=Metadata(name=name), spec=spec))
    world.own["host endpoints"].add(name)


# --- what happens to processes ----------------------------------------------------------------------------------------


def _killed(world: World, _name: str, _text: str) -> None:
    number = world.chance.randrange(len(world.processes))
    world.processes[number].kill()
    world.paused.discard(number)
    world.processes[number] = world.start(number)


def _paused(world: World, _name: str, _text: str) -> None:
    number = world.chance.randrange(len(world.processes))
    world.paused.add(number)
    world.processes[number].child.send_signal(signal.SIGSTOP)


def _answers(world: World, _name: str, _text: str) -> None:
    """What runs has begun to look."""
    for number, process in enumerate(world.processes):
        if number not in world.paused:
            wait_until(lambda process=process: process.ask("/livez")[0] != 0, "it answers")  # type: ignore[misc]


def _cut_off(world: World, _name: str, _text: str) -> None:
    wire = world.chance.choice([wire for wires in world.wires for wire in wires.values()])
    wire.mode = world.chance.choice([ProxyMode.DROP_DATA, ProxyMode.DROP_REPLIES, ProxyMode.REFUSE])
    if wire.mode is not ProxyMode.DROP_DATA:
        wire.close_connections()


def _clock_set(world: World, _name: str, _text: str) -> None:
    world.chance.choice(world.clocks).set_by(world.chance.choice([-DAY_NS, 0, DAY_NS]))


Event = Callable[[World, str, str], None]

OF_ETCD: Final[dict[str, Event]] = {
    "namespace": lambda world, name, text: world.apply("/api/v1/namespaces", f"law-{name}", _labelled(text)),
    "account": lambda world, name, text: world.apply(f"{FOLDER}/serviceaccounts", name, _labelled(text)),
    "account goes": lambda world, name, _: _ignore(world.request("DELETE", f"{FOLDER}/serviceaccounts/{name}")),
    "policy": _policy,
    "policy goes": lambda world, name, _: _ignore(world.request("DELETE", f"{POLICIES}/{name}")),
    "endpoint": _endpoint,
    "endpoint goes": lambda world, name, _: world.delete(WORKLOAD_ENDPOINT.key(NAMESPACE, f"e-{name}")),
    "edit": _edit,
    "copy goes": lambda world, name, _: world.delete(PROFILE.key(f"kns.law-{name}")),
    "own": _own,
}
OF_BOTH: Final[dict[str, Event]] = {
    "pod": _pod,
    "pod gets an address": _address,
    "pod ends": _pod_ends,
    "pod goes": _pod_goes,
    "machine": _machine,
    "machine label": _machine_label,
    "machine goes": lambda world, name, _: _ignore(world.request("DELETE", f"/api/v1/nodes/{name}")),
    "host endpoint edited": _edit_host_endpoint,
    "host endpoint goes": lambda world, name, _: world.delete(
        HOST_ENDPOINT.key(automatic_name(_node_name(world, name)))
    ),
    "own host endpoint": _own_host_endpoint,
}
OF_PROCESSES: Final[dict[str, Event]] = {
    "killed": _killed,
    "paused": _paused,
    "goes on": lambda world, _name, _text: world.go_on(),
    "answers": _answers,
    "cut off": _cut_off,
    "reached": lambda world, _name, _text: world.reach(),
    "clock set": _clock_set,
    "the Lease is gone": lambda world, _name, _text: _ignore(world.request("DELETE", CONTROLLERS_LEASE_PATH)),
}


@pytest.fixture(params=[pytest.param("etcdv3", marks=pytest.mark.etcd), "kubernetes"])
def world(request: pytest.FixtureRequest, api_server: ApiServer, tmp_path: Path) -> Iterator[World]:
    is_etcd = request.param == "etcdv3"
    install_definitions(api_server, CrdMode.V1)
    delete_custom_objects(api_server, CrdMode.V1)
    api_server.delete_collection("/api/v1/nodes")
    for name in ("kube-system", NAMESPACE):
        make_namespace(api_server, name)
    environ, spec = {"DATASTORE_TYPE": request.param, "AUTO_HOST_ENDPOINTS": "enabled"}, dict[str, str]()
    spec["kubeconfig"] = api_server.write_kubeconfig()
    ports = {"api": api_server.port}
    if is_etcd:
        etcd: EtcdCluster = request.getfixturevalue("etcd")
        delete_all_entries(etcd)
        spec["etcdEndpoints"], ports["etcd"] = ",".join(etcd.endpoints), etcd.members[0].port
    seed = int(os.environ.get(SEED, "0")) or random.SystemRandom().randrange(1, 10**9)
    print(f"{SEED}={seed}")  # noqa: T201  # pytest shows it with a failure
    with ExitStack() as stack:
        opened = World(
            server=api_server,
            store=stack.enter_context(ToolUser(tmp_path, spec).store()),
            controllers=stack.enter_context(open_controllers(tmp_path, environ, api_server)),
            wires=tuple(
                {name: stack.enter_context(open_proxy(port)) for name, port in ports.items()} for _number in range(2)
            ),
            clocks=tuple(SetClock(tmp_path / f"clock-{number}") for number in range(2)),
            chance=random.Random(seed),  # noqa: S311  # no secret
            is_etcd=is_etcd,
        )
        _fill(opened)
        opened.processes = [opened.start(number) for number in range(2)]
        yield opened
        opened.heal()
    for path in (f"{FOLDER}/pods", f"{FOLDER}/serviceaccounts", POLICIES, "/api/v1/nodes"):
        api_server.delete_collection(path)


def _fill(world: World) -> None:
    """What is there before anything happens: addresses without a pod are freed soon."""
    found = default_configuration(CopySource.KUBERNETES if world.is_etcd else CopySource.DATASTORE)
    node = evolve(found.spec.controllers.node or NodeController(), leak_grace_period="1s")
    spec = evolve(found.spec, controllers=evolve(found.spec.controllers, node=node))
    world.put(KUBE_CONTROLLERS_CONFIGURATION_KEY, evolve(found, spec=spec))
    world.records.add_pool("four", "10.0.0.0/24")
    _machine(world, MACHINE, "red")
    if world.is_etcd:
        world.put(node_key("bare"), machine_node("bare"))
    own = HostEndpointSpec(node=_node_name(world, MACHINE), interface_name="eth8")
    world.put(HOST_ENDPOINT.key("own"), HostEndpoint(metadata=Metadata(name="own"), spec=own))


def test_everything_ends_in_what_the_cluster_and_its_users_say(world: World) -> None:
    of_records = {**OF_BOTH, **(OF_ETCD if world.is_etcd else {})}
    events = {**of_records, **OF_PROCESSES}
    often = [*events, *of_records]
    for part in range(PARTS):
        happened = []
        for _number in range(EVENTS_A_PART):
            event, name, text = world.chance.choice(often), world.chance.choice(NAMES), world.chance.choice(TEXTS)
            happened.append((event, name, text))
            events[event](world, name, text)
        world.heal()
        if not is_eventually(lambda: not world.find_wrong()):
            pytest.fail(f"part {part}: {world.find_wrong()} after {happened}")
