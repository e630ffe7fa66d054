"""What is taken from foreign JSON, and how a wrong type is reported."""

from collections.abc import Callable

import pytest

from netplug_core.addressing import Address, Prefix
from netplug_core.decoding.members import JSONObject
from netplug_core.errors import DecodeError

EMPTY = JSONObject.of({"null": None}, "here")


def reading(key: str, value: object) -> JSONObject:
    return JSONObject.of({key: value}, "here")


@pytest.mark.parametrize("key", ["null", "missing"])
def test_null_and_absence_are_the_same(key: str) -> None:
    assert EMPTY.optional_string(key) == ""
    assert EMPTY.optional_uint32(key) is None
    assert EMPTY.optional_integer(key) is None
    assert EMPTY.optional_boolean(key) is None
    assert EMPTY.optional_address(key) is None
    assert EMPTY.optional_object(key) is None
    assert EMPTY.object_list(key) == ()
    assert EMPTY.string_list(key) == ()


def test_members_are_read_with_their_place() -> None:
    top = JSONObject.of({"a": {"b": [{"c": "text"}]}, "n": 0, "t": ["x", "y"], "ip": "fd00::1"}, "top")
    child = top.optional_object("a")
    assert child is not None
    (item,) = child.object_list("b")
    assert item == JSONObject("top.a.b[0]", {"c": "text"})
    assert item.required_string("c") == "text"
    assert top.optional_uint32("n") == 0
    assert top.optional_integer("n") == 0
    assert top.string_list("t") == ("x", "y")
    assert top.optional_address("ip") == Address.parse("fd00::1")


@pytest.mark.parametrize("value", [-3, 0, 2**40])
def test_an_integer_has_any_size_and_sign(value: int) -> None:
    assert reading("k", value).optional_integer("k") == value


@pytest.mark.parametrize("value", [True, False])
def test_a_flag_is_true_or_false(*, value: bool) -> None:
    assert reading("k", value).optional_boolean("k") is value


def test_an_empty_address_is_none() -> None:
    assert reading("gw", "").optional_address("gw") is None


@pytest.mark.parametrize(
    "text,address,prefix",
    [
        ("10.0.0.5/24", "10.0.0.5", "10.0.0.0/24"),
        ("10.65.0.5/32", "10.65.0.5", "10.65.0.5/32"),
        ("fd00::5/64", "fd00::5", "fd00::/64"),
    ],
)
def test_a_cidr_is_an_address_and_its_prefix(text: str, address: str, prefix: str) -> None:
    assert reading("dst", text).cidr("dst") == (Address.parse(address), Prefix.parse(prefix))


@pytest.mark.parametrize(
    "value,read,message",
    [
        (1, lambda m: m.optional_string("k"), "here.k: must be a string"),
        (False, lambda m: m.optional_string("k"), "here.k: must be a string"),
        ("", lambda m: m.required_string("k"), "here.k: is missing or empty"),
        (None, lambda m: m.required_string("k"), "here.k: is missing or empty"),
        (True, lambda m: m.optional_uint32("k"), "here.k: must be an integer from 0 to 4294967295"),
        (2.0, lambda m: m.optional_uint32("k"), "here.k: must be an integer from 0 to 4294967295"),
        ("2", lambda m: m.optional_uint32("k"), "here.k: must be an integer from 0 to 4294967295"),
        (-1, lambda m: m.optional_uint32("k"), "here.k: must be an integer from 0 to 4294967295"),
        (2**32, lambda m: m.optional_uint32("k"), "here.k: must be an integer from 0 to 4294967295"),
        (True, lambda m: m.optional_integer("k"), "here.k: must be an integer"),
        (2.0, lambda m: m.optional_integer("k"), "here.k: must be an integer"),
        ("2", lambda m: m.optional_integer("k"), "here.k: must be an integer"),
        (0, lambda m: m.optional_boolean("k"), "here.k: must be true or false"),
        ("true", lambda m: m.optional_boolean("k"), "here.k: must be true or false"),
        ("10.0.0.1/8", lambda m: m.optional_address("k"), "here.k: '10.0.0.1/8' is not an IP address"),
        (
            "10.0.0.1",
            lambda m: m.cidr("k"),
            "here.k: '10.0.0.1' has no prefix length; address/length is expected",
        ),
        (None, lambda m: m.cidr("k"), "here.k: is missing or empty"),
        ("10.0.0.1/33", lambda m: m.cidr("k"), "here.k: '10.0.0.1/33' is not a CIDR"),
        ("x/8", lambda m: m.cidr("k"), "here.k: 'x' is not an IP address"),
        ([], lambda m: m.optional_object("k"), "here.k: must be an object"),
        ({}, lambda m: m.object_list("k"), "here.k: must be an array"),
        ([1], lambda m: m.object_list("k"), "here.k[0]: must be an object"),
        (["a", 1], lambda m: m.string_list("k"), "here.k[1]: must be a string"),
    ],
)
def test_a_wrong_member_is_refused_by_its_place(
    value: object, read: Callable[[JSONObject], object], message: str
) -> None:
    with pytest.raises(DecodeError) as refusal:
        read(reading("k", value))
    assert str(refusal.value) == message


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "a\udcff"])
def test_texts_that_nobody_could_take_are_refused(text: str) -> None:
    for read in (lambda: reading("k", text).optional_string("k"), lambda: reading("k", [text]).string_list("k")):
        with pytest.raises(DecodeError, match=r"here\.k.* must be a text in UTF-8 without NUL"):
            read()
