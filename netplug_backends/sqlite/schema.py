"""The database file: made once, checked whenever it is opened.

``datastore`` opens its connection here. Many processes may open a path that does not exist yet; one of them makes the
tables, the others wait for it, and a death in between leaves a file that the next one completes. A file of a newer
release, or of something else, is refused and left as it is.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress

from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError

__all__ = ["SCHEMA_VERSION", "open_database"]

SCHEMA_VERSION = 1
"""What ``PRAGMA user_version`` says of a file that this release made."""

# ``record`` is what is stored, ``change`` what a watch tells. Their revisions are one count without gaps. The paths
# are joined by a character below all others, so that their order is that of the tuples and a prefix is a range.
_TABLES = (
    """CREATE TABLE record (
        kind TEXT NOT NULL, path TEXT NOT NULL, revision INTEGER NOT NULL, value BLOB NOT NULL,
        PRIMARY KEY (kind, path)) WITHOUT ROWID""",
    "CREATE INDEX record_revision ON record (kind, revision)",
    "CREATE TABLE change (revision INTEGER PRIMARY KEY, kind TEXT NOT NULL, path TEXT NOT NULL, value BLOB)",
    f"PRAGMA user_version={SCHEMA_VERSION}",
)
_RETRY_S = 0.005


def open_database(path: str, *, deadline: Deadline) -> sqlite3.Connection:
    """A connection to the database at the path, made if there is none, that waits for locks until the deadline.

    Raises:
        ConfigurationError: the file is of a newer release, or of something else.
        OSError, sqlite3.Error: it cannot be made, opened or read.
    """
    if not os.path.exists(path):
        _make_file(path)
    connection = sqlite3.connect(path, timeout=deadline.remaining_s, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous=FULL")
        _check(connection, path, deadline)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: str, deadline: Deadline) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        _make_tables(connection, path, deadline)
    elif version != SCHEMA_VERSION:
        accepted = f"this release reads version {SCHEMA_VERSION}"
        raise ConfigurationError(f"sqlite store {path}, schema version", version, accepted)


def _make_file(path: str) -> None:
    # Made before sqlite sees it, so that it (and with it the log files beside it) is never readable by others. Made
    # without being opened: closing a descriptor would drop the locks of every other connection of this process.
    os.makedirs(os.path.dirname(path) or ".", mode=0o755, exist_ok=True)
    with suppress(FileExistsError):
        os.mknod(path, mode=0o600)


def _make_tables(connection: sqlite3.Connection, path: str, deadline: Deadline) -> None:
    _refuse_foreign(connection, path)
    _switch_to_wal(connection, deadline)
    connection.execute("BEGIN IMMEDIATE")
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
        for statement in _TABLES:
            connection.execute(statement)
    connection.execute("COMMIT")


def _refuse_foreign(connection: sqlite3.Connection, path: str) -> None:
    # One statement, so that another process making the tables is seen entirely or not at all.
    state = "SELECT user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version"
    version, tables = connection.execute(state).fetchone()
    if version == 0 and tables:
        raise ConfigurationError("sqlite_path", path, "it holds the database of something else; name a file of its own")


def _switch_to_wal(connection: sqlite3.Connection, deadline: Deadline) -> None:
    # The mode stays in the file. sqlite does not wait here: two processes that switch at once could wait for ever.
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or deadline.has_passed:
                raise
            deadline.clock.sleep(_RETRY_S)
        else:
            return
