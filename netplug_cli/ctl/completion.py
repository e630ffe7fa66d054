"""``completion``: prints the script by which a shell completes words, and completes them: commands, kinds, names.

A person waits for each answer. So no command is loaded for one: what there is to complete stands in a file that is made
of the commands, and of the core only what reads the names of one kind is loaded, when names are asked for.
"""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from functools import cache
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete

from netplug_backends.host.atomic_files import read_file
from netplug_cli.ctl.global_options import ALL_NAMESPACES, COMPLETE_VARIABLE, DEFAULT_NAMESPACE, SEPARATOR

if TYPE_CHECKING:
    from netplug_cli.ctl.session import Session
    from netplug_core.clock import Deadline
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.ipam.model import Block

__all__ = [
    "WORDS_FILE", "answer_shell", "command_to_complete", "complete_addresses", "complete_blocks", "complete_nodes",
    "complete_one_resource", "complete_pools", "complete_resources", "completion",
]  # fmt: skip


# --- completion ------------------------------------------------------------------------------------------------------


R = TypeVar("R")

_LIMIT_VARIABLE = "NETPLUG_COMPLETION_SECONDS"
_DEFAULT_LIMIT_S = 3.0
_DATASTORE_SHARE = 0.5  # of the limit
_FAILED = 1
_MAX_ADDRESSES = 100


def answer_shell(ask: Callable[[], object]) -> int:
    """Let click answer the shell, without errors on the terminal; the exit status.

    The process ends without an answer if that takes longer than the limit.
    """
    before = signal.signal(signal.SIGALRM, lambda _number, _frame: os._exit(_FAILED))
    signal.setitimer(signal.ITIMER_REAL, _limit_s())
    try:
        with redirect_stderr(io.StringIO()):
            ask()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else _FAILED
    except Exception:  # noqa: BLE001 - a person who types needs no word of it; the command itself says what is wrong
        return _FAILED
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return 0


def complete_resources(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Kinds, then the names of the kind's stored resources; KIND/NAME where the first is typed so, or begun.

    What is typed already is not offered again.
    """
    typed: tuple[str, ...] = context.params.get(parameter.name or "") or ()
    if SEPARATOR in incomplete or any(SEPARATOR in word for word in typed):
        return _complete_pairs(context, typed, incomplete)
    if not typed:
        return _complete_kinds(incomplete)
    kind, *names = typed
    return [name for name in _find_names(context, kind) if name.startswith(incomplete) and name not in names]


def complete_one_resource(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The same for a command that takes one resource: nothing once it is named."""
    typed: tuple[str, ...] = context.params.get(parameter.name or "") or ()
    is_named = len(typed) > 1 or any(SEPARATOR in word for word in typed)
    return [] if is_named else complete_resources(context, parameter, incomplete)


def complete_pools(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of pools that are not typed already."""
    return _complete_names(context, parameter, incomplete, "ippool")


def complete_nodes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of nodes."""
    return _complete_names(context, parameter, incomplete, "node")


def complete_addresses(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The first of the addresses that blocks hold and that begin as typed."""
    blocks = _find_blocks(context)
    held = (str(one.address) for block in blocks for one in block.held() if one.attribute.released_ns is None)
    return list(islice((address for address in held if address.startswith(incomplete)), _MAX_ADDRESSES))


def complete_blocks(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The CIDRs of blocks."""
    return [str(block.prefix) for block in _find_blocks(context) if str(block.prefix).startswith(incomplete)]


def _complete_names(context: click.Context, parameter: click.Parameter, incomplete: str, kind: str) -> list[str]:
    typed = context.params.get(parameter.name or "") or ()
    return [name for name in _find_names(context, kind) if name.startswith(incomplete) and name not in typed]


def _complete_kinds(incomplete: str) -> list[str]:
    """The plurals of all kinds, or every word for a kind that begins as typed."""
    typed, kinds = incomplete.lower(), _words()["kinds"]
    if not typed:
        return [plural for _, plural, *_ in kinds]
    return [alias for aliases in kinds for alias in aliases if alias.startswith(typed)]


def _complete_pairs(context: click.Context, typed: Sequence[str], incomplete: str) -> list[str]:
    """KIND/NAME of the kind that is typed, or of the one before if none is; nothing beside a word without a kind."""
    before = [word.partition(SEPARATOR) for word in typed]
    if not all(separator for _, separator, _ in before):
        return []
    kind = incomplete.partition(SEPARATOR)[0] if SEPARATOR in incomplete else before[-1][0]
    taken = {name for other, _, name in before if _kind_of(other) == _kind_of(kind)}
    pairs = (f"{kind}{SEPARATOR}{name}" for name in _find_names(context, kind) if name not in taken)
    return [pair for pair in pairs if pair.startswith(incomplete)]


def _limit_s() -> float:
    """How long one answer may take, in seconds; a variable that is no such number is ignored."""
    try:
        limit_s = float(os.environ.get(_LIMIT_VARIABLE, _DEFAULT_LIMIT_S))
    except ValueError:
        return _DEFAULT_LIMIT_S
    return limit_s if 0 < limit_s < inf else _DEFAULT_LIMIT_S


def _kind_of(word: str) -> str:
    """The kind that a word names, in lower case; the word itself if it names none."""
    return next((aliases[0] for aliases in _words()["kinds"] if word.lower() in aliases), word)


def _find_names(context: click.Context, word: str) -> list[str]:
    session = _make_session(context)  # the first that loads value classes, and so prepares for them
    from netplug_core.flows.resources.read import list_all
    from netplug_core.resources.kinds import ResourceScope, find_kind

    kind = find_kind(word)
    if kind is None:
        return []
    namespace = context.params.get("namespace") or DEFAULT_NAMESPACE
    is_narrow = kind.scope is ResourceScope.NAMESPACED and namespace != ALL_NAMESPACES
    within = namespace if is_narrow else ""
    found = _ask(session, lambda store, deadline: list_all(store, kind, namespace=within, deadline=deadline))
    return [record.key.name for record in found]


def _find_blocks(context: click.Context) -> list[Block]:
    session = _make_session(context)
    from netplug_core.datastore.transaction import read_pages
    from netplug_core.ipam.model import BLOCK

    found = _ask(session, lambda store, deadline: tuple(read_pages(store, BLOCK, deadline=deadline)))
    return sorted((record.value for record in found), key=lambda block: block.prefix)


def _make_session(context: click.Context) -> Session:
    """The session of the command, which prints nothing about the datastore."""
    context.find_root().obj()
    from attrs import evolve

    from netplug_cli.ctl.session import session_of

    session = session_of(context)
    return evolve(session, options=evolve(session.options, log_level="panic"))


def _ask(session: Session, ask: Callable[[Datastore, Deadline], Sequence[R]]) -> Sequence[R]:
    """What the datastore answers; nothing if it does not in its share of the limit."""
    from netplug_core.clock import Deadline
    from netplug_core.errors import NetplugError

    try:
        with session.open_datastore_of_any_release() as store:
            return ask(store, Deadline.after(session.clock, _limit_s() * _DATASTORE_SHARE))
    except NetplugError:
        return ()


# --- commands that are only completed --------------------------------------------------------------------------------


WORDS_FILE = os.path.join(os.path.dirname(__file__), "words.json")
"""The commands with their options and arguments, and the words for each kind, as ``tools.reference`` writes them."""

_Described: TypeAlias = Mapping[str, Any]
_COMPLETERS = {
    each.__name__: each
    for each in (
        complete_addresses, complete_blocks, complete_nodes, complete_one_resource, complete_pools, complete_resources,
    )
}  # fmt: skip


class _Words(click.ParamType[str]):
    """Any text, which is completed by some words."""

    name = "text"

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        """The words that begin as typed."""
        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]


def command_to_complete(name: str) -> click.Command | None:
    """The command of a name with its options and arguments; it can be completed, and does nothing."""
    described = _words()["commands"].get(name)
    return None if described is None else _command(name, described)


@cache
def _words() -> _Described:
    """What the file says."""
    words: _Described = json.loads(read_file(WORDS_FILE))
    return words


def _command(name: str, described: _Described) -> click.Command:
    params, text = [_parameter(each) for each in described["params"]], described["help"]
    if "commands" not in described:
        return click.Command(name, params=params, help=text, short_help=text)
    members = {inner: _command(inner, each) for inner, each in described["commands"].items()}
    return click.Group(name, commands=members, params=params, help=text, short_help=text)


def _parameter(described: _Described) -> click.Parameter:
    complete = _COMPLETERS.get(described.get("complete", ""))
    type_ = click.Path() if described.get("is_path") else _Words(described.get("words", ()))
    names = [described["name"], *described.get("opts", ())]
    if "opts" not in described:
        return click.Argument(names, nargs=described["nargs"], type=type_, required=False, shell_complete=complete)
    if "flag_value" in described:
        flag = described["flag_value"]
        return click.Option(names, is_flag=True, flag_value=flag, help=described["help"], hidden=described["is_hidden"])
    return click.Option(
        names, multiple=described["is_multiple"], type=type_, help=described["help"], hidden=described["is_hidden"],
        shell_complete=complete,
    )  # fmt: skip


# --- completion ------------------------------------------------------------------------------------------------------


_SHELLS = {shell.name: shell for shell in (BashComplete, ZshComplete, FishComplete)}


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the script that completes the words of this tool in a shell.

    \b
    bash:  source <(netplugctl completion bash)
           or write it to /etc/bash_completion.d/netplugctl
    zsh:   netplugctl completion zsh >"${fpath[1]}/_netplugctl"
    fish:  netplugctl completion fish >~/.config/fish/completions/netplugctl.fish
    """  # noqa: D301 - the mark is click's, for lines that stay as they are
    script = _SHELLS[shell](context.find_root().command, {}, "netplugctl", COMPLETE_VARIABLE)
    click.echo(script.source().strip())
    return 0
