"""``completion``: prints the script by which a shell completes words, and completes them: commands, kinds, names."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from netplug_cli.ctl.arguments import DEFAULT_NAMESPACE, SEPARATOR
from netplug_cli.ctl.global_options import COMPLETE_VARIABLE

if TYPE_CHECKING:
    from netplug_core.clock import Deadline
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.ipam.model.block import Block

__all__ = [
    "answer_shell", "complete_addresses", "complete_blocks", "complete_nodes", "complete_one_resource",
    "complete_pools", "complete_resources", "completion",
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
    from netplug_core.resources.kinds import KINDS

    typed = incomplete.lower()
    if not typed:
        return [row.plural for row in KINDS]
    return [alias for row in KINDS for alias in row.aliases if alias.startswith(typed)]


def _complete_pairs(context: click.Context, typed: Sequence[str], incomplete: str) -> list[str]:
    """KIND/NAME of the kind that is typed, or of the one before if none is; nothing beside a word without a kind."""
    from netplug_core.resources.kinds import find_kind

    before = [word.partition(SEPARATOR) for word in typed]
    if not all(separator for _, separator, _ in before):
        return []
    kind = incomplete.partition(SEPARATOR)[0] if SEPARATOR in incomplete else before[-1][0]
    taken = {name for other, _, name in before if find_kind(other) is find_kind(kind)}
    pairs = (f"{kind}{SEPARATOR}{name}" for name in _find_names(context, kind) if name not in taken)
    return [pair for pair in pairs if pair.startswith(incomplete)]


def _limit_s() -> float:
    """How long one answer may take, in seconds; a variable that is no such number is ignored."""
    try:
        limit_s = float(os.environ.get(_LIMIT_VARIABLE, _DEFAULT_LIMIT_S))
    except ValueError:
        return _DEFAULT_LIMIT_S
    return limit_s if 0 < limit_s < inf else _DEFAULT_LIMIT_S


def _find_names(context: click.Context, word: str) -> list[str]:
    from netplug_core.flows.resources.read import list_all
    from netplug_core.resources.kinds import ResourceScope, find_kind

    kind = find_kind(word)
    if kind is None:
        return []
    namespace = context.params.get("namespace") or DEFAULT_NAMESPACE
    within = namespace if kind.scope is ResourceScope.NAMESPACED else ""
    found = _ask(context, lambda store, deadline: list_all(store, kind, namespace=within, deadline=deadline))
    return [record.key.name for record in found]


def _find_blocks(context: click.Context) -> list[Block]:
    from netplug_core.datastore.transaction import read_pages
    from netplug_core.ipam.model.block import BLOCK

    found = _ask(context, lambda store, deadline: tuple(read_pages(store, BLOCK, deadline=deadline)))
    return sorted((record.value for record in found), key=lambda block: block.prefix)


def _ask(context: click.Context, ask: Callable[[Datastore, Deadline], Sequence[R]]) -> Sequence[R]:
    """What the datastore answers; nothing if it does not in its share of the limit."""
    from attrs import evolve

    from netplug_cli.ctl.session import session_of
    from netplug_core.clock import Deadline
    from netplug_core.errors import NetplugError

    session = session_of(context)
    session = evolve(session, options=evolve(session.options, log_level="panic"))
    try:
        with session.open_datastore_of_any_release() as store:
            return ask(store, Deadline.after(session.clock, _limit_s() * _DATASTORE_SHARE))
    except NetplugError:
        return ()


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
