"""The options that every command of ``netplugctl`` takes. ``main`` adds them, ``session`` reads their values."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import click

__all__ = [
    "COMPLETE_VARIABLE", "LOG_LEVELS", "OPTIONS_META_KEY", "global_options", "remember_log_level", "remember_option",
]  # fmt: skip

COMPLETE_VARIABLE = "_NETPLUGCTL_COMPLETE"
"""The variable by which a shell asks for completions; click derives the name from the tool's."""

OPTIONS_META_KEY = "netplugctl.options"
"""The member of click's ``meta`` with the values of the global options."""

LOG_LEVELS = ("panic", "fatal", "error", "warn", "warning", "info", "debug")
"""The words that ``--log-level`` accepts."""


def remember_option(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Store the value of a global option for ``session_of``; the last one on the command line wins."""
    if value:
        context.meta.setdefault(OPTIONS_META_KEY, {})[parameter.name] = value


def remember_log_level(context: click.Context, level: str) -> None:
    """Store a log level that a command was given by an option of its own."""
    context.meta.setdefault(OPTIONS_META_KEY, {})["log_level"] = level


def global_options(*, is_hidden: bool, taken: Collection[str] = ()) -> list[click.Parameter]:
    """The options that every command takes; the help of a command does not repeat them.

    ``taken`` are spellings that the command has options of its own for.
    """
    option = partial(click.Option, expose_value=False, callback=remember_option, hidden=is_hidden)
    return [
        option(
            ["-c", "--config"],
            type=click.Path(),
            metavar="FILE",
            help="The tool's configuration, in place of the default file.",
        ),
        option(["--context"], metavar="NAME", help="The context of the kubeconfig, in place of the current one."),
        option(
            [spelling for spelling in ("-l", "--log-level") if spelling not in taken],
            type=click.Choice(LOG_LEVELS, case_sensitive=False),
            help="How much to print: info shows which datastore is used, debug every call to it.  [default: panic]",
            metavar="LEVEL",
        ),
        option(["--allow-version-mismatch"], is_flag=True, help="Continue if the cluster runs a newer release."),
    ]
