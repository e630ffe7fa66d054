"""The words of a command line as values: kinds and names of resources."""

from __future__ import annotations

from collections.abc import Iterable

import click

from netplug_cli.ctl.errors import InputError
from netplug_core.records import Key
from netplug_core.resources.kinds import KINDS, Resource, ResourceKind, UnknownKind, get_kind

__all__ = ["DEFAULT_NAMESPACE", "parse_keys", "parse_kind"]

DEFAULT_NAMESPACE = "default"
"""The namespace of a resource when none is named."""


def parse_kind(text: str, verb: str) -> ResourceKind:
    """The kind that was typed after a verb.

    Raises:
        InputError: there is no such kind.
    """
    try:
        return get_kind(text)
    except UnknownKind as error:
        raise InputError(f"failed to {verb} resources", text, f"{error}{_suggest_kind(text)}") from error


def parse_keys(kind: ResourceKind, names: Iterable[str], namespace: str) -> tuple[Key[Resource], ...]:
    """The keys of the names that were typed.

    Raises:
        click.UsageError: a name is empty.
    """
    if not all(names):
        raise click.UsageError("A NAME must not be empty.")
    return tuple(kind.key(name, namespace) for name in names)


def _suggest_kind(text: str) -> str:
    from difflib import get_close_matches

    found = get_close_matches(text.lower(), [alias for row in KINDS for alias in row.aliases], n=1, cutoff=0.7)
    return f"; did you mean {found[0]}?" if found else ""
