"""``netplug-install`` on folders of a test; numbers are those of install-and-upgrade.md, section 21."""

import fcntl
import json
import os
import stat
from pathlib import Path

import pytest

from netplug_core.installation.bundle import MANIFEST
from tests.harness.installer import InstalledHost, answer_of, make_bundle, make_host, tree_of
from tests.harness.umask import UMASKS, modes_below, under_umask

PROGRAMS = ("netplug", "netplug-ipam", "netplug-standalone", "netplug-ipam-standalone")


@pytest.fixture
def host(tmp_path: Path) -> InstalledHost:
    return make_host(tmp_path)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def last_line(capfd: pytest.CaptureFixture[str]) -> str:
    return capfd.readouterr().err.strip().splitlines()[-1].partition("install: ")[2]


@pytest.mark.parametrize("umask", UMASKS)
def test_44_an_empty_host(host: InstalledHost, umask: int) -> None:
    with under_umask(umask):
        assert host.install() == 0
    assert {answer_of(host.bin_dir / name) for name in PROGRAMS} == {"1.0.0"}
    assert {mode_of(host.bin_dir / name) for name in (*PROGRAMS, "portmap")} == {0o755}
    assert mode_of(host.conflist) == 0o600
    assert os.listdir(host.conf_dir) == ["10-netplug.conflist"]
    plugin = json.loads(host.conflist.read_text())["plugins"][0]
    assert (plugin["nodename"], plugin["kubernetes"]) == (
        "node-1",
        {"kubeconfig": "/etc/cni/net.d/netplug-kubeconfig"},
    )
    modes = modes_below(host.bin_dir)
    assert {mode for path, mode in modes.items() if not (host.bin_dir / path).is_symlink()} <= {0o755, 0o644}


def test_a_second_run_changes_nothing(host: InstalledHost) -> None:
    host.mount_secrets(etcd_ca="ca", etcd_cert="cert", etcd_key="key")
    assert host.install() == 0
    before = tree_of(host.bin_dir), tree_of(host.conf_dir)
    assert host.install() == 0
    assert (tree_of(host.bin_dir), tree_of(host.conf_dir)) == before


def test_45_the_mode_of_a_file_that_exists(host: InstalledHost) -> None:
    assert host.install() == 0
    host.conflist.chmod(0o644)
    assert host.install() == 0
    assert mode_of(host.conflist) == 0o600
    assert host.install(TEST_FILE_PERMISSION="0640") == 0
    assert mode_of(host.conflist) == 0o640


@pytest.mark.parametrize(
    "variables, line",
    [
        ({"CNI_NETWORK_CONFIG": '{"a": '}, "CNI_NETWORK_CONFIG: '…' is not accepted; JSON is expected"),
        ({"CNI_MTU": "abc"}, "CNI_MTU: 'abc' is not accepted; the built-in template uses it as a number"),
        ({"SLEEP": "no"}, "SLEEP: 'no' is not accepted; true or false is expected"),
        ({"CNI_NETWORK_CONFIG_FILE": "/not/there"}, "CNI_NETWORK_CONFIG_FILE: '/not/there' is not accepted; it does"),
        ({"CNI_NETWORK_CONFIG_FILE": "/dev/null/x"}, "/dev/null/x"),
    ],
)
def test_47_49_a_wrong_setting_touches_nothing(
    host: InstalledHost, capfd: pytest.CaptureFixture[str], variables: dict[str, str], line: str
) -> None:
    assert host.install(**variables) == 2
    assert line in last_line(capfd)
    assert not host.conf_dir.exists()
    assert os.listdir(host.bin_dir) == []
    assert host.install("--uninstall", SLEEP="no") == 2


def test_a_template_in_a_file_is_used_first(host: InstalledHost, capfd: pytest.CaptureFixture[str]) -> None:
    template = host.root / "template"
    template.write_text('{"name": "n", "type": "netplug", "a": "new"}')
    assert host.install(CNI_NETWORK_CONFIG_FILE=str(template), CNI_NETWORK_CONFIG="{") == 0
    assert host.conflist.read_text() == template.read_text()
    template.write_text("")
    assert host.install(CNI_NETWORK_CONFIG_FILE=str(template)) == 2
    assert "it is empty" in last_line(capfd)


@pytest.mark.parametrize("left", ["__KUBERNETES_NODE_NAM__", "${HOSTNAME}"])
def test_a_template_with_a_placeholder_left_is_not_installed(
    host: InstalledHost, capfd: pytest.CaptureFixture[str], left: str
) -> None:
    template = json.dumps({"name": "n", "type": "netplug", "nodename": left})
    assert host.install(CNI_NETWORK_CONFIG=template) == 2
    assert f"CNI_NETWORK_CONFIG: '{left}' is not accepted; it has no value" in last_line(capfd)
    assert not host.conf_dir.exists()


def test_51_another_name(host: InstalledHost, capfd: pytest.CaptureFixture[str]) -> None:
    host.conf_dir.mkdir()
    (host.conf_dir / "05-other.conflist").write_text('{"type": "bridge"}')
    assert host.install() == 0
    assert "05-other.conflist comes before 10-netplug.conflist" in capfd.readouterr().err
    assert host.install(CNI_CONF_NAME="20-netplug.conflist") == 0
    assert sorted(os.listdir(host.conf_dir)) == ["05-other.conflist", "20-netplug.conflist"]


def test_a_configuration_of_others_is_never_touched(host: InstalledHost, capfd: pytest.CaptureFixture[str]) -> None:
    host.conf_dir.mkdir()
    host.conflist.write_text('{"type": "bridge"}')
    before = tree_of(host.conf_dir)
    assert host.install() == 2
    assert "it has no plugin of netplug, so it is not replaced" in last_line(capfd)
    assert os.listdir(host.bin_dir) == []
    assert host.install(CNI_CONF_NAME="20-netplug.conflist") == 0
    assert host.install("--uninstall", CNI_CONF_NAME="20-netplug.conflist") == 0
    assert tree_of(host.conf_dir) == before


def test_no_folder_that_can_be_written(host: InstalledHost, capfd: pytest.CaptureFixture[str]) -> None:
    host.bin_dir.rmdir()
    assert host.install() == 3
    assert last_line(capfd).startswith("folders for plugins: ")
    assert os.listdir(host.conf_dir) == []


def test_every_folder_for_plugins_gets_the_programs(host: InstalledHost) -> None:
    (host.root / "secondary").mkdir()
    assert host.install("--bin-dir", str(host.root / "secondary"), SKIP_CNI_BINARIES="portmap,netplug") == 0
    expected = {".netplug", *PROGRAMS}
    assert set(os.listdir(host.bin_dir)) == set(os.listdir(host.root / "secondary")) == expected


def test_existing_programs_can_be_kept(host: InstalledHost) -> None:
    assert host.install() == 0
    make_bundle(host.bundle, "2.0.0")
    host.add_helper("portmap", "#!/bin/sh\n# new\n")
    host.add_helper("tuning")
    before = tree_of(host.bin_dir)
    assert host.install(UPDATE_CNI_BINARIES="false") == 0
    after = tree_of(host.bin_dir)
    assert before.items() <= after.items()
    assert set(after) - set(before) == {"tuning"}
    assert host.install() == 0
    assert answer_of(host.bin_dir / "netplug") == "2.0.0"


def test_55_a_bundle_that_is_there_is_not_copied_again_and_a_damaged_one_is(host: InstalledHost) -> None:
    assert host.install() == 0
    folder = host.bin_dir / ".netplug"
    first = os.readlink(folder / "current")
    (folder / first / "lib" / "data").write_text("damaged")
    assert host.install() == 0
    assert os.readlink(folder / "current") == f"{first}.2"
    (folder / f"{first}.2" / "launch").chmod(0o644)
    assert host.install() == 0
    assert answer_of(host.bin_dir / "netplug-standalone") == "1.0.0"
    before = os.readlink(folder / "current")
    assert host.install() == 0
    assert os.readlink(folder / "current") == before == f"{first}.3"
    assert sorted(os.listdir(folder)) == sorted([os.readlink(folder / "current"), "current"])


def test_the_bundle_of_before_stays_until_the_next_run_and_while_it_is_used(host: InstalledHost) -> None:
    assert host.install() == 0
    folder = host.bin_dir / ".netplug"
    first = os.readlink(folder / "current")
    make_bundle(host.bundle, "2.0.0")
    assert host.install() == 0
    assert first in os.listdir(folder)
    with (folder / first / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert host.install() == 0
        assert first in os.listdir(folder)
        assert host.install("--uninstall") == 5
        assert os.listdir(folder) == [first]
    assert host.install("--uninstall") == 0
    assert os.listdir(host.bin_dir) == ["portmap"]


@pytest.mark.parametrize("name", ["client", "launch"])
def test_a_bundle_that_does_not_run_is_never_used(
    host: InstalledHost, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    assert host.install() == 0
    before = tree_of(host.conf_dir)
    make_bundle(host.bundle, "2.0.0", **{name: "#!/bin/sh\necho no >&2\nexit 1\n"})
    assert host.install(CNI_MTU="1") == 5
    assert last_line(capfd).endswith(f"/{name}: it does not run: no")
    assert {answer_of(host.bin_dir / name) for name in PROGRAMS} == {"1.0.0"}
    assert tree_of(host.conf_dir) == before


def test_an_image_that_is_damaged_is_refused(host: InstalledHost, capfd: pytest.CaptureFixture[str]) -> None:
    (host.bundle / "lib" / "data").write_text("other")
    assert host.install() == 5
    assert last_line(capfd).endswith("/lib/data: it differs from the manifest; the image is damaged")
    (host.bundle / MANIFEST).write_text("{}")
    assert host.install() == 2
    (host.bundle / MANIFEST).unlink()
    assert host.install() == 2
    assert not host.conflist.exists()


def test_56_other_files_are_no_certificates(host: InstalledHost) -> None:
    host.mount_secrets(_hidden="x")
    assert host.install() == 0
    assert os.listdir(host.conf_dir) == ["10-netplug.conflist"]


def test_57_one_certificate(host: InstalledHost, capfd: pytest.CaptureFixture[str]) -> None:
    host.mount_secrets(etcd_cert="cert")
    text = '{"type": "netplug", "a": ["__ETCD_CA_CERT_FILE__", "__ETCD_CERT_FILE__", "__ETCD_KEY_FILE__"]}'
    assert host.install(CNI_NETWORK_CONFIG=text) == 0
    assert json.loads(host.conflist.read_text())["a"] == ["", "/etc/cni/net.d/netplug-tls/etcd-cert", ""]
    assert os.listdir(host.tls) == ["etcd-cert"]
    assert (mode_of(host.tls), mode_of(host.tls / "etcd-cert")) == (0o700, 0o600)
    assert capfd.readouterr().err.count("is missing, although another of the three files is there") == 2


def test_a_certificate_that_is_no_longer_mounted_goes(host: InstalledHost) -> None:
    host.mount_secrets(etcd_cert="cert", etcd_key="key")
    assert host.install() == 0
    (host.secrets / "etcd-key").unlink()
    assert host.install() == 0
    assert os.listdir(host.tls) == ["etcd-cert"]


def test_everything_of_ours_is_removed_and_nothing_else(host: InstalledHost) -> None:
    host.mount_secrets(etcd_cert="cert")
    assert host.install() == 0
    host.kubeconfig.write_text("{}")
    (host.tls / "other").write_text("")
    (host.bin_dir / ".netplug.new").write_text("left by a process that died")
    assert host.install("--uninstall") == 0
    assert os.listdir(host.conf_dir) == ["netplug-tls"]
    assert os.listdir(host.tls) == ["other"]
    assert os.listdir(host.bin_dir) == ["portmap"]
    assert host.install("--uninstall") == 0


def test_the_executables_of_an_environment(
    host: InstalledHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.pycache_prefix", str(tmp_path / "bytecode"))
    assert host.install() == 0
    assert host.install("--environment", "--trust-environment") == 0
    assert sorted(os.listdir(host.bin_dir)) in (["netplug", "netplug-ipam", "portmap"], sorted([*PROGRAMS, "portmap"]))
    before = tree_of(host.bin_dir)
    assert host.install("--environment", "--trust-environment") == 0
    assert tree_of(host.bin_dir) == before
