"""Options and arguments that several commands take."""

from __future__ import annotations

import click

__all__ = ["FILES", "FORCE", "KIND", "NAMES"]

FILES = click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE", help="A file of YAML or JSON; - is standard input."
)
FORCE = click.option(
    "--force", "is_forced", is_flag=True, help="Delete it though it is damaged and may hold addresses in use."
)
KIND = click.argument("kind", default="", metavar="[KIND]")
NAMES = click.argument("names", nargs=-1, metavar="[NAME]...")
