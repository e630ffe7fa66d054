"""The generated part of a page: only what stands between the two marks is replaced."""

from pathlib import Path

import pytest

from tools.pages import replace_between

PAGE = Path("docs/page.md")


def test_only_the_part_between_the_marks_is_replaced() -> None:
    text = "head\n<!-- a -->\nold\n<!-- z -->\ntail\n"
    replaced = replace_between(text, "<!-- a -->\n", "<!-- z -->\n", "new\n", page=PAGE)
    assert replaced == "head\n<!-- a -->\nnew\n<!-- z -->\ntail\n"
    assert replace_between(replaced, "<!-- a -->\n", "<!-- z -->\n", "new\n", page=PAGE) == replaced


@pytest.mark.parametrize("text", ["", "<!-- a -->\n", "<!-- z -->\n<!-- a -->\n"])
def test_a_page_without_both_marks_is_refused(text: str) -> None:
    problem = r"docs/page\.md has no place for the tables: <!-- a --> and <!-- z --> are expected"
    with pytest.raises(ValueError, match=problem):
        replace_between(text, "<!-- a -->\n", "<!-- z -->\n", "new\n", page=PAGE)
