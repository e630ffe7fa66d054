"""The condition NetworkUnavailable of a node on a real API server: cleared with the documented right."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.service_account import ServiceAccount, find_service_account
from netplug_core.decoding.tables import find_member
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import install_role
from tests.harness.servers.node_account import NAMESPACE, install_node_account
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.apiserver

NODE, NOW, BEFORE = "cloud-node", "2026-11-28T13:00:00Z", "2026-11-28T12:00:00Z"
PATH = f"/api/v1/nodes/{NODE}"


def condition_of(kind: str, status: str) -> dict[str, object]:
    return {
        "type": kind,
        "status": status,
        "reason": "NoRouteCreated",
        "message": "set by the cloud",
        "lastHeartbeatTime": BEFORE,
        "lastTransitionTime": BEFORE,
    }


def put_node(server: ApiServer, *conditions: Mapping[str, object]) -> None:
    """Make the node, with these conditions."""
    apply = {"content_type": "application/apply-patch+yaml"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    server.request("PATCH", f"{PATH}?fieldManager=tests&force=true", node, **apply)
    status = {**node, "status": {"conditions": list(conditions)}}
    server.request("PATCH", f"{PATH}/status?fieldManager=tests&force=true", status, **apply)


def conditions(server: ApiServer) -> dict[str, tuple[object, object]]:
    node = server.request("GET", PATH)
    assert isinstance(node, Mapping)
    found = find_member(node, "status", "conditions")
    assert isinstance(found, list)
    return {str(one["type"]): (one["status"], one["lastTransitionTime"]) for one in found}


@pytest.fixture
def account(api_server: ApiServer, tmp_path: Path) -> ServiceAccount:
    install_role(api_server)
    (tmp_path / "token").write_text(install_node_account(api_server))
    (tmp_path / "ca.crt").write_bytes(Path(api_server.ca_file).read_bytes())
    (tmp_path / "namespace").write_text(NAMESPACE)
    environ = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(api_server.port),
        "KUBERNETES_SERVICE_PROTOCOL": "https",
    }
    found = find_service_account(environ, clock=SystemClock(), folder=str(tmp_path))
    assert found is not None
    return found


def test_what_a_cloud_has_set_is_cleared_and_other_conditions_stay(
    api_server: ApiServer, account: ServiceAccount
) -> None:
    put_node(api_server, condition_of("NetworkUnavailable", "True"), condition_of("Ready", "True"))
    with closing(account):
        assert account.clear_network_unavailable(NODE, now=NOW, deadline=deadline_in())
        expected = {"NetworkUnavailable": ("False", NOW), "Ready": ("True", BEFORE)}
        assert conditions(api_server) == expected
        assert not account.clear_network_unavailable(NODE, now="2026-11-28T14:00:00Z", deadline=deadline_in())
        assert conditions(api_server) == expected


def test_where_no_cloud_has_set_it_nothing_is_written(api_server: ApiServer, account: ServiceAccount) -> None:
    put_node(api_server, condition_of("Ready", "True"))
    with closing(account):
        assert not account.clear_network_unavailable(NODE, now=NOW, deadline=deadline_in())
        assert not account.clear_network_unavailable("no-such-node", now=NOW, deadline=deadline_in())
    assert conditions(api_server) == {"Ready": ("True", BEFORE)}
