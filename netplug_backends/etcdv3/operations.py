"""What is asked of one member of the cluster and what it answers, as values; and how a call can fail.

``rpc`` turns them into messages and back. ``client`` decides on a :class:`Failure` alone whether to ask another
member.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

from attrs import frozen

__all__ = [
    "CallFailed",
    "CallFailure",
    "Compare",
    "DeleteKey",
    "KeyEvent",
    "KeyRange",
    "KeyValue",
    "ModRevisionIs",
    "NoneModifiedSince",
    "Put",
    "RangeRead",
    "RangeResult",
    "Txn",
    "TxnResult",
    "WatchBatch",
    "WatchStart",
]


@frozen
class KeyRange:
    """The keys from ``start`` up to, but not with, ``end``; with an empty ``end`` the key ``start`` alone."""

    start: bytes
    end: bytes = b""


@frozen(kw_only=True)
class RangeRead:
    """Ask for the entries of a span: at most ``limit`` (0: all), as they were at ``revision`` (0: now).

    ``since`` leaves out what was last changed before that revision.
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
    """That a key was last changed at a revision; 0: that it is absent."""

    key: bytes
    mod_revision: int


@frozen
class NoneModifiedSince:
    """That no key of a span was created or changed after a revision."""

    key_range: KeyRange
    revision: int


Compare: TypeAlias = ModRevisionIs | NoneModifiedSince


@frozen(kw_only=True)
class Txn:
    """If every comparison holds do ``then``, else ``otherwise``; at one moment."""

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
    """What one range found, in key order; ``has_more`` when its limit cut it short."""

    key_values: tuple[KeyValue, ...]
    has_more: bool


@frozen
class TxnResult:
    """What a transaction came to: which branch, at which revision of the store, and what its ranges found."""

    succeeded: bool
    revision: int
    results: tuple[RangeResult, ...]


@frozen
class WatchStart:
    """Every change of a span from a revision on, that one included."""

    key_range: KeyRange
    revision: int


@frozen
class KeyEvent:
    """A key's value after a change, None when it was removed; and the revision of the change."""

    key: bytes
    value: bytes | None
    mod_revision: int


@frozen
class WatchBatch:
    """What a watch tells at once: the changes that the ``index``-th of its spans saw."""

    index: int
    events: tuple[KeyEvent, ...]


class CallFailure(enum.Enum):
    """What a failed call says about itself."""

    UNREACHABLE = "there was no connection, so nothing was sent"
    SERVER_NOT_TRUSTED = "the server did not prove who it is, so nothing was sent"
    CLIENT_NOT_TRUSTED = "the server does not accept what we prove ourselves with, so nothing was sent"
    MEMBER_NOT_SERVING = "the member refused before it did anything; another one, or a later moment, may serve"
    NO_REPLY = "it was sent, and no answer came"
    OUTCOME_UNKNOWN = "the member answers that it cannot say"
    REJECTED = "the cluster refused, and nothing was done"
    NO_SPACE = "the room of the cluster is used up, which etcd also says of a write that it has just made"
    UNAUTHENTICATED = "the member does not know who calls: log in, again"
    PERMISSION_DENIED = "the user, or its right, is missing"
    AUTH_NOT_ENABLED = "the cluster knows no users"
    COMPACTED = "the revision asked for is no longer kept"
    FUTURE_REVISION = "the revision asked for was never reached: an older state of the store was put back"


@frozen
class CallFailed(Exception):
    """One call to one member failed."""

    failure: CallFailure
    text: str

    def __str__(self) -> str:
        return self.text
