"""Files that are put onto a host: whole, with explicit modes, and only if they differ."""

import os
import stat
from pathlib import Path

import pytest

from netplug_backends.host.placing import (
    place_copy,
    place_file,
    place_link,
    remove_empty_folder,
    remove_file,
    remove_leftovers,
    remove_tree,
)
from tests.harness.umask import UMASKS, under_umask


def test_a_file_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    assert place_file(str(path), b"one", 0o600, 0o700)
    inode = path.stat().st_ino
    assert not place_file(str(path), b"one", 0o600)
    assert path.stat().st_ino == inode
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("umask", UMASKS)
@pytest.mark.parametrize("content, mode", [(b"two", 0o600), (b"three", 0o600), (b"one", 0o640)])
def test_another_content_or_mode_replaces_the_file(tmp_path: Path, content: bytes, mode: int, umask: int) -> None:
    path = tmp_path / "file"
    place_file(str(path), b"one", 0o600)
    with under_umask(umask):
        assert place_file(str(path), content, mode)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (content, mode)
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_is_replaced_and_what_it_leads_to_is_not(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "file"
    target.write_text("one")
    path.symlink_to(target)
    assert place_file(str(path), b"one", 0o600)
    assert not path.is_symlink()
    assert target.read_text() == "one"


def test_a_folder_in_the_way_is_an_error_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "inside").touch()
    with pytest.raises(OSError, match="directory"):
        place_file(str(tmp_path / "file"), b"one", 0o600)
    assert os.listdir(tmp_path) == ["file"]


def test_a_program_is_copied_unless_an_existing_one_is_kept(tmp_path: Path) -> None:
    source, path = tmp_path / "source", tmp_path / "program"
    source.write_text("one")
    assert place_copy(str(source), str(path), keeps=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    source.write_text("two")
    assert not place_copy(str(source), str(path), keeps=True)
    assert path.read_text() == "one"
    assert place_copy(str(source), str(path), keeps=False)
    assert path.read_text() == "two"


def test_a_link_is_made_once_and_replaces_files(tmp_path: Path) -> None:
    path = tmp_path / "link"
    path.write_text("a program of an earlier release")
    assert place_link(str(path), "one")
    assert not place_link(str(path), "one")
    (tmp_path / ".link.new").write_text("left by a process that died")
    assert place_link(str(path), "two")
    assert os.readlink(path) == "two"
    assert os.listdir(tmp_path) == ["link"]


def test_what_is_removed_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / ".file.new").touch()
    assert remove_file(str(tmp_path / "file"))
    assert not remove_file(str(tmp_path / "file"))
    assert not remove_file(str(tmp_path / "no" / "file"))
    remove_tree(str(tmp_path / "folder"))
    remove_leftovers(str(tmp_path / "folder"))
    assert not remove_empty_folder(str(tmp_path / "folder"))
    assert os.listdir(tmp_path) == []


def test_a_folder_is_removed_as_a_whole(tmp_path: Path) -> None:
    for name in ("one", ".one.new"):
        (tmp_path / name / "deep").mkdir(parents=True)
    assert not remove_empty_folder(str(tmp_path / "one"))
    remove_tree(str(tmp_path / "one"))
    assert os.listdir(tmp_path) == []
    (tmp_path / "empty").mkdir()
    assert remove_empty_folder(str(tmp_path / "empty"))


def test_what_processes_that_died_have_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".new").mkdir()
    (tmp_path / ".current.new").symlink_to("elsewhere")
    (tmp_path / ".file.new").touch()
    (tmp_path / "kept").mkdir()
    (tmp_path / ".hidden").touch()
    remove_leftovers(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == [".hidden", "kept"]
