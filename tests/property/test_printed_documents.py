"""What the tool prints as YAML and as JSON.

1. Whatever a value is, a terminal obeys nothing in the text.
2. Whoever reads the text gets the value.
"""

import json

from hypothesis import given
from hypothesis import strategies as st

from netplug_cli.ctl.documents import parse_text, render_json, render_json_line, render_yaml

TEXTS = st.text(max_size=12) | st.text("\x1b\x7f\x80\x85\x9b\xa0\u2028\u202e\ufeff\ud800\n\t a:'\"\\\\-#", max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_yaml_is_printable_and_read_as_it_was(value: object) -> None:
    text = render_yaml({"shown": value})
    assert text.replace("\n", "").isprintable()
    assert list(parse_text(text, "a file")) == [{"shown": value}]


@given(VALUES)
def test_json_is_printable_and_read_as_it_was(value: object) -> None:
    text, line = render_json(value), render_json_line(value)
    assert text.replace("\n", "").isprintable()
    assert line[:-1].isprintable()
    assert json.loads(text) == json.loads(line) == value
