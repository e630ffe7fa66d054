"""A part of a documentation page that is generated: what stands between two marks."""

from __future__ import annotations

from pathlib import Path

__all__ = ["replace_between"]


def replace_between(text: str, begin: str, end: str, part: str, *, page: Path) -> str:
    """The text of a page with another part between two marks, which stay.

    Raises:
        ValueError: the page has not both marks in this order.
    """
    before, mark, rest = text.partition(begin)
    _old, end_mark, after = rest.partition(end)
    if not mark or not end_mark:
        raise ValueError(f"{page} has no place for the tables: {begin.strip()} and {end.strip()} are expected")
    return f"{before}{begin}{part}{end}{after}"
