"""This machine: small files, locks between processes, random uids."""

import fcntl
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
    with pytest.raises(IsADirectoryError):
        MACHINE.find_text(str(tmp_path))


def _is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_lock_is_held_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "run" / "netplug" / "ipam.lock"
    with MACHINE.lock(str(path)):
        assert _is_locked(path)
    assert not _is_locked(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b""


def test_a_lock_is_free_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), MACHINE.lock(str(tmp_path / "lock")):
        raise ZeroDivisionError
    assert not _is_locked(tmp_path / "lock")


def test_a_lock_is_not_inherited(tmp_path: Path) -> None:
    with MACHINE.lock(str(tmp_path / "lock")):
        held = [fd for fd in os.listdir("/proc/self/fd") if _target(fd) == str(tmp_path / "lock")]
        assert [os.get_inheritable(int(fd)) for fd in held] == [False]


def _target(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:  # the descriptor that the listing itself used
        return ""


def test_a_lock_that_cannot_be_taken_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"Not a directory|File exists"), MACHINE.lock(str(tmp_path / "file" / "lock")):
        raise AssertionError("it was taken")


def test_a_lock_file_may_be_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with MACHINE.lock("lock"):
        assert _is_locked(tmp_path / "lock")


def test_identities_are_random_uuids() -> None:
    uids = {MACHINE.new_uid() for _ in range(100)}
    assert len(uids) == 100
    for uid in uids:
        parsed = uuid.UUID(uid)
        assert (str(parsed), parsed.version, parsed.variant) == (uid, 4, uuid.RFC_4122)
