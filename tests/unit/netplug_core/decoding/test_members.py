"""Copies of an object with another value at one place."""

import pytest

from netplug_core.decoding.members import find_at, find_steps, with_member

WHOLE = {"a": {"b": [{"c": 1}, {"c": 2}]}, "d": "text"}


@pytest.mark.parametrize(
    "path, value, wanted",
    [
        (("a", "b", 1, "c"), 7, {"a": {"b": [{"c": 1}, {"c": 7}]}, "d": "text"}),
        (("a", "b", 0, "c"), None, {"a": {"b": [{}, {"c": 2}]}, "d": "text"}),
        (("d",), None, {"a": {"b": [{"c": 1}, {"c": 2}]}}),
        (("a", "b", 5, "c"), 7, WHOLE),
        (("d", "e"), 7, WHOLE),
        (("x",), 7, WHOLE),
    ],
)
def test_a_member_is_replaced_or_left_out(path: tuple[str | int, ...], value: object, wanted: object) -> None:
    assert with_member(WHOLE, path, value) == wanted


def test_the_object_itself_stays() -> None:
    with_member(WHOLE, ("a", "b", 1, "c"), 7)
    assert WHOLE == {"a": {"b": [{"c": 1}, {"c": 2}]}, "d": "text"}


def test_a_member_is_found() -> None:
    assert find_at(WHOLE, ("a", "b", 1, "c")) == 2
    assert find_at(WHOLE, ("a", "b", 5, "c")) is None
    assert find_at(WHOLE, ("a", "b", "c")) is None
    assert find_at(WHOLE, ("d", "e")) is None
    assert find_at(WHOLE, ()) is WHOLE


@pytest.mark.parametrize(
    "path, steps",
    [
        ("", ()),
        ("a", ("a",)),
        (".a.b[1].c", ("a", "b", 1, "c")),
        ("a.d[x.y]", ("a", "d", "x.y")),
        ("a.d['x.y']", ("a", "d", "x.y")),
        ("a.missing.more", ("a",)),
        ("a.b[7]", ("a", "b")),
        ("a.bc", ("a",)),
    ],
)
def test_the_steps_of_an_errors_path(path: str, steps: tuple[str | int, ...]) -> None:
    whole = {"a": {"b": [1, {"c": 2}], "d": {"x.y": 3}}}
    assert find_steps(whole, path) == steps
