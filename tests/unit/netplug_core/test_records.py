"""Keys, snapshots that know what was asked, and decisions that grow."""

import pytest

from netplug_core.errors import InvariantBroken, NetplugError
from netplug_core.records import (
    ABSENT,
    AlreadyExists,
    Conflict,
    Create,
    Decision,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    Query,
    ReadResult,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    ValueCondition,
    WatchExpired,
    Written,
)

FRUIT: Kind[str] = Kind("Fruit", ("shelf", "name"))
TOOL: Kind[str] = Kind("Tool", ("name",))
APPLE, PEAR, KNIFE = FRUIT.key("green", "apple"), FRUIT.key("green", "pear"), TOOL.key("knife")


def record(key: Key[str], value: str = "it", revision: str = "1") -> Record[str]:
    return Record(key, value, Revision(revision))


def test_a_key_has_a_kind_a_path_and_a_name() -> None:
    assert (str(APPLE), APPLE.name, str(FRUIT)) == ("Fruit(green/apple)", "apple", "Fruit")
    assert FRUIT.key("green", "apple") == APPLE
    assert sorted([KNIFE, PEAR, APPLE]) == [APPLE, PEAR, KNIFE]


def test_a_kind_is_known_by_its_name_alone() -> None:
    assert Kind("Fruit", ()) == FRUIT
    assert Kind("Vegetable", ("shelf", "name")) != FRUIT


def test_every_question_says_what_kind_it_asks_for() -> None:
    assert Get(APPLE).kind is FRUIT
    assert List(FRUIT, within=("green",)).kind is FRUIT


def test_a_list_by_the_beginning_of_a_name_has_the_records_within_whose_names_begin_so() -> None:
    listed = List(FRUIT, ("green",), name_prefix="ap")
    names = ["ap", "apple", "apricot", "a", "pear"]
    assert [name for name in names if listed.covers(FRUIT.key("green", name))] == ["ap", "apple", "apricot"]
    assert not listed.covers(FRUIT.key("yellow", "apple"))
    assert not List(FRUIT, name_prefix="gr").covers(APPLE), "the shelf is not the name"
    assert (listed.start, List(FRUIT, ("green",)).start) == (("green", "ap"), ("green",))
    assert listed != List(FRUIT, ("green",), name_prefix="pe")


@pytest.mark.parametrize("path", [(), ("green",), ("green", "apple", "seed")])
def test_a_path_has_the_segments_of_its_kind(path: tuple[str, ...]) -> None:
    with pytest.raises(InvariantBroken, match="a key of Fruit has 2 segments"):
        FRUIT.key(*path)


def test_a_snapshot_answers_what_was_asked_and_only_that() -> None:
    snapshot = Snapshot({Get(APPLE): ReadResult((record(APPLE),)), Get(PEAR): ReadResult(())}, {FRUIT: Revision("7")})
    assert snapshot.find(APPLE) == record(APPLE)
    assert snapshot.find(PEAR) is None
    assert snapshot.has(Get(PEAR))
    assert not snapshot.has(Get(KNIFE))
    assert snapshot.revision(FRUIT) == "7"
    with pytest.raises(InvariantBroken, match=r"Tool\(knife\) was not read"):
        snapshot.find(KNIFE)
    with pytest.raises(InvariantBroken, match=r"the list of Fruit within \(\) was not read"):
        snapshot.list(List(FRUIT))


def test_a_record_is_found_by_the_question_as_by_its_key() -> None:
    asked, listed = Get(APPLE), List(FRUIT)
    snapshot = Snapshot({asked: ReadResult((record(APPLE),)), listed: ReadResult((record(PEAR),))}, {})
    assert snapshot.find(asked) == snapshot.find(APPLE) == record(APPLE)
    assert snapshot.find(Get(PEAR)) == record(PEAR)
    with pytest.raises(InvariantBroken, match=r"Tool\(knife\) was not read"):
        snapshot.find(Get(KNIFE))


def test_the_pages_of_a_list_are_questions_of_their_own() -> None:
    pages = [List(FRUIT, limit=1, after=after) for after in ("", "a", "b")]
    snapshot = Snapshot({page: ReadResult((), page.after) for page in pages}, {})
    assert len({hash(page) for page in pages}) == len(pages)
    assert [snapshot.after(page) for page in pages] == ["", "a", "b"]


def test_a_list_answers_for_the_keys_in_it_too() -> None:
    whole, part = List(FRUIT), List(FRUIT, ("green",))
    for query in (whole, part):
        snapshot = Snapshot({List(TOOL): ReadResult(()), query: ReadResult((record(PEAR),))}, {})
        assert snapshot.list(query) == (record(PEAR),)
        assert snapshot.find(PEAR) == record(PEAR)
        assert snapshot.find(APPLE) is None
    elsewhere = Snapshot({List(FRUIT, ("yellow",)): ReadResult(())}, {})
    with pytest.raises(InvariantBroken, match="was not read"):
        elsewhere.find(APPLE)


def test_a_page_knows_of_what_it_has_and_of_nothing_else() -> None:
    page = List(FRUIT, limit=1)
    snapshot = Snapshot({page: ReadResult((record(APPLE),), after="apple")}, {})
    assert snapshot.find(APPLE) == record(APPLE)
    assert snapshot.after(page) == "apple"
    with pytest.raises(InvariantBroken, match=r"Fruit\(green/pear\) was not read"):
        snapshot.find(PEAR)


def test_a_later_read_adds_answers_and_keeps_the_older_revision_of_a_kind() -> None:
    first = Snapshot({Get(APPLE): ReadResult((record(APPLE, "old"),))}, {FRUIT: Revision("7")})
    later = Snapshot(
        {Get(APPLE): ReadResult((record(APPLE, "new", "9"),)), Get(KNIFE): ReadResult(())},
        {FRUIT: Revision("9"), TOOL: Revision("9")},
    )
    merged = Snapshot.empty().merged(first).merged(later)
    assert merged.find(APPLE) == record(APPLE, "new", "9")
    assert merged.find(KNIFE) is None
    assert (merged.revision(FRUIT), merged.revision(TOOL)) == ("7", "9")


def test_a_record_that_cannot_be_understood_is_an_error_where_it_is_asked_for() -> None:
    broken = Malformed(str(PEAR), "it is rotten", Revision("5"))
    found = ReadResult.of((record(APPLE), broken), "more")
    assert found == ReadResult((record(APPLE),), "more", (broken,))
    listed, asked = List(FRUIT), Get(PEAR)
    snapshot = Snapshot({listed: found, asked: ReadResult((), malformed=(broken,))}, {})
    for read in (lambda: snapshot.list(listed), lambda: snapshot.find(PEAR)):
        with pytest.raises(Malformed, match="it is rotten"):
            read()
    assert snapshot.readable(listed) == (record(APPLE),)
    assert snapshot.readable(asked) == ()
    assert snapshot.malformed(listed) == snapshot.malformed(asked) == (broken,)


def test_a_list_with_a_malformed_record_does_not_say_that_a_key_is_absent() -> None:
    broken = Malformed("a key that nobody can read", "it is rotten")
    snapshot = Snapshot({List(FRUIT): ReadResult((record(APPLE),), malformed=(broken,))}, {})
    assert snapshot.find(APPLE) == record(APPLE)
    with pytest.raises(Malformed, match="it is rotten"):
        snapshot.find(PEAR)


def test_the_state_of_a_key_is_known_whether_or_not_its_record_can_be_understood() -> None:
    broken = Malformed(str(PEAR), "it is rotten", Revision("5"))
    answers: dict[Query, ReadResult] = {
        Get(APPLE): ReadResult((record(APPLE, "v", "7"),)),
        Get(PEAR): ReadResult((), malformed=(broken,)),
        Get(KNIFE): ReadResult(()),
    }
    snapshot = Snapshot(answers, {})
    assert [snapshot.state(Get(key)) for key in (APPLE, PEAR, KNIFE)] == ["7", "5", ABSENT]
    with pytest.raises(InvariantBroken, match=r"Tool\(knife\) was not read"):
        Snapshot.empty().state(Get(KNIFE))


def test_the_result_of_a_decision_is_no_refusal() -> None:
    assert Decision((), "done").get_result() == "done"
    refusal: Decision[str] = Decision((), InvariantBroken("no"))
    with pytest.raises(InvariantBroken, match="no"):
        refusal.get_result()


def test_writes_around_a_decision_move_its_positions_along() -> None:
    own = (Create(APPLE, "a"), Update(APPLE, "b", Written(0)), Delete(PEAR, Revision("3")))
    around = Decision(own, "done").with_writes(
        before=(Require(KNIFE, ABSENT), RequireUnchanged(FRUIT, Revision("7"))),
        after=(Create(KNIFE, "k"), Delete(KNIFE, Written(0))),
    )
    assert around == Decision(
        (
            Require(KNIFE, ABSENT),
            RequireUnchanged(FRUIT, Revision("7")),
            Create(APPLE, "a"),
            Update(APPLE, "b", Written(2)),
            Delete(PEAR, Revision("3")),
            Create(KNIFE, "k"),
            Delete(KNIFE, Written(5)),
        ),
        "done",
    )


@pytest.mark.parametrize("error, text", [
    (NotSupported("watch", FRUIT, "not here"), "watch of Fruit is not supported: not here"),
    (Malformed("Fruit(green/apple)", "no JSON"), "the stored record Fruit(green/apple) is malformed: no JSON"),
    (WatchExpired(Revision("7")), "changes after revision 7 are no longer kept; list again"),
    (Conflict(APPLE), "Fruit(green/apple) was changed by another writer"),
    (Conflict(FRUIT), "Fruit was changed by another writer"),
    (NotFound(APPLE), "Fruit(green/apple) does not exist"),
    (AlreadyExists(APPLE), "Fruit(green/apple) already exists"),
    (OutcomeUnknown("etcd", "the reply was lost", 2), "etcd: the reply was lost"),
])  # fmt: skip
def test_what_a_store_refuses_in_words(error: Exception, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize("error, code", [(Malformed("k", "p"), 140), (NotSupported("watch", FRUIT, "r"), 141)])
def test_what_a_store_cannot_read_or_keep_has_a_code_of_its_own(error: NetplugError, code: int) -> None:
    assert error.code == code


def test_a_list_without_some_values_does_not_say_that_they_are_absent() -> None:
    """It has the keys of what it leaves out, and every other record."""
    left_out, shown, absent = (TOOL.key(name) for name in ("a", "b", "c"))
    condition = ValueCondition("left out", lambda value: value == "x")
    page = List(TOOL, keys_only_if=condition)
    record = Record(shown, "y", Revision("1"))
    snapshot = Snapshot({page: ReadResult.of([left_out, record])}, {})
    assert snapshot.keys(page) == (left_out,)
    assert snapshot.list(page) == (record,)
    assert snapshot.find(shown) == record
    for key in (left_out, absent):
        with pytest.raises(InvariantBroken):
            snapshot.find(key)
