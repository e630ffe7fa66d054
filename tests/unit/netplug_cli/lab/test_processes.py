"""Processes that outlive the command that starts them, for real: they are small programs that wait."""

import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netplug_cli.lab.folder import LockedFolder, lock_new_folder
from netplug_cli.lab.model import LabError, LabFolder, LabPlan, new_lab
from netplug_cli.lab.processes import kill_all, list_ended, start_process, wait_until_ready
from netplug_core.testing.clock import ManualClock
from tests.harness.umask import UMASKS, modes_below, under_umask

LAB = new_lab(LabPlan(name="lab", pod_count=1), uid="u")
WAITS = "import signal; signal.pause()"


@pytest.fixture
def held(tmp_path: Path) -> Iterator[LockedFolder]:
    folder = LabFolder(str(tmp_path / "lab"))
    with lock_new_folder(folder, clock=ManualClock(), report=print) as opened:
        opened.make_subfolders(LAB)
        yield opened
        kill_all(folder)


def waiting(held: LockedFolder, name: str) -> int:
    """A process that waits for ever, seen to have become what it should be."""
    command = [sys.executable, "-c", WAITS, held.folder.server_dir(name)]
    started = start_process(held, name, command)
    while not Path(f"/proc/{started.pid}/cmdline").read_text().startswith(sys.executable):
        started.require_alive()
    return started.pid


def test_what_was_started_is_found_and_ended(held: LockedFolder) -> None:
    started = [waiting(held, name) for name in ("a", "b")]
    assert list_ended(held.folder) == ()
    os.kill(started[0], signal.SIGTERM)
    os.waitpid(started[0], 0)
    assert list_ended(held.folder) == ("a",)
    assert kill_all(held.folder) == ("b",)
    assert os.waitpid(started[1], 0) == (started[1], signal.SIGKILL)
    assert (list_ended(held.folder), kill_all(held.folder)) == ((), ())


@pytest.mark.parametrize("umask", UMASKS)
def test_a_process_makes_files_that_only_its_user_may_write(tmp_path: Path, umask: int) -> None:
    with under_umask(umask), lock_new_folder(LabFolder(f"{tmp_path}/lab"), clock=ManualClock(), report=print) as held:
        held.make_subfolders(LAB)
        waiting(held, "a")
        modes = modes_below(tmp_path)
        kill_all(held.folder)
    assert (modes["lab/run/a.pid"], modes["lab/log/a.log"], modes["lab/run"], modes["lab"]) == (
        0o644,
        0o600,
        0o755,
        0o700,
    )


def test_what_has_only_just_been_started_is_ended_too(held: LockedFolder) -> None:
    for turn in range(20):
        started = start_process(held, f"just-{turn}", [sys.executable, "-c", WAITS, held.folder.server_dir("just")])
        assert kill_all(held.folder) == (f"just-{turn}",)
        assert os.waitpid(started.pid, 0) == (started.pid, signal.SIGKILL)


def test_the_lock_is_not_kept_by_what_goes_on(held: LockedFolder) -> None:
    """It has it until it can be found, so that the next call finds it."""
    waiting(held, "a")
    fcntl.flock(held.descriptor, fcntl.LOCK_UN)
    other = os.open(held.folder.path, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)


def test_another_process_of_that_number_is_left_alone(held: LockedFolder) -> None:
    """Numbers are used again; this one is the test's own."""
    Path(held.folder.processes_dir, "etcd.pid").write_text(f"{os.getpid()}\n")
    assert list_ended(held.folder) == ("etcd",)
    assert kill_all(held.folder) == ()


def test_nothing_is_running_in_a_folder_that_is_not_made_yet(tmp_path: Path) -> None:
    assert kill_all(LabFolder(str(tmp_path))) == ()


def test_a_program_that_ends_at_once_is_reported_with_its_last_output(held: LockedFolder) -> None:
    say = "import sys; print('one', file=sys.stderr); sys.exit('no room')"
    started = start_process(held, "etcd", [sys.executable, "-c", say, held.folder.path])
    os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
    for _ in range(2):
        with pytest.raises(LabError, match=r"^etcd ended as soon as it was started: no room$"):
            wait_until_ready(lambda: None, [started], ManualClock())


def test_a_server_that_never_gets_ready_is_not_waited_for_for_ever(held: LockedFolder) -> None:
    waiting(held, "etcd")
    started = start_process(held, "slow", [sys.executable, "-c", WAITS, held.folder.server_dir("slow")])

    def refuse() -> None:
        raise ConnectionRefusedError("nobody listens")

    with pytest.raises(LabError, match=r"^slow is not ready after 180 s: nobody listens$"):
        wait_until_ready(refuse, [started], ManualClock())
