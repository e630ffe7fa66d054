"""Each sentence of the security page names the tests that hold it; this holds that they exist."""

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
ROWS = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.endswith("| Held by |")]
NAME = re.compile(r"`(test_\w+)::(\w+)`")


@cache
def functions_by_module() -> Mapping[str, set[str]]:
    """The test functions of all modules of that name."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in (ROOT / "tests").rglob("test_*.py"):
        found[file.stem] |= set(re.findall(r"^(?:    )?def (test_\w+)\(", file.read_text(), re.MULTILINE))
        found[file.stem] |= set(re.findall(r"^(test_\w+|Test\w+) = ", file.read_text(), re.MULTILINE))
    return found


def test_the_page_has_its_sentences() -> None:
    assert len(ROWS) > 30


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:50])
def test_what_holds_a_sentence_exists(row: str) -> None:
    names = NAME.findall(row.rpartition(" | ")[2])
    assert names
    assert [name for module, name in names if name not in functions_by_module()[module]] == []
