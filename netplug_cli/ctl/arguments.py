"""The words of a command line as values: kinds and names of resources."""

from __future__ import annotations

from collections.abc import Sequence

import click

from netplug_cli.ctl.errors import InputError
from netplug_core.records import Key
from netplug_core.resources.kinds import Resource, ResourceKind, UnknownKind, get_kind

__all__ = [
    "DEFAULT_NAMESPACE", "SEPARATOR", "TRUTH", "format_key", "parse_key", "parse_keys", "parse_kind",
]  # fmt: skip

DEFAULT_NAMESPACE = "default"
"""The namespace of a resource when none is named."""

SEPARATOR = "/"
"""What stands between kind and name in one word, as ``get -o name`` prints it. No name of a resource has it."""

_WAYS = f"give every resource as KIND{SEPARATOR}NAME, or one KIND and its NAMEs"


class _Truth(click.ParamType[bool]):
    """True or false; click's own type lists a dozen spellings when it refuses a word."""

    name = "boolean"

    def convert(self, value: str | bool, param: click.Parameter | None, ctx: click.Context | None) -> bool:  # noqa: FBT001 - click's signature
        """The value; an error of the command line for another word."""
        if isinstance(value, bool):
            return value
        word = value.strip().lower()
        if word not in _TRUTH_WORDS:
            self.fail(f"{value!r} is neither true nor false", param, ctx)
        return _TRUTH_WORDS[word]


_TRUTH_WORDS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}
TRUTH = _Truth()
"""The type of an option that is true or false."""


def parse_kind(text: str, verb: str) -> ResourceKind:
    """The kind that was typed after a verb.

    Raises:
        InputError: there is no such kind.
    """
    try:
        return get_kind(text)
    except UnknownKind as error:
        raise InputError(f"failed to {verb} resources", text, f"{error}") from error


def parse_keys(words: Sequence[str], verb: str, namespace: str) -> tuple[Key[Resource], ...]:
    """The keys of the resources that were named after a verb: as KIND NAME..., or as KIND/NAME, each of its own kind.

    None for a KIND alone.

    Raises:
        InputError: there is no such kind.
        click.UsageError: a kind or a name is empty, or both forms are mixed.
    """
    if any(SEPARATOR in word for word in words):
        return tuple(_parse_pair(word, words, verb, namespace) for word in words)
    kind, names = parse_kind(words[0], verb), words[1:]
    if not all(names):
        raise click.UsageError("A NAME must not be empty.")
    return tuple(kind.key(name, namespace) for name in names)


def format_key(key: Key[Resource]) -> str:
    """Kind and name as one word, which :func:`parse_keys` reads; the namespace is not in it, as in kubectl."""
    return f"{key.kind.name.lower()}{SEPARATOR}{key.name}"


def parse_key(words: Sequence[str], verb: str, namespace: str) -> Key[Resource]:
    """The key of the one resource that was named after a verb, as KIND NAME or as KIND/NAME.

    Raises:
        InputError: there is no such kind.
        click.UsageError: none is named, or several are.
    """
    keys = parse_keys(words, verb, namespace) if words else ()
    if len(keys) != 1:
        found = ", ".join(map(str, keys)) or "none"
        raise click.UsageError(f"{verb} takes one resource, as KIND NAME or KIND{SEPARATOR}NAME; found {found}.")
    return keys[0]


def _parse_pair(word: str, words: Sequence[str], verb: str, namespace: str) -> Key[Resource]:
    kind, separator, name = word.partition(SEPARATOR)
    if not separator:
        pair = next(other for other in words if SEPARATOR in other)
        raise click.UsageError(f"{word!r} has no {SEPARATOR!r}, and {pair!r} has one: {_WAYS}.")
    if not kind or not name or SEPARATOR in name:
        raise click.UsageError(f"{word!r} is no KIND{SEPARATOR}NAME: {_WAYS}.")
    return parse_kind(kind, verb).key(name, namespace)
