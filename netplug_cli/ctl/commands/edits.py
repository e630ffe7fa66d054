"""``label`` and ``patch``: change parts of one stored resource."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import TypedDict, Unpack

import click

from netplug_cli.ctl.arguments import parse_key
from netplug_cli.ctl.commands.options import DRY_RUN, NAMESPACE, ONE_RESOURCE
from netplug_cli.ctl.completion import complete_one_resource
from netplug_cli.ctl.report import ChangeReport, Verb
from netplug_cli.ctl.session import session_of
from netplug_core.flows.resources.edit import edit
from netplug_core.flows.resources.labels import LabelEffect, Overwriting, remove_label, set_label
from netplug_core.resources.patch import apply_merge_patch

__all__ = ["label", "patch"]

_IMPERATIVES = {LabelEffect.SET: "set", LabelEffect.UPDATED: "update", LabelEffect.REMOVED: "remove"}


class _PatchOptions(TypedDict):
    """The options of ``patch`` as click hands them over."""

    changes: Mapping[str, object]
    namespace: str
    is_dry_run: bool


class _LabelOptions(TypedDict):
    """The options of ``label`` as click hands them over."""

    namespace: str
    may_overwrite: bool
    is_removal: bool
    is_dry_run: bool


@click.command()
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar="(KIND NAME | KIND/NAME) (LABEL=TEXT | LABEL)",
    shell_complete=complete_one_resource,
)
@NAMESPACE
@click.option("--overwrite", "may_overwrite", is_flag=True, help="Change the text of an existing label.")
@click.option("--remove", "is_removal", is_flag=True, help="Remove the LABEL.")
@DRY_RUN
@click.pass_context
def label(context: click.Context, words: tuple[str, ...], **options: Unpack[_LabelOptions]) -> int:
    """Set a label of the resource with a KIND and a NAME, or remove one."""
    *named, assignment = words
    is_removal = options["is_removal"]
    label_name, equals, text = assignment.partition("=")
    if not label_name or bool(equals) is is_removal:
        raise click.UsageError("Give LABEL=TEXT to set a label, and LABEL with --remove to remove one.")
    key = parse_key(named, "label", options["namespace"])
    session = session_of(context, is_dry_run=options["is_dry_run"])
    overwriting = Overwriting.ALLOWED if options["may_overwrite"] else Overwriting.REFUSED
    with session.open_datastore() as store:
        if is_removal:
            effect = remove_label(store, key, label_name, pace=session.pace())
        else:
            effect = set_label(store, key, label_name, text, overwriting=overwriting, pace=session.pace())
    place = f"{'from' if is_removal else 'on'} {key.kind.name} {key.name}"
    if session.is_dry_run:
        click.echo(f"would {_IMPERATIVES[effect]} label {label_name} {place}; nothing was written")
    else:
        click.echo(f"Successfully {effect.value} label {label_name} {place}")
    return 0


def _parse_patch(_context: click.Context, _parameter: click.Parameter, value: str) -> Mapping[str, object]:
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise click.BadParameter("a JSON object is expected")
    return parsed


@click.command()
@ONE_RESOURCE
@click.option("-p", "--patch", "changes", required=True, metavar="JSON", callback=_parse_patch, help="The merge patch.")
@click.option(
    "-t", "--type", type=click.Choice(["strategic", "merge"]), default="merge", expose_value=False,
    help="Both types replace lists as a whole.",
)  # fmt: skip
@NAMESPACE
@DRY_RUN
@click.pass_context
def patch(context: click.Context, words: tuple[str, ...], **options: Unpack[_PatchOptions]) -> int:
    """Change parts of the resource with a KIND and a NAME by a merge patch (RFC 7396).

    The patch may have labels, annotations and parts of the spec; everything else stays as it is.
    """
    key = parse_key(words, "patch", options["namespace"])
    session = session_of(context, is_dry_run=options["is_dry_run"])
    report, change = ChangeReport(Verb.PATCH, session.is_dry_run), partial(apply_merge_patch, patch=options["changes"])
    with session.open_datastore() as store, report.collect_errors(key.kind.name):
        report.add_success(edit(store, key, change, pace=session.pace()))
    return report.print_summary()
