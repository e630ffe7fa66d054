"""The paths of jsonpath and of custom columns: what they find, and what is refused."""

import json

import pytest

from netplug_cli.ctl.outputs import PathError, format_value, parse_path

VALUE = {
    "metadata": {"name": "a", "labels": {"kubernetes.io/os": "linux", "it's": "odd"}},
    "items": [{"n": 1}, {"n": 2}, {}, "text"],
    "big": 9007199254740993,
    "none": None,
}


@pytest.mark.parametrize(
    "path, found",
    [
        (".", [VALUE]),
        ("$", [VALUE]),
        ("@.", [VALUE]),
        (".metadata.name", ["a"]),
        ("$.metadata.name", ["a"]),
        ("@['metadata']['name']", ["a"]),
        ('["metadata"].name', ["a"]),
        (r".metadata.labels.kubernetes\.io/os", ["linux"]),
        (".metadata.labels['kubernetes.io/os']", ["linux"]),
        (r".metadata.labels['it\'s']", ["odd"]),
        (".items[0].n", [1]),
        (".items[-3].n", [2]),
        (".items[*].n", [1, 2]),
        (".items.*.n", [1, 2]),
        (".metadata.labels.*", ["linux", "odd"]),
        (".metadata[*][*]", ["linux", "odd"]),
        (".big", [9007199254740993]),
        (".none", [None]),
        (".none.more", []),
        (".items[4]", []),
        (".items[-5]", []),
        (".items.n", []),
        (".metadata[0]", []),
        (".metadata.name[*]", []),
        (".missing", []),
        (".a-b/c!=ü", []),
    ],
)
def test_what_a_path_finds(path: str, found: list[object]) -> None:
    assert parse_path(path).select(VALUE) == found


@pytest.mark.parametrize(
    "path, problem",
    [
        ("", "position 1: found nothing"),
        ("name", "position 1: found 'name'"),
        (".a.", "position 3: found '.'"),
        (".a..b", "position 3: '..b' begins a search through all levels, which is not offered"),
        (".items[?(@.n==1)].n", "position 7: '[?(@.n==1)].n' begins a filter, which is not offered"),
        (".items[0:2]", "position 7: '[0:2]' begins a slice, which is not offered"),
        (".items[0,1]", "position 7: '[0,1]' begins a union, which is not offered"),
        (".items[1.5]", "position 7: found '[1.5]'"),
        (".items[0", "position 7: found '[0'"),
        (".items[1234567890]", "position 7: found '[1234567890]'"),
        (".a()", "position 3: found '()'"),
        (".a['b]", 'position 3: found "[\'b]"'),
        ("$$.a", "position 2: found '$.a'"),
        (f".a(){'b' * 50}", f"position 3: found '(){'b' * 18}...'"),
    ],
)
def test_what_a_path_cannot_have(path: str, problem: str) -> None:
    with pytest.raises(PathError) as caught:
        parse_path(path)
    accepted = "; a path is made of .name, ['name'], [0], [-1] for the last item, [*] and .*"
    assert str(caught.value) == problem + accepted


def test_a_position_counts_from_where_the_path_begins() -> None:
    with pytest.raises(PathError, match=r"^position 13: found"):
        parse_path(".a[b]", offset=10)


@pytest.mark.parametrize(
    "value, text",
    [
        ("a b", "a b"),
        ("two\nlines\tand\x1b[31m\x9b", "two\nlines\tand\\x1b[31m\\x9b"),
        (True, "true"),
        (None, ""),
        (9007199254740993, "9007199254740993"),
        (1.5, "1.5"),
        ({"a": ["ü", None]}, '{"a":["ü",null]}'),
        ([], "[]"),
    ],
)
def test_a_value_as_text(value: object, text: str) -> None:
    assert format_value(value) == text


def test_control_characters_inside_an_object_stay_json() -> None:
    text = format_value({"a": "\x9b31m\x1b"})
    assert text.isprintable()
    assert json.loads(text) == {"a": "\x9b31m\x1b"}
