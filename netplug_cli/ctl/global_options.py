"""What all commands of ``netplugctl`` share: some words, and options. ``main`` adds these, ``session`` reads them."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import click

__all__ = [
    "ALLOW_VARIABLE", "ALL_NAMESPACES", "COMPLETE_VARIABLE", "DEFAULT_NAMESPACE", "LOG_LEVELS", "OPTIONS_META_KEY",
    "SEPARATOR", "global_options", "log_level_advice", "remember_option",
]  # fmt: skip

DEFAULT_NAMESPACE = "default"
"""The namespace of a resource when none is named."""

ALL_NAMESPACES = "*"
"""What stands for every namespace where a namespace is named."""

SEPARATOR = "/"
"""What stands between kind and name in one word, as ``get -o name`` prints it. No name of a resource has it."""

ALLOW_VARIABLE = "NETPLUG_ALLOW_VERSION_MISMATCH"
"""The variable that stands for ``--allow-version-mismatch``."""

COMPLETE_VARIABLE = "_NETPLUGCTL_COMPLETE"
"""The variable by which a shell asks for completions; click derives the name from the tool's."""

OPTIONS_META_KEY = "netplugctl.options"
"""The member of click's ``meta`` with the values of the global options."""

_SHORT = "-l"
LOG_LEVELS = ("panic", "fatal", "error", "warn", "warning", "info", "debug")
"""The words that ``--log-level`` accepts."""


def remember_option(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Store the value of a global option for ``session_of``; the last one on the command line wins."""
    if value:
        context.meta.setdefault(OPTIONS_META_KEY, {})[parameter.name] = value


def log_level_advice(word: str) -> str:
    """What to write in place of ``-l`` and the name of a log level, which earlier releases took."""
    return f"-l selects by labels; the log level is --log-level {word}."


def _refuse_short(_context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        is_level = value.lower() in LOG_LEVELS
        raise click.UsageError(
            log_level_advice(value) if is_level else "-l selects by labels, and this takes no selector."
        )


def global_options(*, is_hidden: bool, taken: Collection[str] = ()) -> list[click.Parameter]:
    """The options that every command takes; the help of a command does not repeat them.

    ``taken`` are spellings that the command has options of its own for.
    """
    option = partial(click.Option, expose_value=False, callback=remember_option, hidden=is_hidden)
    options: list[click.Parameter] = [
        option(
            ["-c", "--config"],
            type=click.Path(),
            metavar="FILE",
            help="The tool's configuration, in place of the default file.",
        ),
        option(["--context"], metavar="NAME", help="The context of the kubeconfig, in place of the current one."),
        option(
            ["--log-level"],
            type=click.Choice(LOG_LEVELS, case_sensitive=False),
            help="How much to print: info shows which datastore is used, debug every call to it.  [default: panic]",
            metavar="LEVEL",
        ),
        option(
            ["--allow-version-mismatch"],
            is_flag=True,
            envvar=ALLOW_VARIABLE,
            help="Continue if the cluster runs a newer release.",
        ),
    ]
    if _SHORT not in taken:
        # Not an option, but the error about it says what people mean who type it.
        refused = [_SHORT, "refused_selector"]
        options.append(click.Option(refused, hidden=True, expose_value=False, callback=_refuse_short))
    return options
