"""``netplugctl`` where something is wrong: one line, exit status 1, no traceback, no secret, on every store (D14)."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from netplug_backends.kubernetes.names import CrdMode
from netplug_core import __version__
from tests.harness.servers.certificates import issue_certificates
from tests.harness.servers.etcd import EtcdCluster, ServerTLS, start_etcd
from tests.harness.servers.etcd_admin import enable_users
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import install_definitions, install_role
from tests.harness.tool_user import CommandResult, ToolUser, document

SECRET = "not-to-be-seen"  # noqa: S105  # planted, to be searched for
POOL = document("IPPool", "main", "cidr: 10.68.0.0/16")
NOBODY = "127.0.0.1:1"


def complaint(folder: Path, spec: Mapping[str, object], *argv: str) -> str:
    """What the one line says that a command fails with."""
    said: CommandResult = ToolUser(folder, spec).run_command(*(argv or ("get", "pools")), stdin=POOL)
    assert said.status == 1, said
    assert said.out == ""
    assert said.err.startswith("netplugctl: ")
    assert said.err.count("\n") == 1
    assert SECRET not in said.all_output
    assert base64.b64encode(SECRET.encode()).decode() not in said.all_output
    return said.err


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"etcdEndpoints": f"http://{NOBODY}"}, marks=pytest.mark.etcd),
        {"k8sAPIEndpoint": f"https://{NOBODY}", "k8sAPIToken": SECRET},
    ],
)
def test_the_version_of_a_cluster_that_does_not_answer(tmp_path: Path, spec: Mapping[str, object]) -> None:
    """S-56: the client's part first, then what failed."""
    said = ToolUser(tmp_path, spec).run_command("version")
    assert (said.status, said.out) == (1, f"Client Version: v{__version__}\n")
    assert NOBODY in said.err
    assert said.err.count("\n") == 1
    assert SECRET not in said.err


# --- sqlite ----------------------------------------------------------------------------------------------------------


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "netplug.db"
    path.write_text(SECRET * 300)
    assert str(path) in complaint(tmp_path, {"datastoreType": "sqlite", "sqlitePath": str(path)})


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere" / "netplug.db" / "x")
    (tmp_path / "nowhere").write_text("a file")
    assert path in complaint(tmp_path, {"datastoreType": "sqlite", "sqlitePath": path})


# --- etcd ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def etcd_with_users() -> Iterator[EtcdCluster]:
    """A member with users."""
    with start_etcd() as opened:
        enable_users(opened, SECRET)
        yield opened


@pytest.mark.etcd
def test_etcd_is_not_there(tmp_path: Path) -> None:
    said = complaint(tmp_path, {"etcdEndpoints": f"http://{NOBODY}", "etcdUsername": "netplug", "etcdPassword": SECRET})
    assert NOBODY in said


@pytest.mark.etcd
@pytest.mark.parametrize(
    "spec, words",
    [
        ({"etcdEndpoints": f"http://root:{SECRET}@{NOBODY}"}, "etcd_endpoints"),
        ({"etcdEndpoints": "ftp://somewhere"}, "ftp://somewhere"),
        ({"etcdEndpoints": " , "}, "no etcd endpoints specified"),
        ({"etcdEndpoints": f"https://{NOBODY}", "etcdCACertFile": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
        ({"etcdEndpoints": f"https://{NOBODY}", "etcdKey": SECRET}, "certificate"),
        ({"etcdEndpoints": f"https://{NOBODY}", "etcdKey": SECRET, "etcdCert": SECRET}, "certificate"),
        ({"etcdEndpoints": f"https://{NOBODY}", "etcdCACert": SECRET}, "certificate"),
        ({"etcdEndpoints": f"http://u:{SECRET}@a", "etcdDiscoverySrv": "b.org"}, "multiple discovery"),
        ({"etcdPassword": [SECRET]}, "$.spec.etcdPassword"),
        ({"datastoreType": "zookeeper"}, "registered: "),
    ],
)
def test_settings_of_etcd_that_cannot_be_used(tmp_path: Path, spec: Mapping[str, object], words: str) -> None:
    assert words in complaint(tmp_path, spec)


@pytest.mark.etcd
def test_etcd_refuses_a_password_and_a_right(etcd_with_users: EtcdCluster, tmp_path: Path) -> None:
    spec = {"etcdEndpoints": etcd_with_users.endpoints[0], "etcdUsername": "netplug"}
    assert ToolUser(tmp_path, {**spec, "etcdPassword": SECRET}).run_command("create", "-f", "-", stdin=POOL).status == 0
    assert "authentication failed" in complaint(tmp_path, {**spec, "etcdPassword": f"{SECRET}!"})
    reader = {**spec, "etcdUsername": "reader", "etcdPassword": SECRET}
    assert ToolUser(tmp_path, reader).run_command("get", "pools").status == 0
    assert "permission denied" in complaint(tmp_path, reader, "delete", "pool", "main")


@pytest.mark.etcd
def test_certificates_stand_in_the_file_itself(tmp_path: Path) -> None:
    """The inline keys of 6.1, with the right papers and with those of others."""
    certificates = issue_certificates(tmp_path)
    tls = ServerTLS(
        cert_file=str(certificates.server_certificate),
        key_file=str(certificates.server_key),
        client_ca_file=str(certificates.root),
    )
    with start_etcd(tls=tls) as etcd:
        spec = {
            "etcdEndpoints": etcd.endpoints[0],
            "etcdCACert": certificates.root.read_text(),
            "etcdCert": certificates.certificate.read_text(),
            "etcdKey": certificates.key.read_text(),
        }
        assert ToolUser(tmp_path, spec).run_command("create", "-f", "-", stdin=POOL).status == 0
        others = {"etcdCert": certificates.other_certificate.read_text(), "etcdKey": certificates.other_key.read_text()}
        for change in (others, {"etcdCACert": certificates.other_root.read_text()}):
            assert "certificate" in complaint(tmp_path, {**spec, **change})
        assert "belong together" in complaint(tmp_path, {**spec, "etcdKey": certificates.other_key.read_text()})


# --- Kubernetes ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=list(CrdMode), ids=lambda mode: mode.name)
def mode(request: pytest.FixtureRequest, api_server: ApiServer) -> CrdMode:
    """A group whose definitions are installed."""
    found: CrdMode = request.param
    install_definitions(api_server, found)
    return found


def kubeconfig(server: str, **user: object) -> dict[str, object]:
    cluster = {"server": server, "insecure-skip-tls-verify": True}
    return {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
    }


@pytest.mark.parametrize(
    "text, words",
    [
        (f"users: [{SECRET}", "YAML is expected"),
        (f'"{SECRET}"', "a kubeconfig is expected"),
        ("{}", "current-context"),
        (json.dumps(kubeconfig(f"https://{NOBODY}", password=SECRET)), "password"),
        (json.dumps(kubeconfig(f"https://{NOBODY}", **{"client-key-data": f"{SECRET}!"})), "base64"),
        (json.dumps(kubeconfig(f"https://{NOBODY}", token=SECRET)), NOBODY),
    ],
)
def test_a_kubeconfig_that_leads_nowhere(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    said = complaint(tmp_path, {"kubeconfig": str(path), "netplugAPIGroup": CrdMode.V1.value})
    assert words in said


@pytest.mark.parametrize(
    "spec, words",
    [
        (
            {"kubeconfig": "/nowhere/kubeconfig"},
            "kubeconfig: no such file: '/nowhere/kubeconfig'; name a file that exists",
        ),
        ({"k8sAPIEndpoint": f"https://{NOBODY}", "k8sAPIToken": SECRET, "k8sCAFile": "/nowhere/ca"}, "/nowhere/ca"),
        ({"k8sAPIEndpoint": f"https://{NOBODY}", "netplugAPIGroup": "example.org"}, "netplug_api_group"),
        ({"datastoreType": "kubernetes", "k8sAPIToken": 7}, "$.spec.k8sAPIToken"),
        ({"kubeconfigInline": [SECRET]}, "$.spec.kubeconfigInline"),
    ],
)
def test_settings_of_kubernetes_that_cannot_be_used(tmp_path: Path, spec: Mapping[str, object], words: str) -> None:
    assert words in complaint(tmp_path, spec)


@pytest.mark.apiserver
def test_an_api_server_refuses_a_token_and_a_right(api_server: ApiServer, mode: CrdMode, tmp_path: Path) -> None:
    group = {"netplugAPIGroup": mode.value}
    wrong = api_server.write_kubeconfig(SECRET, name="wrong")
    assert "Unauthorized" in complaint(tmp_path, {**group, "kubeconfig": wrong})
    # The plugin's account may read pools, and nothing that a person does.
    token = install_role(api_server)
    spec = {**group, "k8sAPIEndpoint": api_server.url, "k8sAPIToken": token, "k8sCAFile": api_server.ca_file}
    assert ToolUser(tmp_path, spec).run_command("get", "pools").status == 0
    said = ToolUser(tmp_path, spec).run_command(
        "create", "-f", "-", stdin=document("IPPool", "mine", "cidr: 10.99.0.0/16")
    )
    assert (said.status, said.out) == (1, "")
    assert "forbidden" in said.err
    assert token not in said.all_output


@pytest.mark.apiserver
def test_a_kubeconfig_stands_in_the_file_itself(api_server: ApiServer, mode: CrdMode, tmp_path: Path) -> None:
    """The inline kubeconfig of 6.1."""
    group = {"netplugAPIGroup": mode.value}
    text = Path(api_server.write_kubeconfig(name="inlined")).read_text()
    assert ToolUser(tmp_path, {**group, "kubeconfigInline": text}).run_command("get", "pools").status == 0
    wrong = Path(api_server.write_kubeconfig(SECRET, name="wrong")).read_text()
    for words, inline in (("Unauthorized", wrong), ("kubeconfig", f"users: [{SECRET}"), ("current-context", "{}")):
        assert words in complaint(tmp_path, {**group, "kubeconfigInline": inline})


@pytest.mark.apiserver
def test_a_context_is_chosen(api_server: ApiServer, mode: CrdMode, tmp_path: Path) -> None:
    path = Path(api_server.write_kubeconfig(name="contexts"))
    found = json.loads(path.read_text())
    found["contexts"].append({"name": "other", "context": {"cluster": "test", "user": "nobody"}})
    path.write_text(json.dumps(found))
    spec = {"kubeconfig": str(path), "netplugAPIGroup": mode.value}
    assert ToolUser(tmp_path, spec).run_command("get", "pools", "--context", "test").status == 0
    assert "'nobody'" in complaint(tmp_path, spec, "--context", "other", "get", "pools")
    assert "'third'" in complaint(tmp_path, spec, "get", "pools", "--context=third")


# --- rights and space ------------------------------------------------------------------------------------------------

NOBODY_UID = 65534


def run_tool(environ: Mapping[str, str], *argv: str, uid: int = 0, stdout: str = os.devnull) -> tuple[int, str]:
    """The exit status of a process of the tool, and its standard error."""
    # The user may read the interpreter: a virtual environment below /root would be out of reach.
    code = (
        f"import os, sys; os.setgroups([]); os.setgid({uid}); os.setuid({uid}); sys.argv[1:] = {list(argv)!r}; main()"
    )
    script = f"from netplug_cli.wiring.ctl import main, make_session; import netplug_cli.ctl.main\n{LOADED}\n{code}"
    with open(stdout, "w", encoding="utf-8") as out:
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=dict(environ),
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    return done.returncode, done.stderr


LOADED = "make_session(); import netplug_cli.ctl.commands.get, netplug_cli.ctl.commands.install"


@pytest.fixture
def sqlite_store() -> Iterator[dict[str, str]]:
    """A store of root in a folder that everybody may enter, as those of pytest are not."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        user = ToolUser(folder, {"datastoreType": "sqlite", "sqlitePath": str(folder / "netplug.db")})
        assert user.run_command("create", "-f", "-", stdin=POOL).status == 0
        yield {"DATASTORE_TYPE": "sqlite", "SQLITE_PATH": str(folder / "netplug.db")}


def test_a_sqlite_store_of_root_says_to_another_user_who_may_read_it(sqlite_store: dict[str, str]) -> None:
    path = sqlite_store["SQLITE_PATH"]
    status, said = run_tool(sqlite_store, "get", "ippools", uid=NOBODY_UID)
    advice = f"the user {NOBODY_UID} may not read and write {path}; run it as root or as its owner"
    assert (status, said) == (1, f"netplugctl: sqlite store {path}: {advice}\n")


def test_a_full_disk_under_the_output_is_one_sentence(sqlite_store: dict[str, str]) -> None:
    said = (1, "netplugctl: the output cannot be written: No space left on device\n")
    assert run_tool(sqlite_store, "get", "ippools", stdout="/dev/full") == said


def test_only_root_installs_on_a_host(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    status, said = run_tool({}, "install", "host", "--bin-dir", str(tmp_path), uid=NOBODY_UID)
    assert status == 1
    assert said.startswith(f"netplugctl: installing user: {NOBODY_UID} is not accepted; runtimes run")
    assert "run it as root (sudo), or use --trust-environment" in said
    assert list(tmp_path.iterdir()) == []
