"""The design pages name what holds their invariants; this holds that it exists."""

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "design" / "allocation.md"
NAMES = re.findall(
    r"`((?:invariants|pool_invariants|model|history|call_invariants|harness|machine|teardown)\.[\w.]+)`",
    PAGE.read_text(),
)


def test_every_invariant_is_there_once() -> None:
    found = re.findall(r"^\| V(\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(map(int, found)) == list(range(1, 22))
    assert len(NAMES) >= 20


@pytest.mark.parametrize("name", NAMES)
def test_what_holds_an_invariant_exists(name: str) -> None:
    module, *path = name.split(".")
    found: object = import_module(f"tests.harness.allocator.{module}")
    for part in path:
        found = getattr(found, part)
    assert callable(found)
