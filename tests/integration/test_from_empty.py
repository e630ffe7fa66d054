"""From an empty cluster to pods that ping: each way to install netplug, on two nodes with a containerd and a kubelet.

The nodes have the image from its archive and nothing else of netplug. Each way is followed by its way back, as the page
about it says, after which nothing is left but what that page names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.names import CrdMode
from netplug_core import __version__
from netplug_core.addressing import Address, Prefix
from netplug_core.installation.controllers import CONTROLLERS_NAME, LEASE_NAMESPACE
from netplug_core.installation.static import Method
from tests.harness.charts import CHARTS, Helm
from tests.harness.charts import OPERATOR as OPERATOR_CHART
from tests.harness.node import StoreInspector
from tests.harness.runtimes.flannel import (
    install_flannel_plugin,
    make_etcdctl_image,
    make_flannel_image,
    remove_flannel_plugin,
)
from tests.harness.runtimes.from_empty import BIN, NAMESPACE, EmptyCluster, Routes, open_empty_cluster
from tests.harness.runtimes.kubernetes import POD_CIDR
from tests.harness.servers.binaries import find_helm
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, make_client
from tests.harness.servers.port_forward import forward_port
from tests.harness.tool_user import ToolUser
from tests.harness.waiting import wait_until
from tools.charts.files import DEFINITION_CHARTS
from tools.manifests import MANIFESTS

pytestmark = [pytest.mark.netns, pytest.mark.runtimes, pytest.mark.cluster]

REPLICAS = 4
OWN_POOL, FLANNELS = "10.65.0.0/16", "10.244.0.0/16"
INSTALLATION = f"""
apiVersion: operator.projectnetplug.org/v1
kind: Installation
metadata: {{name: default}}
spec:
  netplugNetwork:
    bgp: Disabled
    ipPools: [{{cidr: {OWN_POOL}, encapsulation: VXLAN, natOutgoing: Disabled}}]
"""
POOL = f"""
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {{name: main}}
spec: {{cidr: {OWN_POOL}}}
"""
POOL_OF_NODES = f"""
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {{name: nodes}}
spec: {{cidr: {POD_CIDR}, assignmentMode: Manual}}
"""
STATIC = MANIFESTS / "static"
OPERATOR = str(STATIC / "operator.yaml")
NODES = ("node-1", "node-2")
KUBE_VERSION = "--kube-version=1.36.0"
HELPERS = {f"{BIN}/{name}" for name in ("bandwidth", "host-local", "loopback", "portmap", "tuning")}
STAYING = (
    "/run/netplug/", "/var/log/netplug/", "/var/lib/netplug/", "/var/lib/cni/networks/", "table inet netplug_net",
)  # fmt: skip
CLUSTER_ROLES = ("clusterrolebinding,clusterrole", "netplug-cni-plugin", "netplug-node", CONTROLLERS_NAME)
OF_CONTROLLERS = ("-n", LEASE_NAMESPACE, "delete", "rolebinding,role,lease", CONTROLLERS_NAME)
LEASE_OF_OPERATOR = ("-n", LEASE_NAMESPACE, "delete", "lease", "netplug-operator")


@pytest.fixture(scope="module")
def empty(node_image: Path, busybox_image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmptyCluster]:
    """Two nodes with the images, on which nothing is installed."""
    folder = tmp_path_factory.mktemp("cluster")
    others = [make_flannel_image(folder / "flannel.tar"), make_etcdctl_image(folder / "etcdctl.tar")]
    with open_empty_cluster(folder, [busybox_image, node_image, *others], *NODES) as opened:
        yield opened


@pytest.fixture
def nothing(empty: EmptyCluster) -> EmptyCluster:
    """The cluster, on which nothing is left of the test before."""
    assert empty.left_in_cluster() == []
    empty.forget_on_nodes()
    assert empty.left_on_nodes() == {name: set() for name in NODES}
    return empty


@pytest.fixture
def tool(nothing: EmptyCluster, tmp_path: Path) -> ToolUser:
    """An administrator's netplugctl."""
    return nothing.make_tool(tmp_path)


@pytest.fixture(scope="module")
def etcd_of_nodes(empty: EmptyCluster, etcd: EtcdCluster) -> Iterator[EtcdCluster]:
    """An etcd of one member, which the nodes reach."""
    (member,) = etcd.members
    with ExitStack() as stack:
        for node in empty.nodes.values():
            stack.enter_context(forward_port(node, member.port))
        yield etcd


@pytest.fixture
def reachable_etcd(etcd_of_nodes: EtcdCluster) -> Iterator[EtcdCluster]:
    """An etcd that the nodes reach; it is empty again at the end."""
    yield etcd_of_nodes
    delete_all_entries(etcd_of_nodes)


def use(empty: EmptyCluster, tool: ToolUser, addresses: str = OWN_POOL, routes: Routes = Routes.OF_NETPLUG) -> None:
    """Pods on both nodes ping each other as policy has it, node processes have served them, and nothing is left.

    The release of the cluster is that of the nodes.
    """
    empty.check_works(tool)
    release = f"Cluster Version: v{__version__}\n"
    wait_until(lambda: release in tool.run_command("version").out, "a node process has stored its release")
    before = empty.adds_of_node_processes()
    pods = empty.start_pods(REPLICAS, routes)
    assert all(Address.parse(pod.address) in Prefix.parse(addresses) for pod in pods)
    empty.check_pings(pods)
    empty.check_policy(pods)
    assert empty.adds_of_node_processes() - before == REPLICAS
    empty.check_works(tool)
    empty.stop_pods()


def wait_for_end_of_controllers(empty: EmptyCluster) -> None:
    """Their pod ends later than their Deployment."""
    pods = ("pod", "-l", f"k8s-app={CONTROLLERS_NAME}")
    empty.cluster.run_kubectl("-n", LEASE_NAMESPACE, "wait", "--for=delete", *pods, "--timeout=290s")


def take_off_nodes(empty: EmptyCluster) -> None:
    """Nothing but what the page names is on the nodes."""
    empty.uninstall_from_nodes()
    for left in empty.left_on_nodes().values():
        assert {name for name in left if not name.startswith(STAYING)} == HELPERS
    assert empty.left_in_cluster() == []


def test_an_installation_from_a_file(nothing: EmptyCluster, tool: ToolUser) -> None:
    with nothing.showing_time("install apply"):
        result = tool.run_command("install", "apply", "-f", tool.file(INSTALLATION), "--wait")
        assert result.status == 0, result
    use(nothing, tool)

    nothing.cluster.run_kubectl("delete", "namespace", "netplug-system", "--timeout=290s")
    nothing.cluster.run_kubectl("delete", *CLUSTER_ROLES)
    nothing.cluster.run_kubectl(*OF_CONTROLLERS)
    nothing.delete_definitions()
    take_off_nodes(nothing)


def test_the_operator(nothing: EmptyCluster, tool: ToolUser) -> None:
    """Its manifest, and an Installation without settings; its pools are those of a new cluster."""
    with nothing.showing_time("the operator"):
        nothing.cluster.run_kubectl("apply", "--server-side", "-f", OPERATOR)
        nothing.create_installation()
        nothing.cluster.run_kubectl("wait", "--for=condition=Ready", "--timeout=290s", "installation/default")
        nothing.wait_for_nodes()
    use(nothing, tool, "192.168.0.0/16")

    nothing.cluster.run_kubectl("delete", "installation", "default", "--timeout=290s")
    nothing.cluster.run_kubectl("delete", "-f", OPERATOR, "--timeout=290s")
    nothing.delete_definitions()
    take_off_nodes(nothing)


@pytest.mark.parametrize("mode", list(CrdMode))
def test_the_charts(nothing: EmptyCluster, tool: ToolUser, tmp_path: Path, mode: CrdMode) -> None:
    """The definitions, and the operator with an Installation without settings."""
    kubectl, namespace = nothing.cluster.run_kubectl, "netplug-operator"
    helm = Helm(find_helm(), tmp_path, nothing.cluster.server.write_kubeconfig())
    definitions = helm.run("template", "netplug-crds", str(CHARTS / DEFINITION_CHARTS[mode]), KUBE_VERSION)
    with nothing.showing_time(f"the charts, {mode.value}"):
        kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=definitions)
        kubectl("create", "namespace", namespace)
        helm.run("install", "netplug", str(OPERATOR_CHART), "--namespace", namespace)
        kubectl("wait", "--for=condition=Ready", "--timeout=290s", "installation/default")
        nothing.wait_for_nodes()
    use(nothing, tool, "192.168.0.0/16")

    helm.run("uninstall", "netplug", "--namespace", namespace)
    kubectl("delete", "namespace", namespace, "--timeout=290s")
    kubectl(*LEASE_OF_OPERATOR)
    nothing.allow_deletion(definitions)
    kubectl("delete", "-f", "-", stdin=definitions)
    take_off_nodes(nothing)


@pytest.mark.parametrize("method", [Method.KDD, Method.KDD_FLANNEL, Method.KDD_POLICY_ONLY])
def test_a_published_manifest(nothing: EmptyCluster, tool: ToolUser, method: Method) -> None:
    manifest = str(STATIC / f"{method.value}.yaml")
    with nothing.showing_time(method.value):
        nothing.cluster.run_kubectl("apply", "--server-side", "-f", manifest)
        nothing.wait_for_nodes()
    if method.has_own_network:
        assert tool.run_command("apply", "-f", tool.file(POOL)).status == 0
    if method.has_own_network:
        use(nothing, tool)
    else:
        use(nothing, tool, POD_CIDR, Routes.BY_HAND)

    nothing.cluster.run_kubectl("delete", "-f", manifest, "--timeout=290s")
    wait_for_end_of_controllers(nothing)
    take_off_nodes(nothing)


def test_host_local_is_replaced_by_pools_while_pods_run(nothing: EmptyCluster, tool: ToolUser) -> None:
    """As the page about host-local says; the pods keep their addresses, which a DEL frees in the end."""
    kubectl = nothing.cluster.run_kubectl
    kubectl("apply", "--server-side", "-f", str(STATIC / f"{Method.KDD_POLICY_ONLY.value}.yaml"))
    nothing.wait_for_nodes()
    pods = nothing.start_pods(REPLICAS, Routes.BY_HAND)  # policy-only makes none
    assert tool.run_command("apply", "-f", tool.file(POOL_OF_NODES)).status == 0
    with nothing.pinging(pods) as lost:
        kubectl("apply", "--server-side", "--force-conflicts", "-f", str(STATIC / f"{Method.KDD.value}.yaml"))
        nothing.wait_for_nodes()
        assert lost() == []
    for pod in pods:
        shown = tool.run_command("ipam", "show", "--ip", pod.address).out
        assert (NAMESPACE in shown, pod.name in shown) == (True, True), shown
    for node in nothing.nodes.values():
        files = node.run("ls", "/var/lib/cni/networks/k8s-pod-network").split()
        assert not set(files) & {pod.address for pod in pods}
    automatic = '{"spec": {"assignmentMode": "Automatic"}}'
    assert tool.run_command("patch", "ippool", "nodes", "-p", automatic).status == 0
    kubectl("-n", NAMESPACE, "scale", "deployment", "--all", f"--replicas={2 * REPLICAS}")
    kubectl("-n", NAMESPACE, "rollout", "status", "deployment", "--timeout=290s")
    checked = tool.run_command("ipam", "check")
    assert checked.status == 0, checked.all_output
    nothing.stop_pods()
    assert {tool.run_command("ipam", "show", "--ip", pod.address).out for pod in pods} == {
        f"{pod.address} is not assigned\n" for pod in pods
    }
    kubectl("delete", "-f", str(STATIC / f"{Method.KDD.value}.yaml"), "--timeout=290s")
    wait_for_end_of_controllers(nothing)
    take_off_nodes(nothing)


@pytest.mark.parametrize("method", [Method.ETCD, Method.ETCD_FLANNEL])
def test_a_manifest_for_etcd(
    nothing: EmptyCluster, tmp_path: Path, reachable_etcd: EtcdCluster, method: Method
) -> None:
    """Its settings are made with netplugctl, as nothing is applied with the placeholder."""
    (endpoint,) = reachable_etcd.endpoints
    tool = nothing.make_tool(tmp_path, datastoreType="etcdv3", etcdEndpoints=endpoint)
    rendered = tool.run_command("install", "render", "--method", method.value, "--set", f"etcd_endpoints={endpoint}")
    assert rendered.status == 0, rendered
    if method.has_flannel:
        install_flannel_plugin(nothing.nodes.values(), BIN)
    with nothing.showing_time(method.value):
        nothing.cluster.run_kubectl("apply", "--server-side", "-f", "-", stdin=rendered.out)
        nothing.wait_for_nodes()
    if method.has_own_network:
        assert tool.run_command("apply", "-f", tool.file(POOL)).status == 0
    if method.has_own_network:
        use(nothing, tool)
    else:
        use(nothing, tool, FLANNELS, Routes.BY_HAND)

    store = StoreInspector(lambda: closing(EtcdDatastore(make_client(reachable_etcd, clock=SystemClock()))))
    assert store.is_empty
    nothing.cluster.run_kubectl("delete", "-f", "-", "--timeout=290s", stdin=rendered.out)
    wait_for_end_of_controllers(nothing)
    if method.has_flannel:
        remove_flannel_plugin(nothing.nodes.values(), BIN)
    take_off_nodes(nothing)
