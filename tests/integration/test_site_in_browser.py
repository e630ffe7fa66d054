"""Every page of the site in a real browser: light and dark, as wide as a screen and as a phone, with its pictures."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.browser import open_browser
from tests.harness.console_pages import ROOT

CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")

# What is wider than the window makes a phone scroll sideways; tables and blocks scroll by themselves.
SEEN = """({
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    pictures: [...document.images].filter(each => !each.complete || each.naturalWidth == 0
        || each.getBoundingClientRect().right > innerWidth + 1).map(each => each.src),
})"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make site` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = (
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "-E",
        "-d",
        str(folder / "doctrees"),
        "-c",
        "tools/site",
        ".",
    )
    subprocess.run([*command, str(folder / "site")], cwd=ROOT, check=True)
    return folder / "site"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_its_window_and_every_picture_is_there(
    site: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    assert CHROMIUM is not None
    pages = [site / "README.html", *sorted((site / "docs").rglob("*.html"))]
    assert len(pages) > 50
    wrong = dict[str, object]()
    with open_browser(CHROMIUM, tmp_path) as browser:
        for page in pages:
            browser.show(page, width=width, scheme=scheme)
            seen = browser.evaluate(SEEN)
            if seen != {"overflow": 0, "pictures": []}:
                wrong[str(page.relative_to(site))] = seen
    assert wrong == {}
