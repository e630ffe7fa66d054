"""``wait``: returns once resources exist, are gone, have a condition or a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict, Unpack

import click
from attrs import frozen

from netplug_cli.ctl.arguments import ALL, NAMESPACE, RESOURCES, SELECTOR, Named, find_keys, format_key, selected_of
from netplug_cli.ctl.outputs import PathError, format_value, parse_path
from netplug_cli.ctl.session import session_of
from netplug_cli.ctl.tables import STEP_OUTPUT, report_steps
from netplug_cli.formatting import format_duration, parse_duration, print_error
from netplug_cli.progress import show_progress
from netplug_core.clock import Deadline
from netplug_core.flows.resources.read import find
from netplug_core.resources.codec import to_mapping

__all__ = ["wait"]

_POLL_S = 0.5
_FORMS = "delete, create, condition=TYPE[=STATUS] or jsonpath='{.PATH}'[=TEXT]"


_Test = Callable[[Mapping[str, object] | None], bool]


@frozen
class _Goal:
    """What is waited for, as it was typed, and whether a resource is so; None is one that does not exist."""

    text: str
    is_met: _Test


def _parse_goal(_context: click.Context, _parameter: click.Parameter, value: str) -> _Goal:
    word, _, rest = value.partition("=")
    match word:
        case "delete" if not rest:
            return _Goal(value, lambda found: found is None)
        case "create" if not rest:
            return _Goal(value, lambda found: found is not None)
        case "condition" if rest:
            return _Goal(value, _has_condition(rest))
        case "jsonpath" if rest:
            return _Goal(value, _has_value(rest))
    raise click.BadParameter(f"{value!r} is none of {_FORMS}")


def _has_condition(text: str) -> _Test:
    name, _, status = text.partition("=")
    types = parse_path(".status.conditions[*]")

    def is_met(found: Mapping[str, object] | None) -> bool:
        conditions = [one for one in types.select(found) if isinstance(one, Mapping)]
        return any(
            str(one.get("type")).lower() == name.lower()
            and str(one.get("status")).lower() == (status or "true").lower()
            for one in conditions
        )

    return is_met


def _has_value(text: str) -> _Test:
    braced, closing, rest = text.partition("}")
    if not braced.startswith("{") or not closing or (rest and not rest.startswith("=")):
        raise click.BadParameter(f"{text!r}: a path in braces is expected, as in jsonpath='{{.spec.disabled}}'=true")
    try:
        path = parse_path(braced[1:])
    except PathError as error:
        raise click.BadParameter(str(error)) from None

    def is_met(found: Mapping[str, object] | None) -> bool:
        values = path.select(found)
        return rest[1:] in map(format_value, values) if rest else bool(values)

    return is_met


class _WaitOptions(TypedDict):
    """The options of ``wait`` as click hands them over."""

    namespace: str
    is_all: bool
    goal: _Goal
    timeout_s: int
    output: str


@click.command()
@RESOURCES
@NAMESPACE
@SELECTOR
@ALL
@click.option("--for", "goal", required=True, metavar="WHAT", callback=_parse_goal, help=f"What to wait for: {_FORMS}.")
@click.option(
    "--timeout", "timeout_s", type=parse_duration, default="30s", show_default=True, metavar="DURATION",
    help="How long.",
)  # fmt: skip
@STEP_OUTPUT
@click.pass_context
def wait(context: click.Context, words: tuple[str, ...], **options: Unpack[_WaitOptions]) -> int:
    """Wait until resources exist, are gone, or have a condition or a value; exit status 1 if they do not in time.

    With -l or --all, those that are there at the beginning are waited for.
    """
    goal, selected = options["goal"], selected_of(context)
    named = Named.of(words, "wait", options["namespace"], selected, is_all=options["is_all"])
    session = session_of(context)
    deadline = Deadline.after(session.clock, options["timeout_s"])
    with (
        session.open_datastore() as store,
        report_steps(options["output"]) as steps,
        show_progress(goal.text, 0, session.clock, deadline) as progress,
    ):
        waiting = find_keys(store, named, selected, deadline=session.deadline())
        total = len(waiting)
        while True:
            found = find(store, waiting, deadline=session.deadline())
            left = []
            for key, record in zip(waiting, found, strict=True):
                if goal.is_met(None if record is None else to_mapping(record.value)):
                    progress.erase()
                    steps.add(f"{key} {'deleted' if record is None else 'condition met'}", format_key(key))
                else:
                    left.append(key)
            waiting = tuple(left)
            if not waiting or deadline.has_passed:
                break
            progress.update(total - len(waiting), total=total)
            session.clock.sleep(min(_POLL_S, deadline.remaining_s))
    for key in waiting:
        print_error(f"timed out after {format_duration(options['timeout_s'])} waiting for {goal.text} of {key}")
    return 1 if waiting else 0
