"""Fixtures of the tests on a real kernel: a node of the test's own, and the executables as they are installed.

With ``NETPLUG_SERVED_BY=node-process`` the tests whose calls a runtime makes are run, and no others: every call goes to
a node process, and has to be answered as the executables answer it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netplug_backends.host.executables import Client, install
from tests.harness.local_stores import IS_DEEP
from tests.harness.node import DEBIAN_PLUGINS, CNIRuntime, NetnsNode, PodNamespace, missing_requirement, open_node
from tests.harness.node_process import NodeProcessRuntime, start_node_process
from tests.harness.plugin_datastores import PluginDatastore, open_plugin_datastore
from tests.harness.runtimes.environment import make_environment
from tests.harness.runtimes.image import make_image
from tests.harness.runtimes.node_image import build_image
from tests.harness.servers.certificates import Certificates, issue_certificates
from tests.harness.servers.etcd import EtcdCluster, ServerTLS, start_etcd
from tests.harness.servers.kube_apiserver import ApiServer, start_api_server
from tools.images.build import Built

_BY_NIGHT = (
    "test_bundle.py",
    "test_charts.py",
    "test_cni_killed.py",
    "test_cni_race.py",
    "test_connectivity.py",
    "test_demo_page.py",
    "test_from_empty.py",
    "test_images.py",
    "test_kubernetes_lab.py",
    "test_lab_nodes_broken.py",
    "test_live_addresses.py",
    "test_live_change.py",
    "test_map_in_browser.py",
    "test_migrate_host_endpoints.py",
    "test_monitoring_rules.py",
    "test_node_process_churn.py",
    "test_operator_conversion.py",
    "test_outage_drill.py",
    "test_policy_floods.py",
    "test_policy_packets.py",
    "test_policy_two_nodes.py",
    "test_quickstart_kubernetes.py",
    "test_rolling_restart.py",
    "test_secrets.py",
    "test_simulate_page.py",
    "test_site_in_browser.py",
    "test_two_nodes.py",
)

collect_ignore = () if IS_DEEP else _BY_NIGHT
"""They take minutes, or need programs that only `make nightly` makes or installs; by name, they run at any time."""


_OF_THE_NIGHT = ("night", "stress", "cluster")
"""Markers of tests that only a night runs, in files whose other tests run by day; by name of the file, at any time."""

_HERE = Path(__file__).parent

IS_SERVED_BY_NODE_PROCESS = os.environ.get("NETPLUG_SERVED_BY") == "node-process"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test of a file of the night."""
    if item.path.parent == _HERE and item.path.name in _BY_NIGHT:
        item.add_marker(pytest.mark.night)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of the night by day; if a node process is to serve all calls, what has nothing to do with it."""
    named = {Path(argument.partition("::")[0]).resolve() for argument in config.args}

    def is_run(item: pytest.Item) -> bool:
        if IS_SERVED_BY_NODE_PROCESS and not _is_repeated(item):
            return False
        return IS_DEEP or item.path in named or not any(item.get_closest_marker(name) for name in _OF_THE_NIGHT)

    # The hook sees the items of every folder.
    left_out = [item for item in items if _HERE in item.path.parents and not is_run(item)]
    kept = set(items) - set(left_out)
    items[:] = [item for item in items if item in kept]
    config.hook.pytest_deselected(items=left_out)


def _is_repeated(item: pytest.Item) -> bool:
    """Whether a test makes calls as a runtime does, of any process that answers them."""
    return "runtime" in getattr(item, "fixturenames", ()) and item.get_closest_marker("alone") is None


@pytest.fixture(scope="session")
def bin_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the executables of this checkout, installed as on a host."""
    reason = missing_requirement(*(f"{DEBIAN_PLUGINS}/{plugin}" for plugin in ("portmap", "ptp", "bridge")))
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("bin")
    install(str(folder), lambda _line: None, Client.PYTHON)
    return str(folder)


@pytest.fixture(scope="session")
def static_bin_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the static client, and the standalone program of this checkout beside it."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler: apt-get install gcc libc6-dev")
    folder = tmp_path_factory.mktemp("static")
    install(str(folder), lambda _line: None, Client.STATIC)
    return str(folder)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NetnsNode]:
    """A fresh node with an uplink and a store with two pools: 10.65.0.0/24 and fd65::/112."""
    with open_default_node(str(tmp_path)) as opened:
        yield opened


@contextmanager
def open_default_node(folder: str) -> Iterator[NetnsNode]:
    """The node of the fixture, for modules whose tests leave it as it was and share one."""
    reason = missing_requirement()
    if reason:
        pytest.skip(reason)
    with open_node(folder) as opened:
        opened.store.add_pool("v4", "10.65.0.0/24")
        opened.store.add_pool("v6", "fd65::/112")
        yield opened


@pytest.fixture
def runtime(node: NetnsNode, bin_dir: str) -> CNIRuntime:
    """A runtime on the node."""
    if IS_SERVED_BY_NODE_PROCESS:
        process = start_node_process(node)
        return NodeProcessRuntime(node, bin_dir, process.socket, passes_namespace=True)
    return CNIRuntime(node, bin_dir)


@pytest.fixture
def pod(node: NetnsNode) -> PodNamespace:
    """A pod on the node."""
    return node.make_pod()


@pytest.fixture
def plugin_datastore(node: NetnsNode, request: pytest.FixtureRequest) -> Iterator[PluginDatastore]:
    """Where the node's books are kept: its own file, unless the test names another place."""
    name: str = getattr(request, "param", "sqlite")
    with open_plugin_datastore(name, node, lambda: request.getfixturevalue("api_server")) as opened:
        yield opened


@pytest.fixture(scope="session")
def busybox_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image for container runtimes."""
    return make_image(tmp_path_factory.mktemp("image") / "busybox.tar")


@pytest.fixture(scope="session")
def built_image(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The image of the nodes, built for this run."""
    return build_image(tmp_path_factory.mktemp("node-image"))


@pytest.fixture(scope="session")
def node_image(request: pytest.FixtureRequest) -> Path:
    """The archive of that image, or of the one that NETPLUG_NODE_IMAGE names."""
    named = os.environ.get("NETPLUG_NODE_IMAGE")
    if named:
        return Path(named)
    built: Built = request.getfixturevalue("built_image")
    return built.archive


@pytest.fixture(scope="session")
def host_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the quick starts install into ``/opt/netplug``."""
    return make_environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A Kubernetes API server for this worker of the run, with nothing in it but what tests create."""
    with start_api_server(tmp_path_factory.mktemp("kubernetes")) as server:
        yield server


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdCluster]:
    """An etcd of one member for a module, whose tests empty it."""
    with start_etcd() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Right and wrong keys and certificates for a module."""
    return issue_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def etcd_with_client_certificates(certificates: Certificates) -> Iterator[EtcdCluster]:
    """A cluster that asks clients for certificates."""
    tls = ServerTLS(
        cert_file=str(certificates.server_certificate),
        key_file=str(certificates.server_key),
        client_ca_file=str(certificates.root),
    )
    with start_etcd(tls=tls) as cluster:
        yield cluster
