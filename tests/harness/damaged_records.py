"""Records of a sqlite store as a person with a SQL client, or a failing disk, leaves them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

__all__ = ["store_raw"]


def store_raw(database: str, kind: str, path: tuple[str, ...], value: object) -> None:
    """Put something in the place of a record; watches see it."""
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        (newest,) = connection.execute("SELECT max(revision) FROM change").fetchone()
        connection.execute("REPLACE INTO record VALUES (?, ?, ?, ?)", (kind, "\x1f".join(path), newest + 1, value))
        connection.execute("INSERT INTO change VALUES (?, ?, ?, ?)", (newest + 1, kind, "\x1f".join(path), value))
