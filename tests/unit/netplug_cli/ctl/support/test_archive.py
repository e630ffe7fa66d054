"""How an archive is written: whole, for its owner, over nothing that is there, and with nothing left behind."""

import os
import stat
from pathlib import Path

import pytest

from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.support.archive import pack, write_archive
from netplug_core.support.bundle import Bundle, BundleFile
from tests.harness.support_bundles import read_bundle


def test_equal_bundles_are_equal_archives(tmp_path: Path) -> None:
    bundle = Bundle(files=(BundleFile(path="a/b.txt", content=b"x"), BundleFile(path="c", content=b"")), entries=())
    content = pack(bundle, "top", 1_700_000_000)
    assert content == pack(bundle, "top", 1_700_000_000)
    (tmp_path / "x").write_bytes(content)
    assert read_bundle(tmp_path / "x") == {"a/b.txt": "x", "c": ""}


@pytest.mark.parametrize("umask", [0, 0o077])
def test_its_mode_does_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_archive(str(tmp_path / "x"), b"1", is_replacing=False)
        write_archive(str(tmp_path / "x"), b"2", is_replacing=True)
    finally:
        os.umask(before)
    assert (tmp_path / "x").read_bytes() == b"2"
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["x"]


def test_a_name_that_was_taken_meanwhile_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="there is such a file"):
        write_archive(str(tmp_path / "link"), b"1", is_replacing=False)
    assert os.listdir(tmp_path) == ["link"]
    write_archive(str(tmp_path / "link"), b"1", is_replacing=True)
    assert not (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path) == ["link"]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="Is a directory"):
        write_archive(str(tmp_path / "folder"), b"1", is_replacing=True)
    with pytest.raises(InputError, match="No such file"):
        write_archive(str(tmp_path / "none" / "x"), b"1", is_replacing=False)
    assert os.listdir(tmp_path) == ["folder"]
