"""The database file: its creation, the check at every opening, and foreign files."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from netplug_backends.sqlite.datastore import SCHEMA_VERSION, open_database
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError
from netplug_core.settings.model import MissingFile
from netplug_core.testing.clock import ManualClock
from tests.harness.umask import UMASKS, modes_below, under_umask


@pytest.fixture
def deadline() -> Deadline:
    return Deadline.after(ManualClock(), 5.0)


def pragma(path: Path, name: str) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]


@pytest.mark.parametrize("umask", UMASKS)
def test_only_the_owner_may_read_the_file_and_its_logs(tmp_path: Path, deadline: Deadline, umask: int) -> None:
    path = tmp_path / "lib" / "netplug" / "netplug.db"
    with under_umask(umask), closing(open_database(str(path), deadline=deadline)):
        modes = modes_below(tmp_path / "lib")
    assert modes.pop("netplug") == 0o755
    assert modes == {f"netplug/{name}": 0o600 for name in ("netplug.db", "netplug.db-wal", "netplug.db-shm")}
    assert modes_below(tmp_path)["lib"] == 0o755


def test_a_new_file_has_wal_mode_and_the_schema_version(tmp_path: Path, deadline: Deadline) -> None:
    path = tmp_path / "netplug.db"
    with closing(open_database(str(path), deadline=deadline)) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert (pragma(path, "journal_mode"), pragma(path, "user_version")) == ("wal", SCHEMA_VERSION)
    assert [file.name for file in tmp_path.iterdir()] == ["netplug.db"]


def test_a_relative_path_is_in_the_working_folder(
    tmp_path: Path, deadline: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_database("netplug.db", deadline=deadline).close()
    assert (tmp_path / "netplug.db").exists()


def test_an_empty_file_becomes_a_database(tmp_path: Path, deadline: Deadline) -> None:
    path = tmp_path / "netplug.db"
    path.touch()
    open_database(str(path), deadline=deadline).close()
    assert pragma(path, "user_version") == SCHEMA_VERSION


def test_a_creation_that_was_killed_is_completed(tmp_path: Path, deadline: Deadline) -> None:
    path = tmp_path / "netplug.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    open_database(str(path), deadline=deadline).close()
    assert pragma(path, "user_version") == SCHEMA_VERSION


def test_a_second_opening_changes_nothing(tmp_path: Path, deadline: Deadline) -> None:
    path = tmp_path / "netplug.db"
    open_database(str(path), deadline=deadline).close()
    before = path.read_bytes()
    open_database(str(path), deadline=deadline).close()
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, -1])
def test_another_schema_version_is_refused_and_named(tmp_path: Path, deadline: Deadline, version: int) -> None:
    path = tmp_path / "netplug.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version={version}")
    with pytest.raises(ConfigurationError) as caught:
        open_database(str(path), deadline=deadline)
    assert str(caught.value) == (
        f"sqlite store {path}, schema version: {version} is not accepted; this release reads version 1"
    )


def test_a_foreign_database_is_refused_and_not_changed(tmp_path: Path, deadline: Deadline) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (title)")
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match=r"sqlite_path: .*other\.db.* holds the database of something else"):
        open_database(str(path), deadline=deadline)
    assert path.read_bytes() == before


def test_a_missing_file_is_refused_if_it_may_not_be_created(tmp_path: Path, deadline: Deadline) -> None:
    path = tmp_path / "lib" / "netplug.db"
    with pytest.raises(ConfigurationError, match=r"sqlite_path: .*netplug\.db' is not accepted; no such file"):
        open_database(str(path), MissingFile.REFUSED, deadline=deadline)
    assert list(tmp_path.iterdir()) == []
    open_database(str(path), deadline=deadline).close()
    open_database(str(path), MissingFile.REFUSED, deadline=deadline).close()


def test_a_missing_file_is_assumed_empty_and_not_made(tmp_path: Path, deadline: Deadline) -> None:
    path = tmp_path / "lib" / "netplug.db"
    connection = open_database(str(path), MissingFile.ASSUMED_EMPTY, deadline=deadline)
    assert connection.execute("SELECT count(*) FROM record").fetchone() == (0,)
    connection.close()
    assert list(tmp_path.iterdir()) == []
    open_database(str(path), deadline=deadline).close()
    connection = open_database(str(path), MissingFile.ASSUMED_EMPTY, deadline=deadline)
    assert connection.execute("PRAGMA database_list").fetchone()[2] == str(path)
    connection.close()
