"""The folder of status files on a real file system: what is written, what is left alone, and what ends a wait."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Thread

import pytest
from attrs import evolve

from netplug_backends.host.endpoint_status import (
    EndpointStatusFolder,
    StatusChanges,
    read_boot_id,
    watch_folder,
)
from netplug_core.workload import EndpointStatus, parse_status, render_status

WEB = EndpointStatus(
    container_id="c1",
    endpoint="shop/web",
    host_interface="netp1",
    boot_id="b",
    programmed_at_ns=1_700_000_000_000_000_000,
)
DB = evolve(WEB, container_id="c2", endpoint="shop/db", host_interface="netp2")
WANTED = {"k8s shop%2Fweb eth0": WEB, "k8s shop%2Fdb eth0": DB}
FIRST, SECOND = sorted(WANTED)
LONG_S = 60.0


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


def contents(folder: Path) -> dict[str, EndpointStatus]:
    return {path.name: parse_status(path.read_text()) for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that does not exist yet, below one that does not either."""
    return tmp_path / "run" / "endpoint-status"


def test_the_files_are_made_for_everybody_to_read(folder: Path) -> None:
    """Whatever the umask is."""
    former = os.umask(0o077)
    try:
        changes = EndpointStatusFolder(str(folder)).make_equal(WANTED)
    finally:
        os.umask(former)
    assert changes == StatusChanges(written=(FIRST, SECOND))
    assert contents(folder) == WANTED
    assert modes(folder) == {FIRST: 0o644, SECOND: 0o644}
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o755, 0o755]


def test_what_says_the_same_is_not_written_again(folder: Path) -> None:
    """Also if it became true at another time, or is spelled in another way."""
    files = EndpointStatusFolder(str(folder))
    files.make_equal(WANTED)
    (folder / FIRST).write_text(" " + render_status(WANTED[FIRST]))
    before = {path.name: path.stat().st_ino for path in folder.iterdir()}
    later = {name: evolve(status, programmed_at_ns=1_800_000_000_000_000_000) for name, status in WANTED.items()}
    assert files.make_equal(later) == StatusChanges()
    assert {path.name: path.stat().st_ino for path in folder.iterdir()} == before
    assert contents(folder) == WANTED


@pytest.mark.parametrize("damage", ["", "{", "\udcff", "[]", render_status(DB), None], ids=repr)
def test_what_is_damaged_is_restored(folder: Path, damage: str | None) -> None:
    files = EndpointStatusFolder(str(folder))
    files.make_equal(WANTED)
    name = "k8s shop%2Fweb eth0"
    if damage is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(damage.encode("utf-8", "surrogateescape"))
    assert files.make_equal(WANTED) == StatusChanges(written=(name,))
    assert contents(folder) == WANTED


def test_what_is_not_wanted_is_removed(folder: Path) -> None:
    """A file of a pod that is gone, one that nobody knows, a link, and what a killed writer has left."""
    files = EndpointStatusFolder(str(folder))
    files.make_equal(WANTED)
    (folder / "unknown").write_text("x")
    (folder / "link").symlink_to("/etc/passwd")
    (folder / f".netplug-{'0' * 32}.new").write_text("half")
    changes = files.make_equal({FIRST: WANTED[FIRST]})
    assert changes == StatusChanges(removed=tuple(sorted((SECOND, "link", "unknown"))))
    assert contents(folder) == {FIRST: WANTED[FIRST]}
    assert files.make_equal({}) == StatusChanges(removed=(FIRST,))


def test_what_cannot_be_done_keeps_nothing_else_from_being_done(folder: Path) -> None:
    """Folders stand where a file is wanted, and where nothing is."""
    (folder / FIRST).mkdir(parents=True)
    (folder / "unknown").mkdir()
    changes = EndpointStatusFolder(str(folder)).make_equal(WANTED)
    assert changes.written == (SECOND,)
    assert changes.removed == ()
    assert [name for name, _error in changes.problems] == ["unknown", FIRST]
    assert (folder / SECOND).is_file()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (problem,) = EndpointStatusFolder(str(tmp_path / "file" / "below")).make_equal(WANTED).problems
    assert problem[0] == ""
    assert isinstance(problem[1], FileExistsError)


def test_the_boot_has_an_id() -> None:
    assert len(read_boot_id()) == 36
    assert read_boot_id() == read_boot_id()


# --- waiting ---------------------------------------------------------------------------------------------------------


def waited_s(path: Path, act: object, seconds: float = LONG_S) -> float:
    """How long a wait took during which something was done."""
    assert callable(act)
    with watch_folder(str(path)) as changes:
        assert changes.is_watched
        thread = Thread(target=act)
        began = time.monotonic()
        thread.start()
        changes.wait(seconds)
        ended = time.monotonic()
        thread.join()
    return ended - began


def test_a_file_that_comes_ends_a_wait(tmp_path: Path) -> None:
    assert waited_s(tmp_path, lambda: EndpointStatusFolder(str(tmp_path)).make_equal(WANTED)) < LONG_S


def test_a_file_that_is_written_in_place_ends_a_wait(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert waited_s(tmp_path, lambda: (tmp_path / "a").write_text("x")) < LONG_S


def test_what_comes_before_the_wait_is_watched(tmp_path: Path) -> None:
    with watch_folder(str(tmp_path)) as changes:
        (tmp_path / "a").touch()
        began = time.monotonic()
        changes.wait(LONG_S)
        assert time.monotonic() - began < LONG_S


def test_nothing_ends_no_wait(tmp_path: Path) -> None:
    with watch_folder(str(tmp_path)) as changes:
        began = time.monotonic()
        changes.wait(0.01)
        assert time.monotonic() - began >= 0.009


def test_a_folder_that_comes_later_is_watched_from_then_on(folder: Path) -> None:
    with watch_folder(str(folder)) as changes:
        found = [changes.is_watched]
        folder.mkdir(parents=True)
        changes.wait(0.001)
        found.append(changes.is_watched)
        assert found == [False, True]
        (folder / "a").touch()
        began = time.monotonic()
        changes.wait(LONG_S)
        assert time.monotonic() - began < LONG_S


def test_a_folder_that_is_replaced_is_watched_anew(folder: Path) -> None:
    folder.mkdir(parents=True)
    with watch_folder(str(folder)) as changes:
        folder.rename(folder.with_name("former"))
        changes.wait(LONG_S)
        found = [changes.is_watched]
        folder.mkdir()
        changes.wait(0.001)
        assert [*found, changes.is_watched] == [False, True]


def test_nothing_stays_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in (tmp_path, tmp_path / "missing"):
        with watch_folder(str(path)) as changes:
            changes.wait(0.001)
    assert len(os.listdir("/proc/self/fd")) == before
