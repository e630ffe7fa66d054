"""Credential programs: their input, their output, and that none outlives a call."""

import base64
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from attrs import evolve

from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import tls_context
from netplug_backends.kubernetes.client.credentials import Pem
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.settings.model import KubernetesAccess
from netplug_core.testing.clock import ManualClock
from tests.harness.kubeconfigs import (
    CLUSTER,
    SECRET,
    access,
    error_of,
    kubeconfig,
    program,
    refusal,
    soon,
    source_of,
)
from tests.harness.waiting import MARGIN_S, is_eventually

TOKEN = f"""echo '%s, "status": {{"token": "{SECRET}"}}}}'"""
PAIR = """echo '%s, "status": {"clientCertificateData": "CERTIFICATE", "clientKeyData": "KEY"}}'"""


def lives(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def exec_info(folder: Path, cluster: dict[str, object], **more: object) -> dict[str, object]:
    """The ``KUBERNETES_EXEC_INFO`` that a program gets."""
    script = f"printenv KUBERNETES_EXEC_INFO >'{folder}/exec-info'\n{TOKEN}"
    access(kubeconfig(folder, program(folder, script, **more), cluster))
    found: dict[str, object] = json.loads((folder / "exec-info").read_text())
    return found


def test_a_program_may_give_a_token(tmp_path: Path) -> None:
    """A path with a folder is relative to the kubeconfig, not to the working folder."""
    assert access(kubeconfig(tmp_path, program(tmp_path, TOKEN))).token == SECRET


def test_a_program_without_a_folder_is_found_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    path = kubeconfig(tmp_path, program(tmp_path, TOKEN, command="login"))
    assert access(path).token == SECRET


def test_a_certificate_and_its_key_are_not_written_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin's executables exit at once, so nothing would remove a file."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    cluster = {"server": "https://api", "certificate-authority-data": base64.b64encode(b"AUTHORITY").decode()}
    found = access(kubeconfig(tmp_path, program(tmp_path, PAIR), cluster))
    assert (found.certificate, found.key) == (Pem(data=b"CERTIFICATE"), Pem(data=b"KEY"))
    assert found.certificate_authority == Pem(data=b"AUTHORITY")
    assert found.token == ""
    assert "KEY" not in repr(found)
    assert list(folder.iterdir()) == []


def test_a_program_gets_the_version_and_on_request_the_cluster(tmp_path: Path) -> None:
    plain = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    (tmp_path / "ca.pem").write_text("AUTHORITY")
    assert exec_info(tmp_path, CLUSTER) == plain
    assert exec_info(tmp_path, CLUSTER, provideClusterInfo=False) == plain
    known = exec_info(tmp_path, CLUSTER, provideClusterInfo=True)["spec"]
    authority = base64.b64encode(b"AUTHORITY").decode()
    cluster = {"server": "https://api:6443", "certificate-authority-data": authority}
    assert known == {"interactive": False, "cluster": cluster}
    config = {"audience": "us", "since": date(2026, 1, 1)}
    extensions = [
        {"name": "of-others", "extension": {"x": 1}},
        {"name": "client.authentication.k8s.io/exec", "extension": config},
    ]
    more = {
        "server": "https://api",
        "tls-server-name": "kubernetes",
        "insecure-skip-tls-verify": True,
        "extensions": extensions,
    }
    known = exec_info(tmp_path, more, provideClusterInfo=True)["spec"]
    cluster_of_it = {
        "server": "https://api",
        "tls-server-name": "kubernetes",
        "insecure-skip-tls-verify": True,
        "config": {"audience": "us", "since": "2026-01-01"},
    }
    assert known == {"interactive": False, "cluster": cluster_of_it}


@pytest.fixture
def configuration() -> Iterator[None]:
    """A standard input with data, like the plugin's."""
    before, (reading, writing) = os.dup(0), os.pipe()
    os.write(writing, b"the network configuration")
    os.dup2(reading, 0)
    for number in (reading, writing):
        os.close(number)
    yield
    os.dup2(before, 0)
    os.close(before)


def test_a_program_has_its_arguments_its_variables_and_no_input(tmp_path: Path, configuration: None) -> None:
    script = f'[ "$1 $2 $A $HOME $(cat)" = "get token b $3 " ] || exit 9\n{TOKEN}'
    arguments = ["get", "token", os.environ.get("HOME", "")]
    user = program(tmp_path, script, args=arguments, env=[{"name": "A", "value": "b"}])
    assert access(kubeconfig(tmp_path, user)).token == SECRET


def test_a_token_wins_over_a_program(tmp_path: Path) -> None:
    """As with ``kubectl``."""
    user = program(tmp_path, "exit 3") | {"token": SECRET}
    assert access(kubeconfig(tmp_path, user)).token == SECRET


def test_d14_a_program_that_hangs_ends_at_the_deadline_with_all_that_it_started(tmp_path: Path) -> None:
    script = f"echo '{SECRET}' >&2\nsleep 60 &\necho $$ $! >'{tmp_path}/pids'\nwait"
    path = kubeconfig(tmp_path, program(tmp_path, script))
    began = time.monotonic()
    error = error_of(path, deadline=soon(0.5))
    assert time.monotonic() - began < 0.5 + MARGIN_S
    assert isinstance(error, Unavailable)
    text = f"{path} users[u].exec: the program {tmp_path}/login: it gave no credentials within"
    assert str(error) in {f"{text} {left} s" for left in (0.5, 0.4, 0.3, 0.2, 0.1)}, "what is left of the time"
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert is_eventually(lambda: [lives(pid) for pid in pids] == [False, False])


def test_d14_a_child_that_keeps_the_output_open_is_killed_too(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, program(tmp_path, f"sleep 60 &\necho $! >'{tmp_path}/pids'\n{TOKEN}"))
    assert isinstance(error_of(path, deadline=soon(0.5)), Unavailable)
    assert is_eventually(lambda: not lives(int((tmp_path / "pids").read_text())))


class _Stop(Exception):
    """An error that a signal handler may raise anywhere."""


def test_an_interrupted_call_leaves_no_program_behind(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, program(tmp_path, f"echo $$ >'{tmp_path}/pids'\nexec sleep 60"))

    def stop(*_: object) -> None:
        raise _Stop

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(_Stop):
            access(path)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not lives(int((tmp_path / "pids").read_text()))


def test_the_output_of_a_failed_program_is_not_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = kubeconfig(tmp_path, program(tmp_path, f"echo '{SECRET}' >&2\necho '{SECRET}'\nexit 3"))
    assert refusal(path) == (
        f"{path} users[u].exec: './login' is not accepted; "
        "the program gives no credentials: it ended with 3, and what it said is not shown"
    )
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "more,problem",
    [
        ({"apiVersion": ""}, ".apiVersion: '' is not accepted; client.authentication.k8s.io/v1 or "),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "/v1alpha1' is not accepted; "),
        ({"interactiveMode": "Always"}, ".interactiveMode: 'Always' is not accepted; nobody is there to be asked"),
        ({"command": ""}, ".command: '' is not accepted; it cannot be run: "),
        ({"command": "./nothing"}, "/nothing' is not accepted; it cannot be run: No such file or directory"),
        ({"command": "./kubeconfig"}, "/kubeconfig' is not accepted; it cannot be run: Permission denied"),
        ({"args": SECRET}, ".args: 'a text' is not accepted; a list is expected"),
        ({"args": ["a", {SECRET: 1}]}, ".args[1]: 'a mapping' is not accepted; a text is expected"),
        ({"args": ["\0"]}, "it cannot be run: embedded null byte"),
        ({"env": [SECRET]}, ".env[0]: 'a text' is not accepted; a mapping is expected"),
        ({"env": [{"name": 1, "value": SECRET}]}, ".env[0].name: 'a number' is not accepted; a text is expected"),
    ],
)
def test_a_program_that_cannot_be_run_is_refused(tmp_path: Path, more: dict[str, object], problem: str) -> None:
    text = refusal(kubeconfig(tmp_path, program(tmp_path, TOKEN, **more)))
    assert text.startswith(f"{tmp_path}/kubeconfig users[u].exec")
    assert problem in text


def test_an_invalid_program_and_one_beside_a_provider_are_refused(tmp_path: Path) -> None:
    assert "users[u].exec: 'a text' is not accepted; a mapping is" in refusal(kubeconfig(tmp_path, {"exec": "login"}))
    both = program(tmp_path, TOKEN) | {"auth-provider": {"name": "oidc"}}
    assert "users[u].auth-provider: '…' is not accepted; it is not supported" in refusal(kubeconfig(tmp_path, both))


EXPECTED = "(its answer).status: '…' is not accepted; a token, or clientCertificateData and clientKeyData, are expected"


@pytest.mark.parametrize(
    "answer,problem",
    [
        (SECRET, "what it said is no ExecCredential of client.authentication.k8s.io/v1"),
        pytest.param("[" * 100_000, "what it said is no ExecCredential of ", id="deep"),
        (f'["{SECRET}"]', "what it said is no ExecCredential of client.authentication.k8s.io/v1"),
        (f'{{"kind": "ExecCredential", "apiVersion": "{SECRET}"}}', "what it said is no ExecCredential of "),
        ("%s}", "(its answer).status: '' is not accepted; a mapping is expected"),
        ('%s, "status": {}}', EXPECTED),
        (f'%s, "status": {{"clientKeyData": "{SECRET}"}}}}', EXPECTED),
        (f'%s, "status": {{"token": "t", "clientKeyData": "{SECRET}"}}}}', EXPECTED),
        ('%s, "status": {"clientCertificateData": "C"}}', EXPECTED),
        (f'%s, "status": {{"token": ["{SECRET}"]}}}}', ".status.token: 'a list' is not accepted; a text is expected"),
        (f'%s, "status": {{"token": "{SECRET}\\n"}}}}', "the token of "),
        ('%s, "status": {"token": "t", "expirationTimestamp": "soon"}}', "expirationTimestamp: 'soon' is not accepted"),
    ],
)
def test_an_answer_without_credentials_is_refused(tmp_path: Path, answer: str, problem: str) -> None:
    assert problem in refusal(kubeconfig(tmp_path, program(tmp_path, f"cat <<'END'\n{answer}\nEND")))


def test_expired_credentials_are_fetched_again(tmp_path: Path) -> None:
    """With an expired certificate, a server closes the connection and sends no 401."""
    clock = ManualClock()
    end = datetime.fromtimestamp(clock.now_ns() / 1e9, UTC) + timedelta(seconds=60)
    status = f'%s, "status": {{"token": "\'$(date +%N)\'", "expirationTimestamp": "{end:%Y-%m-%dT%H:%M:%SZ}"}}}}'
    path = kubeconfig(tmp_path, program(tmp_path, f"echo '{status}'"))
    source, deadline = source_of(path), Deadline.after(clock, 600)
    first = source.current(deadline=deadline)
    assert first.expires_ns == clock.now_ns() + 60_000_000_000
    clock.sleep(59)
    assert source.current(deadline=deadline) is first
    clock.sleep(1)
    assert source.current(deadline=deadline).token != first.token
    (tmp_path / "login").unlink()
    with pytest.raises(ConfigurationError, match="it cannot be run"):
        source.current(deadline=deadline)


def test_a_program_runs_once_for_all_waiting_threads(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, program(tmp_path, f"echo >>'{tmp_path}/runs'\nsleep 0.3\n{TOKEN}"))
    source = source_of(path)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: source.current(deadline=soon()), range(8)))
    assert all(access is found[0] for access in found)
    assert (tmp_path / "runs").read_text() == "\n"


def test_d14_a_wait_for_another_threads_program_ends_at_the_deadline(tmp_path: Path) -> None:
    source = source_of(kubeconfig(tmp_path, program(tmp_path, f"touch '{tmp_path}/runs'\nsleep 1\n{TOKEN}")))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: source.current(deadline=soon()))
        while not (tmp_path / "runs").exists():
            time.sleep(0.01)
        began = time.monotonic()
        with pytest.raises(Unavailable, match="kubeconfig: another call is still waiting for credentials"):
            source.current(deadline=soon(0.2))
        assert time.monotonic() - began < 0.2 + MARGIN_S
        assert first.result().token == SECRET


def test_the_server_is_known_without_running_the_program(tmp_path: Path) -> None:
    assert source_of(kubeconfig(tmp_path, program(tmp_path, "exit 3"))).server == "https://api:6443"


def test_a_value_that_json_does_not_have_is_refused(tmp_path: Path) -> None:
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"data": {"of", "a", "set"}}}
    user = program(tmp_path, TOKEN, provideClusterInfo=True)
    path = kubeconfig(tmp_path, user, {"server": "https://api", "extensions": [extension]})
    expected = f"{path} clusters[c].extensions: '…' is not accepted; what JSON can say is expected"
    assert refusal(path) == expected


def test_a_certificate_that_is_not_ascii_is_refused(tmp_path: Path) -> None:
    pair = r'"clientCertificateData": "\\ud800", "clientKeyData": "\\ud800"'
    found = access(kubeconfig(tmp_path, program(tmp_path, f"echo '%s, \"status\": {{{pair}}}}}'")))
    with pytest.raises(ConfigurationError, match="a certificate and its key in PEM are expected"):
        tls_context(evolve(found, certificate_authority=Pem()))


def test_a_program_of_an_inline_kubeconfig_has_its_own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An inline kubeconfig has no folder, and PATH is used only for names without a folder."""
    user = program(tmp_path, TOKEN)
    elsewhere = tmp_path / "bin"
    elsewhere.mkdir()
    (elsewhere / "login").write_text("#!/bin/sh\nexit 3\n")
    (elsewhere / "login").chmod(0o700)
    monkeypatch.setenv("PATH", f"{elsewhere}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    text = kubeconfig(tmp_path, user, {"server": "https://api"}).read_text()
    source = AccessSource(KubernetesAccess(kubeconfig_inline=text), {})
    assert source.current(deadline=soon()).token == SECRET
