"""Plugins that a node lacks, on a real API server: an Event with the documented right, and ``install status``."""

from __future__ import annotations

from pathlib import Path

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.host.placing import run_here
from netplug_backends.kubernetes.installing.cluster import open_cluster
from netplug_cli.wiring.node_process import _report_plugins, _report_problem
from netplug_core.cni.plugins import LOOPBACK, MissingPlugin
from netplug_core.installation.cluster import NodeReport
from netplug_core.reconcile.controller import Problem
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import install_role
from tests.harness.servers.node_account import NAMESPACE, install_node_account
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.apiserver

NODE = "node-that-lacks-plugins"
LOST = (MissingPlugin(LOOPBACK, ("/opt/cni/bin",)),)


@pytest.fixture
def account(api_server: ApiServer, tmp_path: Path) -> Path:
    """The files of the node process's account, with the documented rights and no other."""
    install_role(api_server)
    (tmp_path / "token").write_text(install_node_account(api_server))
    (tmp_path / "ca.crt").write_bytes(Path(api_server.ca_file).read_bytes())
    (tmp_path / "namespace").write_text(NAMESPACE)
    return tmp_path


def report(api_server: ApiServer, account: Path, missing: tuple[MissingPlugin, ...]) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api_server.port)}
    _report_plugins(environ, run_here, NODE, missing, deadline_in(), account_folder=str(account))


def reports(api_server: ApiServer) -> list[NodeReport]:
    """What ``install status`` reads of this node."""
    access = KubernetesAccess(kubeconfig=api_server.write_kubeconfig())
    settings = DatastoreSettings(type="kubernetes", kubernetes=access)
    with open_cluster(settings, SystemClock()) as cluster:
        found = cluster.read_state(deadline=deadline_in()).reports
    return [each for each in found if each.node == NODE]


def test_what_is_missing_is_an_event_about_the_node_until_it_is_there(api_server: ApiServer, account: Path) -> None:
    report(api_server, account, LOST)
    report(api_server, account, LOST)
    (lost,) = reports(api_server)
    assert lost == NodeReport(
        node=NODE,
        reason="PluginsMissing",
        message="each start of a pod on this node fails: "
        "loopback is not in /opt/cni/bin: containerd starts no pod without it",
    )
    found = api_server.request("GET", f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={NODE}")
    assert isinstance(found, dict)
    (event,) = found["items"]
    assert (event["type"], event["count"], event["involvedObject"]["uid"]) == ("Warning", 2, NODE)
    assert event["source"] == {"component": "netplug-node"}
    report(api_server, account, ())
    assert {each.reason for each in reports(api_server)} == {"PluginsMissing", "PluginsFound"}


def test_a_conflict_is_an_event_about_the_node(api_server: ApiServer, account: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api_server.port)}
    node = "node-in-conflict"
    conflict = Problem(
        message="the detected IPv4 address is not registered",
        cause="the node a has the address 10.0.0.1",
        event="AddressConflict",
    )
    for _ in range(2):
        _report_problem(environ, run_here, node, conflict, deadline_in(), account_folder=str(account))
    found = api_server.request("GET", f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={node}")
    assert isinstance(found, dict)
    (event,) = found["items"]
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "AddressConflict", 2)
    assert event["message"] == "the detected IPv4 address is not registered: the node a has the address 10.0.0.1"
