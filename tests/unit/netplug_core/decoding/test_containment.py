"""When one JSON value has what another one asks for."""

import pytest

from netplug_core.decoding.members import contains


@pytest.mark.parametrize(
    "found, wanted",
    [
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": {"b": [1, 2], "c": 3}}, {"a": {"b": [1, 2]}}),
        ({}, {"a": "", "b": [], "c": {}, "d": None, "e": {"f": ""}, "g": False}),
        (None, {}),
        ({"a": [{"name": "y"}, {"name": "x", "v": 1}]}, {"a": [{"name": "x"}]}),
        ([{"v": 1, "w": 2}], [{"v": 1}]),
        ((1,), [1]),
        ([{"name": "x", "v": 1}, {"name": "x", "v": 2}], [{"name": "x", "v": 1}, {"name": "x", "v": 2}]),
    ],
)
def test_it_has_it(found: object, wanted: object) -> None:
    assert contains(found, wanted)


@pytest.mark.parametrize(
    "found, wanted",
    [
        ({"a": 1}, {"a": 2}),
        ({}, {"a": 1}),
        ("a", {"a": 1}),
        ("a", ["a"]),
        ({"a": [1, 2]}, {"a": [1]}),
        ({"a": [2, 1]}, {"a": [1, 2]}),
        (None, [1]),
        ([{"name": "y"}], [{"name": "x"}]),
        ([{"name": "x", "v": 1}], [{"name": "x", "v": 2}]),
        (["x"], [{"name": "x"}]),
        ([{"name": "x", "v": 2}], [{"name": "x", "v": 1}, {"name": "x", "v": 2}]),
        (1, True),
        ("", "a"),
    ],
)
def test_it_lacks_it(found: object, wanted: object) -> None:
    assert not contains(found, wanted)
