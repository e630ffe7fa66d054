"""The files of a support bundle, made of its parts within limits of size and time, and its index.

Nothing here reads anything: ``netplugctl support bundle`` hands in what it has read, and what it could not read.
What is written went through the redactor twice: each part by itself, then all of them for the secrets of the others.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, assert_never

from attrs import define, evolve, field, frozen

from netplug_core.clock import Deadline
from netplug_core.support.redaction import Redactor

__all__ = [
    "INDEX", "README", "Bundle", "BundleFile", "DocumentsPart", "IndexEntry", "Limits", "MissingPart", "Part",
    "PartState", "TextPart", "assemble",
]  # fmt: skip

INDEX: Final = "index.json"
README: Final = "README.txt"


class PartState(enum.Enum):
    """What became of a part."""

    WRITTEN = "written"
    CUT = "cut"
    ABSENT = "absent"
    FAILED = "failed"


_MEANINGS: Final = {
    PartState.WRITTEN: "it is in the bundle",
    PartState.CUT: "only a part of it is in the bundle",
    PartState.ABSENT: "there is nothing of it on this machine",
    PartState.FAILED: "it could not be read",
}

_TOO_DEEP: Final = "it is nested too deep"


@frozen(kw_only=True)
class TextPart:
    """A text, as lines. ``note`` is why it is not all that there is; empty if it is."""

    path: str
    text: str = field(repr=False)
    note: str = ""


@frozen(kw_only=True)
class DocumentsPart:
    """JSON-like documents, one after another in one file, and likewise a note."""

    path: str
    documents: tuple[object, ...] = field(repr=False)
    note: str = ""


@frozen(kw_only=True)
class MissingPart:
    """A part of which nothing is in the bundle, and why: ``state`` is ABSENT or FAILED."""

    path: str
    state: PartState
    reason: str


Part: TypeAlias = TextPart | DocumentsPart | MissingPart


@frozen(kw_only=True)
class Limits:
    """How large a file and all files together may be, in bytes before compression."""

    file: int = 4 * 2**20
    total: int = 32 * 2**20


@frozen(kw_only=True)
class BundleFile:
    """One file of the archive."""

    path: str
    content: bytes = field(repr=False)


@frozen(kw_only=True)
class IndexEntry:
    """A line of the index. ``reason`` is why a part is missing or cut; ``size`` is in bytes."""

    path: str
    state: PartState
    size: int = 0
    reason: str = ""


@frozen(kw_only=True)
class Bundle:
    """All files, the index among them, and what became of each part."""

    files: tuple[BundleFile, ...]
    entries: tuple[IndexEntry, ...]

    @property
    def failed(self) -> tuple[IndexEntry, ...]:
        """The parts that could not be read."""
        return tuple(entry for entry in self.entries if entry.state is PartState.FAILED)


def assemble(
    parts: Sequence[Part],
    redactor: Redactor,
    *,
    header: dict[str, object],
    render: Callable[[str, object], str],
    limits: Limits,
    deadline: Deadline,
) -> Bundle:
    """The bundle of some parts. ``header`` begins its index; ``render`` writes a document for the file of a path.

    What is not rendered when the deadline has passed is left out, and the index says so.
    """
    # All parts before any is rendered: a secret of the last one may be in the first one.
    cleaned = tuple(_redact(part, redactor) for part in parts)
    writer = _Writer(redactor, render, limits, deadline)
    for part in cleaned:
        writer.write(part)
    entries = tuple(evolve(entry, reason=redactor.hide_seen(entry.reason)) for entry in writer.entries)
    index = {**header, "parts": [_encode(entry) for entry in entries]}
    texts = {README: _readme(entries), INDEX: json.dumps(index, indent=2, ensure_ascii=False) + "\n"}
    own = (BundleFile(path=path, content=_encode_text(text)) for path, text in texts.items())
    return Bundle(files=(*own, *writer.files), entries=entries)


def _redact(part: Part, redactor: Redactor) -> Part:
    try:
        return _redact_part(part, redactor)
    except RecursionError:
        return MissingPart(path=part.path, state=PartState.FAILED, reason=_TOO_DEEP)


def _redact_part(part: Part, redactor: Redactor) -> Part:
    match part:
        case TextPart():
            return evolve(part, text=redactor.redact_text(part.text))
        case DocumentsPart():
            return evolve(part, documents=tuple(map(redactor.redact, part.documents)))
        case MissingPart():
            return evolve(part, reason=redactor.redact_text(part.reason))
        case _:
            assert_never(part)


@define
class _Writer:
    redactor: Redactor
    render: Callable[[str, object], str]
    limits: Limits
    deadline: Deadline
    files: list[BundleFile] = field(factory=list)
    entries: list[IndexEntry] = field(factory=list)
    _size: int = 0

    def write(self, part: Part) -> None:
        """Add the file and the line of one part."""
        if isinstance(part, MissingPart):
            self.entries.append(IndexEntry(path=part.path, state=part.state, reason=part.reason))
            return
        space = min(self.limits.file, self.limits.total - self._size)
        if space <= 0:
            reason = f"the bundle has its {self.limits.total} bytes"
            self.entries.append(IndexEntry(path=part.path, state=PartState.FAILED, reason=reason))
            return
        if isinstance(part, TextPart):
            content, reason = self._lines_of(part.text, space)
        else:
            content, reason = self._documents_of(part, space)
        state = PartState.CUT if reason or part.note else PartState.WRITTEN
        self._size += len(content)
        self.files.append(BundleFile(path=part.path, content=content))
        text = "; ".join(filter(None, (part.note, reason)))
        self.entries.append(IndexEntry(path=part.path, state=state, size=len(content), reason=text))

    def _lines_of(self, text: str, space: int) -> tuple[bytes, str]:
        """The content of a text, and why it is cut: whole lines are kept."""
        content = _encode_text(self.redactor.hide_seen(text))
        if len(content) <= space:
            return content, ""
        end = content.rfind(b"\n", 0, space) + 1
        return content[:end], f"the first {end} of {len(content)} bytes"

    def _documents_of(self, part: DocumentsPart, space: int) -> tuple[bytes, str]:
        """The content of some documents, and why it is cut: whole documents are kept."""
        pieces, size = list[bytes](), 0
        for document in part.documents:
            if self.deadline.has_passed:
                return b"".join(pieces), f"{_of(part, pieces)}: the time is over"
            try:
                text = self.render(part.path, self.redactor.hide_seen_in(document))
            except RecursionError:
                return b"".join(pieces), f"{_of(part, pieces)}: {_TOO_DEEP}"
            piece = _encode_text(self.redactor.hide_seen(text))
            if size + len(piece) > space:
                return b"".join(pieces), f"{_of(part, pieces)}: there is space for {space} bytes"
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces), ""


def _of(part: DocumentsPart, pieces: Sequence[bytes]) -> str:
    return f"the first {len(pieces)} of {len(part.documents)} documents"


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _encode(entry: IndexEntry) -> dict[str, object]:
    shown: dict[str, object] = {"path": entry.path, "state": entry.state.value, "bytes": entry.size}
    return {**shown, "reason": entry.reason} if entry.reason else shown


def _readme(entries: Sequence[IndexEntry]) -> str:
    lines = [
        "This is a support bundle of netplug. Passwords, tokens, keys and certificates are replaced by <hidden>.",
        "Names, addresses, labels and annotations are as they are stored. Look at the files before you send them.",
        "",
        *(f"{state.value}: {meaning}" for state, meaning in _MEANINGS.items()),
        "",
    ]
    lines += [" ".join(filter(None, (f"{entry.state.value:8}{entry.path}", entry.reason))) for entry in entries]
    return "\n".join(lines) + "\n"
