"""The picture of a bar, and the style of maps in light and dark. Uses differ in shape, so that colours only help.

Nothing in a picture refers to anything outside of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from attrs import frozen

from netplug_cli.ctl.address_map.drawing import Bar, Run
from netplug_core.ipam.reporting.address_map import AddressUse

__all__ = ["BAR_HEIGHT", "STYLE", "Frame", "bar_elements", "legend_elements"]

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
