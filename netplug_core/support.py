"""The files of a support bundle, made of its parts within limits of size and time, and its index.

Nothing here reads anything: ``netplugctl support bundle`` hands in what it has read, and what it could not read.
What is written went through the redactor twice: each part by itself, then all of them for the secrets of the others.

The rule is that of the plugin's error texts (``cni.result``) and of the settings (those without ``repr``), and more: a
bundle leaves the cluster, and has texts that netplug did not write. So a text is also searched for what looks like a
secret. Rather too much is hidden than too little.
"""

from __future__ import annotations

import base64
import enum
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, assert_never
from urllib.parse import quote

from attrs import define, evolve, field, frozen

from netplug_core.clock import Deadline
from netplug_core.cni.result import HIDDEN, SECRET_WORDS, hide
from netplug_core.settings.model import SECRET_SETTINGS

__all__ = [
    "INDEX", "README", "Bundle", "BundleFile", "DocumentsPart", "IndexEntry", "Limits", "MissingPart", "Part",
    "PartState", "Redactor", "TextPart", "assemble", "is_secret_name",
]  # fmt: skip


# --- what may be secret ----------------------------------------------------------------------------------------------

_FURTHER_WORDS: Final = (
    "passwd", "passphrase", "credential", "privatekey", "keydata", "certdata", "certificatedata", "authoritydata",
    "authorization", "apikey", "accesskey", "cookie",
    "lastappliedconfiguration",  # of kubectl: a whole object, as text
)  # fmt: skip
_OTHER_SIGNS: Final = re.compile(r"[^a-z0-9]")
_SHORTEST = 6
"""A shorter text is hidden where it stands, and not looked for elsewhere: it would be found in everything."""

_SHORTEST_LINE = 16  # of a secret of several lines that is looked for by itself

_PEM: Final = re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL)
_WEB_TOKEN: Final = re.compile(r"eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,2}")
_USER_OF_URL: Final = re.compile(r"://([^\s\"'<>]{0,512})@")
_SCHEME_WORDS: Final = ("bearer", "basic")
_SCHEME: Final = re.compile(rf"(?i)\b({'|'.join(_SCHEME_WORDS)})\s+([A-Za-z0-9._~+/=-]{{6,}})")
_TEXT_WORDS: Final = (
    *SECRET_WORDS, "passwd", "passphrase", "credential", "privatekey", "private_key", "private-key", "authorization",
    "apikey", "api_key", "api-key", "accesskey", "access_key", "access-key", "cookie",
)  # fmt: skip
# Repetitions are bounded, and begin with a word: a long text must not take long.
_ASSIGNMENT: Final = re.compile(
    rf"""(?ix)
    ( (?: {"|".join(_TEXT_WORDS)} ) [\w.-]{{0,64}} \\* ["']? \s* [=:] \s* )
    (?: \\*" [^"]* " | ' [^']* ' | [^\s,;&"'}}\])]+ )
    """
)


def is_secret_name(name: str) -> bool:
    """Whether the value of a member, a variable or a label of that name may be secret."""
    folded = _fold(name)
    return folded in _SECRET_SETTING_NAMES or any(word in folded for word in (*SECRET_WORDS, *_FURTHER_WORDS))


def _fold(name: str) -> str:
    return _OTHER_SIGNS.sub("", name.lower())


_SECRET_SETTING_NAMES: Final = frozenset(map(_fold, SECRET_SETTINGS))


@define
class Redactor:
    """Hides secrets, and keeps those that it has seen, so that they are found wherever else they are."""

    _seen: set[str] = field(factory=set, repr=False)
    _forms: tuple[str, ...] = field(default=(), repr=False)  # empty: not made since the last secret was seen

    def learn(self, value: object) -> None:
        """Keep the secrets of a document that is not shown itself, such as a kubeconfig."""
        self.redact(value)

    def learn_text(self, text: str) -> None:
        """Keep a text, all of which is secret, such as a file with a key."""
        self._keep(text)

    def redact(self, value: object) -> object:
        """A JSON-like value without what may be secret in it: by the names of its members, and by their texts."""
        if isinstance(value, Mapping):
            # The items of a list of variables: the name is a member like the value.
            is_variable = is_secret_name(str(value.get("name", "")))
            return {
                self.redact_text(str(name)): self._redact_all(member)
                if is_secret_name(str(name)) or (is_variable and name == "value")
                else self.redact(member)
                for name, member in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.redact(item) for item in value]
        return self.redact_text(value) if isinstance(value, str) else value

    def redact_text(self, text: str) -> str:
        """A text without what looks like a secret. JSON in a text is redacted like other JSON."""
        if text.lstrip().startswith(("{", "[")):
            try:
                return json.dumps(self.redact(json.loads(text)), ensure_ascii=False)
            except (ValueError, RecursionError):
                pass  # it only begins like JSON, and is a text like others
        for found in _PEM.findall(text):
            self._keep(found)
        text = _PEM.sub(HIDDEN, text)
        text = _USER_OF_URL.sub(self._hide_user, text)
        lowered = text.lower()  # most texts have none of the words, and to look for words takes less time
        if any(word in lowered for word in _SCHEME_WORDS):
            text = _SCHEME.sub(self._hide_credentials, text)
        if any(word in lowered for word in _TEXT_WORDS):
            text = _ASSIGNMENT.sub(rf"\1{HIDDEN}", text)
        return _WEB_TOKEN.sub(HIDDEN, text)

    def hide_seen(self, text: str) -> str:
        """A text without the secrets that were seen, as they are, as parts of a URL, in base64 and in JSON."""
        if not self._forms:
            forms = {form for secret in self._seen for form in _forms_of(secret)}
            self._forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))
        return hide(text, self._forms)

    def hide_seen_in(self, value: object) -> object:
        """The same in every text of a JSON-like value: once it is rendered, a secret may be broken into lines."""
        if isinstance(value, Mapping):
            return {self.hide_seen(str(name)): self.hide_seen_in(member) for name, member in value.items()}
        if isinstance(value, list | tuple):
            return [self.hide_seen_in(item) for item in value]
        return self.hide_seen(value) if isinstance(value, str) else value

    def _redact_all(self, value: object) -> object:
        """A value all of which may be secret; only flags and empty texts are shown."""
        if isinstance(value, Mapping):
            return {self.redact_text(str(name)): self._redact_all(member) for name, member in value.items()}
        if isinstance(value, list | tuple):
            return [self._redact_all(item) for item in value]
        if value is None or isinstance(value, bool) or value == "":
            return value
        self._keep(str(value))
        if isinstance(value, str):
            self.redact_text(value)  # keeps what is secret in a document that is a text
        return HIDDEN

    def _hide_user(self, found: re.Match[str]) -> str:
        user, _colon, password = found[1].partition(":")
        self._keep(password or user)
        return f"://{HIDDEN}@"

    def _hide_credentials(self, found: re.Match[str]) -> str:
        self._keep(found[2])
        return f"{found[1]} {HIDDEN}"

    def _keep(self, text: str) -> None:
        self._forms = ()
        lines = text.strip().splitlines()
        if len(lines) > 1:
            self._seen.update(
                line.strip() for line in lines if len(line.strip()) >= _SHORTEST_LINE and not line.startswith("-----")
            )
        if len(text.strip()) >= _SHORTEST:
            self._seen.add(text.strip())


def _forms_of(secret: str) -> tuple[str, ...]:
    encoded = secret.encode("utf-8", "surrogateescape")
    plain = base64.b64encode(encoded).decode()
    url_safe = base64.urlsafe_b64encode(encoded).decode()
    quoted = quote(secret, errors="surrogateescape"), quote(secret, safe="", errors="surrogateescape")
    in_json = json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]
    return (secret, plain, plain.rstrip("="), url_safe.rstrip("="), *quoted, *in_json)


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
