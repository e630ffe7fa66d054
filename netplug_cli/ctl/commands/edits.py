"""``label`` and ``patch``: parts of one resource, changed in what is stored at that moment."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TypedDict, Unpack

import click

from netplug_cli.ctl.commands.resources import DEFAULT_NAMESPACE, kind_called, named
from netplug_cli.ctl.report import Report, Verb
from netplug_cli.ctl.session import session_of
from netplug_core.flows import resources as flows
from netplug_core.flows.labels import Overwriting, remove_label, set_label
from netplug_core.resources.edits import patched

__all__ = ["label", "patch"]

_NAMESPACE = click.option(
    "-n", "--namespace", default=DEFAULT_NAMESPACE, metavar="NS", help="The namespace, for kinds that have one."
)


class _Labelling(TypedDict):
    """What the options of ``label`` say."""

    namespace: str
    may_overwrite: bool
    is_removal: bool


@click.command()
@click.argument("kind")
@click.argument("name")
@click.argument("what", metavar="LABEL=TEXT|LABEL")
@_NAMESPACE
@click.option("--overwrite", "may_overwrite", is_flag=True, help="Give a label that is there another text.")
@click.option("--remove", "is_removal", is_flag=True, help="Remove the LABEL.")
@click.pass_context
def label(context: click.Context, kind: str, name: str, what: str, **given: Unpack[_Labelling]) -> int:
    """Give the resource of a KIND and a NAME a label, or take one from it."""
    is_removal = given["is_removal"]
    label_name, equals, text = what.partition("=")
    if not label_name or bool(equals) is is_removal:
        raise click.UsageError("Give LABEL=TEXT to set a label, and LABEL with --remove to remove one.")
    row = kind_called(kind, "label")
    (key,) = named(row, [name], given["namespace"])
    session = session_of(context)
    overwriting = Overwriting.ALLOWED if given["may_overwrite"] else Overwriting.REFUSED
    with session.store() as store:
        if is_removal:
            effect = remove_label(store, key, label_name, pace=session.pace())
        else:
            effect = set_label(store, key, label_name, text, overwriting=overwriting, pace=session.pace())
    way = "from" if is_removal else "on"
    click.echo(f"Successfully {effect.value} label {label_name} {way} {row.name} {name}")
    return 0


def _parsed(_context: click.Context, _parameter: click.Parameter, value: str) -> Mapping[str, object]:
    import json

    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise click.BadParameter("a JSON object is expected")
    return parsed


@click.command()
@click.argument("kind")
@click.argument("name")
@click.option("-p", "--patch", "changes", required=True, metavar="JSON", callback=_parsed, help="What is to change.")
@click.option(
    "-t", "--type", type=click.Choice(["strategic", "merge"]), default="merge", expose_value=False,
    help="How lists are met; both replace them whole.",
)  # fmt: skip
@_NAMESPACE
@click.pass_context
def patch(context: click.Context, kind: str, name: str, changes: Mapping[str, object], namespace: str) -> int:
    """Change parts of the resource of a KIND and a NAME by a merge patch (RFC 7396).

    The patch may have labels, annotations and parts of the spec; what it does not name stays as it is.
    """
    row = kind_called(kind, "patch")
    (key,) = named(row, [name], namespace)
    session, report = session_of(context), Report(Verb.PATCH)
    with session.store() as store, report.of(row.name):
        report.succeed(flows.edit(store, key, partial(patched, patch=changes), pace=session.pace()))
    return report.close()
