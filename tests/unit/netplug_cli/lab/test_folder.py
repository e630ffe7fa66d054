"""The folder of a lab where no option names it."""

import fcntl
from pathlib import Path

import pytest

from netplug_cli.lab.folder import LockMode, default_folder, is_present, lock_folder
from netplug_cli.lab.model import LabError, LabFolder
from netplug_core.testing.clock import ManualClock


def test_the_place_where_a_lab_is_wins(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    (tmp_path / "netplug-some-test").mkdir()
    assert default_folder("some-test", environ) == LabFolder(str(tmp_path / "netplug-some-test"))


def test_a_symbolic_link_is_no_lab(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "lab").symlink_to("there")
    assert not is_present(LabFolder(str(tmp_path / "lab")))
    folder = LabFolder(str(tmp_path / "lab"))
    with pytest.raises(LabError), lock_folder(folder, LockMode.EXCLUSIVE, clock=ManualClock(), report=print):
        pass


def test_a_file_is_no_lab(tmp_path: Path) -> None:
    (tmp_path / "lab").touch()
    folder = LabFolder(str(tmp_path / "lab"))
    assert not is_present(folder)
    with (
        pytest.raises(LabError, match="Not a directory; choose another folder with --dir"),
        lock_folder(folder, LockMode.EXCLUSIVE, clock=ManualClock(), report=print),
    ):
        pass


def test_a_folder_that_is_not_there_is_not_claimed(tmp_path: Path) -> None:
    with lock_folder(LabFolder(str(tmp_path / "lab")), LockMode.SHARED, clock=ManualClock(), report=print) as held:
        assert held is None


def test_a_folder_that_is_removed_while_we_wait_for_it_is_not_claimed(tmp_path: Path) -> None:
    """The one who holds it removes it: the lock that we get then is on nothing."""
    folder, clock = LabFolder(str(tmp_path / "lab")), ManualClock()
    Path(folder.path).mkdir()
    with lock_folder(folder, LockMode.EXCLUSIVE, clock=clock, report=print) as first:
        assert first is not None

        def remove_it(_line: str) -> None:
            first.remove()
            fcntl.flock(first.descriptor, fcntl.LOCK_UN)  # this ends the wait

        with lock_folder(folder, LockMode.EXCLUSIVE, clock=clock, report=remove_it) as second:
            assert second is None
