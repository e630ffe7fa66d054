"""The console script, where the packages of the tool are missing and where they are not."""

import io
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import netplug_cli
from netplug_backends.host.executables import EXECUTABLES
from netplug_backends.host.machine import SystemClock
from netplug_cli.ctl.reading import VisibleClock
from netplug_cli.wiring import ctl
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import ObservedDatastore
from netplug_core.errors import Unavailable
from netplug_core.testing.clock import ManualClock


class Terminal(io.StringIO):
    """A text stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_it_is_what_the_installed_script_calls() -> None:
    (installed,) = entry_points(group="console_scripts", name="netplugctl")
    assert installed.value == "netplug_cli.wiring.ctl:main"


def test_where_only_netplug_is_installed_it_says_in_a_line_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "netplug_cli").symlink_to(Path(netplug_cli.__file__).parent)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from netplug_cli.wiring.ctl import main; main()"
    ran = subprocess.run([sys.executable, "-ISc", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "netplugctl needs netplug[cli]: not installed here: click, rich, yaml\n"


def test_a_part_of_the_extra_does_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs bring click too; a command would find out about the rest halfway."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(SystemExit, match=r"^netplugctl needs netplug\[cli\]: not installed here: yaml$"):
        ctl.run_command([])


def test_where_all_are_there_it_is_the_tool(capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.run_command(["version", "--client"]) == 0
    assert capsys.readouterr().out.startswith("Client Version: v")


def test_on_a_terminal_reads_and_waits_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environ = {"DATASTORE_TYPE": "sqlite", "SQLITE_PATH": str(tmp_path / "netplug.db")}
    monkeypatch.setattr("sys.stderr", Terminal())
    session = ctl.make_session().with_environment(environ)
    assert isinstance(session.clock, VisibleClock)
    with session.open_datastore() as store:
        assert isinstance(store, ObservedDatastore)
        assert store.description.name == "sqlite"
    monkeypatch.setattr("sys.stderr", io.StringIO())
    session = ctl.make_session().with_environment(environ)
    assert isinstance(session.clock, SystemClock)
    with session.open_datastore() as store:
        assert not isinstance(store, ObservedDatastore)


def test_a_simulation_gets_an_empty_store_of_its_own_in_its_own_time() -> None:
    clock = ManualClock()
    session = ctl.make_session()
    with session.open_memory_datastore(clock) as store, session.open_memory_datastore(clock) as other:
        assert store.description.name == "memory"
        assert store is not other
        deadline = Deadline.after(clock, 5)
        clock.sleep(5)
        with pytest.raises(Unavailable, match="deadline"):
            store.read([], deadline=deadline)


def test_removing_executables_that_are_not_there_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    ctl.make_session().uninstall_executables(str(tmp_path), said.append)
    assert said == [f"not there: {tmp_path / name}" for name in EXECUTABLES]
