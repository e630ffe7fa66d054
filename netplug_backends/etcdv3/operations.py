"""Requests to one member of the cluster, its replies, and how a call can fail, as values. Pure.

``rpc`` turns them into messages and back, and raises :class:`CallFailed`; ``client`` decides by its
:class:`CallFailure` alone whether to ask another member.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from threading import Lock
from typing import TypeAlias

from attrs import define, field, frozen

from netplug_core.errors import excerpt

__all__ = [
    "CallFailed", "CallFailure", "Compare", "DeleteKey", "Interruption", "KeyEvent", "KeyRange", "KeyValue",
    "ModRevisionIs", "NoneModifiedSince", "Put", "RangeRead", "RangeResult", "Txn", "TxnResult", "WatchBatch",
    "WatchStart", "classify", "find_failure",
]  # fmt: skip


# --- operations ------------------------------------------------------------------------------------------------------


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
    """What one range read found, in key order; ``has_more`` if its limit left out keys, ``left`` is how many."""

    key_values: tuple[KeyValue, ...]
    has_more: bool
    left: int = 0


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


def _cancel_nothing() -> None:
    pass


@define(eq=False)
class Interruption:
    """By which one thread ends a watch that another one waits for. ``is_asked``: it has."""

    is_asked: bool = field(default=False, init=False)
    _cancel: Callable[[], object] = field(default=_cancel_nothing, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def ask(self) -> None:
        """End the watch, whether it has begun or not."""
        with self._lock:
            self.is_asked, cancel = True, self._cancel
        cancel()

    def watch_begun(self, cancel: Callable[[], object]) -> None:
        """``cancel`` ends the watch from now on; it is called at once if that was asked for before."""
        with self._lock:
            self._cancel, is_asked = cancel, self.is_asked
        if is_asked:
            cancel()


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


# --- failures --------------------------------------------------------------------------------------------------------


class CallFailure(enum.Enum):
    """What a failed call proves about its request."""

    UNREACHABLE = "there was no connection, so nothing was sent"
    SERVER_NOT_TRUSTED = "the server's certificate is not trusted, so nothing was sent"
    CLIENT_NOT_TRUSTED = "the server does not accept our certificate, so nothing was sent"
    MEMBER_NOT_SERVING = "the member refused before it did anything; another member or a later attempt may succeed"
    NO_REPLY = "the request was sent, and no reply came"
    OUTCOME_UNKNOWN = "the member replied that it does not know the outcome"
    REJECTED = "the cluster refused the request and did nothing"
    NO_SPACE = "the cluster's space is used up; etcd also replies this to a write that it has applied"
    UNAUTHENTICATED = "the member does not know the user: log in again"
    PERMISSION_DENIED = "the user does not exist, or a right is missing"
    AUTH_NOT_ENABLED = "the cluster has no users"
    COMPACTED = "the requested revision has been compacted"
    FUTURE_REVISION = "the store has never reached the requested revision: an older state was restored"


@frozen
class CallFailed(Exception):
    """One call to one member failed."""

    failure: CallFailure
    text: str

    def __str__(self) -> str:
        return self.text


# Error texts of etcd, for failures that the status alone does not identify.
_FAILURE_BY_TEXT = {
    "etcdserver: no leader": CallFailure.MEMBER_NOT_SERVING,
    "etcdserver: too many requests": CallFailure.MEMBER_NOT_SERVING,
    "etcdserver: rpc not supported for learner": CallFailure.MEMBER_NOT_SERVING,
    "etcdserver: user name is empty": CallFailure.UNAUTHENTICATED,
    "etcdserver: revision of auth store is old": CallFailure.UNAUTHENTICATED,
    "etcdserver: authentication failed": CallFailure.PERMISSION_DENIED,
    "auth: authentication failed": CallFailure.PERMISSION_DENIED,  # for a user without a password
    "etcdserver: permission denied": CallFailure.PERMISSION_DENIED,
    "etcdserver: authentication is not enabled": CallFailure.AUTH_NOT_ENABLED,
    "etcdserver: mvcc: required revision has been compacted": CallFailure.COMPACTED,
    # Its status is one that transports use too when a stream breaks.
    "etcdserver: mvcc: database space exceeded": CallFailure.NO_SPACE,
    "grpc: received message larger than max": CallFailure.REJECTED,
}
_FAILURE_BY_STATUS = {
    "UNAUTHENTICATED": CallFailure.UNAUTHENTICATED,
    "PERMISSION_DENIED": CallFailure.PERMISSION_DENIED,
    "INVALID_ARGUMENT": CallFailure.REJECTED,
    "FAILED_PRECONDITION": CallFailure.REJECTED,
    "OUT_OF_RANGE": CallFailure.REJECTED,
    "NOT_FOUND": CallFailure.REJECTED,
    "UNIMPLEMENTED": CallFailure.REJECTED,
}

# Handshake failures: a pattern of OpenSSL's or gRPC's text, the failure, and the text for people.
_HANDSHAKE_FAILURES = (
    (
        re.compile(r"CERTIFICATE_VERIFY_FAILED(?:: ([^:]+))?"),
        CallFailure.SERVER_NOT_TRUSTED,
        "the server's certificate is not trusted: {0}",
    ),
    (
        re.compile(r"Hostname Verification Check failed|is not in peer certificate"),
        CallFailure.SERVER_NOT_TRUSTED,
        "the server's certificate is not trusted: it is not for this address",
    ),
    (
        re.compile(r"(?:TLSV1|SSLV3)_ALERT_(\w+)"),
        CallFailure.CLIENT_NOT_TRUSTED,
        "the server does not accept the client's certificate, or its absence: {0}",
    ),
    (
        # In TLS 1.3 the server checks the certificate after the client's handshake has ended. Its alert is garbled.
        re.compile(r"Unwrap failed"),
        CallFailure.CLIENT_NOT_TRUSTED,
        "the server does not accept the client's certificate, or its absence",
    ),
    (
        re.compile(r"WRONG_VERSION_NUMBER|Handshake read failed"),
        CallFailure.UNREACHABLE,
        "the TLS handshake was not answered; does the server speak TLS?",
    ),
)

# The status and the address that gRPC puts before the reason of a connection error.
_PREFIX = re.compile(r"^[A-Z_]+: ipv[46]:\S+ ")


def classify(status: str, text: str) -> CallFailed:
    """The failure that a gRPC status (by name) and its text mean; the deadline's status is not among them."""
    for pattern, failure, sentence in _HANDSHAKE_FAILURES:
        found = pattern.search(text)
        if found:
            return CallFailed(failure, sentence.format(*found.groups("the reason is not told")))
    known = find_failure(text) or _FAILURE_BY_STATUS.get(status)
    if known is None:
        known = CallFailure.OUTCOME_UNKNOWN if text.startswith("etcdserver:") else CallFailure.NO_REPLY
    return CallFailed(known, excerpt(_PREFIX.sub("", text.rpartition("last error: ")[2])) or f"gRPC status {status}")


def find_failure(text: str) -> CallFailure | None:
    """The failure that an error text of etcd identifies; None if it identifies none."""
    return next((failure for known, failure in _FAILURE_BY_TEXT.items() if known in text), None)
