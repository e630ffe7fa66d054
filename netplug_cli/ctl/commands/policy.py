"""``policy``: whether one pod may reach another and why, and what applies to a pod."""

from __future__ import annotations

from collections.abc import Iterator

import click

from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.session import session_of
from netplug_cli.ctl.tables import REPORT_OUTPUT, Cell, Column, Report, print_report, text_cell
from netplug_cli.formatting import escape_unprintable
from netplug_core.flows.resources.policies import PolicyObjects, read_policy_objects
from netplug_core.names import is_dns_subdomain
from netplug_core.orchestrator.model import PodName
from netplug_core.policy.evaluate import (
    AppliedRules,
    ConnectionExplanation,
    ExplainedStep,
    explain_connection,
    find_applied_rules,
)
from netplug_core.policy.model import PORT_PROTOCOLS, Direction
from netplug_core.resources.fields import MAX_PORT

__all__ = ["policy"]


@click.group(short_help="Say which policies apply, and what they allow.")
def policy() -> None:
    """Say which policies apply to a pod, and whether one pod may connect to another.

    The answers are calculated from what is stored, as the nodes calculate what they enforce.
    """


# --- explain ---------------------------------------------------------------------------------------------------------


@policy.command(short_help="Say whether a pod may connect to another, and why.")
@click.argument("source", metavar="NAMESPACE/POD")
@click.argument("destination", metavar="NAMESPACE/POD")
@click.option(
    "--port", type=click.IntRange(1, MAX_PORT), default=80, show_default=True, help="The port it connects to."
)
@click.option(
    "--protocol",
    type=click.Choice(list(PORT_PROTOCOLS), case_sensitive=False),
    default="TCP",
    show_default=True,
    help="The protocol.",
)
@REPORT_OUTPUT
@click.pass_context
def explain(context: click.Context, *, source: str, destination: str, port: int, protocol: str, output: str) -> int:
    """Say whether the first pod may connect to the second: by which policy and rule, or for lack of which.

    The egress policies of the first pod and the ingress policies of the second both have to allow it. There is an
    answer for each IP version in which both pods have an address.

    The exit status is 1 if a connection is denied.
    """
    objects = _read_objects(context)
    ends = objects.get_endpoint(_pod_name(source)), objects.get_endpoint(_pod_name(destination))
    number = PORT_PROTOCOLS[protocol]
    answers = list(explain_connection(objects.values, ends, protocol=number, port=port))
    if not answers:
        raise InputError("", f"{source} {destination}", f"{source} and {destination} have no addresses of one family")
    what = f"{protocol} port {port}"
    sentences = tuple(answer.sentence(what) for answer in answers)
    facts = {
        "from": source,
        "to": destination,
        "protocol": protocol,
        "port": port,
        "answers": [_answer(answer, sentence) for answer, sentence in zip(answers, sentences, strict=True)],
    }
    rows = tuple(_step_cells(answer, each) for answer in answers for each in answer.steps)
    shown = tuple(map(escape_unprintable, sentences))
    print_report(Report(_STEP_COLUMNS, rows, name="steps", facts=facts, shown=shown), output)
    return 0 if all(answer.is_allowed for answer in answers) else 1


_STEP_COLUMNS = (
    Column("FAMILY", "family"),
    Column("NODE", "node"),
    Column("ENDPOINT", "endpoint"),
    Column("DIRECTION", "direction"),
    Column("DECISION", "decision"),
    Column("RULE", "rule"),
    Column("REASON", "reason"),
)


def _answer(answer: ConnectionExplanation, sentence: str) -> dict[str, object]:
    return {
        "family": str(answer.source_address.family),
        "source": str(answer.source_address),
        "destination": str(answer.destination_address),
        "allowed": answer.is_allowed,
        "reason": sentence,
    }


def _step_cells(answer: ConnectionExplanation, explained: ExplainedStep) -> tuple[Cell, ...]:
    step = explained.step
    return tuple(
        map(
            text_cell,
            (
                str(answer.source_address.family),
                explained.node,
                step.endpoint,
                "" if step.direction is None else step.direction.value,
                "" if step.decision is None else step.decision.value,
                step.rule,
                step.reason.value,
            ),
        )
    )


# --- show ------------------------------------------------------------------------------------------------------------


@policy.command(short_help="Show what applies to a pod, in order.")
@click.argument("pod", metavar="NAMESPACE/POD")
@REPORT_OUTPUT
@click.pass_context
def show(context: click.Context, *, pod: str, output: str) -> int:
    """Show the policies that apply to a pod in the order in which they are tried, and their rules.

    In a direction without a policy, the profiles of the pod decide.

    The exit status is 1 if the node of the pod does not program it.
    """
    objects = _read_objects(context)
    applied = find_applied_rules(objects.values, objects.get_endpoint(_pod_name(pod)))
    if applied is None:
        click.echo(f"{pod} is not programmed: it has no interface, or another endpoint has the same one")
        return 1
    rows = tuple(
        (
            text_cell(each.direction.value),
            Cell(number, str(number)),
            text_cell(name),
            text_cell(", ".join(rules)),
        )
        for each in applied
        for number, (name, rules) in enumerate(each.rows(), 1)
    )
    shown = tuple(map(escape_unprintable, _applied_lines(pod, applied)))
    print_report(Report(_APPLIED_COLUMNS, rows, name="decides", facts={"pod": pod}, shown=shown), output)
    return 0


_APPLIED_COLUMNS = (
    Column("DIRECTION", "direction"),
    Column("PLACE", "place"),
    Column("POLICY", "policy"),
    Column("RULES", "rules"),
)


def _applied_lines(pod: str, applied: tuple[AppliedRules, ...]) -> Iterator[str]:
    for each in applied:
        packets = f"Packets {'to' if each.direction is Direction.INGRESS else 'from'} {pod}"
        rows = list(each.rows())
        yield f"{packets}: policies decide" if each.policies else f"{packets}: no policy applies, profiles decide"
        width = max((len(name) for name, _ in rows), default=0)
        yield from (f"  {name:{width}}  {', '.join(rules) or 'no rules'}" for name, rules in rows)
        yield "  what no rule matches is denied"


# --- both ------------------------------------------------------------------------------------------------------------


def _read_objects(context: click.Context) -> PolicyObjects:
    session = session_of(context)
    with session.open_datastore() as store:
        return read_policy_objects(store, deadline=session.deadline())


def _pod_name(text: str) -> PodName:
    namespace, _, name = text.partition("/")
    if not (is_dns_subdomain(namespace) and is_dns_subdomain(name)):
        raise InputError("", text, f"{text!r} is not the name of a pod; NAMESPACE/POD is expected")
    return PodName(namespace, name)
