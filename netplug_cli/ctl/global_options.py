"""The options that every command of ``netplugctl`` takes. ``main`` adds them, ``session`` reads their values."""

from __future__ import annotations

from functools import partial

import click

__all__ = ["COMPLETE_VARIABLE", "OPTIONS_META_KEY", "global_options", "remember_option"]

COMPLETE_VARIABLE = "_NETPLUGCTL_COMPLETE"
"""The variable by which a shell asks for completions; click derives the name from the tool's."""

OPTIONS_META_KEY = "netplugctl.options"
"""The member of click's ``meta`` with the values of the global options."""

_LEVELS = ("panic", "fatal", "error", "warn", "warning", "info", "debug")


def remember_option(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Store the value of a global option for ``session_of``; the last one on the command line wins."""
    if value:
        context.meta.setdefault(OPTIONS_META_KEY, {})[parameter.name] = value


def global_options(*, is_hidden: bool) -> list[click.Parameter]:
    """The options that every command takes; the help of a command does not repeat them."""
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
            ["-l", "--log-level"],
            type=click.Choice(_LEVELS, case_sensitive=False),
            help="How much to print: info shows which datastore is used, debug every call to it.  [default: panic]",
            metavar="LEVEL",
        ),
        option(["--allow-version-mismatch"], is_flag=True, help="Continue if the cluster runs a newer release."),
    ]
