"""Options and arguments that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from netplug_cli.ctl.arguments import DEFAULT_NAMESPACE
from netplug_cli.ctl.completion import complete_one_resource, complete_resources
from netplug_cli.ctl.documents import MANIFEST_SUFFIXES, find_files
from netplug_core.addressing import Prefix

__all__ = ["DRY_RUN", "FILES", "FORCE", "NAMESPACE", "ONE_RESOURCE", "RESOURCES", "files_with", "parse_cidr"]

_RECURSIVE_META_KEY = "netplugctl.recursive"
_Command = Callable[..., Any]


def _remember_recursive(context: click.Context, _parameter: click.Parameter, value: object) -> None:
    context.meta[_RECURSIVE_META_KEY] = bool(value)


def parse_cidr(text: str) -> Prefix:
    """The value of an option, with an error of the command line if it is no CIDR or has host bits."""
    try:
        return Prefix.parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}; a CIDR such as 10.1.0.0/16 is expected") from None


def FILES(command: _Command) -> _Command:  # noqa: N802 - beside the other options, which are values
    """``-f`` and ``-R``: the files to read, those of named folders among them."""
    return files_with(MANIFEST_SUFFIXES)(command)


def files_with(suffixes: tuple[str, ...]) -> Callable[[_Command], _Command]:
    """``-f`` and ``-R``, where the files of a folder are those whose names end in one of some suffixes."""

    def find(context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
        is_recursive = context.meta[_RECURSIVE_META_KEY]
        found = (find_files(named, is_recursive=is_recursive, suffixes=suffixes) for named in value)
        return tuple(file for files in found for file in files)

    return lambda command: _add_files(command, find)


def _add_files(command: _Command, find: Callable[..., tuple[str, ...]]) -> _Command:
    recursive = click.option(
        "-R", "--recursive", is_flag=True, is_eager=True, expose_value=False, callback=_remember_recursive,
        help="Take the files of folders in a folder too.",
    )  # fmt: skip
    files = click.option(
        "-f", "--filename", "files", type=click.Path(), multiple=True, metavar="FILE", callback=find,
        help="A file of YAML or JSON, or a folder with such files; - is standard input.",
    )  # fmt: skip
    return files(recursive(command))


DRY_RUN = click.option(
    "--dry-run", "is_dry_run", is_flag=True, help="Say what would be done, and write nothing to the datastore."
)
FORCE = click.option(
    "--force", "is_forced", is_flag=True, help="Delete it though it is damaged and may hold addresses in use."
)
NAMESPACE = click.option(
    "-n", "--namespace", default=DEFAULT_NAMESPACE, metavar="NS", help="The namespace, for kinds that have one."
)
RESOURCES = click.argument(
    "words", nargs=-1, metavar="[KIND [NAME]... | KIND/NAME...]", shell_complete=complete_resources
)
ONE_RESOURCE = click.argument(
    "words", nargs=-1, required=True, metavar="(KIND NAME | KIND/NAME)", shell_complete=complete_one_resource
)
