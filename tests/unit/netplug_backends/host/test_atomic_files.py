"""Files of this machine: only regular ones are read; what is written is whole, with its mode, and nowhere else."""

import fcntl
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netplug_backends.host.atomic_files import (
    FOLDER_MODE,
    OPEN_FILE_MODE,
    PRIVATE_FILE_MODE,
    NotRegular,
    TooLarge,
    create_file,
    find_file,
    make_folder,
    open_file,
    open_folder,
    read_file,
    read_input,
    read_part,
    remove_file,
    remove_leftovers,
    replace_file,
    require_regular,
)
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


def test_a_link_is_followed_to_a_file_and_to_nothing_else(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    with pytest.raises(FileNotFoundError):
        open_file(str(link), os.O_WRONLY, 0o600)
    assert not target.exists()
    target.touch()
    os.close(open_file(str(link), os.O_WRONLY, 0o600))
    with pytest.raises(NotRegular, match="a regular file is expected, and it is a symbolic link"):
        open_file(str(link), os.O_WRONLY | os.O_NOFOLLOW, 0o600)


# --- reading --------------------------------------------------------------------------------------------------------

KINDS = {"pipe": "a pipe", "socket": "a socket", "folder": "a folder", "device": "a device", "link to a pipe": "a pipe"}


def make(kind: str, path: Path) -> None:
    """Something that is no regular file."""
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(os.path.relpath(path))  # the whole path may be longer than a socket's may be
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case "link to a pipe":
            os.mkfifo(path.with_name("elsewhere"))
            path.symlink_to("elsewhere")
        case _:
            raise ValueError(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_an_error_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    make(kind, path)
    for read in (read_file, find_file, require_regular):
        with pytest.raises(NotRegular, match=f"a regular file is expected, and it is {KINDS[kind]}"):
            read(str(path))
    with pytest.raises(NotRegular):
        read_part(str(path), 10)
    for flags in (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_NOFOLLOW):
        with pytest.raises(NotRegular):
            open_file(str(path), flags, 0o600)
    with open_folder(str(tmp_path)) as folder, pytest.raises(NotRegular):
        folder.read("file")


def test_a_pipe_is_not_even_opened(tmp_path: Path) -> None:
    """A program that waits for the reader of a pipe would go on, and write to nobody."""
    os.mkfifo(tmp_path / "pipe")
    code = "import sys\nprint(flush=True)\nopen(sys.argv[1], 'w')\nprint('opened', flush=True)"
    with subprocess.Popen([sys.executable, "-c", code, tmp_path / "pipe"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(NotRegular):
            read_file(str(tmp_path / "pipe"))
        writer.kill()
        assert writer.stdout.read() == b""


def test_a_file_is_read_whole_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 200_000)
    assert read_file(str(tmp_path / "file"), 200_000) == b"x" * 200_000
    with pytest.raises(TooLarge, match="it is larger than 199999 bytes"):
        read_file(str(tmp_path / "file"), 199_999)
    os.truncate(tmp_path / "file", 1 << 40)
    with pytest.raises(TooLarge, match="it is larger than 1048576 bytes"):
        read_file(str(tmp_path / "file"))


def test_a_file_of_the_kernel_is_read_though_its_size_is_none() -> None:
    assert read_file("/proc/sys/kernel/hostname").decode() == Path("/proc/sys/kernel/hostname").read_text()


def test_a_missing_file_is_none_and_a_path_that_no_file_can_have_is_an_error(tmp_path: Path) -> None:
    assert find_file(str(tmp_path / "no" / "file")) is None
    assert not require_regular(str(tmp_path / "no"))
    for read in (read_file, find_file, require_regular):
        with pytest.raises(ValueError, match="null byte"):
            read("/a\0b")


def test_a_part_is_the_beginning_or_the_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    found = read_part(str(tmp_path / "file"), 4)
    assert (found.content, found.size, found.modified_ns) == (b"0123", 10, (tmp_path / "file").stat().st_mtime_ns)
    assert read_part(str(tmp_path / "file"), 4, is_end=True).content == b"6789"
    assert read_part(str(tmp_path / "file"), 40, is_end=True).content == b"0123456789"
    assert "0123" not in repr(found)


def test_input_may_come_from_a_pipe_and_is_bounded(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"kind: IPPool\n")
    os.close(writing)
    assert read_input(f"/dev/fd/{reading}", 100) == b"kind: IPPool\n"
    os.close(reading)
    (tmp_path / "large").write_bytes(b"x" * 101)
    with pytest.raises(TooLarge):
        read_input(str(tmp_path / "large"), 100)
    with pytest.raises(NotRegular, match="it is a device"):
        read_input("/dev/zero", 100)
    assert read_input("/dev/null", 100) == read_file("/dev/null") == b""
    with pytest.raises(IsADirectoryError):
        read_input(str(tmp_path), 100)


# --- writing --------------------------------------------------------------------------------------------------------


def test_a_written_file_has_the_content_and_the_mode(tmp_path: Path) -> None:
    file = tmp_path / "file"
    replace_file(str(file), "lång text", OPEN_FILE_MODE)
    assert (file.read_text(), mode_of(file)) == ("lång text", OPEN_FILE_MODE)
    replace_file(str(file), b"short", PRIVATE_FILE_MODE)
    assert (file.read_text(), mode_of(file)) == ("short", PRIVATE_FILE_MODE)
    replace_file(str(file), iter((b"of ", b"parts")), OPEN_FILE_MODE)
    assert (file.read_text(), mode_of(file)) == ("of parts", OPEN_FILE_MODE)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("is_target_there", [True, False])
def test_a_link_at_the_path_is_replaced_and_what_it_leads_to_is_not(tmp_path: Path, *, is_target_there: bool) -> None:
    target, path = tmp_path / "target", tmp_path / "file"
    if is_target_there:
        target.write_text("victim")
    path.symlink_to(target)
    replace_file(str(path), "token", PRIVATE_FILE_MODE)
    assert not path.is_symlink()
    assert path.read_text() == "token"
    assert (target.read_text() if target.exists() else "") == ("victim" if is_target_there else "")


def test_a_folder_at_the_path_is_an_error_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file" / "inside").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        replace_file(str(tmp_path / "file"), "", PRIVATE_FILE_MODE)
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_is_not_to_be_replaced_is_made_once(tmp_path: Path) -> None:
    create_file(str(tmp_path / "file"), "one", PRIVATE_FILE_MODE)
    (tmp_path / "link").symlink_to("nothing")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            create_file(str(tmp_path / name), "two", PRIVATE_FILE_MODE)
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]
    assert ((tmp_path / "file").read_text(), mode_of(tmp_path / "file")) == ("one", PRIVATE_FILE_MODE)


def test_what_a_check_refuses_replaces_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one")

    def check(new: str) -> None:
        raise LookupError(Path(new).read_text())

    with pytest.raises(LookupError, match="two"):
        replace_file(str(file), "two", OPEN_FILE_MODE, check)
    assert (os.listdir(tmp_path), file.read_text()) == (["file"], "one")


def test_a_program_is_executed_before_it_is_renamed(tmp_path: Path) -> None:
    answers = list[bytes]()
    program = f"#!{sys.executable} -IS\nprint('runs')\n"
    replace_file(str(tmp_path / "program"), program, 0o755, lambda new: answers.append(subprocess.check_output([new])))
    assert answers == [b"runs\n"]


def test_a_relative_path_is_below_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    replace_file("file", "text", OPEN_FILE_MODE)
    assert read_file("file") == b"text"


def test_an_open_folder_stays_the_one_that_was_opened(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "other").mkdir()
    with open_folder(str(tmp_path / "folder")) as folder:
        (tmp_path / "folder").rename(tmp_path / "moved")
        (tmp_path / "folder").symlink_to("other")
        folder.replace("file", "text", PRIVATE_FILE_MODE)
        folder.link("link", "file")
        assert folder.names() == ["file", "link"]
        assert folder.read("file").content == b"text"
        with pytest.raises(NotRegular):
            folder.read("link")
        assert folder.remove("link")
        assert not folder.remove("link")
        os.close(folder.open("lock", os.O_RDWR, PRIVATE_FILE_MODE))
    assert sorted(os.listdir(tmp_path / "moved")) == ["file", "lock"]
    assert os.listdir(tmp_path / "other") == []


def test_what_is_removed_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert remove_file(str(tmp_path / "file"))
    assert not remove_file(str(tmp_path / "file"))
    assert not remove_file(str(tmp_path / "no" / "file"))
    remove_leftovers(str(tmp_path / "no"))


# --- what killed processes leave ------------------------------------------------------------------------------------

WRITER = """
import os, sys
from netplug_backends.host.atomic_files import replace_file
def wait(new):
    print(new, flush=True)
    sys.stdin.read()
replace_file(sys.argv[1], "two", 0o600, wait)
"""


def test_the_file_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "file"
    command = [sys.executable, "-c", WRITER, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        new = Path(writer.stdout.readline().strip())
        assert new.name.startswith(".netplug-")
        assert new.name.endswith(".new")
        remove_leftovers(str(tmp_path))
        assert new.exists()
        writer.kill()
    assert os.listdir(tmp_path) == [new.name]
    remove_leftovers(str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_file_that_was_taken_for_a_leftover_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process may come between the making of the file and its lock."""
    flock, removed = fcntl.flock, list[str]()

    def lock_late(descriptor: int, operation: int) -> None:
        if not removed and operation & fcntl.LOCK_SH:
            removed.extend(os.listdir(tmp_path))
            remove_leftovers(str(tmp_path))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    replace_file(str(tmp_path / "file"), "text", PRIVATE_FILE_MODE)
    assert (len(removed), os.listdir(tmp_path)) == (1, ["file"])


def test_names_of_others_stay(tmp_path: Path) -> None:
    for name in (".netplug-kubeconfig.new", ".netplug-12.new", "file.new"):
        (tmp_path / name).touch()
    (tmp_path / f".netplug-{'0' * 32}.new").symlink_to("nothing")
    remove_leftovers(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == [".netplug-12.new", ".netplug-kubeconfig.new", "file.new"]
