"""Log lines: their form, where they go, and that nothing about them is ever the reason for a failure."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from netplug_backends.host.log_file import LogFile
from netplug_cli.logs import Logger
from netplug_core.log import Level, Log, LogSettings
from tests.harness.umask import UMASKS, modes_below, under_umask

Capture = pytest.CaptureFixture[str]

LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) \[(\w+)\]\[(\d+)\] ([\w-]+): (.*)\n", re.DOTALL)


def new_logger(component: str = "cni-plugin") -> Logger:
    """A logger as the executables have it."""
    return Logger(component, LogFile)


def texts(written: str) -> list[str]:
    """Level and text of each line."""
    found = [LINE.fullmatch(line) for line in written.splitlines(keepends=True)]
    assert all(found), written
    return [f"{match[2]} {match[5]}" for match in found if match]


def test_a_line_has_time_level_process_component_message_and_sorted_fields(capfd: Capture) -> None:
    log: Log = new_logger()
    log(Level.INFO, "container attached", node="n", container="c1", count=2)
    match = LINE.fullmatch(capfd.readouterr().err)
    assert match is not None
    assert match.groups()[1:] == (
        "INFO",
        str(os.getpid()),
        "cni-plugin",
        'container attached container="c1" count="2" node="n"',
    )


@pytest.mark.parametrize(
    "value,shown",
    [
        ('say "no"', r"say \"no\""),
        ("two\nlines", r"two\nlines"),
        ("C:\\", r"C:\\"),
        ("\x1b[31mred\x7f\r\t\0", r"\x1b[31mred\x7f\x0d\x09\x00"),
        ("schön", "schön"),
        ("\udcff", r"\udcff"),
        (None, "None"),
    ],
)
def test_a_value_cannot_end_its_line(capfd: Capture, value: object, shown: str) -> None:
    new_logger("ipam")(Level.INFO, "m", key=value)
    assert texts(capfd.readouterr().err) == [f'INFO m key="{shown}"']


def test_texts_from_outside_are_cut(capfd: Capture) -> None:
    """A container id of 100,000 letters made a line of 100,150."""
    log: Log = new_logger()
    log(Level.INFO, f"about {'m' * 500}", container="c" * 100_000, cause=f"{'long sentence ' * 30}{'h' * 300}")
    (line,) = texts(capfd.readouterr().err)
    cause = f"{'long sentence ' * 30}{'h' * 200}…"
    assert line == f'INFO about {"m" * 200}… cause="{cause}" container="{"c" * 200}…"'


def test_a_message_of_several_lines_is_indented(capfd: Capture) -> None:
    new_logger("ipam")(Level.ERROR, "an error\nTraceback\n  here")
    assert capfd.readouterr().err.endswith("ipam: an error\n    Traceback\n      here\n")


@pytest.mark.parametrize("level", list(Level))
def test_check_35_lines_of_the_level_or_worse_are_written(capfd: Capture, tmp_path: Path, level: Level) -> None:
    logger = new_logger()
    logger.configure(LogSettings(level=level, file_path=str(tmp_path / "log")))
    for one in Level:
        logger(one, "line")
    expected = [f"{one.value} line" for one in list(Level)[list(Level).index(level) :]]
    assert texts(capfd.readouterr().err) == expected
    assert texts((tmp_path / "log").read_text()) == expected


def test_until_it_is_configured_it_writes_info_to_standard_error(capfd: Capture) -> None:
    logger = new_logger()
    logger(Level.DEBUG, "no")
    logger(Level.INFO, "yes")
    assert texts(capfd.readouterr().err) == ["INFO yes"]


@pytest.mark.parametrize("umask", UMASKS)
def test_check_34_folder_and_file_are_made_and_lines_appended(capfd: Capture, tmp_path: Path, umask: int) -> None:
    path = tmp_path / "netplug" / "cni" / "cni.log"
    with under_umask(umask):
        for number in range(2):
            logger = new_logger()
            logger.configure(LogSettings(level=Level.INFO, file_path=str(path)))
            logger(Level.INFO, f"call {number}")
    assert texts(path.read_text()) == ["INFO call 0", "INFO call 1"]
    assert modes_below(tmp_path) == {"netplug": 0o755, "netplug/cni": 0o755, "netplug/cni/cni.log": 0o644}


def test_a_file_may_lie_in_the_current_folder(capfd: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    logger = new_logger()
    logger.configure(LogSettings(level=Level.INFO, file_path="cni.log"))
    logger(Level.INFO, "here")
    assert texts((tmp_path / "cni.log").read_text()) == ["INFO here"]


@pytest.mark.parametrize("at", ["file/cni.log", "folder", "fifo", "folder/\0", "\ud800"])
def test_check_34_a_file_that_cannot_be_written_is_reported_once(capfd: Capture, tmp_path: Path, at: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    logger = new_logger()
    logger.configure(LogSettings(file_path=f"{tmp_path}/{at}"))
    logger(Level.INFO, "on we go")
    logger(Level.INFO, "and on")
    warning, *then = texts(capfd.readouterr().err)
    assert warning.startswith("WARNING the log file cannot be written cause=")
    assert f' path="{tmp_path}/' in warning
    assert then == ["INFO on we go", "INFO and on"]


def test_a_file_that_cannot_be_written_is_not_reported_below_the_level(capfd: Capture, tmp_path: Path) -> None:
    logger = new_logger()
    logger.configure(LogSettings(level=Level.ERROR, file_path=str(tmp_path)))
    logger(Level.ERROR, "on we go")
    assert texts(capfd.readouterr().err) == ["ERROR on we go"]


def test_standard_error_that_is_closed_or_full_is_put_up_with(tmp_path: Path) -> None:
    path = tmp_path / "cni.log"
    script = (
        "from netplug_backends.host.log_file import LogFile; from netplug_cli.logs import Logger; "
        "from netplug_core.log import Level, LogSettings; logger = Logger('x', LogFile); "
        f"logger.configure(LogSettings(file_path={str(path)!r})); logger(Level.INFO, 'line')"
    )
    for redirection in ("2>&-", "2>/dev/full"):
        subprocess.run(["/bin/sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, script], check=True)
    assert texts(path.read_text()) == ["INFO line", "INFO line"]
