"""Options and arguments that several commands take."""

from __future__ import annotations

import click

__all__ = ["FILES", "KIND", "NAMES"]

FILES = click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE", help="A file of YAML or JSON; - is standard input."
)
KIND = click.argument("kind", default="", metavar="[KIND]")
NAMES = click.argument("names", nargs=-1, metavar="[NAME]...")
