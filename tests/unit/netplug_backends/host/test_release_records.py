"""Files of release records: the text of ``RecordFiles`` for both implementations, and what only real files can show."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netplug_backends.host import release_records
from netplug_backends.host.atomic_files import Folder, open_folder
from netplug_backends.host.release_records import ReleaseRecordFolder
from netplug_core.flows.world import RecordCounts, RecordFiles
from netplug_core.testing.clock import ManualClock
from tests.harness.cni_node import FakeHost
from tests.harness.release_records import FakeRecordFiles

LOCATION, OTHER = "0123456789abcdef", "fedcba9876543210"
STORE = "etcdv3-0011"
A, B, C = "a" * 26, "b" * 26, "c" * 26
FORMER = f"{7:020}-{A}.json"
LATER_NS = 1 << 62


class Fake:
    """The records of a fake machine."""

    def __init__(self, _tmp_path: Path) -> None:
        self.host, self.clock = FakeHost(), ManualClock()
        self.files: RecordFiles = FakeRecordFiles(self.host, self.clock, "/records")

    def put(self, name: str, text: str) -> None:
        self.clock.sleep(1)
        self.host.texts[f"/records/{name}"] = text

    def paths(self) -> set[str]:
        return {path.removeprefix("/records/") for path in self.host.texts if path.endswith((".json", ".damaged"))}


class Real:
    """Those of this machine."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "records"
        self.files: RecordFiles = ReleaseRecordFolder(str(self.root))

    def put(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def paths(self) -> set[str]:
        found = (Path(folder) / name for folder, _folders, names in os.walk(self.root) for name in names)
        return {str(path.relative_to(self.root)) for path in found if path.suffix in (".json", ".damaged")}


Machine = Fake | Real


@pytest.fixture(params=[Fake, Real])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    made: Machine = request.param(tmp_path)
    return made


# --- the text, for both --------------------------------------------------------------------------------------------


def test_a_record_is_written_replaced_and_removed(machine: Machine) -> None:
    files = machine.files
    assert (files.find(LOCATION, A), files.names(LOCATION), files.has_stores()) == (None, (), False)
    assert files.write(LOCATION, A, "one") == files.path(LOCATION, A)
    files.write(LOCATION, A, "two")
    assert (files.find(LOCATION, A), files.names(LOCATION), files.has_stores()) == ("two", (A,), True)
    assert machine.paths() == {f"stores/{LOCATION}/{A}.json"}
    files.remove(LOCATION, A, "one")  # what was replaced meanwhile stays
    assert files.find(LOCATION, A) == "two"
    files.remove(LOCATION, A, "two")
    files.remove(LOCATION, A, "two")
    assert (files.find(LOCATION, A), machine.paths()) == (None, set())


def test_the_oldest_comes_first(machine: Machine) -> None:
    for name in (B, C, A):
        machine.files.write(LOCATION, name, name)
        if isinstance(machine, Fake):
            machine.clock.sleep(1)
    assert machine.files.names(LOCATION) == (B, C, A)


def test_places_of_one_store_share_its_folder(machine: Machine) -> None:
    files = machine.files
    files.write(LOCATION, A, "a")
    assert files.find_store(LOCATION) is None
    files.lead(LOCATION, STORE)
    assert (files.find_store(LOCATION), machine.paths()) == (STORE, {f"stores/{STORE}/{A}.json"})
    assert (files.find(LOCATION, A), files.names(LOCATION)) == ("a", (A,))
    files.lead(OTHER, STORE)
    assert (files.find(OTHER, A), files.names(OTHER)) == ("a", (A,))
    files.write(OTHER, B, "b")
    assert set(files.names(LOCATION)) == {A, B}
    files.remove(LOCATION, B, "b")
    assert files.names(OTHER) == (A,)


def test_the_newer_record_of_an_attachment_is_kept_when_a_folder_is_renamed(machine: Machine) -> None:
    files = machine.files
    files.lead(OTHER, STORE)
    files.write(OTHER, A, "old")
    files.write(LOCATION, A, "new")
    files.lead(LOCATION, STORE)
    assert (files.find(OTHER, A), machine.paths()) == ("new", {f"stores/{STORE}/{A}.json"})


def test_a_place_with_another_store_leaves_what_was_of_the_former(machine: Machine) -> None:
    files = machine.files
    files.lead(LOCATION, STORE)
    files.write(LOCATION, A, "a")
    files.lead(LOCATION, "etcdv3-0022")
    assert (files.find(LOCATION, A), files.names(LOCATION)) == (None, ())
    files.lead(OTHER, STORE)
    assert files.find(OTHER, A) == "a"


def test_a_damaged_record_is_set_aside_if_it_is_still_the_same(machine: Machine) -> None:
    files = machine.files
    files.write(LOCATION, A, "{")
    files.set_aside(LOCATION, A, "[")
    assert files.find(LOCATION, A) == "{"
    files.set_aside(LOCATION, A, "{")
    files.write(LOCATION, B, "x")
    files.set_aside(LOCATION, B, None)
    files.set_aside(LOCATION, B, None)
    assert (files.names(LOCATION), files.has_stores()) == ((), False)
    assert machine.paths() == {f"stores/{LOCATION}/{A}.damaged", f"stores/{LOCATION}/{B}.damaged"}
    assert files.count((LOCATION,)) == RecordCounts(damaged=2)


def test_records_of_earlier_releases(machine: Machine) -> None:
    files = machine.files
    assert (files.find_former(A), files.list_former()) == ((), ())
    later, other = f"{8:020}-{A}.json", f"{9:020}-{B}.json"
    for name in (later, FORMER, other):
        machine.put(name, name)
    assert files.find_former(A) == (FORMER, later)
    assert files.list_former() == (FORMER, later, other)
    assert (files.read_former(FORMER), files.read_former("gone.json")) == (FORMER, None)
    files.adopt(FORMER, LOCATION, A)
    files.adopt(FORMER, LOCATION, A)
    files.remove_former(later)
    files.remove_former(later)
    files.set_former_aside(other)
    files.set_former_aside(other)
    assert (files.find(LOCATION, A), files.list_former()) == (FORMER, ())
    assert machine.paths() == {f"stores/{LOCATION}/{A}.json", f"stores/former/{9:020}-{B}.damaged"}
    files.end_takeover()
    files.end_takeover()
    machine.put(FORMER, "{}")
    assert (files.find_former(A), files.list_former()) == ((), (FORMER,))


def test_a_folder_that_does_not_exist_is_not_made_for_nothing(machine: Machine) -> None:
    files = machine.files
    files.end_takeover()
    assert (files.orphan((LOCATION,), before_ns=LATER_NS), files.find_report_ns()) == (0, None)
    assert files.count((LOCATION,)) == RecordCounts()
    assert isinstance(machine, Fake) or not machine.root.exists()


def test_records_are_counted_and_put_away_by_whose_they_are(machine: Machine) -> None:
    files = machine.files
    for location, name in ((LOCATION, A), (LOCATION, B), (OTHER, A), (OTHER, B), (OTHER, C)):
        files.write(location, name, name)
    files.set_aside(LOCATION, B, None)
    files.lead(LOCATION, STORE)
    assert files.count((LOCATION,)) == RecordCounts(own=1, foreign=3, damaged=1)
    assert files.count((LOCATION, OTHER)) == RecordCounts(own=4, damaged=1)
    assert files.orphan((LOCATION,), before_ns=0) == 0
    assert files.orphan((LOCATION,), before_ns=LATER_NS) == 4
    assert files.count((LOCATION,)) == RecordCounts(own=1)
    assert machine.paths() == {
        f"stores/{STORE}/{A}.json",
        f"orphaned/{STORE}/{B}.damaged",
        *(f"orphaned/{OTHER}/{name}.json" for name in (A, B, C)),
    }
    assert files.find(LOCATION, A) == A


def test_a_report_is_noted(machine: Machine) -> None:
    files = machine.files
    files.write(LOCATION, A, "a")
    assert files.find_report_ns() is None
    files.note_report(17)
    assert files.find_report_ns() == 17
    machine.put("reported", "soon")
    assert files.find_report_ns() is None


# --- real files ----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> ReleaseRecordFolder:
    return ReleaseRecordFolder(str(tmp_path / "netplug" / "records"))


def test_records_are_for_their_owner_alone(folder: ReleaseRecordFolder) -> None:
    before = os.umask(0)
    try:
        path = Path(folder.write(LOCATION, A, "text"))
    finally:
        os.umask(before)
    paths = (path, path.parent, path.parent.parent, path.parent.parent.parent, Path(folder.folder).parent)
    modes = [oct(stat.S_IMODE(some.stat().st_mode)) for some in paths]
    assert modes == ["0o600", "0o700", "0o700", "0o700", "0o755"]
    assert not [name for name in os.listdir(path.parent) if name.startswith(".")]


@pytest.mark.parametrize("others", [0, 500])
def test_a_call_opens_one_path_and_lists_nothing(
    folder: ReleaseRecordFolder, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    folder.write(LOCATION, A, "text")
    folder.lead(LOCATION, STORE)
    folder.end_takeover()
    for number in range(others):
        path = Path(folder.folder) / "stores" / f"etcdv3-{number % 50}" / f"{number:026}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    with counted(monkeypatch, "open", "listdir", "scandir") as counts:
        assert (folder.find(LOCATION, A), folder.find_former(A)) == ("text", ())
    assert counts == {"open": 1, "listdir": 0, "scandir": 0}
    with counted(monkeypatch, "open", "listdir", "scandir") as counts:
        assert (folder.find(LOCATION, B), folder.find_former(B)) == (None, ())
    assert counts == {"open": 0, "listdir": 0, "scandir": 0}


def test_what_is_no_file_is_an_error_and_is_set_aside(folder: ReleaseRecordFolder) -> None:
    path = Path(folder.write(LOCATION, A, "text"))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="a regular file is expected, and it is a pipe"):
        folder.find(LOCATION, A)
    folder.set_aside(LOCATION, A, None)
    assert folder.find(LOCATION, A) is None


def test_a_link_at_the_path_of_a_record_is_replaced_and_not_followed(
    folder: ReleaseRecordFolder, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path = Path(folder.write(LOCATION, A, "text"))
    path.unlink()
    path.symlink_to(victim)
    folder.write(LOCATION, A, "record")
    assert (victim.read_text(), folder.find(LOCATION, A), path.is_symlink()) == ("precious", "record", False)


def test_what_dead_writers_left_is_removed(folder: ReleaseRecordFolder) -> None:
    path, unfinished = Path(folder.write(LOCATION, A, "text")), f".netplug-{'0' * 32}.new"
    for parent, name in ((path.parent, unfinished), (path.parents[2], unfinished), (path.parents[2], f"{FORMER}.tmp")):
        (parent / name).write_text("half")
    assert folder.orphan((LOCATION,), before_ns=LATER_NS) == 0
    assert os.listdir(path.parent) == [path.name]
    assert sorted(os.listdir(folder.folder)) == ["locations", "stores"]


def test_the_link_that_a_dead_writer_left_unfinished_is_removed_with_the_next_one(folder: ReleaseRecordFolder) -> None:
    folder.write(LOCATION, A, "text")
    locations = Path(folder.folder, "locations")
    (locations / f".netplug-{'0' * 32}.new").symlink_to(f"../stores/{STORE}")
    folder.lead(LOCATION, STORE)
    assert os.listdir(locations) == [LOCATION]


def test_a_holder_of_the_lock_that_stopped_keeps_no_del_from_its_record(
    folder: ReleaseRecordFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_records, "_LOCK_S", 0.0)
    folder.write(LOCATION, A, "old")
    descriptor = os.open(folder.folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    folder.write(LOCATION, A, "new")
    os.close(descriptor)
    assert folder.find(LOCATION, A) == "new"


def test_a_folder_that_is_renamed_while_a_record_is_written_has_it_in_the_end(
    folder: ReleaseRecordFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where nothing can be locked: the folder goes between the opening and the renaming of the writer."""
    monkeypatch.setattr(release_records, "_LOCK_S", 0.0)
    folder.write(LOCATION, A, "a")
    is_first = iter((True,))

    @contextmanager
    def open_and_lose(path: str) -> Iterator[Folder]:
        with open_folder(path) as opened:
            if path.endswith(f"stores/{LOCATION}") and next(is_first, False):
                ReleaseRecordFolder(folder.folder).lead(LOCATION, STORE)
            yield opened

    monkeypatch.setattr(release_records, "open_folder", open_and_lose)
    path = folder.write(LOCATION, B, "b")
    assert path == f"{folder.folder}/stores/{STORE}/{B}.json"
    assert set(folder.names(LOCATION)) == {A, B}


# --- killed at each step -------------------------------------------------------------------------------------------

STEPS = ("open", "mkdir", "rename", "link", "unlink", "symlink", "rmdir", "fsync")


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, *names: str, kill_at: int = 0) -> Iterator[dict[str, int]]:
    """How often functions of the system are called; the n-th call of all is the last thing that the process does."""
    counts = dict.fromkeys(names, 0)
    with monkeypatch.context() as patch:
        for name in names:
            patch.setattr(os, name, _counting(name, getattr(os, name), counts, kill_at))
        yield counts


def _counting(
    name: str, function: Callable[..., object], counts: dict[str, int], kill_at: int
) -> Callable[..., object]:
    def call(*args: object, **kwargs: object) -> object:
        if kill_at and sum(counts.values()) >= kill_at:
            raise Killed  # what a killed process does not do either: its clean-up
        done = function(*args, **kwargs)
        counts[name] += 1
        return done

    return call


def prepared(tmp_path: Path, number: int) -> ReleaseRecordFolder:
    """Two records at a location, one of them also in the folder of its store, and one of an earlier release."""
    folder = ReleaseRecordFolder(str(tmp_path / f"{number}"))
    folder.lead(OTHER, STORE)
    folder.write(OTHER, A, "older")
    for name in (A, B):
        folder.write(LOCATION, name, f"{name} new")
    Path(folder.folder, f"{7:020}-{C}.json").write_text("c")
    return folder


ACTIONS: dict[str, Callable[[ReleaseRecordFolder], object]] = {
    "write": lambda folder: folder.write(LOCATION, B, f"{B} new"),
    "lead": lambda folder: folder.lead(LOCATION, STORE),
    "adopt": lambda folder: folder.adopt(f"{7:020}-{C}.json", LOCATION, C),
    "end": lambda folder: folder.end_takeover(),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_process_killed_at_any_step_loses_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    whole = prepared(tmp_path, 0)
    with counted(monkeypatch, *STEPS) as counts:
        ACTIONS[action](whole)
    assert sum(counts.values()) > 1
    for number in range(1, sum(counts.values())):
        folder = prepared(tmp_path, number)
        with counted(monkeypatch, *STEPS, kill_at=number), pytest.raises(Killed):
            ACTIONS[action](folder)
        found = {name: folder.find(LOCATION, name) for name in (A, B)}
        assert found == {A: f"{A} new", B: f"{B} new"}, number
        assert folder.find(LOCATION, C) == "c" or folder.list_former(), number
        # The next process goes on.
        folder.lead(LOCATION, STORE)
        for name in folder.list_former():
            folder.adopt(name, LOCATION, C)
        folder.orphan((LOCATION, OTHER), before_ns=0)
        assert (folder.find(LOCATION, C), folder.names(LOCATION)) == ("c", folder.names(OTHER)), number
        assert set(folder.names(LOCATION)) == {A, B, C}, number
        assert os.listdir(f"{folder.folder}/stores") == [STORE], number


# --- many at once --------------------------------------------------------------------------------------------------


RECORDS = 60


class Crowd:
    """Writers by two locations of one store, a process that renames its folder, and one that replays what it finds."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.done: list[str] = []
        self.failures: list[BaseException] = []
        works = (lambda: self.write(LOCATION), lambda: self.write(OTHER), self.rename, self.replay)
        self.threads = [threading.Thread(target=self.guard, args=(work,)) for work in works]

    def guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  the test looks at it
            self.failures.append(error)

    def write(self, location: str) -> None:
        for number in range(RECORDS):
            ReleaseRecordFolder(self.path).write(location, f"{location}-{number}", f"{location}-{number}")

    def is_writing(self) -> bool:
        return any(thread.is_alive() for thread in self.threads[:2])

    def rename(self) -> None:
        while self.is_writing():
            ReleaseRecordFolder(self.path).lead(LOCATION, STORE)
            ReleaseRecordFolder(self.path).lead(OTHER, STORE)

    def replay(self) -> None:
        folder = ReleaseRecordFolder(self.path)
        while self.is_writing():
            for name in folder.names(LOCATION):
                text = folder.find(LOCATION, name)
                if text is not None:
                    folder.remove(LOCATION, name, text)
                    self.done.append(text)


@pytest.mark.parametrize("lock_s", [2.0, 0.0])
def test_no_record_is_lost_between_writers_and_those_who_rename_and_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock_s: float
) -> None:
    monkeypatch.setattr(release_records, "_LOCK_S", lock_s)
    crowd = Crowd(str(tmp_path / "records"))
    for thread in crowd.threads:
        thread.start()
    for thread in crowd.threads:
        thread.join()
    assert crowd.failures == []
    folder = ReleaseRecordFolder(crowd.path)
    folder.lead(LOCATION, STORE)
    folder.lead(OTHER, STORE)
    expected = {f"{location}-{number}" for location in (LOCATION, OTHER) for number in range(RECORDS)}
    assert {*crowd.done, *folder.names(LOCATION)} == expected


def test_a_folder_that_cannot_be_has_no_records_and_takes_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = ReleaseRecordFolder(str(tmp_path / "file" / "records"))
    assert (folder.find(LOCATION, A), folder.names(LOCATION), folder.find_store(LOCATION)) == (None, (), None)
    assert folder.path(LOCATION, A).endswith(f"/stores/{LOCATION}/{A}.json")
    with pytest.raises(OSError, match="file"):
        folder.write(LOCATION, A, "text")
