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
    "Compare",
    "Entry",
    "Failure",
    "Found",
    "KeyIs",
    "News",
    "NothingNewer",
    "Put",
    "Range",
    "Remove",
    "Reply",
    "Span",
    "Txn",
    "ValueChange",
    "WatchFrom",
]


@frozen
class Span:
    """The keys from ``start`` up to, but not with, ``end``; with an empty ``end`` the key ``start`` alone."""

    start: bytes
    end: bytes = b""


@frozen(kw_only=True)
class Range:
    """Ask for the entries of a span: at most ``limit`` (0: all), as they were at ``revision`` (0: now).

    ``since`` leaves out what was last changed before that revision.
    """

    span: Span
    limit: int = 0
    revision: int = 0
    since: int = 0


@frozen
class Put:
    """Store a value under a key."""

    key: bytes
    value: bytes


@frozen
class Remove:
    """Remove a key."""

    key: bytes


@frozen
class KeyIs:
    """That a key was last changed at a revision; 0: that it is absent."""

    key: bytes
    revision: int


@frozen
class NothingNewer:
    """That no key of a span was created or changed after a revision."""

    span: Span
    revision: int


Compare: TypeAlias = KeyIs | NothingNewer


@frozen(kw_only=True)
class Txn:
    """If every comparison holds do ``then``, else ``otherwise``; at one moment."""

    compares: tuple[Compare, ...] = ()
    then: tuple[Range | Put | Remove, ...] = ()
    otherwise: tuple[Range, ...] = ()


@frozen
class Entry:
    """A key, its value, and the revision of its last change."""

    key: bytes
    value: bytes
    revision: int


@frozen
class Found:
    """What one range found, in key order; ``has_more`` when its limit cut it short."""

    entries: tuple[Entry, ...]
    has_more: bool


@frozen
class Reply:
    """What a transaction came to: which branch, at which revision of the store, and what its ranges found."""

    succeeded: bool
    revision: int
    found: tuple[Found, ...]


@frozen
class WatchFrom:
    """Every change of a span from a revision on, that one included."""

    span: Span
    revision: int


@frozen
class ValueChange:
    """A key's value after a change, None when it was removed; and the revision of the change."""

    key: bytes
    value: bytes | None
    revision: int


@frozen
class News:
    """What a watch tells at once: the changes that the ``index``-th of its spans saw."""

    index: int
    changes: tuple[ValueChange, ...]


class Failure(enum.Enum):
    """What a failed call says about itself."""

    UNREACHABLE = "there was no connection, so nothing was sent"
    UNTRUSTED = "the server did not prove who it is, so nothing was sent"
    UNWELCOME = "the server does not accept what we prove ourselves with, so nothing was sent"
    TURNED_AWAY = "the member refused before it did anything; another one, or a later moment, may serve"
    UNANSWERED = "it was sent, and no answer came"
    UNSETTLED = "the member answers that it cannot say"
    REFUSED = "the cluster refused, and nothing was done"
    FULL = "the room of the cluster is used up, which etcd also says of a write that it has just made"
    STRANGER = "the member does not know who calls: log in, again"
    DENIED = "the user, or its right, is missing"
    UNGUARDED = "the cluster knows no users"
    COMPACTED = "the revision asked for is no longer kept"
    AHEAD = "the revision asked for was never reached: an older state of the store was put back"


@frozen
class CallFailed(Exception):
    """One call to one member failed."""

    failure: Failure
    text: str

    def __str__(self) -> str:
        return self.text
