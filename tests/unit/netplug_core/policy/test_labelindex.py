"""Which selectors select which objects, after any change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.policy.labelindex import LabelIndex, effective_labels
from netplug_core.selectors import matches, parse
from netplug_core.testing.strategies import label_sets, selectors


class Recorder:
    """An index that remembers what it said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.index: LabelIndex[str, str] = LabelIndex(lambda item, selector: self.said.append((item, selector)))

    def take(self) -> list[tuple[str, str]]:
        said, self.said = sorted(self.said), []
        return said

    def items_of(self, selector: str) -> list[str]:
        return sorted(self.index.items_of(selector))


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def test_own_labels_come_before_inherited_ones_and_those_before_of_later_parents() -> None:
    labels_of = {"p": {"a": "p", "b": "p", "c": "p"}, "q": {"b": "q", "d": "q"}}
    assert effective_labels((("a", "own"),), ("p", "gone", "q"), labels_of) == {
        "a": "own",
        "b": "p",
        "c": "p",
        "d": "q",
    }


def test_a_selector_selects_what_is_there_and_what_comes(recorder: Recorder) -> None:
    index = recorder.index
    index.set_item("i", (("a", "x"),))
    index.add_selector("s", parse("a == 'x'"))
    assert recorder.take() == [("i", "s")]
    index.set_item("j", (("a", "x"), ("b", "y")))
    index.set_item("k", (("a", "z"),))
    assert recorder.take() == [("j", "s")]
    assert recorder.items_of("s") == ["i", "j"]
    assert index.selectors_of("j") == {"s"}
    assert index.selectors_of("k") == index.selectors_of("unknown") == set()
    assert index.has_selector("s")
    assert not index.has_selector("t")
    assert index.has_matches("s")


def test_a_change_of_labels_says_only_what_begins_or_ends(recorder: Recorder) -> None:
    index = recorder.index
    index.add_selector("s", parse("a == 'x'"))
    index.add_selector("t", parse("has(a)"))
    index.add_selector("u", parse("!has(a)"))
    index.set_item("i", (("a", "x"),))
    recorder.take()
    index.set_item("i", (("a", "y"),))
    assert recorder.take() == [("i", "s")]
    index.set_item("i", (("a", "y"),))
    assert recorder.take() == []
    index.set_item("i", ())
    assert recorder.take() == [("i", "t"), ("i", "u")]
    index.remove_item("i")
    index.remove_item("i")
    assert recorder.take() == [("i", "u")]
    assert not index.has_matches("u")


def test_labels_of_a_parent_touch_its_children_only(recorder: Recorder) -> None:
    index = recorder.index
    index.add_selector("s", parse("team == 'red'"))
    index.set_item("i", (), ("p",))
    index.set_item("j", (("team", "red"),), ("p", "q"))
    index.set_item("k", (), ())
    assert recorder.take() == [("j", "s")]
    index.set_parent("p", (("team", "red"),))
    assert recorder.take() == [("i", "s")]
    index.set_parent("p", (("team", "red"),))
    assert recorder.take() == []
    index.add_selector("t", parse("team == 'red' && has(team)"))
    assert recorder.items_of("t") == ["i", "j"]
    recorder.take()
    index.set_parent("p", (("team", "blue"),))
    assert recorder.take() == [("i", "s"), ("i", "t")]
    index.set_parent("p", ())
    assert recorder.items_of("s") == ["j"]


def test_what_is_said_comes_before_the_change() -> None:
    seen: list[set[str]] = []

    def look(item: str, selector: str) -> None:
        del selector
        seen.append(set(index.selectors_of(item)))

    index: LabelIndex[str, str] = LabelIndex(look)
    index.set_item("i", (("a", "x"),), ("p",))
    index.add_selector("s", parse("a == 'x'"))
    index.set_item("i", (), ("p",))
    index.set_parent("p", (("a", "x"),))
    index.remove_selector("s")
    assert seen == [set(), {"s"}, set(), {"s"}]


def test_a_selector_that_is_removed_selects_nothing(recorder: Recorder) -> None:
    index = recorder.index
    index.set_item("i", (("a", "x"),))
    for name, text in (("s", "a in {'x', 'y'}"), ("t", "all()"), ("u", "a == 'x' || has(b)")):
        index.add_selector(name, parse(text))
    recorder.take()
    for name in "stu":
        index.remove_selector(name)
    assert recorder.take() == [("i", "s"), ("i", "t"), ("i", "u")]
    assert index.selectors_of("i") == set()
    index.set_item("j", (("a", "x"), ("b", "")))
    assert recorder.take() == []


TEXTS = (
    "", "a == 'x'", "a != 'x'", "has(a)", "!has(a)", "a in {'x', 'y'}", "a not in {'x'}", "a contains 'x'",
    "a starts with 'x' && b == 'y'", "a == 'x' && b == 'y' && has(c)", "a == 'x' || b == 'y'", "a == 'x' || !has(b)",
    "(a == 'x' || has(b)) && c != ''", "has(a) && has(b)", "(a == 'x' && b == 'y') || has(c)", "a in {}",
)  # fmt: skip
LABELS = ((), (("a", "x"),), (("a", "y"), ("b", "y")), (("a", "x"), ("b", "y"), ("c", "")), (("b", ""),), (("c", "z"),))
PARENTS: tuple[tuple[str, ...], ...] = ((), ("p",), ("p", "q"), ("gone",))


def _expected(text: str, labels_of: dict[str, dict[str, str]]) -> Iterator[str]:
    for number, labels in enumerate(LABELS):
        for parents in PARENTS:
            if matches(parse(text), effective_labels(labels, parents, labels_of)):
                yield f"{number} {parents}"


@pytest.mark.parametrize("is_selector_first", [False, True])
@pytest.mark.parametrize("text", TEXTS)
def test_every_shape_of_selector_is_found_from_both_sides(text: str, *, is_selector_first: bool) -> None:
    index = Recorder().index
    labels_of = {"p": {"a": "x", "c": ""}, "q": {"b": "y"}}
    for name, applied in labels_of.items():
        index.set_parent(name, tuple(applied.items()))
    if is_selector_first:
        index.add_selector("s", parse(text))
    for number, labels in enumerate(LABELS):
        for parents in PARENTS:
            index.set_item(f"{number} {parents}", labels, parents)
    if not is_selector_first:
        index.add_selector("s", parse(text))
    assert sorted(index.items_of("s")) == sorted(_expected(text, labels_of))
    index.set_parent("p", (("a", "y"),))
    assert sorted(index.items_of("s")) == sorted(_expected(text, {**labels_of, "p": {"a": "y"}}))


@given(st.lists(label_sets(), max_size=5), st.lists(selectors(), max_size=4))
def test_any_selector_selects_what_it_matches(objects: list[dict[str, str]], texts: list[str]) -> None:
    index = Recorder().index
    for number, labels in enumerate(objects[::2]):
        index.set_item(f"{2 * number}", tuple(sorted(labels.items())))
    for number, text in enumerate(texts):
        index.add_selector(f"{number}", parse(text))
    for number, labels in enumerate(objects[1::2]):
        index.set_item(f"{2 * number + 1}", tuple(sorted(labels.items())))
    for number, text in enumerate(texts):
        found = {f"{place}" for place, labels in enumerate(objects) if matches(parse(text), labels)}
        assert set(index.items_of(f"{number}")) == found
