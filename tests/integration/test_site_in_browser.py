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


# The texts whose contrast is below that of WCAG 2.1 AA, and how many texts there are. What is below a text is the
# background of the elements around it, or in a picture the shapes at its middle; at last the page.
CONTRAST = """(page => {
    const canvas = document.createElementNS('http://www.w3.org/1999/xhtml', 'canvas')
        .getContext('2d', {willReadFrequently: true});
    const rgba = text => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = text;
        canvas.fillRect(0, 0, 1, 1);
        const found = canvas.getImageData(0, 0, 1, 1).data;
        return [found[0], found[1], found[2], found[3] / 255];
    };
    const over = (top, below) => top.slice(0, 3).map((each, at) => each * top[3] + below[at] * (1 - top[3]));
    const light = color => color.map(each => each / 255)
        .map(each => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
        .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
    const around = element =>
        element ? [...around(element.parentElement), getComputedStyle(element).backgroundColor] : [];
    const under = text => {
        const box = text.getBoundingClientRect();
        return document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2)
            .filter(each => !each.closest('text') && each.tagName != 'svg').reverse()
            .map(each => getComputedStyle(each).fill)
            .filter(each => each != 'none');
    };
    const texts = page ? [...document.querySelectorAll('text')] : [...document.querySelectorAll('body *')].filter(
        each => !each.closest('svg') && each.checkVisibility({opacityProperty: true, visibilityProperty: true})
            && [...each.childNodes].some(node => node.nodeType == 3 && node.textContent.trim()));
    const low = {};
    for (const text of texts) {
        const style = getComputedStyle(text), size = parseFloat(style.fontSize);
        const below = (page ? under(text) : around(text)).map(rgba)
            .reduce((found, top) => over(top, found), rgba(page || 'Canvas').slice(0, 3));
        const lights = [light(over(rgba(page ? style.fill : style.color), below)), light(below)];
        const ratio = (Math.max(...lights) + 0.05) / (Math.min(...lights) + 0.05);
        const needed = !page && (size >= 24 || size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
        if (!(ratio >= needed)) low[`${text.textContent.trim().slice(0, 40)}: ${style.color} ${style.fill}`] = ratio;
    }
    return {count: texts.length, low};
})"""
PAGE_COLORS = {"light": "#ffffff", "dark": "#131416"}  # those of the theme, which pictures lie on
FAINT = "<body style='background: #fff'><p style='color: #999'>faint</p><p style='color: #555'>plain</p></body>"


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(site: Path, tmp_path: Path, scheme: str) -> None:
    assert CHROMIUM is not None
    faint = tmp_path / "faint.html"
    faint.write_text(FAINT)
    low, count = dict[str, object](), 0
    with open_browser(CHROMIUM, tmp_path) as browser:

        def look(file: Path, page: str = "") -> object:
            nonlocal count
            browser.show(file, width=1280, scheme=scheme)
            seen = browser.evaluate(f"{CONTRAST}({page!r})")
            assert isinstance(seen, dict)
            count += seen["count"]
            return seen["low"]

        assert list(look(faint)) == ["faint: rgb(153, 153, 153) rgb(0, 0, 0)"]  # type: ignore[call-overload]
        for page in (site / "README.html", *sorted((site / "docs").rglob("*.html"))):
            if found := look(page):
                low[page.name] = found
        for picture in sorted((ROOT / "docs" / "img").glob("*.svg")):
            if found := look(picture, PAGE_COLORS[scheme]):
                low[picture.name] = found
    assert count > 10_000
    assert low == {}
