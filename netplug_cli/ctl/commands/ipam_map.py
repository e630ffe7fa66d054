"""``ipam map``: the address space as a drawing, on a terminal or in a file."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import chain, groupby
from typing import assert_never

import click
from attrs import define, field, frozen

from netplug_backends.host.atomic_files import OPEN_FILE_MODE, replace_file
from netplug_cli.ctl.completion import complete_pools
from netplug_cli.ctl.documents import STDIN
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.reading import count_reads
from netplug_cli.ctl.session import session_of
from netplug_cli.formatting import escape_unprintable, format_count, print_error, truncate
from netplug_core.addressing import Prefix
from netplug_core.clock import format_time
from netplug_core.flows.resources.pools import read_address_map
from netplug_core.ipam.reporting.address_map import (
    AddressUse,
    MapBlock,
    MapGap,
    MapGroup,
    MapPool,
    MapRow,
    UseCounts,
)
from netplug_core.ipam.reporting.usage import ORPHANS

__all__ = [
    "BAR_CELLS", "BAR_HEIGHT", "STYLE", "Bar", "DrawnPool", "DrawnRow", "Frame", "Run", "TextColour", "bar_elements",
    "draw_pool", "ipam_map", "legend_elements", "render_html", "render_svg", "render_text",
]  # fmt: skip


# --- drawing ---------------------------------------------------------------------------------------------------------


# --- drawing ---------------------------------------------------------------------------------------------------------


BAR_CELLS = 64
"""How many cells a bar of shares has."""

_MAX_NAME_LENGTH = 40
_MAX_NAMES = 3


@frozen(kw_only=True)
class Run:
    """Cells of a bar, one behind the other, with one use. ``label`` names their addresses; empty in a bar of shares."""

    use: AddressUse
    start: int
    length: int
    label: str = ""


@frozen(kw_only=True)
class Bar:
    """The uses of addresses, side by side. ``is_exact``: a cell is an address; otherwise it is a share of them all."""

    cells: tuple[AddressUse, ...]
    runs: tuple[Run, ...]
    is_exact: bool


@frozen(kw_only=True)
class DrawnRow:
    """A row: its range, who has it and how many addresses have which use, and its bar; none for unclaimed addresses."""

    label: str
    detail: str
    bar: Bar | None = None


@frozen(kw_only=True)
class DrawnPool:
    """A pool: its name, its CIDR and its state, its counts, its bar, remarks, and its rows."""

    title: str
    summary: str
    bar: Bar
    notes: tuple[str, ...]
    rows: tuple[DrawnRow, ...]


def draw_pool(pool: MapPool) -> DrawnPool:
    """The words and bars of a pool."""
    return DrawnPool(
        title=_pool_title(pool),
        summary=_pool_summary(pool),
        bar=_share_bar(pool.counts),
        notes=_pool_notes(pool),
        rows=tuple(map(_draw_row, pool.rows)),
    )


# --- words ------------------------------------------------------------------------------------------------------------


def _pool_title(drawn: MapPool) -> str:
    pool = drawn.pool
    if pool is None:
        return f"{ORPHANS} ({drawn.family})"
    states = (("being deleted", pool.is_terminating), ("disabled", pool.spec.is_disabled))
    state = ", ".join(text for text, is_so in states if is_so)
    return f"{_name(pool.metadata.name)} {pool.spec.prefix}{f' ({state})' if state else ''}"


def _pool_summary(pool: MapPool) -> str:
    blocks = f"{_counted(pool.block_count, 'block')} of {_counted(pool.owner_count, 'node')}"
    return f"{_counted(pool.counts.total, 'address')} in all, {blocks}: {_counts_text(pool.counts)}"


def _pool_notes(pool: MapPool) -> tuple[str, ...]:
    if not pool.group_count:
        return ()
    rows = _counted(sum(not isinstance(row, MapGap) for row in pool.rows), "row")
    return (f"The {pool.block_count} blocks are drawn in {rows}, neighbours together; --max-rows changes that.",)


def _draw_row(row: MapRow) -> DrawnRow:
    match row:
        case MapBlock():
            owner = _owner_name(row.owner)
            borrowers = f"; borrowed by {_names(row.borrowers)}" if row.borrowers else ""
            detail = f"{owner}: {_counts_text(row.counts)}{borrowers}"
            bar = _exact_bar(row) if row.addresses else _share_bar(row.counts)
            return DrawnRow(label=str(row.prefix), detail=detail, bar=bar)
        case MapGroup():
            owners = _names((_owner_name(owner), count) for owner, count in row.owners)
            outside = f"; outside of them {_counts_text(row.outside)}" if row.outside.total else ""
            detail = f"{row.block_count} blocks of {owners}: {_counts_text(row.counts)}{outside}"
            return DrawnRow(label=str(row.prefix), detail=detail, bar=_share_bar(row.counts))
        case MapGap():
            return DrawnRow(label=f"{row.first} - {row.last}", detail=_counts_text(row.counts))
        case _:
            assert_never(row)


def _counts_text(counts: UseCounts) -> str:
    return ", ".join(f"{format_count(number)} {use.value}" for use, number in counts.present)


def _names(counted: Iterable[tuple[str, int]]) -> str:
    listed = list(counted)
    shown = [f"{_name(name)} ({count})" for name, count in listed[:_MAX_NAMES]]
    more = len(listed) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _owner_name(owner: str) -> str:
    return _name(owner.removeprefix("host:")) if owner else "no node"


def _name(text: str) -> str:
    return truncate(escape_unprintable(text), _MAX_NAME_LENGTH)


def _counted(count: int, noun: str) -> str:
    plural = noun if count == 1 else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{format_count(count)} {plural}"


# --- bars -------------------------------------------------------------------------------------------------------------


def _exact_bar(block: MapBlock) -> Bar:
    return _bar(block.addresses, block.prefix)


def _share_bar(counts: UseCounts) -> Bar:
    """A bar of shares. Each use that there is has a cell at least, at the cost of the largest one."""
    present = counts.present
    widths = [max(1, number * BAR_CELLS // counts.total) for _use, number in present]
    largest = max(range(len(present)), key=lambda index: present[index][1])
    widths[largest] += BAR_CELLS - sum(widths)
    return _bar([use for (use, _number), width in zip(present, widths, strict=True) for _ in range(width)], None)


def _bar(cells: Sequence[AddressUse], prefix: Prefix | None) -> Bar:
    runs: list[Run] = []
    start = 0
    for use, members in groupby(cells):
        length = sum(1 for _ in members)
        runs.append(Run(use=use, start=start, length=length, label=_run_label(prefix, start, length) if prefix else ""))
        start += length
    return Bar(cells=tuple(cells), runs=tuple(runs), is_exact=prefix is not None)


def _run_label(prefix: Prefix, start: int, length: int) -> str:
    first, last = prefix.nth(start), prefix.nth(start + length - 1)
    return str(first) if length == 1 else f"{first} - {last}"


# --- bars ------------------------------------------------------------------------------------------------------------


BAR_HEIGHT = 12
"""The height of a bar, in the units of its picture."""

# What of the height is filled: one part or two, each from its upper edge, with its height.
_SHAPES = {
    AddressUse.USED: ((0, 12),),
    AddressUse.BORROWED: ((0, 5), (7, 5)),
    AddressUse.COOLING: ((4, 8),),
    AddressUse.RESERVED: ((7, 5),),
    AddressUse.FREE: ((10, 2),),
    AddressUse.UNCLAIMED: ((11, 1),),
}
# Each has a contrast of at least 3 to the background, and the first three differ for colour-blind eyes too.
_LIGHT = {
    AddressUse.USED: "#0072b2",
    AddressUse.BORROWED: "#c25400",
    AddressUse.COOLING: "#b0528a",
    AddressUse.RESERVED: "#7a6200",
    AddressUse.FREE: "#00805c",
    AddressUse.UNCLAIMED: "#767676",
}
_DARK = {
    AddressUse.USED: "#56b4e9",
    AddressUse.BORROWED: "#ff9e4a",
    AddressUse.COOLING: "#e6a5cc",
    AddressUse.RESERVED: "#e6c34a",
    AddressUse.FREE: "#3ecf9f",
    AddressUse.UNCLAIMED: "#8f8f8f",
}


def _palette(background: str, ink: str, faint: str, colours: dict[AddressUse, str]) -> str:
    names = {"background": background, "ink": ink, "faint": faint}
    names |= {_class_name(use): colour for use, colour in colours.items()}
    return "".join(f"--{name}:{colour};" for name, colour in names.items())


def _class_name(use: AddressUse) -> str:
    return use.name.lower()


STYLE = "\n".join(
    (
        f":root{{color-scheme:light dark;{_palette('#ffffff', '#1a1a1a', '#595959', _LIGHT)}}}",
        f"@media (prefers-color-scheme: dark){{:root{{{_palette('#16181c', '#f0f0f0', '#b4b4b4', _DARK)}}}}}",
        *(f".{_class_name(use)}{{fill:var(--{_class_name(use)})}}" for use in AddressUse),
    )
)
"""The rules of style that pictures of bars need; ``--background``, ``--ink`` and ``--faint`` are for texts."""


@frozen(kw_only=True)
class Frame:
    """Where a bar is drawn: its upper left corner, and its width."""

    x: float = 0
    y: float = 0
    width: float


def bar_elements(bar: Bar, frame: Frame) -> Iterator[str]:
    """The elements of a bar: a group for each run, with a title that a browser shows beside the pointer."""
    cell = frame.width / len(bar.cells)
    for run in bar.runs:
        place = Frame(x=frame.x + run.start * cell, y=frame.y, width=run.length * cell)
        title = f"{run.label}: {run.use.value}" if run.label else run.use.value
        yield f'<g class="{_class_name(run.use)}"><title>{escape(title)}</title>{_shape(run, place)}</g>'


def legend_elements(use: AddressUse, frame: Frame) -> str:
    """The sample of a use, for a legend."""
    return f'<g class="{_class_name(use)}">{_shape(Run(use=use, start=0, length=1), frame)}</g>'


def _shape(run: Run, frame: Frame) -> str:
    return "".join(
        f'<rect x="{frame.x:g}" y="{frame.y + top:g}" width="{frame.width:g}" height="{height}"/>'
        for top, height in _SHAPES[run.use]
    )


# --- renderings ------------------------------------------------------------------------------------------------------


# --- html ------------------------------------------------------------------------------------------------------------


_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = f"""{STYLE}
body{{margin:0;background:var(--background);color:var(--ink);font:16px/1.4 sans-serif}}
main{{max-width:60rem;margin:0 auto;padding:1rem;overflow-wrap:anywhere}}
h1{{font-size:1.4rem}}h2{{font-size:1.2rem;margin:2rem 0 .25rem}}p{{margin:.25rem 0}}
ul{{list-style:none;margin:0;padding:0}}
.legend{{display:flex;flex-wrap:wrap;gap:.25rem 1.5rem;margin:.75rem 0}}
.legend svg{{width:1.5rem;height:.75rem;vertical-align:-.05rem}}
.bar{{display:block;width:100%;height:1.1rem;margin:.2rem 0}}
.rows li{{padding:.35rem 0}}
.detail,.note,.lead{{color:var(--faint)}}
"""


def render_html(pools: Sequence[DrawnPool], title: str, explanation: str) -> str:
    """The text of an HTML file, which is also well-formed XML."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        "<main>",
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(explanation)}</p>',
        '<ul class="legend" aria-label="Legend">',
        *(_legend_item(use) for use in AddressUse),
        "</ul>",
        *(line for pool in pools for line in _section(pool)),
        "</main>",
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _legend_item(use: AddressUse) -> str:
    sample = legend_elements(use, Frame(width=24))
    return f'<li><svg viewBox="0 0 24 {BAR_HEIGHT}" aria-hidden="true">{sample}</svg> {use.value}</li>'


def _section(pool: DrawnPool) -> Iterator[str]:
    yield "<section>"
    yield f"<h2>{escape(pool.title)}</h2>"
    yield f"<p>{escape(pool.summary)}</p>"
    yield _bar_element(pool.bar, pool.summary)
    yield from (f'<p class="note">{escape(note)}</p>' for note in pool.notes)
    yield '<ul class="rows">'
    yield from map(_row_item, pool.rows)
    yield "</ul>"
    yield "</section>"


def _row_item(row: DrawnRow) -> str:
    words = f'<strong>{escape(row.label)}</strong> <span class="detail">{escape(row.detail)}</span>'
    bar = "" if row.bar is None else _bar_element(row.bar, f"{row.label} {row.detail}")
    return f"<li>{words}{bar}</li>"


def _bar_element(bar: Bar, description: str) -> str:
    width = len(bar.cells)
    attributes = f'class="bar" viewBox="0 0 {width} {BAR_HEIGHT}" preserveAspectRatio="none" role="img"'
    elements = "".join(bar_elements(bar, Frame(width=width)))
    return f'<svg {attributes} aria-label="{escape(description)}">{elements}</svg>'


# --- svg -------------------------------------------------------------------------------------------------------------


_WIDTH = 480
_MARGIN = 16
_INNER = _WIDTH - 2 * _MARGIN
_LEGEND_COLUMNS = 3
# For each style of text: the height of a line, and how many of its characters, which are equally wide, fit.
_LINES = {"small": (16, 66), "strong": (18, 56), "head": (24, 45)}
_SVG_STYLE = f"""{STYLE}
text{{font-family:monospace}}
.small{{font-size:11px;fill:var(--faint)}}
.strong{{font-size:13px;font-weight:bold;fill:var(--ink)}}
.head{{font-size:16px;font-weight:bold;fill:var(--ink)}}
.sheet{{fill:var(--background)}}
"""


def render_svg(pools: Sequence[DrawnPool], title: str, explanation: str) -> str:
    """The text of an SVG file."""
    column = _Column()
    column.write(title, "head")
    column.write(explanation)
    column.add_legend()
    for pool in pools:
        column.skip(16)
        _add_pool(column, pool)
    height = column.y + _MARGIN
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="map-title map-description">',
        f'<title id="map-title">{escape(title)}</title>',
        f'<desc id="map-description">{escape(explanation)}</desc>',
        f"<style>{_SVG_STYLE}</style>",
        f'<rect class="sheet" width="{_WIDTH}" height="{height}"/>',
        *column.elements,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@define
class _Column:
    """Elements one below the other; ``y`` is where the next one begins."""

    y: int = _MARGIN
    elements: list[str] = field(factory=list)

    def skip(self, height: int) -> None:
        self.y += height

    def write(self, text: str, style: str = "small") -> None:
        """Add a text, in as many lines as it needs."""
        height, length = _LINES[style]
        for line in _wrapped(text, length):
            self.y += height
            self.elements.append(f'<text class="{style}" x="{_MARGIN}" y="{self.y - 4}">{escape(line)}</text>')

    def add_bar(self, bar: Bar) -> None:
        self.elements.extend(bar_elements(bar, Frame(x=_MARGIN, y=self.y + 2, width=_INNER)))
        self.y += BAR_HEIGHT + 6

    def add_legend(self) -> None:
        for index, use in enumerate(AddressUse):
            row, place = divmod(index, _LEGEND_COLUMNS)
            x, y = _MARGIN + place * _INNER // _LEGEND_COLUMNS, self.y + 8 + row * 20
            self.elements.append(legend_elements(use, Frame(x=x, y=y, width=20)))
            self.elements.append(f'<text class="small" x="{x + 26}" y="{y + BAR_HEIGHT - 2}">{use.value}</text>')
        self.y += 8 + -(-len(AddressUse) // _LEGEND_COLUMNS) * 20


def _add_pool(column: _Column, pool: DrawnPool) -> None:
    column.write(pool.title, "head")
    column.write(pool.summary)
    column.add_bar(pool.bar)
    for note in pool.notes:
        column.write(note)
    for row in pool.rows:
        _add_row(column, row)


def _add_row(column: _Column, row: DrawnRow) -> None:
    column.skip(6)
    column.write(row.label, "strong")
    column.write(row.detail)
    if row.bar is not None:
        column.add_bar(row.bar)


def _wrapped(text: str, length: int) -> Iterator[str]:
    """The lines of a text; a word that is longer than a line has one of its own."""
    line = ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > length:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


# --- text ------------------------------------------------------------------------------------------------------------


_CHARACTERS = {
    AddressUse.USED: ("#", "blue"),
    AddressUse.BORROWED: ("b", "yellow"),
    AddressUse.COOLING: ("~", "magenta"),
    AddressUse.RESERVED: ("r", "cyan"),
    AddressUse.FREE: (".", "green"),
    AddressUse.UNCLAIMED: ("_", "bright_black"),
}
_EXPLANATION = "In [ ] a character is an address; in | | it is a share, and what there is has one at least."


class TextColour(enum.Enum):
    """Whether a text has colours; without them, its characters say the same."""

    PLAIN = "plain"
    COLOURED = "coloured"


def render_text(pools: Iterable[DrawnPool], colour: TextColour) -> Iterator[str]:
    """The lines of a map."""
    legend = (f"{_painted(use, character, colour)} {use.value}" for use, (character, _) in _CHARACTERS.items())
    yield "   ".join(legend)
    yield _EXPLANATION
    for pool in pools:
        yield ""
        yield _emphasized(pool.title, colour)
        yield f"  {pool.summary}"
        yield f"  {_bar_text(pool.bar, colour)}"
        yield from (f"  {note}" for note in pool.notes)
        yield from chain.from_iterable(_row_lines(row, colour) for row in pool.rows)


def _row_lines(row: DrawnRow, colour: TextColour) -> Iterator[str]:
    yield f"  {_emphasized(row.label, colour)}  {row.detail}"
    if row.bar is not None:
        yield f"    {_bar_text(row.bar, colour)}"


def _bar_text(bar: Bar, colour: TextColour) -> str:
    start, end = "[]" if bar.is_exact else "||"
    return f"{start}{''.join(_painted(run.use, _character(run.use) * run.length, colour) for run in bar.runs)}{end}"


def _character(use: AddressUse) -> str:
    return _CHARACTERS[use][0]


def _painted(use: AddressUse, text: str, colour: TextColour) -> str:
    return text if colour is TextColour.PLAIN else click.style(text, fg=_CHARACTERS[use][1])


def _emphasized(text: str, colour: TextColour) -> str:
    return text if colour is TextColour.PLAIN else click.style(text, bold=True)


# --- ipam map --------------------------------------------------------------------------------------------------------


_FORMATS = ("text", "svg", "html")
_EXTENSIONS = {"": "text", ".txt": "text", ".text": "text", ".svg": "svg", ".html": "html", ".htm": "html"}
_DEFAULT_ROWS = 64
_MAX_ROWS = 4096
_PICTURE_EXPLANATION = (
    "A bar has the addresses of a range, side by side. That of a block of at most 64 addresses has a cell for each; "
    "every other bar has shares, and what there is has one at least."
)


@click.command("map", short_help="Draw the address space: pools, blocks, who has them, and what is free.")
@click.argument("pools", nargs=-1, metavar="[POOL]...", shell_complete=complete_pools)
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
    with session.open_datastore() as store, count_reads(store, session.clock) as counted:
        drawn = read_address_map(counted, pools, max_rows=max_rows, deadline=session.deadline())
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
