"""Laws of the datastore of a dry run.

1. It answers every query as the store behind would after the same commits, also in pages of any size.
2. It refuses the commits that the store behind would refuse, with the same error at the same write.
3. The store behind stays as it is.
"""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline
from netplug_core.datastore.dry_run import DryRunDatastore
from netplug_core.datastore.protocol import Datastore
from netplug_core.records import (
    ABSENT,
    CommitError,
    Create,
    Delete,
    Get,
    Key,
    List,
    Query,
    Require,
    RequireUnchanged,
    Revision,
    Update,
    Write,
)
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.datastore_harness import FRUIT

CLOCK = ManualClock()
SOON = Deadline.after(CLOCK, 60)
KEYS = [FRUIT.key(shelf, name) for shelf in ("low", "top") for name in ("a", "ab", "b", "c")]
STEPS = ("create", "update", "delete", "outdated", "absent", "unchanged", "stale")
PLANS = st.lists(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(STEPS)), max_size=4), max_size=6)


def write_of(store: Datastore, key: Key[str], step: str, value: str, first: Revision) -> Write:
    """One write; the revisions of two stores differ, so each names its own."""
    snapshot = store.read([Get(key), List(FRUIT)], deadline=SOON)
    found = snapshot.find(key)
    revision = found.revision if found and step != "outdated" else Revision("outdated")
    match step:
        case "create":
            return Create(key, value)
        case "delete":
            return Delete(key, revision)
        case "absent":
            return Require(key, ABSENT)
        case "unchanged" | "stale":
            return RequireUnchanged(FRUIT, snapshot.revision(FRUIT) if step == "unchanged" else first)
        case _:
            return Update(key, value, revision)


def outcome(store: Datastore, steps: Sequence[tuple[Key[str], str]], value: str, first: Revision) -> object:
    """What a commit of some steps comes to; of the steps for one key the first one counts."""
    chosen = list(dict(reversed(steps)).items())
    try:
        store.commit([write_of(store, key, step, value, first) for key, step in chosen], deadline=SOON)
    except CommitError as error:
        return type(error), error.index, error.subject, error.current and error.current.value
    return "committed"


def revision_of_fruit(store: Datastore) -> Revision:
    return store.read([List(FRUIT)], deadline=SOON).revision(FRUIT)


def shown(store: Datastore, limit: int) -> list[object]:
    """The values of every query, the list also in pages."""
    queries: list[Query] = [*map(Get, KEYS), List(FRUIT), List(FRUIT, ("top",)), List(FRUIT, ("low",), name_prefix="a")]
    snapshot = store.read(queries, deadline=SOON)
    found: list[object] = [[(r.key, r.value) for r in snapshot.results[query].records] for query in queries]
    pages, after, count = list[object](), "", 0
    while (after or not count) and count < 2 * len(KEYS):
        page = List(FRUIT, limit=limit, after=after)
        answer = store.read([page], deadline=SOON)
        pages.extend((record.key, record.value) for record in answer.list(page))
        after, count = answer.after(page), count + 1
    return [*found, pages]


@given(before=st.sets(st.sampled_from(KEYS)), plan=PLANS, limit=st.integers(1, 5))
def test_a_dry_run_answers_as_the_store_after_the_same_commits(
    before: set[Key[str]], plan: list[list[tuple[Key[str], str]]], limit: int
) -> None:
    """Laws 1 to 3."""
    real, behind = MemoryDatastore(clock=CLOCK), MemoryDatastore(clock=CLOCK)
    for store in (real, behind):
        store.commit([Create(key, "first") for key in sorted(before)], deadline=SOON)
    dry, untouched = DryRunDatastore(behind), shown(behind, limit)
    first_of_real, first_of_dry = revision_of_fruit(real), revision_of_fruit(dry)
    for number, steps in enumerate(plan):
        value = f"v{number}"
        assert outcome(dry, steps, value, first_of_dry) == outcome(real, steps, value, first_of_real)
        assert shown(dry, limit) == shown(real, limit)
    assert shown(behind, limit) == untouched
    assert behind.calls.commits == 1
