"""The entry point of ``netplugctl``: finds the command that was named, and turns whatever ends it into an exit status.

It stays cheap: until a command is named nothing but click is loaded, and then only that command's module. Results go to
standard output, everything else to standard error, a line each; no traceback reaches a person.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click
from click.exceptions import Abort

if TYPE_CHECKING:
    from netplug_cli.ctl.session import Session

__all__ = ["main", "run"]

_HERE = "netplug_cli.ctl.commands"

# Command: its module, its name there, and what --help says of it (so that --help loads no command).
_COMMANDS = {
    "apply": ("resources", "apply", "Create or change resources from files."),
    "create": ("resources", "create", "Create resources from files."),
    "delete": ("resources", "delete", "Delete resources, by name or from files."),
    "get": ("resources", "get", "Show resources."),
    "install": ("install", "install", "Put netplug onto a machine."),
    "ipam": ("ipam", "ipam", "Look into address assignment, and set its rules."),
    "lab": ("lab", "lab", "Run a node with pods in namespaces of this machine."),
    "replace": ("resources", "replace", "Change resources that exist, from files."),
    "simulate": ("simulate", "simulate", "Try how pools would hold out with nodes and pods that are made up."),
    "uninstall": ("install", "uninstall", "Take netplug off a machine."),
    "version": ("version", "version", "Show the versions of this tool and of the cluster."),
}


class _LazyGroup(click.Group):
    """A group that imports a command when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"{_HERE}.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][2]) for name in self.list_commands(ctx)])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def netplugctl() -> None:
    """Work with netplug: its pools, its addresses, and its place on this machine.

    The datastore is chosen by the environment: DATASTORE_TYPE, SQLITE_PATH.
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
        click.echo(f"netplugctl: {_sentence(error)}", err=True)
        return 1
    return status if isinstance(status, int) else 0


def _sentence(error: Exception) -> str:
    from netplug_core.errors import NetplugError

    if isinstance(error, NetplugError):
        return str(error)
    return f"internal error: {type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
