"""The passwords of BGP sessions on a real API server: read with the documented right, from the pod's own namespace."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.service_account import ServiceAccount, find_service_account
from netplug_core.errors import Unauthorized, Unavailable
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import install_role
from tests.harness.servers.node_account import NAMESPACE, install_node_account
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.apiserver


def open_account(server: ApiServer, folder: Path, *, namespace: str) -> ServiceAccount:
    """The account of the node process, in a pod of a namespace."""
    (folder / "token").write_text(install_node_account(server))
    (folder / "ca.crt").write_bytes(Path(server.ca_file).read_bytes())
    (folder / "namespace").write_text(namespace)
    environ = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(server.port),
        "KUBERNETES_SERVICE_PROTOCOL": "https",
    }
    account = find_service_account(environ, clock=SystemClock(), folder=str(folder))
    assert account is not None
    return account


@pytest.fixture
def account(api_server: ApiServer, tmp_path: Path) -> Iterator[ServiceAccount]:
    install_role(api_server)
    with closing(open_account(api_server, tmp_path, namespace=NAMESPACE)) as opened:
        yield opened


def put_secret(server: ApiServer, name: str, **data: bytes) -> None:
    """Make a Secret, or replace the one of that name."""
    members = {key: base64.b64encode(value).decode() for key, value in data.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "data": members}
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}?fieldManager=tests&force=true"
    server.request("PATCH", path, secret, content_type="application/apply-patch+yaml")


def test_rt29_a_member_of_a_secret_is_read_and_read_again(api_server: ApiServer, account: ServiceAccount) -> None:
    put_secret(api_server, "bgp", password=b"first\n")
    assert account.find_secret("bgp", "password", deadline=deadline_in()) == "first"
    put_secret(api_server, "bgp", password=b"second")
    assert account.find_secret("bgp", "password", deadline=deadline_in()) == "second"


def test_what_is_not_there_is_none(api_server: ApiServer, account: ServiceAccount) -> None:
    put_secret(api_server, "bgp", other=b"x")
    assert account.find_secret("bgp", "password", deadline=deadline_in()) is None
    assert account.find_secret("nothing", "password", deadline=deadline_in()) is None


def test_what_is_no_text_is_an_error_without_it(api_server: ApiServer, account: ServiceAccount) -> None:
    put_secret(api_server, "bgp", password=b"\xff\xfe")
    with pytest.raises(Unavailable, match="its member password is no text"):
        account.find_secret("bgp", "password", deadline=deadline_in())


def test_secrets_of_other_namespaces_are_out_of_reach(api_server: ApiServer, tmp_path: Path) -> None:
    install_role(api_server)
    with (
        closing(open_account(api_server, tmp_path, namespace="kube-system")) as elsewhere,
        pytest.raises(Unauthorized, match="secrets"),
    ):
        elsewhere.find_secret("bgp", "password", deadline=deadline_in())
