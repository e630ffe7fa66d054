"""Reading selectors: what each spelling stands for, what is refused and how it is said, and what reading costs."""

import gc
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from netplug_core.selectors import (
    And,
    ComparisonOperator,
    Everything,
    HasLabel,
    LabelComparison,
    Not,
    Or,
    Selector,
    SelectorError,
    SetMembership,
    SetOperator,
    leaf_terms,
    parse,
)

A, B, C = HasLabel("a"), HasLabel("b"), HasLabel("c")
OPERATORS = "'==', '!=', 'contains', 'starts with', 'ends with', 'in' or 'not in'"
TERM = "a label, 'has(', 'all()', '!' or '('"


def equals(label: str, literal: str = "v") -> LabelComparison:
    return LabelComparison(label=label, operator=ComparisonOperator.EQUALS, literal=literal)


def among(*literals: str, membership: SetOperator = SetOperator.IN) -> SetMembership:
    return SetMembership(label="a", operator=membership, literals=frozenset(literals))


@pytest.mark.parametrize(
    "text, selector",
    [
        ("", Everything.ALL),
        (" \t ", Everything.ALL),
        ("all()", Everything.ALL),
        ("all\t( )", Everything.ALL),
        ("global()", Everything.GLOBAL),
        ("has(a)", A),
        (" has ( a\t) ", A),
        ("a=='v'", equals("a")),
        ('\ta == "v" ', equals("a")),
        ("a == ''", equals("a", "")),
        ('a == "it\'s"', equals("a", "it's")),
        ("a == '&& (\n\\'", equals("a", "&& (\n\\")),
        ("a != 'v'", LabelComparison(label="a", operator=ComparisonOperator.NOT_EQUALS, literal="v")),
        ("a contains'v'", LabelComparison(label="a", operator=ComparisonOperator.CONTAINS, literal="v")),
        *(
            (f"a {spelled} 'v'", LabelComparison(label="a", operator=relation, literal="v"))
            for relation, spellings in {
                ComparisonOperator.STARTS_WITH: ("starts with", "startswith", "starts \t with"),
                ComparisonOperator.ENDS_WITH: ("ends with", "endswith", "ends\twith"),
            }.items()
            for spelled in spellings
        ),
        ("a in {}", among()),
        ("a in{ }", among()),
        ("a in {'x','y'}", among("x", "y")),
        ("a in { 'x' , \"y\" , }", among("x", "y")),
        ("a in {'x', 'y', 'x'}", among("x", "y")),
        ("a in {'',}", among("")),
        *((f"a {spelled} {{'x'}}", among("x", membership=SetOperator.NOT_IN)) for spelled in ("not in", "notin")),
        ("!has(a)", Not(A)),
        ("! a == 'v'", Not(equals("a"))),
        ("!(a == 'v')", Not(equals("a"))),
        ("!!has(a)", A),
        ("! !\t!has(a)", Not(A)),
        ("!(!has(a))", A),
        ("!(!(!has(a)))", Not(A)),
        ("has(a) && has(b)", And((A, B))),
        ("has(a)||has(b)||has(c)", Or((A, B, C))),
        ("has(a) || has(b) && has(c)", Or((A, And((B, C))))),
        ("has(a) && has(b) || has(c)", Or((And((A, B)), C))),
        ("(has(a) || has(b)) && has(c)", And((Or((A, B)), C))),
        ("has(a) && (has(b) && has(c))", And((A, And((B, C))))),
        ("!has(a) && has(b)", And((Not(A), B))),
        ("!a == 'v' || has(b)", Or((Not(equals("a")), B))),
        ("!(has(a) && has(b))", Not(And((A, B)))),
        ("((has(a)))", A),
    ],
)
def test_a_text_stands_for_one_tree(text: str, selector: Selector) -> None:
    assert parse(text) == selector


@pytest.mark.parametrize(
    "word", ["in", "has", "all", "global", "not", "contains", "starts", "startswith", "with", "notin"]
)
def test_a_keyword_is_a_label_where_a_label_stands(word: str) -> None:
    assert parse(f"{word} == 'v'") == equals(word)
    assert parse(f"has({word})") == HasLabel(word)
    assert parse(f"!{word} in {{}}") == Not(SetMembership(label=word, operator=SetOperator.IN, literals=frozenset()))


@pytest.mark.parametrize("label", ["a", "Zone_9", "example.org/rack-1", "-", "./_-", "09", "x" * 512])
def test_labels_are_any_512_of_their_characters(label: str) -> None:
    assert parse(f"has({label})") == HasLabel(label)
    assert parse(f"{label}=='v'") == equals(label)


@pytest.mark.parametrize(
    "text, position, found, expected",
    [
        ("b == b", 6, "'b'", "a literal in quotes"),
        ("b", 2, "the end", OPERATORS),
        ("a b", 3, "'b'", OPERATORS),
        ("!", 2, "the end", TERM),
        ('foo == "bar" &', 14, "'&'", "'&&', '||' or the end"),
        ('foo == "bar" |', 14, "'|'", "'&&', '||' or the end"),
        ("foo != ||", 8, "'||'", "a literal in quotes"),
        ('foo in ""', 8, "'\"\"'", "'{'"),
        ('"FOO', 1, "'\"' that is never closed", TERM),
        ("\"FOO'", 1, "'\"' that is never closed", TERM),
        ("(", 2, "the end", TERM),
        ('(a == "foo"', 12, "the end", "'&&', '||' or ')'"),
        (")", 1, "')'", TERM),
        ("()", 2, "')'", TERM),
        ("%", 1, "'%'", TERM),
        ('a == "b" && %', 13, "'%'", TERM),
        ("has(foo) &&", 12, "the end", TERM),
        ("'b1' == b", 1, "\"'b1'\"", TERM),
    ],
)
def test_what_is_no_selector_is_refused_where_it_stops_being_one(
    text: str, position: int, found: str, expected: str
) -> None:
    """I-81, in its order."""
    with pytest.raises(SelectorError) as caught:
        parse(text)
    assert str(caught.value) == f"position {position}: found {found}, expected {expected}"
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "text, message",
    [
        ("has(a) has(b)", "position 8: found 'has', expected '&&', '||' or the end"),
        ("has(a) )", "position 8: found ')', expected '&&', '||' or the end"),
        ("has('a')", "position 5: found \"'a'\", expected a label"),
        ("has()", "position 5: found ')', expected a label"),
        ("has(a b)", "position 7: found 'b', expected ')'"),
        ("all(a)", "position 5: found 'a', expected ')'"),
        ("some(a)", f"position 5: found '(', expected {OPERATORS}"),
        ("ALL()", f"position 4: found '(', expected {OPERATORS}"),
        ("a contain 'v'", f"position 3: found 'contain', expected {OPERATORS}"),
        ("a not == 'v'", "position 7: found '==', expected 'in' after 'not'"),
        ("a starts 'v'", "position 10: found \"'v'\", expected 'with' after 'starts'"),
        ("a ends", "position 7: found the end, expected 'with' after 'ends'"),
        ("a starts-with 'v'", f"position 3: found 'starts-with', expected {OPERATORS}"),
        ("a '==' 'v'", f"position 3: found \"'=='\", expected {OPERATORS}"),
        ("a = 'v'", f"position 3: found '=', expected {OPERATORS}"),
        ("a === 'v'", "position 5: found '=', expected a literal in quotes"),
        ("a == 'v", 'position 6: found "\'" that is never closed, expected a literal in quotes'),
        ("a in {,}", "position 7: found ',', expected a literal in quotes or '}'"),
        ("a in {'x',,}", "position 11: found ',', expected a literal in quotes or '}'"),
        ("a in {'x' 'y'}", "position 11: found \"'y'\", expected ',' or '}'"),
        ("a in {'x'", "position 10: found the end, expected ',' or '}'"),
        ("a in {", "position 7: found the end, expected a literal in quotes or '}'"),
        ("has(a) && && has(b)", f"position 11: found '&&', expected {TERM}"),
        ("|| has(a)", f"position 1: found '||', expected {TERM}"),
        ("{}", f"position 1: found '{{', expected {TERM}"),
        ("all()\n", "position 6: found '\\n', expected '&&', '||' or the end"),
        ("\u00a0all()", f"position 1: found '\\xa0', expected {TERM}"),
        ("é == 'v'", f"position 1: found 'é', expected {TERM}"),
        ("\ud800", f"position 1: found '\\ud800', expected {TERM}"),
        ("x" * 513, "position 1: found a label of 513 characters, expected at most 512"),
        (f"has( {'x' * 513})", "position 6: found a label of 513 characters, expected at most 512"),
        (f"a {'y' * 24}", f"position 3: found '{'y' * 24}', expected {OPERATORS}"),
        (f"a {'y' * 25}", f"position 3: found '{'y' * 24}...', expected {OPERATORS}"),
    ],
)
def test_a_refusal_says_where_what_was_found_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_a_text_is_read_once() -> None:
    assert parse("a == 'once'") is parse("a == 'once'")


def test_leaves_are_the_terms_from_left_to_right() -> None:
    selector = parse("!(has(a) || global()) && (b == 'v' || !all()) && a in {'x'}")
    assert list(leaf_terms(selector)) == [A, Everything.GLOBAL, equals("b"), Everything.ALL, among("x")]


# --- what reading costs --------------------------------------------------------------------------------------------


def in_parentheses(times: int) -> str:
    return "(" * times + "has(a)" + ")" * times


def alternating(groups: int) -> str:
    """Groups inside one another that need no more than half as many parentheses; the canonical text has them all."""
    text = "has(a) && has(b)"
    for _ in range((groups - 1) // 2):
        text = f"has(a) && ({text} || has(b))"
    return text if groups % 2 else f"{text} || has(b)"


@pytest.mark.parametrize(
    "nested", [in_parentheses(64), "!(" * 64 + "has(a)" + ")" * 64, alternating(63), alternating(64)]
)
def test_64_groups_may_stand_inside_one_another(nested: str) -> None:
    assert set(leaf_terms(parse(nested))) <= {A, B}


@pytest.mark.parametrize(
    "nested, position, found",
    [
        (in_parentheses(65), 65, "'('"),
        (in_parentheses(100_000), 65, "'('"),
        ("(" * 100_000, 65, "'('"),
        ("!(" * 65, 130, "'('"),
        (f"has(a) && {in_parentheses(65)}", 75, "'('"),
        (alternating(65), 1, "groups 65 deep"),
        (alternating(128), 1, "groups 128 deep"),
        (f"has(a) && !({alternating(64)})", 1, "groups 65 deep"),
    ],
)
def test_deeper_is_refused_and_not_run_into(nested: str, position: int, found: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse(nested)
    message = f"position {position}: found {found}, expected at most 64 groups inside one another"
    assert str(caught.value) == message


@pytest.mark.parametrize("joint", [" && ", "||"])
def test_long_chains_are_no_deeper_than_short_ones(joint: str) -> None:
    selector = parse(joint.join(["has(a)"] * 20_000))
    assert isinstance(selector, And | Or)
    assert selector.terms == (A,) * 20_000


def test_any_number_of_negations_is_one_or_none() -> None:
    assert parse("!" * 100_000 + "has(a)") == A
    assert parse("!" * 100_001 + "has(a)") == Not(A)


@pytest.mark.parametrize(
    "text_of",
    [
        lambda n: " && ".join(["has(a)"] * n),
        lambda n: " || ".join(["!(a == 'v' && has(b))"] * n),
        lambda n: f"a in {{{', '.join(repr(str(number)) for number in range(n))}}}",
        lambda n: "!" * n + "has(a)",
        lambda n: "has(a)" + " " * n + "&& has(b)",
        lambda n: "'" + "x" * n,
    ],
    ids=["chain", "groups", "set", "negations", "space", "unclosed"],
)
def test_twice_the_text_is_at_most_twice_the_steps(text_of: Callable[[int], str]) -> None:
    assert steps(text_of(2_000)) <= 2 * steps(text_of(1_000))


def steps(text: str) -> int:
    """Calls made while a text is read: Python's own and those into C, without those of the garbage collector."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()  # whatever is collected meanwhile would be counted
    sys.setprofile(note)
    try:
        parse(text)
    except SelectorError:
        pass  # how far a refused text was read counts as well
    finally:
        sys.setprofile(before)
        gc.enable()
    return count
