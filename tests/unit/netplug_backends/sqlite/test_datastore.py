"""The sqlite datastore beyond the conformance suite: its file, locks, errors and waits."""

import resource
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from attrs import define, field

from netplug_backends.host.machine import SystemClock
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_core.addressing import Prefix
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Atomicity
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.ipam.model import HANDLE, Handle, handle_key
from netplug_core.names import InvalidName
from netplug_core.records import (
    ABSENT,
    AlreadyExists,
    CommitError,
    Conflict,
    Create,
    Delete,
    Get,
    Key,
    List,
    Malformed,
    NotFound,
    OutcomeUnknown,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Update,
    WatchExpired,
)
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.datastore_harness import FRUIT, SAMPLE_CODEC, TOOL, TextCodec
from tests.harness.waiting import MARGIN_S

APPLE = FRUIT.key("green", "apple")
PEAR = FRUIT.key("green", "pear")
FRUITS = List(FRUIT)


@define
class EventfulClock(ManualClock):
    """A manual clock that runs an action during each sleep: the n-th event during the n-th sleep."""

    events: list[Callable[[], object]] = field(factory=list)

    def sleep(self, seconds: float) -> None:
        ManualClock.sleep(self, seconds)
        if self.events:
            self.events.pop(0)()


@pytest.fixture
def clock() -> EventfulClock:
    return EventfulClock()


@pytest.fixture
def deadline(clock: EventfulClock) -> Deadline:
    return Deadline.after(clock, 5.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "netplug.db"


@pytest.fixture
def store(path: Path, clock: EventfulClock) -> Iterator[SqliteDatastore]:
    with opened(path, clock) as store:
        yield store


@contextmanager
def opened(path: Path, clock: Clock, keep_changes: int = 10_000) -> Iterator[SqliteDatastore]:
    store = SqliteDatastore(str(path), clock=clock, codec=SAMPLE_CODEC, keep_changes=keep_changes)
    with closing(store):
        yield store


def soon() -> Deadline:
    return Deadline.after(SystemClock(), 0.05)


# --- the file ------------------------------------------------------------------------------------------------------


def test_constructing_does_not_touch_the_file(store: SqliteDatastore, path: Path) -> None:
    description = store.description
    assert (description.name, description.atomicity, description.location) == ("sqlite", Atomicity.ATOMIC, str(path))
    assert not path.exists()


def test_a_read_creates_the_file(store: SqliteDatastore, path: Path, deadline: Deadline) -> None:
    snapshot = store.read((FRUITS,), deadline=deadline)
    assert (snapshot.list(FRUITS), snapshot.revision(FRUIT)) == ((), "0")
    assert path.exists()


def test_records_outlive_the_store(path: Path, clock: EventfulClock, deadline: Deadline) -> None:
    with opened(path, clock) as first:
        revision = first.commit((Create(APPLE, "a"),), deadline=deadline)[0]
    with opened(path, clock) as second:
        record = second.read((Get(APPLE),), deadline=deadline).find(APPLE)
        assert record is not None
        assert (record.value, record.revision) == ("a", revision)


def test_a_long_list_says_how_far_it_is(store: SqliteDatastore, deadline: Deadline) -> None:
    writes = [Create(FRUIT.key(colour, f"{number:04}"), "a") for colour in ("green", "red") for number in range(1200)]
    store.commit(writes, deadline=deadline)
    reports = list[tuple[int, int]]()
    store.report_reads(lambda found, left: reports.append((found, left)))
    assert len(store.read((FRUITS, Get(APPLE)), deadline=deadline).list(FRUITS)) == 2400
    assert reports == [(1000, 1400), (2000, 400)]
    reports.clear()
    store.read((List(FRUIT, ("red",)),), deadline=deadline)
    assert reports == [(1000, 0)], "how many are red is not known before"
    store.report_reads(None)
    store.read((FRUITS,), deadline=deadline)
    assert len(reports) == 1


def test_a_closed_store_opens_again_at_the_next_call(store: SqliteDatastore, deadline: Deadline) -> None:
    store.commit((Create(APPLE, "a"),), deadline=deadline)
    store.close()
    store.close()
    assert len(store.read((FRUITS,), deadline=deadline).list(FRUITS)) == 1


def test_a_file_that_is_replaced_under_an_open_store_is_opened_again(
    store: SqliteDatastore, path: Path, clock: EventfulClock, deadline: Deadline
) -> None:
    """As the advice for a damaged file says: it is moved away, and a backup takes its place or a new file is made."""
    store.commit((Create(APPLE, "a"),), deadline=deadline)
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        (path.parent / name).rename(path.parent / f"old-{name}")
    assert store.read((FRUITS,), deadline=deadline).list(FRUITS) == ()
    with opened(path, clock) as other:
        other.commit((Create(PEAR, "p"),), deadline=deadline)
        assert len(store.read((FRUITS,), deadline=deadline).list(FRUITS)) == 1
    with opened(path.parent / f"old-{path.name}", clock) as old:
        assert [record.key for record in old.read((FRUITS,), deadline=deadline).list(FRUITS)] == [APPLE]


def test_a_revision_of_a_former_file_says_nothing_about_its_successor(
    store: SqliteDatastore, path: Path, clock: EventfulClock, deadline: Deadline
) -> None:
    """A process that stays has read the old file. In the new one, the same number stands for another value."""
    (old,) = store.commit((Create(APPLE, "a"),), deadline=deadline)
    seen = store.read((FRUITS,), deadline=deadline).revision(FRUIT)
    watched = store.watch({FRUIT: seen}, deadline=deadline)
    (path.parent / path.name).rename(path.parent / "old")
    with opened(path, clock) as other:
        assert other.commit((Create(APPLE, "another"),), deadline=deadline) == (old,)
    for write in (Update(APPLE, "b", old), Delete(APPLE, old), Require(APPLE, old), RequireUnchanged(FRUIT, seen)):
        with pytest.raises(Conflict):
            store.commit((write, Create(PEAR, "p")), deadline=deadline)
    with pytest.raises(WatchExpired):
        next(watched)
    with pytest.raises(WatchExpired):
        next(store.watch({FRUIT: seen}, deadline=deadline))
    record = store.read((Get(APPLE),), deadline=deadline).find(APPLE)
    assert record is not None
    (new,) = store.commit((Update(APPLE, "b", record.revision),), deadline=deadline)
    events = store.watch({FRUIT: record.revision}, deadline=Deadline.after(clock, 0.0))
    assert [(event.key, event.value, event.revision) for event in events] == [(APPLE, "b", new)]


def test_two_stores_on_one_file_race_for_one_revision(
    store: SqliteDatastore, path: Path, clock: EventfulClock, deadline: Deadline
) -> None:
    revision = store.commit((Create(APPLE, "a"),), deadline=deadline)[0]
    with opened(path, clock) as other:
        other.commit((Update(APPLE, "theirs", revision),), deadline=deadline)
    with pytest.raises(Conflict) as caught:
        store.commit((Update(APPLE, "ours", revision),), deadline=deadline)
    assert caught.value.current is not None
    assert caught.value.current.value == "theirs"


def test_paths_sort_like_tuples_for_all_names(store: SqliteDatastore, deadline: Deadline) -> None:
    paths = [
        ("a", "z"),
        ("a b", "a"),
        ("a", ""),
        ("a!", "b"),
        ("é", "a"),
        ("\U0001f34e", "a"),
        ("\uffee", "a"),
        ("", "a"),
    ]
    store.commit([Create(FRUIT.key(*path), "x") for path in paths], deadline=deadline)
    within = List(FRUIT, ("a",))
    snapshot = store.read((FRUITS, within), deadline=deadline)
    assert [record.key.path for record in snapshot.list(FRUITS)] == sorted(paths)
    assert [record.key.path for record in snapshot.list(within)] == [("a", ""), ("a", "z")]


@pytest.mark.parametrize("beginning", ["a", "é", "\ud7ff", "\uffff", "\U0010ffff"])
def test_a_list_by_the_beginning_of_a_name_is_one_range_whatever_the_last_character(
    store: SqliteDatastore, deadline: Deadline, beginning: str
) -> None:
    inside = [("a", beginning), ("a", f"{beginning}\U0010ffff"), ("a", f"{beginning}z")]
    others = [("a", "\u0020"), ("a", "Z"), (f"a{beginning}", "x"), ("b", beginning)]
    store.commit([Create(FRUIT.key(*path), "x") for path in (*inside, *others)], deadline=deadline)
    listed = List(FRUIT, ("a",), name_prefix=beginning)
    found = store.read((listed,), deadline=deadline).list(listed)
    assert [record.key.path for record in found] == sorted(inside)


@pytest.mark.parametrize("name", ["a\x1fb", "a\x00", "\n", "\ud800"])
def test_a_name_that_no_record_can_have_is_not_found_and_not_accepted(
    store: SqliteDatastore, deadline: Deadline, name: str
) -> None:
    """It may come from a configuration, so it is no mistake of ours (code 999)."""
    key, within, named = FRUIT.key("green", name), List(FRUIT, (name,)), List(FRUIT, ("green",), name_prefix=name)
    snapshot = store.read((Get(key), within, named), deadline=deadline)
    assert (snapshot.find(key), snapshot.list(within), snapshot.list(named)) == (None, (), ())
    with pytest.raises(InvalidName, match="UTF-8 without control characters is expected") as refusal:
        store.commit((Create(key, "a"),), deadline=deadline)
    assert refusal.value.code == 7


def test_a_watch_from_a_number_that_sqlite_does_not_have_has_expired(
    store: SqliteDatastore, deadline: Deadline
) -> None:
    with pytest.raises(WatchExpired):
        next(store.watch({FRUIT: Revision("9" * 20)}, deadline=deadline))


@pytest.mark.parametrize("value", ['"t"', b'"t"', 5, 1.5, "7"])
def test_a_value_of_any_type_is_read_or_malformed(
    store: SqliteDatastore, path: Path, deadline: Deadline, value: object
) -> None:
    """A person with a SQL client stores text."""
    store.commit((Create(APPLE, "a"), Create(PEAR, "p")), deadline=deadline)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE record SET value = ? WHERE path LIKE '%apple'", (value,))
    snapshot = store.read((FRUITS,), deadline=deadline)
    found = [record.value for record in snapshot.readable(FRUITS)]
    is_text = value in ('"t"', b'"t"')
    assert found == (["t", "p"] if is_text else ["p"])
    assert len(snapshot.malformed(FRUITS)) == (not is_text)


def test_a_path_with_too_few_segments_is_malformed(store: SqliteDatastore, path: Path, deadline: Deadline) -> None:
    store.commit((Create(APPLE, "a"), Create(PEAR, "p")), deadline=deadline)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE record SET path = 'apple' WHERE path LIKE '%apple'")
    snapshot = store.read((FRUITS,), deadline=deadline)
    assert [record.key for record in snapshot.readable(FRUITS)] == [PEAR]
    assert [str(error) for error in snapshot.malformed(FRUITS)] == [
        "the stored record Fruit(apple) is malformed: its path has 1 segments"
    ]


def test_an_invalid_stored_record_is_malformed_and_named(
    store: SqliteDatastore, path: Path, deadline: Deadline
) -> None:
    store.commit((Create(APPLE, "a"), Create(PEAR, "p")), deadline=deadline)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE record SET value = '5' WHERE path LIKE '%apple'")
    snapshot = store.read((FRUITS, Get(APPLE), Get(PEAR)), deadline=deadline)
    with pytest.raises(Malformed, match=r"the stored record Fruit\(green/apple\) is malformed"):
        snapshot.list(FRUITS)
    assert [record.key for record in snapshot.readable(FRUITS)] == [PEAR]
    assert snapshot.state(Get(APPLE)) == "1"
    assert snapshot.find(PEAR) == snapshot.readable(FRUITS)[0]
    with pytest.raises(CommitError):
        store.commit((Create(APPLE, "again"),), deadline=deadline)
    assert store.commit((Create(TOOL.key("saw"), "s"),), deadline=deadline) == ("3",)


# --- locks and errors ----------------------------------------------------------------------------------------------


def test_d14_a_writer_that_stays_makes_others_give_up_at_their_deadline(store: SqliteDatastore, path: Path) -> None:
    store.read((FRUITS,), deadline=Deadline.after(SystemClock(), 5.0))
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        begun = SystemClock().monotonic()
        with pytest.raises(Unavailable, match=f"sqlite store {path}: another process kept it locked") as caught:
            store.commit((Create(APPLE, "a"),), deadline=soon())
        assert SystemClock().monotonic() - begun < MARGIN_S
        assert type(caught.value) is Unavailable
        assert store.read((FRUITS,), deadline=soon()).list(FRUITS) == ()
    assert store.commit((Create(APPLE, "a"),), deadline=soon()) == ("1",)


class SlowCodec(TextCodec):
    """A codec that waits for permission to decode."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.allowed = threading.Event()

    def decode(self, key: Key[object], data: bytes) -> object:
        self.begun.set()
        self.allowed.wait(5.0)
        return super().decode(key, data)


def test_a_thread_that_stays_in_a_call_makes_others_give_up_at_their_deadline(path: Path) -> None:
    codec = SlowCodec()
    refusals: list[AlreadyExists] = []
    with closing(SqliteDatastore(str(path), clock=SystemClock(), codec=codec)) as store:
        long = Deadline.after(SystemClock(), 5.0)
        store.commit((Create(APPLE, "a"),), deadline=long)

        def create_again() -> None:
            with pytest.raises(AlreadyExists) as caught:
                store.commit((Create(APPLE, "b"),), deadline=long)
            refusals.append(caught.value)

        thread = threading.Thread(target=create_again)
        thread.start()
        codec.begun.wait(5.0)
        with pytest.raises(Unavailable, match="the deadline passed before it could be asked"):
            store.read((FRUITS,), deadline=soon())
        codec.allowed.set()
        thread.join()
    assert len(refusals) == 1


@pytest.mark.parametrize("content", [b"not a database, but long enough to be looked at" * 100, b"short"])
def test_a_file_that_is_no_database_is_unavailable_and_named(
    store: SqliteDatastore, path: Path, deadline: Deadline, content: bytes
) -> None:
    path.write_bytes(content)
    with pytest.raises(Unavailable, match=f"sqlite store {path}: it is not a database"):
        store.read((FRUITS,), deadline=deadline)
    assert path.read_bytes() == content


def test_a_folder_in_the_place_of_the_file_is_unavailable(
    store: SqliteDatastore, path: Path, deadline: Deadline
) -> None:
    path.mkdir()
    with pytest.raises(Unavailable, match="it cannot be opened"):
        store.read((FRUITS,), deadline=deadline)


def test_a_file_in_the_place_of_the_folder_is_unavailable(path: Path, clock: EventfulClock, deadline: Deadline) -> None:
    path.touch()
    with opened(path / "netplug.db", clock) as store, pytest.raises(Unavailable, match="it cannot be made: "):
        store.read((FRUITS,), deadline=deadline)


def test_a_file_of_a_newer_release_is_refused_by_every_call(
    store: SqliteDatastore, path: Path, deadline: Deadline
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=9")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="this release reads version 1"):
            store.read((FRUITS,), deadline=deadline)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_error_during_a_commit_leaves_the_outcome_unknown(
    store: SqliteDatastore, path: Path, deadline: Deadline
) -> None:
    store.commit((Create(APPLE, "a"),), deadline=deadline)
    size = (path.parent / "netplug.db-wal").stat().st_size
    with (
        largest_file(size + 100),
        pytest.raises(OutcomeUnknown, match=f"sqlite store {path}: the disk failed") as caught,
    ):
        store.commit((Create(PEAR, "p"),), deadline=deadline)
    assert caught.value.applied == 0
    assert store.read((Get(PEAR),), deadline=deadline).find(PEAR) is None
    assert store.commit((Create(PEAR, "p"),), deadline=deadline) == ("2",)


# --- waiting -------------------------------------------------------------------------------------------------------


def test_a_watch_delivers_own_and_foreign_writes_once(
    store: SqliteDatastore, path: Path, clock: EventfulClock, deadline: Deadline
) -> None:
    with opened(path, clock) as other:
        clock.events = [
            lambda: None,
            lambda: store.commit((Create(APPLE, "own"),), deadline=deadline),
            lambda: None,
            lambda: other.commit((Create(PEAR, "foreign"),), deadline=deadline),
            store.close,
            lambda: store.commit((Create(TOOL.key("saw"), "not asked for"),), deadline=deadline),
        ]
        changes = list(store.watch({FRUIT: Revision("0")}, deadline=Deadline.after(clock, 1.0)))
    assert [(change.key, change.value, change.revision) for change in changes] == [
        (APPLE, "own", "1"),
        (PEAR, "foreign", "2"),
    ]


def test_a_watch_polls_every_tenth_of_a_second(store: SqliteDatastore, clock: EventfulClock) -> None:
    times: list[float] = []
    clock.events = [lambda: times.append(clock.monotonic())] * 9
    assert list(store.watch({FRUIT: Revision("0")}, deadline=Deadline.after(clock, 0.25))) == []
    assert times == pytest.approx([0.1, 0.2, 0.25])


def test_a_watch_from_forgotten_changes_expires(path: Path, clock: EventfulClock, deadline: Deadline) -> None:
    with opened(path, clock, keep_changes=2) as store:
        store.commit([Create(TOOL.key(name), "x") for name in ("axe", "saw", "vice")], deadline=deadline)
        with pytest.raises(WatchExpired, match="after revision 0 are no longer kept"):
            next(store.watch({FRUIT: Revision("2"), TOOL: Revision("0")}, deadline=deadline))
        assert next(store.watch({TOOL: Revision("1")}, deadline=deadline)).key == TOOL.key("saw")


def test_a_watch_that_falls_behind_expires(path: Path, clock: EventfulClock, deadline: Deadline) -> None:
    with opened(path, clock, keep_changes=2) as store:
        store.commit((Create(APPLE, "a"),), deadline=deadline)
        watch = store.watch({FRUIT: Revision("0")}, deadline=deadline)
        assert next(watch).key == APPLE
        store.commit([Create(TOOL.key(name), "x") for name in ("axe", "saw", "vice")], deadline=deadline)
        with pytest.raises(WatchExpired):
            next(watch)


@pytest.mark.parametrize("revision", ["4", "uid/4", ""])
def test_a_revision_of_another_store_fulfils_no_condition(
    store: SqliteDatastore, deadline: Deadline, revision: str
) -> None:
    store.commit((Create(APPLE, "a"),), deadline=deadline)
    with pytest.raises(WatchExpired):
        next(store.watch({FRUIT: Revision(revision)}, deadline=deadline))
    with pytest.raises(Conflict):
        store.commit((RequireUnchanged(FRUIT, Revision(revision)),), deadline=deadline)


def test_d8_a_record_that_is_marked_as_deleted_is_absent_and_makes_room(path: Path, clock: EventfulClock) -> None:
    key, value = handle_key("h"), Handle(blocks=((Prefix.parse("10.0.0.0/26"), 1),))
    deadline = Deadline.after(clock, 5.0)
    with closing(SqliteDatastore(str(path), clock=clock)) as store:
        (revision,) = store.commit((Create(key, value),), deadline=deadline)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("""UPDATE record SET value = '{"block":{"10.0.0.0/26":1},"deleted":true}'""")
        snapshot = store.read((Get(key), List(HANDLE)), deadline=deadline)
        assert (snapshot.find(key), snapshot.list(List(HANDLE))) == (None, ())
        with pytest.raises(NotFound):
            store.commit((Update(key, value, Revision("9")),), deadline=deadline)
        store.commit((Require(key, ABSENT),), deadline=deadline)
        (again,) = store.commit((Create(key, value),), deadline=deadline)
        assert again != revision
        assert store.read((Get(key),), deadline=deadline).find(key) == Record(key, value, again)
        with pytest.raises(AlreadyExists):
            store.commit((Create(key, value),), deadline=deadline)
