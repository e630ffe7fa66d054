"""The drawings of the documentation: what their tool writes, light and dark, words that fit, and each on a page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest

from netplug_cli.ctl.main import run
from netplug_cli.wiring.ctl import make_session
from tests.harness.console_pages import in_folder
from tests.harness.console_scenes import SCENES, Scene
from tools.pictures import FOLDER, Box, Picture, pictures, text_width, write

ROOT = Path(__file__).parents[3]
PICTURES = pictures()
_MARGINS = 14


def test_the_files_are_what_the_tool_writes(tmp_path: Path) -> None:
    assert len(list(write(tmp_path))) == len(PICTURES)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        name: (FOLDER / name).read_text() for name in PICTURES
    }
    assert list(write(FOLDER)) == []


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.svg")), ids=lambda file: file.name)
def test_a_picture_has_a_title_both_schemes_and_nothing_from_elsewhere(file: Path) -> None:
    text = file.read_text()
    title, *_parts = re.findall(r"<title[^>]*>([^<]+)</title>", text)
    assert len(title.split()) >= 3
    assert "prefers-color-scheme" in text.replace(" ", "")
    assert re.findall(r"(?:href|src|url)\s*[=(]\s*[\"']?(?!#)\S+", text) == []
    assert ET.fromstring(text).tag.endswith("svg")  # noqa: S314


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.svg")), ids=lambda file: file.name)
def test_a_picture_is_on_a_page_with_words_for_those_who_do_not_see_it(file: Path) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = [words for page in pages for words in re.findall(rf"!\[([^\]]+)\]\([^)]*{file.name}\)", page.read_text())]
    assert shown
    assert all(len(words.split()) >= 5 for words in shown)


def boxes() -> list[tuple[str, Box]]:
    return [(name, box) for name, picture in PICTURES.items() for box in picture.boxes]


@pytest.mark.parametrize("name, box", boxes(), ids=lambda value: value if isinstance(value, str) else value.lines[:1])
def test_words_fit_their_box_and_the_box_its_picture(name: str, box: Box) -> None:
    picture = PICTURES[name]
    assert box.x >= 0
    assert box.y >= 0
    assert box.x + box.width <= picture.width
    assert box.y + box.height <= picture.height
    assert len(list(box.styled)) * 18 + 10 <= box.height or not box.lines
    for style, words in box.styled:
        assert text_width(words, style) + _MARGINS <= box.width, words


def test_the_words_of_a_message_fit_between_two_processes() -> None:
    picture: Picture = PICTURES["add-del.svg"]
    lanes = sorted(box.x + box.width // 2 for box in picture.boxes)
    gap = min(after - before for before, after in pairwise(lanes))
    messages = re.findall(r'text-anchor="middle">([^<]+)<', picture.render())
    assert len(messages) > 10
    assert [words for words in messages if text_width(words, "s") > gap] == []


def test_the_picture_of_ipam_map_is_that_of_the_command(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with in_folder(tmp_path, scene.environ):
        SCENES["docs/netplugctl.md: netplugctl ipam map small six"](scene)
        assert run(["ipam", "map", "small", "six", "-f", "map.svg"], make_session) == 0
    drawn, shown = (file.read_text() for file in (tmp_path / "map.svg", FOLDER / "ipam-map.svg"))
    time = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
    assert time.sub("TIME", drawn) == time.sub("TIME", shown)
