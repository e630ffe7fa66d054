"""What may be secret in documents and texts, and the same without it.

The rule is that of the plugin's error texts (``cni.errors``) and of the settings (those without ``repr``), and more: a
bundle leaves the cluster, and has texts that netplug did not write. So a text is also searched for what looks like a
secret. Rather too much is hidden than too little.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from attrs import define, field

from netplug_core.cni.errors import HIDDEN, SECRET_WORDS, hide
from netplug_core.settings.model import SECRET_SETTINGS

__all__ = ["Redactor", "is_secret_name"]

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
