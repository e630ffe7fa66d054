"""The rotated log file: which files there are afterwards, and that no line is lost or cut."""

import os
import sys
import time
from pathlib import Path
from types import FrameType

import pytest
from attrs import define, field

from netplug_backends.host.log_file import LogFile
from netplug_backends.host.machine import FileLocks
from netplug_core.log import LogSettings
from tests.harness.umask import UMASKS, modes_below, under_umask

DAY_S = 86_400
HALF = b"h" * (600 << 10) + b"\n"
"""A line of which two do not fit into 1 MB."""


@define
class Log:
    """A log in a folder, and what its writers reported."""

    folder: Path
    count: int = 3
    age_days: int = 30
    problems: list[str] = field(factory=list)

    @property
    def path(self) -> Path:
        return self.folder / "cni.log"

    def open(self) -> LogFile:
        """One more writer."""
        settings = LogSettings(
            file_path=str(self.path), max_size_mb=1, max_age_days=self.age_days, max_count=self.count
        )
        return LogFile(settings, lambda problem, cause: self.problems.append(f"{problem}: {cause}"))

    def lines(self) -> dict[str, list[str]]:
        """What begins the lines of each file; the lock file is none."""
        files = sorted(path for path in self.folder.iterdir() if not path.name.startswith("."))
        return {path.name: [line[:4].rstrip("h") for line in path.read_text().splitlines()] for path in files}


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_check_35_a_full_file_is_rotated_and_the_oldest_one_goes(log: Log) -> None:
    writer = log.open()
    for number in range(6):
        writer.append(b"%d" % number + HALF)
    assert log.lines() == {"cni.log": ["5"], "cni.log.1": ["4"], "cni.log.2": ["3"], "cni.log.3": ["2"]}
    assert log.problems == []


def test_a_file_is_filled_before_it_is_rotated(log: Log) -> None:
    writer = log.open()
    writer.append(b"a" * ((1 << 20) - 3) + b"\n")
    writer.append(b"b\n")
    writer.append(b"c\n")
    assert [path.stat().st_size for path in (log.path, log.folder / "cni.log.1")] == [2, 1 << 20]


def test_a_line_longer_than_a_file_is_written_whole(log: Log) -> None:
    writer = log.open()
    for number in range(2):
        writer.append(b"%d" % number + 3 * HALF[:-1] + b"\n")
    assert log.lines() == {"cni.log": ["1"], "cni.log.1": ["0"]}


def test_a_process_that_has_the_old_file_open_goes_on_in_the_new_one(log: Log) -> None:
    first, second = log.open(), log.open()
    for number in range(2):
        first.append(b"%d" % number + HALF)
    second.append(b"2\n")
    assert log.lines() == {"cni.log": ["1", "2"], "cni.log.1": ["0"]}


def test_a_second_writer_that_finds_the_same_file_full_rotates_once(log: Log) -> None:
    writers = [log.open() for _ in range(4)]
    writers[0].append(b"0" + HALF)
    for number, writer in enumerate(writers, start=1):
        writer.append(b"%d" % number + HALF[: 300 << 10] + b"\n")
    assert log.lines() == {"cni.log": ["2", "3", "4"], "cni.log.1": ["0", "1"]}


def test_a_rotation_by_another_process_is_not_waited_for(log: Log) -> None:
    writer = log.open()
    writer.append(b"0" + HALF)
    held = FileLocks().try_lock(str(log.folder / ".cni.log.lock"), 0)
    assert held is not None
    writer.append(b"1" + HALF)
    held.release()
    assert log.lines() == {"cni.log": ["0", "1"]}
    writer.append(b"2\n")
    assert log.lines() == {"cni.log": ["2"], "cni.log.1": ["0", "1"]}


@pytest.mark.parametrize("times", [1, 2])
def test_a_line_that_went_into_a_file_removed_meanwhile_is_written_again(log: Log, times: int) -> None:
    """Other processes rotate the file, and remove it as the oldest one, between the look at its path and the write."""
    writer, left = log.open(), times

    def remove(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal left
        if left and event == "return" and frame.f_code.co_name == "_is_full_for":
            left -= 1
            os.unlink(log.path)

    sys.setprofile(remove)
    try:
        writer.append(b"0\n")
    finally:
        sys.setprofile(None)
    assert left == 0
    assert log.lines() == {"cni.log": ["0"]}


@pytest.mark.parametrize("umask", UMASKS)
def test_all_files_have_their_modes_whatever_the_umask(log: Log, umask: int) -> None:
    with under_umask(umask):
        writer = log.open()
        for _ in range(3):
            writer.append(HALF)
    names = ("cni.log", "cni.log.1", "cni.log.2")
    assert modes_below(log.folder) == dict.fromkeys(names, 0o644) | {".cni.log.lock": 0o600}


# --- what is removed -----------------------------------------------------------------------------------------------


def test_rotated_files_whose_last_line_is_too_old_are_removed_by_the_next_call(log: Log) -> None:
    log.path.write_text("active\n")
    for number, days in ((1, 29), (2, 31), (3, 400)):
        path = log.folder / f"cni.log.{number}"
        path.write_text("old\n")
        os.utime(path, (time.time(), time.time() - days * DAY_S))
    os.utime(log.path, (0, 0))
    log.open()
    assert list(log.lines()) == ["cni.log", "cni.log.1"]


def test_rotated_files_beyond_a_lower_count_are_removed_by_the_next_call(log: Log) -> None:
    for number in range(1, 8):
        (log.folder / f"cni.log.{number}").write_text("old\n")
    log.open()
    assert list(log.lines()) == ["cni.log", "cni.log.1", "cni.log.2", "cni.log.3"]


def test_files_of_others_stay(log: Log) -> None:
    names = ["cni.log.20200101", "cni.log.gz", "cni.log.01", "cni.log.4.gz", "other.log.9", "cni.log.9x", "cni.log.²"]
    for name in names:
        (log.folder / name).write_text("")
        os.utime(log.folder / name, (0, 0))
    (log.folder / "cni.log.5").mkdir()
    writer = log.open()
    for _ in range(3):
        writer.append(HALF)
    assert {path.name for path in log.folder.iterdir()} >= {*names, "cni.log.5"}
    assert log.problems == []


def test_while_another_process_rotates_nothing_is_removed(log: Log) -> None:
    (log.folder / "cni.log.9").write_text("old\n")
    held = FileLocks().try_lock(str(log.folder / ".cni.log.lock"), 0)
    assert held is not None
    log.open()
    assert list(log.lines()) == ["cni.log", "cni.log.9"]
    held.release()


def test_settings_beyond_all_bounds_are_served(tmp_path: Path) -> None:
    log = Log(tmp_path, count=10**30, age_days=10**400)
    writer = log.open()
    for _ in range(3):
        writer.append(HALF)
    assert list(log.lines()) == ["cni.log", "cni.log.1", "cni.log.2"]


# --- what others do to the files -----------------------------------------------------------------------------------


def test_a_rotation_that_was_killed_leaves_a_gap_that_the_next_one_closes(log: Log) -> None:
    writer = log.open()
    for number in range(4):
        writer.append(b"%d" % number + HALF)
    os.rename(log.folder / "cni.log.2", log.folder / "cni.log.3")  # the first step of a rotation, and no more
    writer.append(b"4" + HALF)
    assert log.lines() == {"cni.log": ["4"], "cni.log.1": ["3"], "cni.log.2": ["2"], "cni.log.3": ["1"]}


def test_a_rotation_that_was_killed_at_its_end_leaves_no_file_to_write_to(log: Log) -> None:
    writer = log.open()
    writer.append(b"0\n")
    os.rename(log.path, log.folder / "cni.log.1")
    writer.append(b"1\n")
    assert log.lines() == {"cni.log": ["1"], "cni.log.1": ["0"]}


def test_a_removed_folder_is_made_again(log: Log, tmp_path: Path) -> None:
    log.folder = tmp_path / "logs"
    writer = log.open()
    writer.append(b"0\n")
    os.unlink(log.path)
    os.rmdir(log.folder)
    writer.append(b"1\n")
    assert log.lines() == {"cni.log": ["1"]}


def test_a_link_stays_and_the_file_that_it_leads_to_is_rotated(log: Log, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    log.path.symlink_to(elsewhere / "real.log")
    writer = log.open()
    for _ in range(2):
        writer.append(HALF)
    assert log.path.is_symlink()
    assert sorted(path.name for path in elsewhere.iterdir()) == [".real.log.lock", "real.log", "real.log.1"]


def test_a_fifo_with_a_reader_gets_no_line(log: Log) -> None:
    os.mkfifo(log.path)
    reader = os.open(log.path, os.O_RDONLY | os.O_NONBLOCK)
    writer = log.open()
    writer.append(b"0\n")
    assert os.read(reader, 10) == b""
    os.close(reader)
    problem = f"a regular file is expected, and it is a pipe: '{log.path}'"
    assert log.problems == [f"the log file cannot be written: [Errno 22] {problem}"] * 2


def test_what_cannot_be_rotated_grows(log: Log) -> None:
    writer = log.open()
    writer.append(b"0" + HALF)
    (log.folder / ".cni.log.lock").mkdir()
    writer.append(b"1" + HALF)
    assert log.lines() == {"cni.log": ["0", "1"]}
    (problem,) = log.problems
    assert problem.startswith(
        "the log file cannot be rotated: [Errno 22] a regular file is expected, and it is a folder"
    )


def test_a_path_that_leads_elsewhere_by_now_is_reported_and_written_to_again_later(log: Log) -> None:
    writer = log.open()
    os.unlink(log.path)
    log.path.mkdir()
    writer.append(b"0\n")
    log.path.rmdir()
    writer.append(b"1\n")
    assert log.lines() == {"cni.log": ["1"]}
    (problem,) = log.problems
    assert problem.startswith(
        "the log file cannot be written: [Errno 22] a regular file is expected, and it is a folder"
    )
