"""The address of a pod is never freed while the pod lives, whatever is missing, late or wrong: on real servers.

In each test an address without a pod is freed beside it, so that the collector is known to be at work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import define, field

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.clock import SECOND_NS
from netplug_core.datastore.protocol import Datastore
from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.kubecontrollersconfiguration import (
    KUBE_CONTROLLERS_CONFIGURATION_KEY,
    Controllers,
    KubeControllersConfiguration,
    KubeControllersSpec,
    NodeController,
)
from netplug_core.resources.node import node_key
from tests.harness.collector import CollectorHarness
from tests.harness.controllers_process import open_controllers
from tests.harness.controllers_scene import machine_node
from tests.harness.operator_process import OperatorProcess
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries
from tests.harness.servers.hiding_proxy import open_hiding_proxy
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    install_definitions,
    make_namespace,
    make_node,
    make_pod,
)
from tests.harness.set_clock import SetClock
from tests.harness.tool_user import ToolUser
from tests.harness.waiting import deadline_in, wait_until

pytestmark = pytest.mark.apiserver

PODS = "/api/v1/pods"
AGENT = "netplug"
DAY_NS = 86_400 * SECOND_NS


@define
class Scene:
    """A datastore with the address of a pod that lives, and one of a pod that is gone; both on ``node-a``."""

    server: ApiServer
    store: Datastore
    environ: dict[str, str]
    folder: Path
    records: CollectorHarness = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.records = CollectorHarness(inner=self.store, clock=SystemClock())  # type: ignore[arg-type]
        self.records.add_pool("four", "10.0.0.0/24")
        spec = KubeControllersSpec(controllers=Controllers(node=NodeController(leak_grace_period="1s")))
        settings = KubeControllersConfiguration(metadata=Metadata(name="default"), spec=spec)
        self.store.commit([Create(KUBE_CONTROLLERS_CONFIGURATION_KEY, settings)], deadline=deadline_in())

    def assign(self, *, node: str = "node-a") -> None:
        """Both addresses."""
        self.records.assign_to_pod("10.0.0.1", "web", node=node)
        self.records.assign_to_pod("10.0.0.2", "gone", node=node)

    @contextmanager
    def collecting(self, clock: SetClock | None = None, /, **variables: str) -> Iterator[OperatorProcess]:
        """Controllers, until the address of the pod that is gone is freed, and two ticks longer."""
        with open_controllers(self.folder, self.environ, self.server) as controllers:
            process = controllers.start(clock, **variables)
            wait_until(lambda: "10.0.0.2" not in self.records.held(), "what has no pod is freed")
            seen = ticks(process)
            wait_until(lambda: ticks(process) >= seen + 2, "the collector looks again")
            yield process


def ticks(process: OperatorProcess) -> float:
    """How often the collector has looked."""
    name = "netplug_controllers_collection_ticks_total "
    lines = process.ask("/metrics")[1].splitlines()
    return max((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), default=0.0)


@pytest.fixture(params=[pytest.param("etcdv3", marks=pytest.mark.etcd), "kubernetes"])
def scene(request: pytest.FixtureRequest, api_server: ApiServer, tmp_path: Path) -> Iterator[Scene]:
    for name in ("kube-system", "default"):
        make_namespace(api_server, name)
    install_definitions(api_server, CrdMode.V1)
    delete_custom_objects(api_server, CrdMode.V1)
    api_server.delete_collection("/api/v1/nodes")
    make_node(api_server, "node-a")
    kubeconfig = api_server.write_kubeconfig()
    environ, spec = {"DATASTORE_TYPE": request.param, "KUBECONFIG": kubeconfig}, {"kubeconfig": kubeconfig}
    if request.param == "etcdv3":
        etcd: EtcdCluster = request.getfixturevalue("etcd")
        delete_all_entries(etcd)
        environ["ETCD_ENDPOINTS"] = spec["etcdEndpoints"] = ",".join(etcd.endpoints)
    with ToolUser(tmp_path, spec).store() as store:
        yield Scene(api_server, store, environ, tmp_path)
    api_server.delete_collection("/api/v1/namespaces/default/pods")
    api_server.delete_collection("/api/v1/nodes")


def test_the_status_of_the_pod_is_missing(scene: Scene) -> None:
    scene.assign()
    make_pod(scene.server, "default", "web", node="node-a")
    with scene.collecting():
        assert scene.records.held() == {"10.0.0.1": "h-web"}


def test_the_server_lists_what_was_before_the_pod(scene: Scene) -> None:
    """The look at the one pod comes from where it is stored, and is believed."""
    scene.assign()
    with open_hiding_proxy(scene.server, client=AGENT) as proxy:
        proxy.freeze(PODS)
        make_pod(scene.server, "default", "web", node="node-a")
        with scene.collecting(KUBECONFIG=proxy.write_kubeconfig()):
            assert scene.records.held() == {"10.0.0.1": "h-web"}
        assert proxy.asked[PODS] >= 3


@pytest.mark.parametrize("scene", [pytest.param("etcdv3", marks=pytest.mark.etcd)], indirect=True)
def test_the_node_has_another_name_now(scene: Scene) -> None:
    """The pod got its address on ``before``; the machine ``node-a`` is the node ``after`` now, and has a tunnel."""
    scene.assign(node="before")
    scene.records.assign_to("10.0.0.3", "tunnel", node="after", type="vxlanTunnelAddress")
    scene.store.commit([Create(node_key("after"), machine_node("after", "node-a"))], deadline=deadline_in())
    make_pod(scene.server, "default", "web", node="node-a")
    with scene.collecting():
        assert scene.records.held() == {"10.0.0.1": "h-web", "10.0.0.3": "tunnel"}


@pytest.mark.parametrize("step_ns", [-DAY_NS, DAY_NS])
def test_the_clock_is_set_by_a_day(scene: Scene, step_ns: int) -> None:
    """While the controllers run: what they have seen before, and what comes then, is judged by the time since."""
    scene.assign()
    scene.records.set_cooldown(30)
    make_pod(scene.server, "default", "web", node="node-a")
    clock = SetClock(scene.folder / "clock")
    with scene.collecting(clock) as process:
        clock.set_by(step_ns)
        scene.records.assign_to_pod("10.0.0.5", "later")
        wait_until(lambda: "10.0.0.5" not in scene.records.held(), "what has no pod is freed")
        seen = ticks(process)
        wait_until(lambda: ticks(process) >= seen + 2, "the collector looks again")
        assert scene.records.held() == {"10.0.0.1": "h-web"}
