"""A map as one HTML file: without scripts, and without anything from elsewhere, which its policy forbids too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from netplug_cli.ctl.address_map.bars import BAR_HEIGHT, STYLE, Frame, bar_elements, legend_elements
from netplug_cli.ctl.address_map.drawing import Bar, DrawnPool, DrawnRow
from netplug_core.ipam.reporting.address_map import AddressUse

__all__ = ["render_html"]

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
