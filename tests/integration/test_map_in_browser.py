"""The page and the picture of ``ipam map`` in a real browser, light and dark, at the width of a phone and of a screen.

A browser takes a third of a gigabyte on the disk, so only a deep run has it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from netplug_core.addressing import Prefix
from netplug_core.ipam.model import Block
from netplug_core.records import Create
from tests.harness.browser import Browser, open_browser
from tests.harness.tool_stores import make_tool_user
from tests.harness.tool_user import document

CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")

PHONE, SCREEN = 360, 1280
WORDS = """[...document.querySelectorAll('h1,h2,p,li,strong,.detail')].map(each => {
    const box = each.getBoundingClientRect();
    return {text: each.textContent, left: box.left, right: box.right, height: box.height};
})"""
BARS = "[...document.querySelectorAll('svg.bar')].map(each => each.getBoundingClientRect().width)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for a module."""
    assert CHROMIUM is not None
    with open_browser(CHROMIUM, tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the page and the picture of two pools and their blocks, with long names and addresses."""
    user = make_tool_user(request, tmp_path, "sqlite")
    pools = (
        document("IPPool", "a-pool-with-a-name-that-is-quite-long-for-a-phone", "cidr: 10.68.0.0/24"),
        document("IPPool", "six", "cidr: 'fd5f:abcd:64:1234:5678:9abc:def0:0/112'"),
        document("IPReservation", "routers", "reservedCIDRs: [10.68.0.0/29]"),
    )
    assert user.run_command("create", "-f", "-", stdin="".join(pools)).status == 0
    stored = [
        Block.new(Prefix.parse(cidr), owner=f"host:{'W' * 63}", now_ns=1)
        for cidr in ("10.68.0.0/26", "10.68.0.192/26", "fd5f:abcd:64:1234:5678:9abc:def0:ff40/122")
    ]
    with user.store() as store:
        store.commit([Create(block.key, block) for block in stored], deadline=user.deadline)
    for name in ("map.html", "map.svg"):
        assert user.run_command("ipam", "map", "-f", str(tmp_path / name)).status == 0
    return tmp_path


def style_of(browser: Browser, selector: str, name: str) -> str:
    return str(browser.evaluate(f"getComputedStyle(document.querySelector('{selector}')).{name}"))


@pytest.mark.parametrize("width", [PHONE, SCREEN])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_and_its_words_are_visible(browser: Browser, folder: Path, width: int, scheme: str) -> None:
    browser.show(folder / "map.html", width=width, scheme=scheme)
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    words = browser.evaluate(WORDS)
    assert isinstance(words, list)
    assert len(words) > 15
    for each in words:
        assert each["height"] > 8, each
        assert 0 <= each["left"] < each["right"] <= width, each
    bars = browser.evaluate(BARS)
    assert isinstance(bars, list)
    assert bars
    assert all(bar > width / 2 for bar in bars)


def test_a_page_is_light_or_dark_as_the_browser_is_set(browser: Browser, folder: Path) -> None:
    colours = []
    for scheme in ("light", "dark"):
        browser.show(folder / "map.html", width=PHONE, scheme=scheme)
        colours.append([style_of(browser, "body", name) for name in ("backgroundColor", "color")])
        colours[-1].append(style_of(browser, ".unclaimed rect", "fill"))
    assert colours == [
        ["rgb(255, 255, 255)", "rgb(26, 26, 26)", "rgb(118, 118, 118)"],
        ["rgb(22, 24, 28)", "rgb(240, 240, 240)", "rgb(143, 143, 143)"],
    ]


@pytest.mark.parametrize("scheme, background", [("light", "rgb(255, 255, 255)"), ("dark", "rgb(22, 24, 28)")])
def test_the_words_of_a_picture_stay_in_it(browser: Browser, folder: Path, scheme: str, background: str) -> None:
    browser.show(folder / "map.svg", width=SCREEN, scheme=scheme)
    ends = browser.evaluate(
        "[...document.querySelectorAll('text')].map(each => each.getBBox().x + each.getBBox().width)"
    )
    assert isinstance(ends, list)
    assert len(ends) > 10
    assert max(ends) <= 480
    assert style_of(browser, ".sheet", "fill") == background


def test_nothing_is_asked_for_but_the_files(browser: Browser, folder: Path) -> None:
    browser.requested.clear()
    for name in ("map.html", "map.svg"):
        browser.show(folder / name, width=PHONE, scheme="light")
    assert browser.requested == [(folder / name).as_uri() for name in ("map.html", "map.svg")]
