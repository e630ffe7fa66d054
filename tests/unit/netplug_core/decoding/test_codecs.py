"""What the codecs of single values accept, and how they refuse the rest."""

import enum

import pytest

from netplug_core.addressing import Address, Prefix
from netplug_core.decoding import codecs
from netplug_core.decoding.codecs import Codec, JSONType, Refused, WrongType, checked, enum_codec


class Colour(enum.Enum):
    RED = "Red"
    BLUE = "Blue"


@pytest.mark.parametrize(
    "codec,json_value,value",
    [
        (codecs.TEXT, "", ""),
        (codecs.TEXT, "пароль🔑\0", "пароль🔑\0"),
        (codecs.STRING, "пароль🔑", "пароль🔑"),
        (codecs.BOOLEAN, False, False),
        (codecs.INTEGER, -(2**40), -(2**40)),
        (codecs.UINT32, 2**32 - 1, 2**32 - 1),
        (codecs.NONNEGATIVE_INTEGER, 0, 0),
        (codecs.ADDRESS, "fd00::1", Address.parse("fd00::1")),
        (codecs.PREFIX, "10.0.0.0/24", Prefix.parse("10.0.0.0/24")),
        (codecs.TIME, "1970-01-01T00:00:01Z", 10**9),
        (codecs.TEXT_MAP, {"a": "1", "b": ""}, (("a", "1"), ("b", ""))),
        (codecs.OBJECT, {"a": 1}, {"a": 1}),
        (enum_codec(Colour), "Red", Colour.RED),
    ],
)
def test_a_value_goes_in_and_comes_out_again(codec: Codec[object], json_value: object, value: object) -> None:
    assert codec.decode(json_value) == value
    assert codec.encode(value) == json_value


@pytest.mark.parametrize(
    "codec,value,expected",
    [
        (codecs.TEXT, 1, JSONType.STRING),
        (codecs.TEXT, "a\ud800", JSONType.UTF8),
        (codecs.NONEMPTY_TEXT, "\udcff", JSONType.UTF8),
        (codecs.STRING, False, JSONType.STRING),
        (codecs.STRING, "a\0b", JSONType.UTF8),
        (codecs.STRING, "a\udcff", JSONType.UTF8),
        (codecs.NONEMPTY_STRING, [], JSONType.STRING),
        (codecs.BOOLEAN, 0, JSONType.BOOLEAN),
        (codecs.BOOLEAN, "true", JSONType.BOOLEAN),
        (codecs.INTEGER, True, JSONType.INTEGER),
        (codecs.INTEGER, 2.0, JSONType.INTEGER),
        (codecs.UINT32, 2**32, JSONType.UINT32),
        (codecs.UINT32, -1, JSONType.UINT32),
        (codecs.UINT32, True, JSONType.UINT32),
        (codecs.OBJECT, [], JSONType.OBJECT),
        (codecs.TEXT_MAP, [], JSONType.TEXT_MAP),
        (codecs.TEXT_MAP, {1: "a"}, JSONType.TEXT_KEYS),
        (codecs.TEXT_MAP, {"a": 1}, JSONType.STRING),
        (codecs.TEXT_MAP, {"\ud800": "a"}, JSONType.UTF8),
        (codecs.STRING_MAP, {"a": "\0"}, JSONType.UTF8),
    ],
)
def test_a_value_of_another_type_is_refused(codec: Codec[object], value: object, expected: JSONType) -> None:
    with pytest.raises(WrongType) as refusal:
        codec.decode(value)
    assert refusal.value.expected is expected


@pytest.mark.parametrize(
    "codec,value,accepted",
    [
        (codecs.NONEMPTY_TEXT, "", "a name"),
        (codecs.NONEMPTY_STRING, "", "is missing or empty"),
        (codecs.NONEMPTY_STRING, None, "is missing or empty"),
        (codecs.NONNEGATIVE_INTEGER, -1, "a whole number of at least 0"),
        (codecs.ADDRESS, "10.0.0.1/8", "an IP address"),
        (codecs.PREFIX, "10.0.0.1/33", "a CIDR or an IP address"),
        (codecs.PREFIX, "10.0.0.1/24", "a CIDR without host bits (10.0.0.0/24)"),
        (codecs.TIME, "yesterday", "a time such as 2026-08-20T10:00:00Z"),
        (enum_codec(Colour), "Green", "one of Red, Blue"),
    ],
)
def test_a_value_that_cannot_be_read_is_refused(codec: Codec[object], value: object, accepted: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as refusal:
        codec.decode(value)
    assert str(refusal.value) == accepted


def test_a_checked_codec_refuses_values_outside_its_set() -> None:
    codec = checked(codecs.INTEGER, range(5, 9).__contains__, "5 to 8")
    assert [codec.decode(value) for value in (0, 5, 8)] == [0, 5, 8]
    with pytest.raises(Refused) as refusal:
        codec.decode(9)
    assert (refusal.value.accepted, refusal.value.value) == ("5 to 8", 9)


def test_an_empty_value_can_be_outside_the_set_too() -> None:
    codec = checked(codecs.STRING, str.isdigit, "digits", is_empty_accepted=False)
    with pytest.raises(Refused):
        codec.decode("")
