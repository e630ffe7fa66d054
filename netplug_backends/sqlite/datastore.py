"""The datastore in one sqlite file: read, commit and watch, for any number of processes.

The first call opens the file. Reads never wait for writers. Only this package imports sqlite3, and this module
translates all of its exceptions.

Several processes may open a path that does not exist: one of them creates the tables and the others wait. If it dies
meanwhile, the next one completes the file. A file of a newer release or of another program is refused and not changed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import assert_never

from attrs import define, evolve, field

from netplug_backends.host.atomic_files import PRIVATE_FILE_MODE, NotRegular, make_folder, require_regular
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Atomicity, DatastoreDescription, ReadReport
from netplug_core.datastore.write_set import Condition, KindCondition, Mutation, condition_error, fold_writes
from netplug_core.decoding.codecs import is_utf8
from netplug_core.encoding.stored_json import STORED_JSON, ValueCodec
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.names import InvalidName
from netplug_core.records import (
    ABSENT,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    OutcomeUnknown,
    Query,
    ReadResult,
    Record,
    Revision,
    Snapshot,
    WatchEvent,
    WatchExpired,
    Write,
)
from netplug_core.settings.model import MissingFile

__all__ = [
    "SCHEMA_VERSION", "SqliteDatastore", "file_identity", "open_database", "store_id",
]  # fmt: skip


# --- schema ----------------------------------------------------------------------------------------------------------


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


# --- datastore -------------------------------------------------------------------------------------------------------


_MAX_REVISION_DIGITS = 18  # fewer than sqlite's largest number has
_WATCH_POLL_S = 0.1
_ROWS_PER_REPORT = 1000
_SEPARATOR = "\x1f"
_AFTER_SEPARATOR = "\x20"

_RIGHTS_CODES = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY)
_CAUSES = {
    sqlite3.SQLITE_BUSY: "another process kept it locked until the deadline",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_NOTADB: "it is not a database",
    sqlite3.SQLITE_READONLY: "it cannot be written",
}
# Errors of a COMMIT after which nothing was written for certain.
_NOT_COMMITTED = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL))

_Row = tuple[str, int, bytes]  # path, revision, value


@define(eq=False)
class SqliteDatastore:
    """All records of one host, in the file at ``path``.

    ``codec`` encodes values as bytes, a watch waits by ``clock``, and the file keeps the last ``keep_changes`` changes
    (at least 1) for watches.
    """

    _path: str
    _clock: Clock = field(kw_only=True, alias="clock")
    _codec: ValueCodec = field(default=STORED_JSON, kw_only=True, alias="codec")
    _keep_changes: int = field(default=10_000, kw_only=True, alias="keep_changes")
    _missing_file: MissingFile = field(default=MissingFile.CREATED, kw_only=True, alias="missing_file")
    description: DatastoreDescription = field(init=False)
    _connection: sqlite3.Connection | None = field(default=None, init=False)
    _identity: tuple[int, int] | None = field(default=None, init=False)
    # Which file it is, if others were at the path before: their revisions say nothing about this one.
    _file_number: int = field(default=0, init=False)
    _lock: Lock = field(factory=Lock, init=False)
    # Grows when this store opens the file and when it writes: `data_version` only shows the writes of others.
    _epoch: int = field(default=0, init=False)
    _report: ReadReport | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.description = DatastoreDescription(name="sqlite", atomicity=Atomicity.ATOMIC, location=self._path)

    def close(self) -> None:
        """Close the connection; a later call opens a new one."""
        with self._lock:
            self._disconnect()

    def report_reads(self, report: ReadReport | None) -> None:
        """Call this from now on for some rows of each; see :class:`~netplug_core.datastore.protocol.ReportsReads`."""
        self._report = report

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries from one state of the file; see :class:`~netplug_core.datastore.protocol.Datastore`."""
        with self._locked_connection(deadline) as connection:
            connection.execute("BEGIN")
            now = self._revision(_newest(connection))
            # Decoded row by row, so that a long list is not held in both forms.
            answers = {query: self._result(query, self._rows(connection, query)) for query in queries}
            connection.execute("COMMIT")
        return Snapshot(answers, {query.kind: now for query in queries})

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes; see :class:`~netplug_core.datastore.protocol.Datastore`."""
        folded = fold_writes(writes)
        encoded = [self._encode(effect) for effect in folded.mutations]
        with self._locked_connection(deadline) as connection:
            connection.execute("BEGIN IMMEDIATE")
            newest = _newest(connection)
            for condition in folded.conditions:
                self._check_condition(connection, writes[condition.index], condition, newest)
            for revision, (kind, path, value) in enumerate(encoded, newest + 1):
                _write(connection, revision, kind, path, value)
            last = newest + len(encoded)
            connection.execute("DELETE FROM change WHERE revision <= ?", (last - self._keep_changes,))
            self._commit_transaction(connection)
            self._epoch += 1
            revisions = [self._revision(number) for number in range(newest + 1, last + 1)]
            return folded.revisions(revisions, self._revision(last))

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Changes after the revisions given; see :class:`~netplug_core.datastore.protocol.Datastore`."""
        kinds = {kind.name: kind for kind in start}
        seen = {kind.name: self._number_of(revision) for kind, revision in start.items()}
        file_number = self._file_number
        mark: object = None
        while True:
            # The last poll may begin at the deadline, so it gets a little time of its own.
            grace = Deadline.after(self._clock, max(deadline.remaining_s, _WATCH_POLL_S))
            with self._locked_connection(grace) as connection:
                before, mark = mark, (self._epoch, connection.execute("PRAGMA data_version").fetchone())
                newest, changes = _changes(connection, seen) if mark != before else (0, ())
            if changes is None or self._file_number != file_number:
                raise WatchExpired(min(start.values(), key=self._number_of))
            for revision, kind, path, value in changes:
                if revision > seen[kind]:
                    key = _key(kinds[kind], path)
                    decoded = None if value is None else self._codec.decode(key, value)
                    yield WatchEvent(key, decoded, self._revision(revision))
            seen = {kind: max(newest, number) for kind, number in seen.items()}
            if deadline.has_passed:
                return
            self._clock.sleep(min(_WATCH_POLL_S, deadline.remaining_s))

    def find_identity(self, *, deadline: Deadline) -> str:
        """The random id in the file; see :class:`~netplug_core.datastore.protocol.HasIdentity`."""
        with self._locked_connection(deadline) as connection:
            return store_id(connection)

    # --- the connection --------------------------------------------------------------------------------------------

    @contextmanager
    def _locked_connection(self, deadline: Deadline) -> Iterator[sqlite3.Connection]:
        # One caller at a time. Errors of sqlite and of the file system become errors of ours, and a connection that
        # failed is not used again.
        if deadline.has_passed or not self._lock.acquire(timeout=deadline.remaining_s):
            raise Unavailable(self._what, "the deadline passed before it could be asked")
        try:
            yield self._connect(deadline)
        except sqlite3.Error as error:
            self._disconnect()
            raise Unavailable(self._what, self._cause(error)) from error
        except NotRegular as error:
            raise Unavailable(self._what, f"it cannot be opened: {error.strerror}") from error
        except PermissionError as error:
            raise Unavailable(self._what, _no_right(os.path.dirname(self._path) or ".")) from error
        except OSError as error:
            raise Unavailable(self._what, f"it cannot be made: {error}") from error
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._lock.release()

    def _connect(self, deadline: Deadline) -> sqlite3.Connection:
        if self._connection is not None and file_identity(self._path) != self._identity:
            self._disconnect()  # the file was moved away or replaced: what is written to it now would be lost
        if self._connection is None:
            self._connection = open_database(self._path, self._missing_file, deadline=deadline)
            before, self._identity = self._identity, file_identity(self._path)
            self._file_number += before not in (None, self._identity)
            self._epoch += 1
        else:
            self._connection.execute(f"PRAGMA busy_timeout={round(deadline.remaining_s * 1000)}")
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _roll_back(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            with suppress(sqlite3.Error):  # closing rolls back what sqlite cannot
                self._connection.execute("ROLLBACK")
                return
            self._disconnect()

    def _commit_transaction(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if _primary_code(error) in _NOT_COMMITTED:
                raise
            self._disconnect()
            raise OutcomeUnknown(self._what, _cause(error)) from error

    def _cause(self, error: sqlite3.Error) -> str:
        """What went wrong, and whether this user may not open the file, of which sqlite says nothing."""
        folder = os.path.dirname(self._path) or "."
        for path, rights in ((self._path, os.R_OK | os.W_OK), (folder, os.W_OK | os.X_OK)):
            if _primary_code(error) in _RIGHTS_CODES and os.path.exists(path) and not os.access(path, rights):
                return _no_right(path)
        return _cause(error)

    @property
    def _what(self) -> str:
        return f"sqlite store {self._path}"

    # --- revisions: a number, and behind a point which file it is of, if that is not the first --------------------

    def _revision(self, number: int) -> Revision:
        return Revision(f"{number}.{self._file_number}" if self._file_number else str(number))

    def _number_of(self, revision: Revision) -> int:
        # A text that is no revision of this file counts as older than every revision.
        number, _, file_number = revision.partition(".")
        is_of_file = file_number == (str(self._file_number) if self._file_number else "")
        is_number = number.isascii() and number.isdigit() and len(number) <= _MAX_REVISION_DIGITS
        return int(number) if is_of_file and is_number else -1

    # --- records ---------------------------------------------------------------------------------------------------

    def _check_condition(self, connection: sqlite3.Connection, write: Write, condition: Condition, newest: int) -> None:
        current: Record[object] | None = None
        if isinstance(condition, KindCondition):
            since = self._number_of(condition.revision)
            holds = 0 <= since <= newest and not _has_newer(connection, condition.kind, since)
        else:
            rows = _find(connection, Get(condition.key))
            holds = condition.expected == (self._revision(rows[0][1]) if rows else ABSENT)
            if rows and not holds:
                found = self._result(Get(condition.key), rows)
                current = next(iter(found.records), None)
                # A record that is marked as deleted counts as absent, and is replaced.
                holds = condition.expected is ABSENT and not (found.records or found.malformed)
        if not holds:
            raise condition_error(write, condition.index, current)

    def _rows(self, connection: sqlite3.Connection, query: Query) -> Iterable[_Row]:
        if self._report is None or isinstance(query, Get):
            return _select(connection, query)
        return _reported(connection, query, self._report)

    def _result(self, query: Query, rows: Iterable[_Row]) -> ReadResult:
        """The records in some rows, without those that are marked as deleted."""
        condition = query.keys_only_if if isinstance(query, List) else None
        found: list[Record[object] | Malformed | Key[object]] = []
        for path, revision, stored in rows:
            key = _key(query.kind, path)
            if condition is not None and self._codec.holds(condition, stored):
                found.append(key)
            elif (record := self._decode(key, stored, self._revision(revision))) is not None:
                found.append(record)
        return ReadResult.of(found)

    def _decode(self, key: Key[object], stored: bytes, revision: Revision) -> Record[object] | Malformed | None:
        if len(key.path) != len(key.kind.segments):
            return Malformed(str(key), f"its path has {len(key.path)} segments", revision)
        try:
            value = self._codec.decode(key, stored)
        except Malformed as error:
            return evolve(error, revision=revision)
        return None if value is None else Record(key, value, revision)

    def _encode(self, effect: Mutation) -> tuple[str, str, bytes | None]:
        value = None if effect.value is None else self._codec.encode(effect.key, effect.value)
        return effect.key.kind.name, _encode_path(effect.key.path), value


def _reported(connection: sqlite3.Connection, query: List[object], report: ReadReport) -> Iterator[_Row]:
    """The rows of a list; the report is called now and then. To decode a row takes much longer than to count it."""
    count = 0
    if not query.start:
        (count,) = connection.execute("SELECT count(*) FROM record WHERE kind = ?", (query.kind.name,)).fetchone()
    for number, row in enumerate(_select(connection, query), 1):
        if number % _ROWS_PER_REPORT == 0:
            report(number, max(0, count - number))
        yield row


def _newest(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT revision FROM change ORDER BY revision DESC LIMIT 1").fetchone()
    return row[0] if row else 0


def _find(connection: sqlite3.Connection, query: Query) -> list[_Row]:
    return list(_select(connection, query))


def _select(connection: sqlite3.Connection, query: Query) -> Iterable[_Row]:
    # A list is one page, whatever its limit: everything is read in one transaction.
    columns = "SELECT path, revision, CAST(value AS BLOB) FROM record WHERE kind = ?"  # a person may have stored text
    try:
        prefix = _encode_path(query.key.path if isinstance(query, Get) else query.start)
    except InvalidName:
        return ()  # no record can have such a name
    if isinstance(query, Get):
        found = connection.execute(f"{columns} AND path = ?", (query.key.kind.name, prefix))
    elif query.name_prefix:
        # No character of UTF-8 has the byte 0xff, so every path that begins so sorts below.
        named = f"{columns} AND path >= ? AND path < CAST(? AS TEXT) ORDER BY path"
        found = connection.execute(named, (query.kind.name, prefix, prefix.encode() + b"\xff"))
    elif not query.within:
        found = connection.execute(f"{columns} ORDER BY path", (query.kind.name,))
    else:
        # Only longer paths sort between a path with the separator and one with the character after it.
        bounds = (query.kind.name, prefix, prefix + _AFTER_SEPARATOR)
        found = connection.execute(f"{columns} AND path >= ? AND path < ? ORDER BY path", bounds)
    return found


def _has_newer(connection: sqlite3.Connection, kind: Kind[object], since: int) -> bool:
    newer = "SELECT 1 FROM record WHERE kind = ? AND revision > ? LIMIT 1"
    return connection.execute(newer, (kind.name, since)).fetchone() is not None


def _write(connection: sqlite3.Connection, revision: int, kind: str, path: str, value: bytes | None) -> None:
    if value is None:
        connection.execute("DELETE FROM record WHERE kind = ? AND path = ?", (kind, path))
    else:
        connection.execute("REPLACE INTO record VALUES (?, ?, ?, ?)", (kind, path, revision, value))
    connection.execute("INSERT INTO change VALUES (?, ?, ?, ?)", (revision, kind, path, value))


def _changes(
    connection: sqlite3.Connection, seen: Mapping[str, int]
) -> tuple[int, list[tuple[int, str, str, bytes | None]] | None]:
    # The newest revision, and every change of the kinds after the oldest one seen; None if some are no longer kept.
    # Revisions have no gaps, so the count shows that. It also shows a revision that this file never had.
    connection.execute("BEGIN")
    newest = _newest(connection)
    oldest = min(seen.values(), default=newest)
    (count,) = connection.execute("SELECT count(*) FROM change WHERE revision > ?", (oldest,)).fetchone()
    # Only these kinds: one that seldom changes may be thousands of changes of others behind.
    kinds = f"kind IN ({', '.join('?' * len(seen))})"
    columns = (
        f"SELECT revision, kind, path, CAST(value AS BLOB) FROM change WHERE revision > ? AND {kinds} ORDER BY revision"  # noqa: S608  marks only
    )
    changes = connection.execute(columns, (oldest, *seen)).fetchall()
    connection.execute("COMMIT")
    return newest, changes if count == newest - oldest else None


def _encode_path(path: tuple[str, ...]) -> str:
    text = "".join(path)
    if not is_utf8(text) or min(text, default=_AFTER_SEPARATOR) <= _SEPARATOR:
        raise InvalidName("a name in an sqlite store", "/".join(path), "UTF-8 without control characters is expected")
    return _SEPARATOR.join(path)


def _key(kind: Kind[object], path: str) -> Key[object]:
    return Key(kind, tuple(path.split(_SEPARATOR)))


def _primary_code(error: sqlite3.Error) -> int:
    # Errors that the sqlite3 module raises by itself have no code.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _no_right(path: str) -> str:
    return f"the user {os.geteuid()} may not read and write {path}; run it as root or as its owner"


def _cause(error: sqlite3.Error) -> str:
    known = _CAUSES.get(_primary_code(error))
    return f"{known} ({error})" if known else str(error)
