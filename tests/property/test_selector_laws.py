"""Laws of selectors (V19).

- The canonical text of a selector is a text of that same selector: same tree, same canonical text, same identity.
- Every selector answers for every set of labels, and answers as the truth table says, read as an outsider reads it.
- Negation, and each way to join two selectors, means for whole selectors what it means for truth.
- Any text at all is read or refused, and a refusal points into the text or just behind it.
- A person may type a selector of a pool where Kubernetes' label selectors are taken: it selects the same.
"""

import re
from collections.abc import Callable, Mapping

from attrs import frozen
from hypothesis import example, given
from hypothesis import strategies as st

from netplug_core.selectors import (
    SELECTOR_PARENTHESES,
    SELECTOR_PATTERN,
    Selector,
    SelectorError,
    canonical_text,
    matches,
    parse,
    parse_either,
    selector_uid,
)
from netplug_core.testing.strategies import label_sets, selectors

Labels = Mapping[str, str]

PIECES = (
    "a", "b", "has", "all", "global", "in", "not", "notin", "starts", "with", "contains", "endswith", "!", "(", ")",
    "&&", "||", "&", "|", "==", "!=", "=", "{", "}", ",", "'", '"', "''", '"v"', "'v'", " ", "\t", "\n", "%", "é",
)  # fmt: skip
POSITION = re.compile(r"position (\d+): found .+, expected .+", re.DOTALL)

pieces = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A selector with a stretch of it replaced by something else, or by nothing."""
    text = draw(selectors())
    start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    return text[:start] + draw(pieces) + text[end:]


def read(text: str) -> Selector | str:
    """The tree, or what the refusal says."""
    try:
        return parse(text)
    except SelectorError as error:
        return str(error)


any_text = st.one_of(st.text(), st.text(st.characters()), pieces, damaged())


@given(text=selectors(), labels=label_sets())
def test_the_canonical_text_is_the_same_selector(text: str, labels: Labels) -> None:
    selector = parse(text)
    again = parse(canonical_text(selector))
    assert again == selector
    assert canonical_text(again) == canonical_text(selector)
    assert selector_uid(again) == selector_uid(selector)
    assert matches(again, labels) is matches(selector, labels)


@given(one=selectors(), other=selectors())
def test_different_selectors_have_different_canonical_texts(one: str, other: str) -> None:
    are_same = canonical_text(parse(one)) == canonical_text(parse(other))
    assert are_same is (parse(one) == parse(other))
    assert are_same is (selector_uid(parse(one)) == selector_uid(parse(other)))


@given(one=selectors(), other=selectors(), labels=label_sets())
def test_joining_texts_joins_what_they_mean(one: str, other: str, labels: Labels) -> None:
    # Nothing between parentheses is no expression, so text that is blank stands as what it means.
    one, other = one.strip() or "all()", other.strip() or "all()"
    first, second = matches(parse(one), labels), matches(parse(other), labels)
    assert matches(parse(f"!({one})"), labels) is not first
    assert matches(parse(f"!!({one})"), labels) is first
    assert matches(parse(f"({one}) && ({other})"), labels) is (first and second)
    assert matches(parse(f"({one}) || ({other})"), labels) is (first or second)
    assert matches(parse(f"{one} || {other}"), labels) is (first or second)


@given(text=any_text, labels=label_sets())
@example(text="(" * 1000, labels={})
@example(text="a == '" * 1000, labels={})
def test_any_text_is_read_or_refused(text: str, labels: Labels) -> None:
    outcome = read(text)
    if isinstance(outcome, str):
        where = POSITION.fullmatch(outcome)
        assert where, outcome
        assert 1 <= int(where[1]) <= len(text) + 1
    else:
        assert matches(outcome, labels) in (True, False)
        assert parse(canonical_text(outcome)) == outcome


@given(
    mixed=st.integers(26, 34),
    others=st.integers(0, 14),
    around=st.sampled_from(["({})", "!({})", "has(b) && ({})", "({}) || has(b)"]),
    labels=label_sets(),
)
@example(mixed=32, others=0, around="({})", labels={})
@example(mixed=32, others=1, around="!({})", labels={})
@example(mixed=31, others=3, around="has(b) && ({})", labels={})
def test_what_is_accepted_near_the_limit_has_a_canonical_text_that_is(
    mixed: int, others: int, around: str, labels: Labels
) -> None:
    text = "has(a)"
    for _ in range(mixed):
        text = f"has(in) || has(all) && ({text})"
    for _ in range(others):
        text = around.format(text)
    outcome = read(text)
    if isinstance(outcome, str):
        assert outcome.endswith("expected at most 64 groups inside one another")
    else:
        assert parse(canonical_text(outcome)) == outcome
        assert matches(outcome, labels) in (True, False)


# --- the truth table, by another hand ------------------------------------------------------------------------------


@frozen
class Judged:
    """A text, and what it should say of labels."""

    text: str
    holds: Callable[[Labels], bool]


def compared(label: str, form: str, literal: str) -> Judged:
    """One comparison, and its line of the table."""
    table: dict[str, Callable[[Labels], bool]] = {
        "==": lambda labels: label in labels and labels[label] == literal,
        "!=": lambda labels: label not in labels or labels[label] != literal,
        "contains": lambda labels: label in labels and literal in labels[label],
        "starts with": lambda labels: label in labels and labels[label][: len(literal)] == literal,
        "ends with": lambda labels: label in labels and labels[label][::-1][: len(literal)] == literal[::-1],
        "in": lambda labels: label in labels and labels[label] in {literal, "zone"},
        "not in": lambda labels: label not in labels or labels[label] not in {literal, "zone"},
    }
    quoted = f"'{literal}'" if '"' in literal else f'"{literal}"'
    operand = f"{{{quoted}, 'zone'}}" if form in {"in", "not in"} else quoted
    return Judged(f"{label} {form} {operand}", table[form])


def negated(one: Judged) -> Judged:
    return Judged(f"!{one.text}", lambda labels: not one.holds(labels))


def disjunction(ors: list[list[Judged]]) -> Judged:
    text = " || ".join(" && ".join(one.text for one in ands) for ands in ors)
    return Judged(text, lambda labels: any(all(one.holds(labels) for one in ands) for ands in ors))


def grouped(one: Judged) -> Judged:
    return Judged(f"({one.text})", one.holds)


simple = st.one_of(
    st.just(Judged("all()", lambda _labels: True)),
    st.sampled_from(["a", "in"]).map(lambda label: Judged(f"has({label})", lambda labels: label in labels)),
    st.builds(
        compared,
        st.sampled_from(["a", "b", "in", "has"]),
        st.sampled_from(["==", "!=", "contains", "starts with", "ends with", "in", "not in"]),
        st.sampled_from(["", "a", "ab", "b", "zone", "it's", '"']),
    ),
)
terms = st.recursive(
    simple,
    lambda inner: st.one_of(
        inner.map(negated),
        st.lists(st.lists(inner, min_size=1, max_size=3), min_size=1, max_size=3).map(disjunction).map(grouped),
    ),
    max_leaves=10,
)


@given(
    judged=st.lists(st.lists(terms, min_size=1, max_size=3), min_size=1, max_size=3).map(disjunction),
    labels=st.lists(label_sets(), min_size=1, max_size=5),
)
def test_a_selector_says_what_the_truth_table_says(judged: Judged, labels: list[Labels]) -> None:
    selector = parse(judged.text)
    assert [matches(selector, each) for each in labels] == [judged.holds(each) for each in labels]


@given(text=selectors())
def test_a_selector_of_a_pool_may_be_typed_where_kubernetes_selectors_are(text: str) -> None:
    assert parse_either(text) == parse(text)


@given(text=any_text)
def test_any_text_that_is_typed_is_read_or_refused_with_its_position(text: str) -> None:
    try:
        selector = parse_either(text)
    except SelectorError as error:
        found = POSITION.fullmatch(str(error))
        assert found
        assert 1 <= int(found[1]) <= len(text) + 1
    else:
        assert parse(canonical_text(selector)) == selector


@given(text=selectors())
def test_the_pattern_of_the_definitions_matches_every_selector(text: str) -> None:
    parse(text)
    assert re.fullmatch(SELECTOR_PATTERN, text)
    parentheses = re.findall(SELECTOR_PARENTHESES, text)
    assert parentheses.count("(") == parentheses.count(")")


@given(text=any_text | selectors().map(lambda text: text.replace("=", "", 1)))
@example(text="zone = 'a'")
@example(text="zone in {'a'")
@example(text="all)(")
def test_what_the_pattern_matches_is_a_selector_but_for_its_parentheses(text: str) -> None:
    if re.fullmatch(SELECTOR_PATTERN, text) and not {"(", ")"} & set(text):
        assert not isinstance(read(text), str)
    assert not re.fullmatch(SELECTOR_PATTERN, "zone = 'a'")
