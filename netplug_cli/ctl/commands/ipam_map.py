"""``ipam map``: the address space as a drawing, on a terminal or in a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

import click

from netplug_backends.host.atomic_files import OPEN_FILE_MODE, replace_file
from netplug_cli.ctl.address_map.drawing import DrawnPool, draw_pool
from netplug_cli.ctl.address_map.renderings import TextColour, render_html, render_svg, render_text
from netplug_cli.ctl.documents import STDIN
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.session import session_of
from netplug_cli.formatting import print_error
from netplug_core.clock import format_time
from netplug_core.flows.resources.read import read_address_map

__all__ = ["ipam_map"]

_FORMATS = ("text", "svg", "html")
_EXTENSIONS = {"": "text", ".txt": "text", ".text": "text", ".svg": "svg", ".html": "html", ".htm": "html"}
_DEFAULT_ROWS = 64
_MAX_ROWS = 4096
_PICTURE_EXPLANATION = (
    "A bar has the addresses of a range, side by side. That of a block of at most 64 addresses has a cell for each; "
    "every other bar has shares, and what there is has one at least."
)


@click.command("map", short_help="Draw the address space: pools, blocks, who has them, and what is free.")
@click.argument("pools", nargs=-1, metavar="[POOL]...")
@click.option(
    "-o", "--output", type=click.Choice(_FORMATS), help="The format.  [default: by the ending of FILE, else text]"
)
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(),
    default="",
    metavar="FILE",
    help="Write it into a file, as a whole or not at all.  [default: standard output]",
)
@click.option(
    "--max-rows",
    type=click.IntRange(1, _MAX_ROWS),
    default=_DEFAULT_ROWS,
    show_default=True,
    metavar="N",
    help="In how many rows the blocks of a pool are drawn; if it has more, neighbours share a row.",
)
@click.option("--no-color", "is_plain", is_flag=True, help="No colours; nor are there any if NO_COLOR is set.")
@click.pass_context
def ipam_map(
    context: click.Context, *, pools: tuple[str, ...], output: str | None, path: str, max_rows: int, is_plain: bool
) -> int:
    """Draw each POOL, by name or CIDR; without one, all: its blocks, the node of each, and what is in no block.

    Every address is counted once: in use by the node of its block (or in a block of no node), borrowed by another
    node, cooling down, reserved, free, or unclaimed, which is in no block. A picture (svg) and a page (html) need
    nothing beside their file, and are light or dark as the browser is set.
    """
    file = "" if path == STDIN else path
    output = output or _format_of(file)
    target = _target_of(file) if file else ""
    session = session_of(context)
    with session.open_datastore() as store:
        drawn = read_address_map(store, pools, max_rows=max_rows, deadline=session.deadline())
    if not drawn:
        print_error("no IPPool found")
    taken_at = format_time(session.clock.now_ns())
    colour = TextColour.PLAIN if is_plain or target else _find_colour(session.environ)
    text = _render(tuple(map(draw_pool, drawn)), output, taken_at, colour)
    if not target:
        click.echo(text, nl=False)
        return 0
    try:
        replace_file(target, text, OPEN_FILE_MODE)
    except OSError as error:
        raise InputError(file, None, f"{error.strerror or error}; nothing was written") from error
    return 0


def _render(pools: Sequence[DrawnPool], output: str, taken_at: str, colour: TextColour) -> str:
    if output == "text":
        return "".join(f"{line}\n" for line in render_text(pools, colour)) if pools else ""
    render = render_svg if output == "svg" else render_html
    explanation = _PICTURE_EXPLANATION if pools else "There is no IPPool, and no block."
    return render(pools, f"Address map of {taken_at}", explanation)


def _format_of(file: str) -> str:
    """The format by the extension of a file; text for standard output and for a name without one.

    Raises:
        click.UsageError: the extension is that of no format.
    """
    extension = os.path.splitext(file)[1].lower()
    if extension not in _EXTENSIONS:
        accepted = ", ".join(filter(None, _EXTENSIONS))
        raise click.UsageError(
            f"{file!r} ends like no format of a map; {accepted} are accepted, or -o with one of {', '.join(_FORMATS)}."
        )
    return _EXTENSIONS[extension]


def _target_of(file: str) -> str:
    """The file to replace: where a link leads.

    Raises:
        InputError: there is something else than a file.
    """
    target = os.path.realpath(file)
    if os.path.exists(target) and not os.path.isfile(target):
        raise InputError(file, None, "it is not a file; leave -f out to write to standard output")
    return target


def _find_colour(environ: Mapping[str, str]) -> TextColour:
    """Colours on a terminal, unless the environment asks for none (https://no-color.org)."""
    is_asked_for_none = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
    return TextColour.PLAIN if is_asked_for_none or not sys.stdout.isatty() else TextColour.COLOURED
