"""The files of a network's folder: what is read, what is made, and what is left alone."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netplug_backends.hostlocal.ipam import NetworkFiles, current_boot
from netplug_core.addressing import Address
from netplug_core.clock import Deadline, Pace
from netplug_core.errors import Unavailable
from netplug_core.ipam.hostlocal.reserve import BootRecord, Owner
from netplug_core.testing.clock import ManualClock
from tests.harness.umask import UMASKS, under_umask

ADDRESS = Address.parse("10.0.0.2")


@pytest.fixture
def files(tmp_path: Path) -> NetworkFiles:
    return NetworkFiles(str(tmp_path / "networks" / "net1"))


@pytest.fixture
def folder(files: NetworkFiles) -> Path:
    folder = Path(files.path)
    folder.mkdir(parents=True)
    return folder


def pace(seconds: float = 5.0) -> Pace:
    clock = ManualClock()
    return Pace(clock=clock, deadline=Deadline.after(clock, seconds), chance=lambda: 1.0)


@contextmanager
def held_by_another(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_folder_that_does_not_exist_holds_nothing_and_is_not_made(files: NetworkFiles) -> None:
    assert not files.exists
    assert files.read(2).files == ()
    assert not os.path.exists(files.path)


@pytest.mark.parametrize("mask", UMASKS)
def test_the_lock_makes_the_folder_with_modes_of_its_own(files: NetworkFiles, mask: int) -> None:
    with under_umask(mask), files.locked(pace()):
        files.create(ADDRESS, Owner("c1"))
    modes = {name: os.stat(os.path.join(files.path, name)).st_mode & 0o777 for name in (".", "lock", str(ADDRESS))}
    assert modes == {".": 0o755, "lock": 0o600, str(ADDRESS): 0o600}


def test_a_lock_that_another_program_holds_is_waited_for(files: NetworkFiles, folder: Path) -> None:
    waiting = pace()
    expected = pytest.raises(Unavailable, match="another call holds the lock")
    with held_by_another(folder / "lock"), expected, files.locked(waiting):
        pytest.fail("the lock is held")
    assert waiting.deadline.has_passed
    with files.locked(pace()):
        assert sorted(os.listdir(folder)) == ["lock"]


def test_what_a_folder_says(files: NetworkFiles, folder: Path) -> None:
    (folder / "10.0.0.2").write_bytes(b"c1\r\neth0")
    (folder / "10.0.0.3").write_bytes(b"c1")
    (folder / "FD00::3").write_bytes(b"c2\r\nnet1")
    (folder / "last_reserved_ip.0").write_text("10.0.0.3\n")
    (folder / "last_reserved_ip.1").write_text("")
    (folder / ".netplug-boot").write_text("boot this\n10.0.0.2 7\n")
    found = files.read(3)
    assert [(str(one.address), one.name, one.owner) for one in found.files] == [
        ("10.0.0.2", "10.0.0.2", Owner("c1", "eth0")),
        ("10.0.0.3", "10.0.0.3", Owner("c1", "eth0")),
        ("fd00::3", "FD00::3", Owner("c2", "net1")),
    ]
    assert found.files[0].modified_ns == os.stat(folder / "10.0.0.2").st_mtime_ns
    assert found.last_reserved == {0: Address.parse("10.0.0.3")}
    assert found.boot_record == BootRecord("this", frozenset({("10.0.0.2", 7)}))


def test_files_that_cannot_be_read_hold_their_addresses_and_stay(files: NetworkFiles, folder: Path) -> None:
    (folder / "10.0.0.1").mkdir()
    (folder / "10.0.0.2").symlink_to("nowhere")
    os.mkfifo(folder / "10.0.0.3")
    (folder / "10.0.0.4").write_bytes(b"\xff\xfe")
    (folder / "10.0.0.5").write_bytes(b"")
    (folder / "10.0.0.6").write_bytes(b"x" * ((1 << 20) + 1))
    (folder / "notes").write_text("c1\r\neth0")
    found = files.read().files
    assert [one.name for one in found] == [f"10.0.0.{last}" for last in range(1, 7)]
    assert {one.owner for one in found} == {None}
    assert [one.name for one in found if one.is_empty] == ["10.0.0.5"]
    for last in range(1, 7):
        with files.locked(pace()), pytest.raises(Unavailable, match="File exists"):
            files.create(Address.parse(f"10.0.0.{last}"), Owner("c1"))
    assert sorted(os.listdir(folder)) == sorted([*(one.name for one in found), "lock", "notes"])


def test_a_file_without_text_is_empty_also_if_the_disk_shows_zeros(files: NetworkFiles, folder: Path) -> None:
    for name, content in (("10.0.0.2", b""), ("10.0.0.3", bytes(40)), ("10.0.0.4", b"c1"), ("10.0.0.5", b" \n")):
        (folder / name).write_bytes(content)
    assert [one.name for one in files.read().files if one.is_empty] == ["10.0.0.2", "10.0.0.3"]


def test_a_file_is_read_whole(files: NetworkFiles) -> None:
    """The CNI specification limits no container id."""
    owner = Owner("c" * 5001, "net1")
    with files.locked(pace()):
        files.create(ADDRESS, owner)
    assert [one.owner for one in files.read().files] == [owner]


def test_an_address_that_cannot_be_synced_is_not_given(
    files: NetworkFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a loss of power, what is not synced may be an empty file."""

    def refuse(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(Unavailable, match="Input/output error"):
        files.create(ADDRESS, Owner("c1"))
    assert os.listdir(folder) == []


@pytest.mark.parametrize("name", ["last_reserved_ip.0", ".netplug-boot"])
@pytest.mark.parametrize("kind", ["folder", "dangling link", "pipe", "device"])
def test_what_stands_in_the_way_of_a_note_stops_nothing(
    files: NetworkFiles, folder: Path, tmp_path: Path, name: str, kind: str
) -> None:
    path = folder / name
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case _:
            path.symlink_to("/dev/zero" if kind == "device" else tmp_path / "nothing")
    found = files.read(1)
    assert (found.last_reserved, found.boot_record) == ({}, None)
    record = BootRecord("this", frozenset())
    files.note_last(0, ADDRESS)
    assert files.note_boot(record) is (name != ".netplug-boot" or kind != "folder")
    found = files.read(1)
    assert found.last_reserved == ({} if (name, kind) == ("last_reserved_ip.0", "folder") else {0: ADDRESS})
    assert found.boot_record == (None if (name, kind) == (".netplug-boot", "folder") else record)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_a_lock_that_is_no_file_is_an_error_that_names_it(
    files: NetworkFiles, folder: Path, tmp_path: Path, kind: str
) -> None:
    path = folder / "lock"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case _:
            path.symlink_to(tmp_path / "nothing")
    with pytest.raises(Unavailable, match="/lock"), files.locked(pace()):
        pytest.fail("there is no lock")
    assert not (tmp_path / "nothing").exists()


def test_an_address_is_made_whole_and_can_be_taken_back(files: NetworkFiles) -> None:
    with files.locked(pace()):
        take_back = files.create(ADDRESS, Owner("c1", "net1"))
        assert Path(files.path, "10.0.0.2").read_bytes() == b"c1\r\nnet1"
        assert sorted(os.listdir(files.path)) == ["10.0.0.2", "lock"]
        take_back()
        take_back()
        assert os.listdir(files.path) == ["lock"]


def test_what_a_process_that_was_killed_has_left_is_removed(files: NetworkFiles, folder: Path) -> None:
    (folder / ".netplug-new-10.0.0.2").write_bytes(b"c1")
    with files.locked(pace()):
        files.clean()
    assert os.listdir(folder) == ["lock"]


def test_notes_replace_what_was_there(files: NetworkFiles, folder: Path) -> None:
    for address in ("10.0.0.200", "10.0.0.3"):
        files.note_last(0, Address.parse(address))
    record = BootRecord("this", frozenset({("10.0.0.2", 7)}))
    files.note_boot(record)
    found = files.read(1)
    assert (found.last_reserved, found.boot_record) == ({0: Address.parse("10.0.0.3")}, record)
    assert sorted(os.listdir(folder)) == [".netplug-boot", "last_reserved_ip.0"]


def test_a_path_that_is_no_folder_is_an_error_that_names_it(files: NetworkFiles) -> None:
    Path(files.path).parent.mkdir()
    Path(files.path).write_text("")
    for call in (files.read, files.clean, files.require_writable):
        with pytest.raises(Unavailable, match="net1"):
            call()
    with pytest.raises(Unavailable, match="net1"), files.locked(pace()):
        pytest.fail("there is nothing to lock")


def test_a_folder_that_can_be_made_is_writable(files: NetworkFiles, folder: Path) -> None:
    files.require_writable()
    folder.rmdir()
    files.require_writable()


def test_the_current_boot_of_this_machine() -> None:
    boot = current_boot()
    assert boot is not None
    assert len(boot.boot_id) == 36
