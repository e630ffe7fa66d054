"""What only a real etcd shows: what a call costs it, what it forgets, its limits, and what stands where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from threading import Barrier, Thread

import pytest

from netplug_backends.etcdv3.client import NoSpaceLeft
from netplug_backends.etcdv3.datastore import EtcdDatastore, datastore_from_settings
from netplug_backends.etcdv3.layout import LAYOUT
from netplug_backends.host.machine import SystemClock
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.transaction import Transaction
from netplug_core.errors import Unavailable
from netplug_core.ipam.allocation.acquire import overlap_queries
from netplug_core.ipam.model import (
    AFFINITY,
    BLOCK,
    HANDLE,
    Affinity,
    AffinityState,
    Block,
    Handle,
    affinity_key,
    handle_key,
)
from netplug_core.names import InvalidName
from netplug_core.records import (
    ABSENT,
    MAX_COMMIT_WRITES,
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
    OutcomeUnknown,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Update,
    WatchEvent,
    WatchExpired,
    Written,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION,
    IPAM_CONFIGURATION_KEY,
    IPPOOL,
    IPAMConfiguration,
    IPAMConfigurationSpec,
)
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.datastore_harness import SAMPLE_CODEC
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, make_client, read_all_entries, start_etcd
from tests.harness.servers.etcd_admin import calls_served, compact, put, stored_key_names
from tests.harness.waiting import MARGIN_S

pytestmark = pytest.mark.etcd

CLOCK = SystemClock()
POOLS: Kind[object] = IPPOOL  # whose values are texts here
POOL = POOLS.key("main")
H: Key[object] = HANDLE.key("h")
SMALL_BLOCK = Block.new(Prefix.parse("10.0.0.0/30"), owner="host:a", now_ns=0)
CONFIRMED = Affinity(state=AffinityState.CONFIRMED)
FULL = "etcdserver: mvcc: database space exceeded"


@pytest.fixture
def store(etcd: EtcdCluster) -> Iterator[EtcdDatastore]:
    """A store of texts, empty."""
    delete_all_entries(etcd)
    with closing(EtcdDatastore(make_client(etcd, clock=CLOCK), codec=SAMPLE_CODEC)) as opened:
        yield opened


def soon() -> Deadline:
    return Deadline.after(CLOCK, 60.0)


def pools(count: int) -> list[Key[object]]:
    return [POOLS.key(f"pool-{number:04}") for number in range(count)]


def made(store: EtcdDatastore, keys: list[Key[object]]) -> None:
    """Create records, as many at a time as a commit takes."""
    for begin in range(0, len(keys), MAX_COMMIT_WRITES):
        store.commit([Create(key, str(key)) for key in keys[begin : begin + MAX_COMMIT_WRITES]], deadline=soon())


# --- what it costs ---------------------------------------------------------------------------------------------------


def test_a_read_is_one_call_and_a_commit_is_one_call_also_when_it_is_refused(
    etcd: EtcdCluster, store: EtcdDatastore
) -> None:
    """Counted at the server. The refusal names the write and brings what is stored there now."""
    store.commit([Create(POOL, "a")], deadline=soon())
    before = calls_served(etcd)
    snapshot = store.read([Get(POOL), List(HANDLE), List(AFFINITY), List(WORKLOAD_ENDPOINT, ("ns",))], deadline=soon())
    (handle, _) = store.commit([Create(H, "h"), RequireUnchanged(POOLS, snapshot.revision(POOLS))], deadline=soon())
    with pytest.raises(AlreadyExists) as caught:
        store.commit([Require(H, handle), Create(POOL, "b"), Update(H, "i", handle)], deadline=soon())
    served = {name: count - before.get(name, 0) for name, count in calls_served(etcd).items()}
    assert {name: count for name, count in served.items() if count} == {"Txn": 3}
    assert (caught.value.subject, caught.value.index, caught.value.current) == (POOL, 1, snapshot.find(POOL))


def test_a_kind_that_changed_is_named_in_the_same_call(etcd: EtcdCluster, store: EtcdDatastore) -> None:
    listed = store.read([List(POOLS)], deadline=soon()).revision(POOLS)
    (revision,) = store.commit([Create(POOL, "a")], deadline=soon())
    with pytest.raises(Conflict) as caught:
        store.commit([Create(H, "h"), RequireUnchanged(POOLS, listed)], deadline=soon())
    assert (caught.value.subject, caught.value.index, caught.value.current) == (POOLS, 1, None)
    assert [entry.key for entry in read_all_entries(etcd)] == [b"/netplug/resources/v3/projectnetplug.org/ippools/main"]
    store.commit([Create(H, "h"), RequireUnchanged(POOLS, revision)], deadline=soon())


def test_more_queries_than_a_call_takes_still_show_one_moment(etcd: EtcdCluster, store: EtcdDatastore) -> None:
    keys = pools(2 * MAX_COMMIT_WRITES + 1)
    made(store, keys)
    before = calls_served(etcd)["Txn"]
    snapshot = store.read([Get(key) for key in keys], deadline=soon())
    assert calls_served(etcd)["Txn"] - before == 3
    assert [snapshot.find(key) is not None for key in keys] == [True] * len(keys)
    assert snapshot.revision(POOLS) == store.read([List(POOLS)], deadline=soon()).revision(POOLS)


def test_blocks_whose_names_begin_as_a_whole_pool_does_are_read_by_their_keys(
    etcd: EtcdCluster, store: EtcdDatastore
) -> None:
    """No other block of the pool is read."""
    inside, beside = (BLOCK.key("ipv6", cidr) for cidr in ("fd00::48/125", "fd00::4:0/122"))
    made(store, [inside, beside])
    queries = overlap_queries([Prefix.parse("fd00::40/122")])
    before = calls_served(etcd)["Txn"]
    snapshot = store.read(queries, deadline=soon())
    assert (len(queries), calls_served(etcd)["Txn"] - before) == (132, 2)
    assert [record.key for query in queries for record in snapshot.results[query].records] == [inside]


def test_a_commit_may_have_as_many_writes_and_conditions_as_the_server_takes(store: EtcdDatastore) -> None:
    keys = pools(MAX_COMMIT_WRITES)
    made(store, keys)
    snapshot = store.read([Get(key) for key in keys], deadline=soon())
    records = [record for key in keys if (record := snapshot.find(key)) is not None]
    store.commit([Update(record.key, "new", record.revision) for record in records], deadline=soon())
    listed = store.read([List(POOLS)], deadline=soon()).list(List(POOLS))
    assert {record.value for record in listed} == {"new"}


def test_a_value_that_is_too_large_for_the_server_is_refused_and_not_unknown(store: EtcdDatastore) -> None:
    with pytest.raises(Unavailable, match="request is too large") as caught:
        store.commit([Create(POOL, "x" * 2_000_000)], deadline=soon())
    assert not isinstance(caught.value, OutcomeUnknown)


def test_answers_to_many_writers_are_true_when_the_store_runs_full() -> None:
    """The server makes writes that it then answers with a lack of room: these are unknown, and no others are refused.

    An allocator that took such a write for one that was never made would lose addresses.
    """
    told: dict[Key[object], Unavailable | None] = {}
    with start_etcd(extra=("--quota-backend-bytes", "4000000")) as full:

        def fill(name: str) -> None:
            number = 0
            with closing(EtcdDatastore(make_client(full, clock=CLOCK), codec=SAMPLE_CODEC)) as store:
                while True:
                    key, number = POOLS.key(f"{name}-{number}"), number + 1
                    try:
                        store.commit([Create(key, "x" * 2000)], deadline=soon())
                    except Unavailable as error:
                        told[key] = error
                        return
                    told[key] = None

        writers = [Thread(target=fill, args=(f"writer-{number}",)) for number in range(16)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        names = {
            name.removeprefix("/netplug/resources/v3/projectnetplug.org/ippools/") for name in stored_key_names(full)
        }
    assert {key.name for key, failure in told.items() if failure is None} <= names
    assert not {key.name for key, failure in told.items() if type(failure) is Unavailable} & names
    failures = [failure for failure in told.values() if failure is not None]
    assert {type(failure) for failure in failures} <= {Unavailable, NoSpaceLeft}
    assert [str(failure) for failure in failures if FULL not in str(failure)] == []


def test_the_allocator_says_at_once_that_the_store_is_full() -> None:
    """A rule is not tried again and again until its deadline; it is idempotent where the write was made after all."""
    with start_etcd(extra=("--quota-backend-bytes", "1000000")) as full:
        with closing(EtcdDatastore(make_client(full, clock=CLOCK), codec=SAMPLE_CODEC)) as store:
            for number in range(30):
                with suppress(Unavailable):
                    store.commit([Create(POOLS.key(f"p-{number}"), "x" * 100_000)], deadline=soon())
                CLOCK.sleep(0.05)  # it counts what it has on disk, which it writes ten times a second
            pace = Pace(clock=CLOCK, deadline=Deadline.after(CLOCK, 60.0), chance=lambda: 1.0)
            started = CLOCK.monotonic()
            with pytest.raises(Unavailable, match=f"{FULL}; the store is full: compact and defragment it"):
                Transaction(store, pace).run([Get(H)], lambda _snapshot: Decision((Create(H, "h"),), None))
            assert CLOCK.monotonic() - started < MARGIN_S
        assert LAYOUT.key(H).decode() not in stored_key_names(full)


def test_d14_a_large_store_is_read_whole(store: EtcdDatastore) -> None:
    """More than gRPC passes in a message unless it is told to."""
    for number in range(6):
        store.commit([Create(POOLS.key(f"large-{number}"), "x" * 1_000_000)], deadline=soon())
    assert len(store.read([List(POOLS)], deadline=soon()).list(List(POOLS))) == 6


# --- what it forgets -------------------------------------------------------------------------------------------------


def test_pages_show_their_revision_until_it_is_forgotten(etcd: EtcdCluster, store: EtcdDatastore) -> None:
    keys = pools(5)
    made(store, keys)
    first = List(POOLS, limit=2)
    snapshot = store.read([first], deadline=soon())
    second = List(POOLS, limit=2, after=snapshot.after(first))
    last = snapshot.list(first)[0]
    (revision,) = store.commit([Update(keys[4], "changed", last.revision)], deadline=soon())
    page = store.read([second, List(HANDLE)], deadline=soon())
    assert page.revision(POOLS) == snapshot.revision(POOLS)
    assert page.revision(HANDLE) == revision
    third = List(POOLS, limit=2, after=page.after(second))
    assert [record.value for record in store.read([third], deadline=soon()).list(third)] == [str(keys[4])]
    compact(etcd, int(revision))
    with pytest.raises(Unavailable, match="has been compacted"):
        store.read([third], deadline=soon())


def test_trap_20_a_watch_from_what_is_forgotten_says_so(etcd: EtcdCluster, store: EtcdDatastore) -> None:
    (revision,) = store.commit([Create(POOL, "a")], deadline=soon())
    for number in range(3):
        (revision,) = store.commit([Update(POOL, str(number), revision)], deadline=soon())
    compact(etcd, int(revision))
    start = Revision(str(int(revision) - 3))
    with pytest.raises(WatchExpired) as caught:
        list(store.watch({POOLS: start, HANDLE: revision}, deadline=soon()))
    assert caught.value.revision == start
    (following,) = store.commit([Update(POOL, "last", revision)], deadline=soon())
    assert next(store.watch({POOLS: revision}, deadline=soon())) == WatchEvent(POOL, "last", following)


def test_trap_20_of_several_revisions_the_one_that_the_store_never_reached_is_named(store: EtcdDatastore) -> None:
    """As after an older state was put back."""
    now = store.read([List(POOLS)], deadline=soon()).revision(POOLS)
    with pytest.raises(WatchExpired) as caught:
        list(store.watch({POOLS: now, HANDLE: Revision("1000000")}, deadline=soon()))
    assert caught.value.revision == "1000000"


def test_d5_a_watch_that_stops_inside_a_commit_goes_on_there(store: EtcdDatastore) -> None:
    start = store.read([List(POOLS)], deadline=soon()).revision(POOLS)
    keys = pools(3)
    made(store, keys)
    told: list[WatchEvent[object]] = []
    for _ in keys:
        told.append(next(store.watch({POOLS: told[-1].revision if told else start}, deadline=soon())))
    assert [change.key for change in told] == keys
    number = store.read([List(POOLS)], deadline=soon()).revision(POOLS)
    assert [change.revision for change in told] == [f"{number}.1", f"{number}.2", number]
    # What was told in part is not what a commit may rely on as unchanged; it is the record's revision all the same.
    with pytest.raises(Conflict):
        store.commit([RequireUnchanged(POOLS, told[0].revision)], deadline=soon())
    store.commit([Update(keys[0], "b", told[0].revision)], deadline=soon())


# --- who wins --------------------------------------------------------------------------------------------------------


def test_d2_of_many_writers_with_one_revision_one_succeeds(etcd: EtcdCluster, store: EtcdDatastore) -> None:
    (revision,) = store.commit([Create(POOL, "0")], deadline=soon())
    outcomes: list[str] = []
    start = Barrier(8)

    def write(name: str) -> None:
        with closing(EtcdDatastore(make_client(etcd, clock=CLOCK), codec=SAMPLE_CODEC)) as own:
            start.wait()
            try:
                own.commit([Update(POOL, name, revision)], deadline=soon())
                outcomes.append(name)
            except Conflict:
                outcomes.append("")

    writers = [Thread(target=write, args=(f"writer-{number}",)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    record = store.read([Get(POOL)], deadline=soon()).find(POOL)
    assert sorted(outcomes)[:-1] == [""] * 7
    assert record is not None
    assert record.value == max(outcomes)


def test_a_conflict_names_the_key_whose_condition_failed(store: EtcdDatastore) -> None:
    keys = pools(3)
    made(store, keys)
    snapshot = store.read([Get(key) for key in keys], deadline=soon())
    records = [record for key in keys if (record := snapshot.find(key)) is not None]
    (moved,) = store.commit([Update(keys[1], "moved", records[1].revision)], deadline=soon())
    with pytest.raises(Conflict) as caught:
        store.commit([Delete(record.key, record.revision) for record in records], deadline=soon())
    assert (caught.value.subject, caught.value.index) == (keys[1], 1)
    assert caught.value.current == Record(keys[1], "moved", moved)


# --- what stands where -----------------------------------------------------------------------------------------------


def test_records_of_the_allocator_stand_in_the_documented_form(etcd: EtcdCluster) -> None:
    delete_all_entries(etcd)
    key = affinity_key("host:node-a", Prefix.parse("10.0.0.0/26"))
    configuration = IPAMConfiguration(
        metadata=Metadata(name="default"), spec=IPAMConfigurationSpec(is_affinity_strict=True)
    )
    with closing(datastore_from_settings(DatastoreSettings(etcd_endpoints=etcd.endpoints), clock=CLOCK)) as store:
        store.commit(
            [
                Create(key, Affinity(state=AffinityState.PENDING)),
                Create(IPAM_CONFIGURATION_KEY, configuration),
                Update(key, Affinity(state=AffinityState.CONFIRMED), Written(0)),
            ],
            deadline=soon(),
        )
        listed = store.read([List(IPAM_CONFIGURATION)], deadline=soon()).list(List(IPAM_CONFIGURATION))
    assert [record.value for record in listed] == [configuration]
    found = {entry.key.decode(): json.loads(entry.value) for entry in read_all_entries(etcd)}
    assert found["/netplug/ipam/v2/host/node-a/ipv4/block/10.0.0.0-26"] == {"state": "confirmed"}
    assert found["/netplug/ipam/v2/config"]["strict_affinity"] is True
    assert len(found) == 2


def test_a_mark_of_a_host_is_passed_over_and_a_record_that_makes_no_sense_is_named(
    etcd: EtcdCluster, store: EtcdDatastore
) -> None:
    put(etcd, "/netplug/ipam/v2/host/node-a", "")
    made(store, [AFFINITY.key("host", "node-a", "ipv4", "10.0.0.0/26")])
    assert len(store.read([List(AFFINITY)], deadline=soon()).list(List(AFFINITY))) == 1
    put(etcd, "/netplug/ipam/v2/host/node-a/junk/more", "")
    snapshot = store.read([List(AFFINITY)], deadline=soon())
    with pytest.raises(Malformed, match="/netplug/ipam/v2/host/node-a/junk/more"):
        snapshot.list(List(AFFINITY))


def test_a_whole_list_is_in_path_order_where_the_keys_are_not(store: EtcdDatastore) -> None:
    """``kube-system/`` sorts before ``kube/`` by its bytes, and so do the pages."""
    keys: list[Key[object]] = [WORKLOAD_ENDPOINT.key(namespace, "a") for namespace in ("kube", "kube-system")]
    made(store, keys)
    whole = List(WORKLOAD_ENDPOINT)
    assert [record.key for record in store.read([whole], deadline=soon()).list(whole)] == keys
    page = List(WORKLOAD_ENDPOINT, limit=1)
    assert [record.key for record in store.read([page], deadline=soon()).list(page)] == keys[1:]


# --- what was written long ago ---------------------------------------------------------------------------------------

AGED: list[Key[object]] = [AFFINITY.key("host", "a", "ipv4", "10.0.0.0/26"), BLOCK.key("ipv6", "fd00::/122")]


@pytest.mark.parametrize("key", AGED, ids=str)
def test_a_record_of_old_is_read_changed_and_removed_where_it_stands(
    etcd: EtcdCluster, store: EtcdDatastore, key: Key[object]
) -> None:
    """Its key goes on with an ``@``. Nothing is created beside it: addresses of a block would be given twice."""
    place = LAYOUT.key(key).decode()
    put(etcd, f"{place}@", '"old"')
    snapshot = store.read([Get(key)], deadline=soon())
    record = snapshot.find(key)
    assert record is not None
    assert (record.value, record.revision[-1]) == ("old", "@")
    with pytest.raises(AlreadyExists) as caught:
        store.commit([Create(key, "new")], deadline=soon())
    assert caught.value.current == record
    with pytest.raises(Conflict):
        store.commit([Require(key, ABSENT)], deadline=soon())
    put(etcd, f"{place}0", '"another\'s"')
    assert store.read([Get(key)], deadline=soon()).find(key) == record
    (required, _) = store.commit([Require(key, record.revision), Create(POOL, "a")], deadline=soon())
    (updated,) = store.commit([Update(key, "new", required)], deadline=soon())
    assert [(entry.key.decode(), entry.value) for entry in read_all_entries(etcd)][:2] == [
        (f"{place}0", b'"another\'s"'),
        (f"{place}@", b'"new"'),
    ]
    told = next(store.watch({key.kind: Revision(str(int(updated[:-1]) - 1))}, deadline=soon()))
    assert told == WatchEvent(key, "new", updated)
    with pytest.raises(Conflict):
        store.commit([Delete(key, record.revision)], deadline=soon())
    store.commit([Delete(key, updated)], deadline=soon())
    assert store.read([Get(key)], deadline=soon()).find(key) is None
    assert [entry.key.decode() for entry in read_all_entries(etcd)][:1] == [f"{place}0"]


def test_a_list_with_records_of_old_is_whole_and_has_none_twice(etcd: EtcdCluster, store: EtcdDatastore) -> None:
    for key in AGED:
        put(etcd, f"{LAYOUT.key(key).decode()}@", '"old"')
    other = AFFINITY.key("host", "a", "ipv4", "10.0.0.64/26")
    made(store, [other])
    put(etcd, LAYOUT.key(AGED[1]).decode(), '"new"')
    for kind, records in ((AFFINITY, {AGED[0]: "old", other: str(other)}), (BLOCK, {AGED[1]: "new"})):
        listed = store.read([List(kind)], deadline=soon()).list(List(kind))
        assert {record.key: record.value for record in listed} == records
        assert len(listed) == len(records)


# --- what others marked ----------------------------------------------------------------------------------------------

MARKED: list[tuple[Key[object], str, object]] = [
    (BLOCK.key("ipv4", "10.0.0.0/30"), '{"cidr":"10.0.0.0/30","deleted":true}', SMALL_BLOCK),
    (affinity_key("host:a", Prefix.parse("10.0.0.0/30")), '{"state":"confirmed","deleted":"true"}', CONFIRMED),
    (handle_key("h"), '{"block":{"10.0.0.0/30":1},"deleted":true}', Handle(blocks=())),
]


@pytest.mark.parametrize(
    "record,legacy", [(0, ""), (0, "@"), (1, ""), (1, "@"), (2, "")],
    ids=["block", "legacy block", "affinity", "legacy affinity", "handle"],
)  # fmt: skip
def test_d8_a_record_that_is_marked_as_deleted_is_absent_and_makes_room(
    etcd: EtcdCluster, record: int, legacy: str
) -> None:
    """As on an API server: get, list, watch, and whoever creates it next."""
    key, marked, value = MARKED[record]
    delete_all_entries(etcd)
    place = f"{LAYOUT.key(key).decode()}{legacy}"
    with closing(EtcdDatastore(make_client(etcd, clock=CLOCK))) as store:
        start = dict(store.read([List(key.kind)], deadline=soon()).revisions)
        put(etcd, place, marked)
        snapshot = store.read([Get(key), List(key.kind)], deadline=soon())
        assert (snapshot.find(key), snapshot.list(List(key.kind))) == (None, ())
        told = next(store.watch(start, deadline=soon()))
        assert (told.key, told.value) == (key, None)
        with pytest.raises(NotFound):
            store.commit([Update(key, value, Revision("1"))], deadline=soon())
        store.commit([Require(key, ABSENT)], deadline=soon())
        (revision,) = store.commit([Create(key, value)], deadline=soon())
        assert store.read([Get(key)], deadline=soon()).find(key) == Record(key, value, revision)
        with pytest.raises(AlreadyExists) as refusal:
            store.commit([Create(key, value)], deadline=soon())
        assert refusal.value.current == Record(key, value, revision)
        store.commit([Delete(key, revision)], deadline=soon())
        assert store.read([Get(key)], deadline=soon()).find(key) is None


def test_one_commit_replaces_several_marked_records_or_none(etcd: EtcdCluster) -> None:
    delete_all_entries(etcd)
    with closing(EtcdDatastore(make_client(etcd, clock=CLOCK))) as store:
        for key, marked, _ in MARKED:
            put(etcd, LAYOUT.key(key).decode(), marked)
        creates = [Create(key, value) for key, _, value in MARKED]
        other = handle_key("other")
        store.commit([Create(other, Handle())], deadline=soon())
        with pytest.raises(AlreadyExists) as refusal:
            store.commit([*creates, Create(other, Handle())], deadline=soon())
        assert (refusal.value.subject, refusal.value.index) == (other, 3)
        assert all(store.read([Get(key)], deadline=soon()).find(key) is None for key, _, _ in MARKED)
        store.commit(creates, deadline=soon())
        assert all(store.read([Get(key)], deadline=soon()).find(key) for key, _, _ in MARKED)


@pytest.mark.parametrize(
    "key", [WORKLOAD_ENDPOINT.key("a/b", "w"), AFFINITY.key("host", "a/b", "ipv4", "10.0.0.0/26"), HANDLE.key("\ud800")]
)
def test_a_name_that_no_key_can_have_is_not_found_and_not_accepted(store: EtcdDatastore, key: Key[object]) -> None:
    """It may come from CNI_ARGS or a configuration, so it is no mistake of ours (code 999)."""
    within = List(key.kind, key.path[:-1])
    snapshot = store.read([Get(key), within], deadline=soon())
    assert (snapshot.find(key), snapshot.list(within)) == (None, ())
    with pytest.raises(InvalidName) as refusal:
        store.commit([Create(key, "a")], deadline=soon())
    assert refusal.value.code == 7
