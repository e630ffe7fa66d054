"""Each black-box check of network policy has its number in a test, so that who reads of one finds what shows it."""

import re
from itertools import chain
from pathlib import Path
from typing import Final

TESTS = Path(__file__).parents[1]

CHECKS: Final = frozenset(
    chain(
        (1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 16, 17, 18, 20, 21, 22, 23, 25, 26, 27, 28, 30, 31, 32, 33, 34, 35),
        (37, 38, 39, 40, 42, 43, 44, 45, 47, 48, 49, 50, 51, 52, 54, 55, 56, 57, 58, 59, 61, 62, 63, 64, 66, 67, 68),
        (69, 71, 72),
    )
)


def test_every_check_of_policy_is_named_by_a_test() -> None:
    found = {
        int(number)
        for path in TESTS.rglob("test_*.py")
        if path != Path(__file__)
        for number in re.findall(r"\bP-([0-9]+)\b", path.read_text())
    }
    assert found == CHECKS
