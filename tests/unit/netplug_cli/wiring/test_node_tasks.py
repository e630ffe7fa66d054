"""Where the node process finds the datastore of its node, and what it opens of it."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest

from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_backends.host.placing import run_here
from netplug_cli.node.stores import KnownCredentials
from netplug_cli.runtime.feed import OpenedOnce
from netplug_cli.wiring.node_network import node_files, open_node_datastore
from netplug_cli.wiring.node_process import (
    _find_poll_s,
    _open_world,
    _read_datastore,
    helper_plugins,
    node_registration,
    node_tasks,
)
from netplug_core import __version__
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import ConfigurationError
from netplug_core.flows.node import NodeWorld
from netplug_core.flows.resources.cluster import find_cluster_information
from netplug_core.netconf.model import NetConf
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.node_server import Lines


@pytest.mark.parametrize(
    "environ, expected",
    [
        ({"DATASTORE_TYPE": "etcdv3"}, "etcdv3"),
        ({"NETPLUG_DATASTORE_TYPE": "sqlite"}, "sqlite"),
        ({"ETCD_ENDPOINTS": "http://127.0.0.1:2379"}, "etcdv3"),
        ({"NETPLUG_ETCD_DISCOVERY_SRV": "example.org"}, "etcdv3"),
        ({"KUBECONFIG": "/etc/kubeconfig"}, "kubernetes"),
    ],
)
def test_the_environment_names_a_datastore(environ: dict[str, str], expected: str) -> None:
    found = _read_datastore(environ, "")
    assert found is not None
    assert found.type == expected


@pytest.mark.parametrize(
    "environ", [{}, {"PATH": "/bin", "DATASTORE_TYPE": "", "NODENAME": "node-1", "K8S_CLIENT_QPS": "9"}]
)
def test_an_environment_that_names_none_is_no_configuration(environ: dict[str, str]) -> None:
    assert _read_datastore(environ, "") is None


def test_a_file_is_read_in_place_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "node.cfg"
    with pytest.raises(ConfigurationError):
        _read_datastore({"DATASTORE_TYPE": "etcdv3"}, str(file))
    file.write_text("kind: NetplugAPIConfig\napiVersion: projectnetplug.org/v3\nspec: {datastoreType: sqlite}\n")
    assert _read_datastore({"DATASTORE_TYPE": "etcdv3"}, str(file)) == DatastoreSettings(type="sqlite")


def test_a_datastore_that_ends_with_the_process_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="name one that stays"):
        _read_datastore({"DATASTORE_TYPE": "memory"}, "")


def test_names_and_paths_are_keys_in_upper_case() -> None:
    assert node_files({}) == NetConf()
    environ = {"NODENAME": "a", "NETPLUG_NODENAME": "b", "NODENAME_FILE": "/n", "ENDPOINT_STATUS_DIR": "/s"}
    found = node_files(environ)
    assert (found.nodename, found.nodename_file, found.endpoint_status_dir) == ("b", "/n", "/s")
    assert node_files({"NODENAME_FILE": "/a/n"}).mtu_file == "/a/mtu"
    assert node_files({"NETPLUG_MTU_FILE": "/m"}).mtu_file == "/m"
    prefix = {"NETPLUG_ENDPOINT_STATUS_PATH_PREFIX": "/run/other/"}
    assert node_files(prefix).endpoint_status_dir == "/run/other/endpoint-status"
    assert node_files({"ENDPOINT_STATUS_PATH_PREFIX": "/"}).endpoint_status_dir == "/endpoint-status"
    assert node_files(prefix | {"ENDPOINT_STATUS_DIR": "/s"}).endpoint_status_dir == "/s"


def test_a_pause_that_cannot_be_used_is_a_line() -> None:
    log = Lines()
    assert _find_poll_s({}, log) == 60.0
    assert _find_poll_s({"AUTODETECT_POLL_INTERVAL": "1m30s"}, log) == 90.0
    assert log.texts == []
    assert _find_poll_s({"AUTODETECT_POLL_INTERVAL": "often"}, log) == 60.0
    cause = "'often' is not accepted; a duration such as 90s or 1h30m is"
    assert log.texts == [f"WARNING AUTODETECT_POLL_INTERVAL is not used cause={cause}"]


def opened(settings: DatastoreSettings, log: Lines) -> AbstractContextManager[NodeWorld]:
    clock = SystemClock()
    opening = partial(open_node_datastore, {}, run_here, clock)
    return _open_world(HostMachine(), clock, log, opening, NetConf(datastore=settings))


def test_registration_uses_the_datastore_that_another_controller_has_open(tmp_path: Path) -> None:
    environ = {
        "DATASTORE_TYPE": "sqlite",
        "SQLITE_PATH": str(tmp_path / "netplug.db"),
        "NODENAME": "node-1",
        "NODENAME_FILE": str(tmp_path / "nodename"),
        "ENDPOINT_STATUS_DIR": str(tmp_path / "endpoint-status"),
    }
    log, opened_types = Lines(), list[str]()

    @contextmanager
    def opening(settings: DatastoreSettings) -> Iterator[Datastore]:
        opened_types.append(settings.type)
        with open_node_datastore(environ, run_here, SystemClock(), settings) as datastore:
            yield datastore

    once = OpenedOnce(opening)
    registration = node_registration(environ, "", log, once.open)
    settings = registration.read_datastore()
    assert settings is not None
    with once.open(settings):
        DrivenControllers(registration.controllers(), clock=ManualClock(), log=log).pass_time()
    assert "INFO the node is registered datastore=sqlite node=node-1" in log.texts
    assert opened_types == ["sqlite"]


@pytest.mark.parametrize(
    "access, has_orchestrator",
    [(KubernetesAccess(), False), (KubernetesAccess(kubeconfig="/etc/kubeconfig"), True)],
)
def test_labels_come_from_an_orchestrator_that_is_configured(
    tmp_path: Path, access: KubernetesAccess, *, has_orchestrator: bool
) -> None:
    settings = DatastoreSettings(type="sqlite", sqlite_path=str(tmp_path / "n.db"), kubernetes=access)
    with opened(settings, Lines()) as world:
        assert world.datastore.description.name == "sqlite"
        assert (world.open_orchestrator is not None) is has_orchestrator


def test_where_nodes_are_the_orchestrators_own_it_can_be_asked_for_their_addresses(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "kind: Config\napiVersion: v1\ncurrent-context: c\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n"
    )
    settings = DatastoreSettings(type="kubernetes", kubernetes=KubernetesAccess(kubeconfig=str(kubeconfig)))
    with opened(settings, Lines()) as world:
        assert world.open_orchestrator is not None


def test_the_node_is_registered_in_the_datastore_that_the_environmentnode_files(tmp_path: Path) -> None:
    environ = {
        "DATASTORE_TYPE": "sqlite",
        "SQLITE_PATH": str(tmp_path / "netplug.db"),
        "NODENAME": "node-1",
        "NODENAME_FILE": str(tmp_path / "nodename"),
        "ENDPOINT_STATUS_DIR": str(tmp_path / "endpoint-status"),
    }
    log = Lines()
    registration = node_tasks(
        environ,
        node_registration(environ, "", log),
        log,
        KnownCredentials(SystemClock()),
        helper_plugins({"CNI_NET_DIR": "/nowhere"}),
    )
    DrivenControllers(registration, clock=ManualClock(), log=log).pass_time()
    assert [text for text in log.texts if not re.search("address|MTU", text)] == [
        "INFO the node is registered datastore=sqlite node=node-1",
        f"INFO the cluster runs another release now release=v{__version__}",
    ]
    settings = DatastoreSettings(type="sqlite", sqlite_path=environ["SQLITE_PATH"])
    with opened(settings, log) as world:
        found = find_cluster_information(world.datastore, deadline=world.pace().deadline)
    assert found.version == f"v{__version__}"
    assert (tmp_path / "nodename").read_text() == "node-1"
    assert int((tmp_path / "mtu").read_text()) > 0, "it follows from the interfaces of this machine"
    assert (tmp_path / "endpoint-status").is_dir()
