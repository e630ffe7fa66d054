"""``netplug-install`` as processes on folders of a host: killed, at once with readers, staying, and with a token."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from netplug_backends.kubernetes.client.apiclient import ApiRequest
from tests.harness.installer import RUN, InstalledHost, answer_of, make_bundle, make_host, tree_of
from tests.harness.local_stores import IS_DEEP
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import install_role, open_client
from tests.harness.servers.node_account import NAMESPACE, install_node_account
from tests.harness.waiting import EMERGENCY_STOP_S, deadline_in, wait_until

PROGRAMS = ("netplug", "netplug-ipam", "netplug-standalone", "netplug-ipam-standalone")
STEP = 1 if IS_DEEP else 3  # a run dies after every so many of its effects


@pytest.fixture
def host(tmp_path: Path) -> InstalledHost:
    return make_host(tmp_path)


def new_host(folder: Path, number: int, release: str = "1.0.0") -> InstalledHost:
    root = folder / f"host-{number}"
    root.mkdir()
    return make_host(root, release)


def assert_no_broken_node(host: InstalledHost, *releases: str) -> None:
    """Where there is a configuration it is whole, and every executable and helper plugin works."""
    if host.conflist.exists():
        assert json.loads(host.conflist.read_bytes())["name"] == "k8s-pod-network"
        assert {answer_of(host.bin_dir / name) for name in PROGRAMS} <= set(releases)
        assert (host.bin_dir / "portmap").stat().st_mode & 0o111
    assert not (host.conf_dir.exists() and [name for name in os.listdir(host.conf_dir) if name.endswith(".tmp")])


# --- killed ----------------------------------------------------------------------------------------------------------


@pytest.mark.night
def test_an_installation_that_is_killed_anywhere_is_completed_by_the_next(tmp_path: Path) -> None:
    whole = new_host(tmp_path, 0)
    whole.mount_secrets(etcd_ca="ca", etcd_cert="cert", etcd_key="key")
    assert whole.install() == 0
    number, is_killed, seen = 1 - STEP, True, set()
    while is_killed:
        number += STEP
        host = new_host(tmp_path, number)
        host.mount_secrets(etcd_ca="ca", etcd_cert="cert", etcd_key="key")
        is_killed = host.run_killed(number)
        seen.add(host.conflist.exists())
        assert_no_broken_node(host, "1.0.0")
        assert host.install() == 0
        assert tree_of(host.bin_dir, has_inodes=False) == tree_of(whole.bin_dir, has_inodes=False)
        assert tree_of(host.conf_dir, has_inodes=False) == tree_of(whole.conf_dir, has_inodes=False)
    assert number > 25
    assert seen == {False, True}


def test_an_upgrade_that_is_killed_anywhere_leaves_a_release_that_works(tmp_path: Path) -> None:
    whole = new_host(tmp_path, 0)
    assert whole.install() == 0
    make_bundle(whole.bundle, "2.0.0")
    assert whole.install() == 0
    assert whole.install() == 0
    number, is_killed = 1 - STEP, True
    while is_killed:
        number += STEP
        host = new_host(tmp_path, number)
        assert host.install() == 0
        make_bundle(host.bundle, "2.0.0")
        is_killed = host.run_killed(number, CNI_MTU="1400")
        assert host.conflist.exists()
        assert_no_broken_node(host, "1.0.0", "2.0.0")
        for _ in range(2):  # the first release stays once, for calls that have just begun
            assert host.install() == 0
        assert tree_of(host.bin_dir, has_inodes=False) == tree_of(whole.bin_dir, has_inodes=False)
        assert {answer_of(host.bin_dir / name) for name in PROGRAMS} == {"2.0.0"}
    assert number > 15


def test_a_removal_that_is_killed_anywhere_is_completed_by_the_next(tmp_path: Path) -> None:
    number, is_killed = 1 - STEP, True
    while is_killed:
        number += STEP
        host = new_host(tmp_path, number)
        host.mount_secrets(etcd_ca="ca", etcd_cert="cert", etcd_key="key")
        assert host.install() == 0
        is_killed = host.run_killed(number, "--uninstall")
        assert_no_broken_node(host, "1.0.0")
        assert host.install("--uninstall") == 0
        assert os.listdir(host.conf_dir) == []
        assert os.listdir(host.bin_dir) == ["portmap"]
    assert number > 15


# --- at once with others ---------------------------------------------------------------------------------------------


def test_46_a_reader_never_sees_a_part_of_the_configuration(host: InstalledHost) -> None:
    assert host.install() == 0
    has_ended, texts = threading.Event(), set[bytes]()

    def read() -> None:
        while not has_ended.is_set():
            texts.add(host.conflist.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(500):
        template = json.dumps({"name": "n", "type": "netplug", "mtu": number, "padding": "x" * 20_000})
        assert host.install(UPDATE_CNI_BINARIES="false", CNI_NETWORK_CONFIG=template) == 0
    has_ended.set()
    reader.join()
    assert len(texts) > 1
    assert {json.loads(text)["name"] for text in texts} <= {"n", "k8s-pod-network"}


def test_two_installers_take_turns(host: InstalledHost) -> None:
    started = [host.start() for _ in range(4)]
    assert [process.wait(EMERGENCY_STOP_S) for process in started] == [0] * 4
    expected = tree_of(host.bin_dir), tree_of(host.conf_dir)
    assert host.install() == 0
    assert (tree_of(host.bin_dir), tree_of(host.conf_dir)) == expected


def test_54_an_executable_that_runs_is_replaced_and_goes_on(host: InstalledHost) -> None:
    sleep = Path("/bin/sleep").read_bytes()
    (host.plugins / "portmap").write_bytes(sleep)
    assert host.install() == 0
    with subprocess.Popen([host.bin_dir / "portmap", "300"]) as process:
        host.add_helper("portmap", "#!/bin/sh\necho new\n")
        assert host.install() == 0
        assert process.poll() is None
        assert (host.bin_dir / "portmap").read_text().endswith("new\n")
        process.kill()


def test_52_a_folder_that_cannot_be_written_is_left_out(host: InstalledHost) -> None:
    """The folder is mounted read-only, in a mount namespace of its own."""
    secondary = host.root / "secondary"
    secondary.mkdir()
    script = f'mount --bind -o ro "{host.bin_dir}" "{host.bin_dir}" && exec "$0" "$@"'
    command = ["unshare", "-m", "sh", "-c", script, sys.executable, "-c", RUN]
    if os.geteuid() != 0:
        pytest.skip("needs root: a mount namespace")
    assert host.start(command).wait(EMERGENCY_STOP_S) == 3
    assert "one that exists and can be written is expected" in host.log.read_text()
    assert not host.conflist.exists()
    assert host.start([*command, "--bin-dir", str(secondary)]).wait(EMERGENCY_STOP_S) == 0
    assert answer_of(secondary / "netplug") == "1.0.0"
    assert os.listdir(host.bin_dir) == []


# --- staying ---------------------------------------------------------------------------------------------------------


def wait_for_line(host: InstalledHost, text: str) -> None:
    wait_until(lambda: text in host.log.read_text(), f"the line {text!r}")


def test_59_certificates_that_change_are_copied_once(host: InstalledHost) -> None:
    host.mount_secrets(etcd_ca="ca", etcd_cert="cert", etcd_key="key")
    process = host.start(SLEEP="true")
    wait_for_line(host, "netplug is installed")
    for number in range(5):
        host.mount_secrets(etcd_ca="ca", etcd_cert=f"cert-{number}", etcd_key=f"key-{number}")
    wait_until(lambda: (host.tls / "etcd-key").read_text() == "key-4", "the last key is copied")
    assert (host.tls / "etcd-cert").read_text() == "cert-4"
    assert {stat.S_IMODE(path.stat().st_mode) for path in host.tls.iterdir()} == {0o600}
    host.mount_secrets()  # all of them are gone, and the copies stay
    host.mount_secrets(etcd_ca="ca-2", etcd_cert="cert-4", etcd_key="key-4")
    wait_until(lambda: (host.tls / "etcd-ca").read_text() == "ca-2", "the new authority is copied")
    process.send_signal(signal.SIGTERM)
    assert process.wait(EMERGENCY_STOP_S) == 0
    assert host.log.read_text().count("netplug-tls/etcd-ca") == 2


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_it_stays_without_certificates_until_a_signal(host: InstalledHost, sent: signal.Signals) -> None:
    process = host.start(SLEEP="true")
    wait_for_line(host, "netplug is installed")
    assert process.poll() is None
    process.send_signal(sent)
    assert process.wait(EMERGENCY_STOP_S) == 0


# --- in a pod --------------------------------------------------------------------------------------------------------


@pytest.fixture
def pod(host: InstalledHost, api_server: ApiServer) -> InstalledHost:
    """The installer's container, with the account of the node process and the documented right."""
    install_role(api_server)
    host.account.mkdir()
    (host.account / "token").write_text(install_node_account(api_server))
    (host.account / "ca.crt").write_bytes(Path(api_server.ca_file).read_bytes())
    (host.account / "namespace").write_text(NAMESPACE)
    variables = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api_server.port)}
    return InstalledHost(host.root, variables)


@pytest.mark.apiserver
def test_in_a_pod_the_kubeconfig_gives_access(pod: InstalledHost, api_server: ApiServer) -> None:
    assert pod.install() == 0
    assert stat.S_IMODE(pod.kubeconfig.stat().st_mode) == 0o600
    client = open_client(api_server, kubeconfig=str(pod.kubeconfig))
    reply = client.send(ApiRequest("GET", f"/api/v1/namespaces/{NAMESPACE}"), deadline=deadline_in())
    client.close()
    assert reply.is_success
    before = {name: found for name, found in tree_of(pod.conf_dir).items() if name != pod.kubeconfig.name}
    assert pod.install(NETPLUG_MANAGE_CNI="false") == 0
    assert before.items() <= tree_of(pod.conf_dir).items(), "only the token is new"


@pytest.mark.apiserver
def test_without_a_token_there_is_no_configuration(pod: InstalledHost, capfd: pytest.CaptureFixture[str]) -> None:
    assert pod.install(NETPLUG_CNI_SERVICE_ACCOUNT="no-such-account") == 4
    line = capfd.readouterr().err.strip().splitlines()[-1]
    assert "[ERROR]" in line
    assert "cannot create resource" in line
    assert "serviceaccounts/no-such-account/token" in line
    assert not pod.conflist.exists()
    assert answer_of(pod.bin_dir / "netplug") == "1.0.0"
    assert pod.install() == 0
    text = pod.conflist.read_bytes()
    assert pod.install(KUBERNETES_SERVICE_PORT="1") == 4
    assert pod.conflist.read_bytes() == text, "a node that was ready stays ready"


@pytest.mark.apiserver
def test_a_new_token_of_the_pod_brings_a_new_one_of_the_plugin(pod: InstalledHost, api_server: ApiServer) -> None:
    """The account folder of a process is fixed, so it is mounted there, in a mount namespace of its own."""
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    script = f'mount -t tmpfs tmpfs /run && mkdir -p {place} && mount --bind "{pod.account}" {place} && exec "$0" "$@"'
    command = ["unshare", "-m", "sh", "-c", script, sys.executable, "-c", RUN]
    process = pod.start(command, SLEEP="true")
    wait_for_line(pod, "netplug is installed")
    first = pod.kubeconfig.read_bytes()
    token = install_node_account(api_server)
    for _ in range(5):
        (pod.account / "new").write_text(token)
        (pod.account / "new").rename(pod.account / "token")
    wait_until(lambda: pod.kubeconfig.read_bytes() != first, "the kubeconfig is written again")
    process.send_signal(signal.SIGTERM)
    assert process.wait(EMERGENCY_STOP_S) == 0
    assert pod.log.read_text().count("the plugin's token is renewed") == 2
    assert token not in pod.log.read_text()
