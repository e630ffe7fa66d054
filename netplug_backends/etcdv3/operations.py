"""Requests to one member of the cluster and its replies, as values. ``rpc`` turns them into messages and back."""

from __future__ import annotations

from typing import TypeAlias

from attrs import frozen

__all__ = [
    "Compare", "DeleteKey", "KeyEvent", "KeyRange", "KeyValue", "ModRevisionIs", "NoneModifiedSince", "Put",
    "RangeRead", "RangeResult", "Txn", "TxnResult", "WatchBatch", "WatchStart",
]  # fmt: skip


@frozen
class KeyRange:
    """The keys from ``start`` up to but not including ``end``; if ``end`` is empty, the key ``start`` alone."""

    start: bytes
    end: bytes = b""


@frozen(kw_only=True)
class RangeRead:
    """Read the keys of a range: at most ``limit`` (0: all), as they were at ``revision`` (0: now).

    Keys that were last changed before ``min_mod_revision`` are left out.
    """

    key_range: KeyRange
    limit: int = 0
    revision: int = 0
    min_mod_revision: int = 0


@frozen
class Put:
    """Store a value under a key."""

    key: bytes
    value: bytes


@frozen
class DeleteKey:
    """Remove a key."""

    key: bytes


@frozen
class ModRevisionIs:
    """Compare: the key was last changed at the revision; 0: the key does not exist."""

    key: bytes
    mod_revision: int


@frozen
class NoneModifiedSince:
    """Compare: no key of the range was created or changed after the revision."""

    key_range: KeyRange
    revision: int


Compare: TypeAlias = ModRevisionIs | NoneModifiedSince


@frozen(kw_only=True)
class Txn:
    """A transaction: ``success`` if every comparison holds, otherwise ``failure``; atomic."""

    compares: tuple[Compare, ...] = ()
    success: tuple[RangeRead | Put | DeleteKey, ...] = ()
    failure: tuple[RangeRead, ...] = ()


@frozen
class KeyValue:
    """A key, its value, and the revision of its last change."""

    key: bytes
    value: bytes
    mod_revision: int


@frozen
class RangeResult:
    """What one range read found, in key order; ``has_more`` if its limit left out keys."""

    key_values: tuple[KeyValue, ...]
    has_more: bool


@frozen
class TxnResult:
    """A transaction's reply: whether all comparisons held, the store's revision, and the results of its range reads."""

    succeeded: bool
    revision: int
    results: tuple[RangeResult, ...]


@frozen
class WatchStart:
    """Watch a range from a revision on, including that revision."""

    key_range: KeyRange
    revision: int


@frozen
class KeyEvent:
    """A change of a key: its new value (None if it was deleted) and the revision of the change."""

    key: bytes
    value: bytes | None
    mod_revision: int


@frozen
class WatchBatch:
    """One message of a watch: changes in the range of the ``index``-th start."""

    index: int
    events: tuple[KeyEvent, ...]
