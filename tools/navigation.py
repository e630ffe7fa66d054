"""The navigation of the site: each section of docs/index.md, and the pages that it links.

So a page is listed once, for readers of the repository and of the site. tools/site/conf.py builds the site from it.
"""

from __future__ import annotations

import re

from attrs import frozen

_SECTION = re.compile(r"^## (.+)\n", re.MULTILINE)
# A link with an anchor leads to a part of a page, which the navigation has by itself.
_PAGE = re.compile(r"\]\(([^)#:\s]+)\.md\)")


@frozen(kw_only=True)
class NavigationSection:
    """A heading of the index, and its pages in order: paths from the folder of the index, without ``.md``."""

    title: str
    pages: tuple[str, ...]


def read_navigation(index: str) -> tuple[NavigationSection, ...]:
    """The sections of the index; what stands above the first heading belongs to none."""
    _, *parts = _SECTION.split(index)
    return tuple(
        NavigationSection(title=title, pages=tuple(_PAGE.findall(text)))
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    )


def render_toctrees(index: str) -> str:
    """The navigation as Sphinx reads it at the end of a page."""
    return "".join(
        "\n".join(["", "```{toctree}", ":hidden:", f":caption: {section.title}", "", *section.pages, "```", ""])
        for section in read_navigation(index)
    )
