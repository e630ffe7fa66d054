"""Every console block of every page is run by a test, or stands in one list with the reason why none runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.console_pages import (
    PAGES,
    ROOT,
    ConsoleBlock,
    comparable,
    console_blocks,
    in_folder,
    read_listed,
    run_block,
)
from tests.harness.console_scenes import SCENES, Scene

BLOCKS = {block.name: block for page in PAGES for block in console_blocks(page)}
RUN_ELSEWHERE = read_listed(ROOT / "tests" / "unit" / "console_blocks.txt")


@pytest.mark.parametrize("name", SCENES)
def test_a_block_prints_what_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    with in_folder(tmp_path, scene.environ):
        SCENES[name](scene)
        printed = run_block(BLOCKS[name])
    shown, found = comparable(BLOCKS[name].text, scene.shown(printed))
    assert found == shown


def test_every_block_is_run_or_listed() -> None:
    """A new block needs a scene, or a line in the list: the test that runs it, or the reason why none does."""
    listed = RUN_ELSEWHERE
    assert sorted(set(BLOCKS) - set(SCENES) - set(listed)) == []
    assert sorted((set(SCENES) | set(listed)) - set(BLOCKS)) == [], "these are in no page any more"
    assert sorted(set(SCENES) & set(listed)) == []


def test_the_list_names_tests_that_read_the_page() -> None:
    for name, (test, reason) in RUN_ELSEWHERE.items():
        if test == "-":
            assert len(reason.split()) >= 4, f"{name}: a reason in words is expected"
            assert all((ROOT / named).exists() for named in re.findall(r"tests/\S+\.py", reason)), name
            continue
        text = (ROOT / test).read_text()
        page = Path(name.partition(": ")[0])
        assert page.name in text or page.stem in text, f"{name}: {test} does not read {page}"


@pytest.mark.parametrize(
    "shown, printed, equal",
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a\n…\n", "a\nb\nc\n", True),
        ("a\n…\nd\n", "a\nb\nc\n", False),
        ("…\nd\n", "a\nd\ne\n", False),
        ("at 2026-11-21T07:32:09Z\n", "at 2026-01-01T00:00:00Z\n", True),
        ("a\n", "a\nb\n", False),
    ],
)
def test_a_cut_and_what_differs_from_run_to_run(shown: str, printed: str, *, equal: bool) -> None:
    wanted, found = comparable(shown, printed)
    assert (wanted == found) is equal


def test_commands_are_known_by_their_prompts() -> None:
    block = ConsoleBlock("docs/x.md", "text", "$ netplugctl get pools\nNAME\n# a comment of a table\n$ ls\n")
    assert block.commands == ("netplugctl get pools", "ls")
    assert re.fullmatch(r"docs/x\.md: netplugctl get pools", block.name)
