"""The words of a command line as values: kinds and names of resources."""

from __future__ import annotations

from collections.abc import Iterable

import click

from netplug_cli.ctl.errors import InputError
from netplug_core.records import Key
from netplug_core.resources.kinds import Resource, ResourceKind, UnknownKind, get_kind

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
        raise InputError(f"failed to {verb} resources", text, str(error)) from error


def parse_keys(kind: ResourceKind, names: Iterable[str], namespace: str) -> tuple[Key[Resource], ...]:
    """The keys of the names that were typed.

    Raises:
        click.UsageError: a name is empty.
    """
    if not all(names):
        raise click.UsageError("A NAME must not be empty.")
    return tuple(kind.key(name, namespace) for name in names)
