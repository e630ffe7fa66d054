"""The database file: created once, and checked whenever it is opened. ``datastore`` calls it.

Several processes may open a path that does not exist: one of them creates the tables and the others wait. If it dies
meanwhile, the next one completes the file. A file of a newer release or of another program is refused and not changed.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from typing import assert_never

from netplug_backends.host.atomic_files import PRIVATE_FILE_MODE, make_folder, require_regular
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError
from netplug_core.settings.model import MissingFile

__all__ = ["SCHEMA_VERSION", "file_identity", "open_database", "store_id"]

SCHEMA_VERSION = 1
"""The ``PRAGMA user_version`` of a file that this release creates."""

# ``record`` has the stored records, ``change`` the changes for watches. Both count revisions together, without gaps. A
# path's segments are joined by a character below all others, so texts sort like the tuples and a prefix is a range.
_TABLES = (
    """CREATE TABLE record (
        kind TEXT NOT NULL, path TEXT NOT NULL, revision INTEGER NOT NULL, value BLOB NOT NULL,
        PRIMARY KEY (kind, path)) WITHOUT ROWID""",
    "CREATE INDEX record_revision ON record (kind, revision)",
    "CREATE TABLE change (revision INTEGER PRIMARY KEY, kind TEXT NOT NULL, path TEXT NOT NULL, value BLOB)",
    f"PRAGMA user_version={SCHEMA_VERSION}",
)
# Made when it is first asked for: files of earlier releases have none, and those releases ignore the table.
_STORE_ID = "CREATE TABLE IF NOT EXISTS store_id (number INTEGER PRIMARY KEY CHECK (number = 1), id TEXT NOT NULL)"
_RETRY_S = 0.005
_IN_MEMORY = ":memory:"
_NO_FILE = "no such file; netplugctl create, netplugctl apply and the plugin make it"


def open_database(
    path: str, missing_file: MissingFile = MissingFile.CREATED, *, deadline: Deadline
) -> sqlite3.Connection:
    """A connection to the database at the path; it waits for locks by the deadline.

    Raises:
        ConfigurationError: the file is of a newer release, or of another program, or it does not exist and may not be
            created.
        OSError, sqlite3.Error: it cannot be created, opened or read.
    """
    opened = path
    if not require_regular(path):  # sqlite would wait for the writer of a pipe
        match missing_file:
            case MissingFile.REFUSED:
                raise ConfigurationError("sqlite_path", path, _NO_FILE)
            case MissingFile.CREATED:
                _make_file(path)
            case MissingFile.ASSUMED_EMPTY:
                opened = _IN_MEMORY
            case _:
                assert_never(missing_file)
    connection = sqlite3.connect(opened, timeout=deadline.remaining_s, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous=FULL")
        _check(connection, path, deadline)
    except BaseException:
        connection.close()
        raise
    return connection


def file_identity(path: str) -> tuple[int, int] | None:
    """Which file is at the path, whatever it is called by now; None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def store_id(connection: sqlite3.Connection) -> str:
    """The random id of the file, which stays the same wherever the file is moved; it is made at the first call."""
    return _find_store_id(connection) or _make_store_id(connection)


def _find_store_id(connection: sqlite3.Connection) -> str | None:
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'store_id'").fetchone() is None:
        return None
    row = connection.execute("SELECT id FROM store_id").fetchone()
    return None if row is None else str(row[0])


def _make_store_id(connection: sqlite3.Connection) -> str:
    from uuid import uuid4  # once in the life of a file

    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_STORE_ID)
    connection.execute("INSERT OR IGNORE INTO store_id VALUES (1, ?)", (str(uuid4()),))
    (found,) = connection.execute("SELECT id FROM store_id").fetchone()
    connection.execute("COMMIT")
    return str(found)


def _check(connection: sqlite3.Connection, path: str, deadline: Deadline) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        _make_tables(connection, path, deadline)
    elif version != SCHEMA_VERSION:
        accepted = f"this release reads version {SCHEMA_VERSION}"
        raise ConfigurationError(f"sqlite store {path}, schema version", version, accepted)


def _make_file(path: str) -> None:
    # Created before sqlite opens it, so that the file, and the log files beside it, are never readable by others. It is
    # not opened: closing a descriptor would release the locks of every other connection of this process.
    make_folder(os.path.dirname(path))
    with suppress(FileExistsError):
        os.mknod(path, PRIVATE_FILE_MODE)


def _make_tables(connection: sqlite3.Connection, path: str, deadline: Deadline) -> None:
    _refuse_foreign(connection, path)
    _switch_to_wal(connection, deadline)
    connection.execute("BEGIN IMMEDIATE")
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
        for statement in _TABLES:
            connection.execute(statement)
    connection.execute("COMMIT")


def _refuse_foreign(connection: sqlite3.Connection, path: str) -> None:
    # One statement, so that the tables of another process are seen all or not at all.
    state = "SELECT user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version"
    version, tables = connection.execute(state).fetchone()
    if version == 0 and tables:
        raise ConfigurationError("sqlite_path", path, "it holds the database of something else; name a file of its own")


def _switch_to_wal(connection: sqlite3.Connection, deadline: Deadline) -> None:
    # The file keeps the mode. sqlite does not wait for this lock: two processes that switch at once could deadlock.
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or deadline.has_passed:
                raise
            deadline.clock.sleep(_RETRY_S)
        else:
            return
