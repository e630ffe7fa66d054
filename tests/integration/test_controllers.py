"""``netplug-controllers`` as processes, on a real API server and beside a real etcd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from attrs import evolve

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.installing.manifests import controllers_role, static_manifest
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.flows.resources.overview import read_controllers
from netplug_core.installation.controllers import CONTROLLERS_NAME
from netplug_core.installation.static import Method
from netplug_core.reconcile.kubecontrollers import LabelCopier, find_label_copier
from netplug_core.records import Create, Delete, Get, Key, List, Revision, Update, WatchExpired
from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.hostendpoint import HOST_ENDPOINT
from netplug_core.resources.kubecontrollersconfiguration import (
    KUBE_CONTROLLERS_CONFIGURATION_KEY,
    Controllers,
    HostEndpointSettings,
    KubeControllersConfiguration,
    KubeControllersSpec,
    NodeController,
)
from netplug_core.resources.networkpolicy import NETWORK_POLICY, NetworkPolicy
from netplug_core.resources.node import NODE, Node, node_key
from netplug_core.resources.profile import PROFILE, Profile
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.collector import CollectorHarness
from tests.harness.controllers_process import CONTROLLERS_LEASE_PATH, ControllersProcesses, open_controllers
from tests.harness.controllers_scene import machine_node
from tests.harness.operator_process import text_at
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, make_client
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.kube_objects import (
    account_token,
    apply_object,
    delete_custom_objects,
    install_definitions,
    install_role,
    make_namespace,
    make_node,
    make_pod,
    open_store,
)
from tests.harness.waiting import deadline_in, wait_until

pytestmark = pytest.mark.apiserver

GROUP = "/apis/crd.projectnetplug.org/v1"
ENDPOINTS, SETTINGS = f"{GROUP}/hostendpoints", f"{GROUP}/kubecontrollersconfigurations"
CLUSTERS, RELEASE = f"{GROUP}/clusterinformations", "projectnetplug.org/NetplugVersion"
PODS, ACCOUNTS = "/api/v1/namespaces/shop/pods", "/api/v1/namespaces/shop/serviceaccounts"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies"
ENDPOINT: Key[object] = WORKLOAD_ENDPOINT.key("shop", "machine--1-k8s-web--1-eth0")
SHORT_GRACE = {
    "apiVersion": "crd.projectnetplug.org/v1",
    "kind": "KubeControllersConfiguration",
    "spec": {"controllers": {"node": {"leakGracePeriod": "1s"}}},
}
ENABLED = {"spec": {"controllers": {"node": {"hostEndpoint": {"autoCreate": "Enabled"}}}}}


@pytest.fixture
def server(api_server: ApiServer) -> Iterator[ApiServer]:
    """A server with the definitions and the namespace of Leases, and no nodes of other tests."""
    make_namespace(api_server, "kube-system")
    install_definitions(api_server, CrdMode.V1)
    delete_custom_objects(api_server, CrdMode.V1)
    remove_nodes(api_server)
    yield api_server
    remove_nodes(api_server)


@pytest.fixture
def controllers(server: ApiServer, tmp_path: Path) -> Iterator[ControllersProcesses]:
    """Processes for the Kubernetes datastore, with the rights of their account alone."""
    environ = {"DATASTORE_TYPE": "kubernetes", "KUBECONFIG": kubeconfig_of(server, controllers_role())}
    with open_controllers(tmp_path, environ, server) as opened:
        yield opened


def kubeconfig_of(server: ApiServer, objects: Sequence[Mapping[str, object]]) -> str:
    """The kubeconfig of an account that has these rights alone."""
    account, role, binding, *lease = objects
    for one in lease:
        apply_object(server, one)
    return server.write_kubeconfig(install_role(server, objects=(account, role, binding)), name="controllers")


def remove_nodes(server: ApiServer) -> None:
    for name in names(server, "/api/v1/nodes"):
        server.request("DELETE", f"/api/v1/nodes/{name}")


def names(server: ApiServer, path: str) -> list[str]:
    items = server.get(path)["items"]
    assert isinstance(items, list)
    return [text_at(item, "metadata", "name") for item in items]


def merge(server: ApiServer, path: str, change: object) -> None:
    server.request("PATCH", path, change, content_type="application/merge-patch+json")


def cluster_spec(server: ApiServer) -> dict[str, object]:
    spec = server.get(f"{CLUSTERS}/default")["spec"]
    assert isinstance(spec, dict)
    return spec


def leader(server: ApiServer) -> str:
    try:
        return text_at(server.get(CONTROLLERS_LEASE_PATH), "spec", "holderIdentity")
    except RequestRefused:
        return ""


def test_host_endpoints_follow_the_nodes_of_the_cluster(server: ApiServer, controllers: ControllersProcesses) -> None:
    make_node(server, "worker-1", labels={"zone": "a"})
    process = controllers.start()
    wait_until(lambda: names(server, SETTINGS) == ["default"], "the default configuration is made")
    wait_until(lambda: process.ask("/readyz") == (200, "ok\n"), "it is ready")
    status = "it says what it runs with"
    wait_until(lambda: text_at(server.get(f"{SETTINGS}/default"), "status", "runningConfig") != "", status)
    merge(server, f"{SETTINGS}/default", ENABLED)
    wait_until(lambda: names(server, ENDPOINTS) == ["worker-1-auto-hep"], "the endpoint is made")
    merge(server, "/api/v1/nodes/worker-1", {"metadata": {"labels": {"zone": "b"}}})
    path = f"{ENDPOINTS}/worker-1-auto-hep"
    wait_until(lambda: text_at(server.get(path), "metadata", "labels", "zone") == "b", "it has the label of the node")
    merge(server, path, {"spec": {"profiles": []}})
    profile = "['projectnetplug-default-allow']"
    wait_until(lambda: text_at(server.get(path), "spec", "profiles") == profile, "what was edited is as before")
    server.request("DELETE", "/api/v1/nodes/worker-1")
    wait_until(lambda: names(server, ENDPOINTS) == [], "it goes with the node")
    assert 'netplug_controllers_passes_total{controller="host endpoints"' in process.ask("/metrics")[1]
    assert process.stop() == 0
    assert leader(server) == ""


def test_the_release_of_the_cluster_follows_the_last_node_and_what_people_set_stays(
    server: ApiServer, controllers: ControllersProcesses
) -> None:
    """Two processes start on a cluster without an identity: the one that acts makes it."""
    for name in ("worker-1", "worker-2"):
        make_node(server, name)
        merge(server, f"/api/v1/nodes/{name}", {"metadata": {"annotations": {RELEASE: "v3.32.0"}}})
    controllers.start()
    controllers.start()
    wait_until(lambda: names(server, CLUSTERS) == ["default"], "the identity is made")
    made = cluster_spec(server)
    assert (made["clusterType"], made["netplugVersion"], made["datastoreReady"]) == ("kdd", "v3.32.0", True)
    merge(server, f"{CLUSTERS}/default", {"spec": {"clusterType": "mine,kdd"}})
    merge(server, "/api/v1/nodes/worker-1", {"metadata": {"annotations": {RELEASE: "v3.33.0"}}})
    merge(server, "/api/v1/nodes/worker-2", {"metadata": {"annotations": {RELEASE: "v3.33.0"}}})
    wait_until(lambda: cluster_spec(server)["netplugVersion"] == "v3.33.0", "the last node raises the release")
    assert cluster_spec(server) == {**made, "clusterType": "mine,kdd", "netplugVersion": "v3.33.0"}


def test_host_endpoints_have_the_addresses_of_their_nodes_until_they_are_switched_off(
    server: ApiServer, controllers: ControllersProcesses
) -> None:
    """Checks 99, 100 and 102: an external address is none of them, and one that is named twice is there once."""
    make_node(server, "worker-1", annotations={"projectnetplug.org/IPv4Address": "10.1.0.1/24"})
    addresses = [{"type": "InternalIP", "address": text} for text in ("10.1.0.1", "fd00::1")]
    outside = {"type": "ExternalIP", "address": "203.0.113.7"}
    merge(server, "/api/v1/nodes/worker-1/status", {"status": {"addresses": [outside, *addresses]}})
    kind = {"apiVersion": "crd.projectnetplug.org/v1", "kind": "HostEndpoint"}
    own = {"metadata": {"name": "own"}, "spec": {"node": "worker-1", "interfaceName": "*"}}
    labels = {"projectnetplug.org/created-by": "netplug-kube-controllers"}
    left = {"metadata": {"name": "gone-auto-hep", "labels": labels}, "spec": {"node": "gone", "interfaceName": "*"}}
    for each in (own, left):
        server.create(ENDPOINTS, {**kind, **each})
    server.create(SETTINGS, {**SHORT_GRACE, **ENABLED, "metadata": {"name": "default"}})
    controllers.start()
    wait_until(lambda: names(server, ENDPOINTS) == ["own", "worker-1-auto-hep"], "what is left of a node goes")
    assert text_at(server.get(f"{ENDPOINTS}/worker-1-auto-hep"), "spec", "expectedIPs") == "['10.1.0.1', 'fd00::1']"
    switched_off = {"spec": {"controllers": {"node": {"hostEndpoint": {"autoCreate": "Disabled"}}}}}
    merge(server, f"{SETTINGS}/default", switched_off)
    wait_until(lambda: names(server, ENDPOINTS) == ["own"], "those that netplug has made go, and no other one")


@pytest.mark.night
def test_one_of_two_acts_and_the_other_takes_over(server: ApiServer, controllers: ControllersProcesses) -> None:
    first = controllers.start()
    wait_until(lambda: leader(server).startswith("controllers-0_"), "the first one acts")
    second = controllers.start(AUTO_HOST_ENDPOINTS="enabled")
    wait_until(lambda: second.ask("/readyz") == (200, "ok\n"), "the second one is ready and waits")
    assert "netplug_controllers_leader 0.0" in second.ask("/metrics")[1]
    make_node(server, "worker-1")
    assert first.stop() == 0
    wait_until(lambda: leader(server).startswith("controllers-1_"), "the second one acts at once")
    wait_until(lambda: names(server, ENDPOINTS) == ["worker-1-auto-hep"], "it does what its environment says")
    variables = text_at(server.get(f"{SETTINGS}/default"), "status", "environmentVars")
    assert variables == "{'AUTO_HOST_ENDPOINTS': 'enabled'}"
    second.kill()
    third = controllers.start()
    wait_until(lambda: leader(server).startswith("controllers-2_"), "the Lease of a killed one ends by itself")
    wait_until(lambda: names(server, ENDPOINTS) == [], "without the variable the stored setting counts")
    assert third.ask("/livez") == (200, "ok\n")
    with open_store(server, CrdMode.V1) as store:
        found = read_controllers(store, CONTROLLERS_NAME, clock=SystemClock(), deadline=deadline_in())
        assert found.lease is not None
        assert (found.is_acting, found.lease.holder.startswith("controllers-2_")) == (True, True)


def test_addresses_of_a_pod_that_is_gone_are_freed_and_those_of_a_pod_that_runs_stay(
    server: ApiServer, controllers: ControllersProcesses
) -> None:
    make_node(server, "node-a")
    make_namespace(server, "default")
    server.request("DELETE", "/api/v1/namespaces/default/pods")
    make_pod(server, "default", "web", node="node-a")
    with open_store(server, CrdMode.V1) as store:
        records = CollectorHarness(inner=store, clock=SystemClock())  # type: ignore[arg-type]  # it writes like any store
        records.add_pool("four", "10.0.0.0/24")
        records.assign_to_pod("10.0.0.1", "web")
        records.assign_to_pod("10.0.0.2", "gone")
        server.create(SETTINGS, {**SHORT_GRACE, "metadata": {"name": "default"}})
        process = controllers.start()
        freed = "netplug_controllers_collection_freed_addresses_total 1.0"
        wait_until(lambda: freed in process.ask("/metrics")[1], "the address is freed after the grace period")
        assert records.held() == {"10.0.0.1": "h-web"}
    assert "could not be collected" not in process.lines


@pytest.mark.etcd
def test_nodes_of_an_etcd_go_with_their_machines(server: ApiServer, etcd: EtcdCluster, tmp_path: Path) -> None:
    store = EtcdDatastore(make_client(etcd, clock=SystemClock()))
    delete_all_entries(etcd)
    make_node(server, "machine-1")
    for node in (machine_node("worker-1", "machine-1"), machine_node("worker-2", "machine-2"), machine_node("bare")):
        store.commit([Create(node_key(node.metadata.name), node)], deadline=deadline_in())

    def stored(kind_list: List[object]) -> list[str]:
        found = store.read([kind_list], deadline=deadline_in())
        return [record.key.name for record in found.results[kind_list].records]

    environ = {
        "DATASTORE_TYPE": "etcdv3",
        "ETCD_ENDPOINTS": ",".join(etcd.endpoints),
        "KUBECONFIG": server.write_kubeconfig(),
    }
    with open_controllers(tmp_path, environ, server) as processes:
        processes.start()
        wait_until(lambda: stored(List(NODE)) == ["bare", "worker-1"], "the Node without its machine is deleted")
        settings = Get(KUBE_CONTROLLERS_CONFIGURATION_KEY)
        wait_until(lambda: store.read([settings], deadline=deadline_in()).find(settings) is not None, "settings")
        found = store.read([settings], deadline=deadline_in()).find(settings)
        assert found is not None
        settings_of_nodes = NodeController(host_endpoint=HostEndpointSettings(auto_create=Switch.ENABLED))
        spec = KubeControllersSpec(controllers=Controllers(node=settings_of_nodes))
        changed = evolve(found.value, spec=spec)
        store.commit([Update(found.key, changed, found.revision)], deadline=deadline_in())
        expected = ["bare-auto-hep", "worker-1-auto-hep"]
        wait_until(lambda: stored(List(HOST_ENDPOINT)) == expected, "every Node has its endpoint")
    store.close()


# --- the manifest -----------------------------------------------------------------------------------------------------


MANIFESTS = {"etcdv3": Method.ETCD, "kubernetes": Method.KDD}
PATHS = {
    "Lease": CONTROLLERS_LEASE_PATH,
    "ServiceAccount": f"/api/v1/namespaces/kube-system/serviceaccounts/{CONTROLLERS_NAME}",
    "ClusterRole": f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{CONTROLLERS_NAME}",
    "ClusterRoleBinding": f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{CONTROLLERS_NAME}",
    "Role": f"/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/{CONTROLLERS_NAME}",
    "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/{CONTROLLERS_NAME}",
    "Deployment": f"/apis/apps/v1/namespaces/kube-system/deployments/{CONTROLLERS_NAME}",
    "PodDisruptionBudget": f"/apis/policy/v1/namespaces/kube-system/poddisruptionbudgets/{CONTROLLERS_NAME}",
}
"""Where the objects of the controllers are, of a static manifest."""


@pytest.mark.parametrize("datastore", [pytest.param("etcdv3", marks=pytest.mark.etcd), "kubernetes"])
def test_a_manifest_that_is_deleted_takes_the_lease_with_it(
    server: ApiServer, tmp_path: Path, datastore: str, request: pytest.FixtureRequest
) -> None:
    """Each object in the order of the file, as kubectl does, while a process runs, whose pod ends only later."""
    of_controllers = [
        one
        for one in static_manifest(MANIFESTS[datastore], version="1.2.3")
        if text_at(one, "metadata", "name") == CONTROLLERS_NAME
    ]
    assert [text_at(one, "kind") for one in of_controllers][-1] == "Lease"
    for one in of_controllers:
        apply_object(server, one)
    token = account_token(server, "kube-system", CONTROLLERS_NAME)
    environ = {"DATASTORE_TYPE": datastore, "KUBECONFIG": server.write_kubeconfig(token, name="of-manifest")}
    if datastore == "etcdv3":
        etcd: EtcdCluster = request.getfixturevalue("etcd")
        environ["ETCD_ENDPOINTS"] = ",".join(etcd.endpoints)
    with open_controllers(tmp_path, environ, server) as controllers:
        process = controllers.start()
        wait_until(lambda: leader(server) != "", "it has taken the Lease of the manifest")
        for one in of_controllers:
            server.request("DELETE", PATHS[text_at(one, "kind")])
        wait_until(lambda: "leases" in process.ask("/readyz")[1], "it may not renew the Lease any more")
        assert process.stop() == 0
        with pytest.raises(RequestRefused, match="not found"):
            server.get(CONTROLLERS_LEASE_PATH)


# --- copies -----------------------------------------------------------------------------------------------------------


class CopyScene:
    """An etcd beside an API server, in whose namespace ``shop`` there are a pod, an account and a policy."""

    def __init__(self, server: ApiServer, etcd: EtcdCluster) -> None:
        self.server, self.store = server, EtcdDatastore(make_client(etcd, clock=SystemClock()))
        for path in (f"{PODS}?gracePeriodSeconds=0", POLICIES, ACCOUNTS):
            self.server.request("DELETE", path)
        self.server.create(ACCOUNTS, {"metadata": {"name": "web", "labels": {"role": "front"}}})
        self.make_policy("allow", {"matchLabels": {"app": "web"}})
        make_pod(server, "shop", "web-1", node="machine-1", labels={"app": "web"})
        self.put(PROFILE.key("own"), Profile(metadata=Metadata(name="own")))
        self.put(NETWORK_POLICY.key("shop", "own"), NetworkPolicy(metadata=Metadata(name="own", namespace="shop")))
        spec = WorkloadEndpointSpec(orchestrator="k8s", node="machine-1", endpoint="eth0", pod="web-1")
        self.put(ENDPOINT, WorkloadEndpoint(metadata=Metadata(name=ENDPOINT.name, namespace="shop"), spec=spec))

    def make_policy(self, name: str, pods: object) -> None:
        self.server.create(POLICIES, {"metadata": {"name": name}, "spec": {"podSelector": pods}})

    def put(self, key: Key[object], value: object) -> None:
        self.store.commit([Create(key, value)], deadline=deadline_in())

    def find(self, key: Key[object]) -> object:
        found = self.store.read([Get(key)], deadline=deadline_in()).find(key)
        return None if found is None else found.value

    def delete(self, key: Key[object]) -> None:
        found = self.store.read([Get(key)], deadline=deadline_in()).find(key)
        assert found is not None
        self.store.commit([Delete(key, found.revision)], deadline=deadline_in())

    def copies(self) -> set[str]:
        """The names of the profiles and policies of ``shop``, and those of a user."""
        queries: tuple[List[object], ...] = (List(PROFILE), List(NETWORK_POLICY))
        found = self.store.read(queries, deadline=deadline_in())
        names = {record.key.name for query in queries for record in found.list(query)}
        return {name for name in names if "shop" in name or name == "own" or name.startswith("knp.")}

    def endpoint_labels(self) -> dict[str, str]:
        found = self.find(ENDPOINT)
        assert isinstance(found, WorkloadEndpoint)
        return dict(found.metadata.labels)

    def node_labels(self, name: str = "worker-1") -> dict[str, str]:
        found = self.find(node_key(name))
        assert isinstance(found, Node)
        return dict(found.metadata.labels)

    def policy_selector(self, name: str) -> str:
        found = self.find(NETWORK_POLICY.key("shop", name))
        return found.spec.selector if isinstance(found, NetworkPolicy) else ""


@pytest.fixture
def copied(api_server: ApiServer, etcd: EtcdCluster) -> Iterator[CopyScene]:
    delete_all_entries(etcd)
    make_namespace(api_server, "kube-system")
    make_namespace(api_server, "shop", labels={"team": "red"})
    scene = CopyScene(api_server, etcd)
    yield scene
    scene.store.close()


@pytest.fixture
def copying(api_server: ApiServer, etcd: EtcdCluster, tmp_path: Path) -> Iterator[ControllersProcesses]:
    """Processes beside an etcd, with the rights of their account in a manifest alone."""
    environ = {
        "DATASTORE_TYPE": "etcdv3",
        "ETCD_ENDPOINTS": ",".join(etcd.endpoints),
        "KUBECONFIG": kubeconfig_of(api_server, controllers_role("kube-system", copies=True)),
    }
    with open_controllers(tmp_path, environ, api_server) as opened:
        yield opened


ALL_COPIES = {"own", "kns.shop", "ksa.shop.web", "knp.default.allow"}


@pytest.mark.etcd
def test_what_the_cluster_has_is_in_an_etcd(copied: CopyScene, copying: ControllersProcesses) -> None:
    process = copying.start()
    wait_until(lambda: copied.copies() == ALL_COPIES, "everything is copied")
    wait_until(lambda: process.ask("/readyz") == (200, "ok\n"), "it is ready")
    profile = copied.find(PROFILE.key("kns.shop"))
    assert isinstance(profile, Profile)
    assert dict(profile.spec.labels_to_apply)["pcns.team"] == "red"
    assert copied.policy_selector("knp.default.allow") == '(projectnetplug.org/orchestrator == "k8s" && app == "web")'
    wait_until(lambda: copied.endpoint_labels().get("app") == "web", "the endpoint has the labels of its pod")
    server = copied.server
    merge(server, f"{PODS}/web-1", {"metadata": {"labels": {"app": "db"}}})
    wait_until(lambda: copied.endpoint_labels()["app"] == "db", "a label of a pod")
    merge(server, f"{POLICIES}/allow", {"spec": {"podSelector": {"matchLabels": {"app": "db"}}}})
    wait_until(lambda: "db" in copied.policy_selector("knp.default.allow"), "a policy")
    copied.make_policy("deny", {})
    wait_until(lambda: "knp.default.deny" in copied.copies(), "a new policy")
    server.create(ACCOUNTS, {"metadata": {"name": "db"}})
    wait_until(lambda: "ksa.shop.db" in copied.copies(), "a new account")
    for path in (f"{POLICIES}/deny", f"{ACCOUNTS}/db"):
        server.request("DELETE", path)
    wait_until(lambda: copied.copies() == ALL_COPIES, "their copies go with them")
    copied.delete(NETWORK_POLICY.key("shop", "knp.default.allow"))
    wait_until(lambda: copied.copies() == ALL_COPIES, "a deleted copy is restored")
    assert process.stop() == 0
    assert "the process ends without it" not in process.lines


@pytest.mark.etcd
def test_labels_of_machines_are_in_an_etcd_beside_those_of_nodes(
    copied: CopyScene, copying: ControllersProcesses
) -> None:
    server = copied.server
    remove_nodes(server)
    make_node(server, "machine-1", labels={"zone": "a", "disk": "ssd"})
    copied.put(node_key("worker-1"), machine_node("worker-1", "machine-1", rack="7"))
    copied.put(node_key("bare"), machine_node("bare", rack="8"))
    process = copying.start(ENABLED_CONTROLLERS="node")
    own = {"rack": "7"}
    wait_until(lambda: copied.node_labels() == {**own, "zone": "a", "disk": "ssd"}, "the labels are copied")
    merge(server, "/api/v1/nodes/machine-1", {"metadata": {"labels": {"zone": "b", "disk": None}}})
    wait_until(lambda: copied.node_labels() == {**own, "zone": "b"}, "a label has changed, and one is gone")
    assert copied.node_labels("bare") == {"rack": "8"}
    settings = copied.find(KUBE_CONTROLLERS_CONFIGURATION_KEY)
    assert isinstance(settings, KubeControllersConfiguration)
    assert find_label_copier(settings) is LabelCopier.CONTROLLERS
    assert process.stop() == 0
    remove_nodes(server)


@pytest.mark.night
@pytest.mark.etcd
def test_killed_it_converges_when_it_is_started_again(copied: CopyScene, copying: ControllersProcesses) -> None:
    first = copying.start(ENABLED_CONTROLLERS="policy,namespace,serviceaccount")
    wait_until(lambda: copied.copies() == ALL_COPIES, "everything is copied")
    first.kill()
    copied.server.request("DELETE", f"{POLICIES}/allow")
    copied.make_policy("other", {})
    copied.delete(PROFILE.key("kns.shop"))
    copied.put(PROFILE.key("ksa.shop.gone"), Profile(metadata=Metadata(name="ksa.shop.gone")))
    second = copying.start(ENABLED_CONTROLLERS="policy,namespace,serviceaccount")
    expected = (ALL_COPIES - {"knp.default.allow"}) | {"knp.default.other"}
    wait_until(lambda: copied.copies() == expected, "the second process makes the difference good")
    assert copied.endpoint_labels() == {}
    assert second.ask("/livez") == (200, "ok\n")


@pytest.mark.etcd
def test_what_changes_while_nobody_acts_is_copied_by_the_next_leader_without_a_list(
    copied: CopyScene, copying: ControllersProcesses
) -> None:
    """A process that is ready has read everything, and follows it: to begin to act it only has to look."""
    server = copied.server
    first = copying.start(RECONCILER_PERIOD="0")
    wait_until(lambda: copied.copies() == ALL_COPIES, "everything is copied")
    second = copying.start(RECONCILER_PERIOD="0")
    wait_until(lambda: second.ask("/readyz") == (200, "ok\n"), "the second one is ready and waits")
    first.kill()
    before = lists_of_copied(server)
    copied.make_policy("late", {})
    server.request("DELETE", f"{POLICIES}/allow")
    merge(server, f"{PODS}/web-1", {"metadata": {"labels": {"app": "late"}}})
    server.request("DELETE", CONTROLLERS_LEASE_PATH)  # as its end does
    wait_until(lambda: LEADS in second.ask("/metrics")[1], "the second one acts")
    expected = (ALL_COPIES - {"knp.default.allow"}) | {"knp.default.late"}
    wait_until(lambda: copied.copies() == expected, "the policies")
    wait_until(lambda: copied.endpoint_labels().get("app") == "late", "the label of the pod")
    assert before
    assert lists_of_copied(server) == before


def lists_of_copied(server: ApiServer) -> list[str]:
    """The lists of what is copied that processes have asked for, in order."""
    kinds = ("/pods", "/namespaces", "/serviceaccounts", "/networkpolicies")
    return [target for target in server.audited_lists("netplug") if target.partition("?")[0].endswith(kinds)]


# --- without an orchestrator ------------------------------------------------------------------------------------------


LEADS = "netplug_controllers_leader 1.0"


@pytest.fixture
def alone(etcd: EtcdCluster, tmp_path: Path) -> Iterator[ControllersProcesses]:
    """Processes beside an etcd alone, as the unit of systemd runs them."""
    delete_all_entries(etcd)
    processes = ControllersProcesses(
        tmp_path,
        {
            "DATASTORE_TYPE": "etcdv3",
            "ENABLED_CONTROLLERS": "node",
            "ETCD_ENDPOINTS": ",".join(etcd.endpoints),
            "KUBECONFIG": "",
        },
    )
    yield processes
    processes.kill()


@pytest.mark.etcd
def test_without_an_orchestrator_one_of_two_acts_by_a_lease_in_etcd(
    etcd: EtcdCluster, alone: ControllersProcesses
) -> None:
    first = alone.start()
    wait_until(lambda: LEADS in first.ask("/metrics")[1], "the first one acts")
    second = alone.start()
    wait_until(lambda: second.ask("/readyz") == (200, "ok\n"), "the second one is ready and waits")
    assert LEADS not in second.ask("/metrics")[1]
    assert first.stop() == 0
    wait_until(lambda: LEADS in second.ask("/metrics")[1], "the second one acts at once")


@pytest.mark.etcd
@pytest.mark.night  # until the lease ends
def test_without_an_orchestrator_the_lease_of_a_killed_one_ends_by_itself(
    etcd: EtcdCluster, alone: ControllersProcesses
) -> None:
    first = alone.start()
    wait_until(lambda: LEADS in first.ask("/metrics")[1], "the first one acts")
    first.kill()
    second = alone.start()
    wait_until(lambda: LEADS in second.ask("/metrics")[1], "the second one acts afterwards")


@pytest.mark.etcd
def test_the_history_of_an_etcd_is_compacted(etcd: EtcdCluster, alone: ControllersProcesses) -> None:
    store = EtcdDatastore(make_client(etcd, clock=SystemClock()))
    before = store.present_revision(deadline=deadline_in())
    process = alone.start(COMPACTION_PERIOD="1s")

    def is_forgotten() -> bool:
        try:
            next(store.watch({NODE: Revision(str(before))}, deadline=deadline_in(0.1)), None)
        except WatchExpired:
            return True
        # Whoever holds the lease writes meanwhile.
        return False

    wait_until(is_forgotten, "a watch from before has to list again")
    assert "is not compacted" not in process.lines
    store.close()
