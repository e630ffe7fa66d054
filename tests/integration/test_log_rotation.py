"""The rotated log under real processes: many that write at once, some that are killed, and disks that are full.

Every line has a name of its own. Wherever it lands, it is whole and there once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.harness.node import CNIRuntime, NetnsNode, PodNamespace
from tests.harness.processes import log_writer
from tests.harness.waiting import EMERGENCY_STOP_S

LENGTH = 64 << 10
"""Sixteen lines of this length fill a file."""


def command(
    path: Path, name: str, lines: int, *, length: int = LENGTH, count: int = 1000, killed_at: int = 0
) -> list[str]:
    words = [str(path), name, str(lines), str(length), str(count), *([str(killed_at)] if killed_at else [])]
    return [sys.executable, "-m", log_writer.__name__, *words]


def write(path: Path, name: str, lines: int, *, length: int = LENGTH, killed_at: int = 0) -> str:
    """Run one writer and return what it printed."""
    words = command(path, name, lines, length=length, killed_at=killed_at)
    return subprocess.run(words, capture_output=True, text=True, timeout=EMERGENCY_STOP_S, check=False).stdout


def files_of(path: Path) -> list[Path]:
    return [file for file in path.parent.iterdir() if file.name.startswith(path.name)]


def names_in(files: list[Path], length: int = LENGTH) -> Counter[str]:
    """The names of all lines, each of which is whole."""
    lines = [line for file in files for line in file.read_bytes().splitlines(keepends=True)]
    assert {(len(line), line[-1:]) for line in lines} <= {(length + 1, b"\n")}
    return Counter(line.split(b" ", 1)[0].decode() for line in lines)


def expected(names: list[str], lines: int) -> Counter[str]:
    return Counter(f"{name}-{number}" for name in names for number in range(lines))


def test_of_many_processes_that_write_and_rotate_at_once_no_line_is_lost(tmp_path: Path) -> None:
    path, names = tmp_path / "cni.log", [f"writer{n}" for n in range(8)]
    writers = [subprocess.Popen(command(path, name, 60), stdout=subprocess.PIPE, text=True) for name in names]
    assert [writer.communicate(timeout=EMERGENCY_STOP_S)[0] for writer in writers] == ["done\n"] * 8
    files = files_of(path)
    assert names_in(files) == expected(names, 60)
    assert len(files) > 3
    # Rotated twice, a file would be nearly empty. How much too large one is depends on when its rotator gets to run.
    assert min(file.stat().st_size for file in files if file != path) > (1 << 20) - 2 * LENGTH


def test_check_35_as_many_files_stay_as_are_configured(tmp_path: Path) -> None:
    path, names = tmp_path / "cni.log", [f"writer{n}" for n in range(8)]
    writers = [
        subprocess.Popen(command(path, name, 800, length=800, count=2), stdout=subprocess.PIPE, text=True)
        for name in names
    ]
    assert [writer.communicate(timeout=EMERGENCY_STOP_S)[0] for writer in writers] == ["done\n"] * 8
    assert sorted(file.name for file in files_of(path)) == ["cni.log", "cni.log.1", "cni.log.2"]
    found = names_in(files_of(path), 800)
    assert set(found.values()) == {1}
    assert found.keys() <= expected(names, 800).keys()


def test_a_process_that_is_killed_at_any_step_of_a_rotation_costs_no_line(tmp_path: Path) -> None:
    step, printed = 0, ""
    while not printed:
        step += 1
        path = tmp_path / str(step) / "cni.log"
        printed = write(path, "killed", 34, killed_at=step)
        assert write(path, "after", 17) == "done\n"
        found = names_in(files_of(path))
        last = max(int(name.removeprefix("killed-")) for name in found if name.startswith("killed-"))
        assert last >= 14, "it was killed before the first rotation"
        assert found == expected(["killed"], last + 1) + expected(["after"], 17)
    assert printed == "done\n"
    assert step > 5, "two rotations have more steps than that"


@pytest.mark.netns
def test_a_full_disk_cuts_no_line_and_stops_no_call(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    folder = node.file("logs")
    os.mkdir(folder)
    node.run("mount", "-t", "tmpfs", "-o", "size=256k", "none", folder)
    path = Path(folder) / "cni.log"
    # Lines of 3000 bytes until none fits any more, and then lines of 10 bytes.
    reports = [node.run(*command(path, "s", 400, length=length)).splitlines() for length in (3000, 10)]
    no_space = "reported the log file cannot be written: [Errno 28] No space left on device"
    assert [set(lines) for lines in reports] == [{no_space, "done"}] * 2
    text = node.run("cat", str(path))
    lengths = Counter(len(line) for line in text.splitlines(keepends=True))
    assert lengths == {3001: 401 - len(reports[0]), 11: 401 - len(reports[1])}

    conf = runtime.make_netconf(log_file_path=str(path))
    added = runtime.add(conf, pod)
    assert added.stderr.count("the log file cannot be written") == 1
    assert "container attached" in added.stderr
    node.run("truncate", "--size=0", str(path))
    runtime.delete(conf, pod)
    assert "container detached" in node.run("cat", str(path))


@pytest.mark.netns
@pytest.mark.parametrize("options", ["ro", "rw,size=4k,nr_inodes=1"], ids=["read-only", "no-inodes"])
def test_a_disk_without_a_log_stops_no_call(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, options: str
) -> None:
    folder = node.file("logs")
    os.mkdir(folder)
    node.run("mount", "-t", "tmpfs", "-o", options, "none", folder)
    conf = runtime.make_netconf(log_file_path=f"{folder}/deep/cni.log")
    for command_name in ("ADD", "DEL"):
        reply = runtime.call(command_name, conf, pod)
        assert reply.status == 0
        assert reply.stderr.count("[WARNING]") == 1
        assert "the log file cannot be written" in reply.stderr


@pytest.mark.netns
def test_calls_rotate_the_file_of_their_configuration(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    conf = runtime.make_netconf(
        log_file_path=node.write_file("cni.log", "x" * ((1 << 20) - 10) + "\n"),
        log_file_max_size=1,
        log_file_max_age=1,
        log_file_max_count=2,
    )
    node.write_file("cni.log.3", "")
    old = node.write_file("cni.log.1", "")
    os.utime(old, (0, 0))
    runtime.add(conf, pod)
    assert sorted(name for name in os.listdir(node.folder) if name.startswith("cni.log")) == ["cni.log", "cni.log.1"]
    with open(node.file("cni.log"), encoding="utf-8") as file:
        assert "container attached" in file.read()
    runtime.delete(conf, pod)
