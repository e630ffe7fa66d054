"""The plugin's token on a real API server: it is issued with the documented right, works, and is renewed."""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import frozen

from netplug_backends.kubernetes.client.apiclient import ApiRequest
from netplug_cli.node.tasks import CREDENTIALS_EVERY_S, TokenRefresh
from netplug_cli.wiring.node_process import find_token_refresh
from netplug_core.installation.installer import FILE_NAME
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.node import NetnsNode
from tests.harness.node_process import start_node_process
from tests.harness.node_server import Lines
from tests.harness.servers.http_stub import ReceivedRequest, SendReply, StubAction, open_http_stub
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import install_role, open_client
from tests.harness.servers.node_account import ACCOUNTS, NAMESPACE, install_node_account
from tests.harness.servers.port_forward import forward_port
from tests.harness.waiting import deadline_in, wait_until

PLUGIN_ACCOUNT = "netplug-cni-plugin"
SECRET = "s3cret"  # noqa: S105  # planted, and searched for


@frozen
class Pod:
    """The files and variables of a node process in a pod."""

    folder: Path
    environ: Mapping[str, str]

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "net.d" / FILE_NAME

    @property
    def token(self) -> str:
        found = json.loads(self.kubeconfig.read_text())["users"][0]["user"]["token"]
        assert isinstance(found, str)
        return found

    def mount(self, *, token: str, authority: bytes = b"PEM") -> None:
        """Give the pod's service account a token, as the kubelet does: a link to another folder is replaced."""
        new = self.folder / f"data-{len(list(self.folder.iterdir()))}"
        new.mkdir()
        (new / "token").write_text(token)
        (new / "ca.crt").write_bytes(authority)
        (new / "namespace").write_text(NAMESPACE)
        account = self.folder / "account"
        account.mkdir(exist_ok=True)
        (account / "..new").symlink_to(new)
        (account / "..new").rename(account / "..data")
        for name in ("token", "ca.crt", "namespace"):
            if not (account / name).is_symlink():
                (account / name).symlink_to(f"..data/{name}")

    def refresh(self, log: Lines, **variables: str) -> Refresh:
        found = find_token_refresh({**self.environ, **variables}, log, account_folder=str(self.folder / "account"))
        assert found is not None
        return Refresh(found, log)


class Refresh:
    """What renews the token, by a clock that each look moves on to the next one."""

    def __init__(self, refresh: TokenRefresh, log: Lines) -> None:
        self.credentials_in_use, self.find_stamps = refresh.credentials_in_use, refresh.find_stamps
        self._driven = DrivenControllers([refresh.controller()], clock=ManualClock(), log=log)
        self._pause_s = 0.0

    def look(self) -> None:
        """Let the next look come."""
        self._driven.pass_time(self._pause_s)
        self._pause_s = CREDENTIALS_EVERY_S


def make_pod(folder: Path, host: str, port: int, protocol: str = "https") -> Pod:
    (folder / "net.d").mkdir()
    environ = {
        "CNI_NET_DIR": str(folder / "net.d"),
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": str(port),
        "KUBERNETES_SERVICE_PROTOCOL": protocol,
        "KUBECONFIG": "/not/used",
    }
    return Pod(folder, environ)


@pytest.fixture
def pod(api_server: ApiServer, tmp_path: Path) -> Pod:
    """A pod of the node process, with the documented right and no other."""
    install_role(api_server)
    pod = make_pod(tmp_path, "127.0.0.1", api_server.port)
    pod.mount(token=install_node_account(api_server), authority=Path(api_server.ca_file).read_bytes())
    return pod


def claims(token: str) -> dict[str, object]:
    payload = token.split(".")[1]
    found = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert isinstance(found, dict)
    return found


@pytest.mark.apiserver
def test_the_file_that_is_written_gives_the_plugin_its_access(api_server: ApiServer, pod: Pod) -> None:
    log = Lines()
    refresh = pod.refresh(log)
    refresh.look()
    credentials = refresh.credentials_in_use()
    assert credentials is not None
    assert credentials.expires_ns is not None
    assert len(log.texts) == 1
    assert log.texts[0].startswith("INFO the plugin's token is renewed")
    assert pod.token not in "".join(log.texts)
    assert stat.S_IMODE(pod.kubeconfig.stat().st_mode) == 0o600
    assert os.listdir(pod.kubeconfig.parent) == [FILE_NAME]
    found = claims(pod.token)
    assert found["sub"] == f"system:serviceaccount:{NAMESPACE}:{PLUGIN_ACCOUNT}"
    assert found["exp"] == credentials.expires_ns // 1_000_000_000
    assert int(str(found["exp"])) - int(str(found["iat"])) == 86_400
    client = open_client(api_server, kubeconfig=str(pod.kubeconfig))
    reply = client.send(ApiRequest("GET", f"/api/v1/namespaces/{NAMESPACE}"), deadline=deadline_in())
    client.close()
    assert reply.is_success


@pytest.mark.apiserver
def test_a_new_token_of_the_pod_brings_a_new_one_of_the_plugin(api_server: ApiServer, pod: Pod) -> None:
    log = Lines()
    refresh = pod.refresh(log)
    refresh.look()
    first = pod.token
    for _ in range(2):
        refresh.look()
    assert pod.token == first
    for _ in range(5):
        pod.mount(token=install_node_account(api_server), authority=Path(api_server.ca_file).read_bytes())
    for _ in range(4):
        refresh.look()
    assert pod.token != first
    assert len(log.texts) == 2


@pytest.mark.apiserver
@pytest.mark.netns
@pytest.mark.alone
def test_a_node_process_in_a_pod_writes_the_file(api_server: ApiServer, pod: Pod, node: NetnsNode) -> None:
    target = "/var/run/secrets/kubernetes.io"
    node.run("sh", "-ec", f"mkdir -p {target}; cp -aT {pod.folder}/account {target}/serviceaccount")
    with forward_port(node, api_server.port):
        process = start_node_process(node, environ=pod.environ)
        wait_until(lambda: "the plugin's token is renewed" in process.lines, "the token is renewed")
        assert pod.token not in process.lines
        process.child.terminate()
        assert process.wait() == 0


@pytest.mark.apiserver
def test_without_the_right_a_line_says_which_one(api_server: ApiServer, pod: Pod) -> None:
    log = Lines()
    refresh = pod.refresh(log, NETPLUG_CNI_SERVICE_ACCOUNT="default")
    for _ in range(2):
        refresh.look()
    assert len(log.texts) == 1
    assert "a right is missing" in log.texts[0]
    assert 'cannot create resource "serviceaccounts/token"' in log.texts[0]
    assert not pod.kubeconfig.exists()


@pytest.mark.apiserver
def test_an_account_that_does_not_exist_is_named(api_server: ApiServer, pod: Pod) -> None:
    api_server.request("DELETE", f"{ACCOUNTS}/{PLUGIN_ACCOUNT}")
    log = Lines()
    pod.refresh(log).look()
    install_role(api_server)
    assert f"NETPLUG_CNI_SERVICE_ACCOUNT: '{PLUGIN_ACCOUNT}'" in log.texts[0]
    assert "has no service account of that name" in log.texts[0]


def mounted_token(**content: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
    return f"e30.{payload}.{SECRET}"


@contextmanager
def stubbed(folder: Path, replies: Mapping[str, SendReply], token: str) -> Iterator[Pod]:
    """A pod in a cluster that answers so, by path, and 404 otherwise."""

    def answer(request: ReceivedRequest) -> StubAction:
        assert request.authorization == f"Bearer {token}"
        return replies.get(request.path, SendReply(404, "404 page not found"))

    with open_http_stub(answer) as server:
        pod = make_pod(folder, "127.0.0.1", int(server.url.rpartition(":")[2]), "http")
        pod.mount(token=token)
        yield pod


ISSUE = f"{ACCOUNTS}/{PLUGIN_ACCOUNT}/token"
WITHOUT = {"resources": [{"name": "serviceaccounts"}]}
WITH = {"resources": [{"name": "serviceaccounts"}, {"name": "serviceaccounts/token"}]}


def test_a_server_that_issues_no_tokens_gets_the_pods_own(tmp_path: Path) -> None:
    token, log = mounted_token(exp=1_900_000_000), Lines()
    with stubbed(tmp_path, {"/api/v1": SendReply(200, WITHOUT)}, token) as pod:
        pod.refresh(log, SKIP_TLS_VERIFY="true").look()
        assert pod.token == token
        assert json.loads(pod.kubeconfig.read_text())["clusters"][0]["cluster"]["insecure-skip-tls-verify"] is True
    assert log.texts[0].endswith("token=the pod's own, as the server issues none")
    assert "expires=2030-03-17T17:46:40Z" in log.texts[0]


@pytest.mark.parametrize(
    "replies, token, cause",
    [
        ({"/api/v1": SendReply(200, WITHOUT)}, mounted_token(), "the claim exp of a token"),
        ({"/api/v1": SendReply(200, WITHOUT)}, SECRET, "a token of three parts is expected"),
        ({"/api/v1": SendReply(200, WITH)}, SECRET, "no Kubernetes API answers at this address"),
        ({"/api/v1": SendReply(200, {"resources": "none"})}, SECRET, "it has no list of resources"),
        ({"/api/v1": SendReply(409, {"message": "busy"})}, SECRET, "busy"),
        ({ISSUE: SendReply(201, {"status": {"token": SECRET}})}, SECRET, "expirationTimestamp are expected"),
        (
            {ISSUE: SendReply(201, {"status": {"token": SECRET, "expirationTimestamp": "soon"}})},
            SECRET,
            "expirationTimestamp are expected",
        ),
        ({ISSUE: SendReply(500, {"message": "broken"})}, SECRET, "broken"),
    ],
)
def test_what_is_no_answer_is_a_line_without_secrets(
    tmp_path: Path, replies: Mapping[str, SendReply], token: str, cause: str
) -> None:
    log = Lines()
    with stubbed(tmp_path, replies, token) as pod:
        pod.refresh(log).look()
        assert not pod.kubeconfig.exists()
    assert len(log.texts) == 1
    assert cause in log.texts[0]
    assert SECRET not in log.texts[0]


def test_a_folder_that_is_missing_is_a_line(tmp_path: Path) -> None:
    log = Lines()
    reply = SendReply(201, {"status": {"token": "t", "expirationTimestamp": "2030-01-01T00:00:00Z"}})
    with stubbed(tmp_path, {ISSUE: reply}, SECRET) as pod:
        pod.kubeconfig.parent.rmdir()
        refresh = pod.refresh(log, CNI_TOKEN_REFRESH_INTERVAL="hourly")  # noqa: S106  # no secret
        refresh.look()
    assert log.texts[0].startswith("WARNING CNI_TOKEN_REFRESH_INTERVAL is not used cause='hourly' is not accepted")
    assert "No such file or directory" in log.texts[1]


def test_outside_a_pod_or_when_switched_off_nothing_is_renewed(tmp_path: Path) -> None:
    pod, log = make_pod(tmp_path, "127.0.0.1", 1), Lines()
    assert find_token_refresh({}, log) is None
    assert find_token_refresh(pod.environ, log, account_folder=str(tmp_path)) is None
    pod.mount(token=SECRET)
    folder = str(tmp_path / "account")
    assert find_token_refresh({**pod.environ, "NETPLUG_MANAGE_CNI": "false"}, log, account_folder=folder) is None
    found = find_token_refresh({**pod.environ, "CNI_TOKEN_REFRESH_INTERVAL": "2h"}, log, account_folder=folder)
    assert found is not None
    assert found.interval_s == 7200.0
    assert log.texts == []


def test_files_that_cannot_be_looked_at_are_no_change(tmp_path: Path) -> None:
    pod = make_pod(tmp_path, "127.0.0.1", 1)
    pod.mount(token=SECRET)
    refresh = pod.refresh(Lines())
    before = refresh.find_stamps()
    assert before is not None
    (tmp_path / "account" / "..data").unlink()
    assert refresh.find_stamps() is None
