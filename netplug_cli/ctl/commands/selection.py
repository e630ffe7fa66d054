"""``-l`` and ``--selector``: which of a kind a command shows, by their labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from attrs import frozen

from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.global_options import LOG_LEVELS, remember_log_level
from netplug_core.selectors.grammar import And, Everything, Selector, SelectorError
from netplug_core.selectors.requirements import parse_either

__all__ = ["SELECTOR", "Selected", "selected_of"]

_SELECTORS_META_KEY = "netplugctl.selectors"
_Command = Callable[..., Any]


@frozen
class Selected:
    """The resources that all of some selectors select, as they were typed; all resources without one."""

    texts: tuple[str, ...] = ()
    selector: Selector = Everything.ALL

    @property
    def clause(self) -> str:
        """What a message adds about them; empty without a selector."""
        return f" with labels that match {' and '.join(map(repr, self.texts))}" if self.texts else ""


def SELECTOR(command: _Command) -> _Command:  # noqa: N802 - beside the other options, which are values
    """``--selector``, and ``-l``: as in kubectl, unless what follows is a log level, as after every command."""
    short = click.option(
        "-l", "short_selectors", multiple=True, metavar="SELECTOR", expose_value=False, callback=_take_short,
        help="The same; but the name of a log level (info, debug) is that of --log-level.",
    )  # fmt: skip
    long = click.option(
        "--selector", "long_selectors", multiple=True, metavar="SELECTOR", expose_value=False, callback=_take,
        help="Only those with these labels: 'app=x,tier!=y,rack in (r1,r2),!old', or a selector as pools have it.",
    )  # fmt: skip
    return long(short(command))


def selected_of(context: click.Context) -> Selected:
    """What the options of a command select.

    Raises:
        InputError: one of them is no selector; the error has the position.
    """
    texts: tuple[str, ...] = tuple(context.meta.get(_SELECTORS_META_KEY, ()))
    terms = tuple(map(_parse, texts))
    if not terms:
        return Selected()
    return Selected(texts, terms[0] if len(terms) == 1 else And(terms))


def _take(context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> None:
    context.meta.setdefault(_SELECTORS_META_KEY, []).extend(values)


def _take_short(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> None:
    for value in values:
        if value.lower() in LOG_LEVELS:
            remember_log_level(context, value)
        else:
            _take(context, parameter, (value,))


def _parse(text: str) -> Selector:
    try:
        return parse_either(text)
    except SelectorError as error:
        raise InputError("--selector", text, f"{text!r} is no selector: {error}") from None
