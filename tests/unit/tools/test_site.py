"""The site has the links of the repository and loads nothing from elsewhere; a wrong link fails the build."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

INDEX = """\
# Documentation

## Start

Read [the README](../README.md), [its example](../README.md#as-a-library) and [the first page](first.md).

## Operate

[Nodes and `--all`](backends/README.md)
"""
PAGES = {
    "README.md": "# netplug\n\n## As a library\n\nSee [a part](docs/first.md#a-part-of-it), and use --all.\n",
    "docs/index.md": INDEX,
    "docs/first.md": "# First\n\n## A `part` of it\n\n```sh\nnetplugctl get ippools  # all\n```\n",
    "docs/backends/README.md": "# Datastores\n\n[back](../index.md#operate)\n",
    "tests/README.md": "# No page of the documentation\n",
}


def build(folder: Path, pages: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Build these pages as `make site` builds those of the project."""
    for name, text in pages.items():
        path = folder / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    options = ["--quiet", "--fail-on-warning", "-d", str(folder / "doctrees"), "-c", "tools/site"]
    command = [sys.executable, "-m", "sphinx", *options, str(folder / "pages"), str(folder / "site")]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(folder, PAGES)
    assert (built.returncode, built.stderr) == (0, "")
    return folder / "site"


def test_pages_are_where_the_repository_has_them(site: Path) -> None:
    pages = {str(path.relative_to(site).with_suffix(".md")) for path in site.rglob("*.html")}
    assert pages == {*PAGES, "index.md", "search.md"} - {"tests/README.md"}
    assert 'url=docs/index.html"' in (site / "index.html").read_text()


def test_a_link_leads_to_the_heading_that_it_names(site: Path) -> None:
    readme, first = (site / "README.html").read_text(), (site / "docs" / "first.html").read_text()
    assert 'href="docs/first.html#a-part-of-it"' in readme
    assert 'id="a-part-of-it"' in first
    assert 'href="../README.html#as-a-library"' in (site / "docs" / "index.html").read_text()
    assert 'id="as-a-library"' in readme


def test_the_navigation_is_that_of_the_index(site: Path) -> None:
    page = (site / "docs" / "first.html").read_text()
    navigation = re.findall(r'class="caption-text">(\w+)<|class="toctree-l1.*?href="([^"]+)"', page)
    assert navigation == [
        ("Start", ""),
        ("", "../README.html"),
        ("", "#"),
        ("Operate", ""),
        ("", "backends/README.html"),
    ]


def test_options_keep_their_hyphens(site: Path) -> None:
    assert "use --all." in (site / "README.html").read_text()


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    elsewhere = r"""(?:src=|<link[^>]*href=|url\(|@import )\s*["']?(?:https?:)?//[^"')\s]+"""
    assert {path.name: found for path in files if (found := re.findall(elsewhere, path.read_text()))} == {}
    scripts = {src for path in files for src in re.findall(r'<script[^>]*src="([^"?]+)', path.read_text())}
    assert any(src.endswith("searchtools.js") for src in scripts)


def test_a_wrong_link_or_a_page_in_no_section_fails_the_build(tmp_path: Path) -> None:
    wrong = "# First\n\n[no page](second.md), [no heading](../README.md#as-a-tool), [none here](#part)\n"
    built = build(tmp_path, PAGES | {"docs/first.md": wrong, "docs/third.md": "# Third\n"})
    assert built.returncode == 1
    for problem in (
        "'second.md'",
        "'as-a-tool'",
        "'part'",
        "docs/third.md: WARNING: document isn't included in any toctree",
    ):
        assert problem in built.stderr
