"""Label selectors as Kubernetes spells them: what each stands for, what is refused, and which language a text is in."""

import pytest

from netplug_core.selectors import (
    And,
    ComparisonOperator,
    Everything,
    HasLabel,
    LabelComparison,
    Not,
    Selector,
    SelectorError,
    SetMembership,
    SetOperator,
    matches,
    parse,
    parse_either,
)


def compare(operator: ComparisonOperator, literal: str = "v") -> LabelComparison:
    return LabelComparison(label="a", operator=operator, literal=literal)


def among(*literals: str, operator: SetOperator = SetOperator.IN) -> SetMembership:
    return SetMembership(label="a", operator=operator, literals=frozenset(literals))


EQUALS, DIFFERS = compare(ComparisonOperator.EQUALS), compare(ComparisonOperator.NOT_EQUALS)


@pytest.mark.parametrize(
    "text, selector",
    [
        ("", Everything.ALL),
        (" \t", Everything.ALL),
        ("a", HasLabel("a")),
        ("! a ", Not(HasLabel("a"))),
        ("a=v", EQUALS),
        ("\ta == v ", EQUALS),
        ("a!=v", DIFFERS),
        ("a=", compare(ComparisonOperator.EQUALS, "")),
        ("a=in", compare(ComparisonOperator.EQUALS, "in")),
        ("a=has", compare(ComparisonOperator.EQUALS, "has")),
        ("a in (v)", among("v")),
        ("a in(v , w,)", among("v", "w", "")),
        ("a notin (v)", among("v", operator=SetOperator.NOT_IN)),
        ("in in (in)", SetMembership(label="in", operator=SetOperator.IN, literals=frozenset({"in"}))),
        ("has", HasLabel("has")),
        ("all in (v)", SetMembership(label="all", operator=SetOperator.IN, literals=frozenset({"v"}))),
        ("a=v,!b,c", And((EQUALS, Not(HasLabel("b")), HasLabel("c")))),
        ("x.io/has-1_2", HasLabel("x.io/has-1_2")),
        # The language of pools.
        ("a == 'v'", EQUALS),
        ('a == "v"', EQUALS),
        ("a in {}", among()),
        ("all()", Everything.ALL),
        ("global ()", Everything.GLOBAL),
        ("!has(a)", Not(HasLabel("a"))),
        ("(has(a))", HasLabel("a")),
    ],
)
def test_each_spelling_is_a_selector(text: str, selector: Selector) -> None:
    assert parse_either(text) == selector


@pytest.mark.parametrize(
    "text, problem",
    [
        ("a=v,", "position 5: found the end, expected a label or '!'"),
        (",a", "position 1: found ',', expected a label or '!'"),
        ("a=v,,b", "position 5: found ',', expected a label or '!'"),
        ("!", "position 2: found the end, expected a label"),
        ("!!a", "position 2: found '!', expected a label"),
        ("!a=v", "position 3: found '=', expected ',' or the end"),
        ("a b", "position 3: found 'b', expected '=', '!=', 'in', 'notin', ',' or the end"),
        ("a>1", "position 2: found '>', expected '=', '!=', 'in', 'notin', ',' or the end"),
        ("a=v w", "position 5: found 'w', expected ',' or the end"),
        ("a=!", "position 3: found '!', expected a value"),
        ("a=v@w", "position 4: found '@', expected ',' or the end"),
        ("a=v\n", "position 4: found '\\n', expected ',' or the end"),
        ("a in v", "position 6: found 'v', expected '('"),
        ("a in ()", "position 7: found ')', expected a value"),
        ("a in (v", "position 8: found the end, expected ',' or ')'"),
        ("a in (v w)", "position 9: found 'w', expected ',' or ')'"),
        ("a in (=)", "position 7: found '=', expected a value"),
        (f"{'a' * 513}=v", "position 1: found a label of 513 characters, expected at most 512"),
        # The language of pools.
        ("a == 'v", 'position 6: found "\'" that is never closed, expected a literal in quotes'),
        ("a == v && b == w", "position 6: found 'v', expected a literal in quotes"),
        ("has(a", "position 6: found the end, expected ')'"),
    ],
)
def test_what_is_refused_is_said_with_its_position(text: str, problem: str) -> None:
    with pytest.raises(SelectorError) as refused:
        parse_either(text)
    assert str(refused.value) == problem


def test_as_in_kubernetes_a_label_that_is_absent_differs_from_every_value() -> None:
    assert matches(parse_either("a!=v"), {})
    assert matches(parse_either("a notin (v)"), {})
    assert not matches(parse_either("a,a!=v"), {})
    assert not matches(parse_either("a="), {})


def test_the_language_of_stored_selectors_has_not_grown() -> None:
    with pytest.raises(SelectorError):
        parse("a=v")
