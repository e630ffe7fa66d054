"""This machine: its clock and name, small files, random uids. ``test_locks`` has its locks."""

import os
import stat
import time
import uuid
from pathlib import Path

import pytest

from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_core.clock import Clock
from netplug_core.flows.world import Host

MACHINE: Host = HostMachine()
CLOCK: Clock = SystemClock()


def test_the_clock_is_the_machines_clock() -> None:
    before = time.time_ns()
    assert before <= CLOCK.now_ns() <= time.time_ns()
    start = CLOCK.monotonic()
    CLOCK.sleep(0)
    assert CLOCK.monotonic() >= start


def test_the_host_name_is_the_kernels() -> None:
    assert MACHINE.host_name() == Path("/proc/sys/kernel/hostname").read_text().strip()


def test_a_small_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "nodename").write_bytes("nöde\n".encode() + b"\xff")
    assert MACHINE.find_text(str(tmp_path / "nodename")) == "nöde\n\ufffd"


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    assert MACHINE.find_text(str(tmp_path / "nothing" / "here")) is None


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="it is a folder"):
        MACHINE.find_text(str(tmp_path))


@pytest.mark.parametrize("kind", ["fifo", "device", "huge", "endless"])
def test_what_is_no_small_file_is_an_error_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "text"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "huge":
        path.write_bytes(b"x" * ((1 << 20) + 1))
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match=r"a regular file is expected|larger than 1048576 bytes"):
        MACHINE.find_text(str(path))


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"x" * (1 << 20))
    assert len(MACHINE.find_text(str(tmp_path / "text")) or "") == 1 << 20


def test_a_file_of_the_kernel_is_read() -> None:
    assert MACHINE.find_text("/proc/sys/kernel/hostname") == Path("/proc/sys/kernel/hostname").read_text()


def test_a_path_that_no_file_can_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="null byte"):
        MACHINE.find_text("/a\0b")


def test_identities_are_random_uuids() -> None:
    uids = {MACHINE.new_uid() for _ in range(100)}
    assert len(uids) == 100
    for uid in uids:
        parsed = uuid.UUID(uid)
        assert (str(parsed), parsed.version, parsed.variant) == (uid, 4, uuid.RFC_4122)


@pytest.mark.parametrize("umask", [0, 0o077])
def test_what_everybody_may_read_has_its_modes_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        HostMachine().publish(str(tmp_path / "a" / "b" / "nodename"), "node-1")
        HostMachine().publish(str(tmp_path / "a" / "b" / "nodename"), "node-2")
        HostMachine().make_public_folder(str(tmp_path / "run" / "endpoint-status"))
        HostMachine().make_public_folder(str(tmp_path / "run" / "endpoint-status"))
    finally:
        os.umask(before)
    assert (tmp_path / "a" / "b" / "nodename").read_text() == "node-2"
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert found == {"a": 0o755, "b": 0o755, "nodename": 0o644, "run": 0o755, "endpoint-status": 0o755}


def test_a_file_that_cannot_take_the_place_of_another_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "nodename").mkdir()
    with pytest.raises(IsADirectoryError):
        HostMachine().publish(str(tmp_path / "nodename"), "node-1")
    assert os.listdir(tmp_path) == ["nodename"]


def test_a_secret_is_replaced_as_a_whole_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "netplug-kubeconfig"
    path.write_text("before, and longer")
    path.chmod(0o644)
    left = tmp_path / f".netplug-{'0f' * 16}.new"  # of a process that was killed
    left.write_text("half")
    left.chmod(0o666)
    reader = path.open()
    HostMachine().replace_secret(str(path), "after")
    assert (path.read_text(), reader.read()) == ("after", "before, and longer")
    reader.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["netplug-kubeconfig"]


def test_a_secret_needs_its_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        HostMachine().replace_secret(str(tmp_path / "net.d" / "netplug-kubeconfig"), "text")
