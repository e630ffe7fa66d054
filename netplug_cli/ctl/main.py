"""The command line of ``netplugctl``: finds the named command, and turns its end into an exit status.

Only click is imported until a command is named, and then only that command's module. Results go to standard output;
errors and remarks go to standard error, a line each, and never as a traceback.
"""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

import click
from click.exceptions import Abort

from netplug_backends.host.atomic_files import read_file
from netplug_cli.ctl.global_options import COMPLETE_VARIABLE, global_options, remember_option
from netplug_cli.formatting import print_error, print_failure

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from netplug_cli.ctl.session import Session

__all__ = [
    "FOLDER", "HELP_WIDTH", "INTERRUPTED", "end_process", "file_name", "find_help", "run",
]  # fmt: skip


# --- help texts ------------------------------------------------------------------------------------------------------


FOLDER = os.path.join(os.path.dirname(__file__), "help")
"""Where the files are: one for each command and for each group of commands."""

HELP_WIDTH = 80
"""The width of the terminal that the files are written for; click never uses more."""

_OPTIONS = ("-h", "--help")


def file_name(words: Sequence[str]) -> str:
    """The name of the file with the help of a command; a word of a command has no dot."""
    return f"{'.'.join(words)}.txt"


def find_help(argv: Sequence[str]) -> str | None:
    """The help that a command line asks for, if it is words of a command and the option for help, and nothing else.

    None for any other command line, for a command without a file, and on a narrow terminal, for which click breaks
    the lines.
    """
    *words, last = argv or ("",)
    if last not in _OPTIONS or not all(word.replace("-", "").isalpha() for word in words):
        return None
    from shutil import get_terminal_size  # with lzma and bz2 a fiftieth of a get, which needs none of them

    if get_terminal_size().columns < HELP_WIDTH:
        return None
    try:
        return read_file(os.path.join(FOLDER, file_name(words))).decode()
    except FileNotFoundError:
        return None


# --- main ------------------------------------------------------------------------------------------------------------


# Each command: its module, its name there, and its line in --help, so that --help imports no command.
_COMMANDS = {
    "annotate": ("netplug_cli.ctl.commands.edit", "annotate", "Set or remove annotations of resources."),
    "api-resources": ("netplug_cli.ctl.commands.describe", "api_resources", "Show the kinds of resources."),
    "apply": ("netplug_cli.ctl.commands.resources", "apply", "Create or change resources from files."),
    "cluster": ("netplug_cli.ctl.commands.cluster", "cluster", "Show how the cluster is, on one screen."),
    "completion": (
        "netplug_cli.ctl.completion",
        "completion",
        "Print the script that completes words in a shell.",
    ),
    "config": ("netplug_cli.ctl.commands.config", "config", "Show the configuration of this tool."),
    "connectivity": ("netplug_cli.wiring.lab", "connectivity", "Test who reaches whom with packets."),
    "controllers": (
        "netplug_cli.ctl.commands.cluster",
        "controllers",
        "Show what the controllers of the cluster do.",
    ),
    "create": ("netplug_cli.ctl.commands.resources", "create", "Create resources from files."),
    "datastore": ("netplug_cli.ctl.commands.datastore", "datastore", "Lock the datastore; move it into another one."),
    "delete": ("netplug_cli.ctl.commands.resources", "delete", "Delete resources, by name or from files."),
    "describe": (
        "netplug_cli.ctl.commands.describe",
        "describe",
        "Show resources with what uses them and what is unusual.",
    ),
    "diff": ("netplug_cli.ctl.commands.resources", "diff", "Show what apply would change."),
    "edit": ("netplug_cli.ctl.commands.edit", "edit", "Change a resource in an editor."),
    "explain": ("netplug_cli.ctl.commands.describe", "explain", "Say what the fields of a kind mean."),
    "get": ("netplug_cli.ctl.commands.get", "get", "Show resources."),
    "install": ("netplug_cli.ctl.commands.install", "install", "Put netplug onto a machine or into a cluster."),
    "ipam": ("netplug_cli.ctl.commands.ipam", "ipam", "Show, check and configure IP address management."),
    "label": ("netplug_cli.ctl.commands.edit", "label", "Set or remove labels of resources."),
    "lab": ("netplug_cli.wiring.lab", "lab", "Run nodes with pods in namespaces of this machine."),
    "lint": ("netplug_cli.ctl.commands.lint", "lint", "Find what is wrong in configurations and manifests."),
    "migrate": ("netplug_cli.ctl.commands.migrate", "migrate", "Let controllers do what people had to write."),
    "node": ("netplug_cli.ctl.commands.node", "node", "Show the node process of this machine."),
    "patch": ("netplug_cli.ctl.commands.edit", "patch", "Change parts of a resource."),
    "policy": ("netplug_cli.ctl.commands.policy", "policy", "Say which policies apply, and what they allow."),
    "pool": ("netplug_cli.ctl.commands.pool", "pool", "Empty a pool and delete it, or replace it by another one."),
    "replace": ("netplug_cli.ctl.commands.resources", "replace", "Change resources that exist, from files."),
    "simulate": ("netplug_cli.ctl.commands.simulate", "simulate", "Simulate how pools serve generated nodes and pods."),
    "support": ("netplug_cli.ctl.commands.support", "support", "Collect what those who help need to see."),
    "uninstall": ("netplug_cli.ctl.commands.install", "uninstall", "Take netplug off a machine."),
    "validate": (
        "netplug_cli.ctl.commands.resources",
        "validate",
        "Check files, together, against every rule that needs no datastore.",
    ),
    "wait": ("netplug_cli.ctl.commands.wait", "wait", "Wait until resources exist, are gone or have a value."),
    "version": ("netplug_cli.ctl.commands.version", "version", "Show the versions of this tool and of the cluster."),
}


INTERRUPTED = 130
"""The exit status after Ctrl-C, as a shell has it: 128 and the number of the signal."""

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _LazyGroup(click.Group):
    """A group that imports a command when it is named, and adds the global options to it."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = _command_to_complete(cmd_name) if ctx.resilient_parsing else _load(cmd_name)
        if command is not None:
            _add_global_options(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a command line; one that only asks for its help gets that, and imports no command."""
        text = find_help(args)
        if text is not None:
            click.echo(text, nl=False)
            ctx.exit()
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        commands = [CompletionItem(name, help=_COMMANDS[name][2]) for name in names]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][2]) for name in self.list_commands(ctx)])


def _load(name: str) -> click.Command | None:
    if name not in _COMMANDS:
        return None
    module, attribute, _ = _COMMANDS[name]
    command: click.Command = getattr(import_module(module), attribute)
    return command


def _command_to_complete(name: str) -> click.Command | None:
    """A command for a shell that asks for words; only the words are loaded."""
    from netplug_cli.ctl.completion import command_to_complete

    return command_to_complete(name)


def _add_global_options(command: click.Command) -> None:
    """Add the global options to a command, or to every command of a group, unless it has them."""
    if isinstance(command, click.Group):
        for member in command.commands.values():
            _add_global_options(member)
    elif not any(parameter.callback is remember_option for parameter in command.params):
        taken = {spelling for parameter in command.params for spelling in parameter.opts}
        command.params = [*command.params, *global_options(is_hidden=True, taken=taken)]


def _print_version(context: click.Context, _parameter: click.Parameter, is_asked: bool) -> None:  # noqa: FBT001 - click's signature
    if is_asked:
        from netplug_core import __version__

        click.echo(f"netplugctl v{__version__}")
        context.exit()


_VERSION = click.Option(
    ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
    help="Show the version of this tool and exit.",
)  # fmt: skip


@click.group(
    cls=_LazyGroup,
    commands={name: click.Command(name) for name in _COMMANDS},  # of which click lists and suggests the names
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[*global_options(is_hidden=False), _VERSION],
)
def netplugctl() -> None:
    """Work with netplug: its pools, its addresses, and its place on this machine.

    The datastore is set in a configuration file, /etc/netplug/netplugctl.cfg unless --config names another. If the file
    does not exist, these variables are used: DATASTORE_TYPE, ETCD_ENDPOINTS, KUBECONFIG, SQLITE_PATH and more. The
    options below may also follow a command.
    """


def run(argv: Sequence[str], make_session: Callable[[], Session]) -> int:
    """Run one command line and return its exit status: 0, 1, or 2 for a command line that cannot be understood.

    After Ctrl-C it is ``INTERRUPTED``.
    ``make_session`` makes what commands act through; it is called when a command asks for it.
    """
    if os.environ.get(COMPLETE_VARIABLE):
        from netplug_cli.ctl.completion import answer_shell

        return answer_shell(partial(netplugctl.main, [], prog_name="netplugctl", obj=make_session))
    try:
        status = netplugctl.main(
            _with_flags(list(argv)), prog_name="netplugctl", standalone_mode=False, obj=make_session
        )
    except click.ClickException as error:
        _print_click_error(error)
        return error.exit_code
    except Abort:
        print_failure("interrupted")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost frame; a person gets one line, not a traceback
        print_failure(_error_text(error))
        return 1
    return status if isinstance(status, int) else 0


def end_process(status: int) -> NoReturn:
    """End this process with a status, at once: taking the interpreter down costs a fifth of a short command.

    What was printed is written before, and what libraries have registered for the end runs. After Ctrl-C the process
    ends by the signal: a shell then ends its loop or script too, and its ``$?`` is the same status.
    """
    atexit._run_exitfuncs()  # noqa: SLF001  what the interpreter calls too; there is no other way
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            status = status or 1
            if error.errno in _OUTPUT_ERRORS and stream is sys.stdout:
                print_failure(_error_text(error))
    if status == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


_DRY_RUNS = {"--dry-run=client": ("--dry-run",), "--dry-run=server": ("--dry-run",), "--dry-run=none": ()}


def _with_flags(argv: list[str]) -> list[str]:
    """The words of a command line, with kubectl's forms of ``--dry-run`` as the flag that they stand for.

    ``help COMMAND`` is the same as ``COMMAND --help``.
    What is stored is read, judged and not changed in both of kubectl's dry runs, so they are the same here.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    if argv[:1] == ["help"] and not any(word.startswith("-") for word in argv[1:]):
        return [*argv[1:], "--help"]
    words = [found for word in argv[:end] for found in _DRY_RUNS.get(word, (word,))]
    return [*words, *argv[end:]]


def _print_click_error(error: click.ClickException) -> None:
    """Print what is wrong with a command line like every other error, and where its help is; of no words the help."""
    if isinstance(error, click.UsageError) and error.ctx is not None and error.message == error.ctx.get_help():
        click.echo(error.message, err=True)
        return
    print_failure(error.format_message())
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        print_error(f"see '{context.command_path} --help'")


def _error_text(error: Exception) -> str:
    from netplug_core.errors import NetplugError

    if isinstance(error, NetplugError):
        return str(error)
    if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_ERRORS:
        # What is left in the buffer goes nowhere: Python writes it at its end, and would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return f"the output cannot be written: {error.strerror}"
    return f"internal error: {type(error).__name__}: {error}"
