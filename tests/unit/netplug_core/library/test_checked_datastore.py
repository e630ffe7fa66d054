"""Wrong types are refused by name before a backend sees them; everything else reaches it."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.errors import InvalidArgument
from netplug_core.ipam.model import BLOCK
from netplug_core.library import CheckedDatastore
from netplug_core.records import (
    ABSENT,
    Create,
    Delete,
    Get,
    Kind,
    List,
    NotFound,
    Require,
    RequireUnchanged,
    Revision,
    Update,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.testing.clock import ManualClock

POOL = IPPool.for_prefix(Prefix.parse("10.0.0.0/24"), name="main")
KEY: Any = "IPPool(main)"
NUMBER: Any = 5
DICT: Any = {"spec": {"cidr": "10.0.0.0/24"}}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> CheckedDatastore:
    return CheckedDatastore(MemoryDatastore(clock=clock))


@pytest.mark.parametrize("queries, message", [
    (["main"], "read(queries): 'main' is not accepted; a Get or a List is expected"),
    ("main", "read(queries): 'main' is not accepted; a list is expected"),
    (Get(POOL.key), "read(queries): Get(key="),
    ([Get(KEY)], "Get(key): 'IPPool(main)' is not accepted; a Key is expected, such as pool.key"),
    ([List(KEY)], "List(kind): 'IPPool(main)' is not accepted; a Kind is expected, such as IPPOOL"),
])  # fmt: skip
def test_a_query_is_checked(store: CheckedDatastore, clock: ManualClock, queries: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(InvalidArgument) as refusal:
        store.read(queries, deadline=Deadline.after(clock, 1))
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize("write, message", [
    (Create(POOL.key, DICT), "Create(value): {'spec': {'cidr': '10.0.0.0/24'}} is not accepted; an IPPool is expected"),
    (Update(POOL.key, DICT, Revision("1")), "Update(value): "),
    (Create(BLOCK.key("ipv4", "10.0.0.0/26"), POOL), "Create(value): IPPool(metadata="),
    (Create(POOL.key, evolve(POOL, spec=DICT)), "Create(value): IPPool(metadata="),
    (Create(POOL.key, evolve(POOL, metadata=Metadata(name=KEY, labels=DICT))), "Create(value): IPPool(metadata="),
    (Create(IPPOOL.key(NUMBER), POOL), "Create(key): (5,) is not accepted; a Key of texts is expected"),
    (Create(KEY, POOL), "Create(key): 'IPPool(main)' is not accepted; a Key is expected, such as pool.key"),
    (Delete(KEY, Revision("1")), "Delete(key): "),
    (Require(KEY, ABSENT), "Require(key): "),
    (RequireUnchanged(KEY, Revision("1")), "RequireUnchanged(kind): "),
    (POOL, "commit(writes): IPPool(metadata="),
])  # fmt: skip
def test_a_write_is_checked(store: CheckedDatastore, clock: ManualClock, write: Any, message: str) -> None:  # noqa: ANN401
    deadline = Deadline.after(clock, 1)
    with pytest.raises(InvalidArgument) as refusal:
        store.commit([write], deadline=deadline)
    assert str(refusal.value).startswith(message)
    assert store.read([List(IPPOOL)], deadline=deadline).list(List(IPPOOL)) == ()


@pytest.mark.parametrize("call", [
    lambda store, deadline: store.read([List(IPPOOL)], deadline=deadline),
    lambda store, deadline: store.commit([Create(POOL.key, POOL)], deadline=deadline),
    lambda store, deadline: store.watch({IPPOOL: Revision("1")}, deadline=deadline),
])  # fmt: skip
def test_a_deadline_is_no_number(store: CheckedDatastore, call: Callable[[CheckedDatastore, Any], object]) -> None:
    with pytest.raises(
        InvalidArgument, match=r"\(deadline\): 5 is not accepted; a Deadline is expected, such as net\."
    ):
        call(store, 5)


@pytest.mark.parametrize("start", [[IPPOOL], {"IPPool": Revision("1")}])
def test_a_watch_is_checked(store: CheckedDatastore, clock: ManualClock, start: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidArgument, match=r"^watch\(start\): "):
        store.watch(start, deadline=Deadline.after(clock, 1))


def test_what_is_right_reaches_the_backend(store: CheckedDatastore, clock: ManualClock) -> None:
    deadline, foreign = Deadline.after(clock, 60), Kind[str]("Tool", ("name",))
    begin = store.read([List(IPPOOL)], deadline=deadline).revision(IPPOOL)
    (revision,) = store.commit([Create(POOL.key, POOL)], deadline=deadline)
    store.commit([RequireUnchanged(IPPOOL, revision), Require(POOL.key, revision)], deadline=deadline)
    assert [change.key for change in store.watch({IPPOOL: begin}, deadline=Deadline.after(clock, 1))] == [POOL.key]
    (made,) = store.commit([Create(foreign.key("knife"), "sharp")], deadline=deadline)
    store.commit([Delete(foreign.key("knife"), made), Update(POOL.key, POOL, revision)], deadline=deadline)
    assert store.description == store.backend.description
    with pytest.raises(NotFound):
        store.commit([Delete(foreign.key("knife"), made)], deadline=deadline)
