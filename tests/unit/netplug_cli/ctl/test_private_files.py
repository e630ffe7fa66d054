"""How a file that a person named is written: whole, for its owner, over nothing, and with nothing left behind."""

import os
import stat
from pathlib import Path

import pytest

from netplug_cli.ctl.editor import write_private_file
from netplug_cli.ctl.errors import InputError


@pytest.mark.parametrize("umask", [0, 0o077])
def test_its_mode_does_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_private_file(str(tmp_path / "x"), (b"1",), is_replacing=False)
        write_private_file(str(tmp_path / "x"), (b"2",), is_replacing=True)
    finally:
        os.umask(before)
    assert (tmp_path / "x").read_bytes() == b"2"
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["x"]


def test_a_name_that_was_taken_meanwhile_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="there is such a file"):
        write_private_file(str(tmp_path / "link"), (b"1",), is_replacing=False)
    assert os.listdir(tmp_path) == ["link"]
    write_private_file(str(tmp_path / "link"), (b"1",), is_replacing=True)
    assert not (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path) == ["link"]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="Is a directory"):
        write_private_file(str(tmp_path / "folder"), (b"1",), is_replacing=True)
    with pytest.raises(InputError, match="No such file"):
        write_private_file(str(tmp_path / "none" / "x"), (b"1",), is_replacing=False)
    assert os.listdir(tmp_path) == ["folder"]


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="it is not a file"):
        write_private_file(str(tmp_path / "pipe"), (b"1",), is_replacing=True)
    assert os.listdir(tmp_path) == ["pipe"]
