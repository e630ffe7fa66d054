"""Objects are read and written by tables: paths in errors, unknown members, defaults, and what errors show."""

import enum
from collections.abc import Mapping

import pytest
from attrs import Factory, define, field, frozen

from netplug_core.decoding.codecs import (
    BOOLEAN,
    INTEGER,
    NONEMPTY_STRING,
    STRING,
    TEXT,
    Codec,
    Refused,
    checked,
    codec_of,
    unchanged,
)
from netplug_core.decoding.tables import (
    Decoder,
    DocumentOrigin,
    Field,
    Keeps,
    ListOf,
    MalformedField,
    Table,
    UnknownField,
    carried_json,
    cni_error,
    collect_members,
    collect_unknown,
    document_error,
    find_member,
    find_object,
    find_unknown,
    inner_schema,
    items_of,
    json_object,
    member,
    member_schemas,
    object_schema,
    split_path,
    unreadable_json,
)
from netplug_core.errors import ConfigurationError, DecodeError, redact_url_credentials

SECRET = "hunter2"  # noqa: S105  # planted, to be searched for


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


LOCKS = checked(INTEGER, range(10).__contains__, "0 to 9 are accepted", schema={"maximum": 9})


@frozen(kw_only=True)
class Door:
    colour: str = field(metadata=member("colour", TEXT, "what it is painted with"))
    locks: int = field(default=1, metadata=member("numberOfLocks", LOCKS, "how many it has", "1"))
    frame: Colour | None = field(default=None, metadata=member("frame", Colour))
    unknown_json: str = ""


@json_object(ignored=("kind",))
@frozen(kw_only=True)
class House:
    name: str = field(metadata=member("name", NONEMPTY_STRING))
    doors: tuple[Door, ...] = field(default=(), metadata=member("doors", ListOf(Door)))
    front: Door | None = field(default=None, metadata=member("front", Door))
    key: str = field(default="", repr=False, metadata=member("key", STRING))
    website: str = field(
        default="", repr=lambda value: repr(redact_url_credentials(value)), metadata=member("website", STRING)
    )
    is_old: bool = field(default=False, metadata=member("isOld", BOOLEAN, is_always_written=True))
    street: str = field(
        default="",
        metadata=member(("address", "street"), STRING, alternatives=(Field("street", STRING),), is_unset_if_empty=True),
    )
    unknown_json: str = ""


@json_object(keeps=Keeps.UNREADABLE)
@frozen(kw_only=True)
class Shed:
    colour: Colour | None = field(default=None, metadata=member("colour", Colour, is_required=True))
    door: Door | None = field(default=None, metadata=member("door", Door))
    windows: tuple[Door, ...] | None = field(default=None, metadata=member("windows", ListOf(Door)))
    unknown_json: str = ""


@frozen(kw_only=True)
class Street:
    doors: tuple[Door, ...] = field(
        default=(), metadata=member("doors", ListOf(Door), "the doors", limits={"maxItems": 2}, written="open_doors")
    )
    colours: tuple[Colour, ...] = field(default=(), metadata=member("colours", ListOf(Colour), "those it has"))

    @property
    def open_doors(self) -> tuple[Door, ...]:
        return tuple(door for door in self.doors if not door.locks)


@frozen(kw_only=True)
class Bare:
    name: str


CNI = Decoder(cni_error)
LENIENT = Decoder(cni_error, defaults_if_refused=True)
USER = Decoder(document_error, DocumentOrigin.USER)
STORE = Decoder(document_error, DocumentOrigin.DATASTORE)


def read(**members: object) -> House:
    return CNI.decode({"name": "h", **members}, House, "here")


def test_members_become_attributes() -> None:
    house = read(doors=[{"colour": "red", "numberOfLocks": 2}, {"colour": ""}], front={"colour": "blue"}, isOld=True)
    assert house.doors == (Door(colour="red", locks=2), Door(colour=""))
    assert house.front == Door(colour="blue")
    assert house.is_old


def test_null_is_absence_and_an_absent_member_has_the_default() -> None:
    assert read(doors=None, front=None, key=None, isOld=None, address=None) == House(name="h")


@frozen(kw_only=True)
class Lamp:
    watts: int = field(default=40, metadata=member("watts", codec_of(lambda value: value or None, unchanged)))
    colour: str = field(default="", metadata=member("colour", TEXT))


def test_a_value_that_means_nothing_has_the_default_and_keeps_what_is_beside_it() -> None:
    assert CNI.decode({"watts": 0, "colour": "red"}, Lamp, "here") == Lamp(watts=40, colour="red")
    assert CNI.decode({"watts": 60, "colour": "red"}, Lamp, "here") == Lamp(watts=60, colour="red")


def test_the_first_error_is_that_of_the_table_and_not_of_the_document() -> None:
    with pytest.raises(DecodeError, match="colour"):
        CNI.decode({"numberOfLocks": 77, "colour": 5}, Door, "here")
    with pytest.raises(ConfigurationError, match="numberOfLocks"):
        CNI.decode({"numberOfLocks": 77, "colour": "red"}, Door, "here")


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
    decoder = Decoder(document_error, DocumentOrigin.DATASTORE, tables=tables)
    assert decoder.decode({"name": "n", "roof": 1}, Bare, "s") == Bare(name="n")


def test_what_cannot_be_read_of_a_stored_object_is_kept_as_unknown() -> None:
    members = {"colour": "green", "door": {"locks": 1}, "windows": [{"colour": "red", "x": 1}], "roof": None}
    shed = STORE.decode(members, Shed, "s")
    assert shed == Shed(
        windows=(Door(colour="red", unknown_json='{"x":1}'),),
        unknown_json='{"colour":"green","door":{"locks":1},"roof":null}',
    )
    assert STORE.encode(shed) == members
    assert find_unknown(shed) == {"colour", "door", "roof"}
    assert collect_unknown(shed) == ("colour", "door", "roof", "windows[0].x")
    assert STORE.decode({}, Shed, "s") == Shed()
    assert collect_unknown(Shed()) == ()
    assert unreadable_json(shed) == '{"colour":"green","door":{"locks":1}}'
    assert unreadable_json(Shed()) == ""
    assert carried_json(shed, Shed(unknown_json='{"colour":1,"new":2}')) == '{"colour":1,"roof":null}'
    for broken in (members, {}):
        with pytest.raises(MalformedField, match="expected one of red, blue @ f"):
            USER.decode({name: one for name, one in broken.items() if name != "roof"}, Shed, "f")
    assert object_schema(Shed)["required"] == ["colour"]


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
        "there are colour, frame, numberOfLocks"
    )
    for name, advice in (
        ("numberOfLocks", "it belongs in front; there are address"),
        ("fron", "did you mean front? there are"),
    ):
        with pytest.raises(UnknownField) as refusal:
            USER.decode({"name": "h", name: 1}, House, "file.yaml")
        assert refusal.value.advice.startswith(advice)
        assert split_path(refusal.value.where, "file.yaml") == ""
    assert split_path("other.yaml $.a", "file.yaml") is None


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
    decoder = Decoder(cni_error, tables=(Table(cls=Pair, fields=fields, finish=finish),))
    assert decoder.decode({"from": 1, "to": 2}, Pair, "here") == Pair(1, 2)
    with pytest.raises(ConfigurationError, match=r"^here\.from: 1 is not accepted; two numbers are expected$"):
        decoder.decode({"from": 1, "to": 1}, Pair, "here")


def test_an_enumeration_is_decoded_by_its_values_and_encoded_again() -> None:
    members = {"colour": "x", "frame": "blue"}
    assert CNI.decode(members, Door, "here") == Door(colour="x", frame=Colour.BLUE)
    assert CNI.encode(Door(colour="x", frame=Colour.BLUE)) == members
    assert CNI.encode(Street(colours=(Colour.RED,))) == {"colours": ["red"]}
    with pytest.raises(DecodeError, match=r"^here\.frame: one of red, blue$"):
        CNI.decode({"colour": "x", "frame": "green"}, Door, "here")


def test_a_property_may_be_written_in_place_of_the_attribute() -> None:
    street = Street(doors=(Door(colour="a"), Door(colour="b", locks=0)))
    assert CNI.encode(street) == {"doors": [{"colour": "b", "numberOfLocks": 0}]}


def test_a_table_says_what_a_class_is_on_another_wire() -> None:
    table = Table(cls=Door, fields={"colour": Field("paint", TEXT)})
    other = Decoder(cni_error, tables=(table,))
    assert other.decode({"name": "h", "front": {"paint": "red"}}, House, "here").front == Door(colour="red")
    assert CNI.decode({"colour": "red"}, Door, "here") == other.decode({"paint": "red"}, Door, "here")


def test_a_schema_has_members_texts_and_limits() -> None:
    door = {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "description": "what it is painted with"},
            "numberOfLocks": {"type": "integer", "maximum": 9, "description": "how many it has"},
            "frame": {"type": "string", "enum": ["red", "blue"]},
        },
        "required": ["colour"],
    }
    colours = {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}, "description": "those it has"}
    assert object_schema(Street) == {
        "type": "object",
        "properties": {
            "doors": {"type": "array", "items": door, "description": "the doors", "maxItems": 2},
            "colours": colours,
        },
    }


def test_members_are_found_by_their_paths() -> None:
    found = collect_members(Street)
    assert tuple(found) == ("doors", "doors[].colour", "doors[].numberOfLocks", "doors[].frame", "colours")
    assert (found["doors[].numberOfLocks"].text, found["doors[].numberOfLocks"].default) == ("how many it has", "1")
    assert collect_members(Bare) == collect_members(Colour) == {}


@pytest.mark.parametrize(
    "names, found, members",
    [
        (("a", "b"), {"c": 1}, {"c": 1}),
        (("a", "b", "c"), 1, {}),
        (("a", "x", "c"), None, {}),
        (("text", "a"), None, {}),
        (("null",), None, {}),
    ],
)
def test_what_some_names_lead_to(names: tuple[str, ...], found: object, members: object) -> None:
    whole = {"a": {"b": {"c": 1}}, "text": "x", "null": None}
    assert (find_member(whole, *names), find_object(whole, *names)) == (found, members)


def test_the_items_of_an_attribute_are_those_of_one_class() -> None:
    values: dict[str, object] = {"mixed": (1, "a", 2), "one": 1}
    assert items_of(values, "mixed", int) == (1, 2)
    assert items_of(values, "mixed", str) == ("a",)
    assert items_of(values, "one", int) == ()
    assert items_of(values, "absent", int) == ()


def test_schemas_within_a_schema_are_changed_in_place() -> None:
    schema: dict[str, object] = {"properties": {"name": {"type": "string"}}, "items": {"type": "integer"}}
    member_schemas(schema)["name"]["maxLength"] = 3
    inner_schema(schema, "items")["minimum"] = 0
    assert schema == {
        "properties": {"name": {"type": "string", "maxLength": 3}},
        "items": {"type": "integer", "minimum": 0},
    }
    assert member_schemas({}) == {}
    assert inner_schema({}, "items") == {}
