"""The index of the documentation is the navigation of the site: it has every page, in one section."""

from collections import Counter
from pathlib import Path

from tools.navigation import NavigationSection, read_navigation, render_toctrees

ROOT = Path(__file__).parents[3]
INDEX = ROOT / "docs" / "index.md"

EXAMPLE = """\
# Documentation

Read [the words](glossary.md) first.

## Start

| You want to | Read |
|---|---|
| begin | [the README](../README.md), [all of it](backends/all.md) |
| know a part | [a part](operate.md#part), [elsewhere](https://example.org/page.md) |

## Operate

- [how](operate.md)
"""


def test_each_page_is_in_the_navigation_once() -> None:
    listed = Counter(
        (INDEX.parent / f"{page}.md").resolve() for part in read_navigation(INDEX.read_text()) for page in part.pages
    )
    pages = {*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"} - {INDEX}
    assert {str(page.relative_to(ROOT)): listed[page] for page in pages | set(listed) if listed[page] != 1} == {}
    assert set(listed) <= pages


def test_every_section_has_pages() -> None:
    sections = read_navigation(INDEX.read_text())
    assert [section.title for section in sections if not section.pages] == []
    assert len({section.title for section in sections}) == len(sections) > 1


def test_a_page_is_linked_without_an_anchor_below_a_heading() -> None:
    assert read_navigation(EXAMPLE) == (
        NavigationSection(title="Start", pages=("../README", "backends/all")),
        NavigationSection(title="Operate", pages=("operate",)),
    )


def test_each_section_is_a_hidden_tree_with_a_caption() -> None:
    assert render_toctrees("## Start\n[a](a.md) [b](b.md)\n") == (
        "\n```{toctree}\n:hidden:\n:caption: Start\n\na\nb\n```\n"
    )


def test_an_index_without_sections_has_no_navigation() -> None:
    assert render_toctrees("# Documentation\n\n[a](a.md)\n") == ""
