"""Laws of the release of a cluster.

- It is never lowered, is raised to the lowest one that is recorded, and no further.
- The order of the nodes, and doing it again, change nothing; texts that name no release change nothing either.
- Nodes that come, are upgraded, go back, go away and start at once, in any order, with writers that read an older
  state: the release never goes back, and is in the end at least the lowest one that is recorded.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netplug_core.reconcile.cluster import Release, raised_release

NUMBERS = st.integers(min_value=0, max_value=3)
SUFFIXES = st.sampled_from(["", "-rc1", "-rc.2", "-alpha", "+build"])
RELEASES = st.builds(lambda major, minor, suffix: f"v{major}.{minor}.0{suffix}", NUMBERS, NUMBERS, SUFFIXES)
TEXTS = st.one_of(RELEASES, st.sampled_from(["", "latest", "v3", "v" + "9" * 5000 + ".0"]), st.text(max_size=12))


def is_lower(text: str, than: str) -> bool:
    one, other = Release.parse(text), Release.parse(than)
    return one is not None and other is not None and one < other


@given(TEXTS, st.lists(TEXTS, max_size=6))
def test_the_release_is_raised_to_the_lowest_and_never_lowered(known: str, recorded: list[str]) -> None:
    after = raised_release(known, recorded)
    assert not is_lower(after, known)
    assert after == known or all(not is_lower(each, after) for each in recorded)
    assert raised_release(after, recorded) == after
    assert raised_release(known, sorted(recorded, reverse=True)) == after
    readable = [each for each in recorded if Release.parse(each) is not None]
    assert raised_release(known, readable) == after
    # At least the lowest: some recorded release is not later than it.
    assert not readable or any(not is_lower(after, each) for each in readable)


NODES = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), NODES, TEXTS),
        st.tuples(st.just("leave"), NODES, st.just("")),
        st.tuples(st.just("read"), NODES, st.just("")),
        st.tuples(st.just("write"), NODES, st.just("")),
    ),
    max_size=30,
)


@given(STEPS)
def test_writers_in_any_order_never_take_the_cluster_back(steps: list[tuple[str, str, str]]) -> None:
    cluster, recorded, seen = "", dict[str, str](), dict[str, tuple[str, ...]]()
    for step, node, text in steps:
        before = cluster
        if step == "record":
            recorded[node] = text
        elif step == "leave":
            recorded.pop(node, None)
        elif step == "read":
            seen[node] = tuple(recorded.values())
        else:  # the write is conditional: it is decided on the stored release, and on nodes that may be out of date
            cluster = raised_release(cluster, seen.get(node, ()))
        assert not is_lower(cluster, before)
    cluster = raised_release(cluster, recorded.values())
    readable = [each for each in recorded.values() if Release.parse(each) is not None]
    assert not readable or any(not is_lower(cluster, each) for each in readable)
