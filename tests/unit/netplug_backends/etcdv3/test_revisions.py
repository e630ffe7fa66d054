"""Revisions as texts, and what is none."""

import pytest

from netplug_backends.etcdv3.revisions import Position, find_position, get_position
from netplug_core.errors import ConfigurationError
from netplug_core.records import Revision


@pytest.mark.parametrize(
    "text,position,whole",
    [
        ("1", Position(1), 1),
        ("812", Position(812), 812),
        ("812.1", Position(812, 1), 811),
        ("812@", Position(812, is_old=True), 812),
        ("812.1@", Position(812, 1, is_old=True), 811),
        ("9" * 18, Position(10**18 - 1), 10**18 - 1),
    ],
)
def test_a_text_stands_for_a_position(text: str, position: Position, whole: int) -> None:
    revision = Revision(text)
    assert find_position(revision) == position == get_position(revision, where="it")
    assert (position.revision, position.whole) == (revision, whole)


@pytest.mark.parametrize(
    "text", ["", "abc", "0", "-1", "1.0", "1.", " 1", "٣", "1e3", "@", "1@@", "@1", "1.@", "9" * 19]
)
def test_s4_any_other_text_is_refused_before_a_call(text: str) -> None:
    assert find_position(Revision(text)) is None
    with pytest.raises(ConfigurationError) as caught:
        get_position(Revision(text), where="IPPool(main)")
    assert str(caught.value) == (
        f"IPPool(main): resourceVersion: {text!r} is not accepted; etcd's revisions are numbers from 1"
    )
