"""How a list of conditional writes folds, what it answers, and what it is refused with."""

import pytest

from netplug_core.datastore.write_set import (
    KeyCondition,
    KindCondition,
    Mutation,
    apply_writes,
    condition_error,
    fold_writes,
)
from netplug_core.errors import InvariantBroken
from netplug_core.records import (
    ABSENT,
    AlreadyExists,
    CommitError,
    Conflict,
    Create,
    Delete,
    List,
    NotFound,
    ReadResult,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    ValueCondition,
    Write,
    Written,
)
from netplug_core.testing.datastore_harness import FRUIT, TOOL

APPLE = FRUIT.key("green", "apple")
PEAR = FRUIT.key("green", "pear")
KNIFE = TOOL.key("knife")
OLD = Revision("7")
NEW = Revision("9")
NOW = Revision("20")


def test_each_write_to_a_key_of_its_own_is_a_condition_and_a_change() -> None:
    folded = fold_writes((Create(APPLE, "a"), Update(PEAR, "p", OLD), Delete(KNIFE, NEW)))
    assert folded.conditions == (
        KeyCondition(0, APPLE, ABSENT),
        KeyCondition(1, PEAR, OLD),
        KeyCondition(2, KNIFE, NEW),
    )
    assert folded.mutations == (Mutation(APPLE, "a"), Mutation(PEAR, "p"), Mutation(KNIFE, None))
    assert folded.revisions((Revision("21"), Revision("22"), Revision("23")), NOW) == ("21", "22", "23")


def test_writes_that_go_on_from_each_other_are_one_change_where_the_last_of_them_stands() -> None:
    folded = fold_writes((Create(APPLE, "pending"), Create(PEAR, "p"), Update(APPLE, "confirmed", Written(0))))
    assert folded.conditions == (KeyCondition(0, APPLE, ABSENT), KeyCondition(1, PEAR, ABSENT))
    assert folded.mutations == (Mutation(PEAR, "p"), Mutation(APPLE, "confirmed"))
    assert folded.revisions((Revision("21"), Revision("22")), NOW) == ("22", "21", "22")


def test_an_update_and_a_delete_of_what_it_wrote_remove_the_key() -> None:
    folded = fold_writes((Update(APPLE, "marked", OLD), Delete(APPLE, Written(0))))
    assert folded.conditions == (KeyCondition(0, APPLE, OLD),)
    assert folded.mutations == (Mutation(APPLE, None),)


def test_a_create_and_a_delete_of_what_it_made_change_nothing_but_still_ask_for_absence() -> None:
    folded = fold_writes((Create(APPLE, "a"), Delete(APPLE, Written(0))))
    assert folded.conditions == (KeyCondition(0, APPLE, ABSENT),)
    assert folded.mutations == ()
    assert folded.revisions((), NOW) == (NOW, NOW)


def test_requirements_are_conditions_that_answer_with_the_revision_they_named() -> None:
    folded = fold_writes((Require(APPLE, OLD), Require(PEAR, ABSENT), RequireUnchanged(TOOL, NEW)))
    assert folded.conditions == (
        KeyCondition(0, APPLE, OLD),
        KeyCondition(1, PEAR, ABSENT),
        KindCondition(2, TOOL, NEW),
    )
    assert folded.revisions((), NOW) == (OLD, "", NEW)


def test_a_key_may_be_required_and_written() -> None:
    assert fold_writes((Require(APPLE, OLD), Update(APPLE, "a", OLD))).mutations == (Mutation(APPLE, "a"),)


@pytest.mark.parametrize(
    "second",
    [
        Create(APPLE, "b"),
        Update(APPLE, "b", OLD),
        Delete(APPLE, OLD),
        Update(APPLE, "b", Written(1)),
        Update(PEAR, "b", Written(0)),
    ],
)
def test_a_second_write_that_does_not_go_on_from_the_first_is_our_mistake(second: Write) -> None:
    with pytest.raises(InvariantBroken, match="write 1 of a commit does not go on from write"):
        fold_writes((Update(APPLE, "a", OLD), second))


def test_nothing_goes_on_from_a_delete() -> None:
    with pytest.raises(InvariantBroken, match=r"write 1 .* write 0 to Fruit\(green/apple\)"):
        fold_writes((Delete(APPLE, OLD), Update(APPLE, "a", Written(0))))


@pytest.mark.parametrize(
    "write,is_there,expected",
    [
        (Create(APPLE, "a"), True, AlreadyExists),
        (Update(APPLE, "a", OLD), True, Conflict),
        (Update(APPLE, "a", OLD), False, NotFound),
        (Delete(APPLE, OLD), True, Conflict),
        (Delete(APPLE, OLD), False, NotFound),
        (Require(APPLE, OLD), True, Conflict),
        (Require(APPLE, OLD), False, NotFound),
        (Require(APPLE, ABSENT), True, Conflict),
    ],
)
def test_a_refusal_names_write_key_and_what_is_there(
    write: Write, *, is_there: bool, expected: type[CommitError]
) -> None:
    current = Record(APPLE, "z", NEW) if is_there else None
    error = condition_error(write, 3, current, applied=2)
    assert type(error) is expected
    assert (error.subject, error.index, error.current, error.applied) == (APPLE, 3, current, 2)


def test_the_refusal_of_a_changed_kind_names_the_kind() -> None:
    error = condition_error(RequireUnchanged(TOOL, OLD), 1, None)
    assert isinstance(error, Conflict)
    assert (error.subject, error.index, error.current, error.applied) == (TOOL, 1, None, 0)


# --- the snapshot after a commit ----------------------------------------------------------------------------------


def snapshot_of(query: List[str], *names: str, after: str = "") -> Snapshot:
    records = tuple(Record(TOOL.key(name), name, Revision("1")) for name in names)
    return Snapshot({query: ReadResult(records, after)}, {TOOL: Revision("1")})


PAGE = List(TOOL, limit=2)


@pytest.mark.parametrize(
    "write", [Create(TOOL.key("b"), "new"), Delete(TOOL.key("a"), Revision("1"))], ids=["create", "delete"]
)
def test_a_page_that_gains_or_loses_a_record_is_not_known_afterwards(write: Write) -> None:
    after = apply_writes(snapshot_of(PAGE, "a", "c", after="more"), [write])
    assert not after.has(PAGE)


def test_a_page_follows_the_update_of_its_records_and_no_others() -> None:
    before = snapshot_of(PAGE, "c", "a", after="more")
    update = [Update(TOOL.key("a"), "new", Revision("1")), Update(TOOL.key("z"), "new", Revision("1"))]
    after = apply_writes(before, update, [Revision("2"), Revision("3")])
    assert [(record.value, record.revision) for record in after.list(PAGE)] == [("c", "1"), ("new", "2")]
    assert after.after(PAGE) == "more"


def test_a_list_by_the_beginning_of_a_name_gains_and_loses_the_records_whose_names_begin_so() -> None:
    listed = List(TOOL, name_prefix="s")
    before = snapshot_of(listed, "saw", "spade")
    writes: list[Write] = [Create(TOOL.key("scythe"), "new"), Delete(TOOL.key("saw"), Revision("1"))]
    after = apply_writes(before, [*writes, Create(TOOL.key("axe"), "new")])
    assert [record.key.name for record in after.list(listed)] == ["scythe", "spade"]


@pytest.mark.parametrize("limit", [0, 2])
def test_a_list_that_has_only_the_key_of_a_changed_record_is_not_known_afterwards(limit: int) -> None:
    """Its new value may be one that the list would show."""
    query = List(TOOL, limit=limit, keys_only_if=ValueCondition("full", lambda value: value == "full"))
    shown = Record(TOOL.key("a"), "a", Revision("1"))
    before = Snapshot({query: ReadResult((shown,), keys=(TOOL.key("b"),))}, {TOOL: Revision("1")})
    assert not apply_writes(before, [Update(TOOL.key("b"), "new", Revision("1"))]).has(query)
    after = apply_writes(before, [Update(TOOL.key("a"), "new", Revision("1"))])
    assert ([record.value for record in after.list(query)], after.keys(query)) == (["new"], (TOOL.key("b"),))


def test_there_is_one_revision_for_each_write() -> None:
    with pytest.raises(ValueError, match="zip"):
        apply_writes(Snapshot.empty(), [Create(TOOL.key("a"), "new")], [Revision("1"), Revision("2")])
