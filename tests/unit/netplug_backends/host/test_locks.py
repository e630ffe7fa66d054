"""Lock files: what the locks of every host do; modes, folders, and a process that dies."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from attrs import define, field

from netplug_backends.host.machine import FileLocks
from netplug_core.locks import LockHost
from netplug_core.testing.lock_checks import LOCK_CHECKS, LockCheck

LOCKS: LockHost = FileLocks()

HOLD = """
import sys
from netplug_backends.host.machine import FileLocks
held = FileLocks().try_lock(sys.argv[1], 9)
print("held" if held else "busy", flush=True)
sys.stdin.read()
"""


@define
class FileLockHarness:
    """One folder of this machine."""

    folder: Path
    numbers: count[int] = field(factory=count)

    def open_host(self) -> LockHost:
        return FileLocks()

    def new_path(self) -> str:
        return str(self.folder / str(next(self.numbers)) / "run" / "lock")

    def unusable_path(self) -> str:
        (self.folder / "file").write_text("")
        return str(self.folder / "file" / "lock")


@pytest.mark.parametrize("check", LOCK_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: LockCheck, tmp_path: Path) -> None:
    check(FileLockHarness(tmp_path))


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0, 0o022, 0o077, 0o777], ids=oct)
def test_only_the_owner_can_open_the_file_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    """A process that can open it can lock it, and so hold up every call of the machine."""
    path = tmp_path / "run" / "netplug" / "ipam.lock"
    with umask(mask):
        assert LOCKS.try_lock(str(path), 0) is not None
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (path.parent, path.parent.parent)] == [0o700, 0o700]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b""


def test_a_file_that_others_could_open_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    path.chmod(0o666)
    assert LOCKS.try_lock(str(path), 0) is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    assert LOCKS.try_lock(str(tmp_path / "run" / "lock"), 0) is not None
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o755


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "somebody-elses"
    target.touch(mode=0o644)
    target.chmod(0o644)
    (tmp_path / "lock").symlink_to(target)
    with pytest.raises(OSError, match="it is a symbolic link"):
        LOCKS.try_lock(str(tmp_path / "lock"), 0)
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_a_lock_file_may_be_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert LOCKS.try_lock("lock", 0) is not None
    assert (tmp_path / "lock").exists()


def test_nothing_that_fails_leaves_a_file_open(tmp_path: Path) -> None:
    """A byte that there is not, a file that stays open to others, and a lock that is held."""
    held = LOCKS.try_lock(str(tmp_path / "lock"), 0)
    assert held is not None
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="Invalid argument"):
        LOCKS.try_lock(str(tmp_path / "lock"), -1)
    with pytest.raises(OSError, match="Operation not permitted"):
        LOCKS.try_lock("/proc/self/comm", 0)  # its mode cannot be set
    assert LOCKS.try_lock(str(tmp_path / "lock"), 0) is None
    assert os.listdir("/proc/self/fd") == before
    held.release()


def test_a_lock_is_not_inherited(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    held = LOCKS.try_lock(path, 0)
    assert held is not None
    ours = [fd for fd in os.listdir("/proc/self/fd") if _target(fd) == path]
    assert [os.get_inheritable(int(fd)) for fd in ours] == [False]
    held.release()


def _target(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:  # the descriptor that the listing itself used
        return ""


def test_a_process_that_dies_leaves_no_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert LOCKS.try_lock(path, 9) is None
        holder.kill()
        holder.wait()
    after = LOCKS.try_lock(path, 9)
    assert after is not None
    after.release()
