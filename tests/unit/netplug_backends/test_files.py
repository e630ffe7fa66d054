"""Folders and files get the mode that is asked for, under every umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from netplug_backends.files import FOLDER_MODE, OPEN_FILE_MODE, PRIVATE_FILE_MODE, make_folder, open_file, write_file
from tests.harness.umask import UMASKS, under_umask


@pytest.fixture(params=(*UMASKS, 0o777), ids=lambda umask: f"umask {umask:03o}", autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    with under_umask(request.param):
        yield


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_and_the_missing_ones_above_it_get_the_mode(tmp_path: Path) -> None:
    make_folder(f"{tmp_path}/a/b/c/")
    assert [mode_of(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [FOLDER_MODE] * 3
    make_folder(str(tmp_path / "p" / "q"), 0o700)
    assert [mode_of(tmp_path / name) for name in ("p", "p/q")] == [0o700] * 2


def test_a_folder_that_exists_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old").chmod(0o711)
    make_folder(str(tmp_path / "old"))
    make_folder("")  # the folder of a path without one: the working folder
    assert mode_of(tmp_path / "old") == 0o711


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileExistsError):
            make_folder(str(path))


def test_a_new_file_gets_the_mode_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    file = tmp_path / "log"
    for mode in (OPEN_FILE_MODE, PRIVATE_FILE_MODE):
        descriptor = open_file(str(file), os.O_WRONLY | os.O_APPEND, mode)
        assert not os.get_inheritable(descriptor)
        os.write(descriptor, b"line\n")
        os.close(descriptor)
        assert mode_of(file) == OPEN_FILE_MODE
    assert file.read_text() == "line\nline\n"


def test_a_link_to_a_missing_file_makes_it(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.close(open_file(str(tmp_path / "link"), os.O_WRONLY, 0o600))
    assert (tmp_path / "target").exists()


def test_a_written_file_has_the_text_and_the_mode(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_file(str(file), "long text", OPEN_FILE_MODE)
    assert (file.read_text(), mode_of(file)) == ("long text", OPEN_FILE_MODE)
    write_file(str(file), "short", PRIVATE_FILE_MODE)
    assert (file.read_text(), mode_of(file)) == ("short", PRIVATE_FILE_MODE)
