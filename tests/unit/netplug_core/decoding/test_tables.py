"""Objects are read and written by tables: paths in errors, unknown members, defaults, and what errors show."""

from collections.abc import Mapping

import pytest
from attrs import Factory, define, field, frozen

from netplug_core.decoding.codecs import BOOLEAN, INTEGER, NONEMPTY_STRING, STRING, TEXT, Codec, Refused, checked
from netplug_core.decoding.tables import (
    Decoder,
    DocumentOrigin,
    Field,
    ListOf,
    MalformedField,
    Table,
    UnknownField,
    cni_error,
    document_error,
    find_member,
    find_object,
)
from netplug_core.errors import ConfigurationError, DecodeError, redact_url_credentials

SECRET = "hunter2"  # noqa: S105  # planted, to be searched for


@frozen(kw_only=True)
class Door:
    colour: str
    locks: int = 1
    unknown_json: str = ""


@frozen(kw_only=True)
class House:
    name: str
    doors: tuple[Door, ...] = ()
    front: Door | None = None
    key: str = field(default="", repr=False)
    website: str = field(default="", repr=lambda value: repr(redact_url_credentials(value)))
    is_old: bool = False
    street: str = ""
    unknown_json: str = ""


@frozen(kw_only=True)
class Bare:
    name: str


DOORS: Mapping[str, Field] = {
    "colour": Field("colour", TEXT),
    "locks": Field("numberOfLocks", checked(INTEGER, range(10).__contains__, "0 to 9 are accepted")),
}
HOUSES: Mapping[str, Field] = {
    "name": Field("name", NONEMPTY_STRING),
    "doors": Field("doors", ListOf(Door)),
    "front": Field("front", Door),
    "key": Field("key", STRING),
    "website": Field("website", STRING),
    "is_old": Field("isOld", BOOLEAN, is_always_written=True),
    "street": Field(("address", "street"), STRING, alternatives=(Field("street", STRING),), is_unset_if_empty=True),
}
TABLES: tuple[Table[object], ...] = (
    Table(cls=House, fields=HOUSES, ignored=("kind",)),
    Table(cls=Door, fields=DOORS),
)
CNI = Decoder(TABLES, cni_error)
LENIENT = Decoder(TABLES, cni_error, defaults_if_refused=True)
USER = Decoder(TABLES, document_error, DocumentOrigin.USER)
STORE = Decoder(TABLES, document_error, DocumentOrigin.DATASTORE)


def read(**members: object) -> House:
    return CNI.decode({"name": "h", **members}, House, "here")


def test_members_become_attributes() -> None:
    house = read(doors=[{"colour": "red", "numberOfLocks": 2}, {"colour": ""}], front={"colour": "blue"}, isOld=True)
    assert house.doors == (Door(colour="red", locks=2), Door(colour=""))
    assert house.front == Door(colour="blue")
    assert house.is_old


def test_null_is_absence_and_an_absent_member_has_the_default() -> None:
    assert read(doors=None, front=None, key=None, isOld=None, address=None) == House(name="h")


def test_a_member_may_stand_in_an_inner_object_or_in_the_place_of_old() -> None:
    assert read(address={"street": "new"}, street="old").street == "new"
    assert read(address={"street": ""}, street="old").street == "old"
    assert read(address={}, street="old").street == "old"


@pytest.mark.parametrize(
    "members,message",
    [
        ({"name": 1}, "here.name: must be a string"),
        ({"name": ""}, "here.name: is missing or empty"),
        ({"doors": {}}, "here.doors: must be an array"),
        ({"doors": "abc"}, "here.doors: must be an array"),
        ({"doors": [{"colour": "red"}, 1]}, "here.doors[1]: must be an object"),
        ({"doors": [{"colour": "red"}, {"colour": []}]}, "here.doors[1].colour: must be a string"),
        ({"front": {"colour": "\ud800"}}, "here.front.colour: must be a text in UTF-8 without NUL"),
        ({"address": "x"}, "here.address: must be an object"),
        ({"address": {"street": 5}}, "here.address.street: must be a string"),
        ({"street": 5}, "here.street: must be a string"),
        ({"isOld": "true"}, "here.isOld: must be true or false"),
    ],
)
def test_a_wrong_member_is_refused_by_its_path(members: dict[str, object], message: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        read(**members)
    assert str(refusal.value) == message


def test_what_is_read_must_be_an_object() -> None:
    with pytest.raises(DecodeError, match=r"^here: must be an object$"):
        CNI.decode([], House, "here")


def test_a_value_outside_its_set_is_refused_or_counts_as_not_set() -> None:
    members = {"name": "h", "front": {"colour": "red", "numberOfLocks": 10}}
    with pytest.raises(ConfigurationError) as refusal:
        CNI.decode(members, House, "here")
    assert str(refusal.value) == "here.front.numberOfLocks: 10 is not accepted; 0 to 9 are accepted"
    assert LENIENT.decode(members, House, "here").front == Door(colour="red")
    with pytest.raises(DecodeError):
        LENIENT.decode({"name": "h", "front": {"colour": "red", "numberOfLocks": "10"}}, House, "here")


def test_a_stored_object_without_a_place_for_unknown_members_loses_them() -> None:
    tables: tuple[Table[object], ...] = (Table(cls=Bare, fields={"name": Field("name", TEXT)}),)
    decoder = Decoder(tables, document_error, DocumentOrigin.DATASTORE)
    assert decoder.decode({"name": "n", "roof": 1}, Bare, "s") == Bare(name="n")


def test_unknown_members_are_ignored_refused_or_kept() -> None:
    members = {"name": "h", "kind": "House", "roof": {"b": 1, "a": 2}, "front": {"colour": "red", "x": 0}}
    assert CNI.decode(members, House, "here") == House(name="h", front=Door(colour="red"))
    stored = STORE.decode(members, House, "s")
    assert (stored.unknown_json, stored.front) == (
        '{"roof":{"a":2,"b":1}}',
        Door(colour="red", unknown_json='{"x":0}'),
    )
    with pytest.raises(UnknownField) as refusal:
        USER.decode(members, House, "file.yaml")
    assert str(refusal.value) == (
        "field in document is not recognized or is in the wrong location: roof @ file.yaml $; "
        "there are address, doors, front, isOld, key, kind, name, street, website"
    )
    with pytest.raises(UnknownField) as refusal:
        USER.decode({"name": "h", "front": members["front"]}, House, "file.yaml")
    assert str(refusal.value) == (
        "field in document is not recognized or is in the wrong location: x @ file.yaml $.front; "
        "there are colour, numberOfLocks"
    )


def test_an_unknown_member_is_refused_before_what_is_missing_or_wrong_beside_it() -> None:
    for beside in ({}, {"name": 7}):
        with pytest.raises(UnknownField) as refusal:
            USER.decode({"nam": "h", **beside}, House, "file.yaml")
        assert refusal.value.value == "nam"


def test_what_is_read_from_a_store_is_written_back() -> None:
    members = {"name": "h", "isOld": False, "roof": 1, "doors": [{"colour": "red", "x": [1]}]}
    assert STORE.encode(STORE.decode(members, House, "s")) == members


def test_an_error_about_a_document_says_what_was_found() -> None:
    with pytest.raises(MalformedField) as refusal:
        USER.decode({"name": "h", "doors": [{}]}, House, "file.yaml")
    assert str(refusal.value) == "expected a text @ file.yaml $.doors[0].colour, found nothing"


@pytest.mark.parametrize("key,value", [("key", [SECRET]), ("website", [f"http://u:{SECRET}@h"])])
def test_an_error_shows_no_more_of_a_value_than_the_class_does(key: str, value: object) -> None:
    with pytest.raises(MalformedField) as refusal:
        USER.decode({"name": "h", key: value}, House, "file.yaml")
    assert SECRET not in repr(refusal.value) + str(refusal.value)
    assert str(refusal.value) == f"expected a text @ file.yaml $.{key}, found '…'"


def test_what_completes_a_class_may_refuse_it() -> None:
    @define
    class Pair:
        low: int = 0
        high: int = Factory(int)

    def finish(values: dict[str, object], keys: Mapping[str, str]) -> dict[str, object]:
        if values["low"] == values["high"]:
            raise Refused("two numbers are expected", value=values["low"], path=f".{keys['low']}")
        return values

    fields = {"low": Field("from", Codec(INTEGER.decode)), "high": Field("to", INTEGER)}
    decoder = Decoder((Table(cls=Pair, fields=fields, finish=finish),), cni_error)
    assert decoder.decode({"from": 1, "to": 2}, Pair, "here") == Pair(1, 2)
    with pytest.raises(ConfigurationError, match=r"^here\.from: 1 is not accepted; two numbers are expected$"):
        decoder.decode({"from": 1, "to": 1}, Pair, "here")


@pytest.mark.parametrize(
    "names, member, members",
    [
        (("a", "b"), {"c": 1}, {"c": 1}),
        (("a", "b", "c"), 1, {}),
        (("a", "x", "c"), None, {}),
        (("text", "a"), None, {}),
        (("null",), None, {}),
    ],
)
def test_what_some_names_lead_to(names: tuple[str, ...], member: object, members: object) -> None:
    whole = {"a": {"b": {"c": 1}}, "text": "x", "null": None}
    assert (find_member(whole, *names), find_object(whole, *names)) == (member, members)
