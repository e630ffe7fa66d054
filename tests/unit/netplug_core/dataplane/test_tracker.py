"""What differs between what should be and what is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netplug_core.dataplane.tracker import DeltaTracker


def test_an_update_is_wanted_until_it_is_observed() -> None:
    tracker: DeltaTracker[str, int] = DeltaTracker()
    tracker.desire("a", 1)
    assert list(tracker.updates()) == [("a", 1)]
    tracker.observe("a", 1)
    assert tracker.is_settled
    tracker.observe("a", 2)  # somebody else changed it
    assert list(tracker.updates()) == [("a", 1)]


def test_what_is_not_desired_is_deleted_with_what_it_is_now() -> None:
    tracker: DeltaTracker[str, int] = DeltaTracker()
    tracker.observe_all({"a": 1, "b": 2})
    tracker.desire_all({"a": 1})
    assert list(tracker.deletions()) == [("b", 2)]
    assert list(tracker.updates()) == []
    tracker.observe("b", None)
    assert tracker.is_settled
    assert tracker.observed == {"a": 1}
    tracker.desire_all({"c": 3})
    assert (list(tracker.updates()), list(tracker.deletions())) == ([("c", 3)], [("a", 1)])
    assert (tracker.differs("a"), tracker.differs("b")) == (True, False)


def test_changes_come_in_the_order_in_which_they_became_due() -> None:
    tracker: DeltaTracker[str, int] = DeltaTracker()
    for key in "cab":
        tracker.desire(key, 1)
    assert [key for key, _ in tracker.updates()] == ["c", "a", "b"]
    tracker.desire("a", None)
    assert [key for key, _ in tracker.updates()] == ["c", "b"]
    assert tracker.desired == {"c": 1, "b": 1}


_STEP = st.tuples(st.sampled_from(("desire", "observe")), st.sampled_from("abc"), st.none() | st.integers(1, 2))


@given(st.lists(_STEP), st.dictionaries(st.sampled_from("abc"), st.integers(1, 2)))
def test_it_always_names_exactly_what_differs(steps: list[tuple[str, str, int | None]], whole: dict[str, int]) -> None:
    tracker: DeltaTracker[str, int] = DeltaTracker()
    for number, (side, key, value) in enumerate(steps):
        if number == len(steps) // 2:
            tracker.observe_all(whole)
        (tracker.desire if side == "desire" else tracker.observe)(key, value)
    wanted, found = tracker.desired, tracker.observed
    assert dict(tracker.updates()) == {key: value for key, value in wanted.items() if found.get(key) != value}
    assert dict(tracker.deletions()) == {key: value for key, value in found.items() if key not in wanted}
    assert tracker.is_settled == (wanted == found)
