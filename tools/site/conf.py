"""The site of the documentation, for Sphinx: docs/ and the pages beside it, at the same paths as in the repository.

So a link that works on a page of the repository works on the site. Pages load nothing from elsewhere, and the site
needs no server: search runs in the browser, also where the pages are opened from a disk.
"""

from __future__ import annotations

from sphinx.application import Sphinx

import netplug_core
from tools.navigation import render_toctrees

project = "netplug"
release = netplug_core.__version__
root_doc = "docs/index"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
include_patterns = ["README.md", "CONTRIBUTING.md", "docs/**"]
# Sphinx does not look for pages in these folders, which are large.
exclude_patterns = [".*", "benchmarks", "build", "changelog.d", "constraints", "dist", "netplug_*", "tests", "tools"]
nitpicky = True  # a reference that leads nowhere is a warning, and the build fails on each
smartquotes = False  # `--option` keeps its two hyphens
myst_heading_anchors = 6  # as on GitHub: a heading of any level can be linked

html_theme = "furo"
html_title = f"netplug {release}"
html_extra_path = ["root"]
html_copy_source = False
html_show_copyright = False
html_use_index = False


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """Put the navigation at the end of the index."""
    if name == app.config.root_doc:
        source[0] += render_toctrees(source[0])


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
