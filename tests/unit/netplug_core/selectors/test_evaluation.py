"""Holding selectors against labels: the truth table, for a label that is there and for one that is not."""

import pytest

from netplug_core.selectors import matches, parse

LABELS = {"k": "value", "empty": "", "in": "set"}


def selects(text: str) -> bool:
    return matches(parse(text), LABELS)


@pytest.mark.parametrize(
    "comparison, present, missing",
    [
        ("== 'value'", True, False),
        ("== 'Value'", False, False),
        ("== 'val'", False, False),
        ("!= 'value'", False, True),
        ("!= 'other'", True, True),
        ("in {'other', 'value'}", True, False),
        ("in {'other'}", False, False),
        ("in {}", False, False),
        ("not in {'other', 'value'}", False, True),
        ("not in {'other'}", True, True),
        ("not in {}", True, True),
        ("contains 'alu'", True, False),
        ("contains 'value'", True, False),
        ("contains 'aul'", False, False),
        ("contains ''", True, False),
        ("starts with 'val'", True, False),
        ("starts with 'alue'", False, False),
        ("starts with ''", True, False),
        ("ends with 'lue'", True, False),
        ("ends with 'valu'", False, False),
        ("ends with ''", True, False),
    ],
)
def test_a_comparison_holds_or_not(comparison: str, *, present: bool, missing: bool) -> None:
    assert selects(f"k {comparison}") is present
    assert selects(f"nowhere {comparison}") is missing
    assert selects(f"!k {comparison}") is not present
    assert selects(f"!nowhere {comparison}") is not missing


@pytest.mark.parametrize(
    "text, selected",
    [
        ("has(k)", True),
        ("has(nowhere)", False),
        ("has(value)", False),
        ("has(empty)", True),
        ("empty == ''", True),
        ("empty != ''", False),
        ("empty contains ''", True),
        ("nowhere == ''", False),
        ("empty in {''}", True),
        ("nowhere in {''}", False),
        ("in in {'set'}", True),
        ("", True),
        (" \t", True),
        ("all()", True),
        ("global()", True),
        ("!all()", False),
        ("has(k) && has(nowhere)", False),
        ("has(nowhere) || has(k)", True),
        ("has(nowhere) || has(elsewhere)", False),
        ("has(k) || has(nowhere) && has(nowhere)", True),
        ("(has(k) || has(nowhere)) && has(nowhere)", False),
        ("!(has(k) && has(nowhere))", True),
        ("!has(nowhere) && !has(elsewhere) && has(k)", True),
    ],
)
def test_terms_join(text: str, *, selected: bool) -> None:
    assert selects(text) is selected


def test_no_labels_are_labels_too() -> None:
    assert matches(parse("all()"), {})
    assert not matches(parse("has(k) || k == 'v'"), {})
    assert matches(parse("k != 'v' && k not in {'v'}"), {})


def test_the_deepest_selector_there_is_can_be_held_against_labels() -> None:
    text = "has(nowhere)"
    for _ in range(32):
        text = f"!(has(k) && ({text} || has(nowhere)))"  # each says the opposite of the one inside
    assert selects(text) is False
