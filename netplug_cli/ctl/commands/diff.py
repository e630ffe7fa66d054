"""``diff``: shows what ``apply`` would change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import unified_diff

import click

from netplug_cli.ctl.commands.options import FILES
from netplug_cli.ctl.documents import render_yaml, require_manifests
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.formatting import print_error
from netplug_core.errors import NetplugError
from netplug_core.flows.resources.pools import PoolNeighbours
from netplug_core.flows.resources.preview import Preview, preview
from netplug_core.resources.codec import to_mapping
from netplug_core.resources.kinds import Resource

__all__ = ["diff"]

_DIFFERENT, _FAILED = 1, 2


@click.command()
@FILES
@click.pass_context
def diff(context: click.Context, files: tuple[str, ...]) -> int:
    """Show what apply would change, as a unified diff of the YAML. Each document is compared with what is stored now.

    The exit status is 0 if nothing would change, 1 if something would, and 2 after an error.
    """
    if not files:
        raise click.UsageError("Give at least one file: -f FILE.")
    try:
        return _diff(session_of(context), files)
    except NetplugError as error:
        print_error(str(error))
        return _FAILED


def _diff(session: Session, files: Sequence[str]) -> int:
    manifests = require_manifests(files)
    status, neighbours = 0, PoolNeighbours()
    with session.open_datastore() as store:
        for manifest in manifests:
            try:
                found = preview(store, manifest, pace=session.pace(), run=neighbours)
            except NetplugError as error:
                print_error(f"{manifest.source}: {error}")
                status = _FAILED
                continue
            for line in _diff_lines(found, manifest.source):
                status = max(status, _DIFFERENT)
                click.echo(line)
    return status


def _diff_lines(found: Preview, source: str) -> Iterator[str]:
    state = "" if found.before else " (damaged)" if found.is_damaged else " (not stored)"
    return unified_diff(
        _lines(found.before), _lines(found.after), f"{found.key}{state}", f"{source} {found.key}", lineterm=""
    )


def _lines(resource: Resource | None) -> list[str]:
    return [] if resource is None else render_yaml(to_mapping(resource)).splitlines()
