"""JSON text is read strictly: one text means the same to every reader."""

import pytest

from netplug_core.decoding.json_text import parse_json_object
from netplug_core.errors import DecodeError


def test_an_object_is_read() -> None:
    assert parse_json_object('{"a": {"b": [1, null]}}', "here") == {"a": {"b": [1, None]}}


@pytest.mark.parametrize(
    "text,problem",
    [
        ("[]", "must be a JSON object"),
        ('{"a": 1, "a": 2}', "is not JSON: the key 'a' stands twice in one object"),
        ('{"a": NaN}', "is not JSON: NaN is no JSON number"),
        ('{"a": Infinity}', "is not JSON: Infinity is no JSON number"),
        ("[" * 100_000, "is nested too deeply"),
        ("{", "is not JSON: "),
    ],
)
def test_other_texts_are_refused(text: str, problem: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        parse_json_object(text, "here")
    assert str(refusal.value).startswith(f"here: {problem}")
