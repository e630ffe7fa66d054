"""The node process on a host: its program and units, what comes next, and that all of it can be removed."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netplug_backends.host import services
from netplug_backends.host.services import (
    BIRD_SERVICE,
    PROGRAM,
    SERVICE,
    SOCKET,
    UNITS,
    install_node,
    uninstall_node,
)
from netplug_core.errors import ConfigurationError, Unavailable
from tests.harness.waiting import EMERGENCY_STOP_S

NEXT = (
    "systemctl daemon-reload; systemctl enable netplug-node.socket netplug-node.service; "
    "systemctl restart netplug-node.service"
)


@pytest.fixture(autouse=True)
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A bytecode cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "pycache_prefix", str(tmp_path_factory.mktemp("bytecode")))
        yield


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    return tmp_path / "bin"


@pytest.fixture
def unit_dir(tmp_path: Path) -> Path:
    return tmp_path / "units"


@pytest.fixture
def running_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host on which systemd runs."""
    monkeypatch.setattr(services, "_RUNNING_SYSTEMD", str(tmp_path))


def test_program_and_units_are_written_and_the_rest_is_said(bin_dir: Path, unit_dir: Path) -> None:
    reports: list[str] = []
    install_node(str(bin_dir), str(unit_dir), reports.append)
    files = [bin_dir / PROGRAM, *(unit_dir / name for name in UNITS)]
    assert reports[:-1] == [f"installed {file}" for file in files]
    assert reports[-1].removeprefix("next: ").removeprefix("systemd does not run here; where it does: ") == NEXT
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o755, 0o644, 0o644, 0o644]
    assert sorted(os.listdir(unit_dir)) == sorted(UNITS)
    service = (unit_dir / SERVICE).read_text()
    assert service.startswith("# Written by `netplugctl install host --node`")
    assert f"ExecStart={bin_dir}/{PROGRAM} $NETPLUG_NODE_OPTIONS\n" in service
    ran = subprocess.run(
        [bin_dir / PROGRAM, "--workers", "none"], capture_output=True, text=True, timeout=EMERGENCY_STOP_S, check=False
    )
    assert ran.returncode == 2
    assert "netplug-node: error: argument --workers: 'none' is not accepted" in ran.stderr


@pytest.mark.usefixtures("running_systemd")
def test_where_systemd_runs_the_next_commands_follow_at_once(bin_dir: Path, unit_dir: Path) -> None:
    reports: list[str] = []
    install_node(str(bin_dir), str(unit_dir), reports.append)
    assert reports[-1] == f"next: {NEXT}"
    uninstall_node(str(bin_dir), str(unit_dir), reports.append)
    assert reports[-1] == f"next: systemctl stop {SOCKET} {SERVICE}; systemctl daemon-reload"


def test_where_systemd_does_not_run_that_is_said(
    bin_dir: Path, unit_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "_RUNNING_SYSTEMD", "/nowhere")
    reports: list[str] = []
    install_node(str(bin_dir), str(unit_dir), reports.append)
    assert reports[-1] == f"systemd does not run here; where it does: {NEXT}"
    uninstall_node(str(bin_dir), str(unit_dir), reports.append)
    assert reports[-1] == f"removed {unit_dir / BIRD_SERVICE}"


def test_it_may_be_repeated(bin_dir: Path, unit_dir: Path) -> None:
    install_node(str(bin_dir), str(unit_dir), lambda _line: None)
    (unit_dir / SERVICE).write_text((unit_dir / SERVICE).read_text() + "# of an earlier release\n")
    install_node(str(bin_dir), str(unit_dir), lambda _line: None)
    assert "# of an earlier release" not in (unit_dir / SERVICE).read_text()


def test_a_unit_of_another_origin_is_not_replaced(bin_dir: Path, unit_dir: Path) -> None:
    unit_dir.mkdir()
    (unit_dir / SERVICE).write_text("[Service]\nExecStart=/my/own\n")
    with pytest.raises(ConfigurationError) as refusal:
        install_node(str(bin_dir), str(unit_dir), print)
    assert str(refusal.value) == (
        f"unit: '{unit_dir / SERVICE}' is not accepted; it was not written by netplugctl; remove it first"
    )
    assert not bin_dir.exists()
    assert os.listdir(unit_dir) == [SERVICE]


def test_everything_is_removed_with_the_links_that_enable_it(bin_dir: Path, unit_dir: Path) -> None:
    install_node(str(bin_dir), str(unit_dir), lambda _line: None)
    links = [unit_dir / "sockets.target.wants" / SOCKET, unit_dir / "multi-user.target.wants" / SERVICE]
    for link in links:
        link.parent.mkdir()
        link.symlink_to(unit_dir / link.name)
    reports: list[str] = []
    uninstall_node(str(bin_dir), str(unit_dir), reports.append)
    removed = [bin_dir / PROGRAM, *(unit_dir / name for name in UNITS), *links]
    assert reports[:6] == [f"removed {file}" for file in removed]
    assert not any(os.path.lexists(file) for file in removed)


def test_what_is_not_ours_is_kept_and_what_is_not_there_is_not_missed(bin_dir: Path, unit_dir: Path) -> None:
    reports: list[str] = []
    uninstall_node(str(bin_dir), str(unit_dir), reports.append)
    assert reports == []
    for folder, name in ((bin_dir, PROGRAM), (unit_dir, SERVICE)):
        folder.mkdir()
        (folder / name).write_bytes(b"\xff of others")
    uninstall_node(str(bin_dir), str(unit_dir), reports.append)
    assert reports == [
        f"left alone, not written by netplugctl: {bin_dir / PROGRAM}",
        f"left alone, not written by netplugctl: {unit_dir / SERVICE}",
    ]


def test_a_program_that_does_not_run_replaces_nothing(
    bin_dir: Path, unit_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(Unavailable, match="it does not run: exit status 1"):
        install_node(str(bin_dir), str(unit_dir), print)
    monkeypatch.setattr(sys, "executable", "/not/a/python")
    with pytest.raises(Unavailable, match=r"it does not run: .*No such file"):
        install_node(str(bin_dir), str(unit_dir), print)
    assert os.listdir(bin_dir) == []
    assert not unit_dir.exists()


def test_a_library_that_is_missing_is_named(bin_dir: Path, unit_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(Unavailable, match=r"^prometheus_client: .* not installed in this environment; netplug\[host\]"):
        install_node(str(bin_dir), str(unit_dir), print)
    assert not bin_dir.exists()


def test_what_cannot_be_read_written_or_removed_is_named(bin_dir: Path, unit_dir: Path) -> None:
    unit_dir.write_text("a file")
    with pytest.raises(Unavailable, match="Not a directory"):
        install_node(str(bin_dir), str(unit_dir), print)
    unit_dir.unlink()
    (unit_dir / SOCKET).mkdir(parents=True)
    with pytest.raises(Unavailable, match=f"{SOCKET}: a regular file is expected, and it is a folder"):
        install_node(str(bin_dir), str(unit_dir), lambda _line: None)
