"""``config``: the configuration that commands use, and where it comes from."""

from __future__ import annotations

import os

import click

from netplug_cli.ctl.session import session_of
from netplug_cli.ctl.tables import REPORT_OUTPUT, Column, Report, ReportFormat, text_cell
from netplug_core.settings.apiconfig import has_datastore
from netplug_core.settings.model import shown_settings

__all__ = ["config"]


@click.group()
def config() -> None:
    """Show the configuration of this tool."""


@config.command()
@REPORT_OUTPUT
@click.pass_context
def view(context: click.Context, output: str) -> int:
    """Show which datastore is configured, by which file or by the environment; secrets are left out."""
    session = session_of(context)
    default = session.default_config_file
    file = session.options.config or (default if default and os.path.lexists(default) else "")
    source = file or ("the environment" if has_datastore(session.environ) else "nothing: these are the defaults")
    rows = [("configuration", source), *shown_settings(session.settings())]
    report = Report(
        (Column("SETTING", "setting"), Column("VALUE", "value")),
        tuple((text_cell(name), text_cell(value)) for name, value in rows),
    )
    click.echo(report.render(ReportFormat(output)))
    return 0
