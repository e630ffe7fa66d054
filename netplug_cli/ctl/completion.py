"""Completes what is typed on the command line: kinds, and the names of stored resources.

The shell runs the tool for each Tab, so nothing here prints an error or takes long: whatever fails offers nothing.
``netplugctl completion`` prints the script that makes a shell ask.
"""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from contextlib import redirect_stderr
from math import inf

import click

__all__ = ["answer_shell", "complete_kinds", "complete_names"]

_LIMIT_VARIABLE = "NETPLUG_COMPLETION_SECONDS"
_DEFAULT_LIMIT_S = 3.0
_DATASTORE_SHARE = 0.5  # of the limit
_FAILED = 1


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


def complete_kinds(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The plurals of all kinds, or every word for a kind that begins as typed."""
    from netplug_core.resources.kinds import KINDS

    typed = incomplete.lower()
    if not typed:
        return [row.plural for row in KINDS]
    return [alias for row in KINDS for alias in row.aliases if alias.startswith(typed)]


def complete_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of the stored resources of the kind before them, without those that are typed already."""
    typed = context.params.get(parameter.name or "") or ()
    names = _find_names(context)
    return [name for name in names if name.startswith(incomplete) and name not in typed]


def _limit_s() -> float:
    """How long one answer may take, in seconds; a variable that is no such number is ignored."""
    try:
        limit_s = float(os.environ.get(_LIMIT_VARIABLE, _DEFAULT_LIMIT_S))
    except ValueError:
        return _DEFAULT_LIMIT_S
    return limit_s if 0 < limit_s < inf else _DEFAULT_LIMIT_S


def _find_names(context: click.Context) -> list[str]:
    from attrs import evolve

    from netplug_cli.ctl.arguments import DEFAULT_NAMESPACE
    from netplug_cli.ctl.session import session_of
    from netplug_core.clock import Deadline
    from netplug_core.errors import NetplugError
    from netplug_core.flows.resources.read import list_all
    from netplug_core.resources.kinds import ResourceScope, find_kind

    kind = find_kind(context.params.get("kind") or "")
    if kind is None:
        return []
    session = session_of(context)
    session = evolve(session, options=evolve(session.options, log_level="panic"))
    namespace = context.params.get("namespace") or DEFAULT_NAMESPACE
    within = namespace if kind.scope is ResourceScope.NAMESPACED else ""
    try:
        with session.open_datastore_of_any_release() as store:
            found = list_all(
                store, kind, namespace=within, deadline=Deadline.after(session.clock, _limit_s() * _DATASTORE_SHARE)
            )
    except NetplugError:
        return []
    return [record.key.name for record in found]
