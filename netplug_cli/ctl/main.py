"""The entry point of ``netplugctl``: finds the command that was named, and turns whatever ends it into an exit status.

It stays cheap: until a command is named nothing but click is loaded, and then only that command's module. Results go to
standard output, everything else to standard error, a line each; no traceback reaches a person.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import click
from click.exceptions import Abort

if TYPE_CHECKING:
    from netplug_cli.ctl.session import Session

__all__ = ["main", "run"]

# Command: its module, its name there, and what --help says of it (so that --help loads no command).
_COMMANDS = {
    "apply": ("netplug_cli.ctl.commands.resources", "apply", "Create or change resources from files."),
    "create": ("netplug_cli.ctl.commands.resources", "create", "Create resources from files."),
    "delete": ("netplug_cli.ctl.commands.resources", "delete", "Delete resources, by name or from files."),
    "get": ("netplug_cli.ctl.commands.resources", "get", "Show resources."),
    "install": ("netplug_cli.ctl.commands.install", "install", "Put netplug onto a machine."),
    "ipam": ("netplug_cli.ctl.commands.ipam", "ipam", "Look into address assignment, and set its rules."),
    "label": ("netplug_cli.ctl.commands.edits", "label", "Set or remove a label of a resource."),
    "lab": ("netplug_cli.lab.commands", "lab", "Run a node with pods in namespaces of this machine."),
    "patch": ("netplug_cli.ctl.commands.edits", "patch", "Change parts of a resource."),
    "replace": ("netplug_cli.ctl.commands.resources", "replace", "Change resources that exist, from files."),
    "simulate": (
        "netplug_cli.ctl.commands.simulate",
        "simulate",
        "Try how pools would hold out with nodes and pods that are made up.",
    ),
    "uninstall": ("netplug_cli.ctl.commands.install", "uninstall", "Take netplug off a machine."),
    "validate": (
        "netplug_cli.ctl.commands.resources",
        "validate",
        "Check files against every rule that needs no datastore.",
    ),
    "version": ("netplug_cli.ctl.commands.version", "version", "Show the versions of this tool and of the cluster."),
}


_LEVELS = ("netplug_cli.ctl.commands.panic", "fatal", "error", "warn", "warning", "info", "debug")


def _remember_option(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Remember what a global option says for ``session_of``; the one that stands last on the command line wins."""
    if value:
        context.meta.setdefault("netplugctl.wishes", {})[parameter.name] = value


def _global_options(*, is_hidden: bool) -> list[click.Parameter]:
    """The options that every command takes; in their own help commands do not repeat them."""
    option = partial(click.Option, expose_value=False, callback=_remember_option, hidden=is_hidden)
    return [
        option(["-c", "--config"], metavar="FILE", help="The tool's configuration, in place of the usual file."),
        option(["--context"], metavar="NAME", help="The context of the kubeconfig, where it is not the current one."),
        option(
            ["-l", "--log-level"],
            type=click.Choice(_LEVELS, case_sensitive=False),
            help="How much to say: from info on which datastore it is, with debug every call to it.  [default: panic]",
            metavar="LEVEL",
        ),
        option(["--allow-version-mismatch"], is_flag=True, help="Go on though the cluster runs a newer release."),
    ]


class _LazyGroup(click.Group):
    """A group that imports a command when it is named, and has it take the global options as well."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), attribute)
        _add_global_options(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][2]) for name in self.list_commands(ctx)])


def _add_global_options(command: click.Command) -> None:
    """Let a command, or every one of its group, take the global options, once."""
    if isinstance(command, click.Group):
        for member in command.commands.values():
            _add_global_options(member)
    elif not any(parameter.callback is _remember_option for parameter in command.params):
        command.params = [*command.params, *_global_options(is_hidden=True)]


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=_global_options(is_hidden=False),
)
def netplugctl() -> None:
    """Work with netplug: its pools, its addresses, and its place on this machine.

    The datastore is chosen by a configuration file, /etc/netplug/netplugctl.cfg unless --config names another. Where
    there is none the environment counts: DATASTORE_TYPE, ETCD_ENDPOINTS, KUBECONFIG, SQLITE_PATH and their like. The
    options below may stand after a command, too.
    """


def main() -> None:
    """What the console script calls."""
    sys.exit(run(sys.argv[1:]))


def run(argv: Sequence[str], session: Session | None = None) -> int:
    """Run one command line and return its exit status: 0, 1, or 2 for a command line that cannot be understood.

    ``session`` is what commands act through; without one they get this machine's.
    """
    try:
        status = netplugctl.main(list(argv), prog_name="netplugctl", standalone_mode=False, obj=session)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Abort:
        click.echo("netplugctl: interrupted", err=True)
        return 1
    except Exception as error:  # noqa: BLE001 - the last frame there is; a traceback is no answer to a person
        click.echo(f"netplugctl: {_error_text(error)}", err=True)
        return 1
    return status if isinstance(status, int) else 0


def _error_text(error: Exception) -> str:
    from netplug_core.errors import NetplugError

    if isinstance(error, NetplugError):
        return str(error)
    return f"internal error: {type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
