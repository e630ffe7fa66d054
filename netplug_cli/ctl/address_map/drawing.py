"""The drawing of ``ipam map``: its rows, bars and scales, whatever renders it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import assert_never

from attrs import frozen

from netplug_cli.formatting import escape_unprintable, format_count, truncate
from netplug_core.addressing import Prefix
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
    "BAR_CELLS", "BAR_HEIGHT", "STYLE", "Bar", "DrawnPool", "DrawnRow", "Frame", "Run", "bar_elements", "draw_pool",
    "legend_elements",
]  # fmt: skip


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
