"""The catalogue of what must hold of datastores: a test names each property and case, and the page is true."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "design" / "datastores.md").read_text()
TESTS = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
PROPERTIES = [f"D{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 14)]
CASES = [f"S-{number}" for number in (1, 2, 4, 5, 6, 7, *range(9, 13), *range(14, 18), *range(19, 23), *range(24, 28))]


@pytest.mark.parametrize("name", PROPERTIES + CASES)
def test_each_is_named_by_a_test(name: str) -> None:
    in_name = re.compile(rf"def test_(\w+?_)??{name.lower().replace('-', '')}_")
    in_text = re.compile(rf'"""[^"]*\b{name}\b')
    assert any(in_name.search(text) or in_text.search(text) for text in TESTS)


def test_the_page_has_each_property() -> None:
    assert list(dict.fromkeys(re.findall(r"^\| (D\d+) \|", PAGE, re.MULTILINE))) == PROPERTIES


@pytest.mark.parametrize("named", re.findall(r"`(tests/[\w/.:]+)`", PAGE))
def test_what_the_page_names_exists(named: str) -> None:
    path, _, function = named.partition("::")
    text = (ROOT / path).read_text()
    assert not function or f"def {function}(" in text
